package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/console"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
	"github.com/sandglass-dev/sandglass/ttl"
)

// doctorCmd looks at everything that the other commands rely on.
type doctorCmd struct {
	providersFlag
	fleetFlag
	Window      time.Duration `placeholder:"3m" help:"Window to judge, as for run. Default: 3m."`
	MaxLifetime time.Duration `placeholder:"1h" help:"Max lifetime to judge, as for run. Default: 1h."`
	journalFlag
	JSON bool `name:"json" help:"Print JSON."`
}

func (doctorCmd) Help() string {
	return `Looks, by reading requests only, at each account (all for which there are settings, if none is named): whether its key is accepted,
whether it may delete, what its plan allows, how far its clock is from ours, what is alive in it, and what the settings come to after
a crash. Then at the crash journal of this host. Each answer is "yes", "no", or why it is not knowable.

Exit code: 0 if nothing is wrong, 1 if something is, 2 if the settings are wrong. What is not knowable is not wrong.

Examples:

	sandglass doctor
	sandglass doctor --provider e2b --fleet ci --window 2m
	sandglass doctor -p kubernetes
	sandglass doctor -p e2b --json`
}

// A diagnosis is what doctor says, in JSON as here. Words that begin with "not knowable" say why.
type diagnosis struct {
	Config   string             `json:"config,omitempty"` // the configuration file that was read
	Accounts []accountDiagnosis `json:"accounts"`
	Journal  journalDiagnosis   `json:"journal"`
}

type accountDiagnosis struct {
	Account   string         `json:"account"` // as --provider takes it
	Provider  string         `json:"provider,omitempty"`
	Key       string         `json:"key"` // yes: it is accepted
	MayDelete string         `json:"may_delete"`
	Plan      string         `json:"plan"`
	Skew      string         `json:"clock_skew"`
	Alive     map[string]int `json:"alive"` // sandboxes of ours that are there, by fleet; null: could not be seen
	Unmarked  int            `json:"unattributed"`
	Crash     string         `json:"after_a_crash"`
	Faults    []string       `json:"faults"`
}

type journalDiagnosis struct {
	Dir     string   `json:"dir"`
	State   string   `json:"state"`
	Orphans []string `json:"orphans"` // nonces of entries whose owner is dead: run and sweep finish them
	Kept    []string `json:"kept"`    // nonces of entries that --keep-on-error keeps, for the time being
	Faults  []string `json:"faults"`
}

// maxSkew is more than clocks that are kept right differ by.
const maxSkew = 30 * time.Second

// Run is the command.
func (c *doctorCmd) Run(w *world) error {
	names := c.Provider
	if len(names) == 0 {
		names = w.settings.Providers
	}
	if len(names) == 0 {
		names = w.settings.Names()
	}
	if len(names) == 0 {
		variables, named := waysToSetUp()
		return usage(fmt.Errorf("no account is set up: set one of %s, or name a provider that none of them stands for, --provider %s",
			strings.Join(variables, ", "), strings.Join(named, ", --provider ")))
	}
	ctx, stop := untilSignal()
	defer stop()
	progress := console.NewProgress(w.err)
	progress.Status("looking at %s", strings.Join(names, ", "))
	d := diagnosis{Config: w.settings.Path, Accounts: make([]accountDiagnosis, len(names))}
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { d.Accounts[i] = c.account(ctx, w, name) })
	}
	d.Journal = c.journal(ctx, w)
	wg.Wait()
	progress.Status("")
	var err error
	if c.JSON {
		err = json.NewEncoder(w.out).Encode(d)
	} else {
		err = d.write(w.out)
	}
	wrong := len(d.Journal.Faults) > 0 || slices.ContainsFunc(d.Accounts, func(a accountDiagnosis) bool { return len(a.Faults) > 0 })
	if wrong && err == nil {
		return &exitError{code: exitFailed}
	}
	return err
}

// waysToSetUp returns a variable of each provider that doctor finds by one, and the providers that have to be named.
func waysToSetUp() (variables, named []string) {
	for _, k := range settings.Kinds() {
		if settings.Found(k) {
			variables = append(variables, settings.Variables(k)[0])
		} else {
			named = append(named, k)
		}
	}
	return variables, named
}

const unknown = "not knowable"

