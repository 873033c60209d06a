// Command quickstart runs a command in a sandbox and prints the sandbox's life as it happens.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -provider memory sh -c 'echo hello; sleep 60'
//
// SIGINT (Ctrl-C) and SIGTERM end the command and then the sandbox; the exit code is 130 or 143. A second signal ends
// the program at once, as SIGKILL does: then nobody is left to delete the sandbox, and its lease ends it 15 seconds
// after the last beat.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sandglass-dev/sandglass/examples/internal/demo"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func main() {
	provider := flag.String("provider", "auto", "what to run on: auto, docker or memory; auto is docker if an engine answers")
	image := flag.String("image", "", "image of the sandbox; default: the provider's own")
	flag.Parse()
	cmd := sandbox.Shell(`for i in 1 2 3 4 5 6; do echo "working: $i of 6"; sleep 1; done`)
	if flag.NArg() > 0 {
		cmd = sandbox.Cmd{Args: flag.Args()}
	}

	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals) // the second one does what it does by default
		cancel(stopped{s})
	}()

	err := run(ctx, *provider, *image, cmd)
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
	}
	switch s, ok := errors.AsType[stopped](context.Cause(ctx)); {
	case ok:
		os.Exit(s.exitCode())
	case err != nil:
		os.Exit(1)
	}
}

func run(ctx context.Context, provider, image string, cmd sandbox.Cmd) error {
	p, why, err := demo.Provider(ctx, provider)
	if err != nil {
		return err
	}
	fmt.Printf("provider: %s (%s)\n", p.Name(), why)

	d := diary{began: time.Now()}
	m, err := sandbox.NewManager(p, sandbox.Config{
		Fleet: "quickstart",
		Scope: sandbox.Scope{
			Spec:        sandbox.Spec{Image: image},
			Window:      15 * time.Second, // short, so that beats can be seen; the default of 3 minutes suits real work
			MaxLifetime: 10 * time.Minute,
		},
		Observers: []sandbox.Observer{d.observe},
	})
	if err != nil {
		return err
	}
	return m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		stdout, stderr := demo.NewLines(d.output), demo.NewLines(d.output)
		cmd.Stdout, cmd.Stderr = stdout, stderr
		res, err := sb.Exec(ctx, cmd)
		stdout.Flush()
		stderr.Flush()
		if err != nil {
			return err
		}
		return res.Err()
	})
}

// A diary prints what happens, with the time since it began.
type diary struct{ began time.Time }

// observe is a [sandbox.Observer].
func (d diary) observe(_ context.Context, e sandbox.Event) {
	lease := fmt.Sprintf("lease until %s, %v from now", time.Now().Add(e.Info.Left()).Format(time.TimeOnly), e.Info.Left().Round(time.Second))
	switch {
	case e.Err != nil && e.Op != sandbox.OpRun && e.Op != sandbox.OpExec && e.Op != sandbox.OpScope: // those come back from WithSandbox
		d.say("%s failed: %v", e.Op, e.Err)
	case e.Op == sandbox.OpCreate:
		d.say("created %.12s in %v", e.Info.ID, e.Took.Round(time.Millisecond))
	case e.Op == sandbox.OpReady:
		d.say("running, %s", lease)
	case e.Op == sandbox.OpExtend && !e.Final:
		d.say("beat: %s", lease)
	case e.Op == sandbox.OpRun:
		d.say("command over after %v", e.Took.Round(time.Millisecond))
	case e.Op == sandbox.OpDelete:
		d.say("deleted: the service took %v to agree", e.Took.Round(time.Millisecond))
	case e.Op == sandbox.OpConfirm:
		d.say("verified gone in %d ms", e.Took.Milliseconds())
	}
}

func (d diary) output(line string) { d.say("output: %s", line) }

func (d diary) say(format string, args ...any) {
	fmt.Printf("%7.3fs  "+format+"\n", append([]any{time.Since(d.began).Seconds()}, args...)...)
}

// stopped is the cause of a context that a signal has ended.
type stopped struct{ os.Signal }

func (s stopped) Error() string { return "stopped by signal: " + s.String() }

// exitCode is what a shell reports of a program that a signal has ended.
func (s stopped) exitCode() int {
	n, _ := s.Signal.(syscall.Signal)
	return 128 + int(n)
}
