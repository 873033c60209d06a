// Command sandglass gives every cloud sandbox a life with an end, for runners in any language, and shows whoever pays for
// them what is there: it runs a program with a sandbox that ends with it, lists, sweeps, audits and deletes.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/child"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/emulate"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
)

// Exit codes of all commands but run and audit, which have their own; see their help.
const (
	exitFailed = 1
	exitUsage  = 2
)

type commands struct {
	Config string `type:"path" default:"" placeholder:"FILE" env:"SANDGLASS_CONFIG" help:"Configuration file; it names accounts and holds no keys. Default: sandglass/config.json where your configuration is kept."`

	Run        runCmd        `cmd:"" help:"Run a program with a sandbox that ends with it."`
	Mcp        mcpCmd        `cmd:"" help:"Serve a sandbox to an agent's client, over the Model Context Protocol."`
	Ls         lsCmd         `cmd:"" help:"List sandboxes: whose, how old, and how much lease is left."`
	Sweep      sweepCmd      `cmd:"" help:"Delete what no living owner wants, once or every so often."`
	Audit      auditCmd      `cmd:"" help:"Say whether sandboxes are left, and delete nothing."`
	Kill       killCmd       `cmd:"" help:"Delete sandboxes and wait until they are seen to be gone."`
	Doctor     doctorCmd     `cmd:"" help:"Look at keys, clocks, the journal, and what the settings mean."`
	Report     reportCmd     `cmd:"" help:"Write a page on what became of sandboxes: a timeline, who ended each, and what is left."`
	Emulate    emulateCmd    `cmd:"" help:"Serve a provider in memory, for its official SDK."`
	Completion completionCmd `cmd:"" help:"Print a script that completes this command's words in your shell."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

const description = `Sandglass gives every cloud sandbox a life with an end.

Accounts come from the environment variables that the providers' official SDKs read (E2B_API_KEY, DAYTONA_API_KEY, DOCKER_HOST
and so on); "sandglass doctor" says which it found. Keys are never arguments. A Kubernetes cluster is always named with --provider: it is
that of KUBECONFIG, else the pod's own; SANDGLASS_NAMESPACE goes before the namespace of its context, which is "default" if it names none.`

// A world is what a command gets of its process.
type world struct {
	in       *os.File
	out, err *os.File
	settings *settings.Settings
	parser   *kong.Kong
}

// An exitError is an error with the exit code that it means.
type exitError struct {
	code int
	err  error // nil: all has been said
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage makes an error of one that the caller can mend.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitUsage, err: err}
}

// guardWord, as the only argument, has this program be the guard of a process group; see package child.
const guardWord = "process-group-guard"

func main() {
	if len(os.Args) == 2 && os.Args[1] == guardWord {
		_ = child.Guard()
		os.Exit(exitFailed)
	}
	os.Exit(run(os.Args[1:]))
}

func newParser(c *commands) *kong.Kong {
	parser, err := kong.New(c,
		kong.Name("sandglass"), kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.Vars{"kinds": strings.Join(settings.Kinds(), ", "), "services": strings.Join(emulate.Services(), ",")},
	)
	if err != nil {
		panic(err) // the commands' own tags are wrong
	}
	return parser
}

func run(args []string) int {
	w := &world{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	var c commands
	parser := newParser(&c)
	w.parser = parser
	ctx, err := parser.Parse(args)
	if err != nil {
		code := exitUsage
		if len(args) > 0 && args[0] == "run" {
			code = exitOurs
		}
		fmt.Fprintf(w.err, "sandglass: %v\n", err)
		help := "sandglass --help"
		if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context.Selected() != nil {
			help = "sandglass " + parse.Context.Selected().Name + " --help"
		}
		fmt.Fprintf(w.err, "See %q.\n", help)
		return code
	}
	if w.settings, err = settings.Load(c.Config, os.Getenv); err != nil {
		err = usage(err)
	} else {
		err = ctx.Run(w)
	}
	code := 0
	if err != nil {
		code = exitFailed
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		code, err = exit.code, exit.err
		if code == exitUsage && ctx.Selected().Name == "run" {
			code = exitOurs
		}
	}
	if err != nil {
		fmt.Fprintf(w.err, "sandglass: %v\n", err)
	}
	return code
}

// versionCmd prints the version.
type versionCmd struct{}

func (versionCmd) Help() string {
	return "Example:\n\n\tsandglass version"
}

func (versionCmd) Run(w *world) error {
	_, err := io.WriteString(w.out, "sandglass "+version()+"\n")
	return err
}
