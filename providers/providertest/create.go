package providertest

import (
	"context"
	"errors"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func createRules() []rule {
	return []rule{
		{"a create returns an ID and the sandbox gets to run", createRuns},
		{"the mark is read back by Get and by every List, unchanged", createMarks},
		{"the mark is written at create, or Capabilities say that it is not", createMarkAtCreate},
		{"the same mark twice makes what CreateOnce says", createOnce},
		{"an ID suffices in another process", createElsewhere},
		{"a create whose context is over makes nothing", createOver},
		{"Check of a good account finds nothing to complain about", createCheck},
	}
}

func createRuns(t *trial) {
	req := t.request(t.long())
	start := time.Now()
	info := t.make(req)
	if info.AsOf.IsZero() {
		t.Error("Create: AsOf is not set")
	}
	if info.State == sandbox.StateGone || info.State == sandbox.StateDormant {
		t.Errorf("Create: state %v of a new sandbox", info.State)
	}
	t.notLater("Create", info, req.Window, start)
	t.running(info)
	now := t.dated(t.p, info.ID)
	if now.ID != info.ID {
		t.Errorf("Get: ID %q, want %q", now.ID, info.ID)
	}
	if now.AsOf.IsZero() {
		t.Error("Get: AsOf is not set")
	}
	if t.caps.ReadsDeadline && now.Deadline.IsZero() {
		t.Error("Capabilities.ReadsDeadline, but Get tells no deadline of a running sandbox")
	}
	t.notLater("Get", now, req.Window, start)
	if id := t.p.Open(now).ID(); id != info.ID {
		t.Errorf("Open: ID %q, want %q", id, info.ID)
	}
	later := t.dated(t.p, info.ID)
	if later.Run != now.Run {
		t.Errorf("Get: Run changed from %q to %q although the sandbox ran on", now.Run, later.Run)
	}
	if !later.Created.Equal(now.Created) {
		t.Errorf("Get: Created changed from %v to %v", now.Created, later.Created)
	}
}

func createMarks(t *trial) {
	req := t.request(t.long())
	info := t.running(t.make(req))
	t.marked("Get", info, req.Mark)
	for name, f := range map[string]sandbox.Filter{
		"List of the fleet":           {Fleet: t.fleet},
		"List of the nonce":           {Nonce: req.Mark.Nonce},
		"List of the fleet and nonce": {Fleet: t.fleet, Nonce: req.Mark.Nonce},
		"List of everything":          {},
	} {
		listed, ok := t.listed(t.p, f, info.ID)
		if !ok {
			t.Errorf("%s does not show the sandbox", name)
			continue
		}
		t.marked(name, listed, req.Mark)
	}
	t.marked("Get by another process", t.look(t.peer(), info.ID), req.Mark)
}

func createMarkAtCreate(t *trial) {
	t.needs(CreateLost)
	req := t.request(t.long())
	defer t.inject(CreateLost, "")()
	info, err := t.try(req)
	if err == nil {
		t.Fatalf("the answer was lost, but Create returned %s and no error", info.ID)
	}
	found := t.eventually(t.caps.CommitDelay+t.seen(), func() bool {
		all, err := t.list(t.p, sandbox.Filter{Nonce: req.Mark.Nonce})
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		for _, i := range all {
			if i.Mark.Nonce == req.Mark.Nonce {
				t.marked("List", i, req.Mark)
				return true
			}
		}
		return false
	})
	if found != t.caps.MarkAtCreate {
		t.Errorf("Capabilities.MarkAtCreate is %v, but an unanswered create was found by its mark: %v", t.caps.MarkAtCreate, found)
	}
}

func createOnce(t *trial) {
	req := t.request(t.long())
	info := t.running(t.make(req))
	again, err := t.try(req)
	switch {
	case err != nil:
		t.apiError(err, sandbox.OpCreate)
		if t.caps.CreateOnce {
			t.Errorf("Capabilities.CreateOnce, so a create may be repeated, but the second one failed: %v", err)
		}
	case again.ID == info.ID && !t.caps.CreateOnce:
		t.Error("the second create returned the first sandbox, but Capabilities.CreateOnce is false")
	case again.ID != info.ID && t.caps.CreateOnce:
		t.Errorf("Capabilities.CreateOnce, but the second create made %s beside %s", again.ID, info.ID)
	}
	time.Sleep(t.caps.ReadLag)
	var n int
	for _, i := range t.judge() {
		if i.Mark.Nonce == req.Mark.Nonce {
			n++
		}
	}
	if n != 1 && t.caps.CreateOnce {
		t.Errorf("Capabilities.CreateOnce, but %d sandboxes have one nonce", n)
	}
}

func createElsewhere(t *trial) {
	req := t.request(t.long())
	info := t.running(t.make(req))
	other := t.peer()
	if a, b := t.p.Name(), other.Name(); a != b {
		t.Errorf("the account is %q here and %q in another process", a, b)
	}
	sb := other.Open(sandbox.Info{ID: info.ID})
	if sb.ID() != info.ID {
		t.Errorf("ID %q, want %q", sb.ID(), info.ID)
	}
	if out := t.output(sb, sandbox.Shell("echo here")); out != "here\n" {
		t.Errorf("the sandbox said %q, want %q", out, "here\n")
	}
	if err := other.Delete(t.ctx, info.ID); err != nil {
		t.Errorf("delete by another process: %v", err)
	}
	t.gone(info, t.ending())
}

func createOver(t *trial) {
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	t.atOnce("Create", func() {
		info, err := t.p.Create(ctx, t.request(t.long()))
		if info.ID != "" {
			t.ids = append(t.ids, info.ID)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
	})
	t.nothingMade()
}

func createCheck(t *trial) {
	c, ok := sandbox.As[sandbox.Checker](t.p)
	if !ok {
		t.Skipf("the provider is no sandbox.Checker")
	}
	if _, err := c.Check(t.ctx); err != nil {
		t.Errorf("check: %v", err)
	}
	t.nothingMade()
}

// look is Get with patience for ReadLag.
func (t *trial) look(p sandbox.Provider, id string) sandbox.Info {
	t.Helper()
	var info sandbox.Info
	var err error
	if !t.eventually(t.seen(), func() bool { info, err = p.Get(t.ctx, id); return err == nil }) {
		t.Fatalf("get %s: %v", id, err)
	}
	return info
}

// dated is a Get of a sandbox that runs, with patience until it tells the end of the lease, if the adapter reads that: a busy
// machine may at first have no answer for it.
func (t *trial) dated(p sandbox.Provider, id string) sandbox.Info {
	t.Helper()
	var info sandbox.Info
	t.eventually(t.seen(), func() bool {
		var err error
		if info, err = p.Get(t.ctx, id); err != nil {
			t.Fatalf("get: %v", err)
		}
		return t.tells(info)
	})
	return info
}

// tells reports whether info tells the end of the lease, if the adapter reads that.
func (t *trial) tells(info sandbox.Info) bool {
	return !t.caps.ReadsDeadline || !info.Deadline.IsZero()
}

// listed is what a List says of id, with patience for ReadLag.
func (t *trial) listed(p sandbox.Provider, f sandbox.Filter, id string) (info sandbox.Info, ok bool) {
	t.Helper()
	ok = t.eventually(t.seen(), func() bool {
		all, err := t.list(p, f)
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		var there bool
		info, there = find(all, id)
		return there
	})
	return info, ok
}

func (t *trial) marked(who string, info sandbox.Info, want sandbox.Mark) {
	t.Helper()
	if got := info.Mark; got.String() != want.String() {
		t.Errorf("%s: mark %s, want %s", who, got, want)
	}
}

// notLater requires that info's lease, granted by a call made at start, is no longer than window, by the adapter's
// word and by the service's own.
func (t *trial) notLater(who string, info sandbox.Info, window time.Duration, start time.Time) {
	t.Helper()
	if left := info.Left(); left > window+t.grain(start) {
		t.Errorf("%s: the lease is %v, later than asked: %v", who, left, window)
	}
	if t.h.Judge == nil {
		return
	}
	if truth, ok := find(t.judge(), info.ID); ok && truth.Left() > window+t.grain(start) {
		t.Errorf("%s: the service's own lease is %v, later than asked: %v", who, truth.Left(), window)
	}
}
