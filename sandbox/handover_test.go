package sandbox_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// Two journals on one spool hold locks against each other as two processes do.
func TestASandboxIsHandedOverThroughASpoolOnlyWhenItsOwnerLetsGo(t *testing.T) {
	defer goleak.VerifyNone(t)
	spool, p := t.TempDir(), sandboxtest.New(sandbox.Capabilities{})
	manager := func() (*sandbox.Manager, *journal.Journal) {
		j, err := journal.Open(spool)
		require.NoError(t, err)
		m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci", Journal: j, Scope: sandbox.Scope{KeepOnError: 10 * mins}})
		require.NoError(t, err)
		return m, j
	}
	old, oldJournal := manager()
	defer oldJournal.Close()
	next, nextJournal := manager()
	defer nextJournal.Close()
	var id string
	require.ErrorIs(t, old.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
		id = sb.ID()
		assert.ErrorIs(t, next.AttachSandbox(ctx, id, true, ok), sandbox.ErrConflict)
		return errTask
	}), errTask)
	require.Len(t, p.Live(), 1)
	require.NoError(t, next.AttachSandbox(t.Context(), id, true, func(ctx context.Context, sb sandbox.Sandbox) error {
		third, thirdJournal := manager()
		defer thirdJournal.Close()
		assert.ErrorIs(t, third.AttachSandbox(ctx, id, true, ok), sandbox.ErrConflict, "its new owner lives")
		assert.NoError(t, third.Replay(ctx))
		_, err := sb.Exec(ctx, sandbox.Shell("true"))
		return err
	}))
	assert.Empty(t, p.Live())
	files, err := os.ReadDir(spool)
	require.NoError(t, err)
	assert.Empty(t, files)
}
