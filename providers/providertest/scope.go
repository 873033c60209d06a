package providertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func scopeRules() []rule {
	failed := errors.New("the task failed")
	rules := []rule{
		{"a function that returns leaves nothing", scopeReturns},
		{"a function that fails leaves nothing, and its error is returned", func(t *trial) {
			err := t.scope(t.manager(nil), func(context.Context, sandbox.Sandbox) error { return failed })
			if !errors.Is(err, failed) {
				t.Errorf("error %v, want the function's", err)
			}
		}},
		{"a function that panics leaves nothing, and the panic goes on", scopePanics},
		{"a function that ends its goroutine leaves nothing", scopeGoexit},
		{"a function whose caller gives up leaves nothing", scopeCancelled},
		{"beats keep a sandbox alive for longer than its window", scopeBeats},
		{"the max lifetime ends a sandbox that beats keep alive", scopeMaxLifetime},
		{"a Shutdown ends what runs", scopeShutdown},
		{"a sandbox that the service ended under a command ends the scope with ErrLeaseLost", scopeKilled},
		{"Terminate deletes what is there, and is content with what is gone", scopeTerminate},
	}
	for _, c := range scopeFaults() {
		rules = append(rules, rule{c.name, c.try})
	}
	return rules
}

// manager makes a Manager of the rule's fleet with bounds that suit the provider and the rule.
func (t *trial) manager(change func(*sandbox.Config)) *sandbox.Manager {
	t.Helper()
	cfg := sandbox.Config{
		Fleet: t.fleet, Owner: "providertest", Unmarked: true, Scope: sandbox.Scope{Spec: t.h.Spec},
		Grace: 2 * time.Second, CleanupTimeout: max(2*t.deleteTime(), t.ending()) + 2*t.slack,
		Observers: []sandbox.Observer{t.observe},
	}
	if t.caps.Extend != sandbox.ExtendNone {
		cfg.Scope.Window = t.window
	}
	if change != nil {
		change(&cfg)
	}
	m, err := sandbox.NewManager(t.p, cfg)
	if err != nil {
		t.Fatalf("the manager refuses the provider: %v", err)
	}
	return m
}

// observe logs what went wrong on the way: with -v, and when the rule fails.
func (t *trial) observe(_ context.Context, e sandbox.Event) {
	if e.Err != nil {
		t.Logf("%s %s: attempt %d, final %v: %v", e.Op, e.Info.ID, e.Attempt, e.Final, e.Err)
	}
}

// scope runs fn in a scope of m and requires that nothing is left that the error does not name.
func (t *trial) scope(m *sandbox.Manager, fn func(context.Context, sandbox.Sandbox) error) error {
	t.Helper()
	return t.scopeIn(t.ctx, m, fn)
}

func (t *trial) scopeIn(ctx context.Context, m *sandbox.Manager, fn func(context.Context, sandbox.Sandbox) error) error {
	t.Helper()
	err := m.WithSandbox(ctx, fn)
	t.discreet(err)
	t.nothingLeft(err)
	return err
}

// nothingLeft requires that the rule's fleet is empty, but for what a [*sandbox.LeakError] in err names.
func (t *trial) nothingLeft(err error) {
	t.Helper()
	leak, _ := errors.AsType[*sandbox.LeakError](err)
	named := func(i sandbox.Info) bool {
		return leak != nil && slices.ContainsFunc(leak.Sandboxes, func(l sandbox.Info) bool {
			return l.ID == i.ID || l.ID == "" && (i.Mark.Nonce == "" || i.Mark.Nonce == l.Mark.Nonce)
		})
	}
	for _, i := range t.judge() {
		if !named(i) {
			t.Errorf("%s is left and %v, and the error does not name it: %v", i.ID, i.State, err)
		}
	}
}

