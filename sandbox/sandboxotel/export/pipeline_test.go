package export_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel/export"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// environment clears what the machine of the tests has set, and sets env.
func environment(t *testing.T, env map[string]string) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") || strings.HasPrefix(name, "TRACE") {
			t.Setenv(name, "")
		}
	}
	for k, v := range env {
		t.Setenv(k, v)
	}
}

// A collector is a server that takes OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	traces  []*coltrace.ExportTraceServiceRequest
	metrics []*colmetrics.ExportMetricsServiceRequest
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if !assert.NoError(t, err) {
				return
			}
			body = z
		}
		raw, err := io.ReadAll(body)
		assert.NoError(t, err)
		c.mu.Lock()
		defer c.mu.Unlock()
		switch r.URL.Path {
		case "/v1/traces":
			m := &coltrace.ExportTraceServiceRequest{}
			assert.NoError(t, proto.Unmarshal(raw, m))
			c.traces = append(c.traces, m)
		case "/v1/metrics":
			m := &colmetrics.ExportMetricsServiceRequest{}
			assert.NoError(t, proto.Unmarshal(raw, m))
			c.metrics = append(c.metrics, m)
		default:
			assert.Fail(t, "a request elsewhere", r.URL.Path)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// said returns the names of all spans and metrics that have arrived.
func (c *collector) said() (spans, metrics []string, resources []*resourcepb.Resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.traces {
		for _, rs := range r.ResourceSpans {
			resources = append(resources, rs.Resource)
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					spans = append(spans, s.Name)
				}
			}
		}
	}
	for _, r := range c.metrics {
		for _, rm := range r.ResourceMetrics {
			resources = append(resources, rm.Resource)
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					metrics = append(metrics, m.Name)
				}
			}
		}
	}
	return spans, metrics, resources
}

// live lets one sandbox live, watched over p.
func live(t *testing.T, ctx context.Context, p *export.Pipeline) {
	t.Helper()
	o, err := sandboxotel.New(sandboxotel.Config{TracerProvider: p.TracerProvider(), MeterProvider: p.MeterProvider()})
	require.NoError(t, err)
	defer o.Close()
	m, err := sandbox.NewManager(sandboxtest.New(sandbox.Capabilities{}), sandbox.Config{Fleet: "ci", Observers: []sandbox.Observer{o.Observe}})
	require.NoError(t, err)
	require.NoError(t, m.WithSandbox(ctx, func(context.Context, sandbox.Sandbox) error { return nil }))
}

func TestNothingIsExportedUnlessAskedFor(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing set":           {},
		"set to nothing":        {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"the SDK disabled":      {"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"only how, not whither": {"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_SAMPLER": "always_on"},
		"empty, which is unset": {"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_TRACES_EXPORTER": ""},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // what other tests have left may take a moment to end
			environment(t, env)
			p, err := export.FromEnv(context.Background(), "test", "v1")
			require.NoError(t, err)
			assert.False(t, p.Active())
			live(t, context.Background(), p)
			require.NoError(t, p.Shutdown(context.Background()))
		})
	}
}

func TestALifeReachesTheCollector(t *testing.T) {
	for name, tt := range map[string]struct {
		env            func(url string) map[string]string
		traces, meters bool
	}{
		"both signals": {func(url string) map[string]string { return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url} }, true, true},
		"traces alone": {func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url + "/v1/traces"}
		}, true, false},
		"metrics, by name": {func(url string) map[string]string {
			return map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": url + "/v1/metrics"}
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			environment(t, tt.env(c.URL))
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=here,team=blue")
			p, err := export.FromEnv(context.Background(), "test", "v1")
			require.NoError(t, err)
			assert.True(t, p.Active())
			live(t, context.Background(), p)
			require.NoError(t, p.Shutdown(context.Background()))
			spans, metrics, resources := c.said()
			assert.Equal(t, tt.traces, len(spans) > 0)
			assert.Equal(t, tt.meters, len(metrics) > 0)
			if tt.traces {
				assert.Contains(t, spans, "sandbox scope")
			}
			if tt.meters {
				assert.Contains(t, metrics, "sandglass.sandbox.live", "the last export has what is observed, too")
			}
			for _, r := range resources {
				attrs := map[string]string{}
				for _, a := range r.Attributes {
					attrs[a.Key] = a.Value.GetStringValue()
				}
				assert.Equal(t, []string{"test", "v1", "here", "blue"},
					[]string{attrs["service.name"], attrs["service.version"], attrs["service.instance.id"], attrs["team"]})
			}
		})
	}
}

