package fake

import (
	"context"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Fault is what goes wrong with calls of one operation. Package sandboxtest documents the fields, which are the same.
type Fault struct {
	Err    error
	After  bool
	Delay  time.Duration
	Late   bool
	Hang   bool
	Deaf   bool
	Effect Effect
	Times  int
	Skip   int
	Panic  any
}

// Effect is what a call does instead of what it should do.
type Effect int

// Effects; see package sandboxtest.
const (
	EffectDone Effect = iota
	EffectNone
	EffectEmptyID
	EffectTwin
	EffectUnfit
	EffectShorten
	EffectPending
	EffectBlocked
	EffectRevive
	EffectOrphan
)

// Fault queues faults for op.
func (s *Service) Fault(op sandbox.Op, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		if f.Times == 0 {
			f.Times = 1
		}
		s.faults[op] = append(s.faults[op], &f)
	}
}

// Heal drops all faults that wait and lets Deaf hangs go on.
func (s *Service) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.faults)
	if s.healed != nil {
		close(s.healed)
		s.healed = nil
	}
}

// take returns the fault of one call of op, which may be none.
func (s *Service) take(op sandbox.Op) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.faults[op]
	if len(queue) == 0 {
		return Fault{}
	}
	f := queue[0]
	if f.Skip > 0 {
		f.Skip--
		return Fault{}
	}
	if f.Times > 0 {
		f.Times--
		if f.Times == 0 {
			s.faults[op] = slices.Delete(queue, 0, 1)
		}
	}
	return *f
}

// lateEffect is what a call brings about after its caller may have gone.
type lateEffect struct {
	at     time.Time
	effect func(at time.Time) error
	done   chan struct{}
	err    error
}

// do carries one call through the fault that waits for it. effect runs with the lock held, and is told when it
// happens by the service's clock.
func (s *Service) do(ctx context.Context, op sandbox.Op, effect func(at time.Time, f Fault) error) error {
	f := s.take(op)
	if f.Late {
		return s.doLate(ctx, f, effect)
	}
	if err := s.before(ctx, f); err != nil {
		return err
	}
	s.lock()
	err := effect(s.now(), f)
	s.unlock()
	if err != nil {
		return err
	}
	return s.after(ctx, f)
}

func (s *Service) doLate(ctx context.Context, f Fault, effect func(at time.Time, f Fault) error) error {
	s.lock()
	l := &lateEffect{
		at:     s.now().Add(f.Delay),
		effect: func(at time.Time) error { return effect(at, f) },
		done:   make(chan struct{}),
	}
	s.late = append(s.late, l)
	s.settle()
	s.unlock()
	if !f.After {
		if err := s.outcome(ctx, f); err != nil {
			return err
		}
	}
	for {
		s.lock()
		wake, in := s.waker(), l.at.Sub(s.now())
		s.unlock()
		t := time.NewTimer(max(in, 0))
		select {
		case <-l.done:
			t.Stop()
			if l.err != nil {
				return l.err
			}
			return s.after(ctx, f)
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-wake:
			t.Stop()
		case <-t.C:
		}
	}
}

// before is what a call lives through ahead of its effect. An error means that there is none.
func (s *Service) before(ctx context.Context, f Fault) error {
	if f.Delay > 0 {
		var gone <-chan struct{}
		if !f.Deaf {
			gone = ctx.Done()
		}
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-gone:
			return context.Cause(ctx)
		}
	}
	if f.After {
		return nil
	}
	return s.outcome(ctx, f)
}

// after is what a call lives through behind its effect.
func (s *Service) after(ctx context.Context, f Fault) error {
	if !f.After {
		return nil
	}
	return s.outcome(ctx, f)
}

// outcome panics, hangs and fails as f says.
func (s *Service) outcome(ctx context.Context, f Fault) error {
	if f.Panic != nil {
		panic(f.Panic)
	}
	if f.Hang {
		var gone <-chan struct{}
		if !f.Deaf {
			gone = ctx.Done()
		}
		s.mu.Lock()
		if s.healed == nil && f.Deaf {
			s.healed = make(chan struct{})
		}
		healed := s.healed
		if !f.Deaf {
			healed = nil
		}
		s.mu.Unlock()
		select {
		case <-gone:
			return context.Cause(ctx)
		case <-healed:
		}
	}
	if f.Effect == EffectUnfit {
		return nil // the error stands next to an answer
	}
	return f.Err
}
