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

// after returns a fault for all calls that leave so long after the start.
func (w *world) after(age time.Duration, f fault) func(int, call) fault {
	return func(_ int, c call) fault {
		if c.start.Sub(w.start) < age {
			return fault{}
		}
		return f
	}
}

// first returns faults for the first calls; all later ones go well.
func first(faults ...fault) func(int, call) fault {
	return func(n int, _ call) fault {
		if n > len(faults) {
			return fault{}
		}
		return faults[n-1]
	}
}

func TestOneFailureIsNeverTheEnd(t *testing.T) {
	for name, f := range map[string]fault{
		"503":                          {err: errBusy},
		"409":                          {err: errors.New("409 conflict")},
		"429":                          {err: errors.New("429 too many requests")},
		"a 404 that is taken back":     {err: errGone},
		"no answer":                    {out: time.Hour},
		"an answer lost":               {back: time.Hour},
		"answered when nobody listens": {out: time.Hour, late: 10 * time.Second},
	} {
		for _, blind := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s, blind %v", name, blind), func(t *testing.T) {
				w := newWorld(t, standard, limits)
				w.Blind, w.fault = blind, first(f)
				w.run().until(20 * time.Minute)
				assert.True(t, w.alive())
				w.stop()
				assert.Empty(t, w.verdicts)
				assert.LessOrEqual(t, w.beyond, w.Plan.Window)
				assert.True(t, w.log()[1].look, "after a failure a look")
				assert.Len(t, w.looks(), 1)
			})
		}
	}
}

func TestAThousandFailuresAreNotTheEndWhileTrustLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ttl.Policy{Window: 24 * time.Hour, Beat: time.Minute, MaxLifetime: 40 * time.Hour}, limits)
		w.fault = func(_ int, c call) fault {
			if c.start.Sub(w.start) < 20*time.Hour {
				return fault{err: errBusy}
			}
			return fault{}
		}
		w.run().until(20 * time.Hour)
		assert.Greater(t, len(w.log()), 1000)
		assert.Empty(t, w.verdicts)
		w.until(40*time.Hour - time.Minute)
		assert.True(t, w.alive())
		w.stop()
		assert.Empty(t, w.verdicts)
	})
}

func TestLostWhenTrustIsOverCountedFromTheStartOfTheLastGoodRequest(t *testing.T) {
	for _, slow := range []time.Duration{0, 25 * time.Second} {
		bubble(t, fmt.Sprintf("answered after %v", slow), func(t *testing.T) {
			w := newWorld(t, standard, limits)
			w.fault = func(n int, _ call) fault {
				if n == 1 {
					return fault{out: slow / 2, back: slow / 2}
				}
				return fault{err: errBusy}
			}
			last := w.run().wait()
			require.ErrorIs(t, last.cause, heartbeat.ErrLost)
			require.ErrorIs(t, last.cause, errBusy, "the last failure is found in it")
			sent := w.log()[0].start.Sub(w.start)
			assert.Equal(t, sent+w.Plan.Window-w.Plan.Margin, last.at)
			assert.Equal(t, last.at, w.ended, "with no call under way, Run returns at once")
			assert.True(t, w.alive(), "which is before the lease has ended")
		})
	}
	bubble(t, "a lease never extended is lost at the trust that it began with", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Trust = w.Config.Start.Add(100 * time.Second)
		w.fault = w.after(0, fault{err: errBusy})
		assert.Equal(t, 100*time.Second, w.run().wait().at)
	})
}

func TestAGrantRulesAndNotWhatWasAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		told heartbeat.Grant
		want time.Duration
	}{
		"less":                              {heartbeat.Grant{Left: 100 * time.Second}, 100 * time.Second},
		"not told":                          {heartbeat.Grant{}, 3 * time.Minute},
		"more than asked is not counted on": {heartbeat.Grant{Left: time.Hour}, 3 * time.Minute},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, standard, limits)
			w.Now = true
			w.Trust = w.Config.Start.Add(time.Second)
			extend := w.Config.Extend
			w.Config.Extend = func(ctx ctx, window time.Duration) (heartbeat.Grant, error) {
				_, err := extend(ctx, window)
				return c.told, err
			}
			w.fault = w.after(time.Second, fault{err: errBusy})
			assert.Equal(t, c.want-w.Plan.Margin, w.run().wait().at)
		})
	}
	bubble(t, "an end that has passed is a failure", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		extend := w.Config.Extend
		n := 0
		w.Config.Extend = func(ctx ctx, window time.Duration) (heartbeat.Grant, error) {
			grant, err := extend(ctx, window)
			if n++; n == 1 {
				grant.Left = -time.Second
			}
			return grant, err
		}
		w.run().until(10 * time.Minute)
		w.stop()
		assert.Empty(t, w.verdicts)
		assert.Error(t, w.beats[0].Err)
		assert.True(t, w.beats[1].Look)
	})
}

func TestAfterAFailureALookComesBeforeTheNextExtension(t *testing.T) {
	bubble(t, "and while looks fail nothing is extended", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = w.after(0, fault{err: errBusy})
		w.run().wait()
		assert.Len(t, w.extensions(), 1)
		assert.Greater(t, len(w.looks()), 3)
	})
	bubble(t, "unless sending twice adds nothing: then looks and extensions take turns", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.Blind, w.fault = true, w.after(0, fault{err: errBusy})
		w.run().wait()
		assert.Greater(t, len(w.extensions()), 2)
		for i, c := range w.log() {
			assert.Equal(t, i%2 == 1, c.look, "call %d", i+1)
		}
	})
	bubble(t, "a service that adds is never given the same difference twice", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.kind = adds
		w.fault = func(n int, c call) fault { // every other extension's answer is lost, and every other look fails
			switch {
			case !c.look && n%2 == 1:
				return fault{back: time.Hour}
			case c.look && n%4 == 2:
				return fault{err: errBusy}
			}
			return fault{}
		}
		w.run().until(50 * time.Minute)
		assert.True(t, w.alive())
		w.stop()
		assert.LessOrEqual(t, w.beyond, w.Plan.Window)
		assert.Empty(t, w.verdicts)
	})
}

func TestAnExtensionWhoseAnswerWasLostIsNotSentAgainOnceALookShowsIt(t *testing.T) {
	bubble(t, "landed", func(t *testing.T) {
		w := newWorld(t, ttl.Policy{Attempt: 5 * time.Second}, limits)
		w.fault = first(fault{back: time.Hour})
		w.run().until(3 * time.Minute)
		w.stop()
		require.Len(t, w.looks(), 1)
		assert.GreaterOrEqual(t, w.extensions()[1].start.Sub(w.looks()[0].start), 50*time.Second)
	})
	bubble(t, "and what it shows counts", func(t *testing.T) {
		w := newWorld(t, ttl.Policy{Attempt: 5 * time.Second}, limits)
		w.fault = func(n int, _ call) fault {
			return []fault{{back: time.Hour}, {out: 2 * time.Second, back: time.Second}, {err: errBusy}}[min(n-1, 2)]
		}
		last := w.run().wait()
		landed := w.extensions()[0].end.Sub(w.start)
		assert.Equal(t, landed-w.Plan.Margin-2*time.Second, last.at, "from the start of the look")
	})
	bubble(t, "not landed", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = first(fault{out: time.Hour})
		w.run().until(3 * time.Minute)
		w.stop()
		require.Len(t, w.looks(), 1)
		assert.Equal(t, w.looks()[0].answered, w.extensions()[1].start, "there is no time to lose")
	})
}

