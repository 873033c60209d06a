package providertest

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A rule is one sentence of the contract and the way to try it.
type rule struct {
	name string
	try  func(*trial)
}

// A suite is one call of Run.
type suite struct {
	h      Harness
	shared sandbox.Info // for rules that leave a sandbox as they find it; only outside bubbles
}

// A trial is one rule being tried, on an adapter and a fleet of its own. What it makes is deleted at its end.
type trial struct {
	*testing.T
	h     Harness
	p     sandbox.Provider
	caps  sandbox.Capabilities
	ctx   context.Context // ends with the rule, or when the rule has hung
	fleet string

	shared sandbox.Info
	ids    []string      // made by this trial
	skip   func(string)  // tells the test around a bubble
	window time.Duration // Harness.Window, or its default
	slack  time.Duration
}

// run tries one rule.
func (s *suite) run(t *testing.T, try func(*trial)) {
	if !s.h.Bubble {
		try(s.trial(t))
		return
	}
	var skipped string // a skip inside the bubble is not seen outside it
	synctest.Test(t, func(t *testing.T) {
		x := s.trial(t)
		x.skip = func(why string) { skipped = why }
		try(x)
	})
	if skipped != "" {
		t.Skip(skipped)
	}
}

func (s *suite) trial(t *testing.T) *trial {
	t.Helper()
	p := s.h.New(t)
	x := &trial{T: t, h: s.h, p: p, caps: p.Capabilities(), fleet: "providertest-" + random()[:12], shared: s.shared}
	limit := 10 * time.Minute
	if s.h.Bubble {
		limit = 48 * time.Hour // longer than any lease that is waited for
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	x.ctx = ctx
	x.slack = s.h.Slack
	if x.slack == 0 {
		x.slack = 5 * time.Second
		if s.h.Bubble {
			x.slack = time.Second
		}
	}
	x.window = s.h.Window
	if x.window == 0 {
		x.window = max(3*time.Second, x.caps.MinWindow)
		if s.h.Bubble {
			x.window = max(3*time.Minute, x.caps.MinWindow)
		}
		x.window = x.fit(x.window)
	}
	t.Cleanup(cancel)
	t.Cleanup(x.clean)
	return x
}

// share makes the sandbox that rules outside bubbles share. Its lease lasts for the whole suite.
func (s *suite) share(t *testing.T) {
	t.Helper()
	x := s.trial(t)
	s.shared = x.running(x.make(x.request(x.first(max(30*time.Minute, x.window)))))
}

// sane reports whether the adapter's facts can be tried at all. They need no service, so time plays no part.
func (s *suite) sane(t *testing.T) bool {
	t.Helper()
	ok := true
	check := func(t *testing.T) {
		p := s.h.New(t)
		c := p.Capabilities()
		fault := func(format string, args ...any) {
			t.Helper()
			ok = false
			t.Errorf("capabilities: "+format, args...)
		}
		if p.Name() == "" {
			fault("the provider has no name")
		}
		if c != p.Capabilities() {
			fault("they change from one call to the next")
		}
		if c.MaxWindow <= 0 || c.MinWindow < 0 || c.MinWindow > c.MaxWindow || c.Step < 0 {
			fault("no usable window: min %v, max %v, step %v", c.MinWindow, c.MaxWindow, c.Step)
		}
		if c.Step > 0 && (c.MaxWindow%c.Step != 0 || c.MinWindow%c.Step != 0) {
			fault("min %v or max %v is no multiple of the step %v", c.MinWindow, c.MaxWindow, c.Step)
		}
		if c.AtExpiry != sandbox.StateGone && c.AtExpiry != sandbox.StateDormant {
			fault("AtExpiry is %v: a sandbox whose lease has ended is gone or dormant", c.AtExpiry)
		}
		if c.MaxTags > 0 && (c.MaxTagKey <= 0 || c.MaxTagValue <= 0) {
			fault("tags are held, but not of what length: key %d, value %d", c.MaxTagKey, c.MaxTagValue)
		}
		for name, d := range map[string]time.Duration{
			"MaxLifetime": c.MaxLifetime, "StartAllowance": c.StartAllowance, "CommitDelay": c.CommitDelay, "ReadLag": c.ReadLag,
			"Revival": c.Revival, "Lateness": c.Lateness, "DeleteTime": c.DeleteTime, "DeleteDoubt": c.DeleteDoubt,
		} {
			if d < 0 {
				fault("%s is negative: %v", name, d)
			}
		}
		if w := s.h.Window; w != 0 && (w < c.MinWindow || w > c.MaxWindow || c.Step > 0 && w%c.Step != 0) {
			fault("Harness.Window %v does not fit: min %v, max %v, step %v", w, c.MinWindow, c.MaxWindow, c.Step)
		}
	}
	if s.h.Bubble {
		synctest.Test(t, check)
	} else {
		check(t)
	}
	return ok
}

// Skipf also works inside a bubble.
func (t *trial) Skipf(format string, args ...any) {
	t.Helper()
	if t.skip != nil {
		t.skip(fmt.Sprintf(format, args...))
	}
	t.T.Skipf(format, args...)
}

// random returns 16 characters of a-z and 2-7, from the kernel.
func random() string {
	var b [10]byte
	rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// ---- Time -------------------------------------------------------------------------------------

// step is the provider's grain of a window.
func (t *trial) step() time.Duration {
	if t.caps.Step > 0 {
		return t.caps.Step
	}
	return time.Second
}

// fit brings a window within the provider's limits, downwards.
func (t *trial) fit(d time.Duration) time.Duration {
	if t.caps.MaxLifetime > 0 {
		d = min(d, t.caps.MaxLifetime)
	}
	d = min(d, t.caps.MaxWindow)
	return max(d-d%t.step(), t.caps.MinWindow)
}

// first is the window of a create whose lease is to be w once the sandbox runs.
func (t *trial) first(w time.Duration) time.Duration { return t.fit(w + t.caps.StartAllowance) }

// long is a lease within which any rule is over that does not wait for the lease.
func (t *trial) long() time.Duration { return t.first(max(10*time.Minute, t.window)) }

// deleteTime is the limit of one Delete.
func (t *trial) deleteTime() time.Duration {
	if t.caps.DeleteTime > 0 {
		return t.caps.DeleteTime
	}
	return 30 * time.Second
}

// seen is within which what has happened must be visible.
func (t *trial) seen() time.Duration { return t.caps.ReadLag + t.slack }

// ending is within which a sandbox is gone once that was asked for, or its lease is over.
func (t *trial) ending() time.Duration { return t.caps.Lateness + t.deleteTime() + t.seen() }

// grain is how exact the difference of two times of the service is, in answers to calls made since start: a Date header
// has whole seconds, and where there is none AsOf is when the request was sent.
func (t *trial) grain(start time.Time) time.Duration { return time.Since(start) + time.Second }

// eventually asks until ok agrees or limit has passed.
func (t *trial) eventually(limit time.Duration, ok func() bool) bool {
	pause := min(max(limit/200, 50*time.Millisecond), time.Second)
	for end := time.Now().Add(limit); ; time.Sleep(pause) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// atOnce fails the rule if f takes longer than the slack.
func (t *trial) atOnce(what string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > t.slack {
		t.Errorf("%s took %v, want at once", what, took)
	}
}

// ---- Making -----------------------------------------------------------------------------------

// request is an order for one sandbox of the harness's Spec, with a new mark.
func (t *trial) request(window time.Duration) sandbox.CreateRequest {
	life := 2 * time.Hour
	if t.caps.MaxLifetime > 0 {
		life = min(life, t.caps.MaxLifetime)
	}
	return sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: t.fleet, Owner: "providertest", Nonce: random(),
			Created: time.Now().UTC().Truncate(time.Second), Lifetime: max(life, window),
		},
		Spec:   t.h.Spec,
		Window: window,
	}
}

// try asks for a sandbox and remembers what was made, for the end of the rule.
func (t *trial) try(req sandbox.CreateRequest) (sandbox.Info, error) {
	info, err := t.p.Create(t.ctx, req)
	if info.ID != "" && !slices.Contains(t.ids, info.ID) {
		t.ids = append(t.ids, info.ID)
	}
	return info, err
}

// make asks for a sandbox that must be made.
func (t *trial) make(req sandbox.CreateRequest) sandbox.Info {
	t.Helper()
	info, err := t.try(req)
	if err != nil {
		t.Fatalf("create failed: %v", err)
	}
	if info.ID == "" {
		t.Fatal("create returned neither an ID nor an error")
	}
	return info
}

// running waits until info's sandbox runs, and returns the latest look.
func (t *trial) running(info sandbox.Info) sandbox.Info {
	t.Helper()
	var last sandbox.Info
	var err error
	if !t.eventually(5*time.Minute, func() bool {
		last, err = t.p.Get(t.ctx, info.ID)
		return err == nil && last.State == sandbox.StateRunning
	}) {
		t.Fatalf("created %s, but it does not get to run: state %v, error %v", info.ID, last.State, err)
	}
	return last
}

// any returns a running sandbox that the rule leaves as it is; its fleet may be another one.
func (t *trial) any() sandbox.Info {
	t.Helper()
	if t.shared.ID != "" {
		return t.shared
	}
	return t.running(t.make(t.request(t.long())))
}

// box is [trial.any] as its commands see it. The rule may leave files in its own [trial.dir].
func (t *trial) box() sandbox.Sandbox {
	t.Helper()
	return t.p.Open(t.any())
}

// own returns a running sandbox made of req.
func (t *trial) own(req sandbox.CreateRequest) sandbox.Sandbox {
	t.Helper()
	return t.p.Open(t.running(t.make(req)))
}

// dir is a folder inside the sandbox that no other rule uses, and that does not exist yet.
func (t *trial) dir() string { return "/tmp/" + t.fleet }

// peer is another adapter for the same account, as another process would have it.
func (t *trial) peer() sandbox.Provider {
	t.Helper()
	switch {
	case t.h.Peer != nil:
		return t.h.Peer(t.T, t.p)
	case t.h.Bubble:
		return t.p
	}
	return t.h.New(t.T)
}

// needs skips the rule if the harness cannot make f happen.
func (t *trial) needs(f Fault) {
	t.Helper()
	if !slices.Contains(t.h.Faults, f) {
		t.Skipf("the harness cannot make this happen: %s", f)
	}
}

// inject makes f happen.
func (t *trial) inject(f Fault, id string) (heal func()) {
	t.Helper()
	t.needs(f)
	undo := t.h.Inject(t.T, t.p, f, id)
	done := undo == nil
	heal = func() {
		if !done {
			done = true
			undo()
		}
	}
	t.Cleanup(heal) // before [trial.clean], which was registered earlier
	return heal
}

// ---- Looking ----------------------------------------------------------------------------------

// list returns what f yields.
func (t *trial) list(p sandbox.Provider, f sandbox.Filter) ([]sandbox.Info, error) {
	var all []sandbox.Info
	for info, err := range p.List(t.ctx, f) {
		if err != nil {
			return all, err
		}
		all = append(all, info)
	}
	return all, nil
}

// judge returns what exists of the trial's fleet, by the best witness there is.
func (t *trial) judge() []sandbox.Info {
	t.Helper()
	if t.h.Judge != nil {
		return slices.DeleteFunc(t.h.Judge(t.T, t.p, t.fleet), func(i sandbox.Info) bool { return i.State == sandbox.StateGone })
	}
	all, err := t.list(t.p, sandbox.Filter{Fleet: t.fleet})
	if err != nil {
		t.Errorf("list: %v", err)
	}
	return slices.DeleteFunc(all, func(i sandbox.Info) bool { return i.Mark.Fleet != t.fleet || i.State == sandbox.StateGone })
}

// state is what became of id, by the best witness there is.
func (t *trial) state(id string) sandbox.State {
	t.Helper()
	if t.h.Judge != nil {
		if info, ok := find(t.judge(), id); ok {
			return info.State
		}
		return sandbox.StateGone
	}
	info, err := t.p.Get(t.ctx, id)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return sandbox.StateGone
	case err != nil:
		t.Errorf("get %s: %v", id, err)
	}
	return info.State
}

