package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tmc/langchaingo/tools"

	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	scriptFile  = "/tmp/script.sh" // in the sandbox
	outputLimit = 8 << 10          // bytes of each stream that the model gets to read
)

// CodeTool is a tool for langchaingo's agents: it runs the model's scripts in a sandbox. It is safe for concurrent use,
// so several agents may share one.
//
// What a script does, be it fail or run for ever, is the model's affair and goes into the observation. What the model
// cannot mend, such as a lost lease or a [*sandbox.LeakError], is the program's. It is the tool's error, and that is
// enough here: langchaingo's executor runs one call after the other, and the first error ends the agent's run and is
// returned as it is.
type CodeTool struct {
	description string
	timeout     time.Duration
	within      func(ctx context.Context, use func(context.Context, sandbox.Sandbox) error) error
}

var _ tools.Tool = (*CodeTool)(nil)

// EachInItsOwn returns a tool that makes a sandbox for each run. It is seen to be gone before the model gets the result.
func EachInItsOwn(m *sandbox.Manager, timeout time.Duration) *CodeTool {
	return &CodeTool{
		description: "Runs a POSIX shell script in a new, empty Linux machine. Nothing is kept from one call to the next.",
		timeout:     timeout,
		within: func(ctx context.Context, use func(context.Context, sandbox.Sandbox) error) error {
			return m.WithSandbox(ctx, use)
		},
	}
}

// AllIn returns a tool that runs everything in sb, which is another's to end: see [Conversation].
func AllIn(sb sandbox.Sandbox, timeout time.Duration) *CodeTool {
	return &CodeTool{
		description: "Runs a POSIX shell script in your Linux machine. Files are kept from one call to the next.",
		timeout:     timeout,
		within: func(ctx context.Context, use func(context.Context, sandbox.Sandbox) error) error {
			return use(ctx, sb)
		},
	}
}

// Name implements [tools.Tool].
func (t *CodeTool) Name() string { return "run_code" }

// Description implements [tools.Tool].
func (t *CodeTool) Description() string {
	return t.description + fmt.Sprintf(" The input is the script. It is killed after %v. You get its exit code, stdout and stderr.", t.timeout)
}

// Call implements [tools.Tool].
func (t *CodeTool) Call(ctx context.Context, script string) (string, error) {
	var res sandbox.Result
	err := t.within(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		// A file takes a script of any length. As an argument, a long one would not start.
		err := sb.Upload(ctx, scriptFile, strings.NewReader(script))
		if err == nil {
			res, err = sb.Exec(ctx, sandbox.Cmd{Args: []string{"sh", scriptFile}, Timeout: t.timeout})
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("run_code: %w", err)
	}
	return report(res, t.timeout), nil
}

// report puts a result into a form that a model can use: it says what to do about a timeout, and does not fill the
// model's context with output without end.
func report(res sandbox.Result, timeout time.Duration) string {
	var b strings.Builder
	if res.TimedOut {
		fmt.Fprintf(&b, "killed: it had not ended after %v; make it faster, or do less\n", timeout)
	} else {
		fmt.Fprintf(&b, "exit code: %d\n", res.ExitCode)
	}
	stream(&b, "stdout", res.Stdout)
	stream(&b, "stderr", res.Stderr)
	return b.String()
}

// stream writes the end of what was written, where errors are.
func stream(b *strings.Builder, name string, out []byte) {
	if len(out) == 0 {
		return
	}
	cut := max(0, len(out)-outputLimit)
	if cut > 0 {
		name += ", without its beginning"
	}
	fmt.Fprintf(b, "%s:\n%s\n", name, strings.TrimSuffix(strings.ToValidUTF8(string(out[cut:]), ""), "\n"))
}
