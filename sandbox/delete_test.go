package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// make1 makes a sandbox outside of any scope.
func make1(t *testing.T, p *sandboxtest.Provider) string {
	t.Helper()
	info, err := p.Create(context.Background(), sandbox.CreateRequest{Mark: mark(), Window: 3 * mins})
	require.NoError(t, err)
	return info.ID
}

func TestTerminateReturnsWhenTheSandboxIsSeenToBeGone(t *testing.T) {
	busy := sandboxtest.Status(409)
	for name, tc := range map[string]struct {
		caps   func(*sandbox.Capabilities)
		behave func(*sandboxtest.Behaviour)
		faults []sandboxtest.Fault
		pause  bool
		gone   bool // already
		leak   bool
		is     error
	}{
		"a plain delete":                                         {},
		"G13, G17, G22: it was gone already":                     {gone: true},
		"G02: a success without effect":                          {faults: []sandboxtest.Fault{{Effect: sandboxtest.EffectNone}}},
		"G03: a success that never has any":                      {faults: []sandboxtest.Fault{{Effect: sandboxtest.EffectNone, Times: -1}}, leak: true},
		"G04: it is resumed after the delete":                    {faults: []sandboxtest.Fault{{Effect: sandboxtest.EffectRevive}}, behave: func(b *sandboxtest.Behaviour) { b.ReviveAfter = 0 }},
		"G05: 409 is no success":                                 {faults: []sandboxtest.Fault{{Err: busy, Times: -1}}, leak: true, is: sandbox.ErrConflict},
		"G07: a paused one cannot be deleted":                    {pause: true, behave: func(b *sandboxtest.Behaviour) { b.FailsWhileDormant = true }, leak: true},
		"G09: 409 until it has started":                          {behave: func(b *sandboxtest.Behaviour) { b.BusyWhileStarting, b.StartTime = true, 40*sec }},
		"G10: in deletion for ever":                              {faults: []sandboxtest.Fault{{Effect: sandboxtest.EffectBlocked, Times: -1}}, leak: true},
		"G11: 409 for 20 s":                                      {faults: []sandboxtest.Fault{{Err: busy, Times: 6}}},
		"G12: not found just after create":                       {caps: func(c *sandbox.Capabilities) { c.ReadLag = 3 * sec }},
		"G14: the delete hangs":                                  {faults: []sandboxtest.Fault{{Hang: true, Times: -1}}, leak: true},
		"G14: the delete hangs once":                             {faults: []sandboxtest.Fault{{Hang: true}}},
		"G15: it ignores its context":                            {faults: []sandboxtest.Fault{{Hang: true, Deaf: true, Times: -1}}, leak: true},
		"G18, G29: it takes its time":                            {behave: func(b *sandboxtest.Behaviour) { b.DeleteTime = 20 * sec }},
		"G29: an operation":                                      {faults: []sandboxtest.Fault{{Effect: sandboxtest.EffectPending}}, behave: func(b *sandboxtest.Behaviour) { b.PendingTime = mins }},
		"G31: it has failed":                                     {behave: func(b *sandboxtest.Behaviour) { b.StartsFailed = true }},
		"G34: 503 is tried again":                                {faults: []sandboxtest.Fault{{Err: sandboxtest.Status(503), Times: 2}}},
		"500, and then nothing is found":                         {caps: func(c *sandbox.Capabilities) { c.DeleteDoubt = 90 * sec }, faults: []sandboxtest.Fault{{Err: sandboxtest.Status(500), After: true}}},
		"the machine outlives its record":                        {caps: func(c *sandbox.Capabilities) { c.DeleteDoubt = 90 * sec }, faults: []sandboxtest.Fault{{Effect: sandboxtest.EffectOrphan, Err: sandboxtest.Status(500), After: true}}, behave: func(b *sandboxtest.Behaviour) { b.OrphanTime = 80 * sec }},
		"the machine outlives its record, and no answer says so": {caps: func(c *sandbox.Capabilities) { c.DeleteDoubt = 90 * sec }, faults: []sandboxtest.Fault{{Effect: sandboxtest.EffectOrphan, Err: io.ErrUnexpectedEOF, After: true}}, behave: func(b *sandboxtest.Behaviour) { b.OrphanTime = 80 * sec }},
		"H01: lists show it on":                                  {caps: func(c *sandbox.Capabilities) { c.GoneByList, c.ReadLag = true, 4*sec }},
		"H01: lists flap":                                        {caps: func(c *sandbox.Capabilities) { c.GoneByList = true }, behave: func(b *sandboxtest.Behaviour) { b.ListFlaps = 3 * sec }},
		"K02: looks fail for a while":                            {caps: func(c *sandbox.Capabilities) { c.GoneByList = true }, behave: func(b *sandboxtest.Behaviour) { b.GetStale = 2 * sec }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caps := sandboxtest.Everything()
				if tc.caps != nil {
					tc.caps(&caps)
				}
				p := sandboxtest.New(caps)
				if tc.behave != nil {
					p.Behave(tc.behave)
				}
				id := make1(t, p)
				if tc.pause {
					p.Pause(id)
				}
				if tc.gone {
					p.Kill(id)
				}
				p.Fault(sandbox.OpDelete, tc.faults...)
				began := time.Now()
				err := sandbox.Terminate(context.Background(), p, id)
				assert.LessOrEqual(t, time.Since(began), 2*mins)
				if !tc.leak {
					assert.NoError(t, err)
					assert.Empty(t, p.Live())
					assert.Empty(t, p.Residue())
				} else {
					leak, found := errors.AsType[*sandbox.LeakError](err)
					require.True(t, found, "%v", err)
					require.Len(t, leak.Sandboxes, 1)
					assert.Equal(t, id, leak.Sandboxes[0].ID)
					assert.Equal(t, tc.pause, leak.Sandboxes[0].Deadline.IsZero(), "until when, unless nothing ends it")
					if tc.is != nil {
						assert.ErrorIs(t, err, tc.is)
					}
				}
				p.Heal()
				synctest.Wait()
				for _, c := range p.Calls() {
					assert.NotContains(t, []sandbox.Op{sandbox.OpExtend, sandbox.OpExec}, c.Op, "E07: nothing on the way may prolong it")
				}
				err = sandbox.Terminate(context.Background(), p, id)
				if tc.pause {
					return
				}
				assert.NoError(t, err, "G01, G23, G36: a second try really tries")
				assert.Empty(t, p.Live())
			})
		})
	}
}

