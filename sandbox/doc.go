// Package sandbox gives every cloud sandbox a life with an end.
//
// [Manager.WithSandbox] runs a function in a new sandbox. However the function ends, the sandbox is
// deleted and seen to be gone; where no process is left to do that, the lease at the provider ends it.
//
//	m, err := sandbox.NewManager(provider, sandbox.Config{Fleet: "ci-agents"})
//	...
//	err = m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
//		res, err := sb.Exec(ctx, sandbox.Shell("go test ./..."))
//		if err != nil {
//			return err
//		}
//		return res.Err()
//	})
//
// Who ends the sandbox, and how long it lives at most. W is [Scope].Window, H is [Scope].MaxLifetime:
//
//	the function returns, fails,      WithSandbox, before it returns
//	panics or calls runtime.Goexit
//	its context ends, it ignores      WithSandbox, after Config.Grace
//	that
//	no progress (StallTimeout), H,    WithSandbox, likewise
//	Shutdown, lost lease
//	the process is killed, exits by   the provider: W after the last beat
//	os.Exit, or its host is lost
//	the provider does not answer      the provider: W after the last beat;
//	                                  the error is a LeakError until it is seen
//
// What no process and no lease can end is what a platform keeps after that, and what it does not do: residue that bills
// (a paused machine, a stopped record), a deadline that is not enforced. A journal and a sweeper find it.
//
// Programs use [Manager], [Config], [Scope], [Sandbox], [Cmd] and [Result]; the rest is for adapters and for those who
// watch and clean up. [Provider] and [Sandbox] never gain a method: growth is a field, or an interface found with [As].
// For unit tests there is a provider in memory, package sandboxtest.
//
// No signal is handled here and no process ended: see [signal.NotifyContext] for a context that a signal ends.
package sandbox
