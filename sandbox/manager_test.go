package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestMaxLiveBoundsWhatIsAliveAndWaitingScopesObeyTheirContext(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{MaxLive: 3}, func(w *world) {
		var wg sync.WaitGroup
		var most atomic.Int64
		for range 30 {
			wg.Go(func() {
				assert.NoError(t, w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
					most.Store(max(most.Load(), int64(len(w.p.Live()))))
					time.Sleep(mins)
					return nil
				}))
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 30*sec)
		defer cancel()
		began := time.Now()
		err := w.m.WithSandbox(ctx, ok)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.Equal(t, 30*sec, time.Since(began))
		wg.Wait()
		assert.EqualValues(t, 3, most.Load())
		w.settle(nil)
	})
}

func TestDeletesNeverWaitBehindCreates(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{MaxLive: 1}, func(w *world) {
		first := make(chan error)
		go func() {
			first <- w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
				w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Hang: true, Times: -1})
				return nil
			})
		}()
		for range 5 {
			go func() { _ = w.m.WithSandbox(context.Background(), ok) }()
		}
		began := time.Now()
		assert.NoError(t, <-first)
		assert.Less(t, time.Since(began), sec)
		w.p.Heal()
		assert.NoError(t, w.m.Shutdown(context.Background()))
		synctest.Wait()
	})
}

func TestSlotFollowsTheSandboxNotTheFunction(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{MaxLive: 1}, func(w *world) {
		release := make(chan struct{})
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer close(done)
			_ = w.m.WithSandbox(ctx, func(context.Context, sandbox.Sandbox) error { <-release; return nil })
		}()
		synctest.Wait()
		cancel()
		began := time.Now()
		assert.NoError(t, w.m.WithSandbox(context.Background(), ok), "the hung function's sandbox is gone, and so is its claim")
		assert.Less(t, time.Since(began), 15*sec)
		close(release)
		<-done
	})
	inWorld(t, everything(), sandbox.Config{MaxLive: 1}, func(w *world) {
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		require.Error(t, w.m.WithSandbox(context.Background(), ok))
		w.p.Heal()
		began := time.Now()
		assert.NoError(t, w.m.WithSandbox(context.Background(), ok))
		assert.Greater(t, time.Since(began), 30*sec, "the undeleted one may run until its lease is over")
		assert.Less(t, time.Since(began), 5*mins)
	})
}

func TestLiveTellsWhatMayRun(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		require.NoError(t, w.m.WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error {
			live := w.m.Live()
			require.Len(t, live, 1)
			assert.Equal(t, sb.ID(), live[0].ID)
			assert.Equal(t, sandbox.StateRunning, live[0].State)
			assert.Equal(t, "ci", live[0].Mark.Fleet)
			return nil
		}))
		assert.Empty(t, w.m.Live())
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		require.Error(t, w.m.WithSandbox(context.Background(), ok))
		assert.Len(t, w.m.Live(), 1, "until it is seen to be gone")
		w.p.Heal()
		require.NoError(t, w.m.Shutdown(context.Background()))
		assert.Empty(t, w.m.Live())
		w.settle(nil)
	})
}

func TestShutdownEndsAllInParallelAndRefusesNewScopes(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{MaxLive: 40}, func(w *world) {
		var wg sync.WaitGroup
		for i := range 50 { // ten wait for a slot
			wg.Go(func() {
				err := w.m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
					<-ctx.Done()
					if i%2 == 0 {
						time.Sleep(time.Hour) // hung
					}
					return ctx.Err()
				})
				assert.ErrorIs(t, err, sandbox.ErrShutdown)
			})
		}
		synctest.Wait()
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Delay: sec / 2, Times: -1})
		began := time.Now()
		assert.NoError(t, w.m.Shutdown(context.Background()))
		assert.LessOrEqual(t, time.Since(began), 10*sec+sec)
		assert.Empty(t, w.p.Live())
		err := w.m.WithSandbox(context.Background(), ok)
		assert.ErrorIs(t, err, sandbox.ErrShutdown)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.NoError(t, w.m.Shutdown(context.Background()), "once more")
		wg.Wait()
		w.settle(nil)
	})
}

