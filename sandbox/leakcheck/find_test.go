package leakcheck_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// A world is a service in a bubble.
type world struct {
	t *testing.T
	*sandboxtest.Provider
	n int
}

func inWorld(t *testing.T, change func(*sandbox.Capabilities), f func(w *world)) {
	t.Helper()
	// Timers of a bubble that fire on two processors at once crash the race detector: golang/go#78156.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		caps := sandboxtest.Everything()
		if change != nil {
			change(&caps)
		}
		f(&world{t: t, Provider: sandboxtest.New(caps)})
	})
}

// make makes n sandboxes of a fleet, with a lease of an hour unless the changes say otherwise.
func (w *world) make(n int, fleet string, changes ...func(*sandbox.CreateRequest)) (infos []sandbox.Info) {
	w.t.Helper()
	for range n {
		w.n++
		req := sandbox.CreateRequest{
			Mark: sandbox.Mark{
				Fleet: fleet, Owner: "host.1", Created: time.Now(), Lifetime: 10 * time.Hour,
				Nonce: fmt.Sprintf("aaaaaaaaaaaaaa%c%c", 'a'+w.n/26, 'a'+w.n%26),
			},
			Window: time.Hour,
		}
		for _, change := range changes {
			change(&req)
		}
		i, err := w.Create(context.Background(), req)
		require.NoError(w.t, err)
		infos = append(infos, i)
	}
	return infos
}

func (w *world) find(opts ...leakcheck.Option) error {
	return leakcheck.Find(w.t.Context(), w, opts...)
}

// leaks returns the ids that err names, by class.
func leaks(t *testing.T, err error) map[leakcheck.Class][]string {
	t.Helper()
	require.ErrorIs(t, err, leakcheck.ErrLeak)
	e, ok := errors.AsType[*leakcheck.Error](err)
	require.True(t, ok)
	ids := map[leakcheck.Class][]string{}
	for _, l := range e.Leaks {
		ids[l.Class] = append(ids[l.Class], l.Info.ID)
	}
	return ids
}

func witness(w *world) leakcheck.Option { return leakcheck.Witness(w.make(1, "other")[0].ID) }

func TestCleanNeedsAWitness(t *testing.T) {
	for name, c := range map[string]struct {
		opts  func(w *world) []leakcheck.Option
		clean bool
	}{
		"none":                   {func(*world) []leakcheck.Option { return nil }, false},
		"others' sandboxes":      {func(w *world) []leakcheck.Option { w.make(3, "other"); return nil }, false},
		"one that is known":      {func(w *world) []leakcheck.Option { return []leakcheck.Option{witness(w)} }, true},
		"a canary":               {func(*world) []leakcheck.Option { return []leakcheck.Option{leakcheck.Canary(sandbox.Spec{})} }, true},
		"none, which is allowed": {func(*world) []leakcheck.Option { return []leakcheck.Option{leakcheck.Unwitnessed()} }, true},
		"a source that agrees":   {func(*world) []leakcheck.Option { return []leakcheck.Option{source(nil, nil)} }, true},
		"a source that names some": {func(w *world) []leakcheck.Option {
			return []leakcheck.Option{source([]string{w.make(1, "other")[0].ID}, nil)}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				err := w.find(c.opts(w)...)
				if c.clean {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, leakcheck.ErrNoWitness)
					assert.NotErrorIs(t, err, leakcheck.ErrBlind)
					assert.NotErrorIs(t, err, leakcheck.ErrLeak)
				}
			})
		})
	}
}

func source(ids []string, err error) leakcheck.Option {
	return leakcheck.Source(func(context.Context) ([]string, error) { return ids, err })
}

