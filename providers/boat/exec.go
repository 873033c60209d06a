package boat

import (
	"cmp"
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
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/internal/killer"
	"github.com/sandglass-dev/sandglass/internal/remote"
	"github.com/sandglass-dev/sandglass/sandbox"
)

//go:embed run.sh
var runner string

//go:embed follow.sh
var follower string

const (
	markVar   = "SANDGLASS_EXEC"  // in the environment of a command and of all that it starts
	startTime = 90 * time.Second  // until an answer begins: while a machine starts, the service itself waits for 60 s
	killTime  = 30 * time.Second  // the end of a command and its children, detached from the caller
	silence   = 75 * time.Second  // of a stream, which shows a sign of life every 20 s
	longest   = 600 * time.Second // the service's longest limit of a command that it waits for
	breaks    = 6                 // how often in a row a telling may break off without having brought anything
	swept     = 32                // how many folders of ended commands the next command removes
)

// run is the order for a command.
type run struct {
	Command  string `json:"command"`
	Timeout  int64  `json:"timeoutSeconds,omitempty"`
	Detached bool   `json:"detached,omitempty"`
	Stream   bool   `json:"stream,omitempty"`
}

// Exec runs cmd in the machine, as "user" in /home/user unless cmd says otherwise; another user needs sudo, and the exit
// code is sudo's where there is none of that name. It is 126 for a folder that is not there. The machine needs the usual
// small programs.
//
// The service waits for a command for ten minutes at most, and what it has printed may then be lost. So every command is
// started in the background, and writes into files under /tmp; a second one, which can be repeated, tells what they hold,
// byte for byte, as it comes. The files of a command are removed by the next one. The command itself is never started
// again, whatever happens.
//
// At the end of ctx or Timeout everything is killed that belongs to the command: what has inherited its environment,
// their descendants, and the Unix sessions of these. A process that has cleared its environment and left its parents and
// their sessions cannot be told from others; it lives until the sandbox ends. What a command leaves behind when it ends by
// itself stays.
func (h *handle) Exec(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	err := cmd.Validate(h.p.Capabilities())
	if strings.HasPrefix(cmd.User, "-") || strings.ContainsRune(cmd.User, 0) {
		err = errors.Join(err, fmt.Errorf("user %q is none: %w", cmd.User, sandbox.ErrInvalid))
	}
	if err != nil {
		return sandbox.Result{}, h.p.refuse(sandbox.OpExec, h.id, nil, err)
	}
	began := time.Now()
	if err := h.ready(ctx, sandbox.OpExec); err != nil {
		return sandbox.Result{}, err
	}
	word := strings.ToLower(rand.Text())
	r := &running{h: h, mark: word, folder: "/tmp/sandglass-" + word, out: capture.NewOutput(cmd.Stdout, cmd.Stderr), secrets: slices.Collect(maps.Values(cmd.Env))}
	r.log = &decoder{outputs: [2]io.Writer{r.out.Stdout, r.out.Stderr}}
	return r.run(ctx, cmd, began)
}

// A running is one command under way.
type running struct {
	h       *handle
	mark    string // in its environment
	folder  string // of its files
	process int64  // by which the service knows it
	out     *capture.Output
	log     *decoder
	secrets []string
}

func (r *running) run(ctx context.Context, cmd sandbox.Cmd, began time.Time) (sandbox.Result, error) {
	return remote.Command{
		Output: r.out, KillTime: killTime, Abandon: r.abandon, Fault: r.fault,
		Follow: func(ctx context.Context) (int, error) {
			err := r.follow(ctx, cmd)
			if err == nil {
				r.h.clear(r.folder)
			}
			return r.log.code, err
		},
		Left: func(err error) bool { return err != nil && !refused(err) },
		Kill: func(ctx context.Context) error {
			defer r.h.clear(r.folder)
			return r.kill(ctx)
		},
	}.Run(ctx, began, cmd.Timeout)
}

// refused reports whether err says for certain that nothing was started, or that there is nothing to start it in.
func refused(err error) bool {
	e, ok := errors.AsType[*sandbox.APIError](err)
	return ok && (e.Refused || errors.Is(err, sandbox.ErrNotFound))
}

