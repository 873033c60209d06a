// Package heartbeat keeps one lease: it moves the lease's end while the owner lives and progresses, and says when the
// lease is over. It knows no provider; two functions stand for it.
//
// The rules, of which the first is the purpose of the rest:
//
//   - What an owner may presume counts from the start of the request that renewed the lease, on two clocks.
//   - One failure is never the end, and neither are a thousand while the presumed end lies ahead.
//   - At most one call is ever unresolved. After a failure the lease is looked at before it is extended again.
//   - What a service says of a death counts when a second look agrees. A look that fails is no agreement.
//   - A lease whose granted end keeps standing still has met a cap. Beats stop there, and the owner is told in time.
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sandglass-dev/sandglass/ttl"
)

// Why a lease is over.
var (
	ErrLost    = errors.New("no life can be presumed")
	ErrStalled = errors.New("owner makes no progress")
	ErrEnded   = errors.New("lifetime is over")
)

// ErrGone is matched by errors of [Config.Extend] and [Config.Look] that say: the service answered, and what the lease
// was for is gone, stopped, paused or another run under the same name.
var ErrGone = errors.New("gone")

var errPassed = errors.New("the end has passed, by the service's own clock")

// Grant is what a service said of a living lease.
type Grant struct {
	Left time.Duration // what is left of it, counted from the start of the request; 0: not told; negative: a failure
	End  time.Time     // its absolute end by the service's clock; zero: not told
}

// Beat is one call, for whoever watches.
type Beat struct {
	Look    bool          // a look; false: an extension
	Window  time.Duration // what was asked for; 0 for a look
	Grant   Grant
	Err     error
	Start   time.Time
	Took    time.Duration
	Attempt int // 1, and one more for each failure since the last beat that was well
}

// Config says what to keep and how. Plan, Start, Trust, Extend, Look and Over are required.
type Config struct {
	Plan  ttl.Plan
	Start ttl.Moment // when the request that made the lease left: its age counts from here
	Trust ttl.Moment // until when the lease may be presumed at first. If that is over, a look comes before all else
	Now   bool       // the first extension is due at once, not after a beat
	Blind bool       // an extension may follow a failed look: the service sets the end, so that sending twice adds nothing

	// Extend and Look get a context that ends after Plan.Attempt, and are never called at once. An error of Extend that
	// matches [errors.ErrUnsupported] turns extensions off: the lease then ends when it ends.
	Extend func(ctx context.Context, window time.Duration) (Grant, error)
	Look   func(ctx context.Context) (Grant, error)

	// Over is told why the lease is over, from Run's goroutine, before Run has cleaned up. After ErrEnded the beats go
	// on, so that an owner can wind up; a second call may follow. Like Idle and Observe, it must not block.
	Over func(cause error)

	Stall      time.Duration                 // longest time without progress; 0: no limit
	Idle       func() time.Duration          // how long there was none; required with Stall
	RetryAfter func(err error) time.Duration // the pause that a service asked for; nil: none
	Observe    func(Beat)                    // told of each call when it has ended; nil: nobody
	Wall       func() time.Time              // the wall clock; nil: time.Now
}

const (
	watch = 5 * time.Second // the longest sleep of the loop, since the timers of a suspended machine do not count
	proof = 3               // how often in a row an end must stand still to be a cap
)

// Run keeps the lease until ctx ends, when it returns nil, or the lease is over, when it returns an error that matches
// [ErrLost] or [ErrStalled]. It blocks. The call under way is then cancelled, and waited for, at most Plan.Attempt.
// The caller owns the goroutine.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	l := &loop{Config: cfg, answers: make(chan answer, 1), trust: cfg.Trust, end: cfg.Start.Add(cfg.Plan.MaxLifetime)}
	if l.Wall == nil {
		l.Wall = time.Now
	}
	defer l.join()
	defer cancel()

	now := l.now()
	l.woke = now
	l.due = cfg.Start.Add(early(l.Plan.Beat))
	if l.Now {
		l.due = now
	}
	if l.Plan.Fixed {
		l.cap(l.trust.Add(l.Plan.Margin))
	}
	if now.Until(l.trust) <= 0 {
		l.trust = now.Add(l.patience())
		l.looking, l.due = true, now
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		now = l.now()
		if err := l.verdict(now); err != nil {
			l.Over(err)
			return err
		}
		if !l.busy && now.Until(l.due) <= 0 {
			l.call(ctx, now)
		}
		timer.Reset(l.sleep(now))
		select {
		case <-ctx.Done():
		case a := <-l.answers:
			l.busy = false
			l.take(a, l.now())
		case <-timer.C:
		}
	}
	return nil
}

