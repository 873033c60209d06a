package daytonafake

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// delete accepts a delete. The record is renamed at once, the machine takes its time, and one in error is only hidden.
func (s *Server) delete(c *call) (int, any, error) {
	if s.svc.Behaviour().NoDelete {
		return 0, nil, &problem{status: http.StatusForbidden, message: "Forbidden resource"}
	}
	rec, b, err := s.known(c.PathValue("id"))
	if err != nil {
		if s.boxFor(c.machine()).isHidden() {
			return 0, nil, err
		}
		return 0, nil, s.deleteUnknown(c)
	}
	if s.alive(rec.ID) {
		return 0, nil, invalid("Sandbox has active fork children; delete them first")
	}
	b.mu.Lock()
	state, _ := b.words(rec, s.quirk().BuildQueue)
	b.mu.Unlock()
	q := s.quirk()
	apart := func(effect func()) error { // what the state machine does not know as a delete
		if err := s.svc.Ping(c.Context(), sandbox.OpDelete); err != nil {
			return err
		}
		effect()
		return nil
	}
	now := s.svc.Now()
	switch {
	case state == "destroying" || state == "stopping":
		err = apart(func() {})
		if err == nil {
			err = errPending
		}
	case rec.State == sandbox.StateFailed:
		err = apart(func() { s.hide(b, now, func() { b.hidden = now }) })
	case state == "archived" || state == "pending_build":
		err = apart(func() { s.svc.Kill(rec.ID) })
	case q.DestroyFails && rec.State != sandbox.StateStarting:
		err = apart(func() {
			s.hide(b, now, func() { b.failing = now.Add(s.svc.Behaviour().DeleteTime) })
			s.svc.Fail(rec.ID, "destroy failed on the runner")
		})
	default:
		err = s.svc.Delete(c.Context(), rec.ID)
	}
	if err != nil {
		return 0, nil, err
	}
	s.Settle()
	if now, ok := s.svc.Lookup(rec.ID); ok {
		rec = now
	}
	told := s.dto(rec, b, c.Request)
	told.DesiredState = "destroyed"
	if told.State != "error" && told.State != "build_failed" {
		told.State = "destroying" // also of one that is gone by now, and of one that only seems to be deleted
	}
	return http.StatusOK, told, nil
}

// deleteUnknown has the state machine answer, whose faults may claim anything.
func (s *Server) deleteUnknown(c *call) error {
	if err := s.svc.Delete(c.Context(), c.machine()); err != nil {
		return err
	}
	return unknown(c.PathValue("id")) // a claimed success, but of what? There is no record to answer with
}

// hide renames a record that stays, and marks it.
func (s *Server) hide(b *box, at time.Time, mark func()) {
	b.mu.Lock()
	tomb := b.buried(at)
	mark()
	id := b.id
	b.mu.Unlock()
	s.svc.Rename(id, tomb)
}

// alive reports whether forks of a sandbox are there.
func (s *Server) alive(parent string) bool {
	for _, rec := range s.svc.All() {
		if visible(rec) && boxOf(rec).parentID() == parent {
			return true
		}
	}
	return false
}

func (b *box) parentID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.parent
}

// ready returns a sandbox in one of some states; another is a 400, a change under way a 409.
func (s *Server) ready(c *call, allowed ...sandbox.State) (fake.Record, *box, error) {
	rec, b, err := s.known(c.PathValue("id"))
	if err != nil {
		return rec, b, err
	}
	b.mu.Lock()
	stopping := rec.State == sandbox.StateDormant && b.word == "stopping"
	b.mu.Unlock()
	switch {
	case stopping || rec.State == sandbox.StateStarting || rec.State == sandbox.StateEnding:
		return rec, b, errPending
	case slices.Contains(allowed, rec.State):
		return rec, b, nil
	}
	return rec, b, invalid("Sandbox is not in a valid state")
}

// now answers with the present record.
func (s *Server) now(c *call, id string, b *box) (int, any, error) {
	s.Settle()
	rec, ok := s.svc.Lookup(id)
	if !ok {
		return 0, nil, unknown(WireID(id))
	}
	return http.StatusOK, s.dto(rec, b, c.Request), nil
}

func (s *Server) stopBox(c *call) (int, any, error) {
	rec, b, err := s.ready(c, sandbox.StateRunning)
	if err != nil {
		return 0, nil, err
	}
	takes := s.svc.Behaviour().EndTime
	b.mu.Lock()
	ephemeral := b.minutes["autoDeleteInterval"] == 0
	b.word, b.stopsAt = "stopping", rec.AsOf.Add(takes)
	b.mu.Unlock()
	if ephemeral {
		s.svc.Kill(rec.ID)
	} else {
		s.svc.Pause(rec.ID)
	}
	return s.now(c, rec.ID, b)
}

