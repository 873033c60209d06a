package sandboxtest_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestGet(t *testing.T) {
	bubble(t, "misses a new sandbox for a while, which a delete does not", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.GetMissesNew = 3 * time.Second })
		i := made(t, p, "a")
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
		time.Sleep(3 * time.Second)
		assert.Equal(t, sandbox.StateRunning, state(t, p, i.ID))
		j := made(t, p, "b")
		require.NoError(t, p.Delete(t.Context(), j.ID))
		assert.Equal(t, []string{i.ID}, ids(p.Live()))
	})
	bubble(t, "shows a ghost after the delete", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.GetShowsDeleted = 3 * time.Second })
		i := made(t, p, "a")
		require.NoError(t, p.Delete(t.Context(), i.ID))
		assert.Empty(t, p.Live())
		assert.Equal(t, sandbox.StateRunning, state(t, p, i.ID))
		time.Sleep(3 * time.Second)
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
	})
	bubble(t, "is stale in state and deadline", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.GetStale = 10 * time.Second })
		i := made(t, p, "a")
		time.Sleep(time.Minute)
		_, err := p.Extend(t.Context(), i, 3*time.Minute)
		require.NoError(t, err)
		p.Fail(i.ID, "gave up")
		got, err := p.Get(t.Context(), i.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, got.State)
		assert.Equal(t, i.Deadline, got.Deadline)
		time.Sleep(10 * time.Second)
		got, err = p.Get(t.Context(), i.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateFailed, got.State)
		assert.Equal(t, "gave up", got.Detail)
		assert.Equal(t, i.Deadline.Add(time.Minute), got.Deadline)
	})
	bubble(t, "is asked under another account's key", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Behave(func(b *sandboxtest.Behaviour) { b.WrongScope = true })
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
		require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrNotFound)
		found, err := listed(p, sandbox.Filter{})
		require.NoError(t, err)
		assert.Empty(t, found)
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "fails with 502", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(502)})
		_, err := p.Get(t.Context(), i.ID)
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		require.NotErrorIs(t, err, sandbox.ErrNotFound)
		e, _ := errors.AsType[*sandbox.APIError](err)
		assert.Equal(t, i.ID, e.ID)
	})
}

