// Package boat runs sandboxes on boat.dev (once "Ascii Box"), by its HTTP API and with the standard library alone.
//
//	p, err := boat.FromEnv() // BOAT_API_KEY, BOAT_BASE_URL
//	if err != nil { ... }
//	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci-agents", Journal: j})
//	if err != nil { ... }
//	err = m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
//		r, err := sb.Exec(ctx, sandbox.Shell("make test"))
//		return errors.Join(err, r.Err())
//	})
//
// # Who ends a sandbox
//
// The service, by a TTL (ttlSeconds): it counts from the create or the last beat, whatever goes on inside, for there is no
// idle clock. A beat sets it anew, by one request, and its answer tells deadline and state: the service also says yes to a
// beat for a machine that it has stopped. What nobody extends is archived, and that is all: the machine stops, its record
// stays for ever, and the sweeper or the journal has to delete it.
//
// After the owner's death a sandbox lives q + W + the time to archive it: q is a request of the owner's that is still
// under way, W the window. Archiving took 2 to 30 s where somebody looked. It saves the disk first and is refused if that
// fails; with snapshots:false, as every create here asks for, there should be nothing to save.
//
// An account may have a longest TTL. The service refuses a longer one, or shortens it and says no more than the deadline.
// Beats follow the deadline that was granted.
//
// # The gap
//
// A create carries no name, label or tag. The mark is the sandbox's name, which a second request writes at once; every
// beat writes it again, in case somebody has edited it. Between the two requests nothing says whose the sandbox is. What
// covers the gap is the create's idempotency key, which is the mark's nonce: within 24 h the same key and the same
// body bring the same sandbox. A scope whose create was not answered asks that way before it ends, and deletes what comes.
// For a scope whose process died, the journal holds the body ([Provider.Order]), and a replay sends it again ([Provider.Repeat]).
// An orphan of that gap is archived when its TTL is over, and shows in lists without a mark: reports name it, and nothing
// here deletes it.
//
// For this reason a body holds nothing secret: Spec.Env is kept in a file in the sandbox, ~/.sandglass, written before the
// first command, and another process reads it there.
//
// # Whose it is
//
// The organization is pinned: without Config.Org the account's own ("personal"), not the one that happens to be active. Lists of an
// organization show colleagues' sandboxes too. They are left out here, and never marked as ours: what counts is what the
// account owns and has created. A key is told from others by [Provider.Name], for a sandbox of another account looks like
// one that does not exist.
//
// # When it is gone
//
// A delete needs no stop first. It is accepted, and a look finds nothing within a second. What stays of it is an
// operation that clears the data away and may be "blocked" for hours: it holds no machine, is not waited for, and is
// written to the log. Lists lag, and prove nothing.
//
// A key may lack the right to delete. The sandbox is then stopped instead, which ends what bills most, and its record is
// reported. No request tells beforehand what a key may do.
//
// # What stays
//
// Named snapshots and forks outlive the sandbox they were made of. Nothing here makes any.
//
// # Commands
//
// They run as "user" in /home/user, where sudo needs no password. See the Exec method of what [Provider.Open] returns.
// Standard input is not offered: the service has no way to bring any.
package boat
