package export

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/metric"
	nometric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	notrace "go.opentelemetry.io/otel/trace/noop"
)

// limit is the longest that a Shutdown takes: a collector that does not answer must not hold up the end of a command.
const limit = 5 * time.Second

// A Pipeline is a pair of providers and their exporters. Use [FromEnv]. Its methods are safe for concurrent use.
type Pipeline struct {
	traces  trace.TracerProvider
	metrics metric.MeterProvider
	stops   []func(context.Context) error
}

// FromEnv returns the Pipeline that the environment asks for, for a service of that name and version; the names and
// attributes in OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come first. Where it asks for none, the Pipeline does
// nothing, and no goroutine is started. Beside an error the Pipeline can be used all the same: what is wrong is off.
// No global provider is set. ctx is for setting up only.
func FromEnv(ctx context.Context, service, version string) (*Pipeline, error) {
	p := &Pipeline{traces: notrace.NewTracerProvider(), metrics: nometric.NewMeterProvider()}
	tracing, metering := asked("TRACES"), asked("METRICS")
	if !tracing && !metering {
		return p, nil
	}
	// With the environment last, which then counts. An attribute there that cannot be read is no reason to go without the rest.
	res, err := resource.New(ctx, resource.WithSchemaURL(semconv.SchemaURL), resource.WithTelemetrySDK(), resource.WithAttributes(
		semconv.ServiceName(service), semconv.ServiceVersion(version), semconv.ServiceInstanceID(strings.ToLower(rand.Text())),
	), resource.WithFromEnv())
	faults := []error{err}
	if tracing {
		faults = append(faults, p.trace(ctx, res))
	}
	if metering {
		faults = append(faults, p.meter(ctx, res))
	}
	if err := errors.Join(faults...); err != nil {
		return p, fmt.Errorf("telemetry settings: %w", err)
	}
	return p, nil
}

// asked reports whether the environment asks for a signal. An empty variable is like none.
func asked(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if exporter := os.Getenv("OTEL_" + signal + "_EXPORTER"); exporter != "" {
		return exporter != "none"
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

func (p *Pipeline) trace(ctx context.Context, res *resource.Resource) error {
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return fmt.Errorf("traces (OTEL_TRACES_EXPORTER is %q): %w", os.Getenv("OTEL_TRACES_EXPORTER"), err)
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	p.traces, p.stops = tp, append(p.stops, tp.Shutdown)
	return nil
}

func (p *Pipeline) meter(ctx context.Context, res *resource.Resource) error {
	reader, err := autoexport.NewMetricReader(ctx)
	if err != nil {
		return fmt.Errorf("metrics (OTEL_METRICS_EXPORTER is %q): %w", os.Getenv("OTEL_METRICS_EXPORTER"), err)
	}
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res))
	p.metrics, p.stops = mp, append(p.stops, mp.Shutdown)
	return nil
}

// Active reports whether anything is exported.
func (p *Pipeline) Active() bool { return len(p.stops) > 0 }

// TracerProvider is never nil.
func (p *Pipeline) TracerProvider() trace.TracerProvider { return p.traces }

// MeterProvider is never nil.
func (p *Pipeline) MeterProvider() metric.MeterProvider { return p.metrics }

// Shutdown exports what has not been exported yet and closes the exporters. It returns when that is done, when ctx has
// ended, or after 5 seconds, whatever the exporters do; the error then says so. Call it once, with a context that is still
// alive.
func (p *Pipeline) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v: %w", limit, context.DeadlineExceeded))
	defer cancel()
	over := make(chan error, len(p.stops))
	for _, stop := range p.stops {
		go func() { over <- stop(ctx) }()
	}
	var faults []error
	for range p.stops {
		select {
		case err := <-over:
			faults = append(faults, err)
		case <-ctx.Done(): // the rest is left behind
			faults = append(faults, context.Cause(ctx))
			return fmt.Errorf("telemetry is lost: %w", errors.Join(faults...))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("telemetry is lost: %w", err)
	}
	return nil
}
