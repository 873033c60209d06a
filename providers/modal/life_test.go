package modal_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/modal"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestAtAnyInstantOfTenHoursNothingRunsLongerThanTheWindowAfterItsOwner(t *testing.T) {
	const window, session = 3 * time.Minute, 10 * time.Hour
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	deaths := []time.Duration{0, 500 * time.Millisecond, time.Second, 1500 * time.Millisecond, time.Minute, 2 * time.Minute, session - time.Second}
	for range 3 { // a second of a watchdog costs real time too
		deaths = append(deaths, time.Duration(random.Int64N(int64(2*time.Hour))))
	}
	for _, death := range deaths {
		t.Run(fmt.Sprint(death), func(t *testing.T) {
			bubble(t, func(w *world) {
				m := w.manager(func(c *sandbox.Config) { c.Scope.Window, c.Scope.MaxLifetime = window, session })
				done := make(chan error, 1)
				go func() {
					done <- m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
						<-ctx.Done()
						return context.Cause(ctx)
					})
				}()
				time.Sleep(death)
				if death > 2*time.Second {
					require.Len(t, w.fake.All(), 1, "it is alive for as long as its owner is")
				}
				w.net.Break(memnet.Fault{Kind: memnet.Partition}) // the owner and its host are gone, as far as the service can see
				time.Sleep(after(window))
				w.nothing()
				assert.Error(t, <-done)
			}, func(o *modalfake.Options, _ *modal.Config) { o.Behaviour.StartTime = time.Second })
		})
	}
}

func TestAnUndisturbedLifeAsksForLittle(t *testing.T) {
	bubble(t, func(w *world) {
		const beats = 9
		m := w.manager(func(c *sandbox.Config) { c.Scope.Window, c.Scope.Beat = 3*time.Minute, time.Minute })
		err := m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
			err := wait(ctx, beats*time.Minute+30*time.Second)
			assert.Equal(t, 1, w.fake.Count("AuthTokenGet"))
			return err
		})
		require.NoError(t, err)
		execs := w.fake.Count("TaskExecStart") // beats come early, and never late
		assert.InDelta(t, beats+1, execs, 1, "one when it is made, and one a minute")
		reads, waits := w.fake.Count("TaskExecStdioRead"), w.fake.Count("TaskExecWait")
		assert.InDelta(t, execs, reads, 1, "the scope's end may cut the last one short")
		assert.InDelta(t, execs, waits, 1)
		once := []string{
			"AuthTokenGet", "AppGetOrCreate", "EnvironmentGetOrCreate", "ImageGetOrCreate", // of the account, and of an image
			"SandboxCreateV2", "SandboxTerminateV2",
		}
		for _, method := range once {
			assert.Equal(t, 1, w.fake.Count(method), method)
		}
		assert.Equal(t, 2, w.fake.Count("SandboxWaitV2"), "the delete's, and a look")
		assert.Equal(t, len(once)+2+execs+reads+waits, w.fake.Count(""))
	})
}

func TestASecondLifeNeedsNoPreparation(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.manager()
		for range 2 {
			require.NoError(t, m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error { return wait(ctx, 10*time.Second) }))
		}
		for _, method := range []string{"AuthTokenGet", "AppGetOrCreate", "EnvironmentGetOrCreate"} {
			assert.Equal(t, 1, w.fake.Count(method), method)
		}
		assert.Equal(t, 2, w.fake.Count("SandboxCreateV2"))
	})
}

func TestARunOverManyFailuresLeavesNothing(t *testing.T) {
	for name, s := range map[string]setting{"at once": func(*modalfake.Options, *modal.Config) {}, "slow": slow} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				down := modalfake.Fault{Code: codes.Unavailable, Times: -1}
				faults := map[string]func(){
					"create lost":       func() { w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.Unavailable, After: true}) },
					"create late":       func() { w.fake.Fault("SandboxCreateV2", modalfake.Fault{After: true, Delay: 40 * time.Second}) },
					"create lost often": func() { w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.Internal, After: true, Times: 3}) },
					"no image":          func() { w.fake.Fault("ImageGetOrCreate", modalfake.Fault{Code: codes.Internal, Times: -1}) },
					"no app":            func() { w.fake.Fault("AppGetOrCreate", down) },
					"terminate down":    func() { w.fake.Fault("SandboxTerminateV2", down) },
					"terminate lost": func() {
						w.fake.Fault("SandboxTerminateV2", modalfake.Fault{Code: codes.Unavailable, After: true, Times: 9})
					},
					"terminate ignored":  func() { w.fake.Fault("SandboxTerminateV2", modalfake.Fault{Ignore: true, Times: 2}) },
					"wait down":          func() { w.fake.Fault("SandboxWaitV2", down) },
					"tags down":          func() { w.fake.Fault("SandboxTagsGetV2", down) },
					"list down":          func() { w.fake.Fault("SandboxListV2", down) },
					"beats refused":      func() { w.fake.Fault("TaskExecStart", down) },
					"router hangs":       func() { w.fake.Fault("TaskExecWait", modalfake.Fault{Hang: true, Times: -1}) },
					"output breaks off":  func() { w.fake.Fault("TaskExecStdioRead", modalfake.Fault{Code: codes.Unavailable, Times: 5}) },
					"partition":          func() { w.net.Break(memnet.Fault{Kind: memnet.Partition}) },
					"denied":             func() { w.fake.Deny(true) },
					"everything hangs":   func() { w.fake.Fault("", modalfake.Fault{Hang: true, Times: -1}) },
					"everything is slow": func() { w.fake.Fault("", modalfake.Fault{Delay: 3 * time.Second, Times: -1}) },
				}
				for name, f := range faults {
					for _, inside := range []bool{false, true} {
						m := w.manager(func(c *sandbox.Config) { c.CreateTimeout = 30 * time.Second })
						ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
						if !inside {
							f()
						}
						err := m.WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error {
							if inside {
								f()
							}
							return wait(ctx, 30*time.Second)
						})
						cancel()
						t.Logf("%s, inside %v: %v", name, inside, err)
						w.fake.Heal()
						w.net.Heal()
						w.fake.Deny(false)
					}
				}
				time.Sleep(after(3 * time.Minute)) // the leases of those that could not be deleted
				w.nothing()
				w.sweep(2, 15*time.Minute)
			}, s)
		})
	}
}

