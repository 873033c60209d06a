package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/child"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/console"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/history"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel/export"
)

// Exit codes of run where it is not the program's own. They stand where programs seldom have theirs, and 125 to 127 mean
// what they mean for env, timeout and docker run.
const (
	exitLeak     = 123 // a sandbox may be left
	exitEnded    = 124 // the scope was over before the program
	exitOurs     = 125 // there was no sandbox to start the program with
	exitNotRun   = 126
	exitNotFound = 127
)

// runCmd runs a program with a sandbox.
type runCmd struct {
	accountFlag
	fleetFlag
	Owner string `placeholder:"NAME" help:"Who this is, in marks and reports. Default: host and process id."`

	orderFlags

	Grace       time.Duration `group:"Life:" placeholder:"10s" default:"10s" help:"How long the program may go on after it was asked to end, before it is killed."`
	KeepOnError time.Duration `group:"Life:" placeholder:"30m" help:"If the program fails, leave the sandbox this much longer, for a look at it."`

	journalFlag
	History string `type:"path" default:"" env:"SANDGLASS_HISTORY" placeholder:"FILE" help:"Append what happens to the sandbox to this file, for sandglass report."`
	Quiet   bool   `short:"q" help:"Say nothing unless something is wrong."`

	Command []string `arg:"" passthrough:"partial" help:"The program and its arguments, after --."`
}

func (runCmd) Help() string {
	var survivors strings.Builder
	for _, k := range settings.Kinds() {
		fmt.Fprintf(&survivors, "\t%-10s %s\n", k, settings.Survivor(k))
	}
	return `Makes a sandbox, runs the program with its id in the environment, and extends the sandbox's lease while the program runs.
When the program ends, in whatever way, the sandbox is deleted and seen to be gone before run returns. If run itself is killed,
or its host is lost, nothing extends the lease any more, and the provider ends the sandbox within the window.

The program finds:

	SANDGLASS_SANDBOX_ID, SANDGLASS_PROVIDER, SANDGLASS_FLEET, SANDGLASS_NONCE
	E2B_SANDBOX_ID, DAYTONA_SANDBOX_ID, MODAL_SANDBOX_ID, BOAT_SANDBOX_ID, or VERCEL_SANDBOX_NAME and VERCEL_SANDBOX_ID
	the account's official variables, such as E2B_API_KEY, also where the configuration file names others

No official SDK takes an id from the environment by itself: the program passes it to Sandbox.connect or the like.

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the program's process group, which is killed if the program still runs after
the grace period. A second one while the sandbox is being deleted ends run at once, and leaves the rest to the lease and the journal.
What an earlier run left in the journal is finished in the background.

Exit code: the program's own, 128 and n if signal n ended it, or ours:

	123  a sandbox may be left: the message says which, until when, and what to do
	124  the lease was lost or the max lifetime reached, and the program ended for that
	125  no sandbox was made, or settings or arguments are wrong; the program was not started
	126  the program cannot be run
	127  there is no such program

The program's process group dies with run, even if run is killed: on Unix by a guard process, on Linux and FreeBSD by the kernel's
parent-death signal too, on Windows by a job object. A process that leaves the group (setsid, a daemon, a container that
somebody else starts) can live on. It cannot beat. With the account's key it could still, by provider:

` + survivors.String() + `
Where anything of that happens, "sandglass sweep" deletes the sandbox at its hard end, or as soon as it is paused or stopped.

On Kubernetes the sandbox names as its owner the pod that run is in, by POD_NAME and POD_UID. Outside of a pod it names none: only
the journal on its host tells then that run is dead.

Traces and metrics go where the standard OTEL environment variables say (OTEL_EXPORTER_OTLP_ENDPOINT and so on), and without
them nowhere.

Examples:

	sandglass run --provider e2b --fleet ci --history lives.jsonl -- python3 agent.py
	sandglass run -p docker -f ci --image busybox:latest --window 1m --tag commit_sha=4f1c9a7 -- sh -c 'echo in $SANDGLASS_SANDBOX_ID'`
}