func TestRetriesBackOffWithinWhatIsLeftOfTheTrust(t *testing.T) {
	bubble(t, "further apart each time, but more often towards the end", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = w.after(0, fault{err: errBusy})
		trust := w.run().wait().at
		log := w.log()
		assert.Less(t, len(log), 40, "a service in trouble is not flooded")
		for i := 1; i < len(log); i++ {
			pause, left := log[i].start.Sub(log[i-1].answered), trust-log[i-1].answered.Sub(w.start)
			require.GreaterOrEqual(t, pause, time.Second/2)
			require.LessOrEqual(t, pause, max(time.Second/2, left/2))
		}
		last := log[len(log)-1].start.Sub(w.start)
		assert.Less(t, trust-last, 2*time.Second, "the last chance is used")
	})
	bubble(t, "a pause that the service asks for is kept", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.RetryAfter = func(err error) time.Duration {
			assert.ErrorIs(t, err, errBusy)
			return 25 * time.Second
		}
		w.fault = first(fault{err: errBusy})
		w.run().until(2 * time.Minute)
		w.stop()
		log := w.log()
		assert.Equal(t, 25*time.Second, log[1].start.Sub(log[0].answered))
	})
	bubble(t, "unless the trust would be over before", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.RetryAfter = func(error) time.Duration { return time.Hour }
		w.fault = first(fault{err: errBusy})
		w.run().until(10 * time.Minute)
		assert.True(t, w.alive())
		w.stop()
		log := w.log()
		left := w.Plan.Window - w.Plan.Margin - log[0].answered.Sub(w.start)
		assert.Equal(t, left/2, log[1].start.Sub(log[0].answered))
	})
}

func TestAnExtensionThatIgnoresItsContextHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = first(fault{out: time.Hour, deaf: true})
		last := w.run().wait()
		require.ErrorIs(t, last.cause, heartbeat.ErrLost)
		assert.Equal(t, w.Plan.Window-w.Plan.Margin, last.at, "the verdict falls in time")
		assert.Equal(t, last.at+w.Plan.Attempt, w.ended, "and Run waits for no more than an attempt")
		time.Sleep(time.Hour)
		assert.Len(t, w.log(), 1, "nothing was sent beside it")
	})
	bubble(t, "a late answer within the trust still counts", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = first(fault{back: 100 * time.Second, deaf: true})
		w.run().until(10 * time.Minute)
		w.stop()
		assert.Empty(t, w.verdicts)
		assert.Empty(t, w.looks(), "it was no failure")
	})
}

func TestADeathCountsWhenALookAgrees(t *testing.T) {
	bubble(t, "an extension, then a look", func(t *testing.T) {
		w := newWorld(t, standard, limits).run()
		w.until(90 * time.Second)
		w.kill()
		last := w.wait()
		require.ErrorIs(t, last.cause, heartbeat.ErrLost)
		require.ErrorIs(t, last.cause, heartbeat.ErrGone)
		log := w.log()
		assert.False(t, log[len(log)-2].look)
		assert.True(t, log[len(log)-1].look)
		assert.Less(t, last.at, 2*time.Minute+5*time.Second, "seconds after the beat that met it")
		assert.Equal(t, last.at, w.ended)
	})
	bubble(t, "two looks", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = func(_ int, c call) fault {
			if !c.look {
				w.kill()
				return fault{err: errBusy}
			}
			return fault{}
		}
		last := w.run().wait()
		require.ErrorIs(t, last.cause, heartbeat.ErrGone)
		assert.Len(t, w.looks(), 2, "one look is no agreement with itself")
	})
	bubble(t, "a look that fails is no agreement, nor does it take the death back", func(t *testing.T) {
		for _, blind := range []bool{false, true} {
			w := newWorld(t, standard, limits)
			w.Blind = blind
			w.fault = first(fault{}, fault{err: errGone}, fault{err: errBusy}, fault{err: errBusy}, fault{err: errGone})
			last := w.run().wait()
			require.ErrorIs(t, last.cause, heartbeat.ErrGone)
			assert.Len(t, w.log(), 5, "blind %v", blind)
			assert.Len(t, w.extensions(), 2, "what may be dead or paused is not extended, blind %v", blind)
		}
	})
	bubble(t, "while looks fail, trust decides", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = func(n int, _ call) fault {
			if n == 1 {
				return fault{err: errGone}
			}
			return fault{err: errBusy}
		}
		last := w.run().wait()
		assert.Equal(t, w.Plan.Window-w.Plan.Margin, last.at)
		assert.Greater(t, len(w.looks()), 3)
	})
	bubble(t, "a look that shows life takes the death back", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = func(n int, _ call) fault { // gone, alive, a beat; and so on
			if n%3 == 1 {
				return fault{err: errGone}
			}
			return fault{}
		}
		w.run().until(30 * time.Minute)
		assert.True(t, w.alive())
		w.stop()
		assert.Empty(t, w.verdicts)
		assert.Greater(t, len(w.looks()), 20)
	})
	bubble(t, "extensions that say gone while looks show life end with the lease", func(t *testing.T) {
		w := newWorld(t, standard, limits)
		w.fault = func(_ int, c call) fault {
			if !c.look {
				return fault{err: errGone}
			}
			return fault{}
		}
		last := w.run().wait()
		assert.Equal(t, w.Plan.Window-w.Plan.Margin, last.at)
		assert.Less(t, len(w.log()), 80)
	})
}

