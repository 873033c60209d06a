package sandboxotel_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// forgotten makes n sandboxes of fleet ci that are past their hard end and run on, since the service keeps to no deadline.
func forgotten(t *testing.T, w *world, n int) {
	t.Helper()
	w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced, b.NoHardEnd = true, true })
	for i := range n {
		m := sandbox.Mark{
			Fleet: "ci", Owner: "dead.1", Nonce: "aaaaaaaaaaaaaaa" + string(rune('a'+i)), Created: time.Now().Truncate(time.Second), Lifetime: time.Hour,
		}
		_, err := w.p.Create(context.Background(), sandbox.CreateRequest{Mark: m, Window: time.Minute})
		require.NoError(t, err)
	}
	w.p.Advance(3 * time.Hour)
}

func sweeper(t *testing.T, w *world, change func(*sweep.Config)) *sweep.Sweeper {
	t.Helper()
	cfg := sweep.Config{
		Fleet: "ci", Providers: []sandbox.Provider{w.p}, Observers: []sandbox.Observer{w.o.Sweeps()}, OnPass: w.o.Pass,
	}
	if change != nil {
		change(&cfg)
	}
	s, err := sweep.New(cfg)
	require.NoError(t, err)
	return s
}

func TestAPassIsASpanWithItsDeletes(t *testing.T) {
	bubble(t, "all well", func(t *testing.T) {
		w := newWorld(t, settings{})
		forgotten(t, w, 2)
		ctx, caller := w.tracer.Start(context.Background(), "cron")
		report, err := sweeper(t, w, nil).Sweep(ctx)
		require.NoError(t, err)
		w.o.Pass(report, err)
		caller.End()
		sameTree(t, `
cron internal
  sandbox sweep internal attempt=1
    sandbox confirm internal sandbox.state=gone attempt=1
    sandbox confirm internal sandbox.state=gone attempt=1
`, w.tree())
		assert.NotEqual(t, attr(w.named("sandbox confirm")[0], "sandglass.sandbox.id"), attr(w.named("sandbox confirm")[1], "sandglass.sandbox.id"))
		assert.Equal(t, "2", w.value("sandglass.sandbox.deletes{outcome=gone,source=sweeper}"))
		assert.Equal(t, "0", w.value("sandglass.sandbox.leaks{source=sweeper}"))
		assert.Equal(t, "2", w.value("sandglass.sweep.sandboxes{outcome=deleted}"))
		for _, o := range []string{"kept", "would_delete", "gone", "pending", "capped", "left", "unseen"} {
			assert.Equal(t, "0", w.value("sandglass.sweep.sandboxes{outcome="+o+"}"), o)
		}
		assert.Regexp(t, `^1 times`, w.value("sandglass.sweep.duration{}"))
		assert.Equal(t, float64(report.Ended.UnixMilli())/1e3, lastSuccess(t, w))
	})
	bubble(t, "with something left", func(t *testing.T) {
		w := newWorld(t, settings{})
		forgotten(t, w, 1)
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(403), Times: -1})
		report, err := sweeper(t, w, nil).Sweep(context.Background())
		require.ErrorIs(t, err, sweep.ErrLeft)
		w.o.Pass(report, err)
		pass, confirm := w.one("sandbox sweep"), w.one("sandbox confirm")
		assert.Equal(t, "left", attr(pass, "error.type"))
		assert.Equal(t, codes.Error, pass.Status.Code)
		assert.Equal(t, pass.SpanContext.SpanID(), confirm.Parent.SpanID())
		assert.Equal(t, "leak", attr(confirm, "error.type"))
		assert.Equal(t, `["`+report.Accounts[0].Items[0].ID+`"]`, attr(pass, "sandglass.left"))
		assert.Equal(t, "1", w.value("sandglass.sandbox.leaks{source=sweeper}"))
		assert.Equal(t, "1", w.value("sandglass.sweep.sandboxes{outcome=left}"))
		assert.Regexp(t, `^1 times`, w.value("sandglass.sweep.duration{error.type=left}"))
		assert.Empty(t, w.value("sandglass.sweep.last_success.time{}"))
	})
	bubble(t, "that could not see", func(t *testing.T) {
		w := newWorld(t, settings{})
		w.p.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(401), Times: -1})
		report, err := sweeper(t, w, nil).Sweep(context.Background())
		require.ErrorIs(t, err, sweep.ErrBlind)
		w.o.Pass(report, err)
		pass := w.one("sandbox sweep")
		assert.Equal(t, "blind", attr(pass, "error.type"))
		assert.Equal(t, "could not see everything: memory: list: 401: credentials not accepted", pass.Status.Description)
		assert.Empty(t, w.value("sandglass.sweep.last_success.time{}"))
	})
}

