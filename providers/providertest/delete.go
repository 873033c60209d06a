package providertest

import (
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func deleteRules() []rule {
	return []rule{
		{"after Delete the sandbox is gone for Get and List, and stays gone", deleteGone},
		{"Delete takes no longer than DeleteTime", deleteQuick},
		{"Delete of what is gone is ErrNotFound", deleteTwice},
		{"Get and Delete of an unknown or malformed ID are ErrNotFound, and touch nothing", deleteUnknown},
		{"Delete of a sandbox that still starts works", deleteStarting},
		{"Delete of a dormant sandbox works and does not wake it", deleteAsleep},
		{"two creates make two sandboxes, and Delete removes one of them", deleteOne},
		{"a deleted sandbox runs no command", deleteExec},
	}
}

func deleteGone(t *trial) {
	info := t.running(t.make(t.request(t.long())))
	t.remove(info)
	time.Sleep(min(t.caps.Revival, t.revival()))
	t.still(info, "it was gone")
}

// revival is how long a rule waits for a sandbox to come back: time is free in a bubble only.
func (t *trial) revival() time.Duration {
	if t.h.Bubble {
		return time.Hour
	}
	return time.Second
}

func deleteQuick(t *trial) {
	info := t.running(t.make(t.request(t.long())))
	start := time.Now()
	if err := t.p.Delete(t.ctx, info.ID); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if took := time.Since(start); took > t.deleteTime()+t.slack {
		t.Errorf("Delete took %v, want at most %v", took, t.deleteTime())
	}
	t.gone(info, t.ending())
}

func deleteTwice(t *trial) {
	info := t.running(t.make(t.request(t.long())))
	if err := t.p.Delete(t.ctx, info.ID); err != nil {
		t.Fatalf("delete: %v", err)
	}
	// Until it is gone a second delete is either accepted once more or already finds nothing.
	if err := t.p.Delete(t.ctx, info.ID); err != nil && !matches(err, sandbox.ErrNotFound, sandbox.ErrConflict) {
		t.Errorf("second delete: %v", err)
	}
	t.gone(info, t.ending())
	err := t.p.Delete(t.ctx, info.ID)
	t.apiError(err, sandbox.OpDelete, sandbox.ErrNotFound)
}

func deleteUnknown(t *trial) {
	alive := t.running(t.make(t.request(t.long())))
	gone := t.make(t.request(t.long())) // its ID is well formed
	t.remove(t.running(gone))
	malformed := []string{"no-such-sandbox", "no such sandbox", "../../etc", "ü?a=b#c%2f", strings.Repeat("x", 300), ""}
	for _, id := range append(malformed, gone.ID) {
		kinds := []error{sandbox.ErrNotFound}
		if id != gone.ID {
			kinds = append(kinds, sandbox.ErrInvalid) // a service may also call an ID malformed
		}
		if info, err := t.p.Get(t.ctx, id); err == nil && info.State == sandbox.StateGone && id == gone.ID {
			continue // the service keeps history
		} else if err == nil {
			t.Errorf("Get(%q) = %s, %v", id, info.ID, info.State)
		} else {
			t.apiError(err, sandbox.OpGet, kinds...)
		}
		if err := t.p.Delete(t.ctx, id); err == nil {
			t.Errorf("Delete(%q) claims success", id)
		} else {
			t.apiError(err, sandbox.OpDelete, kinds...)
		}
	}
	if s := t.state(alive.ID); s != sandbox.StateRunning {
		t.Errorf("a sandbox that nobody named is %v", s)
	}
}

func deleteStarting(t *trial) {
	info := t.make(t.request(t.long()))
	// A service may refuse while the machine is made (409), and then the core asks again.
	var err error
	if !t.eventually(5*time.Minute, func() bool {
		err = t.p.Delete(t.ctx, info.ID)
		if err != nil {
			t.apiError(err, sandbox.OpDelete, sandbox.ErrConflict, sandbox.ErrNotFound, sandbox.ErrUnavailable)
		}
		return err == nil
	}) {
		t.Fatalf("delete: %v", err)
	}
	t.gone(sandbox.Info{ID: info.ID, Mark: info.Mark}, t.ending())
}

func deleteAsleep(t *trial) {
	if t.caps.AtExpiry != sandbox.StateDormant {
		t.needs(Paused)
	}
	info := t.running(t.make(t.request(t.first(t.window))))
	if t.caps.AtExpiry == sandbox.StateDormant {
		t.expired(info, time.Now().Add(t.first(t.window)))
	} else {
		t.inject(Paused, info.ID)
		if !t.eventually(t.seen(), func() bool {
			now, err := t.p.Get(t.ctx, info.ID)
			return err == nil && now.State == sandbox.StateDormant
		}) {
			t.Error("Get does not call a paused sandbox dormant")
		}
		if _, ok := t.listed(t.p, sandbox.Filter{Nonce: info.Mark.Nonce}, info.ID); !ok {
			t.Error("List hides a dormant sandbox")
		}
	}
	if err := t.p.Delete(t.ctx, info.ID); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if s := t.state(info.ID); s == sandbox.StateRunning || s == sandbox.StateStarting {
		t.Errorf("the delete woke it: it is %v", s)
	}
	t.gone(info, t.ending())
}

func deleteOne(t *trial) {
	a, b := t.running(t.make(t.request(t.long()))), t.running(t.make(t.request(t.long())))
	if a.ID == b.ID {
		t.Fatalf("both are %s", a.ID)
	}
	t.remove(a)
	if s := t.state(b.ID); s != sandbox.StateRunning {
		t.Errorf("the other one is %v", s)
	}
}

func deleteExec(t *trial) {
	sb := t.own(t.request(t.long()))
	info := t.look(t.p, sb.ID())
	t.remove(info)
	res, err := sb.Exec(t.ctx, sandbox.Cmd{Args: []string{"sh", "-c", "echo alive"}, Timeout: t.commandTime()})
	if err == nil {
		t.Fatalf("Exec returned %+v and no error", res)
	}
	t.apiError(err, sandbox.OpExec)
	t.still(info, "the command")
}
