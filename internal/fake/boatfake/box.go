package boatfake

import (
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// box is what a sandbox has beside what the state machine knows of it. The server's mutex guards it, but for id and order,
// which do not change.
type box struct {
	id    string // the state machine's
	order *order

	state    sandbox.State
	run      string
	word     string    // the service's, before the present ending
	updated  time.Time // of the last change
	ready    time.Time // when it first ran
	since    time.Time // when it began to run; zero: it does not
	metered  time.Duration
	ttl      time.Duration // as stored for a resume
	stopsAt  time.Time     // when a stop is complete, or has failed
	cancelAt time.Time     // when it turns out that there is no machine for it; zero: there is
	told     bool          // that has been said
	deletion *operation

	subdomain string
	token     string // of its ports
	hosted    map[int]bool

	files     *shell.FS
	processes []*process
}

// saveTime is how long it takes until a disk could not be saved.
const saveTime = 5 * time.Second

const nameTag = "name" // of a sandbox, among the state machine's tags

// there reports whether calls can see a record.
func there(rec fake.Record) bool { return rec.State != sandbox.StateGone && !rec.Lost }

// box returns what belongs to a record. One record and one order can come apart: of an order two can be made.
func (s *Server) box(rec fake.Record) *box {
	_, made := s.svc.Lookup(rec.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boxLocked(rec, made)
}

func (s *Server) boxLocked(rec fake.Record, made bool) *box {
	if b := s.boxes[rec.ID]; b != nil {
		return b
	}
	o, _ := rec.Data.(*order)
	if o == nil {
		o = &order{size: defaultSize, owner: self(), ttl: time.Hour} // made by a test, on the state machine
	}
	b := &box{id: rec.ID, order: o, state: rec.State, run: rec.Run, updated: rec.AsOf, ttl: o.ttl, hosted: map[int]bool{}}
	b.subdomain = "boat-" + WireID(rec.ID)[min(len(idPrefix), len(WireID(rec.ID))):]
	b.token = randomHex()
	if !made {
		return b // an answer told of it, and it is not there
	}
	s.boxes[rec.ID] = b
	if o.entry != nil && o.entry.machine == "" {
		o.entry.machine = rec.ID
	}
	return b
}

// changed is told of every change of a sandbox's state or deadline.
func (s *Server) changed(c fake.Change) {
	rec := c.Record
	s.mu.Lock()
	b := s.boxLocked(rec, true)
	q := s.quirks
	if rec.State != b.state && (rec.State == sandbox.StateEnding || rec.State == sandbox.StateGone) {
		b.word = b.words(fake.Record{State: b.state, AsOf: c.At}, q)
	}
	if !b.since.IsZero() && rec.State != sandbox.StateRunning {
		b.metered += c.At.Sub(b.since)
		b.since = time.Time{}
	}
	if b.since.IsZero() && rec.State == sandbox.StateRunning {
		b.since = c.At
		if b.ready.IsZero() {
			b.ready = c.At
		}
	}
	b.state, b.run, b.updated = rec.State, rec.Run, c.At
	if rec.State == sandbox.StateGone {
		b.files = nil
	}
	archived := rec.State == sandbox.StateDormant && rec.Detail != "frozen"
	if archived && q.Retention && b.deletion == nil {
		s.operate(b, "zdr", c.At)
	}
	vanishes := archived && (q.Retention || q.Vanishes && !b.order.snapshots)
	s.mu.Unlock()
	if vanishes {
		s.svc.Kill(rec.ID)
	}
}

// words is the state of a record as the service puts it. The lock is held.
func (b *box) words(rec fake.Record, q Quirks) string {
	running := q.Word
	if running == "" {
		running = "ready"
	}
	switch rec.State {
	case sandbox.StateStarting:
		return "provisioning"
	case sandbox.StateRunning:
		since := rec.AsOf.Sub(rec.Deadline)
		if rec.AsOf.Before(b.stopsAt) || q.SaveFails && !rec.Deadline.IsZero() && since >= 0 && since < saveTime {
			return "archiving"
		}
		return running
	case sandbox.StateDormant:
		switch {
		case rec.Detail == "frozen":
			return running
		case rec.AsOf.Before(b.stopsAt):
			return "archiving"
		}
		return "archived"
	case sandbox.StateEnding:
		if rec.Detail == "deleted" && b.word != "" {
			return b.word
		}
		return "archiving"
	case sandbox.StateFailed:
		if !b.cancelAt.IsZero() {
			return "provisioning" // nobody knows yet
		}
		return "error"
	case sandbox.StateGone:
		return "deleted"
	}
	return "unknown"
}

// Access to a sandbox.
const owner = "owner"

// access returns what an account may do with a sandbox; "": not even see it.
func (s *Server) access(a account, b *box) string {
	switch {
	case a == b.order.owner:
		return owner
	case b.order.org != "" && a.member:
		if q := s.Quirks(); q.Access != "" {
			return q.Access
		}
		return "view"
	}
	return ""
}
