package sandboxotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func gauge(t *testing.T, m metricdata.Metrics) float64 {
	t.Helper()
	g, ok := m.Data.(metricdata.Gauge[float64])
	require.True(t, ok && len(g.DataPoints) == 1)
	return g.DataPoints[0].Value
}

// everything has the Observer tell of all that it can tell of.
func everything(t *testing.T, w *world) {
	t.Helper()
	w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(429)})
	w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500)})
	require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
		time.Sleep(2 * time.Minute)
		return run(ctx, sb)
	}))
	forgotten(t, w, 1)
	report, err := sweeper(t, w, nil).Sweep(context.Background())
	require.NoError(t, err)
	w.o.Pass(report, err)
	require.NoError(t, w.o.Find(context.Background(), w.p, leakcheck.Unwitnessed()))
}

func TestMetricsFollowTheConventions(t *testing.T) {
	want := map[string]string{ // name to kind, unit and attributes
		"sandglass.beat.lateness":           "histogram s sandglass.fleet sandglass.provider",
		"sandglass.leakcheck.duration":      "histogram s sandglass.outcome sandglass.provider",
		"sandglass.lease.oldest_age":        "gauge s sandglass.fleet sandglass.provider",
		"sandglass.operation.duration":      "histogram s error.type sandglass.fleet sandglass.operation sandglass.provider",
		"sandglass.sandbox.deletes":         "counter {sandbox} sandglass.fleet sandglass.outcome sandglass.provider sandglass.source",
		"sandglass.sandbox.end.duration":    "histogram s sandglass.fleet sandglass.provider sandglass.source",
		"sandglass.sandbox.leaks":           "counter {sandbox} sandglass.fleet sandglass.provider sandglass.source",
		"sandglass.sandbox.live":            "updowncounter {sandbox} sandglass.fleet sandglass.provider",
		"sandglass.sandbox.unverified":      "updowncounter {sandbox} sandglass.fleet sandglass.provider",
		"sandglass.sweep.duration":          "histogram s sandglass.fleet",
		"sandglass.sweep.last_success.time": "gauge s sandglass.fleet",
		"sandglass.sweep.sandboxes":         "gauge {sandbox} sandglass.fleet sandglass.outcome sandglass.provider",
	}
	bubble(t, "and their attributes have few values", func(t *testing.T) {
		w := newWorld(t, settings{scope: sandbox.Scope{Tags: map[string]string{"job": "j"}}})
		everything(t, w)
		got := map[string]string{}
		for _, m := range w.collect() {
			kind := ""
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				kind = "histogram"
				bounds := d.DataPoints[0].Bounds
				assert.True(t, slices.IsSorted(bounds) && len(bounds) >= 10, "%s has the bounds %v", m.Name, bounds)
			case metricdata.Gauge[float64], metricdata.Gauge[int64]:
				kind = "gauge"
			case metricdata.Sum[int64]:
				kind = "updowncounter"
				if d.IsMonotonic {
					kind = "counter"
				}
			}
			assert.Regexp(t, `^sandglass(\.[a-z]+(_[a-z]+)*)+$`, m.Name)
			assert.Regexp(t, `^[A-Z].*\.$`, m.Description, m.Name)
			got[m.Name] = strings.Join(append([]string{kind, m.Unit}, slices.Sorted(maps.Keys(keys(m)))...), " ")
		}
		assert.Equal(t, want, got)
	})
	bubble(t, "however many sandboxes there are", func(t *testing.T) {
		w := newWorld(t, settings{})
		lives := func(n int) int {
			for i := range n {
				require.NoError(t, w.m.WithSandbox(context.Background(), run, func(s *sandbox.Scope) { s.Tags["job"] = fmt.Sprint(i) }))
			}
			return strings.Count(w.metrics(), "\n")
		}
		assert.Equal(t, lives(1), lives(50))
	})
}

func TestNoSecretReachesASpanOrMetric(t *testing.T) {
	const secret = "hunter2"
	bad := errors.New("denied with " + secret)
	for name, text := range map[string]bool{"by default": false, "but for the texts of errors, if these are asked for": true} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, settings{
				scope: sandbox.Scope{Spec: sandbox.Spec{Env: map[string]string{"TOKEN": secret}}},
				otel:  sandboxotel.Config{ErrorText: text},
			})
			lost := sandboxtest.Status(502)
			lost.Err = bad // as where a transport passes on what ended its context
			w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: lost})
			ctx, cancel := context.WithCancelCause(context.Background())
			err := w.m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
				_, err := sb.Exec(ctx, sandbox.Cmd{
					Args: []string{"sh", "-c", "echo " + secret}, Env: map[string]string{"KEY": secret}, Stdin: strings.NewReader(secret),
				})
				require.NoError(t, err)
				require.NoError(t, sb.Upload(ctx, "/"+secret, strings.NewReader(secret)))
				cancel(bad)
				_, err = sb.Exec(ctx, sandbox.Shell("sleep 100"))
				require.Error(t, err)
				return bad
			})
			require.ErrorIs(t, err, bad)
			all := fmt.Sprintf("%+v %s", w.spans.GetSpans(), w.metrics())
			for _, s := range w.spans.GetSpans() {
				for _, a := range s.Attributes {
					all += a.Value.String()
				}
			}
			assert.Equal(t, text, strings.Contains(all, secret))
			assert.Len(t, w.named("sandbox create"), 2)
			assert.Len(t, w.named("sandbox exec"), 2)
			assert.Equal(t, "_OTHER", attr(w.named("sandbox exec")[1], "error.type"), "the cause of a cancel is the caller's own")
		})
	}
}

func TestSpanNamesHaveNoIds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings{})
		everything(t, w)
		names := map[string]bool{}
		for _, s := range w.spans.GetSpans() {
			names[s.Name] = true
			assert.Equal(t, "github.com/sandglass-dev/sandglass/sandbox/sandboxotel", s.InstrumentationScope.Name)
			assert.NotContains(t, s.Attributes, attribute.String("sandglass.sandbox.id", ""))
		}
		assert.Equal(t, []string{
			"sandbox confirm", "sandbox create", "sandbox delete", "sandbox exec", "sandbox extend", "sandbox journal",
			"sandbox leakcheck", "sandbox ready", "sandbox run", "sandbox scope", "sandbox sweep",
		}, slices.Sorted(maps.Keys(names)))
	})
}

func TestConfigurationFaults(t *testing.T) {
	_, err := sandboxotel.New(sandboxotel.Config{Beat: -1})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	o, err := sandboxotel.New(sandboxotel.Config{}) // the global providers, which do nothing here
	require.NoError(t, err)
	o.Observe(context.Background(), sandbox.Event{Op: sandbox.OpScope})
	o.Close()
}

// TestManyScopesAtOnce is for the race detector: real goroutines, metrics collected meanwhile, one Observer for two Managers.
func TestManyScopesAtOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := newWorld(t, settings{})
	second := w.manager(sandbox.Scope{})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			m := w.m
			if i%2 == 0 {
				m = second
			}
			assert.NoError(t, m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
				w.o.Context(ctx, sb)
				return run(ctx, sb)
			}))
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	for done := false; !done; {
		select {
		case <-over:
			done = true
		default:
			w.metrics()
		}
	}
	assert.Len(t, w.named("sandbox scope"), 40)
	assert.Equal(t, "40", w.value("sandglass.sandbox.deletes{outcome=gone,source=scope}"))
	assert.Equal(t, "0", w.value("sandglass.sandbox.live{}"))
	assert.Zero(t, w.o.Held())
}
