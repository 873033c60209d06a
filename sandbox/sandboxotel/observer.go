package sandboxotel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// scopeName is the instrumentation scope of all spans and metrics.
const scopeName = "github.com/sandglass-dev/sandglass/sandbox/sandboxotel"

// Config is the setting of an [Observer]. The zero value is a good default.
type Config struct {
	TracerProvider trace.TracerProvider // nil: the global one
	MeterProvider  metric.MeterProvider // nil: the global one

	// Beat is the time between beats from which their lateness counts: what Scope.Beat is set to. Events do not tell it.
	// 0: a third of the lease that the service granted last, which is what a scope does by default.
	Beat time.Duration

	// ErrorText puts the whole text of errors into the status of spans, with what functions and the causes of cancelled
	// contexts say, which may hold anything. false: only what the library and the service said.
	ErrorText bool
}

// An Observer turns events into spans and metrics. It starts no goroutine, makes no request, and remembers the scopes
// that are open and the sandboxes that are left. It is safe for concurrent use, by any number of Managers and Sweepers.
type Observer struct {
	cfg    Config
	tracer trace.Tracer
	meter  *instruments
	lives  lives
}

// New returns an Observer. Its error is the MeterProvider's, or matches [sandbox.ErrInvalid].
func New(cfg Config) (*Observer, error) {
	if cfg.Beat < 0 {
		return nil, fmt.Errorf("sandboxotel: Beat %v is negative: %w", cfg.Beat, sandbox.ErrInvalid)
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	o := &Observer{cfg: cfg, tracer: cfg.TracerProvider.Tracer(scopeName, trace.WithSchemaURL(semconv.SchemaURL))}
	var err error
	if o.meter, err = newInstruments(cfg.MeterProvider.Meter(scopeName, metric.WithSchemaURL(semconv.SchemaURL)), &o.lives); err != nil {
		return nil, fmt.Errorf("sandboxotel: %w", err)
	}
	return o, nil
}

// Observe is a [sandbox.Observer], for [sandbox.Config].Observers.
func (o *Observer) Observe(ctx context.Context, e sandbox.Event) {
	if e.Op == sandbox.OpScope && !e.Final {
		o.open(ctx, e)
		return
	}
	seen := o.lives.note(ctx, e, o.cfg.Beat)
	if seen.span != nil {
		ctx = trace.ContextWithSpan(ctx, seen.span)
	}
	o.meter.measure(ctx, e, seen)
	switch {
	case e.Op == sandbox.OpScope:
		if seen.span != nil {
			o.finish(seen.span, e, seen.vanished)
		}
	case e.Op == sandbox.OpExtend && e.Final: // the beats as a whole, not one of them
		if seen.span != nil && e.Err != nil {
			seen.span.AddEvent("sandbox beats ended", trace.WithTimestamp(end(e)), trace.WithAttributes(errorType(e.Err)))
		}
	default:
		o.step(ctx, e)
		if seen.span != nil && e.Op == sandbox.OpRun && !e.Final { // its sandbox has been deleted, and nobody knows when it returns
			o.finish(seen.span, e, false)
		}
	}
}

// Context returns ctx with the span of sb's scope as the current one, so that spans which the scope's function starts
// are children of it. Outside of a scope that this Observer knows, it returns ctx as it is.
func (o *Observer) Context(ctx context.Context, sb sandbox.Sandbox) context.Context {
	if span := o.lives.span(ctx, sb.ID()); span != nil {
		return trace.ContextWithSpan(ctx, span)
	}
	return ctx
}

// Close ends the spans of scopes that are still open, marked by the attribute sandglass.incomplete. Call it once no more
// events are waited for, before the shutdown of the providers. Metrics go on until the shutdown of theirs.
func (o *Observer) Close() {
	for _, span := range o.lives.spans() {
		span.SetAttributes(attrIncomplete.Bool(true))
		span.End()
	}
}

// open starts the span of a scope.
func (o *Observer) open(ctx context.Context, e sandbox.Event) {
	_, span := o.tracer.Start(ctx, spanName(e.Op), trace.WithTimestamp(e.Start), trace.WithAttributes(o.attributes(e)...))
	o.lives.open(&life{
		account: accountOf(e), nonces: []string{e.Info.Mark.Nonce}, span: span, parent: trace.SpanContextFromContext(ctx), opened: e.Start,
	})
	o.meter.account(ctx, accountOf(e), fromScope)
}

// finish ends the span of a scope. vanished says that its function panicked or called runtime.Goexit: then the event has
// no error.
func (o *Observer) finish(span trace.Span, e sandbox.Event, vanished bool) {
	span.SetAttributes(o.attributes(e)...)
	if vanished {
		e.Err = errVanished
	}
	o.status(span, e)
	span.End(trace.WithTimestamp(end(e)))
}

var errVanished = errors.New("the function panicked or called runtime.Goexit")

// step is the span of one attempt at one step, which is over already.
func (o *Observer) step(ctx context.Context, e sandbox.Event) {
	kind := trace.SpanKindClient
	if e.Op == sandbox.OpRun || e.Op == sandbox.OpJournal || e.Op == sandbox.OpReady && e.Final || e.Op == sandbox.OpConfirm && e.Final {
		kind = trace.SpanKindInternal
	}
	_, span := o.tracer.Start(ctx, spanName(e.Op), trace.WithTimestamp(e.Start), trace.WithSpanKind(kind), trace.WithAttributes(o.attributes(e)...))
	o.status(span, e)
	span.End(trace.WithTimestamp(end(e)))
}

// spanName has no id in it: there is one name for each step.
func spanName(op sandbox.Op) string { return "sandbox " + string(op) }

func end(e sandbox.Event) time.Time { return e.Start.Add(e.Took) }
