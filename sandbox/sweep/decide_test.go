package sweep_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// noon is a time on the service's clock.
var noon = time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)

// running returns facts to which no rule applies.
func running() sweep.Facts {
	return sweep.Facts{
		Fleet: "ci",
		Info: sandbox.Info{
			ID: "sb-1", State: sandbox.StateRunning, Run: "1", Created: noon.Add(-30 * time.Minute), AsOf: noon,
			Mark: sandbox.Mark{Fleet: "ci", Owner: "host.1", Nonce: nonce(1), Created: noon, Lifetime: time.Hour},
		},
		LeaseTold: true, Began: noon.Add(-time.Second),
		Lateness: 10 * time.Second, Grace: 5 * time.Minute,
	}
}

// A change makes one rule apply.
type change struct {
	rule   sweep.Rule
	action sweep.Action
	apply  func(*sweep.Facts)
}

// order is the order of rules, each with what makes it apply whatever else does.
func order() []change {
	return []change{
		{sweep.RuleGone, sweep.Keep, func(f *sweep.Facts) { f.Info.State = sandbox.StateGone }},
		{sweep.RuleForeign, sweep.Keep, func(f *sweep.Facts) { f.Info.Mark.Fleet = "cI" }},
		{sweep.RuleProtected, sweep.Keep, func(f *sweep.Facts) { f.Protected = "by a tag" }},
		{sweep.RuleChanged, sweep.Keep, func(f *sweep.Facts) {
			f.Earlier = new(f.Info)
			f.Earlier.Run = "0"
		}},
		{sweep.RuleFork, sweep.Keep, func(f *sweep.Facts) { f.Fork = true }},
		{sweep.RuleHardEnd, sweep.Delete, func(f *sweep.Facts) { f.Info.Created = noon.Add(-2 * time.Hour) }},
		{sweep.RuleLease, sweep.Keep, func(f *sweep.Facts) { f.Info.Deadline = noon.Add(time.Second) }},
		{sweep.RulePassed, sweep.Delete, func(f *sweep.Facts) {
			f.Info.Deadline = noon.Add(-time.Minute)
			f.Earlier = new(f.Info)
		}},
		{sweep.RuleAlive, sweep.Keep, func(f *sweep.Facts) { f.Life = sweep.Alive }},
		{sweep.RuleResidue, sweep.Delete, func(f *sweep.Facts) {
			f.Info.State = sandbox.StateDormant
			f.ResiduePasses = 2
		}},
		{sweep.RuleDead, sweep.Delete, func(f *sweep.Facts) { f.Life = sweep.Dead }},
	}
}

func TestRulesAreAskedInTheirOrder(t *testing.T) {
	rules := order()
	for i, first := range rules {
		t.Run(string(first.rule)+" alone", func(t *testing.T) {
			f := running()
			first.apply(&f)
			v := sweep.Decide(f)
			assert.Equal(t, first.rule, v.Rule, v.Reason)
			assert.Equal(t, first.action, v.Action)
		})
		for _, second := range rules[i+1:] {
			a, b := first.rule, second.rule
			switch {
			case a == sweep.RuleChanged && b == sweep.RulePassed, // the same field says otherwise
				a == sweep.RuleFork && b == sweep.RulePassed,    // below, in words of its own
				a == sweep.RuleLease && b == sweep.RulePassed,   // one deadline
				a == sweep.RulePassed && b == sweep.RuleResidue, // one state
				a == sweep.RuleGone && b == sweep.RuleResidue,   // one state
				a == sweep.RuleAlive && b == sweep.RuleDead:     // one life
				continue
			}
			t.Run(string(a)+" before "+string(b), func(t *testing.T) {
				f := running()
				second.apply(&f)
				first.apply(&f)
				v := sweep.Decide(f)
				assert.Equal(t, a, v.Rule, v.Reason)
				assert.Equal(t, first.action, v.Action)
			})
		}
	}
	t.Run("unknown when no rule applies", func(t *testing.T) {
		v := sweep.Decide(running())
		assert.Equal(t, sweep.RuleUnknown, v.Rule)
		assert.Equal(t, sweep.Keep, v.Action)
	})
}

