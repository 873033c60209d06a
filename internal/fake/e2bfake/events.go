package e2bfake

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
)

// event is one step in the life of a sandbox, as the service tells of it later.
type event struct {
	at       time.Time
	kind     string // "created" and so on
	id       string // on the wire
	run      string
	template string
	tags     map[string]string
	deadline time.Time
	reason   string
}

// publish adds an event. s.mu is held.
func (s *Server) publish(kind string, c fake.Change, why string) {
	r := c.Record
	e := event{at: c.At, kind: kind, id: s.WireID(r.ID), run: r.Run, tags: r.Tags, deadline: r.Deadline, reason: why}
	if m, ok := r.Data.(*machine); ok {
		e.template = m.template.ID
	}
	s.events = append(s.events, e)
}

// listEvents answers for one sandbox, or for all if id is "".
func (s *Server) listEvents(w http.ResponseWriter, r *http.Request, id string) {
	q := r.URL.Query()
	number := func(name string, standard, least, most int) (int, bool) {
		if !q.Has(name) {
			return standard, true
		}
		n, err := strconv.Atoi(q.Get(name))
		return n, err == nil && n >= least && n <= most
	}
	offset, ok1 := number("offset", 0, 0, 1<<30)
	limit, ok2 := number("limit", 10, 1, 100)
	if !ok1 || !ok2 {
		s.fail(w, http.StatusBadRequest, "", "validation error: offset or limit is out of range")
		return
	}
	until := s.svc.Now()
	s.mu.Lock()
	until = until.Add(-s.quirks.EventLag)
	camel := s.quirks.CamelEvents
	var found []event
	for _, e := range s.events {
		if (id == "" || e.id == s.WireID(id)) && !e.at.After(until) &&
			(len(q["types"]) == 0 || slices.Contains(q["types"], "sandbox.lifecycle."+e.kind)) {
			found = append(found, e)
		}
	}
	s.mu.Unlock()
	if q.Get("orderAsc") != "true" {
		slices.Reverse(found)
	}
	found = found[min(offset, len(found)):]
	rows := []map[string]any{}
	for _, e := range found[:min(limit, len(found))] {
		rows = append(rows, e.json(camel))
	}
	s.answer(w, http.StatusOK, rows)
}

func (e event) json(camel bool) map[string]any {
	kind := "sandbox.lifecycle." + e.kind
	if camel { // and then created and killed have no data
		row := map[string]any{
			"version": "v1", "id": e.id + e.run + e.kind, "type": kind, "eventData": nil, "timestamp": e.at.UTC().Format(time.RFC3339Nano),
			"sandboxId": e.id, "sandboxExecutionId": e.run, "sandboxTemplateId": e.template, "sandboxTeamId": "team",
			"sandboxBuildId": "build",
		}
		if e.kind == "updated" {
			row["eventData"] = map[string]any{"set_timeout": e.deadline.UTC().Format(time.RFC3339Nano)}
		}
		return row
	}
	data := map[string]any{"sandbox_metadata": e.tags}
	if e.kind == "updated" {
		data["set_timeout"] = e.deadline.UTC().Format(time.RFC3339Nano)
	}
	if e.reason != "" {
		data["kill_reason"] = e.reason
	}
	return map[string]any{
		"version": "v2", "id": e.id + e.run + e.kind, "type": kind, "event_data": data, "timestamp": e.at.UTC().Format(time.RFC3339Nano),
		"sandbox_id": e.id, "sandbox_execution_id": e.run, "sandbox_template_id": e.template, "sandbox_team_id": "team",
	}
}
