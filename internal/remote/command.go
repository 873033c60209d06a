// Package remote is what a command in a sandbox goes through with every service that only starts it and tells of it:
// it is followed to its end, killed when its time is over, and killed for nobody who waits when its caller has left.
package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Command is one that is to be run, in terms of what one service can do. All fields but Rest are required.
type Command struct {
	Output *capture.Output

	// Follow starts the command, never twice, passes on what it writes, and returns its exit code when it has ended.
	Follow func(ctx context.Context) (code int, err error)

	// Left reports whether, after Follow has returned err (which may be nil), something may be left of the command that
	// Abandon is to end.
	Left func(err error) bool

	// Kill ends the command with all that came of it. Nil says that nothing is left; it may take KillTime.
	Kill     func(ctx context.Context) error
	KillTime time.Duration

	// Abandon is Kill for nobody who waits. It says in a log what nobody can be told, and limits its own time.
	Abandon func(ctx context.Context)

	// Rest is how long, after a kill, what the command wrote last is waited for. Default: not at all.
	Rest time.Duration

	// Fault makes an error one of the service's about the command.
	Fault func(error) error
}

// Run runs c: see [sandbox.Sandbox] for what a timeout and the end of ctx mean. The timeout, if it is not 0, counts
// from began. When it returns, the caller's writers are written to no more.
func (c Command) Run(ctx context.Context, began time.Time, timeout time.Duration) (sandbox.Result, error) {
	fctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type ending struct {
		code int
		err  error
	}
	ended := make(chan ending, 1)
	go func() {
		code, err := c.Follow(fctx)
		ended <- ending{code, err}
	}()
	var over <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout - time.Since(began))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case end := <-ended:
		if end.err != nil && ctx.Err() != nil {
			end.err = context.Cause(ctx)
		}
		if c.Left(end.err) {
			go c.Abandon(ctx)
		}
		if end.err != nil {
			end.code = -1
		}
		return c.Output.Result(sandbox.Result{ExitCode: end.code}), end.err
	case <-ctx.Done():
		go c.Abandon(ctx)
		return c.Output.Result(sandbox.Result{ExitCode: -1}), context.Cause(ctx)
	case <-over:
	}

	killed := make(chan error, 1)
	go func() {
		kctx, stop := context.WithTimeout(context.WithoutCancel(ctx), c.KillTime)
		defer stop()
		killed <- c.Kill(kctx)
	}()
	timedOut := sandbox.Result{ExitCode: -1, TimedOut: true}
	var err error
	select {
	case err = <-killed:
	case <-ctx.Done(): // the kill goes on
		return c.Output.Result(timedOut), context.Cause(ctx)
	}
	if c.Rest > 0 {
		rest := time.NewTimer(c.Rest)
		defer rest.Stop()
		select {
		case <-ended:
		case <-rest.C:
		case <-ctx.Done():
		}
	}
	if err != nil {
		err = c.Fault(fmt.Errorf("timed out, and may still run: %w", err))
	}
	return c.Output.Result(timedOut), err
}
