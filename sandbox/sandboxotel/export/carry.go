package export

import (
	"context"
	"os"

	"go.opentelemetry.io/otel/propagation"
)

// The names under which a process hands its trace to its children, as OpenTelemetry specifies it.
const (
	parentVar = "TRACEPARENT"
	stateVar  = "TRACESTATE"
)

// Parent returns ctx with the span that TRACEPARENT and TRACESTATE name in the environment as the current one, so that what
// this process does is a child of what started it. Without them, or if they are not well formed, it returns ctx.
func Parent(ctx context.Context) context.Context {
	carrier := propagation.MapCarrier{"traceparent": os.Getenv(parentVar), "tracestate": os.Getenv(stateVar)}
	return propagation.TraceContext{}.Extract(ctx, carrier)
}

// Environ returns the current span of ctx as environment variables for a child process, in the form of [os.Environ]. It is
// empty where there is none.
func Environ(ctx context.Context) []string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	var env []string
	if parent := carrier["traceparent"]; parent != "" {
		env = append(env, parentVar+"="+parent, stateVar+"="+carrier["tracestate"]) // the state is set even if empty: it replaces ours
	}
	return env
}
