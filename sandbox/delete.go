package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
)

// Terminate deletes the sandbox id and returns nil once it is seen to be gone; already gone is success.
// Its budget is ctx's deadline, or 2 minutes: pass a context that is still alive. Otherwise the error is a [*LeakError],
// and what that says holds until its Deadline, even if another call finds nothing: it knows of none before.
func Terminate(ctx context.Context, p Provider, id string) error {
	if id == "" {
		return fmt.Errorf("sandbox: terminate without an id: %w", ErrInvalid)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
	}
	c := &cleanup{p: p, caps: p.Capabilities()}
	info := Info{ID: id}
	if c.caps.GoneByList { // the list is asked for the nonce, which only a look can tell
		if seen, err := c.first(ctx, id); err == nil {
			info = seen
			c.learn(info)
		}
	}
	c.add(info)
	if leak := c.run(ctx); leak != nil {
		return leak
	}
	return nil
}

// A cleanup ends sandboxes and sees to it that they are gone: ask, then look, until gone. A delete's success is a
// promise, not a fact; and what a look does not find may not have appeared yet.
type cleanup struct {
	p       Provider
	caps    Capabilities
	mark    Mark
	born    time.Time       // when the create's request left; zero: long ago
	settled time.Time       // an unanswered create may appear until then
	unknown error           // no look can tell whether all is gone, since it is not known what there is
	witness bool            // List must agree that nothing carries the mark: twice, all pages
	wary    bool            // the first delete waits for a look: the id may belong to another sandbox by now
	ends    time.Time       // when the lease ends them at the latest, by our clock; zero: as the service says
	adopt   func(Info) bool // asked first of what List shows; true: it lives on, and the run is over
	tell    func(op Op, info Info, start time.Time, attempt int, err error, final bool)

	doubts  map[string]doubt // by id; those of the scope's earlier clean-ups too
	targets []*target
	early   bool // one was not found so soon after the create that another look is of use only later
}

// A target is one sandbox to end.
type target struct {
	info     Info
	asked    time.Time // when the delete was last sent
	accepted bool      // the service said yes to it
	refused  error     // or why not
	deaf     bool      // a delete is still under way: no second one beside it
	refusals int       // answers that another try will not change
	absent   bool      // the last look found nothing
	foreign  bool      // it found another sandbox, which has the id by now: not ours to end
	err      error     // why it is not known to be gone
	gone     bool
}

// A doubt is a delete that the service failed, or did not answer: until then, that it finds nothing proves nothing.
type doubt struct {
	until time.Time
	why   error
}

func (c *cleanup) add(info Info) {
	c.targets = append(c.targets, &target{info: info, foreign: c.isForeign(info)})
}

// isForeign reports whether an answer is about another sandbox that has the id by now.
func (c *cleanup) isForeign(info Info) bool {
	return c.mark.Nonce != "" && info.Mark.Nonce != "" && info.Mark.Nonce != c.mark.Nonce
}

// first looks at what is to be deleted, again while that fails and may yet do better, for a quarter of the budget.
func (c *cleanup) first(ctx context.Context, id string) (Info, error) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)/4)
	defer cancel()
	for try := 1; ; try++ {
		info, err := c.get(ctx, id)
		if err == nil || errors.Is(err, ErrNotFound) || refuses(err) || sleep(ctx, c.pause(ctx, try, retryAfter(err), 0)) != nil {
			return info, err
		}
	}
}

// learn takes the mark from a look, where nobody has told it and List is to be asked for it.
func (c *cleanup) learn(info Info) {
	if c.caps.GoneByList && c.mark == (Mark{}) && info.Mark != (Mark{}) {
		c.mark, c.witness = info.Mark, true
	}
}

// recall has c go on where earlier clean-ups of the same scope had to leave off: what they could not delete for certain
// may be shown by no look and no list.
func (c *cleanup) recall(doubts map[string]doubt) {
	c.doubts = doubts
	for id, d := range doubts {
		known := slices.ContainsFunc(c.targets, func(t *target) bool { return t.info.ID == id })
		if !known && time.Now().Before(d.until) {
			c.add(Info{ID: id, Mark: c.mark})
		}
	}
}

func (c *cleanup) event(op Op, info Info, start time.Time, attempt int, err error, final bool) {
	if c.tell != nil {
		c.tell(op, info, start, attempt, err, final)
	}
}

