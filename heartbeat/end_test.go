package heartbeat_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/heartbeat"
	"github.com/sandglass-dev/sandglass/ttl"
)

func TestTheOwnerIsToldOnceThatItsTimeIsOverAndBeatsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, standard, limits).run()
		w.until(time.Hour + 110*time.Second)
		at, ok := w.told(heartbeat.ErrEnded)
		require.True(t, ok)
		assert.Equal(t, time.Hour, at)
		assert.True(t, w.alive(), "the owner winds up")
		assert.NotEmpty(t, w.sent(true, w.start.Add(time.Hour)), "and the lease is watched")
		w.stop()
		assert.Len(t, w.verdicts, 1)
	})
}

func TestAnOwnerThatDoesNotStopIsLostWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, standard, limits).run()
		last := w.wait()
		require.ErrorIs(t, last.cause, heartbeat.ErrLost)
		require.Len(t, w.verdicts, 2)
		assert.ErrorIs(t, w.verdicts[0].cause, heartbeat.ErrEnded)
		assert.LessOrEqual(t, last.at, w.Plan.HardEnd-w.Plan.Margin)
		assert.True(t, w.alive(), "presumed a little less long than it lives")
	})
}

func TestNoBeatPassesTheHardEndOrBringsTheEndNearer(t *testing.T) {
	for _, step := range []time.Duration{time.Millisecond, time.Second, time.Minute} {
		for _, after := range []time.Duration{0, 10 * time.Second, 130 * time.Second, 20 * time.Minute} {
			bubble(t, fmt.Sprintf("step %v, %v after the lifetime", step, after), func(t *testing.T) {
				w := newWorld(t, ttl.Policy{MaxLifetime: 1207 * time.Second, After: after}, ttl.Limits{Max: time.Hour, Step: step})
				w.fault = func(int, call) fault { return fault{out: 300 * time.Millisecond, back: 200 * time.Millisecond} }
				w.run().wait()
				// A request takes 0.3 s to get there, and an end is not told before 0.5 s.
				const way = 500 * time.Millisecond
				end := w.start.Add(w.Plan.WindowAt(0))
				clamped := 0
				for _, c := range w.extensions() {
					if c.window < w.Plan.Window {
						clamped++
					}
					require.False(t, c.end.After(w.start.Add(w.Plan.HardEnd+way)), "the hard end is passed")
					require.False(t, c.end.Before(end.Add(-way)), "the end moves back by %v at %v", end.Sub(c.end), c.start.Sub(w.start))
					end = c.end
				}
				assert.LessOrEqual(t, clamped, 1, "what ends at the hard end is not extended again")
				assert.GreaterOrEqual(t, end.Sub(w.start), w.Plan.HardEnd-step-way, "the life is used to the end")
				require.Len(t, w.verdicts, 2, "told that its time is over, before the lease is lost with it: %v", w.verdicts)
				ended, lost := w.verdicts[0], w.verdicts[1]
				assert.ErrorIs(t, ended.cause, heartbeat.ErrEnded)
				assert.ErrorIs(t, lost.cause, heartbeat.ErrLost)
				assert.LessOrEqual(t, ended.at, w.Plan.MaxLifetime)
				assert.GreaterOrEqual(t, ended.at, min(w.Plan.MaxLifetime, lost.at))
			})
		}
	}
}

func TestALifeShorterThanTheWindowIsOnlyLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ttl.Policy{MaxLifetime: 2 * time.Minute, After: 20 * time.Second}, limits).run()
		w.wait()
		assert.Empty(t, w.extensions(), "there is nothing to gain")
		assert.NotEmpty(t, w.looks())
		at, ok := w.told(heartbeat.ErrEnded)
		require.True(t, ok)
		assert.Equal(t, 2*time.Minute, at)
	})
}