// A loop is the state of one Run. Only its own goroutine touches it.
type loop struct {
	Config
	answers chan answer
	busy    bool // a call is unresolved

	trust  ttl.Moment // until when the lease may be presumed
	end    ttl.Moment // when the owner is told that its time is over
	ended  bool       // it was told
	capped bool       // the end cannot move on: only looks from here

	due      ttl.Moment // of the next call
	looking  bool       // which is to be a look
	failures int        // since the last success
	gone     bool       // the service has said so once
	lost     bool       // and a look has agreed
	last     error      // of the last call

	woke   ttl.Moment // last time round
	parted time.Time  // when the clocks were last seen to move apart, on the monotonic one

	lastEnd  time.Time // the end last granted to an extension
	answered time.Time // when that was answered, on the monotonic clock
	still    int       // how often in a row it had not moved on
}

type answer struct {
	Beat
	start ttl.Moment
}

func (l *loop) now() ttl.Moment {
	m := ttl.Now()
	m.Wall = l.Wall().Round(0)
	return m
}

// verdict says whether the lease is over, and tells the owner when its time is.
func (l *loop) verdict(now ttl.Moment) error {
	if now.Drift(l.woke) > l.Plan.Beat {
		l.doubt(now)
	}
	l.woke = now
	end := l.end
	if l.capped { // what cannot be renewed is not lost when it runs out
		end = end.Earlier(l.trust)
	}
	if !l.ended && now.Until(end) <= 0 {
		l.ended = true
		l.Over(ErrEnded)
	}
	if l.lost || now.Until(l.trust) <= 0 {
		if l.last != nil {
			return fmt.Errorf("%w: %w", ErrLost, l.last)
		}
		return ErrLost
	}
	if l.Stall > 0 && l.Idle() >= l.Stall {
		return ErrStalled
	}
	return nil
}

// patience is how long a look may take where it decides: one attempt for the call that is under way, one for the look.
func (l *loop) patience() time.Duration { return 2 * l.Plan.Attempt }

// doubt is called when the clocks have moved apart. Either the machine slept, and the wall clock is right, or the wall
// clock was moved, and the monotonic one is. So there is a look before the wall clock may end the lease; but neither
// does it put off the monotonic end any more.
func (l *loop) doubt(now ttl.Moment) {
	l.looking, l.due, l.parted = true, now, now.Mono
	left := max(l.trust.Wall.Sub(now.Wall), l.patience())
	l.trust.Wall = now.Wall.Add(min(left, l.trust.Mono.Sub(now.Mono)))
}

// sleep returns how long nothing will happen of itself.
func (l *loop) sleep(now ttl.Moment) time.Duration {
	d := min(watch, now.Until(l.trust))
	if !l.busy {
		d = min(d, now.Until(l.due))
	}
	if !l.ended {
		d = min(d, now.Until(l.end))
	}
	if l.Stall > 0 {
		d = min(d, l.Stall-l.Idle())
	}
	return d
}

// call sends the next request from a goroutine, so that one that ignores its context cannot hold up a verdict.
func (l *loop) call(ctx context.Context, now ttl.Moment) {
	a := answer{start: now, Beat: Beat{Start: now.Mono, Attempt: l.failures + 1}}
	if !l.looking && !l.capped {
		a.Window = l.extension(now)
	}
	a.Look = a.Window == 0
	l.busy = true
	ctx, cancel := context.WithTimeout(ctx, l.Plan.Attempt)
	go func() {
		defer cancel()
		if a.Look {
			a.Grant, a.Err = l.Look(ctx)
		} else {
			a.Grant, a.Err = l.Extend(ctx, a.Window)
		}
		a.Took = time.Since(a.Start)
		l.answers <- a
	}()
}

// extension returns the window to ask for, 0 if there is nothing left to gain: then the end has met the hard end.
func (l *loop) extension(now ttl.Moment) time.Duration {
	window := l.Plan.WindowAt(now.Since(l.Start))
	presumed := window - l.Plan.Margin
	if window < l.Plan.Window && presumed <= now.Until(l.trust) {
		l.capped = true
		return 0
	}
	// A create's lease may be longer than the window. Its end comes nearer even if the answer to this is lost.
	l.trust = l.trust.Earlier(now.Add(presumed))
	return window
}

