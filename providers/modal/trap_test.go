package modal_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/modal"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// These tests are named after the traps of the service, by the numbers that the protocol notes of this project give them.

// bubble runs f in a world of its own, in fake time.
func bubble(t *testing.T, f func(*world), settings ...setting) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, settings...)) })
}

func (w *world) manager(change ...func(*sandbox.Config)) *sandbox.Manager {
	w.t.Helper()
	cfg := sandbox.Config{Fleet: "fleet", Owner: "test", Grace: 2 * time.Second, Observers: []sandbox.Observer{w.observe}}
	for _, f := range change {
		f(&cfg)
	}
	m, err := sandbox.NewManager(w.p, cfg)
	require.NoError(w.t, err)
	return m
}

func (w *world) observe(_ context.Context, e sandbox.Event) {
	if e.Err != nil {
		w.t.Logf("%s %s: attempt %d, final %v: %v", e.Op, e.Info.ID, e.Attempt, e.Final, e.Err)
	}
}

// nothing requires that no sandbox runs.
func (w *world) nothing() {
	w.t.Helper()
	for _, t := range w.fake.All() {
		assert.Fail(w.t, "left", "%s: %s", t.ID, t.Record.State)
	}
}

// sweep runs passes of a sweeper, so many, so far apart.
func (w *world) sweep(passes int, every time.Duration) (last sweep.Report) {
	w.t.Helper()
	s, err := sweep.New(sweep.Config{Fleet: "fleet", Providers: []sandbox.Provider{w.p}})
	require.NoError(w.t, err)
	for range passes {
		time.Sleep(every)
		last, err = s.Sweep(context.Background())
		assert.NoError(w.t, err)
	}
	return last
}

// others makes a sandbox with the official SDK, as somebody else with the same token.
func (w *world) others(app string, params *sdk.SandboxCreateParams) string {
	w.t.Helper()
	ctx, mc := context.Background(), w.sdk()
	a, err := mc.Apps.FromName(ctx, app, &sdk.AppFromNameParams{CreateIfMissing: true})
	require.NoError(w.t, err)
	sb, err := mc.Sandboxes.Create(ctx, a, mc.Images.FromRegistry("debian:bookworm-slim", nil), params)
	require.NoError(w.t, err)
	return sb.SandboxID
}

func (w *world) sdk() *sdk.Client {
	w.t.Helper()
	mc, ok := sandbox.As[*sdk.Client](w.p)
	require.True(w.t, ok)
	return mc
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func TestModal01ACreateThatIsCancelledLeavesNothing(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, func(w *world) {
				w.fake.Fault("SandboxCreateV2", modalfake.Fault{After: true, Delay: 2 * time.Second})
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*200*time.Millisecond)
				defer cancel()
				err := w.manager().WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error { return wait(ctx, time.Hour) })
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				w.nothing()
			}, func(o *modalfake.Options, _ *modal.Config) { o.Behaviour.StartTime = time.Second })
		})
	}
}

func TestModal01ACreateWhoseAnswerComesAfterItsScopeIsDeleted(t *testing.T) {
	bubble(t, func(w *world) {
		w.fake.Fault("SandboxCreateV2", modalfake.Fault{After: true, Hang: true})
		m := w.manager(func(c *sandbox.Config) { c.CreateTimeout = 10 * time.Second })
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err := m.WithSandbox(ctx, func(context.Context, sandbox.Sandbox) error { return nil })
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		w.nothing()
	})
}

func TestModal02ACreateIsSentOnceAndALostAnswerMakesNoTwin(t *testing.T) {
	bubble(t, func(w *world) {
		w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.Unavailable, After: true})
		req := order(time.Minute)
		_, err := w.p.Create(context.Background(), req)
		e := apiError(t, err)
		assert.False(t, e.Refused, "something may have been made")
		assert.ErrorIs(t, e, sandbox.ErrUnavailable)
		assert.Equal(t, 1, w.fake.Count("SandboxCreateV2"), "the SDK may not repeat it blindly")
		assert.Len(t, w.fake.All(), 1)
	})
}

func TestModal03ALostAnswerIsFollowedByTheAdoptionOfOurOwn(t *testing.T) {
	bubble(t, func(w *world) {
		w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.Unavailable, After: true})
		err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			all := w.fake.All()
			if assert.Len(t, all, 1) {
				assert.Equal(t, all[0].ID, sb.ID())
			}
			res, err := sb.Exec(ctx, sandbox.Shell("echo here"))
			assert.Equal(t, "here\n", string(res.Stdout))
			return err
		})
		assert.NoError(t, err)
		assert.Equal(t, 2, w.fake.Count("SandboxCreateV2"))
		w.nothing()
	})
}

