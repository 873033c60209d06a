package sweep

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// snapshots lists what was made from the item's sandbox, before that is deleted: afterwards nothing may tell whose it was.
// That it cannot be listed is no reason to let the sandbox run on, but one to say so.
func (p *pass) snapshots(ctx context.Context, it *item) {
	s, ok := sandbox.As[sandbox.Snapshotter](p.a.p.Provider)
	if !ok {
		return
	}
	id := it.look.info.ID
	found, err := contain.Call(ctx, p.cfg.ListTimeout, func(ctx context.Context) (found []sandbox.Snapshot, err error) {
		for snap, err := range s.Snapshots(ctx, id) {
			if err != nil {
				return found, p.a.p.heed(err)
			}
			if snap.Source == id { // the service may ignore the filter
				found = append(found, snap)
			}
		}
		return found, nil
	})
	if err != nil {
		it.unlisted = fmt.Errorf("what was made from sandbox %s: %w", id, err)
	}
	for _, snap := range found {
		it.snapshots = append(it.snapshots, Snapshot{ID: snap.ID, Kind: snap.Kind, Created: snap.Created, Outcome: Kept})
	}
}

// clear deletes what was made from a sandbox that is gone.
func (p *pass) clear(ctx context.Context, it *item) {
	s, ok := sandbox.As[sandbox.Snapshotter](p.a.p.Provider)
	if !ok || p.cfg.KeepSnapshots {
		return
	}
	id := it.look.info.ID
	for i := range it.snapshots {
		snap := &it.snapshots[i]
		if p.cfg.DryRun {
			snap.Outcome = WouldDelete
			continue
		}
		err := p.a.p.wait(ctx)
		if err == nil {
			err = contain.Do(ctx, lookTime, func(ctx context.Context) error {
				return p.a.p.heed(s.DeleteSnapshot(ctx, sandbox.Snapshot{ID: snap.ID, Source: id, Kind: snap.Kind, Created: snap.Created}))
			})
		}
		if snap.Outcome = Deleted; err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			snap.Outcome, snap.Error = Left, err.Error()
			it.uncleared = append(it.uncleared, fmt.Errorf("%s %s of sandbox %s: %w", snap.Kind, snap.ID, id, err))
		}
	}
}
