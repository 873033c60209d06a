// Package boatfake is a boat.dev that listens: its JSON REST API with accounts, wallets, exec, files and hosted ports, on
// the state machine of package fake and the machine of package shell.
//
// A [Server] is an [http.Handler] without goroutines of its own until something asks for one: in a bubble of
// testing/synctest serve it over internal/memnet, else on 127.0.0.1. One address does for all:
//
//	/api/v1/...                        the API
//	{subdomain}-{port}.on.boat.dev     hosted ports, by the Host header; see [Options.Domain]
//	anything else                      the web site: HTML with status 200, as a client with a wrong base URL gets to see
//
// # What it does as the service does
//
// A create takes no name; an Idempotency-Key holds for 24 h and for the same bytes. The TTL runs from the create, and
// expiry archives: the row stays and is listed. A PATCH sets the TTL anew and says 200 to what is archived. A delete needs
// the confirm header, hides the row at once, and its operation is blocked for hours. The list of a team's wallet shows the
// rows of other members, and a delete of those succeeds. Commands go on when their caller has gone or their timeout has
// passed.
//
// # What decides
//
// The state machine behind it, [Server.Service], has the truth, the knobs of the life cycle and the faults of
// operations: a create is one of sandbox.OpCreate, and so is a rename, which is its second half; a new TTL is one of
// OpExtend, a page of a list of OpList, a command of OpExec. An error there that is a *sandbox.APIError is answered with
// its status; any other breaks the connection. What is boat.dev's own is in [Quirks], and [Fault] breaks single answers.
// What the service is not known to do in one way rather than another is done in the less convenient way, and said where
// it is done.
//
// # What it does not do
//
// Of prompts, conversations, desktops, SSH keys, environments, secrets, setup scripts and webhooks there is nothing, nor
// can snapshots be named through the API. A fork begins with an empty disk, and a sandbox made from a named snapshot too.
package boatfake
