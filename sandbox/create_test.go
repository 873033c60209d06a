package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func ok(context.Context, sandbox.Sandbox) error { return nil }

// unkeyed is a service on which a repeated create makes a second sandbox, and a commit may come late.
func unkeyed() sandboxtest.Kind {
	return kind(func(c *sandbox.Capabilities) {
		c.CreateOnce, c.CommitDelay, c.ReadLag = false, 30*sec, 3*sec
	})
}

// The request reaches the service at some time, the answer is lost or the caller gives up at some time: in every
// combination the sandbox is found and gone in the end, or handed to a function that the caller still wants.
func TestA01toA20LostAndCancelledCreatesLeaveNothing(t *testing.T) {
	for _, k := range append(sandboxtest.Kinds(), everything(), unkeyed()) {
		for name, f := range map[string]sandboxtest.Fault{
			"answer lost":           {Err: sandboxtest.Status(502), After: true},
			"hangs after commit":    {Hang: true, After: true},
			"hangs before commit":   {Hang: true},
			"deaf after commit":     {Hang: true, Deaf: true, After: true},
			"commits late":          {Err: sandboxtest.Status(504), Late: true, Delay: min(20*sec, max(k.Capabilities.CommitDelay-sec, 0))},
			"slow":                  {Delay: 40 * sec},
			"twin":                  {Effect: sandboxtest.EffectTwin},
			"twin, the answer lost": {Effect: sandboxtest.EffectTwin, Err: errors.New("connection reset"), After: true},
		} {
			for _, cancel := range []time.Duration{0, time.Millisecond, 5 * sec, 19 * sec, 21 * sec, 39 * sec, 41 * sec, 125 * sec, 20 * mins} {
				t.Run(fmt.Sprintf("%s/%s/cancel %v", k.Name, name, cancel), func(t *testing.T) {
					inWorld(t, k, sandbox.Config{}, func(w *world) {
						w.p.Fault(sandbox.OpCreate, f)
						ctx, stop := context.WithCancel(context.Background())
						defer stop()
						if cancel > 0 {
							time.AfterFunc(cancel, stop)
						}
						began := time.Now()
						err := w.m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
							assert.Contains(t, liveIDs(w.p), sb.ID())
							time.Sleep(sec)
							return nil
						})
						if took := time.Since(began); cancel > 0 && took > cancel {
							assert.LessOrEqual(t, took-cancel, w.grace()+w.cleanupTime())
						}
						w.p.Heal()
						synctest.Wait()
						time.Sleep(mins) // what came too late is deleted when it comes
						synctest.Wait()
						leak, _ := errors.AsType[*sandbox.LeakError](err)
						if name == "twin" && !k.Capabilities.GoneByList && !k.Capabilities.CreateOnce { // nobody could know: its own lease ends it
							time.Sleep(4 * mins)
							if k.Capabilities.Extend == sandbox.ExtendNone {
								time.Sleep(time.Hour)
							}
						}
						w.honest(leak)
						if cancel == 0 && leak == nil && (name == "answer lost" || name == "slow") {
							assert.NoError(t, err, "what the caller still wants is handed over")
						}
					})
				})
			}
		}
	}
}

func liveIDs(p *sandboxtest.Provider) (ids []string) {
	for _, info := range p.Live() {
		ids = append(ids, info.ID)
	}
	return ids
}

func TestA03LostAnswerIsLookedForBeyondTheListsLag(t *testing.T) {
	k := unkeyed()
	inWorld(t, k, sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: errors.New("connection reset"), After: true})
		require.NoError(t, w.m.WithSandbox(context.Background(), ok))
		assert.Len(t, w.p.Calls(sandbox.OpCreate), 1, "a create without an answer is never sent again blindly")
		w.settle(nil)
	})
}

func TestA08CleanupThatFailsAfterALateCreateIsReported(t *testing.T) {
	inWorld(t, unkeyed(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Delay: 5 * sec, Late: true})
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		err := w.m.WithSandbox(ctx, ok)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		leak, found := errors.AsType[*sandbox.LeakError](err)
		require.True(t, found)
		assert.NotEmpty(t, leak.Sandboxes[0].ID)
		assert.NotEmpty(t, w.seen(sandbox.OpConfirm, true)[0].Err)
		w.settle(err)
	})
}

func TestA09CancelOfACreateReturnsWithinTheBudget(t *testing.T) {
	k := kind(func(c *sandbox.Capabilities) { c.DeleteTime = sec })
	inWorld(t, k, sandbox.Config{CleanupTimeout: 3 * sec, Grace: sec}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.NeverReady = true })
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		began := time.Now()
		err := w.m.WithSandbox(ctx, ok)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(began), 4*sec)
		w.settle(err)
	})
}

