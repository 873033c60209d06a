package sandboxotel_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// A world is a service in memory, a Manager on it, and all that OpenTelemetry is told.
type world struct {
	t       *testing.T
	p       *sandboxtest.Provider
	m       *sandbox.Manager
	o       *sandboxotel.Observer
	journal *sandboxtest.Journal

	tracer trace.Tracer // for spans of the test's own
	spans  *tracetest.InMemoryExporter
	reader *sdkmetric.ManualReader
}

type settings struct {
	kind  sandboxtest.Kind
	scope sandbox.Scope
	otel  sandboxotel.Config

	prepare func(*sandboxtest.Provider)
}

func newWorld(t *testing.T, s settings) *world {
	t.Helper()
	if s.kind.Capabilities == (sandbox.Capabilities{}) {
		s.kind.Capabilities = sandboxtest.Everything()
	}
	w := &world{t: t, p: s.kind.New(), journal: sandboxtest.NewJournal(), spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	if s.prepare != nil {
		s.prepare(w.p)
	}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	w.tracer = traces.Tracer("test")
	s.otel.TracerProvider, s.otel.MeterProvider = traces, sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader))
	var err error
	w.o, err = sandboxotel.New(s.otel)
	require.NoError(t, err)
	w.m = w.manager(s.scope)
	return w
}

func (w *world) manager(scope sandbox.Scope) *sandbox.Manager {
	w.t.Helper()
	m, err := sandbox.NewManager(w.p, sandbox.Config{
		Fleet: "ci", Owner: "runner.1", Scope: scope, Journal: w.journal, Observers: []sandbox.Observer{w.o.Observe},
	})
	require.NoError(w.t, err)
	return m
}

// bubble runs f as a subtest on fake time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// named returns the spans of that name, in the order of their ends.
func (w *world) named(name string) (found []tracetest.SpanStub) {
	for _, s := range w.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// one returns the only span of that name.
func (w *world) one(name string) tracetest.SpanStub {
	w.t.Helper()
	found := w.named(name)
	require.Len(w.t, found, 1, "%s in:\n%s", name, w.tree())
	return found[0]
}

// tree prints all spans that have ended as a tree: name, kind, status and those attributes that do not depend on chance.
func (w *world) tree() string {
	spans := w.spans.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	known := map[trace.SpanID]bool{}
	for _, s := range spans {
		known[s.SpanContext.SpanID()] = true
	}
	var b strings.Builder
	var under func(parent trace.SpanID, depth int)
	print := func(s tracetest.SpanStub, depth int) {
		fmt.Fprintf(&b, "%s%s %s", strings.Repeat("  ", depth), s.Name, s.SpanKind)
		for _, a := range s.Attributes {
			switch a.Key {
			case "sandglass.attempt", "error.type", "http.response.status_code", "sandglass.sandbox.state", "sandglass.outcome", "sandglass.incomplete":
				fmt.Fprintf(&b, " %s=%s", strings.TrimPrefix(string(a.Key), "sandglass."), a.Value.String())
			}
		}
		if s.Status.Code != codes.Unset {
			fmt.Fprintf(&b, " [%s: %s]", s.Status.Code, s.Status.Description)
		}
		b.WriteByte('\n')
		under(s.SpanContext.SpanID(), depth+1)
	}
	under = func(parent trace.SpanID, depth int) {
		for _, s := range spans {
			if p := s.Parent.SpanID(); p == parent && p.IsValid() {
				print(s, depth)
			}
		}
	}
	for _, s := range spans {
		if !known[s.Parent.SpanID()] {
			print(s, 0)
		}
	}
	return b.String()
}

// attr returns an attribute of s as text, or "".
func attr(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// metrics collects, and prints one line for each data point: name, attributes, value; of a histogram count and sum.
func (w *world) metrics() string {
	w.t.Helper()
	var lines []string
	for _, m := range w.collect() {
		lines = append(lines, points(m)...)
	}
	return strings.Join(lines, "\n") + "\n"
}

func (w *world) collect() []metricdata.Metrics {
	w.t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(w.t, w.reader.Collect(context.Background(), &rm))
	var all []metricdata.Metrics
	for _, s := range rm.ScopeMetrics {
		all = append(all, s.Metrics...)
	}
	slices.SortFunc(all, func(a, b metricdata.Metrics) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// value returns the line of one data point, without its name and attributes, or "" if there is none.
func (w *world) value(start string) string {
	w.t.Helper()
	for line := range strings.Lines(w.metrics()) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), start+" = "); ok {
			return rest
		}
	}
	return ""
}

func points(m metricdata.Metrics) (lines []string) {
	line := func(attrs attribute.Set, format string, args ...any) {
		var words []string
		for _, a := range attrs.ToSlice() {
			if k := strings.TrimPrefix(string(a.Key), "sandglass."); k != "provider" && k != "fleet" {
				words = append(words, k+"="+a.Value.String())
			}
		}
		lines = append(lines, fmt.Sprintf("%s{%s} = %s", m.Name, strings.Join(words, ","), fmt.Sprintf(format, args...)))
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			line(p.Attributes, "%d", p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			line(p.Attributes, "%d", p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			line(p.Attributes, "%.3f", p.Value)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			line(p.Attributes, "%d times, %.3f", p.Count, p.Sum)
		}
	default:
		lines = append(lines, fmt.Sprintf("%s has unexpected data %T", m.Name, d))
	}
	slices.Sort(lines)
	return lines
}

// keys returns the attribute keys of all points of m.
func keys(m metricdata.Metrics) map[string]bool {
	found := map[string]bool{}
	add := func(s attribute.Set) {
		for _, a := range s.ToSlice() {
			found[string(a.Key)] = true
		}
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes)
		}
	}
	return found
}

func run(ctx context.Context, sb sandbox.Sandbox) error {
	res, err := sb.Exec(ctx, sandbox.Shell("echo hello"))
	if err != nil {
		return err
	}
	return res.Err()
}

func sameTree(t *testing.T, want, got string) {
	t.Helper()
	assert.Equal(t, strings.TrimLeft(want, "\n"), got)
}
