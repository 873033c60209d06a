// Command agentrunner runs a pool of agent tasks, each in a sandbox of its own that ends with its task: whether the
// task works, fails, panics or hangs. It prints a table of the outcomes and how many sandboxes are left.
//
//	go run ./examples/agentrunner
//	go run ./examples/agentrunner -provider memory -workers 2
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/sandglass-dev/sandglass/examples/internal/demo"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func main() {
	provider := flag.String("provider", "auto", "what to run on: auto, docker or memory; auto is docker if an engine answers")
	image := flag.String("image", "", "image of the sandboxes; default: the provider's own")
	workers := flag.Int("workers", 3, "how many tasks run at once")
	stall := flag.Duration("stall", 3*time.Second, "how long a task may neither use its sandbox nor call sandbox.Touch")
	flag.Parse()

	// The first signal ends the tasks, and with them their sandboxes. A second one ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	if err := run(ctx, *provider, *workers, sandbox.Scope{
		Spec:         sandbox.Spec{Image: *image},
		Window:       time.Minute,
		MaxLifetime:  10 * time.Minute,
		StallTimeout: *stall,
	}); err != nil {
		fmt.Fprintln(os.Stderr, "agentrunner:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, provider string, workers int, scope sandbox.Scope) error {
	if workers < 1 {
		return fmt.Errorf("%d workers do no work", workers)
	}
	p, why, err := demo.Provider(ctx, provider)
	if err != nil {
		return err
	}
	fmt.Printf("provider: %s (%s)\n", p.Name(), why)
	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "agentrunner", Scope: scope})
	if err != nil {
		return err
	}
	outcomes := RunAll(ctx, m, workers, tasks(func(job, line string) { fmt.Printf("[%s] %s\n", job, line) }))
	printTable(os.Stdout, outcomes)
	left := len(m.Live())
	fmt.Printf("left: %d\n", left)
	if left > 0 {
		return errors.New("sandboxes may be left: see above")
	}
	return context.Cause(ctx)
}

// printTable prints one line a task.
func printTable(w io.Writer, outcomes []Outcome) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tCOMMIT\tTOOK\tOUTCOME\tERROR")
	for _, o := range outcomes {
		text := ""
		if o.Err != nil {
			text = strings.Join(strings.Fields(o.Err.Error()), " ")
		}
		fmt.Fprintf(t, "%s\t%s\t%.1fs\t%s\t%s\n", o.Task.JobID, o.Task.Commit, o.Took.Seconds(), word(o.Err), text)
	}
	_ = t.Flush()
}

// word is an outcome in a word. A leak is the one to look at first.
func word(err error) string {
	if leak, ok := errors.AsType[*sandbox.LeakError](err); ok {
		return fmt.Sprintf("left %d behind", len(leak.Sandboxes))
	}
	if _, ok := errors.AsType[*PanicError](err); ok {
		return "panicked"
	}
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, sandbox.ErrStalled):
		return "stalled"
	case errors.Is(err, sandbox.ErrLeaseLost):
		return "lost"
	case errors.Is(err, sandbox.ErrMaxLifetime):
		return "too long"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, sandbox.ErrNotStarted):
		return "not started"
	}
	return "failed"
}