func TestShutdownNamesWhatItsContextCutsOff(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = w.m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error { <-ctx.Done(); return nil })
		}()
		synctest.Wait()
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Hang: true, Times: -1})
		ctx, cancel := context.WithTimeout(context.Background(), 5*sec)
		defer cancel()
		err := w.m.Shutdown(ctx)
		leak, found := errors.AsType[*sandbox.LeakError](err)
		require.True(t, found)
		require.Len(t, leak.Sandboxes, 1)
		assert.Equal(t, liveIDs(w.p)[0], leak.Sandboxes[0].ID)
		assert.WithinDuration(t, time.Now().Add(3*mins), leak.Sandboxes[0].Deadline, 20*sec)
		w.p.Heal()
		assert.NoError(t, w.m.Shutdown(context.Background()))
		<-done
		w.settle(nil)
	})
}

func TestShutdownWithLittleTimeCutsTheGrace(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{Grace: mins}, func(w *world) {
		release := make(chan struct{})
		go func() {
			_ = w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { <-release; return nil })
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 20*sec)
		defer cancel()
		assert.NoError(t, w.m.Shutdown(ctx), "half of it is for the delete")
		assert.Empty(t, w.p.Live())
		close(release)
		synctest.Wait()
	})
}

func TestKeepOnErrorLeavesTheSandboxForItsLeaseToEnd(t *testing.T) {
	keep := sandbox.Config{Scope: sandbox.Scope{KeepOnError: 30 * mins}}
	boom := func(context.Context, *world, sandbox.Sandbox) error { panic("boom") }
	failed := func(context.Context, *world, sandbox.Sandbox) error { return errTask }
	for name, tc := range map[string]struct {
		fn     func(context.Context, *world, sandbox.Sandbox) error
		before func(w *world, cancel func())
		kept   bool
	}{
		"error":     {fn: failed, kept: true},
		"panic":     {fn: boom, kept: true},
		"success":   {fn: func(context.Context, *world, sandbox.Sandbox) error { return nil }},
		"cancelled": {fn: wait, before: func(_ *world, cancel func()) { time.AfterFunc(mins, cancel) }},
		"shut down": {fn: wait, before: func(w *world, _ func()) { time.AfterFunc(mins, func() { _ = w.m.Shutdown(context.Background()) }) }},
		"lease lost": {fn: func(ctx context.Context, w *world, sb sandbox.Sandbox) error {
			w.p.Pause(sb.ID())
			<-ctx.Done()
			return errTask
		}},
		"the service refuses": {fn: failed, before: func(w *world, _ func()) {
			w.p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		}},
		"the service grants too little": {fn: failed, before: func(w *world, _ func()) { w.p.Behave(func(b *sandboxtest.Behaviour) { b.PlanLifetime = 5 * mins }) }, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, everything(), keep, func(w *world) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if tc.before != nil {
					tc.before(w, cancel)
				}
				func() {
					defer func() { _ = recover() }()
					_ = w.m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error { return tc.fn(ctx, w, sb) })
				}()
				synctest.Wait()
				if !tc.kept {
					w.settle(nil)
					return
				}
				assert.Len(t, w.p.Live(), 1)
				assert.Empty(t, w.p.Calls(sandbox.OpDelete))
				events := w.seen(sandbox.OpKeep, true)
				require.Len(t, events, 1)
				require.NoError(t, events[0].Err)
				assert.NotZero(t, events[0].Info.ID)
				entries := w.journal.Entries()
				require.Len(t, entries, 1)
				assert.WithinDuration(t, time.Now().Add(events[0].Info.Left()), entries[0].Kept, 5*sec)
				assert.NoError(t, w.m.Shutdown(context.Background()))
				assert.Len(t, w.p.Live(), 1, "a shutdown later leaves it")
				time.Sleep(31 * mins)
				assert.Empty(t, w.p.Live())
				assert.Empty(t, w.m.Live())
			})
		})
	}
}

