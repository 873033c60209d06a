package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

var errTask = errors.New("the task failed")

const (
	sec  = time.Second
	mins = time.Minute
)

// An exit is one way in which a scope can come to its end.
type exit struct {
	name  string
	cfg   func(*sandbox.Config)
	kinds func(sandbox.Capabilities) bool // nil: all
	world func(*world)                    // what goes wrong
	// cancel is when the caller cancels, counted from the call; 0: never. deadline likewise.
	cancel, deadline time.Duration
	fn               func(ctx context.Context, w *world, sb sandbox.Sandbox) error
	is               []error // what the error matches, in the order of importance
	not              []error
	leaks            bool   // a leak is expected
	leaksOn          string // on this kind
	fresh            bool   // fn was not called
	unbound          bool   // fn itself takes longer than the bound
}

func wait(ctx context.Context, _ *world, _ sandbox.Sandbox) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", errTask, ctx.Err())
}

func exits() []exit {
	extends := func(c sandbox.Capabilities) bool { return c.Extend != sandbox.ExtendNone }
	return []exit{
		{name: "return", fn: func(context.Context, *world, sandbox.Sandbox) error { return nil }},
		{name: "error", fn: func(context.Context, *world, sandbox.Sandbox) error { return errTask }, is: []error{errTask}},
		{name: "return after an hour less a minute", fn: func(context.Context, *world, sandbox.Sandbox) error {
			time.Sleep(25 * mins)
			return nil
		}},
		{name: "panic", fn: func(context.Context, *world, sandbox.Sandbox) error { panic("boom") }},
		{name: "goexit", fn: func(context.Context, *world, sandbox.Sandbox) error { runtime.Goexit(); return nil }},
		{name: "cancelled before", cancel: -1, is: []error{sandbox.ErrNotStarted, context.Canceled}, fresh: true},
		{
			name: "cancelled during create", world: func(w *world) { w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Delay: 20 * sec, Late: true}) },
			cancel: 5 * sec, is: []error{sandbox.ErrNotStarted, context.Canceled}, fresh: true,
		},
		{name: "cancelled after create", cancel: 10 * mins, fn: wait, is: []error{errTask, context.Canceled}, not: []error{sandbox.ErrNotStarted}},
		{name: "deadline", deadline: 10 * mins, fn: wait, is: []error{errTask, context.DeadlineExceeded}},
		{name: "cancelled, and fn returns nil", cancel: mins, fn: func(ctx context.Context, _ *world, _ sandbox.Sandbox) error {
			<-ctx.Done()
			return nil
		}},
		{
			name: "hung function", cancel: mins, unbound: true, is: []error{errTask},
			fn: func(_ context.Context, w *world, _ sandbox.Sandbox) error {
				time.Sleep(mins + w.grace() + 2*mins + 10*sec)
				assert.Empty(w.t, w.p.Live(), "deleted under the function after grace")
				assert.NotEmpty(w.t, w.seen(sandbox.OpRun, false), "it is told that the function still runs")
				return errTask
			},
		},
		{
			name: "lease lost", kinds: extends, is: []error{sandbox.ErrLeaseLost, errTask},
			fn: func(ctx context.Context, w *world, sb sandbox.Sandbox) error {
				time.Sleep(5 * mins)
				w.p.Kill(sb.ID())
				start := time.Now()
				<-ctx.Done()
				assert.Less(w.t, time.Since(start), 70*sec, "noticed by the next beat")
				assert.ErrorIs(w.t, context.Cause(ctx), sandbox.ErrLeaseLost)
				_, err := sb.Exec(context.Background(), sandbox.Shell("true"))
				assert.ErrorIs(w.t, err, sandbox.ErrLeaseLost, "a lost sandbox takes no calls")
				return errTask
			},
		},
		{
			name: "killed under a command, whose error fn returns", kinds: extends, is: []error{sandbox.ErrLeaseLost},
			fn: func(ctx context.Context, w *world, sb sandbox.Sandbox) error {
				time.AfterFunc(90*sec, func() { w.p.Kill(sb.ID()) })
				_, err := sb.Exec(ctx, sandbox.Shell("sleep 3600"))
				assert.ErrorIs(w.t, err, sandbox.ErrLeaseLost, "what the command met is what the end did")
				assert.ErrorIs(w.t, context.Cause(ctx), sandbox.ErrLeaseLost)
				return err
			},
		},
		{
			name: "killed right after its create, before a command", is: []error{sandbox.ErrLeaseLost},
			fn: func(ctx context.Context, w *world, sb sandbox.Sandbox) error {
				w.p.Kill(sb.ID())
				_, err := sb.Exec(ctx, sandbox.Shell("true"))
				return err
			},
		},
		{
			name: "the service fails a command of a sandbox that lives", is: []error{sandbox.ErrUnavailable}, not: []error{sandbox.ErrLeaseLost},
			fn: func(ctx context.Context, w *world, sb sandbox.Sandbox) error {
				w.p.Fault(sandbox.OpExec, sandboxtest.Fault{Err: sandboxtest.Status(503)})
				_, err := sb.Exec(ctx, sandbox.Shell("true"))
				assert.NoError(w.t, ctx.Err())
				return err
			},
		},
		{
			name: "lease lost although fn returns nil", kinds: extends, is: []error{sandbox.ErrLeaseLost},
			fn: func(ctx context.Context, w *world, sb sandbox.Sandbox) error {
				w.p.Kill(sb.ID())
				<-ctx.Done()
				return nil
			},
		},
		{
			name: "paused by a third party", kinds: extends, is: []error{sandbox.ErrLeaseLost},
			fn: func(ctx context.Context, w *world, sb sandbox.Sandbox) error {
				w.p.Pause(sb.ID())
				<-ctx.Done()
				return nil
			},
		},
		{
			name: "another run under the same id", kinds: extends, is: []error{sandbox.ErrLeaseLost},
			fn: func(ctx context.Context, w *world, sb sandbox.Sandbox) error {
				w.p.Pause(sb.ID())
				w.p.Resume(sb.ID())
				<-ctx.Done()
				return nil
			},
		},
		{
			name: "the service fails every extend and look", kinds: extends, is: []error{sandbox.ErrLeaseLost, sandbox.ErrUnavailable, errTask},
			fn: func(ctx context.Context, w *world, _ sandbox.Sandbox) error {
				w.p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
				w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
				<-ctx.Done()
				w.p.Heal()
				return errTask
			},
		},
		{
			name: "max lifetime", is: []error{sandbox.ErrMaxLifetime, errTask}, cfg: func(c *sandbox.Config) { c.Scope.MaxLifetime = 20 * mins },
			fn: func(ctx context.Context, w *world, _ sandbox.Sandbox) error {
				start := time.Now()
				<-ctx.Done()
				assert.InDelta(w.t, 20*mins, time.Since(start), float64(45*sec))
				assert.ErrorIs(w.t, context.Cause(ctx), sandbox.ErrMaxLifetime)
				return errTask
			},
		},
		{
			name: "plan cap", is: []error{errTask}, kinds: extends,
			world: func(w *world) { w.p.Behave(func(b *sandboxtest.Behaviour) { b.PlanLifetime = 30 * mins }) },
			fn: func(ctx context.Context, w *world, sb sandbox.Sandbox) error {
				start := time.Now()
				<-ctx.Done()
				if w.p.Capabilities().ReadsDeadline {
					assert.ErrorIs(w.t, context.Cause(ctx), sandbox.ErrMaxLifetime)
					assert.Less(w.t, time.Since(start), 30*mins)
					assert.NotEmpty(w.t, w.p.Live(), "told in time to wind up")
				}
				return errTask
			},
		},
		{
			name: "stall", is: []error{sandbox.ErrStalled, errTask}, cfg: func(c *sandbox.Config) { c.Scope.StallTimeout = 4 * mins },
			fn: func(ctx context.Context, w *world, sb sandbox.Sandbox) error {
				_, err := sb.Exec(ctx, sandbox.Shell("sleep 900")) // quiet, but progress
				require.NoError(w.t, err)
				for range 5 {
					time.Sleep(3 * mins)
					sandbox.Touch(ctx)
				}
				start := time.Now()
				<-ctx.Done()
				assert.Equal(w.t, 4*mins, time.Since(start))
				assert.ErrorIs(w.t, context.Cause(ctx), sandbox.ErrStalled)
				return errTask
			},
		},
		{
			name: "shutdown", is: []error{sandbox.ErrShutdown, errTask},
			fn: func(ctx context.Context, w *world, _ sandbox.Sandbox) error {
				go func() { assert.NoError(w.t, w.m.Shutdown(context.Background())) }()
				<-ctx.Done()
				assert.ErrorIs(w.t, context.Cause(ctx), sandbox.ErrShutdown)
				return errTask
			},
		},
		{
			name: "made, but unfit", is: []error{sandbox.ErrNotStarted, sandbox.ErrUnavailable}, fresh: true,
			world: func(w *world) { w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Effect: sandboxtest.EffectUnfit}) },
		},
		{
			name: "refused", is: []error{sandbox.ErrNotStarted, sandbox.ErrPermission}, fresh: true,
			world: func(w *world) { w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(403)}) },
		},
		{
			name: "error state after create", is: []error{sandbox.ErrNotStarted}, fresh: true,
			world: func(w *world) {
				w.p.Behave(func(b *sandboxtest.Behaviour) { b.StartsFailed = true; b.StartTime = 3 * sec })
			},
		},
		{
			name: "never ready", leaksOn: "memory/daytona", is: []error{sandbox.ErrNotStarted}, fresh: true,
			world: func(w *world) { w.p.Behave(func(b *sandboxtest.Behaviour) { b.NeverReady = true }) },
		},
		{
			name: "never ready, cancelled", leaksOn: "memory/daytona", cancel: sec, is: []error{sandbox.ErrNotStarted, context.Canceled}, fresh: true,
			world: func(w *world) { w.p.Behave(func(b *sandboxtest.Behaviour) { b.NeverReady = true }) },
		},
		{
			name: "create answers without an id", fn: func(context.Context, *world, sandbox.Sandbox) error { return nil },
			world: func(w *world) { w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Effect: sandboxtest.EffectEmptyID}) },
		},
		{
			name: "delete fails for a while", fn: func(context.Context, *world, sandbox.Sandbox) error { return nil },
			world: func(w *world) { w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(409), Times: 3}) },
		},
		{
			name: "delete always fails", leaks: true, is: []error{errTask, sandbox.ErrUnavailable},
			fn: func(context.Context, *world, sandbox.Sandbox) error { return errTask },
			world: func(w *world) {
				w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
			},
		},
		{
			name: "delete is not permitted", leaks: true, is: []error{sandbox.ErrPermission},
			fn:    func(context.Context, *world, sandbox.Sandbox) error { return nil },
			world: func(w *world) { w.p.Behave(func(b *sandboxtest.Behaviour) { b.NoDelete = true }) },
		},
		{
			name: "delete hangs", leaks: true, fn: func(context.Context, *world, sandbox.Sandbox) error { return nil },
			world: func(w *world) { w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Hang: true, Times: -1}) },
		},
		{
			name: "delete without effect", leaks: true, fn: func(context.Context, *world, sandbox.Sandbox) error { return nil },
			world: func(w *world) {
				w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectNone, Times: -1})
			},
		},
		{
			name: "delete without effect once", fn: func(context.Context, *world, sandbox.Sandbox) error { return nil },
			world: func(w *world) { w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectNone}) },
		},
		{
			name: "delete is accepted and blocked", leaks: true, fn: func(context.Context, *world, sandbox.Sandbox) error { return nil },
			world: func(w *world) {
				w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectBlocked, Times: -1})
			},
		},
		{
			name: "looks fail during the delete", leaks: true, fn: func(_ context.Context, w *world, _ sandbox.Sandbox) error {
				w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
				return nil
			},
		},
		{
			name: "extend ignores its context", kinds: extends, is: []error{sandbox.ErrLeaseLost},
			fn: func(ctx context.Context, w *world, _ sandbox.Sandbox) error {
				w.p.Fault(sandbox.OpExtend, sandboxtest.Fault{Hang: true, Deaf: true})
				<-ctx.Done()
				return nil
			},
		},
		{
			name: "extend panics", kinds: extends, fn: func(_ context.Context, w *world, _ sandbox.Sandbox) error {
				w.p.Fault(sandbox.OpExtend, sandboxtest.Fault{Panic: "provider bug"})
				time.Sleep(10 * mins)
				return nil
			},
		},
		{
			name: "create panics after it was done", fn: func(context.Context, *world, sandbox.Sandbox) error { return nil },
			world: func(w *world) { w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Panic: "provider bug", After: true}) },
		},
	}
}

