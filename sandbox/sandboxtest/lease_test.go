package sandboxtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestALeaseThatNobodyExtendsEndsTheSandbox(t *testing.T) {
	for _, mode := range []sandbox.ExtendMode{sandbox.ExtendSet, sandbox.ExtendAdd, sandbox.ExtendActivity, sandbox.ExtendNone} {
		bubble(t, mode.String(), func(t *testing.T) {
			p := extending(mode, nil)
			i := made(t, p, "a")
			time.Sleep(3*time.Minute - 1)
			assert.Equal(t, sandbox.StateRunning, state(t, p, i.ID))
			time.Sleep(time.Nanosecond)
			assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
			assert.Empty(t, p.Live())
			assert.Empty(t, p.Residue())
		})
	}
}

func TestExtend(t *testing.T) {
	for mode, left := range map[sandbox.ExtendMode]time.Duration{
		sandbox.ExtendSet: 5 * time.Minute, sandbox.ExtendAdd: 5 * time.Minute,
		sandbox.ExtendActivity: 3 * time.Minute, // the idle time of the create
		sandbox.ExtendNone:     2 * time.Minute, // what is left
	} {
		bubble(t, mode.String(), func(t *testing.T) {
			p := extending(mode, nil)
			i := made(t, p, "a")
			time.Sleep(time.Minute)
			i.AsOf = i.AsOf.Add(time.Minute) // as the core does
			got, err := p.Extend(t.Context(), i, 5*time.Minute)
			require.NoError(t, err)
			assert.Equal(t, left, got.Left())
			assert.Equal(t, left, p.Live()[0].Left())
			time.Sleep(left - 1)
			assert.Len(t, p.Live(), 1)
			time.Sleep(time.Nanosecond)
			assert.Empty(t, p.Live())
		})
	}
	bubble(t, "that is answered to nobody moves the end further where it adds", func(t *testing.T) {
		p := extending(sandbox.ExtendAdd, nil)
		i := made(t, p, "a")
		time.Sleep(time.Minute)
		i.AsOf = i.AsOf.Add(time.Minute)
		p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(500), After: true})
		_, err := p.Extend(t.Context(), i, 3*time.Minute)
		require.Error(t, err)
		_, err = p.Extend(t.Context(), i, 3*time.Minute) // a blind repetition
		require.NoError(t, err)
		assert.Equal(t, 4*time.Minute, p.Live()[0].Left())
	})
	bubble(t, "asks before it adds to what it does not know, and only looks when there is enough", func(t *testing.T) {
		p := extending(sandbox.ExtendAdd, nil)
		i := made(t, p, "a")
		time.Sleep(time.Minute)
		got, err := p.Extend(t.Context(), sandbox.Info{ID: i.ID}, 3*time.Minute)
		require.NoError(t, err)
		assert.Equal(t, 3*time.Minute, got.Left())
		_, err = p.Extend(t.Context(), got, 3*time.Minute)
		require.NoError(t, err)
		assert.Len(t, p.Calls(sandbox.OpExtend), 1)
		assert.Len(t, p.Calls(sandbox.OpGet), 2)
	})
	bubble(t, "cannot pass the hard end", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		got, err := p.Extend(t.Context(), i, 2*time.Hour)
		require.NoError(t, err)
		assert.Equal(t, time.Hour, got.Left())
		p.Behave(func(b *sandboxtest.Behaviour) { b.NoHardEnd = true })
		j := made(t, p, "b")
		got, err = p.Extend(t.Context(), j, 2*time.Hour)
		require.NoError(t, err)
		assert.Equal(t, 2*time.Hour, got.Left())
	})
	bubble(t, "wakes nothing that sleeps", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Pause(i.ID)
		got, err := p.Extend(t.Context(), i, 3*time.Minute)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateDormant, got.State)
		assert.True(t, got.Deadline.IsZero())
		assert.Empty(t, p.Live())
	})
	bubble(t, "of what is gone or ending is an error", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.DeleteTime = time.Minute })
		i := made(t, p, "a")
		require.NoError(t, p.Delete(t.Context(), i.ID))
		_, err := p.Extend(t.Context(), i, 3*time.Minute)
		require.ErrorIs(t, err, sandbox.ErrConflict)
		time.Sleep(time.Minute)
		_, err = p.Extend(t.Context(), i, 3*time.Minute)
		require.ErrorIs(t, err, sandbox.ErrNotFound)
	})
	bubble(t, "takes no window outside of the facts", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		for _, w := range []time.Duration{0, -time.Second, time.Millisecond, 1500 * time.Millisecond, 48 * time.Hour} {
			_, err := p.Extend(t.Context(), i, w)
			require.ErrorIs(t, err, sandbox.ErrInvalid)
		}
		assert.Empty(t, p.Calls(sandbox.OpExtend))
	})
}

