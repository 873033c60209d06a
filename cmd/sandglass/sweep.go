package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/console"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/history"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel/export"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// sweepCmd makes passes of the sweeper.
type sweepCmd struct {
	providersFlag
	fleetFlag
	Every  time.Duration `placeholder:"15m" help:"Go on, with a pass about so often. Default: one pass."`
	DryRun bool          `help:"Judge and look, but make no request that writes."`

	OlderThan  time.Duration `placeholder:"1h" help:"Delete only what is at least so old. It restricts, and proves nothing."`
	MaxDeletes int           `placeholder:"N" help:"Deletes per account and pass; the rest is listed. Default: a fifth of the fleet, at least 100."`
	Protect    []string      `sep:"none" placeholder:"TAG[=VALUE]" help:"Keep what carries this tag; may be repeated."`
	Grace      time.Duration `placeholder:"5m" help:"Time after a hard end, and of residue, before a delete. Default: 5m."`

	KeepSnapshots bool `help:"Leave snapshots and volumes that were made from deleted sandboxes."`

	journalFlag
	History string `type:"path" env:"SANDGLASS_HISTORY" placeholder:"FILE" help:"Append what is deleted to this file, for sandglass report."`
	JSON    bool   `name:"json" help:"Print the report as JSON: one object a pass."`
}

func (sweepCmd) Help() string {
	return `Looks through the accounts side by side and deletes what has no living owner: what is past its hard end, what still runs long
after its lease, and residue (paused, stopped or archived sandboxes). What has a lease in the future by the service's own clock is
alive and kept. Nothing without a mark of the fleet is ever touched. Each sandbox is looked at again right before its delete, and
waited for until it is seen to be gone. Two sweepers at once do no harm.

Where there is a crash journal on this host, its locks say which owners are dead, and what dead runs left in it is finished too.

A single pass knows residue only by its hard end or the journal: what is merely paused or stopped takes two passes of one process, so
let --every run where such things happen.

Exit code: 0 if nothing is left to do, 1 if something was left, capped or could not be seen, 2 if the settings are wrong. With --every
the command ends at SIGINT or SIGTERM with 0, and tells of each pass. Traces and metrics go where the standard OTEL environment
variables say (OTEL_EXPORTER_OTLP_ENDPOINT and so on), and without them nowhere.

Examples:

	sandglass sweep --provider e2b --fleet ci --dry-run
	sandglass sweep -p e2b -p docker -f ci --older-than 1h --max-deletes 20 --protect keep --json
	sandglass sweep -p e2b -f ci --every 15m`
}

// Run is the command.
func (c *sweepCmd) Run(w *world) error {
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
	progress := console.NewProgress(w.err)
	ctx, stop := untilSignal()
	defer stop()
	tele := newTelemetry(ctx, func(format string, args ...any) { progress.Line("sandglass: "+format, args...) })
	defer tele.close()
	cfg := sweep.Config{
		Fleet: fleet, DryRun: c.DryRun, OlderThan: c.OlderThan, MaxDeletes: c.MaxDeletes, ProtectTags: protect, Grace: c.Grace,
		KeepSnapshots: c.KeepSnapshots, Observers: append([]sandbox.Observer{follow(progress)}, tele.sweeps()...),
	}
	if j != nil {
		cfg.Liveness = owners(j)
	}
	path := c.History
	if path == "" {
		path = w.settings.History
	}
	if path != "" && !c.DryRun {
		h, err := history.Open(path, 0)
		if err != nil {
			return usage(err)
		}
		cfg.Observers = append(cfg.Observers, h.Observer(history.Sweeper))
		defer func() {
			if err := h.Err(); err != nil {
				progress.Line("sandglass: history: %v", err)
			}
		}()
	}
	for _, a := range accounts {
		cfg.Providers = append(cfg.Providers, a)
	}
	cfg.OnPass = func(r sweep.Report, err error) {
		tele.pass(r, err)
		progress.Status("")
		c.print(w, r, err)
	}
	s, err := sweep.New(cfg)
	if err != nil {
		return usage(err)
	}
	ctx = export.Parent(ctx)
	progress.Status("looking through %d accounts for fleet %s", len(accounts), fleet)
	if c.Every != 0 {
		if c.Every < 0 {
			return usage(fmt.Errorf("--every %v is negative", c.Every))
		}
		_ = s.Run(ctx, c.Every) // ends with ctx; every pass has been told
		return nil
	}
	replayed := make(chan error, 1)
	go func() { replayed <- c.replay(ctx, j, cfg) }()
	report, err := s.Sweep(ctx)
	err = errors.Join(err, <-replayed)
	cfg.OnPass(report, err)
	if err != nil {
		return &exitError{code: exitFailed}
	}
	return nil
}

// replayTime is how long a single pass works on what dead runs of this host left. What needs more, such as a lease that
// still runs, is finished by the next one.
const replayTime = 30 * time.Second

// replay finishes what dead runs left in the journal. What it has to leave for later is no fault; a leak is.
func (c *sweepCmd) replay(ctx context.Context, j *journal.Journal, cfg sweep.Config) error {
	if j == nil || c.DryRun {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, replayTime)
	defer cancel()
	leaks := make(chan error, len(cfg.Providers))
	for _, p := range cfg.Providers {
		go func() {
			m, err := sandbox.NewManager(p, sandbox.Config{Fleet: cfg.Fleet, Journal: j, Observers: cfg.Observers})
			if err == nil {
				err = m.Replay(ctx)
			}
			if leak, ok := errors.AsType[*sandbox.LeakError](err); ok && ctx.Err() == nil {
				leaks <- leak
				return
			}
			leaks <- nil
		}()
	}
	var errs []error
	for range cfg.Providers {
		errs = append(errs, <-leaks)
	}
	return errors.Join(errs...)
}

// owners asks the journal whether the owner of a sandbox is alive.
func owners(j *journal.Journal) sweep.Liveness {
	return func(_ context.Context, info sandbox.Info) (sweep.Life, error) {
		switch alive, known, err := j.Owner(info.Mark.Nonce); {
		case err != nil || !known:
			return sweep.Unknown, err
		case alive:
			return sweep.Alive, nil
		}
		return sweep.Dead, nil
	}
}

// follow shows how deletes go.
func follow(p *console.Progress) sandbox.Observer {
	return func(_ context.Context, e sandbox.Event) {
		if e.Op == sandbox.OpConfirm && e.Final {
			state := "deleted"
			if e.Err != nil {
				state = "left"
			}
			p.Status("%s: %s %s", e.Provider, e.Info.ID, state)
		}
	}
}

// print writes one pass. Its shape as JSON is that of sweep.Report, with "failure" beside it: why the exit code is 1.
func (c *sweepCmd) print(w *world, r sweep.Report, err error) {
	if c.JSON {
		out := struct {
			sweep.Report
			Failure string `json:"failure,omitempty"`
		}{Report: r}
		if err != nil {
			out.Failure = err.Error()
		}
		_ = json.NewEncoder(w.out).Encode(out)
		return
	}
	_ = r.WriteTable(w.out)
	if err != nil {
		fmt.Fprintf(w.err, "sandglass: %v\n", err)
	}
}