func (w *world) grace() time.Duration {
	if w.cfg.Grace == 0 {
		return 10 * sec
	}
	return w.cfg.Grace
}

func (w *world) cleanupTime() time.Duration {
	if w.cfg.CleanupTimeout == 0 {
		return max(2*mins, 2*w.p.Capabilities().DeleteTime)
	}
	return w.cfg.CleanupTimeout
}

func TestEveryExitLeavesNothingOrSaysWhat(t *testing.T) {
	for _, k := range append(sandboxtest.Kinds(), everything()) {
		for _, x := range exits() {
			if x.kinds != nil && !x.kinds(k.Capabilities) {
				continue
			}
			t.Run(k.Name+"/"+x.name, func(t *testing.T) {
				var cfg sandbox.Config
				if x.cfg != nil {
					x.cfg(&cfg)
				}
				inWorld(t, k, cfg, func(w *world) { x.run(w) })
			})
		}
	}
}

func (x exit) run(w *world) {
	if x.world != nil {
		x.world(w)
	}
	x.leaks = x.leaks || x.leaksOn == w.p.Name() // it refuses to delete what still starts
	if x.name == "delete is accepted and blocked" && w.cleanupTime() > 4*mins {
		x.leaks = false // the lease ends it while the clean-up still looks
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	switch {
	case x.cancel < 0:
		cancel()
	case x.cancel > 0:
		time.AfterFunc(x.cancel, cancel)
	case x.deadline > 0:
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, x.deadline)
		defer stop()
	}
	calls := 0
	done := make(chan struct{})
	var err error
	var stopped any
	go func() { // for runtime.Goexit
		defer close(done)
		defer func() { stopped = recover() }()
		err = w.m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
			calls++
			return x.fn(ctx, w, sb)
		})
	}()
	<-done
	took := time.Since(began)
	w.p.Heal() // lets go of what ignored its context, so that no goroutine is left
	if x.leaks {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.NoDelete = true }) // and late deletes do not tidy up after us
	}
	synctest.Wait()

	assert.Equal(w.t, x.fresh, calls == 0, "whether the function was called")
	if x.name == "panic" {
		assert.Equal(w.t, "boom", stopped)
	}
	for _, want := range x.is {
		assert.ErrorIs(w.t, err, want)
	}
	if !x.fresh {
		assert.NotErrorIs(w.t, err, sandbox.ErrNotStarted)
	}
	for _, no := range x.not {
		assert.NotErrorIs(w.t, err, no)
	}
	if len(x.is) == 0 && !x.leaks {
		assert.NoError(w.t, err)
	}
	if at := max(x.cancel, x.deadline, 0); at > 0 && !x.unbound {
		assert.LessOrEqual(w.t, took, at+w.grace()+w.cleanupTime(), "the call takes longer than it may after a cancel")
	}
	leak := w.settle(err)
	assert.Equal(w.t, x.leaks, leak != nil, "leak: %v", leak)
	scope := w.seen(sandbox.OpScope, true)
	if x.cancel < 0 {
		assert.Empty(w.t, scope, "nothing was begun")
		return
	}
	require.Len(w.t, scope, 1)
	if x.name != "panic" && x.name != "goexit" {
		assert.Equal(w.t, err, scope[0].Err)
	}
}