func TestAKeptSandboxThatItsLeaseShouldHaveEndedIsLeftToTheReplay(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{MaxLive: 1, Scope: sandbox.Scope{KeepOnError: 30 * mins}}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		failed := func(context.Context, sandbox.Sandbox) error { return errTask }
		require.ErrorIs(t, w.m.WithSandbox(context.Background(), failed), errTask)
		w.journal.Abandon() // it has let go
		time.Sleep(29 * mins)
		assert.Len(t, w.m.Live(), 1)
		assert.NoError(t, w.m.Replay(context.Background()))
		assert.Len(t, w.p.Live(), 1, "it is kept")
		time.Sleep(2 * mins)
		assert.Empty(t, w.m.Live())
		assert.Len(t, w.p.Live(), 1, "nobody has looked")
		assert.NoError(t, w.m.Replay(context.Background()))
		w.settle(nil)
	})
}

func TestOnLeakIsCalledInsteadOfFailingFinishedWork(t *testing.T) {
	var heard *sandbox.LeakError
	cfg := sandbox.Config{OnLeak: func(_ context.Context, l *sandbox.LeakError) { heard = l }}
	inWorld(t, everything(), cfg, func(w *world) {
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		assert.NoError(t, w.m.WithSandbox(context.Background(), ok))
		require.NotNil(t, heard)
		w.honest(heard)
	})
}

func TestLeakWhileAPanicUnwindsIsLoggedAtError(t *testing.T) {
	var b syncBuffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	defer slog.SetDefault(before)
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		assert.PanicsWithValue(t, "boom", func() {
			_ = w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { panic("boom") })
		})
		assert.Contains(t, b.String(), "level=ERROR")
		assert.Contains(t, b.String(), liveIDs(w.p)[0])
	})
}

func TestWithoutObserversOnlyPossibleLeaksAreLogged(t *testing.T) {
	var b syncBuffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		p := sandboxtest.New(sandbox.Capabilities{})
		m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci"})
		require.NoError(t, err)
		require.NoError(t, m.WithSandbox(context.Background(), ok))
		assert.Empty(t, b.String())
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		require.Error(t, m.WithSandbox(context.Background(), ok))
		assert.Equal(t, 1, strings.Count(b.String(), "\n"))
		assert.Contains(t, b.String(), "level=ERROR")
		assert.Contains(t, b.String(), liveIDs(p)[0])
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestObserverThatPanicsIsContained(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(before)
	cfg := sandbox.Config{Observers: []sandbox.Observer{func(context.Context, sandbox.Event) { panic("observer bug") }}}
	inWorld(t, everything(), cfg, func(w *world) {
		require.NoError(t, w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
			time.Sleep(10 * mins)
			return nil
		}))
		assert.NotEmpty(t, w.seen(sandbox.OpExtend, false), "the next observer is told all the same")
		w.settle(nil)
	})
}

func TestEventsTellALifeFromFirstToLastUnderOneNonce(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		type key struct{}
		ctx := context.WithValue(context.Background(), key{}, "trace")
		require.NoError(t, w.m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
			assert.Equal(t, "trace", ctx.Value(key{}))
			_, err := sb.Exec(ctx, sandbox.Shell("true"))
			time.Sleep(2 * mins)
			return err
		}, func(s *sandbox.Scope) { s.Tags["job"] = "7" }))
		var order []string
		nonce := ""
		for _, e := range w.events {
			if nonce == "" {
				nonce = e.Info.Mark.Nonce
			}
			assert.Equal(t, nonce, e.Info.Mark.Nonce)
			assert.Equal(t, "7", e.Info.Tags["job"])
			assert.Equal(t, "memory/everything", e.Provider)
			assert.Nil(t, e.Info.Native)
			if e.Op != sandbox.OpJournal && (len(order) == 0 || order[len(order)-1] != string(e.Op)) {
				order = append(order, string(e.Op))
			}
		}
		assert.Equal(t, "scope create ready exec extend run extend delete confirm scope", strings.Join(order, " "))
	})
}

