package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sandglass-dev/sandglass/heartbeat"
	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/ttl"
)

// AttachSandbox runs fn on a sandbox that exists, of this process or another: for a hand-over between processes, a
// second worker, or debugging. It extends the lease before fn and keeps it while fn runs, under the same rules and with
// the same causes as [Manager.WithSandbox]. Where only use extends ([ExtendActivity]), the idle time stays that of the
// create, and Window must not be longer. Of the Scope, Spec means nothing.
//
// Without takeOver fn is a guest. The lease is extended only when less than Window is left of it, so that neither the
// owner's longer lease nor an end that somebody else has set comes nearer; one without an end is left so; and where the
// owner is a scope of this very Manager, it alone extends. When fn is over, the sandbox is left to its owner or its
// lease, and never deleted; KeepOnError means nothing. Live and MaxLive do not count it. The mark may be anybody's, or
// missing. Where the service's end cannot be read, it is [errors.ErrUnsupported], for a beat might shorten it.
//
// With takeOver the sandbox becomes a scope's like any other, with a lease of Window, and is deleted at the end: also if
// it then cannot be extended. That needs a mark of this fleet and an owner that is dead, or has let go of it as
// KeepOnError does. The proof is the owner's lock on its entry in Config.Journal, which is taken. Without a journal it is
// [errors.ErrUnsupported]; an owner that is not proven dead is [ErrConflict], and then nothing has been changed. The
// mark stays as it is, and so does the hard end in it, to which MaxLifetime is cut, for a guest too. Take over before
// [Manager.Replay], which ends what nobody has taken over.
//
// A sandbox that sleeps is not woken: it is [ErrConflict]. One that does not exist is [ErrNotFound]. A first look that the
// service refuses or fails is made again within CreateTimeout. The error matches [ErrNotStarted] if fn was never called.
func (m *Manager) AttachSandbox(ctx context.Context, id string, takeOver bool, fn func(ctx context.Context, sb Sandbox) error, opts ...Option) error {
	var err error
	switch { // before the Manager knows of a scope, for which a Shutdown would then wait
	case id == "":
		err = fmt.Errorf("no id: %w", ErrInvalid)
	case takeOver && m.cfg.Journal == nil:
		err = fmt.Errorf("sandbox %s: take-over without a journal, which alone could prove that its owner is dead: %w", id, errors.ErrUnsupported)
	}
	var l *life
	if err == nil {
		l, err = m.newLife(ctx, fn != nil, opts)
	}
	if err != nil {
		return fmt.Errorf("sandbox: %w: %w", ErrNotStarted, err)
	}
	l.attached, l.guest, l.met = true, true, make(chan struct{})
	return l.within(func() error { return l.attach(id, takeOver) }, fn)
}

// attach gets a sandbox that exists ready for fn.
func (l *life) attach(id string, takeOver bool) error {
	l.watch()
	if takeOver {
		if err := l.enter(); err != nil {
			return err
		}
	}
	sent := ttl.Now()
	info, err := l.visit(id)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	plan, err := l.rest(info)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	l.mu.Lock()
	l.born, l.plan, l.mark = sent, plan, info.Mark
	tags := maps.Clone(info.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, l.scope.Tags)
	l.scope.Tags = tags
	l.saw(info)
	l.mu.Unlock()
	if takeOver {
		if err := l.takeOver(info); err != nil {
			return fmt.Errorf("sandbox %s is not taken over: %w", id, err)
		}
	}
	l.beat()
	if err := l.await(); err != nil {
		return err
	}
	if l.plan.Fixed {
		return nil
	}
	select {
	case <-l.met:
		return ended(l.ctx)
	case <-l.ctx.Done():
		return fmt.Errorf("sandbox %s: not extended: %w", id, ended(l.ctx))
	}
}

// visit looks at what is to be attached to.
func (l *life) visit(id string) (info Info, err error) {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		start := time.Now()
		info, err = contain.Call(l.ctx, readTime, func(ctx context.Context) (Info, error) { return l.m.p.Get(ctx, id) })
		l.tell(OpGet, Info{ID: id}, start, attempt, err, false)
		api, _ := errors.AsType[*APIError](err)
		if err == nil || attempt >= 4 || api == nil || api.Kind != nil && api.Kind != ErrUnavailable && api.Kind != ErrRateLimited {
			break
		}
		pause := max(time.Second<<(attempt-1), api.RetryAfter)
		if time.Since(began)+pause >= l.m.cfg.CreateTimeout {
			break
		}
		if err := sleep(l.ctx, pause); err != nil {
			return Info{}, err
		}
	}
	if err != nil {
		return Info{}, err
	}
	if info.ID == "" {
		info.ID = id
	}
	caps := l.m.caps
	switch info.State {
	case StateRunning, StateStarting, StateUnknown:
	case StateGone:
		return Info{}, ErrNotFound
	default:
		return Info{}, fmt.Errorf("it is %s, and is not woken: %w", info.State, ErrConflict)
	}
	if (caps.Extend == ExtendSet || caps.Extend == ExtendAdd) && !caps.ReadsDeadline {
		return Info{}, fmt.Errorf("its end cannot be read, and setting it might shorten it: %w", errors.ErrUnsupported)
	}
	return info, nil
}

