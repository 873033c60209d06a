package sweep_test

import (
	"bytes"
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// snaps returns the ids of all snapshots that the service has.
func (w *world) snaps() (ids []string) {
	w.t.Helper()
	for s, err := range w.Snapshots(context.Background(), "") {
		require.NoError(w.t, err)
		ids = append(ids, s.ID)
	}
	return ids
}

func TestWhatWasMadeFromADeletedSandboxGoesWithItAndNothingElse(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		dead := w.make(1, window(time.Minute))[0]
		alive := w.make(1, window(10*time.Hour))[0]
		foreign := w.make(1, window(time.Minute), ofFleet("other"))[0]
		gone := []string{w.Snapshot(dead), w.Snapshot(dead)}
		stay := []string{w.Snapshot(alive), w.Snapshot(foreign)}
		time.Sleep(10 * time.Minute)
		assert.Equal(t, append(gone, stay...), w.snaps())
		r, err := w.sweeper().Sweep(context.Background())
		require.NoError(t, err)
		assert.Equal(t, stay, w.snaps())
		assert.Equal(t, []string{alive, foreign}, w.there(dead, alive, foreign))
		require.Len(t, w.item(r, dead).Snapshots, 2)
		assert.Equal(t, sweep.Deleted, w.item(r, dead).Snapshots[0].Outcome)
		var table bytes.Buffer
		require.NoError(t, r.WriteTable(&table))
		assert.Regexp(t, `deleted +`+gone[0]+` +snapshot +10m0s .*made from `+dead, table.String())
	})
}

func TestSnapshotsAreOnlyReportedWhereTheyAreToBeKeptOrNothingIsToBeWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*sweep.Config)
		outcome sweep.Outcome
		there   bool
	}{
		"kept":    {change: func(c *sweep.Config) { c.KeepSnapshots = true }, outcome: sweep.Kept},
		"dry run": {change: func(c *sweep.Config) { c.DryRun = true }, outcome: sweep.WouldDelete, there: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				id := w.make(1)[0]
				snap := w.Snapshot(id)
				time.Sleep(10 * time.Minute)
				r, err := w.sweeper(tc.change).Sweep(context.Background())
				require.NoError(t, err)
				require.Len(t, w.item(r, id).Snapshots, 1)
				assert.Equal(t, tc.outcome, w.item(r, id).Snapshots[0].Outcome)
				assert.Equal(t, []string{snap}, w.snaps())
				assert.Equal(t, tc.there, len(w.there(id)) == 1)
			})
		})
	}
}

func TestSnapshotsThatCannotBeSeenOrDeletedFailThePassAndNotTheDelete(t *testing.T) {
	for name, tc := range map[string]struct {
		fault sandboxtest.Fault
		is    error
	}{
		"not seen":    {sandboxtest.Fault{Err: sandboxtest.Status(500)}, sweep.ErrBlind},
		"not deleted": {sandboxtest.Fault{Err: sandboxtest.Status(403), Skip: 1, Times: -1}, sweep.ErrLeft},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				id := w.make(1)[0]
				snap := w.Snapshot(id)
				time.Sleep(10 * time.Minute)
				w.Fault(sandbox.OpSnapshot, tc.fault)
				r, err := w.sweeper().Sweep(context.Background())
				assert.ErrorIs(t, err, tc.is)
				assert.ErrorContains(t, err, id)
				assert.Equal(t, sweep.Deleted, w.item(r, id).Outcome)
				assert.NotEmpty(t, w.item(r, id).Error)
				assert.Empty(t, w.there(id))
				w.Heal()
				assert.Equal(t, []string{snap}, w.snaps())
			})
		})
	}
}

// A careless service lists the snapshots of all.
type careless struct{ account }

func (c careless) Unwrap() sandbox.Provider { return c.account }

func (c careless) Snapshots(ctx context.Context, _ string) iter.Seq2[sandbox.Snapshot, error] {
	return c.w.Snapshots(ctx, "")
}

func (c careless) DeleteSnapshot(ctx context.Context, s sandbox.Snapshot) error {
	return c.w.DeleteSnapshot(ctx, s)
}

func TestASnapshotOfAnotherSandboxIsNeverTouchedWhateverTheListSays(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		id := w.make(1)[0]
		foreign := w.make(1, ofFleet("other"))[0]
		w.Snapshot(id)
		stays := w.Snapshot(foreign)
		time.Sleep(10 * time.Minute)
		_, err := w.sweeper(func(c *sweep.Config) { c.Providers = []sandbox.Provider{careless{account{w.Provider, w}}} }).Sweep(context.Background())
		require.NoError(t, err)
		assert.Equal(t, []string{stays}, w.snaps())
	})
}