func (s *Server) pauseBox(c *call) (int, any, error) {
	rec, b, err := s.ready(c, sandbox.StateRunning)
	if err != nil {
		return 0, nil, err
	}
	if !b.order.vm {
		return 0, nil, &problem{status: http.StatusUnprocessableEntity, message: "Sandbox class container cannot be paused"}
	}
	b.mu.Lock()
	b.word = "paused"
	b.mu.Unlock()
	s.svc.Pause(rec.ID)
	return s.now(c, rec.ID, b)
}

// startBox leaves the TTL as it is, where the state machine would grant a new lease. Setting it back counts as an extend
// for faults.
func (s *Server) startBox(c *call) (int, any, error) {
	rec, b, err := s.ready(c, sandbox.StateDormant)
	if err != nil {
		return 0, nil, err
	}
	s.svc.Resume(rec.ID)
	left := rec.Deadline.Sub(s.svc.Now())
	if rec.Deadline.IsZero() {
		left = never
	}
	if now, ok := s.svc.Lookup(rec.ID); ok && !now.Deadline.Equal(rec.Deadline) && left > 0 {
		if _, err := s.svc.Extend(context.WithoutCancel(c.Context()), rec.ID, left); err != nil {
			return 0, nil, err
		}
	}
	return s.now(c, rec.ID, b)
}

func (s *Server) archiveBox(c *call) (int, any, error) {
	rec, b, err := s.ready(c, sandbox.StateDormant)
	if err != nil {
		return 0, nil, err
	}
	b.mu.Lock()
	stopped := b.word == "stopped"
	if stopped {
		b.word, b.updated = "archived", rec.AsOf
	}
	b.mu.Unlock()
	if !stopped {
		return 0, nil, invalid("Sandbox is not stopped")
	}
	return s.now(c, rec.ID, b)
}

// recoverBox always fails: no error here is a recoverable one.
func (s *Server) recoverBox(c *call) (int, any, error) {
	if _, _, err := s.ready(c, sandbox.StateFailed); err != nil {
		return 0, nil, err
	}
	return 0, nil, invalid("Sandbox is not recoverable")
}

func (s *Server) fork(c *call) (int, any, error) {
	rec, b, err := s.ready(c, sandbox.StateRunning, sandbox.StateDormant)
	if err != nil {
		return 0, nil, err
	}
	var body struct{ Name string }
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	if _, _, err := s.known(body.Name); err == nil && body.Name != "" {
		return 0, nil, conflict("Sandbox with name %s already exists", body.Name)
	}
	child := b.child()
	child.name = body.Name
	id := s.svc.Fork(rec.ID, func(any) any { return child })
	if body.Name != "" {
		s.svc.Rename(id, body.Name)
	}
	return s.now(c, id, child)
}

func (s *Server) forks(c *call) (int, any, error) {
	parent, _, err := s.known(c.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	children := []Sandbox{}
	for _, rec := range s.svc.All() {
		if b := boxOf(rec); visible(rec) && b.parentID() == parent.ID {
			children = append(children, s.dto(rec, b, c.Request))
		}
	}
	return http.StatusOK, children, nil
}

// setLabels replaces all labels. For the state machine's faults it counts as a create.
func (s *Server) setLabels(c *call) (int, any, error) {
	rec, _, err := s.known(c.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	var body struct {
		Labels map[string]string `json:"labels"`
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	if body.Labels == nil {
		return 0, nil, invalid("labels must be an object")
	}
	if rec, err = s.svc.Retag(c.Context(), rec.ID, body.Labels); err != nil {
		return 0, nil, err
	}
	labels := maps.Clone(rec.Tags)
	return http.StatusOK, map[string]any{"labels": labels}, nil
}

func (s *Server) setPublic(c *call) (int, any, error) {
	rec, b, err := s.known(c.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	flag := c.PathValue("flag")
	if flag != "true" && flag != "false" {
		return 0, nil, invalid("isPublic must be a boolean")
	}
	b.mu.Lock()
	b.public = flag == "true"
	b.mu.Unlock()
	return s.now(c, rec.ID, b)
}

func (s *Server) toolboxURL(c *call) (int, any, error) {
	if _, _, err := s.known(c.PathValue("id")); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"url": s.proxyURL(c.Request)}, nil
}
