package fake

import (
	"context"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Extend moves the end of a sandbox's lease: to d from now where leases are set, by d where the service adds, to its
// idle time from now where activity extends, and nowhere where they are fixed. What is dormant is left as it is, and the
// record says so; what is ending is a conflict.
func (s *Service) Extend(ctx context.Context, id string, d time.Duration) (Record, error) {
	var got Record
	err := s.do(ctx, sandbox.OpExtend, func(at time.Time, f Fault) (err error) {
		got, err = s.moveLease(id, d, at, f.Effect)
		return err
	})
	if err != nil {
		return Record{}, err
	}
	return got, nil
}

func (s *Service) moveLease(id string, d time.Duration, at time.Time, e Effect) (Record, error) {
	h := &s.habits
	if r := s.byID[id]; r != nil && e == EffectNone { // also of one that is gone, as if nothing had happened
		m := r.history[len(r.history)-1]
		if _, before, ok := r.turned(); ok && !m.there() {
			m = before
		}
		return s.answer(r, m, s.now()), nil
	}
	r, err := s.find(id)
	if err != nil {
		return Record{}, err
	}
	answer := func() (Record, error) {
		return s.answer(r, r.history[len(r.history)-1], s.now()), nil
	}
	if r.state == sandbox.StateEnding {
		return Record{}, refuse(409, sandbox.ErrConflict, "ending", "the sandbox is ending")
	}
	if r.frozen || r.state == sandbox.StateDormant && !h.PausedLease || s.extend == sandbox.ExtendNone || h.NoLease {
		return answer()
	}
	end := at.Add(d)
	switch s.extend {
	case sandbox.ExtendActivity:
		end = at.Add(r.Window)
		if r.Window <= 0 {
			return answer()
		}
	case sandbox.ExtendAdd:
		if d <= 0 {
			return Record{}, refuse(400, sandbox.ErrInvalid, "timeout_invalid", "extension by %v", d)
		}
		if !r.deadline.IsZero() {
			end = r.deadline.Add(d)
		}
	}
	left := end.Sub(at)
	switch {
	case s.extend == sandbox.ExtendActivity: // the idle time was accepted by the create
	case h.MaxWindow > 0 && left > h.MaxWindow, s.extend == sandbox.ExtendSet && (d <= 0 || d < h.MinWindow):
		return Record{}, s.outside(left)
	}
	if h.PlanLifetime > 0 && !at.Before(r.started.Add(h.PlanLifetime)) {
		return Record{}, refuse(400, sandbox.ErrInvalid, "timeout_invalid", "the plan allows %v", h.PlanLifetime)
	}
	if e == EffectShorten {
		end = at.Add(left / 2)
	}
	if h.RaceWindow > 0 && !r.deadline.IsZero() && r.deadline.Sub(at) < h.RaceWindow {
		r.doomed = earlier(r.doomed, r.deadline)
	}
	r.deadline = s.grant(r, end)
	s.note(r, at)
	return answer()
}

// outside is the refusal of a window that is too long or too short.
func (s *Service) outside(d time.Duration) error {
	h := &s.habits
	return refuse(400, sandbox.ErrInvalid, "timeout_invalid", "timeout %v is not within %v and %v", d, h.MinWindow, h.MaxWindow)
}

// grant returns the deadline that the service sets when it should set end.
func (s *Service) grant(r *record, end time.Time) time.Time {
	if s.habits.NoLease {
		return time.Time{}
	}
	end = end.Add(s.habits.GrantExtra)
	if s.habits.PlanLifetime > 0 {
		end = earlier(end, r.started.Add(s.habits.PlanLifetime))
	}
	return earlier(end, r.hardEnd)
}

// Shorten brings the end of a lease nearer, to left from now, or leaves it. It counts as an extend for faults.
func (s *Service) Shorten(ctx context.Context, id string, left time.Duration) error {
	return s.do(ctx, sandbox.OpExtend, func(at time.Time, f Fault) error {
		r, err := s.find(id)
		switch {
		case err != nil:
			return err
		case left <= 0 || left < s.habits.MinWindow:
			return refuse(400, sandbox.ErrInvalid, "timeout_invalid", "timeout %v is less than %v", left, s.habits.MinWindow)
		case r.state == sandbox.StateEnding || f.Effect == EffectNone || s.extend == sandbox.ExtendNone:
			return nil
		case r.frozen || r.state == sandbox.StateDormant && !s.habits.PausedLease:
			return nil
		}
		if end := at.Add(left); r.deadline.IsZero() || end.Before(r.deadline) {
			r.deadline = end
			s.note(r, at)
		}
		return nil
	})
}

// find returns the record that calls by id see.
func (s *Service) find(id string) (*record, error) {
	r := s.byID[id]
	if r == nil || !r.exists() || s.habits.WrongScope {
		return nil, unknown()
	}
	return r, nil
}