func TestTheThreeClasses(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced, b.NoHardEnd = true, true })
		short := func(r *sandbox.CreateRequest) { r.Window = time.Minute }
		byID, byNonce := w.make(1, "ci")[0], w.make(1, "ci")[0]
		expired := w.make(1, "ci", short)[0]
		paused := w.make(1, "ci")[0] // H05
		require.True(t, w.Pause(paused.ID))
		old := w.make(1, "ci", func(r *sandbox.CreateRequest) { r.Mark.Lifetime = time.Minute })[0]
		w.make(1, "ci")           // of somebody else, and alive
		w.make(3, "ci-2", short)  // other fleets
		w.make(3, "other", short) // whatever their leases are
		unmarked := w.make(1, "ci")[0]
		require.True(t, w.DropTags(unmarked.ID))
		time.Sleep(10 * time.Minute)
		before := len(w.Calls(sandbox.OpDelete, sandbox.OpExtend, sandbox.OpShorten))

		opts := []leakcheck.Option{
			leakcheck.Fleet("ci"), witness(w),
			leakcheck.Known(sandbox.Info{ID: byID.ID}, sandbox.Info{Mark: sandbox.Mark{Nonce: byNonce.Mark.Nonce}}),
		}
		err := w.find(opts...)
		assert.Equal(t, map[leakcheck.Class][]string{
			leakcheck.Ours:    {byID.ID, byNonce.ID},
			leakcheck.OfFleet: {expired.ID, paused.ID, old.ID},
		}, leaks(t, err))
		assert.NotErrorIs(t, err, leakcheck.ErrBlind)
		assert.Len(t, w.Calls(sandbox.OpDelete, sandbox.OpExtend, sandbox.OpShorten), before, "nothing is deleted")
		for _, word := range []string{
			"memory: 5 sandboxes are left", unmarked.ID, "1 more without any mark",
			byID.ID + " is running, 10m5s old, with its deadline 2000-01-01T01:00:00Z, in 49m", "owner host.1 of fleet ci, nonce " + byID.Mark.Nonce,
			paused.ID + " is dormant", expired.ID + " is running, 10m5s old, with its deadline 2000-01-01T00:01:00Z, 9m",
		} {
			assert.ErrorContains(t, err, word)
		}

		assert.Equal(t, []string{unmarked.ID}, leaks(t, w.find(append(opts, leakcheck.Strict())...))[leakcheck.Unmarked])
	})
	t.Run("what nobody marked is no failure by itself", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			require.True(t, w.DropTags(w.make(1, "ci")[0].ID))
			require.NoError(t, w.find(witness(w), leakcheck.Fleet("ci")))
			require.ErrorIs(t, w.find(witness(w), leakcheck.Strict()), leakcheck.ErrLeak)
		})
	})
}

func TestAListThatDoesNotShowEverythingIsNoCleanOne(t *testing.T) {
	for name, spoil := range map[string]func(*world){
		"H03 repeats a cursor": func(w *world) { w.Behave(func(b *sandboxtest.Behaviour) { b.RepeatCursor = true }) },
		"H11 fails":            func(w *world) { w.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1}) },
		"H11 fails with 401":   func(w *world) { w.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(401), Times: -1}) },
		"H12 fails after the first page": func(w *world) {
			w.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(503), Skip: 1, Times: -1})
		},
		"is empty in an outage": func(w *world) { w.Fault(sandbox.OpList, sandboxtest.Fault{Effect: sandboxtest.EffectNone, Times: -1}) },
		"hides what runs": func(w *world) {
			w.Behave(func(b *sandboxtest.Behaviour) { b.ListHides = []sandbox.State{sandbox.StateRunning} })
		},
		"never answers": func(w *world) { w.Fault(sandbox.OpList, sandboxtest.Fault{Hang: true, Deaf: true, Times: -1}) },
		"panics":        func(w *world) { w.Fault(sandbox.OpList, sandboxtest.Fault{Panic: "boom", Times: -1}) },
		"H06 is another account's": func(w *world) {
			w.Behave(func(b *sandboxtest.Behaviour) { b.WrongScope = true })
		},
	} {
		for kind, option := range map[string]func(w *world) leakcheck.Option{
			"a known one":     witness,
			"a canary":        func(*world) leakcheck.Option { return leakcheck.Canary(sandbox.Spec{}) },
			"a second source": func(w *world) leakcheck.Option { return source([]string{w.make(1, "other")[0].ID}, nil) },
		} {
			t.Run(name+", witness "+kind, func(t *testing.T) {
				inWorld(t, nil, func(w *world) {
					w.Behave(func(b *sandboxtest.Behaviour) { b.PageSize = 10 })
					w.make(25, "other")
					opt := option(w)
					spoil(w)
					err := w.find(opt)
					require.ErrorIs(t, err, leakcheck.ErrBlind)
					assert.NotErrorIs(t, err, leakcheck.ErrNoWitness)
					assert.ErrorContains(t, err, "memory")
					w.Heal()
				})
			})
		}
	}
	t.Run("a second source fails", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			broken := errors.New("broken")
			err := w.find(source(nil, broken))
			require.ErrorIs(t, err, leakcheck.ErrBlind)
			require.ErrorIs(t, err, broken)
		})
	})
	t.Run("a witness is dead", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			opt := witness(w)
			w.Expire()
			require.ErrorIs(t, w.find(opt), leakcheck.ErrBlind)
		})
	})
	t.Run("what is known and hidden is a leak, too", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			i := w.make(1, "ci")[0]
			opt := witness(w)
			w.Pause(i.ID)
			w.Behave(func(b *sandboxtest.Behaviour) { b.ListHides = []sandbox.State{sandbox.StateDormant} })
			err := w.find(opt, leakcheck.Known(i))
			require.ErrorIs(t, err, leakcheck.ErrBlind)
			assert.Equal(t, []string{i.ID}, leaks(t, err)[leakcheck.Ours])
		})
	})
}

