package docker_test

import (
	"context"
	"iter"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// overtime is how much longer a sandbox of an [unenforced] lives than its owner is told.
const overtime = time.Hour

// An unenforced is an engine as if it did not act on leases: it grants them and tells of them like any other, and when
// one has passed, the sandbox goes on.
type unenforced struct{ sandbox.Provider }

// Unwrap returns the engine's own provider.
func (u unenforced) Unwrap() sandbox.Provider { return u.Provider }

// told is what the engine says of a sandbox whose end is really so much later.
func told(info sandbox.Info, err error) (sandbox.Info, error) {
	if !info.Deadline.IsZero() {
		info.Deadline = info.Deadline.Add(-overtime)
	}
	return info, err
}

// Create implements [sandbox.Provider].
func (u unenforced) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
	req.Window += overtime
	return told(u.Provider.Create(ctx, req))
}

// Get implements [sandbox.Provider].
func (u unenforced) Get(ctx context.Context, id string) (sandbox.Info, error) {
	return told(u.Provider.Get(ctx, id))
}

// List implements [sandbox.Provider].
func (u unenforced) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		for info, err := range u.Provider.List(ctx, f) {
			if !yield(told(info, err)) {
				return
			}
		}
	}
}

// Extend implements [sandbox.Provider].
func (u unenforced) Extend(ctx context.Context, cur sandbox.Info, window time.Duration) (sandbox.Info, error) {
	if !cur.Deadline.IsZero() {
		cur.Deadline = cur.Deadline.Add(overtime)
	}
	return told(u.Provider.Extend(ctx, cur, window+overtime))
}

// Shorten implements [sandbox.Shortener]: the engine agrees to that too, and does not act on it.
func (u unenforced) Shorten(ctx context.Context, id string, window time.Duration) error {
	s, _ := sandbox.As[sandbox.Shortener](u.Provider)
	return s.Shorten(ctx, id, window+overtime)
}
