// Package report tells what became of a fleet's sandboxes: how long each lived, who ended it, what is left. It puts together
// what the histories say (see package history), what the journal still holds and what the accounts show now, changes
// nothing, and says "unknown" where none of them knows.
//
// Who ended a sandbox is known where somebody who keeps a history has ended it. That a lease did so is said as "at the
// latest": the lease is over, nobody tells of an earlier end, and the account, which could be looked through, does not show
// the sandbox any more. How long it lived is then known between two bounds, and so are sandbox-hours. All times are brought onto this
// process's clock; clocks of hosts that wrote a history may differ from it.
package report

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/history"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// Config says what a report is to be made of. Only Fleet is required; what is not given is not looked at, and the report says so.
type Config struct {
	Fleet     string
	Providers []sandbox.Provider // the accounts; their names must differ
	Journal   *journal.Journal   // its entries are locked one by one, for a moment each
	History   []string           // paths
	Protect   map[string]string  // tags whose bearers are to be kept; an empty value stands for any
	Since     time.Duration      // how far to look back; default 24 h. What was over before is left out
}

// An End is what became of a sandbox.
type End string

// Ends.
const (
	ByScope   End = "scope"   // deleted, and seen to be gone, by the process that made it or took it over
	ByReplay  End = "replay"  // by a later process, which found it in the journal
	BySweeper End = "sweeper" // by a sweep
	ByHand    End = "hand"    // by somebody who asked for it by name
	ByLease   End = "lease"   // by its own lease, at the latest: nobody tells of an earlier end
	Alive     End = "alive"   // it is there, and may be
	Kept      End = "kept"    // it is there, and is to be: protected, or left for debugging
	Left      End = "left"    // it is there, or may be, and should not
	Unknown   End = "unknown" // nobody knows
)

// Ends returns all of them, in the order in which a report tells of them.
func Ends() []End {
	return []End{Left, Alive, Kept, ByScope, ByLease, BySweeper, ByReplay, ByHand, Unknown}
}

// A Life is one sandbox.
type Life struct {
	Provider string            `json:"provider"`
	ID       string            `json:"id,omitempty"` // empty: of a create that was not answered
	Nonce    string            `json:"nonce,omitempty"`
	Owner    string            `json:"owner,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`

	Began   time.Time `json:"began,omitzero"`   // zero: unknown
	Seen    time.Time `json:"seen,omitzero"`    // when it was last known to be alive
	Ended   time.Time `json:"ended,omitzero"`   // when it was gone at the latest; zero: it is there, or unknown
	Until   time.Time `json:"until,omitzero"`   // when its lease ends, or would have ended, as far as is known
	HardEnd time.Time `json:"hardEnd,omitzero"` // when its mark says that nobody can want it any more

	End   End    `json:"end"`
	Leak  bool   `json:"leak,omitempty"`  // somebody has to look at it
	State string `json:"state,omitempty"` // as the account shows it now; empty: it does not
	Why   string `json:"why,omitempty"`   // for people

	Least float64 `json:"leastHours"` // of compute, in the time of the report
	Most  float64 `json:"mostHours"`  // the same, at most

	beats   []time.Time
	dormant bool
}

// A Source is what was looked at.
type Source struct {
	Kind    string `json:"kind"` // account, journal or history
	Name    string `json:"name"`
	Saw     string `json:"saw,omitempty"`
	Trouble string `json:"trouble,omitempty"` // what could not be seen; empty: nothing is known to be missing
	Witness bool   `json:"witness,omitempty"` // of an account: it shows a sandbox that another source knows
}

// A Report is what became of a fleet's sandboxes. It becomes JSON by encoding/json.
type Report struct {
	Fleet    string      `json:"fleet"`
	From     time.Time   `json:"from"`
	Made     time.Time   `json:"made"`
	Lives    []Life      `json:"lives"` // first what is left, then the latest
	Ends     map[End]int `json:"ends"`
	Leaks    int         `json:"leaks"`
	Unmarked []string    `json:"unmarked,omitempty"` // provider and id of what nothing says whose it is
	Least    float64     `json:"leastHours"`         // sandbox-hours, of compute
	Most     float64     `json:"mostHours"`
	Headless int         `json:"headless,omitempty"` // of how many lives the beginning is unknown: they are not in the hours
	Sources  []Source    `json:"sources"`
}

