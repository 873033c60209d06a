package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandglass-dev/sandglass/heartbeat"
	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/ttl"
)

// WithSandbox runs fn in a new sandbox, then deletes the sandbox and waits until it is seen to be gone:
// on return, error, panic, [runtime.Goexit], cancellation, lost lease, stall and shutdown alike.
//
// fn runs on the caller's goroutine. Its context ends with ctx, and when the library ends the scope early;
// [context.Cause] then matches [ErrLeaseLost], [ErrStalled], [ErrMaxLifetime] or [ErrShutdown], and if fn fails
// the returned error matches it too, first of all. A lease lost before fn returned is an error even if fn returned nil:
// its last commands ran in a sandbox that nobody could vouch for. A call on the sandbox that fails because it is no longer
// there is told so at once, not with the next beat. The sandbox refuses calls once fn has returned.
// After a cancel WithSandbox returns within Grace + CleanupTimeout, whatever create or delete are doing, unless fn
// itself does not return: then the sandbox is deleted under it after Grace.
//
// The error joins fn's own, which comes first, with a [*LeakError] if anything may be left.
// It matches [ErrNotStarted] if fn was never called: only then do [ErrQuota] and the like speak of the create.
func (m *Manager) WithSandbox(ctx context.Context, fn func(ctx context.Context, sb Sandbox) error, opts ...Option) error {
	l, err := m.newLife(ctx, fn != nil, opts)
	if err != nil {
		return fmt.Errorf("sandbox: %w: %w", ErrNotStarted, err)
	}
	return l.within(l.open, fn)
}

// within runs fn in the scope, once open has got the sandbox ready.
func (l *life) within(open func() error, fn func(context.Context, Sandbox) error) (err error) {
	opened := time.Now()
	l.tell(OpScope, Info{}, opened, 1, nil, false)
	returned := false // false in the defer: a panic or runtime.Goexit is under way, and err means nothing
	defer func() {
		err = l.close(err, returned)
		l.tell(OpScope, Info{}, opened, 1, err, true)
	}()
	if err = open(); err == nil {
		err = l.run(fn)
	} else {
		err = fmt.Errorf("sandbox: %w: %w", ErrNotStarted, err)
	}
	returned = true
	return err
}

// A life is one scope and its sandbox, which may outlive it.
type life struct {
	m      *Manager
	key    string // in the Manager's lives: the nonce, of a guest another; guarded by the Manager's mu
	scope  Scope
	plan   ttl.Plan
	mark   Mark
	base   context.Context // the caller's values, without its end
	ctx    context.Context // the scope's: ends with the caller's, or early
	cancel context.CancelCauseFunc

	calls    context.Context // of the calls on the sandbox: ends with the sandbox
	endCalls context.CancelCauseFunc
	progress progress

	attached bool          // the sandbox was there before the scope
	guest    bool          // and is not the scope's own to end
	met      chan struct{} // of an attached one: the first beat was well
	granted  time.Time     // of a guest: the end that its last extension set; the heartbeat's own

	started   bool          // fn was called
	fnOver    chan struct{} // fn has returned, or was not called
	guarded   chan struct{} // nobody waits for that any more
	stopBeats context.CancelFunc
	beatsOver chan struct{}
	ending    atomic.Bool   // somebody ends the sandbox
	over      chan struct{} // has done so
	again     chan struct{} // held while somebody tries again
	leave     func()        // gives the slot back

	mu      sync.Mutex
	cause   error      // why the library ended the scope
	stopped time.Time  // when its context ended
	dropped bool       // the caller cancelled it
	born    ttl.Moment // when the create's request left
	info    Info       // as last seen
	seen    time.Time  // when that answer came
	runID   string     // Info.Run when it was first seen running
	ran     bool       // it was seen running
	foreign bool       // the last look has shown another sandbox under its id
	maybe   bool       // something may exist
	unsure  bool       // a create was not answered: List is a witness too
	settled time.Time  // and what it made may appear until then
	ends    time.Time  // when the lease ends it at the latest, by our clock
	kept    bool
	leak    *LeakError
	doubts  map[string]doubt // deletes that the service failed, by id; of whoever ends the sandbox, one at a time
}

