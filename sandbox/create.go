package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/ttl"
)

// grain is how far two times of a service may differ for rounding and travel alone.
const grain = 2 * time.Second

// create makes the sandbox, or finds the one that an unanswered request made. After an error, maybe says whether
// something may exist: ending that is the scope's end, as always.
func (l *life) create() error {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		if err := ended(l.ctx); err != nil {
			return err
		}
		var info Info
		held := l.held(attempt)
		err := held
		if held == nil {
			info, err = l.post(l.base, attempt)
		}
		left := l.m.cfg.CreateTimeout - time.Since(began)
		api, _ := errors.AsType[*APIError](err)
		refused := api != nil && api.Refused && info.ID == ""
		unsure := l.answered(info, refused)
		if err == nil && info.ID == "" {
			err = errors.New("the provider answered without an id")
		}
		again := false
		switch {
		case info.ID != "" && err != nil:
			return fmt.Errorf("sandbox %s was made, but is unfit: %w", info.ID, err)
		case info.ID != "":
			return nil
		case refused:
			again = errors.Is(err, ErrRateLimited) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrQuota)
			if held == nil {
				l.m.holdCreates(api.RetryAfter)
			}
		default: // the same mark cannot make a second one there, and the answer to a repetition is the quickest find
			again = l.m.caps.CreateOnce && attempt < 4 && !errors.Is(err, contain.ErrDeaf)
		}
		pause := min(time.Second<<min(attempt-1, 5), 30*time.Second)
		pause = max(pause/2+rand.N(pause/2), retryAfter(err))
		if again && pause < left {
			if sleep(l.ctx, pause) == nil {
				continue
			}
		}
		if unsure && l.search() {
			return nil
		}
		if stop := ended(l.ctx); stop != nil {
			err = fmt.Errorf("%w: %w", stop, err)
		}
		return err
	}
}

// held refuses an attempt, with the time to wait, while the service has asked for no creates. What it says to one scope is
// for all of the account, and each of them can wait as long as for a refusal of its own. Deletes are never held.
func (l *life) held(attempt int) error {
	start := time.Now()
	wait := l.m.noCreates()
	if wait <= 0 {
		return nil
	}
	err := &APIError{
		Provider: l.m.p.Name(), Op: OpCreate, RetryAfter: wait, Refused: true, Kind: ErrRateLimited,
		Message: "not sent, since the service has asked for no creates before " + start.Add(wait).UTC().Format(time.RFC3339),
	}
	l.tell(OpCreate, Info{}, start, attempt, err, false)
	return err
}

// answered takes note of what a create has answered, and returns whether one was not. That stays so when a repetition
// was answered: the first may still be on its way, and find the name free again after the delete.
func (l *life) answered(info Info, refused bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info.ID != "" {
		l.saw(info)
	} else if !refused {
		l.unsure, l.settled = true, l.born.Mono.Add(l.m.caps.CommitDelay+l.m.caps.ReadLag)
	}
	l.maybe = l.unsure || info.ID != ""
	return l.unsure
}

// resolve asks once more what an unanswered create has made where only a repetition can tell: List would not see it,
// since it carries no mark yet. If the first request was lost, that makes one, which is then deleted like any other.
func (l *life) resolve(ctx context.Context) error {
	caps := l.m.caps
	if caps.MarkAtCreate || !l.isUnsure() || l.known().ID != "" {
		return nil
	}
	if !caps.CreateOnce {
		return errors.New("a create was not answered, and what it made carries no mark to find it by")
	}
	for attempt := 1; ; attempt++ {
		info, err := l.post(ctx, attempt)
		api, _ := errors.AsType[*APIError](err)
		if l.answered(info, api != nil && api.Refused && info.ID == ""); info.ID != "" {
			return nil
		}
		if sleep(ctx, max(time.Second, retryAfter(err))) != nil || attempt >= 4 {
			return fmt.Errorf("a create was not answered, nor its repetitions: %w", err)
		}
	}
}

// post sends one create. It is shielded from the caller's cancel, so that the id is learned all the same; half of what
// the call may still take then is for that, half for the delete. A provider that does not return at all is left behind,
// and what it may yet return is deleted.
func (l *life) post(ctx context.Context, attempt int) (Info, error) {
	sent := ttl.Now()
	req := l.order()
	ctx, cancel := context.WithTimeout(ctx, l.m.cfg.CreateTimeout)
	defer cancel()
	stop := context.AfterFunc(l.ctx, func() {
		if sleep(ctx, (l.m.cfg.Grace+l.m.cfg.CleanupTimeout)/2) == nil {
			cancel()
		}
	})
	defer stop()
	l.mu.Lock()
	if !l.unsure {
		l.born = sent
	}
	l.maybe = true
	l.ends = l.worstEnd(max(l.m.caps.CommitDelay, l.m.cfg.CreateTimeout) + req.Window)
	l.mu.Unlock()
	call := contain.Start(ctx, func(ctx context.Context) (Info, error) { return l.m.p.Create(ctx, req) })
	info, err := call.Wait(ctx)
	if errors.Is(err, contain.ErrDeaf) {
		go l.late(call)
	}
	if info.ID != "" {
		l.mu.Lock()
		l.ends = l.worstEnd(req.Window)
		l.mu.Unlock()
	}
	l.tell(OpCreate, info, sent.Mono, attempt, err, err == nil)
	return info, err
}

