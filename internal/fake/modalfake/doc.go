// Package modalfake is Modal's sandboxes in memory: one workspace's apps, images, secrets and sandboxes as the official
// SDKs see them, over gRPC, the shared state machine of package fake and the shell of package shell.
//
// A [Server] answers for both of Modal's services, the control plane and the task command router, on one listener
// without TLS: on the loopback interface for the official SDKs, or on a network in memory within a bubble of
// testing/synctest. Tunnels are served by [Server.ServeHTTP].
//
// Both families of calls are there. An id of "sb-" and 22 letters and digits is of the older backend, any other of the
// newer, and a call of one family does not know the other's sandboxes.
//
// A sandbox's entrypoint really runs in the shell, and the sandbox ends when it exits. It is idle when no command, no
// connection through a tunnel and no write to a standard input is under way.
//
// # Where the facts end
//
// What no source tells is a quirk where it matters to a client: whether a timeout counts from the create, how a command ends
// whose sandbox does, limits of tags, and so on. What the zero [Quirks] do there is a guess that only a real account could
// settle. The codes of most refusals are guesses too.
//
// # What it does not do
//
// It has no network and no images: every image is the same small Unix, in which the commands of a Dockerfile are run.
// Functions, classes, queues and persistent sandboxes are not there, nor snapshots of memory or at the exit. A volume is
// copied into a sandbox at its start and back at its end or when it is reloaded, and is never read-only. Terminals are
// pipes. CPU, memory, regions and allowlists are words only, some of them checked. A timeout of a command runs no
// traps. A command's output keeps 64 MiB.
package modalfake