func TestModal04ADeleteIsOverWhenTheSandboxIs(t *testing.T) {
	bubble(t, func(w *world) {
		var id string
		err := w.manager().WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error {
			id = sb.ID()
			return nil
		})
		require.NoError(t, err)
		truth := w.truth(id)
		require.NotNil(t, truth.Result, "ended, not ending")
		assert.False(t, truth.Ended.After(time.Now()))
		assert.Equal(t, 1, w.fake.Count("SandboxTerminateV2"))
	}, slow)
}

func TestModal05EveryWayOutLeavesNothing(t *testing.T) {
	for name, end := range map[string]func(context.Context, context.CancelFunc) error{
		"return": func(context.Context, context.CancelFunc) error { return nil },
		"error":  func(context.Context, context.CancelFunc) error { return errors.New("an error") },
		"panic":  func(context.Context, context.CancelFunc) error { panic("a panic") },
		"goexit": func(context.Context, context.CancelFunc) error { runtime.Goexit(); return nil },
		"cancel": func(ctx context.Context, cancel context.CancelFunc) error { cancel(); return wait(ctx, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				m := w.manager()
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_ = m.WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error { return end(ctx, cancel) })
				}()
				<-done
				w.nothing()
			})
		})
	}
}

func TestModal06ACancelledParentDoesNotCancelTheDelete(t *testing.T) {
	bubble(t, func(w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		err := w.manager().WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 1, w.fake.Count("SandboxTerminateV2"))
		w.nothing()
	}, slow)
}

// after is how long a sandbox may live on without its owner, as README and design promise: the window, a step of the
// watchdog, and the service's own time to end it.
func after(window time.Duration) time.Duration { return window + time.Second + 20*time.Second }

func TestModal07TheOwnersDeathDuringALongCommandEndsTheSandboxWithinTheWindow(t *testing.T) {
	const window = 3 * time.Minute
	for name, use := range map[string]func(ctx context.Context, w *world, sb sandbox.Sandbox){
		"a long command of its own": func(ctx context.Context, w *world, sb sandbox.Sandbox) {
			_, _ = sb.Exec(ctx, sandbox.Shell("sleep 36000"))
		},
		"an untimed command of somebody else": func(ctx context.Context, w *world, sb sandbox.Sandbox) {
			other, err := w.sdk().Sandboxes.FromID(ctx, sb.ID(), nil)
			require.NoError(w.t, err)
			_, err = other.Exec(ctx, []string{"sleep", "36000"}, nil)
			require.NoError(w.t, err)
			defer other.Detach()
			_ = wait(ctx, time.Hour)
		},
	} {
		for _, death := range []time.Duration{30 * time.Second, 2*time.Minute + 100*time.Millisecond, 17 * time.Minute} {
			t.Run(fmt.Sprint(name, " ", death), func(t *testing.T) {
				bubble(t, func(w *world) {
					id := make(chan string, 1)
					done := make(chan error, 1)
					go func() {
						done <- w.manager(func(c *sandbox.Config) { c.Scope.Window = window }).WithSandbox(context.Background(),
							func(ctx context.Context, sb sandbox.Sandbox) error {
								id <- sb.ID()
								use(ctx, w, sb)
								return context.Cause(ctx)
							})
					}()
					box := <-id
					time.Sleep(death)
					require.True(t, w.runs(box))
					w.net.Break(memnet.Fault{Kind: memnet.Partition}) // the owner and its host are gone, as far as the service can see
					time.Sleep(window / 2)
					assert.True(t, w.runs(box), "half a window is no death")
					time.Sleep(after(window) - window/2)
					assert.False(t, w.runs(box), "%v after its owner", after(window))
					assert.EqualValues(t, 97, w.truth(box).Result.GetExitcode(), "the watchdog has ended it, for its idle time did not run")
					w.nothing()
					assert.ErrorIs(t, <-done, sandbox.ErrLeaseLost)
				})
			})
		}
	}
}

