package sandbox_test

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

// made makes a sandbox that has nothing to do with w's Manager.
func (w *world) made(change func(*sandbox.CreateRequest)) sandbox.Info {
	w.t.Helper()
	req := sandbox.CreateRequest{Mark: mark(), Window: 2 * mins}
	req.Mark.Lifetime = 2 * time.Hour
	req.Mark.Created = time.Now().UTC().Truncate(sec)
	if w.p.Capabilities().Extend == sandbox.ExtendNone {
		req.Window = 2 * time.Hour
	}
	if change != nil {
		change(&req)
	}
	info, err := w.p.Create(context.Background(), req)
	require.NoError(w.t, err)
	w.p.Advance(5 * sec) // past its start
	return info
}

// neverNearer checks from now on that no deadline comes nearer.
func (w *world) neverNearer() {
	last := map[string]time.Time{}
	w.p.Watch(func(c sandboxtest.Change) {
		if c.Info.State != sandbox.StateRunning {
			return
		}
		if before := last[c.Info.ID]; !before.IsZero() {
			assert.False(w.t, c.Info.Deadline.Before(before.Add(-sec)), "a deadline came nearer by %v", before.Sub(c.Info.Deadline))
		}
		last[c.Info.ID] = c.Info.Deadline
	})
}

func TestAttachExtendsBeforeItsFunctionKeepsTheLeaseAndLeavesTheSandbox(t *testing.T) {
	for _, k := range append(sandboxtest.Kinds(), everything()) {
		t.Run(k.Name, func(t *testing.T) {
			inWorld(t, k, sandbox.Config{}, func(w *world) {
				info := w.made(nil)
				w.neverNearer()
				err := w.m.AttachSandbox(context.Background(), info.ID, false, func(ctx context.Context, sb sandbox.Sandbox) error {
					assert.Equal(t, info.ID, sb.ID())
					left := w.p.Live()[0].Left()
					full := 3 * mins
					if k.Capabilities.Extend == sandbox.ExtendActivity {
						full = 2 * mins // use brings back what the create asked for
					}
					assert.Greater(t, left, full-sec, "the lease was not extended before the function")
					res, err := sb.Exec(ctx, sandbox.Shell("echo here"))
					assert.NoError(t, err)
					assert.Equal(t, "here\n", string(res.Stdout))
					assert.Empty(t, w.m.Live(), "a guest's sandbox is not ours")
					time.Sleep(30 * mins)
					return context.Cause(ctx)
				})
				require.NoError(t, err)
				assert.Empty(t, w.p.Calls(sandbox.OpDelete))
				require.Len(t, w.p.Live(), 1, "a guest leaves the sandbox")
				if k.Capabilities.Extend != sandbox.ExtendNone {
					time.Sleep(3*mins + k.Capabilities.Lateness + 10*sec)
					assert.Empty(t, w.p.Live(), "and its lease ends it")
				}
			})
		})
	}
}

// E03: connecting shortened 30 minutes to 5.
func TestE03AttachNeverShortensALeaseThatSomebodyElseMadeLonger(t *testing.T) {
	for _, name := range []string{"e2b", "daytona", "vercel", "boat", "docker", "kubernetes"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, kindNamed(t, name), sandbox.Config{}, func(w *world) {
				info := w.made(func(r *sandbox.CreateRequest) { r.Window = 30 * mins })
				w.neverNearer()
				extends := 0
				require.NoError(t, w.m.AttachSandbox(context.Background(), info.ID, false, func(ctx context.Context, _ sandbox.Sandbox) error {
					time.Sleep(20 * mins)
					extends = len(w.p.Calls(sandbox.OpExtend))
					time.Sleep(20 * mins) // past the 30
					return context.Cause(ctx)
				}))
				assert.Zero(t, extends, "there was nothing to extend")
				assert.NotEmpty(t, w.p.Calls(sandbox.OpExtend))
				assert.Len(t, w.p.Live(), 1)
			})
		})
	}
}

func TestAttachLeavesASandboxWithoutAnEndWithoutOne(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.NoLease = true })
		info := w.made(nil)
		require.True(t, w.p.DropTags(info.ID, sandbox.MarkKey), "somebody else's")
		require.NoError(t, w.m.AttachSandbox(context.Background(), info.ID, false, func(ctx context.Context, _ sandbox.Sandbox) error {
			time.Sleep(20 * mins)
			return context.Cause(ctx)
		}))
		assert.Empty(t, w.p.Calls(sandbox.OpExtend))
		assert.Len(t, w.p.Live(), 1)
	})
}

