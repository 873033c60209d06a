package sweep

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	lookTime     = 30 * time.Second // limit of one look
	livenessTime = 10 * time.Second // limit of one question to a Liveness
	maxPause     = 10 * time.Minute // a service that asks for a longer one is left until the next pass
)

// A paced is an account that is left alone for as long as its service asks, by all callers.
type paced struct {
	sandbox.Provider

	mu    sync.Mutex
	until time.Time
}

// Unwrap returns the provider itself, for [sandbox.As].
func (p *paced) Unwrap() sandbox.Provider { return p.Provider }

// wait returns when the service takes requests again.
func (p *paced) wait(ctx context.Context) error {
	for {
		p.mu.Lock()
		left := time.Until(p.until)
		p.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case left <= 0:
			return nil
		case left > maxPause:
			return fmt.Errorf("the service asked for a pause of %v: %w", left.Round(time.Second), sandbox.ErrRateLimited)
		}
		if err := contain.Sleep(ctx, left); err != nil {
			return fmt.Errorf("the service asked for a pause: %w: %w", sandbox.ErrRateLimited, err)
		}
	}
}

// heed takes note of the pause that err asks for.
func (p *paced) heed(err error) error {
	limited := errors.Is(err, sandbox.ErrRateLimited)
	if !limited && !errors.Is(err, sandbox.ErrUnavailable) {
		return err
	}
	var pause time.Duration
	if api, ok := errors.AsType[*sandbox.APIError](err); ok {
		pause = api.RetryAfter
	}
	if limited && pause <= 0 {
		pause = time.Second
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(pause); until.After(p.until) {
		p.until = until
	}
	return err
}

// Get implements [sandbox.Provider].
func (p *paced) Get(ctx context.Context, id string) (sandbox.Info, error) {
	if err := p.wait(ctx); err != nil {
		return sandbox.Info{}, err
	}
	info, err := p.Provider.Get(ctx, id)
	return info, p.heed(err)
}

// Delete implements [sandbox.Provider].
func (p *paced) Delete(ctx context.Context, id string) error {
	if err := p.wait(ctx); err != nil {
		return err
	}
	return p.heed(p.Provider.Delete(ctx, id))
}

// List implements [sandbox.Provider]. Between pages the adapter is on its own.
func (p *paced) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		if err := p.wait(ctx); err != nil {
			yield(sandbox.Info{}, err)
			return
		}
		for info, err := range p.Provider.List(ctx, f) {
			if !yield(info, p.heed(err)) {
				return
			}
		}
	}
}

// A sole is an account whose lists show nothing but one sandbox. [sandbox.Terminate] deletes all that carries its mark,
// which is right for what a repeated create has made and wrong for a copy that somebody else keeps. And where it begins
// with a look, for the mark that its lists are to be asked for, it is given the one that the pass has just had.
type sole struct {
	*paced
	info  sandbox.Info
	begun *atomic.Bool
}

// Get implements [sandbox.Provider].
func (s sole) Get(ctx context.Context, id string) (sandbox.Info, error) {
	if s.Capabilities().GoneByList && !s.begun.Swap(true) {
		return s.info, nil
	}
	return s.paced.Get(ctx, id)
}

// List implements [sandbox.Provider].
func (s sole) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		for info, err := range s.paced.List(ctx, f) {
			if (err != nil || info.ID == s.info.ID) && !yield(info, err) {
				return
			}
		}
	}
}
