package sandboxotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

var errTask = errors.New("the task has failed, and its token is hunter2")

func TestAWholeLife(t *testing.T) {
	bubble(t, "is one trace", func(t *testing.T) {
		w := newWorld(t, slow())
		ctx, caller := w.tracer.Start(context.Background(), "task")
		require.NoError(t, w.m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
			time.Sleep(90 * time.Second) // one beat
			return run(ctx, sb)
		}))
		caller.End()
		sameTree(t, `
task internal
  sandbox scope internal sandbox.state=running
    sandbox journal internal attempt=1
    sandbox create client sandbox.state=starting attempt=1
    sandbox journal internal sandbox.state=starting attempt=1
    sandbox ready internal sandbox.state=running attempt=6
    sandbox run internal sandbox.state=running attempt=1
    sandbox extend client sandbox.state=running attempt=1
    sandbox exec client sandbox.state=running attempt=1
    sandbox delete client sandbox.state=running attempt=1
    sandbox confirm internal sandbox.state=gone attempt=1
    sandbox journal internal sandbox.state=running attempt=1
`, w.tree())

		scope, create, confirm := w.one("sandbox scope"), w.one("sandbox create"), w.one("sandbox confirm")
		assert.Equal(t, 3*time.Second, create.EndTime.Sub(create.StartTime), "steps have the times of their events")
		assert.Equal(t, 4*time.Second, confirm.EndTime.Sub(confirm.StartTime))
		assert.Equal(t, create.StartTime, scope.StartTime)
		assert.Equal(t, confirm.EndTime, scope.EndTime)
		assert.Equal(t, attr(create, "sandglass.sandbox.id"), attr(scope, "sandglass.sandbox.id"))
		for _, key := range []string{"sandglass.sandbox.id", "sandglass.nonce"} {
			assert.NotEmpty(t, attr(scope, key), key)
		}
		assert.Equal(t, "abc123", attr(scope, "sandglass.tag.commit_sha"))
		assert.Equal(t, "ci", attr(scope, "sandglass.fleet"))
		assert.Equal(t, "runner.1", attr(scope, "sandglass.owner"))
		assert.Equal(t, "180", attr(w.one("sandbox extend"), "sandglass.lease.left"))
		assert.Zero(t, w.o.Held())
	})
	bubble(t, "is told in metrics, while it lasts and afterwards", func(t *testing.T) {
		w := newWorld(t, slow())
		require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			time.Sleep(90 * time.Second)
			assert.Equal(t, "1", w.value("sandglass.sandbox.live{}"))
			assert.Equal(t, "0", w.value("sandglass.sandbox.unverified{}"))
			assert.Equal(t, "96.100", w.value("sandglass.lease.oldest_age{}"), "from the create's request: 3 s of it, 3.1 s until it ran, 90 s")
			return run(ctx, sb)
		}))
		assert.Equal(t, `sandglass.beat.lateness{} = 1 times, 0.000
sandglass.lease.oldest_age{} = 0.000
sandglass.operation.duration{operation=create} = 1 times, 3.000
sandglass.operation.duration{operation=delete} = 1 times, 4.000
sandglass.operation.duration{operation=exec} = 1 times, 0.000
sandglass.operation.duration{operation=extend} = 1 times, 0.000
sandglass.operation.duration{operation=journal} = 3 times, 0.000
sandglass.operation.duration{operation=ready} = 1 times, 3.100
sandglass.operation.duration{operation=run} = 1 times, 90.000
sandglass.sandbox.deletes{outcome=gone,source=scope} = 1
sandglass.sandbox.deletes{outcome=left,source=scope} = 0
sandglass.sandbox.end.duration{source=scope} = 1 times, 4.000
sandglass.sandbox.leaks{source=scope} = 0
sandglass.sandbox.live{} = 0
sandglass.sandbox.unverified{} = 0
`, w.metrics())
	})
}

// slow is a service whose create takes 3 s and one delete 4 s, and whose sandboxes start in 2 s, seen to run after 3.1 s.
func slow() settings {
	s := settings{scope: sandbox.Scope{Tags: map[string]string{"commit_sha": "abc123"}}}
	s.kind.Capabilities = sandboxtest.Everything()
	s.kind.Capabilities.DeleteTime = 10 * time.Second
	s.kind.Behave = func(b *sandboxtest.Behaviour) { b.StartTime = 2 * time.Second }
	s.prepare = func(p *sandboxtest.Provider) {
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Delay: 3 * time.Second})
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Delay: 4 * time.Second})
	}
	return s
}

