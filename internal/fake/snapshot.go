package fake

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Snapshot is an object that was made from a sandbox and outlives it.
type Snapshot struct {
	ID, Source string
	Created    time.Time
}

// Snapshot makes one of a sandbox that exists, and returns its id, or "" if there is no such sandbox.
func (s *Service) Snapshot(id string) string {
	s.lock()
	defer s.unlock()
	if r := s.byID[id]; r == nil || !r.exists() {
		return ""
	}
	s.seq++
	snap := Snapshot{ID: "snap-" + strconv.Itoa(s.seq), Source: id, Created: s.now()}
	s.snapshots = append(s.snapshots, snap)
	return snap.ID
}

// Snapshots returns those of a sandbox, which may be gone, in the order of their making; "": all.
func (s *Service) Snapshots(ctx context.Context, source string) (found []Snapshot, err error) {
	err = s.do(ctx, sandbox.OpSnapshot, func(time.Time, Fault) error {
		for _, snap := range s.snapshots {
			if source == "" || snap.Source == source {
				found = append(found, snap)
			}
		}
		return nil
	})
	return found, err
}

// DeleteSnapshot removes one.
func (s *Service) DeleteSnapshot(ctx context.Context, id string) error {
	return s.do(ctx, sandbox.OpSnapshot, func(_ time.Time, f Fault) error {
		if f.Effect == EffectNone {
			return nil
		}
		i := slices.IndexFunc(s.snapshots, func(snap Snapshot) bool { return snap.ID == id })
		if i < 0 {
			return unknown()
		}
		s.snapshots = slices.Delete(s.snapshots, i, i+1)
		return nil
	})
}
