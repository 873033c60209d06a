package vercel

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/internal/killer"
	"github.com/sandglass-dev/sandglass/internal/remote"
	"github.com/sandglass-dev/sandglass/sandbox"
)

//go:embed run.sh
var runner string

const (
	markVar    = "SANDGLASS_EXEC" // in the environment of a command and of all that it starts
	startTime  = time.Minute      // until a command's stream begins
	killTime   = 30 * time.Second // the end of a command and its children, detached from the caller
	silence    = 2 * time.Minute  // of a stream; then it is asked whether the command still runs
	maxSilence = 32 * silence     // since each time the output is sent anew, the next is asked later
	breaks     = 6                // how often in a row a stream may break off without having brought anything
	afterlife  = 30 * time.Second // by which the service's own limit, which may spare the children, comes later
	maxTimeout = 5 * time.Hour    // the service's longest limit
	root       = "root"           // the users that there are
	ordinary   = "vercel-sandbox" // the default
	signalKill = 9
)

// start is the body that starts a command.
type start struct {
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	Env       map[string]string `json:"env"`
	Sudo      bool              `json:"sudo"`
	Wait      bool              `json:"wait"`
	Logs      bool              `json:"logs"`
	TimeoutMs int64             `json:"timeout,omitempty"`
}

// Exec runs cmd in the session. The image needs sh. The exit code is 126 for a folder that is not there. Users are
// "vercel-sandbox", the default, and "root"; another one is refused. The service carries text: arguments and variables
// that are not in UTF-8 are refused, and output that is not arrives changed.
//
// At the end of ctx or Timeout everything is killed that belongs to the command: what has inherited its environment,
// their descendants, and the Unix sessions of these. A process that has cleared its environment and left its parents and
// their sessions cannot be told from others; it lives until the sandbox ends. What a command leaves behind when it ends by
// itself stays.
//
// When the stream of its output breaks off or falls silent, the service is asked for the rest; the command itself is
// never started again.
func (h *handle) Exec(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	err := cmd.Validate(h.p.Capabilities())
	if cmd.User != "" && cmd.User != root && cmd.User != ordinary {
		err = errors.Join(err, fmt.Errorf("command as user %q, not %s or %s: %w", cmd.User, ordinary, root, errors.ErrUnsupported))
	}
	if !carries(cmd) {
		err = errors.Join(err, fmt.Errorf("an argument or a variable that is not UTF-8: %w", sandbox.ErrInvalid))
	}
	if err != nil {
		return sandbox.Result{}, h.p.refuse(sandbox.OpExec, h.id, nil, err)
	}
	began := time.Now()
	ref, err := h.ref(ctx, sandbox.OpExec)
	if err != nil {
		return sandbox.Result{}, err
	}
	r := &running{h: h, ref: ref, mark: strings.ToLower(rand.Text()), out: capture.NewOutput(cmd.Stdout, cmd.Stderr), id: make(chan string, 1)}
	r.log = &decoder{outputs: [2]io.Writer{r.out.Stdout, r.out.Stderr}, started: func(id string) { r.id <- id }}
	return r.run(ctx, cmd, began)
}

func carries(cmd sandbox.Cmd) bool {
	ok := utf8.ValidString(cmd.Dir)
	for _, a := range cmd.Args {
		ok = ok && utf8.ValidString(a)
	}
	for k, v := range cmd.Env {
		ok = ok && utf8.ValidString(k+v)
	}
	return ok
}

// A running is one command under way.
type running struct {
	h    *handle
	ref  ref
	mark string
	out  *capture.Output
	log  *decoder
	id   chan string // has the command's id once that is known
}

func (r *running) run(ctx context.Context, cmd sandbox.Cmd, began time.Time) (sandbox.Result, error) {
	return remote.Command{
		Output: r.out, Kill: r.kill, KillTime: killTime, Abandon: r.abandon, Fault: r.fault,
		Follow: func(ctx context.Context) (int, error) {
			err := r.follow(ctx, r.body(cmd))
			return r.log.code, err
		},
		Left: func(err error) bool { return err != nil && !refused(err) },
	}.Run(ctx, began, cmd.Timeout)
}