// signalled is a provider on which a signal ends every command, and before that something happens.
type signalled struct {
	*sandboxtest.Provider
	before func(id string)
	code   int
}

func (p signalled) Unwrap() sandbox.Provider { return p.Provider }

func (p signalled) Open(info sandbox.Info) sandbox.Sandbox {
	return signalledBox{p.Provider.Open(info), p}
}

type signalledBox struct {
	sandbox.Sandbox
	p signalled
}

func (b signalledBox) Exec(context.Context, sandbox.Cmd) (sandbox.Result, error) {
	b.p.before(b.ID())
	return sandbox.Result{ExitCode: b.p.code}, nil
}

func TestACommandKilledWithItsSandboxIsALostLeaseAndNoExitCode(t *testing.T) {
	for _, c := range []struct {
		name string
		code int
		dies bool
		late time.Duration // after the command
		lag  time.Duration
		lost bool
	}{
		{"by KILL", 137, true, 0, 0, true},
		{"by TERM", 143, true, 0, 0, true},
		{"and is seen to be gone a moment later", 137, true, 500 * time.Millisecond, 0, true},
		{"and answers lag", 137, true, 0, 5 * time.Second, true},
		{"but the sandbox lives", 137, false, 0, 0, false},
		{"with a code of its own", 1, true, 0, 0, false}, // the next beat finds it
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				facts := sandboxtest.Everything()
				facts.ReadLag = c.lag
				mem := sandboxtest.New(facts)
				p := signalled{mem, func(id string) {
					if c.dies {
						time.AfterFunc(c.late, func() { mem.Kill(id) })
						synctest.Wait()
					}
				}, c.code}
				m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci"})
				require.NoError(t, err)
				var code int
				err = m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
					time.Sleep(time.Minute)
					start := time.Now()
					res, err := sb.Exec(ctx, sandbox.Shell("true"))
					code = res.ExitCode
					if !c.dies {
						assert.LessOrEqual(t, time.Since(start), time.Second+c.lag, "it is not kept for long")
						assert.NoError(t, ctx.Err())
					}
					return err
				})
				assert.Equal(t, c.lost, errors.Is(err, sandbox.ErrLeaseLost), "%v", err)
				assert.Equal(t, c.code, code)
			})
		})
	}
}

