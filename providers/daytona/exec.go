package daytona

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/internal/remote"
	"github.com/sandglass-dev/sandglass/internal/wsock"
	"github.com/sandglass-dev/sandglass/sandbox"
)

//go:embed wrapper.sh
var wrapper string

// Limits of single steps of a command.
const (
	killTime  = 30 * time.Second // the end of a command and its children, detached from the caller
	beginning = time.Minute      // until the command's shell is there
	lingering = 2 * time.Second  // for the output of processes that a command has left behind
	outage    = 2 * time.Minute  // how long its log may be out of reach

	// Of a log's WebSocket. The machine's proxy counts an open one as activity.
	pingEvery = 20 * time.Second
	silence   = 60 * time.Second // so long without a byte, and the connection is given up
)

// Exec runs cmd in a session of its own, as the sandbox's user: another one is refused. The exit code is 126 for a
// folder that is not there. The image needs sh, dd and base64, and env for Cmd.Env.
//
// The machine's own API has two ways to run commands. The short one cannot be followed, cannot be stopped, mixes both
// streams, and answers with all output at once, however much that is; so every command goes the long way: a session, its
// log by WebSocket, and the session's end, which kills what is left in it. The log is made of lines, so a wrapper has the
// output pass through it byte for byte.
//
// At the end of ctx or Timeout everything is killed that has stayed in the command's process group: by SIGTERM, and a few
// seconds later by SIGKILL. A process that has made a group of its own (setsid) lives until the sandbox ends. What a
// command leaves behind in its group when it ends by itself is killed too: a process in the background is an Exec of
// its own.
//
// When the log breaks off it is read again from where it broke off; the command itself is never started again.
func (h *handle) Exec(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	err := cmd.Validate(h.p.Capabilities())
	if cmd.User != "" {
		err = errors.Join(err, fmt.Errorf("command as user %q (see Options.User): %w", cmd.User, errors.ErrUnsupported))
	}
	if err != nil {
		return sandbox.Result{}, h.p.refuse(sandbox.OpExec, h.id, nil, err)
	}
	began := time.Now()
	base, err := h.base(ctx, sandbox.OpExec)
	if err != nil {
		return sandbox.Result{}, err
	}
	r := &running{h: h, base: base, session: "sandglass-" + strings.ToLower(rand.Text()), out: capture.NewOutput(cmd.Stdout, cmd.Stderr)}
	r.secrets = slices.Collect(maps.Values(cmd.Env))
	r.log = &decoder{stdout: r.out.Stdout, stderr: r.out.Stderr}
	return r.run(ctx, cmd, began)
}

// A running is one command.
type running struct {
	secrets []string
	h       *handle
	base    *url.URL
	session string
	id      string // of the command in its session
	out     *capture.Output
	log     *decoder
}

func (r *running) run(ctx context.Context, cmd sandbox.Cmd, began time.Time) (sandbox.Result, error) {
	if left, err := r.start(ctx, cmd); err != nil {
		if left {
			go r.abandon(ctx)
		}
		return sandbox.Result{}, err
	}
	return remote.Command{
		Output: r.out, Kill: r.kill, KillTime: killTime, Abandon: r.abandon,
		Follow: func(ctx context.Context) (int, error) {
			err := r.follow(ctx)
			return r.log.code, err
		},
		Left: func(error) bool { return true }, // the session
		Fault: func(err error) error {
			return &sandbox.APIError{Provider: r.h.p.name, Op: sandbox.OpExec, ID: r.h.id, Err: err}
		},
	}.Run(ctx, began, cmd.Timeout)
}

// start makes the session and has it run the command. After an error, left says whether there may be a session.
func (r *running) start(ctx context.Context, cmd sandbox.Cmd) (left bool, err error) {
	req := r.h.inside(r.base, sandbox.OpExec, http.MethodPost, "/process/session")
	req.Body = map[string]string{"sessionId": r.session}
	if _, err := r.h.p.do(ctx, req); err != nil {
		e, ok := errors.AsType[*sandbox.APIError](err)
		return !ok || !e.Refused && (e.Status < 400 || e.Status >= 500), r.h.why(ctx, sandbox.OpExec, err)
	}
	var told started
	req = r.h.inside(r.base, sandbox.OpExec, http.MethodPost, r.path("/exec"))
	req.Body = map[string]any{"command": commandLine(cmd), "runAsync": true}
	req.Secrets, req.Out = r.secrets, &told
	if _, err := r.h.p.do(ctx, req); err != nil {
		return true, err
	}
	r.id = told.ID
	return false, nil
}

