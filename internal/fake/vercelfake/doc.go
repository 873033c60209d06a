// Package vercelfake is a Vercel Sandbox in memory: one team's projects, their named sandboxes and the sessions, commands
// and files of these, as the official SDK sees them, over the shared state machine of package fake and the shell of
// package shell.
//
// A [Server] is an [http.Handler], to be served on any listener: with net/http on the loopback interface for the
// official SDK, or on a network in memory within a bubble of testing/synctest. It serves "/v2/sandboxes" and the rest
// below any host, with and without "/api" before it, and answers for the ports of sandboxes at "<subdomain>.<domain>".
//
// One record of the state machine is one named sandbox, and one run of it is one session. At the end of its lease a
// sandbox is stopped: the record stays.
//
// # Where the facts end
//
// What no source tells is a quirk if it matters to a client, and each choice says that it is one. How long a stop takes
// and what a delete does to a session that is stopping are such choices, and the status of most refusals.
//
// # What it does not do
//
// It has no network and no images: every image is the same small Unix, and a source that is a repository or an archive is
// refused. It has no drives, no private networks and no terminals. CPU and memory are numbers only. A stop or a timeout of a
// command runs no traps, and signals that do not end a program are refused. A command's log keeps 64 MiB.
package vercelfake