// newLife plans a scope and enters it into the Manager. It makes no request.
func (m *Manager) newLife(ctx context.Context, hasFn bool, opts []Option) (*life, error) {
	scope := m.cfg.Scope.clone()
	for _, o := range opts {
		o(&scope)
	}
	scope = scope.clone() // what an option has set is the caller's own map
	plan, err := m.plan(scope)
	if !hasFn {
		err = errors.Join(err, fmt.Errorf("no function: %w", ErrInvalid))
	}
	if err == nil {
		err = ended(ctx)
	}
	if err != nil {
		return nil, err
	}
	l := &life{
		m: m, scope: scope, plan: plan, base: context.WithoutCancel(ctx),
		fnOver: make(chan struct{}), guarded: make(chan struct{}), beatsOver: make(chan struct{}), over: make(chan struct{}), again: make(chan struct{}, 1),
		stopBeats: func() {}, leave: func() {},
		mark: Mark{
			Fleet: m.cfg.Fleet, Owner: m.cfg.Owner, Nonce: newNonce(), Created: time.Now().UTC().Truncate(time.Second),
			Lifetime: (plan.HardEnd + time.Millisecond - 1).Truncate(time.Millisecond),
		},
	}
	l.key, l.doubts = l.mark.Nonce, map[string]doubt{}
	close(l.guarded)
	close(l.beatsOver)
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(ctx, scopeKey{}, l))
	l.calls, l.endCalls = context.WithCancelCause(l.base)
	l.progress.begin() // our own work counts until fn runs
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut {
		l.cancel(ErrShutdown)
		return nil, ErrShutdown
	}
	m.live[l.key] = l
	return l, nil
}

// open gets the sandbox ready for fn.
func (l *life) open() error {
	l.watch()
	if err := l.enter(); err != nil {
		return err
	}
	if err := l.remember(l.base); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := l.create(); err != nil {
		return err
	}
	if err := l.remember(l.base); err != nil { // the intent is there already, and suffices to find it
		l.tell(OpJournal, Info{}, time.Now(), 2, err, true)
	}
	l.beat()
	return l.await()
}

// watch has the scope know when the caller cancelled.
func (l *life) watch() { context.AfterFunc(l.ctx, func() { l.stop(nil) }) }

// enter waits for a slot, where there is a limit.
func (l *life) enter() error {
	if slots := l.m.slots; slots != nil {
		select {
		case slots <- struct{}{}:
			l.leave = sync.OnceFunc(func() { <-slots })
		case <-l.ctx.Done():
			return ended(l.ctx)
		}
	}
	return nil
}

// run calls fn and watches over it.
func (l *life) run(fn func(context.Context, Sandbox) error) error {
	info := l.known()
	sb := &handle{l: l, sb: l.m.p.Open(info)}
	l.started, l.guarded = true, make(chan struct{})
	go l.guard()
	l.progress.end()
	start := time.Now()
	err := fn(l.ctx, sb)
	l.tell(OpRun, Info{}, start, 1, err, true)
	return err
}

// guard deletes the sandbox under a function that outlives its context by the grace period.
func (l *life) guard() {
	defer close(l.guarded)
	select {
	case <-l.fnOver:
		return
	case <-l.ctx.Done():
	}
	wait := l.m.grace()
	for attempt := 1; ; attempt++ {
		timer := time.NewTimer(max(wait, 0))
		start := time.Now()
		select {
		case <-l.fnOver:
			timer.Stop()
			return
		case <-timer.C:
		}
		l.stop(nil)
		l.end(true)
		l.tell(OpRun, Info{}, start, attempt, fmt.Errorf("the function still runs, %v after its context ended: %w", l.sinceStop(), ended(l.ctx)), false)
		wait = max(l.m.cfg.Grace, time.Minute)
	}
}

