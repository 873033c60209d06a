// Package daytona runs sandboxes on Daytona, by its HTTP API and with the standard library alone.
//
//	p, err := daytona.FromEnv() // DAYTONA_API_KEY, DAYTONA_API_URL, DAYTONA_TARGET
//	if err != nil { ... }
//	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci-agents"})
//	if err != nil { ... }
//	err = m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
//		r, err := sb.Exec(ctx, sandbox.Shell("make test"))
//		return errors.Join(err, r.Err())
//	})
//
// # Who ends a sandbox
//
// The service, by a TTL (ttlMinutes): it counts from the create or the last beat, whatever state the sandbox is in, and
// destroys. A beat sets it anew, by one request, and its answer tells the deadline. Every create reads it back, for a
// service that does not know TTLs ignores the field without a word. What such a service makes is deleted at once and
// refused: see Config.AllowIdle for the fallback and what it does not promise.
//
// Beside it stand two clocks that are there for the case that something has switched the TTL off: the idle clock, which
// is as long as the whole life, since a beat is no activity and an owner who thinks is not idle; and "delete at once when
// stopped", so that nothing of ours is ever stopped, paused or archived by the service and stays.
//
// After the owner's death a sandbox lives q + W + the platform's lateness + its destruction: q is a request of the
// owner's that is still under way, W the window in whole minutes. How late the platform acts on a TTL is not published;
// its other clocks tick every 10 s. If the machine's host is away, the platform shows "destroying" until it is back.
//
// An organization may have a longest life (maxSandboxLifespan), counted from the create. Where it comes before the
// scope's own end, beats run into it, and the scope ends in time with [sandbox.ErrMaxLifetime].
//
// # When it is gone
//
// A delete is accepted first and done later, and refused (409) while a sandbox is being made: the core asks again. A
// look by id is right at once; lists lag for some seconds and are a second witness only.
//
// What the platform failed to destroy, and what had failed before its delete, it hides: a look finds nothing, and no SDK
// shows it. [Provider.Get] and [Provider.List] ask for these too and call them [sandbox.StateFailed], for there is nothing
// that says what became of the machine. They stay so for seven days (one day after a failed build), and nobody can delete
// them: reports name them as long. By the source of version 0.190 they are no longer billed.
//
// Names are made of the mark's nonce, and free again with the delete: a name never stands for an id here, although the
// service takes both.
//
// # What stays
//
// Forks of a sandbox keep it from being deleted, and are deleted first. Snapshots made of it stay, for somebody made them
// on purpose: a sweeper finds them by their source. Volumes are the account's own. Images built from a Dockerfile are
// kept by the platform for a day.
//
// # The key
//
// It needs the permissions write:sandboxes and delete:sandboxes, which are given one by one: with the first alone it makes
// sandboxes that it cannot delete. [Provider.Check] looks for both. It goes to the control plane and to the address of the
// machines that the control plane tells, and follows no redirect.
//
// # Commands
//
// They run as the sandbox's user. See the Exec method of what [Provider.Open] returns for how, and for what a timeout can
// kill. Standard input is not offered: a session's can be written, but not ended.
package daytona