// follow starts the command and reads what it writes until it has ended.
func (r *running) follow(ctx context.Context, cmd sandbox.Cmd) error {
	if err := r.start(ctx, cmd); err != nil {
		return err
	}
	// ends counts how often in a row the service said that the command's shell has ended: the exit code may have come between
	// the telling and the question.
	failures, ends := 0, 0
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := r.tell(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.log.exited:
			return nil
		case err != nil && (definite(err) || errors.Is(err, sandbox.ErrConflict)):
			return r.why(ctx, err)
		case r.log.absent: // not yet there, or removed by the command itself: whether it runs is what counts
		case r.log.more, r.log.moved:
			failures, pause = 0, 100*time.Millisecond
		default:
			failures++
		}
		over, serr := r.status(ctx)
		if ends++; !over {
			ends = 0
		}
		if ends >= 2 {
			return r.fault(fmt.Errorf("what became of it is not known: its shell has ended before it told the exit code: %q", r.heard()))
		}
		if failures >= breaks {
			err = cmp.Or(err, serr, io.ErrUnexpectedEOF)
			return r.fault(fmt.Errorf("what became of it is not known: its output breaks off again and again: %w", err))
		}
		if err := contain.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// start has the service run the command in the background. It is never sent twice.
func (r *running) start(ctx context.Context, cmd sandbox.Cmd) error {
	var told started
	req := r.h.request(sandbox.OpExec, http.MethodPost, "/commands")
	req.Body = run{Command: r.h.takeOver() + "export " + markVar + "=" + r.mark + "; " + runLine(r.folder, cmd), Detached: true}
	req.Out, req.Secrets, req.Timeout = &told, r.secrets, startTime
	if _, err := r.h.p.do(ctx, req); err != nil {
		return err
	}
	r.process = told.Process
	return nil
}

type started struct {
	Process int64 `json:"processId"`
}

// Validate reports what is missing.
func (s *started) Validate() error {
	if s.Process < 1 {
		return errors.New("a command without a process id")
	}
	return nil
}

// runLine is the command as the service's shell reads it.
func runLine(folder string, cmd sandbox.Cmd) string {
	args := []string{folder, cmd.Dir, cmd.User}
	for _, k := range slices.Sorted(maps.Keys(cmd.Env)) {
		args = append(args, k+"="+cmd.Env[k])
	}
	if strings.Contains(cmd.Args[0], "=") { // or env would take the program for a variable
		args = append(args, "sh", "-c", `exec "$@"`, "sh")
	}
	return script(runner, "sandglass", append(args, cmd.Args...)...)
}

// clear has the next command remove the files of one that has ended.
func (h *handle) clear(folder string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = append(h.over, folder)
}

// takeOver returns the beginning of a command line that removes what is to be cleared.
func (h *handle) takeOver() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(len(h.over), swept)
	if n == 0 {
		return ""
	}
	folders := h.over[:n]
	h.over = slices.Clone(h.over[n:])
	return "rm -rf " + strings.Join(folders, " ") + "; "
}

// tell reads on from where the last telling broke off.
func (r *running) tell(ctx context.Context) error {
	said := r.log.again()
	taken := r.log.taken
	line := script(follower, "sandglass-follow", r.folder, strconv.FormatInt(taken[0], 10), strconv.FormatInt(taken[1], 10))
	var complaints lines
	complaints.take = r.log.hear
	end, err := r.h.stream(ctx, sandbox.OpExec, line, silence, said, &complaints)
	switch {
	case r.log.fault != nil:
		return r.fault(r.log.fault)
	case err == nil && !r.log.exited && !r.log.more && !end.TimedOut:
		return r.fault(fmt.Errorf("what tells of it has ended too early: %q", r.heard()))
	}
	return err
}

