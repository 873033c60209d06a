package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/console"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/history"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// killCmd deletes sandboxes.
type killCmd struct {
	providersFlag
	fleetFlag
	Owner  string   `placeholder:"NAME" help:"All of this owner in the fleet."`
	Tag    []string `sep:"none" placeholder:"NAME=VALUE" help:"All of the fleet with this tag; may be repeated, and then all must be there."`
	Any    bool     `help:"Accept ids of sandboxes without a mark, which may be anybody's."`
	DryRun bool     `help:"Say what would be deleted."`

	Timeout time.Duration `default:"2m" placeholder:"2m" help:"How long to try, for each. Default: 2m."`
	History string        `type:"path" default:"" env:"SANDGLASS_HISTORY" placeholder:"FILE" help:"Append what is deleted to this file, for sandglass report."`
	JSON    bool          `name:"json" help:"Print the outcomes as JSON."`

	ID []string `arg:"" optional:"" help:"Ids of sandboxes."`
}

func (killCmd) Help() string {
	return `Deletes sandboxes, waits, and looks until each is seen to be gone. An owner that is alive loses its sandbox: that is what this is for.
Sandboxes are named by id, in any of the accounts, or chosen from the fleet by owner and tags. What is not there needs no delete, and
is said so.

Exit code: 0 if all are gone, 1 if something may be left, 2 if the settings are wrong.

Examples:

	sandglass kill --provider e2b --fleet ci --owner build-7.4711
	sandglass kill -p docker -f ci --tag commit_sha=4f1c9a7 --dry-run
	sandglass kill -p e2b i3f9a7c1d2e4b5a6f7g8`
}

// An ending is the outcome for one sandbox, in JSON as here.
type ending struct {
	Provider string `json:"provider,omitempty"` // the account's name
	ID       string `json:"id"`
	Outcome  string `json:"outcome"` // deleted, would delete, not there, refused or left
	Error    string `json:"error,omitempty"`
}

// A victim is a sandbox that is to be deleted.
type victim struct {
	account *settings.Account
	info    sandbox.Info
}

// killsAtOnce is how many sandboxes are deleted side by side.
const killsAtOnce = 8

// Run is the command.
func (c *killCmd) Run(w *world) error {
	tags, err := parseTags(c.Tag, false)
	if err != nil {
		return err
	}
	choose := c.Owner != "" || len(tags) > 0
	fleet := c.name(w)
	switch {
	case choose == (len(c.ID) > 0):
		return usage(errors.New("name sandboxes either by ids, or by --owner and --tag"))
	case choose && fleet == "":
		_, err := c.required(w)
		return err
	}
	accounts, err := c.open(w)
	if err != nil {
		return err
	}
	var h *history.File
	path := c.History
	if path == "" {
		path = w.settings.History
	}
	if path != "" && !c.DryRun {
		if h, err = history.Open(path, 0); err != nil {
			return usage(err)
		}
	}
	ctx, stop := untilSignal()
	defer stop()
	progress := console.NewProgress(w.err)
	progress.Status("looking for them in %d accounts", len(accounts))
	var victims []victim
	var outcomes []ending
	if choose {
		victims, outcomes = c.choose(ctx, accounts, fleet, tags)
	} else {
		victims, outcomes = c.find(ctx, accounts)
	}
	outcomes = append(outcomes, c.end(ctx, victims, progress, h)...)
	progress.Status("")
	if h != nil && h.Err() != nil {
		progress.Line("sandglass: history: %v", h.Err())
	}
	if c.JSON {
		err = json.NewEncoder(w.out).Encode(struct {
			Sandboxes []ending `json:"sandboxes"`
		}{append([]ending{}, outcomes...)})
	} else {
		err = writeEndings(w, outcomes)
	}
	failed := slices.ContainsFunc(outcomes, func(e ending) bool { return e.Outcome == "left" || e.Outcome == "refused" })
	if failed && err == nil {
		return &exitError{code: exitFailed}
	}
	return err
}

