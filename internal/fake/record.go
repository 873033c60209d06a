package fake

import (
	"maps"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Record is what the service tells of one sandbox.
type Record struct {
	ID, Name, Key string
	Image         string
	Tags          map[string]string
	State         sandbox.State
	Detail        string
	Created       time.Time
	Deadline      time.Time // zero: none, or not told
	AsOf          time.Time // the service's clock at this answer
	Run           string
	Lost          bool // the machine runs and the record is gone: nobody but a test sees it
	Data          any  // as ordered
}

// record is the truth about one sandbox.
type record struct {
	Order
	id      string
	created time.Time

	state    sandbox.State
	detail   string
	run      int
	started  time.Time // of the run
	deadline time.Time // zero: no lease
	hardEnd  time.Time // zero: none
	readyAt  time.Time // when StateStarting ends
	endsAt   time.Time // when StateEnding ends; zero: not by itself
	into     sandbox.State
	doomed   time.Time // it ends then, whatever an extend was told
	reviveAt time.Time // it runs again then
	frozen   bool
	lost     bool // no record any more
	lostEnd  time.Time
	uses     int // commands and copies under way

	history []moment
}

// moment is what was true from a time on.
type moment struct {
	at       time.Time
	state    sandbox.State
	detail   string
	run      int
	deadline time.Time
	frozen   bool
	lost     bool
}

// keptMoments is how much history stale answers can draw on.
const keptMoments = 64

func (r *record) remember(at time.Time) {
	if len(r.history) >= 2*keptMoments {
		r.history = append(r.history[:0], r.history[len(r.history)-keptMoments:]...)
	}
	r.history = append(r.history, moment{at, r.state, r.detail, r.run, r.deadline, r.frozen, r.lost})
}

// as returns what was true of r at a time, or its oldest memory.
func (r *record) as(at time.Time) moment {
	for i := len(r.history) - 1; i > 0; i-- {
		if !r.history[i].at.After(at) {
			return r.history[i]
		}
	}
	return r.history[0]
}

// there reports whether the moment has a record.
func (m moment) there() bool { return m.state != sandbox.StateGone && !m.lost }

// same reports whether two moments differ in no more than the deadline.
func (m moment) same(o moment) bool {
	return m.state == o.state && m.run == o.run && m.frozen == o.frozen && m.lost == o.lost
}

// turned returns when r last came into another state and what it was before; ok is false if it never did.
func (r *record) turned() (at time.Time, before moment, ok bool) {
	for i := len(r.history) - 1; i > 0; i-- {
		if !r.history[i].same(r.history[i-1]) {
			return r.history[i].at, r.history[i-1], true
		}
	}
	return r.created, moment{}, false
}

// exists reports whether the service keeps a record of r that calls can see.
func (r *record) exists() bool { return r.state != sandbox.StateGone && !r.lost }

// view returns what an answer tells of r.
func (s *Service) view(r *record, m moment, now time.Time) Record {
	v := Record{
		ID: r.id, Name: r.Name, Key: r.Key, Image: r.Image, Tags: maps.Clone(r.Tags),
		State: m.state, Detail: m.detail, Created: r.created, Deadline: m.deadline, AsOf: now,
		Run: r.id + "/" + strconv.Itoa(m.run), Lost: m.lost, Data: r.Data,
	}
	if m.frozen {
		v.State, v.Detail = sandbox.StateDormant, "frozen"
	}
	if s.extend == sandbox.ExtendActivity && r.uses > 0 && !v.Deadline.IsZero() {
		v.Deadline = earlier(r.hardEnd, now.Add(r.Window))
	}
	return v
}

// answer is view, for a caller.
func (s *Service) answer(r *record, m moment, now time.Time) Record {
	v := s.view(r, m, now)
	if s.habits.HideDeadline {
		v.Deadline = time.Time{}
	}
	return v
}

// step is what becomes of a record when time passes.
type step int

const (
	stay     step = iota
	toRun         // it has started
	toExpire      // its lease or its hard end is over
	toEnd         // it has been ending for long enough
	toRevive
	toVanish // a machine without a record ends
)

// next returns what happens to r next if nobody does anything, and when.
func (s *Service) next(r *record) (time.Time, step) {
	at, what := time.Time{}, stay
	offer := func(t time.Time, w step) {
		if !t.IsZero() && (what == stay || t.Before(at)) {
			at, what = t, w
		}
	}
	switch {
	case r.frozen:
		return at, stay
	case r.lost:
		offer(r.lostEnd, toVanish)
		return at, what
	case r.state == sandbox.StateGone:
		offer(r.reviveAt, toRevive)
		return at, what
	case r.state == sandbox.StateStarting && !s.habits.NeverReady:
		offer(r.readyAt, toRun)
	case r.state == sandbox.StateEnding:
		offer(r.endsAt, toEnd)
		if what != stay {
			return at, what
		}
	case r.state == sandbox.StateDormant && !s.habits.PausedLease:
		return at, stay
	}
	if s.habits.Unenforced {
		return at, what
	}
	end := earlier(r.hardEnd, r.doomed)
	if s.extend != sandbox.ExtendActivity || r.uses == 0 {
		end = earlier(end, r.deadline)
	}
	if !end.IsZero() {
		offer(end.Add(max(0, s.habits.Lateness)), toExpire)
	}
	return at, what
}

// apply lets happen what next has said.
func (s *Service) apply(r *record, at time.Time, what step) {
	switch what {
	case toRun:
		r.state, r.started = sandbox.StateRunning, at
		if s.habits.StartsFailed {
			r.state, r.detail = sandbox.StateFailed, "did not start"
		}
		if s.habits.LeaseFromRun && r.Window > 0 {
			r.deadline = s.grant(r, at.Add(r.Window))
		}
	case toExpire:
		r.deadline, r.hardEnd, r.doomed = time.Time{}, time.Time{}, time.Time{}
		into := s.habits.AtExpiry
		if into != sandbox.StateDormant || r.state == sandbox.StateDormant || r.state == sandbox.StateEnding {
			into = sandbox.StateGone // what is no longer running is not stopped once more, but removed
		}
		if s.habits.EndTime > 0 && r.state != sandbox.StateEnding {
			r.state, r.endsAt, r.into = sandbox.StateEnding, at.Add(s.habits.EndTime), into
		} else {
			s.end(r, into)
		}
		r.detail = "lease over"
	case toEnd:
		s.end(r, r.into)
	case toRevive:
		r.reviveAt = time.Time{}
		s.start(r, at, r.Window)
	case toVanish:
		s.end(r, sandbox.StateGone)
	}
	s.note(r, at)
}

// end takes r's machine away; into says whether a record stays.
func (s *Service) end(r *record, into sandbox.State) {
	r.state, r.endsAt, r.lost, r.frozen, r.doomed = into, time.Time{}, false, false, time.Time{}
	if into == sandbox.StateDormant && !s.habits.PausedLease {
		r.deadline, r.hardEnd = time.Time{}, time.Time{}
	}
}

// start has r run anew, as another run.
func (s *Service) start(r *record, at time.Time, window time.Duration) {
	r.run++
	r.state, r.detail, r.started, r.doomed = sandbox.StateRunning, "", at, time.Time{}
	r.deadline = time.Time{}
	if window > 0 && !s.habits.NoLease {
		r.deadline = s.grant(r, at.Add(window))
	}
}
