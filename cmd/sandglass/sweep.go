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
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/history"
	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
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
	EndDead       bool `help:"Do not wait for the lease of what has an owner who is proven dead. What it kept on error goes as well, unless this host's journal tells of it."`

	journalFlag
	History string `type:"path" default:"" env:"SANDGLASS_HISTORY" placeholder:"FILE" help:"Append what is deleted to this file, for sandglass report."`
	JSON    bool   `name:"json" help:"Print the report as JSON: one object a pass."`
}

func (sweepCmd) Help() string {
	return `Looks through the accounts side by side and deletes what has no living owner: what is past its hard end, what still runs long
after its lease, and residue (paused, stopped or archived sandboxes). What has a lease in the future by the service's own clock is
alive and kept. Nothing without a mark of the fleet is ever touched. Each sandbox is looked at again right before its delete, and
waited for until it is seen to be gone. Two sweepers at once do no harm.

Two sources tell of owners: the locks of a crash journal on this host, where there is one (what dead runs left in it is finished too),
and on Kubernetes the cluster, about the pod or the Lease that a sandbox names as its owner. An owner whom one of them calls alive is
alive; dead is one whom one proves dead while no other calls him alive or cannot be asked. What a dead owner has left is deleted when no
lease runs any more, or at once with --end-dead, which is not for sandboxes that are handed over from one process to another.
What an owner left for debugging (KeepOnError, --keep-on-error) is his until that time where this host's journal tells of it; a cluster
knows nothing of it, and --end-dead then ends it when its owner is dead.

A single pass knows residue only by its hard end or the journal: what is merely paused or stopped takes two passes of one process, so
let --every run where such things happen. Nor can it know by the cluster that an owner is dead: that has to be seen twice, 30 s apart, of
a sandbox that is more than a minute old, and that was so already when its owner's container began anew, if that is the proof: a younger
one ends by its lease. So --every 20s --end-dead is the form for a cluster, and a single pass ends what is past its hard end.

Exit code: 0 if nothing is left to do, 1 if something was left, capped or could not be seen, 2 if the settings are wrong. With --every
the command ends at SIGINT or SIGTERM with 0, and tells of each pass. Traces and metrics go where the standard OTEL environment
variables say (OTEL_EXPORTER_OTLP_ENDPOINT and so on), and without them nowhere.

Examples:

	sandglass sweep --provider e2b --fleet ci --dry-run
	sandglass sweep -p e2b -p docker -f ci --older-than 1h --max-deletes 20 --protect keep --json
	sandglass sweep -p e2b -f ci --every 15m
	sandglass sweep -p kubernetes -f ci --every 20s --end-dead`
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
		KeepSnapshots: c.KeepSnapshots, EndDead: c.EndDead, Observers: append([]sandbox.Observer{follow(progress)}, tele.sweeps()...),
	}
	var sources []sweep.Liveness
	if j != nil {
		sources = append(sources, owners(j))
	}
	for _, a := range accounts {
		cfg.Providers = append(cfg.Providers, a)
		if p, ok := sandbox.As[*kubernetes.Provider](a); ok {
			sources = append(sources, clusterOwners(p))
		}
	}
	cfg.Liveness = anyOf(sources)
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
		var replays sync.WaitGroup
		replays.Go(func() {
			for ctx.Err() == nil {
				if err := c.replay(ctx, j, cfg); err != nil {
					progress.Line("sandglass: %v", err)
				}
				_ = contain.Sleep(ctx, c.Every)
			}
		})
		_ = s.Run(ctx, c.Every) // ends with ctx; every pass has been told
		replays.Wait()
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

// replayTime is how long a pass works on what dead runs of this host left, beside the time that it takes on an account
// until it proves anything that nothing is found: each replay counts that anew. What needs more, such as a lease that
// still runs, is finished by the next one.
const replayTime = 30 * time.Second

// replay finishes what dead runs left in the journal. What it has to leave for later is no fault; a leak is.
func (c *sweepCmd) replay(ctx context.Context, j *journal.Journal, cfg sweep.Config) error {
	if j == nil || c.DryRun {
		return nil
	}
	leaks := make(chan error, len(cfg.Providers))
	for _, p := range cfg.Providers {
		go func() {
			caps := p.Capabilities()
			ctx, cancel := context.WithTimeout(ctx, replayTime+max(caps.DeleteDoubt, caps.CommitDelay+caps.ReadLag))
			defer cancel()
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

// clusterOwners asks a cluster whether the owner of a sandbox is alive. It has no word on those of other accounts: an ID of its
// own begins with the name that the mark asks for.
func clusterOwners(p *kubernetes.Provider) sweep.Liveness {
	life := p.Owners().Life
	return func(ctx context.Context, info sandbox.Info) (sweep.Life, error) {
		if !strings.HasPrefix(info.ID, info.Mark.Name()+"/") {
			return sweep.Unknown, nil
		}
		is, err := life(ctx, info)
		if errors.Is(err, sandbox.ErrNotFound) { // no ID of a cluster's at all
			err = nil
		}
		return is, err
	}
}

// anyOf asks several sources of liveness, one after the other. One that says alive is enough. Dead is whom one proves dead
// and no other calls alive: while one cannot be asked, nobody knows what it would have said.
func anyOf(sources []sweep.Liveness) sweep.Liveness {
	if len(sources) == 0 {
		return nil
	}
	return func(ctx context.Context, info sandbox.Info) (sweep.Life, error) {
		life := sweep.Unknown
		var faults []error
		for _, ask := range sources {
			switch is, err := ask(ctx, info); {
			case err != nil:
				faults = append(faults, err)
			case is == sweep.Alive:
				return sweep.Alive, nil
			case is == sweep.Dead:
				life = sweep.Dead
			}
		}
		if len(faults) > 0 {
			return sweep.Unknown, errors.Join(faults...)
		}
		return life, nil
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