func find(all []sandbox.Info, id string) (sandbox.Info, bool) {
	i := slices.IndexFunc(all, func(i sandbox.Info) bool { return i.ID == id })
	if i < 0 {
		return sandbox.Info{}, false
	}
	return all[i], true
}

// remains says how the adapter still sees a sandbox that should be gone; empty if it does not.
func (t *trial) remains(id, nonce string) string {
	info, err := t.p.Get(t.ctx, id)
	switch {
	case err == nil && info.State != sandbox.StateGone:
		return fmt.Sprintf("Get says %v", info.State)
	case err != nil && !errors.Is(err, sandbox.ErrNotFound):
		return fmt.Sprintf("Get fails: %v", err)
	}
	all, err := t.list(t.p, sandbox.Filter{Nonce: nonce})
	if err != nil {
		return fmt.Sprintf("List fails: %v", err)
	}
	if info, ok := find(all, id); ok && info.State != sandbox.StateGone {
		return fmt.Sprintf("List says %v", info.State)
	}
	if info, ok := find(t.judge(), id); ok {
		return fmt.Sprintf("the service says %v", info.State)
	}
	return ""
}

// gone waits until nothing of info is left for anybody.
func (t *trial) gone(info sandbox.Info, within time.Duration) {
	t.Helper()
	var what string
	if !t.eventually(within, func() bool { what = t.remains(info.ID, info.Mark.Nonce); return what == "" }) {
		t.Fatalf("%s is not gone after %v: %s", info.ID, within, what)
	}
}

