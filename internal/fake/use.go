package fake

import (
	"context"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Use is a command or copy under way in a sandbox, or anything else that counts as activity. Release it.
type Use struct {
	s     *Service
	r     *record
	run   int
	fault Fault
	end   sync.Once
}

// Use begins one. op says whose faults it meets: those that come before the effect are met here, those after it in
// [Use.After]. A sandbox that does not run is an error.
func (s *Service) Use(ctx context.Context, op sandbox.Op, id string) (*Use, error) {
	f := s.take(op)
	if err := s.before(ctx, f); err != nil {
		return nil, err
	}
	s.lock()
	defer s.unlock()
	r, err := s.find(id)
	if err != nil {
		return nil, err
	}
	if err := r.usable(); err != nil {
		return nil, err
	}
	now := s.now()
	r.uses++
	s.active(r, now)
	s.note(r, now)
	return &Use{s: s, r: r, run: r.run, fault: f}, nil
}

// Reach is a question about a running sandbox that is no activity.
func (s *Service) Reach(ctx context.Context, op sandbox.Op, id string) error {
	return s.do(ctx, op, func(time.Time, Fault) error {
		r, err := s.find(id)
		if err != nil {
			return err
		}
		return r.usable()
	})
}

// usable returns why r takes no command; nil: it does.
func (r *record) usable() error {
	switch {
	case r.state == sandbox.StateGone:
		return unknown()
	case r.state == sandbox.StateFailed || r.lost:
		return refuse(502, sandbox.ErrUnavailable, "machine_unreachable", "the machine does not answer")
	case r.state != sandbox.StateRunning:
		return refuse(409, sandbox.ErrConflict, "not_running", "the sandbox is %v", r.state)
	}
	return nil // a frozen one takes it, and does not answer
}

// Data returns the Order.Data of the sandbox.
func (u *Use) Data() any { return u.r.Data }

// Effect is what the fault that this use met asks for.
func (u *Use) Effect() Effect { return u.fault.Effect }

// Watch returns nil when ctx ends, or why the run that the use began in has ended. While the sandbox is frozen the
// use goes on.
func (u *Use) Watch(ctx context.Context) error {
	return u.wait(ctx, func() (error, bool) {
		err := u.ended()
		return err, err != nil
	})
}

// Ended returns why the run that the use began in has ended, or nil.
func (u *Use) Ended() error {
	u.s.lock()
	defer u.s.unlock()
	return u.ended()
}

// ended is no refusal, for the use had begun.
func (u *Use) ended() error {
	var e *sandbox.APIError
	switch {
	case u.r.state == sandbox.StateGone:
		e = refuse(404, sandbox.ErrNotFound, "not_found", "the sandbox ended meanwhile")
	case u.r.run != u.run || u.r.usable() != nil:
		e = refuse(502, sandbox.ErrUnavailable, "machine_unreachable", "the run ended meanwhile")
	default:
		return nil
	}
	e.Refused = false
	return e
}

// Hold returns when the sandbox is not frozen, which it normally is not, or when ctx ends.
func (u *Use) Hold(ctx context.Context) {
	u.wait(ctx, func() (error, bool) { return nil, !u.r.frozen })
}

// wait asks done, with the lock held, after every change and whenever one is due, until it says so or ctx ends.
func (u *Use) wait(ctx context.Context, done func() (error, bool)) error {
	for {
		u.s.lock()
		err, ok := done()
		if ok {
			u.s.unlock()
			return err
		}
		wake := u.s.waker()
		at, what := u.s.next(u.r)
		in := at.Sub(u.s.now())
		u.s.unlock()
		if what == stay {
			in = 24 * time.Hour // nothing is due; look again some day
		}
		t := time.NewTimer(max(in, 0))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-wake:
			t.Stop()
		case <-t.C:
		}
	}
}

// Release says that the use is over. Only the first call counts.
func (u *Use) Release() {
	u.end.Do(func() {
		u.s.lock()
		defer u.s.unlock()
		u.r.uses--
		if u.r.run == u.run && u.r.state == sandbox.StateRunning && !u.r.frozen {
			now := u.s.now()
			u.s.active(u.r, now)
			u.s.note(u.r, now)
		}
	})
}

// After meets what the use's fault has for after the effect, and returns its error.
func (u *Use) After(ctx context.Context) error { return u.s.after(ctx, u.fault) }
