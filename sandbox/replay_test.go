package sandbox_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// left makes what a dead process leaves: a sandbox, and its entry in the journal.
func (w *world) left(change func(*sandbox.Entry)) (id string, e sandbox.Entry) {
	w.t.Helper()
	m := mark()
	m.Fleet = "ci"
	info, err := w.p.Create(context.Background(), sandbox.CreateRequest{Mark: m, Window: 3 * mins})
	require.NoError(w.t, err)
	e = sandbox.Entry{Provider: w.p.Name(), ID: info.ID, Mark: m}
	if change != nil {
		change(&e)
	}
	require.NoError(w.t, w.journal.Put(context.Background(), e))
	w.journal.Abandon()
	return info.ID, e
}

func TestReplayEndsWhatADeadProcessLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*sandbox.Entry)
		then   func(w *world, id string)
		within time.Duration
	}{
		"its lease is over, and nobody has enforced it": {then: func(w *world, _ string) {
			w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
			time.Sleep(4 * mins)
		}, within: 5 * sec},
		"its lease still runs":                            {within: 3*mins + 15*sec},
		"its lease still runs, and will not be enforced":  {then: func(w *world, _ string) { w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true }) }, within: 3*mins + 15*sec},
		"it is paused, and has no lease":                  {then: func(w *world, id string) { w.p.Pause(id) }, within: 5 * sec},
		"it has failed":                                   {then: func(w *world, id string) { w.p.Fail(id, "no reason"); time.Sleep(3 * mins) }, within: 5 * sec},
		"it is gone already":                              {then: func(w *world, id string) { w.p.Kill(id) }, within: 5 * sec},
		"its create was never answered":                   {change: func(e *sandbox.Entry) { e.ID = "" }, within: 3*mins + 15*sec},
		"its create was never answered, and made nothing": {change: func(e *sandbox.Entry) { e.ID = "" }, then: func(w *world, id string) { w.p.Kill(id) }, within: 40 * sec},
		"it was kept, until now":                          {change: func(e *sandbox.Entry) { e.Kept = time.Now() }, then: func(w *world, id string) { time.Sleep(mins); w.p.Pause(id) }, within: 5 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, unkeyed(), sandbox.Config{}, func(w *world) {
				id, _ := w.left(tc.change)
				if tc.then != nil {
					tc.then(w, id)
				}
				began := time.Now()
				require.NoError(t, w.m.Replay(context.Background()))
				assert.LessOrEqual(t, time.Since(began), tc.within)
				w.settle(nil)
			})
		})
	}
}

func TestReplayLeavesWhatSomebodyKeepsAlive(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		id, _ := w.left(nil)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { // the owner of whose spool this one is a copy
			defer close(done)
			for ctx.Err() == nil {
				info, err := w.p.Get(ctx, id)
				if err == nil {
					_, _ = w.p.Extend(ctx, info, 3*mins)
				}
				select {
				case <-ctx.Done():
				case <-time.After(mins):
				}
			}
		}()
		err := w.m.Replay(context.Background())
		assert.ErrorContains(t, err, "its lease moves")
		assert.ErrorContains(t, err, id)
		assert.Len(t, w.p.Live(), 1)
		assert.Len(t, w.journal.Entries(), 1)
		assert.Empty(t, w.p.Calls(sandbox.OpDelete))
		cancel()
		<-done
	})
}

func TestReplayKeepsAndReportsWhatItMayNotJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   sandboxtest.Kind
		change func(*sandbox.Entry)
		then   func(w *world, id string)
		says   string
	}{
		"another account":                  {kind: everything(), change: func(e *sandbox.Entry) { e.Provider = "e2b/team-blue" }, then: func(w *world, id string) { w.p.Kill(id) }, says: "account e2b/team-blue"},
		"another mark under its id":        {kind: everything(), change: func(e *sandbox.Entry) { e.Mark.Nonce = "aaaaaaaaaaaaaaaa" }, says: "another mark"},
		"unmarked, and not to be repeated": {kind: kind(func(c *sandbox.Capabilities) { c.MarkAtCreate = false }), change: func(e *sandbox.Entry) { e.ID = "" }, says: "carries no mark"},
		"the service cannot be reached": {kind: everything(), then: func(w *world, _ string) {
			w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
		}, says: "503"},
		"a file that cannot be read": {kind: everything(), then: func(w *world, id string) { w.p.Kill(id); w.journal.FailOrphans(errors.New("broken file")) }, says: "broken file"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, tc.kind, sandbox.Config{}, func(w *world) {
				id, _ := w.left(tc.change)
				if tc.then != nil {
					tc.then(w, id)
				}
				err := w.m.Replay(context.Background())
				assert.ErrorContains(t, err, tc.says)
				if tc.says != "broken file" {
					assert.Len(t, w.journal.Entries(), 1)
					assert.Empty(t, w.p.Calls(sandbox.OpDelete))
				}
			})
		})
	}
}

