package providertest

import (
	"context"
	"errors"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func faultRules() []rule {
	return []rule{
		{"a lost answer to Create is an error that leaves open what was made, and is not tried again", faultCreateLost},
		{"a Create without an answer ends with its context", faultCreateHangs},
		{"a Create that the service refuses says so, and when to come back", faultCreateLimited},
		{"a sandbox that never gets to run is not called running", faultNeverReady},
		{"a Get that fails is an error and proves nothing", faultGet},
		{"a List that fails ends with an error", faultList},
		{"a List that goes round in circles ends with an error", faultListLoops},
		{"an Extend that fails is an error, and the next one works", faultExtend},
		{"a Delete that fails is an error and no proof", faultDelete},
		{"a Delete whose answer is lost is an error, and the sandbox is gone", faultDeleteLost},
		{"a Delete without effect leaves a sandbox that Get still sees", faultDeleteIgnored},
		{"a Delete without an answer ends with its context", faultDeleteHangs},
		{"credentials that are refused prove nothing", faultDenied},
		{"a sandbox that the service ended is gone or dormant", faultKilled},
	}
}

func faultCreateLost(t *trial) {
	t.inject(CreateLost, "")
	info, err := t.try(t.request(t.long()))
	if err == nil {
		t.Fatal("Create claims success")
	}
	if e := t.apiError(err, sandbox.OpCreate); e.Refused {
		t.Errorf("Create says that nothing was made: %v", err)
	}
	if info.ID != "" {
		t.Logf("Create knows the ID all the same: %s", info.ID)
	}
	time.Sleep(t.caps.CommitDelay)
	if n := len(t.judge()); n > 1 {
		t.Errorf("%d sandboxes were made by one Create", n)
	}
}

func faultCreateHangs(t *trial) {
	t.inject(CreateHangs, "")
	limit := 2*time.Second + t.slack // what comes before the request must not use it up: that would be a refusal
	ctx, cancel := context.WithTimeout(t.ctx, limit)
	defer cancel()
	start := time.Now()
	info, err := t.p.Create(ctx, t.request(t.long()))
	if info.ID != "" {
		t.ids = append(t.ids, info.ID)
	}
	if took := time.Since(start); took > limit+t.slack {
		t.Errorf("Create returned after %v, its context ended after %v", took, limit)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want context.DeadlineExceeded", err)
	}
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Refused {
		t.Errorf("Create says that nothing was made: %v", err)
	}
}

func faultCreateLimited(t *trial) {
	t.inject(CreateLimited, "")
	info, err := t.try(t.request(t.long()))
	t.unmade("create", info, err, sandbox.ErrRateLimited, sandbox.ErrQuota)
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.RetryAfter != 2*time.Second {
		t.Errorf("RetryAfter is %v, the service asked for 2 s", e.RetryAfter)
	}
	t.nothingMade()
	t.make(t.request(t.long()))
}

func faultNeverReady(t *trial) {
	heal := t.inject(NeverReady, "")
	info := t.make(t.request(t.long()))
	time.Sleep(min(t.slack, time.Second))
	now := t.look(t.p, info.ID)
	if now.State == sandbox.StateRunning || !now.State.MayRun() {
		t.Errorf("Get says %v", now.State)
	}
	heal() // a service may refuse to delete what starts
}

// unproven requires that err is an error of op that does not say that there is nothing.
func (t *trial) unproven(err error, op sandbox.Op) {
	t.Helper()
	if err == nil {
		t.Errorf("%s claims success", op)
		return
	}
	t.apiError(err, op)
	if errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("%s failed at the service, but the error says that there is nothing: %v", op, err)
	}
}

func faultGet(t *trial) {
	t.needs(GetFails)
	info := t.running(t.make(t.request(t.long())))
	t.inject(GetFails, info.ID)
	_, err := t.p.Get(t.ctx, info.ID)
	t.unproven(err, sandbox.OpGet)
	if now := t.look(t.p, info.ID); now.State != sandbox.StateRunning {
		t.Errorf("the next Get says %v", now.State)
	}
}

// twoListed makes two sandboxes and waits until both are listed.
func (t *trial) twoListed() (a, b sandbox.Info) {
	t.Helper()
	a, b = t.make(t.request(t.long())), t.make(t.request(t.long()))
	for _, info := range []sandbox.Info{a, b} {
		t.running(info)
		if _, ok := t.listed(t.p, sandbox.Filter{Fleet: t.fleet}, info.ID); !ok {
			t.Fatalf("List does not show %s", info.ID)
		}
	}
	time.Sleep(t.caps.ReadLag) // until then a list may leave out again what it has shown
	return a, b
}

func faultList(t *trial) {
	t.needs(ListFails)
	t.twoListed()
	t.inject(ListFails, "")
	all, err := t.list(t.p, sandbox.Filter{Fleet: t.fleet})
	if err == nil {
		t.Fatalf("a page failed, but List yields %d and no error", len(all))
	}
	t.apiError(err, sandbox.OpList)
	if all, err = t.list(t.p, sandbox.Filter{Fleet: t.fleet}); err != nil {
		t.Errorf("the next List: %v", err)
	} else if len(all) < 2 {
		t.Errorf("the next List yields %d", len(all))
	}
}

