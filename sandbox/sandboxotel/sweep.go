package sandboxotel

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// Sweeps returns a [sandbox.Observer] for the Observers of one [sweep.Config]: each pass over an account becomes a span,
// "sandbox sweep", a child of the span in the pass's context, with its deletes as children.
func (o *Observer) Sweeps() sandbox.Observer {
	var mu sync.Mutex
	deletes := map[string][]sandbox.Event{} // by provider: of the pass under way, whose own event comes last
	return func(ctx context.Context, e sandbox.Event) {
		switch e.Op {
		case sandbox.OpConfirm:
			o.meter.confirmed(ctx, accountOf(e), fromSweeper, e, e.Start)
			mu.Lock()
			deletes[e.Provider] = append(deletes[e.Provider], e)
			mu.Unlock()
		case sweep.OpSweep:
			mu.Lock()
			done := deletes[e.Provider]
			delete(deletes, e.Provider)
			mu.Unlock()
			ctx, span := o.tracer.Start(ctx, spanName(e.Op), trace.WithTimestamp(e.Start), trace.WithAttributes(o.attributes(e)...))
			for _, d := range done {
				o.step(ctx, d)
			}
			if e.Err != nil {
				word, text := passClass(e.Err)
				o.fail(span, e.Err, word, text)
			}
			span.End(trace.WithTimestamp(end(e)))
		}
	}
}

// outcomes are all that a pass can tell of a sandbox.
func outcomes() []sweep.Outcome {
	return []sweep.Outcome{
		sweep.Kept, sweep.Deleted, sweep.WouldDelete, sweep.Gone, sweep.Pending, sweep.Capped, sweep.Left, sweep.Unseen,
	}
}

// Pass records the report of a pass and its error. It is for [sweep.Config].OnPass, which Run calls; after
// [sweep.Sweeper.Sweep], call it with what that returned. A dry run is never a last success.
func (o *Observer) Pass(r sweep.Report, err error) {
	if errors.Is(err, sweep.ErrRunning) { // there was no pass
		return
	}
	ctx := context.Background()
	attrs := []attribute.KeyValue{attrFleet.String(r.Fleet)}
	fleet := attribute.NewSet(attrs...)
	if err != nil {
		word, _ := passClass(err)
		attrs = append(attrs, semconv.ErrorTypeKey.String(word))
	}
	o.meter.pass.Record(ctx, r.Ended.Sub(r.Began).Seconds(), withSet(attribute.NewSet(attrs...)))
	for _, acc := range r.Accounts {
		a := account{acc.Provider, r.Fleet}
		o.meter.account(ctx, a, fromSweeper)
		for _, outcome := range outcomes() {
			word := strings.ReplaceAll(string(outcome), " ", "_")
			o.meter.items.Record(ctx, int64(acc.Outcomes[outcome]), a.with(attrOutcome.String(word)))
		}
	}
	if err == nil && !r.DryRun {
		o.meter.passed.Record(ctx, float64(r.Ended.UnixMilli())/1e3, withSet(fleet))
	}
}

// passClass classifies the error of a pass: first what is left, then what was not seen, then what is for later.
func passClass(err error) (word, text string) {
	for _, k := range []kind{{sweep.ErrLeft, "left"}, {sweep.ErrBlind, "blind"}, {sweep.ErrCapped, "capped"}} {
		if errors.Is(err, k.err) {
			return k.word, k.err.Error()
		}
	}
	return classify(err)
}
