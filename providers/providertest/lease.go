package providertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func leaseRules() []rule {
	return []rule{
		{"a sandbox that nobody extends ends by itself, and leaves what AtExpiry says", leaseEnds},
		{"Extend moves the end as Capabilities.Extend says, never later than asked", leaseExtend},
		{"a deadline that is read back follows, as ReadsDeadline says", leaseReads},
		{"a service that sets deadlines also brings them nearer", leaseNearer},
		{"the shortest and the longest window are accepted", leaseLimits},
		{"a window off the limits or the step is refused, or ends no later than asked", leaseOff},
		{"Extend of a sandbox that is gone is no success and brings nothing back", leaseGone},
		{"Extend wakes nothing that sleeps", leaseAsleep},
		{"Shorten brings the end nearer and never moves it away", leaseShorten},
	}
}

// expired waits for the end of a sandbox whose lease ends no later than end, and requires that it leaves what the
// adapter says.
func (t *trial) expired(info sandbox.Info, end time.Time) {
	t.Helper()
	t.sleepUntil(end)
	var state sandbox.State
	if !t.eventually(t.caps.Lateness+t.seen(), func() bool {
		state = t.state(info.ID)
		return !state.MayRun() || state == sandbox.StateEnding
	}) {
		t.Fatalf("the lease is over since %v, and the sandbox is %v", time.Since(end), state)
	}
	if t.caps.AtExpiry == sandbox.StateGone {
		t.gone(info, t.ending())
		return
	}
	var now sandbox.Info
	var err error
	if !t.eventually(t.ending(), func() bool {
		now, err = t.p.Get(t.ctx, info.ID)
		return err != nil || now.State == sandbox.StateDormant || now.State == sandbox.StateGone
	}) || err != nil || now.State != sandbox.StateDormant {
		t.Fatalf("Capabilities.AtExpiry is dormant, but Get says %v, error %v", now.State, err)
	}
	if listed, ok := t.listed(t.p, sandbox.Filter{Nonce: info.Mark.Nonce}, info.ID); !ok {
		t.Error("List hides a dormant sandbox")
	} else if listed.State != sandbox.StateDormant {
		t.Errorf("List calls a dormant sandbox %v", listed.State)
	}
}

func (t *trial) sleepUntil(at time.Time) { time.Sleep(time.Until(at)) }

// untilLeft waits until only left remains of the lease that info, seen at the given time, tells of; if it tells none, of
// one that ends at the earliest at first.
func (t *trial) untilLeft(info sandbox.Info, at, first time.Time, left time.Duration) {
	if !info.Deadline.IsZero() {
		first = at.Add(info.Left())
	}
	t.sleepUntil(first.Add(-left))
}

// aged is info as the core hands it to Extend: with AsOf moved on by the time since the call that gave it was made.
func aged(info sandbox.Info, since time.Time) sandbox.Info {
	info.AsOf = info.AsOf.Add(time.Since(since))
	return info
}

// extend is one beat; it returns also when it was sent.
func (t *trial) extend(cur sandbox.Info, at time.Time, window time.Duration) (sandbox.Info, time.Time) {
	t.Helper()
	start := time.Now()
	info, err := t.p.Extend(t.ctx, aged(cur, at), window)
	if err != nil {
		t.Fatalf("extend: %v", err)
	}
	if info.ID != cur.ID {
		t.Fatalf("extend: ID %q, want %q", info.ID, cur.ID)
	}
	if info.State != sandbox.StateRunning {
		t.Fatalf("extend: state %v of a running sandbox", info.State)
	}
	if info.AsOf.IsZero() {
		t.Error("extend: AsOf is not set")
	}
	if info.Mark.Nonce != "" && info.Mark.String() != cur.Mark.String() {
		t.Errorf("extend: mark %s, want %s", info.Mark, cur.Mark)
	}
	return info, start
}

// extendError requires a typed error. An extend that had nothing to change is a look, and may say so.
func (t *trial) extendError(err error) *sandbox.APIError {
	t.Helper()
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Op == sandbox.OpGet {
		return t.apiError(err, sandbox.OpGet)
	}
	return t.apiError(err, sandbox.OpExtend)
}

func leaseEnds(t *trial) {
	w := t.first(t.window)
	start := time.Now()
	info := t.running(t.make(t.request(w)))
	end := time.Now().Add(w) // a lease may run from the start of the machine only
	t.sleepUntil(start.Add(w / 2))
	if s := t.state(info.ID); s != sandbox.StateRunning {
		t.Fatalf("after half of its lease the sandbox is %v", s)
	}
	t.expired(info, end)
	if t.caps.AtExpiry == sandbox.StateDormant {
		t.remove(info)
	}
}

