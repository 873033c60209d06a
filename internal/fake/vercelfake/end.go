package vercelfake

import (
	"context"
	"net/http"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// stopSession stops a session, and answers when it has stopped. A stop joins one that is under way.
func (s *Server) stopSession(ctx context.Context, c *call) (any, error) {
	ses, rec, err := s.sessionOf(c)
	if err != nil {
		return nil, err
	}
	status := s.status(ses, rec)
	switch q := s.Quirks(); {
	case terminal(status) && q.StopEnded > 0 && q.StopEnded != http.StatusOK:
		p := s.ofLife(status).(*problem)
		return nil, &problem{status: q.StopEnded, code: p.code, message: p.message}
	case terminal(status):
		return s.stopped(ses, rec), nil
	case c.fault.Ignore:
		v := s.stopped(ses, rec)
		v["session"] = s.stopping(ses, rec)
		return v, nil
	}
	if err := s.halt(ctx, ses, rec, nil); err != nil {
		return nil, err
	}
	if s.Quirks().StopEarly {
		return map[string]any{"session": s.stopping(ses, rec)}, nil
	}
	return s.afterStop(ctx, ses)
}

// stopping is a session as the answer to a stop tells it that has just begun, or claims to.
func (s *Server) stopping(ses *session, rec fake.Record) Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.sessionView(ses, rec)
	v.Status, v.RequestedStopAt = stStopping, ms(rec.AsOf)
	return v
}

// afterStop waits for a session's end and tells of it.
func (s *Server) afterStop(ctx context.Context, ses *session) (any, error) {
	if err := s.wait(ctx, ses); err != nil {
		return nil, err
	}
	rec, ok := s.svc.Lookup(ses.box.id)
	if !ok {
		return nil, noSandbox(ses.box.name)
	}
	return s.stopped(ses, rec), nil
}

// stopped is the answer to a stop.
func (s *Server) stopped(ses *session, rec fake.Record) map[string]any {
	s.catchUp(rec)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := map[string]any{"session": s.sessionView(ses, rec)}
	if snap := s.findSnapshot(ses.made); snap != nil {
		v["snapshot"] = snap.view()
		v["sandbox"] = s.sandboxView(ses.box, ses, rec)
	}
	return v
}

// halt begins to stop a session, and goes on with it whatever becomes of the request. One that starts is let start
// first, for ten seconds: what the service does with it is not known.
func (s *Server) halt(ctx context.Context, ses *session, rec fake.Record, wish *snapshotWish) error {
	if rec.State == sandbox.StateStarting {
		rec = s.awaitStart(ctx, rec)
		s.catchUp(rec)
		if rec.State == sandbox.StateStarting {
			return s.ofLife(stPending)
		}
	}
	if statusOf(rec) != stRunning {
		return nil // it is stopping or has stopped
	}
	now := s.svc.Now()
	s.mu.Lock()
	q := s.quirks
	if ses.phase != "" || !ses.ended.IsZero() {
		s.mu.Unlock()
		return nil
	}
	ses.wanted = wish
	keeps := ses.box.persistent || wish != nil
	ses.phase, ses.stopRequested, ses.updated, ses.box.turned = stStopping, now, now, now
	if keeps {
		ses.phase, ses.snapshotted = stSnapshotting, now
	}
	s.mu.Unlock()
	id := ses.box.id
	end := func() {
		if keeps && pass(s.base, q.SnapshotTime) != nil {
			return
		}
		s.mu.Lock()
		if ses.phase != "" {
			ses.phase = stStopping
		}
		s.mu.Unlock()
		if pass(s.base, q.StopTime) == nil {
			s.pause(id, ses)
		}
	}
	if keeps && q.SnapshotTime > 0 || q.StopTime > 0 {
		s.begin(end)
	} else {
		end()
	}
	return nil
}

// pause ends a run, if it is still the present one.
func (s *Server) pause(id string, ses *session) {
	rec, ok := s.svc.Lookup(id)
	if !ok || rec.Run != ses.run {
		return
	}
	if frozen(rec) {
		s.svc.Thaw(id)
	}
	s.svc.Pause(id)
	if rec, ok := s.svc.Lookup(id); ok {
		s.catchUp(rec)
	}
}

// delete stops what runs and removes the record with its sessions. Whether the machine has ended when the service
// answers is not known: here it need not have (see Behaviour.DeleteTime), and its session tells.
func (s *Server) delete(ctx context.Context, c *call) (any, error) {
	rec, b, err := s.find(c, s.truly)
	if err != nil {
		if met := s.svc.Ping(ctx, sandbox.OpDelete); met != nil { // what nobody sees meets the faults of a delete too
			return nil, met
		}
		return nil, err
	}
	v := s.view(rec)
	if busy := s.Quirks().DeleteBusy; busy > 0 {
		s.mu.Lock()
		status := b.current().statusBy(rec)
		s.mu.Unlock()
		if status == stStopping || status == stSnapshotting {
			p := s.ofLife(status).(*problem)
			return nil, &problem{status: busy, code: p.code, message: p.message}
		}
	}
	if c.fault.Ignore {
		return map[string]any{"sandbox": v.Sandbox}, nil
	}
	purges := c.URL.Query().Get("deleteOrphanSnapshots") == "true"
	s.mu.Lock()
	b.purging = purges
	s.mu.Unlock()
	err = s.svc.Delete(ctx, b.id) // the news of its effect come before its answer, which may be lost
	now, _ := s.svc.Lookup(b.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	b.purging = false
	if err != nil {
		return nil, err
	}
	if now.State == sandbox.StateEnding || now.State == sandbox.StateGone {
		b.deleted = rec.Run
		if purges && b.purged.IsZero() {
			b.purged = now.AsOf
		}
	}
	s.expireSnapshots(now.AsOf)
	return map[string]any{"sandbox": v.Sandbox}, nil
}

// resume starts another session of a sandbox that is stopped: with the files of its latest snapshot, or without any.
func (s *Server) resume(ctx context.Context, b *box, rec fake.Record) (fake.Record, error) {
	if rec.State == sandbox.StateEnding { // it takes up the one after
		s.mu.Lock()
		ses := b.current()
		s.mu.Unlock()
		if err := s.wait(ctx, ses); err != nil {
			return rec, err
		}
	}
	s.mu.Lock()
	want, timeout := b.snapshot, b.timeout
	missing := want != "" && s.findSnapshot(want) == nil
	s.mu.Unlock()
	if missing {
		return rec, snapshotGone(want)
	}
	if !s.svc.Resume(b.id) {
		return s.truly(b.id)
	}
	rec, err := s.truly(b.id)
	if err != nil || rec.Deadline.IsZero() || s.svc.Behaviour().ResumeWindow > 0 {
		return rec, err
	}
	s.mu.Lock()
	end := b.current().started.Add(timeout) // of a session as just begun, however long ago that is by now
	s.mu.Unlock()
	switch by := end.Sub(rec.Deadline).Round(time.Millisecond); { // a timeout that was changed since the create
	case by > 0:
		_, err = s.svc.Extend(ctx, b.id, by)
	case by < 0:
		err = s.svc.Shorten(ctx, b.id, end.Sub(rec.AsOf))
	}
	if err != nil {
		return rec, err
	}
	return s.truly(b.id)
}