func (c *doctorCmd) account(ctx context.Context, w *world, name string) accountDiagnosis {
	d := accountDiagnosis{Account: name, Key: unknown, MayDelete: unknown, Plan: unknown, Skew: unknown, Crash: unknown, Faults: []string{}}
	fault := func(format string, args ...any) { d.Faults = append(d.Faults, fmt.Sprintf(format, args...)) }
	a, err := w.settings.Open(name)
	if err != nil {
		d.Key = "no: the settings are wrong"
		fault("%v", err)
		return d
	}
	d.Provider = a.Name()
	plan, crash, err := c.promise(a.Capabilities())
	if err != nil {
		fault("%v", err)
	} else {
		d.Crash = crash
	}

	checker, ok := sandbox.As[sandbox.Checker](a)
	if ok {
		check, cancel := context.WithTimeout(ctx, time.Minute)
		account, err := checker.Check(check)
		cancel()
		switch {
		case err == nil:
			d.Key, d.MayDelete = "yes", settings.MayDelete(a.Kind, account)
			d.account(account, plan)
		case errors.Is(err, sandbox.ErrUnauthenticated):
			d.Key = "no"
		case errors.Is(err, sandbox.ErrPermission):
			d.Key, d.MayDelete = "yes", "no"
			if a.Kind == "kubernetes" && !strings.Contains(err.Error(), "delete jobs") && !strings.Contains(err.Error(), "delete pods") {
				d.MayDelete = "yes" // the rights that are missing are named, and are others
			}
		default:
			d.Key = unknown + ": the service could not be asked"
		}
		if err != nil {
			text := err.Error()
			if what := hint(a.Kind, err); what != "" {
				text += "; " + what
			}
			fault("%s", text)
		}
	}
	l := look(ctx, []*settings.Account{a}, c.name(w))
	if len(l.Unseen) > 0 {
		if !strings.HasPrefix(d.Key, "no") { // else the same again
			fault("%s", l.Unseen[0].Error)
		}
		return d
	}
	d.Alive = map[string]int{}
	for _, r := range l.Sandboxes {
		if r.Unattributed {
			d.Unmarked++
		} else {
			d.Alive[r.Fleet]++
		}
	}
	return d
}

// account says of a plan and a clock what the service told.
func (d *accountDiagnosis) account(account sandbox.Account, plan ttl.Plan) {
	var caps []string
	if account.MaxLive > 0 {
		caps = append(caps, fmt.Sprintf("%d sandboxes at once", account.MaxLive))
	}
	if account.MaxLifetime > 0 {
		caps = append(caps, "lives of up to "+console.Duration(account.MaxLifetime))
		if account.MaxLifetime < plan.HardEnd {
			d.Faults = append(d.Faults, fmt.Sprintf("the plan's longest life, %s, is shorter than the %s that the settings ask for: choose a shorter --max-lifetime",
				console.Duration(account.MaxLifetime), console.Duration(plan.HardEnd)))
		}
	}
	if d.Plan = strings.Join(caps, ", "); len(caps) == 0 {
		d.Plan = unknown + ": the service does not tell"
	}
	switch skew := account.Skew; {
	case !account.SkewKnown:
		d.Skew = unknown + ": the service tells no time"
	case skew == 0:
		d.Skew = "yes: no difference of a second"
	case skew.Abs() > maxSkew:
		d.Skew = fmt.Sprintf("no: its clock is %s from ours", signed(skew))
		d.Faults = append(d.Faults, "the clocks differ by "+console.Duration(skew.Abs())+
			": nothing here decides by ours, but the times in logs and marks are wrong; set this host's clock")
	default:
		d.Skew = fmt.Sprintf("yes: within %s", skew.Abs().Round(time.Millisecond))
	}
}

func signed(d time.Duration) string {
	if d > 0 {
		return "+" + console.Duration(d)
	}
	return console.Duration(d)
}

