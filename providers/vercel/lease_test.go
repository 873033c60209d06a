package vercel_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// uncapped is a plan without a longest session.
func uncapped(o *vercelfake.Options, _ *vercel.Config) { o.Behaviour.PlanLifetime = -1 }

// aged is info as the core hands it to Extend.
func aged(info sandbox.Info, at time.Time) sandbox.Info {
	info.AsOf = info.AsOf.Add(time.Since(at))
	return info
}

func TestTheDeadlineIsNeverMoreThanAWindowAndABeatAheadOver10Hours(t *testing.T) {
	const window, beat, hours = 3 * time.Minute, time.Minute, 10
	for name, plague := range map[string]func(w *world){
		"nothing goes wrong": func(*world) {},
		"answers are lost": func(w *world) {
			w.fault(sandbox.OpExtend, fake.Fault{Err: &sandbox.APIError{}, After: true})
		},
		"requests are lost": func(w *world) {
			w.fake.Fault("extendTimeout", vercelfake.Fault{Hang: true})
		},
		"requests come late": func(w *world) {
			w.fault(sandbox.OpExtend, fake.Fault{Delay: rand.N(60 * time.Second), Late: true})
		},
		"the service fails before, or after": func(w *world) {
			w.fault(sandbox.OpExtend, fake.Fault{Err: failure([]int{500, 502, 503, 504}[rand.N(4)]), After: rand.N(2) == 0})
		},
		"every second extension fails": func(w *world) {
			for range 2 {
				w.fault(sandbox.OpExtend, fake.Fault{Err: failure(500)}, fake.Fault{})
			}
		},
		"every second extension is lost": func(w *world) {
			w.fake.Fault("extendTimeout", vercelfake.Fault{Drop: true}, vercelfake.Fault{Delay: time.Millisecond})
			w.fake.Fault("extendTimeout", vercelfake.Fault{Drop: true}, vercelfake.Fault{Delay: time.Millisecond})
		},
		"all of it": func(w *world) {
			lost := []error{&sandbox.APIError{}, failure(502), failure(504)}[rand.N(3)]
			w.fault(sandbox.OpExtend, fake.Fault{Err: lost, After: rand.N(2) == 0, Delay: rand.N(60 * time.Second), Late: rand.N(2) == 0})
			if rand.N(4) == 0 {
				w.fault(sandbox.OpGet, fake.Fault{Err: failure(500)})
			}
			if rand.N(4) == 0 {
				w.net.Break(memnet.Fault{Kind: memnet.Swallow, Times: 1})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				m := w.manager(func(c *sandbox.Config) {
					c.Observers = []sandbox.Observer{func(context.Context, sandbox.Event) {}}
					c.Scope.Window, c.Scope.Beat, c.Scope.MaxLifetime = window, beat, hours*time.Hour+time.Minute
				})
				var furthest time.Duration
				err := m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
					for i := range hours * 3600 {
						if err := wait(ctx, time.Second); err != nil {
							return err
						}
						furthest = max(furthest, w.left(sb.ID()))
						if i%150 == 0 { // two beats or three
							plague(w)
						}
					}
					return nil
				})
				assert.NoError(t, err)
				assert.LessOrEqual(t, furthest, window+beat)
				t.Logf("the deadline was at most %v ahead", furthest)
				w.fake.Heal()
				w.fake.Service().Heal()
				w.net.Heal()
				w.nothing()
			}, uncapped)
		})
	}
}

func TestOneExtensionWithoutAnAnswerIsPutUpWithAndFurtherOnesAreReckonedWith(t *testing.T) {
	bubble(t, func(w *world) {
		const window, beat = 3 * time.Minute, time.Minute
		ctx := context.Background()
		info := w.make(window)
		at := time.Now()
		time.Sleep(beat)
		giveUp := func() { // one that is 40 s under way, and given up after one
			t.Helper()
			w.fault(sandbox.OpExtend, fake.Fault{Delay: 40 * time.Second, Late: true})
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := w.p.Extend(short, aged(info, at), window)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		giveUp() // 60 s
		giveUp() // 61 s
		_, err := w.p.Extend(ctx, aged(info, at), window)
		if err != nil {
			assert.ErrorIs(t, err, sandbox.ErrConflict)
		}
		require.InDelta(t, 118*time.Second, w.left(info.ID), float64(4*time.Second), "neither has come, and next to nothing is added")

		time.Sleep(20 * time.Second)
		info, err = w.p.Extend(ctx, aged(info, at), window)
		require.NoError(t, err)
		at = time.Now()
		assert.InDelta(t, 119*time.Second, info.Left(), float64(4*time.Second), "a window and a beat, if both come")
		time.Sleep(20 * time.Second)
		assert.LessOrEqual(t, w.left(info.ID), window+beat)
		assert.Greater(t, w.left(info.ID), window, "both have come")

		// The next beat looks first, and so sees that they have.
		time.Sleep(30 * time.Second)
		info, err = w.p.Extend(ctx, aged(info, at), window)
		require.NoError(t, err)
		assert.LessOrEqual(t, w.left(info.ID), window+10*time.Second)
	})
}

func TestExtensionsThatNeverComeAreForgottenInTheEnd(t *testing.T) {
	bubble(t, func(w *world) {
		const window = 10 * time.Minute
		ctx := context.Background()
		info := w.make(window)
		at := time.Now()
		time.Sleep(3 * time.Minute)
		w.fake.Fault("extendTimeout", vercelfake.Fault{Hang: true, Times: 2})
		for _, want := range []error{context.DeadlineExceeded, context.DeadlineExceeded, sandbox.ErrConflict} {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			_, err := w.p.Extend(short, aged(info, at), window)
			cancel()
			assert.ErrorIs(t, err, want)
		}
		time.Sleep(2 * time.Minute)
		info, err := w.p.Extend(ctx, aged(info, at), window)
		require.NoError(t, err)
		assert.InDelta(t, window, info.Left(), float64(3*time.Second))
		asked := w.asked()
		_, err = w.p.Extend(ctx, info, window)
		require.NoError(t, err)
		assert.Equal(t, 1, asked("getSandbox"), "one look, not one more for a doubt")
	})
}

func TestARefusalLeavesNothingUnderWay(t *testing.T) {
	bubble(t, func(w *world) {
		const window = 10 * time.Minute
		info := w.make(window)
		time.Sleep(3 * time.Minute)
		w.fault(sandbox.OpExtend, fake.Fault{Err: failure(429)})
		_, err := w.p.Extend(context.Background(), aged(info, time.Now().Add(-3*time.Minute)), window)
		require.ErrorIs(t, err, sandbox.ErrRateLimited)
		info, err = w.p.Get(context.Background(), info.ID)
		require.NoError(t, err)
		info, err = w.p.Extend(context.Background(), info, window)
		require.NoError(t, err)
		assert.InDelta(t, window, info.Left(), float64(3*time.Second))
	})
}

func TestLessThanASecondIsNotAdded(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		asked := w.asked()
		now, err := w.p.Extend(context.Background(), info, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, now.State)
		assert.Zero(t, asked("extendTimeout"))
		assert.Equal(t, 1, asked("getSandbox"))
	})
}