// lagging is a provider whose looks show a deadline that has been moved since.
type lagging struct{ signalled }

func (p lagging) Get(ctx context.Context, id string) (sandbox.Info, error) {
	info, err := p.Provider.Get(ctx, id)
	info.Deadline = info.AsOf.Add(time.Second)
	return info, err
}

func TestALookAfterACommandNeverMakesABeatAskForTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := sandboxtest.Everything()
		facts.Extend = sandbox.ExtendAdd
		mem := sandboxtest.New(facts)
		p := lagging{signalled{mem, func(string) {}, 137}}
		m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci"})
		require.NoError(t, err)
		window := 3 * time.Minute
		err = m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			for range 60 {
				time.Sleep(20 * time.Second)
				if _, err := sb.Exec(ctx, sandbox.Shell("true")); err != nil {
					return err
				}
				live := mem.Live()
				require.Len(t, live, 1)
				assert.LessOrEqual(t, live[0].Left(), window+time.Second)
			}
			return nil
		}, func(s *sandbox.Scope) { s.Window = window })
		assert.NoError(t, err)
		assert.NotEmpty(t, mem.Calls(sandbox.OpExtend))
	})
}

// brief is a provider of which some looks find nothing, whatever there is.
type brief struct {
	signalled
	misses map[int]bool // which looks, counted from the first command
	looks  *int
}