func TestListsThatLagAreWaitedFor(t *testing.T) {
	lagging := func(c *sandbox.Capabilities) { c.ReadLag = 3 * time.Second }
	t.Run("H14 ghosts are no leaks", func(t *testing.T) {
		inWorld(t, lagging, func(w *world) {
			all := w.make(45, "ci")
			time.Sleep(10 * time.Second)
			opt := witness(w)
			for _, i := range all[:41] {
				require.True(t, w.Kill(i.ID))
			}
			w.Behave(func(b *sandboxtest.Behaviour) { b.ListShowsDeleted = time.Hour })
			found := leaks(t, w.find(opt, leakcheck.Known(all...)))
			assert.Len(t, found[leakcheck.Ours], 4)
			assert.Len(t, found, 1)
		})
	})
	t.Run("H01 flapping rows are no leaks", func(t *testing.T) {
		inWorld(t, lagging, func(w *world) {
			all := w.make(5, "ci")
			time.Sleep(10 * time.Second)
			for _, i := range all {
				require.True(t, w.Kill(i.ID))
			}
			w.Behave(func(b *sandboxtest.Behaviour) { b.ListShowsDeleted, b.ListFlaps = 0, 5*time.Second })
			require.NoError(t, w.find(witness(w), leakcheck.Known(all...)))
		})
	})
	t.Run("a new one is not missed", func(t *testing.T) {
		inWorld(t, lagging, func(w *world) {
			opt := witness(w)
			time.Sleep(10 * time.Second)
			fresh := w.make(1, "ci")[0]
			assert.NotEmpty(t, leaks(t, w.find(opt, leakcheck.Known(sandbox.Info{Mark: fresh.Mark}))))
		})
	})
	t.Run("a canary is not missed", func(t *testing.T) {
		inWorld(t, lagging, func(w *world) { require.NoError(t, w.find(leakcheck.Canary(sandbox.Spec{}))) })
	})
	t.Run("what is on its way out has time for it, and no more", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			w.Behave(func(b *sandboxtest.Behaviour) { b.DeleteTime = 20 * time.Second })
			i := w.make(1, "ci")[0]
			opt := witness(w)
			require.NoError(t, w.Delete(w.t.Context(), i.ID))
			require.ErrorIs(t, w.find(opt, leakcheck.Known(i), leakcheck.Patience(5*time.Second)), leakcheck.ErrLeak)
			require.NoError(t, w.find(opt, leakcheck.Known(i), leakcheck.Patience(time.Minute)))
		})
	})
	t.Run("one failed list is not the end", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			opt := witness(w)
			w.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(503)})
			require.NoError(t, w.find(opt))
		})
	})
}