// run returns nil once all targets are seen to be gone, or one was adopted. A part of the budget is kept for making the
// lease shorter when the deletes have failed.
func (c *cleanup) run(ctx context.Context) *LeakError {
	began := time.Now()
	deadline, _ := ctx.Deadline()
	main, cancel := context.WithDeadline(ctx, deadline.Add(-min(10*time.Second, time.Until(deadline)/8)))
	defer cancel()
	rounds, err := c.rounds(main)
	if err == nil {
		c.event(OpConfirm, c.last(), began, rounds, nil, true)
		return nil
	}
	c.shorten(ctx)
	leak := &LeakError{Provider: c.p.Name(), Err: err}
	found := false
	for _, t := range c.targets {
		if !t.gone || c.witness && c.caps.GoneByList { // a look that finds nothing is half of the proof there
			leak.Sandboxes = append(leak.Sandboxes, c.left(t))
		}
		found = found || !t.gone
	}
	if len(leak.Sandboxes) == 0 || !found && !c.settled.IsZero() { // a create without an answer
		leak.Sandboxes = append(leak.Sandboxes, Info{Mark: c.mark, Deadline: c.ends, AsOf: time.Now()})
	}
	c.event(OpConfirm, leak.Sandboxes[0], began, rounds, leak, true)
	return leak
}

func (c *cleanup) last() Info {
	if len(c.targets) == 0 {
		return Info{Mark: c.mark, State: StateGone}
	}
	info := c.targets[0].info
	info.State = StateGone
	return info
}

// rounds asks and looks until all is gone, ctx ends, or it is hopeless. It returns the number of rounds it took.
func (c *cleanup) rounds(ctx context.Context) (round int, err error) {
	var clean int // lists in a row that showed nothing
	for round = 1; ; round++ {
		err = c.unknown
		for _, t := range c.targets {
			if !t.gone {
				c.step(ctx, t, round)
			}
			if !t.gone {
				err = t.err
			}
			if t.refusals >= 3 && !t.gone {
				return round, err
			}
		}
		if err == nil && c.witness {
			var adopted bool
			if adopted, err = c.list(ctx, round); adopted {
				return round, nil
			}
			if clean++; err != nil {
				clean = 0
			} else if clean < 2 || time.Now().Before(c.settled) {
				err = errors.New("what no list has shown may still appear")
			}
		}
		if err == nil || err == c.unknown {
			return round, err
		}
		if sleep(ctx, c.pause(ctx, round, retryAfter(err), clean)) != nil {
			return round, fmt.Errorf("clean-up time is over: %w", err)
		}
	}
}

// pause returns how long to wait for the next round: twice as long each time, or what the service asks for, cut by what
// is left of the budget. A second clean list is of use only when the first one's lag is over.
func (c *cleanup) pause(ctx context.Context, round int, asked time.Duration, clean int) time.Duration {
	d := min(50*time.Millisecond<<min(round-1, 10), 5*time.Second)
	d = max(d/2+rand.N(d/2), asked)
	if clean == 1 {
		d = max(d, c.caps.ReadLag)
	}
	if c.early {
		d = max(d, c.caps.ReadLag-time.Since(c.born))
	}
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, max(time.Until(deadline)/2, 10*time.Millisecond))
	}
	return d
}

// step asks for one delete where that is of use, and looks.
func (c *cleanup) step(ctx context.Context, t *target, round int) {
	if round == 1 && c.wary {
		if info, err := c.get(ctx, t.info.ID); err == nil {
			t.foreign = c.isForeign(info)
		}
	}
	if again := max(time.Second, c.caps.ReadLag); !t.foreign && !t.deaf && (!t.accepted || t.info.State != StateEnding && time.Since(t.asked) >= again) {
		c.ask(ctx, t, round)
	}
	start := time.Now()
	info, err := c.get(ctx, t.info.ID)
	if err == nil {
		c.learn(info)
		t.foreign = c.isForeign(info)
	}
	absent := errors.Is(err, ErrNotFound) || err == nil && (info.State == StateGone || t.foreign)
	t.absent = absent
	if err == nil && !t.foreign {
		info.Mark = firstMark(info.Mark, t.info.Mark)
		t.info = info
	}
	now, doubt := time.Now(), c.doubts[t.info.ID]
	switch {
	case absent && now.Before(doubt.until):
		t.info.State = StateUnknown
		t.err = fmt.Errorf("the service failed the delete or did not answer, and that it finds nothing now proves nothing until %s: %w", doubt.until.UTC().Format(time.RFC3339), doubt.why)
	case absent && now.Sub(c.born) < c.caps.ReadLag:
		c.early = true
		t.accepted, t.err = false, errors.New("not found so soon after the create, which proves nothing")
	case absent:
		t.gone, t.err = true, nil
	case err != nil:
		t.err = errors.Join(t.refused, err)
	case t.refused != nil:
		t.err = t.refused
	default:
		t.err = fmt.Errorf("the delete was accepted, but the sandbox is still %s", info.State)
	}
	if t.err != nil {
		c.event(OpConfirm, t.info, start, round, t.err, false)
	}
}

