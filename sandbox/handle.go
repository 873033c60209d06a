package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/heartbeat"
	"github.com/sandglass-dev/sandglass/internal/contain"
)

type scopeKey struct{}

// lookAgain is how long after a first look a second one is made whether a sandbox has ended.
const lookAgain = time.Second

// Touch tells the stall switch of the scope that ctx belongs to that its owner still makes progress,
// for instance while it waits for a model. Outside a scope it does nothing.
func Touch(ctx context.Context) {
	if l, ok := ctx.Value(scopeKey{}).(*life); ok {
		l.progress.begin()
		l.progress.end()
	}
}

// A progress knows how long its owner has done nothing.
type progress struct {
	mu       sync.Mutex
	inFlight int
	last     time.Time
}

func (p *progress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight++
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	p.last = time.Now()
}

// idle is 0 while something is in flight: a quiet long command is progress, and its own timeout bounds it.
func (p *progress) idle() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight > 0 {
		return 0
	}
	return time.Since(p.last)
}

// A handle is the Sandbox that a function gets: the provider's, for as long as the scope lasts.
type handle struct {
	l  *life
	sb Sandbox
}

var _ Sandbox = (*handle)(nil)

// Unwrap returns the provider's own handle. For [As].
func (h *handle) Unwrap() Sandbox { return h.sb }

func (h *handle) ID() string { return h.sb.ID() }

func (h *handle) Exec(ctx context.Context, cmd Cmd) (res Result, err error) {
	if left := h.l.lifeLeft(); cmd.Timeout == 0 || cmd.Timeout > left {
		cmd.Timeout = left
	}
	err = h.do(ctx, OpExec, func(ctx context.Context) error {
		res, err = h.sb.Exec(ctx, cmd)
		if err == nil && res.killed() && h.l.lostNow(ctx, false) {
			err = fmt.Errorf("%s: the command was killed with its sandbox: %w", OpExec, context.Cause(h.l.calls))
		}
		return err
	})
	return res, err
}

// killed reports whether a signal ended the command that nobody sent on its behalf: KILL or TERM, as shells number them.
func (r Result) killed() bool { return !r.TimedOut && (r.ExitCode == 128+9 || r.ExitCode == 128+15) }

func (h *handle) Upload(ctx context.Context, name string, r io.Reader) error {
	return h.do(ctx, OpUpload, func(ctx context.Context) error { return h.sb.Upload(ctx, name, r) })
}

func (h *handle) Download(ctx context.Context, name string, w io.Writer) error {
	return h.do(ctx, OpDownload, func(ctx context.Context) error { return h.sb.Download(ctx, name, w) })
}

func (h *handle) Endpoint(ctx context.Context, port int) (e Endpoint, err error) {
	err = h.do(ctx, OpEndpoint, func(ctx context.Context) error {
		e, err = h.sb.Endpoint(ctx, port)
		return err
	})
	return e, err
}

// do makes one call, which counts as progress and ends with the sandbox.
func (h *handle) do(ctx context.Context, op Op, call func(context.Context) error) (err error) {
	l := h.l
	if l.calls.Err() != nil {
		return fmt.Errorf("sandbox %s: %s: %w", h.ID(), op, context.Cause(l.calls))
	}
	l.progress.begin()
	defer l.progress.end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.calls, func() { cancel(context.Cause(l.calls)) })()
	start := time.Now()
	err = call(ctx)
	if said := errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict); said || errors.Is(err, ErrUnavailable) {
		l.lostNow(ctx, said)
	}
	if over := context.Cause(l.calls); err != nil && over != nil && !errors.Is(err, over) { // what the call met is what the end did
		err = fmt.Errorf("%w: %w", over, err)
	}
	l.tell(op, Info{}, start, 1, err, true)
	return err
}

// lostNow looks whether the sandbox is still there, after a call that may have failed because it is not, and ends the scope
// if so. A beat would find that out, too, but by then the function has returned the call's outcome as if it were its own.
// As with a beat, one look alone proves nothing: another must agree, or the call's own answer, where that has said so.
// What it sees is not remembered: an answer of before a beat may come after that of the beat. It ends with the call's ctx.
func (l *life) lostNow(ctx context.Context, said bool) bool {
	id := l.known().ID
	for attempt := 1; ctx.Err() == nil; attempt++ {
		start := time.Now()
		info, err := contain.Call(ctx, l.plan.Attempt, func(ctx context.Context) (Info, error) { return l.m.p.Get(ctx, id) })
		if ctx.Err() != nil {
			break
		}
		l.mu.Lock()
		err = l.lives(info, err)
		l.mu.Unlock()
		l.tell(OpGet, Info{}, start, attempt, err, false)
		gone := errors.Is(err, heartbeat.ErrGone)
		switch {
		case gone && said:
			l.lost(err)
			return true
		case err != nil && !errors.Is(err, ErrNotFound) && !gone: // nobody knows
			return false
		case attempt > 1 && !gone: // it lives, or is too young for a look to tell
			return false
		}
		// Its end may be seen by a command before it is by a look.
		if said = said || gone; contain.Sleep(ctx, max(l.m.caps.ReadLag, lookAgain)) != nil {
			break
		}
	}
	return errors.Is(context.Cause(l.calls), ErrLeaseLost)
}

// lifeLeft is what is left until the scope's max lifetime: the longest that a command may take.
func (l *life) lifeLeft() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(time.Until(l.born.Mono.Add(l.plan.MaxLifetime)), time.Millisecond)
}
