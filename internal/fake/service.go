// Package fake is the state machine of a sandbox service: sandboxes with leases that end, a clock of its own, and a
// knob for everything that such a service is known to do wrong. It stands behind package sandboxtest and behind the
// fakes that speak a provider's wire format, and knows neither marks nor HTTP.
//
// It keeps no timers: what time alone brings about happens when the service is next asked something, in the right
// order and with the times at which it was due. It works in bubbles of testing/synctest and outside.
package fake

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Service is one account on a sandbox service. All methods are safe for concurrent use. Errors are
// [*sandbox.APIError] without Provider, Op and ID, faults as they were queued, or the cause of a context.
type Service struct {
	extend sandbox.ExtendMode

	mu        sync.Mutex // never held across a wait or a callback
	habits    Behaviour
	offset    time.Duration // what Advance and Expire added to the clock
	records   []*record     // in the order of their making, gone ones included
	byID      map[string]*record
	byKey     map[string]*record
	byName    map[string]*record // the latest with a name
	late      []*lateEffect
	snapshots []Snapshot
	seq       int
	lists     int // first pages asked for, for Behaviour.ListFlaps
	creates   int // under way
	stale     bool
	due       time.Time // nothing changes by itself before it, unless stale; zero: nothing ever does
	changed   chan struct{}
	healed    chan struct{}
	faults    map[sandbox.Op][]*Fault
	watchers  []func(Change)
	news      []Change
	telling   bool
}

// New returns an empty service with the given way to extend.
func New(extend sandbox.ExtendMode, b Behaviour) *Service {
	return &Service{
		extend: extend, habits: b.clone(),
		byID: map[string]*record{}, byKey: map[string]*record{}, byName: map[string]*record{}, faults: map[sandbox.Op][]*Fault{},
	}
}

// Behave changes the habits.
func (s *Service) Behave(change func(*Behaviour)) {
	s.lock()
	defer s.unlock()
	b := s.habits.clone()
	change(&b)
	s.habits = b.clone()
	s.stale = true
	s.wake()
}

// Behaviour returns the present habits.
func (s *Service) Behaviour() Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.habits.clone()
}

// Now returns the service's clock.
func (s *Service) Now() time.Time {
	s.lock()
	defer s.unlock()
	return s.now()
}

// Advance moves the service's clock on.
func (s *Service) Advance(d time.Duration) {
	s.lock()
	defer s.unlock()
	s.advance(d)
}

// Expire moves the clock on until every lease that is alive has ended and been acted on.
func (s *Service) Expire() {
	s.lock()
	defer s.unlock()
	leased := slices.Clone(s.records)
	for {
		var last time.Time
		leased = slices.DeleteFunc(leased, func(r *record) bool {
			at, what := s.next(r)
			waits := what == toRun || what == toExpire || what == toEnd
			if waits && at.After(last) {
				last = at
			}
			return !waits
		})
		now := s.now()
		if len(leased) == 0 || !last.After(now) {
			return
		}
		s.advance(last.Sub(now))
	}
}

// Change is a new state or deadline of a sandbox.
type Change struct {
	At     time.Time // by the service's clock, when it happened
	Record Record
}

// Watch has f called for every change from now on: in order, one at a time, without locks held.
func (s *Service) Watch(f func(Change)) {
	s.lock()
	defer s.unlock()
	s.watchers = append(s.watchers, f)
}

// lock takes the mutex and lets everything happen that is due.
func (s *Service) lock() {
	s.mu.Lock()
	s.settle()
}

// unlock gives the mutex back and tells the news.
func (s *Service) unlock() {
	s.mu.Unlock()
	s.tell()
}

// tell delivers the news, unless another goroutine or a caller further up the stack is doing so: it will also
// deliver ours.
func (s *Service) tell() {
	for s.tellSome() {
	}
}

func (s *Service) tellSome() bool {
	s.mu.Lock()
	if s.telling || len(s.news) == 0 {
		s.mu.Unlock()
		return false
	}
	s.telling = true
	news, watchers := s.news, slices.Clone(s.watchers)
	s.news = nil
	s.mu.Unlock()
	defer func() { // also when a watcher panics
		s.mu.Lock()
		s.telling = false
		s.mu.Unlock()
	}()
	for _, c := range news {
		for _, f := range watchers {
			f(c)
		}
	}
	return true
}

func (s *Service) now() time.Time {
	return time.Now().Round(0).UTC().Add(s.offset + s.habits.Skew)
}

func (s *Service) advance(d time.Duration) {
	s.offset += d
	s.wake()
	s.settle()
}

// wake has everybody look again who waits for something to change.
func (s *Service) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// waker returns a channel that the next wake closes. It is made by whoever waits, for a channel made outside of a
// bubble would keep the bubble's clock from moving.
func (s *Service) waker() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// settle lets everything happen that is due by now, late effects among it, each at its own time.
func (s *Service) settle() {
	now := s.now()
	for {
		var first *lateEffect
		for _, l := range s.late {
			if !l.at.After(now) && (first == nil || l.at.Before(first.at)) {
				first = l
			}
		}
		if first == nil {
			break
		}
		s.late = slices.DeleteFunc(s.late, func(l *lateEffect) bool { return l == first })
		s.catchUp(first.at)
		first.err = first.effect(first.at)
		close(first.done)
	}
	s.catchUp(now)
}

func (s *Service) catchUp(now time.Time) {
	if !s.stale && (s.due.IsZero() || s.due.After(now)) {
		return
	}
	s.due, s.stale = time.Time{}, false
	told := len(s.news)
	for _, r := range s.records {
		at, what := s.next(r)
		for what != stay && !at.After(now) {
			s.apply(r, at, what)
			at, what = s.next(r)
		}
		if what != stay {
			s.due = earlier(s.due, at)
		}
	}
	slices.SortStableFunc(s.news[told:], func(a, b Change) int { return a.At.Compare(b.At) })
}

// note records that r has changed at a time.
func (s *Service) note(r *record, at time.Time) {
	r.remember(at)
	if at2, what := s.next(r); what != stay {
		s.due = earlier(s.due, at2)
	}
	if len(s.watchers) > 0 {
		s.news = append(s.news, Change{at, s.view(r, r.history[len(r.history)-1], at)})
	}
	s.wake()
}

func (s *Service) newID() string {
	s.seq++
	return "sb-" + strconv.Itoa(s.seq)
}

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func refuse(status int, kind error, code, format string, args ...any) *sandbox.APIError {
	return &sandbox.APIError{Status: status, Code: code, Message: fmt.Sprintf(format, args...), Kind: kind, Refused: status < 500}
}

func unknown() *sandbox.APIError {
	return refuse(404, sandbox.ErrNotFound, "not_found", "")
}
