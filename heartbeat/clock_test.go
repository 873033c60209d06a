package heartbeat_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/heartbeat"
	"github.com/sandglass-dev/sandglass/ttl"
)

func TestTrustIsOverWhenEitherClockSaysSo(t *testing.T) {
	for by, want := range map[time.Duration]time.Duration{ // the wall clock's move, and the trust's after the last good beat
		40 * time.Second:  135 * time.Second, // 40 s of the 175 have been slept away
		-40 * time.Second: 175 * time.Second,
	} {
		bubble(t, fmt.Sprintf("the wall clock moves by %v", by), func(t *testing.T) {
			w := newWorld(t, standard, limits)
			w.Now = true
			w.fault = w.after(time.Second, fault{err: errBusy})
			w.run().until(30 * time.Second)
			w.jump(by)
			last := w.wait()
			require.ErrorIs(t, last.cause, heartbeat.ErrLost)
			assert.Equal(t, want, last.at)
		})
	}
	bubble(t, "many short suspends add up", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = w.after(0, fault{err: errBusy})
		w.run()
		for range 4 {
			time.Sleep(10 * time.Second)
			w.jump(30 * time.Second)
		}
		assert.Equal(t, (175-4*30)*time.Second, w.wait().at)
	})
}

func TestTheLifetimeCountsSuspends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, standard, limits).run()
		for range 30 {
			time.Sleep(30 * time.Second)
			w.jump(50 * time.Second)
		}
		w.until(36 * time.Minute)
		w.stop()
		at, ok := w.told(heartbeat.ErrEnded)
		require.True(t, ok)
		assert.Equal(t, time.Hour-30*50*time.Second, at)
		hard := w.start.Add(w.Plan.HardEnd - 30*50*time.Second)
		assert.False(t, w.service.end.After(hard), "nor does a beat pass the hard end, which others judge by their clocks")
	})
}

// What is a suspend to one owner is a corrected clock to the other: only a look can tell.
func TestAfterAJumpOfTheWallClockALookComesBeforeAnyVerdict(t *testing.T) {
	jumped := func(t *testing.T, by time.Duration, change func(w *world)) *world {
		w := newWorld(t, standard, limits).run()
		w.until(10*time.Minute + time.Second)
		w.service.mu.Lock()
		change(w)
		w.service.mu.Unlock()
		w.jump(by)
		return w
	}
	from := func(w *world) []call { // what was sent since
		var calls []call
		for _, c := range w.log() {
			if c.start.Sub(w.start) > 10*time.Minute+time.Second {
				calls = append(calls, c)
			}
		}
		return calls
	}
	for _, by := range []time.Duration{10 * time.Minute, 2 * time.Minute, -10 * time.Minute, -3 * time.Hour} {
		for name, kind := range map[string]kind{"told": sets, "not told": activity} {
			bubble(t, fmt.Sprintf("alive, end %s, clock moved by %v", name, by), func(t *testing.T) {
				w := jumped(t, by, func(w *world) { w.kind = kind })
				w.until(20 * time.Minute)
				assert.True(t, w.alive())
				w.stop()
				assert.Empty(t, w.verdicts)
				first := from(w)[0]
				assert.True(t, first.look)
				assert.LessOrEqual(t, first.start.Sub(w.start), 10*time.Minute+6*time.Second, "seconds after it")
				assert.Len(t, w.looks(), 1)
			})
		}
	}
	bubble(t, "gone while the machine slept", func(t *testing.T) {
		w := jumped(t, 10*time.Minute, func(w *world) { w.dead = true })
		last := w.wait()
		require.ErrorIs(t, last.cause, heartbeat.ErrGone)
		assert.Less(t, last.at, 10*time.Minute+10*time.Second)
		for _, c := range from(w) {
			assert.True(t, c.look)
		}
	})
	bubble(t, "the network takes some time to come back", func(t *testing.T) {
		w := jumped(t, 10*time.Minute, func(w *world) {
			w.fault = func(_ int, c call) fault {
				if c.start.Sub(w.start) < 10*time.Minute+30*time.Second {
					return fault{err: errBusy}
				}
				return fault{}
			}
		})
		w.until(20 * time.Minute)
		w.stop()
		assert.Empty(t, w.verdicts)
	})
	for name, f := range map[string]fault{
		"fails": {err: errBusy}, "hangs": {out: time.Hour}, "hangs and notices nothing": {out: time.Hour, deaf: true},
	} {
		bubble(t, "a look that "+name+" decides after two attempts", func(t *testing.T) {
			w := jumped(t, 10*time.Minute, func(w *world) { w.fault = w.after(10*time.Minute, f) })
			last := w.wait()
			require.ErrorIs(t, last.cause, heartbeat.ErrLost)
			assert.LessOrEqual(t, last.at, 10*time.Minute+6*time.Second+2*w.Plan.Attempt)
			assert.GreaterOrEqual(t, last.at, 10*time.Minute+2*w.Plan.Attempt)
			time.Sleep(time.Hour)
		})
	}
	bubble(t, "what was answered to a request from before proves nothing", func(t *testing.T) {
		for name, f := range map[string]fault{
			"a beat that went well": {back: 20 * time.Second},
			"a beat that failed":    {out: 40 * time.Second},
		} {
			w := newWorld(t, standard, limits)
			w.Now, w.fault = true, first(f)
			w.run().until(10 * time.Second)
			w.jump(10 * time.Minute)
			w.until(time.Minute)
			assert.Empty(t, w.verdicts, name)
			w.stop()
			log := w.log()
			require.GreaterOrEqual(t, len(log), 2, name)
			assert.True(t, log[1].look, name)
			assert.Equal(t, log[0].answered, log[1].start, "%s: the look is due as soon as nothing is under way", name)
		}
	})
	bubble(t, "the jump puts off no end that the monotonic clock has reached", func(t *testing.T) {
		for _, by := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
			w := newWorld(t, standard, limits)
			w.Now, w.fault = true, w.after(time.Second, fault{err: errBusy})
			w.run().until(165 * time.Second)
			w.jump(by)
			assert.Equal(t, w.Plan.Window-w.Plan.Margin, w.wait().at)
		}
	})
	bubble(t, "a wall clock put back does not stretch the trust over a later suspend", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Now, w.fault = true, w.after(time.Second, fault{err: errBusy})
		w.run().until(10 * time.Second)
		w.jump(-3 * time.Hour)
		w.until(20 * time.Second)
		w.jump(time.Hour)
		assert.LessOrEqual(t, w.wait().at, 26*time.Second+2*w.Plan.Attempt)
	})
}

func TestAJumpNoLongerThanABeatIsNoDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, standard, limits).run()
		w.until(10*time.Minute + time.Second)
		w.jump(w.Plan.Beat)
		w.until(20 * time.Minute)
		w.stop()
		assert.Empty(t, w.verdicts)
		assert.Empty(t, w.looks())
	})
}

func TestAWallClockPutBackBringsNoBeatsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ttl.Policy{Beat: 40 * time.Second, Attempt: 100 * time.Second}, limits)
		w.Now, w.fault = true, first(fault{back: time.Minute}) // longer than a beat, so that the next is overdue
		w.run().until(30 * time.Second)
		w.jump(-30 * time.Second)
		w.until(2 * time.Minute)
		w.stop()
		log := w.log()
		assert.Equal(t, w.Plan.Spacing(), log[1].start.Sub(log[0].answered))
	})
}