func TestWindowsOutsideOfTheLimitsAreNotAsked(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		sent := w.sent.Load()
		for _, window := range []time.Duration{0, -time.Minute, 999 * time.Millisecond, 24*time.Hour + time.Millisecond} {
			_, err := w.p.Extend(context.Background(), info, window)
			assert.ErrorIs(t, err, sandbox.ErrInvalid)
		}
		assert.Equal(t, sent, w.sent.Load())
	})
}

func TestAServiceWithoutAClockIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(_ *vercelfake.Options, c *vercel.Config) {})
		dateless := transport(func(r *http.Request) (*http.Response, error) {
			resp, err := w.http.Transport.RoundTrip(r)
			if err == nil {
				resp.Header.Del("Date")
			}
			return resp, err
		})
		p, err := vercel.New(vercel.Config{
			Token: vercelfake.DefaultToken, Team: "team_test", Project: "prj_test", BaseURL: base, HTTP: &http.Client{Transport: dateless},
		})
		require.NoError(t, err)
		info, err := p.Create(context.Background(), order(time.Minute))
		require.NoError(t, err)
		_, err = p.Extend(context.Background(), info, 10*time.Minute)
		assert.ErrorContains(t, err, "tells no time")
		assert.Zero(t, w.fake.Count("extendTimeout"))
	})
}

func TestASkewedClockChangesNothing(t *testing.T) {
	for _, skew := range []time.Duration{-48 * time.Hour, -90 * time.Second, 90 * time.Second, 48 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			bubble(t, func(w *world) {
				err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
					for range 100 {
						if err := wait(ctx, 13*time.Second); err != nil {
							return err
						}
						assert.LessOrEqual(t, w.left(sb.ID()), 3*time.Minute)
						assert.Greater(t, w.left(sb.ID()), time.Minute)
					}
					return nil
				})
				assert.NoError(t, err)
				account, err := w.p.Check(context.Background())
				assert.NoError(t, err)
				assert.True(t, account.SkewKnown)
				assert.InDelta(t, skew, account.Skew, float64(2*time.Second))
			}, func(o *vercelfake.Options, _ *vercel.Config) { o.Behaviour.Skew = skew })
		})
	}
}

func TestTheLeaseIsReadFromThePresentSession(t *testing.T) {
	bubble(t, func(w *world) {
		info, err := w.p.Create(context.Background(), order(time.Minute))
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateStarting, info.State)
		assert.False(t, info.Deadline.IsZero(), "from its making, until it has started")
		time.Sleep(5 * time.Second)
		info, err = w.p.Get(context.Background(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, info.State)
		assert.Equal(t, w.truth(info.ID).Record.Deadline.UnixMilli(), info.Deadline.UnixMilli())
		listed, err := w.list(sandbox.Filter{Fleet: "fleet"})
		require.NoError(t, err)
		require.Len(t, listed, 1)
		assert.Equal(t, info.Deadline, listed[0].Deadline)
		assert.Equal(t, info.Run, listed[0].Run)
		time.Sleep(2 * time.Minute)
		info, err = w.p.Get(context.Background(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateDormant, info.State)
		assert.True(t, info.Deadline.IsZero())
	}, slow)
}

func TestExtendOfAContextThatIsOverAsksNothing(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		sent := w.sent.Load()
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(why)
		_, err := w.p.Extend(ctx, info, time.Hour)
		assert.ErrorIs(t, err, why)
		assert.Equal(t, sent, w.sent.Load())
	})
}