func scopeReturns(t *trial) {
	var id string
	m := t.manager(nil)
	err := t.scope(m, func(ctx context.Context, sb sandbox.Sandbox) error {
		id = sb.ID()
		info, err := t.p.Get(ctx, id)
		if err != nil || info.State != sandbox.StateRunning || info.Mark.Fleet != t.fleet {
			t.Errorf("inside the function: %v, fleet %q, error %v", info.State, info.Mark.Fleet, err)
		}
		res, err := sb.Exec(ctx, sandbox.Shell("echo inside"))
		if err != nil || string(res.Stdout) != "inside\n" {
			t.Errorf("inside the function: %q, error %v", res.Stdout, err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("error %v", err)
	}
	t.still(sandbox.Info{ID: id}, "the scope")
	if live := m.Live(); len(live) > 0 {
		t.Errorf("the manager still counts %d", len(live))
	}
}

func scopeKilled(t *trial) {
	t.needs(Killed)
	// Nothing waits for this lease. A look has a sixth of it, and is to have an answer on a machine that does much else.
	m := t.manager(func(c *sandbox.Config) {
		if most := t.caps.MaxWindow; c.Scope.Window > 0 && (most == 0 || most >= time.Minute) {
			c.Scope.Window = max(c.Scope.Window, time.Minute)
		}
	})
	err := t.scope(m, func(ctx context.Context, sb sandbox.Sandbox) error {
		begun, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			select {
			case <-begun:
			case <-time.After(t.slack): // output does not stream: another rule's fault
			case <-ctx.Done():
			}
			t.inject(Killed, sb.ID())
		}()
		cmd := sandbox.Shell("echo begun; sleep 3600")
		cmd.Stdout = writerFunc(onceSeen("begun", begun))
		res, err := sb.Exec(ctx, cmd)
		<-done
		t.Logf("the command: exit code %d, timed out %v, error %v", res.ExitCode, res.TimedOut, err)
		return err
	})
	if !errors.Is(err, sandbox.ErrLeaseLost) {
		t.Errorf("error %v, want ErrLeaseLost", err)
	}
}

func scopePanics(t *trial) {
	defer func() {
		if v := recover(); v != "the task's panic" {
			t.Errorf("recovered %v", v)
		}
		t.nothingLeft(nil)
	}()
	t.scope(t.manager(nil), func(context.Context, sandbox.Sandbox) error { panic("the task's panic") })
	t.Error("WithSandbox returned")
}

func scopeGoexit(t *trial) {
	m := t.manager(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.WithSandbox(t.ctx, func(context.Context, sandbox.Sandbox) error {
			runtime.Goexit()
			return nil
		})
		t.Error("WithSandbox returned")
	}()
	<-done
	t.nothingLeft(nil)
}

func scopeCancelled(t *trial) {
	stop := errors.New("the caller's reason")
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	err := t.scopeIn(ctx, t.manager(nil), func(ctx context.Context, _ sandbox.Sandbox) error {
		cancel(stop)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, stop) {
		t.Errorf("error %v, want the caller's reason", err)
	}
}

func scopeBeats(t *trial) {
	err := t.scope(t.manager(nil), func(ctx context.Context, sb sandbox.Sandbox) error {
		life := 2*t.window + t.caps.StartAllowance + t.caps.Lateness
		if t.h.Bubble {
			life *= 5
		}
		if t.caps.Extend == sandbox.ExtendNone {
			life = t.window
		}
		t.pause(ctx, life)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the scope ended before: %w", context.Cause(ctx))
		}
		_, err := sb.Exec(ctx, sandbox.Shell("true"))
		return err
	})
	if err != nil {
		t.Errorf("error %v", err)
	}
}

// pause waits d, or until ctx ends.
func (t *trial) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// hold waits until the library ends the scope, at most so long, and returns the cause.
func (t *trial) hold(ctx context.Context, limit time.Duration) error {
	t.pause(ctx, limit)
	return context.Cause(ctx)
}

func scopeMaxLifetime(t *trial) {
	life := t.caps.StartAllowance + 2*t.window // from the create on
	m := t.manager(func(c *sandbox.Config) { c.Scope.MaxLifetime = life })
	err := t.scope(m, func(ctx context.Context, _ sandbox.Sandbox) error { return t.hold(ctx, 2*life+t.slack) })
	if !errors.Is(err, sandbox.ErrMaxLifetime) {
		t.Errorf("error %v, want ErrMaxLifetime", err)
	}
}

func scopeShutdown(t *trial) {
	m := t.manager(nil)
	down := make(chan error, 1)
	called := false
	err := t.scope(m, func(ctx context.Context, _ sandbox.Sandbox) error {
		called = true
		go func() { down <- m.Shutdown(t.ctx) }()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, sandbox.ErrShutdown) {
		t.Errorf("error %v, want ErrShutdown", err)
	}
	if !called {
		t.Fatal("the function was not called")
	}
	if err := <-down; err != nil {
		t.Errorf("shutdown: %v", err)
	}
	t.nothingLeft(nil)
}

func scopeTerminate(t *trial) {
	info := t.running(t.make(t.request(t.long())))
	for range 2 {
		if err := sandbox.Terminate(t.ctx, t.p, info.ID); err != nil {
			t.Errorf("terminate: %v", err)
		}
		t.still(info, "Terminate")
	}
}

// scopeFaults are the life cycle with one thing going wrong.
func scopeFaults() []rule {
	// before injects f and then runs a whole scope.
	before := func(name string, f Fault, change func(*trial, *sandbox.Config), check func(t *trial, called bool, err error)) rule {
		return rule{name, func(t *trial) {
			t.inject(f, "")
			called := false
			err := t.scope(t.manager(func(c *sandbox.Config) {
				if change != nil {
					change(t, c)
				}
			}), func(context.Context, sandbox.Sandbox) error { called = true; return nil })
			check(t, called, err)
		}}
	}
	// inside injects f while the function runs, which then waits for what the library does.
	inside := func(name string, f Fault, wait func(*trial) time.Duration, check func(t *trial, id string, err error)) rule {
		return rule{name, func(t *trial) {
			t.needs(f)
			var id string
			err := t.scope(t.manager(nil), func(ctx context.Context, sb sandbox.Sandbox) error {
				id = sb.ID()
				t.inject(f, id)
				if wait == nil {
					return nil
				}
				return t.hold(ctx, wait(t))
			})
			check(t, id, err)
		}}
	}
	clean := func(t *trial, _ string, err error) {
		if err != nil {
			t.Errorf("error %v, want none", err)
		}
	}
	leaks := func(t *trial, id string, err error) {
		if err == nil && len(t.judge()) == 0 {
			t.Logf("its lease ended it while the clean-up still looked: that is success")
			return
		}
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		if !ok || !slices.ContainsFunc(leak.Sandboxes, func(i sandbox.Info) bool { return i.ID == id }) {
			t.Errorf("error %v, want a *sandbox.LeakError that names %s", err, id)
		}
	}
	lost := func(t *trial, _ string, err error) {
		if !errors.Is(err, sandbox.ErrLeaseLost) {
			t.Errorf("error %v, want ErrLeaseLost", err)
		}
	}
	unanswered := func(t *trial, called bool, err error) {
		if called {
			return // found and adopted, or made anew
		}
		if !errors.Is(err, sandbox.ErrNotStarted) {
			t.Errorf("error %v, want ErrNotStarted", err)
		}
	}
	short := func(t *trial) time.Duration { return 2 * t.window }
	long := func(t *trial) time.Duration { return t.window + t.first(t.window) + t.ending() }
	beating := func(r rule) rule {
		return rule{r.name, func(t *trial) {
			if t.caps.Extend == sandbox.ExtendNone {
				t.Skipf("Capabilities.Extend is none")
			}
			r.try(t)
		}}
	}
	return []rule{
		before("a lost answer to the create leaves nothing that is not named", CreateLost, nil, unanswered),
		before("a create that is never answered leaves nothing that is not named", CreateHangs, func(t *trial, c *sandbox.Config) {
			c.CreateTimeout = 2 * time.Second
		}, unanswered),
		before("a create that was refused once is tried again", CreateLimited, nil, func(t *trial, called bool, err error) {
			if !called || err != nil {
				t.Errorf("called %v, error %v", called, err)
			}
		}),
		before("a sandbox that never gets to run is deleted, and the function is not started", NeverReady, func(_ *trial, c *sandbox.Config) {
			c.ReadyTimeout = 2 * time.Second
		}, func(t *trial, called bool, err error) {
			if called || !errors.Is(err, sandbox.ErrNotStarted) {
				t.Errorf("called %v, error %v, want ErrNotStarted", called, err)
			}
		}),
		before("a look that fails harms nothing", GetFails, nil, func(t *trial, called bool, err error) {
			if !called || err != nil {
				t.Errorf("called %v, error %v", called, err)
			}
		}),
		beating(inside("one beat that fails harms nothing", ExtendFails, short, clean)),
		beating(inside("a beat whose answer is lost harms nothing", ExtendLost, short, clean)),
		beating(inside("beats that fail for longer than the lease end the scope with ErrLeaseLost", ExtendDown, long, lost)),
		inside("a sandbox that the service ended ends the scope with ErrLeaseLost", Killed, long, lost),
		inside("a sandbox that somebody paused ends the scope with ErrLeaseLost, and is deleted", Paused, long, lost),
		inside("a delete that fails once leaves nothing", DeleteFails, nil, clean),
		inside("a delete whose answer is lost leaves nothing", DeleteLost, nil, clean),
		inside("a delete that the service forgets is asked for again", DeleteIgnored, nil, clean),
		inside("a list that fails once leaves nothing", ListFails, nil, clean),
		inside("deletes that fail all the time are a leak that names the sandbox", DeleteDown, nil, leaks),
		inside("deletes that are never answered are a leak that names the sandbox", DeleteHangs, nil, leaks),
	}
}
