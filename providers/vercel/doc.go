// Package vercel runs sandboxes on Vercel Sandbox, over its HTTP API (version 3 for creates, 2 for all else), with the
// standard library alone: there is no official client in Go.
//
//	p, err := vercel.FromEnv()
//	...
//	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci-agents"})
//
// A [Provider] is one project of one team. The service keeps two things, and so an ID here has two parts: a record,
// which has a name and stays until it is deleted, and the sessions that run under it one after another, each a machine
// of its own. The lease is the session's.
//
// # What ends a sandbox
//
// Every create says when the session ends, in milliseconds, and that nothing of it is to be kept ("persistent": false;
// the service's default would be a billed snapshot at each stop). The name is made from the mark's nonce and is unique
// in its project, so that a create which was not answered can be repeated; mark and fleet take two of the five tags.
//
// The service can only add to what is left of a session, and nothing can be taken away again. So a beat sends the
// difference between the window and what is left. An extension without an answer may yet take effect beside the next one:
// one is put up with, and if it comes the deadline lies a beat further ahead than the window; further ones are reckoned
// with, so that it never lies further than that.
//
// The plan bounds a session: 45 minutes on Hobby, 24 hours on Pro and Enterprise when this was written. No request tells
// which. An extension beyond that is refused with a code of its own; beats then stop, and the scope ends before its
// session does.
//
// At the deadline the session ends and its record stays, stopped; it costs nothing, but an official SDK that names it
// starts it anew, with a new session that bills. Nothing here ever asks for that. A journal or a sweeper deletes the
// record, and the sweeper tells by the session that another one has begun.
//
// # What deletes it
//
// Delete stops the session and waits for that, then deletes the record with the snapshots that no other sandbox uses
// (see [Config].KeepSnapshots). Gone is what has neither a record nor a session that runs; that the name alone is not
// found is no proof. Drives are never deleted.
//
// # What is not known
//
// The service's limits of requests, how long a create may still appear, how late a session is stopped, and for how long
// the record of a session can be read after a delete: the numbers in [Provider.Capabilities] are on the careful side.
package vercel
