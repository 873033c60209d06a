package e2bfake

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// life is what the state machine does not know of a sandbox.
type life struct {
	last     fake.Record          // as last heard
	started  map[string]time.Time // of each run
	pausedAt time.Time
	timer    *time.Timer // to pause it, where it is paused at its deadline
}

// disarm stops the timer.
func (l *life) disarm() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// evictorTick is how often the service looks for sandboxes whose time is over, and so how far before its end one is
// paused here: at its end the state machine would kill it.
const evictorTick = 50 * time.Millisecond

// watch follows every change of state.
func (s *Server) watch(c fake.Change) {
	r := c.Record
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[r.ID]
	if l == nil {
		l = &life{started: map[string]time.Time{}}
		s.lives[r.ID] = l
	}
	was := l.last
	l.last = r
	alive := func(r fake.Record) bool { return r.State == sandbox.StateRunning || r.State == sandbox.StateFailed }
	_, known := l.started[r.Run]
	switch {
	case r.State == sandbox.StateRunning && !known:
		l.started[r.Run] = c.At
		if len(l.started) == 1 {
			s.publish("created", c, "")
		} else {
			s.publish("resumed", c, "")
		}
	case r.State == sandbox.StateDormant && was.State != sandbox.StateDormant:
		l.pausedAt = c.At
		s.publish("paused", c, "")
	case (r.State == sandbox.StateEnding || r.State == sandbox.StateGone) && (alive(was) || was.State == sandbox.StateDormant):
		s.publish("killed", c, reason(was, r))
	case alive(r) && !r.Deadline.Equal(was.Deadline):
		s.publish("updated", c, "")
	}
	s.arm(r, l)
}

// reason says why a sandbox was killed, in the words of the service.
func reason(was, r fake.Record) string {
	switch {
	case was.Lost:
		return "orphaned"
	case r.Detail == "deleted":
		return "request"
	case r.Detail == "lease over":
		return "timeout"
	}
	return "unknown"
}

// arm sets the timer of a sandbox that is to be paused at its deadline.
func (s *Server) arm(r fake.Record, l *life) {
	m, ok := r.Data.(*machine)
	if !ok || !m.order.AutoPause {
		return
	}
	l.disarm()
	if r.State != sandbox.StateRunning || r.Deadline.IsZero() || s.ctx.Err() != nil {
		return
	}
	// A change is told with the time at which it happened, and the deadline is on the same clock.
	in := r.Deadline.Sub(r.AsOf) - evictorTick
	id, deadline := r.ID, r.Deadline
	l.timer = time.AfterFunc(max(0, in), func() {
		if now, ok := s.svc.Lookup(id); ok && now.Deadline.Equal(deadline) {
			s.svc.Pause(id)
		}
	})
}

// Advance moves the service's clock on by d, with all that happens meanwhile. Where sandboxes are paused at their
// deadline it is to be used instead of that of [Server.Service], at whose deadlines they would be killed.
func (s *Server) Advance(d time.Duration) {
	for end := s.svc.Now().Add(d); ; {
		id, at := s.nextPause()
		if now := s.svc.Now(); id == "" || at.After(end) {
			s.svc.Advance(max(0, end.Sub(now)))
			break
		} else if at.After(now) {
			s.svc.Advance(at.Sub(now))
		}
		s.svc.Pause(id) // which changes nothing where somebody else was faster
	}
	all := s.svc.All()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range all {
		if l := s.lives[r.ID]; l != nil {
			s.arm(r, l)
		}
	}
}

// nextPause returns which sandbox is to be paused next, and when.
func (s *Server) nextPause() (id string, at time.Time) {
	for _, r := range s.svc.All() {
		m, ok := r.Data.(*machine)
		if !ok || !m.order.AutoPause || r.State != sandbox.StateRunning || r.Lost || r.Deadline.IsZero() {
			continue
		}
		if due := r.Deadline.Add(-evictorTick); id == "" || due.Before(at) {
			id, at = r.ID, due
		}
	}
	return id, at
}

// times returns when the run of an answer began and when it ends, or was paused.
func (s *Server) times(r fake.Record) (started, end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	started, end = r.Created, r.Deadline
	l := s.lives[r.ID]
	if l == nil {
		return started, end
	}
	if at, ok := l.started[r.Run]; ok {
		started = at
	}
	if r.State == sandbox.StateDormant {
		if end = l.pausedAt; end.IsZero() {
			end = r.AsOf
		}
	}
	return started, end
}

// A phase is what a sandbox is going through while it is neither running nor paused.
type phase string

const (
	pausing      phase = "pausing"
	snapshotting phase = "snapshotting"
	killing      phase = "killing"
	resuming     phase = "resuming"
)

// transition is a phase under way.
type transition struct {
	phase   phase
	until   time.Time     // by the service's clock; zero: until it is ended
	done    chan struct{} // closed when it is ended; nil with until
	err     error         // of a kill
	deleted atomic.Bool   // of a resume: a delete came meanwhile
}

// transition returns what a sandbox is going through, or nil.
func (s *Server) transition(id string) *transition {
	now := s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.busy[id]
	if t != nil && !t.until.IsZero() && !now.Before(t.until) {
		delete(s.busy, id)
		return nil
	}
	return t
}

// begin begins a phase unless the sandbox is in one, which it then returns.
func (s *Server) begin(id string, p phase) (t, other *transition) {
	if t := s.transition(id); t != nil {
		return nil, t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.busy[id]; t != nil {
		return nil, t
	}
	t = &transition{phase: p, done: make(chan struct{})}
	s.busy[id] = t
	return t, nil
}

func (s *Server) finish(id string, t *transition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[id] == t {
		delete(s.busy, id)
	}
	close(t.done)
}

// await returns when a transition is over, or ctx.
func (s *Server) await(ctx context.Context, t *transition) error {
	var due <-chan time.Time
	if !t.until.IsZero() {
		timer := time.NewTimer(t.until.Sub(s.svc.Now()))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-t.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// pass waits for a time that the service takes.
func pass(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Snapshotting has the service make a snapshot of a running sandbox by itself, or for somebody else, for so long: lists
// leave it out meanwhile. id is that of the wire.
func (s *Server) Snapshotting(id string, d time.Duration) {
	until := s.svc.Now().Add(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[s.ServiceID(id)] = &transition{phase: snapshotting, until: until}
}

// Pausing has somebody else begin to pause a sandbox that is paused after d. id is that of the wire.
func (s *Server) Pausing(id string, d time.Duration) {
	sid := s.ServiceID(id)
	t, _ := s.begin(sid, pausing)
	if t == nil {
		return
	}
	time.AfterFunc(d, func() {
		s.svc.Pause(sid)
		s.finish(sid, t)
	})
}
