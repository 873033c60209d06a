package sandboxtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestDelete(t *testing.T) {
	bubble(t, "confirms", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		require.NoError(t, p.Delete(t.Context(), i.ID))
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
		require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrNotFound, "gone already")
	})
	bubble(t, "accepts, and the sandbox is ending for a while", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.DeleteTime = 5 * time.Second })
		i := made(t, p, "a")
		require.NoError(t, p.Delete(t.Context(), i.ID))
		assert.Equal(t, sandbox.StateEnding, state(t, p, i.ID))
		time.Sleep(4 * time.Second)
		require.NoError(t, p.Delete(t.Context(), i.ID), "a second one joins the first")
		assert.Len(t, p.Live(), 1)
		time.Sleep(time.Second)
		assert.Empty(t, p.Live())
	})
	bubble(t, "also of what is being stopped leaves nothing", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.EndTime, b.AtExpiry = 5*time.Second, sandbox.StateDormant })
		i := made(t, p, "a")
		time.Sleep(3 * time.Minute)
		require.NoError(t, p.Delete(t.Context(), i.ID))
		time.Sleep(5 * time.Second)
		assert.Empty(t, p.Residue())
	})
	bubble(t, "conflicts N times", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(409), Times: 3})
		for range 3 {
			require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrConflict)
		}
		require.NoError(t, p.Delete(t.Context(), i.ID))
	})
	bubble(t, "conflicts always", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(409), Times: -1})
		for range 50 {
			require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrConflict)
		}
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "is refused while the sandbox starts", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.BusyWhileStarting, b.StartTime = true, 3*time.Second })
		i := made(t, p, "a")
		require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrConflict)
		time.Sleep(3 * time.Second)
		require.NoError(t, p.Delete(t.Context(), i.ID))
	})
	bubble(t, "fails while the sandbox is paused", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.FailsWhileDormant = true })
		i := made(t, p, "a")
		p.Pause(i.ID)
		require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrUnavailable)
		assert.Len(t, p.Residue(), 1)
		p.Resume(i.ID)
		require.NoError(t, p.Delete(t.Context(), i.ID))
	})
	bubble(t, "is not permitted", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.NoDelete = true })
		i := made(t, p, "a")
		require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrPermission)
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "answers 204 and does nothing, once or always", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectNone})
		require.NoError(t, p.Delete(t.Context(), i.ID))
		assert.Len(t, p.Live(), 1)
		require.NoError(t, p.Delete(t.Context(), i.ID))
		assert.Empty(t, p.Live())
	})
	bubble(t, "fails with 500, and the record is gone while the machine runs", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.OrphanTime = 80 * time.Second })
		i := made(t, p, "a")
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectOrphan, Err: sandboxtest.Status(500), After: true})
		require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrUnavailable)
		require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrNotFound)
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
		found, err := listed(p, sandbox.Filter{})
		require.NoError(t, err)
		assert.Empty(t, found)
		assert.Len(t, p.Live(), 1, "the truth")
		time.Sleep(80 * time.Second)
		assert.Empty(t, p.Live(), "the platform found it")
	})
	bubble(t, "fails with 500 after all was done", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), After: true})
		require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrUnavailable)
		assert.Empty(t, p.Live())
	})
	bubble(t, "is an operation that takes a while", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.PendingTime = time.Minute })
		i := made(t, p, "a")
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectPending})
		require.NoError(t, p.Delete(t.Context(), i.ID))
		time.Sleep(time.Minute - 1)
		assert.Equal(t, sandbox.StateEnding, state(t, p, i.ID))
		time.Sleep(time.Nanosecond)
		assert.Empty(t, p.Live())
	})
	bubble(t, "is an operation that is blocked until the lease ends it", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectBlocked})
		require.NoError(t, p.Delete(t.Context(), i.ID))
		time.Sleep(3*time.Minute - 1)
		assert.Equal(t, sandbox.StateEnding, state(t, p, i.ID))
		time.Sleep(time.Nanosecond)
		assert.Empty(t, p.Live())
	})
	bubble(t, "hangs, with and without effect", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Hang: true}, sandboxtest.Fault{Hang: true, After: true})
		require.ErrorIs(t, p.Delete(within(t, time.Second), i.ID), context.DeadlineExceeded)
		assert.Len(t, p.Live(), 1)
		require.ErrorIs(t, p.Delete(within(t, time.Second), i.ID), context.DeadlineExceeded)
		assert.Empty(t, p.Live())
	})
	bubble(t, "is slow", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Delay: 5 * time.Second})
		start := time.Now()
		require.NoError(t, p.Delete(t.Context(), i.ID))
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
	bubble(t, "is undone by a resume in flight: alive again, as another run", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.ReviveAfter = 2 * time.Second })
		i := made(t, p, "a")
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectRevive})
		require.NoError(t, p.Delete(t.Context(), i.ID))
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
		time.Sleep(2 * time.Second)
		got, err := p.Get(t.Context(), i.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, got.State)
		assert.NotEqual(t, i.Run, got.Run)
		assert.Equal(t, 3*time.Minute, got.Left())
		require.NoError(t, p.Delete(t.Context(), i.ID))
		time.Sleep(time.Minute)
		assert.Empty(t, p.Live())
	})
	bubble(t, "with a dead context is never sent", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.Delete(ctx, i.ID), context.Canceled)
		assert.Empty(t, p.Calls(sandbox.OpDelete))
		assert.Len(t, p.Live(), 1)
	})
}

