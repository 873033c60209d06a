package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	lateness  = 30 * time.Second // where a provider does not tell how late its service acts on deadlines
	listTries = 3
	witnesses = 20             // sandboxes of the pass before that are looked for by id where the list misses them
	patience  = 24 * time.Hour // how long past its hard end a delete may be accepted and not done
)

// A look is one answer of the service about one sandbox.
type look struct {
	info  sandbox.Info
	at    time.Time // when it arrived
	began time.Time // when the pass began, by the clock that the answer shows; zero: it shows none
}

// An account is one provider, and what earlier passes saw there.
type account struct {
	p      *paced
	name   string
	caps   sandbox.Capabilities
	memory map[string]*memory // by id; touched by one pass at a time
}

// A memory is what is kept of a sandbox from pass to pass.
type memory struct {
	fork   bool // it was seen beside another one with its mark, and not as the first
	sole   bool // a complete list has shown that it is not a copy
	kept   bool // it was there at the end of the last pass
	run    string
	since  time.Time // of being residue, without a pass that saw it otherwise; zero: it is none
	passes int
}

// residue returns how many passes, this one with its look at info included, have seen residue, and since when.
func (m *memory) residue(info sandbox.Info, at time.Time) (passes int, since time.Time) {
	switch {
	case !(Facts{Info: info}).residue():
		return 0, time.Time{}
	case m == nil || m.since.IsZero() || m.run != info.Run:
		return 1, at
	default:
		return m.passes + 1, m.since
	}
}

// remember replaces the memory by what the pass saw. After an incomplete list what was not seen is still expected.
func (a *account) remember(p *pass, items []*item, complete bool) {
	old := a.memory
	a.memory = make(map[string]*memory, len(items))
	if !complete {
		maps.Copy(a.memory, old)
	}
	for _, it := range items {
		info := it.look.info
		m := old[info.ID]
		if it.outcome == Deleted || it.outcome == Gone {
			delete(a.memory, info.ID)
			continue
		}
		now := &memory{
			fork: complete && it.fork || m != nil && m.fork,
			sole: complete && !it.fork || m != nil && m.sole,
			kept: it.outcome == Kept,
			run:  info.Run,
		}
		if (Facts{Info: info}).residue() {
			now.since, now.passes = it.residue, it.passes
		}
		a.memory[info.ID] = now
	}
}

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

	verdict Verdict
	outcome Outcome
	err     error // why it is left or unseen, or what its owner's liveness could not be learned for
}

// urgency orders items; see prepare.
type urgency struct {
	class int
	left  time.Duration
	id    string
}

