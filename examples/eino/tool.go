package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"

	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	scriptFile     = "/tmp/script.sh" // in the sandbox
	usualSeconds   = 30               // what a script may take if the model does not say
	longestSeconds = 300
	outputLimit    = 8 << 10 // bytes of each stream that the model gets to read
)

// CodeTool is a tool for eino's agents: it runs the model's scripts, each in a sandbox of its own, which is seen to be
// gone before the model gets the result. It is safe for concurrent use, as eino demands: the calls of one answer run at
// the same time.
//
// What a script does, be it fail or run for ever, is the model's affair and goes into the result. What the model cannot
// mend is the program's: the error ends the agent's run. Of several errors, eino returns only the first. So the tool
// keeps them all, see [CodeTool.Join].
type CodeTool struct {
	Manager *sandbox.Manager

	mu   sync.Mutex
	errs []error
}

var _ tool.InvokableTool = (*CodeTool)(nil)

// Info implements [tool.BaseTool].
func (t *CodeTool) Info(context.Context) (*schema.ToolInfo, error) {
	return &schema.ToolInfo{
		Name: "run_code",
		Desc: "Runs a POSIX shell script in a new, empty Linux machine and returns exit_code, stdout and stderr as JSON. " +
			"Nothing is kept from one call to the next.",
		ParamsOneOf: schema.NewParamsOneOfByParams(map[string]*schema.ParameterInfo{
			"script":          {Type: schema.String, Desc: "the script", Required: true},
			"timeout_seconds": {Type: schema.Integer, Desc: fmt.Sprintf("when to kill it; default %d, at most %d", usualSeconds, longestSeconds)},
		}),
	}, nil
}

// InvokableRun implements [tool.InvokableTool].
func (t *CodeTool) InvokableRun(ctx context.Context, arguments string, _ ...tool.Option) (string, error) {
	var args struct {
		Script  string `json:"script"`
		Seconds int    `json:"timeout_seconds"`
	}
	if err := json.Unmarshal([]byte(arguments), &args); err != nil {
		return fmt.Sprintf("The arguments are not as described: %v", err), nil // models make such mistakes, and mend them
	}
	if args.Seconds <= 0 {
		args.Seconds = usualSeconds
	}
	timeout := time.Duration(min(args.Seconds, longestSeconds)) * time.Second

	var res sandbox.Result
	err := t.Manager.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		// A file takes a script of any length. As an argument, a long one would not start.
		err := sb.Upload(ctx, scriptFile, strings.NewReader(args.Script))
		if err == nil {
			res, err = sb.Exec(ctx, sandbox.Cmd{Args: []string{"sh", scriptFile}, Timeout: timeout})
		}
		return err
	})
	if err != nil {
		t.mu.Lock()
		t.errs = append(t.errs, err)
		t.mu.Unlock()
		return "", err
	}
	return report(res, timeout), nil
}

// Join returns err, as an agent's run has returned it, joined with those errors of the tool that are not in it. So no
// [*sandbox.LeakError] and no lost lease is lost when another call of the same answer has failed too.
func (t *CodeTool) Join(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.errs {
		if !errors.Is(err, e) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// report puts a result into a form that a model can use: it says what to do about a timeout, and does not fill the
// model's context with output without end.
func report(res sandbox.Result, timeout time.Duration) string {
	said := struct {
		ExitCode int    `json:"exit_code"`
		Stdout   string `json:"stdout,omitempty"`
		Stderr   string `json:"stderr,omitempty"`
		Note     string `json:"note,omitempty"`
	}{ExitCode: res.ExitCode, Stdout: tail(res.Stdout), Stderr: tail(res.Stderr)}
	if res.TimedOut {
		said.Note = fmt.Sprintf("killed after %v, for it had not ended; make it faster, or ask for more time", timeout)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a model reads code better as it is
	_ = enc.Encode(said)     // strings and a number: nothing here can fail
	return strings.TrimSpace(b.String())
}

// tail returns the end of what was written, where errors are.
func tail(out []byte) string {
	if cut := len(out) - outputLimit; cut > 0 {
		return "[the beginning is left out]\n" + strings.ToValidUTF8(string(out[cut:]), "")
	}
	return string(out)
}