func TestThirdParties(t *testing.T) {
	bubble(t, "pause and resume: another run, with the resumer's lease", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.ResumeWindow = 5 * time.Minute })
		i := made(t, p, "a")
		assert.True(t, p.Pause(i.ID))
		assert.False(t, p.Pause(i.ID))
		time.Sleep(time.Hour)
		got, err := p.Get(t.Context(), i.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateDormant, got.State)
		assert.True(t, got.Deadline.IsZero(), "no lease ends it")
		assert.True(t, p.Resume(i.ID))
		got, err = p.Get(t.Context(), i.ID)
		require.NoError(t, err)
		assert.Equal(t, 5*time.Minute, got.Left())
		assert.NotEqual(t, i.Run, got.Run)
		assert.Equal(t, i.Created, got.Created)
	})
	bubble(t, "freeze: the lease stands still, the run is the same", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		assert.True(t, p.Freeze(i.ID))
		time.Sleep(time.Hour)
		assert.Equal(t, sandbox.StateDormant, state(t, p, i.ID))
		assert.Equal(t, []string{i.ID}, ids(p.Residue()))
		assert.True(t, p.Thaw(i.ID))
		assert.Empty(t, p.Live(), "its deadline has passed")
	})
	bubble(t, "kill", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		assert.True(t, p.Kill(i.ID))
		assert.False(t, p.Kill(i.ID))
		assert.False(t, p.Kill("sb-99"))
		assert.Empty(t, p.Live())
	})
	bubble(t, "fork: tags are inherited, and the mark counts only on the name it was written for", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		id := p.Fork(i.ID)
		got, err := p.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, i.Tags, got.Tags)
		assert.Zero(t, got.Mark)
		assert.Empty(t, p.Fork("sb-99"))

		p.Behave(func(b *sandboxtest.Behaviour) { b.UniqueNames = false })
		got, err = p.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, i.Mark, got.Mark, "where the service has no names of ours")
		p.DropTags(id)
		assert.NotEmpty(t, p.Live()[0].Tags, "the original keeps its own")
	})
	bubble(t, "rename and loss of tags take the mark away", func(t *testing.T) {
		p := everything(nil)
		a, b := made(t, p, "a"), made(t, p, "b")
		assert.True(t, p.Rename(a.ID, "mine"))
		assert.True(t, p.DropTags(b.ID, sandbox.MarkKey))
		for _, i := range p.Live() {
			assert.Zero(t, i.Mark)
			assert.Equal(t, map[string]string{"job": "7"}, i.Tags)
		}
		assert.NotEqual(t, a.ID, made(t, p, "a").ID, "its old name is free")
	})
	bubble(t, "traffic restarts the idle clock where activity extends", func(t *testing.T) {
		p := extending(sandbox.ExtendActivity, nil)
		i := made(t, p, "a")
		for range 10 {
			time.Sleep(2 * time.Minute)
			assert.True(t, p.Touch(i.ID))
		}
		assert.Len(t, p.Live(), 1)
		time.Sleep(3 * time.Minute)
		assert.Empty(t, p.Live())
	})
}