func TestReplayLeavesOtherFleetsAndKeptSandboxesAlone(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.left(func(e *sandbox.Entry) { e.Mark.Fleet = "other" })
		assert.NoError(t, w.m.Replay(context.Background()))
		assert.Len(t, w.p.Live(), 1)
	})
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.left(func(e *sandbox.Entry) { e.Kept = time.Now().Add(time.Hour) })
		assert.NoError(t, w.m.Replay(context.Background()))
		assert.Len(t, w.p.Live(), 1)
		assert.Len(t, w.journal.Entries(), 1)
	})
}

func TestWhatAReplayFindsNothingOfIsInDoubtForAsLongAsAnOwnerMayHaveLeftItSo(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   sandboxtest.Kind
		change func(*sandbox.Entry)
		then   func(w *world, id string)
	}{
		"its owner died right after its create was answered": {kind: kind(func(c *sandbox.Capabilities) { c.ReadLag = 3 * sec }), then: func(w *world, _ string) {
			w.p.Behave(func(b *sandboxtest.Behaviour) { b.GetMissesNew = 3 * sec })
			w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectNone})
			time.Sleep(sec)
		}},
		"its owner died of a delete that failed":                        {kind: kindNamed(t, "e2b"), then: orphan},
		"likewise, of a sandbox that its create did not tell the id of": {kind: kindNamed(t, "e2b"), change: func(e *sandbox.Entry) { e.ID = "" }, then: orphan},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, tc.kind, sandbox.Config{}, func(w *world) {
				id, _ := w.left(tc.change)
				tc.then(w, id)
				ctx, cancel := context.WithTimeout(context.Background(), 2*sec)
				defer cancel()
				began := time.Now()
				assert.Error(t, w.m.Replay(ctx), "too short to know")
				assert.Less(t, time.Since(began), sec, "and to wait for")
				assert.Len(t, w.journal.Entries(), 1)
				require.NoError(t, w.m.Replay(context.Background()))
				w.settle(nil)
			})
		})
	}
}

// orphan deletes id so that its record is gone and its machine runs on.
func orphan(w *world, id string) {
	w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectOrphan, Err: sandboxtest.Status(500), After: true})
	require.Error(w.t, w.p.Delete(context.Background(), id))
	require.NotEmpty(w.t, w.p.Live())
}

func TestAReplayLooksOnForWhatAnUnansweredCreateMayYetMake(t *testing.T) {
	inWorld(t, unkeyed(), sandbox.Config{}, func(w *world) {
		id, e := w.left(func(e *sandbox.Entry) { e.ID = "" })
		w.p.Pause(id) // there is no lease to wait for
		time.Sleep(5 * sec)
		time.AfterFunc(20*sec, func() { // the request comes once more, by a way that took its time
			_, err := w.p.Create(context.Background(), sandbox.CreateRequest{Mark: e.Mark, Window: 3 * mins})
			assert.NoError(t, err)
		})
		require.NoError(t, w.m.Replay(context.Background()))
		time.Sleep(20 * sec)
		w.settle(nil)
	})
}