func (c *cleanup) ask(ctx context.Context, t *target, round int) {
	t.asked = time.Now()
	err := contain.Do(ctx, c.caps.deleteTime(), func(ctx context.Context) error {
		return c.p.Delete(ctx, t.info.ID)
	})
	if errors.Is(err, ErrNotFound) { // nothing to delete is no fault, and no proof: the look decides
		err = nil
	}
	c.event(OpDelete, t.info, t.asked, round, err, false)
	t.refused, t.accepted, t.deaf = err, err == nil, errors.Is(err, contain.ErrDeaf)
	if api, _ := errors.AsType[*APIError](err); err != nil && (api == nil || api.Status >= 500 || api.Status == 0 && !api.Refused) {
		if c.doubts == nil {
			c.doubts = map[string]doubt{}
		}
		c.doubts[t.info.ID] = doubt{time.Now().Add(c.caps.DeleteDoubt), err} // an answer that was lost may have been such a failure
	}
	if refuses(err) {
		t.refusals++
	}
}

// refuses reports whether err is an answer that another try will not change.
func refuses(err error) bool {
	return errors.Is(err, ErrUnauthenticated) || errors.Is(err, ErrPermission) || errors.Is(err, ErrInvalid) || errors.Is(err, errors.ErrUnsupported)
}

func (c *cleanup) get(ctx context.Context, id string) (Info, error) {
	return contain.Call(ctx, readTime, func(ctx context.Context) (Info, error) { return c.p.Get(ctx, id) })
}

// list looks for what carries the mark. What is new, or shows on, becomes a target; err says that there was some.
func (c *cleanup) list(ctx context.Context, round int) (adopted bool, err error) {
	start := time.Now()
	found, err := c.marked(ctx)
	c.event(OpFind, Info{Mark: c.mark}, start, round, err, false)
	for _, info := range found {
		i := slices.IndexFunc(c.targets, func(t *target) bool { return t.info.ID == info.ID })
		switch {
		case c.adopt != nil && !adopted && i < 0 && c.adopt(info):
			adopted = true
			continue
		case i < 0:
			c.add(info)
		default:
			c.targets[i].gone = false
		}
		err = fmt.Errorf("sandbox %s carries the mark and is %s", info.ID, info.State)
	}
	return adopted, err
}

// marked returns all that exists and carries exactly the mark.
func (c *cleanup) marked(ctx context.Context) ([]Info, error) {
	mark := c.mark.String()
	return contain.Call(ctx, readTime, func(ctx context.Context) (found []Info, err error) {
		for info, err := range c.p.List(ctx, Filter{Fleet: c.mark.Fleet, Nonce: c.mark.Nonce}) {
			if err != nil {
				return nil, err
			}
			if info.State != StateGone && info.Mark.String() == mark { // the service may ignore the filter
				found = append(found, info)
			}
		}
		return found, nil
	})
}

// shorten brings the ends nearer of what could not be deleted, where the provider has a call for just that.
func (c *cleanup) shorten(ctx context.Context) {
	s, ok := As[Shortener](c.p)
	if !ok {
		return
	}
	for _, t := range c.targets {
		if !t.gone && !t.foreign && t.info.State.MayRun() {
			start := time.Now()
			err := contain.Do(ctx, readTime, func(ctx context.Context) error {
				return s.Shorten(ctx, t.info.ID, max(c.caps.MinWindow, c.caps.Step, time.Second))
			})
			c.event(OpShorten, t.info, start, 1, err, true)
		}
	}
}

// left returns what a LeakError says of t. The lease counts as asked for, not as shortened: only a look could tell
// whether that took effect.
func (c *cleanup) left(t *target) Info {
	info, now := t.info, time.Now()
	info.Mark = firstMark(info.Mark, c.mark)
	if t.gone { // by a look, and no list agrees
		info.State = StateUnknown
	}
	end, doubt := c.ends, c.doubts[info.ID].until
	if end.IsZero() && !info.Deadline.IsZero() {
		end = now.Add(info.Left() + c.caps.Lateness)
	}
	switch {
	case info.State == StateDormant: // no lease runs on it
		end = time.Time{}
	case now.Before(doubt) && (t.absent || !end.IsZero()): // a machine without its record; the lease may be longer
		end = laterOf(end, doubt)
	}
	info.Deadline, info.AsOf = end, now
	return info
}

// firstMark returns the first mark that is one.
func firstMark(a, b Mark) Mark {
	if a == (Mark{}) {
		return b
	}
	return a
}