// take draws the conclusions from an answer.
func (l *loop) take(a answer, now ttl.Moment) {
	if a.Err == nil && a.Grant.Left < 0 {
		a.Err = errPassed
	}
	l.observe(a)
	l.last = a.Err
	gone := errors.Is(a.Err, ErrGone)
	switch {
	case a.Err == nil && a.Look:
		l.found(a, now)
	case a.Err == nil:
		l.extended(a, now)
	case !a.Look && !gone && errors.Is(a.Err, errors.ErrUnsupported):
		l.cap(l.trust.Add(l.Plan.Margin))
		l.next(a, now)
	default:
		l.lost = gone && l.gone // once it is gone, there are only looks
		l.gone = l.gone || gone
		l.failures++
		l.looking = !a.Look || !l.Blind || l.gone
		l.due = now.Add(l.backoff(a.Err, now))
	}
	if a.start.Mono.Before(l.parted) { // it was sent before the clocks parted, and proves nothing
		l.doubt(now)
	}
}

func (l *loop) extended(a answer, now ttl.Moment) {
	granted := a.Grant.Left
	if granted == 0 || granted > a.Window {
		granted = a.Window
	}
	l.trust = a.start.Add(granted - l.Plan.Margin)
	if a.Window < l.Plan.Window { // clamped to the hard end: the next would end there too
		l.capped = true
	}
	// A set end moves on at least as far as time did between the answer to one beat and the start of the next. One that
	// stands still is a cap, unless the service has only said yes and done nothing: the next beats show which, soon. Nor is
	// it one while all that was asked for is there: somebody else has moved the end further away.
	// The shortest time is there because services tell whole seconds.
	if passed := a.start.Mono.Sub(l.answered); !a.Grant.End.IsZero() && (l.lastEnd.IsZero() || passed >= 1500*time.Millisecond) {
		full := granted > a.Window-l.Plan.Spacing()
		if full || l.lastEnd.IsZero() || a.Grant.End.Sub(l.lastEnd) >= passed/2 {
			l.still = 0
		} else if l.still++; l.still == proof && !l.capped {
			l.cap(a.start.Add(granted))
		}
		l.lastEnd, l.answered = a.Grant.End, now.Mono
	}
	l.next(a, now)
	if l.still > 0 && !l.capped {
		l.due = now.Add(l.Plan.Spacing())
	}
}

// cap takes end as the lease's last, and brings the owner's end before it so that there is time to wind up.
func (l *loop) cap(end ttl.Moment) {
	l.capped = true
	l.end = l.end.Earlier(end.Add(l.Plan.MaxLifetime - l.Plan.HardEnd))
}

func (l *loop) found(a answer, now ttl.Moment) {
	left, window := a.Grant.Left, l.Plan.Window
	if left > 0 {
		l.trust = a.start.Add(left - l.Plan.Margin)
	}
	fresh := left <= window && left > window-l.Plan.Beat/2 // an extension whose answer was lost has done its work
	if l.capped || fresh {
		l.next(a, now)
		return
	}
	l.looking, l.gone = false, false
	l.due = now
}

// next plans the beat after a success: a beat later, sooner where less was granted.
func (l *loop) next(a answer, now ttl.Moment) {
	l.failures, l.gone, l.looking = 0, false, false
	every := l.Plan.Beat
	if left := a.Grant.Left; left > 0 && left < l.Plan.Window && !l.capped {
		every = time.Duration(float64(every) * float64(left) / float64(l.Plan.Window))
	}
	l.due = a.start.Add(early(every))
	if spacing := l.Plan.Spacing(); now.Until(l.due) < spacing {
		l.due = now.Add(spacing)
	}
}

// early takes up to a tenth off d, so that many leases do not beat at once. Never late.
func early(d time.Duration) time.Duration { return d - rand.N(d/10+1) }

// backoff returns how long to wait after a failure: twice as long each time, as long as the service asks for, but
// never more than half of what is left of the trust.
func (l *loop) backoff(err error, now ttl.Moment) time.Duration {
	shortest := l.Plan.Spacing() / 5
	d := min(shortest<<min(l.failures-1, 10), l.Plan.Beat)
	d = d/2 + rand.N(d/2+1)
	if l.RetryAfter != nil {
		d = max(d, l.RetryAfter(err))
	}
	return max(shortest/2, min(d, now.Until(l.trust)/2))
}

func (l *loop) observe(a answer) {
	if l.Observe != nil {
		l.Observe(a.Beat)
	}
}

// join waits for the call under way, for as long as one attempt may take.
func (l *loop) join() {
	if !l.busy {
		return
	}
	timer := time.NewTimer(l.Plan.Attempt)
	defer timer.Stop()
	select {
	case a := <-l.answers:
		l.observe(a)
	case <-timer.C:
	}
}