func TestARefusedCreateIsASpanOfItsOwn(t *testing.T) {
	bubble(t, "and the next one succeeds", func(t *testing.T) {
		w := newWorld(t, settings{})
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(429)})
		require.NoError(t, w.m.WithSandbox(context.Background(), run))
		sameTree(t, `
sandbox scope internal sandbox.state=running
  sandbox journal internal attempt=1
  sandbox create client attempt=1 error.type=rate_limited http.response.status_code=429 [Error: memory: create: 429: rate limited]
  sandbox create client sandbox.state=running attempt=2
  sandbox journal internal sandbox.state=running attempt=1
  sandbox ready internal sandbox.state=running attempt=1
  sandbox exec client sandbox.state=running attempt=1
  sandbox run internal sandbox.state=running attempt=1
  sandbox delete client sandbox.state=running attempt=1
  sandbox confirm internal sandbox.state=gone attempt=1
  sandbox journal internal sandbox.state=running attempt=1
`, w.tree())
	})
	bubble(t, "and nothing is live until one succeeds", func(t *testing.T) {
		w := newWorld(t, settings{})
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(429), Times: 5})
		done := make(chan error, 1)
		go func() { done <- w.m.WithSandbox(context.Background(), run) }()
		time.Sleep(5 * time.Second)
		assert.Equal(t, "0", w.value("sandglass.sandbox.live{}"))
		assert.Empty(t, w.m.Live(), "as the Manager says")
		require.NoError(t, <-done)
	})
	bubble(t, "and nothing is live where none succeeds", func(t *testing.T) {
		w := newWorld(t, settings{})
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(403), Times: -1})
		require.Error(t, w.m.WithSandbox(context.Background(), run))
		scope := w.one("sandbox scope")
		assert.Equal(t, codes.Error, scope.Status.Code)
		assert.Equal(t, "permission_denied", attr(scope, "error.type"))
		assert.Equal(t, "0", w.value("sandglass.sandbox.live{}"))
		assert.Equal(t, "1 times, 0.000", w.value("sandglass.operation.duration{error.type=permission_denied,operation=create}"))
		assert.Zero(t, w.o.Held())
	})
}

func TestAnUnansweredCreateCountsAsLiveUntilItIsKnown(t *testing.T) {
	bubble(t, "to have made nothing", func(t *testing.T) {
		k := sandboxtest.Kind{Capabilities: sandboxtest.Everything()}
		k.Capabilities.CreateOnce, k.Capabilities.CommitDelay = false, time.Minute
		w := newWorld(t, settings{kind: k})
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(504)})
		done := make(chan error, 1)
		go func() { done <- w.m.WithSandbox(context.Background(), run) }()
		time.Sleep(30 * time.Second)
		assert.Equal(t, "1", w.value("sandglass.sandbox.live{}"))
		assert.Len(t, w.m.Live(), 1, "as the Manager says")
		require.Error(t, <-done)
		assert.Equal(t, "0", w.value("sandglass.sandbox.live{}"))
		assert.Empty(t, w.m.Live())
		assert.Zero(t, w.o.Held())
	})
}

func TestALeakIsToldEverywhere(t *testing.T) {
	bubble(t, "and is over once somebody has verified the end", func(t *testing.T) {
		w := newWorld(t, settings{})
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(403), Times: -1})
		err := w.m.WithSandbox(context.Background(), run)
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok)

		confirms := w.named("sandbox confirm")
		last := confirms[len(confirms)-1]
		assert.Equal(t, codes.Error, last.Status.Code)
		assert.Equal(t, "leak", attr(last, "error.type"))
		assert.Equal(t, "possible leak: memory: delete "+leak.Sandboxes[0].ID+": 403: not permitted", last.Status.Description)
		assert.Equal(t, `["`+leak.Sandboxes[0].ID+`"]`, attr(last, "sandglass.left"))
		assert.Equal(t, leak.Sandboxes[0].Deadline.UTC().Format(time.RFC3339), attr(last, "sandglass.left.until"))
		assert.Equal(t, "leak", attr(w.one("sandbox scope"), "error.type"))
		assert.Equal(t, "1", w.value("sandglass.sandbox.live{}"))
		assert.Equal(t, "1", w.value("sandglass.sandbox.unverified{}"))
		assert.Equal(t, "1", w.value("sandglass.sandbox.leaks{source=scope}"))
		assert.Equal(t, "1", w.value("sandglass.sandbox.deletes{outcome=left,source=scope}"))
		assert.Equal(t, "0", w.value("sandglass.sandbox.deletes{outcome=gone,source=scope}"))

		w.p.Heal()
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, w.m.Shutdown(ctx))
		assert.Equal(t, "0", w.value("sandglass.sandbox.live{}"))
		assert.Equal(t, "0", w.value("sandglass.sandbox.unverified{}"))
		assert.Equal(t, "1", w.value("sandglass.sandbox.deletes{outcome=gone,source=scope}"))
		scope := w.one("sandbox scope")
		for _, s := range w.spans.GetSpans() {
			if s.Name != scope.Name {
				assert.Equal(t, scope.SpanContext.SpanID(), s.Parent.SpanID(), "%s, after the scope too, is the scope's", s.Name)
			}
		}
		assert.Equal(t, 1, strings.Count(w.metrics(), "end.duration"))
		assert.Regexp(t, `^1 times, 6\d\.`, w.value("sandglass.sandbox.end.duration{source=scope}"), "counted from the function's end")
		time.Sleep(2 * time.Minute)
		w.metrics()
		assert.Zero(t, w.o.Held())
	})
}