// still requires that info, which was gone, has not come back. A list may lag, and show it now and then for a while.
func (t *trial) still(info sandbox.Info, after string) {
	t.Helper()
	var what string
	if !t.eventually(t.seen(), func() bool { what = t.remains(info.ID, info.Mark.Nonce); return what == "" }) {
		t.Errorf("after %s, %s", after, what)
	}
}

// remove deletes info's sandbox and waits until it is gone.
func (t *trial) remove(info sandbox.Info) {
	t.Helper()
	if err := t.p.Delete(t.ctx, info.ID); err != nil {
		t.Fatalf("delete failed: %v", err)
	}
	t.gone(info, t.ending())
}

// nothingMade requires that the rule's fleet is empty, now and as long as something may still turn up.
func (t *trial) nothingMade() {
	t.Helper()
	if t.h.Bubble {
		time.Sleep(t.caps.CommitDelay)
	}
	for _, info := range t.judge() {
		t.Errorf("%s was made, and is %v", info.ID, info.State)
	}
}

// quietly runs f and requires that no request left for the service meanwhile, as far as the harness can tell.
func (t *trial) quietly(what string, f func()) {
	t.Helper()
	if t.h.Requests == nil {
		f()
		return
	}
	before := t.h.Requests(t.p)
	f()
	if n := t.h.Requests(t.p) - before; n > 0 {
		t.Errorf("%s: %d requests left, want a refusal before any", what, n)
	}
}

