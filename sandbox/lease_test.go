package sandbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// ahead is how far ahead of its own clock a service's deadline may ever lie: W, and one beat more where it adds.
// A create's lease may be longer where the machine is still being made; the first beat ends that.
func ahead(c sandbox.Capabilities, first bool) time.Duration {
	const w, b = 3 * mins, mins
	switch {
	case c.Extend == sandbox.ExtendNone:
		return time.Hour + 2*mins + 10*sec
	case c.Extend == sandbox.ExtendAdd:
		return w + b
	case first:
		return w + c.StartAllowance
	}
	return w
}

func TestTenHoursOfBeatsNeverLeaveADeadlineFurtherAheadThanTheWindow(t *testing.T) {
	for _, k := range append(sandboxtest.Kinds(), everything()) {
		if k.Capabilities.Extend == sandbox.ExtendNone {
			continue // one window spans the life
		}
		for _, trouble := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/trouble %v", k.Name, trouble), func(t *testing.T) {
				cfg := sandbox.Config{Scope: sandbox.Scope{MaxLifetime: 11 * time.Hour}}
				inWorld(t, k, cfg, func(w *world) {
					var mu sync.Mutex
					changes, born := 0, time.Now()
					w.p.Watch(func(c sandboxtest.Change) {
						mu.Lock()
						defer mu.Unlock()
						if c.Info.State != sandbox.StateRunning { // some leases begin when it runs
							return
						}
						changes++
						most := ahead(k.Capabilities, c.At.Sub(born) < 3*mins)
						assert.False(t, c.Info.Deadline.IsZero(), "no deadline at all")
						assert.LessOrEqual(t, c.Info.Deadline.Sub(c.At), most, "%v into its life", c.At.Sub(born))
					})
					err := w.m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
						for minute := range 600 {
							if trouble && minute%3 == 0 { // never so many faults in a row that the lease is lost for sure
								w.upset()
							}
							time.Sleep(mins)
							require.NoError(t, context.Cause(ctx))
							assert.Len(t, w.p.Live(), 1)
						}
						return nil
					})
					require.NoError(t, err)
					w.p.Heal()
					assert.Greater(t, changes, 500)
					w.settle(nil)
				})
			})
		}
	}
}

// upset has the next extend or look go wrong, or both.
func (w *world) upset() {
	w.p.Heal()
	faults := []sandboxtest.Fault{
		{Err: sandboxtest.Status(500)},
		{Err: sandboxtest.Status(409)},
		{Err: sandboxtest.Status(429)},
		{Err: sandboxtest.Status(502), After: true},
		{Hang: true},
		{Hang: true, After: true},
		{Delay: 10 * sec},
		{Effect: sandboxtest.EffectNone},
	}
	if !w.p.Capabilities().ReadsDeadline { // nobody could notice a success without effect there
		faults = faults[:len(faults)-1]
	}
	if rand.IntN(3) > 0 {
		w.p.Fault(sandbox.OpExtend, faults[rand.IntN(len(faults))])
	}
	if rand.IntN(2) == 0 {
		w.p.Fault(sandbox.OpGet, faults[rand.IntN(7)])
	}
}

// The owner dies, or is cut off, at a random instant: nothing that it sends arrives any more. The end at the service
// then comes by the formula of the design: the window (one beat more where the service adds), the platform's own
// lateness, and, during a create, what that may take.
func TestSandboxOfAKilledOwnerEndsWithinTheFormula(t *testing.T) {
	for _, k := range append(sandboxtest.Kinds(), everything()) {
		t.Run(k.Name, func(t *testing.T) {
			for seed := range uint64(60) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					random := rand.New(rand.NewPCG(seed, 7))
					death := time.Duration(random.Int64N(int64(40 * mins)))
					if seed%4 == 0 {
						death = time.Duration(random.Int64N(int64(10 * sec)))
					}
					inWorld(t, k, sandbox.Config{}, func(w *world) { dies(w, k, death) })
				})
			}
		})
	}
}

func dies(w *world, k sandboxtest.Kind, death time.Duration) {
	var mu sync.Mutex
	var ended time.Time
	w.p.Watch(func(c sandboxtest.Change) {
		mu.Lock()
		defer mu.Unlock()
		if ended.IsZero() && (c.Info.State == sandbox.StateEnding || !c.Info.State.MayRun()) {
			ended = c.At
		}
	})
	w.p.Behave(func(b *sandboxtest.Behaviour) { b.StartTime = max(b.StartTime, 3*sec) })
	ctx, cancel := context.WithCancel(context.Background())
	var died time.Time
	time.AfterFunc(death, func() {
		died = time.Now()
		for _, op := range []sandbox.Op{sandbox.OpCreate, sandbox.OpGet, sandbox.OpList, sandbox.OpExtend, sandbox.OpDelete, sandbox.OpExec} {
			w.p.Fault(op, sandboxtest.Fault{Hang: true, Times: -1})
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.m.WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error {
			<-ctx.Done()
			return nil
		})
	}()
	time.Sleep(death + 2*time.Hour)
	w.p.Live() // the service looks at its clock
	c := k.Capabilities
	most := ahead(c, death < 2*mins) + c.Lateness
	if death < 10*sec { // the lease may begin only when it runs, 3 s after the create
		most += 3 * sec
	}
	mu.Lock()
	life := ended.Sub(died)
	mu.Unlock()
	if len(w.p.Calls(sandbox.OpCreate)) > 0 && w.p.Calls(sandbox.OpCreate)[0].ID != "" {
		assert.False(w.t, ended.IsZero(), "it never ended")
		assert.LessOrEqual(w.t, life, most, "died %v into it", death)
	}
	assert.Empty(w.t, w.p.Live())
	cancel()
	w.p.Heal()
	<-done
	synctest.Wait()
}

func TestF01SlowExtendDoesNotEndABusySandbox(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
			w.p.Fault(sandbox.OpExtend, sandboxtest.Fault{Hang: true, Times: 3}) // three attempts of 30 s
			time.Sleep(20 * mins)
			return context.Cause(ctx)
		}))
		w.settle(nil)
	})
}