func TestAWrongSettingTurnsOffOnlyWhatItConcerns(t *testing.T) {
	c := newCollector(t)
	environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_METRICS_EXPORTER": "nonsense"})
	p, err := export.FromEnv(context.Background(), "test", "v1")
	require.ErrorContains(t, err, "nonsense")
	live(t, context.Background(), p)
	require.NoError(t, p.Shutdown(context.Background()))
	spans, metrics, _ := c.said()
	assert.NotEmpty(t, spans)
	assert.Empty(t, metrics)
}

func TestPrometheusIsServed(t *testing.T) {
	var port string
	var p *export.Pipeline
	for range 5 { // others may take a port that was free
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, port, err = net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		environment(t, map[string]string{
			"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1", "OTEL_EXPORTER_PROMETHEUS_PORT": port,
		})
		if p, err = export.FromEnv(context.Background(), "test", "v1"); !errors.Is(err, syscall.EADDRINUSE) {
			require.NoError(t, err)
			break
		}
	}
	defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
	live(t, context.Background(), p)
	res, err := http.Get("http://127.0.0.1:" + port + "/metrics")
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), "\nsandglass_sandbox_live{")
}

func TestShutdownIsBounded(t *testing.T) {
	t.Run("by its own limit, whatever exporters do", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release, heard := make(chan struct{}), false
			p := export.Stopping(
				func(context.Context) error { heard = true; return nil },
				func(context.Context) error { <-release; return nil },
			)
			start := time.Now()
			err := p.Shutdown(context.Background())
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.EqualError(t, err, "telemetry is lost: not done within 5s: context deadline exceeded")
			assert.Equal(t, 5*time.Second, time.Since(start))
			assert.True(t, heard, "the one that hangs does not hold up the other")
			close(release)
		})
	})
	t.Run("by the caller's context, before a collector that does not answer", func(t *testing.T) {
		hang := make(chan struct{})
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(&bytes.Buffer{}, r.Body)
			<-hang
		}))
		defer s.Close()
		defer close(hang)
		environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL})
		p, err := export.FromEnv(context.Background(), "test", "v1")
		require.NoError(t, err)
		live(t, context.Background(), p)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, p.Shutdown(ctx), context.DeadlineExceeded)
	})
}

func TestATraceGoesFromParentToChildProcess(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c := newCollector(t)
	environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "TRACEPARENT": parent, "TRACESTATE": "v=1"})
	ctx := export.Parent(context.Background())
	assert.Equal(t, []string{"TRACEPARENT=" + parent, "TRACESTATE=v=1"}, export.Environ(ctx))
	p, err := export.FromEnv(ctx, "test", "v1")
	require.NoError(t, err)
	live(t, ctx, p)
	require.NoError(t, p.Shutdown(context.Background()))
	found := false
	for _, s := range c.traces[0].ResourceSpans[0].ScopeSpans[0].Spans {
		if s.Name == "sandbox scope" {
			found = true
			assert.Equal(t, []byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}, s.ParentSpanId)
		}
	}
	assert.True(t, found)

	environment(t, map[string]string{"TRACEPARENT": "nonsense"})
	assert.Equal(t, context.Background(), export.Parent(context.Background()))
	assert.Empty(t, export.Environ(context.Background()))
}
