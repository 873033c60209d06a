package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
)

// Replay finishes what dead processes of this host left in the journal, and what this process could not verify: it
// finds, deletes and verifies. Call it at start and now and then, in the background if you like. Without a journal it
// does the latter alone. Only entries of this account and fleet are worked on.
//
// That an owner's lock could be taken says that the owner is dead, but not of a spool that was copied. So a sandbox
// whose lease still runs by the service's own clock is waited for, at most Window and the service's lateness: if its
// lease moves meanwhile, somebody keeps it, and the entry is left and reported. One whose create was not answered is
// looked for until Capabilities.CommitDelay is over, counted from now, or found by its create, sent again: see [Repeater].
// And since nobody knows when an owner died, nor whether a delete of his failed just before, what is not found proves
// nothing for as long as a new sandbox may be missed (ReadLag) or a failed delete leaves in doubt (DeleteDoubt), counted
// from now as well. What ctx leaves no time to wait for is left at once.
//
// The error joins what could not be finished: a [*LeakError] for what may still run, and an error for each entry that
// was kept. ctx bounds the whole; each sandbox has Config.CleanupTimeout.
func (m *Manager) Replay(ctx context.Context) error {
	errs := m.tryAgain(ctx)
	if m.cfg.Journal == nil {
		return errors.Join(errs...)
	}
	r := &replay{m: m, began: time.Now(), leases: map[string]time.Time{}, kept: map[string]error{}, doubts: map[string]map[string]doubt{}}
	for {
		wait, broken := r.pass(ctx)
		end, ends := ctx.Deadline() // to wait until then would be in vain
		if wait <= 0 || ends && time.Until(end) <= wait || sleep(ctx, wait) != nil {
			errs = append(errs, broken...)
			for _, err := range r.kept {
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		}
	}
}

// atOnce is how many sandboxes a replay works on side by side, so that one that hangs does not hold up the rest.
const atOnce = 8

// tryAgain ends what scopes of this process could not, and returns what is still left.
func (m *Manager) tryAgain(ctx context.Context) (left []error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	work := make(chan *life)
	for range atOnce {
		wg.Go(func() {
			for l := range work {
				if leak := l.finish(ctx); leak != nil {
					mu.Lock()
					left = append(left, leak)
					mu.Unlock()
				}
			}
		})
	}
	for _, l := range m.lives() {
		if l.lastLeak() != nil {
			work <- l
		}
	}
	close(work)
	wg.Wait()
	return left
}

// A replay works on the orphans of a journal, in as many passes as there is something to wait for.
type replay struct {
	m     *Manager
	began time.Time

	mu     sync.Mutex
	leases map[string]time.Time        // by nonce: the end of a lease that was waited for, by the service's clock
	kept   map[string]error            // by nonce: why an entry is still there
	doubts map[string]map[string]doubt // by nonce: what the passes before could not delete for certain
}

// pass goes over all orphans once and returns how long the next pass should wait; 0: there is nothing to wait for.
// The journal gives each orphan to one iteration at a time, and claimed sees to it that it is worked on once a pass.
func (r *replay) pass(ctx context.Context) (wait time.Duration, broken []error) {
	claimed := map[string]bool{}
	var wg sync.WaitGroup
	for worker := range atOnce {
		wg.Go(func() {
			for e, err := range r.m.cfg.Journal.Orphans(ctx) {
				if err != nil && worker == 0 { // the others meet the same
					broken = append(broken, fmt.Errorf("journal: %w", err))
				}
				if err != nil || !r.claim(e, claimed) {
					continue
				}
				later, err := r.one(ctx, e)
				r.mu.Lock()
				if delete(r.kept, e.Mark.Nonce); err != nil {
					r.kept[e.Mark.Nonce] = err
				}
				if later > 0 && (wait == 0 || later < wait) {
					wait = later
				}
				r.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return wait, broken
}

// claim reports whether an entry is to be worked on, now and by the caller.
func (r *replay) claim(e Entry, claimed map[string]bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	nonce := e.Mark.Nonce
	switch {
	case e.Mark.Fleet != r.m.cfg.Fleet: // its own Manager's to finish
	case e.Provider != r.m.p.Name():
		r.kept[nonce] = fmt.Errorf("journal entry %s (sandbox %q) is kept: it is of account %s, this is %s", nonce, e.ID, e.Provider, r.m.p.Name())
	case time.Now().Before(e.Kept):
	case r.m.isLive(nonce): // a scope of this process that let go of it; see finish
	case !claimed[nonce]:
		claimed[nonce] = true
		return true
	}
	return false
}

// one finishes one entry, or says how long to wait before it can be.
func (r *replay) one(ctx context.Context, e Entry) (wait time.Duration, err error) {
	m, caps := r.m, r.m.caps
	keep := func(format string, args ...any) (time.Duration, error) {
		return 0, fmt.Errorf("journal entry %s (sandbox %q) is kept: %w", e.Mark.Nonce, e.ID, fmt.Errorf(format, args...))
	}
	c := &cleanup{p: m.p, caps: caps, mark: e.Mark, witness: caps.GoneByList || e.ID == "", tell: r.tell(ctx, e)}
	found, err := r.find(ctx, c, e)
	if err != nil {
		return keep("%w", err)
	}
	for _, info := range found {
		if info.Mark != (Mark{}) && info.Mark.String() != e.Mark.String() {
			return keep("the sandbox carries another mark")
		}
		if left := info.Left(); caps.ReadsDeadline && info.State.MayRun() && left > 0 && info.HardDeadline().After(info.AsOf) {
			before, waited := r.lease(e.Mark.Nonce, info.Deadline)
			if waited && info.Deadline.After(before.Add(grain)) {
				return keep("its lease moves: somebody keeps the sandbox, so this journal is a copy")
			}
			wait, err = keep("its lease runs for %v", left)
			return left + caps.Lateness + grain, err
		}
		c.add(info)
	}
	if left := time.Until(r.settled(e)); len(found) == 0 && left > 0 {
		_, err = keep("nothing of it is found, which proves nothing for another %v", left)
		return left, err
	}
	if len(found) == 0 && e.ID != "" { // one look proves little: the clean-up looks again
		c.add(Info{ID: e.ID, Mark: e.Mark})
	}
	c.recall(r.failed(e.Mark.Nonce))
	ctx, cancel := context.WithTimeout(ctx, m.cfg.CleanupTimeout)
	defer cancel()
	if leak := c.run(ctx); leak != nil {
		return 0, leak
	}
	if left := time.Until(r.settled(e)); len(found) > 0 && e.ID == "" && caps.MarkAtCreate && left > 0 {
		_, err = keep("its create was not answered, and may yet make another")
		return left, err
	}
	if err := m.cfg.Journal.Remove(ctx, e.Mark.Nonce); err != nil {
		return keep("the sandbox is gone, but the entry cannot be removed: %w", err)
	}
	return 0, nil
}

// settled returns when it proves something that nothing is found of an entry.
func (r *replay) settled(e Entry) time.Time {
	caps, lag := r.m.caps, r.m.caps.ReadLag
	if e.ID == "" {
		lag += caps.CommitDelay
	}
	return r.began.Add(max(lag, caps.DeleteDoubt))
}

// failed returns the doubts about an entry, which is worked on once at a time.
func (r *replay) failed(nonce string) map[string]doubt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doubts[nonce] == nil {
		r.doubts[nonce] = map[string]doubt{}
	}
	return r.doubts[nonce]
}

// lease remembers the end of a lease that is to be waited for, and returns the one that was, if one was.
func (r *replay) lease(nonce string, end time.Time) (before time.Time, waited bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, waited = r.leases[nonce]
	r.leases[nonce] = end
	return before, waited
}

// find returns what there is of an entry. Without an id the list is asked for all that carries the mark, and where the
// mark was yet to be written the create is sent again.
func (r *replay) find(ctx context.Context, c *cleanup, e Entry) ([]Info, error) {
	switch repeater, ok := As[Repeater](c.p); {
	case e.ID != "":
	case c.caps.MarkAtCreate:
		return c.marked(ctx)
	case !ok || len(e.Order) == 0:
		return nil, errors.New("its create was not answered, and what it made carries no mark to find it by")
	default:
		info, err := contain.Call(ctx, r.m.cfg.CreateTimeout, func(ctx context.Context) (Info, error) { return repeater.Repeat(ctx, e.Mark, e.Order) })
		if info.ID == "" {
			return nil, fmt.Errorf("its create was not answered, and sent again: %w", err)
		}
		info.Mark = firstMark(info.Mark, e.Mark)
		return []Info{info}, nil // with an error it is unfit, and to be deleted all the more
	}
	info, err := c.get(ctx, e.ID)
	switch {
	case errors.Is(err, ErrNotFound) || err == nil && info.State == StateGone:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []Info{info}, nil
}

func (r *replay) tell(ctx context.Context, e Entry) func(Op, Info, time.Time, int, error, bool) {
	return func(op Op, info Info, start time.Time, attempt int, err error, final bool) {
		info.Mark, info.Tags = e.Mark, e.Tags
		r.m.observe(context.WithoutCancel(ctx), Event{Op: op, Info: info, Start: start, Took: time.Since(start), Attempt: attempt, Err: err, Final: final})
	}
}

func (m *Manager) isLive(nonce string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[nonce] != nil
}