func TestAnEndThatStandsStillIsACap(t *testing.T) {
	capped := func(t *testing.T, after time.Duration, change func(*world)) *world {
		w := newWorld(t, standard, limits)
		w.service.cap = w.start.Add(after)
		if w.service.end.After(w.service.cap) {
			w.service.end = w.service.cap
		}
		if change != nil {
			change(w)
		}
		return w
	}
	for name, change := range map[string]func(*world){
		"told exactly":          nil,
		"told in whole seconds": func(w *world) { w.grain = time.Second },
		"after a lost answer": func(w *world) {
			w.fault = func(n int, _ call) fault {
				if n == 18 {
					return fault{back: time.Hour}
				}
				return fault{}
			}
		},
		"a service that adds": func(w *world) { w.kind = adds },
	} {
		bubble(t, name, func(t *testing.T) {
			w := capped(t, 20*time.Minute, change).run()
			w.until(20*time.Minute - 10*time.Second)
			at, ok := w.told(heartbeat.ErrEnded)
			require.True(t, ok, "the owner is told")
			// The first short grant comes a beat after the last full one, the second, which shows the cap, two thirds of
			// a beat later at most; a lost answer costs an attempt.
			assert.LessOrEqual(t, at, 20*time.Minute-45*time.Second, "as soon as it shows")
			assert.GreaterOrEqual(t, at, 20*time.Minute-w.Plan.Window-time.Second)
			assert.True(t, w.alive())
			assert.Empty(t, w.sent(false, w.start.Add(at+time.Second)), "beats have stopped")
			assert.NotEmpty(t, w.sent(true, w.start.Add(at+time.Second)), "looks have not")
			last := w.wait()
			assert.ErrorIs(t, last.cause, heartbeat.ErrLost, "an owner that goes on is lost with the lease")
			assert.LessOrEqual(t, last.at, 20*time.Minute-w.Plan.Margin)
			_, _ = w.told(heartbeat.ErrEnded)
		})
	}
	bubble(t, "the time to wind up is kept exactly where it lies ahead", func(t *testing.T) {
		w := newWorld(t, ttl.Policy{After: 30 * time.Second}, limits)
		w.service.cap = w.start.Add(20 * time.Minute)
		w.run().until(20*time.Minute - 10*time.Second)
		at, ok := w.told(heartbeat.ErrEnded)
		require.True(t, ok)
		assert.InDelta(t, 20*time.Minute-30*time.Second, at, float64(time.Millisecond))
		w.stop()
	})
	bubble(t, "told at once if that time has begun", func(t *testing.T) {
		w := capped(t, 2*time.Minute, nil).run()
		w.until(2*time.Minute - 6*time.Second)
		at, ok := w.told(heartbeat.ErrEnded)
		require.True(t, ok)
		ext := w.extensions()
		require.Len(t, ext, 4)
		assert.Equal(t, w.Plan.Spacing(), ext[2].start.Sub(ext[1].answered), "the second of one end is looked into soon")
		assert.Equal(t, w.Plan.Spacing(), ext[3].start.Sub(ext[2].answered))
		assert.Equal(t, ext[3].answered, w.start.Add(at), "and the fourth settles it")
		w.stop()
	})
	bubble(t, "beats do not come ever closer to it", func(t *testing.T) {
		w := capped(t, 20*time.Minute, nil).run()
		w.wait()
		log := w.log()
		for i := 1; i < len(log); i++ {
			require.GreaterOrEqual(t, log[i].start.Sub(log[i-1].answered), w.Plan.Spacing())
		}
	})
}

