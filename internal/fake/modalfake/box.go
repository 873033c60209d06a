package modalfake

import (
	"context"
	"maps"
	"slices"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// box is what a sandbox has beside its life at the state machine. All of it is guarded by Server.mu; what an order sets
// does not change.
type box struct {
	app   *app
	id    string
	task  string
	v1    bool
	name  string
	def   *pb.Sandbox
	image *image
	env   map[string]string
	life  time.Duration // from create or start to the hard end
	idle  time.Duration // 0: none

	hard    time.Duration // from the create on
	due     time.Time     // when that is over
	svc     string        // the state machine's id; empty: not made yet
	created time.Time     // as it is told
	started time.Time     // zero: not yet
	ready   time.Time     // zero: not yet
	turned  time.Time     // when a start or an end began last
	ended   time.Time     // zero: not yet
	cause   *pb.GenericResult
	result  *pb.GenericResult // nil: not finished
	changed chan struct{}     // made by who waits, closed when anything has changed
	kills   []func()          // what ends what runs in it

	disk       *shell.FS // made on first use
	entry      *process
	execs      map[string]*process
	containers []*container
	mounted    []hidden
	tunnels    []*pb.TunnelData
	stdinIndex uint32 // of the last write of the older backend
}

// statuses of a result.
const (
	unset       = pb.GenericResult_GENERIC_STATUS_UNSPECIFIED
	success     = pb.GenericResult_GENERIC_STATUS_SUCCESS
	failure     = pb.GenericResult_GENERIC_STATUS_FAILURE
	terminated  = pb.GenericResult_GENERIC_STATUS_TERMINATED
	timedOut    = pb.GenericResult_GENERIC_STATUS_TIMEOUT
	badInit     = pb.GenericResult_GENERIC_STATUS_INIT_FAILURE
	internal    = pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE
	idleTooLong = pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT
)

func outcome(status pb.GenericResult_GenericStatus, exit int32, exception string) *pb.GenericResult {
	return pb.GenericResult_builder{Status: status, Exitcode: exit, Exception: exception}.Build()
}

// of returns the sandbox of a record. Where the state machine made two of one order, the second gets a box of its own.
// The lock is held.
func (s *Server) of(rec fake.Record) *box {
	ordered, ok := rec.Data.(*box)
	if !ok {
		return nil
	}
	if i := slices.IndexFunc(s.boxes, func(b *box) bool { return b.svc == rec.ID }); i >= 0 {
		return s.boxes[i]
	}
	b := ordered
	if b.svc != "" {
		b = s.twin(ordered)
	}
	b.svc, b.created, b.due = rec.ID, rec.Created, rec.Created.Add(b.hard)
	if n := len(s.boxes); n > 0 && !s.quirks.EqualTimes {
		if last := s.boxes[n-1].created; !b.created.After(last) {
			b.created = last.Add(time.Microsecond)
		}
	}
	s.boxes = append(s.boxes, b)
	s.ids[b.id], s.tasks[b.task] = b, b
	s.openTunnels(b)
	if !s.closed {
		s.work.Go(func() { s.follow(b) })
	}
	return b
}

func (s *Server) twin(o *box) *box {
	b := &box{
		app: o.app, id: newID("sb-"), task: newID("ta-"), v1: o.v1, name: o.name, def: o.def, image: o.image, env: o.env,
		life: o.life, hard: o.hard, idle: o.idle, execs: map[string]*process{},
	}
	if b.v1 {
		b.id, b.task = newV1ID("sb-"), newV1ID("ta-")
	}
	return b
}

// learn takes in what is true of a sandbox since a time, whoever brought it about.
func (s *Server) learn(rec fake.Record, at time.Time) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	b := s.of(rec)
	if b == nil {
		s.mu.Unlock()
		return
	}
	began, kills := s.take(b, rec, at)
	b.wake()
	s.mu.Unlock()
	if began {
		s.start(b)
	}
	for _, kill := range kills {
		kill()
	}
}

// catchUp learns of b's end before the news of it are told, where another goroutine is still on its way with them.
func (s *Server) catchUp(b *box) (truth fake.Record) {
	truth, _ = s.svc.Lookup(b.svc)
	if !truth.Lost && (truth.State == sandbox.StateGone || truth.State == sandbox.StateFailed) {
		s.learn(truth, truth.AsOf)
	}
	return truth
}

