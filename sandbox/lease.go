package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandglass-dev/sandglass/heartbeat"
	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/ttl"
)

// beat starts the heartbeat, which ends before the delete. It runs from the create on: a slow start counts too.
func (l *life) beat() {
	l.mu.Lock()
	born, seen, info := l.born, l.seen, l.info
	l.mu.Unlock()
	trust := born.Add(l.firstWindow() - l.plan.Margin)
	if left := info.Left(); left > 0 { // the service's own word; a slow create has not used it up
		trust = ttl.Now().Add(min(left, l.firstWindow()) - time.Since(seen) - l.plan.Margin)
	}
	ctx, cancel := context.WithCancel(l.base)
	l.stopBeats, l.beatsOver = cancel, make(chan struct{})
	cfg := heartbeat.Config{
		Plan: l.plan, Start: born, Trust: trust,
		Now:    l.attached || l.firstWindow() > l.plan.Window, // the create's lease was longer than the window may be
		Blind:  l.m.caps.Extend != ExtendAdd,
		Extend: l.extend, Look: l.look, Over: l.lost,
		Stall: l.scope.StallTimeout, Idle: l.progress.idle,
		RetryAfter: retryAfter,
		Observe: func(b heartbeat.Beat) {
			op := OpExtend
			if b.Look {
				op = OpGet
			}
			l.tell(op, Info{}, b.Start, b.Attempt, b.Err, false)
			if l.attached {
				l.meet(b)
			}
		},
	}
	if l.guest {
		cfg.Extend = l.visitBeat
	}
	if l.m.wall != nil {
		cfg.Wall = l.m.wall
	}
	go func() {
		defer close(l.beatsOver)
		start := time.Now()
		err := heartbeat.Run(ctx, cfg)
		if found := context.Cause(l.calls); err == nil && errors.Is(found, ErrLeaseLost) { // by a call
			err = found
		}
		l.tell(OpExtend, Info{}, start, 1, err, true)
	}()
}

// lost ends the scope because its lease is over.
func (l *life) lost(why error) {
	id := l.known().ID
	switch {
	case errors.Is(why, heartbeat.ErrEnded):
		l.stop(fmt.Errorf("sandbox %s: %w", id, ErrMaxLifetime))
	case errors.Is(why, heartbeat.ErrStalled):
		l.stop(fmt.Errorf("sandbox %s: %w of %v", id, ErrStalled, l.scope.StallTimeout))
	default:
		l.stop(fmt.Errorf("sandbox %s: %w: %w", id, ErrLeaseLost, why))
	}
}

// firstWindow is the window of the create. Where the lease runs while the machine is still being made, it is longer.
func (l *life) firstWindow() time.Duration {
	w := l.plan.WindowAt(0)
	if l.attached {
		return w
	}
	if caps := l.m.caps; caps.Extend == ExtendSet && caps.StartAllowance > 0 {
		w = l.plan.Down(min(w+caps.StartAllowance, caps.MaxWindow, max(w, l.plan.HardEnd)))
	}
	return w
}

// extend is one beat. It returns when the provider has returned, whatever ctx does: nothing may be sent beside it.
func (l *life) extend(ctx context.Context, window time.Duration) (heartbeat.Grant, error) {
	// The delays of a request on its way and of the service's own action belong to the worst end, until an answer came.
	late := l.plan.Attempt
	if l.m.caps.Extend == ExtendAdd {
		late += l.plan.Beat
	}
	l.mu.Lock()
	cur := l.current()
	l.ends = laterOf(l.ends, l.worstEnd(late+window))
	l.mu.Unlock()
	info, err := contain.Start(ctx, func(ctx context.Context) (Info, error) { return l.m.p.Extend(ctx, cur, window) }).Result()
	grant, err := l.judge(info, err)
	if err == nil {
		if grant.Left > window { // more than asked: do not count on it
			grant.Left = window
		}
		l.mu.Lock()
		l.ends = l.worstEnd(max(grant.Left, info.Left()))
		if grant.Left == 0 {
			l.ends = l.worstEnd(window)
		}
		l.mu.Unlock()
	}
	return grant, err
}

func (l *life) look(ctx context.Context) (heartbeat.Grant, error) {
	id := l.known().ID
	return l.judge(contain.Start(ctx, func(ctx context.Context) (Info, error) { return l.m.p.Get(ctx, id) }).Result())
}

// judge says what an answer about the sandbox means for its lease, and remembers it.
func (l *life) judge(info Info, err error) (heartbeat.Grant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.isOurs(info) {
		l.saw(info)
	}
	if err := l.lives(info, err); err != nil {
		return heartbeat.Grant{}, err
	}
	left := info.Left()
	if !info.Deadline.IsZero() && left <= 0 {
		return heartbeat.Grant{}, errors.New("its lease has passed, although it still runs")
	}
	grant := heartbeat.Grant{Left: left}
	if l.m.caps.ReadsDeadline {
		grant.End = info.Deadline
	}
	return grant, nil
}