// Build makes a report. The error says what an audit's would: it matches [leakcheck.ErrLeak] if something is left,
// [leakcheck.ErrBlind] if not everything could be seen, and [leakcheck.ErrNoWitness] if nothing was seen in an account and nothing
// shows that there was anything to be seen with. The report is whole then all the same, as far as it can be. Another error
// comes with no report. It makes no request that writes; of the journal it clears away, as every look at its orphans does, what
// a crash has left before any create was sent.
func Build(ctx context.Context, cfg Config) (Report, error) {
	if cfg.Fleet == "" {
		return Report{}, fmt.Errorf("report: no fleet: %w", sandbox.ErrInvalid)
	}
	if cfg.Since <= 0 {
		cfg.Since = 24 * time.Hour
	}
	f := &facts{fleet: cfg.Fleet, owner: func(string) sweep.Life { return sweep.Unknown }}
	for _, path := range cfg.History {
		f.read(path)
	}
	if cfg.Journal != nil {
		f.entries(ctx, cfg.Journal)
	}
	f.accounts = make([]account, len(cfg.Providers))
	var wg sync.WaitGroup
	for i, p := range cfg.Providers {
		wg.Go(func() { f.accounts[i] = look(ctx, cfg, p, f.owner) })
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	f.now = time.Now()
	f.from = f.now.Add(-cfg.Since)
	r := f.report()
	return r, r.err()
}

// err is what the report comes to.
func (r Report) err() error {
	var errs []error
	if r.Leaks > 0 {
		errs = append(errs, fmt.Errorf("report: %d: %w", r.Leaks, leakcheck.ErrLeak))
	}
	for _, s := range r.Sources {
		switch {
		case s.Trouble != "":
			errs = append(errs, fmt.Errorf("report: %s %s: %s: %w", s.Kind, s.Name, s.Trouble, leakcheck.ErrBlind))
		case s.Kind == "account" && !s.Witness:
			errs = append(errs, fmt.Errorf("report: account %s: %w", s.Name, leakcheck.ErrNoWitness))
		}
	}
	return errors.Join(errs...)
}

// facts are all that is known.
type facts struct {
	fleet     string
	now, from time.Time
	lines     []history.Line
	orphans   []sandbox.Entry
	owner     func(nonce string) sweep.Life
	accounts  []account
	sources   []Source
}

// An account is what one shows.
type account struct {
	name     string
	at       time.Time // when it was looked at
	items    []sweep.Item
	leaks    map[string]sandbox.Info // past their lease, by id
	unmarked []sandbox.Info
	rows     int
	trouble  error
}

// read reads a history.
func (f *facts) read(path string) {
	s := Source{Kind: "history", Name: path}
	r, err := history.Read(path)
	if err != nil {
		s.Trouble = err.Error()
		f.sources = append(f.sources, s)
		return
	}
	n := 0
	for _, l := range r.Lines {
		if l.Fleet == f.fleet || l.Fleet == "" {
			f.lines = append(f.lines, l)
			n++
		}
	}
	s.Saw = fmt.Sprintf("%d lines", n)
	if n > 0 {
		s.Saw += " since " + r.Lines[0].At.Local().Format(time.DateTime)
	}
	var missing []string
	if r.Broken > 0 {
		missing = append(missing, fmt.Sprintf("%d lines cannot be read", r.Broken))
	}
	if r.Missed > 0 {
		missing = append(missing, fmt.Sprintf("%d lines could not be written", r.Missed))
	}
	if r.Dropped { // that is what the limit is for, and the report says from when on there is something
		s.Saw += "; older ones were removed, for it has a limit"
	}
	s.Trouble = strings.Join(missing, ", ")
	f.sources = append(f.sources, s)
}

// entries reads the journal: what dead owners have left in it, and who is alive.
func (f *facts) entries(ctx context.Context, j *journal.Journal) {
	s := Source{Kind: "journal", Name: j.Dir()}
	var faults []error
	for e, err := range j.Orphans(ctx) {
		switch {
		case err != nil:
			faults = append(faults, err)
		case e.Mark.Fleet == f.fleet:
			f.orphans = append(f.orphans, e)
		}
	}
	f.owner = func(nonce string) sweep.Life {
		alive, known, _ := j.Owner(nonce)
		switch {
		case alive:
			return sweep.Alive
		case known:
			return sweep.Dead
		}
		return sweep.Unknown
	}
	s.Saw = fmt.Sprintf("%d entries whose owner is dead or has let go", len(f.orphans))
	if len(faults) > 0 {
		s.Trouble = fmt.Sprintf("%d entries cannot be judged: %v", len(faults), faults[0])
	}
	f.sources = append(f.sources, s)
}

// look looks through one account, twice: as a sweeper does that deletes nothing, and as a leak check.
func look(ctx context.Context, cfg Config, p sandbox.Provider, owner func(string) sweep.Life) account {
	a := account{name: p.Name(), leaks: map[string]sandbox.Info{}}
	s, err := sweep.New(sweep.Config{
		Fleet: cfg.Fleet, ProtectTags: cfg.Protect, Providers: []sandbox.Provider{p}, DryRun: true, MaxDeletes: 1 << 30,
		Liveness: func(_ context.Context, info sandbox.Info) (sweep.Life, error) { return owner(info.Mark.Nonce), nil },
	})
	if err != nil {
		a.trouble = err
		return a
	}
	seen, err := s.Sweep(ctx)
	a.at, a.trouble = seen.Ended, err
	for _, of := range seen.Accounts {
		a.items, a.rows = of.Items, of.Seen
	}
	err = leakcheck.Find(ctx, p, leakcheck.Fleet(cfg.Fleet), leakcheck.Unwitnessed())
	if leak, ok := errors.AsType[*leakcheck.Error](err); ok {
		for _, l := range leak.Leaks {
			a.leaks[l.Info.ID] = l.Info
		}
		a.unmarked = leak.Unmarked
	}
	if errors.Is(err, leakcheck.ErrBlind) {
		a.trouble = errors.Join(a.trouble, err)
	}
	return a
}
