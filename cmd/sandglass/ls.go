package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/console"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// lsCmd lists sandboxes.
type lsCmd struct {
	providersFlag
	fleetFlag
	Watch bool          `short:"w" help:"Go on, and show the list again and again: on a terminal in its place, elsewhere below each other."`
	Every time.Duration `default:"2s" placeholder:"2s" help:"How often --watch looks. Default: 2s."`
	JSON  bool          `name:"json" help:"Print JSON: one object, with --watch one a look."`
}

func (lsCmd) Help() string {
	return `Lists the sandboxes of the accounts (all for which there are settings, if none is named) in every state: those of the fleet, or of all fleets if none is named, and those without a mark,
which may be anybody's: they show "unattributed" in place of an owner, and nothing here ever deletes them unasked. AGE and LEASE are
by the service's own clock; "?" is what it does not tell.

Exit code: 0, 1 if an account could not be seen, 2 if the settings are wrong.

Examples:

	sandglass ls --provider e2b
	sandglass ls -p e2b -p docker --fleet ci --json
	sandglass ls -p e2b --watch`
}

// A row is one sandbox, in JSON as here. Its fields keep their names and meanings.
type row struct {
	Provider     string            `json:"provider"` // the account's name
	ID           string            `json:"id"`
	State        string            `json:"state"`
	Fleet        string            `json:"fleet,omitempty"`
	Owner        string            `json:"owner,omitempty"`
	Nonce        string            `json:"nonce,omitempty"`
	Unattributed bool              `json:"unattributed"` // no mark says whose it is
	Tags         map[string]string `json:"tags,omitempty"`
	Created      time.Time         `json:"created,omitzero"` // this and the next three are the service's times; absent: not told
	Deadline     time.Time         `json:"deadline,omitzero"`
	HardEnd      time.Time         `json:"hard_end,omitzero"`
	AsOf         time.Time         `json:"as_of,omitzero"`
	Detail       string            `json:"detail,omitempty"` // the service's own word for the state
}

func newRow(a *settings.Account, i sandbox.Info) row {
	r := row{
		Provider: a.Name(), ID: i.ID, State: i.State.String(), Fleet: i.Mark.Fleet, Owner: i.Mark.Owner, Nonce: i.Mark.Nonce,
		Unattributed: i.Mark == sandbox.Mark{}, Tags: maps.Clone(i.Tags), Created: i.Created, Deadline: i.Deadline, AsOf: i.AsOf,
		Detail: i.Detail,
	}
	if !i.Created.IsZero() {
		r.HardEnd = i.HardDeadline()
	}
	return r
}

// A listing is what ls has seen, in JSON as here.
type listing struct {
	Sandboxes []row    `json:"sandboxes"`
	Others    int      `json:"others"` // of other fleets, where one is named
	Unseen    []unseen `json:"unseen"`
}

// unseen is an account that could not be seen, or not to its end.
type unseen struct {
	Provider string `json:"provider"`
	Error    string `json:"error"`
	Hint     string `json:"hint,omitempty"`
}

// listTime is the limit of one list, over all pages.
const listTime = 5 * time.Minute

