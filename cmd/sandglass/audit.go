package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/console"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
)

// Exit codes of audit.
const (
	auditClean     = 0
	auditLeak      = 1
	auditBlind     = 2
	auditUnwitness = 3
)

// auditCmd looks for leaks.
type auditCmd struct {
	providersFlag
	fleetFlag
	Canary   bool          `help:"Make a sandbox, see it listed, and delete it: proof that the list shows what there is. It costs one start."`
	Image    string        `placeholder:"NAME" help:"Image or template of the canary. Default: the provider's."`
	Witness  []string      `placeholder:"ID" help:"A sandbox that is known to be alive, and must be listed; may be repeated."`
	Strict   bool          `help:"Count sandboxes without any mark as leaks, as fits an account in which nobody else works."`
	Patience time.Duration `placeholder:"1m" help:"How long to wait for what is on its way out. Default: by the provider, at most 1m."`
	JSON     bool          `name:"json" help:"Print the result as JSON."`
}

func (auditCmd) Help() string {
	return `Looks for sandboxes of the fleet that are past their lease and still there, in any state. It deletes nothing but its own canary.

Exit code, the first that applies to any of the accounts:

	1  sandboxes are left: they are named
	2  an account could not be seen (key, network, a list that breaks off), or the settings are wrong
	3  nothing was seen, and nothing shows that there was anything to be seen with: use --canary or --witness
	0  clean, and a witness shows it

Examples:

	sandglass audit --provider e2b --fleet ci --canary
	sandglass audit -p e2b -p daytona -f ci --canary --strict --json`
}

// An auditAccount is what audit says of one account, in JSON as here.
type auditAccount struct {
	Provider string `json:"provider"` // the account's name
	Result   string `json:"result"`   // clean, leak, blind or no witness
	Leaks    []row  `json:"leaks"`
	Unmarked []row  `json:"unmarked"` // seen beside leaks, and nothing says whose they are
	Error    string `json:"error,omitempty"`

	code int
}

// Run is the command.
func (c *auditCmd) Run(w *world) error {
	fleet, err := c.required(w)
	if err != nil {
		return err
	}
	accounts, err := c.open(w)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	progress := console.NewProgress(w.err)
	progress.Status("looking through %d accounts for leaks of fleet %s", len(accounts), fleet)
	results := make([]auditAccount, len(accounts))
	var wg sync.WaitGroup
	for i, a := range accounts {
		wg.Go(func() { results[i] = c.account(ctx, a, fleet) })
	}
	wg.Wait()
	progress.Status("")
	code := auditClean
	for _, r := range results {
		code = worse(code, r.code)
	}
	if c.JSON {
		err = json.NewEncoder(w.out).Encode(struct {
			Fleet    string         `json:"fleet"`
			ExitCode int            `json:"exit_code"`
			Accounts []auditAccount `json:"accounts"`
		}{fleet, code, results})
	} else {
		err = writeAudit(w, fleet, results)
	}
	if err != nil || code != auditClean {
		return &exitError{code: max(code, auditLeak), err: err}
	}
	return nil
}

// worse returns the exit code that counts: a leak before everything, and what was seen before what was not.
func worse(a, b int) int {
	for _, code := range []int{auditLeak, auditBlind, auditUnwitness} {
		if a == code || b == code {
			return code
		}
	}
	return auditClean
}

func (c *auditCmd) account(ctx context.Context, a *settings.Account, fleet string) auditAccount {
	opts := []leakcheck.Option{leakcheck.Fleet(fleet)}
	if len(c.Witness) > 0 {
		opts = append(opts, leakcheck.Witness(c.Witness...))
	}
	if c.Canary {
		opts = append(opts, leakcheck.Canary(sandbox.Spec{Image: c.Image}))
	}
	if c.Strict {
		opts = append(opts, leakcheck.Strict())
	}
	if c.Patience > 0 {
		opts = append(opts, leakcheck.Patience(c.Patience))
	}
	err := leakcheck.Find(ctx, a, opts...)
	r := auditAccount{Provider: a.Name(), Leaks: []row{}, Unmarked: []row{}}
	if found, ok := errors.AsType[*leakcheck.Error](err); ok {
		for _, l := range found.Leaks {
			r.Leaks = append(r.Leaks, newRow(a, l.Info))
		}
		for _, info := range found.Unmarked {
			r.Unmarked = append(r.Unmarked, newRow(a, info))
		}
	}
	leak, canaryLeft := errors.AsType[*sandbox.LeakError](err)
	if canaryLeft {
		for _, info := range leak.Sandboxes {
			r.Leaks = append(r.Leaks, newRow(a, info))
		}
	}
	switch {
	case err == nil:
		r.Result, r.code = "clean", auditClean
		return r
	case errors.Is(err, leakcheck.ErrLeak) || canaryLeft:
		r.Result, r.code = "leak", auditLeak
	case errors.Is(err, leakcheck.ErrNoWitness):
		r.Result, r.code = "no witness", auditUnwitness
	default:
		r.Result, r.code = "blind", auditBlind
	}
	r.Error = strings.TrimPrefix(strings.TrimPrefix(err.Error(), "leakcheck: "), r.Provider+": ")
	return r
}

func writeAudit(w *world, fleet string, results []auditAccount) error {
	for _, r := range results {
		var err error
		switch r.code {
		case auditClean:
			_, err = fmt.Fprintf(w.out, "%s: clean: nothing of fleet %s is past its lease, and a witness shows that the list can be believed\n", r.Provider, fleet)
		case auditUnwitness:
			_, err = fmt.Fprintf(w.out, "%s: nothing seen of fleet %s past its lease, and nothing shows that there was anything to be seen with: use --canary or --witness\n", r.Provider, fleet)
		default:
			_, err = fmt.Fprintf(w.out, "%s: %s: %s\n", r.Provider, r.Result, r.Error)
		}
		if err != nil {
			return err
		}
		if r.code == auditLeak {
			if _, err := fmt.Fprintf(w.out, "delete them with: sandglass kill ID..., or let sandglass sweep do so\n"); err != nil {
				return err
			}
		}
	}
	return nil
}
