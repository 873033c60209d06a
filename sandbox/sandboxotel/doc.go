// Package sandboxotel tells OpenTelemetry what package sandbox does: a trace of each scope, and metrics that say whether
// anything is left.
//
//	o, err := sandboxotel.New(sandboxotel.Config{})
//	...
//	defer o.Close()
//	m, err := sandbox.NewManager(provider, sandbox.Config{Fleet: "ci-agents", Observers: []sandbox.Observer{
//		o.Observe, sandbox.LogTo(slog.Default()), // whoever observes also takes over the logging of possible leaks
//	}})
//
// [Observer.Sweeps] and [Observer.Pass] do the same for package sweep, [Observer.Find] for package leakcheck.
// Only the API of OpenTelemetry is used here. Package export, a module of its own, sets up exporters from the environment.
//
// # Spans
//
// A scope is one span, "sandbox scope", a child of the span in the context that WithSandbox was called with. Its steps are
// the children: "sandbox create", "sandbox ready", "sandbox extend" (a beat), "sandbox run" (the function), "sandbox exec",
// "sandbox delete", "sandbox confirm" (a look whether it is gone; the last one spans all of them) and so on, each attempt one
// span. What the function itself starts is beside these, under the caller's span, unless it uses [Observer.Context].
//
// Ids, owner and the user's tags are attributes of spans. No command, output, environment, path or endpoint is. An error's
// kind is error.type; the status says what the library and the service said, never what a function or a caller's cancel
// said, unless [Config].ErrorText is set. Waiting is no error: looks that find a sandbox still on its way out, and calls
// that a scope's regular end cut short, leave their span's status unset.
//
// The span of a scope ends with it, or when its sandbox has been deleted under a function that does not return, or with
// [Observer.Close]. Until then it is not exported, and a process that is killed loses it: its children's parent is then
// missing in the trace.
//
// # Metrics
//
//	sandglass.sandbox.live             {sandbox}  made, or perhaps made, and not yet seen to be gone; kept ones too
//	sandglass.sandbox.unverified       {sandbox}  of them those whose end has failed: they may run on until their lease ends
//	sandglass.lease.oldest_age         s          age of the oldest live sandbox, since its create was sent
//	sandglass.beat.lateness            s          how long after it was due a beat was answered; see [Config].Beat
//	sandglass.sandbox.deletes          {sandbox}  ends that came out, by sandglass.outcome: gone or left
//	sandglass.sandbox.end.duration     s          from the function's end until the sandbox was seen to be gone
//	sandglass.sandbox.leaks            {sandbox}  reports of what may be left, each time that one is made
//	sandglass.operation.duration       s          one attempt at a step, by sandglass.operation
//	sandglass.sweep.duration           s          one pass of a sweeper
//	sandglass.sweep.sandboxes          {sandbox}  what became of the fleet's in the last pass, by sandglass.outcome
//	sandglass.sweep.last_success.time  s          when the last pass ended that left nothing undone, since the Unix epoch
//	sandglass.leakcheck.duration       s          one check, by sandglass.outcome: clean, leak, blind, no_witness or error
//
// Attributes are sandglass.provider (the account), sandglass.fleet, sandglass.source (scope, replay, sweeper or leakcheck)
// and error.type, where they apply. Ids, nonces, owners and tags are never attributes of metrics: there is no bound to
// their number.
package sandboxotel