// clean deletes everything of the trial. A sandbox that cannot be deleted is a fault of the adapter.
func (t *trial) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*t.ending()+time.Minute)
	defer cancel()
	t.ctx = ctx
	var left []string
	ok := t.eventually(t.ending(), func() bool {
		left = nil
		ids := slices.Clone(t.ids)
		all, err := t.list(t.p, sandbox.Filter{Fleet: t.fleet})
		if err != nil {
			left = append(left, "list: "+err.Error())
		}
		for _, info := range all {
			if info.Mark.Fleet == t.fleet && !slices.Contains(ids, info.ID) {
				ids = append(ids, info.ID)
			}
		}
		for _, info := range t.judge() {
			if !slices.Contains(ids, info.ID) {
				ids = append(ids, info.ID)
			}
		}
		for _, id := range ids {
			err := t.p.Delete(ctx, id)
			if info, look := t.p.Get(ctx, id); !errors.Is(look, sandbox.ErrNotFound) && info.State != sandbox.StateGone {
				left = append(left, fmt.Sprintf("%s: %v, delete: %v, get: %v", id, info.State, err, look))
			} else if _, there := find(t.judge(), id); there {
				left = append(left, id+": exists, by the judge")
			}
		}
		return len(left) == 0
	})
	if !ok {
		t.Errorf("left behind after the rule: %s", strings.Join(left, "; "))
	}
}

// ---- Errors -----------------------------------------------------------------------------------

// matches reports whether err matches one of kinds.
func matches(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(k error) bool { return errors.Is(err, k) })
}

// discreet requires that err shows none of the account's secrets.
func (t *trial) discreet(err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, s := range t.h.Secrets {
		if s != "" && strings.Contains(err.Error(), s) {
			t.Error("an error shows a secret of the account") // without printing it once more
		}
	}
}

// apiError requires an [*sandbox.APIError] of op that matches one of kinds, if any are given.
func (t *trial) apiError(err error, op sandbox.Op, kinds ...error) *sandbox.APIError {
	t.Helper()
	t.discreet(err)
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		t.Errorf("%s: error %T (%v), want an *sandbox.APIError", op, err, err)
		return &sandbox.APIError{}
	}
	if e.Provider == "" {
		t.Errorf("%s: the error does not name the provider: %v", op, err)
	}
	if e.Op != op {
		t.Errorf("%s: the error is of operation %q: %v", op, e.Op, err)
	}
	if len(kinds) > 0 && !matches(err, kinds...) {
		t.Errorf("%s: error %q matches none of %q", op, err, kinds)
	}
	return e
}

// refused requires that req is refused for certain, before any request, for one of kinds, and that nothing is made.
func (t *trial) refused(what string, req sandbox.CreateRequest, kinds ...error) {
	t.Helper()
	t.quietly(what, func() {
		info, err := t.try(req)
		t.unmade(what, info, err, kinds...)
	})
	t.nothingMade()
}

// unmade requires that a create answered info and err because it was refused for one of kinds.
func (t *trial) unmade(what string, info sandbox.Info, err error, kinds ...error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: accepted, want a refusal", what)
		return
	}
	if info.ID != "" {
		t.Errorf("%s: refused, but with the ID %s", what, info.ID)
	}
	if !t.apiError(err, sandbox.OpCreate, kinds...).Refused {
		t.Errorf("%s: error %q does not say that nothing was made (Refused)", what, err)
	}
}