// choose returns the fleet's sandboxes that the flags choose. An account that could not be seen is an outcome.
func (c *killCmd) choose(ctx context.Context, accounts []*settings.Account, fleet string, tags map[string]string) (victims []victim, outcomes []ending) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	for _, a := range accounts {
		for info, err := range a.List(ctx, sandbox.Filter{Fleet: fleet}) {
			if err != nil {
				outcomes = append(outcomes, ending{Provider: a.Name(), ID: "?", Outcome: "left", Error: "not everything could be seen: " + err.Error()})
				break
			}
			if info.Mark.Fleet != fleet || info.State == sandbox.StateGone || c.Owner != "" && info.Mark.Owner != c.Owner {
				continue
			}
			has := true
			for k, v := range tags {
				if got, ok := info.Tags[k]; !ok || got != v {
					has = false
				}
			}
			if has {
				victims = append(victims, victim{a, info})
			}
		}
	}
	return victims, outcomes
}

// find looks for the ids in all accounts.
func (c *killCmd) find(ctx context.Context, accounts []*settings.Account) (victims []victim, outcomes []ending) {
	for _, id := range c.ID {
		found := false
		var unsure []ending
		for _, a := range accounts {
			look, cancel := context.WithTimeout(ctx, 30*time.Second)
			info, err := a.Get(look, id)
			cancel()
			switch {
			case errors.Is(err, sandbox.ErrNotFound) || err == nil && info.State == sandbox.StateGone:
			case err != nil:
				unsure = append(unsure, ending{Provider: a.Name(), ID: id, Outcome: "left", Error: "could not be looked for: " + err.Error()})
			case info.Mark == sandbox.Mark{} && !c.Any:
				found = true
				outcomes = append(outcomes, ending{a.Name(), id, "refused", "it carries no mark and may be anybody's: if it is yours, use --any"})
			case c.Fleet != "" && info.Mark != (sandbox.Mark{}) && info.Mark.Fleet != c.Fleet:
				found = true
				outcomes = append(outcomes, ending{a.Name(), id, "refused", "it is of fleet " + info.Mark.Fleet + ", not of " + c.Fleet})
			default:
				found = true
				victims = append(victims, victim{a, info})
			}
		}
		switch {
		case found:
		case len(unsure) > 0:
			outcomes = append(outcomes, unsure...)
		default:
			outcomes = append(outcomes, ending{ID: id, Outcome: "not there"})
		}
	}
	return victims, outcomes
}

// end deletes the victims, several at once.
func (c *killCmd) end(ctx context.Context, victims []victim, progress *console.Progress, h *history.File) []ending {
	outcomes := make([]ending, len(victims))
	var mu sync.Mutex
	done := 0
	turns := make(chan int)
	var wg sync.WaitGroup
	for range min(killsAtOnce, len(victims)) {
		wg.Go(func() {
			for i := range turns {
				outcomes[i] = c.one(ctx, victims[i], h)
				mu.Lock()
				done++
				progress.Status("deleting: %d of %d done", done, len(victims))
				mu.Unlock()
			}
		})
	}
	for i := range victims {
		turns <- i
	}
	close(turns)
	wg.Wait()
	return outcomes
}

func (c *killCmd) one(ctx context.Context, v victim, h *history.File) ending {
	e := ending{Provider: v.account.Name(), ID: v.info.ID, Outcome: "deleted"}
	if c.DryRun {
		e.Outcome = "would delete"
		return e
	}
	ctx, cancel := context.WithTimeout(ctx, max(c.Timeout, 2*v.account.Capabilities().DeleteTime))
	defer cancel()
	err := sandbox.Terminate(ctx, v.account, v.info.ID)
	if err != nil {
		e.Outcome, e.Error = "left", err.Error()
	}
	if h != nil {
		h.Ended(history.Hand, v.account.Name(), v.info, err)
	}
	return e
}

func writeEndings(w *world, outcomes []ending) error {
	t := console.Table{Header: []string{"OUTCOME", "PROVIDER", "ID", "WHY"}}
	if console.Colours(w.out) {
		t.Style = func(_ int, cell string) string {
			if cell == "left" || cell == "refused" {
				return console.Red
			}
			return ""
		}
	}
	for _, e := range outcomes {
		provider := e.Provider
		if provider == "" {
			provider = "-"
		}
		t.Rows = append(t.Rows, []string{e.Outcome, provider, e.ID, e.Error})
	}
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintln(w.out, "nothing to delete")
		return err
	}
	return t.Write(w.out)
}