// order is what the create asks for, the same each time.
func (l *life) order() CreateRequest {
	return CreateRequest{Mark: l.mark, Tags: l.m.remoteTags(l.scope.Tags), Spec: l.scope.clone().Spec, Window: l.firstWindow(), Beat: l.plan.Beat}
}

// late deletes what a create brings that was given up.
func (l *life) late(call contain.Pending[Info]) {
	info, _ := call.Result()
	<-l.over
	if info.ID == "" {
		return
	}
	l.mu.Lock()
	l.saw(info)
	l.maybe = true
	if l.leak == nil {
		l.leak = &LeakError{Provider: l.m.p.Name(), Sandboxes: []Info{info}, Err: errors.New("a create was answered after its scope")}
	}
	l.mu.Unlock()
	l.m.enter(l)
	l.finish(l.base)
}

func (l *life) isUnsure() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsure
}

// search looks for what an unanswered create has made. It adopts what the caller still wants, ends all else, and
// returns false once it is certain that nothing is there, or time is up: then the scope's end goes on with it.
func (l *life) search() bool {
	caps := l.m.caps
	if !caps.MarkAtCreate {
		return false // no list shows what carries no mark yet
	}
	ctx, cancel := context.WithTimeout(l.ctx, caps.CommitDelay+caps.ReadLag+l.m.cfg.CleanupTimeout)
	defer cancel()
	var adopted bool
	c := l.cleanup(nil)
	c.adopt = func(info Info) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		// A clone of this process may have drawn the same nonce and made its own sandbox before.
		before := !info.Created.IsZero() && info.Created.Add(grain).Before(info.AsOf.Add(-time.Since(l.born.Mono)))
		if adopted = (info.State == StateStarting || info.State == StateRunning) && !before && ctx.Err() == nil; adopted {
			l.saw(info)
			l.ends = l.worstEnd(max(info.Left(), l.plan.Window))
		}
		return adopted
	}
	_, err := c.rounds(ctx)
	if err == nil && !adopted {
		l.mu.Lock()
		l.maybe = false
		l.mu.Unlock()
	}
	return adopted
}

// await waits until the sandbox runs and its end is known to be no later than asked.
func (l *life) await() (err error) {
	started := time.Now()
	attempt := 1
	defer func() { l.tell(OpReady, Info{}, started, attempt, err, true) }()
	ctx, cancel := context.WithTimeoutCause(l.ctx, l.m.cfg.ReadyTimeout, fmt.Errorf("not running %v after its create", l.m.cfg.ReadyTimeout))
	defer cancel()
	info, looked, missing := l.known(), false, 0
	for ; ; attempt++ {
		if err := ended(ctx); err != nil {
			return err
		}
		switch beatDue := time.Since(started) >= l.plan.Beat; {
		case !l.attached && l.m.caps.ReadsDeadline && l.wrongEnd(info, looked):
			return fmt.Errorf("sandbox %s: asked to end within %v, the service says %s", info.ID, l.firstWindow(), endWord(info))
		case info.State == StateRunning && (l.attached || !l.m.caps.ReadsDeadline || !info.Deadline.IsZero() || beatDue):
			return nil
		case info.State != StateRunning && info.State != StateStarting && info.State != StateUnknown:
			return fmt.Errorf("sandbox %s is %s before it ran: %s", info.ID, info.State, info.Detail)
		case missing >= 2:
			return fmt.Errorf("sandbox %s has vanished before it ran: %w", info.ID, ErrNotFound)
		}
		if err := sleep(ctx, min(100*time.Millisecond<<min(attempt-1, 6), 2*time.Second)); err != nil {
			return fmt.Errorf("sandbox %s, last seen %s: %w", info.ID, info.State, err)
		}
		seen, err := contain.Call(ctx, readTime, func(ctx context.Context) (Info, error) { return l.m.p.Get(ctx, info.ID) })
		switch {
		case err == nil:
			l.mu.Lock()
			l.saw(seen)
			l.mu.Unlock()
			info, looked, missing = l.known(), true, 0
		case errors.Is(err, ErrNotFound) && time.Since(started) > l.m.caps.ReadLag:
			missing++
		default: // an end that cannot be read now is no wrong end
			l.tell(OpReady, Info{}, time.Now(), attempt, err, false)
		}
	}
}

// wrongEnd reports whether the service holds another end than asked: none, or a later one. Both of the service's times
// to count from must say so, since one of them may be ours where it tells none.
func (l *life) wrongEnd(info Info, looked bool) bool {
	if info.Deadline.IsZero() {
		return looked && info.State == StateRunning
	}
	most := l.firstWindow() + grain
	return info.Left() > most && (info.Created.IsZero() || info.Deadline.Sub(info.Created) > most)
}

func endWord(info Info) string {
	if info.Deadline.IsZero() {
		return "never"
	}
	return fmt.Sprintf("in %v", info.Left())
}