func TestModal07WhereRunningCommandsHoldTheEndTheHardEndIsLeft(t *testing.T) {
	bubble(t, func(w *world) {
		id := make(chan string, 1)
		done := make(chan error, 1)
		m := w.manager(func(c *sandbox.Config) { c.Scope.MaxLifetime = time.Hour })
		go func() {
			done <- m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
				id <- sb.ID()
				_, err := sb.Exec(ctx, sandbox.Shell("sleep 36000"))
				return err
			})
		}()
		box := <-id
		time.Sleep(10 * time.Minute)
		w.net.Break(memnet.Fault{Kind: memnet.Partition})
		time.Sleep(time.Hour)
		assert.False(t, w.runs(box), "past H, its grace and its clean-up, nothing lives")
		assert.Error(t, <-done)
	}, func(o *modalfake.Options, _ *modal.Config) { o.Quirks.ExecsHoldEnd = true })
}

func TestModal08ASandboxOfTheSameNameAndAnotherMarkIsNotTouched(t *testing.T) {
	for name, tags := range map[string]map[string]string{
		"no mark":      nil,
		"another mark": {sandbox.MarkKey: mark("fleet").String(), sandbox.FleetKey: "fleet"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				req := order(time.Minute)
				other := w.others(modal.DefaultApp, &sdk.SandboxCreateParams{Name: req.Mark.Name(), Tags: tags, Timeout: time.Hour})
				_, err := w.p.Create(context.Background(), req)
				e := apiError(t, err)
				assert.True(t, e.Refused)
				assert.ErrorIs(t, e, sandbox.ErrConflict)
				assert.Equal(t, "ALREADY_EXISTS", e.Code)
				info, err := w.p.Get(context.Background(), other)
				require.NoError(t, err)
				assert.Equal(t, sandbox.Mark{}, info.Mark, "a mark counts only under the name that was made from it")
				w.sweep(3, time.Hour/4)
				assert.True(t, w.runs(other))
			})
		})
	}
}

func TestModal09TheMarkIsInTheCreateAndASweeperLeavesWhatIsAliveOrNotOurs(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(10 * time.Minute)
		req.Mark.Lifetime = 3 * time.Hour
		live := w.makeOf(req)
		for _, r := range w.fake.Requests() {
			if create, ok := r.Message.(*pb.SandboxCreateV2Request); ok {
				tags := map[string]string{}
				for _, tag := range create.GetTags() {
					tags[tag.GetTagName()] = tag.GetTagValue()
				}
				assert.Equal(t, req.Mark.String(), tags[sandbox.MarkKey])
				assert.Equal(t, "fleet", tags[sandbox.FleetKey])
				assert.Equal(t, req.Mark.Nonce, tags[sandbox.NonceKey])
			}
		}
		assert.Zero(t, w.fake.Count("SandboxTagsSetV2"), "never afterwards")
		untagged := w.others("app", &sdk.SandboxCreateParams{Timeout: 5 * time.Hour})
		for range 12 {
			w.sweep(1, 5*time.Minute)
			cur, err := w.p.Extend(context.Background(), live, 10*time.Minute)
			require.NoError(t, err)
			live = cur
		}
		assert.True(t, w.runs(live.ID))
		assert.True(t, w.runs(untagged))
	})
}

func TestModal10ASweepFindsWhatWasMadeUnderAnotherAppsName(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(10 * time.Hour)
		req.Mark.Lifetime = 12 * time.Hour
		old := w.makeOf(req)
		w.cfg.App = "renamed"
		w.p = w.another()
		var ids []string
		found, err := w.list(sandbox.Filter{Fleet: "fleet"})
		require.NoError(t, err)
		for _, info := range found {
			ids = append(ids, info.ID)
		}
		assert.Equal(t, []string{old.ID}, ids)
		require.NoError(t, sandbox.Terminate(context.Background(), w.p, old.ID))
		w.nothing()
	})
}

func TestModal10ASweepEndsWhatIsPastItsHardEndInEveryApp(t *testing.T) {
	bubble(t, func(w *world) {
		m := mark("fleet") // of a lifetime that its sandbox's own timeout does not keep
		m.Lifetime = 10 * time.Minute
		for _, app := range []string{"one", "two"} {
			m.Nonce = mark("fleet").Nonce
			w.others(app, &sdk.SandboxCreateParams{
				Name: m.Name(), Timeout: 20 * time.Hour,
				Tags: map[string]string{sandbox.MarkKey: m.String(), sandbox.FleetKey: "fleet", sandbox.NonceKey: m.Nonce},
			})
		}
		w.sweep(4, 20*time.Minute)
		w.nothing()
	})
}

