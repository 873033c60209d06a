package e2bfake

import (
	"context"
	"net/http"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// kill removes a sandbox, running or paused. It joins another kill, and waits for a pause or a snapshot.
func (s *Server) kill(w http.ResponseWriter, r *http.Request, id string) {
	ctx, cancel := s.work(r)
	defer cancel()
	if err := s.remove(ctx, id); err != nil {
		s.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) remove(ctx context.Context, id string) error {
	for {
		t := s.transition(id)
		switch {
		case t != nil && t.phase == resuming:
			return s.removeResuming(ctx, id, t)
		case t != nil:
			if err := s.await(ctx, t); err != nil {
				return err
			}
			if t.phase == killing {
				return t.err
			}
			continue
		}
		d := s.Quirks().KillTime
		if d <= 0 {
			return s.removeNow(ctx, id)
		}
		if t, _ = s.begin(id, killing); t == nil {
			continue
		}
		if t.err = pass(ctx, d); t.err == nil {
			t.err = s.removeNow(ctx, id)
		}
		s.finish(id, t)
		return t.err
	}
}

// kills are the deletes of one sandbox that are under way.
type kills struct {
	calls, working int // that are here, and those that do not know their outcome yet
	done           bool
	changed        chan struct{} // closed when one has learnt its outcome
}

// removeNow deletes. One that finds nothing, because another one under way was faster, has joined that one.
func (s *Server) removeNow(ctx context.Context, id string) error {
	s.mu.Lock()
	k := s.kills[id]
	if k == nil {
		k = &kills{changed: make(chan struct{})}
		s.kills[id] = k
	}
	k.calls++
	k.working++
	s.mu.Unlock()
	err := s.deleteRecord(ctx, id)
	e := apiError(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	k.working--
	k.done = k.done || err == nil
	close(k.changed)
	k.changed = make(chan struct{})
	for e != nil && e.Status == http.StatusNotFound && !k.done && k.working > 0 {
		wait := k.changed
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			break
		}
	}
	if e != nil && e.Status == http.StatusNotFound && k.done {
		err = nil
	}
	if k.calls--; k.calls == 0 {
		delete(s.kills, id)
	}
	return err
}

func (s *Server) deleteRecord(ctx context.Context, id string) error {
	if r, ok := s.svc.Lookup(id); ok && (r.State == sandbox.StateEnding || r.State == sandbox.StateStarting) && !r.Lost {
		if err := s.svc.Ping(ctx, sandbox.OpDelete); err != nil {
			return err
		}
		return missing() // its record is gone, or not there yet
	}
	return s.svc.Delete(ctx, id)
}

// removeResuming deletes the snapshot of a sandbox that is being resumed, which does not notice.
func (s *Server) removeResuming(ctx context.Context, id string, t *transition) error {
	if err := s.svc.Ping(ctx, sandbox.OpDelete); err != nil {
		return err
	}
	if t.deleted.Swap(true) {
		return missing()
	}
	return nil
}

// pause has a running sandbox sleep, and answers when it does.
func (s *Server) pause(w http.ResponseWriter, r *http.Request, id string) {
	ctx, cancel := s.work(r)
	defer cancel()
	var body struct {
		Memory *bool `json:"memory"`
	}
	if !s.decode(w, r, &body, true) {
		return
	}
	t, other := s.begin(id, pausing)
	if other != nil {
		s.conflict(w, other.phase)
		return
	}
	defer s.finish(id, t)
	now, ok := s.svc.Lookup(id)
	switch {
	case !ok || !seen(now):
		s.refuse(w, missing())
		return
	case now.State != sandbox.StateRunning:
		s.fail(w, http.StatusConflict, "", "sandbox %s is already paused", s.WireID(id))
		return
	}
	if err := pass(ctx, s.Quirks().PauseTime); err != nil {
		s.refuse(w, err)
		return
	}
	if !s.svc.Pause(id) { // its time was over meanwhile
		s.refuse(w, missing())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// forkResult is what became of one fork.
type forkResult struct {
	Sandbox *created   `json:"sandbox,omitempty"`
	Error   *errorBody `json:"error,omitempty"`
}

// fork makes copies of a running sandbox, with its metadata and without its files.
func (s *Server) fork(w http.ResponseWriter, r *http.Request, id string) {
	ctx, cancel := s.work(r)
	defer cancel()
	body := struct {
		Timeout int32 `json:"timeout"`
		Count   int   `json:"count"`
	}{15, 1}
	if !s.decode(w, r, &body, true) {
		return
	}
	if body.Count < 1 || body.Count > 100 || body.Timeout <= 0 {
		s.fail(w, http.StatusBadRequest, "", "validation error: count must be between 1 and 100, and timeout positive")
		return
	}
	if err := s.checkpoint(ctx, id); err != nil {
		s.refuse(w, err)
		return
	}
	results := []forkResult{}
	for range body.Count {
		var res forkResult
		if b := s.svc.Behaviour(); b.MaxLive > 0 && s.live() >= b.MaxLive {
			res.Error = &errorBody{Code: http.StatusTooManyRequests, Message: "too many concurrent sandboxes"}
		} else if err := s.forkOne(ctx, id, body.Timeout, &res); err != nil {
			status, code, message := wireError(err)
			res.Error = &errorBody{status, message, code}
		}
		results = append(results, res)
	}
	s.answer(w, http.StatusCreated, results)
}