func TestAGuestNeverShortensItsOwnersLease(t *testing.T) {
	for _, window := range []time.Duration{3 * mins, 4 * mins, 5 * mins, 7 * mins, 20 * mins} {
		t.Run(window.String(), func(t *testing.T) {
			inWorld(t, everything(), sandbox.Config{}, func(w *world) {
				guest, err := sandbox.NewManager(w.p, sandbox.Config{Fleet: "guest"})
				require.NoError(t, err)
				require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
					w.neverNearer()
					err := guest.AttachSandbox(ctx, sb.ID(), false, func(ctx context.Context, _ sandbox.Sandbox) error {
						time.Sleep(40 * mins)
						return context.Cause(ctx)
					})
					assert.NoError(t, err)
					return context.Cause(ctx)
				}, func(s *sandbox.Scope) { s.Window = window }))
				w.settle(nil)
			})
		})
	}
}

// The owner's beats set the shorter lease again and again; when they end, the guest must have noticed.
func TestAGuestOfAnOwnerWithAShortWindowKeepsTheLeaseWhenTheOwnerDies(t *testing.T) {
	for _, window := range []time.Duration{20 * sec, 30 * sec, mins, 2 * mins} {
		for death := range 20 {
			inWorld(t, everything(), sandbox.Config{}, func(w *world) {
				info := w.made(func(r *sandbox.CreateRequest) { r.Window = window })
				owner, die := context.WithTimeout(context.Background(), 20*mins+time.Duration(death)*7*sec)
				defer die()
				go func() {
					for owner.Err() == nil {
						info, _ := w.p.Get(owner, info.ID)
						_, _ = w.p.Extend(owner, info, window)
						select {
						case <-owner.Done():
						case <-time.After(window / 3):
						}
					}
				}()
				assert.NoError(t, w.m.AttachSandbox(context.Background(), info.ID, false, func(ctx context.Context, _ sandbox.Sandbox) error {
					time.Sleep(50 * mins)
					return context.Cause(ctx)
				}))
				assert.Len(t, w.p.Live(), 1)
			})
		}
	}
}

func TestAGuestInTheOwnersManagerLeavesTheBeatsToTheOwner(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			time.Sleep(30 * mins)
			alone := len(w.p.Calls(sandbox.OpExtend))
			assert.NoError(t, w.m.AttachSandbox(ctx, sb.ID(), false, func(ctx context.Context, _ sandbox.Sandbox) error {
				assert.Len(t, w.m.Live(), 1)
				time.Sleep(28 * mins)
				return context.Cause(ctx)
			}))
			assert.InDelta(t, alone, len(w.p.Calls(sandbox.OpExtend))-alone, 5)
			return context.Cause(ctx)
		}))
		w.settle(nil)
	})
}

// F18: when the one who beats dies, whoever is attached goes on, with no gap.
func TestF18AGuestKeepsTheLeaseWhenItsOwnerDies(t *testing.T) {
	for _, name := range []string{"e2b", "daytona", "modal", "vercel", "boat", "docker", "kubernetes"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, kindNamed(t, name), sandbox.Config{}, func(w *world) {
				info := w.made(func(r *sandbox.CreateRequest) { r.Window = 3 * mins }) // the owner is dead from here
				require.NoError(t, w.m.AttachSandbox(context.Background(), info.ID, false, func(ctx context.Context, _ sandbox.Sandbox) error {
					for range 60 {
						time.Sleep(mins)
						require.NoError(t, context.Cause(ctx))
						require.Len(t, w.p.Live(), 1)
					}
					return nil
				}, func(s *sandbox.Scope) { s.MaxLifetime = 90 * mins }))
				assert.Len(t, w.p.Live(), 1)
			})
		})
	}
}