// Run is the command.
func (c *runCmd) Run(w *world) error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 || c.Command[0] == "" {
		return usage(errors.New("no program to run: name one after --"))
	}
	if _, err := child.Find(c.Command[0]); err != nil { // before a sandbox is made for it
		return &exitError{notStarted(err), err}
	}
	fleet, err := c.required(w)
	if err != nil {
		return err
	}
	account, err := c.account(w)
	if err != nil {
		return err
	}
	scope, err := c.order()
	if err != nil {
		return err
	}
	scope.KeepOnError = c.KeepOnError
	j, err := c.open(w)
	if err != nil {
		return usage(fmt.Errorf("%w (name a folder with --journal, or do without by --no-journal)", err))
	}
	self, err := os.Executable()
	if err != nil {
		return &exitError{exitOurs, err}
	}
	r := &runner{
		account: account, fleet: fleet, args: c.Command, grace: max(c.Grace, 0), guard: []string{self, guardWord}, quiet: c.Quiet,
		notes: console.NewNotes(), code: -1,
	}
	go r.notes.Run(w.err)
	defer r.notes.Close(time.Second)
	r.telemetry = newTelemetry(context.Background(), func(format string, args ...any) { r.notes.Add("sandglass: "+format, args...) })
	defer r.telemetry.close()
	cfg := sandbox.Config{
		Fleet: fleet, Owner: c.Owner, Scope: scope, LocalTags: c.LocalTags, Unmarked: c.NoJournal,
		Grace:     r.grace + 2*time.Second, // the program is killed before the sandbox is deleted under it
		Observers: append([]sandbox.Observer{r.observe}, r.telemetry.scopes()...),
	}
	if j != nil {
		cfg.Journal = j
	}
	path := c.History
	if path == "" {
		path = w.settings.History
	}
	if path != "" {
		h, err := history.Open(path, 0)
		if err != nil {
			return usage(err)
		}
		cfg.Observers = append(cfg.Observers, h.Observer(history.Scope))
		defer func() {
			if err := h.Err(); err != nil {
				r.notes.Add("sandglass: history: %v", err)
			}
		}()
	}
	if r.manager, err = sandbox.NewManager(account, cfg); err != nil {
		return usage(err)
	}
	return r.run()
}

// A runner is one run of a program.
type runner struct {
	account *settings.Account
	manager *sandbox.Manager
	fleet   string
	args    []string
	grace   time.Duration
	guard   []string
	quiet   bool
	notes   *console.Notes

	telemetry *telemetry

	mu      sync.Mutex
	program *child.Process // nil: not started yet, or over
	over    bool           // the program is over
	asked   os.Signal      // what asked us to end
	late    bool           // something did so after the program's end
	code    int            // the program's; -1: it has not ended
	failed  error          // why it was not started
}

// run runs the program in a scope. It writes nothing itself, so that nothing can hold it up.
func (r *runner) run() error {
	// Whoever reads our output may go away. Without a receiver for this signal the next note would end the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(export.Parent(context.Background()))
	defer cancel(nil)
	caught := make(chan os.Signal, 8)
	for _, s := range append(endings(), others()...) {
		if !signal.Ignored(s) { // as under nohup
			signal.Notify(caught, s)
		}
	}
	go func() {
		for s := range caught {
			r.signal(s, cancel)
		}
	}()

	replay, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.manager.Replay(replay); err != nil && replay.Err() == nil {
			r.notes.Add("sandglass: journal: %v", err)
		}
	})
	err := r.manager.WithSandbox(ctx, r.scope)
	stop()
	wg.Wait()
	return r.outcome(err)
}

// signal passes s on to the program, and ends what there is instead where there is no program.
func (r *runner) signal(s os.Signal, cancel context.CancelCauseFunc) {
	r.mu.Lock()
	program, over, again := r.program, r.over, r.late
	ends := slices.Contains(endings(), s)
	if ends {
		r.asked, r.late = s, over
	}
	r.mu.Unlock()
	switch {
	case program != nil:
		program.Signal(s)
	case !ends:
	case over && again:
		r.notes.Add("sandglass: %v: ending at once; what is left is ended by its lease, or by the next run or sweep", s)
		r.notes.Close(time.Second)
		os.Exit(128 + number(s))
	case over:
		r.notes.Add("sandglass: %v: the sandbox is being deleted; once more ends this at once", s)
	}
	if ends {
		cancel(fmt.Errorf("signal %v", s))
	}
}

// scope runs the program in the sandbox's scope.
func (r *runner) scope(ctx context.Context, sb sandbox.Sandbox) error {
	nonce := ""
	for _, info := range r.manager.Live() {
		if info.ID == sb.ID() {
			nonce = info.Mark.Nonce
		}
	}
	env := slices.Concat(os.Environ(), r.account.Env, []string{
		"SANDGLASS_SANDBOX_ID=" + sb.ID(), "SANDGLASS_PROVIDER=" + r.account.Word, "SANDGLASS_FLEET=" + r.fleet, "SANDGLASS_NONCE=" + nonce,
	}, settings.SandboxEnv(r.account.Kind, sb.ID()), r.telemetry.environ(ctx, sb))
	r.mu.Lock() // a signal that comes meanwhile waits for the program, and is not lost
	program, err := child.Start(child.Cmd{Args: r.args, Env: env, Guard: r.guard})
	if err != nil {
		r.over, r.failed = true, err
		r.mu.Unlock()
		return err
	}
	r.program = program
	r.mu.Unlock()

	r.await(ctx, program)
	r.mu.Lock()
	r.program, r.over, r.code = nil, true, program.ExitCode()
	r.mu.Unlock()
	program.Close() // and what it left of its group
	if r.code != 0 {
		return fmt.Errorf("the program ended with exit code %d", r.code)
	}
	return nil
}

