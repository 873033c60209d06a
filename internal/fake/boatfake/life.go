package boatfake

import (
	"net/http"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// action is the answer to what changes a sandbox's state.
func (s *Server) action(c *call, kind, status string, rec fake.Record, b *box, notice string) any {
	return noticed(map[string]any{
		"ok": true, "type": kind, "id": WireID(rec.ID), "status": status, "sandbox": s.view(rec, b, c.from),
	}, notice)
}

// stopBox archives. The machine itself ends at once, while the row is archiving as long as the disk takes to be saved; where
// that fails (Quirks.SaveFails), the machine goes on.
func (s *Server) stopBox(c *call) (int, any, error) {
	var body struct{ Force bool }
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	rec, b, err := s.changeable(c)
	if err != nil {
		return 0, nil, err
	}
	q := s.Quirks()
	switch rec.State {
	case sandbox.StateStarting:
		return 0, nil, starting() // nobody tells what is answered here
	case sandbox.StateDormant:
		if v := s.view(rec, b, c.from); v.State == "archived" {
			return 0, nil, refusal(http.StatusBadRequest, "stop_failed", "The sandbox is archived").with("sandbox", v)
		}
	case sandbox.StateRunning:
		takes := s.svc.Behaviour().EndTime
		ignored := c.fault.Ignore || q.StopIgnored
		if !ignored {
			s.mu.Lock()
			b.stopsAt = s.svc.Now().Add(takes)
			s.mu.Unlock()
		}
		if !ignored && (!q.SaveFails || body.Force) {
			s.svc.Pause(rec.ID)
		}
	case sandbox.StateFailed:
		return 0, nil, refusal(http.StatusBadRequest, "stop_failed", "The sandbox is in error").with("sandbox", s.view(rec, b, c.from))
	}
	if now, ok := s.svc.Lookup(rec.ID); ok {
		rec = now
	}
	answer := s.action(c, "sandbox.stopping", "archiving", rec, b, "")
	return http.StatusAccepted, answer, nil
}

// resume has what is archived run again, as another run. It takes no key.
func (s *Server) resume(c *call) (int, any, error) {
	rec, b, err := s.changeable(c)
	if err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	stored := b.ttl
	s.mu.Unlock()
	if v := s.view(rec, b, c.from); v.State != "archived" {
		return 0, nil, refusal(http.StatusConflict, "not_archived", "The sandbox is %s", v.State) // the code is a guess
	}
	if !b.order.snapshots {
		return 0, nil, refusal(http.StatusConflict, "snapshot_unavailable", "Nothing was saved") // the code is a guess
	}
	ttl, notice, err := s.started(c, b, stored)
	if err != nil {
		return 0, nil, err
	}
	s.svc.Resume(rec.ID)
	if _, err := s.svc.Extend(c.Context(), rec.ID, ttl); err != nil { // the state machine would grant the create's TTL
		return 0, nil, err
	}
	rec, _ = s.svc.Lookup(rec.ID)
	s.mu.Lock()
	b.ttl = ttl
	s.mu.Unlock()
	return http.StatusAccepted, s.action(c, "sandbox.resuming", "resuming", rec, b, notice), nil
}

// fork copies what runs or was saved. The copy has a TTL of its own, and an empty disk: files are not copied here.
func (s *Server) fork(c *call) (int, any, error) {
	rec, b, err := s.changeable(c)
	if err != nil {
		return 0, nil, err
	}
	if !b.order.snapshots || rec.State != sandbox.StateRunning && rec.State != sandbox.StateDormant {
		return 0, nil, refusal(http.StatusConflict, "snapshot_unavailable", "Nothing was saved") // the code is a guess
	}
	e, old, err := s.claim(c)
	if err != nil {
		return 0, nil, err
	}
	if old {
		s.mu.Lock()
		machine := e.machine
		s.mu.Unlock()
		made, _ := s.svc.Lookup(machine)
		return http.StatusAccepted, s.action(c, "sandbox.forking", "forking", made, s.box(made), ""), nil
	}
	ttl, notice, err := s.started(c, b, defaultTTL)
	if err != nil {
		s.release(e, nil, err)
		return 0, nil, err
	}
	o := b.order.childOf(c.from, ttl)
	o.entry = e
	id := s.svc.Fork(rec.ID, func(any) any { return o })
	if !s.Quirks().ForkKeepsName {
		_, err = s.svc.Retag(c.Context(), id, map[string]string{nameTag: s.serverName()})
	}
	if err == nil {
		_, err = s.svc.Extend(c.Context(), id, ttl)
	}
	s.release(e, o, err)
	if err != nil {
		return 0, nil, err
	}
	child, _ := s.svc.Lookup(id)
	return http.StatusAccepted, s.action(c, "sandbox.forking", "forking", child, s.box(child), notice), nil
}

// operation is a deletion under way. The server's mutex guards it.
type operation struct {
	id, target string // of the state machine
	reason     string
	owner      account
	org        string
	at         time.Time
	attempts   int
}

// Deletion is an operation as the API puts it.
type Deletion struct {
	ID           string  `json:"id"`
	Kind         string  `json:"kind"`
	TargetID     string  `json:"targetId"`
	Reason       string  `json:"reason"`
	Status       string  `json:"status"`
	Stage        string  `json:"stage"`
	ExpectedBy   *string `json:"expectedBy"`
	AttemptCount int     `json:"attemptCount"`
	RequestedAt  string  `json:"requestedAt"`
	CompletedAt  *string `json:"completedAt"`
}

// How an operation goes on.
const (
	removing    = time.Second
	uploadFence = 6 * time.Hour // until when it waits for uploads, as it says; it takes longer
	purgeTime   = 20 * time.Hour
)

// operate makes the operation that deletes a sandbox, or counts another attempt. The lock is held.
func (s *Server) operate(b *box, reason string, at time.Time) *operation {
	if b.deletion == nil {
		b.deletion = &operation{
			id: "bdop_" + randomHex(), target: b.id, reason: reason, owner: b.order.owner, org: b.order.org, at: at,
		}
		s.operations[b.deletion.id] = b.deletion
	}
	b.deletion.attempts++
	return b.deletion
}

// describe tells how far an operation is. The lock is held.
func (o *operation) describe(now time.Time, q Quirks) Deletion {
	takes := q.PurgeTime
	if takes == 0 {
		takes = purgeTime
	}
	v := Deletion{
		ID: o.id, Kind: "sandbox", TargetID: WireID(o.target), Reason: o.reason, AttemptCount: o.attempts, RequestedAt: stamp(o.at),
	}
	switch since := now.Sub(o.at); {
	case takes > 0 && since >= takes:
		v.Status, v.Stage, v.CompletedAt = "completed", "completed", pointer(stamp(o.at.Add(takes)))
	case since < removing:
		v.Status, v.Stage = "pending", "removing"
	default:
		v.Status, v.Stage, v.ExpectedBy = "blocked", "waiting_for_uploads", pointer(stamp(o.at.Add(uploadFence)))
	}
	return v
}

// confirmHeader must say once more what is to be deleted.
const confirmHeader = "X-Ascii-Confirm-Delete"

// delete accepts a delete, of whatever state, and takes the row out of every answer.
func (s *Server) delete(c *call) (int, any, error) {
	c.header.Set("Cache-Control", "no-store")
	asked := c.PathValue("id")
	if c.Header.Get(confirmHeader) != asked {
		p := refusal(http.StatusConflict, "delete_confirmation_required", "Confirm the delete with the header %s", confirmHeader)
		return 0, nil, p.with("targetId", asked)
	}
	machine := MachineID(asked)
	rec, b, err := s.changeable(c)
	if p := translate(err); p != nil && p.status != http.StatusNotFound {
		return 0, nil, err
	}
	again := false
	if err != nil { // it is not there, and may have been
		if b = s.deleted(c, machine); b == nil {
			machine = "" // also where it is somebody else's, so that the state machine finds nothing
		}
		again = b != nil
	} else {
		machine = rec.ID
	}
	if !c.fault.Ignore {
		err = s.svc.Delete(c.Context(), machine)
	}
	now, q := s.svc.Now(), s.Quirks()
	p := translate(err)
	switch {
	case again && (p == nil && err == nil || p != nil && p.code == "not_found") && q.DeleteAgain != http.StatusNotFound:
	case err != nil:
		if after, ok := s.svc.Lookup(machine); ok && b != nil && !again &&
			(after.State == sandbox.StateGone || after.State == sandbox.StateEnding) { // done, and the answer is lost
			s.mu.Lock()
			s.operate(b, "explicit", now)
			s.mu.Unlock()
		}
		return 0, nil, err
	case b == nil || again: // a success is claimed, of what? There is no operation to answer with
		return 0, nil, notFound()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := map[string]any{"ok": true, "type": "sandbox.deleting", "operation": s.operate(b, "explicit", now).describe(now, q)}
	return http.StatusAccepted, answer, nil
}

// deleted returns the box of what was deleted, if who asks could see it then.
func (s *Server) deleted(c *call, machine string) *box {
	s.mu.Lock()
	b := s.boxes[machine]
	ok := b != nil && b.deletion != nil
	s.mu.Unlock()
	if !ok || s.access(c.from, b) == "" {
		return nil
	}
	return b
}

func (s *Server) deletionOperation(c *call) (int, any, error) {
	now, q := s.svc.Now(), s.Quirks()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.operations[c.PathValue("operation")]
	if o == nil || o.owner != c.from && !(o.org != "" && c.from.member) {
		return 0, nil, notFound()
	}
	return http.StatusOK, map[string]any{"ok": true, "type": "deletion.operation", "operation": o.describe(now, q)}, nil
}

// isTeam reports whether there is a team with an id.
func (s *Server) isTeam(id string) bool {
	return slices.ContainsFunc(s.opts.Teams, func(t Team) bool { return t.ID == id })
}
