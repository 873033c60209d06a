// Package daytonafake is a Daytona that listens: control plane, toolbox and previews over HTTP, good enough for the
// official SDK, on the state machine of package fake and the machine of package shell.
//
// A [Server] is an [http.Handler] without goroutines of its own until something asks for one: in a bubble of
// testing/synctest serve it over internal/memnet, for the SDK on 127.0.0.1. Everything is routed by path, so that one
// address does for all:
//
//	/api/...              the control plane
//	/toolbox/{id}/...     the proxy to a sandbox's daemon
//	{port}-{id}.domain    previews, by the Host header; see [Options.PreviewDomain]
//	anything else         the dashboard: HTML with status 200, as a client with a wrong base URL gets to see
//
// # What it does as the service does
//
// Creates answer with the state of before the wait for the start; a taken name is 409; a sandbox that did not start is
// 400 without its id, and stays. ttlMinutes is a hard end in any state. Idle sandboxes are stopped, ephemeral ones
// destroyed; stopped ones are archived and deleted. These clocks act on ticks of 10 s and read a last activity that a
// refresh reaches only at the tick's end. A delete is accepted, renames the record at once and takes its time; while
// anything is pending it is 409. One of a sandbox in error hides the record for seven days and destroys nothing.
// Lists are pages by key over whatever order was asked for, lag behind, and flap after a delete. last-activity is 201
// for a sandbox that is dead.
//
// # What decides
//
// The state machine behind it, [Server.Service], has the truth, the knobs of the life cycle and the faults of
// operations: a create is one of sandbox.OpCreate, a setTtl of OpExtend, a page of a list of OpList, a command of OpExec.
// An error there that is a *sandbox.APIError is answered with its status; any other breaks the connection. What is
// Daytona's own is in [Quirks], and [Fault] breaks single answers on the wire. What the service is not known to do in one
// way rather than another is done in the less convenient way, and said where it is done.
//
// # What it does not do
//
// Of the event stream there is a 404, after which the SDK polls; of terminals, Git, language servers, volumes and
// secrets nothing. That a TTL ends sandboxes in error too is not known of the service. A session keeps its
// folder and its exported variables from command to command, but not functions or variables of its shell, and what a
// command leaves in the background ends with it.
package daytonafake
