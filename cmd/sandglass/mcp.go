package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/console"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/history"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/mcpserver"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel/export"
)

// mcpCmd serves a sandbox to an agent's client.
type mcpCmd struct {
	accountFlag
	fleetFlag
	Owner string `placeholder:"NAME" help:"Who this is, in marks and reports. Default: host and process id."`

	orderFlags

	Idle time.Duration `group:"Life:" placeholder:"15m" default:"15m" help:"Delete the sandbox if no tool was called for so long. 0: never. Default: 15m."`

	journalFlag
	History string `type:"path" default:"" env:"SANDGLASS_HISTORY" placeholder:"FILE" help:"Append what happens to the sandbox to this file, for sandglass report."`
	Quiet   bool   `short:"q" help:"Say nothing unless something is wrong."`
}

func (mcpCmd) Help() string {
	return `Serves the Model Context Protocol on standard input and output, to be started by a client: it gives an agent tools to run commands and
move files in a sandbox. The sandbox is made by the first call that needs it, extended while the client is connected, and deleted and
seen to be gone when the client goes away, in whatever manner. Nothing but the protocol goes to standard output.

In a client's configuration (the path and form of which are the client's own):

	{
	  "mcpServers": {
	    "sandbox": {
	      "command": "sandglass",
	      "args": ["mcp", "--provider", "e2b", "--fleet", "agents"],
	      "env": {"E2B_API_KEY": "${E2B_API_KEY}"}
	    }
	  }
	}

A client that cannot fill in variables, and starts servers without your environment, needs the key in that file: then see to it
that nobody else can read it. Keys are never arguments.

Tools: run_command, write_file, read_file, sandbox_info, new_sandbox, end_sandbox, and get_endpoint where --port is given and the
provider has endpoints. One sandbox at a time. When it ends before the session (lease lost, max lifetime, idle), the next call says so,
and another one is made only when new_sandbox is called.

What ends the sandbox when the client goes:

	standard input ends, standard output breaks   at once
	SIGTERM, SIGHUP, SIGQUIT                      at once; a second one ends the server without waiting for the delete
	the client hangs                              after 3 pings, about a minute; protocol versions from 2026-07-28 on have no pings
	the client reads nothing any more             about a minute and a half after the first answer that does not get through
	the client forgets the sandbox                after --idle without a tool call
	the server is killed, or its host is lost     the lease, within --window; what the provider keeps, "sandglass sweep" or the next start

Clients often kill a server some seconds after they closed its input; what is not deleted by then is finished in the same way.
SIGINT is left to the client, unless standard input is a terminal: a Ctrl-C there is for the client, and reaches its servers too.

Exit code: 0 when the client has gone and nothing is left, 128 and n after signal n, 123 if a sandbox may be left: the message
says which, until when, and what to do; 1 if it could not serve, 2 if settings or arguments are wrong.

Examples:

	sandglass mcp --provider e2b --fleet agents --idle 30m
	sandglass mcp -p docker -f agents --image busybox:latest --offline`
}

// Run is the command.
func (c *mcpCmd) Run(w *world) error {
	out := w.out
	os.Stdout = os.Stderr // the protocol's alone: nothing else in this process finds it there

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
	scope.StallTimeout = c.Idle
	j, err := c.open(w)
	if err != nil {
		return usage(fmt.Errorf("%w (name a folder with --journal, or do without by --no-journal)", err))
	}
	notes := console.NewNotes()
	go notes.Run(w.err)
	defer notes.Close(time.Second)
	note := func(format string, args ...any) { notes.Add("sandglass: "+format, args...) }
	telemetry := newTelemetry(context.Background(), note)
	defer telemetry.close()
	life := &runner{notes: notes, quiet: c.Quiet} // says of a sandbox what run says
	cfg := sandbox.Config{
		Fleet: fleet, Owner: c.Owner, Scope: scope, LocalTags: c.LocalTags, Unmarked: c.NoJournal,
		Observers: append([]sandbox.Observer{life.observe}, telemetry.scopes()...),
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
				note("history: %v", err)
			}
		}()
	}
	m, err := sandbox.NewManager(account, cfg)
	if err != nil {
		return usage(err)
	}

	ctx, cancel := context.WithCancelCause(export.Parent(context.Background()))
	defer cancel(nil)
	byHand := term.IsTerminal(int(w.in.Fd()))
	ended := endedBySignal(cancel, !byHand, note)
	go watchReader(ctx, out, func() { cancel(fmt.Errorf("%w: nobody reads the output", mcpserver.ErrClientGone)) })
	if !c.Quiet {
		note("serving MCP; a sandbox of %s is made when a tool needs one", account.Name())
	}
	if byHand {
		note("standard input is a terminal, and this is for a program to talk to: see sandglass mcp --help")
	}
	err = mcpserver.Serve(ctx, mcpserver.Config{
		Manager: m, Provider: account, Scope: scope, In: w.in, Out: out, Version: version(), Note: note,
		Hint: func(err error) string { return hint(account.Kind, err) },
	})
	leak, leaked := errors.AsType[*sandbox.LeakError](err)
	number := ended()
	switch {
	case leaked:
		note("%v", leak)
		return &exitError{code: exitLeak}
	case number != 0:
		return &exitError{code: 128 + number}
	case err != nil && !errors.Is(err, mcpserver.ErrClientGone):
		return err
	case err != nil:
		note("%v", err)
	}
	return nil
}

// endedBySignal has signals that ask for the end call cancel, and a second one end the process. The function that it
// returns says which came; 0: none.
func endedBySignal(cancel context.CancelCauseFunc, piped bool, note func(format string, args ...any)) func() int {
	// Whoever reads our output may go away. Without a receiver for this signal the next write would end the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	caught := make(chan os.Signal, 8)
	for _, s := range endings() {
		switch {
		case signal.Ignored(s): // as under nohup
		case s == os.Interrupt && piped:
			signal.Ignore(s)
		default:
			signal.Notify(caught, s)
		}
	}
	first := make(chan os.Signal, 1)
	go func() {
		s := <-caught
		first <- s
		note("%v: the sandbox is being deleted, if there is one; once more ends this at once", s)
		cancel(fmt.Errorf("signal %v", s))
		os.Exit(128 + number(<-caught)) // what is left is ended by its lease, or by the next start or sweep
	}()
	return func() int {
		select {
		case s := <-first:
			return number(s)
		default:
			return 0
		}
	}
}