func faultListLoops(t *trial) {
	t.needs(ListLoops)
	t.twoListed()
	heal := t.inject(ListLoops, "")
	for n, f := range []sandbox.Filter{{Fleet: t.fleet}, {}} {
		rows := 0
		var last error
		for _, err := range t.p.List(t.ctx, f) {
			if last = err; err != nil {
				break
			}
			if rows++; rows > 100_000 {
				t.Fatal("List goes on for ever")
			}
		}
		if last == nil {
			t.Errorf("List %d yields %d and no error", n, rows)
			continue
		}
		t.apiError(last, sandbox.OpList)
	}
	heal()
}

func faultExtend(t *trial) {
	t.needs(ExtendFails)
	longer := t.fit(2 * t.first(t.window)) // there is something to change, even if the service only adds
	if t.caps.Extend == sandbox.ExtendNone || longer <= t.first(t.window) {
		t.Skipf("Capabilities.Extend is %v, the longest window %v", t.caps.Extend, t.caps.MaxWindow)
	}
	info := t.running(t.make(t.request(t.first(t.window))))
	at := time.Now()
	heal := t.inject(ExtendFails, info.ID)
	_, err := t.p.Extend(t.ctx, aged(info, at), longer)
	t.unproven(err, sandbox.OpExtend)
	heal()
	now := t.look(t.p, info.ID)
	if now.State != sandbox.StateRunning {
		t.Fatalf("after an Extend that failed, Get says %v", now.State)
	}
	t.extend(now, time.Now(), t.window)
}

func faultDelete(t *trial) {
	t.needs(DeleteFails)
	info := t.running(t.make(t.request(t.long())))
	heal := t.inject(DeleteFails, info.ID)
	t.unproven(t.p.Delete(t.ctx, info.ID), sandbox.OpDelete)
	heal()
	if now := t.look(t.p, info.ID); now.State == sandbox.StateGone {
		t.Error("after a Delete that failed, Get says gone")
	}
	t.remove(info)
}

func faultDeleteLost(t *trial) {
	t.needs(DeleteLost)
	info := t.running(t.make(t.request(t.long())))
	t.inject(DeleteLost, info.ID)
	t.unproven(t.p.Delete(t.ctx, info.ID), sandbox.OpDelete)
	t.gone(info, t.ending())
	t.apiError(t.p.Delete(t.ctx, info.ID), sandbox.OpDelete, sandbox.ErrNotFound)
}

func faultDeleteIgnored(t *trial) {
	t.needs(DeleteIgnored)
	info := t.running(t.make(t.request(t.long())))
	t.inject(DeleteIgnored, info.ID)
	if err := t.p.Delete(t.ctx, info.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	if now := t.look(t.p, info.ID); now.State == sandbox.StateGone {
		t.Error("the service says that it runs, Get says gone")
	}
	t.remove(info)
}

func faultDeleteHangs(t *trial) {
	t.needs(DeleteHangs)
	info := t.running(t.make(t.request(t.long())))
	heal := t.inject(DeleteHangs, info.ID)
	ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
	defer cancel()
	start := time.Now()
	if err := t.p.Delete(ctx, info.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want context.DeadlineExceeded", err)
	}
	if took := time.Since(start); took > 2*time.Second+t.slack {
		t.Errorf("Delete returned after %v, its context ended after 2 s", took)
	}
	heal()
	t.remove(info)
}

func faultDenied(t *trial) {
	t.needs(Denied)
	info := t.running(t.make(t.request(t.long())))
	heal := t.inject(Denied, info.ID)
	_, err := t.p.Get(t.ctx, info.ID)
	t.apiError(err, sandbox.OpGet, sandbox.ErrUnauthenticated)
	_, err = t.list(t.p, sandbox.Filter{})
	t.apiError(err, sandbox.OpList, sandbox.ErrUnauthenticated)
	t.apiError(t.p.Delete(t.ctx, info.ID), sandbox.OpDelete, sandbox.ErrUnauthenticated)
	made, err := t.try(t.request(t.long()))
	t.unmade("create", made, err, sandbox.ErrUnauthenticated)
	heal()
	if now := t.look(t.p, info.ID); now.State != sandbox.StateRunning {
		t.Errorf("Get says %v", now.State)
	}
}

func faultKilled(t *trial) {
	t.needs(Killed)
	info := t.running(t.make(t.request(t.long())))
	t.inject(Killed, info.ID)
	var now sandbox.Info
	var err error
	if !t.eventually(t.ending(), func() bool {
		now, err = t.p.Get(t.ctx, info.ID)
		return errors.Is(err, sandbox.ErrNotFound) || err == nil && !now.State.MayRun()
	}) {
		t.Errorf("Get says %v, error %v", now.State, err)
	}
}
