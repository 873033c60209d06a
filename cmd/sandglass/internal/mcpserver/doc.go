// Package mcpserver serves one sandbox to one client of the Model Context Protocol, over a pair of streams.
//
// The session is the scope. The sandbox is made at the first tool call that needs one, its lease is extended while the
// client is connected, and it is deleted and seen to be gone when the client goes away:
//
//	how the client goes                     what ends the sandbox
//	end of input, a broken frame            [Serve], at once
//	nobody reads the output any more        [Serve], when a write fails, or when one has not got through for 4 pings
//	it hangs with both streams open         [Serve], after 3 pings without an answer (in protocols that have pings)
//	it forgets the sandbox                  the stall timeout of the scope: no tool call under way or ended for so long
//	ctx ends (a signal)                     [Serve], at once
//	the server is killed, its host is lost  the lease, within the window; the journal's replay and the sweeper
//
// A client that answers pings says that it is there, not that it wants the sandbox: an application that is open over
// night answers them all. Therefore pings never count as progress for the stall timeout; tool calls do, and the tool
// sandbox_info is there for an agent that thinks for long. Protocol versions from 2026-07-28 on let a server send no
// requests, so that a client of those that hangs is noticed by the other signs alone. A client that has never answered a
// ping is not judged by them.
//
// What ends a sandbox while the client is connected (a lost lease, the max lifetime, a stall, silence, the client's own
// order) is said in the errors of later calls, and no new sandbox takes its place unless the tool new_sandbox is called:
// an agent that went on in an empty sandbox without knowing would draw wrong conclusions from it.
package mcpserver