func TestAGuestsEndLeavesTheSandboxHoweverItComes(t *testing.T) {
	for name, tc := range map[string]struct {
		fn   func(w *world, ctx context.Context, cancel func()) error
		cfg  sandbox.Config
		is   error
		gone bool
	}{
		"an error": {fn: func(*world, context.Context, func()) error { return errTask }, is: errTask},
		"an error, and KeepOnError": {
			fn: func(*world, context.Context, func()) error { return errTask }, is: errTask,
			cfg: sandbox.Config{Scope: sandbox.Scope{KeepOnError: 30 * mins}},
		},
		"a cancel": {fn: func(_ *world, ctx context.Context, cancel func()) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}, is: context.Canceled},
		"a cancel that the function ignores": {fn: func(_ *world, _ context.Context, cancel func()) error {
			cancel()
			time.Sleep(mins)
			return errTask
		}, is: errTask},
		"a shutdown": {fn: func(w *world, ctx context.Context, _ func()) error {
			go func() { assert.NoError(w.t, w.m.Shutdown(context.Background())) }()
			<-ctx.Done()
			return ctx.Err()
		}, is: sandbox.ErrShutdown},
		"a stall": {fn: func(_ *world, ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }, is: sandbox.ErrStalled, cfg: sandbox.Config{Scope: sandbox.Scope{StallTimeout: 5 * mins}}},
		"its own max lifetime": {
			fn: func(_ *world, ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }, is: sandbox.ErrMaxLifetime,
			cfg: sandbox.Config{Scope: sandbox.Scope{MaxLifetime: 20 * mins}},
		},
		"a kill by somebody else": {fn: func(w *world, ctx context.Context, _ func()) error {
			w.p.Kill(w.p.Live()[0].ID)
			<-ctx.Done()
			return nil
		}, is: sandbox.ErrLeaseLost, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, everything(), tc.cfg, func(w *world) {
				info := w.made(nil)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				err := w.m.AttachSandbox(ctx, info.ID, false, func(ctx context.Context, _ sandbox.Sandbox) error {
					return tc.fn(w, ctx, cancel)
				})
				assert.ErrorIs(t, err, tc.is)
				assert.NotErrorIs(t, err, sandbox.ErrNotStarted)
				synctest.Wait()
				assert.Empty(t, w.p.Calls(sandbox.OpDelete))
				assert.Empty(t, w.m.Live())
				if !tc.gone {
					assert.Len(t, w.p.Live(), 1)
				}
			})
		})
	}
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		info := w.made(nil)
		assert.PanicsWithValue(t, "task", func() {
			_ = w.m.AttachSandbox(context.Background(), info.ID, false, func(context.Context, sandbox.Sandbox) error { panic("task") })
		})
		assert.Len(t, w.p.Live(), 1)
	})
}

func TestAttachEndsBeforeTheHardEndInTheMark(t *testing.T) {
	for _, takeOver := range []bool{false, true} {
		inWorld(t, everything(), sandbox.Config{}, func(w *world) {
			id, e := w.left(nil)
			hard := w.p.Live()[0].HardDeadline()
			began := time.Now()
			w.p.Watch(func(c sandboxtest.Change) {
				assert.False(t, c.Info.Deadline.After(hard.Add(sec)), "a beat moved the end past the hard end")
			})
			err := w.m.AttachSandbox(context.Background(), id, takeOver, func(ctx context.Context, _ sandbox.Sandbox) error {
				<-ctx.Done()
				return ctx.Err()
			}, func(s *sandbox.Scope) { s.MaxLifetime = 20 * time.Hour })
			assert.ErrorIs(t, err, sandbox.ErrMaxLifetime)
			assert.InDelta(t, (e.Mark.Lifetime - 130*sec).Seconds(), time.Since(began).Seconds(), 60)
		})
	}
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		info := w.made(func(r *sandbox.CreateRequest) { r.Mark.Lifetime = 2 * mins })
		err := w.m.AttachSandbox(context.Background(), info.ID, false, ok)
		assert.ErrorIs(t, err, sandbox.ErrMaxLifetime)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
	})
}

func TestEventsOfAGuestCarryTheNonceOfItsSandboxFromTheFirstLookOn(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		info := w.made(nil)
		require.NoError(t, w.m.AttachSandbox(context.Background(), info.ID, false, ok))
		for i, e := range w.events {
			assert.Equal(t, i < 2, e.Info.Mark.Nonce != info.Mark.Nonce, "%d: %s", i, e.Op)
		}
		assert.Equal(t, w.events[0].Info.Mark.Nonce, w.events[1].Info.Mark.Nonce)
		assert.Equal(t, sandbox.OpGet, w.events[1].Op)
	})
}

