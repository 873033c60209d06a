package e2bfake

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// conflict answers a call that a phase stands in the way of.
func (s *Server) conflict(w http.ResponseWriter, p phase) {
	word := map[phase]string{
		pausing: "is being paused", snapshotting: "is being snapshotted", killing: "is being killed", resuming: "is being started",
	}[p]
	code := ""
	if p == resuming {
		code = "sandbox_start_in_flight"
	}
	s.fail(w, http.StatusConflict, code, "the sandbox %s", word)
}

// timeout sets the end to so many seconds from now. What the plan does not allow is cut off in silence.
func (s *Server) timeout(w http.ResponseWriter, r *http.Request, id string) {
	var body struct {
		Timeout *int32 `json:"timeout"`
	}
	if !s.decode(w, r, &body, false) {
		return
	}
	if body.Timeout == nil || *body.Timeout < 0 {
		s.fail(w, http.StatusBadRequest, "", "validation error: property \"timeout\" is missing or negative")
		return
	}
	d := time.Duration(*body.Timeout) * time.Second
	if d == 0 {
		d = time.Nanosecond // it ends now, as soon as the evictor comes by
	}
	s.extend(w, r, id, d, false)
}

// refresh sets the end to so many seconds from now unless it lies later.
func (s *Server) refresh(w http.ResponseWriter, r *http.Request, id string) {
	var body struct {
		Duration int `json:"duration"`
	}
	if !s.decode(w, r, &body, true) {
		return
	}
	if body.Duration < 0 || body.Duration > 3600 {
		s.fail(w, http.StatusBadRequest, "", "validation error: number must be between 0 and 3600")
		return
	}
	s.extend(w, r, id, time.Duration(max(body.Duration, 15))*time.Second, true)
}

// extend moves the end of a running sandbox. One that is paused has no running record, and is not found.
func (s *Server) extend(w http.ResponseWriter, r *http.Request, id string, d time.Duration, onlyLater bool) {
	ctx, cancel := s.work(r)
	defer cancel()
	if t := s.transition(id); t != nil {
		switch err := s.svc.Ping(ctx, sandbox.OpExtend); {
		case err != nil:
			s.refuse(w, err)
		case t.phase == resuming:
			s.refuse(w, missing())
		default:
			s.conflict(w, t.phase)
		}
		return
	}
	err := s.moveEnd(ctx, id, d, onlyLater)
	if err != nil {
		s.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) moveEnd(ctx context.Context, id string, d time.Duration, onlyLater bool) error {
	now, ok := s.svc.Lookup(id)
	if onlyLater && ok && !now.Deadline.IsZero() && now.Deadline.Sub(now.AsOf) >= d {
		return s.svc.Ping(ctx, sandbox.OpExtend)
	}
	got, err := s.svc.Extend(ctx, id, d)
	e := apiError(err)
	switch {
	case e != nil && e.Code == "ending":
		return missing() // its record went first
	case err != nil:
		return err
	case got.State != sandbox.StateRunning && got.State != sandbox.StateFailed:
		return missing()
	}
	return nil
}

func (s *Server) connect1(w http.ResponseWriter, r *http.Request, id string) { s.connect(w, r, id, 1) }

func (s *Server) connect2(w http.ResponseWriter, r *http.Request, id string) { s.connect(w, r, id, 2) }

// connect moves the end of a running sandbox further away, and resumes a paused one.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, id string, version int) {
	if q := s.Quirks(); version == 1 && q.NoV1 || version == 2 && q.NoV2 {
		s.fail(w, http.StatusNotFound, "", "no matching operation was found")
		return
	}
	var body struct {
		Timeout *int32 `json:"timeout"`
		Memory  *bool  `json:"memory"`
	}
	if !s.decode(w, r, &body, version == 2) {
		return
	}
	if body.Timeout == nil {
		if version == 1 {
			s.fail(w, http.StatusBadRequest, "", "validation error: property \"timeout\" is missing")
			return
		}
		seconds := int32(300)
		body.Timeout = &seconds
	}
	s.start(w, r, id, *body.Timeout, true)
}

// resume is the older connect, for paused sandboxes only.
func (s *Server) resume(w http.ResponseWriter, r *http.Request, id string) {
	var body struct {
		Timeout *int32 `json:"timeout"`
	}
	if !s.decode(w, r, &body, true) {
		return
	}
	seconds := int32(15)
	if body.Timeout != nil {
		seconds = *body.Timeout
	}
	s.start(w, r, id, seconds, false)
}

// start has a sandbox run for at least so many seconds. running says whether it may run already.
func (s *Server) start(w http.ResponseWriter, r *http.Request, id string, seconds int32, running bool) {
	ctx, cancel := s.work(r)
	defer cancel()
	d := time.Duration(seconds) * time.Second
	if most := s.svc.Behaviour().PlanLifetime; d <= 0 || d > most {
		s.fail(w, http.StatusBadRequest, "", "Timeout must be greater than 0 and at most %d hours", int(most.Hours()))
		return
	}
	for t := s.transition(id); t != nil; t = s.transition(id) {
		if t.phase == killing || t.phase == resuming || !running {
			s.conflict(w, t.phase)
			return
		}
		if err := s.await(ctx, t); err != nil {
			s.refuse(w, err)
			return
		}
	}
	now, ok := s.svc.Lookup(id)
	status := http.StatusCreated
	switch {
	case !ok || !seen(now):
		s.refuse(w, missing())
		return
	case now.State == sandbox.StateDormant:
		if err := s.wake(ctx, id, d); err != nil {
			s.refuse(w, err)
			return
		}
	case !running:
		s.fail(w, http.StatusConflict, "", "sandbox %s is already running", s.WireID(id))
		return
	default:
		if err := s.moveEnd(ctx, id, d, true); err != nil {
			s.refuse(w, err)
			return
		}
		status = http.StatusOK
	}
	s.answer(w, status, s.created(now))
}

// wake resumes a paused sandbox. A delete that comes meanwhile does not stop it, unless Quirks.Tombstones.
func (s *Server) wake(ctx context.Context, id string, d time.Duration) error {
	t, other := s.begin(id, resuming)
	if other != nil {
		return refusal(http.StatusConflict, "sandbox_start_in_flight", "the sandbox is being started")
	}
	defer s.finish(id, t)
	if b := s.svc.Behaviour(); b.MaxLive > 0 && s.live() >= b.MaxLive {
		return refusal(http.StatusTooManyRequests, "", fmt.Sprintf("%d concurrent sandboxes are the most that there may be", b.MaxLive))
	}
	if err := pass(ctx, s.Quirks().ResumeTime); err != nil {
		return err
	}
	if t.deleted.Load() && s.Quirks().Tombstones {
		_ = s.svc.Delete(ctx, id) // what the delete that came meanwhile has left for now
		return missing()
	}
	if !s.svc.Resume(id) {
		return missing()
	}
	_, err := s.svc.Extend(ctx, id, d)
	return err
}

// live is how many sandboxes count towards the plan's limit.
func (s *Server) live() int {
	n := 0
	for _, r := range s.svc.All() {
		if r.State.MayRun() && r.State != sandbox.StateUnknown {
			n++
		}
	}
	return n
}
