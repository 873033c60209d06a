package vercelfake

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func (s *Server) get(ctx context.Context, c *call) (any, error) {
	rec, b, err := s.find(c, func(id string) (fake.Record, error) { return s.svc.Get(ctx, id) })
	if err != nil {
		return nil, err
	}
	resumed := false
	if c.URL.Query().Get("resume") == "true" {
		s.mu.Lock()
		ses := b.current()
		s.mu.Unlock()
		if now, err := s.truly(b.id); err == nil && s.status(ses, now) != stRunning && s.status(ses, now) != stPending {
			if s.status(ses, now) != statusOf(now) { // being stopped by a call
				if err := s.wait(ctx, ses); err != nil {
					return nil, err
				}
				now, _ = s.svc.Lookup(b.id)
			}
			if rec, err = s.resume(ctx, b, now); err != nil {
				return nil, err
			}
			resumed = true
		}
	}
	v := s.view(rec)
	v.Resumed = &resumed
	return v, nil
}

func (s *Server) getSession(ctx context.Context, c *call) (any, error) {
	id := c.PathValue("id")
	s.mu.Lock()
	ses, q := s.sessions[id], s.quirks
	s.mu.Unlock()
	gone := &problem{status: 404, code: "sandbox_not_found", message: "Session " + id + " was not found"}
	if ses == nil || c.claims != nil && c.claims.Project != ses.box.project.ID {
		if err := s.svc.Ping(ctx, sandbox.OpGet); err != nil {
			return nil, err
		}
		return nil, gone
	}
	rec, err := s.svc.Get(ctx, ses.box.id)
	if e, ok := err.(*sandbox.APIError); ok && e.Code == "not_found" {
		now, ok := s.svc.Lookup(ses.box.id)
		s.mu.Lock()
		ended := ses.ended
		s.mu.Unlock()
		switch {
		case ok && now.State == sandbox.StateGone && !s.svc.Behaviour().WrongScope && now.AsOf.Before(ended.Add(q.SessionsKept)):
			rec, err = now, nil
		case q.SessionGone == 410:
			return nil, s.ofLife(stStopped)
		default:
			return nil, gone
		}
	}
	if err != nil {
		return nil, err
	}
	if rec.Lost {
		return nil, gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{"session": s.sessionView(ses, rec), "routes": s.routesOf(ses.box)}, nil
}

// page is what a list is asked for.
type page struct {
	url.Values
	limit  int
	sortBy string
	desc   bool
	after  *place
}

// place is where a row stands in a list. A cursor is the place of the last row of its page, so that rows that come and
// go do not move others over its edge.
type place struct {
	Key  string `json:"k"`
	Name string `json:"n"`
}

const again = "again" // the cursor of a list that goes round in circles

func (s *Server) paging(c *call, sorts ...string) (page, error) {
	p := page{Values: c.URL.Query(), limit: 20, desc: true, sortBy: cmp.Or(c.URL.Query().Get("sortBy"), sorts[0])}
	if p.Has("limit") {
		n, err := strconv.Atoi(p.Get("limit"))
		if err != nil || n < 1 || n > 50 {
			return p, invalid("limit must be between 1 and 50")
		}
		p.limit = n
	}
	if most := s.Quirks().PageSize; most > 0 {
		p.limit = min(p.limit, most)
	}
	if !slices.Contains(sorts, p.sortBy) {
		return p, invalid("sortBy must be one of %s", strings.Join(sorts, ", "))
	}
	switch p.Get("sortOrder") {
	case "", "desc":
	case "asc":
		p.desc = false
	default:
		return p, invalid("sortOrder must be asc or desc")
	}
	if text := p.Get("cursor"); text != "" && text != again {
		var at place
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(b, &at) != nil {
			return p, invalid("cursor is not valid")
		}
		p.after = &at
	}
	return p, nil
}

func (p page) compare(a, b place) int {
	n := cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Name, b.Name))
	if p.desc {
		return -n
	}
	return n
}

// Pagination is how a list goes on.
type Pagination struct {
	Count int     `json:"count"`
	Next  *string `json:"next"` // null: it does not
}