func TestExtendFaults(t *testing.T) {
	extend := func(t *testing.T, p *sandboxtest.Provider, i sandbox.Info) (sandbox.Info, error) {
		t.Helper()
		return p.Extend(within(t, time.Second), i, 3*time.Minute)
	}
	for status, kind := range map[int]error{
		403: sandbox.ErrPermission, 404: sandbox.ErrNotFound, 409: sandbox.ErrConflict, 429: sandbox.ErrRateLimited,
		500: sandbox.ErrUnavailable,
	} {
		bubble(t, "N times "+kind.Error(), func(t *testing.T) {
			p := everything(nil)
			i := made(t, p, "a")
			time.Sleep(time.Minute)
			p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(status), Times: 2})
			for range 2 {
				_, err := extend(t, p, i)
				require.ErrorIs(t, err, kind)
			}
			assert.Equal(t, 2*time.Minute, p.Live()[0].Left(), "nothing was done")
			got, err := extend(t, p, i)
			require.NoError(t, err)
			assert.Equal(t, 3*time.Minute, got.Left())
		})
	}
	bubble(t, "no effect", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		time.Sleep(time.Minute)
		p.Fault(sandbox.OpExtend, sandboxtest.Fault{Effect: sandboxtest.EffectNone})
		got, err := extend(t, p, i)
		require.NoError(t, err)
		assert.Equal(t, 2*time.Minute, got.Left())
	})
	bubble(t, "succeeds on what is gone", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Kill(i.ID)
		p.Fault(sandbox.OpExtend, sandboxtest.Fault{Effect: sandboxtest.EffectNone})
		got, err := extend(t, p, i)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, got.State)
		_, err = extend(t, p, i)
		require.ErrorIs(t, err, sandbox.ErrNotFound)
	})
	bubble(t, "shortens", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpExtend, sandboxtest.Fault{Effect: sandboxtest.EffectShorten})
		got, err := extend(t, p, i)
		require.NoError(t, err)
		assert.Equal(t, 90*time.Second, got.Left())
	})
	bubble(t, "hangs until the caller leaves", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpExtend, sandboxtest.Fault{Hang: true})
		_, err := extend(t, p, i)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	bubble(t, "hangs and ignores its context until healed, and then takes effect", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpExtend, sandboxtest.Fault{Hang: true, Deaf: true, Times: -1})
		done := make(chan error)
		go func() {
			_, err := extend(t, p, i)
			done <- err
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("it listened to its context")
		default:
		}
		p.Heal()
		require.NoError(t, <-done)
		assert.Equal(t, 3*time.Minute, p.Live()[0].Left())
		_, err := extend(t, p, i)
		require.NoError(t, err, "healed")
	})
	bubble(t, "hangs on after Heal where it listens to its context", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpExtend, sandboxtest.Fault{Hang: true, Deaf: true}, sandboxtest.Fault{Hang: true})
		deaf := make(chan error)
		go func() {
			_, err := extend(t, p, i)
			deaf <- err
		}()
		synctest.Wait()
		time.AfterFunc(time.Second/2, p.Heal)
		_, err := extend(t, p, i)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, <-deaf)
	})
	bubble(t, "lands late, after the caller has left", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpExtend, sandboxtest.Fault{Late: true, Delay: 30 * time.Second})
		_, err := extend(t, p, i)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(28 * time.Second)
		assert.Equal(t, 3*time.Minute-29*time.Second, p.Live()[0].Left())
		time.Sleep(time.Second)
		assert.Equal(t, 3*time.Minute, p.Live()[0].Left())
	})
	bubble(t, "wins the race against a late end", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.Lateness = 10 * time.Second })
		i := made(t, p, "a")
		time.Sleep(3*time.Minute + 5*time.Second)
		_, err := extend(t, p, i)
		require.NoError(t, err)
		time.Sleep(3 * time.Minute)
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "loses the race at the deadline though it succeeds", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.RaceWindow = 10 * time.Second })
		i := made(t, p, "a")
		time.Sleep(2*time.Minute + 55*time.Second)
		got, err := extend(t, p, i)
		require.NoError(t, err)
		assert.Equal(t, 3*time.Minute, got.Left())
		time.Sleep(5 * time.Second)
		assert.Empty(t, p.Live())
	})
	bubble(t, "meets a plan's cap: silently cut, then refused", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.PlanLifetime = 4 * time.Minute; b.Lateness = time.Minute })
		i := made(t, p, "a")
		time.Sleep(2 * time.Minute)
		first, err := extend(t, p, i)
		require.NoError(t, err)
		assert.Equal(t, 2*time.Minute, first.Left())
		time.Sleep(time.Minute)
		second, err := extend(t, p, i)
		require.NoError(t, err)
		assert.Equal(t, first.Deadline, second.Deadline, "the same absolute end")
		time.Sleep(time.Minute)
		_, err = extend(t, p, i)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
	})
	bubble(t, "panics", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Fault(sandbox.OpExtend, sandboxtest.Fault{Panic: "boom"})
		assert.PanicsWithValue(t, "boom", func() { extend(t, p, i) })
		_, err := extend(t, p, i)
		require.NoError(t, err)
	})
}