// wake has everybody look again who waits for something of b. The lock is held.
func (b *box) wake() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// waker returns what the next wake closes. The lock is held.
func (b *box) waker() <-chan struct{} {
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

func (s *Server) take(b *box, rec fake.Record, at time.Time) (began bool, kills []func()) {
	if b.result != nil {
		return false, nil
	}
	if b.cause == nil {
		b.cause = s.causeBy(b, rec, at)
	}
	switch {
	case rec.State == sandbox.StateRunning && b.started.IsZero():
		b.started, b.turned = at, at
		return true, nil
	case rec.State == sandbox.StateEnding:
		b.turned = at
		kills, b.kills = b.kills, nil
	case rec.State == sandbox.StateGone || rec.State == sandbox.StateFailed:
		b.ended, b.result = at, b.cause
		if b.result == nil {
			b.result = outcome(terminated, s.quirks.TerminatedCode, "")
		}
		kills, b.kills = b.kills, nil
	}
	return false, kills
}

// causeBy returns why a sandbox ends or has ended, as far as its record says; nil: it does not end, or nobody knows.
func (s *Server) causeBy(b *box, rec fake.Record, at time.Time) *pb.GenericResult {
	switch {
	case rec.State == sandbox.StateFailed && b.started.IsZero():
		return outcome(badInit, 1, rec.Detail)
	case rec.State == sandbox.StateFailed:
		return outcome(internal, 1, rec.Detail)
	case rec.State != sandbox.StateEnding && rec.State != sandbox.StateGone:
		return nil
	case rec.Detail == "lease over" && !at.Before(b.due):
		return outcome(timedOut, s.quirks.TimeoutExitCode, "")
	case rec.Detail == "lease over":
		return outcome(idleTooLong, s.quirks.IdleExitCode, "")
	}
	return outcome(terminated, s.quirks.TerminatedCode, "")
}

// follow has everything happen to b that time alone brings about, and returns when b has ended.
func (s *Server) follow(b *box) {
	for s.base.Err() == nil {
		rec, _ := s.svc.Lookup(b.svc)
		late := s.svc.Behaviour().Lateness
		s.mu.Lock()
		over, wake, turned, end := b.result != nil, b.waker(), b.turned, b.due
		s.mu.Unlock()
		if over && (rec.State == sandbox.StateGone || rec.State == sandbox.StateFailed) && !rec.Lost {
			return
		}
		const often = 100 * time.Millisecond
		in := time.Hour
		switch rec.State {
		case sandbox.StateStarting:
			if b := s.svc.Behaviour(); !b.NeverReady {
				in = max(rec.Created.Add(b.StartTime).Sub(rec.AsOf), often)
			}
		case sandbox.StateEnding:
			if in = often; rec.AsOf.Sub(turned) > time.Minute {
				in = time.Minute // whatever holds it up
			}
		case sandbox.StateRunning:
			if !rec.Deadline.IsZero() && rec.Deadline.Before(end) {
				end = rec.Deadline
			}
			in = max(end.Add(late).Sub(rec.AsOf), 0)
			if in == 0 {
				in = often // it does not end as it should
			}
		}
		t := time.NewTimer(in)
		select {
		case <-wake:
		case <-t.C:
		case <-s.base.Done():
		}
		t.Stop()
	}
}

// await returns when done says so of b, with nil, or with ctx's cause, or when the server is closed. done is called with
// the lock held, after every change.
func (s *Server) await(ctx context.Context, b *box, done func() bool) error {
	for {
		s.mu.Lock()
		ok, wake := done(), b.waker()
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.base.Done():
			return context.Canceled
		}
	}
}

// A Truth is all about one sandbox, as it is and not as answers tell.
type Truth struct {
	ServiceID      string // of the state machine
	ID, Task, Name string // of the wire
	App, AppName   string
	Environment    string
	V1             bool
	Record         fake.Record
	Definition     *pb.Sandbox
	Env            map[string]string // of its commands
	Started, Ended time.Time         // zero: not yet
	Result         *pb.GenericResult // nil: not finished
	Running        int               // commands under way
	Timeout, Idle  time.Duration
	HardEnd        time.Time
	Deadline       time.Time // the earlier of the hard end and the idle one, as things stand
}

// WireID returns the id on the wire of a sandbox of the state machine's, or "" if there is none.
func (s *Server) WireID(serviceID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		if b.svc == serviceID {
			return b.id
		}
	}
	return ""
}

// All returns every sandbox that may run, oldest first.
func (s *Server) All() []Truth {
	var all []Truth
	for _, rec := range s.svc.All() {
		if rec.Data != nil && rec.State != sandbox.StateFailed {
			all = append(all, s.truth(rec))
		}
	}
	return all
}

// Lookup returns the sandbox of an id or a task id, or the latest of a name, be it gone; ok is false if there never was
// one.
func (s *Server) Lookup(ref string) (_ Truth, ok bool) {
	s.svc.Now() // has everything happen that is due
	s.mu.Lock()
	i := -1
	for j, b := range s.boxes {
		if b.id == ref || b.task == ref || b.name == ref && ref != "" {
			i = j
		}
	}
	id := ""
	if i >= 0 {
		id = s.boxes[i].svc
	}
	s.mu.Unlock()
	rec, ok := s.svc.Lookup(id)
	if !ok {
		return Truth{}, false
	}
	return s.truth(rec), true
}

func (s *Server) truth(rec fake.Record) Truth {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.of(rec)
	t := Truth{
		ServiceID: rec.ID, ID: b.id, Task: b.task, Name: b.name, App: b.app.id, AppName: b.app.name, Environment: b.app.env, V1: b.v1,
		Record: rec, Env: maps.Clone(b.env), Started: b.started, Ended: b.ended, Result: b.result, Timeout: b.life, Idle: b.idle,
		HardEnd: b.due, Definition: proto.CloneOf(b.def),
	}
	t.Deadline = b.due
	if idle := rec.Deadline; !idle.IsZero() && idle.Before(t.Deadline) {
		t.Deadline = idle
	}
	for _, p := range b.execs {
		if p.running() {
			t.Running++
		}
	}
	return t
}