func leaseExtend(t *trial) {
	w, first := t.window, t.first(t.window)
	asked := time.Now()
	info := t.running(t.make(t.request(first)))
	at := time.Now()
	unmoved := at.Add(first + t.caps.Lateness) // by then it has ended if nothing moves the end
	if t.caps.Extend == sandbox.ExtendNone {
		time.Sleep(first / 2)
		after, sent := t.extend(info, at, first)
		if !after.Deadline.IsZero() && after.Deadline.After(info.Deadline.Add(t.grain(sent))) {
			t.Errorf("Capabilities.Extend is none, but the deadline moved from %v to %v", info.Deadline, after.Deadline)
		}
		t.expired(info, unmoved.Add(-t.caps.Lateness))
		return
	}
	// Beats go on until the first lease would certainly be over.
	t.untilLeft(info, at, asked.Add(first), w/2)
	for cur := info; ; {
		cur, at = t.extend(cur, at, w)
		t.notLater("Extend", cur, w, at)
		if left := cur.Left(); left != 0 && left < w-t.step()-t.grain(at) {
			t.Errorf("Extend by %v: granted only %v", w, left)
		}
		if time.Now().After(unmoved) {
			break
		}
		time.Sleep(w / 2)
	}
	if s := t.state(info.ID); s != sandbox.StateRunning {
		t.Fatalf("Capabilities.Extend is %v, but the sandbox is %v although it was extended", t.caps.Extend, s)
	}
	t.expired(info, at.Add(w+t.grain(at)))
}

func leaseReads(t *trial) {
	w, first := t.window, t.first(t.window)
	asked := time.Now()
	info := t.running(t.make(t.request(first)))
	at := time.Now()
	t.untilLeft(info, at, asked.Add(first), w/2)
	var granted sandbox.Info
	if t.caps.Extend == sandbox.ExtendNone {
		granted = info
	} else {
		granted, at = t.extend(info, at, w)
	}
	now := t.dated(t.peer(), info.ID)
	took := t.grain(at)
	// The service's own clock goes on; what is left is compared, not when it is over.
	want := w
	if t.caps.Extend == sandbox.ExtendNone {
		want = info.Left() - time.Since(at)
	}
	follows := !now.Deadline.IsZero() && (now.Left()-want).Abs() <= took+t.step() &&
		(t.caps.Extend == sandbox.ExtendNone || now.Deadline.After(info.Deadline))
	switch {
	case t.caps.ReadsDeadline && now.Deadline.IsZero():
		t.Error("Capabilities.ReadsDeadline, but Get tells no deadline")
	case t.caps.ReadsDeadline && !follows:
		t.Errorf("Capabilities.ReadsDeadline, but Get tells a lease of %v where %v is left (deadline before: %v, now: %v)",
			now.Left(), want, info.Deadline, now.Deadline)
	case t.caps.ReadsDeadline && granted.Deadline.Sub(now.Deadline).Abs() > took:
		t.Errorf("Extend granted %v, Get says %v", granted.Deadline, now.Deadline)
	case !t.caps.ReadsDeadline && follows:
		t.Error("Capabilities.ReadsDeadline is false, but another process reads a deadline that follows")
	}
}

func leaseNearer(t *trial) {
	if t.caps.Extend != sandbox.ExtendSet {
		t.Skipf("Capabilities.Extend is %v", t.caps.Extend)
	}
	long := t.fit(t.window * 10)
	if long <= t.window {
		t.Skipf("no window is longer than %v", t.window)
	}
	info := t.running(t.make(t.request(t.first(t.window))))
	cur, at := t.extend(info, time.Now(), long)
	t.notLater("Extend", cur, long, at)
	near := t.fit(t.window / 2)
	cur, at = t.extend(cur, at, near)
	t.notLater("Extend back", cur, near, at)
	if t.caps.ReadsDeadline {
		t.notLater("Get", t.look(t.p, info.ID), near, at)
	}
	t.expired(info, at.Add(near+t.grain(at)))
}

// offered makes a sandbox with the given window. An adapter that accepts it must not let it live longer. Where all of a
// short window has passed meanwhile, neither a failed create nor an end proves anything, and it is tried again.
func (t *trial) offered(w time.Duration) (err error) {
	t.Helper()
	for range 10 {
		start := time.Now()
		var info sandbox.Info
		if info, err = t.try(t.request(w)); err == nil {
			who := fmt.Sprintf("create with a window of %v", w)
			t.notLater(who, info, w, start)
			if now, ended := t.seenOrEnded(info, start.Add(w)); !ended {
				t.notLater(who, now, w, start)
				return nil
			}
		}
		if time.Since(start) < w {
			break
		}
	}
	return err
}

