// Command sweeper makes one pass over a fleet and prints what it saw and did: for cron, every 15 minutes.
//
//	go run ./examples/sweeper -fleet ci-agents -dry-run
//	go run ./examples/sweeper -fleet ci-agents -every 15m
//
// The exit code is 0 if nothing is left to do, 1 if something was left, capped or could not be seen, 2 for wrong flags.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sandglass-dev/sandglass/examples/internal/demo"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

func main() {
	fleet := flag.String("fleet", "", "the fleet to look after; required: nothing outside of it is ever touched")
	provider := flag.String("provider", "auto", "auto, docker or memory")
	every := flag.Duration("every", 0, "go on, with a pass so often; 0: one pass")
	dryRun := flag.Bool("dry-run", false, "judge, and delete nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	s, err := newSweeper(ctx, *provider, *fleet, *dryRun)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sweeper:", err)
		os.Exit(2)
	}
	if *every > 0 {
		_ = s.Run(ctx, *every) // ends with ctx; every pass has been printed
		return
	}
	report, err := s.Sweep(ctx)
	print(report, err)
	if err != nil {
		os.Exit(1)
	}
}

func newSweeper(ctx context.Context, provider, fleet string, dryRun bool) (*sweep.Sweeper, error) {
	p, why, err := demo.Provider(ctx, provider)
	if err != nil {
		return nil, err
	}
	fmt.Printf("provider: %s (%s)\n", p.Name(), why)
	return sweep.New(sweep.Config{
		Fleet: fleet, Providers: []sandbox.Provider{p}, DryRun: dryRun,
		ProtectTags: map[string]string{"keep": ""}, // whoever sets this tag wants it kept, whatever its value
		OnPass:      print,
	})
}

func print(r sweep.Report, err error) {
	fmt.Println(r.Ended.Format(time.TimeOnly))
	_ = r.WriteTable(os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sweeper:", err)
	}
}
