package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// ErrClientGone is why a session ends that its client has ended.
var ErrClientGone = errors.New("the client has gone")

// Config says what is served to whom.
type Config struct {
	Manager  *sandbox.Manager // makes the sandbox, by its own default scope; required. It is the session's alone, and shut down with it
	Provider sandbox.Provider // the Manager's; required
	Scope    sandbox.Scope    // the Manager's Config.Scope, for what clients are told about ports and limits

	In  io.ReadCloser  // from the client; closed at the end
	Out io.WriteCloser // to the client, and nothing else is written there; closed at the end

	Version string                           // of the program, for the client
	Ping    time.Duration                    // time between two pings while a sandbox lives; default 20 s
	Note    func(format string, args ...any) // a line for people; it must not wait; nil: none
	Hint    func(error) string               // what a person can do about an error of the provider; nil, or "": not known
}

const (
	// maxFrame bounds one message of the client. A longer one ends the session, so it is far above what the tools accept.
	maxFrame = 64 << 20
	// patience is how long the last answers may take to get through once everything else is over.
	patience = 2 * time.Second
	// again is how long the end may try once more what the end of the sandbox's own scope could not do.
	again = 30 * time.Second
)

// Serve serves one client until it goes away or ctx ends, and returns when the sandbox is seen to be gone, which
// the Manager bounds. The error is nil if the client ended its session in an orderly way or ctx ended, else it says what
// broke; it holds a [*sandbox.LeakError] if a sandbox may be left.
func Serve(ctx context.Context, cfg Config) error {
	if cfg.Manager == nil || cfg.Provider == nil || cfg.In == nil || cfg.Out == nil {
		return fmt.Errorf("mcpserver: manager, provider, input and output are required: %w", sandbox.ErrInvalid)
	}
	if cfg.Ping <= 0 {
		cfg.Ping = 20 * time.Second
	}
	if cfg.Note == nil {
		cfg.Note = func(string, ...any) {}
	}
	if cfg.Hint == nil {
		cfg.Hint = func(error) string { return "" }
	}
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var wg sync.WaitGroup
	in := &inlet{r: cfg.In, gone: cancel}
	out := newOutlet(cfg.Out, cancel)
	go out.run() // until shut, or as long as a write hangs
	replay, stop := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() {
		if err := cfg.Manager.Replay(replay); err != nil && replay.Err() == nil {
			cfg.Note("journal: %v", err)
		}
	})
	s := &session{cfg: cfg, caps: cfg.Provider.Capabilities(), ctx: ctx, in: in, out: out}
	conn, err := s.server().Connect(ctx, &mcp.IOTransport{Reader: in, Writer: out, MaxLineLength: maxFrame}, nil)
	if err == nil {
		wg.Go(func() {
			err := conn.Wait()
			if err == nil {
				err = io.EOF
			}
			cancel(fmt.Errorf("%w: %w", ErrClientGone, err))
		})
		<-ctx.Done()
	}
	s.close() // the sandbox first: nothing of the client can hold it up
	last, release := context.WithTimeout(context.WithoutCancel(ctx), again)
	left := cfg.Manager.Shutdown(last)
	release()
	stop()
	if conn != nil {
		_ = conn.Close() // calls in flight have ended with the sandbox
	}
	out.shut()
	wg.Wait()

	why := context.Cause(ctx)
	if err == nil && caller.Err() == nil && !errors.Is(why, io.EOF) {
		err = why
	}
	if err != nil {
		err = fmt.Errorf("mcpserver: %w", err)
	}
	return errors.Join(err, left)
}
