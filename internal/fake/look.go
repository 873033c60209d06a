package fake

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Get looks at one sandbox.
func (s *Service) Get(ctx context.Context, id string) (Record, error) {
	var got Record
	err := s.do(ctx, sandbox.OpGet, func(at time.Time, f Fault) error {
		h := &s.habits
		r := s.byID[id]
		if r == nil || h.WrongScope {
			return unknown()
		}
		m, ok := r.seen(at, h.GetStale, h.GetMissesNew, h.GetShowsDeleted)
		if !ok {
			return unknown()
		}
		got = s.answer(r, m, s.now())
		return nil
	})
	if err != nil {
		return Record{}, err
	}
	return got, nil
}

// seen returns what an answer shows of r that is old by stale, misses new sandboxes and shows ones that are gone.
func (r *record) seen(now time.Time, stale, missNew, showGone time.Duration) (moment, bool) {
	if missNew > 0 && now.Before(r.created.Add(missNew)) {
		return moment{}, false
	}
	if !r.exists() {
		at, before, ok := r.turned()
		return before, ok && now.Before(at.Add(showGone)) && before.there()
	}
	m := r.as(now.Add(-max(0, stale)))
	return m, m.there()
}

// Tag is one pair of a filter.
type Tag struct{ Key, Value string }

// Query is one page of a list. The zero Query is the first page of everything.
type Query struct {
	Name   string // exact; empty: any
	Tags   []Tag  // all must match
	Cursor string // Page.Next of the page before
	Limit  int    // rows; 0 or more than Behaviour.PageSize: so many
}

// Page is part of a list, in the order in which the sandboxes were made.
type Page struct {
	Records []Record
	Next    string // empty: the last page
}

// List returns one page.
func (s *Service) List(ctx context.Context, q Query) (Page, error) {
	var page Page
	err := s.do(ctx, sandbox.OpList, func(at time.Time, f Fault) error {
		if f.Effect == EffectNone || s.habits.WrongScope {
			return nil
		}
		var err error
		page, err = s.page(q, at)
		return err
	})
	if err != nil {
		return Page{}, err
	}
	return page, nil
}

// again is the cursor of Behaviour.RepeatCursor.
const again = "again"

func (s *Service) page(q Query, at time.Time) (Page, error) {
	h := &s.habits
	from := 0
	if q.Cursor == "" {
		s.lists++
	} else if q.Cursor != again {
		n, err := strconv.Atoi(q.Cursor)
		if err != nil || n < 0 {
			return Page{}, refuse(400, sandbox.ErrInvalid, "cursor_invalid", "cursor")
		}
		from = n
	}
	size := h.PageSize
	if size <= 0 {
		size = 100
	}
	if q.Limit > 0 {
		size = min(size, q.Limit)
	}
	var page Page
	for i := from; i < len(s.records); i++ {
		v, ok := s.row(s.records[i], at)
		if !ok || !q.match(v, h) {
			continue
		}
		if len(page.Records) == size {
			page.Next = strconv.Itoa(i)
			break
		}
		page.Records = append(page.Records, v)
	}
	if h.RepeatCursor {
		page.Next = again
	}
	return page, nil
}

// row returns what a list shows of r.
func (s *Service) row(r *record, at time.Time) (Record, bool) {
	h := &s.habits
	m, ok := r.seen(at, h.ListStale, h.ListMissesNew, h.ListShowsDeleted)
	turned, before, changed := r.turned()
	leaving := changed && (r.state == sandbox.StateEnding || !r.exists())
	if leaving && at.Before(turned.Add(h.ListFlaps)) {
		m, ok = before, before.there() && s.lists%2 == 1
	} else if !ok && !r.exists() && !r.lost && h.ListShowsGone {
		m, ok = r.history[len(r.history)-1], true
	}
	if !ok {
		return Record{}, false
	}
	v := s.answer(r, m, s.now())
	if h.ZonelessTimes {
		v.Created, v.Deadline = time.Time{}, time.Time{}
	}
	return v, !slices.Contains(h.ListHides, v.State)
}

func (q Query) match(v Record, h *Behaviour) bool {
	if h.IgnoreFilter {
		return true
	}
	if q.Name != "" && q.Name != v.Name {
		return false
	}
	for i, t := range q.Tags {
		if i > 0 && h.OneFilter {
			break
		}
		if got, ok := v.Tags[t.Key]; !ok || got != t.Value {
			return false
		}
	}
	return true
}

// Ping is a look that finds nothing: it meets the faults of op.
func (s *Service) Ping(ctx context.Context, op sandbox.Op) error {
	return s.do(ctx, op, func(time.Time, Fault) error { return nil })
}

// All returns the truth about every sandbox that may run, or of which a record is kept, oldest first.
func (s *Service) All() []Record {
	s.lock()
	defer s.unlock()
	now := s.now()
	var all []Record
	for _, r := range s.records {
		if r.state != sandbox.StateGone {
			all = append(all, s.view(r, r.history[len(r.history)-1], now))
		}
	}
	return all
}

// Lookup returns the truth about one sandbox, be it gone; ok is false if there never was one.
func (s *Service) Lookup(id string) (_ Record, ok bool) {
	s.lock()
	defer s.unlock()
	r := s.byID[id]
	if r == nil {
		return Record{}, false
	}
	return s.view(r, r.history[len(r.history)-1], s.now()), true
}