func TestShortenOnlyWhereLeasesAreSet(t *testing.T) {
	for _, mode := range []sandbox.ExtendMode{sandbox.ExtendNone, sandbox.ExtendAdd, sandbox.ExtendActivity} {
		_, ok := sandbox.As[sandbox.Shortener](extending(mode, nil))
		assert.False(t, ok, mode)
	}
	synctest.Test(t, func(t *testing.T) {
		p := everything(nil)
		s, ok := sandbox.As[sandbox.Shortener](p)
		require.True(t, ok)
		i := made(t, p, "a")
		require.NoError(t, s.Shorten(t.Context(), i.ID, time.Minute))
		assert.Equal(t, time.Minute, p.Live()[0].Left())
		require.NoError(t, s.Shorten(t.Context(), i.ID, 2*time.Minute))
		assert.Equal(t, time.Minute, p.Live()[0].Left(), "never further away")
		require.ErrorIs(t, s.Shorten(t.Context(), i.ID, 0), sandbox.ErrInvalid, "0 means for ever on some services")
		p.Pause(i.ID)
		require.NoError(t, s.Shorten(t.Context(), i.ID, time.Second))
		assert.Empty(t, p.Live(), "nothing wakes")
		p.Kill(i.ID)
		require.ErrorIs(t, s.Shorten(t.Context(), i.ID, time.Second), sandbox.ErrNotFound)
	})
}

func TestCheckTellsTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.PlanLifetime, b.MaxLive, b.Skew = time.Hour, 20, -time.Minute })
		a, err := p.Check(t.Context())
		require.NoError(t, err)
		assert.Equal(t, sandbox.Account{ID: "memory", MaxLifetime: time.Hour, MaxLive: 20, Skew: -time.Minute, SkewKnown: true}, a)
		p.Behave(func(b *sandboxtest.Behaviour) { b.NoDelete = true })
		_, err = p.Check(t.Context())
		require.ErrorIs(t, err, sandbox.ErrPermission)
		p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(401)})
		_, err = p.Check(t.Context())
		require.ErrorIs(t, err, sandbox.ErrUnauthenticated)
	})
}

