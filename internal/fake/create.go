package fake

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Order is what a create asks for.
type Order struct {
	Name   string // chosen by the caller; empty: the service takes the id
	Key    string // idempotency key; empty: none
	Body   string // what must be equal in two creates under one key
	Image  string
	Tags   map[string]string
	Window time.Duration // of the lease, or the idle time where activity extends; 0: none
	Hard   time.Duration // the end, counted from the create; 0: none
	Data   any           // comes back in every Record
}

// NameTaken is the Code of a create whose name another sandbox has.
const NameTaken = "name_taken"

// Create makes a sandbox. Where the name is taken (Behaviour.UniqueNames) it returns an error with Code [NameTaken] and the record
// that has the name; under a key that was used for the same order (Behaviour.Keys), the record made then. A record next to
// any other error was made.
func (s *Service) Create(ctx context.Context, o Order) (Record, error) {
	o.Tags = maps.Clone(o.Tags)
	s.mu.Lock()
	busy := s.habits.MaxInFlight > 0 && s.creates >= s.habits.MaxInFlight
	wait := s.habits.RetryAfter
	if !busy {
		s.creates++
	}
	s.mu.Unlock()
	if busy {
		e := refuse(429, sandbox.ErrRateLimited, "rate_limited", "too many creates at once")
		e.RetryAfter = wait
		return Record{}, e
	}
	defer func() {
		s.mu.Lock()
		s.creates--
		s.mu.Unlock()
	}()

	var made Record
	var beside error // told next to made
	err := s.do(ctx, sandbox.OpCreate, func(at time.Time, f Fault) error {
		if f.Effect == EffectNone {
			made = Record{ID: s.newID(), Name: o.Name, Tags: o.Tags, State: sandbox.StateRunning, Created: at, AsOf: at}
			if o.Window > 0 {
				made.Deadline = at.Add(o.Window)
			}
			return nil
		}
		r, err := s.create(o, at)
		if r != nil {
			made, beside = s.answer(r, r.history[len(r.history)-1], s.now()), err
		} else if err != nil {
			return err
		}
		switch {
		case err != nil:
		case f.Effect == EffectTwin:
			s.create(o, at) // nobody hears the answer to the second request
		case f.Effect == EffectEmptyID:
			made.ID = ""
		case f.Effect == EffectUnfit:
			if beside = f.Err; beside == nil {
				beside = refuse(500, sandbox.ErrUnavailable, "unfit", "made, but unfit")
			}
		}
		return nil
	})
	if err != nil {
		return Record{}, err
	}
	return made, beside
}

// Retag replaces the tags of a sandbox. It counts as a create for faults: where a create cannot carry the mark, this
// is its second half.
func (s *Service) Retag(ctx context.Context, id string, tags map[string]string) (Record, error) {
	tags = maps.Clone(tags)
	var got Record
	err := s.do(ctx, sandbox.OpCreate, func(at time.Time, f Fault) error {
		r, err := s.find(id)
		if err != nil {
			return err
		}
		if f.Effect != EffectNone {
			r.Tags = tags
			s.note(r, at)
		}
		got = s.answer(r, r.history[len(r.history)-1], s.now())
		return nil
	})
	if err != nil {
		return Record{}, err
	}
	return got, nil
}

// create makes the sandbox, or finds the one that is the same.
func (s *Service) create(o Order, at time.Time) (*record, error) {
	h := &s.habits
	switch {
	case slices.Contains(h.UnknownImages, o.Image) && o.Image != "":
		return nil, refuse(400, sandbox.ErrInvalid, "image_unknown", "image %q", o.Image)
	case o.Window < 0 || h.MaxWindow > 0 && o.Window > h.MaxWindow || o.Window > 0 && o.Window < h.MinWindow:
		return nil, s.outside(o.Window)
	}
	if h.Keys && o.Key != "" {
		if r := s.byKey[o.Key]; r != nil && r.Body == o.Body {
			return r, nil
		} else if r != nil {
			return nil, refuse(409, sandbox.ErrConflict, "key_reused", "another order under the same key")
		}
	}
	if h.UniqueNames && o.Name != "" {
		if r := s.named(o.Name); r != nil {
			return r, refuse(409, sandbox.ErrConflict, NameTaken, "name %q is taken", o.Name)
		}
	}
	if h.MaxLive > 0 && s.counted(at) >= h.MaxLive {
		e := refuse(429, sandbox.ErrQuota, "quota", "%d sandboxes at most", h.MaxLive)
		e.RetryAfter = h.RetryAfter
		return nil, e
	}

	r := &record{
		Order: o, id: s.newID(), created: at, started: at, run: 1,
		state: sandbox.StateStarting, readyAt: at.Add(max(0, h.StartTime)),
	}
	if r.Name == "" {
		r.Name = r.id
	}
	if o.Hard > 0 && !h.NoHardEnd && !h.NoLease {
		r.hardEnd = at.Add(o.Hard)
	}
	if o.Window > 0 && !h.NoLease && !h.LeaseFromRun {
		r.deadline = s.grant(r, at.Add(o.Window))
	}
	s.records = append(s.records, r)
	s.byID[r.id], s.byName[r.Name] = r, r
	if o.Key != "" {
		s.byKey[o.Key] = r
	}
	if h.StartTime <= 0 && !h.NeverReady {
		s.apply(r, at, toRun)
	} else {
		s.note(r, at)
	}
	return r, nil
}

// named returns the record that has a name.
func (s *Service) named(name string) *record {
	if r := s.byName[name]; r != nil && r.Name == name && r.exists() {
		return r
	}
	return nil
}

// counted returns how many sandboxes the quota sees.
func (s *Service) counted(now time.Time) int {
	n := 0
	for _, r := range s.records {
		last := r.history[len(r.history)-1]
		if r.state.MayRun() && !r.frozen || !r.state.MayRun() && last.at.Add(s.habits.LiveLag).After(now) {
			n++
		}
	}
	return n
}
