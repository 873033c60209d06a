package sandboxotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// What found something out: values of sandglass.source.
const (
	fromScope   = "scope"
	fromReplay  = "replay"
	fromSweeper = "sweeper"
	fromCheck   = "leakcheck"
)

// How an end came out: values of sandglass.outcome.
const (
	gone = "gone"
	left = "left"
)

// instruments are all metrics.
type instruments struct {
	late, end, call, pass, check metric.Float64Histogram
	deletes, leaks               metric.Int64Counter
	items                        metric.Int64Gauge
	passed                       metric.Float64Gauge
}

// newInstruments makes them, and has l asked whenever metrics are collected, until m's provider is shut down.
func newInstruments(m metric.Meter, l *lives) (*instruments, error) {
	i := &instruments{}
	var faults []error
	histogram := func(h *metric.Float64Histogram, name, about string, bounds []float64) {
		var err error
		*h, err = m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(bounds...))
		faults = append(faults, err)
	}
	counter := func(c *metric.Int64Counter, name, about string) {
		var err error
		*c, err = m.Int64Counter(name, metric.WithUnit("{sandbox}"), metric.WithDescription(about))
		faults = append(faults, err)
	}
	// A beat is due every minute, and the lease is lost two minutes later, in the default setting.
	lateBounds := []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300}
	// An end is to be over within two minutes, and otherwise waits for a lease, a replay or a sweeper.
	endBounds := []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 180, 300, 900, 3600}
	// A call takes milliseconds against an engine next door and minutes against a service that starts machines.
	callBounds := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600}
	// A pass looks through lists page by page and waits for deletes.
	passBounds := []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}
	histogram(&i.late, "sandglass.beat.lateness", "How long after it was due a beat was answered.", lateBounds)
	histogram(&i.end, "sandglass.sandbox.end.duration", "Time from the end of a sandbox's use until it was seen to be gone.", endBounds)
	histogram(&i.call, "sandglass.operation.duration", "Duration of one attempt at a step of a sandbox's life.", callBounds)
	histogram(&i.pass, "sandglass.sweep.duration", "Duration of a sweeper's pass over a fleet.", passBounds)
	histogram(&i.check, "sandglass.leakcheck.duration", "Duration of a leak check of an account.", passBounds)
	counter(&i.deletes, "sandglass.sandbox.deletes", "Sandboxes whose end came out, by outcome.")
	counter(&i.leaks, "sandglass.sandbox.leaks", "Reports of sandboxes that may be left.")

	var err error
	i.items, err = m.Int64Gauge("sandglass.sweep.sandboxes", metric.WithUnit("{sandbox}"),
		metric.WithDescription("Sandboxes of the fleet in the last pass of a sweeper, by outcome."))
	faults = append(faults, err)
	i.passed, err = m.Float64Gauge("sandglass.sweep.last_success.time", metric.WithUnit("s"),
		metric.WithDescription("When the last pass of a sweeper ended that left nothing undone, since the Unix epoch."))
	faults = append(faults, err)

	live, err := m.Int64ObservableUpDownCounter("sandglass.sandbox.live", metric.WithUnit("{sandbox}"),
		metric.WithDescription("Sandboxes that may exist: not yet seen to be gone."))
	faults = append(faults, err)
	unverified, err := m.Int64ObservableUpDownCounter("sandglass.sandbox.unverified", metric.WithUnit("{sandbox}"),
		metric.WithDescription("Sandboxes whose end has failed, and which were not seen to be gone since."))
	faults = append(faults, err)
	oldest, err := m.Float64ObservableGauge("sandglass.lease.oldest_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest sandbox that may exist."))
	faults = append(faults, err)
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for a, c := range l.counts() {
			attrs := a.with()
			o.ObserveInt64(live, c.live, attrs)
			o.ObserveInt64(unverified, c.unverified, attrs)
			o.ObserveFloat64(oldest, c.oldest.Seconds(), attrs)
		}
		return nil
	}, live, unverified, oldest)
	return i, err
}

// with returns the account and more as attributes.
func (a account) with(more ...attribute.KeyValue) metric.MeasurementOption {
	attrs := []attribute.KeyValue{attrProvider.String(a.provider), attrFleet.String(a.fleet)}
	return metric.WithAttributeSet(attribute.NewSet(append(attrs, more...)...))
}

// account has the counters of an account begin at 0, so that what comes first shows as an increase.
func (i *instruments) account(ctx context.Context, a account, source string) {
	for _, outcome := range []string{gone, left} {
		i.deletes.Add(ctx, 0, a.with(attrOutcome.String(outcome), attrSource.String(source)))
	}
	i.leaks.Add(ctx, 0, a.with(attrSource.String(source)))
}

// measure takes what an event of a Manager tells.
func (i *instruments) measure(ctx context.Context, e sandbox.Event, seen sighting) {
	source := fromScope
	if seen.span == nil {
		source = fromReplay
	}
	if seen.beat {
		i.late.Record(ctx, seen.late.Seconds(), seen.account.with())
	}
	switch e.Op {
	case sandbox.OpScope:
		return
	case sandbox.OpConfirm:
		if e.Final {
			i.confirmed(ctx, seen.account, source, e, seen.ended)
		}
		return
	case sandbox.OpExtend: // the last one is all beats together
		if e.Final {
			return
		}
	case sandbox.OpReady, sandbox.OpRun: // only the last one has taken its time
		if !e.Final {
			return
		}
	}
	attrs := []attribute.KeyValue{attrOperation.String(string(e.Op))}
	if e.Err != nil {
		attrs = append(attrs, errorType(e.Err))
	}
	i.call.Record(ctx, e.Took.Seconds(), seen.account.with(attrs...))
}

// confirmed counts an end that came out. since is when it began, if that was before the event's own start.
func (i *instruments) confirmed(ctx context.Context, a account, source string, e sandbox.Event, since time.Time) {
	by := attrSource.String(source)
	if e.Err != nil {
		i.deletes.Add(ctx, 1, a.with(attrOutcome.String(left), by))
		i.leaks.Add(ctx, leaked(e.Err), a.with(by))
		return
	}
	i.deletes.Add(ctx, 1, a.with(attrOutcome.String(gone), by))
	if since.IsZero() {
		since = e.Start
	}
	i.end.Record(ctx, end(e).Sub(since).Seconds(), a.with(by))
}

// leaked returns how many sandboxes an error says may be left.
func leaked(err error) int64 {
	if leak, ok := errors.AsType[*sandbox.LeakError](err); ok && len(leak.Sandboxes) > 0 {
		return int64(len(leak.Sandboxes))
	}
	return 1
}
