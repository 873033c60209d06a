package sandboxotel_test

import (
	"context"
	"fmt"
	"log/slog"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// One task in a sandbox, and what OpenTelemetry hears of it. A program sets up real exporters instead, for example with
// package export, and a real provider.
func Example() {
	ctx := context.Background()
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	o, err := sandboxotel.New(sandboxotel.Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer o.Close()

	m, err := sandbox.NewManager(sandboxtest.New(sandbox.Capabilities{}), sandbox.Config{
		Fleet: "ci-agents", Observers: []sandbox.Observer{o.Observe, sandbox.LogTo(slog.New(slog.DiscardHandler))},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		ctx = o.Context(ctx, sb) // spans that are started under ctx are children of the scope's
		_, err := sb.Exec(ctx, sandbox.Shell("go test ./..."))
		return err
	})
	fmt.Println("error:", err)

	for _, s := range spans.GetSpans() {
		fmt.Println("span:", s.Name)
	}
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &metrics); err != nil {
		fmt.Println(err)
	}
	for _, m := range metrics.ScopeMetrics[0].Metrics {
		if live, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "sandglass.sandbox.live" {
			fmt.Println("metric:", m.Name, live.DataPoints[0].Value)
		}
	}
	// Output:
	// error: <nil>
	// span: sandbox create
	// span: sandbox ready
	// span: sandbox exec
	// span: sandbox run
	// span: sandbox delete
	// span: sandbox confirm
	// span: sandbox scope
	// metric: sandglass.sandbox.live 0
}
