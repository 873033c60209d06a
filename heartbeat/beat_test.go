package heartbeat_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/heartbeat"
	"github.com/sandglass-dev/sandglass/ttl"
)

func TestTenHoursOfBeatsKeepTheEndWithinTheWindow(t *testing.T) {
	for name, kind := range map[string]kind{
		"a service that sets": sets, "a service that adds": adds, "a service that tells nothing": activity,
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, ttl.Policy{MaxLifetime: 24 * time.Hour}, limits)
			w.kind = kind
			w.run().until(10 * time.Hour)
			assert.True(t, w.alive())
			assert.LessOrEqual(t, w.beyond, w.Plan.Window)
			assert.Empty(t, w.looks(), "nothing went wrong, nothing is looked at")
			last := w.start
			for _, c := range w.extensions() {
				between := c.start.Sub(last)
				require.LessOrEqual(t, between, w.Plan.Beat, "never late")
				require.GreaterOrEqual(t, between, w.Plan.Beat*9/10-1, "early by a tenth at most")
				require.Equal(t, w.Plan.Window, c.window)
				last = c.start
			}
			assert.GreaterOrEqual(t, len(w.extensions()), 600)
			w.stop()
			assert.Empty(t, w.verdicts)
		})
	}
}

func TestBeatsVaryInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, standard, limits).run()
		w.until(30 * time.Minute)
		w.stop()
		seen := map[time.Duration]bool{}
		last := w.start
		for _, c := range w.extensions() {
			seen[c.start.Sub(last)] = true
			last = c.start
		}
		assert.Greater(t, len(seen), 20)
	})
}

func TestTheFirstBeatComesAtOnceIfAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Now = true
		w.run().until(0)
		assert.Len(t, w.extensions(), 1)
		w.stop()
	})
}

func TestABeatIsCountedFromTheStartOfTheLastRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = func(int, call) fault { return fault{out: 12 * time.Second, back: 12 * time.Second} }
		w.run().until(20 * time.Minute)
		w.stop()
		last := w.start
		for _, c := range w.extensions() {
			require.LessOrEqual(t, c.start.Sub(last), w.Plan.Beat, "slow answers do not make beats late")
			last = c.start
		}
		assert.Empty(t, w.verdicts)
	})
}

func TestABeatIsAsLongAsThePlanSaysEvenBeyondAThirdOfTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ttl.Policy{Beat: 75 * time.Second, MaxLifetime: 3 * time.Hour}, limits).run()
		w.until(time.Hour)
		w.stop()
		ext := w.extensions()
		for i := 1; i < len(ext); i++ {
			require.GreaterOrEqual(t, ext[i].start.Sub(ext[i-1].start), 75*time.Second*9/10-1)
		}
	})
}

func TestAShorterGrantMakesBeatsMoreFrequentButNeverCloserThanTheSpacing(t *testing.T) {
	for name, c := range map[string]struct {
		grant       time.Duration
		least, most time.Duration
	}{
		"half of what was asked": {90 * time.Second, 27*time.Second - 1, 30 * time.Second},
		"next to nothing":        {12 * time.Second, 5 * time.Second, 5 * time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, standard, limits)
			w.grant = c.grant
			w.run().until(30 * time.Minute)
			assert.True(t, w.alive())
			w.stop()
			ext := w.extensions()
			for i := 1; i < len(ext); i++ {
				require.LessOrEqual(t, ext[i].start.Sub(ext[i-1].start), c.most)
				require.GreaterOrEqual(t, ext[i].start.Sub(ext[i-1].start), c.least)
			}
			assert.Empty(t, w.verdicts)
		})
	}
}

func TestTheEndOfTheContextEndsRunWithoutAnError(t *testing.T) {
	bubble(t, "between beats", func(t *testing.T) {
		w := newWorld(t, standard, limits).run()
		w.until(10 * time.Minute)
		w.stop()
		assert.Equal(t, 10*time.Minute, w.ended)
		assert.Empty(t, w.verdicts)
	})
	bubble(t, "before the start nothing is sent", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Now = true
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, heartbeat.Run(ctx, w.Config))
		assert.Empty(t, w.log())
	})
	bubble(t, "nothing is told even if the lease is over at that instant", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = func(int, call) fault { return fault{err: errBusy} }
		ctx, cancel := context.WithTimeout(context.Background(), w.Plan.Window-w.Plan.Margin-1)
		defer cancel()
		require.NoError(t, heartbeat.Run(ctx, w.Config))
		assert.Empty(t, w.verdicts)
	})
	bubble(t, "the call under way is cancelled and waited for", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Now = true
		w.fault = func(int, call) fault { return fault{out: time.Hour} }
		w.run().until(10 * time.Second)
		w.stop()
		assert.Equal(t, 10*time.Second, w.ended)
		require.Len(t, w.log(), 1)
		assert.ErrorIs(t, w.log()[0].err, context.Canceled)
		require.Len(t, w.beats, 1, "and it is observed")
		assert.ErrorIs(t, w.beats[0].Err, context.Canceled)
	})
	bubble(t, "a call that notices nothing is waited for no longer than an attempt", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Now = true
		w.fault = func(int, call) fault { return fault{out: time.Hour, deaf: true} }
		w.run().until(10 * time.Second)
		w.stop()
		assert.Equal(t, 10*time.Second+w.Plan.Attempt, w.ended)
		time.Sleep(time.Hour) // the bubble ends with the call
		assert.Len(t, w.log(), 1)
	})
}

func TestObserveIsToldOfEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Now = true
		w.fault = func(n int, _ call) fault {
			return []fault{{out: time.Second, back: time.Second}, {err: errBusy}, {err: errBusy}, {}}[min(n-1, 3)]
		}
		w.run().until(2 * time.Minute)
		w.stop()
		require.GreaterOrEqual(t, len(w.beats), 5)
		first := w.beats[0]
		assert.False(t, first.Look)
		assert.Equal(t, 3*time.Minute, first.Window)
		assert.Equal(t, w.start, first.Start)
		assert.Equal(t, 2*time.Second, first.Took)
		assert.Equal(t, 3*time.Minute, first.Grant.Left)
		assert.Equal(t, w.start.Add(time.Second+3*time.Minute), first.Grant.End)
		for i, want := range []heartbeat.Beat{
			{Attempt: 1},
			{Attempt: 1, Err: errBusy},
			{Attempt: 2, Err: errBusy, Look: true},
			{Attempt: 3, Look: true},
			{Attempt: 3},
		} {
			got := w.beats[i]
			assert.Equal(t, want, heartbeat.Beat{Attempt: got.Attempt, Err: got.Err, Look: got.Look}, "call %d", i+1)
			if got.Look {
				assert.Zero(t, got.Window, "a look asks for no window")
			}
		}
		assert.Len(t, w.log(), len(w.beats))
	})
}

func TestAThousandLeasesDoNotBeatInStep(t *testing.T) {
	// Timers of a large bubble that fire on two processors at once can crash the race detector: golang/go#78156.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const leases, life = 1000, 15 * time.Minute
		plan, err := ttl.Policy{MaxLifetime: 24 * time.Hour}.Resolve(limits)
		require.NoError(t, err)
		start := ttl.Now()
		ctx, cancel := context.WithTimeout(context.Background(), life)
		defer cancel()
		rate := make([]int, life/time.Second) // requests in each second
		asked := make(chan int, leases)
		over := make(chan error, leases)
		for range leases { // the worst case: all at the same instant
			go func() {
				over <- heartbeat.Run(ctx, heartbeat.Config{
					Plan: plan, Start: start, Trust: start.Add(plan.Window - plan.Margin),
					Extend: func(_ context.Context, window time.Duration) (heartbeat.Grant, error) {
						asked <- int(time.Since(start.Mono) / time.Second)
						return heartbeat.Grant{Left: window}, nil
					},
					Over: func(cause error) { t.Error(cause) },
				})
			}()
		}
		total := 0
		for range leases {
			for done := false; !done; {
				select {
				case second := <-asked:
					rate[min(second, len(rate)-1)]++
					total++
				case err := <-over:
					require.NoError(t, err)
					done = true
				}
			}
		}
		peak := func(from, to time.Duration) (most int) {
			for _, n := range rate[from/time.Second : to/time.Second] {
				most = max(most, n)
			}
			return most
		}
		mean := float64(total) / life.Seconds()
		first, later := peak(0, 5*time.Minute), peak(10*time.Minute, life)
		t.Logf("%d requests, %.1f a second; peaks: %d at first, %d in the last five minutes", total, mean, first, later)
		assert.InDelta(t, 1000/57.0, mean, 1.5, "a beat is early by a twentieth on average")
		assert.Less(t, first, 250, "a tenth of a beat is 6 s")
		assert.Less(t, later, 120, "and each beat spreads them further")
	})
}

// The cost of a lease's start, one beat and its end.
func BenchmarkRun(b *testing.B) {
	plan, err := ttl.Policy{}.Resolve(limits)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithCancel(context.Background())
		now := ttl.Now()
		err := heartbeat.Run(ctx, heartbeat.Config{
			Plan: plan, Start: now, Trust: now.Add(plan.Window), Now: true,
			Extend: func(_ context.Context, window time.Duration) (heartbeat.Grant, error) {
				return heartbeat.Grant{Left: window}, nil
			},
			Over:    func(cause error) { b.Error(cause) },
			Observe: func(heartbeat.Beat) { cancel() },
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
