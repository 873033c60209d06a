package daytonafake

import (
	"context"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// deed is what the service's jobs do to a sandbox in time.
type deed int

const (
	nothing    deed = iota
	idleStop        // stop, or destroy if ephemeral
	idlePause       // pause
	archive         // what has been stopped for long
	expire          // delete what has been stopped for long
	purge           // forget a hidden record
	failDelete      // a delete ends in error
	endStop         // a stop is complete
)

// tick returns the first tick that is not before t.
func (s *Server) tick(t time.Time) time.Time {
	every := s.quirk().Tick
	since := t.Sub(s.epoch)
	if rest := since % every; rest > 0 {
		since += every - rest
	}
	return s.epoch.Add(since)
}

// next returns what the jobs will do to the box, and when, if nobody does anything. The lock is held.
func (b *box) next(tick func(time.Time) time.Time) (time.Time, deed) {
	switch {
	case !b.hidden.IsZero():
		kept := keptFailed
		if b.order.built() {
			kept = keptUnbuilt
		}
		return b.hidden.Add(kept), purge
	case !b.failing.IsZero():
		return b.failing, failDelete
	case b.state == sandbox.StateRunning && len(b.open) == 0:
		if m := b.minutes["autoStopInterval"]; m > 0 {
			return b.idle(m, tick), idleStop
		}
		if m := b.minutes["autoPauseInterval"]; m > 0 {
			return b.idle(m, tick), idlePause
		}
	case b.state == sandbox.StateDormant && b.word == "stopping":
		return b.stopsAt, endStop
	case b.state == sandbox.StateDormant && b.word == "stopped":
		m := b.minutes["autoArchiveInterval"]
		if m == 0 {
			m = maxArchive
		}
		at, what := b.idle(m, tick), archive
		if m := b.minutes["autoDeleteInterval"]; m >= 0 {
			if t := b.idle(m, tick); t.Before(at) {
				at, what = t, expire
			}
		}
		return at, what
	}
	return time.Time{}, nothing
}

// idle returns the tick at which the job finds no activity for so many minutes. A refresh counts if it arrived on an
// earlier tick: the jobs of one tick look before that tick's refreshes are written. The lock is held.
func (b *box) idle(n int, tick func(time.Time) time.Time) time.Time {
	due := tick(b.activity.Add(minutes(n)))
	if !b.waiting.IsZero() && tick(b.waiting).Before(due) {
		due = later(due, tick(b.waiting.Add(minutes(n))))
	}
	return due
}

// first returns the box to which something happens next.
func (s *Server) first() (b *box, at time.Time, what deed) {
	s.mu.Lock()
	boxes := make([]*box, 0, len(s.boxes))
	for _, x := range s.boxes {
		boxes = append(boxes, x)
	}
	s.mu.Unlock()
	for _, x := range boxes {
		x.mu.Lock()
		t, w := x.next(s.tick)
		x.mu.Unlock()
		if w != nothing && (b == nil || t.Before(at)) {
			b, at, what = x, t, w
		}
	}
	return b, at, what
}

// Settle has the jobs do what is due. It happens by itself as time goes by and with every request; call it after the
// clock of the state machine was moved.
func (s *Server) Settle() {
	for {
		b, at, what := s.first()
		if what == nothing || at.After(s.svc.Now()) {
			break
		}
		s.carry(b, what, at)
	}
	s.arm()
}

// Advance moves the service's clock on and lets everything happen on the way at its time.
func (s *Server) Advance(d time.Duration) {
	end := s.svc.Now().Add(d)
	for {
		_, at, what := s.first()
		now := s.svc.Now()
		if what == nothing || at.After(end) || !now.Before(end) {
			s.svc.Advance(max(0, end.Sub(now)))
			s.Settle()
			return
		}
		s.svc.Advance(max(0, at.Sub(now)))
		s.Settle()
	}
}

// carry does one deed, unless it has been done or something has come between.
func (s *Server) carry(b *box, what deed, at time.Time) {
	takes := s.svc.Behaviour().EndTime
	b.mu.Lock()
	if t, w := b.next(s.tick); w != what || !t.Equal(at) {
		b.mu.Unlock()
		return
	}
	id, ephemeral := b.id, b.minutes["autoDeleteInterval"] == 0
	switch what { // at once, for the state machine may tell of the change a little later
	case idleStop, idlePause:
		b.state, b.word, b.stopsAt = sandbox.StateDormant, "stopping", at.Add(takes)
		if what == idlePause {
			b.word = "paused"
		} else if ephemeral {
			b.state = sandbox.StateGone
		}
		b.activity, b.waiting, b.updated = at, time.Time{}, at // a change of state is activity
	case archive:
		b.word, b.updated = "archived", at
	case endStop:
		b.word, b.activity, b.updated = "stopped", later(b.activity, at), at
	case failDelete:
		b.failing, b.hidden = time.Time{}, at
	case expire:
		b.state = sandbox.StateGone
	case purge:
		b.hidden, b.state = time.Time{}, sandbox.StateGone
	}
	b.mu.Unlock()
	switch {
	case what == idleStop && !ephemeral, what == idlePause:
		s.svc.Pause(id)
	case what == archive, what == failDelete, what == endStop:
	default:
		s.svc.Kill(id)
	}
}

// arm sets the timer for what happens next, so that the state machine's truth is right also when nobody asks. It never
// puts the timer off, for another arm may know of something earlier: a timer that fires for nothing is set anew.
func (s *Server) arm() {
	_, at, what := s.first()
	if what == nothing {
		return
	}
	in := max(0, at.Sub(s.svc.Now()))
	s.mu.Lock()
	defer s.mu.Unlock()
	fires := time.Now().Add(in)
	if s.closed || !s.armed.IsZero() && !s.armed.After(fires) {
		return
	}
	s.armed = fires
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(in, func() {
		s.mu.Lock()
		s.armed = time.Time{}
		s.mu.Unlock()
		s.Settle()
	})
}

// sleep waits, and reports whether the whole time has passed.
func (s *Server) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.base.Done():
	}
	return false
}