// Run is the command.
func (c *lsCmd) Run(w *world) error {
	if len(c.Provider)+len(w.settings.Providers) == 0 {
		c.Provider = w.settings.Names() // who only looks may look everywhere
	}
	accounts, err := c.open(w)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	if !c.Watch {
		progress := console.NewProgress(w.err)
		progress.Status("looking through %d accounts", len(accounts))
		l := look(ctx, accounts, c.name(w))
		progress.Status("")
		if err := c.print(w, w.out, l); err != nil {
			return err
		}
		if len(l.Unseen) > 0 {
			return &exitError{code: exitFailed}
		}
		return nil
	}
	redraw := console.IsTerminal(w.out) && !c.JSON
	tick := time.NewTicker(max(c.Every, 100*time.Millisecond))
	defer tick.Stop()
	for {
		l := look(ctx, accounts, c.name(w))
		if ctx.Err() != nil {
			return nil
		}
		var b strings.Builder
		if !c.JSON {
			fmt.Fprintf(&b, "%s, every %s\n", time.Now().Format(time.TimeOnly), c.Every)
		}
		if err := c.print(w, &b, l); err != nil {
			return err
		}
		text := b.String()
		if redraw { // home, each line cleared to its end, and what was below
			text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
		}
		if _, err := io.WriteString(w.out, text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look lists all accounts side by side.
func look(ctx context.Context, accounts []*settings.Account, fleet string) listing {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	seen := make([]listing, len(accounts))
	var wg sync.WaitGroup
	for i, a := range accounts {
		wg.Go(func() {
			for info, err := range a.List(ctx, sandbox.Filter{}) {
				switch {
				case err != nil:
					seen[i].Unseen = append(seen[i].Unseen, unseen{a.Name(), err.Error(), hint(a.Kind, err)})
					return
				case info.State == sandbox.StateGone:
				case fleet != "" && info.Mark != (sandbox.Mark{}) && info.Mark.Fleet != fleet:
					seen[i].Others++
				default:
					seen[i].Sandboxes = append(seen[i].Sandboxes, newRow(a, info))
				}
			}
		})
	}
	wg.Wait()
	all := listing{Sandboxes: []row{}, Unseen: []unseen{}}
	for _, l := range seen {
		slices.SortFunc(l.Sandboxes, func(a, b row) int {
			if a.Unattributed != b.Unattributed {
				if a.Unattributed {
					return 1
				}
				return -1
			}
			if n := a.Created.Compare(b.Created); n != 0 {
				return n
			}
			return strings.Compare(a.ID, b.ID)
		})
		all.Sandboxes = append(all.Sandboxes, l.Sandboxes...)
		all.Unseen = append(all.Unseen, l.Unseen...)
		all.Others += l.Others
	}
	return all
}

func (c *lsCmd) print(w *world, out io.Writer, l listing) error {
	if c.JSON {
		return json.NewEncoder(out).Encode(l)
	}
	t := console.Table{Header: []string{"PROVIDER", "ID", "STATE", "FLEET", "OWNER", "AGE", "LEASE", "TAGS"}}
	for _, r := range l.Sandboxes {
		t.Rows = append(t.Rows, r.cells())
	}
	if console.Colours(w.out) {
		t.Style = paint
	}
	if err := t.Write(out); err != nil {
		return err
	}
	if l.Others > 0 {
		if _, err := fmt.Fprintf(out, "%d of other fleets are not shown\n", l.Others); err != nil {
			return err
		}
	}
	for _, u := range l.Unseen {
		text := u.Provider + ": could not be seen: " + u.Error
		if u.Hint != "" {
			text += "; " + u.Hint
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return err
		}
	}
	return nil
}

func (r row) cells() []string {
	fleet, owner := r.Fleet, r.Owner
	if r.Unattributed {
		fleet, owner = "-", "unattributed"
	}
	var tags []string
	for _, k := range slices.Sorted(maps.Keys(r.Tags)) {
		tags = append(tags, k+"="+r.Tags[k])
	}
	return []string{r.Provider, r.ID, r.State, fleet, owner, span(r.Created, r.AsOf), r.lease(), strings.Join(tags, " ")}
}

// lease says how long the sandbox lives by itself.
func (r row) lease() string {
	switch {
	case r.Deadline.IsZero() && (r.State == "dormant" || r.State == "failed"):
		return "none"
	case r.Deadline.IsZero():
		return "?"
	case r.Deadline.Before(r.AsOf):
		return "over " + span(r.Deadline, r.AsOf)
	}
	return span(r.AsOf, r.Deadline)
}

// span writes the time between two times of a service.
func span(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return "?"
	}
	return console.Duration(to.Sub(from))
}

// paint colours what somebody should look at; the words say the same.
func paint(_ int, cell string) string {
	switch {
	case strings.HasPrefix(cell, "over ") || cell == "failed" || cell == "none":
		return console.Red
	case cell == "dormant" || cell == "unknown" || cell == "unattributed":
		return console.Yellow
	}
	return ""
}