// promise says what the settings come to on a provider with the given facts: what a crash at this moment would cost.
func (c *doctorCmd) promise(caps sandbox.Capabilities) (ttl.Plan, string, error) {
	const after = 10*time.Second + 2*time.Minute // grace and clean-up, as in a sandbox.Config's defaults
	plan, err := ttl.Policy{Window: c.Window, MaxLifetime: c.MaxLifetime, After: max(after, 10*time.Second+2*caps.DeleteTime)}.Resolve(ttl.Limits{
		Min: caps.MinWindow, Max: caps.MaxWindow, Step: caps.Step, MaxLifetime: caps.MaxLifetime, Fixed: caps.Extend == sandbox.ExtendNone,
	})
	if err != nil {
		return plan, "", err
	}
	most, parts := plan.Window, []string{"window " + console.Duration(plan.Window)}
	if caps.Extend == sandbox.ExtendAdd {
		most += plan.Beat
		parts = append(parts, "one unanswered beat "+console.Duration(plan.Beat))
	}
	if caps.Lateness > 0 {
		most += caps.Lateness
		parts = append(parts, "the service's lateness "+console.Duration(caps.Lateness))
	}
	text := fmt.Sprintf("a crash now would bill at most %s (%s), and a request still under way", console.Duration(most), strings.Join(parts, " + "))
	if start := caps.CommitDelay + caps.StartAllowance; start > 0 {
		text += fmt.Sprintf("; during a create up to %s more", console.Duration(start))
	}
	if caps.AtExpiry == sandbox.StateDormant {
		text += "; then a stopped record stays, until a sweep deletes it"
	}
	return plan, text, nil
}

// journal looks at the crash journal.
func (c *doctorCmd) journal(ctx context.Context, w *world) journalDiagnosis {
	d := journalDiagnosis{Orphans: []string{}, Kept: []string{}, Faults: []string{}}
	fault := func(format string, args ...any) { d.Faults = append(d.Faults, fmt.Sprintf(format, args...)) }
	var err error
	if d.Dir, err = c.dir(w); err != nil {
		fault("%v", err)
		return d
	}
	j, err := c.existing(w)
	switch {
	case err != nil:
		d.State = "no"
		fault("%v", err)
		return d
	case j == nil:
		d.State = "not there yet: the first run makes it"
		return d
	}
	defer j.Close()
	if err := writable(j.Dir()); err != nil {
		d.State = "no: it cannot be written, and no run would start"
		fault("%v", err)
	} else {
		d.State = "yes: local, private and writable"
	}
	d.read(ctx, j)
	return d
}

func (d *journalDiagnosis) read(ctx context.Context, j *journal.Journal) {
	for e, err := range j.Orphans(ctx) {
		if err != nil {
			d.Faults = append(d.Faults, err.Error())
			continue
		}
		if time.Now().Before(e.Kept) {
			d.Kept = append(d.Kept, e.Mark.Nonce)
		} else {
			d.Orphans = append(d.Orphans, e.Mark.Nonce)
		}
	}
}

// writable tries what a run needs: a new file with room for an entry, on the disk. Journals leave hidden files alone.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 16<<10))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

func (d diagnosis) write(out io.Writer) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-16s %s\n", name, console.Printable(fmt.Sprintf(format, args...)))
	}
	for _, a := range d.Accounts {
		fmt.Fprintf(&b, "%s (%s)\n", a.Account, a.Provider)
		line("key accepted", "%s", a.Key)
		line("may delete", "%s", a.MayDelete)
		line("plan", "%s", a.Plan)
		line("clock right", "%s", a.Skew)
		line("alive now", "%s", a.alive())
		line("after a crash", "%s", a.Crash)
		for _, f := range a.Faults {
			line("WRONG", "%s", f)
		}
	}
	fmt.Fprintf(&b, "journal (%s)\n", d.Journal.Dir)
	line("usable", "%s", d.Journal.State)
	line("left by the dead", "%d", len(d.Journal.Orphans))
	line("kept on error", "%d", len(d.Journal.Kept))
	for _, f := range d.Journal.Faults {
		line("WRONG", "%s", f)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (a accountDiagnosis) alive() string {
	if a.Alive == nil {
		return unknown + ": the account could not be seen"
	}
	total, parts := 0, []string{}
	for _, fleet := range slices.Sorted(maps.Keys(a.Alive)) {
		total += a.Alive[fleet]
		parts = append(parts, fmt.Sprintf("%s: %d", fleet, a.Alive[fleet]))
	}
	text := fmt.Sprintf("%d of ours", total)
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	if a.Unmarked > 0 {
		text += fmt.Sprintf(", %d unattributed", a.Unmarked)
	}
	return text
}