func TestTerminateWithoutIDIsRefused(t *testing.T) {
	p := sandboxtest.New(sandbox.Capabilities{})
	assert.ErrorIs(t, sandbox.Terminate(context.Background(), p, ""), sandbox.ErrInvalid)
	assert.Empty(t, p.Calls())
}

func TestTerminateObeysItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sandboxtest.New(sandbox.Capabilities{})
		id := make1(t, p)
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
		ctx, cancel := context.WithTimeout(context.Background(), 10*sec)
		defer cancel()
		began := time.Now()
		err := sandbox.Terminate(ctx, p, id)
		_, found := errors.AsType[*sandbox.LeakError](err)
		assert.True(t, found)
		assert.LessOrEqual(t, time.Since(began), 10*sec)
	})
}

func TestDeadContextStillNamesTheSandbox(t *testing.T) {
	p := sandboxtest.New(sandbox.Capabilities{})
	id := make1(t, p)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorContains(t, sandbox.Terminate(ctx, p, id), id)
}

func TestFailedDeleteShortensTheLeaseWhereThatIsACallOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sandboxtest.New(sandbox.Capabilities{})
		id := make1(t, p)
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
		ctx, cancel := context.WithTimeout(context.Background(), 10*sec)
		defer cancel()
		err := sandbox.Terminate(ctx, p, id)
		require.Error(t, err)
		require.Len(t, p.Calls(sandbox.OpShorten), 1)
		assert.Positive(t, p.Calls(sandbox.OpShorten)[0].Window, "never 0, which means for ever on two services")
		time.Sleep(5 * sec)
		assert.Empty(t, p.Live())
	})
}

func TestPermissionThatIsMissingIsFoundOutSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sandboxtest.New(sandbox.Capabilities{})
		id := make1(t, p)
		p.Behave(func(b *sandboxtest.Behaviour) { b.NoDelete = true })
		began := time.Now()
		err := sandbox.Terminate(context.Background(), p, id)
		assert.ErrorIs(t, err, sandbox.ErrPermission)
		assert.Less(t, time.Since(began), 10*sec)
	})
}

func TestRetryAfterOfADeleteIsObeyedButCutByTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sandboxtest.New(sandbox.Capabilities{})
		id := make1(t, p)
		slow := sandboxtest.Status(429)
		slow.RetryAfter = 20 * sec
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: slow})
		began := time.Now()
		require.NoError(t, sandbox.Terminate(context.Background(), p, id))
		assert.GreaterOrEqual(t, time.Since(began), 20*sec)
		id = make1(t, p)
		slow.RetryAfter = time.Hour
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: slow})
		began = time.Now()
		require.NoError(t, sandbox.Terminate(context.Background(), p, id))
		assert.Less(t, time.Since(began), 2*mins)
	})
}

