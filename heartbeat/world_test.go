package heartbeat_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/heartbeat"
	"github.com/sandglass-dev/sandglass/ttl"
)

type ctx = context.Context // so that a test's own Extend fits into a line

var (
	errBusy = errors.New("503 service unavailable")
	errGone = fmt.Errorf("%w: 404 no such lease", heartbeat.ErrGone)
)

// A kind is what sort of leases a service has.
type kind int

const (
	sets     kind = iota // an extension sets the end, and the service tells it
	adds                 // an extension adds to it; the owner computes the difference
	activity             // an extension restarts an idle clock; nothing is told
)

// A fault is how one call goes. The zero fault is a call that is answered at once.
type fault struct {
	out  time.Duration // until the service handles it
	back time.Duration // from there until the answer
	err  error         // the answer, instead of handling it
	deaf bool          // the call does not notice the end of its context
	late time.Duration // if its context ends before the service handles it, it is handled so much later all the same
}

// A call is one call as the service saw it.
type call struct {
	look     bool
	window   time.Duration
	start    time.Time
	handled  time.Time // zero: never
	answered time.Time
	end      time.Time // the lease's end after it was handled
	err      error     // what the owner got
}

// A service keeps one lease. Its clock is the bubble's, which nobody moves: what moves is the owner's wall clock.
type service struct {
	kind  kind
	grain time.Duration             // ends are told in whole ones; 0: exactly
	cap   time.Time                 // no end lies later; zero: none
	grant time.Duration             // no window is longer; 0: none
	fault func(n int, c call) fault // of the n-th call, from 1; nil: none

	mu      sync.Mutex
	end     time.Time // of the lease
	dead    bool      // it was taken away
	calls   []call
	flying  int
	crowded bool          // two calls were under way at once
	beyond  time.Duration // the furthest that the end lay ahead of the clock
	known   time.Time     // the end as the owner of an adding service knows it
}

func (s *service) Extend(ctx context.Context, window time.Duration) (heartbeat.Grant, error) {
	return s.serve(ctx, call{window: window})
}

func (s *service) Look(ctx context.Context) (heartbeat.Grant, error) {
	return s.serve(ctx, call{look: true})
}

func (s *service) serve(ctx context.Context, c call) (grant heartbeat.Grant, err error) {
	c.start = time.Now()
	s.mu.Lock()
	n := len(s.calls)
	s.calls = append(s.calls, c)
	s.flying++
	s.crowded = s.crowded || s.flying > 1
	delta := time.Duration(0)
	if s.kind == adds {
		delta = c.window - s.known.Sub(c.start)
	}
	s.mu.Unlock()
	var f fault
	if s.fault != nil {
		f = s.fault(n+1, c)
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flying--
		s.calls[n].answered, s.calls[n].err = time.Now(), err
	}()
	if f.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if err := pause(ctx, f.out); err != nil {
		if f.late > 0 {
			go func() {
				time.Sleep(f.late)
				_, _ = s.handle(n, c, delta)
			}()
		}
		return heartbeat.Grant{}, err
	}
	if f.err != nil {
		return heartbeat.Grant{}, f.err
	}
	grant, err = s.handle(n, c, delta)
	if lost := pause(ctx, f.back); lost != nil {
		return heartbeat.Grant{}, lost
	}
	if s.kind == adds && err == nil {
		s.mu.Lock()
		s.known = grant.End
		s.mu.Unlock()
	}
	return grant, err
}

func (s *service) handle(n int, c call, delta time.Duration) (heartbeat.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.dead || !now.Before(s.end) {
		return heartbeat.Grant{}, errGone
	}
	if !c.look {
		end := now.Add(c.window)
		if s.kind == adds {
			end = s.end.Add(delta)
		}
		if most := now.Add(s.grant); s.grant > 0 && end.After(most) {
			end = most
		}
		if !s.cap.IsZero() && end.After(s.cap) {
			end = s.cap
		}
		s.end = end
	}
	s.calls[n].handled, s.calls[n].end = now, s.end
	s.beyond = max(s.beyond, s.end.Sub(now))
	if s.kind == activity {
		return heartbeat.Grant{}, nil
	}
	told := s.end
	if s.grain > 0 {
		told = told.Truncate(s.grain)
	}
	return heartbeat.Grant{Left: told.Sub(now), End: told}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// log returns the calls so far.
func (s *service) log() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.calls...)
}

