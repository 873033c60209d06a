// Package sandboxtest is a sandbox service in memory, for unit tests of programs that use package sandbox: what
// net/http/httptest is to net/http.
//
//	p := sandboxtest.New(sandbox.Capabilities{})
//	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "test"})
//	...
//	p.Script(func(c sandbox.Cmd) bool { return c.Args[0] == "go" }, sandbox.Result{ExitCode: 1})
//	err = runTask(ctx, m, task)        // the code under test
//	...
//	if left := p.Live(); len(left) > 0 {
//		t.Errorf("still running: %v", left)
//	}
//
// A [Provider] is not a mock: it keeps sandboxes with leases that end, on a clock of its own, and a small POSIX shell
// runs the commands on a file system in memory. [Provider.Script] and [Provider.HandleExec] answer commands instead.
// Nothing of the host is touched: no file, no process, no socket.
//
// What can go wrong is ordered with [Provider.Fault], call by call, and with [Provider.Behave], as a habit of the
// service. [Kinds] imitates the services that have adapters: how they extend, end, name, list and delete.
//
// All of it works inside a bubble of testing/synctest, where hours pass at once, and outside. A Provider may be made
// outside of the bubble that uses it, but is not to be used in two. It starts no goroutine but those of commands
// and copies under way, and needs no Close.
package sandboxtest

import (
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Everything returns the facts of a service that can do all there is: it sets deadlines and keeps to them, kills at
// expiry, confirms deletes, makes a sandbox once and runs every kind of command. Windows are 1 s to 24 h in steps of
// 1 s, and one delete takes no longer than a second.
func Everything() sandbox.Capabilities {
	return sandbox.Capabilities{
		Extend:        sandbox.ExtendSet,
		MinWindow:     time.Second,
		MaxWindow:     24 * time.Hour,
		Step:          time.Second,
		ReadsDeadline: true,
		AtExpiry:      sandbox.StateGone,
		CreateOnce:    true,
		MarkAtCreate:  true,
		DeleteTime:    time.Second,
		MaxTags:       32,
		MaxTagKey:     64,
		MaxTagValue:   256,
		Stdin:         true,
		SplitOutput:   true,
		BinaryOut:     true,
		Kill:          true,
		Endpoints:     true,
	}
}