func TestACanaryLeavesNothing(t *testing.T) {
	for _, k := range sandboxtest.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				w.Provider = k.New()
				require.NoError(t, w.find(leakcheck.Canary(sandbox.Spec{})))
				time.Sleep(time.Minute)
				assert.Empty(t, w.Live())
				assert.Empty(t, w.Residue())
				assert.NotEmpty(t, w.Calls(sandbox.OpDelete))
			})
		})
	}
	t.Run("and says so where it does", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			w.Behave(func(b *sandboxtest.Behaviour) { b.NoDelete = true })
			err := w.find(leakcheck.Canary(sandbox.Spec{}))
			require.ErrorIs(t, err, leakcheck.ErrBlind)
			leak, ok := errors.AsType[*sandbox.LeakError](err)
			require.True(t, ok)
			require.Len(t, leak.Sandboxes, 1)
			assert.Equal(t, leakcheck.CanaryFleet, leak.Sandboxes[0].Mark.Fleet)
			time.Sleep(time.Hour)
			assert.Empty(t, w.Live(), "its lease ends it")
		})
	})
	t.Run("and finds what is left beside it", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			i := w.make(1, "ci")[0]
			err := w.find(leakcheck.Canary(sandbox.Spec{}), leakcheck.Known(i))
			assert.Equal(t, map[leakcheck.Class][]string{leakcheck.Ours: {i.ID}}, leaks(t, err))
		})
	})
}

func TestAManagersSandboxesAreOurs(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		var record leakcheck.Record
		m, err := sandbox.NewManager(w, sandbox.Config{Fleet: "ci", Observers: []sandbox.Observer{record.Observe}})
		require.NoError(t, err)
		opt := witness(w)
		var during error
		var id string
		run := func(ctx context.Context, sb sandbox.Sandbox) error {
			id = sb.ID()
			during = w.find(opt, leakcheck.Manager(m))
			return nil
		}
		require.NoError(t, m.WithSandbox(w.t.Context(), run))
		assert.Equal(t, []string{id}, leaks(t, during)[leakcheck.Ours], "a running scope's")
		require.NoError(t, w.find(opt, leakcheck.Manager(m), leakcheck.Recorded(&record)))

		w.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true }) // or the shortened lease would end it
		w.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(403), Times: -1})
		err = m.WithSandbox(w.t.Context(), run)
		_, leaked := errors.AsType[*sandbox.LeakError](err)
		require.True(t, leaked)
		assert.Equal(t, []string{id}, leaks(t, w.find(opt, leakcheck.Manager(m)))[leakcheck.Ours], "what a scope could not delete")
		w.Heal()
		require.NoError(t, m.Shutdown(w.t.Context()))

		m, err = sandbox.NewManager(w, sandbox.Config{Fleet: "ci", Observers: []sandbox.Observer{record.Observe}})
		require.NoError(t, err)
		w.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectRevive})
		require.NoError(t, m.WithSandbox(w.t.Context(), run))
		time.Sleep(10 * time.Second)
		require.NoError(t, w.find(opt, leakcheck.Manager(m)), "the manager has seen it gone")
		assert.Equal(t, []string{id}, leaks(t, w.find(opt, leakcheck.Recorded(&record)))[leakcheck.Ours], "and it came back")
	})
}

