package fake

import (
	"context"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Delete removes a sandbox, at once or after Behaviour.DeleteTime.
func (s *Service) Delete(ctx context.Context, id string) error {
	return s.do(ctx, sandbox.OpDelete, func(at time.Time, f Fault) error {
		h := &s.habits
		if f.Effect == EffectNone {
			return nil
		}
		r, err := s.find(id)
		switch {
		case err != nil:
			return err
		case h.NoDelete:
			return refuse(403, sandbox.ErrPermission, "forbidden", "the key may not delete")
		case h.BusyWhileStarting && r.state == sandbox.StateStarting:
			return refuse(409, sandbox.ErrConflict, "starting", "the sandbox is starting")
		case h.FailsWhileDormant && r.state == sandbox.StateDormant:
			return refuse(500, sandbox.ErrUnavailable, "internal", "the sandbox does not run")
		}
		ending := func(d time.Duration) {
			r.state, r.detail, r.into, r.endsAt, r.frozen = sandbox.StateEnding, "deleted", sandbox.StateGone, time.Time{}, false
			if d > 0 {
				r.endsAt = at.Add(d)
			}
		}
		switch f.Effect {
		case EffectPending:
			ending(max(h.PendingTime, time.Nanosecond))
		case EffectBlocked:
			ending(0)
		case EffectOrphan:
			r.lost, r.detail, r.lostEnd, r.frozen = true, "record lost", time.Time{}, false
			if h.OrphanTime > 0 {
				r.lostEnd = at.Add(h.OrphanTime)
			}
		case EffectRevive:
			s.end(r, sandbox.StateGone)
			r.reviveAt = at.Add(max(h.ReviveAfter, time.Nanosecond))
		default:
			switch {
			case r.state == sandbox.StateEnding && !r.endsAt.IsZero():
				if r.into == sandbox.StateGone {
					return nil // the first delete is still at work
				}
				r.into = sandbox.StateGone // it was being stopped; now nothing of it shall stay
			case h.DeleteTime > 0:
				ending(h.DeleteTime)
			default:
				s.end(r, sandbox.StateGone)
				r.detail = "deleted"
			}
		}
		s.note(r, at)
		return nil
	})
}