func TestALateBeatOfAnOwnerThatIsGoneCountsFromWhenItArrives(t *testing.T) {
	bubble(t, func(w *world) {
		const window = time.Minute
		info := w.make(window)
		w.fake.Fault("TaskExecStart", modalfake.Fault{Delay: 40 * time.Second})
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		sent := time.Now()
		_, err := w.p.Extend(ctx, info, window)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Until(sent.Add(40*time.Second + after(window))))
		assert.False(t, w.runs(info.ID))
	})
}

func TestABeatOfAShorterWindowBringsTheEndNearerAndIsNotUndoneByAnOlderOne(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(10 * time.Minute)
		info := w.makeOf(req)
		cur, err := w.p.Extend(context.Background(), info, time.Minute)
		require.NoError(t, err)
		assert.InDelta(t, time.Minute, cur.Left(), float64(3*time.Second))
		time.Sleep(time.Minute + 2*time.Second)
		assert.False(t, w.runs(info.ID))
	})
}

func TestTwoProcessesMayBeatOneSandbox(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		other := w.another()
		for range 10 {
			for _, p := range []*modal.Provider{w.p, other} {
				cur, err := p.Extend(context.Background(), sandbox.Info{ID: info.ID}, time.Minute)
				require.NoError(t, err)
				assert.InDelta(t, time.Minute, cur.Left(), float64(3*time.Second))
				time.Sleep(25 * time.Second)
			}
		}
		assert.True(t, w.runs(info.ID))
	})
}

func TestASandboxWithoutAShellLivesOnItsIdleTimeAlone(t *testing.T) {
	const window = time.Minute
	bubble(t, func(w *world) {
		req := order(window)
		req.Spec.Native = &modal.Options{Beat: []string{"true"}}
		info := w.makeOf(req)
		other := w.another()
		for range 5 {
			time.Sleep(40 * time.Second)
			_, err := other.Extend(context.Background(), sandbox.Info{ID: info.ID}, window)
			require.NoError(t, err, "another process knows what to run")
		}
		sb := other.Open(info)
		res, err := sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"echo", "here"}, Timeout: time.Minute})
		require.NoError(t, err)
		assert.Equal(t, "here\n", string(res.Stdout))
		res, err = sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"sleep", "100"}, Timeout: 5 * time.Second})
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
		assert.ErrorIs(t, sb.Upload(context.Background(), "/x", nil), errUnsupported)
		time.Sleep(after(window))
		assert.Equal(t, "IDLE_TIMEOUT", word(w.truth(info.ID)))
	}, func(o *modalfake.Options, _ *modal.Config) { o.Quirks.NoShell = true })
}

func TestABeatGrantsNoMoreThanTheHardEndLeaves(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(time.Minute)
		req.Mark.Lifetime = time.Minute
		info := w.makeOf(req)
		time.Sleep(30 * time.Second)
		cur, err := w.p.Extend(context.Background(), info, time.Minute)
		require.NoError(t, err)
		assert.InDelta(t, 29*time.Second, cur.Left(), float64(4*time.Second))
	})
}

func TestABeatThatTheWatchdogDoesNotAnswerHasFailed(t *testing.T) {
	for name, spoil := range map[string]func(*world, sandbox.Sandbox){
		"its file is a folder": func(w *world, sb sandbox.Sandbox) {
			res, err := sb.Exec(context.Background(), sandbox.Shell("rm -f /tmp/.sandglass; mkdir /tmp/.sandglass"))
			require.NoError(w.t, errors.Join(err, res.Err()))
		},
		"nobody hears": answers(4, ""),
		"nonsense":     answers(0, "soon\n"),
		"nothing":      answers(0, ""),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				info := w.make(time.Minute)
				spoil(w, w.p.Open(info))
				_, err := w.p.Extend(context.Background(), info, time.Minute)
				e := apiError(t, err)
				assert.NotErrorIs(t, err, sandbox.ErrNotFound, "it still runs")
				assert.Equal(t, sandbox.OpExtend, e.Op)
				time.Sleep(after(time.Minute))
				assert.False(t, w.runs(info.ID))
			})
		})
	}
}

// answers has beats answered by somebody else.
func answers(code int, said string) func(*world, sandbox.Sandbox) {
	return func(w *world, _ sandbox.Sandbox) {
		w.fake.HandleExec(func(_ context.Context, c modalfake.Exec) (int, bool) {
			if len(c.Args) < 4 || c.Args[3] != "sandglass-beat" {
				return 0, false
			}
			fmt.Fprint(c.Stdout, said)
			return code, true
		})
	}
}
