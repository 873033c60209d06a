package boatfake

import (
	"net/http"
	"slices"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// NameSnapshot makes a named snapshot of a sandbox, as somebody does who wants to keep its disk: it outlives the sandbox.
func (s *Server) NameSnapshot(name, id string) bool {
	snap := s.svc.Snapshot(MachineID(id))
	if snap == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.named[snap] = name
	return true
}

// hasNamed reports whether a create can be made from a name.
func (s *Server) hasNamed(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.planted, name) {
		return true
	}
	for _, n := range s.named {
		if n == name {
			return true
		}
	}
	return false
}

// noSource stands for the sandbox that a planted snapshot was made from, which is not one of this server's.
const noSource = idPrefix + "zzzzzzzz"

// listNamed lists named snapshots. They are the account's, whoever asks.
func (s *Server) listNamed(c *call) (int, any, error) {
	snaps, err := s.svc.Snapshots(c.Context(), "")
	if err != nil {
		return 0, nil, err
	}
	list := []map[string]any{}
	add := func(name, source, at string) {
		list = append(list, map[string]any{"name": name, "status": "ready", "sourceSandboxId": source, "createdAt": at})
	}
	if c.from != self() {
		return http.StatusOK, map[string]any{"ok": true, "type": "named-snapshot.list", "snapshots": list}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.planted {
		add(name, noSource, stamp(s.began))
	}
	for _, snap := range snaps {
		name := s.named[snap.ID]
		if name == "" {
			name = snap.ID // made by a test, on the state machine
		}
		add(name, WireID(snap.Source), stamp(snap.Created))
	}
	return http.StatusOK, map[string]any{"ok": true, "type": "named-snapshot.list", "snapshots": list}, nil
}

// listSnapshots lists the one snapshot that the service keeps of each sandbox's disk.
func (s *Server) listSnapshots(c *call) (int, any, error) {
	q, err := s.query(c)
	if err != nil {
		return 0, nil, err
	}
	if err := s.svc.Ping(c.Context(), sandbox.OpSnapshot); err != nil {
		return 0, nil, err
	}
	list := []map[string]any{}
	for _, rec := range s.svc.All() {
		b := s.box(rec)
		v := s.view(rec, b, c.from)
		if v.Access != owner || !v.SnapshotAvailable || s.hidden(rec, b) {
			continue
		}
		list = append(list, map[string]any{
			"id": "snap_" + v.ID[len(idPrefix):], "sandboxId": v.ID, "status": "completed", "generation": 1,
			"createdAt": v.SnapshotCompletedAt, "sizeBytes": 1 << 20, "fileCount": 1,
		})
	}
	if !q.asc {
		slices.Reverse(list)
	}
	return http.StatusOK, map[string]any{"ok": true, "type": "snapshot.list", "snapshots": list}, nil
}
