package sandboxotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
)

// Find is [leakcheck.Find], in a span, "sandbox leakcheck", and with its outcome and the leaks that it found counted.
func (o *Observer) Find(ctx context.Context, p sandbox.Provider, opts ...leakcheck.Option) error {
	if p == nil {
		return leakcheck.Find(ctx, p, opts...)
	}
	start := time.Now()
	provider := attrProvider.String(p.Name())
	ctx, span := o.tracer.Start(ctx, spanName(fromCheck), trace.WithAttributes(provider))
	defer span.End()
	err := leakcheck.Find(ctx, p, opts...)

	outcome, why, found := checked(err)
	span.SetAttributes(attrOutcome.String(outcome))
	o.meter.check.Record(ctx, time.Since(start).Seconds(), withSet(attribute.NewSet(provider, attrOutcome.String(outcome))))
	o.meter.leaks.Add(ctx, int64(len(found)), withSet(attribute.NewSet(provider, attrSource.String(fromCheck))))
	if err == nil {
		return nil
	}
	var ids []string
	for _, l := range found[:min(told, len(found))] {
		ids = append(ids, l.Info.ID)
	}
	if len(ids) > 0 {
		span.SetAttributes(attrLeft.StringSlice(ids))
	}
	o.fail(span, err, outcome, why)
	return err
}

// checked returns the outcome of a check, the worst one if there are several, why, and the leaks it found.
func checked(err error) (outcome, why string, found []leakcheck.Leak) {
	if err == nil {
		return "clean", "", nil
	}
	if e, ok := errors.AsType[*leakcheck.Error](err); ok {
		found = e.Leaks
	}
	for _, k := range []kind{{leakcheck.ErrLeak, "leak"}, {leakcheck.ErrBlind, "blind"}, {leakcheck.ErrNoWitness, "no_witness"}} {
		if errors.Is(err, k.err) {
			return k.word, k.err.Error(), found
		}
	}
	_, why = classify(err)
	return "error", why, found
}

func withSet(s attribute.Set) metric.MeasurementOption { return metric.WithAttributeSet(s) }
