package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/console"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/report"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
)

// reportCmd writes a page over what has become of sandboxes.
type reportCmd struct {
	providersFlag
	fleetFlag
	Since   time.Duration `default:"24h" placeholder:"24h" help:"How far to look back. Default: 24h."`
	Protect []string      `sep:"none" placeholder:"TAG[=VALUE]" help:"What carries this tag is meant to be there; may be repeated."`
	journalFlag
	History []string `type:"path" default:"" env:"SANDGLASS_HISTORY" placeholder:"FILE" help:"History that run, sweep and kill wrote by their --history; may be repeated."`
	Output  string   `short:"o" type:"path" default:"" placeholder:"FILE" help:"Where to write. Default: standard output."`
	JSON    bool     `name:"json" help:"Write JSON in place of the page."`
}

func (reportCmd) Help() string {
	return `Writes one HTML file that loads nothing from elsewhere: a timeline of the fleet's sandboxes, who ended each of them (its scope, its
lease, a sweeper, somebody by hand), what is left, and the hours that they ran. It puts together the histories, the crash journal of
this host, and what the accounts show now. Where none of them knows, it says "unknown". It changes nothing.

Exit code: 0, also where leaks are shown; 1 if an account could not be seen, which the page says too; 2 if the settings are wrong.

Examples:

	sandglass report --provider e2b --fleet ci --history lives.jsonl -o report.html
	sandglass report -p e2b -f ci --since 168h --json`
}

// Run is the command.
func (c *reportCmd) Run(w *world) error {
	fleet, err := c.required(w)
	if err != nil {
		return err
	}
	accounts, err := c.providersFlag.open(w)
	if err != nil {
		return err
	}
	protect, err := parseTags(c.Protect, true)
	if err != nil {
		return err
	}
	j, err := c.existing(w)
	if err != nil {
		return usage(err)
	}
	files := slices.DeleteFunc(c.History, func(name string) bool { return name == "" }) // what a variable that is empty comes to
	if len(files) == 0 && w.settings.History != "" {
		files = []string{w.settings.History}
	}
	var providers []sandbox.Provider
	for _, a := range accounts {
		providers = append(providers, a)
	}
	ctx, stop := untilSignal()
	defer stop()
	progress := console.NewProgress(w.err)
	progress.Status("looking through %d accounts and %d histories", len(accounts), len(files))
	r, seen := report.Build(ctx, report.Config{
		Fleet: fleet, Providers: providers, Journal: j, History: files, Protect: protect, Since: c.Since,
	})
	progress.Status("")
	if r.Sources == nil { // there is no report
		return usage(seen)
	}
	if err := c.write(w, r); err != nil {
		return err
	}
	if seen != nil {
		fmt.Fprintf(w.err, "sandglass: %v\n", seen)
	}
	if errors.Is(seen, leakcheck.ErrBlind) {
		return &exitError{code: exitFailed}
	}
	return nil
}

func (c *reportCmd) write(w *world, r report.Report) (err error) {
	out := w.out
	if c.Output != "" { // in place of the old one only when it is whole
		if out, err = os.CreateTemp(filepath.Dir(c.Output), ".sandglass-*"); err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, out.Chmod(0o644), out.Close())
			if err == nil {
				err = os.Rename(out.Name(), c.Output)
			}
			if err != nil {
				_ = os.Remove(out.Name())
			}
		}()
	}
	if c.JSON {
		return json.NewEncoder(out).Encode(r)
	}
	return r.WriteHTML(out)
}