// body returns what to start. Shells drop variables whose names are none of theirs, so that these go the way of the
// program env.
func (r *running) body(cmd sandbox.Cmd) start {
	args, env := []string{"-c", runner, "sandglass", cmd.Dir}, map[string]string{}
	var odd []string
	for _, k := range slices.Sorted(maps.Keys(cmd.Env)) {
		if isVariable(k) {
			env[k] = cmd.Env[k]
		} else {
			odd = append(odd, k+"="+cmd.Env[k])
		}
	}
	if len(odd) > 0 {
		args = append(append(args, "env"), odd...)
		if strings.Contains(cmd.Args[0], "=") { // or env would take the program for a variable
			args = append(args, "sh", "-c", `exec "$@"`, "sh")
		}
	}
	env[markVar] = r.mark
	s := start{
		Command: "sh", Args: append(args, cmd.Args...), Env: env, Sudo: cmd.User == root, Wait: true, Logs: true,
	}
	if limit := cmd.Timeout + afterlife; cmd.Timeout > 0 && limit <= maxTimeout {
		s.TimeoutMs = limit.Milliseconds()
	}
	return s
}

// isVariable reports whether a shell takes k for the name of a variable.
func isVariable(k string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	return strings.Trim(k, letters+"0123456789") == "" && strings.ContainsRune(letters, rune(k[0]))
}

// follow starts the command and reads its output until it has ended.
func (r *running) follow(ctx context.Context, s start) error {
	req := r.h.post(r.ref, sandbox.OpExec, "/cmd", s)
	req.Header = http.Header{"Accept": {"*/*"}}
	req.Timeout, req.Idle = startTime, silence
	req.Secrets = slices.Collect(maps.Values(s.Env))
	req.Rules = append(httpapi.Rules{{Code: codeNoProgram, Kind: sandbox.ErrInvalid, Refused: true}}, inside...)
	body, err := r.h.p.open(ctx, req)
	if err != nil {
		return r.notStarted(ctx, err)
	}
	err = r.read(body)
	for failures, quiet, pause := 0, silence, 100*time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.log.exited:
			return nil
		case r.log.id == "":
			return r.fault(fmt.Errorf("the stream broke off before it told the command: %w", err))
		}
		switch {
		case r.log.moved:
			failures, quiet, pause, r.log.moved = 0, silence, 100*time.Millisecond, false
		case errors.Is(err, httpapi.ErrSilent):
			quiet = min(2*quiet, maxSilence)
		default:
			failures++
		}
		if failures >= breaks {
			return r.fault(fmt.Errorf("its output breaks off again and again: %w", err))
		}
		if err := contain.Sleep(ctx, pause); err != nil {
			return err
		}
		if err = r.resume(ctx, quiet); isOver(err) {
			return r.notThere(ctx, err)
		}
	}
}

// resume asks how the command is, and for its output from the beginning. When the command is over, that ends with it.
func (r *running) resume(ctx context.Context, quiet time.Duration) error {
	now, err := r.status(ctx, r.log.id)
	if err != nil {
		return err
	}
	req := r.h.inside(r.ref, sandbox.OpExec, http.MethodGet, "/cmd/"+r.log.id+"/logs")
	req.Header = http.Header{"Accept": {"*/*"}}
	req.Timeout, req.Idle = startTime, quiet
	r.log.again()
	body, err := r.h.p.open(ctx, req)
	if err != nil {
		return err
	}
	if err := r.read(body); err != nil {
		return err
	}
	if now.ExitCode == nil { // it was not over when the output was asked for, but should be now
		if now, err = r.status(ctx, r.log.id); err != nil {
			return err
		}
	}
	if now.ExitCode == nil {
		return errors.New("the output ends before the command does")
	}
	r.log.code, r.log.exited = *now.ExitCode, true
	return nil
}

func (r *running) read(body *httpapi.Body) error {
	defer func() { _ = body.Close() }()
	return r.log.read(body)
}