func TestADeleteThatFailedInOnePassOfAReplayIsInDoubtInTheNext(t *testing.T) {
	inWorld(t, kindNamed(t, "e2b"), sandbox.Config{}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		w.left(nil)
		time.Sleep(70 * sec)
		m := mark()
		m.Fleet, m.Nonce = "ci", nonce(2)
		_, err := w.p.Create(context.Background(), sandbox.CreateRequest{Mark: m, Window: 3 * mins})
		require.NoError(t, err)
		require.NoError(t, w.journal.Put(context.Background(), sandbox.Entry{Provider: w.p.Name(), Mark: m}))
		w.journal.Abandon()
		time.Sleep(170 * sec) // its lease is over in ten seconds, and the other's long since
		failed := sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1}
		w.p.Fault(sandbox.OpDelete, failed)
		time.AfterFunc(2*mins, func() {
			w.p.Heal()
			w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectOrphan, Err: sandboxtest.Status(500), After: true}, failed)
			time.AfterFunc(40*sec, w.p.Heal)
		})
		require.NoError(t, w.m.Replay(context.Background()))
		w.settle(nil)
	})
}

func TestReplayTriesAgainWhatThisProcessCouldNotVerify(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		require.Error(t, w.m.WithSandbox(context.Background(), ok))
		ctx, cancel := context.WithTimeout(context.Background(), 5*sec)
		defer cancel()
		assert.Error(t, w.m.Replay(ctx), "still so")
		w.p.Heal()
		assert.NoError(t, w.m.Replay(context.Background()))
		w.settle(nil)
	})
}

func TestAReplayTriesManyLeaksAgainSideBySide(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		var scopes sync.WaitGroup
		for range 16 {
			scopes.Go(func() { assert.Error(t, w.m.WithSandbox(context.Background(), ok)) })
		}
		scopes.Wait()
		began := time.Now()
		assert.Error(t, w.m.Replay(context.Background()))
		assert.LessOrEqual(t, time.Since(began), 5*mins, "each has two minutes")
		w.p.Heal()
		assert.NoError(t, w.m.Replay(context.Background()))
		w.settle(nil)
	})
}

func TestReplayOfManyWaitsForAllLeasesAtOnce(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		for i := range 300 {
			m := mark()
			m.Fleet, m.Nonce = "ci", nonce(i)
			info, err := w.p.Create(context.Background(), sandbox.CreateRequest{Mark: m, Window: 3 * mins})
			require.NoError(t, err)
			require.NoError(t, w.journal.Put(context.Background(), sandbox.Entry{Provider: w.p.Name(), ID: info.ID, Mark: m}))
		}
		w.journal.Abandon()
		began := time.Now()
		require.NoError(t, w.m.Replay(context.Background()))
		assert.Less(t, time.Since(began), 5*mins)
		w.settle(nil)
	})
}

// A SIGTERM gives ShutdownOnSignal its grace; the deletes take longer, and the platform does not enforce leases either.
func TestWhatAShutdownOf500CannotVerifyIsNamedJournalledAndEndedByTheNextStart(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // see golang/go#78156
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		var scopes sync.WaitGroup
		for range 500 {
			scopes.Go(func() {
				err := w.m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
				assert.ErrorIs(t, err, sandbox.ErrShutdown)
				_, leaked := errors.AsType[*sandbox.LeakError](err)
				assert.True(t, leaked)
			})
		}
		synctest.Wait()
		require.Len(t, w.p.Live(), 500)
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Delay: 15 * sec, Effect: sandboxtest.EffectNone, Times: -1})
		ctx, cancel := context.WithTimeout(context.Background(), 10*sec)
		defer cancel()
		began := time.Now()
		leak, _ := errors.AsType[*sandbox.LeakError](w.m.Shutdown(ctx))
		assert.LessOrEqual(t, time.Since(began), 11*sec)
		require.NotNil(t, leak)
		require.Len(t, leak.Sandboxes, 500)
		for _, info := range leak.Sandboxes {
			assert.Contains(t, leak.Error(), info.ID)
			assert.False(t, info.Deadline.IsZero(), "it is told when the lease ends it")
		}
		assert.Len(t, w.journal.Entries(), 500)
		scopes.Wait()

		w.p.Heal()
		w.journal.Abandon() // the process is dead now
		next, err := sandbox.NewManager(w.p, w.cfg)
		require.NoError(t, err)
		require.NoError(t, next.Replay(context.Background()))
		assert.Empty(t, w.p.Live())
		assert.Empty(t, w.p.Residue())
		assert.Empty(t, w.journal.Entries())
	})
}

