package e2b

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/internal/remote"
	"github.com/sandglass-dev/sandglass/sandbox"
)

//go:embed run.sh
var runner string

const (
	keepalive  = 30 * time.Second  // between signs of life in a stream where nothing else is said
	silence    = 100 * time.Second // then the stream is taken for dead: beyond 90 s, a daemon's own interval if it does not heed ours
	startTime  = 30 * time.Second  // until a stream begins
	killTime   = 15 * time.Second  // the end of a command and its children, detached from the caller
	afterlife  = 30 * time.Second  // by which the daemon's own limit, which spares the children, comes later
	remaining  = 5 * time.Second   // for the stream of a command that was killed
	farewell   = 200 * time.Millisecond
	stdinPiece = 64 << 10         // bytes of standard input in a request
	markVar    = "SANDGLASS_EXEC" // in the environment of a command and of all it starts
	process    = "/process.Process/"
)

// startBody asks for a process, inputBody for something to be written to its standard input.
type startBody struct {
	Process processBody `json:"process"`
	Stdin   bool        `json:"stdin"` // left out, it would mean true
}

type processBody struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  string            `json:"cwd,omitempty"`
}

type selector struct {
	PID uint32 `json:"pid"`
}

type inputBody struct {
	Process selector `json:"process"`
	Input   struct {
		Stdin []byte `json:"stdin"`
	} `json:"input"`
}

// Exec runs cmd inside the sandbox, as the template's default user unless cmd names another. A folder that does not
// exist is [sandbox.ErrInvalid], and so is an unknown user. The daemon inside carries text: arguments and variables that
// are not in UTF-8 are refused.
//
// At the end of ctx or Timeout everything is killed that belongs to the command: its session, its descendants, what has
// inherited its environment, and the sessions of all these. A process that has left these sessions, whose parents are
// gone, and that has cleared its environment cannot be told from others; it lives until the sandbox ends. So it goes too
// when the stream of a command breaks off or falls silent, which is an error: nobody can tell any more how it ends. What
// a command leaves behind when it ends by itself stays.
//
// A request that is held up on its way for so long that it is given up may still start the command; then its Timeout
// ends it, by the daemon's own means.
//
// A Stdin that blocks does not keep Exec from returning: its goroutine ends when the reader next returns. Stdin needs a
// template whose daemon can close it, as all since version 0.5.2 can.
func (h *handle) Exec(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	if err := cmd.Validate(h.p.Capabilities()); err != nil {
		return sandbox.Result{}, h.refuse(sandbox.OpExec, nil, err)
	}
	if !carries(cmd) {
		return sandbox.Result{}, h.refuse(sandbox.OpExec, sandbox.ErrInvalid, errNotUTF8)
	}
	if ctx.Err() != nil {
		return sandbox.Result{}, context.Cause(ctx)
	}
	began := time.Now()
	rec, err := h.record(ctx, sandbox.OpExec)
	if err != nil {
		return sandbox.Result{}, err
	}
	if cmd.Stdin != nil && older(rec.EnvdVersion, 0, 5, 2) {
		return sandbox.Result{}, h.refuse(sandbox.OpExec, errors.ErrUnsupported,
			fmt.Errorf("standard input with the template's daemon %s, which cannot close it: rebuild the template", rec.EnvdVersion))
	}
	r := &running{h: h, rec: rec, mark: strings.ToLower(rand.Text()), out: capture.NewOutput(cmd.Stdout, cmd.Stderr)}
	return r.run(ctx, cmd, began)
}

func carries(cmd sandbox.Cmd) bool {
	ok := utf8.ValidString(cmd.Dir) && utf8.ValidString(cmd.User)
	for _, a := range cmd.Args {
		ok = ok && utf8.ValidString(a)
	}
	for k, v := range cmd.Env {
		ok = ok && utf8.ValidString(k) && utf8.ValidString(v)
	}
	return ok
}

// A running is one command under way.
type running struct {
	h    *handle
	rec  *Record
	mark string
	out  *capture.Output
	pid  atomic.Uint32 // 0: not known yet
}

// commandLine returns what to start. Shells drop variables whose names are none of theirs, so that these go the way of
// the program env.
func (r *running) commandLine(cmd sandbox.Cmd) processBody {
	args, envs := []string{"-c", runner, "sandglass"}, map[string]string{}
	var odd []string
	for _, k := range slices.Sorted(maps.Keys(cmd.Env)) {
		if isName(k) {
			envs[k] = cmd.Env[k]
		} else {
			odd = append(odd, k+"="+cmd.Env[k])
		}
	}
	if len(odd) > 0 {
		args = append(append(args, "env"), odd...)
	}
	envs[markVar] = r.mark
	return processBody{Cmd: "/bin/sh", Args: append(args, cmd.Args...), Envs: envs, Cwd: cmd.Dir}
}

func isName(s string) bool {
	for i, r := range s {
		if !(r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i > 0 && r >= '0' && r <= '9') {
			return false
		}
	}
	return s != ""
}