func (it *item) urgency() urgency {
	u := urgency{left: it.look.info.Left(), id: it.look.info.ID}
	switch {
	case it.verdict.Action == Keep && !it.verdict.open():
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
func (v Verdict) open() bool {
	return v.Rule == RuleUnknown || v.Rule == RuleResidue || v.Rule == RuleDead
}

// see lists the account, and looks by id for what is expected and not listed. After errors, what it returns is not
// everything that there is.
func (p *pass) see(ctx context.Context) (rows []look, errs []error) {
	var err error
	for try := 1; ; try++ {
		rows, err = p.list(ctx)
		again := errors.Is(err, sandbox.ErrRateLimited) || errors.Is(err, sandbox.ErrUnavailable)
		if !again || try == listTries || sleep(ctx, time.Second<<try) != nil {
			break
		}
	}
	if err != nil {
		return rows, []error{fmt.Errorf("list: %w", err)}
	}
	listed := map[string]bool{}
	for _, l := range rows {
		listed[l.info.ID] = true
	}
	hidden, err := p.missing(ctx, listed)
	if err != nil {
		errs = append(errs, err)
	}
	if len(hidden) > 0 {
		some := hidden[0].info.ID
		errs = append(errs, fmt.Errorf("the list shows %d sandboxes, and not %d that are there, such as %s", len(rows), len(hidden), some))
	}
	return append(rows, hidden...), errs
}

// list returns what the service lists, each sandbox once, as told last.
func (p *pass) list(ctx context.Context) ([]look, error) {
	var mu sync.Mutex
	rows, times := map[string]look{}, map[string]int{}
	closed := false
	_, err := contain(ctx, p.cfg.ListTimeout, func(ctx context.Context) (struct{}, error) {
		for info, err := range p.a.p.List(ctx, sandbox.Filter{Fleet: p.cfg.Fleet}) {
			if err != nil {
				return struct{}{}, err
			}
			l := p.look(info)
			mu.Lock()
			times[info.ID]++
			again := times[info.ID] > 2 // rows move over a page's edge while it is turned, but not twice
			if !closed {
				rows[info.ID] = l
			}
			stop := closed
			mu.Unlock()
			switch {
			case stop:
				return struct{}{}, nil
			case info.ID == "":
				return struct{}{}, errors.New("a row without an id")
			case again:
				return struct{}{}, fmt.Errorf("sandbox %s is listed again and again", info.ID)
			}
		}
		return struct{}{}, nil
	})
	mu.Lock()
	defer mu.Unlock()
	closed = true
	all := make([]look, 0, len(rows))
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		all = append(all, rows[id])
	}
	return all, err
}

func (p *pass) look(info sandbox.Info) look {
	l := look{info: info, at: time.Now()}
	if !info.AsOf.IsZero() {
		l.began = info.AsOf.Add(-l.at.Sub(p.began))
	}
	return l
}

// missing looks by id for what is expected and not listed. Of what an earlier pass has kept a few are enough, for most
// have ended since as they should; if one of them is there, all are looked for.
func (p *pass) missing(ctx context.Context, listed map[string]bool) (hidden []look, err error) {
	var known []string
	var errs []error
	if p.cfg.Known != nil {
		known, err = contain(ctx, p.cfg.ListTimeout, func(ctx context.Context) ([]string, error) { return p.cfg.Known(ctx, p.a.name) })
		if err != nil {
			errs = append(errs, fmt.Errorf("what is known to exist: %w", err))
		}
	}
	seen := maps.Clone(listed)
	find := func(ids []string, limit int) {
		var candidates []string
		for _, id := range ids {
			if id != "" && !seen[id] && (limit <= 0 || len(candidates) < limit) {
				seen[id] = true
				candidates = append(candidates, id)
			}
		}
		found, err := p.existing(ctx, candidates)
		hidden = append(hidden, found...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	find(known, 0)
	var kept []string
	for _, id := range slices.Sorted(maps.Keys(p.a.memory)) {
		if p.a.memory[id].kept {
			kept = append(kept, id)
		}
	}
	if find(kept, witnesses); len(hidden) > 0 {
		find(kept, 0)
	}
	return hidden, errors.Join(errs...)
}

// existing returns those of ids that are there, and still after the time for which answers may lag.
func (p *pass) existing(ctx context.Context, ids []string) (found []look, err error) {
	for round := 1; round <= 2 && len(ids) > 0; round++ {
		if round == 2 && sleep(ctx, p.a.caps.ReadLag) != nil {
			return nil, context.Cause(ctx)
		}
		found = nil
		var mu sync.Mutex
		var errs []error
		each(p.cfg.Parallel, ids, func(id string) {
			l, err := p.get(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, sandbox.ErrNotFound):
			case err != nil:
				errs = append(errs, fmt.Errorf("sandbox %s, which is known and not listed: %w", id, err))
			case l.info.State != sandbox.StateGone && l.info.State != sandbox.StateEnding: // on its way out it may be hidden
				found = append(found, l)
			}
		})
		ids = ids[:0:0]
		for _, l := range found {
			ids = append(ids, l.info.ID)
		}
		err = errors.Join(append(errs, err)...)
	}
	slices.SortFunc(found, func(a, b look) int { return cmp.Compare(a.info.ID, b.info.ID) })
	return found, err
}

// each calls f for all of v, up to n at once.
func each[T any](n int, v []T, f func(T)) {
	work := make(chan T)
	var wg sync.WaitGroup
	for range min(n, len(v)) {
		wg.Go(func() {
			for x := range work {
				f(x)
			}
		})
	}
	for _, x := range v {
		work <- x
	}
	close(work)
	wg.Wait()
}

// get looks at one sandbox. What may pass is tried again, as long as ctx lasts, but no longer than a minute.
func (p *pass) get(ctx context.Context, id string) (look, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*lookTime, fmt.Errorf("no look within %v: %w", 2*lookTime, context.DeadlineExceeded))
	defer cancel()
	for try := 1; ; try++ {
		info, err := contain(ctx, lookTime, func(ctx context.Context) (sandbox.Info, error) { return p.a.p.Get(ctx, id) })
		if err == nil {
			if info.ID == "" {
				info.ID = id
			}
			return p.look(info), nil
		}
		again := errors.Is(err, sandbox.ErrRateLimited) || errors.Is(err, sandbox.ErrUnavailable)
		if !again || try == 5 || sleep(ctx, 500*time.Millisecond<<try) != nil {
			return look{}, err
		}
	}
}

func (p *pass) facts(it *item, l look, earlier *look, life Life) Facts {
	f := Facts{
		Fleet: p.cfg.Fleet, Info: l.info, LeaseTold: p.a.caps.ReadsDeadline, Fork: it.fork, Began: l.began,
		Protected: p.cfg.protection(l.info), Life: life,
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
	if p.cfg.Liveness == nil || !v.open() {
		return v
	}
	info := l.info
	info.Native = nil
	life, err := contain(ctx, livenessTime, func(ctx context.Context) (Life, error) { return p.cfg.Liveness(ctx, info) })
	if err != nil {
		it.err = fmt.Errorf("its owner's life: %w", err)
		life = Unknown
	}
	return Decide(p.facts(it, l, earlier, life))
}

// handle takes one item to its outcome, and tells observers where that concerns a delete.
func (p *pass) handle(ctx context.Context, it *item) {
	start := time.Now()
	p.settle(ctx, it)
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
	if it.verdict.Action == Keep && !it.verdict.open() {
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
	if it.verdict.Rule == RulePassed && sleep(item, lag) != nil {
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
	case !p.take():
		it.outcome = Capped
	case p.cfg.DryRun:
		it.outcome = WouldDelete
	default:
		p.delete(ctx, item, it)
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
func (p *pass) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deletes >= p.limit {
		return false
	}
	p.deletes++
	return true
}

// delete ends one sandbox and sees that it is gone. If the account's rate limit has eaten its time, it gets another.
func (p *pass) delete(ctx, item context.Context, it *item) {
	target := sole{p.a.p, it.look.info.ID}
	err := sandbox.Terminate(item, target, it.look.info.ID)
	for try := 2; try <= 3 && errors.Is(err, sandbox.ErrRateLimited) && p.a.p.wait(ctx) == nil; try++ {
		err = p.retry(ctx, target)
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

func (p *pass) retry(ctx context.Context, target sole) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.itemTimeout(p.a.caps))
	defer cancel()
	return sandbox.Terminate(ctx, target, target.id)
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
