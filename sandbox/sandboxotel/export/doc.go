// Package export sets up OpenTelemetry's SDK and exporters from the standard environment variables, for programs that call
// package sandboxotel. It is a module of its own, so that only who imports it has exporters among its dependencies.
//
//	p, err := export.FromEnv(ctx, "runner", version)
//	if err != nil {
//		slog.Warn("telemetry", "error", err) // and go on: what is wrong is off
//	}
//	defer p.Shutdown(context.WithoutCancel(ctx))
//	o, err := sandboxotel.New(sandboxotel.Config{TracerProvider: p.TracerProvider(), MeterProvider: p.MeterProvider()})
//
// Unlike the SDK's own defaults, nothing is exported unless the environment asks for it: a command on a machine without a
// collector is not to knock at localhost.
//
//	OTEL_EXPORTER_OTLP_ENDPOINT              exports both signals there by OTLP; so do, for one signal,
//	OTEL_EXPORTER_OTLP_{TRACES,METRICS}_ENDPOINT
//	OTEL_TRACES_EXPORTER                     otlp, console or none
//	OTEL_METRICS_EXPORTER                    otlp, console, prometheus (serves localhost:9464) or none
//	OTEL_SDK_DISABLED=true                   exports nothing
//
// With these, the SDK's other variables have their standard meaning: OTEL_EXPORTER_OTLP_PROTOCOL and _HEADERS,
// OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_METRIC_EXPORT_INTERVAL, OTEL_BSP_* and so on.
// Headers may hold keys: none of this is ever printed here.
package export
