package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	lateness = 30 * time.Second // where a provider does not tell how late its service acts on deadlines
	patience = 24 * time.Hour   // how long past its hard end a delete may be accepted and not done
)

// A pass is one pass over one account.
type pass struct {
	cfg   *Config
	a     *account
	began time.Time
	limit int // deletes

	mu      sync.Mutex
	deletes int
}

// An item is one sandbox of the fleet on its way through a pass.
type item struct {
	look    look
	fork    bool
	passes  int       // that have seen it as residue
	residue time.Time // since when

	taken   bool // its delete is one of those that the pass may make
	verdict Verdict
	outcome Outcome
	err     error // why it is left or unseen, or what its owner's liveness could not be learned for

	snapshots []Snapshot // made from it
	unlisted  error      // why there may be more
	uncleared []error    // why some are left
}

// urgency orders items; see prepare.
type urgency struct {
	class int
	left  time.Duration
	id    string
}

func (p *pass) urgency(it *item) urgency {
	u := urgency{left: it.look.info.Left(), id: it.look.info.ID}
	switch {
	case it.verdict.Action == Keep && !p.open(it.verdict):
		u.class = 3
	case it.verdict.Action == Keep:
		u.class = 2
	case !it.look.info.Deadline.IsZero():
		u.class = 1
	}
	return u
}

func (u urgency) compare(v urgency) int {
	return cmp.Or(cmp.Compare(u.class, v.class), cmp.Compare(v.left, u.left), cmp.Compare(u.id, v.id))
}

// open reports whether word of the owner can change the verdict.
func (p *pass) open(v Verdict) bool {
	switch v.Rule {
	case RuleUnknown, RuleResidue, RuleDead:
		return true
	case RuleLease:
		return p.cfg.EndDead && p.cfg.Liveness != nil
	default:
		return false
	}
}

func (p *pass) facts(it *item, l look, earlier *look, life Life) Facts {
	f := Facts{
		Fleet: p.cfg.Fleet, Info: l.info, LeaseTold: p.a.caps.ReadsDeadline, Fork: it.fork, Began: l.began,
		Protected: p.cfg.protection(l.info), Life: life, EndDead: p.cfg.EndDead,
		Lateness: p.a.caps.Lateness, Grace: p.cfg.Grace, OlderThan: p.cfg.OlderThan,
	}
	if f.Lateness <= 0 {
		f.Lateness = lateness
	}
	if earlier != nil {
		f.Earlier = &earlier.info
	}
	if f.residue() {
		f.ResiduePasses = it.passes
		if !it.residue.IsZero() {
			f.ResidueFor = l.at.Sub(it.residue) // not until now: only what a look has shown counts
		}
	}
	return f
}

// judge decides on a look, and asks for the owner's life where that can matter.
func (p *pass) judge(ctx context.Context, it *item, l look, earlier *look) Verdict {
	v := Decide(p.facts(it, l, earlier, Unknown))
	if p.cfg.Liveness == nil || !p.open(v) {
		return v
	}
	info := l.info
	info.Native = nil
	life, err := contain.Call(ctx, livenessTime, func(ctx context.Context) (Life, error) { return p.cfg.Liveness(ctx, info) })
	if err != nil {
		it.err = fmt.Errorf("its owner's life: %w", err)
		life = Unknown
	}
	return Decide(p.facts(it, l, earlier, life))
}

// handle takes one item to its outcome, and tells observers where that concerns a delete.
func (p *pass) handle(ctx context.Context, it *item) {
	start := time.Now()
	for try := 1; ; try++ { // a pause that the service asked for meanwhile is no part of an item's time
		it.err = nil
		p.settle(ctx, it)
		undone := (it.outcome == Left || it.outcome == Unseen) && !it.taken
		if try == 3 || !undone || !errors.Is(it.err, sandbox.ErrRateLimited) || p.a.p.wait(ctx) != nil {
			break
		}
	}
	info := it.look.info
	e := sandbox.Event{
		Op: sandbox.OpConfirm, Provider: p.a.name, Info: info, Start: start, Took: time.Since(start), Attempt: 1, Final: true,
	}
	switch it.outcome {
	case Left:
		e.Err = it.err
	case Deleted:
		e.Info.State = sandbox.StateGone
	default:
		return
	}
	p.cfg.observe(ctx, e)
}

