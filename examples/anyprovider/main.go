// Command anyprovider runs one agent task in a sandbox of whichever service it is told to use, each in the account that
// the environment names as the service's own SDK reads it.
//
//	go run ./examples/anyprovider docker
//	E2B_API_KEY=... go run ./examples/anyprovider e2b
//
// What changes from one service to another is one constructor and the image: see services. The task, its scope and what
// comes of it do not.
package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/providers/modal"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// A service is what a program changes to move: a constructor and an image with a POSIX shell.
type service struct {
	open  func() (sandbox.Provider, error)
	image string // empty: the provider's default
}

func services() map[string]service {
	return map[string]service{
		"boat":       {open: from(boat.FromEnv)},
		"daytona":    {open: from(daytona.FromEnv)},
		"docker":     {open: from(docker.FromEnv), image: "busybox:latest"},
		"e2b":        {open: from(e2b.FromEnv), image: "base"},
		"kubernetes": {open: from(kubernetes.FromEnv), image: "busybox:1.36"},
		"memory":     {open: func() (sandbox.Provider, error) { return sandboxtest.New(sandbox.Capabilities{}), nil }},
		"modal":      {open: from(modal.FromEnv), image: "alpine:3.21"},
		"vercel":     {open: from(vercel.FromEnv), image: "node24"},
	}
}

// from makes constructors of different types one.
func from[P sandbox.Provider](open func() (P, error)) func() (sandbox.Provider, error) {
	return func() (sandbox.Provider, error) { return open() }
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all := services()
	s, known := all[strings.Join(os.Args[1:], " ")]
	if !known {
		fmt.Fprintln(os.Stderr, "usage: anyprovider", strings.Join(slices.Sorted(maps.Keys(all)), "|"))
		os.Exit(2)
	}
	if err := run(ctx, s, "", os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "anyprovider:", err)
		os.Exit(1)
	}
}

// run does the task on a service, with a crash journal in dir (empty: the user's own), which boat.dev asks for.
func run(ctx context.Context, s service, dir string, w io.Writer) error {
	p, err := s.open()
	if err != nil {
		return err
	}
	j, err := journal.Open(dir)
	if err != nil {
		return err
	}
	m, err := sandbox.NewManager(p, sandbox.Config{
		Fleet:   "anyprovider",
		Journal: j,
		Scope:   sandbox.Scope{Spec: sandbox.Spec{Image: s.image}, MaxLifetime: 10 * time.Minute},
	})
	if err != nil {
		return err
	}
	return m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error { return task(ctx, sb, w) })
}

// task is what a coding agent does all day: it brings in a project, finds the test failing, mends the cause, finds the
// test passing, gives up on a command that does not end, and takes the result home.
func task(ctx context.Context, sb sandbox.Sandbox, w io.Writer) error {
	const dir = "/tmp/project"
	project := map[string]string{
		"answer":  "41\n",
		"test.sh": "read -r got <answer\n[ \"$got\" = \"$WANT\" ] || { echo \"got $got, want $WANT\"; exit 3; }\necho ok\n",
		"mend.sh": "read -r got <answer\necho $((got + 1)) >answer\n",
	}
	for _, name := range slices.Sorted(maps.Keys(project)) {
		if err := sb.Upload(ctx, dir+"/"+name, strings.NewReader(project[name])); err != nil {
			return err
		}
	}
	for _, cmd := range []sandbox.Cmd{
		{Args: []string{"sh", "test.sh"}, Dir: dir, Env: map[string]string{"WANT": "42"}},
		{Args: []string{"sh", "mend.sh"}, Dir: dir},
		{Args: []string{"sh", "test.sh"}, Dir: dir, Env: map[string]string{"WANT": "42"}},
		{Args: []string{"sh", "-c", "kill -9 $$"}, Dir: dir},
		{Args: []string{"sleep", "600"}, Timeout: time.Second},
		{Args: []string{"no-such-program"}},
	} {
		res, err := sb.Exec(ctx, cmd)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
		how := fmt.Sprintf("exit %d", res.ExitCode)
		if res.TimedOut {
			how = "timed out"
		}
		out := ""
		if cmd.Dir != "" { // what a shell says of a program that it cannot find is its own
			out = strings.TrimSpace(string(res.Stdout))
		}
		fmt.Fprintf(w, "%-16s %-10s %s\n", strings.Join(cmd.Args, " "), how, out)
	}
	var answer strings.Builder
	if err := sb.Download(ctx, dir+"/answer", &answer); err != nil {
		return err
	}
	fmt.Fprintf(w, "%-16s %-10s %s\n", "the answer", "is", strings.TrimSpace(answer.String()))
	return nil
}