func TestList(t *testing.T) {
	all := sandbox.Filter{}
	see := func(t *testing.T, p *sandboxtest.Provider, f sandbox.Filter) []string {
		t.Helper()
		ids, err := listed(p, f)
		require.NoError(t, err)
		return ids
	}
	bubble(t, "lags after create and delete", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.ListMissesNew, b.ListShowsDeleted = 3*time.Second, 4*time.Second })
		i := made(t, p, "a")
		assert.Empty(t, see(t, p, all))
		time.Sleep(3 * time.Second)
		assert.Equal(t, []string{i.ID}, see(t, p, all))
		require.NoError(t, p.Delete(t.Context(), i.ID))
		assert.Equal(t, []string{i.ID}, see(t, p, all))
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
		time.Sleep(4 * time.Second)
		assert.Empty(t, see(t, p, all))
	})
	bubble(t, "flaps after a delete: as before, then absent, in turn", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.ListFlaps = 3 * time.Second })
		i := made(t, p, "a")
		time.Sleep(3 * time.Second)
		require.NoError(t, p.Delete(t.Context(), i.ID))
		var rounds []int
		for range 4 {
			rounds = append(rounds, len(see(t, p, all)))
		}
		slices.Sort(rounds)
		assert.Equal(t, []int{0, 0, 1, 1}, rounds)
		time.Sleep(3 * time.Second)
		assert.Empty(t, see(t, p, all))
		assert.Empty(t, see(t, p, all))
	})
	bubble(t, "flaps, and shows the state of before", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.ListFlaps, b.DeleteTime = 3*time.Second, time.Minute })
		i := made(t, p, "a")
		time.Sleep(3 * time.Second)
		require.NoError(t, p.Delete(t.Context(), i.ID))
		var shown []sandbox.State
		for range 2 {
			for got := range p.List(t.Context(), all) {
				shown = append(shown, got.State)
			}
		}
		assert.Equal(t, []sandbox.State{sandbox.StateRunning}, shown, "in one list of two")
	})
	bubble(t, "is stale", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.ListStale = 10 * time.Second })
		i := made(t, p, "a")
		time.Sleep(time.Minute)
		p.Pause(i.ID)
		for got, err := range p.List(t.Context(), all) {
			require.NoError(t, err)
			assert.Equal(t, sandbox.StateRunning, got.State)
		}
	})
	bubble(t, "comes in pages, each a call", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.PageSize = 10 })
		for i := range 25 {
			made(t, p, string(rune('a'+i)))
		}
		assert.Len(t, see(t, p, all), 25)
		assert.Len(t, p.Calls(sandbox.OpList), 3)
	})
	bubble(t, "fails on page 2, and says so after the first page", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.PageSize = 10 })
		for i := range 25 {
			made(t, p, string(rune('a'+i)))
		}
		p.Fault(sandbox.OpList, sandboxtest.Fault{Skip: 1, Err: sandboxtest.Status(500)})
		ids, err := listed(p, all)
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		assert.Len(t, ids, 10)
	})
	bubble(t, "repeats its cursor, which is an error", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.RepeatCursor = true })
		made(t, p, "a")
		_, err := listed(p, all)
		require.ErrorContains(t, err, "cursor")
		require.NotErrorIs(t, err, sandbox.ErrNotFound)
	})
	bubble(t, "is empty and claims success", func(t *testing.T) {
		p := everything(nil)
		made(t, p, "a")
		p.Fault(sandbox.OpList, sandboxtest.Fault{Effect: sandboxtest.EffectNone})
		assert.Empty(t, see(t, p, all))
		assert.Len(t, see(t, p, all), 1)
	})
	bubble(t, "narrows by fleet and nonce, or by the first only, or not at all", func(t *testing.T) {
		p := everything(nil)
		a := made(t, p, "a")
		b := made(t, p, "b")
		req := order("c")
		req.Mark.Fleet = "other"
		c, err := p.Create(t.Context(), req)
		require.NoError(t, err)
		f := sandbox.Filter{Fleet: "test", Nonce: nonce("a")}
		assert.Equal(t, []string{a.ID}, see(t, p, f))
		assert.Equal(t, []string{c.ID}, see(t, p, sandbox.Filter{Nonce: nonce("c")}))
		p.Behave(func(b *sandboxtest.Behaviour) { b.OneFilter = true })
		assert.Equal(t, []string{a.ID, b.ID}, see(t, p, f))
		p.Behave(func(b *sandboxtest.Behaviour) { b.IgnoreFilter = true })
		assert.Equal(t, []string{a.ID, b.ID, c.ID}, see(t, p, f))
	})
	bubble(t, "hides states", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) {
			b.ListHides = []sandbox.State{sandbox.StateDormant, sandbox.StateFailed}
		})
		a, b, c := made(t, p, "a"), made(t, p, "b"), made(t, p, "c")
		p.Pause(a.ID)
		p.Fail(b.ID, "")
		assert.Equal(t, []string{c.ID}, see(t, p, all))
		assert.Equal(t, sandbox.StateDormant, state(t, p, a.ID))
	})
	bubble(t, "keeps terminal rows whose delete answers 404", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.ListShowsGone = true })
		i := made(t, p, "a")
		require.NoError(t, p.Delete(t.Context(), i.ID))
		for got, err := range p.List(t.Context(), all) {
			require.NoError(t, err)
			assert.Equal(t, sandbox.StateGone, got.State)
		}
		assert.Len(t, see(t, p, all), 1)
		require.ErrorIs(t, p.Delete(t.Context(), i.ID), sandbox.ErrNotFound)
	})
	bubble(t, "prints times without a zone, which nobody reads", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.ZonelessTimes = true })
		made(t, p, "a")
		for got, err := range p.List(t.Context(), all) {
			require.NoError(t, err)
			assert.True(t, got.Created.IsZero())
			assert.True(t, got.Deadline.IsZero())
		}
	})
	bubble(t, "stops asking when the caller stops", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.PageSize = 1 })
		made(t, p, "a")
		made(t, p, "b")
		for range p.List(t.Context(), all) {
			break
		}
		assert.Len(t, p.Calls(sandbox.OpList), 1)
	})
	bubble(t, "copes with a page that changes under it", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.PageSize = 2 })
		var all6 []string
		for i := range 6 {
			all6 = append(all6, made(t, p, string(rune('a'+i))).ID)
		}
		var seen []string
		for i, err := range p.List(t.Context(), all) {
			require.NoError(t, err)
			seen = append(seen, i.ID)
			require.NoError(t, p.Delete(t.Context(), i.ID))
		}
		assert.Equal(t, all6, seen)
	})
}
