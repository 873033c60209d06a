// Command handover runs one long job in a sandbox through a restart of the runner: a deploy does not kill it, and
// neither does a crash.
//
//	go run ./examples/handover -provider docker     (start it, and end it with Ctrl-C after some seconds)
//	go run ./examples/handover -provider docker     (the next one goes on where that one was)
//	go run ./examples/handover -provider memory     (two runners, one after the other, in one process)
//
// The job is a series of commands, and what they have done is in the sandbox. The runner keeps the sandbox's id in a
// state file, as a real one keeps it in its database, and its claim on the sandbox in the crash journal beside it.
//
// On the first signal the runner finishes the command under way and lets go: the sandbox stays for a short time,
// KeepOnError. If no runner comes for it, its lease ends it. A runner that is killed lets go too, since the system drops
// its lock; then the next one has what is left of the Window to come back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sandglass-dev/sandglass/examples/internal/demo"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
)

func main() {
	provider := flag.String("provider", "auto", "auto, docker or memory; auto is docker if an engine answers")
	dir := flag.String("state", "", "folder for the journal and the state file; default: one for the user, below the temporary folder")
	steps := flag.Int("steps", 20, "how many steps of a second the job has")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, *provider, *dir, *steps); err != nil && !errors.Is(err, errHandOver) {
		fmt.Fprintln(os.Stderr, "handover:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, provider, dir string, steps int) error {
	p, why, err := demo.Provider(ctx, provider)
	if err != nil {
		return err
	}
	fmt.Printf("provider: %s (%s)\n", p.Name(), why)
	if dir == "" {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("sandglass-handover-%d", os.Getuid()))
	}
	if p.Name() != "memory" {
		return runner(ctx, p, dir, steps)
	}
	// What is in memory ends with the process, so both runners are in this one.
	first, cancel := context.WithTimeout(ctx, time.Duration(steps)*time.Second/2)
	defer cancel()
	if err := runner(first, p, dir, steps); !errors.Is(err, errHandOver) {
		return err
	}
	return runner(ctx, p, dir, steps)
}

// runner is one run of the program. The journal's lock on the job's entry is held until it is closed.
func runner(ctx context.Context, p sandbox.Provider, dir string, steps int) (err error) {
	j, err := journal.Open(filepath.Join(dir, "journal"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	m, err := sandbox.NewManager(p, sandbox.Config{
		Fleet: "handover", Journal: j,
		Scope: sandbox.Scope{Window: time.Minute, MaxLifetime: 10 * time.Minute, KeepOnError: 2 * time.Minute},
	})
	if err != nil {
		return err
	}
	job := job{state: filepath.Join(dir, "job"), steps: steps, stop: ctx}
	// The scope gets a context that the signal does not end, so that letting go is the job's own decision.
	err = job.run(context.WithoutCancel(ctx), m)
	// Only now: what was taken over is ours, and the rest is what nobody came for.
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if left := m.Replay(rctx); left != nil {
		fmt.Println("left to the next run:", left)
	}
	return err
}
