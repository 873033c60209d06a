package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/history"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/page"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// A trail is all that is known of one life.
type trail struct {
	provider, id, nonce string
	lines               []history.Line // by time
	entry               *sandbox.Entry // in the journal, with a dead owner
	item                *sweep.Item    // in its account
	account             *account       // nil: it was not looked at
}

// foreign reports whether nothing says that it is the fleet's: whoever ends a sandbox by hand may not know whose it is.
func (t *trail) foreign() bool {
	return t.item == nil && t.entry == nil && !slices.ContainsFunc(t.lines, func(l history.Line) bool { return l.Fleet != "" })
}

// report puts the facts together. It is a pure function of them.
func (f *facts) report() Report {
	r := Report{Fleet: f.fleet, From: f.from, Made: f.now, Ends: map[End]int{}, Lives: []Life{}}
	witness := map[string]bool{}
	for _, t := range f.trails() {
		if t.item != nil && (len(t.lines) > 0 || t.entry != nil) {
			witness[t.provider] = true
		}
		l, real := f.judge(t)
		if !real || t.foreign() || !l.Ended.IsZero() && l.Ended.Before(f.from) {
			continue
		}
		r.Lives = append(r.Lives, l)
		r.Ends[l.End]++
		if l.Leak {
			r.Leaks++
		}
		if l.Began.IsZero() {
			r.Headless++
		}
		r.Least += l.Least
		r.Most += l.Most
	}
	for _, a := range f.accounts {
		for _, info := range a.leaks { // a leak check knows some that a sweeper leaves alone, such as a canary of another check
			if slices.ContainsFunc(r.Lives, func(l Life) bool { return l.Provider == a.name && l.ID == info.ID }) {
				continue
			}
			r.Lives = append(r.Lives, Life{
				Provider: a.name, ID: info.ID, Nonce: info.Mark.Nonce, Owner: info.Mark.Owner, Tags: info.Tags, State: info.State.String(),
				End: Left, Leak: true, Why: "it is of fleet " + info.Mark.Fleet + " and past its lease",
			})
			r.Ends[Left]++
			r.Leaks++
			r.Headless++
		}
	}
	slices.SortStableFunc(r.Lives, func(a, b Life) int {
		if a.Leak != b.Leak {
			return cmp.Compare(b2i(b.Leak), b2i(a.Leak))
		}
		return b.Began.Compare(a.Began)
	})
	for _, a := range f.accounts {
		s := Source{Kind: "account", Name: a.name, Witness: witness[a.name], Saw: fmt.Sprintf("%d sandboxes, %d of the fleet", a.rows, len(a.items))}
		if a.trouble != nil {
			s.Trouble = a.trouble.Error()
		}
		r.Sources = append(r.Sources, s)
		for _, u := range a.unmarked {
			r.Unmarked = append(r.Unmarked, a.name+" "+u.ID)
		}
	}
	r.Sources = append(r.Sources, f.sources...)
	return r
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// trails sorts the facts by lives, in the order in which they turn up.
func (f *facts) trails() []*trail {
	var all []*trail
	byNonce, byID := map[string]*trail{}, map[string]*trail{}
	find := func(provider, nonce, id string) *trail {
		t := byNonce[provider+" "+nonce]
		if nonce == "" || t != nil && t.id != "" && id != "" && t.id != id { // a copy carries its original's mark
			t = nil
		}
		if t == nil && id != "" {
			t = byID[provider+" "+id]
		}
		if t == nil {
			t = &trail{provider: provider}
			all = append(all, t)
		}
		if t.id = cmp.Or(t.id, id); t.id != "" {
			byID[provider+" "+t.id] = t
		}
		if t.nonce = cmp.Or(t.nonce, nonce); t.nonce != "" && byNonce[provider+" "+nonce] == nil {
			byNonce[provider+" "+t.nonce] = t
		}
		return t
	}
	slices.SortStableFunc(f.lines, func(a, b history.Line) int { return a.At.Compare(b.At) })
	for _, l := range f.lines {
		t := find(l.Provider, l.Nonce, l.ID)
		t.lines = append(t.lines, l)
	}
	for _, e := range f.orphans {
		find(e.Provider, e.Mark.Nonce, e.ID).entry = &e
	}
	for i := range f.accounts {
		for j := range f.accounts[i].items {
			if item := &f.accounts[i].items[j]; item.Outcome != sweep.Gone {
				find(f.accounts[i].name, item.Nonce, item.ID).item = item
			}
		}
	}
	for _, t := range all {
		for i := range f.accounts {
			if f.accounts[i].name == t.provider {
				t.account = &f.accounts[i]
			}
		}
	}
	return all
}

// judge says what became of a life. real is false for what never was one.
func (f *facts) judge(t *trail) (_ Life, real bool) {
	l := Life{Provider: t.provider, ID: t.id, Nonce: t.nonce, End: Unknown}
	made, answered := f.tell(t, &l)
	if t.entry != nil {
		f.enter(t.entry, &l)
	}
	last := end(t.lines)
	switch {
	case t.item != nil:
		f.there(t, &l, last)
	case last.What == history.Gone && !answered && t.id == "": // a create that made nothing, or nothing that was ever seen
		return l, false
	case last.What == history.Gone:
		f.gone(t, &l, last)
	default:
		f.missing(t, &l, last)
	}
	f.count(&l, made)
	return l, true
}

// end is the last line that tells of an end, or the zero Line. What came after it, a beat that was late to tell, is no life.
func end(lines []history.Line) history.Line {
	for _, l := range slices.Backward(lines) {
		if l.What == history.Gone || l.What == history.Left || l.What == history.Kept {
			return l
		}
	}
	return history.Line{}
}

// tell fills in what the lines say. made is when the sandbox was there at the latest.
func (f *facts) tell(t *trail, l *Life) (made time.Time, answered bool) {
	for _, line := range t.lines {
		l.Owner = cmp.Or(l.Owner, line.Owner)
		if line.Tags != nil {
			l.Tags = line.Tags
		}
		if !line.Hard.IsZero() {
			l.HardEnd = line.Hard
		}
		switch line.What {
		case history.Asked, history.Made:
			if l.Began.IsZero() {
				l.Began = line.Start
			}
			if line.What == history.Made {
				answered, made, l.Seen, l.Until = true, line.At, line.At, line.Until
			}
		case history.Lease, history.Kept:
			l.Seen, l.Until = line.At, line.Until
			if line.What == history.Lease {
				l.beats = append(l.beats, line.At)
			}
			if l.Began.IsZero() { // its beginning was dropped, or another history has it
				l.Began = line.At
			}
		case history.Left:
			if !line.Until.IsZero() {
				l.Until = line.Until
			}
		}
	}
	return made, answered
}

// enter fills in what the journal says.
func (f *facts) enter(e *sandbox.Entry, l *Life) {
	l.Owner, l.ID = cmp.Or(l.Owner, e.Mark.Owner), cmp.Or(l.ID, e.ID)
	if l.Tags == nil {
		l.Tags = e.Tags
	}
	if l.Began.IsZero() {
		l.Began = e.Mark.Created
	}
	if l.HardEnd.IsZero() {
		l.HardEnd = e.Mark.Created.Add(e.Mark.Lifetime)
	}
	if e.Kept.After(l.Until) {
		l.Until = e.Kept
	}
}

// listLag is how long an account may show what is gone.
const listLag = 2 * time.Minute

// there is for what its account shows.
func (f *facts) there(t *trail, l *Life, last history.Line) {
	it, at := t.item, t.account.at
	here := func(s time.Time) time.Time { // a time of the service's on this process's clock
		if s.IsZero() || it.AsOf.IsZero() {
			return time.Time{}
		}
		return at.Add(s.Sub(it.AsOf))
	}
	l.State, l.Owner, l.Nonce = it.State, cmp.Or(l.Owner, it.Owner), cmp.Or(l.Nonce, it.Nonce)
	if l.Tags == nil {
		l.Tags = it.Tags
	}
	if c := here(it.Created); l.Began.IsZero() && !c.IsZero() {
		l.Began = c
	}
	if d := here(it.Deadline); !d.IsZero() {
		l.Until = d
	}
	if h := here(it.HardEnd); !h.IsZero() {
		l.HardEnd = h
	}
	l.dormant = it.State == sandbox.StateDormant.String()
	if !l.dormant {
		l.Seen = at
	}
	l.Why = it.Reason
	if it.Rule == sweep.RuleLease {
		l.Why = "its lease runs for another " + page.Duration(it.Deadline.Sub(it.AsOf))
	}
	switch {
	case last.What == history.Gone && at.Sub(last.At) < listLag:
		f.gone(t, l, last)
		l.Why = strings.TrimPrefix(l.Why+"; its account still shows it, which may be a lag", "; ")
	case last.What == history.Gone:
		l.End, l.Leak, l.Why = Left, true, "it was seen to be gone at "+clock(last.At)+", and is there again"
	case it.Outcome == sweep.Unseen:
		l.End, l.Why = Unknown, "it could not be looked at: "+it.Error
	case it.Rule == sweep.RuleProtected:
		l.End = Kept
	case it.Outcome == sweep.WouldDelete, it.Outcome == sweep.Capped, it.Outcome == sweep.Left:
		l.End, l.Leak = Left, true
	case t.account.leaks[t.id].ID != "":
		l.End, l.Leak, l.Why = Left, true, "it is past its lease"
	case last.What == history.Kept && f.now.Before(l.Until):
		l.End = Kept
	case l.dormant, it.State == sandbox.StateFailed.String():
		l.End, l.Why = Left, it.Reason+": what is left of it may bill until the sweeper ends it"
	case it.Outcome == sweep.Pending:
		l.End, l.Why = Left, "the service has accepted its delete and is still at it"
	default:
		l.End = Alive
		if t.entry != nil {
			l.Why = strings.TrimPrefix(l.Why+"; its owner is dead or has let go of it", "; ")
		}
	}
}

// gone is for what somebody saw to be gone. That it was there until then is certain only of a sweeper, which looks before it
// deletes, and of a scope that has not lost it: others may have found nothing.
func (f *facts) gone(t *trail, l *Life, last history.Line) {
	l.Ended = last.At
	began := last.Start
	if began.IsZero() {
		began = last.At
	}
	passed := !l.Until.IsZero() && !began.Before(l.Until)
	i := slices.IndexFunc(t.lines, func(x history.Line) bool { return x.What == history.Lost })
	lost := i >= 0
	if lost && t.lines[i].State != "" {
		l.Ended = t.lines[i].At
	}
	switch {
	case last.By == history.Sweeper:
		l.End, l.Ended = BySweeper, last.At
	case lost && t.lines[i].State != "" && (l.Until.IsZero() || l.Ended.Before(l.Until)):
		l.Why = "the service said that it was gone while its owner wanted it: another's delete, or the service itself"
	case passed && (lost || last.By != history.Scope):
		l.End, l.Why = ByLease, "its lease was over when the "+string(last.By)+" came to end it"
		if over := l.Until.Add(history.Thin); over.Before(l.Ended) {
			l.Ended = over
		}
	case last.By == history.Scope && !lost:
		l.End, l.Seen = ByScope, began
	case last.By == history.Scope, last.By == history.Replay, last.By == history.Hand:
		l.End = End(last.By)
	default:
		l.Why = "the history names somebody else: " + string(last.By)
	}
}

// missing is for what no history has seen to be gone, and no account shows.
func (f *facts) missing(t *trail, l *Life, last history.Line) {
	over := !l.Until.IsZero() && f.now.After(l.Until.Add(history.Thin))
	switch {
	case t.account == nil:
		l.Why = "its account was not looked at"
	case t.account.trouble != nil:
		l.Why = "its account could not be seen as a whole"
	case t.id == "":
		l.Why = "its create was not answered, and nothing of it is there now"
		l.Ended = t.account.at
	case over:
		l.End, l.Ended = ByLease, l.Until.Add(history.Thin)
		l.Why = "nobody tells of an earlier end, and its account does not show it"
	case l.Until.IsZero():
		l.Ended, l.Why = t.account.at, "its account does not show it, and nothing tells who ended it"
	default:
		l.Ended = t.account.at
		l.Why = "its account does not show it, though its lease runs until " + clock(l.Until) + ": somebody ended it who keeps no history"
	}
	if asleep := last.State == sandbox.StateDormant.String(); last.What == history.Left && l.End == Unknown && l.Ended.IsZero() && (asleep || !over) {
		l.End, l.Leak = Left, true
		l.Why = "its delete failed (" + last.Error + "), and " + l.Why
	}
}

func clock(t time.Time) string { return t.Local().Format("2 Jan 15:04:05") }

// count bounds the hours of compute within the time of the report. made is when it was surely there.
func (f *facts) count(l *Life, made time.Time) {
	if l.Began.IsZero() {
		return
	}
	if made.IsZero() {
		made = l.Began
	}
	surely, atMost := l.Seen, l.Ended
	if l.End == Alive || l.End == Kept {
		surely = f.now
	}
	if atMost.IsZero() || atMost.After(f.now) {
		atMost = f.now
	}
	if l.dormant && !l.Until.IsZero() && l.Until.Before(atMost) {
		atMost = l.Until
	}
	hours := func(from, to time.Time) float64 {
		if from.Before(f.from) {
			from = f.from
		}
		return max(to.Sub(from), 0).Hours()
	}
	l.Least = hours(made, surely)
	l.Most = max(hours(l.Began, atMost), l.Least)
}