func TestAttachRefusesWhatItCannotKeepAndTouchesNothing(t *testing.T) {
	blind := kind(func(c *sandbox.Capabilities) { c.ReadsDeadline = false })
	for name, tc := range map[string]struct {
		kind   sandboxtest.Kind
		before func(w *world, id string) string
		is     error
	}{
		"there is none":          {kind: everything(), before: func(*world, string) string { return "nosuch" }, is: sandbox.ErrNotFound},
		"no id":                  {kind: everything(), before: func(*world, string) string { return "" }, is: sandbox.ErrInvalid},
		"it is gone":             {kind: everything(), before: func(w *world, id string) string { w.p.Kill(id); return id }, is: sandbox.ErrNotFound},
		"it sleeps":              {kind: everything(), before: func(w *world, id string) string { w.p.Pause(id); return id }, is: sandbox.ErrConflict},
		"its end cannot be read": {kind: blind, is: errors.ErrUnsupported},
		"looks fail": {kind: everything(), before: func(w *world, id string) string {
			w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
			return id
		}, is: sandbox.ErrUnavailable},
		"the key is not accepted": {kind: everything(), before: func(w *world, id string) string {
			w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(401), Times: -1})
			return id
		}, is: sandbox.ErrUnauthenticated},
		"the manager has been shut down": {kind: everything(), before: func(w *world, id string) string { assert.NoError(w.t, w.m.Shutdown(context.Background())); return id }, is: sandbox.ErrShutdown},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, tc.kind, sandbox.Config{}, func(w *world) {
				id := w.made(nil).ID
				if tc.before != nil {
					id = tc.before(w, id)
				}
				err := w.m.AttachSandbox(context.Background(), id, false, func(context.Context, sandbox.Sandbox) error {
					assert.Fail(t, "called")
					return nil
				})
				assert.ErrorIs(t, err, tc.is)
				assert.ErrorIs(t, err, sandbox.ErrNotStarted)
				assert.Empty(t, w.p.Calls(sandbox.OpExtend, sandbox.OpDelete))
				assert.Empty(t, w.m.Live())
			})
		})
	}
}

// A caller is a context that tells when it is asked for a value, as package context does at each step.
type caller struct {
	context.Context
	asked func()
}

func (c caller) Value(key any) any {
	c.asked()
	return c.Context.Value(key)
}

func TestAnAttachWaitsForARefusedLookNoLongerThanForACreate(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		info := w.made(nil)
		refusal := sandboxtest.Status(429)
		refusal.RetryAfter = time.Hour
		w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: refusal})
		began := time.Now()
		err := w.m.AttachSandbox(context.Background(), info.ID, false, ok)
		assert.ErrorIs(t, err, sandbox.ErrRateLimited)
		assert.Less(t, time.Since(began), sec)
		refusal.RetryAfter = mins
		w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: refusal})
		assert.NoError(t, w.m.AttachSandbox(context.Background(), info.ID, false, ok))
		assert.Equal(t, mins, time.Since(began))
	})
}

func TestAShutdownDoesNotWaitForAnAttachThatIsRefusedAtOnce(t *testing.T) {
	for name, takeOver := range map[string]bool{"without an id": false, "to take over without a journal": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, everything(), sandbox.Config{}, func(w *world) {
				w.other(func(c *sandbox.Config) { c.Journal = nil })
				parent, cancel := context.WithCancel(context.Background())
				defer cancel()
				attach := func(asked func()) {
					id := ""
					if takeOver {
						id = "sb-1"
					}
					assert.ErrorIs(t, w.m.AttachSandbox(caller{parent, asked}, id, takeOver, ok), sandbox.ErrNotStarted)
				}
				steps, step := 0, 0
				attach(func() { steps++ })
				attach(func() {
					if step++; step == steps { // the last one
						ctx, stop := context.WithTimeout(context.Background(), mins)
						defer stop()
						began := time.Now()
						assert.NoError(t, w.m.Shutdown(ctx))
						assert.Less(t, time.Since(began), sec)
					}
				})
			})
		})
	}
}

func TestATakenOverSandboxIsAScopeLikeAnyOther(t *testing.T) {
	for _, k := range append(sandboxtest.Kinds(), everything()) {
		t.Run(k.Name, func(t *testing.T) {
			for _, result := range []error{nil, errTask} {
				inWorld(t, k, sandbox.Config{MaxLive: 1}, func(w *world) {
					info := w.made(func(r *sandbox.CreateRequest) { r.Mark.Fleet, r.Tags = "ci", nil })
					e := sandbox.Entry{Provider: w.p.Name(), ID: info.ID, Tags: map[string]string{"job": "7"}}
					for _, at := range w.p.Live() {
						e.Mark = at.Mark
					}
					if e.Mark == (sandbox.Mark{}) { // a service whose creates carry none: its owner died before it wrote the mark
						t.Skip("unmarked sandboxes cannot be taken over")
					}
					require.NoError(t, w.journal.Put(context.Background(), e))
					w.journal.Abandon()
					err := w.m.AttachSandbox(context.Background(), info.ID, true, func(ctx context.Context, sb sandbox.Sandbox) error {
						require.Len(t, w.m.Live(), 1)
						assert.Equal(t, e.Mark, w.m.Live()[0].Mark)
						assert.Equal(t, "7", w.m.Live()[0].Tags["job"])
						for range 30 {
							time.Sleep(mins)
							require.NoError(t, context.Cause(ctx))
						}
						return result
					})
					assert.Equal(t, result, err)
					w.settle(nil)
				})
			}
		})
	}
}

