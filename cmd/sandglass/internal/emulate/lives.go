package emulate

import (
	"slices"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Sandbox is one life on the emulated service. Times are the service's.
type Sandbox struct {
	ID       string    `json:"id"` // as clients know it
	State    string    `json:"state"`
	Detail   string    `json:"detail,omitempty"` // the service's own word
	Created  time.Time `json:"created"`
	Deadline time.Time `json:"deadline,omitzero"` // zero: none
	Ended    time.Time `json:"ended,omitzero"`    // zero: it has not
	How      string    `json:"how,omitempty"`     // how it ended
	Beats    int       `json:"beats"`             // how often its deadline was moved
	Image    string    `json:"image,omitempty"`
	Owner    string    `json:"owner,omitempty"` // as its mark says, after the fleet; empty: it has none
	Tags     []Tag     `json:"tags,omitempty"`  // but for those that are the mark

	moments []moment
}

// A Tag is a label on a sandbox.
type Tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// left reports whether it may run, or a record of it is kept.
func (s Sandbox) left() bool { return s.Ended.IsZero() }

// A moment is what was true of a sandbox from a time on.
type moment struct {
	at       time.Time
	state    sandbox.State
	detail   string
	deadline time.Time
}

// What is remembered, so that an emulator may serve for weeks.
const (
	mostLives   = 500  // of sandboxes that are gone; the others are all kept
	mostMoments = 1000 // of one sandbox
)

// lives remembers what became of each sandbox.
type lives struct {
	id func(fake.Record) string

	mu   sync.Mutex
	all  []*Sandbox
	byID map[string]*Sandbox // by the state machine's id
}

// note takes in one change, and returns what it made of it, and whether that is another than before.
func (l *lives) note(c fake.Change) (_ Sandbox, changed bool) {
	r := c.Record
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.byID[r.ID]
	if s == nil {
		s = &Sandbox{ID: l.id(r), Created: r.Created, Image: r.Image}
		l.all, l.byID[r.ID] = append(l.all, s), s
		l.forget()
	}
	var before moment
	if n := len(s.moments); n > 0 {
		before = s.moments[n-1]
	}
	if !before.deadline.IsZero() && !r.Deadline.IsZero() && !r.Deadline.Equal(before.deadline) && r.State == sandbox.StateRunning && before.state == r.State {
		s.Beats++
	}
	s.State, s.Detail, s.Deadline = r.State.String(), r.Detail, r.Deadline
	s.Owner, s.Tags = labels(r)
	changed = len(s.moments) == 0 || before.state != r.State || before.detail != r.Detail || !before.deadline.Equal(r.Deadline)
	if !changed { // what else there is to a record is not told
		return *s, false
	}
	if s.moments = append(s.moments, moment{c.At, r.State, r.Detail, r.Deadline}); len(s.moments) > mostMoments {
		s.moments = slices.Delete(s.moments, 1, 1+mostMoments/2) // the first is how it began
	}
	switch {
	case r.State != sandbox.StateGone:
		s.Ended, s.How = time.Time{}, ""
	case s.Ended.IsZero():
		s.Ended, s.Deadline = c.At, before.deadline
		s.How = how(s.moments, c.At)
	}
	return *s, true
}

// how tells from the times alone what ended a sandbox: at its deadline or later it was its lease, else a request.
func how(moments []moment, at time.Time) string {
	for _, m := range slices.Backward(moments) {
		if !m.state.MayRun() || m.deadline.IsZero() {
			continue
		}
		if left := m.deadline.Sub(ended(moments, at)); left > 0 {
			return "by request"
		}
		return "by its lease"
	}
	return "by request"
}

// ended is when compute ended: a machine may take its time to go.
func ended(moments []moment, at time.Time) time.Time {
	for _, m := range slices.Backward(moments) {
		if m.state == sandbox.StateRunning || m.state == sandbox.StateStarting || m.state == sandbox.StateUnknown {
			return at
		}
		at = m.at
	}
	return at
}

// forget drops the oldest that are gone, where there are too many.
func (l *lives) forget() {
	gone := 0
	for _, s := range l.all {
		if !s.left() {
			gone++
		}
	}
	l.all = slices.DeleteFunc(l.all, func(s *Sandbox) bool {
		if s.left() || gone <= mostLives {
			return false
		}
		gone--
		for id, of := range l.byID {
			if of == s {
				delete(l.byID, id)
			}
		}
		return true
	})
}

// list returns all that is remembered, oldest first.
func (l *lives) list() []Sandbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Sandbox, 0, len(l.all))
	for _, s := range l.all {
		one := *s
		one.moments = slices.Clone(s.moments)
		all = append(all, one)
	}
	return all
}

// known reports whether a client knows a sandbox by this id.
func (l *lives) known(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, func(s *Sandbox) bool { return s.ID == id })
}