func TestG12NotFoundSoonAfterTheCreateIsNoProofForAScope(t *testing.T) {
	k := kind(func(c *sandbox.Capabilities) { c.ReadLag = 3 * sec })
	inWorld(t, k, sandbox.Config{}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.GetMissesNew = 3 * sec })
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectNone})
		require.NoError(t, w.m.WithSandbox(context.Background(), ok))
		assert.GreaterOrEqual(t, len(w.p.Calls(sandbox.OpDelete)), 2)
		w.settle(nil)
	})
}

func TestADeleteRightAfterTheCreateIsNotAskedForOverAndOver(t *testing.T) {
	k := kind(func(c *sandbox.Capabilities) { c.ReadLag = 3 * sec })
	inWorld(t, k, sandbox.Config{}, func(w *world) {
		require.NoError(t, w.m.WithSandbox(context.Background(), ok))
		assert.LessOrEqual(t, len(w.p.Calls(sandbox.OpDelete)), 2)
		assert.LessOrEqual(t, len(w.p.Calls(sandbox.OpGet)), 4)
		w.settle(nil)
	})
}

// reusing is a provider that gives ids out again: while taken, another sandbox has them.
type reusing struct {
	*sandboxtest.Provider
	taken *atomic.Bool
	gone  bool // what had the id is no more
}

func (p reusing) Unwrap() sandbox.Provider { return p.Provider }

func (p reusing) Get(ctx context.Context, id string) (sandbox.Info, error) {
	return p.seen(p.Provider.Get(ctx, id))
}

func (p reusing) Extend(ctx context.Context, cur sandbox.Info, window time.Duration) (sandbox.Info, error) {
	return p.seen(p.Provider.Extend(ctx, cur, window))
}

func (p reusing) seen(info sandbox.Info, err error) (sandbox.Info, error) {
	if p.taken.Load() {
		info.Mark.Nonce = "zzzzzzzzzzzzzzzz"
	}
	return info, err
}

func (p reusing) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	if p.gone && p.taken.Load() {
		return func(func(sandbox.Info, error) bool) {}
	}
	return p.Provider.List(ctx, f)
}

func TestWhatHasTheIDByNowIsNotDeletedAndWhatIsOursIsFound(t *testing.T) {
	for name, gone := range map[string]bool{"ours is gone": true, "ours is there after all": false} {
		for _, keep := range []time.Duration{0, 10 * mins} {
			t.Run(fmt.Sprint(name, ", kept ", keep), func(t *testing.T) {
				inWorld(t, everything(), sandbox.Config{Scope: sandbox.Scope{KeepOnError: keep}}, func(w *world) {
					p := reusing{w.p, new(atomic.Bool), gone}
					m, err := sandbox.NewManager(p, w.cfg)
					require.NoError(t, err)
					err = m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
						p.taken.Store(true)
						if gone {
							<-ctx.Done()
							return nil
						}
						w.p.Fault(sandbox.OpGet, sandboxtest.Fault{}, sandboxtest.Fault{Err: sandboxtest.Status(500)})
						w.p.Fault(sandbox.OpExec, sandboxtest.Fault{Err: sandboxtest.Status(503)})
						_, err := sb.Exec(ctx, sandbox.Shell("true"))
						p.taken.Store(false)
						assert.NoError(t, ctx.Err(), "one look is no proof")
						return err
					})
					assert.Error(t, err)
					assert.Equal(t, gone, errors.Is(err, sandbox.ErrLeaseLost))
					_, leaked := errors.AsType[*sandbox.LeakError](err)
					assert.False(t, leaked)
					assert.LessOrEqual(t, len(w.p.Calls(sandbox.OpExtend)), 1, "a beat")
					assert.Equal(t, gone, len(w.p.Calls(sandbox.OpDelete)) == 0)
					assert.Equal(t, gone, len(w.p.Live()) > 0)
					assert.Empty(t, m.Live())
					assert.Empty(t, w.journal.Entries())
				})
			})
		}
	}
}