type started struct {
	ID string `json:"cmdId"`
}

// Validate reports what is missing.
func (s *started) Validate() error {
	if s.ID == "" {
		return errors.New("a command without an id")
	}
	return nil
}

func (r *running) path(rest string) string {
	return "/process/session/" + r.session + rest
}

// commandLine is the command as the session's shell, whichever that is, reads it.
func commandLine(cmd sandbox.Cmd) string {
	words := []string{"sh", "-c", wrapper, "sandglass", cmd.Dir}
	if len(cmd.Env) > 0 {
		words = append(words, "env")
		for _, k := range slices.Sorted(maps.Keys(cmd.Env)) {
			words = append(words, k+"="+cmd.Env[k])
		}
		if strings.Contains(cmd.Args[0], "=") { // or env would take the program for a variable
			words = append(words, "sh", "-c", `exec "$@"`, "sh")
		}
	}
	line := quoted(append(words, cmd.Args...)...)
	if !utf8.ValidString(line) { // JSON would replace what is no UTF-8
		line = quoted("eval") + ` "$(printf %s ` + base64.StdEncoding.EncodeToString([]byte(line)) + ` | base64 -d)"`
	}
	return line
}

// quoted joins words so that a shell takes them as they are.
func quoted(words ...string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("'" + strings.ReplaceAll(w, "'", `'\''`) + "'")
	}
	return b.String()
}

