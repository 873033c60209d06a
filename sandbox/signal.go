package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// ShutdownOnSignal returns a context that the first of sigs ends, by default of [os.Interrupt] and SIGTERM; its cause then
// names the signal and matches [ErrShutdown]. That signal starts m's Shutdown with the given grace, after logging to
// slog.Default which sandboxes are left to it and until when; what is not verified by then is logged at Error, and in the
// journal for the next start. The default action of sigs is restored, so that a second one ends the process at once.
// Handlers that were there before get the first signal too.
//
// The returned function ends the watching, and waits for a Shutdown under way: call it by defer in main, so that main
// does not return before. Call ShutdownOnSignal once a process.
func ShutdownOnSignal(ctx context.Context, m *Manager, grace time.Duration, sigs ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if len(sigs) == 0 { // to package signal none means all, also those that a running process gets all the time
		sigs = []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, sigs...)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer signal.Stop(caught)
		select {
		case <-ctx.Done():
			return
		case s := <-caught:
			signal.Reset(sigs...)
			left := m.Live()
			slog.Default().WarnContext(ctx, "signal: shutting down", "signal", s.String(), "sandboxes", len(left), "until", time.Now().Add(grace))
			for _, info := range left {
				slog.Default().WarnContext(ctx, "signal: still alive", "sandbox_id", info.ID, "nonce", info.Mark.Nonce, "lease_left", info.Left())
			}
			sctx, stop := context.WithTimeout(context.WithoutCancel(ctx), grace)
			defer stop()
			done := make(chan error, 1)
			go func() { done <- m.Shutdown(sctx) }()
			cancel(fmt.Errorf("signal %v: %w", s, ErrShutdown))
			if err := <-done; err != nil {
				slog.Default().ErrorContext(ctx, "signal: shut down with sandboxes left", "error", err)
			}
		}
	})
	return ctx, sync.OnceFunc(func() {
		cancel(context.Canceled)
		wg.Wait()
	})
}