func TestA14CreateHasALimitWithoutADeadlineOfTheCaller(t *testing.T) {
	inWorld(t, unkeyed(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Hang: true, After: true})
		began := time.Now()
		require.NoError(t, w.m.WithSandbox(context.Background(), ok), "found and adopted")
		assert.Less(t, time.Since(began), 3*mins)
		w.settle(nil)
	})
}

func TestA18AbsenceBeforeTheCommitDelayIsNoProof(t *testing.T) {
	inWorld(t, unkeyed(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(504), Late: true, Delay: 25 * sec})
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		err := w.m.WithSandbox(ctx, ok)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotEmpty(t, w.p.Calls(sandbox.OpDelete), "it came after 25 s, and was deleted")
		assert.Nil(t, w.settle(err))
	})
}

func TestTwinsOfAnUnansweredCreateAreAllEnded(t *testing.T) {
	inWorld(t, unkeyed(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Effect: sandboxtest.EffectTwin, Err: sandboxtest.Status(502), After: true})
		require.NoError(t, w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
			assert.Len(t, w.p.Live(), 2, "the service has made two")
			return nil
		}))
		w.settle(nil)
	})
}

func TestTwinOfAnUndisturbedLifeIsFoundWhereListsAreAWitness(t *testing.T) {
	k := kind(func(c *sandbox.Capabilities) { c.CreateOnce, c.GoneByList = false, true })
	inWorld(t, k, sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Effect: sandboxtest.EffectTwin})
		require.NoError(t, w.m.WithSandbox(context.Background(), ok))
		w.settle(nil)
	})
}

func TestCreateThatNobodyCanSeeIsALeakWithItsNonceAndWorstEnd(t *testing.T) {
	inWorld(t, unkeyed(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(504), After: true})
		w.p.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		err := w.m.WithSandbox(context.Background(), ok)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		leak := w.settle(err)
		require.NotNil(t, leak)
		require.Len(t, leak.Sandboxes, 1)
		assert.Empty(t, leak.Sandboxes[0].ID)
		assert.Contains(t, err.Error(), leak.Sandboxes[0].Mark.Nonce)
	})
}

func TestUnansweredCreateWithoutAMarkIsALeakEvenIfNoListShowsIt(t *testing.T) {
	k := kind(func(c *sandbox.Capabilities) { c.CreateOnce, c.MarkAtCreate = false, false })
	inWorld(t, k, sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(504), After: true})
		err := w.m.WithSandbox(context.Background(), ok)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		leak, found := errors.AsType[*sandbox.LeakError](err)
		require.True(t, found, "%v", err)
		assert.NotEmpty(t, leak.Sandboxes[0].Mark.Nonce)
		w.honest(leak)
	})
}

func TestForeignSandboxUnderOurNonceIsNotTouched(t *testing.T) {
	inWorld(t, unkeyed(), sandbox.Config{}, func(w *world) {
		var fork string
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.IgnoreFilter = true })
		require.NoError(t, w.m.WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error {
			_, err := w.p.Create(context.Background(), sandbox.CreateRequest{Mark: mark(), Window: 23 * time.Hour})
			fork = liveIDs(w.p)[1]
			return err
		}))
		assert.Equal(t, []string{fork}, liveIDs(w.p), "a list that ignores the filter shows it; it is not ours")
	})
}

func TestRefusedCreatesAreTriedAgainWithinTheDeadline(t *testing.T) {
	for _, status := range []int{429, 503} {
		inWorld(t, everything(), sandbox.Config{}, func(w *world) {
			refusal := sandboxtest.Status(status)
			refusal.Refused, refusal.RetryAfter = true, 7*sec
			w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: refusal, Times: 3})
			began := time.Now()
			require.NoError(t, w.m.WithSandbox(context.Background(), ok))
			assert.GreaterOrEqual(t, time.Since(began), 21*sec, "Retry-After is obeyed")
			assert.Len(t, w.p.Calls(sandbox.OpCreate), 4)
			w.settle(nil)
		})
	}
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(429), Times: -1})
		began := time.Now()
		err := w.m.WithSandbox(context.Background(), ok)
		assert.ErrorIs(t, err, sandbox.ErrRateLimited)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.LessOrEqual(t, time.Since(began), 2*mins)
		assert.Less(t, len(w.p.Calls(sandbox.OpCreate)), 20, "with growing pauses")
		w.settle(err)
	})
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(401)})
		err := w.m.WithSandbox(context.Background(), ok)
		assert.ErrorIs(t, err, sandbox.ErrUnauthenticated)
		assert.Len(t, w.p.Calls(sandbox.OpCreate), 1, "what time does not change is not tried again")
	})
}