// follow reads the log until the command has ended.
func (r *running) follow(ctx context.Context) error {
	failures, failing, pause := 0, time.Time{}, 100*time.Millisecond // in a row, without anything new
	for ; ; pause = min(2*pause, 5*time.Second) {
		before := r.log.taken
		err := r.stream(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.log.fault != nil:
			return r.fault(r.log.fault)
		case r.log.done(), r.log.exited && errors.Is(err, errLingering):
			return nil
		case errors.Is(err, errNotBegun):
			return r.fault(fmt.Errorf("%w within %v: %q (%s)", errNotBegun, beginning, r.heard(), needs))
		}
		if r.log.taken > before {
			failures, pause = 0, 100*time.Millisecond
		}
		if failures++; failures == 1 {
			failing = time.Now()
		}
		if final(err) { // no session, or no sandbox any more
			return r.h.why(ctx, sandbox.OpExec, err)
		}
		// It broke off, or was closed. If the command is over, its log is complete, and one more reading has to show all.
		over, code, serr := r.status(ctx)
		if final(serr) {
			return r.h.why(ctx, sandbox.OpExec, serr)
		}
		if over && failures >= 2 || time.Since(failing) > outage {
			switch {
			case over:
				err = fmt.Errorf("the command's shell has ended with code %d before it told all: %q (%s)", code, r.heard(), needs)
			case err == nil:
				err = errors.New("its log ends before the command does")
			}
			return r.fault(err)
		}
		if err := contain.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// final reports whether err is an answer that asking again will not change.
func final(err error) bool {
	e, ok := errors.AsType[*sandbox.APIError](err)
	return ok && e.Status >= 400 && e.Status < 500 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout
}

// heard returns what a shell had to say, without the command's variables.
func (r *running) heard() string {
	said := r.log.heard()
	for _, s := range r.secrets {
		if len(s) >= 4 {
			said = strings.ReplaceAll(said, s, "[hidden]")
		}
	}
	return r.h.p.api.Clean(said)
}

func (r *running) fault(err error) error {
	if known, ok := errors.AsType[*sandbox.APIError](err); ok {
		return known
	}
	return &sandbox.APIError{Provider: r.h.p.name, Op: sandbox.OpExec, ID: r.h.id, Err: err}
}

const needs = "the image needs sh, dd and base64"

// errNotBegun is what there is to say of a session whose shell has ended itself: the daemon does not notice that, and its
// log stays open.
var errNotBegun = errors.New("the command's shell has not begun")

var errLingering = errors.New("the command has ended, and something that it has started still holds its output")

// stream follows the log once, from where it was left. It returns nil when the server has closed it.
func (r *running) stream(ctx context.Context) error {
	req := r.h.inside(r.base, sandbox.OpExec, http.MethodGet, r.path("/command/"+url.PathEscape(r.id)+"/logs"))
	req.Query = "follow=true"
	header, key := wsock.Upgrade("")
	maps.Copy(req.Header, header)
	req.OK = []int{http.StatusSwitchingProtocols}
	body, err := r.h.p.open(ctx, req)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if err := wsock.Upgraded(body.Header, key, ""); err != nil {
		return r.fault(err)
	}
	silent := time.AfterFunc(silence, func() { body.Interrupt(fmt.Errorf("%w: nothing for %v", httpapi.ErrSilent, silence)) })
	defer silent.Stop()
	conn := wsock.New(awake{body, silent})
	over := make(chan struct{})
	defer close(over)
	go conn.Tend(pingEvery, over)
	ws := conn.Stream() // the server alone has something to say
	lively := make(chan struct{}, 1)
	go r.watch(ctx, body, lively, over)

	if _, err := io.CopyN(io.Discard, ws, r.log.taken); err != nil { // each reading begins at the log's beginning
		return ended(err)
	}
	var linger *time.Timer
	defer func() {
		if linger != nil {
			linger.Stop()
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := ws.Read(buf)
		silent.Stop() // the time that the caller's writers take is not the server's
		_, _ = r.log.Write(buf[:n])
		silent.Reset(silence)
		select {
		case lively <- struct{}{}:
		default:
		}
		switch {
		case r.log.done(), r.log.fault != nil:
			return nil
		case err != nil:
			return ended(err)
		case r.log.exited && linger == nil:
			linger = time.AfterFunc(lingering, func() { body.Interrupt(errLingering) })
		}
	}
}

// watch breaks a log off that has stopped although its connection has not: after a while without output it asks whether
// the command still runs. Proxies have kept such connections open long after the sandbox was gone.
func (r *running) watch(ctx context.Context, body *httpapi.Body, lively, over <-chan struct{}) {
	quiet := time.NewTimer(beginning)
	defer quiet.Stop()
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-lively:
		case <-quiet.C:
			if !r.log.begun.Load() {
				body.Interrupt(errNotBegun)
				return
			}
			if finished, _, err := r.status(ctx); finished || final(err) {
				body.Interrupt(errors.New("the log has stopped"))
				return
			}
		}
		quiet.Reset(silence)
	}
}

// ended returns nil for the orderly end of a stream.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// awake puts the end of its patience off as long as something comes.
type awake struct {
	*httpapi.Body
	silent *time.Timer
}

func (a awake) Read(p []byte) (int, error) {
	n, err := a.Body.Read(p)
	if n > 0 {
		a.silent.Reset(silence)
	}
	return n, err
}

// status asks whether the daemon has seen the command's shell end.
func (r *running) status(ctx context.Context) (over bool, code int, err error) {
	var told struct {
		ExitCode *int `json:"exitCode"`
	}
	req := r.h.inside(r.base, sandbox.OpExec, http.MethodGet, r.path("/command/"+url.PathEscape(r.id)))
	req.Out = &told
	if _, err := r.h.p.do(ctx, req); err != nil {
		return false, 0, err
	}
	if told.ExitCode == nil {
		return false, 0, nil
	}
	return true, *told.ExitCode, nil
}

// abandon ends the session, with what is left in it, for a caller who does not wait for that.
func (r *running) abandon(ctx context.Context) {
	kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if err := r.kill(kctx); err != nil {
		r.h.p.log.WarnContext(kctx, "command's session not seen to end; it ends with its sandbox", slog.String("provider", r.h.p.name),
			slog.String("sandbox_id", r.h.id), slog.String("op", string(sandbox.OpExec)), slog.Any("error", err))
	}
}

// kill ends the session. One that is not there has ended.
func (r *running) kill(ctx context.Context) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		_, err := r.h.p.do(ctx, r.h.inside(r.base, sandbox.OpExec, http.MethodDelete, r.path("")))
		if err == nil {
			return nil
		}
		if e, ok := errors.AsType[*sandbox.APIError](err); ok {
			switch e.Status {
			case http.StatusNotFound, http.StatusGone, http.StatusBadRequest: // 400: the sandbox does not run
				return nil
			case http.StatusUnauthorized, http.StatusForbidden:
				if err = r.h.why(ctx, sandbox.OpExec, err); errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrConflict) {
					return nil
				}
				return err
			}
		}
		if contain.Sleep(ctx, pause) != nil {
			return err
		}
	}
}
