package main

import (
	"context"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel/export"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// Telemetry is what the standard OTEL environment variables ask for: nothing, if they are not set. What is wrong with it
// is a warning, and never decides about an exit code.
type telemetry struct {
	pipeline *export.Pipeline
	observer *sandboxotel.Observer // nil: nothing is exported
	warn     func(format string, args ...any)
}

func newTelemetry(ctx context.Context, warn func(format string, args ...any)) *telemetry {
	t := &telemetry{warn: warn}
	var err error
	if t.pipeline, err = export.FromEnv(ctx, "sandglass", version()); err != nil {
		warn("telemetry: %v", err)
	}
	if !t.pipeline.Active() {
		return t
	}
	t.observer, err = sandboxotel.New(sandboxotel.Config{
		TracerProvider: t.pipeline.TracerProvider(), MeterProvider: t.pipeline.MeterProvider(),
	})
	if err != nil {
		warn("telemetry: %v", err)
	}
	return t
}

// scopes observes the lives of sandboxes.
func (t *telemetry) scopes() []sandbox.Observer {
	if t.observer == nil {
		return nil
	}
	return []sandbox.Observer{t.observer.Observe}
}

// sweeps observes passes and their deletes.
func (t *telemetry) sweeps() []sandbox.Observer {
	if t.observer == nil {
		return nil
	}
	return []sandbox.Observer{t.observer.Sweeps()}
}

func (t *telemetry) pass(r sweep.Report, err error) {
	if t.observer != nil {
		t.observer.Pass(r, err)
	}
}

// environ is what a program finds of the trace that its sandbox's scope is part of.
func (t *telemetry) environ(ctx context.Context, sb sandbox.Sandbox) []string {
	if t.observer == nil {
		return nil
	}
	return export.Environ(t.observer.Context(ctx, sb))
}

// close sends what is left, for a few seconds at most.
func (t *telemetry) close() {
	if t.observer != nil {
		t.observer.Close()
	}
	if err := t.pipeline.Shutdown(context.Background()); err != nil {
		t.warn("telemetry: %v", err)
	}
}