func TestAnEndThatMovesIsNoCap(t *testing.T) {
	for _, window := range []time.Duration{3 * time.Second, 10 * time.Second, 3 * time.Minute} {
		for _, beat := range []time.Duration{window / 15, window / 3} {
			for _, grain := range []time.Duration{0, time.Second} {
				for _, way := range []time.Duration{0, window / 50} {
					name := fmt.Sprintf("window %v, beat %v, told in units of %v, way of %v", window, beat, max(grain, 1), way)
					bubble(t, name, func(t *testing.T) {
						w := newWorld(t, ttl.Policy{Window: window, Beat: beat, MaxLifetime: 24 * time.Hour}, limits)
						w.grain = grain
						w.fault = func(n int, _ call) fault { // sometimes the way there is the longer one, sometimes the way back
							out := way * time.Duration(n%3)
							return fault{out: out, back: 2*way - out}
						}
						w.run().until(600 * beat)
						assert.True(t, w.alive())
						w.stop()
						assert.Empty(t, w.verdicts)
						assert.Empty(t, w.looks())
					})
				}
			}
		}
	}
	for _, lies := range []int{1, 2} {
		bubble(t, fmt.Sprintf("nor one that stands still for %d yeses without an effect", lies), func(t *testing.T) {
			w := newWorld(t, ttl.Policy{MaxLifetime: 3 * time.Hour}, limits)
			extend := w.Config.Extend
			n := 0
			w.Config.Extend = func(ctx ctx, window time.Duration) (heartbeat.Grant, error) {
				if n++; n%4 >= 4-lies {
					return w.Config.Look(ctx)
				}
				return extend(ctx, window)
			}
			w.run().until(2 * time.Hour)
			assert.True(t, w.alive())
			w.stop()
			assert.Empty(t, w.verdicts)
		})
	}
	bubble(t, "nor one that somebody else has moved further away than was asked for", func(t *testing.T) {
		w := newWorld(t, ttl.Policy{MaxLifetime: 3 * time.Hour}, limits)
		extend := w.Config.Extend
		w.Config.Extend = func(ctx ctx, window time.Duration) (heartbeat.Grant, error) { // as where a service only adds
			if grant, err := w.Config.Look(ctx); err == nil && grant.Left >= window {
				return grant, nil
			}
			return extend(ctx, window)
		}
		time.AfterFunc(5*time.Minute, func() {
			w.service.mu.Lock()
			defer w.service.mu.Unlock()
			w.service.end = w.service.end.Add(20 * time.Minute)
		})
		w.run().until(2 * time.Hour)
		assert.True(t, w.alive())
		w.stop()
		assert.Empty(t, w.verdicts)
	})
	bubble(t, "where no end is told, none stands still", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		extend := w.Config.Extend
		w.Config.Extend = func(ctx ctx, window time.Duration) (heartbeat.Grant, error) {
			grant, err := extend(ctx, window)
			grant.End = time.Time{}
			return grant, err
		}
		w.run().until(30 * time.Minute)
		w.stop()
		assert.Empty(t, w.verdicts)
	})
}

func TestAServiceThatCannotExtendIsOnlyLookedAt(t *testing.T) {
	unsupported := fmt.Errorf("501: %w", errors.ErrUnsupported)
	bubble(t, "its present end is a cap", func(t *testing.T) {
		w := newWorld(t, ttl.Policy{After: 30 * time.Second}, limits)
		w.fault = func(n int, c call) fault {
			if !c.look && n > 5 {
				return fault{err: unsupported}
			}
			return fault{}
		}
		w.run().wait()
		ext := w.extensions()
		require.Len(t, ext, 6, "the extension is not tried again")
		end := ext[4].end.Sub(w.start)
		at, ok := w.told(heartbeat.ErrEnded)
		require.True(t, ok)
		assert.Equal(t, end-30*time.Second, at)
		assert.Equal(t, end-w.Plan.Margin, w.ended)
		assert.NotEmpty(t, w.looks())
		assert.ErrorIs(t, w.beats[5].Err, errors.ErrUnsupported, "whoever watches sees why")
	})
	bubble(t, "a failure that does not say so turns nothing off", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		n := 0
		w.fault = func(_ int, c call) fault {
			if c.look {
				return fault{}
			}
			if n++; n%2 == 1 {
				return fault{err: errors.New("409: operation not supported in this state")}
			}
			return fault{}
		}
		w.run().until(30 * time.Minute)
		w.stop()
		assert.Empty(t, w.verdicts)
	})
}