func TestF02F06F21F22QuietSandboxLivesOnEveryService(t *testing.T) {
	for _, k := range append(sandboxtest.Kinds(), everything()) {
		t.Run(k.Name, func(t *testing.T) {
			inWorld(t, k, sandbox.Config{}, func(w *world) {
				require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
					time.Sleep(15 * mins) // the owner thinks
					_, err := sb.Exec(ctx, sandbox.Shell("sleep 1200"))
					return err
				}))
				w.settle(nil)
			})
		})
	}
}

func TestF04BeatsEndWithTheirScope(t *testing.T) {
	// Timers of a large bubble that fire on two processors at once can crash the race detector: golang/go#78156.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				assert.NoError(t, w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
					time.Sleep(5 * mins)
					return nil
				}))
			})
		}
		wg.Wait()
		calls := len(w.p.Calls())
		time.Sleep(time.Hour)
		assert.Len(t, w.p.Calls(), calls, "not one call after the scopes")
		w.settle(nil)
	}) // and the bubble ends only if no goroutine is left
}

func TestF12BeatsStopWhenTheFunctionPanicsAndTheCallerRecovers(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		func() {
			defer func() { assert.Equal(t, "boom", recover()) }()
			_ = w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { panic("boom") })
		}()
		calls := len(w.p.Calls())
		time.Sleep(time.Hour)
		assert.Len(t, w.p.Calls(), calls)
		w.settle(nil)
	})
}

func TestF23BeatsBeginAtTheCreateNotWhenItRuns(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.StartTime = 4*mins + 30*sec })
		require.NoError(t, w.m.WithSandbox(context.Background(), ok), "readiness takes longer than the window")
		w.settle(nil)
	})
}

func TestK03DeadSandboxIsNoticedWithinOneBeat(t *testing.T) {
	for seed := range uint64(20) {
		inWorld(t, everything(), sandbox.Config{}, func(w *world) {
			err := w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
				time.Sleep(time.Duration(rand.New(rand.NewPCG(seed, 1)).Int64N(int64(30 * mins))))
				w.p.Kill(sb.ID())
				killed := time.Now()
				<-ctx.Done()
				assert.LessOrEqual(t, time.Since(killed), mins+5*sec)
				return nil
			})
			assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
		})
	}
}

func TestSuspendedOwnerLooksBeforeItTrusts(t *testing.T) {
	for name, dead := range map[string]bool{"it lived on": false, "it ended meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, everything(), sandbox.Config{}, func(w *world) {
				var mu sync.Mutex
				var asleep time.Duration
				sandbox.SetWall(w.m, func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					return time.Now().Add(asleep)
				})
				err := w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
					time.Sleep(10 * mins)
					looks := len(w.p.Calls(sandbox.OpGet))
					mu.Lock()
					asleep = 5 * mins // more than the window
					mu.Unlock()
					if dead {
						w.p.Kill(sb.ID())
					}
					woke := time.Now()
					select {
					case <-ctx.Done():
						assert.Less(t, time.Since(woke), 15*sec)
					case <-time.After(10 * mins):
					}
					assert.Greater(t, len(w.p.Calls(sandbox.OpGet)), looks)
					return nil
				})
				assert.Equal(t, dead, err != nil, "%v", err)
			})
		})
	}
}

func TestMaxLifetimeCountsSuspendedTime(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{Scope: sandbox.Scope{MaxLifetime: 30 * mins}}, func(w *world) {
		began := time.Now()
		sandbox.SetWall(w.m, func() time.Time { return time.Now().Add(time.Since(began)) }) // asleep half of the time
		_ = w.m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), sandbox.ErrMaxLifetime)
			assert.Less(t, time.Since(began), 16*mins)
			return nil
		})
	})
}

// What its function swallows, or a shutdown in the same instant, does not undo that the loss was noticed.
func TestTheFirstCauseOfAnEndStays(t *testing.T) {
	for name, then := range map[string]func(ctx context.Context, w *world){
		"if fn returns when its call has ended, and before its context": func(ctx context.Context, w *world) {
			assert.NoError(w.t, ctx.Err())
		},
		"if fn returns right before its context ends": func(ctx context.Context, w *world) {
			time.Sleep(15 * sec)
			assert.NoError(w.t, ctx.Err())
		},
		"if a shutdown begins right before its context ends": func(ctx context.Context, w *world) {
			time.Sleep(15 * sec)
			go func() { assert.NoError(w.t, w.m.Shutdown(context.Background())) }()
			<-ctx.Done()
			assert.ErrorIs(w.t, context.Cause(ctx), sandbox.ErrLeaseLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, everything(), sandbox.Config{}, func(w *world) {
				err := w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
					sandbox.SlowEnd(ctx, 10*sec)
					w.p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
					w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
					_, err := sb.Exec(ctx, sandbox.Shell("sleep 1000"))
					assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
					w.p.Heal()
					then(ctx, w)
					return nil // it swallows the call's error
				})
				assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
				assert.NotErrorIs(t, err, sandbox.ErrShutdown)
				time.Sleep(mins) // whatever is still ending it
				synctest.Wait()
			})
		})
	}
}