func (p brief) Open(info sandbox.Info) sandbox.Sandbox { return briefBox{p.Provider.Open(info), p} }

func (p brief) Get(ctx context.Context, id string) (sandbox.Info, error) {
	if *p.looks >= 0 {
		if *p.looks++; p.misses[*p.looks] {
			return sandbox.Info{}, sandboxtest.Status(404)
		}
	}
	return p.Provider.Get(ctx, id)
}

type briefBox struct {
	sandbox.Sandbox
	p brief
}

func (b briefBox) Exec(context.Context, sandbox.Cmd) (sandbox.Result, error) {
	*b.p.looks = 0
	if b.p.code == 137 {
		return sandbox.Result{ExitCode: b.p.code}, nil
	}
	return sandbox.Result{}, sandboxtest.Status(b.p.code)
}

func TestOneLookAfterACommandIsNoAgreementWithItself(t *testing.T) {
	for name, c := range map[string]struct {
		code   int // 137 is the command's, others are the service's
		misses []int
		lost   bool
	}{
		"a command that was killed, and a look that errs":     {137, []int{1}, false},
		"a stream that broke, and a look that errs":           {503, []int{1}, false},
		"a look that errs only the second time":               {503, []int{2}, false},
		"a command that was killed, and two looks that agree": {137, []int{1, 2}, true},
		"a stream that broke, and two looks that agree":       {503, []int{1, 2}, true},
		"two looks that agree a moment later":                 {503, []int{2, 3}, true},
		"a service that says so itself, and a look":           {404, []int{1}, true},
		"a service that says so itself, and a later look":     {409, []int{2}, true},
		"a service that says so itself, and no look":          {404, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem, looks := sandboxtest.New(sandboxtest.Everything()), -1
				p := brief{signalled{Provider: mem, code: c.code}, map[int]bool{}, &looks}
				for _, n := range c.misses {
					p.misses[n] = true
				}
				m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci"})
				require.NoError(t, err)
				err = m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
					start := time.Now()
					_, err := sb.Exec(ctx, sandbox.Shell("true"))
					assert.LessOrEqual(t, time.Since(start), 2*sec)
					looks = -1
					assert.Equal(t, c.lost, errors.Is(err, sandbox.ErrLeaseLost), "%v", err)
					assert.Equal(t, c.lost, ctx.Err() != nil)
					return nil
				})
				assert.Equal(t, c.lost, errors.Is(err, sandbox.ErrLeaseLost), "%v", err)
				assert.Empty(t, mem.Live())
			})
		})
	}
}