func TestWaitingIsNoError(t *testing.T) {
	bubble(t, "while a delete takes its time", func(t *testing.T) {
		w := newWorld(t, settings{})
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.DeleteTime = 20 * time.Second })
		require.NoError(t, w.m.WithSandbox(context.Background(), run))
		looks := w.named("sandbox confirm")
		require.Greater(t, len(looks), 2)
		for _, s := range looks {
			assert.Equal(t, codes.Unset, s.Status.Code)
			assert.Empty(t, attr(s, "error.type"))
		}
	})
	bubble(t, "while a beat is cut short by the scope's end", func(t *testing.T) {
		w := newWorld(t, settings{})
		w.p.Fault(sandbox.OpExtend, sandboxtest.Fault{Hang: true})
		require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			time.Sleep(61 * time.Second)
			return nil
		}))
		s := w.one("sandbox extend")
		assert.Equal(t, codes.Unset, s.Status.Code)
		assert.Equal(t, "canceled", attr(s, "error.type"))
	})
}

func TestHowAScopeEndsIsItsStatus(t *testing.T) {
	task := func(end func() error) func(context.Context, sandbox.Sandbox) error {
		return func(ctx context.Context, sb sandbox.Sandbox) error { return end() }
	}
	wait := func(ctx context.Context, sb sandbox.Sandbox) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for name, tt := range map[string]struct {
		scope sandbox.Scope
		fault func(p *sandboxtest.Provider)
		fn    func(context.Context, sandbox.Sandbox) error
		code  codes.Code
		kind  string
		text  string
	}{
		"well":            {fn: task(func() error { return nil }), code: codes.Unset},
		"with an error":   {fn: task(func() error { return errTask }), code: codes.Error, kind: "_OTHER"},
		"with a panic":    {fn: task(func() error { panic("hunter2") }), code: codes.Error, kind: "no_return", text: "the function panicked or called runtime.Goexit"},
		"at its lifetime": {scope: sandbox.Scope{MaxLifetime: 10 * time.Minute}, fn: wait, code: codes.Error, kind: "max_lifetime", text: "max lifetime reached"},
		"by a stall":      {scope: sandbox.Scope{StallTimeout: time.Minute}, fn: wait, code: codes.Error, kind: "stalled", text: "no progress within the stall timeout"},
		"by a lost lease": {
			fault: func(p *sandboxtest.Provider) {
				p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
				p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: 5})
			},
			fn: wait, code: codes.Error, kind: "lease_lost", text: "lease lost: memory: ",
		},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, settings{scope: tt.scope})
			if tt.fault != nil {
				tt.fault(w.p)
			}
			func() {
				defer func() { _ = recover() }()
				_ = w.m.WithSandbox(context.Background(), tt.fn)
			}()
			scope := w.one("sandbox scope")
			assert.Equal(t, tt.code, scope.Status.Code)
			assert.Equal(t, tt.kind, attr(scope, "error.type"))
			assert.True(t, strings.HasPrefix(scope.Status.Description, tt.text), scope.Status.Description)
			assert.NotContains(t, fmt.Sprint(w.spans.GetSpans()), "hunter2")
			assert.Zero(t, w.o.Held())
		})
	}
}

func TestTheSpanOfAScopeThatNeverEndsIsExportedAllTheSame(t *testing.T) {
	bubble(t, "when its sandbox was deleted under a function that does not return", func(t *testing.T) {
		w := newWorld(t, settings{})
		ctx, cancel := context.WithCancel(context.Background())
		hang, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- w.m.WithSandbox(ctx, func(context.Context, sandbox.Sandbox) error { <-hang; return nil })
		}()
		time.Sleep(time.Second)
		cancel()
		time.Sleep(time.Minute)
		assert.Empty(t, w.p.Live())
		scope := w.one("sandbox scope")
		assert.Equal(t, codes.Error, scope.Status.Code)
		assert.Equal(t, "canceled", attr(scope, "error.type"))
		assert.Equal(t, "0", w.value("sandglass.sandbox.live{}"))
		close(hang)
		<-done
		w.one("sandbox scope") // and not twice
		assert.Zero(t, w.o.Held())
	})
	bubble(t, "when the Observer is closed", func(t *testing.T) {
		w := newWorld(t, settings{})
		hang, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { <-hang; return nil })
		}()
		time.Sleep(time.Second)
		w.o.Close()
		assert.Equal(t, "true", attr(w.one("sandbox scope"), "sandglass.incomplete"))
		assert.Equal(t, "1", w.value("sandglass.sandbox.live{}"), "for it is")
		close(hang)
		require.NoError(t, <-done)
		w.one("sandbox scope")
		assert.Zero(t, w.o.Held())
	})
}