func TestWhatNoListAgreesToBeGoneIsNamedByItsID(t *testing.T) {
	for _, name := range []string{"e2b", "daytona"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := kindNamed(t, name).New()
				id := make1(t, p)
				time.Sleep(mins)
				p.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
				err := sandbox.Terminate(context.Background(), p, id)
				leak, found := errors.AsType[*sandbox.LeakError](err)
				require.True(t, found, "%v", err)
				require.Len(t, leak.Sandboxes, 1)
				assert.Equal(t, id, leak.Sandboxes[0].ID)
				assert.Equal(t, sandbox.StateUnknown, leak.Sandboxes[0].State)
				assert.False(t, leak.Sandboxes[0].Deadline.IsZero(), "its lease ends it, if it is there")
				assert.NotContains(t, err.Error(), "unanswered")
			})
			inWorld(t, kindNamed(t, name), sandbox.Config{}, func(w *world) {
				w.p.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(429), Times: -1})
				err := w.m.WithSandbox(context.Background(), ok)
				leak := w.settle(err)
				require.NotNil(t, leak)
				require.Len(t, leak.Sandboxes, 1)
				assert.Equal(t, w.p.Calls(sandbox.OpCreate)[0].ID, leak.Sandboxes[0].ID)
				assert.NotContains(t, err.Error(), "unanswered")
			})
		})
	}
}

func TestWhatAnUnansweredCreateMayYetMakeIsNamedBesideWhatItMade(t *testing.T) {
	inWorld(t, kindNamed(t, "e2b"), sandbox.Config{}, func(w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Hang: true, After: true})
		err := w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
			w.p.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
			return nil
		})
		leak := w.settle(err)
		require.NotNil(t, leak)
		require.Len(t, leak.Sandboxes, 2)
		assert.NotEmpty(t, leak.Sandboxes[0].ID)
		assert.Empty(t, leak.Sandboxes[1].ID)
		assert.Contains(t, err.Error(), "unanswered")
	})
}

func TestADeleteInDoubtBringsNoLeaseNearer(t *testing.T) {
	failed := sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1}
	for _, window := range []time.Duration{3 * mins, 10 * mins} {
		t.Run(window.String(), func(t *testing.T) {
			inWorld(t, kindNamed(t, "e2b"), sandbox.Config{Scope: sandbox.Scope{Window: window}}, func(w *world) {
				w.p.Fault(sandbox.OpDelete, failed)
				w.p.Fault(sandbox.OpExtend, failed)                         // which a shortening is, too
				leak := w.settle(w.m.WithSandbox(context.Background(), ok)) // nothing lives longer than is told
				require.NotNil(t, leak)
				assert.Equal(t, sandbox.StateRunning, leak.Sandboxes[0].State)
			})
		})
	}
}

func TestUntilWhenItMayLiveIsToldOfAFailedDeleteOnlyWhereThatIsKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		faults []sandboxtest.Fault
		known  bool
	}{
		"it is seen to run": {[]sandboxtest.Fault{{Err: sandboxtest.Status(503), Times: -1}}, false},
		"nothing is found":  {[]sandboxtest.Fault{{Effect: sandboxtest.EffectOrphan, Err: sandboxtest.Status(503), After: true}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caps := sandboxtest.Everything()
				caps.ReadsDeadline, caps.DeleteDoubt = false, 90*sec
				p := sandboxtest.New(caps)
				id := make1(t, p)
				p.Fault(sandbox.OpDelete, tc.faults...)
				p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(503)}) // which a shortening is, too
				ctx, cancel := context.WithTimeout(context.Background(), 30*sec)
				defer cancel()
				leak, found := errors.AsType[*sandbox.LeakError](sandbox.Terminate(ctx, p, id))
				require.True(t, found)
				assert.Equal(t, tc.known, !leak.Sandboxes[0].Deadline.IsZero(), "%v", leak)
				assert.Equal(t, !tc.known, strings.Contains(leak.Error(), "nothing is known to end it"))
			})
		})
	}
}

// A reused account is one whose looks show another sandbox under every id, from some time on.
type reused struct {
	*sandboxtest.Provider
	since *atomic.Bool
}

func (r reused) Unwrap() sandbox.Provider { return r.Provider }

func (r reused) Get(ctx context.Context, id string) (sandbox.Info, error) {
	info, err := r.Provider.Get(ctx, id)
	if r.since.Load() {
		info.Mark.Nonce = nonce(99)
	}
	return info, err
}

func TestWhatAnotherSandboxIsSeenToHaveTheIDOfIsGoneAndTheOtherIsNotDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		fn      func(ctx context.Context, p reused) error
		is      error
		deletes int
	}{
		"seen by a beat": {func(ctx context.Context, p reused) error {
			p.since.Store(true)
			p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(404), Times: -1})
			<-ctx.Done()
			return nil
		}, sandbox.ErrLeaseLost, 0},
		"seen after a delete that failed": {func(_ context.Context, p reused) error {
			p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(409)})
			p.since.Store(true)
			return nil
		}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := reused{sandboxtest.New(sandbox.Capabilities{}), new(atomic.Bool)}
				m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci"})
				require.NoError(t, err)
				err = m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error { return tc.fn(ctx, p) })
				assert.ErrorIs(t, err, tc.is)
				_, leaked := errors.AsType[*sandbox.LeakError](err)
				assert.False(t, leaked, "%v", err)
				assert.Len(t, p.Calls(sandbox.OpDelete), tc.deletes)
				assert.Len(t, p.Live(), 1, "the other one lives on")
				assert.Empty(t, m.Live())
			})
		})
	}
}