// cut sorts rows and takes one page of them.
func cut[T any](p page, rows []T, at func(T) place) ([]T, Pagination) {
	slices.SortFunc(rows, func(a, b T) int { return p.compare(at(a), at(b)) })
	if p.after != nil {
		rows = slices.DeleteFunc(rows, func(v T) bool { return p.compare(at(v), *p.after) <= 0 })
	}
	var next *string
	if len(rows) > p.limit {
		rows = rows[:p.limit]
		b, _ := json.Marshal(at(rows[len(rows)-1])) // never fails: strings
		text := base64.RawURLEncoding.EncodeToString(b)
		next = &text
	}
	if rows == nil {
		rows = []T{}
	}
	return rows, Pagination{len(rows), next}
}

// sortable prints a number so that later ones are greater.
func sortable(n int64) string { return fmt.Sprintf("%020d", n) }

func (s *Server) list(ctx context.Context, c *call) (any, error) {
	p, err := s.paging(c, "createdAt", "name", "statusUpdatedAt", "currentSnapshotId")
	if err != nil {
		return nil, err
	}
	status := p.Get("status")
	switch {
	case p.Has("namePrefix") && p.sortBy != "name":
		return nil, invalid("namePrefix needs sortBy=name")
	case status != "" && p.sortBy != "createdAt":
		return nil, invalid("status needs sortBy=createdAt")
	case status != "" && !slices.Contains([]string{stRunning, stStopping, stStopped}, status):
		return nil, invalid("status must be one of running, stopping, stopped")
	case len(p.Values["tags"]) > 1:
		return nil, invalid("tags takes one filter only")
	}
	var q fake.Query
	if text := p.Get("tags"); text != "" {
		k, v, ok := strings.Cut(text, ":") // at the first one: values may hold more
		if !ok {
			return nil, invalid("tags must be of the form key:value")
		}
		q.Tags = []fake.Tag{{Key: k, Value: v}}
	}
	// One call of the state machine stands for one page: it keeps everything on its own page, and pages are cut here.
	found, err := s.svc.List(ctx, q)
	if err != nil {
		return nil, err
	}
	var rows []Sandbox
	for _, rec := range found.Records {
		b, ok := rec.Data.(*box)
		if !ok || b.project != c.project || s.hidden(rec) && rec.State != sandbox.StateGone {
			continue // a gone one is here only where lists are to show them
		}
		v := s.view(rec).Sandbox
		if strings.HasPrefix(v.Name, p.Get("namePrefix")) && (status == "" || narrow(v.Status) == status) {
			rows = append(rows, v)
		}
	}
	rows, pages := cut(p, rows, func(v Sandbox) place {
		at := place{Name: v.Name}
		switch p.sortBy {
		case "createdAt":
			at.Key = sortable(v.CreatedAt)
		case "statusUpdatedAt":
			at.Key = sortable(v.StatusUpdatedAt)
		case "currentSnapshotId":
			at.Key = v.CurrentSnapshotID
		}
		return at
	})
	if s.svc.Behaviour().RepeatCursor {
		loop := again
		pages.Next = &loop
	}
	return map[string]any{"sandboxes": rows, "pagination": pages}, nil
}

// listSessions tells the history of a project's sandboxes, or of one.
func (s *Server) listSessions(_ context.Context, c *call) (any, error) {
	p, err := s.paging(c, "createdAt")
	if err != nil {
		return nil, err
	}
	var rows []Session
	for _, t := range s.All() {
		if t.Project == c.project.ID && !t.Deleted && (p.Get("name") == "" || p.Get("name") == t.Sandbox.Name) {
			rows = append(rows, t.Sessions...)
		}
	}
	rows, pages := cut(p, rows, func(v Session) place { return place{sortable(v.CreatedAt), v.ID} })
	return map[string]any{"sessions": rows, "pagination": pages}, nil
}

// listDrives has nothing to tell.
func (s *Server) listDrives(_ context.Context, c *call) (any, error) {
	if _, err := s.paging(c, "createdAt", "name"); err != nil {
		return nil, err
	}
	return map[string]any{"drives": []any{}, "pagination": Pagination{}}, nil
}