func TestTakeOverNeedsAProofThatTheOwnerIsDead(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*sandbox.Entry)
		then   func(w *world, e sandbox.Entry)
		is     error
	}{
		"its owner lives":                 {then: func(w *world, e sandbox.Entry) { _ = w.journal.Put(context.Background(), e) }, is: sandbox.ErrConflict},
		"it is in no journal of ours":     {then: func(w *world, e sandbox.Entry) { _ = w.journal.Remove(context.Background(), e.Mark.Nonce) }, is: sandbox.ErrConflict},
		"the entry is another account's":  {change: func(e *sandbox.Entry) { e.Provider = "e2b/team-blue" }, is: sandbox.ErrConflict},
		"the entry is of another sandbox": {change: func(e *sandbox.Entry) { e.ID = "other" }, is: sandbox.ErrConflict},
		"the entry has another mark":      {change: func(e *sandbox.Entry) { e.Mark.Owner = "somebody" }, is: sandbox.ErrConflict},
		"the journal cannot be read": {then: func(w *world, e sandbox.Entry) {
			_ = w.journal.Put(context.Background(), e)
			w.journal.FailOrphans(errors.New("broken"))
		}, is: sandbox.ErrConflict},
		"the lock is taken in between":       {then: func(w *world, _ sandbox.Entry) { w.journal.FailPut(errOwner) }, is: errOwner},
		"the manager is of another fleet":    {then: func(w *world, _ sandbox.Entry) { w.other(func(c *sandbox.Config) { c.Fleet = "prod" }) }, is: sandbox.ErrInvalid},
		"the manager has no journal to look": {then: func(w *world, _ sandbox.Entry) { w.other(func(c *sandbox.Config) { c.Journal = nil }) }, is: errors.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, everything(), sandbox.Config{}, func(w *world) {
				id, e := w.left(tc.change)
				if tc.then != nil {
					tc.then(w, e)
				}
				before := w.journal.Entries()
				err := w.m.AttachSandbox(context.Background(), id, true, func(context.Context, sandbox.Sandbox) error {
					assert.Fail(t, "called")
					return nil
				})
				assert.ErrorIs(t, err, tc.is)
				assert.ErrorIs(t, err, sandbox.ErrNotStarted)
				assert.ErrorContains(t, err, id)
				assert.Empty(t, w.p.Calls(sandbox.OpExtend, sandbox.OpDelete), "nothing has been changed")
				assert.Equal(t, before, w.journal.Entries())
				assert.Len(t, w.p.Live(), 1)
			})
		})
	}
}

var errOwner = errors.New("its owner is alive")

// other gives w a Manager with another configuration.
func (w *world) other(change func(*sandbox.Config)) {
	cfg := w.cfg
	change(&cfg)
	m, err := sandbox.NewManager(w.p, cfg)
	require.NoError(w.t, err)
	w.m = m
}

func TestAScopeOfThisProcessIsTakenOverOnlyOnceItHasLetGo(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{Scope: sandbox.Scope{KeepOnError: 20 * mins}}, func(w *world) {
		var id string
		require.ErrorIs(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			id = sb.ID()
			w.journal.Abandon() // even if the lock could be taken, for whatever reason
			assert.ErrorIs(t, w.m.AttachSandbox(ctx, id, true, ok), sandbox.ErrConflict)
			return errTask
		}), errTask)
		w.journal.Abandon() // it has let go
		require.Len(t, w.p.Live(), 1)
		require.NoError(t, w.m.AttachSandbox(context.Background(), id, true, func(ctx context.Context, _ sandbox.Sandbox) error {
			assert.Len(t, w.m.Live(), 1)
			time.Sleep(40 * mins) // longer than it was kept for
			assert.Len(t, w.m.Live(), 1, "the old scope's end does not end the new one's book-keeping")
			return context.Cause(ctx)
		}))
		w.settle(nil)
	})
}

func TestReplayLeavesWhatHasBeenTakenOver(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		id, _ := w.left(nil)
		require.NoError(t, w.m.AttachSandbox(context.Background(), id, true, func(ctx context.Context, _ sandbox.Sandbox) error {
			w.journal.Abandon()
			assert.NoError(t, w.m.Replay(ctx))
			time.Sleep(10 * mins)
			assert.Len(t, w.p.Live(), 1)
			return context.Cause(ctx)
		}))
		w.settle(nil)
	})
}

func TestATakenOverSandboxThatCannotBeExtendedIsDeleted(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		id, _ := w.left(nil)
		w.p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
		err := w.m.AttachSandbox(context.Background(), id, true, ok)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
		w.settle(nil)
	})
}