func TestAnEntryThatHangsDoesNotHoldUpTheReplayOfTheRest(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		for i := range 40 {
			m := mark()
			m.Fleet, m.Nonce = "ci", nonce(i)
			info, err := w.p.Create(context.Background(), sandbox.CreateRequest{Mark: m, Window: 3 * mins})
			require.NoError(t, err)
			require.NoError(t, w.journal.Put(context.Background(), sandbox.Entry{Provider: w.p.Name(), ID: info.ID, Mark: m}))
		}
		w.journal.Abandon()
		time.Sleep(4 * mins)
		w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Hang: true, Times: 3}) // the first three looks never end
		ctx, cancel := context.WithTimeout(context.Background(), 10*sec)
		defer cancel()
		assert.Error(t, w.m.Replay(ctx))
		assert.Len(t, w.journal.Entries(), 3, "those that hang are left, and no other")
		assert.NoError(t, w.m.Replay(context.Background()))
		w.settle(nil)
	})
}

// A repeating account is one whose creates have a key, and mark by a second call.
type repeating struct {
	*sandboxtest.Provider
	old bool // the key is
}

func (r repeating) Unwrap() sandbox.Provider { return r.Provider }

func (repeating) Order(req sandbox.CreateRequest) ([]byte, error) {
	return []byte(req.Window.String()), nil
}

func (r repeating) Repeat(ctx context.Context, m sandbox.Mark, order []byte) (sandbox.Info, error) {
	window, err := time.ParseDuration(string(order))
	if err != nil || r.old {
		return sandbox.Info{}, errors.Join(err, sandbox.ErrInvalid)
	}
	return r.Create(ctx, sandbox.CreateRequest{Mark: m, Window: window})
}

func TestReplayFindsWhatWasNeverMarkedByItsCreateSentAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(w *world, id string)
		old  bool
		left int
	}{
		"it was made":        {then: func(*world, string) {}},
		"it never arrived":   {then: func(w *world, id string) { w.p.Kill(id) }},
		"its key is too old": {then: func(*world, string) {}, old: true, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, kindNamed(t, "boat"), sandbox.Config{}, func(w *world) {
				cfg := w.cfg
				m, err := sandbox.NewManager(repeating{w.p, tc.old}, cfg)
				require.NoError(t, err)
				id, e := w.left(func(e *sandbox.Entry) { e.ID, e.Order = "", []byte("3m0s") })
				require.True(t, w.p.DropTags(id, sandbox.MarkKey, sandbox.FleetKey, sandbox.NonceKey), "its owner died before it wrote the mark")
				tc.then(w, id)
				err = m.Replay(context.Background())
				assert.Len(t, append(w.p.Live(), w.p.Residue()...), tc.left)
				assert.Len(t, w.journal.Entries(), tc.left)
				if tc.left > 0 {
					assert.ErrorContains(t, err, e.Mark.Nonce)
				} else {
					assert.NoError(t, err)
				}
			})
		})
	}
}

func TestAnOrderIsInTheJournalOnlyUntilItsCreateIsAnswered(t *testing.T) {
	inWorld(t, kindNamed(t, "boat"), sandbox.Config{}, func(w *world) {
		m, err := sandbox.NewManager(repeating{w.p, false}, w.cfg)
		require.NoError(t, err)
		require.NoError(t, m.WithSandbox(context.Background(), ok))
		puts := w.journal.Puts()
		require.GreaterOrEqual(t, len(puts), 2)
		assert.NotEmpty(t, puts[0].Order)
		assert.Empty(t, puts[1].Order)
		assert.NotEmpty(t, puts[1].ID)
	})
}

func TestAProviderThatMarksLateNeedsAJournalOrTheUsersLeave(t *testing.T) {
	p := kindNamed(t, "boat").New()
	_, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci"})
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.ErrorContains(t, err, "Journal")
	for _, cfg := range []sandbox.Config{{Fleet: "ci", Unmarked: true}, {Fleet: "ci", Journal: sandboxtest.NewJournal()}} {
		_, err := sandbox.NewManager(p, cfg)
		assert.NoError(t, err)
	}
}
