package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// errHandOver is what the job's function returns to let go of its sandbox. As an error, it has KeepOnError leave it.
var errHandOver = errors.New("the runner is to end: the job goes on, for the next runner to take over")

// A job is one that outlives its runner.
type job struct {
	state string          // the file with the id of its sandbox
	steps int             // how many commands it takes
	stop  context.Context // over: let go
}

// run goes on with the job where another runner left it, or else starts it.
func (j job) run(ctx context.Context, m *sandbox.Manager) error {
	if id, err := os.ReadFile(j.state); err == nil {
		err := m.AttachSandbox(ctx, string(id), true, j.work)
		if !errors.Is(err, sandbox.ErrNotStarted) || errors.Is(err, sandbox.ErrConflict) { // the latter: another runner is at it
			return err
		}
		fmt.Println("the sandbox is lost, starting anew:", err)
	}
	return m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		if err := os.WriteFile(j.state, []byte(sb.ID()), 0o600); err != nil {
			return err
		}
		return j.work(ctx, sb)
	})
}

// work does the steps that are not done yet. How many are is in the sandbox, where a crash of the runner cannot lose it.
func (j job) work(ctx context.Context, sb sandbox.Sandbox) error {
	fmt.Println("at work in sandbox", sb.ID())
	for {
		res, err := sb.Exec(ctx, sandbox.Shell("sleep 1; echo done >>/tmp/steps; wc -l </tmp/steps"))
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			return err
		}
		done, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
		if err != nil {
			return err
		}
		fmt.Printf("step %d of %d\n", done, j.steps)
		if done >= j.steps {
			return os.Remove(j.state) // the scope's end deletes the sandbox
		}
		if j.stop.Err() != nil {
			return errHandOver
		}
	}
}