func (r *running) status(ctx context.Context, id string) (*command, error) {
	var told aboutCommand
	req := r.h.inside(r.ref, sandbox.OpExec, http.MethodGet, "/cmd/"+id)
	req.Out = &told
	_, err := r.h.p.do(ctx, req)
	if err == nil && told.Command.ID != id {
		err = r.fault(errors.New("the answer is about another command"))
	}
	return told.Command, err
}

// notStarted says why a command could not be started.
func (r *running) notStarted(ctx context.Context, err error) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	switch {
	case !ok:
	case e.Code == codeNoProgram:
		e.Err = errors.New("the image has no sh, without which no command can be watched")
	case e.Status == http.StatusNotFound:
		return r.notThere(ctx, err)
	}
	return err
}

// notThere tells whether the session is not there, or only what was asked for in it.
func (r *running) notThere(ctx context.Context, err error) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Status != http.StatusNotFound {
		return err
	}
	if gone := r.h.running(ctx, r.ref, sandbox.OpExec); gone != nil {
		return gone
	}
	e.Kind = nil
	return e
}

func (r *running) fault(err error) error {
	if known, ok := errors.AsType[*sandbox.APIError](err); ok {
		return known
	}
	return r.h.p.failed(sandbox.OpExec, r.h.id, sandbox.ErrUnavailable, err)
}

// abandon kills a command that its caller has left.
func (r *running) abandon(ctx context.Context) {
	kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if err := r.kill(kctx); err != nil {
		r.h.p.log.WarnContext(kctx, "command not seen to be killed; it ends with its sandbox", slog.String("provider", r.h.p.name),
			slog.String("sandbox_id", r.h.id), slog.String("op", string(sandbox.OpExec)), slog.Any("error", err))
	}
}

// kill ends a command that was told to start, and all that belongs to it, or finds that the session is over.
func (r *running) kill(ctx context.Context) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := r.killAll(ctx)
		if err != nil && r.killAlone(ctx) {
			err = nil // without /proc, that must do
		}
		if err == nil || isOver(err) || isOver(r.h.running(ctx, r.ref, sandbox.OpExec)) {
			return nil
		}
		if errors.Is(err, sandbox.ErrUnauthenticated) || errors.Is(err, sandbox.ErrPermission) || contain.Sleep(ctx, pause) != nil {
			return err
		}
	}
}

// killAll runs the killer, as root: only root may signal everybody and read all environments.
func (r *running) killAll(ctx context.Context) error {
	var said bytes.Buffer
	d := &decoder{outputs: [2]io.Writer{&said, io.Discard}}
	req := r.h.post(r.ref, sandbox.OpExec, "/cmd", start{
		Command: "sh", Args: []string{"-c", killer.Script(), "sandglass-kill", markVar + "=" + r.mark}, Env: map[string]string{}, Sudo: true,
		Wait: true, Logs: true, TimeoutMs: killTime.Milliseconds(),
	})
	req.Header, req.Timeout, req.Idle, req.Rules = http.Header{"Accept": {"*/*"}}, killTime, killTime, inside
	body, err := r.h.p.open(ctx, req)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if err := d.read(io.LimitReader(body, 64<<10)); err != nil {
		return err
	}
	if strings.TrimSpace(said.String()) != "done" {
		return fmt.Errorf("the killer ended with code %d and said %.80q", d.code, said.String())
	}
	return nil
}

// killAlone has the service kill the command, which may spare its children, and reports whether it runs no more.
func (r *running) killAlone(ctx context.Context) bool {
	var id string
	select {
	case id = <-r.id:
		r.id <- id // for the next who kills
	default: // its start is not known: only its environment tells it
		return false
	}
	req := r.h.post(r.ref, sandbox.OpExec, "/cmd/"+id+"/kill", map[string]int{"signal": signalKill})
	req.Rules = inside
	if _, err := r.h.p.do(ctx, req); err == nil {
		return true
	}
	now, err := r.status(ctx, id)
	return err == nil && now.ExitCode != nil
}