func TestOneRetryAfterHoldsAllCreatesOfTheAccountButNoDelete(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		refusal := sandboxtest.Status(429)
		refusal.RetryAfter = mins
		release := make(chan struct{})
		done := make(chan error, 2)
		go func() {
			done <- w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { <-release; return nil })
		}()
		synctest.Wait()
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: refusal})
		began := time.Now()
		go func() { done <- w.m.WithSandbox(context.Background(), ok) }()
		synctest.Wait()
		close(release)
		require.NoError(t, <-done)
		assert.Less(t, time.Since(began), sec, "the delete did not wait")
		require.NoError(t, w.m.WithSandbox(context.Background(), ok))
		assert.GreaterOrEqual(t, time.Since(began), mins, "another scope's create did")
		require.NoError(t, <-done)
	})
}

func TestACreateWaitsForWhatAnotherScopeWasToldNoLongerThanForItsOwnRefusal(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{MaxLive: 1}, func(w *world) {
		refusal := sandboxtest.Status(429)
		refusal.RetryAfter = time.Hour // as where a day's share is used up
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: refusal})
		began := time.Now()
		require.ErrorIs(t, w.m.WithSandbox(context.Background(), ok), sandbox.ErrRateLimited)
		time.Sleep(20 * mins)
		err := w.m.WithSandbox(context.Background(), ok)
		assert.ErrorIs(t, err, sandbox.ErrRateLimited)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		api, told := errors.AsType[*sandbox.APIError](err)
		require.True(t, told)
		assert.Equal(t, 40*mins, api.RetryAfter)
		assert.ErrorContains(t, err, began.Add(time.Hour).UTC().Format(time.RFC3339))
		assert.Equal(t, 20*mins, time.Since(began), "it does not wait")
		assert.Len(t, w.p.Calls(sandbox.OpCreate), 1)

		time.Sleep(39 * mins)
		told = false
		for _, e := range w.during(func() { assert.NoError(t, w.m.WithSandbox(context.Background(), ok)) }) {
			told = told || e.Op == sandbox.OpCreate && errors.Is(e.Err, sandbox.ErrRateLimited)
		}
		assert.True(t, told, "that it waits")
		assert.Equal(t, time.Hour, time.Since(began))
		w.settle(nil)
	})
}

// during returns what is told while f runs.
func (w *world) during(f func()) []sandbox.Event {
	w.mu.Lock()
	before := len(w.events)
	w.mu.Unlock()
	f()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[before:]
}

func TestWrongEndAtCreateIsDeletedAndFails(t *testing.T) {
	for name, behave := range map[string]func(*sandboxtest.Behaviour){
		"none":  func(b *sandboxtest.Behaviour) { b.NoLease = true },
		"later": func(b *sandboxtest.Behaviour) { b.GrantExtra = 24 * time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, everything(), sandbox.Config{}, func(w *world) {
				w.p.Behave(behave)
				err := w.m.WithSandbox(context.Background(), ok)
				assert.ErrorIs(t, err, sandbox.ErrNotStarted)
				assert.ErrorContains(t, err, "asked to end within 3m0s")
				w.settle(err)
			})
		})
	}
}

func TestB08UnreadableEndIsNoReasonToDelete(t *testing.T) {
	k := kindNamed(t, "e2b")
	inWorld(t, k, sandbox.Config{}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.StartTime = 5 * sec })
		w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: 20})
		called := false
		err := w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { called = true; return nil })
		require.NoError(t, err)
		assert.True(t, called)
	})
}

func TestClockOfTheServiceMayBeWrong(t *testing.T) {
	for _, skew := range []time.Duration{-2 * time.Hour, 2 * time.Hour} {
		for _, k := range append(sandboxtest.Kinds(), unkeyed()) {
			t.Run(fmt.Sprint(k.Name, skew), func(t *testing.T) {
				inWorld(t, k, sandbox.Config{}, func(w *world) {
					w.p.Behave(func(b *sandboxtest.Behaviour) { b.Skew = skew })
					w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(502), After: true})
					require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
						time.Sleep(20 * mins)
						return ctx.Err()
					}))
					w.settle(nil)
				})
			})
		}
	}
}
