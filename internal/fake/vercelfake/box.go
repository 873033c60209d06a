package vercelfake

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// box is what a named sandbox has beside its life at the state machine. All but the first two is guarded by Server.mu.
type box struct {
	project Scope
	name    string

	config
	id        string // the state machine's; empty: not made yet
	sessions  []*session
	snapshot  string // id of the one that its next session starts from
	updated   time.Time
	turned    time.Time // when the status last changed
	subs      map[int]string
	deleted   string    // the run that a delete has ended, or is ending
	purging   bool      // a delete that is under way asks for the snapshots too
	purged    time.Time // when such a delete had its effect; zero: none did
	recordEnd time.Time // when nothing was left of it; zero: something is
}

// session is one run.
type session struct {
	box *box
	id  string
	run string // the state machine's name for it

	requested, started, stopRequested, ended time.Time
	updated, snapshotted                     time.Time
	timeout                                  time.Duration // as last seen while it was alive
	status                                   string        // once it has ended
	phase                                    string        // stSnapshotting or stStopping while a call stops it
	over                                     chan struct{} // closed when it has ended; made by who waits
	wanted                                   *snapshotWish // a snapshot that was asked for
	source                                   string        // id of the snapshot that it started from
	made                                     string        // id of the snapshot that was made at its end
	policy                                   string

	files    *shell.FS // made on first use
	base     *shell.FS // whose files it starts with; nil: none
	commands []*command
}

// The words for the state of a session.
const (
	stPending      = "pending"
	stRunning      = "running"
	stStopping     = "stopping"
	stSnapshotting = "snapshotting"
	stStopped      = "stopped"
	stFailed       = "failed"
	stAborted      = "aborted"
)

func terminal(status string) bool {
	return status == stStopped || status == stFailed || status == stAborted
}

// frozen tells a machine that does not answer and is shown as running from one that is stopped.
func frozen(rec fake.Record) bool { return rec.State == sandbox.StateDormant && rec.Detail == "frozen" }

// statusOf is the state machine's word in the service's.
func statusOf(rec fake.Record) string {
	switch {
	case rec.State == sandbox.StateStarting:
		return stPending
	case rec.State == sandbox.StateRunning || frozen(rec):
		return stRunning
	case rec.State == sandbox.StateEnding:
		return stStopping
	case rec.State == sandbox.StateFailed && rec.Detail == stAborted:
		return stAborted
	case rec.State == sandbox.StateFailed:
		return stFailed
	}
	return stStopped
}

// learn takes in what is true of a sandbox since a time, whoever brought it about.
func (s *Server) learn(rec fake.Record, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := rec.Data.(*box); ok {
		s.take(b, rec, at)
	}
}

// catchUp learns the truth before the news of it are told, where another goroutine is still on its way with them.
func (s *Server) catchUp(rec fake.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := rec.Data.(*box)
	if !ok {
		return
	}
	ses := b.session(rec.Run)
	switch status := statusOf(rec); {
	case ses == nil, status == stRunning && ses.started.IsZero(), terminal(status) && ses.ended.IsZero():
		s.take(b, rec, rec.AsOf)
	}
}

func (s *Server) take(b *box, rec fake.Record, at time.Time) {
	if b.id == "" {
		b.id = rec.ID
		s.names[b.key()] = b
		s.boxes = append(s.boxes, b)
	}
	ses := b.session(rec.Run)
	if ses == nil {
		for _, o := range b.sessions {
			s.finish(o, at, stStopped, false)
		}
		ses = s.begins(b, rec, at)
	}
	b.updated, ses.updated = at, at
	b.recordEnd = time.Time{}
	status := statusOf(rec)
	switch status {
	case stRunning:
		if ses.started.IsZero() {
			ses.started, b.turned = at, at
		}
		if !rec.Deadline.IsZero() {
			ses.timeout = rec.Deadline.Sub(ses.started)
		}
	case stStopping:
		if ses.stopRequested.IsZero() {
			ses.stopRequested, b.turned = at, at
		}
	case stStopped, stFailed, stAborted:
		deleted := rec.State == sandbox.StateGone && rec.Detail == "deleted"
		s.finish(ses, at, status, rec.State == sandbox.StateDormant || deleted)
	}
	if rec.State == sandbox.StateGone {
		b.recordEnd = at
	}
	if b.purging && b.purged.IsZero() && rec.Detail == "deleted" {
		b.purged = at
	}
}

func (b *box) key() string { return b.project.ID + "/" + b.name }

// session returns the session of a run.
func (b *box) session(run string) *session {
	i := slices.IndexFunc(b.sessions, func(ses *session) bool { return ses.run == run })
	if i < 0 {
		return nil
	}
	return b.sessions[i]
}

// current returns the latest session.
func (b *box) current() *session { return b.sessions[len(b.sessions)-1] }

// begins makes the session of a run.
func (s *Server) begins(b *box, rec fake.Record, at time.Time) *session {
	ses := &session{
		box: b, id: newID("sbx_"), run: rec.Run, requested: at, updated: at, timeout: b.timeout, policy: b.policy,
	}
	if len(b.sessions) == 0 {
		ses.requested = rec.Created
		b.snapshot = b.source
	}
	if snap := s.findSnapshot(b.snapshot); snap != nil {
		ses.source, ses.base = snap.id, snap.files
		snap.used = at
	}
	b.turned, b.purged = at, time.Time{}
	b.sessions = append(b.sessions, ses)
	s.sessions[ses.id] = ses
	return ses
}