func TestPassesOfARunFollowEachOther(t *testing.T) {
	bubble(t, "and the last one counts", func(t *testing.T) {
		w := newWorld(t, settings{})
		forgotten(t, w, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Minute)
		defer cancel()
		require.Error(t, sweeper(t, w, nil).Run(ctx, 15*time.Minute))
		assert.GreaterOrEqual(t, len(w.named("sandbox sweep")), 3)
		assert.Equal(t, "0", w.value("sandglass.sweep.sandboxes{outcome=deleted}"), "that was in the first pass")
		assert.Equal(t, "1", w.value("sandglass.sandbox.deletes{outcome=gone,source=sweeper}"))
		first, confirm := w.named("sandbox sweep")[0], w.one("sandbox confirm")
		assert.Equal(t, first.SpanContext.SpanID(), confirm.Parent.SpanID())
	})
}

func TestADryRunIsNoSuccess(t *testing.T) {
	bubble(t, "but is told", func(t *testing.T) {
		w := newWorld(t, settings{})
		forgotten(t, w, 1)
		report, err := sweeper(t, w, func(c *sweep.Config) { c.DryRun = true }).Sweep(context.Background())
		require.NoError(t, err)
		w.o.Pass(report, err)
		assert.Equal(t, "1", w.value("sandglass.sweep.sandboxes{outcome=would_delete}"))
		assert.Empty(t, w.value("sandglass.sweep.last_success.time{}"))
		assert.Len(t, w.p.Live(), 1)
	})
}

func lastSuccess(t *testing.T, w *world) float64 {
	t.Helper()
	for _, m := range w.collect() {
		if m.Name == "sandglass.sweep.last_success.time" {
			return gauge(t, m)
		}
	}
	require.Fail(t, "no success")
	return 0
}

func TestALeakCheckIsASpanAndCounted(t *testing.T) {
	known := leakcheck.Known(sandbox.Info{ID: "sb-1"})
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, w *world)
		opts    []leakcheck.Option
		outcome string
		err     error
		text    string
		leaks   string
	}{
		"clean": {opts: []leakcheck.Option{leakcheck.Unwitnessed()}, outcome: "clean", leaks: "0"},
		"a leak": {
			prepare: func(t *testing.T, w *world) { forgotten(t, w, 1) },
			opts:    []leakcheck.Option{known, leakcheck.Unwitnessed()},
			outcome: "leak", err: leakcheck.ErrLeak, text: "sandboxes are left", leaks: "1",
		},
		"blind": {
			prepare: func(_ *testing.T, w *world) {
				w.p.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(401), Times: -1})
			},
			opts:    []leakcheck.Option{leakcheck.Unwitnessed()},
			outcome: "blind", err: leakcheck.ErrBlind, text: "could not see everything: memory: list: 401: credentials not accepted", leaks: "0",
		},
		"nothing seen": {outcome: "no_witness", err: leakcheck.ErrNoWitness, text: leakcheck.ErrNoWitness.Error(), leaks: "0"},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, settings{})
			if tt.prepare != nil {
				tt.prepare(t, w)
			}
			err := w.o.Find(context.Background(), w.p, tt.opts...)
			require.ErrorIs(t, err, tt.err)
			s := w.one("sandbox leakcheck")
			assert.Equal(t, tt.outcome, attr(s, "sandglass.outcome"))
			assert.Equal(t, tt.text, s.Status.Description)
			if tt.err != nil {
				assert.Equal(t, tt.outcome, attr(s, "error.type"))
				assert.Equal(t, codes.Error, s.Status.Code)
			}
			if tt.leaks == "1" {
				assert.Equal(t, `["sb-1"]`, attr(s, "sandglass.left"))
			}
			assert.Equal(t, tt.leaks, w.value("sandglass.sandbox.leaks{source=leakcheck}"))
			assert.Regexp(t, `^1 times`, w.value("sandglass.leakcheck.duration{outcome="+tt.outcome+"}"))
		})
	}
	t.Run("without a provider it is the same error", func(t *testing.T) {
		assert.ErrorIs(t, newWorld(t, settings{}).o.Find(context.Background(), nil), sandbox.ErrInvalid)
	})
}
