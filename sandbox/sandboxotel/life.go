package sandboxotel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// An account is what metrics are kept by.
type account struct{ provider, fleet string }

func accountOf(e sandbox.Event) account { return account{e.Provider, e.Info.Mark.Fleet} }

// A life is one scope, or what a replay could not end, as far as events have told.
type life struct {
	account account
	nonces  []string          // by which events name it: two where it attached to a sandbox that has its own
	id      string            // empty: not known yet
	span    trace.Span        // of the scope; nil: there is none
	parent  trace.SpanContext // under which that was started
	opened  time.Time

	attached   bool      // the sandbox was there before the scope
	exists     bool      // something may exist that is the scope's to end
	since      time.Time // for how long
	unverified bool      // its end has failed
	until      time.Time // left for debugging, or remembered, until then; zero: not
	over       bool      // the scope has ended

	beat  time.Time     // when the last beat that was well was sent, or the create
	lease time.Duration // what the service granted then; 0: not told
	ready bool          // its function was about to be called
	ran   time.Time     // when its function had returned; zero: it has not
}

// lives are all that is open or left. Its zero value is ready for use.
type lives struct {
	mu       sync.Mutex
	accounts map[account]bool
	byNonce  map[string]*life
	byID     map[string]*life
	guests   []*life // those that attached
	kept     []*life // those that are remembered until a certain time only
}

// A sighting is what an event meant for the life that it belongs to.
type sighting struct {
	account  account
	span     trace.Span    // of its scope; nil: there is none
	vanished bool          // the scope is over without an error, and its function has not returned
	beat     bool          // it was a beat whose lateness can be told
	late     time.Duration // which is this
	ended    time.Time     // when the function of the scope had returned; zero: not known
}

// open enters the life of a scope.
func (s *lives) open(l *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meet(l.account)
	s.purge(time.Now())
	s.name(l, l.nonces[0])
}

// name has events with the nonce belong to l.
func (s *lives) name(l *life, nonce string) {
	if s.byNonce == nil {
		s.byNonce, s.byID = map[string]*life{}, map[string]*life{}
	}
	if !slices.Contains(l.nonces, nonce) {
		l.nonces = append(l.nonces, nonce)
	}
	s.byNonce[nonce] = l
}

// meet remembers an account, so that its metrics are there with 0 too.
func (s *lives) meet(a account) {
	if s.accounts == nil {
		s.accounts = map[account]bool{}
	}
	s.accounts[a] = true
}

func (s *lives) forget(l *life) {
	for _, n := range l.nonces {
		if s.byNonce[n] == l {
			delete(s.byNonce, n)
		}
	}
	if s.byID[l.id] == l {
		delete(s.byID, l.id)
	}
	same := func(other *life) bool { return other == l }
	s.guests, s.kept = slices.DeleteFunc(s.guests, same), slices.DeleteFunc(s.kept, same)
}

// purge forgets what was to be remembered until now.
func (s *lives) purge(now time.Time) {
	for _, l := range slices.Clone(s.kept) {
		if !now.Before(l.until) {
			s.forget(l)
		}
	}
}

// find returns the life that an event belongs to. An event does not say which scope it is of, but only which sandbox, which
// two may share: then the context that they were opened under has to tell them apart, or else it is the owner's.
func (s *lives) find(ctx context.Context, e sandbox.Event) *life {
	scope := e.Op == sandbox.OpScope // is told with the time at which it opened
	return best(ctx, s.candidates(e.Info.Mark.Nonce, e.Info.ID), func(l *life) bool { return !scope || l.opened.Equal(e.Start) })
}

func (s *lives) candidates(nonce, id string) []*life {
	found := []*life{s.byNonce[nonce]}
	if nonce == "" && id != "" {
		found[0] = s.byID[id]
	}
	for _, l := range s.guests {
		if l.id == id && l != found[0] {
			found = append(found, l)
		}
	}
	return found
}

func best(ctx context.Context, candidates []*life, fits func(*life) bool) (found *life) {
	under := trace.SpanContextFromContext(ctx)
	most := -1
	for _, l := range candidates {
		if l == nil || !fits(l) {
			continue
		}
		rank := 0
		if !l.over {
			rank += 2
		}
		if l.parent.Equal(under) {
			rank++
		}
		if rank > most {
			found, most = l, rank
		}
	}
	return found
}

// span returns the span of the open scope that has the sandbox id, or nil.
func (s *lives) span(ctx context.Context, id string) trace.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := best(ctx, s.candidates("", id), func(l *life) bool { return !l.over }); l != nil {
		return l.span
	}
	return nil
}