// lives returns why an answer does not show that the sandbox lives; it matches [heartbeat.ErrGone] if it shows that the
// sandbox does not. It remembers whether the id is another's, and is called with mu held.
func (l *life) lives(info Info, err error) error {
	if err != nil {
		if errors.Is(err, ErrNotFound) && time.Since(l.born.Mono) >= l.m.caps.ReadLag {
			return fmt.Errorf("%w: %w", heartbeat.ErrGone, err)
		}
		return err
	}
	if l.foreign = !l.isOurs(info); l.foreign {
		return fmt.Errorf("%w: the id now belongs to nonce %s", heartbeat.ErrGone, info.Mark.Nonce)
	}
	switch info.State {
	case StateRunning:
	case StateStarting:
		if l.ran {
			return errors.New("starting again")
		}
	case StateUnknown:
		return fmt.Errorf("a state that proves no life: %q", info.Detail)
	default:
		return fmt.Errorf("%w: %s %s", heartbeat.ErrGone, info.State, info.Detail)
	}
	if l.runID != "" && info.Run != "" && info.Run != l.runID {
		return fmt.Errorf("%w: run %s has taken the place of %s", heartbeat.ErrGone, info.Run, l.runID)
	}
	return nil
}

// isOurs reports whether an answer is not about another sandbox that has the id by now.
func (l *life) isOurs(info Info) bool {
	return info.Mark.Nonce == "" || info.Mark.Nonce == l.mark.Nonce
}

// saw remembers an answer about the sandbox. It is called with mu held.
func (l *life) saw(info Info) {
	if info.ID == "" {
		info.ID = l.info.ID
	}
	if info.Native == nil {
		info.Native = l.info.Native
	}
	l.info, l.seen = info, time.Now()
	if info.State == StateRunning {
		l.ran = true
		if l.runID == "" {
			l.runID = info.Run
		}
	}
}

// current is the sandbox as last seen, with the service's clock moved on to now. It is called with mu held.
func (l *life) current() Info {
	info := l.info
	if !info.AsOf.IsZero() {
		info.AsOf = info.AsOf.Add(time.Since(l.seen))
	}
	return info
}

// worstEnd is when a lease of d that starts at the latest now is sure to have ended it. It is called with mu held.
func (l *life) worstEnd(d time.Duration) time.Time {
	now, hard := time.Now(), l.born.Mono.Add(l.plan.HardEnd)
	if l.m.caps.Extend == ExtendActivity && hard.After(now.Add(d)) { // anybody's use prolongs it
		return hard.Add(l.m.caps.Lateness)
	}
	return now.Add(d + l.m.caps.Lateness)
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// known is the sandbox as events and reports show it.
func (l *life) known() Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	info := l.current()
	info.Mark, info.Tags = l.mark, l.scope.Tags
	return info
}

// possible returns what may exist, and whether something may.
func (l *life) possible() (Info, bool) {
	info := l.known()
	l.mu.Lock()
	defer l.mu.Unlock()
	return info, l.maybe
}

func (l *life) isMaybe() bool {
	_, maybe := l.possible()
	return maybe
}

// leaseLeft is how long the lease still runs: without one, for ever.
func (l *life) leaseLeft() time.Duration {
	info, maybe := l.possible()
	if maybe && (info.ID == "" || info.Deadline.IsZero() || info.State == StateDormant) {
		return 1<<63 - 1
	}
	return info.Left()
}

func (l *life) sinceStop() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped.IsZero() {
		return 0
	}
	return time.Since(l.stopped)
}

func (l *life) tell(op Op, info Info, start time.Time, attempt int, err error, final bool) {
	if info.ID == "" {
		info = l.known()
	}
	info.Mark, info.Tags = firstMark(info.Mark, l.mark), l.scope.Tags
	l.m.observe(l.base, Event{Op: op, Info: info, Start: start, Took: time.Since(start), Attempt: attempt, Err: err, Final: final})
}

// remember writes the life into the journal, and takes the entry's lock. It matches [ErrConflict] if another owner has that.
func (l *life) remember(ctx context.Context) error {
	if l.m.cfg.Journal == nil {
		return nil
	}
	l.mu.Lock()
	e := Entry{Provider: l.m.p.Name(), ID: l.info.ID, Mark: l.mark, Tags: l.scope.Tags}
	if l.kept {
		e.Kept = l.ends
	}
	l.mu.Unlock()
	if r, ok := As[Repeater](l.m.p); ok && e.ID == "" {
		var err error
		if e.Order, err = r.Order(l.order()); err != nil {
			return err
		}
	}
	start := time.Now()
	err := contain.Do(ctx, readTime, func(ctx context.Context) error { return l.m.cfg.Journal.Put(ctx, e) })
	l.tell(OpJournal, Info{}, start, 1, err, true)
	return err
}

// finish waits until the scope is over and, where its own end failed, tries again. For Shutdown.
func (l *life) finish(ctx context.Context) *LeakError {
	select {
	case <-l.over:
	case <-ctx.Done():
		info, maybe := l.possible()
		if !maybe {
			return nil
		}
		l.mu.Lock()
		info.Deadline, info.AsOf = l.ends, time.Now()
		l.mu.Unlock()
		return &LeakError{Provider: l.m.p.Name(), Sandboxes: []Info{info}, Err: fmt.Errorf("still being ended: %w", ended(ctx))}
	}
	select { // one at a time changes a sandbox
	case l.again <- struct{}{}:
		defer func() { <-l.again }()
	case <-ctx.Done():
		return l.lastLeak()
	}
	if l.lastLeak() == nil {
		return nil
	}
	// The scope has let go of its entry, and somebody may have taken the sandbox over. A disk that fails says no such thing.
	if errors.Is(l.remember(ctx), ErrConflict) {
		l.drop()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.m.cfg.CleanupTimeout)
	defer cancel()
	leak := l.cleanup(l.resolve(ctx)).run(ctx)
	l.settle(leak)
	return leak
}

func (l *life) lastLeak() *LeakError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leak
}
