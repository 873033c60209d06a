package vercelfake

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// snapshot is a saved file system. Its fields are guarded by Server.mu.
type snapshot struct {
	id, session string
	box         *box
	region      string
	method      string
	parent      string
	created     time.Time
	used        time.Time
	updated     time.Time
	kept        time.Duration // since its last use; 0: for ever
	deleted     bool
	files       *shell.FS // nil: none were written
}

// snapshotWish is what a call asks of a snapshot.
type snapshotWish struct {
	expiration *int64
}

// A Snapshot is one as the wire has it.
type Snapshot struct {
	ID              string   `json:"id"`
	SourceSessionID string   `json:"sourceSessionId"`
	Region          string   `json:"region"`
	Regions         []string `json:"regions,omitempty"`
	Status          string   `json:"status"`
	SizeBytes       int64    `json:"sizeBytes"`
	ExpiresAt       int64    `json:"expiresAt,omitempty"`
	CreatedAt       int64    `json:"createdAt"`
	UpdatedAt       int64    `json:"updatedAt"`
	LastUsedAt      int64    `json:"lastUsedAt,omitempty"`
	CreationMethod  string   `json:"creationMethod,omitempty"`
	ParentID        string   `json:"parentId,omitempty"`

	Sandbox string `json:"-"` // name of the one that it was made from, which the wire does not tell
}

func (n *snapshot) view() Snapshot {
	v := Snapshot{
		ID: n.id, SourceSessionID: n.session, Region: n.region, Regions: []string{n.region}, Status: "created", SizeBytes: 1 << 28,
		CreatedAt: ms(n.created), UpdatedAt: ms(n.updated), LastUsedAt: ms(n.used), CreationMethod: n.method, ParentID: n.parent,
		Sandbox: n.box.name,
	}
	if n.deleted {
		v.Status = "deleted"
	}
	if n.kept > 0 {
		v.ExpiresAt = ms(n.used.Add(n.kept))
	}
	return v
}

// Snapshots returns those of all projects that exist, oldest first.
func (s *Server) Snapshots() []Snapshot {
	s.Settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Snapshot
	for _, n := range s.snapshots {
		if !n.deleted {
			all = append(all, n.view())
		}
	}
	return all
}

// findSnapshot returns one that exists, or nil. The lock is held.
func (s *Server) findSnapshot(id string) *snapshot {
	for _, n := range s.snapshots {
		if n.id == id && !n.deleted {
			return n
		}
	}
	return nil
}

// keepFiles makes the snapshot of a session that ends. The lock is held.
func (s *Server) keepFiles(ses *session, at time.Time) *snapshot {
	b := ses.box
	n := &snapshot{
		id: newID("snap_"), session: ses.id, box: b, region: b.region, method: "automatic", parent: ses.source,
		created: at, used: at, updated: at, kept: defaultExpiration, files: ses.files,
	}
	if n.files == nil {
		n.files = ses.base
	}
	for _, e := range []*int64{b.expiration, b.keepExpiration()} {
		if e != nil {
			n.kept = time.Duration(*e) * time.Millisecond
		}
	}
	if ses.wanted != nil {
		n.method = "manual"
		if e := ses.wanted.expiration; e != nil {
			n.kept = time.Duration(*e) * time.Millisecond
		}
	}
	ses.snapshotted = at
	s.snapshots = append(s.snapshots, n)
	b.snapshot = n.id
	if b.keep != nil && (b.keep.DeleteEvicted == nil || *b.keep.DeleteEvicted) {
		mine := 0
		for _, o := range slices.Backward(s.snapshots) {
			if o.box == b && !o.deleted && o.method == "automatic" {
				if mine++; mine > b.keep.Count && !s.referenced(o) {
					o.deleted, o.updated = true, at
				}
			}
		}
	}
	return n
}

func (b *box) keepExpiration() *int64 {
	if b.keep == nil {
		return nil
	}
	return b.keep.Expiration
}

