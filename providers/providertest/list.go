package providertest

import (
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func listRules() []rule {
	return []rule{
		{"List yields what Get says", listAgrees},
		{"List of an unknown nonce or fleet yields nothing that carries it", listUnknown},
		{"List goes over all pages", listPages},
		{"List may be left early and asked again", listEarly},
		{"List is the same for another process", listElsewhere},
	}
}

func listAgrees(t *trial) {
	info := t.any()
	var got, listed sandbox.Info
	var ok bool
	var start time.Time
	if !t.eventually(t.seen(), func() bool { // each may lag on its own, or at first have no answer on the lease
		start = time.Now()
		got = t.look(t.p, info.ID)
		listed, ok = t.listed(t.p, sandbox.Filter{Nonce: info.Mark.Nonce}, info.ID)
		return ok && listed.State == got.State && t.tells(got)
	}) {
		t.Fatalf("List shows it: %v, state %v, Get: state %v, deadline %v", ok, listed.State, got.State, got.Deadline)
	}
	if listed.AsOf.IsZero() {
		t.Error("List: AsOf is not set")
	}
	if !listed.Created.IsZero() && !listed.Created.Equal(got.Created) {
		t.Errorf("List: created %v, Get: %v", listed.Created, got.Created)
	}
	if listed.Run != "" && listed.Run != got.Run {
		t.Errorf("List: run %q, Get: %q", listed.Run, got.Run)
	}
	if t.caps.ReadsDeadline && !listed.Deadline.IsZero() && listed.Deadline.Sub(got.Deadline).Abs() > t.grain(start) {
		t.Errorf("List: deadline %v, Get: %v", listed.Deadline, got.Deadline)
	}
}

func listUnknown(t *trial) {
	t.any()
	nonce := random()
	for _, f := range []sandbox.Filter{{Nonce: nonce}, {Fleet: t.fleet + "x"}, {Fleet: t.fleet, Nonce: nonce}} {
		all, err := t.list(t.p, f)
		if err != nil {
			t.Errorf("list %+v: %v", f, err)
		}
		for _, i := range all {
			if i.Mark.Nonce == nonce || i.Mark.Fleet == t.fleet+"x" {
				t.Errorf("list %+v: %s carries it", f, i.ID)
			}
		}
	}
}

func listPages(t *trial) {
	if t.h.PageSize <= 0 {
		t.Skipf("Harness.PageSize is not set")
	}
	want := map[string]bool{}
	for range t.h.PageSize + 2 {
		want[t.make(t.request(t.long())).ID] = true
	}
	for _, f := range []sandbox.Filter{{Fleet: t.fleet}, {}} {
		seen := map[string]int{}
		if !t.eventually(t.seen(), func() bool {
			all, err := t.list(t.p, f)
			if err != nil {
				t.Fatalf("list: %v", err)
			}
			clear(seen)
			n := 0
			for _, i := range all {
				seen[i.ID]++
				if want[i.ID] {
					n++
				}
			}
			return n >= len(want)
		}) {
			t.Errorf("list %+v yields less than the %d sandboxes that there are", f, len(want))
		}
		for id, n := range seen {
			if n > 1 {
				t.Errorf("list %+v yields %s %d times", f, id, n)
			}
		}
	}
}

func listEarly(t *trial) {
	a, b := t.twoListed()
	seq := t.p.List(t.ctx, sandbox.Filter{Fleet: t.fleet})
	n := 0
	seq(func(sandbox.Info, error) bool { n++; return false })
	if n != 1 {
		t.Errorf("List yields %d times to one that wants no more after the first", n)
	}
	n = 0
	for i, err := range seq {
		if err != nil {
			t.Fatalf("the same sequence, ranged over again: %v", err)
		}
		if i.ID == a.ID || i.ID == b.ID {
			n++
		}
	}
	if n != 2 {
		t.Errorf("the same sequence, ranged over again, yields %d of 2", n)
	}
}

func listElsewhere(t *trial) {
	info := t.running(t.make(t.request(t.long())))
	if _, ok := t.listed(t.peer(), sandbox.Filter{Fleet: t.fleet}, info.ID); !ok {
		t.Error("another process does not see the sandbox")
	}
	t.remove(info)
	if !t.eventually(t.ending(), func() bool {
		all, err := t.list(t.peer(), sandbox.Filter{Fleet: t.fleet})
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		i, ok := find(all, info.ID)
		return !ok || i.State == sandbox.StateGone
	}) {
		t.Error("another process still sees the deleted sandbox")
	}
}