func TestAFixedEndIsOnlyLookedAt(t *testing.T) {
	fixed := ttl.Limits{Max: 24 * time.Hour, Step: time.Second, Fixed: true}
	bubble(t, "to the end of the lifetime", func(t *testing.T) {
		w := newWorld(t, standard, fixed).run()
		w.until(time.Hour + 100*time.Second)
		w.stop()
		assert.Empty(t, w.extensions())
		assert.GreaterOrEqual(t, len(w.looks()), 60)
		at, ok := w.told(heartbeat.ErrEnded)
		require.True(t, ok)
		assert.Equal(t, time.Hour, at)
	})
	bubble(t, "a service that granted less is left in time", func(t *testing.T) {
		w := newWorld(t, standard, fixed)
		w.Trust = w.Config.Start.Add(30*time.Minute - w.Plan.Margin)
		w.service.end = w.start.Add(30 * time.Minute)
		w.run().until(29 * time.Minute)
		w.stop()
		at, ok := w.told(heartbeat.ErrEnded)
		require.True(t, ok)
		assert.Equal(t, 30*time.Minute-130*time.Second, at)
	})
	bubble(t, "its death is seen", func(t *testing.T) {
		w := newWorld(t, standard, fixed).run()
		w.until(30 * time.Minute)
		w.kill()
		last := w.wait()
		require.ErrorIs(t, last.cause, heartbeat.ErrGone)
		assert.Less(t, last.at, 31*time.Minute+5*time.Second)
		_, ended := w.told(heartbeat.ErrEnded)
		assert.False(t, ended, "which is not the end of a lifetime")
	})
	bubble(t, "failing looks are not the end", func(t *testing.T) {
		w := newWorld(t, standard, fixed)
		w.fault = w.after(0, fault{err: errBusy})
		w.run().until(59 * time.Minute)
		w.stop()
		assert.Empty(t, w.verdicts)
	})
}

func TestAnOwnerWithoutProgressIsStalled(t *testing.T) {
	bubble(t, "at the stall timeout", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Stall, w.Idle = 7*time.Minute, w.age
		last := w.run().wait()
		require.ErrorIs(t, last.cause, heartbeat.ErrStalled)
		assert.NotErrorIs(t, last.cause, heartbeat.ErrLost)
		assert.Equal(t, 7*time.Minute, last.at)
		assert.Equal(t, 7*time.Minute, w.ended)
		assert.True(t, w.alive(), "it is the owner who ends it")
	})
	bubble(t, "progress puts it off", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		progress := func() time.Duration { return min(w.age(), 25*time.Minute).Truncate(6 * time.Minute) } // every 6 min, until 24
		w.Stall, w.Idle = 7*time.Minute, func() time.Duration { return w.age() - progress() }
		last := w.run().wait()
		require.ErrorIs(t, last.cause, heartbeat.ErrStalled)
		assert.Equal(t, 31*time.Minute, last.at)
	})
	bubble(t, "in the midst of a call", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Now, w.fault = true, w.after(0, fault{out: time.Hour, deaf: true})
		w.Stall, w.Idle = 20*time.Second, w.age
		last := w.run().wait()
		assert.Equal(t, 20*time.Second, last.at)
		assert.Equal(t, 20*time.Second+w.Plan.Attempt, w.ended)
		time.Sleep(time.Hour)
	})
	bubble(t, "never, without a limit", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Idle = func() time.Duration { panic("nobody asks") }
		w.run().until(50 * time.Minute)
		w.stop()
	})
}

func TestAVerdictIsReportedBeforeRunCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = w.after(0, fault{out: time.Hour, deaf: true})
		w.run().until(w.Plan.Window - w.Plan.Margin)
		require.Len(t, w.verdicts, 1)
		select {
		case <-w.over:
			t.Fatal("Run did not wait for the call under way")
		default:
		}
		w.wait()
		time.Sleep(time.Hour)
	})
}