// seenOrEnded returns a look at a new sandbox, or that its lease, which ends at the given time, has ended it.
func (t *trial) seenOrEnded(info sandbox.Info, end time.Time) (now sandbox.Info, ended bool) {
	t.Helper()
	now, err := t.p.Get(t.ctx, info.ID)
	if err == nil {
		return now, false
	}
	if !t.eventually(5*time.Minute, func() bool {
		now, err = t.p.Get(t.ctx, info.ID)
		over := errors.Is(err, sandbox.ErrNotFound) || err == nil && !now.State.MayRun()
		ended = over && !time.Now().Before(end)
		return ended || err == nil && now.State == sandbox.StateRunning
	}) {
		t.Fatalf("created %s, but it does not get to run: state %v, error %v", info.ID, now.State, err)
	}
	return now, ended
}

func leaseLimits(t *trial) {
	windows := []time.Duration{t.caps.MinWindow, t.caps.MaxWindow}
	if t.caps.MinWindow == 0 {
		windows[0] = t.step()
	}
	for _, w := range windows {
		if t.caps.MaxLifetime > 0 {
			w = min(w, t.caps.MaxLifetime)
		}
		if err := t.offered(w - w%t.step()); err != nil {
			t.Errorf("a create with a window of %v, which Capabilities allow, failed: %v", w, err)
		}
	}
}

func leaseOff(t *trial) {
	windows := []time.Duration{t.caps.MaxWindow + t.step(), t.window + t.step()/2}
	if below := t.caps.MinWindow - t.step(); below > 0 {
		windows = append(windows, below)
	}
	for _, w := range windows {
		if err := t.offered(w); err != nil {
			t.apiError(err, sandbox.OpCreate)
		}
	}
	for _, w := range []time.Duration{0, -time.Minute} { // "no end" on more than one service
		req := t.request(t.window)
		req.Window = w
		if info, err := t.try(req); err == nil {
			t.Errorf("a create with a window of %v was accepted as %s", w, info.ID)
		}
	}
}

func leaseGone(t *trial) {
	info := t.running(t.make(t.request(t.long())))
	at := time.Now()
	t.remove(info)
	after, err := t.p.Extend(t.ctx, aged(info, at), t.window)
	switch {
	case err != nil:
		t.extendError(err)
	case after.State == sandbox.StateRunning || after.State == sandbox.StateStarting:
		t.Errorf("Extend says %v", after.State)
	}
	t.still(info, "the extend")
}

func leaseAsleep(t *trial) {
	if t.caps.AtExpiry != sandbox.StateDormant {
		t.needs(Paused)
	}
	info := t.running(t.make(t.request(t.first(t.window))))
	at := time.Now()
	if t.caps.AtExpiry == sandbox.StateDormant {
		t.expired(info, time.Now().Add(t.first(t.window)))
	} else {
		t.inject(Paused, info.ID)
		if !t.eventually(t.seen(), func() bool { return t.state(info.ID) == sandbox.StateDormant }) {
			t.Fatalf("paused, but it is %v", t.state(info.ID))
		}
	}
	after, err := t.p.Extend(t.ctx, aged(info, at), t.window)
	if err == nil && (after.State == sandbox.StateRunning || after.State == sandbox.StateStarting) {
		t.Errorf("Extend of a dormant sandbox says %v", after.State)
	}
	if err != nil {
		t.extendError(err)
	}
	time.Sleep(min(t.slack, time.Second)) // for a waking up to be seen
	if s := t.state(info.ID); s.MayRun() {
		t.Errorf("Extend woke it: it is %v", s)
	}
}

func leaseShorten(t *trial) {
	s, ok := sandbox.As[sandbox.Shortener](t.p)
	if !ok {
		t.Skipf("the provider is no sandbox.Shortener")
	}
	near, far := t.fit(t.window/2), t.fit(t.window*10)
	info := t.running(t.make(t.request(t.first(t.window))))
	at := time.Now()
	if err := s.Shorten(t.ctx, info.ID, far); err != nil {
		t.Fatalf("shorten: %v", err)
	}
	if now, ok := find(t.judge(), info.ID); ok && now.Left() > t.first(t.window)+t.grain(at) {
		t.Errorf("Shorten to %v moved the end away, to %v from now", far, now.Left())
	}
	if t.caps.Extend == sandbox.ExtendSet && far > near {
		t.extend(info, at, far)
	}
	if err := s.Shorten(t.ctx, info.ID, near); err != nil {
		t.Fatalf("shorten: %v", err)
	}
	t.expired(info, time.Now().Add(near))
	if err := s.Shorten(t.ctx, info.ID, near); err == nil && t.state(info.ID).MayRun() {
		t.Error("Shorten brought back what had ended")
	}
}