// note takes note of an event.
func (s *lives) note(ctx context.Context, e sandbox.Event, beat time.Duration) sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.find(ctx, e)
	if l == nil { // a replay, or a create that was answered after its scope
		a := accountOf(e)
		s.meet(a)
		if e.Op == sandbox.OpConfirm && e.Final && e.Err != nil && e.Info.Mark.Nonce != "" {
			l = &life{account: a, id: e.Info.ID, exists: true, since: e.Start, unverified: true, over: true}
			s.name(l, e.Info.Mark.Nonce)
		}
		return sighting{account: a}
	}
	seen := sighting{account: l.account, span: l.span, ended: l.ran}
	switch e.Op {
	case sandbox.OpGet:
		if l.id == "" && !l.attached && !l.exists { // the first look at a sandbox that was there before
			l.attached, l.id = true, e.Info.ID
			s.guests = append(s.guests, l)
		}
	case sandbox.OpJournal:
		switch {
		case l.attached && !l.exists && e.Err == nil: // a guest keeps no journal: it was taken over
			s.takeOver(l, e)
		case l.over && errors.Is(e.Err, sandbox.ErrConflict): // somebody else has taken over what it had left
			s.forget(l)
		}
	case sandbox.OpCreate:
		s.create(l, e)
	case sandbox.OpReady:
		l.ready = l.ready || e.Final && e.Err == nil
	case sandbox.OpExtend:
		if !e.Final && e.Err == nil {
			seen.beat, seen.late = l.lateness(e, beat)
			l.beat, l.lease = e.Start, e.Info.Left()
		}
	case sandbox.OpRun:
		if e.Final {
			l.ran = end(e)
		}
	case sandbox.OpKeep:
		if e.Err == nil {
			l.until = end(e).Add(e.Info.Left())
		}
	case sandbox.OpConfirm:
		if e.Final {
			l.exists, l.unverified = e.Err != nil, e.Err != nil
			if l.over && !l.exists { // a step or two may follow
				l.until = end(e).Add(time.Minute)
				s.kept = append(s.kept, l)
			}
		}
	case sandbox.OpScope:
		seen.vanished = e.Err == nil && l.ready && l.ran.IsZero() // who panics returns no error
		l.over = true
		switch {
		case l.unverified:
		case l.exists && !l.until.IsZero():
			s.kept = append(s.kept, l)
		default: // gone, never made, or a guest's
			s.forget(l)
		}
	}
	return seen
}

// create takes note of a create's answer. Only one that was refused is known to have made nothing.
func (s *lives) create(l *life, e sandbox.Event) {
	api, _ := errors.AsType[*sandbox.APIError](e.Err)
	if e.Info.ID == "" && api != nil && api.Refused {
		return
	}
	if !l.exists {
		l.exists, l.since = true, e.Start
	}
	l.beat, l.lease = e.Start, e.Info.Left()
	if e.Info.ID != "" {
		l.id = e.Info.ID
		s.byID[l.id] = l
	}
}

// takeOver makes the sandbox that l attached to its own, in place of the scope that has left it.
func (s *lives) takeOver(l *life, e sandbox.Event) {
	if before := s.byNonce[e.Info.Mark.Nonce]; before != nil && before != l {
		s.forget(before)
	}
	s.guests = slices.DeleteFunc(s.guests, func(other *life) bool { return other == l })
	s.name(l, e.Info.Mark.Nonce)
	s.byID[l.id] = l
	l.exists, l.since = true, e.Start
}

// lateness returns how long after it was due a beat was answered. Beats that come early, to spread them, are not late.
func (l *life) lateness(e sandbox.Event, beat time.Duration) (told bool, late time.Duration) {
	if l.beat.IsZero() { // the first one of a scope that attached is due at once
		return false, 0
	}
	if beat == 0 {
		beat = l.lease / 3
	}
	if beat <= 0 {
		beat = time.Minute
	}
	return true, max(0, end(e).Sub(l.beat.Add(beat)))
}

// count is what the observed metrics say of one account.
type count struct {
	live, unverified int64
	oldest           time.Duration
}

// counts returns what there is now, by account.
func (s *lives) counts() map[account]count {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.purge(now)
	counts := map[account]count{}
	for a := range s.accounts {
		counts[a] = count{}
	}
	seen := map[*life]bool{}
	for _, l := range s.byNonce {
		if seen[l] || !l.exists {
			continue
		}
		seen[l] = true
		c := counts[l.account]
		c.live++
		if l.unverified {
			c.unverified++
		}
		c.oldest = max(c.oldest, now.Sub(l.since))
		counts[l.account] = c
	}
	return counts
}

// spans returns the spans of all scopes that are open.
func (s *lives) spans() (spans []trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.byNonce {
		if !l.over && l.span != nil {
			spans = append(spans, l.span)
		}
	}
	return spans
}
