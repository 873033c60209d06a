package vercelfake

import (
	"context"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// live returns the session that a path names, and its sandbox's record, if it takes calls.
func (s *Server) live(c *call) (*session, fake.Record, error) {
	ses, rec, err := s.sessionOf(c)
	if err != nil {
		return nil, rec, err
	}
	if status := s.status(ses, rec); status != stRunning {
		return nil, rec, s.ofLife(status)
	}
	return ses, rec, nil
}

// sessionOf returns the session that a path names in whatever state, and its sandbox's true record.
func (s *Server) sessionOf(c *call) (*session, fake.Record, error) {
	id := c.PathValue("id")
	s.mu.Lock()
	ses := s.sessions[id]
	s.mu.Unlock()
	gone := &problem{status: 404, code: "sandbox_not_found", message: "Session " + id + " was not found"}
	if ses == nil || c.claims != nil && c.claims.Project != ses.box.project.ID {
		return nil, fake.Record{}, gone
	}
	rec, err := s.truly(ses.box.id)
	switch {
	case err != nil || rec.Lost:
		return nil, rec, gone
	case rec.State == sandbox.StateGone:
		if status := s.Quirks().SessionGone; status == 410 {
			return nil, rec, s.ofLife(stStopped)
		}
		return nil, rec, gone
	}
	return ses, rec, nil
}

// extend adds to the timeout of a running session. There is no call that takes from it.
func (s *Server) extend(ctx context.Context, c *call) (any, error) {
	var body struct {
		Duration *int64 `json:"duration"`
	}
	if err := c.decode(&body); err != nil {
		return nil, err
	}
	if body.Duration == nil || *body.Duration < minTimeout.Milliseconds() {
		return nil, invalid("duration must be at least %d", minTimeout.Milliseconds())
	}
	ses, rec, err := s.live(c)
	if err != nil {
		return nil, err
	}
	b := s.svc.Behaviour()
	s.mu.Lock()
	timeout := ses.timeout
	s.mu.Unlock()
	by := time.Duration(min(*body.Duration, int64(1<<62)/int64(time.Millisecond))) * time.Millisecond
	if b.PlanLifetime > 0 && (by > b.PlanLifetime || timeout+by > b.PlanLifetime) {
		return nil, timeoutInvalid("The timeout would exceed the maximum of %d on this plan", b.PlanLifetime.Milliseconds())
	}
	if !c.fault.Ignore {
		if rec, err = s.svc.Extend(ctx, ses.box.id, by); err != nil {
			return nil, err
		}
	}
	v := s.view(rec)
	return map[string]any{"session": v.Session}, nil
}
