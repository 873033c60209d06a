package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
)

// readTime is the limit of one look, one list or one step of the journal.
const readTime = 30 * time.Second

// retryAfter returns the pause that err's service asked for.
func retryAfter(err error) time.Duration {
	if api, ok := errors.AsType[*APIError](err); ok {
		return api.RetryAfter
	}
	return 0
}

// sleep waits, or returns what ended ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if contain.Sleep(ctx, d) != nil {
		return ended(ctx)
	}
	return nil
}