// stream runs a command line and reads its output as it comes. It ends with the command, or with the service's own limit.
func (h *handle) stream(ctx context.Context, op sandbox.Op, line string, idle time.Duration, stdout, stderr io.Writer) (frame, error) {
	req := h.request(op, http.MethodPost, "/commands")
	req.Body = run{Command: line, Stream: true, Timeout: int64(longest / time.Second)}
	req.Header = http.Header{"Accept": {"application/x-ndjson"}}
	req.Timeout, req.Idle = startTime, idle
	body, err := h.p.open(ctx, req)
	if err != nil {
		return frame{}, err
	}
	defer func() { _ = body.Close() }()
	end, err := frames(body, stdout, stderr)
	if err != nil {
		err = body.Fault(err)
	}
	return end, err
}

// status asks whether the service has seen the command's shell end.
func (r *running) status(ctx context.Context) (over bool, err error) {
	var told struct {
		Running *bool  `json:"running"`
		Status  string `json:"status"`
	}
	req := r.h.request(sandbox.OpExec, http.MethodGet, "/commands/"+strconv.FormatInt(r.process, 10))
	req.Query, req.Out = "tailBytes=1", &told
	if _, err := r.h.p.do(ctx, req); err != nil {
		return false, err
	}
	return told.Running != nil && !*told.Running || told.Status == "exited" || told.Status == "lost", nil
}

// heard returns what a shell had to say, without the command's variables.
func (r *running) heard() string {
	said := strings.Join(strings.Fields(string(r.log.noise)), " ")
	for _, s := range r.secrets {
		if len(s) >= 4 {
			said = strings.ReplaceAll(said, s, "[hidden]")
		}
	}
	return strings.ToValidUTF8(r.h.p.api.Clean(said), "")
}

// why returns what stands behind a refusal.
func (r *running) why(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Status == http.StatusConflict {
		if _, _, lerr := r.h.p.look(ctx, sandbox.OpExec, r.h.id); errors.Is(lerr, sandbox.ErrNotFound) {
			return lerr
		}
	}
	return err
}

func (r *running) fault(err error) error {
	if known, ok := errors.AsType[*sandbox.APIError](err); ok {
		return known
	}
	return &sandbox.APIError{Provider: r.h.p.name, Op: sandbox.OpExec, ID: r.h.id, Kind: sandbox.ErrUnavailable, Err: err}
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

// kill ends a command that was told to start, and all that belongs to it, or finds that the machine does not run.
func (r *running) kill(ctx context.Context) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := r.killAll(ctx)
		if err == nil || errors.Is(err, sandbox.ErrNotFound) {
			return nil
		}
		e, ok := errors.AsType[*sandbox.APIError](err)
		if ok && (e.Code == codeNotReady || e.Code == codeNotRunning) {
			return nil
		}
		if errors.Is(err, sandbox.ErrUnauthenticated) || errors.Is(err, sandbox.ErrPermission) || contain.Sleep(ctx, pause) != nil {
			return err
		}
	}
}

// killAll runs the killer, as root: only root may signal everybody and read all environments.
func (r *running) killAll(ctx context.Context) error {
	end, err := r.h.sync(ctx, sandbox.OpExec, "exec sudo -n "+quoted("sh", "-c", killer.Script(), "sandglass-kill", markVar+"="+r.mark), killTime)
	if err == nil && strings.TrimSpace(end.Stdout) != "done" {
		err = fmt.Errorf("the killer ended with %s and said %.80q", end.how(), end.Stdout+end.Stderr)
	}
	return err
}

// sync runs a command line to its end.
func (h *handle) sync(ctx context.Context, op sandbox.Op, line string, limit time.Duration) (finished, error) {
	var told finished
	req := h.request(op, http.MethodPost, "/commands")
	req.Body, req.Out = run{Command: line, Timeout: int64(limit / time.Second)}, &told
	req.Timeout = limit + startTime
	_, err := h.p.do(ctx, req)
	return told, err
}

// finished is the answer of a command that the service has waited for.
type finished struct {
	Code     *int   `json:"exitCode"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	TimedOut bool   `json:"timedOut"`
}

func (f finished) how() string {
	switch {
	case f.TimedOut:
		return "its time over"
	case f.Code == nil:
		return "no exit code"
	}
	return "exit code " + strconv.Itoa(*f.Code)
}
