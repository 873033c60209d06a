// Package e2b runs sandboxes on E2B (e2b.dev) or a deployment of its open-source server. It speaks the HTTP API directly,
// on the standard library: E2B publishes no SDK for Go.
//
//	p, err := e2b.FromEnv() // E2B_API_KEY and the like
//	if err != nil { ... }
//	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci-agents"})
//	if err != nil { ... }
//	err = m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
//		r, err := sb.Exec(ctx, sandbox.Shell("make test"))
//		return errors.Join(err, r.Err())
//	}, func(s *sandbox.Scope) { s.Spec.Image = "code-interpreter-v1" })
//
// # Who ends a sandbox
//
// The service does, at the end that every create carries and every beat sets anew. Auto-pause is off, in every create and
// in so many words: with it, the end would park the sandbox for ever instead. After the owner's death the sandbox lives
// q + W + e: q is a request that is still under way, W the window, e the service's lateness, which is fractions of a
// second while its evictor works. Before the answer to the create it is up to 70 s + W, since the service starts the clock
// when the machine runs.
//
// What is outside of that:
//
//   - Whoever has the key can pause the sandbox, or connect to it with an SDK that does. A paused sandbox has no end; it is
//     residue, [sandbox.StateDormant], for the scope's own end or the sweeper. This package never pauses, connects or resumes.
//   - A sandbox that is being resumed while it is deleted comes back, with a lease of at least 5 min of its own.
//   - A delete that fails inside of the service can take the record away and leave the machine, which no call shows. The
//     service finds such machines by itself, within about 80 s; until then it is reported as possibly alive. Machines of
//     which the service has lost the record in other ways are out of anybody's reach from here.
//   - Snapshots that a function makes by the service's API outlive the sandbox: see [Provider.Snapshots]. Volumes outlive it too.
//   - No run goes beyond the plan's longest, 1 h or 24 h, and the service cuts longer extensions without a word. A create
//     beyond it is refused. Beats read the end back and find the cut, and the scope ends before it, with
//     [sandbox.ErrMaxLifetime].
//
// # How it is seen to be gone
//
// The service finds neither the id nor, in two lists a moment apart, anything with the create's nonce. An undisturbed life
// without commands is create, look, delete, look and the two lists: six requests, and two for each beat, one to set the
// end and one to read it back.
//
// # Commands
//
// They run by the daemon inside every sandbox, as the template's default user unless [sandbox.Cmd] names another, and in a
// session of their own. The daemon's timeouts and signals would kill a command and spare its children; what is done instead
// is said at the Exec method of what [Provider.Open] returns. A stream that says nothing for 100 s, although a sign of life
// is due every 30 s, is given up.
package e2b