// referenced reports whether a sandbox other than its own still needs a snapshot. The lock is held.
func (s *Server) referenced(n *snapshot) bool {
	return slices.ContainsFunc(s.boxes, func(b *box) bool {
		return b != n.box && b.recordEnd.IsZero() && (b.snapshot == n.id || b.current().source == n.id)
	})
}

// expireSnapshots deletes those whose time is over, and the orphans of deletes that asked for it. The lock is held.
func (s *Server) expireSnapshots(now time.Time) {
	for _, n := range s.snapshots {
		orphaned := n.created
		if n.box.purged.After(orphaned) {
			orphaned = n.box.purged
		}
		orphaned = orphaned.Add(s.quirks.OrphanLag)
		old := n.kept > 0 && !now.Before(n.used.Add(n.kept))
		orphan := !n.box.purged.IsZero() && !now.Before(orphaned) && !s.referenced(n)
		if !n.deleted && (old || orphan) {
			n.deleted, n.updated = true, now
		}
	}
}

// snapshotSession saves the files of a session, which ends it.
func (s *Server) snapshotSession(ctx context.Context, c *call) (any, error) {
	var body struct {
		Expiration *int64 `json:"expiration"`
	}
	if err := c.decode(&body); err != nil {
		return nil, err
	}
	if body.Expiration != nil {
		if err := expiration(*body.Expiration); err != nil {
			return nil, err
		}
	}
	ses, rec, err := s.live(c)
	if err != nil {
		return nil, err
	}
	if err := s.halt(ctx, ses, rec, &snapshotWish{body.Expiration}); err != nil {
		return nil, err
	}
	if err := s.wait(ctx, ses); err != nil {
		return nil, err
	}
	now, _ := s.svc.Lookup(ses.box.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.findSnapshot(ses.made)
	if n == nil { // it ended otherwise meanwhile
		return nil, &problem{status: http.StatusInternalServerError, message: "The snapshot could not be created"}
	}
	return map[string]any{"snapshot": n.view(), "session": s.sessionView(ses, now)}, nil
}

func (s *Server) listSnapshots(ctx context.Context, c *call) (any, error) {
	p, err := s.paging(c, "createdAt")
	if err != nil {
		return nil, err
	}
	if err := s.svc.Ping(ctx, sandbox.OpSnapshot); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := p.Get("name")
	var rows []Snapshot
	for _, n := range s.snapshots {
		if n.deleted || n.box.project != c.project || name != "" && name != n.box.name {
			continue
		}
		if name != "" && s.quirks.NameForgets && (n.box.deleted != "" || !n.box.recordEnd.IsZero()) {
			continue
		}
		rows = append(rows, n.view())
	}
	rows, pages := cut(p, rows, func(v Snapshot) place { return place{sortable(v.CreatedAt), v.ID} })
	return map[string]any{"snapshots": rows, "pagination": pages}, nil
}

// snapshotOf returns the snapshot that a path names.
func (s *Server) snapshotOf(ctx context.Context, c *call) (*snapshot, error) {
	if err := s.svc.Ping(ctx, sandbox.OpSnapshot); err != nil {
		return nil, err
	}
	id := c.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.findSnapshot(id)
	if n == nil || c.claims != nil && c.claims.Project != n.box.project.ID {
		return nil, notFound("Snapshot %s was not found", id)
	}
	return n, nil
}

func (s *Server) getSnapshot(ctx context.Context, c *call) (any, error) {
	n, err := s.snapshotOf(ctx, c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{"snapshot": n.view()}, nil
}

func (s *Server) deleteSnapshot(ctx context.Context, c *call) (any, error) {
	n, err := s.snapshotOf(ctx, c)
	if err != nil {
		return nil, err
	}
	now := s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.fault.Ignore {
		n.deleted, n.updated = true, now
	}
	v := n.view()
	v.Status = "deleted"
	return map[string]any{"snapshot": v}, nil
}
