// Package modal runs sandboxes on Modal, by way of its official SDK for Go, which is pinned in this package's own module.
//
//	p, err := modal.FromEnv()
//	...
//	defer p.Close()
//	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci-agents"})
//
// A [Provider] is one environment of one workspace.
//
// # What ends a sandbox
//
// The service cannot extend a sandbox. Every create carries its hard end, in whole seconds rounded down, of at most 24
// hours, which nothing moves; and an idle time as long as the window, after which the service ends what nobody uses. But
// a command that runs is use, and so is a connection to a port: an owner that dies during a long command would leave its
// sandbox to the hard end.
//
// So the first process of every sandbox is a watchdog, a small shell script that needs no more than sh and sleep. Each
// beat is a command of a second or two that tells it of a new end, and that restarts the service's idle time as well. The
// watchdog counts by the sandbox's own clock, in steps of a second; a beat carries a duration and no time, so that
// nobody's clock must be right. When the end has come, the watchdog ends, and with its first process the whole sandbox,
// with all commands in it. A beat that the watchdog does not answer has failed: then the scope's lease is over within the
// window, and its owner is told.
//
// The command that the caller wants to run from the start, in [Options].Command, is a child of the watchdog. For images
// without a shell see [Options].Beat, and what is not promised then.
//
// Whoever is root inside can stop the watchdog, or write beats of his own. Then the idle time and the hard end are left.
//
// # What deletes it
//
// Delete asks for the end and waits for the service's word that it has come, by status and not by exit code. A name is
// made from the mark's nonce and is unique among what runs in one App; the mark stands in three tags, written at create
// and never again. Lists go over the whole environment, so that what was made under another App's name is found.
//
// # What is not known
//
// Whether an end of the first process ends commands at once is inferred from the service's documents, as is that names and
// tags can be read at once. The limits of creates and tags, whether the idle time begins with the create or the start, how
// long a create may still appear, and whether a list hides what is about to end: the numbers in [Provider.Capabilities]
// are on the careful side.
//
// The service tells no time of its own with its answers. What a sweeper reckons from a sandbox's creation is by the
// sweeper's clock, which must not go wrong by more than its grace.
package modal