// await returns when the program has ended. One that does not although it should is killed after the grace period.
func (r *runner) await(ctx context.Context, program *child.Process) {
	select {
	case <-program.Done():
		return
	case <-ctx.Done():
	}
	r.mu.Lock()
	told := r.asked != nil
	r.mu.Unlock()
	if !told {
		r.notes.Add("sandglass: the program is asked to end: %v", context.Cause(ctx))
		program.Terminate()
	}
	timer := time.NewTimer(r.grace)
	defer timer.Stop()
	select {
	case <-program.Done():
		return
	case <-timer.C:
	}
	r.notes.Add("sandglass: the program still runs %s after it was asked to end, and is killed", console.Duration(r.grace))
	program.Kill()
	<-program.Done()
}

// outcome makes an exit code and a last word of how the scope came out.
func (r *runner) outcome(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	leak, leaked := errors.AsType[*sandbox.LeakError](err)
	switch {
	case leaked:
		r.notes.Add("sandglass: %v", leak)
		return &exitError{code: exitLeak}
	case r.failed != nil:
		r.notes.Add("sandglass: %v", r.failed)
		return &exitError{code: notStarted(r.failed)}
	case r.code < 0 && r.asked != nil:
		r.notes.Add("sandglass: %v before the program was started; no sandbox is left", r.asked)
		return &exitError{code: 128 + number(r.asked)}
	case r.code < 0:
		r.notes.Add("sandglass: %v", err)
		if what := hint(r.account.Kind, err); what != "" {
			r.notes.Add("sandglass: %s", what)
		}
		return &exitError{code: exitOurs}
	case errors.Is(err, sandbox.ErrLeaseLost) || errors.Is(err, sandbox.ErrMaxLifetime):
		r.notes.Add("sandglass: ended early: %v", err)
		return &exitError{code: exitEnded}
	case r.code != 0:
		return &exitError{code: r.code}
	}
	return nil
}

// observe tells people of the steps of a life, those that are worth a line.
func (r *runner) observe(_ context.Context, e sandbox.Event) {
	what := "sandbox " + e.Info.ID
	if e.Info.ID == "" {
		what = "the sandbox of nonce " + e.Info.Mark.Nonce
	}
	switch {
	case e.Op == sandbox.OpCreate && (errors.Is(e.Err, sandbox.ErrRateLimited) || errors.Is(e.Err, sandbox.ErrUnavailable) || errors.Is(e.Err, sandbox.ErrQuota)):
		r.notes.Add("sandglass: create, attempt %d: %v", e.Attempt, e.Err)
	case e.Op == sandbox.OpReady && e.Final && e.Err == nil && !r.quiet:
		r.notes.Add("sandglass: %s runs on %s; without us it ends by itself in %s", what, e.Provider, console.Duration(e.Info.Left()))
	case e.Op == sandbox.OpExtend && e.Err != nil && !e.Final:
		r.notes.Add("sandglass: %s: extension failed, its lease has %s left: %v", what, console.Duration(e.Info.Left()), e.Err)
	case e.Op == sandbox.OpKeep && e.Err == nil:
		r.notes.Add("sandglass: %s is kept, as --keep-on-error says, until its lease ends at %s", what, e.Info.Deadline.Local().Format(time.RFC3339))
	case e.Op == sandbox.OpKeep:
		r.notes.Add("sandglass: %s cannot be kept, and is deleted: %v", what, e.Err)
	case e.Op == sandbox.OpConfirm && e.Final && e.Err == nil && !r.quiet:
		r.notes.Add("sandglass: %s is deleted and seen to be gone", what)
	case e.Op == sandbox.OpJournal && e.Err != nil:
		r.notes.Add("sandglass: journal: %v", e.Err)
	}
}

// notStarted returns the exit code for a program that could not be started.
func notStarted(err error) int {
	switch {
	case errors.Is(err, child.ErrNotFound):
		return exitNotFound
	case errors.Is(err, child.ErrNotRun):
		return exitNotRun
	}
	return exitOurs
}

func number(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}