// close ends the scope and returns its error: our cause, then fn's own, then what may be left.
func (l *life) close(err error, returned bool) error {
	cause := l.stop(nil)
	close(l.fnOver)
	<-l.guarded
	leak := l.end(err != nil || !returned || cause != nil)
	if cause != nil && (err != nil || errors.Is(cause, ErrLeaseLost)) && !errors.Is(err, cause) {
		if err == nil {
			err = cause
		} else {
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	switch {
	case leak == nil:
	case !returned: // no error can be returned: the event is all there is, and it may have nobody to hear it
		slog.Default().ErrorContext(l.base, "sandbox left behind while its function panics or exits", "error", leak)
	case l.m.cfg.OnLeak != nil:
		l.m.cfg.OnLeak(l.base, leak)
	default:
		err = errors.Join(err, leak)
	}
	return err
}

// stop ends the scope's context, and returns why the library did so, if it did: nil after the caller's own cancel.
// stop(nil) is the regular end. The first cause stays, for who asks the context and who reads the error alike: it is on
// record before anything ends by it, since a function may return at once.
func (l *life) stop(cause error) error {
	l.mu.Lock()
	if l.stopped.IsZero() {
		l.stopped = time.Now()
		if err := l.ctx.Err(); err == nil {
			l.cause = cause
		} else {
			l.dropped = errors.Is(err, context.Canceled)
		}
	}
	own := l.cause
	l.mu.Unlock()
	for _, why := range []error{own, cause} {
		if errors.Is(why, ErrLeaseLost) { // first: on some services a call would wake or prolong what answers to the id now
			l.endCalls(why)
			l.stopBeats()
		}
	}
	l.cancel(own)
	return own
}

// end ends the sandbox. The first caller does it, all wait for it.
func (l *life) end(failed bool) *LeakError {
	if !l.ending.CompareAndSwap(false, true) {
		<-l.over
		return l.lastLeak()
	}
	defer close(l.over)
	ctx, cancel := context.WithTimeout(l.base, l.budget())
	defer cancel()
	l.endCalls(ErrScopeEnded)
	l.stopBeats()
	select { // an extension that lands after the delete would be one too many
	case <-l.beatsOver:
	case <-ctx.Done():
	}
	switch {
	case l.guest:
		l.m.forget(l)
		l.leave()
		return nil
	case !l.isMaybe():
		l.gone()
		return nil
	}
	if failed && l.keep(ctx) {
		return nil
	}
	leak := l.cleanup(l.resolve(ctx)).run(ctx)
	l.settle(leak)
	return leak
}

// budget is what the end may take. A scope that was stopped before fn ran shares one with its create.
func (l *life) budget() time.Duration {
	if since := l.sinceStop(); !l.started && since > 0 {
		return min(l.m.cfg.CleanupTimeout, l.m.cfg.Grace+l.m.cfg.CleanupTimeout-since)
	}
	return l.m.cfg.CleanupTimeout
}

// cleanup is what ends the sandbox. unknown says why it is not even known what there is to end.
func (l *life) cleanup(unknown error) *cleanup {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &cleanup{
		p: l.m.p, caps: l.m.caps, mark: l.mark, born: l.born.Mono, ends: l.ends, settled: l.settled,
		witness: l.m.caps.GoneByList || l.unsure, unknown: unknown, tell: l.tell,
		wary: l.foreign || errors.Is(l.cause, ErrLeaseLost),
	}
	if l.info.ID != "" {
		c.add(l.info)
	}
	c.recall(l.doubts)
	return c
}

// settle remembers how the end came out.
func (l *life) settle(leak *LeakError) {
	if leak == nil {
		l.gone()
		return
	}
	l.mu.Lock()
	l.leak = leak
	ends := l.ends
	l.mu.Unlock()
	if ends.IsZero() {
		ends = time.Now().Add(l.plan.HardEnd)
	}
	if left := time.Until(ends); left > 0 {
		time.AfterFunc(left, l.leave) // the slot is the sandbox's as long as it may run
	} else {
		l.leave()
	}
	l.letGo()
}

// letGo has the journal give up its lock, if it holds one: the scope is over, and from here on anybody may finish it.
func (l *life) letGo() {
	if j, ok := l.m.cfg.Journal.(interface {
		Release(ctx context.Context, nonce string) error
	}); ok {
		start := time.Now()
		if err := contain.Do(l.base, readTime, func(ctx context.Context) error { return j.Release(ctx, l.mark.Nonce) }); err != nil {
			l.tell(OpJournal, Info{}, start, 1, err, true)
		}
	}
}

// drop forgets a sandbox that is no longer the scope's to end.
func (l *life) drop() {
	l.mu.Lock()
	l.maybe, l.leak = false, nil
	l.mu.Unlock()
	l.m.forget(l)
	l.leave()
}

// gone forgets a sandbox that is seen to be gone, or was never made.
func (l *life) gone() {
	l.drop()
	if l.m.cfg.Journal != nil {
		start := time.Now()
		err := contain.Do(l.base, readTime, func(ctx context.Context) error { return l.m.cfg.Journal.Remove(ctx, l.mark.Nonce) })
		l.tell(OpJournal, Info{}, start, 1, err, true)
	}
}

// keep leaves the sandbox for debugging, if that was asked for and the service agrees to the new end.
func (l *life) keep(ctx context.Context) bool {
	l.mu.Lock()
	wanted := l.plan.Down(l.scope.KeepOnError)
	if l.dropped || l.foreign || errors.Is(l.cause, ErrShutdown) || errors.Is(l.cause, ErrLeaseLost) {
		wanted = 0
	}
	l.mu.Unlock()
	if wanted <= 0 || !l.started {
		return false
	}
	start := time.Now()
	_, err := contain.Call(ctx, l.plan.Attempt, func(ctx context.Context) (heartbeat.Grant, error) { return l.extend(ctx, wanted) })
	l.tell(OpKeep, Info{}, start, 1, err, true)
	if err != nil { // rather deleted than left with an end that nobody knows
		return false
	}
	l.mu.Lock()
	l.kept = true
	ends := l.ends
	l.mu.Unlock()
	if err := l.remember(l.base); err != nil {
		l.tell(OpJournal, Info{}, start, 3, err, true)
	}
	l.letGo()
	time.AfterFunc(time.Until(ends), func() { l.leave(); l.m.forget(l) })
	return true
}