func TestModal11SandboxesOfBothBackendsAreListedUsedAndDeleted(t *testing.T) {
	bubble(t, func(w *world) {
		first := order(10 * time.Minute)
		first.Spec.Native = &modal.Options{GPU: "T4"} // which only the older backend has
		first.Spec.Env = map[string]string{"A": "b"}
		a, b := w.makeOf(first), w.make(10*time.Minute)
		require.True(t, w.truth(a.ID).V1)
		require.False(t, w.truth(b.ID).V1)
		all, err := w.list(sandbox.Filter{Fleet: "fleet"})
		require.NoError(t, err)
		require.Len(t, all, 2)
		assert.Zero(t, w.fake.Count("SandboxList"), "which would show one of them")
		for _, info := range all {
			now, err := w.p.Get(context.Background(), info.ID)
			require.NoError(t, err)
			assert.Equal(t, info.Mark, now.Mark)
			now, err = w.p.Extend(context.Background(), now, 10*time.Minute)
			require.NoError(t, err)
			assert.InDelta(t, 10*time.Minute, now.Left(), float64(3*time.Second))
			require.NoError(t, sandbox.Terminate(context.Background(), w.p, info.ID))
		}
		w.nothing()
	})
}

func TestModal11WhatTheOlderBackendFindsNoPlaceForIsGivenBackToBeDeleted(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(10 * time.Minute)
		req.Spec.Native = &modal.Options{GPU: "T4"}
		w.fake.Fault("SandboxGetTaskId", modalfake.Fault{Code: codes.PermissionDenied}) // right after the create
		info, err := w.p.Create(context.Background(), req)
		e := apiError(t, err)
		assert.False(t, e.Refused, "something was made")
		require.NotEmpty(t, info.ID)
		require.NoError(t, sandbox.Terminate(context.Background(), w.p, info.ID))
		w.nothing()
	})
}

func TestModal12NothingEverWritesTags(t *testing.T) {
	bubble(t, func(w *world) {
		err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			before := w.truth(sb.ID()).Record.Tags
			err := wait(ctx, 30*time.Minute)
			assert.Equal(t, before, w.truth(sb.ID()).Record.Tags)
			return err
		})
		require.NoError(t, err)
		assert.Zero(t, w.fake.Count("SandboxTagsSetV2"))
		assert.Zero(t, w.fake.Count("SandboxTagsSet"))
		assert.Zero(t, w.fake.Count("AppStop"), "which would end everybody's")
	})
}

func TestModal13ATerminateThatFailsIsTriedAgain(t *testing.T) {
	bubble(t, func(w *world) {
		w.fake.Fault("SandboxTerminateV2", modalfake.Fault{Code: codes.Unavailable, Times: 5})
		err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error { return wait(ctx, 10*time.Second) })
		assert.NoError(t, err)
		assert.Equal(t, 6, w.fake.Count("SandboxTerminateV2"))
		w.nothing()
	})
}

func TestModal13ATerminateThatNeverWorksIsALeakThatIsNamed(t *testing.T) {
	bubble(t, func(w *world) {
		var id string
		w.fake.Fault("SandboxTerminateV2", modalfake.Fault{Code: codes.Unavailable, Times: -1})
		began := time.Now()
		err := w.manager(func(c *sandbox.Config) { c.Scope.Window = 5 * time.Minute }).WithSandbox(context.Background(),
			func(_ context.Context, sb sandbox.Sandbox) error {
				id = sb.ID()
				return nil
			})
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok, "%v", err)
		require.Len(t, leak.Sandboxes, 1)
		assert.Equal(t, id, leak.Sandboxes[0].ID)
		assert.True(t, leak.Sandboxes[0].Deadline.After(began))
		time.Sleep(after(5 * time.Minute))
		assert.False(t, w.runs(id), "its lease has ended it")
	})
}

func TestModal14WhatHasEndedIsNeverAdopted(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(time.Minute)
		w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.Unavailable, After: true})
		_, err := w.p.Create(context.Background(), req)
		require.Error(t, err)
		dead := w.fake.All()[0].ID
		require.True(t, w.fake.End(dead, pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE, 0))
		info, err := w.p.Create(context.Background(), req)
		require.NoError(t, err)
		assert.NotEqual(t, dead, info.ID)
		assert.Equal(t, sandbox.StateRunning, info.State)
		found, err := w.list(sandbox.Filter{Nonce: req.Mark.Nonce})
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, info.ID, found[0].ID)
		for _, r := range w.fake.Requests() {
			if named, ok := r.Message.(*pb.SandboxGetFromNameRequest); ok {
				assert.False(t, named.GetIncludeTerminated())
			}
		}
	})
}