func TestALookAfterACommandEndsWithTheCallersContext(t *testing.T) {
	for name, fault := range map[string]sandboxtest.Fault{
		"while it pauses": {Times: -1},
		"while it looks":  {Hang: true, Times: -1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, kind(func(c *sandbox.Capabilities) { c.ReadLag = 20 * sec }), sandbox.Config{}, func(w *world) {
				require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
					w.p.Fault(sandbox.OpExec, sandboxtest.Fault{Err: sandboxtest.Status(503)})
					w.p.Fault(sandbox.OpGet, fault)
					ctx, cancel := context.WithTimeout(ctx, 2*sec)
					defer cancel()
					start := time.Now()
					_, err := sb.Exec(ctx, sandbox.Shell("true"))
					assert.ErrorIs(t, err, sandbox.ErrUnavailable)
					assert.Less(t, time.Since(start), 3*sec)
					w.p.Heal()
					return nil
				}))
			})
		})
	}
}

func TestNoBeatIsSentOnceACallHasFoundTheLeaseLost(t *testing.T) {
	for seed := range 20 {
		inWorld(t, everything(), sandbox.Config{}, func(w *world) {
			err := w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
				time.Sleep(53*sec + time.Duration(seed)*200*time.Millisecond) // the first beat is due within the grace
				w.p.Pause(sb.ID())
				w.p.Resume(sb.ID())
				w.p.Fault(sandbox.OpExec, sandboxtest.Fault{Err: sandboxtest.Status(409)})
				beats := len(w.p.Calls(sandbox.OpExtend))
				_, err := sb.Exec(ctx, sandbox.Shell("true"))
				assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
				time.Sleep(9 * sec) // winding up
				assert.Len(t, w.p.Calls(sandbox.OpExtend), beats, "it would go to another run")
				return err
			})
			assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
			ends := w.seen(sandbox.OpExtend, true)
			require.Len(t, ends, 1)
			assert.ErrorIs(t, ends[0].Err, sandbox.ErrLeaseLost, "the beats' end says why")
		})
	}
}
