package sweep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Life is what is known of an owner.
type Life int

// Lives.
const (
	Unknown Life = iota // nothing
	Alive               // it lives and wants the sandbox, or has left it for debugging
	Dead                // proven: it will never come back
)

// Liveness tells of the owner of one sandbox, such as by the lock on a journal's entry or from a scheduler's list of
// jobs. It is asked only where the service's own lease does not decide (or Config.EndDead says that it decides nothing),
// again right before a delete, from several goroutines at once, and must return within 10 seconds. An error is Unknown, and in the report.
type Liveness func(ctx context.Context, info sandbox.Info) (Life, error)

// Config is the setting of a [Sweeper]. Fleet and Providers are required; zero fields are the defaults.
type Config struct {
	Fleet     string             // nothing outside of it is ever deleted
	Providers []sandbox.Provider // the accounts to look through, side by side; their names must differ

	Liveness Liveness // nil: nothing is known of any owner

	// EndDead ends the sandboxes of an owner whom Liveness proves dead although their leases still run, as a scheduler
	// whose word can be trusted allows. Not for a fleet in which sandboxes are attached to or handed over: those have
	// another to live for than the owner of whom Liveness knows. What a dead owner's KeepOnError has left for debugging is
	// spared where Liveness asks the journal that says so, and only there: a cluster cannot know. false: the lease ends
	// them, at most a window later.
	EndDead bool

	// Known returns the ids that are expected to exist in the account of that name: a journal's, or those of a
	// Manager's Live. What a list does not show is looked for by id, and if it is there, the pass has not seen
	// everything: [ErrBlind]. nil: only what an earlier pass of the same Sweeper has kept is expected.
	Known func(ctx context.Context, provider string) ([]string, error)

	ProtectTags map[string]string       // what carries one of these tags is kept; an empty value stands for any
	Protect     func(sandbox.Info) bool // so is what it returns true for; called from several goroutines at once

	// KeepSnapshots leaves what was made from a deleted sandbox and outlives it, and reports it only. false: it is deleted
	// too, where the service tells that its source is ours (see [sandbox.Snapshotter]).
	KeepSnapshots bool

	Grace       time.Duration // time after a hard end, and of residue; default 5 min
	OlderThan   time.Duration // delete only what is at least so old: a restriction, and no proof of anything. 0: none
	MaxDeletes  int           // deletes per account and pass, the rest is listed; default: 20 % of the fleet, at least 100
	DryRun      bool          // judge and look, but make no request that writes
	Parallel    int           // sandboxes of one account worked on at once; default 16
	ItemTimeout time.Duration // looks and delete of one sandbox; default 2 min, more where the provider's delete is slow
	ListTimeout time.Duration // one list, over all pages; default 10 min

	OnPass    func(Report, error) // told of every pass of Run as it ends
	Observers []sandbox.Observer  // none: what a delete has left goes to slog.Default at Error
}

func (c Config) withDefaults() (Config, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, sandbox.ErrInvalid)...))
	}
	if !validFleet(c.Fleet) {
		fault("fleet %q cannot stand in a mark (there is no default: it says what may be deleted)", c.Fleet)
	}
	if len(c.Providers) == 0 {
		fault("no providers")
	}
	names := map[string]bool{}
	for i, p := range c.Providers {
		switch {
		case p == nil:
			fault("provider %d is nil", i)
		case names[p.Name()]:
			fault("two providers are named %q", p.Name())
		default:
			names[p.Name()] = true
		}
	}
	if _, ok := c.ProtectTags[""]; ok {
		fault("a tag to protect has no name")
	}
	for _, t := range []struct {
		name string
		d    *time.Duration
		std  time.Duration
	}{
		{"Grace", &c.Grace, 5 * time.Minute},
		{"OlderThan", &c.OlderThan, 0},
		{"ItemTimeout", &c.ItemTimeout, 0}, // by provider
		{"ListTimeout", &c.ListTimeout, 10 * time.Minute},
	} {
		if *t.d < 0 {
			fault("%s %v is negative", t.name, *t.d)
		}
		if *t.d == 0 {
			*t.d = t.std
		}
	}
	if c.EndDead && c.Liveness == nil {
		fault("EndDead without a Liveness, which alone can prove an owner dead")
	}
	if c.MaxDeletes < 0 {
		fault("MaxDeletes %d is negative", c.MaxDeletes)
	}
	if c.Parallel < 0 {
		fault("Parallel %d is negative", c.Parallel)
	}
	if c.Parallel == 0 {
		c.Parallel = 16
	}
	c.Providers, c.Observers, c.ProtectTags = slices.Clone(c.Providers), slices.Clone(c.Observers), maps.Clone(c.ProtectTags)
	return c, errors.Join(faults...)
}

// validFleet asks the mark itself.
func validFleet(fleet string) bool {
	m := sandbox.Mark{Fleet: fleet, Owner: "o", Nonce: strings.Repeat("a", 16), Created: time.Unix(0, 0), Lifetime: time.Second}
	_, err := sandbox.ParseMark(m.String())
	return err == nil
}

// itemTimeout is the budget of one sandbox.
func (c Config) itemTimeout(caps sandbox.Capabilities) time.Duration {
	if c.ItemTimeout > 0 {
		return c.ItemTimeout
	}
	return max(2*time.Minute, 2*caps.DeleteTime+30*time.Second)
}

// protection returns why a sandbox is protected. A rule that panics protects: nobody knows what it would have said.
func (c Config) protection(info sandbox.Info) (why string) {
	for _, k := range slices.Sorted(maps.Keys(c.ProtectTags)) {
		if v, ok := info.Tags[k]; ok && (c.ProtectTags[k] == "" || c.ProtectTags[k] == v) {
			return fmt.Sprintf("carries the tag %s=%s", k, v)
		}
	}
	if c.Protect == nil {
		return ""
	}
	defer func() {
		if p := recover(); p != nil {
			why = fmt.Sprintf("the rule for protection panicked: %v", p)
		}
	}()
	info.Native = nil
	if c.Protect(info) {
		return "protected by the user's rule"
	}
	return ""
}
