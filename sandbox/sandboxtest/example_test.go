package sandboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// runTask is the code under test: it gives one task to a coding agent in a sandbox and returns the agent's report.
func runTask(ctx context.Context, m *sandbox.Manager, task string) (report string, err error) {
	err = m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		if err := sb.Upload(ctx, "/src/task.md", strings.NewReader(task)); err != nil {
			return err
		}
		res, err := sb.Exec(ctx, sandbox.Shell("cd /src && agent < task.md > report && cat report"))
		if err != nil {
			return err
		}
		report = string(res.Stdout)
		return res.Err()
	})
	return report, err
}

// A unit test of an agent runner. The agent is answered for; the rest of its command line really runs.
func Example() {
	ctx := context.Background()
	p := sandboxtest.New(sandbox.Capabilities{})
	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "unit-test"})
	if err != nil {
		fmt.Println(err)
		return
	}
	p.Script(func(c sandbox.Cmd) bool { return c.Args[0] == "agent" }, sandbox.Result{Stdout: []byte("3 files changed\n")})

	report, err := runTask(ctx, m, "Mend the build.")
	fmt.Print("report: ", report)
	fmt.Println("error:", err)
	fmt.Println("running afterwards:", len(p.Live()))

	// The same with a key that may create and not delete: the work is done, and the leak is named.
	p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(403), Times: -1})
	report, err = runTask(ctx, m, "Mend the tests.")
	leak, _ := errors.AsType[*sandbox.LeakError](err)
	fmt.Print("report: ", report)
	fmt.Println("leak:", leak.Sandboxes[0].ID, errors.Is(err, sandbox.ErrPermission))
	fmt.Println("running afterwards:", len(p.Live()))

	p.Expire() // nobody is left to delete it, and its lease ends
	fmt.Println("running after the lease:", len(p.Live()))

	// Output:
	// report: 3 files changed
	// error: <nil>
	// running afterwards: 0
	// report: 3 files changed
	// leak: sb-2 true
	// running afterwards: 1
	// running after the lease: 0
}