// settle takes one item through its looks to its outcome.
func (p *pass) settle(ctx context.Context, it *item) {
	if it.verdict.Action == Keep && !p.open(it.verdict) {
		it.outcome = Kept
		return
	}
	fail := func(o Outcome, err error) { it.outcome, it.err = o, err }
	if err := p.a.p.wait(ctx); err != nil { // what the service asks for is no part of an item's time
		if it.verdict.Action == Keep {
			fail(Unseen, err)
		} else {
			fail(Left, err)
		}
		return
	}
	budget := p.cfg.itemTimeout(p.a.caps)
	item, cancel := context.WithTimeoutCause(ctx, budget, fmt.Errorf("not done within %v: %w", budget, context.DeadlineExceeded))
	defer cancel()

	if p.vague(it.look.info) { // lists tell less than looks
		l, err := p.get(item, it.look.info.ID)
		switch {
		case errors.Is(err, sandbox.ErrNotFound):
			it.outcome = Gone
			return
		case err != nil:
			fail(Unseen, err)
			return
		}
		it.look = l
	}
	if it.verdict = p.judge(item, it, it.look, nil); it.verdict.Action == Keep {
		it.outcome = kept(it.verdict)
		return
	}
	lag := time.Until(it.look.at.Add(p.a.caps.ReadLag)) // an answer may be so old
	if it.verdict.Rule == RulePassed && contain.Sleep(item, lag) != nil {
		fail(Left, context.Cause(item))
		return
	}
	again, err := p.get(item, it.look.info.ID)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		it.outcome = Gone
		return
	case err != nil:
		fail(Left, err)
		return
	}
	earlier := it.look
	it.verdict = p.judge(item, it, again, &earlier)
	if again.info.Mark != (sandbox.Mark{}) {
		it.look = again
	}
	switch {
	case it.verdict.Action != Delete:
		it.outcome = kept(it.verdict)
	case !p.take(it):
		it.outcome = Capped
	case p.cfg.DryRun:
		it.outcome = WouldDelete
		p.snapshots(item, it)
		p.clear(item, it)
	default:
		p.snapshots(item, it)
		if p.delete(ctx, item, it); it.outcome == Deleted {
			p.clear(ctx, it)
		}
	}
}

// vague reports whether a list's row lacks times that a look may have.
func (p *pass) vague(info sandbox.Info) bool {
	up := info.State == sandbox.StateRunning || info.State == sandbox.StateStarting
	return info.Created.IsZero() || up && info.Deadline.IsZero() && p.a.caps.ReadsDeadline
}

func kept(v Verdict) Outcome {
	if v.Rule == RuleGone {
		return Gone
	}
	return Kept
}

// take takes one of the deletes that the pass may make.
func (p *pass) take(it *item) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deletes >= p.limit {
		return false
	}
	p.deletes++
	it.taken = true
	return true
}

// delete ends one sandbox and sees that it is gone. If the account's rate limit has eaten its time, it gets another.
func (p *pass) delete(ctx, item context.Context, it *item) {
	err := p.terminate(item, it)
	for try := 2; try <= 3 && errors.Is(err, sandbox.ErrRateLimited) && p.a.p.wait(ctx) == nil; try++ {
		if contain.Sleep(ctx, p.a.caps.DeleteDoubt) != nil { // the next try knows nothing of a delete that failed in this one
			break
		}
		err = p.retry(ctx, it)
	}
	leak, _ := errors.AsType[*sandbox.LeakError](err)
	switch {
	case err == nil:
		it.outcome, it.err = Deleted, nil
	case leak != nil && len(leak.Sandboxes) > 0 && leak.Sandboxes[0].State == sandbox.StateEnding && p.pending(it.look.info):
		it.outcome, it.err = Pending, err
	default:
		it.outcome, it.err = Left, err
	}
}

func (p *pass) retry(ctx context.Context, it *item) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.itemTimeout(p.a.caps))
	defer cancel()
	return p.terminate(ctx, it)
}

func (p *pass) terminate(ctx context.Context, it *item) error {
	return sandbox.Terminate(ctx, sole{p.a.p, it.look.info, new(atomic.Bool)}, it.look.info.ID)
}

// pending reports whether a delete that was accepted and is not done is still the service's affair. Some take hours.
func (p *pass) pending(info sandbox.Info) bool {
	past, known := Facts{Info: info}.pastHardEnd()
	return known && past < patience
}

// leftover is what an error says of an item that is left. Its deadline is by this process's clock.
func (it *item) leftover() sandbox.Info {
	if leak, ok := errors.AsType[*sandbox.LeakError](it.err); ok && len(leak.Sandboxes) == 1 {
		return leak.Sandboxes[0]
	}
	info := it.look.info
	info.Native = nil
	if !info.Deadline.IsZero() {
		info.Deadline = it.look.at.Add(info.Left())
	}
	return info
}
