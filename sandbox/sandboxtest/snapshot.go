package sandboxtest

import (
	"context"
	"iter"

	"github.com/sandglass-dev/sandglass/sandbox"
)

var _ sandbox.Snapshotter = (*Provider)(nil)

// Snapshot has somebody make a snapshot of a sandbox, and returns its id, or "" if there is no sandbox id. Nothing but
// [Provider.DeleteSnapshot] ends it.
func (p *Provider) Snapshot(id string) string { return p.svc.Snapshot(id) }

// Snapshots implements [sandbox.Snapshotter]. An empty id asks for those of all sandboxes. Faults are those of
// [sandbox.OpSnapshot].
func (p *Provider) Snapshots(ctx context.Context, id string) iter.Seq2[sandbox.Snapshot, error] {
	return func(yield func(sandbox.Snapshot, error) bool) {
		call, err := p.arrive(ctx, Call{Op: sandbox.OpSnapshot, ID: id})
		if err != nil {
			yield(sandbox.Snapshot{}, err)
			return
		}
		found, err := p.svc.Snapshots(ctx, id)
		err = p.failure(sandbox.OpSnapshot, id, err)
		p.leave(call, &err)
		for _, s := range found {
			if !yield(sandbox.Snapshot{ID: s.ID, Source: s.Source, Kind: "snapshot", Created: s.Created}, nil) {
				return
			}
		}
		if err != nil {
			yield(sandbox.Snapshot{}, err)
		}
	}
}

// DeleteSnapshot implements [sandbox.Snapshotter].
func (p *Provider) DeleteSnapshot(ctx context.Context, s sandbox.Snapshot) (err error) {
	call, err := p.arrive(ctx, Call{Op: sandbox.OpSnapshot, ID: s.Source})
	if err != nil {
		return err
	}
	defer p.leave(call, &err)
	return p.failure(sandbox.OpSnapshot, s.Source, p.svc.DeleteSnapshot(ctx, s.ID))
}
