package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A Manager runs functions in sandboxes of one provider and remembers which of them are alive.
// It starts no goroutine of its own and needs no Close. It is safe for concurrent use.
type Manager struct {
	p     Provider
	caps  Capabilities
	cfg   Config
	slots chan struct{}    // one element a sandbox; nil: no limit
	wall  func() time.Time // nil: time.Now; tests move it

	mu         sync.Mutex
	live       map[string]*life // by nonce: open scopes, and ended ones whose sandbox was not seen to be gone
	shut       bool
	shutBy     time.Time // when the present Shutdown must be over; zero: open
	notCreates time.Time // the service asked for no create before then
}

// NewManager returns a Manager for p. It makes no request. It reports every fault of cfg at once,
// measured against p's [Capabilities]; each matches [ErrInvalid] or [errors.ErrUnsupported].
func NewManager(p Provider, cfg Config) (*Manager, error) {
	if p == nil {
		return nil, fmt.Errorf("sandbox: no provider: %w", ErrInvalid)
	}
	m := &Manager{p: p, caps: p.Capabilities(), live: map[string]*life{}}
	var faults []error
	m.cfg, faults = cfg.withDefaults(m.caps)
	if _, err := m.plan(m.cfg.Scope); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("sandbox: configuration for %s: %w", p.Name(), errors.Join(faults...))
	}
	if m.cfg.MaxLive > 0 {
		m.slots = make(chan struct{}, m.cfg.MaxLive)
	}
	return m, nil
}

// Live returns the sandboxes of this Manager's scopes that are not yet seen to be gone, those of ended scopes included, in
// no order. Those that KeepOnError has left are among them until their lease should have ended them, Capabilities.Lateness
// included: nobody looks whether it has, unless [Manager.Replay] or a sweeper does. Without an ID: a create that was not
// answered. It makes no request.
func (m *Manager) Live() []Info {
	var infos []Info
	for _, l := range m.lives() {
		if info, ok := l.possible(); ok {
			infos = append(infos, info)
		}
	}
	return infos
}

func (m *Manager) lives() []*life {
	m.mu.Lock()
	defer m.mu.Unlock()
	lives := make([]*life, 0, len(m.live))
	for _, l := range m.live {
		lives = append(lives, l)
	}
	return lives
}

// enter adds l to the lives again.
func (m *Manager) enter(l *life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[l.key] = l
}

// forget removes l from the lives, unless another has taken its place.
func (m *Manager) forget(l *life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live[l.key] == l {
		delete(m.live, l.key)
	}
}

// Shutdown refuses new scopes, ends the running ones with [ErrShutdown], and deletes all sandboxes in parallel, except
// those that KeepOnError has left. It returns when every one is seen to be gone or ctx is done; a [*LeakError] names
// the rest. A function gets its Grace, at most half of what is left until ctx's deadline. It may be called again.
func (m *Manager) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	m.shut = true
	m.shutBy, _ = ctx.Deadline()
	m.mu.Unlock()
	lives := m.lives()
	// First what has no lease to end it, then what has most of it left: what ctx cuts off then ends soonest by itself.
	slices.SortFunc(lives, func(a, b *life) int { return cmp.Compare(b.leaseLeft(), a.leaseLeft()) })
	var wg sync.WaitGroup
	left := make([]*LeakError, len(lives))
	for i, l := range lives {
		l.stop(ErrShutdown)
		wg.Go(func() { left[i] = l.finish(ctx) })
	}
	wg.Wait()
	leak := &LeakError{Provider: m.p.Name()}
	var errs []error
	for _, e := range left {
		if e != nil {
			leak.Sandboxes, errs = append(leak.Sandboxes, e.Sandboxes...), append(errs, e.Err)
		}
	}
	if len(leak.Sandboxes) == 0 {
		return nil
	}
	leak.Err = errors.Join(errs...)
	return leak
}

// grace returns how long a function may go on after its context has ended.
func (m *Manager) grace() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut && !m.shutBy.IsZero() {
		return min(m.cfg.Grace, time.Until(m.shutBy)/2)
	}
	return m.cfg.Grace
}

// noCreates returns how long the service takes no creates yet.
func (m *Manager) noCreates() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Until(m.notCreates)
}

// holdCreates makes all creates of this account wait, as the service asked.
func (m *Manager) holdCreates(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if until := time.Now().Add(d); until.After(m.notCreates) {
		m.notCreates = until
	}
}

// observe tells everybody. An observer that panics would otherwise end the process from a heartbeat's goroutine.
func (m *Manager) observe(ctx context.Context, e Event) {
	e.Provider, e.Info.Native = m.p.Name(), nil
	if len(m.cfg.Observers) == 0 && e.level() == slog.LevelError {
		LogTo(slog.Default())(ctx, e)
	}
	for _, o := range m.cfg.Observers {
		func() {
			defer func() {
				if p := recover(); p != nil {
					slog.Default().ErrorContext(ctx, "sandbox observer panicked", "op", string(e.Op), "panic", p)
				}
			}()
			o(ctx, e)
		}()
	}
}

// ended returns nil while ctx lives, then what ended it: both its error and its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