func (r *running) run(ctx context.Context, cmd sandbox.Cmd, began time.Time) (sandbox.Result, error) {
	return remote.Command{
		Output: r.out, Kill: r.kill, KillTime: killTime, Abandon: r.abandon, Rest: remaining,
		Follow: func(ctx context.Context) (int, error) { return r.follow(ctx, cmd) },
		Left: func(err error) bool { // whatever is not known to be refused may run
			e, ok := errors.AsType[*sandbox.APIError](err)
			return err != nil && !(ok && e.Refused)
		},
		Fault: func(err error) error { return r.h.fault(sandbox.OpExec, err) },
	}.Run(ctx, began, cmd.Timeout)
}

// request is the start of a process whose stream is to be read.
func (r *running) request(body startBody, user string, limit time.Duration) (httpapi.Request, error) {
	b, err := envelope(body)
	if err != nil {
		return httpapi.Request{}, err
	}
	header := http.Header{
		"Content-Type": {"application/connect+json"}, "Connect-Protocol-Version": {"1"},
		"Keepalive-Ping-Interval": {strconv.Itoa(int(keepalive / time.Second))},
	}
	if limit > 0 {
		header.Set("Connect-Timeout-Ms", strconv.FormatInt(limit.Milliseconds(), 10))
	}
	return r.h.to(r.rec, httpapi.Request{
		Op: sandbox.OpExec, Method: http.MethodPost, Path: process + "Start", Stream: bytes.NewReader(b), Header: header,
		OK: []int{http.StatusOK}, Timeout: startTime, Idle: silence, Secrets: values(body.Process.Envs),
	}, user), nil
}

// follow starts the command and reads its stream to the end.
func (r *running) follow(ctx context.Context, cmd sandbox.Cmd) (code int, err error) {
	limit := cmd.Timeout
	if limit > 0 {
		limit += killTime + afterlife
	}
	req, err := r.request(startBody{r.commandLine(cmd), cmd.Stdin != nil}, cmd.User, limit)
	if err != nil {
		return 0, r.h.refuse(sandbox.OpExec, sandbox.ErrInvalid, err)
	}
	b, err := r.h.p.inside.Open(ctx, req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = b.Close() }()
	inputs, stopInput := context.WithCancel(ctx)
	defer stopInput()
	started := false
	for {
		m, err := next(b)
		switch e := m.Event; {
		case err != nil:
			return 0, r.failed(b, req, err, started, cmd)
		case e.Start != nil && !started:
			started = true
			r.pid.Store(e.Start.PID)
			if cmd.Stdin != nil {
				go r.feed(inputs, e.Start.PID, cmd.Stdin)
			}
		case e.Data != nil:
			_, _ = r.out.Stdout.Write(e.Data.Stdout)
			_, _ = r.out.Stderr.Write(e.Data.Stderr)
		case e.End != nil:
			code, err := e.End.exitCode()
			if err != nil {
				err = r.h.fault(sandbox.OpExec, err)
			}
			// With the last envelope read, the connection can be used again.
			defer time.AfterFunc(farewell, func() { b.Interrupt(nil) }).Stop()
			_, _ = next(b)
			_, _ = b.Read(make([]byte, 1))
			return code, err
		}
	}
}

// failed is the error of a stream that did not come to the command's end.
func (r *running) failed(b *httpapi.Body, req httpapi.Request, err error, started bool, cmd sandbox.Cmd) error {
	said, ok := errors.AsType[*streamError](err)
	switch {
	case errors.Is(err, io.EOF):
		err = errors.New("the stream ended before the command")
		fallthrough
	case !ok:
		return b.Fault(err)
	}
	e := r.h.p.inside.Failure(req, b.Header, 0, mustEncode(said))
	e.RetryAfter = 0
	switch said.Code {
	case "invalid_argument": // a folder that is not there, among others
		e.Kind = sandbox.ErrInvalid
	case "unauthenticated":
		e.Kind = sandbox.ErrUnauthenticated
		if cmd.User != "" { // the token is asked for before the stream
			e.Kind, e.Err = sandbox.ErrInvalid, fmt.Errorf("no user %q", cmd.User)
		}
	case "permission_denied":
		e.Kind = sandbox.ErrPermission
	case "unimplemented":
		e.Kind = errors.ErrUnsupported
	case "unavailable":
		e.Kind = sandbox.ErrUnavailable
	}
	e.Refused = !started && (said.Code == "invalid_argument" || said.Code == "unauthenticated" || said.Code == "permission_denied")
	return e
}

func mustEncode(e *streamError) []byte {
	b, _ := httpapi.Encode(e) // two strings
	return b
}

// feed writes standard input, piece by piece, and closes it. It ends early when the process has ended.
func (r *running) feed(ctx context.Context, pid uint32, in io.Reader) {
	buf := make([]byte, stdinPiece)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			body := inputBody{Process: selector{pid}}
			body.Input.Stdin = buf[:n]
			if r.call(ctx, "SendInput", body) != nil {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil { // whatever it was: there is no more
			_ = r.call(ctx, "CloseStdin", struct {
				Process selector `json:"process"`
			}{selector{pid}})
			return
		}
	}
}

// call makes a unary call of the daemon. A write waits until the process has read what was before.
func (r *running) call(ctx context.Context, method string, body any) error {
	_, err := r.h.p.inside.Do(ctx, r.h.to(r.rec, httpapi.Request{
		Op: sandbox.OpExec, Method: http.MethodPost, Path: process + method, Body: body, Timeout: -1,
		Header: http.Header{"Connect-Protocol-Version": {"1"}}, OK: []int{http.StatusOK},
	}, ""))
	return err
}
