package daytonafake

import (
	"errors"
	"net/http"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// glance is how often a create that waits looks whether the sandbox has started.
const glance = 100 * time.Millisecond

func (s *Server) create(c *call) (int, any, error) {
	q := s.quirk()
	if c.from == foreigner {
		return 0, nil, &problem{status: http.StatusForbidden, message: "Organization is suspended"}
	}
	var o order
	if err := c.decode(&o); err != nil {
		return 0, nil, err
	}
	if err := o.complete(q, s.opts.Region); err != nil {
		return 0, nil, err
	}
	plan := s.svc.Behaviour().PlanLifetime
	window := minutes(o.TTLMinutes)
	if window == 0 && !q.NoTTL {
		window = plan // where there is a longest life, it is also the default
	}
	b := newBox(o)
	rec, err := s.svc.Create(c.Context(), fake.Order{
		Name: o.Name, Body: o.text(), Image: o.image(), Tags: o.Labels, Window: window, Data: b,
	})
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Code == fake.NameTaken {
		return 0, nil, conflict("Sandbox with name %s already exists", o.Name)
	}
	if err != nil {
		return 0, nil, err
	}
	told := s.dto(rec, b, c.Request) // as it was before the wait
	if o.built() || rec.State != sandbox.StateStarting {
		return http.StatusOK, told, nil
	}
	for end := s.svc.Now().Add(q.CreateWait); s.svc.Now().Before(end); {
		if now, ok := s.svc.Lookup(rec.ID); !ok || now.State != sandbox.StateStarting {
			break
		}
		if !s.sleep(c.Context(), glance) {
			return 0, nil, errDropped
		}
	}
	if now, ok := s.svc.Lookup(rec.ID); ok && now.State == sandbox.StateFailed {
		return 0, nil, invalid("Sandbox failed to start: %s", now.Detail)
	}
	return http.StatusOK, told, nil
}