func TestModal15AnEndIsToldByItsStatusAndNeverLooksLikeSuccess(t *testing.T) {
	for status, word := range map[pb.GenericResult_GenericStatus]string{
		pb.GenericResult_GENERIC_STATUS_SUCCESS:                 "success with exit code 0",
		pb.GenericResult_GENERIC_STATUS_FAILURE:                 "failure with exit code 0",
		pb.GenericResult_GENERIC_STATUS_TERMINATED:              "terminated",
		pb.GenericResult_GENERIC_STATUS_TIMEOUT:                 "timeout",
		pb.GenericResult_GENERIC_STATUS_INIT_FAILURE:            "init failure",
		pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE:        "internal failure",
		pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT:            "idle timeout",
		pb.GenericResult_GENERIC_STATUS_MEMORY_MANAGER_EVICTION: "memory manager eviction",
	} {
		t.Run(word, func(t *testing.T) {
			bubble(t, func(w *world) {
				err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
					require.True(t, w.fake.End(sb.ID(), status, 0))
					info, err := w.p.Get(ctx, sb.ID())
					assert.NoError(t, err)
					assert.Equal(t, sandbox.StateGone, info.State)
					assert.Equal(t, word, info.Detail)
					return wait(ctx, time.Hour)
				})
				assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
				assert.ErrorContains(t, err, word)
			})
		})
	}
}

func TestModal16AResultWithoutAStatusIsNoEnd(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		now, err := w.p.Get(context.Background(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, now.State)
		require.NoError(t, sandbox.Terminate(context.Background(), w.p, info.ID))
		w.nothing()
	}, slow, func(o *modalfake.Options, _ *modal.Config) { o.Quirks.StatusUnset = true })
}

func TestModal17ASlotIsFreeWhenTheEndIsSeenAndNotBefore(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.manager(func(c *sandbox.Config) { c.MaxLive = 1 })
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				assert.NoError(t, m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
					assert.Len(t, w.fake.All(), 1, "what is ending counts too")
					return wait(ctx, time.Second)
				}))
			})
		}
		wg.Wait()
		w.nothing()
	}, slow)
}

func TestModal18CleaningUpHasOneBudgetForAllItsSteps(t *testing.T) {
	for method, f := range map[string]modalfake.Fault{
		"SandboxTerminateV2": {Hang: true, Times: -1}, "SandboxWaitV2": {Hang: true, Times: -1}, "": {Hang: true, Times: -1},
	} {
		t.Run("hangs: "+method, func(t *testing.T) {
			bubble(t, func(w *world) {
				m := w.manager(func(c *sandbox.Config) { c.CleanupTimeout = 3 * time.Minute })
				var ended time.Time
				err := m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
					w.fake.Fault(method, f)
					ended = time.Now()
					return nil
				})
				_, ok := errors.AsType[*sandbox.LeakError](err)
				assert.True(t, ok, "%v", err)
				assert.LessOrEqual(t, time.Since(ended), 3*time.Minute+2*time.Second)
				w.fake.Heal()
			})
		})
	}
}

func TestModal19RefusedCreatesArePacedAndBounded(t *testing.T) {
	bubble(t, func(w *world) {
		w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.ResourceExhausted, Times: -1})
		err := w.manager(func(c *sandbox.Config) { c.CreateTimeout = 2 * time.Minute }).WithSandbox(context.Background(),
			func(context.Context, sandbox.Sandbox) error { return nil })
		assert.ErrorIs(t, err, sandbox.ErrQuota)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.LessOrEqual(t, w.fake.Count("SandboxCreateV2"), 15, "in two minutes")
		w.nothing()
	})
}

func TestModal19ACreateThatStartsAndDiesIsNotRepeated(t *testing.T) {
	bubble(t, func(w *world) {
		err := w.manager().WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { return nil })
		e := apiError(t, err)
		assert.ErrorIs(t, e, sandbox.ErrInvalid)
		assert.ErrorContains(t, e, "needs a sh")
		assert.Equal(t, 1, w.fake.Count("SandboxCreateV2"))
		w.nothing()
	}, func(o *modalfake.Options, _ *modal.Config) { o.Quirks.NoShell = true })
}