// finish ends a session once. whole says that its files can be kept.
func (s *Server) finish(ses *session, at time.Time, status string, whole bool) {
	if !ses.ended.IsZero() {
		return
	}
	b := ses.box
	ses.ended, ses.updated, ses.status, ses.phase, b.turned = at, at, status, "", at
	if whole && status == stStopped && (b.persistent || ses.wanted != nil) {
		ses.made = s.keepFiles(ses, at).id
	}
	ses.wanted = nil
	if ses.over != nil {
		close(ses.over)
		ses.over = nil
	}
}

// wait returns when a session has ended, or with ctx's cause.
func (s *Server) wait(ctx context.Context, ses *session) error {
	s.mu.Lock()
	over := ses.over
	if ses.ended.IsZero() && over == nil {
		over = make(chan struct{})
		ses.over = over
	}
	ended := !ses.ended.IsZero()
	s.mu.Unlock()
	if ended {
		return nil
	}
	for {
		// The state machine acts when it is asked: here at the end of the lease, should that be what ends the session, and
		// again and again where something ends that does not say when.
		const often = 100 * time.Millisecond
		in := time.Hour
		switch rec, _ := s.svc.Lookup(ses.box.id); {
		case rec.State == sandbox.StateEnding:
			in = often
		case !rec.Deadline.IsZero():
			in = max(rec.Deadline.Sub(rec.AsOf), often)
		}
		t := time.NewTimer(in)
		select {
		case <-over:
			t.Stop()
			return nil
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// hidden reports whether a record is no longer seen under its name, though its machine may still be ending.
func (s *Server) hidden(rec fake.Record) bool {
	if rec.Lost {
		return true
	}
	if rec.State != sandbox.StateEnding {
		return rec.State == sandbox.StateGone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return rec.Detail == "deleted" || rec.Data.(*box).deleted == rec.Run
}

// status returns the status of a session by the record of its sandbox.
func (s *Server) status(ses *session, rec fake.Record) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ses.statusBy(rec)
}

func (ses *session) statusBy(rec fake.Record) string {
	word := statusOf(rec)
	switch {
	case rec.Run != ses.run && ses.ended.IsZero(): // an old answer, or an old session that nobody has told of
		return stStopped
	case rec.Run != ses.run:
		return ses.status
	case word == stRunning && ses.phase != "":
		return ses.phase
	}
	return word
}

// Settle has everything happen that is due by the service's clock: the ends of leases, of kept records and of
// snapshots. Requests do it first.
func (s *Server) Settle() {
	now := s.svc.Now()
	s.mu.Lock()
	keep := s.quirks.Retention
	if keep == 0 {
		keep = 14 * 24 * time.Hour
	}
	var stale []string
	for _, b := range s.boxes {
		if ses := b.current(); keep > 0 && !b.persistent && b.recordEnd.IsZero() && !ses.ended.IsZero() &&
			ses.status == stStopped && !now.Before(ses.ended.Add(keep)) {
			stale = append(stale, b.id)
		}
	}
	s.expireSnapshots(now)
	s.mu.Unlock()
	for _, id := range stale {
		s.svc.Kill(id)
	}
}

// A Truth is all about one named sandbox, as it is and not as answers tell.
type Truth struct {
	ServiceID string // of the state machine
	Project   string // id
	Record    fake.Record
	Sandbox   Sandbox
	Session   Session   // the latest
	Sessions  []Session // all, oldest first
	Deleted   bool      // not seen under its name
}

// All returns every sandbox that may run or of which a record is kept, oldest first.
func (s *Server) All() []Truth {
	s.Settle()
	var all []Truth
	for _, rec := range s.svc.All() {
		if rec.Data != nil {
			all = append(all, s.truth(rec))
		}
	}
	return all
}

// Lookup returns the latest sandbox of a name, in the first project that has one, or the sandbox of a session's id, be
// it gone; ok is false if there never was one.
func (s *Server) Lookup(ref string) (_ Truth, ok bool) {
	s.Settle()
	s.mu.Lock()
	id := ""
	if ses := s.sessions[ref]; ses != nil {
		id = ses.box.id
	}
	for _, p := range slices.Backward(s.opts.Projects) {
		if b := s.names[p.ID+"/"+ref]; b != nil {
			id = b.id
		}
	}
	s.mu.Unlock()
	rec, ok := s.svc.Lookup(id)
	if !ok {
		return Truth{}, false
	}
	return s.truth(rec), true
}

func (s *Server) truth(rec fake.Record) Truth {
	s.catchUp(rec)
	t := Truth{ServiceID: rec.ID, Record: rec, Deleted: s.hidden(rec)}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := rec.Data.(*box)
	t.Project = b.project.ID
	t.Record.Tags = maps.Clone(rec.Tags)
	for _, ses := range b.sessions {
		t.Sessions = append(t.Sessions, s.sessionView(ses, rec))
	}
	t.Session = t.Sessions[len(t.Sessions)-1]
	t.Sandbox = s.sandboxView(b, b.current(), rec)
	return t
}
