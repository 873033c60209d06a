package daytonafake

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// makeSnapshot makes a snapshot of a sandbox. It is there at once.
func (s *Server) makeSnapshot(c *call) (int, any, error) {
	rec, b, err := s.ready(c, sandbox.StateRunning, sandbox.StateDormant)
	if err != nil {
		return 0, nil, err
	}
	var body struct{ Name string }
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	if body.Name == "" {
		return 0, nil, invalid("name should not be empty")
	}
	id := s.svc.Snapshot(rec.ID)
	s.mu.Lock()
	s.names[id] = body.Name
	s.mu.Unlock()
	return s.now(c, rec.ID, b)
}

// listSnapshots lists what was made from sandboxes. The general snapshots of the service are not among it.
func (s *Server) listSnapshots(c *call) (int, any, error) {
	q := c.URL.Query()
	number := func(key string, otherwise, most int) (int, error) {
		if !q.Has(key) {
			return otherwise, nil
		}
		n, err := strconv.Atoi(q.Get(key))
		if err != nil || n < 1 || n > most {
			return 0, invalid("%s must be a number from 1 to %d", key, most)
		}
		return n, nil
	}
	page, err := number("page", 1, 1<<30)
	if err != nil {
		return 0, nil, err
	}
	limit, err := number("limit", defaultPage, maxPage)
	if err != nil {
		return 0, nil, err
	}
	limit = min(limit, s.quirk().PageSize)
	source := ""
	if q.Has("sourceSandboxId") {
		if source = MachineID(q.Get("sourceSandboxId")); source == "" {
			source = "none"
		}
	}
	all, err := s.svc.Snapshots(c.Context(), source)
	if err != nil {
		return 0, nil, err
	}
	if c.from == foreigner {
		all = nil
	}
	items := []any{}
	for _, snap := range all {
		if name := s.snapshotName(snap); strings.Contains(name, q.Get("name")) {
			items = append(items, s.snapshotDTO(snap, name))
		}
	}
	if q.Get("order") != "asc" { // the default is the latest first
		slices.Reverse(items)
	}
	total := len(items)
	from := min((page-1)*limit, total)
	return http.StatusOK, map[string]any{
		"items": items[from:min(from+limit, total)], "total": total, "page": page, "totalPages": (total + limit - 1) / limit,
	}, nil
}

// getSnapshot looks at one, by id or name.
func (s *Server) getSnapshot(c *call) (int, any, error) {
	asked := c.PathValue("snapshot")
	all, err := s.svc.Snapshots(c.Context(), "")
	if err != nil {
		return 0, nil, err
	}
	for _, snap := range all {
		if name := s.snapshotName(snap); c.from != foreigner && (snap.ID == asked || name == asked) {
			return http.StatusOK, s.snapshotDTO(snap, name), nil
		}
	}
	return 0, nil, noSnapshot(asked)
}

func (s *Server) snapshotName(snap fake.Snapshot) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := s.names[snap.ID]; name != "" {
		return name
	}
	return snap.ID
}

func (s *Server) snapshotDTO(snap fake.Snapshot, name string) map[string]any {
	v := map[string]any{
		"id": snap.ID, "organizationId": s.opts.Organization, "general": false, "name": name, "imageName": "", "state": "active",
		"size": nil, "entrypoint": nil, "cpu": 1, "gpu": 0, "mem": 1, "disk": 3, "errorReason": nil, "lastUsedAt": nil,
		"createdAt": stamp(snap.Created), "updatedAt": stamp(snap.Created), "sourceSandboxId": WireID(snap.Source),
		"regionIds": []string{s.opts.Region}, "ref": "snapshot/" + snap.ID, "sandboxClass": "container",
	}
	if b := s.boxFor(snap.Source); b != nil {
		v["cpu"], v["mem"], v["disk"] = b.order.CPU, b.order.Memory, b.order.Disk
	}
	return v
}

// removeSnapshot removes one. Its own permission is apart from that for sandboxes.
func (s *Server) removeSnapshot(c *call) (int, any, error) {
	id := c.PathValue("snapshot")
	if c.from == foreigner {
		return 0, nil, noSnapshot(id)
	}
	err := s.svc.DeleteSnapshot(c.Context(), id)
	if p := s.translate(c, err); err != nil && p != nil && p.status == http.StatusNotFound {
		return 0, nil, noSnapshot(id)
	}
	return http.StatusOK, nil, err
}

func noSnapshot(id string) error {
	return &problem{status: http.StatusNotFound, message: "Snapshot " + id + " not found"}
}