func TestASandboxIsOursOnceItIsTakenOverAndNotWhileWeAreItsGuest(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		var record leakcheck.Record
		j := sandboxtest.NewJournal()
		m, err := sandbox.NewManager(w, sandbox.Config{Fleet: "ci", Journal: j, Observers: []sandbox.Observer{record.Observe}})
		require.NoError(t, err)
		opt := witness(w)
		theirs := w.make(1, "ci")[0] // another process's
		run := func(ctx context.Context, sb sandbox.Sandbox) error {
			time.Sleep(5 * time.Minute)
			_, err := sb.Exec(ctx, sandbox.Shell("true"))
			return err
		}
		require.NoError(t, m.AttachSandbox(w.t.Context(), theirs.ID, false, run))
		require.ErrorIs(t, m.AttachSandbox(w.t.Context(), theirs.ID, true, run), sandbox.ErrConflict)
		assert.NoError(t, w.find(opt, leakcheck.Recorded(&record), leakcheck.Manager(m)))

		require.NoError(t, j.Put(w.t.Context(), sandbox.Entry{Provider: w.Name(), ID: theirs.ID, Mark: theirs.Mark}))
		j.Abandon() // its owner has died
		w.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		w.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(403), Times: -1})
		require.Error(t, m.AttachSandbox(w.t.Context(), theirs.ID, true, run))
		err = w.find(opt, leakcheck.Recorded(&record))
		assert.Equal(t, []string{theirs.ID}, leaks(t, err)[leakcheck.Ours])
		assert.ErrorContains(t, err, "find_test.go:", "the place of the take-over")
	})
}

func TestACanaryThatAnEarlierCheckLeftIsALeak(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		old := w.make(1, leakcheck.CanaryFleet)[0]
		time.Sleep(59 * time.Minute)
		opt := witness(w)
		require.NoError(t, w.find(opt), "another check may be under way")
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{old.ID}, leaks(t, w.find(opt))[leakcheck.OfFleet])
	})
}

func TestAWitnessIsNoLeak(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		id := w.make(1, "ci")[0].ID
		require.True(t, w.DropTags(id))
		require.ErrorIs(t, w.find(leakcheck.Unwitnessed(), leakcheck.Strict()), leakcheck.ErrLeak)
		require.NoError(t, w.find(leakcheck.Witness(id), leakcheck.Strict()))
	})
}

// An endless account lists its sandboxes again and again, and never says so.
type endless struct{ *world }

func (e endless) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		for {
			for i, err := range e.Provider.List(ctx, f) {
				if !yield(i, err) {
					return
				}
			}
		}
	}
}

func TestH03RowsThatComeAgainAndAgainAreAnError(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		opt := witness(w)
		require.ErrorIs(t, leakcheck.Find(w.t.Context(), endless{w}, opt), leakcheck.ErrBlind)
	})
}

func TestFindObeysItsContext(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		opt := witness(w)
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(w.t.Context())
		w.Fault(sandbox.OpList, sandboxtest.Fault{Hang: true, Times: -1})
		time.AfterFunc(time.Second, func() { cancel(stop) })
		began := time.Now()
		err := leakcheck.Find(ctx, w, opt)
		require.ErrorIs(t, err, leakcheck.ErrBlind)
		require.ErrorIs(t, err, stop)
		assert.Less(t, time.Since(began), 2*time.Second)
	})
	require.ErrorIs(t, leakcheck.Find(t.Context(), nil), sandbox.ErrInvalid)
}

func TestALeakNamesThePlaceInTheCodeThatMadeIt(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		var record leakcheck.Record
		m, err := sandbox.NewManager(w, sandbox.Config{
			Fleet:     "ci",
			Observers: []sandbox.Observer{func(ctx context.Context, e sandbox.Event) { record.Observe(ctx, e) }}, // a wrapper is not the place
		})
		require.NoError(t, err)
		w.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		w.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		_, _, line, _ := runtime.Caller(0)
		err = m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { return nil })
		require.Error(t, err)
		err = w.find(leakcheck.Unwitnessed(), leakcheck.Recorded(&record))
		found, ok := errors.AsType[*leakcheck.Error](err)
		require.True(t, ok, err)
		assert.Contains(t, found.Leaks[0].Site, fmt.Sprintf("find_test.go:%d", line+1))
		assert.Contains(t, err.Error(), "made at "+found.Leaks[0].Site)
	})
}

func TestALeakOfAnotherProcessNamesNoPlace(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		left := w.make(1, "ci")[0]
		err := w.find(leakcheck.Unwitnessed(), leakcheck.Known(left))
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "made at")
	})
}
