package daytonafake

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// setter is the status of the routes that set something: documented as 200, while the public server answers 201.
func (s *Server) setter() int {
	if s.quirk().Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// setTTL sets the deadline to so many minutes from now. What the service does for one that is being deleted is not
// known; here the call changes nothing and the answer says so.
func (s *Server) setTTL(c *call) (int, any, error) {
	if s.quirk().NoTTL {
		return 0, nil, cannot(c.Request)
	}
	n, err := strconv.Atoi(c.PathValue("n"))
	if err != nil || n < 0 {
		return 0, nil, invalid("ttlMinutes must be an integer number not less than 0")
	}
	window := minutes(n)
	if n == 0 {
		if window = s.svc.Behaviour().PlanLifetime; window == 0 {
			window = never
		}
	}
	asked, id := c.PathValue("id"), c.machine()
	if rec, _, err := s.known(asked); err == nil {
		id = rec.ID
	} else if s.boxFor(id).isHidden() {
		return 0, nil, unknown(asked)
	}
	rec, err := s.svc.Extend(c.Context(), id, window)
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Code == "ending" {
		rec, _, err = s.known(asked)
	}
	if err != nil {
		return 0, nil, err
	}
	return s.setter(), s.dto(rec, boxOf(rec), c.Request), nil
}

// boxFor returns the box of a state machine's id in whatever state; nil: there never was one.
func (s *Server) boxFor(id string) *box {
	rec, ok := s.svc.Lookup(id)
	if !ok {
		return nil
	}
	return boxOf(rec)
}

// setInterval sets one of the four intervals. That is no activity.
func (s *Server) setInterval(name string) handler {
	return func(c *call) (int, any, error) {
		rec, b, err := s.known(c.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		n, err := strconv.Atoi(c.PathValue("n"))
		switch {
		case err != nil:
			return 0, nil, invalid("interval must be a number")
		case n < 0 && name != "autoDeleteInterval":
			return 0, nil, invalid("%s must be non-negative", name)
		case n < 0:
			n = -1
		case name == "autoArchiveInterval":
			n = *clampArchive(n)
		case name == "autoPauseInterval" && n > 0 && !b.order.vm:
			return 0, nil, &problem{status: http.StatusUnprocessableEntity, message: "Sandbox class container cannot be paused"}
		}
		b.mu.Lock()
		b.minutes[name], b.updated = n, rec.AsOf
		b.mu.Unlock()
		s.Settle()
		return s.setter(), s.dto(rec, b, c.Request), nil
	}
}

// refresh takes an activity for any sandbox that there ever was within a day, alive or not: the answer proves nothing.
func (s *Server) refresh(c *call) (int, any, error) {
	rec, ok := s.svc.Lookup(c.machine())
	now := s.svc.Now()
	if !ok || s.svc.Behaviour().WrongScope || rec.State == sandbox.StateGone && now.After(boxOf(rec).lastChange().Add(remembered)) {
		return 0, nil, unknown(c.PathValue("id"))
	}
	boxOf(rec).refresh(now, s.tick)
	s.Settle()
	return http.StatusCreated, nil, nil
}

func (b *box) lastChange() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.updated
}