func TestALeaseLongerThanTheWindowIsCutAtOnceAndNotPresumedLonger(t *testing.T) {
	const allowance = 5 * time.Minute
	long := func(t *testing.T) *world {
		w := newWorld(t, standard, limits)
		w.Now = true
		w.service.end = w.start.Add(w.Plan.Window + allowance)
		w.Trust = w.Config.Start.Add(w.Plan.Window + allowance - w.Plan.Margin)
		return w
	}
	bubble(t, "cut", func(t *testing.T) {
		w := long(t)
		w.run().until(30 * time.Minute)
		assert.LessOrEqual(t, w.beyond, w.Plan.Window)
		w.stop()
	})
	bubble(t, "the answer is lost and nothing else is heard", func(t *testing.T) {
		w := long(t)
		w.fault = func(n int, _ call) fault {
			if n == 1 {
				return fault{back: time.Hour}
			}
			return fault{err: errBusy}
		}
		last := w.run().wait()
		require.ErrorIs(t, last.cause, heartbeat.ErrLost)
		assert.True(t, w.alive(), "it was cut to one window, and the owner knows before that is over")
		assert.Equal(t, w.Plan.Window-w.Plan.Margin, last.at)
	})
	bubble(t, "a look that shows the long lease is no proof that it was cut", func(t *testing.T) {
		w := long(t)
		w.fault = first(fault{err: errBusy})
		w.run().until(10 * time.Second)
		require.Len(t, w.extensions(), 2)
		w.until(10 * time.Minute)
		w.stop()
		assert.Empty(t, w.verdicts)
	})
}

func TestATrustThatIsOverAtTheStartIsLookedIntoFirst(t *testing.T) {
	over := func(t *testing.T) *world {
		w := newWorld(t, standard, limits)
		w.Trust = w.Config.Start.Add(-time.Minute)
		return w
	}
	bubble(t, "alive", func(t *testing.T) {
		w := over(t)
		w.run().until(30 * time.Minute)
		w.stop()
		assert.Empty(t, w.verdicts)
		assert.True(t, w.log()[0].look)
		assert.Equal(t, w.start, w.log()[0].start)
	})
	bubble(t, "alive, but nobody says for how long", func(t *testing.T) {
		w := over(t)
		w.kind = activity
		w.run().until(30 * time.Minute)
		w.stop()
		assert.Empty(t, w.verdicts)
		assert.True(t, w.log()[0].look)
		assert.Equal(t, w.start, w.log()[1].start, "so it is extended at once")
	})
	bubble(t, "gone", func(t *testing.T) {
		w := over(t)
		w.kill()
		require.ErrorIs(t, w.run().wait().cause, heartbeat.ErrGone)
		assert.Empty(t, w.extensions())
	})
	bubble(t, "no answer in time for one attempt and another", func(t *testing.T) {
		w := over(t)
		w.fault = w.after(0, fault{err: errBusy})
		assert.Equal(t, 2*w.Plan.Attempt, w.run().wait().at)
	})
}
