package sandbox_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

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

// unshortened is a provider that cannot bring the end of what it could not delete nearer.
type unshortened struct{ sandbox.Provider }

// The provider was down when the scope ended, so that it could not verify the delete, and is back when somebody else
// takes the sandbox over.
func TestARetryOfAnEndedScopeLeavesASandboxThatAnotherProcessHasTakenOver(t *testing.T) {
	for name, retry := range map[string]func(context.Context, *sandbox.Manager) error{
		"by a replay":   func(ctx context.Context, m *sandbox.Manager) error { return m.Replay(ctx) },
		"by a shutdown": func(ctx context.Context, m *sandbox.Manager) error { return m.Shutdown(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			spool := t.TempDir()
			quiet := []sandbox.Observer{func(context.Context, sandbox.Event) {}}
			synctest.Test(t, func(t *testing.T) {
				p := sandboxtest.New(sandboxtest.Everything())
				manager := func() (*sandbox.Manager, *journal.Journal) {
					j, err := journal.Open(spool)
					require.NoError(t, err)
					m, err := sandbox.NewManager(unshortened{p}, sandbox.Config{Fleet: "ci", Journal: j, MaxLive: 1, Observers: quiet})
					require.NoError(t, err)
					return m, j
				}
				old, oldJournal := manager()
				defer oldJournal.Close()
				next, nextJournal := manager()
				defer nextJournal.Close()
				var id string
				err := old.WithSandbox(t.Context(), func(_ context.Context, sb sandbox.Sandbox) error {
					id = sb.ID()
					p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
					p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
					return nil
				})
				_, leaked := errors.AsType[*sandbox.LeakError](err)
				require.True(t, leaked, "%v", err)
				p.Heal()
				require.NoError(t, next.AttachSandbox(t.Context(), id, true, func(ctx context.Context, sb sandbox.Sandbox) error {
					deletes := len(p.Calls(sandbox.OpDelete))
					assert.NoError(t, retry(ctx, old), "it is not the old one's to end any more")
					assert.Equal(t, deletes, len(p.Calls(sandbox.OpDelete)))
					assert.Empty(t, old.Live())
					time.Sleep(10 * mins)
					_, err := sb.Exec(ctx, sandbox.Shell("true"))
					return err
				}))
				assert.Empty(t, p.Live())
				files, err := os.ReadDir(spool)
				require.NoError(t, err)
				assert.Empty(t, files)
			})
		})
	}
}

func TestARetryGoesOnWhereTheJournalFails(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
		require.Error(t, w.m.WithSandbox(context.Background(), ok))
		w.p.Heal()
		w.journal.FailPut(errors.New("no space left on device"))
		assert.NoError(t, w.m.Replay(context.Background()))
		w.settle(nil)
	})
}
