// Package ttl is the arithmetic of a sandbox's life: how far ahead its end may lie, how often that end is moved,
// and until when its owner may presume it alive. It makes no request, starts nothing and never sleeps.
//
// A [Policy] says what the owner wants, [Limits] what the provider can do; [Policy.Resolve] makes a [Plan] of both or
// reports every reason why there is none.
package ttl

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// Defaults of a [Policy].
const (
	DefaultWindow      = 3 * time.Minute
	DefaultMaxLifetime = time.Hour
	maxAttempt         = 30 * time.Second
	maxMargin          = 5 * time.Second
	minSpacing         = 5 * time.Second
	shortest           = time.Millisecond // no network is faster, and who writes 60 means seconds
)

// Policy is what an owner asks for. Zero fields are defaults; negative ones are faults, and so is a beat, an attempt
// limit or a lifetime below a millisecond.
type Policy struct {
	Window      time.Duration // W: how far ahead of the service's clock the end may ever lie; default 3 min, less if Limits.Max is
	Beat        time.Duration // B: time between extensions; default a third of the window
	Attempt     time.Duration // limit of one extension; default a sixth of the window, at most 30 s
	MaxLifetime time.Duration // H: when the owner stops; default 1 h, less if Limits.MaxLifetime is
	After       time.Duration // from H to the hard end at the service: grace, clean-up and keeping
}

// Limits is what a provider can do. Zero means not known, never unlimited.
type Limits struct {
	Min, Max    time.Duration // shortest and longest window; Max is required
	Step        time.Duration // windows are whole multiples of it; 0: 1 s
	MaxLifetime time.Duration // no life is longer; 0: not known
	Fixed       bool          // the end never moves: one window spans the whole life
}

// Plan is a policy that a provider can carry out. [Policy.Resolve] makes it; the zero Plan is of no use.
type Plan struct {
	Window      time.Duration // a multiple of Step, rounded down
	Beat        time.Duration
	Attempt     time.Duration
	Margin      time.Duration // how much earlier than granted an owner stops presuming: for clocks that differ in rate and grain
	MaxLifetime time.Duration // H
	HardEnd     time.Duration // H + After: the end that no beat may pass
	Fixed       bool

	min, step time.Duration
}

// Resolve measures p against l. The error joins every fault; those of what the provider cannot do at all match
// [errors.ErrUnsupported].
func (p Policy) Resolve(l Limits) (Plan, error) {
	plan := Plan{Fixed: l.Fixed, min: l.Min, step: cmp.Or(l.Step, time.Second)}
	var f faults
	usable := l.Max > 0 && l.Min >= 0 && l.Min <= l.Max && l.Step >= 0 && l.MaxLifetime >= 0
	if !usable {
		f.add("provider states no usable window: min %v, max %v, step %v, max lifetime %v", l.Min, l.Max, l.Step, l.MaxLifetime)
	}
	live, renew := usable, usable // nothing is concluded from nonsense: that would only add noise
	for _, t := range []struct {
		name string
		d    time.Duration
		part *bool
	}{
		{"max lifetime", p.MaxLifetime, &live},
		{"time after the max lifetime", p.After, &live},
		{"window", p.Window, &renew},
		{"beat", p.Beat, &renew},
		{"attempt limit", p.Attempt, &renew},
	} {
		if t.d < 0 {
			f.add("%s %v is negative", t.name, t.d)
			*t.part = false
		}
	}
	if live {
		plan.live(p, l, &f)
	}
	if renew {
		plan.renew(p, l, &f)
	}
	if len(f) > 0 {
		return Plan{}, errors.Join(f...)
	}
	return plan, nil
}

// live settles how long the life may be. HardEnd stays 0 if that cannot be.
func (p *Plan) live(policy Policy, l Limits, f *faults) {
	most := l.MaxLifetime // 0: not known
	if l.Fixed && (most == 0 || l.Max < most) {
		most = l.Max
	}
	h, after := policy.MaxLifetime, policy.After
	if h == 0 {
		h = DefaultMaxLifetime
		if most > 0 {
			h = min(h, most-after)
		}
	}
	switch {
	case policy.MaxLifetime == 0 && h < shortest:
		f.add("the %v after the max lifetime leave nothing of the provider's %v", after, most)
	case h < shortest:
		f.add("max lifetime %v is less than %v: is the unit missing?", h, shortest)
	case h > math.MaxInt64-after:
		f.add("max lifetime %v and the %v after it are more than can be counted", h, after)
	case most > 0 && h+after > most:
		f.add("max lifetime %v and the %v after it do not fit into the provider's %v", h, after, most)
	default:
		p.MaxLifetime, p.HardEnd = h, h+after
	}
}

// renew settles the window, and how often and how long it is renewed.
func (p *Plan) renew(policy Policy, l Limits, f *faults) {
	asked := cmp.Or(policy.Window, min(DefaultWindow, l.Max))
	if p.Fixed {
		if policy.Window != 0 {
			f.add("window %v: the provider cannot move an end, so that the window is the lifetime: %w", asked, errors.ErrUnsupported)
		}
		if asked = p.HardEnd; asked == 0 {
			return // a fault already
		}
	}
	p.Window = p.Down(asked)
	switch {
	case p.Window == 0:
		f.add("window %v is less than the provider's step of %v", asked, p.step)
		return
	case p.Window < l.Min:
		f.add("window %v, in steps of %v, is less than the provider's minimum of %v", asked, p.step, l.Min)
	case p.Window > l.Max:
		f.add("window %v is more than the provider's maximum of %v", asked, l.Max)
	case p.HardEnd > 0 && p.WindowAt(0) == 0:
		f.add("max lifetime %v and the %v after it are less than the provider's shortest window of %v",
			p.MaxLifetime, policy.After, max(l.Min, p.step))
	}

	window := p.Window
	if p.Fixed { // nothing to renew: beats only look
		window = min(window, DefaultWindow)
	}
	p.Beat = cmp.Or(policy.Beat, window/3)
	p.Attempt = cmp.Or(policy.Attempt, min(window/6, maxAttempt))
	p.Margin = min(window/20, maxMargin)
	if p.Beat < shortest || p.Attempt < shortest {
		f.add("beat %v and attempt limit %v: less than %v: is the unit missing?", p.Beat, p.Attempt, shortest)
	}
	// Written without 2*Beat, which could overflow.
	if !p.Fixed && (p.Beat > p.Window-p.Attempt || p.Beat > p.Window-p.Attempt-p.Beat) {
		f.add("two beats of %v and one attempt of %v do not fit into the window of %v", p.Beat, p.Attempt, p.Window)
	}
}

// Down rounds d, which is not negative, to the provider's step. Never up: an end must not lie later than asked.
func (p Plan) Down(d time.Duration) time.Duration { return d - d%p.step }

// WindowAt returns the window to ask for when so much of the life is over: W, clamped to the hard end and rounded
// down. 0: so little is left that the provider takes no window for it.
func (p Plan) WindowAt(age time.Duration) time.Duration {
	left := p.HardEnd - max(age, 0)
	if left <= 0 {
		return 0
	}
	w := p.Down(min(p.Window, left))
	if w < p.min {
		return 0
	}
	return w
}

// Spacing is the shortest time between the answer to one beat and the next beat: 5 s, or the plan's own beat where
// that is shorter. It keeps beats apart where a service grants less and less.
func (p Plan) Spacing() time.Duration { return min(p.Beat, minSpacing) }

// faults collects what is wrong, so that all of it is reported at once.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }
