package main

import (
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/emulate"
)

// emulateCmd serves a provider in memory.
type emulateCmd struct {
	Addr string `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Where to listen; port 0: any that is free. Default: 127.0.0.1:0."`
	JSON bool   `name:"json" help:"Print the environment as one line of JSON, in place of export lines."`

	Service string   `arg:"" enum:"${services}" help:"What to serve: ${services}."`
	Program []string `arg:"" optional:"" passthrough:"partial" help:"A program to run with that environment, after --."`
}

func (emulateCmd) Help() string {
	return `Serves a provider in memory on this machine, as its official SDK expects it, so that code in any language runs offline and without an
account. Prints the environment that the SDK needs, shows each request live on standard error (no keys, no bodies), and shows its state
as a page at /_sandglass: who lives, until when, and what was asked. With a program it runs that with the environment, and ends with it.

Commands run in an in-memory shell with some ninety utilities, never on this machine: there is no Python in it, nor a network.

Exit code: 3 if a sandbox is left, else the program's, or 0 at SIGINT or SIGTERM; 1 if it could not serve, 2 for wrong arguments.

Examples:

	sandglass emulate e2b
	sandglass emulate daytona --json
	sandglass emulate e2b -- python3 agent.py`
}

// Run is the command.
func (c *emulateCmd) Run(w *world) error {
	if len(c.Program) > 0 && c.Program[0] == "--" {
		c.Program = c.Program[1:]
	}
	ctx, stop := untilSignal()
	defer stop()
	code, err := emulate.Run(ctx, emulate.Options{
		Service: c.Service, Addr: c.Addr, Program: c.Program, JSON: c.JSON, Stdin: w.in, Stdout: w.out, Stderr: w.err,
	})
	if code != 0 || err != nil {
		return &exitError{code: max(code, 1), err: err}
	}
	return nil
}