// rest is the plan for what the mark leaves of the sandbox's life.
func (l *life) rest(info Info) (ttl.Plan, error) {
	hard := info.HardDeadline()
	if hard.IsZero() {
		return l.plan, nil
	}
	left, after := hard.Sub(info.AsOf), l.plan.HardEnd-l.plan.MaxLifetime
	if left >= l.plan.HardEnd {
		return l.plan, nil
	}
	scope := l.scope
	if scope.MaxLifetime = left - after; scope.MaxLifetime <= 0 {
		return ttl.Plan{}, fmt.Errorf("its hard end is %v away, less than the %v for grace and clean-up: %w", left, after, ErrMaxLifetime)
	}
	plan, err := l.m.plan(scope)
	if err != nil {
		return ttl.Plan{}, fmt.Errorf("%w: its hard end is %v away: %w", ErrMaxLifetime, left, err)
	}
	return plan, nil
}

// takeOver makes the sandbox this scope's own, if the journal proves that it is nobody's.
func (l *life) takeOver(info Info) error {
	if info.Mark.Fleet != l.m.cfg.Fleet {
		return fmt.Errorf("it is not marked as of fleet %q: %w", l.m.cfg.Fleet, ErrInvalid)
	}
	for e, err := range l.m.cfg.Journal.Orphans(l.ctx) {
		if err != nil || e.Mark.String() != info.Mark.String() || e.Provider != l.m.p.Name() || e.ID != "" && e.ID != info.ID {
			continue // what cannot be judged is no proof
		}
		l.mu.Lock()
		for k, v := range e.Tags {
			if _, set := l.scope.Tags[k]; !set {
				l.scope.Tags[k] = v
			}
		}
		l.mu.Unlock()
		return l.m.succeed(l, e.Mark.Nonce, func() error { return l.remember(l.base) }) // while the iteration still holds the lock
	}
	if err := ended(l.ctx); err != nil {
		return err
	}
	return fmt.Errorf("its owner (%s) is not proven dead: no entry for nonce %s that nobody holds is in this journal: %w", info.Mark.Owner, info.Mark.Nonce, ErrConflict)
}

// succeed has l take the place of the scope that made nonce, if that has left it, and if take then takes the lock.
func (m *Manager) succeed(l *life, nonce string, take func() error) error {
	m.mu.Lock()
	before, guest := m.live[nonce], l.key
	if before != nil && !before.isKept() {
		m.mu.Unlock()
		return fmt.Errorf("a scope of this process is not done with it: %w", ErrConflict)
	}
	delete(m.live, guest)
	l.key, m.live[nonce] = nonce, l
	m.mu.Unlock()
	if err := take(); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.live, nonce)
		if before != nil {
			m.live[nonce] = before
		}
		l.key, m.live[guest] = guest, l
		return err
	}
	if before != nil {
		before.leave()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guest, l.maybe = false, true
	l.ends = l.worstEnd(max(l.info.Left(), l.plan.Window))
	return nil
}

// beats reports whether a scope of this Manager keeps the lease of nonce.
func (m *Manager) beats(nonce string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	owner := m.live[nonce]
	return owner != nil && !owner.ending.Load()
}

func (l *life) isKept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// meet takes note of the beat that fn waits for. One that only looked counts where there is nothing to extend.
func (l *life) meet(b heartbeat.Beat) {
	well := b.Err == nil && (!b.Look || l.plan.WindowAt(0) < l.plan.Window)
	if well || !b.Look && errors.Is(b.Err, errors.ErrUnsupported) {
		select {
		case <-l.met:
		default:
			close(l.met)
		}
	}
}

// visitBeat is one beat of a guest: it looks, and extends only what has less than window left.
//
// The owner may beat between the look and the extension, which then makes the owner's lease shorter if its window is
// the longer one. That does no harm: an owner that beats never lets more than half of its window pass, so if less than
// window was left, then its whole window is less than two of ours, and its next beat comes before ours is over.
//
// An owner with a shorter window than ours takes back what we extend, beat by beat, and may die right after. Then less
// is left than we were granted, so that a guest that has met this beats more often.
func (l *life) visitBeat(ctx context.Context, window time.Duration) (heartbeat.Grant, error) {
	grant, err := l.look(ctx)
	if err != nil {
		return grant, err
	}
	l.mu.Lock()
	cur := l.current()
	l.mu.Unlock()
	left := cur.Left()
	if (cur.Deadline.IsZero() || left >= window) && l.m.caps.Extend != ExtendActivity || l.m.beats(l.mark.Nonce) {
		grant.Left = min(grant.Left, window)
		grant.End = time.Time{} // it is not ours to move, so that it says nothing about a cap
		return grant, nil
	}
	if grant, err = l.extend(ctx, window); err != nil {
		return grant, err
	}
	shortened := cur.Deadline.Before(l.granted.Add(-grain))
	if l.granted = grant.End; shortened {
		grant.Left = min(grant.Left, max(left, l.plan.Beat))
	}
	return grant, nil
}
