package daytonafake

import (
	"maps"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// box is what a sandbox has beside what the state machine knows of it.
type box struct {
	order order // what the create asked for, defaults filled in; not changed
	name  string

	mu       sync.Mutex // held for memory operations only
	id       string
	parent   string // of a fork
	state    sandbox.State
	run      string
	word     string // of a dormant one: stopping, stopped, paused or archived
	tomb     string // the name of a deleted one
	public   bool
	minutes  map[string]int // the four intervals, by the name that they have on the wire
	updated  time.Time
	activity time.Time // as the service's jobs read it
	accepted time.Time // of a refresh that the service did not throttle
	waiting  time.Time // a refresh that has not reached the jobs yet; zero: none
	open     map[int]time.Time
	opened   int
	hidden   time.Time // when a delete found it in error; zero: it is there
	failing  time.Time // when its delete will have failed; zero: none is under way
	stopsAt  time.Time // when stopping becomes stopped

	fs       *shell.FS
	env      map[string]string // of the daemon, beside the order's
	sessions map[string]*session
	commands int
}

// What the service keeps of time.
const (
	throttle    = 5 * time.Second  // refreshes closer together than this are dropped
	keepAlive   = 50 * time.Second // how often the proxy refreshes while a request is open
	keptFailed  = 7 * 24 * time.Hour
	keptUnbuilt = 24 * time.Hour
	maxArchive  = 43200 // minutes
	remembered  = 24 * time.Hour
)

func newBox(o order) *box {
	return &box{order: o, name: o.Name, public: o.Public, minutes: maps.Clone(o.minutes()), open: map[int]time.Time{}}
}

// child is the box of a fork.
func (b *box) child() *box {
	c := newBox(b.order)
	c.name = ""
	b.mu.Lock()
	defer b.mu.Unlock()
	c.parent, c.public, c.minutes = b.id, b.public, maps.Clone(b.minutes)
	return c
}

// changed is told of every change of a sandbox's state or deadline.
func (s *Server) changed(c fake.Change) {
	b := boxOf(c.Record)
	if b == nil {
		return
	}
	bury := b.take(c)
	s.mu.Lock()
	if c.Record.State == sandbox.StateGone {
		delete(s.boxes, c.Record.ID)
	} else {
		s.boxes[c.Record.ID] = b
	}
	s.mu.Unlock()
	if bury != "" {
		s.svc.Rename(c.Record.ID, bury) // the name is free from now on
	}
	s.arm()
}

// take brings the box up to date, and returns the name under which its record is to be buried, if it is.
func (b *box) take(c fake.Change) (bury string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.updated = c.At
	if b.id == c.Record.ID && b.state == c.Record.State && b.run == c.Record.Run {
		return ""
	}
	b.id, b.state, b.run = c.Record.ID, c.Record.State, c.Record.Run
	if b.name == "" {
		b.name = WireID(b.id)
	}
	b.activity, b.waiting = c.At, time.Time{} // a change of state is activity
	switch b.state {
	case sandbox.StateRunning:
		b.word, b.tomb = "", ""
	case sandbox.StateDormant:
		if b.word == "" {
			b.word = "stopped"
		}
		if c.Record.Detail == "frozen" {
			b.word = "paused"
		}
	case sandbox.StateEnding:
		return b.buried(c.At)
	case sandbox.StateGone:
		b.fs, b.sessions = nil, nil
	}
	return ""
}

// buried returns the name of a deleted record. The lock is held.
func (b *box) buried(at time.Time) string {
	if b.tomb == "" {
		b.tomb = "DESTROYED_" + b.name + "_" + millis(at)
	}
	return b.tomb
}

func (b *box) isHidden() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.hidden.IsZero()
}

// shown is the name in an answer: that of the grave only where the answer knows of the delete.
func (b *box) shown(rec fake.Record) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nameIn(rec.State)
}

func (b *box) nameIn(state sandbox.State) string {
	if b.tomb != "" && (state == sandbox.StateEnding || state == sandbox.StateGone || state == sandbox.StateFailed) {
		return b.tomb
	}
	return b.name
}

// begin says that a proxied request is open, until end is called.
func (b *box) begin(now time.Time) (key int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened++
	b.open[b.opened] = now
	return b.opened
}

func (b *box) end(key int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity = later(b.activity, b.seen(now))
	delete(b.open, key)
}

// seen returns the last refresh by now of the proxied requests that are open. The lock is held.
func (b *box) seen(now time.Time) time.Time {
	var last time.Time
	for _, since := range b.open {
		last = later(last, since.Add(now.Sub(since).Truncate(keepAlive)))
	}
	return last
}

// refresh takes an explicit refresh, which the jobs learn of at the end of the tick.
func (b *box) refresh(now time.Time, tick func(time.Time) time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fold(now, tick)
	if !b.accepted.IsZero() && now.Before(b.accepted.Add(throttle)) {
		return
	}
	b.accepted, b.waiting = now, now
}

// fold lets a refresh arrive whose tick is over. The lock is held.
func (b *box) fold(now time.Time, tick func(time.Time) time.Time) {
	if !b.waiting.IsZero() && tick(b.waiting).Before(now) {
		b.activity, b.waiting = later(b.activity, b.waiting), time.Time{}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