func TestJournalThatCannotWriteStopsTheCreate(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		full := errors.New("no space left on device")
		w.journal.FailPut(full)
		err := w.m.WithSandbox(context.Background(), ok)
		assert.ErrorIs(t, err, full)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.Empty(t, w.p.Calls())
		w.settle(nil)
	})
}

// releasing is a journal that holds locks, and something happens when one is given up.
type releasing struct {
	*sandboxtest.Journal
	release func() error
}

func (j releasing) Release(context.Context, string) error { return j.release() }

func TestAJournalThatHangsOrPanicsDoesNotHoldUpTheEndOfAScope(t *testing.T) {
	for name, release := range map[string]func() error{
		"hangs":  func() error { time.Sleep(time.Hour); return nil },
		"panics": func() error { panic("journal bug") },
		"fails":  func() error { return errTask },
	} {
		for _, kept := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", kept ", kept), func(t *testing.T) {
				inWorld(t, everything(), sandbox.Config{}, func(w *world) {
					w.other(func(c *sandbox.Config) {
						c.Journal = releasing{w.journal, release}
						if kept {
							c.Scope.KeepOnError = mins
						}
					})
					w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(403), Times: -1})
					began := time.Now()
					assert.NotPanics(t, func() {
						err := w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { return errTask })
						assert.ErrorIs(t, err, errTask)
					})
					assert.LessOrEqual(t, time.Since(began), mins)
					told := w.seen(sandbox.OpJournal, true)
					assert.Error(t, told[len(told)-1].Err, "it is told all the same")
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

func TestIntentIsInTheJournalBeforeTheCreateIsSent(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Delay: sec})
		go func() {
			synctest.Wait()
			if entries := w.journal.Entries(); assert.Len(t, entries, 1) {
				assert.Empty(t, entries[0].ID)
				assert.NotEmpty(t, entries[0].Mark.Nonce)
			}
		}()
		require.NoError(t, w.m.WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error {
			assert.Equal(t, sb.ID(), w.journal.Entries()[0].ID)
			return nil
		}))
		w.settle(nil)
	})
}

func TestNestedScopesTellTheirCausesApart(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		err := w.m.WithSandbox(context.Background(), func(ctx context.Context, outer sandbox.Sandbox) error {
			inner := w.m.WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error {
				w.p.Kill(outer.ID())
				<-ctx.Done()
				return nil
			})
			assert.NoError(t, inner, "the inner lease was not lost")
			return nil
		})
		assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
		w.settle(err)
	})
}

func TestB03RetriesAroundAScopeNeverPileUp(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		for i := range 10 {
			err := w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
				assert.Len(t, w.p.Live(), 1)
				return fmt.Errorf("setup %d: %w", i, errTask)
			})
			assert.ErrorIs(t, err, errTask)
			assert.ErrorContains(t, err, fmt.Sprint("setup ", i))
		}
		w.settle(nil)
	})
}

func TestG28CreateRightAfterADeleteWaitsForTheCountToFollow(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.MaxLive, b.LiveLag = 1, 10*sec })
		for range 3 {
			require.NoError(t, w.m.WithSandbox(context.Background(), ok))
		}
		w.settle(nil)
	})
}

func TestManagerNeedsNoCloseAndSharesNothing(t *testing.T) {
	before, err := os.Getwd()
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) { // the bubble ends only without goroutines
		for range 100 {
			_, err := sandbox.NewManager(sandboxtest.New(sandbox.Capabilities{}), sandbox.Config{Fleet: "ci"})
			require.NoError(t, err)
		}
	})
	after, err := os.Getwd()
	require.NoError(t, err)
	assert.Equal(t, before, after)
}
