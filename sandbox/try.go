package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

const (
	readTime = 30 * time.Second      // limit of one look or one list page
	deafTime = 50 * time.Millisecond // how long a call may take to notice that its context has ended
)

// errDeaf is matched by errors of calls that did not return although their context ended.
var errDeaf = errors.New("no answer, not even to the end of its context")

// A pending is a call of a provider under way.
type pending[T any] chan reply[T]

type reply[T any] struct {
	v   T
	err error
}

// start makes a call of a provider from a goroutine. A panic becomes an error: it must not take the process along,
// and with it the only owner of other sandboxes.
func start[T any](ctx context.Context, call func(context.Context) (T, error)) pending[T] {
	ch := make(pending[T], 1)
	go func() {
		r := reply[T]{err: errors.New("provider ended its goroutine")}
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("provider panicked: %v\n%s", p, debug.Stack())
			}
			ch <- r
		}()
		r.v, r.err = call(ctx)
	}()
	return ch
}

// wait returns the reply, or an error matching errDeaf shortly after ctx has ended.
func (ch pending[T]) wait(ctx context.Context) (T, error) {
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(deafTime)
	defer timer.Stop()
	select {
	case r := <-ch:
		return r.v, r.err
	case <-timer.C:
		var none T
		return none, fmt.Errorf("%w: %w", errDeaf, ctx.Err())
	}
}

// try makes one call of a provider and returns within limit, even where the provider ignores its context.
func try[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return start(ctx, call).wait(ctx)
}

// retryAfter returns the pause that err's service asked for.
func retryAfter(err error) time.Duration {
	if api, ok := errors.AsType[*APIError](err); ok {
		return api.RetryAfter
	}
	return 0
}