// sent returns the calls of one sort, from a time on.
func (s *service) sent(look bool, from time.Time) (some []call) {
	for _, c := range s.log() {
		if c.look == look && !c.start.Before(from) {
			some = append(some, c)
		}
	}
	return some
}

func (s *service) extensions() []call { return s.sent(false, time.Time{}) }
func (s *service) looks() []call      { return s.sent(true, time.Time{}) }

func (s *service) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
}

// alive reports whether the lease has neither ended nor been taken away.
func (s *service) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.dead && time.Now().Before(s.end)
}

// A verdict is one call of Over.
type verdict struct {
	cause error
	at    time.Duration // after the lease's start
}

// A world is an owner with a lease. It lives in a bubble.
type world struct {
	*service
	heartbeat.Config
	t      *testing.T
	start  time.Time
	wall   atomic.Int64 // by how much the owner's wall clock is wrong
	cancel context.CancelFunc
	over   chan struct{}

	mu       sync.Mutex
	verdicts []verdict
	beats    []heartbeat.Beat
	err      error
	ended    time.Duration // when Run returned, after the start
}

// limits are those of a service that takes whole seconds.
var limits = ttl.Limits{Max: 48 * time.Hour, Step: time.Second}

// standard is the plan of the defaults, with the time after the lifetime that a scope has.
var standard = ttl.Policy{After: 130 * time.Second}

// newWorld makes a lease of one window that begins now. Change the world before it goes.
func newWorld(t *testing.T, p ttl.Policy, l ttl.Limits) *world {
	t.Helper()
	plan, err := p.Resolve(l)
	require.NoError(t, err)
	start := ttl.Now()
	w := &world{t: t, start: start.Mono, over: make(chan struct{})}
	first := plan.WindowAt(0)
	w.service = &service{end: w.start.Add(first), known: w.start.Add(first)}
	w.Config = heartbeat.Config{
		Plan: plan, Start: start, Trust: start.Add(first - plan.Margin),
		Extend: w.service.Extend, Look: w.service.Look,
		Over: func(cause error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.verdicts = append(w.verdicts, verdict{cause, w.age()})
		},
		Observe: func(b heartbeat.Beat) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.beats = append(w.beats, b)
		},
		Wall: func() time.Time { return time.Now().Add(time.Duration(w.wall.Load())) },
	}
	return w
}

func (w *world) age() time.Duration { return time.Since(w.start) }

// go starts Run. The world must be ended with stop or wait.
func (w *world) run() *world {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() {
		defer close(w.over)
		err := heartbeat.Run(ctx, w.Config)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err, w.ended = err, w.age()
	}()
	return w
}

// until sleeps until so long after the start of the lease, and lets everybody act on that instant.
func (w *world) until(age time.Duration) {
	time.Sleep(age - w.age())
	synctest.Wait()
}

// stop ends Run and shows that it had not ended by itself.
func (w *world) stop() {
	w.t.Helper()
	w.cancel()
	<-w.over
	require.NoError(w.t, w.err)
}

// wait waits for Run to end by itself, and returns its last verdict.
func (w *world) wait() verdict {
	w.t.Helper()
	<-w.over
	w.cancel()
	require.Error(w.t, w.err, "Run has ended by itself")
	require.NotEmpty(w.t, w.verdicts)
	last := w.verdicts[len(w.verdicts)-1]
	require.Equal(w.t, last.cause, w.err, "Over is told what Run returns")
	return last
}

// told returns when Over was told of cause: once at most.
func (w *world) told(cause error) (age time.Duration, ok bool) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.verdicts {
		if errors.Is(v.cause, cause) {
			require.False(w.t, ok, "%v is told once", cause)
			age, ok = v.at, true
		}
	}
	return age, ok
}

// jump moves the owner's wall clock. That is also what a suspend looks like, since the monotonic clock stands still in it.
func (w *world) jump(d time.Duration) { w.wall.Add(int64(d)) }

// bubble runs f in a bubble of its own, whose goroutines must have ended with f.
func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
