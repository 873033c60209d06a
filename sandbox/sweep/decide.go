package sweep

import (
	"fmt"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Action is what is to be done with a sandbox.
type Action int

// Actions.
const (
	Keep   Action = iota // nothing
	Look                 // one more look decides between the other two
	Delete               // delete it
)

// Rule names the rule that decided.
type Rule string

// Rules, in the order in which they are asked.
const (
	RuleGone      Rule = "gone"         // nothing but history is left
	RuleForeign   Rule = "foreign"      // no exact mark, or another fleet's
	RuleProtected Rule = "protected"    // by the user's tag or function
	RuleChanged   Rule = "changed"      // another run, or another mark, since the look before
	RuleFork      Rule = "fork"         // carries the mark of another sandbox; only its own passed lease ends it
	RuleHardEnd   Rule = "hard end"     // past the time after which no owner can want it
	RuleLease     Rule = "lease"        // the lease lies in the future
	RulePassed    Rule = "lease passed" // and the service has not acted on that
	RuleAlive     Rule = "owner alive"
	RuleResidue   Rule = "residue" // what is left when compute has ended, or was given up
	RuleDead      Rule = "owner dead"
	RuleUnknown   Rule = "unknown" // nothing is proven

	// These two turn a delete into a keep.
	RuleNew   Rule = "new"   // made after the pass began, or at a time that is not known
	RuleYoung Rule = "young" // younger than OlderThan, or of unknown age
)

// Facts are all that is known of one sandbox. Times in Info, Earlier and Began are the service's.
type Facts struct {
	Fleet string // the sweeper's

	Info      sandbox.Info  // the latest look
	Earlier   *sandbox.Info // the look before it in the same pass; nil: there was none
	LeaseTold bool          // Info.Deadline is the service's own word; false: a passed one proves nothing
	Fork      bool          // another sandbox carries the same mark, and this may not be the one that it was written for
	Began     time.Time     // when the pass began; zero: not known

	Protected string // why it is protected; empty: it is not
	Life      Life   // of its owner
	EndDead   bool   // a dead owner's lease counts for nothing

	ResiduePasses int           // passes in a row that saw it as residue, this one included
	ResidueFor    time.Duration // since the first of them

	Lateness  time.Duration // how late the service may act on a deadline
	Grace     time.Duration
	OlderThan time.Duration // 0: no restriction
}

// Verdict is what the facts come to.
type Verdict struct {
	Action  Action
	Rule    Rule
	Reason  string // for people
	Overrun bool   // past its hard end its lease still lies in the future: its owner breaks its own rule
}

// grain is how much two times of a service may differ for rounding alone.
const grain = 2 * time.Second

// Decide returns what is to be done. It is a pure function: the same facts always come to the same verdict.
func Decide(f Facts) Verdict {
	v := f.judge()
	if v.Action == Keep {
		return v
	}
	i := f.Info
	age := i.AsOf.Sub(i.Created)
	known := !i.Created.IsZero() && !i.AsOf.IsZero()
	switch {
	case known && (f.Began.IsZero() || !i.Created.Add(grain).Before(f.Began)):
		return keep(RuleNew, "made after the pass began; the next one judges it")
	case !known && v.Rule != RulePassed: // a lease that has passed is no matter of age
		return keep(RuleNew, "the service does not tell when it was made, which is never long enough ago")
	case f.OlderThan > 0 && !known:
		return keep(RuleYoung, "its age is not known, and only older than %v is asked for", f.OlderThan)
	case f.OlderThan > 0 && age < f.OlderThan:
		return keep(RuleYoung, "made %v ago, and only older than %v is asked for", age, f.OlderThan)
	}
	return v
}

func (f Facts) judge() Verdict {
	i := f.Info
	past, hasHardEnd := f.pastHardEnd()
	switch {
	case i.State == sandbox.StateGone:
		return keep(RuleGone, "the service keeps nothing but its history")
	case i.Mark == sandbox.Mark{}:
		return keep(RuleForeign, "carries no exact mark of its own")
	case i.Mark.Fleet != f.Fleet:
		return keep(RuleForeign, "belongs to fleet %s", i.Mark.Fleet)
	case f.Protected != "":
		return keep(RuleProtected, "%s", f.Protected)
	case f.changed():
		return keep(RuleChanged, "another run or another mark than a moment ago")
	case f.Fork && f.passed(i):
		return f.twice()
	case f.Fork:
		return keep(RuleFork, "shares its mark with another sandbox, and may be a copy that somebody made")
	case hasHardEnd && past > f.Grace:
		v := remove(RuleHardEnd, "past its hard end by %v", past)
		if v.Overrun = f.leased(); v.Overrun {
			v.Reason += ", and its lease still lies in the future: its owner breaks its own rule"
		}
		return v
	case f.leased() && f.EndDead && f.Life == Dead:
		return remove(RuleDead, "its owner is dead, and its lease would run for another %v", i.Left())
	case f.leased():
		return keep(RuleLease, "its lease runs for another %v", i.Left())
	case f.passed(i):
		return f.twice()
	case f.Life == Alive:
		return keep(RuleAlive, "its owner is alive")
	case f.residue() && (f.ResiduePasses >= 2 || f.ResidueFor > f.Grace):
		return remove(RuleResidue, "%s, seen so by %d passes in %v", i.State, f.ResiduePasses, f.ResidueFor)
	case f.Life == Dead:
		return remove(RuleDead, "its owner is dead")
	case f.residue():
		return keep(RuleResidue, "%s, seen so for the first time", i.State)
	case hasHardEnd:
		return keep(RuleUnknown, "nothing is proven; its hard end comes in %v", -past)
	default:
		return keep(RuleUnknown, "nothing is proven, not even when its hard end comes")
	}
}

func keep(r Rule, format string, args ...any) Verdict {
	return Verdict{Action: Keep, Rule: r, Reason: fmt.Sprintf(format, args...)}
}

func remove(r Rule, format string, args ...any) Verdict {
	return Verdict{Action: Delete, Rule: r, Reason: fmt.Sprintf(format, args...)}
}

// pastHardEnd returns how long ago the hard end was. Unlike [sandbox.Info.HardDeadline] it does not put up with the
// mark's own time, which is the owner's clock.
func (f Facts) pastHardEnd() (past time.Duration, known bool) {
	i := f.Info
	if i.Created.IsZero() || i.AsOf.IsZero() || i.Mark.Lifetime <= 0 {
		return 0, false
	}
	return i.AsOf.Sub(i.Created.Add(i.Mark.Lifetime)), true
}

// leased reports whether the lease lies in the future. Whoever told that: it can only save.
func (f Facts) leased() bool {
	return !f.Info.AsOf.IsZero() && f.Info.Deadline.After(f.Info.AsOf)
}

// passed reports whether a look shows a lease that the service should have acted on. Only of what runs is that known:
// dormant records show anything there.
func (f Facts) passed(i sandbox.Info) bool {
	return f.LeaseTold && i.State == sandbox.StateRunning && !i.Deadline.IsZero() && !i.AsOf.IsZero() && -i.Left() > f.Lateness
}

func (f Facts) twice() Verdict {
	v := Verdict{Action: Look, Rule: RulePassed, Reason: fmt.Sprintf("runs, though its lease passed %v ago", -f.Info.Left())}
	if f.Earlier != nil && f.passed(*f.Earlier) {
		v.Action = Delete
		v.Reason += ", seen twice"
	}
	return v
}

// residue reports whether no compute runs that anybody could be using.
func (f Facts) residue() bool {
	return f.Info.State == sandbox.StateDormant || f.Info.State == sandbox.StateFailed
}

func (f Facts) changed() bool {
	e := f.Earlier
	return e != nil && (e.Mark.String() != f.Info.Mark.String() || e.Run != "" && f.Info.Run != "" && e.Run != f.Info.Run)
}
