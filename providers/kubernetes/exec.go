package kubernetes

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/internal/killer"
	"github.com/sandglass-dev/sandglass/internal/remote"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	markVar   = "SANDGLASS_EXEC"       // in the environment of a command and of all that it starts
	killTime  = 30 * time.Second       // the end of a command and its children, detached from the caller
	restTime  = time.Second            // for what a command wrote last before it was killed
	killPause = 100 * time.Millisecond // doubled with each try
)

// Exec runs cmd in the pod's container, as its user: another one is refused. The image needs sh, and env for commands with
// an environment of their own. The exit code is 126 for a folder that is not there.
//
// What is run goes the way of the standard input, not into the request's address, where proxies cut it and audit logs keep
// it. A command begins only once all of that has arrived, so that one whose caller has left never does.
//
// At the end of ctx or Timeout everything is killed that belongs to the command: what has inherited its environment,
// their descendants, and the Unix sessions of these. That is done by another command, as the same user: one that has
// become somebody else, and a process that has cleared its environment and left its parents and their sessions, live
// until the sandbox ends. What a command leaves behind when it ends by itself stays; as long as it holds the command's
// output open, Exec waits for it.
//
// Where the connection breaks off, the command is killed and its outcome is an error. It is never started again. A Stdin
// that blocks does not keep Exec from returning: its goroutine ends when the reader next returns.
func (h *handle) Exec(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	err := cmd.Validate(h.p.Capabilities())
	if cmd.User != "" {
		err = errors.Join(err, fmt.Errorf("command as user %q, where all are the container's: %w", cmd.User, errors.ErrUnsupported))
	}
	if err != nil {
		return sandbox.Result{}, h.p.refuse(sandbox.OpExec, h.id, nil, err)
	}
	return h.exec(ctx, sandbox.OpExec, cmd)
}

func (h *handle) exec(ctx context.Context, op sandbox.Op, cmd sandbox.Cmd) (sandbox.Result, error) {
	began := time.Now()
	if ctx.Err() != nil {
		return sandbox.Result{}, context.Cause(ctx)
	}
	pod, err := h.pod(ctx, op)
	if err != nil {
		return sandbox.Result{}, err
	}
	r := &running{h: h, op: op, pod: pod, mark: strings.ToLower(rand.Text()), out: capture.NewOutput(cmd.Stdout, cmd.Stderr)}
	return r.run(ctx, cmd, began)
}

// program returns what the shell in the sandbox is given to run cmd: one line.
func program(cmd sandbox.Cmd) string {
	var b strings.Builder
	b.WriteString("(")
	if cmd.Dir != "" {
		b.WriteString("cd " + quote(cmd.Dir) + " || exit 126; ")
	}
	b.WriteString("exec")
	if len(cmd.Env) > 0 { // a shell drops names that are none of its own, and keeps some for itself
		b.WriteString(" env")
		for _, k := range slices.Sorted(maps.Keys(cmd.Env)) {
			b.WriteString(" " + quote(k+"="+cmd.Env[k]))
		}
		if strings.Contains(cmd.Args[0], "=") { // or env would take the program for a variable
			b.WriteString(` sh -c 'exec "$@"' sh`)
		}
	}
	for _, a := range cmd.Args {
		b.WriteString(" " + quote(a))
	}
	b.WriteString(") 2>&3 3>&-")
	if cmd.Stdin == nil {
		b.WriteString(" </dev/null")
	}
	return b.String()
}

// lineEnd is the variable that stands for a line's end in a program, which is one line itself.
const lineEnd = "SANDGLASS_NL"

// quote returns s as a shell takes it for one word.
func quote(s string) string {
	s = strings.ReplaceAll(s, "'", `'\''`)
	return "'" + strings.ReplaceAll(s, "\n", `'"$`+lineEnd+`"'`) + "'"
}

// starter is what the request asks for: a shell that has the mark in its environment from its first moment on, reads the
// program, and runs it. A line that breaks off is no program.
const starter = `export ` + markVar + `="$1"; exec sh -c "$2" sandglass`

// reader stays until the program has ended, and keeps its outputs open for so long: a runtime (containerd, issue 13934) takes
// the end of the output for that of the command, and throws away what has not been read of the input. What it would say
// itself of the program's end is not the program's output.
const reader = lineEnd + `='
'; IFS= read -r SANDGLASS_RUN || exit 126; exec 3>&2 2>/dev/null; eval "$SANDGLASS_RUN"; exit $?`

// command returns the arguments of the request.
func command(mark string) []string { return []string{"sh", "-c", starter, "sandglass", mark, reader} }

// A running is one command under way.
type running struct {
	h    *handle
	op   sandbox.Op
	pod  string
	mark string
	out  *capture.Output
}

func (r *running) run(ctx context.Context, cmd sandbox.Cmd, began time.Time) (sandbox.Result, error) {
	return remote.Command{
		Output: r.out, Kill: r.kill, KillTime: killTime, Abandon: r.abandon, Rest: restTime, Fault: r.fault,
		Follow: func(ctx context.Context) (int, error) { return r.stream(ctx, cmd) },
		Left:   func(err error) bool { return err != nil && !refused(err) },
	}.Run(ctx, began, cmd.Timeout)
}

// refused reports whether err says for certain that no command was begun.
func refused(err error) bool {
	e, ok := errors.AsType[*sandbox.APIError](err)
	return ok && e.Refused
}

func (r *running) fault(err error) error {
	if known, ok := errors.AsType[*sandbox.APIError](err); ok {
		return known
	}
	return r.h.p.failed(r.op, r.h.id, sandbox.ErrUnavailable, err)
}

// abandon kills a command that its caller has left.
func (r *running) abandon(ctx context.Context) {
	kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if err := r.kill(kctx); err != nil {
		r.h.p.log.WarnContext(kctx, "command not seen to be killed; it ends with its sandbox", slog.String("provider", r.h.p.name),
			slog.String("sandbox_id", r.h.id), slog.String("op", string(r.op)), slog.Any("error", err))
	}
}

// kill ends a command that was told to start, and all that belongs to it, or finds that the sandbox is over.
func (r *running) kill(ctx context.Context) error {
	for pause := killPause; ; pause = min(2*pause, 5*time.Second) {
		err := r.killOnce(ctx)
		if err == nil || r.gone(ctx) {
			return nil
		}
		if errors.Is(err, sandbox.ErrUnauthenticated) || errors.Is(err, sandbox.ErrPermission) || contain.Sleep(ctx, pause) != nil {
			return err
		}
	}
}

// gone reports whether the whole sandbox has ended or is about to.
func (r *running) gone(ctx context.Context) bool {
	info, err := r.h.p.get(ctx, r.op, r.h.id)
	return errors.Is(err, sandbox.ErrNotFound) || err == nil && (info.State == sandbox.StateEnding || info.State == sandbox.StateDormant)
}

// killOnce runs the killer, which carries another mark.
func (r *running) killOnce(ctx context.Context) error {
	var said bytes.Buffer
	cmd := sandbox.Cmd{Args: []string{"sh", "-c", killer.Script(), "sandglass-kill", markVar + "=" + r.mark}}
	k := &running{h: r.h, op: r.op, pod: r.pod, mark: "kill", out: capture.NewOutput(&said, nil)}
	code, err := k.stream(ctx, cmd)
	k.out.Shut()
	if err != nil {
		return err
	}
	if strings.TrimSpace(said.String()) != "done" {
		return fmt.Errorf("the killer ended with code %d and said %.80q", code, said.String())
	}
	return nil
}
