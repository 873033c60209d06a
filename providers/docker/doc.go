// Package docker runs sandboxes as containers of a Docker engine: one container a sandbox, on Linux, from API version
// 1.41 (engine 20.10) on. It is a module of its own, on the official client github.com/moby/moby/client.
//
//	p, err := docker.FromEnv()
//	if err != nil { ... }
//	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci-agents"})
//	if err != nil { ... }
//	err = m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
//		r, err := sb.Exec(ctx, sandbox.Shell("make test"))
//		return errors.Join(err, r.Err())
//	}, func(s *sandbox.Scope) { s.Spec.Image = "golang:1.26" })
//
// # Who ends a container
//
// An engine knows no lease, so the container brings its own. Its first process is a watchdog, a small script for the
// image's /bin/sh. It counts down, and when it ends, the kernel kills everything inside and the engine removes the
// container, with its anonymous volumes. No client is needed for that. The image's own ENTRYPOINT and CMD are not run,
// nor is its HEALTHCHECK: what is to run, runs by Exec.
//
// A beat is a line to the watchdog's standard input, by way of the engine. It needs no new process, no disk and no
// network inside, so that none of these can block it by being full; and it is answered, so that a beat is a success
// only if the watchdog has heard it. Its answer, which says what is left, is where [sandbox.Info.Deadline] comes from.
// The hard end, [sandbox.Mark.Lifetime] after the start, is an argument of the watchdog, which no beat and nothing
// inside can change.
//
// After the owner's death the container lives q + W + 1 s + its removal: q is a request of the owner's that is still
// under way, W the window, the second is the watchdog's. The time is that since the machine was started, so that a
// suspended machine's sandboxes end when it wakes.
//
// # What the watchdog withstands, and what not
//
// It is process 1, under a user of its own, whom no image has. All but the last of these was tried on engine 20.10:
//
//   - Signals from inside do nothing to it, KILL and STOP included, nor does kill -STOP -1. Root inside cannot trace it,
//     read its environment or write to its input either, since the capability for that is not among the default ones.
//   - A full process table, a fork bomb, a full disk and a steady flow of orphans delay neither beats nor the end.
//     Orphans are reaped.
//   - Root inside that first becomes the watchdog's user, which the default capabilities SETUID and SETGID allow, can
//     write beats, which prolong the container to its hard end, and can attach a debugger, which freezes the watchdog
//     for as long as it likes. That is no accident but an attack. Without these two capabilities ([Options].CapDrop), or
//     with commands that do not run as root, it is closed.
//   - The engine's pause freezes it like everything else. A paused container is residue, [sandbox.StateDormant], for the
//     sweeper; it ends at once when it is unpaused after its deadline.
//   - A restart by hand starts a new run with a new hard end. Beats notice: [sandbox.Info.Run] is another.
//   - A container that was created and not yet started has no process and so no watchdog. It is residue too. A process
//     that is killed in the few milliseconds between the two leaves one.
//   - While the engine itself is down, its containers are down with it, or, where it is set up to leave them running,
//     end on their own. They are removed when it is back, as its documentation says.
//
// The watchdog needs a shell whose read knows a limit of time: busybox's sh (Alpine and others) and bash do, and dash
// (Debian and Ubuntu) hands over to the bash beside it. Where there is dash alone, a sleeping child is its clock. What is
// lost then: root inside, though nobody else, can kill or stop that child, and with it the clock; and when no further
// process can be made, the container ends at once. An image without a /bin/sh that every user may run is refused.
//
// # Images committed from a sandbox
//
// They inherit its labels, and so does every container made of them. A mark counts only under the container name that
// is made from its nonce, so such containers are foreign; and tags that a new sandbox inherits are covered.
//
// # Commands
//
// They run as the image's own user unless [sandbox.Cmd] names another, so that agents of most images are root inside
// and can install packages. See the Exec method of what [Provider.Open] returns for what a timeout can kill.
package docker
