package sweep

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Outcome is what became of a sandbox in a pass.
type Outcome string

// Outcomes.
const (
	Kept        Outcome = "kept"
	Deleted     Outcome = "deleted"      // and seen to be gone
	WouldDelete Outcome = "would delete" // but for the dry run
	Gone        Outcome = "gone"         // before the pass came to it
	Pending     Outcome = "pending"      // the service has accepted the delete and is still at it; neither success nor a leak
	Capped      Outcome = "capped"       // to be deleted, by a later pass
	Left        Outcome = "left"         // to be deleted, and not seen to be gone
	Unseen      Outcome = "unseen"       // could not be looked at
)

// Report is what a pass saw and did. It holds no secret and no Native record, and becomes JSON by [encoding/json].
type Report struct {
	Fleet    string    `json:"fleet"`
	DryRun   bool      `json:"dry_run,omitempty"`
	Began    time.Time `json:"began"` // by this process's clock
	Ended    time.Time `json:"ended"`
	Accounts []Account `json:"accounts"` // in the order of Config.Providers
}

// Account is a pass over one account.
type Account struct {
	Provider string          `json:"provider"` // its name
	Seen     int             `json:"seen"`     // rows of all kinds
	Foreign  int             `json:"foreign"`  // of them not ours, and not touched
	Rules    map[Rule]int    `json:"rules"`    // of the fleet's, by the rule that decided
	Outcomes map[Outcome]int `json:"outcomes"` // likewise
	Items    []Item          `json:"items"`    // the sandboxes of the fleet, first what somebody has to look at
	Error    string          `json:"error,omitempty"`
}

// Item is one sandbox of the fleet.
type Item struct {
	ID       string            `json:"id"`
	Nonce    string            `json:"nonce"`
	Owner    string            `json:"owner"`
	State    string            `json:"state"`
	Tags     map[string]string `json:"tags,omitempty"`
	Created  time.Time         `json:"created,omitzero"` // this and the next three are the service's times; zero: not told
	Deadline time.Time         `json:"deadline,omitzero"`
	HardEnd  time.Time         `json:"hard_end,omitzero"`
	AsOf     time.Time         `json:"as_of,omitzero"`
	Rule     Rule              `json:"rule"`
	Reason   string            `json:"reason"`
	Overrun  bool              `json:"overrun,omitempty"` // see [Verdict]
	Outcome  Outcome           `json:"outcome"`
	Error    string            `json:"error,omitempty"`

	Snapshots []Snapshot `json:"snapshots,omitempty"` // what was made from it, where it was to be deleted
}

// Snapshot is an object that was made from a sandbox of the fleet, and outlives it.
type Snapshot struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"` // the service's word
	Created time.Time `json:"created,omitzero"`
	Outcome Outcome   `json:"outcome"` // kept, deleted, would delete or left
	Error   string    `json:"error,omitempty"`
}

// Count returns how many sandboxes of all accounts had the outcome.
func (r Report) Count(o Outcome) (n int) {
	for _, a := range r.Accounts {
		n += a.Outcomes[o]
	}
	return n
}

// WriteTable writes the report for people: what was kept or had gone only as numbers, unless there is something to
// say of it.
func (r Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var errs []error
	line := func(format string, args ...any) {
		_, err := fmt.Fprintf(t, format+"\n", args...)
		errs = append(errs, err)
	}
	what := "sweep"
	if r.DryRun {
		what = "sweep (dry run)"
	}
	line("%s of fleet %s, %s, took %v", what, r.Fleet, r.Began.UTC().Format(time.RFC3339), r.Ended.Sub(r.Began).Round(time.Millisecond))
	for _, a := range r.Accounts {
		line("")
		line("%s: %d seen, %d foreign%s", printable(a.Provider), a.Seen, a.Foreign, counts(a.Outcomes))
		if a.Error != "" {
			line("%s", printable(a.Error))
		}
		header := false
		for _, i := range a.Items {
			if (i.Outcome == Kept || i.Outcome == Gone) && !i.Overrun && i.Error == "" && i.Rule != RuleFork {
				continue
			}
			if !header {
				line("OUTCOME\tID\tSTATE\tAGE\tLEASE\tOWNER\tREASON")
				header = true
			}
			reason := i.Reason
			if i.Error != "" {
				reason += ": " + i.Error
			}
			age, lease := span(i.Created, i.AsOf), span(i.AsOf, i.Deadline)
			line("%s\t%s\t%s\t%s\t%s\t%s\t%s", i.Outcome, printable(i.ID), i.State, age, lease, i.Owner, printable(reason))
			for _, s := range i.Snapshots {
				line("%s\t%s\t%s\t%s\t\t%s\tmade from %s%s", s.Outcome, printable(s.ID), printable(s.Kind), span(s.Created, i.AsOf), i.Owner,
					printable(i.ID), printable(s.Error))
			}
		}
	}
	return errors.Join(append(errs, t.Flush())...)
}

// span prints the time between two times of a service.
func span(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return "?"
	}
	return to.Sub(from).Round(time.Second).String()
}

func counts(m map[Outcome]int) string {
	var b strings.Builder
	for _, o := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, ", %d %s", m[o], o)
	}
	return b.String()
}

// printable keeps what services and users wrote in one cell: no tabs, line ends or control sequences.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
}

func (p *pass) report(rows []look, items []*item) Account {
	a := Account{Provider: p.a.name, Seen: len(rows), Rules: map[Rule]int{}, Outcomes: map[Outcome]int{}, Items: []Item{}}
	for _, l := range rows {
		if l.info.Mark.Fleet != p.cfg.Fleet {
			a.Foreign++
		} else if l.info.State == sandbox.StateGone {
			a.Rules[RuleGone]++
			a.Outcomes[Gone]++
		}
	}
	for _, it := range items {
		info := it.look.info
		i := Item{
			ID: info.ID, Nonce: info.Mark.Nonce, Owner: info.Mark.Owner, State: info.State.String(), Tags: maps.Clone(info.Tags),
			Created: info.Created, Deadline: info.Deadline, AsOf: info.AsOf,
			Rule: it.verdict.Rule, Reason: it.verdict.Reason, Overrun: it.verdict.Overrun, Outcome: it.outcome,
			Snapshots: it.snapshots,
		}
		if !info.Created.IsZero() {
			i.HardEnd = info.HardDeadline()
		}
		if err := errors.Join(append([]error{it.err, it.unlisted}, it.uncleared...)...); err != nil {
			i.Error = err.Error()
		}
		a.Rules[i.Rule]++
		a.Outcomes[i.Outcome]++
		a.Items = append(a.Items, i)
	}
	slices.SortStableFunc(a.Items, func(x, y Item) int { return cmp.Compare(rank(x.Outcome), rank(y.Outcome)) })
	return a
}

// rank puts first what somebody has to look at.
func rank(o Outcome) int {
	return slices.Index([]Outcome{Left, Unseen, Capped, Pending, Deleted, WouldDelete, Gone, Kept}, o)
}