// The service fails every delete. The last ones drop the record, and the machine runs on until the platform finds it.
func TestADeleteInDoubtIsNotForgottenByTheNextTry(t *testing.T) {
	for name, tc := range map[string]struct {
		create sandboxtest.Effect
		well   int // deletes that work before
	}{
		"its sandbox":            {sandboxtest.EffectDone, 0},
		"a twin":                 {sandboxtest.EffectTwin, 1},
		"its sandbox and a twin": {sandboxtest.EffectTwin, 0},
	} {
		for what, again := range map[string]func(*sandbox.Manager) error{
			"replay":   func(m *sandbox.Manager) error { return m.Replay(context.Background()) },
			"shutdown": func(m *sandbox.Manager) error { return m.Shutdown(context.Background()) },
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				inWorld(t, kindNamed(t, "e2b"), sandbox.Config{Scope: sandbox.Scope{Window: 10 * mins}}, func(w *world) {
					w.p.Behave(func(b *sandboxtest.Behaviour) { b.ListShowsDeleted = 0 }) // likewise
					w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Effect: tc.create})
					failed := sandboxtest.Fault{Err: sandboxtest.Status(503), Skip: tc.well, Times: -1}
					w.p.Fault(sandbox.OpDelete, failed)
					time.AfterFunc(2*mins, func() {
						w.p.Heal()
						failed.Skip = 0
						w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectOrphan, Err: sandboxtest.Status(500), After: true, Times: 2}, failed)
					})
					require.Error(t, w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
						time.Sleep(5 * sec) // or one is deleted twice
						return nil
					}))
					w.p.Heal()
					require.NotEmpty(t, w.p.Live())
					require.NoError(t, again(w.m))
					w.settle(nil)
				})
			})
		}
	}
}

// A hiding account is one whose looks fail until some time, show the sandbox for ten seconds or until a delete is sent, and
// then miss it. Its deletes have no effect at first.
type hiding struct {
	*sandboxtest.Provider
	shows, works time.Time
	asked        *atomic.Bool // a delete was; nil: that changes no look
}

func (h hiding) Unwrap() sandbox.Provider { return h.Provider }

func (h hiding) Get(ctx context.Context, id string) (sandbox.Info, error) {
	switch now := time.Now(); {
	case now.Before(h.shows):
		return sandbox.Info{}, sandboxtest.Status(503)
	case now.Before(h.shows.Add(10*sec)) && (h.asked == nil || !h.asked.Load()):
		return h.Provider.Get(ctx, id)
	}
	return sandbox.Info{}, sandboxtest.Status(404)
}

func (h hiding) Delete(ctx context.Context, id string) error {
	if h.asked != nil {
		h.asked.Store(true)
	}
	if time.Now().Before(h.works) {
		return nil
	}
	return h.Provider.Delete(ctx, id)
}

func TestTerminateAsksTheListsAlsoWhereItsFirstLookFails(t *testing.T) {
	for name, c := range map[string]struct {
		fails time.Duration
		asked *atomic.Bool
	}{
		"once":        {10 * time.Millisecond, nil},
		"for a while": {20 * sec, nil},
		"for longer than it waits with the delete":        {40 * sec, nil},
		"once, and none shows it after the delete":        {10 * time.Millisecond, new(atomic.Bool)},
		"for a while, and none shows it after the delete": {20 * sec, new(atomic.Bool)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caps := sandboxtest.Everything()
				caps.GoneByList = true
				p := hiding{sandboxtest.New(caps), time.Now().Add(c.fails), time.Now().Add(mins), c.asked}
				id := make1(t, p.Provider)
				require.NoError(t, sandbox.Terminate(context.Background(), p, id))
				assert.Empty(t, p.Live())
			})
		})
	}
}

func TestTerminateDoesNotWaitForLooksThatDoNotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caps := sandboxtest.Everything()
		caps.GoneByList = true
		p := sandboxtest.New(caps)
		id := make1(t, p)
		p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
		_, found := errors.AsType[*sandbox.LeakError](sandbox.Terminate(context.Background(), p, id))
		assert.True(t, found)
		assert.Empty(t, p.Live(), "deleted, although nobody can see that")
	})
}