func TestSpansOfScopesSideBySideDoNotMix(t *testing.T) {
	bubble(t, "and what a function starts is its scope's if it asks for that", func(t *testing.T) {
		w := newWorld(t, settings{})
		ctx, caller := w.tracer.Start(context.Background(), "caller")
		done := make(chan error)
		for i := range 5 {
			go func() {
				done <- w.m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
					_, own := w.tracer.Start(w.o.Context(ctx, sb), fmt.Sprint("own ", i))
					defer own.End()
					_, other := w.tracer.Start(ctx, "other")
					other.End()
					time.Sleep(time.Minute)
					return run(ctx, sb)
				}, func(s *sandbox.Scope) { s.Tags["n"] = fmt.Sprint(i) })
			}()
		}
		for range 5 {
			require.NoError(t, <-done)
		}
		caller.End()
		scopes := map[string]string{} // their ids to those of their sandboxes
		for _, s := range w.named("sandbox scope") {
			assert.Equal(t, caller.SpanContext().SpanID(), s.Parent.SpanID())
			scopes[s.SpanContext.SpanID().String()] = attr(s, "sandglass.sandbox.id")
			own := w.one("own " + attr(s, "sandglass.tag.n"))
			assert.Equal(t, s.SpanContext.SpanID(), own.Parent.SpanID())
		}
		require.Len(t, scopes, 5)
		for _, s := range w.named("sandbox exec") {
			assert.Equal(t, scopes[s.Parent.SpanID().String()], attr(s, "sandglass.sandbox.id"))
		}
		for _, s := range w.named("other") {
			assert.Equal(t, caller.SpanContext().SpanID(), s.Parent.SpanID(), "beside the scope")
		}
		assert.Len(t, w.named("sandbox exec"), 5)
	})
}

func TestBeatLateness(t *testing.T) {
	for name, tt := range map[string]struct {
		scope sandbox.Scope
		beat  time.Duration
		due   time.Duration
	}{
		"counts from a third of the lease":        {due: 60 * time.Second},
		"counts from the beat, where that is set": {scope: sandbox.Scope{Beat: 70 * time.Second}, beat: 70 * time.Second, due: 70 * time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, settings{scope: tt.scope, otel: sandboxotel.Config{Beat: tt.beat}})
			require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
				w.p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
				time.Sleep(100 * time.Second)
				w.p.Heal()
				time.Sleep(50 * time.Second)
				return nil
			}))
			failed, well := 0, time.Time{}
			for _, s := range w.named("sandbox extend") {
				switch {
				case s.Status.Code == codes.Error:
					failed++
					assert.Equal(t, "unavailable", attr(s, "error.type"))
					assert.Equal(t, "503", attr(s, "http.response.status_code"))
				case well.IsZero():
					well = s.EndTime
				}
			}
			assert.Positive(t, failed)
			late := well.Sub(w.one("sandbox create").StartTime) - tt.due
			require.GreaterOrEqual(t, late, 100*time.Second-tt.due)
			assert.Regexp(t, fmt.Sprintf(`^\d times, %.3f$`, late.Seconds()), w.value("sandglass.beat.lateness{}"), "those after it come in time")
		})
	}
}

func TestAKeptSandboxIsLiveUntilItsLeaseEnds(t *testing.T) {
	bubble(t, "and no leak", func(t *testing.T) {
		w := newWorld(t, settings{scope: sandbox.Scope{KeepOnError: 20 * time.Minute}})
		require.ErrorIs(t, w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { return errTask }), errTask)
		w.one("sandbox keep")
		time.Sleep(19 * time.Minute)
		assert.Equal(t, "1", w.value("sandglass.sandbox.live{}"))
		assert.Len(t, w.m.Live(), 1, "as the Manager says")
		assert.Equal(t, "0", w.value("sandglass.sandbox.unverified{}"))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, "0", w.value("sandglass.sandbox.live{}"))
		assert.Empty(t, w.m.Live())
		assert.Zero(t, w.o.Held())
	})
}
