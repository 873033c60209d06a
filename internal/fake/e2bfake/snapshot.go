package e2bfake

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// snapshotInfo is how the service tells of a snapshot: a template without metadata, which outlives its sandbox.
type snapshotInfo struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

// defaultTag ends the id of every snapshot.
const defaultTag = ":default"

// info returns how the wire names a snapshot of the state machine's.
func (s *Server) info(snap fake.Snapshot) snapshotInfo {
	s.mu.Lock()
	name := s.names[snap.ID]
	s.mu.Unlock()
	if name != "" {
		id := "team/" + name + defaultTag
		return snapshotInfo{id, []string{id}}
	}
	return snapshotInfo{fmt.Sprintf("snap%016s", strings.TrimPrefix(snap.ID, "snap-")) + defaultTag, []string{}}
}

// snapshotID turns a reference to a template into the id of the snapshot that it means, if it may mean one.
func (s *Server) snapshotID(ref string) string {
	ref = strings.TrimSuffix(ref, defaultTag)
	if name, ok := strings.CutPrefix(ref, "team/"); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, n := range s.names {
			if n == name {
				return id
			}
		}
		return ""
	}
	if digits, ok := strings.CutPrefix(ref, "snap"); ok {
		if n, err := strconv.Atoi(digits); err == nil {
			return fmt.Sprintf("snap-%d", n)
		}
	}
	return ""
}

// snapshot keeps the present state of a running sandbox, which lists leave out meanwhile.
func (s *Server) snapshot(w http.ResponseWriter, r *http.Request, id string) {
	ctx, cancel := s.work(r)
	defer cancel()
	var body struct {
		Name string `json:"name"`
	}
	if !s.decode(w, r, &body, true) {
		return
	}
	if err := s.checkpoint(ctx, id); err != nil {
		s.refuse(w, err)
		return
	}
	snap := fake.Snapshot{ID: s.svc.Snapshot(id)}
	if snap.ID == "" {
		s.refuse(w, missing())
		return
	}
	s.mu.Lock()
	s.names[snap.ID] = body.Name
	s.mu.Unlock()
	s.answer(w, http.StatusCreated, s.info(snap))
}

// checkpoint is the phase in which a running sandbox's state is taken.
func (s *Server) checkpoint(ctx context.Context, id string) error {
	t, other := s.begin(id, snapshotting)
	if other != nil {
		return refusal(http.StatusConflict, "", "the sandbox is in transition")
	}
	defer s.finish(id, t)
	if now, ok := s.svc.Lookup(id); !ok || now.Lost || now.State != sandbox.StateRunning {
		return missing()
	}
	return pass(ctx, s.Quirks().SnapshotTime)
}

func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.work(r)
	defer cancel()
	q := r.URL.Query()
	limit, from := 100, 0
	if q.Has("limit") {
		n, err := strconv.Atoi(q.Get("limit"))
		if err != nil || n < 1 || n > 100 {
			s.fail(w, http.StatusBadRequest, "", "validation error: parameter \"limit\" in query has an error")
			return
		}
		limit = n
	}
	if text := q.Get("nextToken"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			s.fail(w, http.StatusBadRequest, "", "invalid next token")
			return
		}
		from = n
	}
	if most := s.Quirks().PageSize; most > 0 {
		limit = min(limit, most)
	}
	of := ""
	if q.Has("sandboxID") {
		wire, _, _ := strings.Cut(q.Get("sandboxID"), "-")
		if of = s.ServiceID(wire); of == "" {
			of = "none" // the state machine has no such id
		}
	}
	all, err := s.svc.Snapshots(ctx, of)
	if err != nil {
		s.refuse(w, err)
		return
	}
	rows := []snapshotInfo{}
	for _, snap := range all {
		if i := s.info(snap); q.Get("name") == "" || slices.Contains(i.Names, q.Get("name")) {
			rows = append(rows, i)
		}
	}
	rows = rows[min(from, len(rows)):]
	if len(rows) > limit {
		rows = rows[:limit]
		w.Header().Set("X-Next-Token", strconv.Itoa(from+limit))
	}
	s.answer(w, http.StatusOK, rows)
}

// deleteTemplate removes a snapshot, unless a sandbox was made of it.
func (s *Server) deleteTemplate(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.work(r)
	defer cancel()
	id := s.snapshotID(r.PathValue("id"))
	if id != "" && slices.ContainsFunc(s.svc.All(), func(rec fake.Record) bool { return s.snapshotID(rec.Image) == id }) {
		s.fail(w, http.StatusBadRequest, "", "sandboxes still use the template")
		return
	}
	if err := s.svc.DeleteSnapshot(ctx, id); err != nil {
		s.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