func TestDecide(t *testing.T) {
	passed := func(f *sweep.Facts) {
		f.Info.Deadline = noon.Add(-time.Minute)
		f.Earlier = new(f.Info)
	}
	for name, c := range map[string]struct {
		change func(*sweep.Facts)
		action sweep.Action
		rule   sweep.Rule
	}{
		"no mark is foreign": {func(f *sweep.Facts) { f.Info.Mark = sandbox.Mark{}; passed(f) }, sweep.Keep, sweep.RuleForeign},
		"another mark in the second look is a change": {func(f *sweep.Facts) {
			passed(f)
			f.Info.Mark.Owner = "host.2"
		}, sweep.Keep, sweep.RuleChanged},
		"the hard end waits for the grace": {func(f *sweep.Facts) {
			f.Info.Created = noon.Add(-time.Hour - 5*time.Minute)
		}, sweep.Keep, sweep.RuleUnknown},
		"past hard end and grace by an instant": {func(f *sweep.Facts) {
			f.Info.Created = noon.Add(-time.Hour - 5*time.Minute - 1)
		}, sweep.Delete, sweep.RuleHardEnd},
		"the owner's clock is no part of the hard end": {func(f *sweep.Facts) {
			f.Info.Mark.Created = noon.Add(-100 * time.Hour)
		}, sweep.Keep, sweep.RuleUnknown},
		"without a time of creation there is no hard end": {func(f *sweep.Facts) {
			f.Info.Created, f.Info.Mark.Created = time.Time{}, noon.Add(-100*time.Hour)
		}, sweep.Keep, sweep.RuleUnknown},
		"a lease that passed is looked at twice": {func(f *sweep.Facts) {
			passed(f)
			f.Earlier = nil
		}, sweep.Look, sweep.RulePassed},
		"a lease that had not passed a moment ago is looked at again": {func(f *sweep.Facts) {
			passed(f)
			f.Earlier.Deadline = noon.Add(time.Minute)
		}, sweep.Look, sweep.RulePassed},
		"a lease passed by no more than the lateness proves nothing": {func(f *sweep.Facts) {
			f.Info.Deadline = noon.Add(-10 * time.Second)
			f.Earlier = new(f.Info)
		}, sweep.Keep, sweep.RuleUnknown},
		"a passed lease that the adapter made up proves nothing": {func(f *sweep.Facts) {
			passed(f)
			f.LeaseTold = false
		}, sweep.Keep, sweep.RuleUnknown},
		"a future lease that the adapter made up protects": {func(f *sweep.Facts) {
			f.Info.Deadline, f.LeaseTold, f.Life = noon.Add(time.Minute), false, sweep.Dead
		}, sweep.Keep, sweep.RuleLease},
		"a dead owner's lease counts": {func(f *sweep.Facts) {
			f.Info.Deadline, f.Life = noon.Add(time.Minute), sweep.Dead
		}, sweep.Keep, sweep.RuleLease},
		"a dead owner's lease counts for nothing with EndDead": {func(f *sweep.Facts) {
			f.Info.Deadline, f.Life, f.EndDead = noon.Add(time.Minute), sweep.Dead, true
		}, sweep.Delete, sweep.RuleDead},
		"an owner of whom nothing is known keeps the lease with EndDead": {func(f *sweep.Facts) {
			f.Info.Deadline, f.EndDead = noon.Add(time.Minute), true
		}, sweep.Keep, sweep.RuleLease},
		"a living one, too": {func(f *sweep.Facts) {
			f.Info.Deadline, f.Life, f.EndDead = noon.Add(time.Minute), sweep.Alive, true
		}, sweep.Keep, sweep.RuleLease},
		"a dead owner's copy is kept with EndDead": {func(f *sweep.Facts) {
			f.Info.Deadline, f.Life, f.EndDead, f.Fork = noon.Add(time.Minute), sweep.Dead, true, true
		}, sweep.Keep, sweep.RuleFork},
		"what a dead owner made after the pass began waits with EndDead": {func(f *sweep.Facts) {
			f.Info.Deadline, f.Info.Created, f.Life, f.EndDead = noon.Add(time.Minute), noon, sweep.Dead, true
		}, sweep.Keep, sweep.RuleNew},
		"a lease without the service's clock says nothing": {func(f *sweep.Facts) {
			passed(f)
			f.Info.AsOf, f.Earlier.AsOf = time.Time{}, time.Time{}
		}, sweep.Keep, sweep.RuleUnknown},
		"what starts has no passed lease": {func(f *sweep.Facts) {
			passed(f)
			f.Info.State = sandbox.StateStarting
		}, sweep.Keep, sweep.RuleUnknown},
		"a paused row's deadline is no lease": {func(f *sweep.Facts) {
			passed(f)
			f.Info.State, f.Earlier.State, f.ResiduePasses = sandbox.StateDormant, sandbox.StateDormant, 1
		}, sweep.Keep, sweep.RuleResidue},
		"a passed lease counts whoever the owner is": {func(f *sweep.Facts) {
			passed(f)
			f.Life = sweep.Alive
		}, sweep.Delete, sweep.RulePassed},
		"a copy is ended by its own passed lease": {func(f *sweep.Facts) {
			passed(f)
			f.Fork = true
		}, sweep.Delete, sweep.RulePassed},
		"residue seen once is kept": {func(f *sweep.Facts) {
			f.Info.State, f.ResiduePasses = sandbox.StateDormant, 1
		}, sweep.Keep, sweep.RuleResidue},
		"residue for longer than the grace goes": {func(f *sweep.Facts) {
			f.Info.State, f.ResiduePasses, f.ResidueFor = sandbox.StateDormant, 1, 6*time.Minute
		}, sweep.Delete, sweep.RuleResidue},
		"failed ones are residue": {func(f *sweep.Facts) {
			f.Info.State, f.ResiduePasses = sandbox.StateFailed, 2
		}, sweep.Delete, sweep.RuleResidue},
		"residue of a dead owner goes at once": {func(f *sweep.Facts) {
			f.Info.State, f.ResiduePasses, f.Life = sandbox.StateDormant, 1, sweep.Dead
		}, sweep.Delete, sweep.RuleDead},
		"made after the pass began waits": {func(f *sweep.Facts) {
			f.Info.Created, f.Life = noon, sweep.Dead
		}, sweep.Keep, sweep.RuleNew},
		"made within a rounding of the pass's begin waits": {func(f *sweep.Facts) {
			f.Info.Created, f.Life = f.Began.Add(-time.Second), sweep.Dead
		}, sweep.Keep, sweep.RuleNew},
		"a pass whose begin is not known waits": {func(f *sweep.Facts) {
			f.Began, f.Life = time.Time{}, sweep.Dead
		}, sweep.Keep, sweep.RuleNew},
		"an unknown age waits": {func(f *sweep.Facts) {
			f.Info.Created, f.Life = time.Time{}, sweep.Dead
		}, sweep.Keep, sweep.RuleNew},
		"a passed lease needs no age": {func(f *sweep.Facts) {
			passed(f)
			f.Info.Created = time.Time{}
		}, sweep.Delete, sweep.RulePassed},
		"OlderThan restricts": {func(f *sweep.Facts) {
			passed(f)
			f.OlderThan = 31 * time.Minute
		}, sweep.Keep, sweep.RuleYoung},
		"OlderThan lets older ones go": {func(f *sweep.Facts) {
			passed(f)
			f.OlderThan = 30 * time.Minute
		}, sweep.Delete, sweep.RulePassed},
		"OlderThan alone proves nothing": {func(f *sweep.Facts) { f.OlderThan = time.Minute }, sweep.Keep, sweep.RuleUnknown},
		"an unknown age is not older than anything": {func(f *sweep.Facts) {
			passed(f)
			f.Info.Created, f.OlderThan = time.Time{}, time.Second
		}, sweep.Keep, sweep.RuleYoung},
		"an ending one of a dead owner goes": {func(f *sweep.Facts) {
			f.Info.State, f.Life = sandbox.StateEnding, sweep.Dead
		}, sweep.Delete, sweep.RuleDead},
	} {
		t.Run(name, func(t *testing.T) {
			f := running()
			c.change(&f)
			v := sweep.Decide(f)
			assert.Equal(t, c.rule, v.Rule, v.Reason)
			assert.Equal(t, c.action, v.Action)
			assert.NotEmpty(t, v.Reason)
		})
	}
}

func TestAnOwnerWhoseLeaseMovesPastItsHardEndIsReported(t *testing.T) {
	f := running()
	f.Info.Created, f.Info.Deadline = noon.Add(-3*time.Hour), noon.Add(time.Minute)
	v := sweep.Decide(f)
	require.Equal(t, sweep.Delete, v.Action)
	assert.True(t, v.Overrun)
	assert.Contains(t, v.Reason, "breaks its own rule")

	f.Info.Deadline = noon.Add(-time.Minute)
	assert.False(t, sweep.Decide(f).Overrun)
}
