// Package contain makes calls of foreign code, such as a user's provider, that nobody can rely on: they return in time
// even where the code ignores its context, and its panic is an error. A panic in a goroutine of ours would end the
// process, and with it the only owner of other sandboxes.
package contain

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// patience is how long a call may take to notice that its context has ended.
const patience = 50 * time.Millisecond

// ErrDeaf is matched by errors of calls that did not return although their context had ended. They may still be under way.
var ErrDeaf = errors.New("no answer, not even to the end of its context")

// A Pending is a call under way. Its result can be had once.
type Pending[T any] chan reply[T]

type reply[T any] struct {
	v   T
	err error
}

// Start makes a call from a goroutine, which lives as long as the call.
func Start[T any](ctx context.Context, call func(context.Context) (T, error)) Pending[T] {
	ch := make(Pending[T], 1)
	go func() {
		r := reply[T]{err: errors.New("the call ended its goroutine")}
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("panicked: %v\n%s", p, debug.Stack())
			}
			ch <- r
		}()
		r.v, r.err = call(ctx)
	}()
	return ch
}

// Result waits for the call, however long that takes.
func (ch Pending[T]) Result() (T, error) {
	r := <-ch
	return r.v, r.err
}

// Wait returns the result, or an error matching [ErrDeaf] and ctx's cause shortly after ctx has ended.
func (ch Pending[T]) Wait(ctx context.Context) (T, error) {
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-ch:
		return r.v, r.err
	case <-timer.C:
		var none T
		return none, fmt.Errorf("%w: %w", ErrDeaf, context.Cause(ctx))
	}
}

// Call makes one call and returns within limit. Its context's cause then says so, and matches
// [context.DeadlineExceeded].
func Call[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded))
	defer cancel()
	return Start(ctx, call).Wait(ctx)
}

// Do is [Call] for a call without a result.
func Do(ctx context.Context, limit time.Duration, call func(context.Context) error) error {
	_, err := Call(ctx, limit, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// Sleep waits, or returns the cause of ctx's end.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
