package sandboxotel

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Names of attributes: of metrics and spans, then of spans only.
const (
	attrProvider  = attribute.Key("sandglass.provider")
	attrFleet     = attribute.Key("sandglass.fleet")
	attrOperation = attribute.Key("sandglass.operation")
	attrOutcome   = attribute.Key("sandglass.outcome")
	attrSource    = attribute.Key("sandglass.source")

	attrOwner      = attribute.Key("sandglass.owner")
	attrNonce      = attribute.Key("sandglass.nonce")
	attrSandboxID  = attribute.Key("sandglass.sandbox.id")
	attrState      = attribute.Key("sandglass.sandbox.state")
	attrLeaseLeft  = attribute.Key("sandglass.lease.left") // seconds
	attrAttempt    = attribute.Key("sandglass.attempt")
	attrCode       = attribute.Key("sandglass.error.code") // the service's
	attrRequestID  = attribute.Key("sandglass.request.id") // the service's
	attrLeft       = attribute.Key("sandglass.left")       // ids of what may be left
	attrLeftUntil  = attribute.Key("sandglass.left.until") // when the last of their leases ends; none: nothing is known to end it
	attrIncomplete = attribute.Key("sandglass.incomplete")
	tagPrefix      = "sandglass.tag."
)

// told is how many ids of what may be left stand in one span.
const told = 16

// attributes are those of the span of an event.
func (o *Observer) attributes(e sandbox.Event) []attribute.KeyValue {
	i := e.Info
	attrs := []attribute.KeyValue{attrProvider.String(e.Provider), attrOperation.String(string(e.Op))}
	for _, a := range []attribute.KeyValue{
		attrFleet.String(i.Mark.Fleet), attrOwner.String(i.Mark.Owner), attrNonce.String(i.Mark.Nonce), attrSandboxID.String(i.ID),
	} {
		if a.Value.AsString() != "" {
			attrs = append(attrs, a)
		}
	}
	if i.ID != "" {
		attrs = append(attrs, attrState.String(i.State.String()))
	}
	if left := i.Left(); left > 0 && i.State.MayRun() {
		attrs = append(attrs, attrLeaseLeft.Float64(left.Seconds()))
	}
	if e.Op != sandbox.OpScope {
		return append(attrs, attrAttempt.Int(e.Attempt))
	}
	for _, k := range slices.Sorted(maps.Keys(i.Tags)) {
		attrs = append(attrs, attribute.String(tagPrefix+k, i.Tags[k]))
	}
	return attrs
}

// status sets the status of an event's span.
func (o *Observer) status(span trace.Span, e sandbox.Event) {
	if e.Err == nil || waiting(e) {
		return
	}
	word, text := classify(e.Err)
	if (e.Op == sandbox.OpExtend || e.Op == sandbox.OpGet) && errors.Is(e.Err, context.Canceled) { // the beats ended while one was under way
		span.SetAttributes(semconv.ErrorTypeKey.String(word))
		return
	}
	o.fail(span, e.Err, word, text)
}

// fail sets a span's status and what is known of its error, by OpenTelemetry's conventions.
func (o *Observer) fail(span trace.Span, err error, word, text string) {
	attrs := []attribute.KeyValue{semconv.ErrorTypeKey.String(word)}
	if api, ok := errors.AsType[*sandbox.APIError](err); ok {
		if api.Status != 0 {
			attrs = append(attrs, semconv.HTTPResponseStatusCode(api.Status))
		}
		if api.Code != "" {
			attrs = append(attrs, attrCode.String(api.Code))
		}
		if api.RequestID != "" {
			attrs = append(attrs, attrRequestID.String(api.RequestID))
		}
	}
	if leak, ok := errors.AsType[*sandbox.LeakError](err); ok {
		attrs = append(attrs, leftovers(leak)...)
	}
	span.SetAttributes(attrs...)
	span.SetStatus(codes.Error, o.describe(err, text))
}

// waiting reports whether an event's error says only that something takes its time.
func waiting(e sandbox.Event) bool {
	if e.Op != sandbox.OpConfirm || e.Final {
		return false
	}
	_, api := errors.AsType[*sandbox.APIError](e.Err)
	return !api
}

// leftovers are the attributes that name what may be left.
func leftovers(leak *sandbox.LeakError) []attribute.KeyValue {
	var names []string
	var until time.Time
	endless := false
	for _, i := range leak.Sandboxes {
		if len(names) < told {
			names = append(names, cmp.Or(i.ID, i.Mark.Nonce))
		}
		if i.Deadline.After(until) {
			until = i.Deadline
		}
		endless = endless || i.Deadline.IsZero()
	}
	attrs := []attribute.KeyValue{attrLeft.StringSlice(names)}
	if !endless {
		attrs = append(attrs, attrLeftUntil.String(until.UTC().Format(time.RFC3339)))
	}
	return attrs
}

// A kind is a class of errors that has a word of its own.
type kind struct {
	err  error
	word string
}

// kinds are the classes in the order in which they count: what the library concluded, then what the service said.
func kinds() []kind {
	return []kind{
		{errVanished, "no_return"},
		{sandbox.ErrLeaseLost, "lease_lost"},
		{sandbox.ErrStalled, "stalled"},
		{sandbox.ErrMaxLifetime, "max_lifetime"},
		{sandbox.ErrShutdown, "shutdown"},
		{sandbox.ErrScopeEnded, "scope_ended"},
		{sandbox.ErrNotFound, "not_found"},
		{sandbox.ErrConflict, "conflict"},
		{sandbox.ErrRateLimited, "rate_limited"},
		{sandbox.ErrQuota, "quota"},
		{sandbox.ErrUnauthenticated, "unauthenticated"},
		{sandbox.ErrPermission, "permission_denied"},
		{sandbox.ErrInvalid, "invalid"},
		{sandbox.ErrUnavailable, "unavailable"},
		{errors.ErrUnsupported, "unsupported"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
		{sandbox.ErrNotStarted, "not_started"},
	}
}

// classify returns the class of err, from a set with an end, and the text that goes with it.
func classify(err error) (word, text string) {
	if _, leak := errors.AsType[*sandbox.LeakError](err); leak {
		return "leak", "possible leak"
	}
	for _, k := range kinds() {
		if errors.Is(err, k.err) {
			return k.word, k.err.Error()
		}
	}
	if api, ok := errors.AsType[*sandbox.APIError](err); ok && api.Status != 0 {
		return strconv.Itoa(api.Status), ""
	}
	return semconv.ErrorTypeOther.Value.AsString(), ""
}

func errorType(err error) attribute.KeyValue {
	word, _ := classify(err)
	return semconv.ErrorTypeKey.String(word)
}

// describe returns what of an error's text is the library's or the service's own, where text is what the library concluded.
func (o *Observer) describe(err error, text string) string {
	if o.cfg.ErrorText {
		return err.Error()
	}
	api, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		return text
	}
	said := *api
	said.Err = nil // may be the cause that a caller gave to its cancel
	if text == "" || said.Kind != nil && said.Kind.Error() == text {
		return said.Error()
	}
	return text + ": " + said.Error()
}