func TestTheServiceAndItsClock(t *testing.T) {
	bubble(t, "skew moves the service's times and no lease", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.Skew = -2 * time.Hour })
		i := made(t, p, "a")
		assert.Equal(t, -2*time.Hour, time.Until(i.AsOf))
		assert.Equal(t, 3*time.Minute, i.Left())
		time.Sleep(3 * time.Minute)
		assert.Empty(t, p.Live())
	})
	bubble(t, "ends come late", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.Lateness = 20 * time.Second })
		made(t, p, "a")
		time.Sleep(3*time.Minute + 20*time.Second - 1)
		assert.Len(t, p.Live(), 1)
		time.Sleep(time.Nanosecond)
		assert.Empty(t, p.Live())
	})
	bubble(t, "deadlines are told and pass", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		i := made(t, p, "a")
		time.Sleep(10 * time.Hour)
		assert.Equal(t, sandbox.StateRunning, state(t, p, i.ID))
		assert.Negative(t, p.Live()[0].Left())
		p.Expire()
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "what expires is paused", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.AtExpiry = sandbox.StateDormant })
		i := made(t, p, "a")
		time.Sleep(10 * time.Hour)
		assert.Equal(t, sandbox.StateDormant, state(t, p, i.ID))
		assert.Empty(t, p.Live())
		assert.Equal(t, []string{i.ID}, ids(p.Residue()))
		require.NoError(t, p.Delete(t.Context(), i.ID))
		assert.Empty(t, p.Residue())
	})
	bubble(t, "what expires is paused, and stays though leases go on through a pause", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.AtExpiry, b.PausedLease = sandbox.StateDormant, true })
		made(t, p, "a")
		time.Sleep(10 * time.Hour)
		assert.Len(t, p.Residue(), 1)
	})
	bubble(t, "an end takes time", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.EndTime, b.AtExpiry = 5*time.Second, sandbox.StateDormant })
		i := made(t, p, "a")
		time.Sleep(3 * time.Minute)
		assert.Equal(t, sandbox.StateEnding, state(t, p, i.ID))
		time.Sleep(5 * time.Second)
		assert.Equal(t, sandbox.StateDormant, state(t, p, i.ID))
	})
	bubble(t, "a lease goes on through a pause", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.PausedLease = true })
		i := made(t, p, "a")
		p.Pause(i.ID)
		time.Sleep(3 * time.Minute)
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
		assert.Empty(t, p.Residue())
	})
	bubble(t, "a lease counts from running on", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.LeaseFromRun, b.StartTime = true, time.Minute })
		made(t, p, "a")
		time.Sleep(4*time.Minute - 1)
		assert.Len(t, p.Live(), 1)
		time.Sleep(time.Nanosecond)
		assert.Empty(t, p.Live())
	})
	bubble(t, "Expire ends what has a lease and leaves what has none", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.Lateness, b.EndTime = time.Second, time.Second })
		made(t, p, "a")
		frozen := made(t, p, "b")
		p.Freeze(frozen.ID)
		p.Behave(func(b *sandboxtest.Behaviour) { b.NoLease = true })
		bare := made(t, p, "c")
		start := time.Now()
		p.Expire()
		assert.Zero(t, time.Since(start))
		assert.Equal(t, []string{bare.ID}, ids(p.Live()))
		assert.Equal(t, []string{frozen.ID}, ids(p.Residue()))
		assert.Equal(t, 3*time.Minute+2*time.Second, time.Until(p.Now()))
		assert.True(t, p.Thaw(frozen.ID))
		p.Expire()
		assert.Equal(t, []string{bare.ID}, ids(p.Live()))
	})
	bubble(t, "Advance is time for the service alone", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		p.Advance(2 * time.Minute)
		got, err := p.Get(t.Context(), i.ID)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, got.Left())
		p.Advance(time.Minute)
		assert.Empty(t, p.Live())
	})
	t.Run("outside of a bubble as well", func(t *testing.T) {
		p := everything(nil)
		made(t, p, "a")
		p.Expire()
		assert.Empty(t, p.Live())
	})
}

func TestWatchHearsOfEveryChangeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) {
			b.StartTime, b.AtExpiry, b.EndTime = time.Second, sandbox.StateDormant, time.Second
		})
		start := p.Now()
		type seen struct {
			id    string
			at    time.Duration
			state sandbox.State
			left  time.Duration
		}
		var changes []seen
		p.Watch(func(c sandboxtest.Change) {
			p.Live() // may be called
			changes = append(changes, seen{c.Info.ID, c.At.Sub(start), c.Info.State, c.Info.Left()})
		})
		a := made(t, p, "a")
		time.Sleep(30 * time.Second)
		_, err := p.Extend(t.Context(), a, time.Minute)
		require.NoError(t, err)
		b := made(t, p, "b")
		time.Sleep(time.Hour)
		require.Equal(t, []string{a.ID, b.ID}, ids(p.Residue()))
		assert.Equal(t, []seen{
			{a.ID, 0, sandbox.StateStarting, 3 * time.Minute},
			{a.ID, time.Second, sandbox.StateRunning, 3*time.Minute - time.Second},
			{a.ID, 30 * time.Second, sandbox.StateRunning, time.Minute},
			{b.ID, 30 * time.Second, sandbox.StateStarting, 3 * time.Minute},
			{b.ID, 31 * time.Second, sandbox.StateRunning, 3*time.Minute - time.Second},
			{a.ID, 90 * time.Second, sandbox.StateEnding, 0},
			{a.ID, 91 * time.Second, sandbox.StateDormant, 0},
			{b.ID, 210 * time.Second, sandbox.StateEnding, 0},
			{b.ID, 211 * time.Second, sandbox.StateDormant, 0},
		}, changes)
	})
}

func TestFaultsAreUsedUpInOrder(t *testing.T) {
	p := everything(nil)
	first, second := errors.New("first"), errors.New("second")
	p.Fault(sandbox.OpGet, sandboxtest.Fault{Skip: 1, Err: first, Times: 2}, sandboxtest.Fault{Skip: 1, Err: second})
	var got []error
	i := made(t, p, "a")
	for range 6 {
		_, err := p.Get(t.Context(), i.ID)
		got = append(got, err)
	}
	assert.Equal(t, []error{nil, first, first, nil, second, nil}, got)
	p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: first, Times: -1})
	for range 3 {
		_, err := p.Get(t.Context(), i.ID)
		require.ErrorIs(t, err, first)
	}
	p.Heal()
	_, err := p.Get(t.Context(), i.ID)
	require.NoError(t, err)
}