func TestModal20TheHardEndIsAnErrorOfItsOwnAndComesAfterTheScopes(t *testing.T) {
	bubble(t, func(w *world) {
		var id string
		err := w.manager(func(c *sandbox.Config) { c.Scope.MaxLifetime = 20 * time.Minute }).WithSandbox(context.Background(),
			func(ctx context.Context, sb sandbox.Sandbox) error {
				id = sb.ID()
				<-ctx.Done()
				assert.True(t, w.runs(id), "fn has its grace")
				return context.Cause(ctx)
			})
		assert.ErrorIs(t, err, sandbox.ErrMaxLifetime)
		truth := w.truth(id)
		assert.Equal(t, pb.GenericResult_GENERIC_STATUS_TERMINATED, truth.Result.GetStatus(), "by us, not by the service")
		assert.Greater(t, truth.Timeout, 20*time.Minute)
		assert.LessOrEqual(t, truth.Timeout, 20*time.Minute+2*time.Second+2*time.Minute)
	})
}

func TestModal21ACommandInWhatHasEndedIsAnErrorAtOnce(t *testing.T) {
	for _, code := range []codes.Code{codes.NotFound, codes.FailedPrecondition, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			bubble(t, func(w *world) {
				info := w.make(time.Minute)
				require.NoError(t, sandbox.Terminate(context.Background(), w.p, info.ID))
				other := w.another()
				for _, p := range []*modal.Provider{w.p, other} {
					began := time.Now()
					_, err := p.Open(info).Exec(context.Background(), sandbox.Cmd{Args: []string{"true"}, Timeout: time.Minute})
					apiError(t, err)
					assert.Less(t, time.Since(began), 30*time.Second)
				}
			}, func(o *modalfake.Options, _ *modal.Config) { o.Quirks.ExecGone = code })
		})
	}
}

func TestModal21ASandboxThatEndsUnderACommandIsAnError(t *testing.T) {
	for name, dead := range map[string]codes.Code{"a signal": codes.OK, "lost": codes.NotFound, "unavailable": codes.Unavailable} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				info := w.make(time.Minute)
				go func() {
					time.Sleep(5 * time.Second)
					w.fake.End(info.ID, pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE, 0)
				}()
				began := time.Now()
				res, err := w.p.Open(info).Exec(context.Background(), sandbox.Cmd{Args: []string{"sleep", "1000"}, Timeout: 10 * time.Minute})
				if err == nil { // as the service tells it
					assert.Equal(t, 137, res.ExitCode)
				} else {
					assert.NotEqual(t, codes.OK, dead)
					apiError(t, err)
				}
				assert.Less(t, time.Since(began), time.Minute)
			}, func(o *modalfake.Options, _ *modal.Config) { o.Quirks.DeadExec = dead })
		})
	}
}

func TestModal22ADetachedHandleKeepsNobodyFromTheDelete(t *testing.T) {
	bubble(t, func(w *world) {
		err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			own, ok := sandbox.As[*sdk.Sandbox](sb)
			require.True(t, ok)
			require.NoError(t, own.Detach())
			if err := wait(ctx, 10*time.Minute); err != nil {
				return err // beats go on
			}
			res, err := sb.Exec(ctx, sandbox.Shell("echo here"))
			assert.Equal(t, "here\n", string(res.Stdout))
			return err
		})
		assert.NoError(t, err)
		assert.Equal(t, 1, w.fake.Count("SandboxTerminateV2"))
		w.nothing()
	})
}

func TestA02ACreateIsCancelledAtAnyPointAndLeavesNothing(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, func(w *world) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				go func() {
					time.Sleep(time.Duration(i) * 150 * time.Millisecond)
					cancel()
				}()
				err := w.manager().WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error { return wait(ctx, time.Hour) })
				assert.ErrorIs(t, err, context.Canceled)
				w.nothing()
			}, slow, func(o *modalfake.Options, _ *modal.Config) { o.Behaviour.StartTime = 2 * time.Second })
		})
	}
}

func TestE08TheIdleTimeIsNotTheTimeout(t *testing.T) {
	bubble(t, func(w *world) {
		err := w.manager(func(c *sandbox.Config) { c.Scope.Window, c.Scope.MaxLifetime = time.Minute, time.Hour }).WithSandbox(context.Background(),
			func(ctx context.Context, sb sandbox.Sandbox) error {
				truth := w.truth(sb.ID())
				assert.Equal(t, time.Minute, truth.Idle)
				assert.Greater(t, truth.Timeout, time.Hour)
				res, err := sb.Exec(ctx, sandbox.Shell("sleep 600; echo done"))
				assert.Equal(t, "done", strings.TrimSpace(string(res.Stdout)))
				return err
			})
		assert.NoError(t, err)
	})
}
