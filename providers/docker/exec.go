package docker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// markVar is in the environment of every command, and so in that of all it starts, by which they are found at its end.
const markVar = "SANDGLASS_EXEC"

// wrapper runs every command. It says which process it is, waits for a line that tells it to begin, says that it has
// begun, and becomes the command: shells end with 127 where there is no such program, and with 126 where it cannot be
// run, on every engine alike. It sets no variable but our own, since that would change one of the same name that the
// command is to see.
//
// The line comes from a caller who knows the process and still wants the command. An engine may start what it was asked
// to at any later time, when nobody is left who would kill it; it then finds the input at its end, and nothing begins.
const wrapper = `echo $$; read -r ` + markVar + ` || exit 126; echo; case $1 in ?*) cd "$1" || exit 126;; esac; shift; exec "$@"`

// Exec runs cmd inside the container, as the image's user unless cmd names another. The exit code is 126 for a folder
// that is not there. Timeout counts from the request for its start.
//
// A command begins only while its caller waits for it: one that the engine comes to start after the end of ctx or
// Timeout never runs.
//
// At the end of ctx or Timeout everything is killed that belongs to the command: its session, its descendants, what has
// inherited its environment, and the sessions of all these. A process that has left these sessions, whose parents are
// gone, and that has cleared or overwritten its environment cannot be told from others; it lives until the sandbox ends.
// While no process can be made inside, none can be killed: that is tried again for a while, and then an error. What a
// command leaves behind when it ends by itself stays.
//
// A Stdin that blocks does not keep Exec from returning: its goroutine ends when the reader next returns. Output
// of processes left behind is awaited as long as the engine does, about two seconds.
func (h *handle) Exec(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	if err := cmd.Validate(h.p.Capabilities()); err != nil {
		return sandbox.Result{}, h.p.refuse(sandbox.OpExec, nil, err)
	}
	if ctx.Err() != nil {
		return sandbox.Result{}, context.Cause(ctx)
	}
	made, err := h.made(ctx, sandbox.OpExec)
	if err != nil {
		return sandbox.Result{}, err
	}
	user := cmd.User
	if user == "" {
		user = made.Config.Labels[userLabel]
	}
	if user == "" {
		user = "0:0"
	}
	mark := strings.ToLower(rand.Text())
	args, env := commandLine(cmd, made.Config.Env, markVar+"="+mark)

	tctx := ctx
	if cmd.Timeout > 0 {
		var cancel context.CancelFunc
		tctx, cancel = context.WithTimeout(ctx, cmd.Timeout)
		defer cancel()
	}
	ectx, c := watch(tctx)
	created, err := h.p.engine.ExecCreate(ectx, h.id, client.ExecCreateOptions{
		User: user, Env: env, Cmd: args, AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return h.notBegun(ctx, tctx, c, err)
	}
	r := &running{h: h, id: created.ID, user: user, mark: mark, stdin: cmd.Stdin, out: newOutput(cmd)}
	return r.run(ctx, tctx)
}

// notBegun is the end of a command that was not started, or not told to begin. tctx ends with its Timeout, ctx does not.
func (h *handle) notBegun(ctx, tctx context.Context, c *call, err error) (sandbox.Result, error) {
	if tctx.Err() != nil && ctx.Err() == nil {
		return sandbox.Result{ExitCode: -1, TimedOut: true}, nil
	}
	err = h.p.fail(ctx, c, sandbox.OpExec, h.id, err)
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Status >= 400 && e.Status < 500 {
		err = refused(err)
	}
	return sandbox.Result{}, err
}

// commandLine returns what to run, and with what environment. Shells drop variables whose names are none of theirs,
// so that these go the way of the program env.
func commandLine(cmd sandbox.Cmd, inherited []string, mark string) (args, env []string) {
	var odd []string
	for _, kv := range inherited {
		if k, _, _ := strings.Cut(kv, "="); !isName(k) {
			odd = append(odd, kv)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(cmd.Env)) {
		kv := k + "=" + cmd.Env[k]
		if isName(k) {
			env = append(env, kv)
		} else {
			odd = append(odd, kv)
		}
	}
	script := wrapper
	if cmd.Stdin == nil {
		script += " </dev/null"
	}
	args = []string{"/bin/sh", "-c", script, "sandglass", cmd.Dir}
	if len(odd) > 0 {
		args = append(append(args, "env"), odd...)
	}
	return append(args, cmd.Args...), append(env, mark)
}

func isName(s string) bool {
	for i, r := range s {
		if !(r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i > 0 && r >= '0' && r <= '9') {
			return false
		}
	}
	return s != ""
}

// A running is one command under way.
type running struct {
	h     *handle
	id    string // of the engine's exec
	user  string
	mark  string
	stdin io.Reader // nil: none
	out   *output

	conn  client.HijackedResponse
	phase atomic.Int32 // waiting until one of the others comes first
	mute  atomic.Bool  // the word to begin could not be sent
}

// Phases of a running.
const (
	waiting int32 = iota
	begun         // it was told to begin: its process is known
	left          // its caller had left before, so that it is never told
)

// begin tells the command to begin, unless its caller has left.
func (r *running) begin() {
	if !r.phase.CompareAndSwap(waiting, begun) {
		return
	}
	if _, err := io.WriteString(r.conn.Conn, r.mark+"\n"); err != nil {
		r.mute.Store(true)
		return
	}
	if r.stdin != nil {
		go func() {
			_, err := io.Copy(r.conn.Conn, r.stdin)
			if err == nil {
				_ = r.conn.CloseWrite()
			}
		}()
	}
}

// leave reports whether there is a command to kill; if not, none will begin.
func (r *running) leave() bool { return !r.phase.CompareAndSwap(waiting, left) }

// run starts the command and waits for its end, for that of ctx, or for that of tctx alone, which is its Timeout.
func (r *running) run(ctx, tctx context.Context) (sandbox.Result, error) {
	actx, c := watch(tctx)
	conn, err := r.h.p.engine.ExecAttach(actx, r.id, client.ExecAttachOptions{})
	if err != nil {
		return r.h.notBegun(ctx, tctx, c, err)
	}
	defer conn.Close()
	r.conn, r.out.head.found = conn.HijackedResponse, r.begin
	copied := make(chan error, 1)
	go func() {
		_, err := stdcopy.StdCopy(&r.out.head, r.out.Stderr, conn.Reader)
		copied <- err
	}()

	type ending struct {
		code int
		err  error
	}
	ended := make(chan ending, 1)
	wctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		err := <-copied
		code, errWait := r.wait(wctx)
		if err == nil {
			err = errWait
		}
		ended <- ending{code, err}
	}()
	select {
	case end := <-ended:
		return r.result(end.code, end.err)
	case <-tctx.Done():
	}
	toKill := r.leave()
	if ctx.Err() != nil {
		if toKill {
			go r.abandon(ctx)
		}
		return r.out.Result(sandbox.Result{ExitCode: -1}), context.Cause(ctx)
	}
	if !toKill {
		return sandbox.Result{ExitCode: -1, TimedOut: true}, nil
	}
	kctx, cancelKill := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancelKill()
	killed := make(chan error, 1)
	go func() { killed <- r.kill(kctx) }()
	select {
	case err = <-killed:
	case <-ctx.Done():
		return r.out.Result(sandbox.Result{ExitCode: -1, TimedOut: true}), context.Cause(ctx)
	}
	select { // the rest of what it wrote
	case <-ended:
	case <-kctx.Done():
	case <-ctx.Done():
	}
	res := r.out.Result(sandbox.Result{ExitCode: -1, TimedOut: true})
	if err != nil {
		err = fmt.Errorf("timed out, and may still run: %w", err)
		err = &sandbox.APIError{Provider: r.h.p.name, Op: sandbox.OpExec, ID: r.h.id, Err: err}
	}
	return res, err
}

// result is what is known when the output has ended and the engine has said how the command did.
func (r *running) result(code int, err error) (sandbox.Result, error) {
	r.out.Shut()
	fault := func(err error) error {
		return &sandbox.APIError{Provider: r.h.p.name, Op: sandbox.OpExec, ID: r.h.id, Err: err}
	}
	if err != nil {
		if e, ok := errors.AsType[*sandbox.APIError](err); ok {
			return r.out.Result(sandbox.Result{ExitCode: -1}), e
		}
		return r.out.Result(sandbox.Result{ExitCode: -1}), fault(err)
	}
	if r.out.head.pid() == 0 {
		// The wrapper did not come to its first word. What there is on standard output are the engine's own.
		said := strings.TrimSpace(string(r.out.head.said()))
		err = fmt.Errorf("the engine could not start it as user %q (code %d): %s", r.user, code, said)
		return sandbox.Result{}, refused(fault(words{err}))
	}
	if r.mute.Load() || !r.out.head.begun() {
		return sandbox.Result{ExitCode: -1}, fault(errors.New("the connection broke before it was seen to begin"))
	}
	return r.out.Result(sandbox.Result{ExitCode: code}), nil
}

// wait returns the exit code once the engine says that the command has ended. Its output may have ended before.
func (r *running) wait(ctx context.Context) (int, error) {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		ictx, c := watch(ctx)
		i, err := r.h.p.engine.ExecInspect(ictx, r.id, client.ExecInspectOptions{})
		if err != nil {
			return 0, r.h.p.fail(ictx, c, sandbox.OpExec, r.h.id, err)
		}
		if !i.Running {
			return i.ExitCode, nil
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// An output is where a command's output goes.
type output struct {
	*capture.Output
	head header // in front of Stdout
}

func newOutput(cmd sandbox.Cmd) *output {
	o := &output{Output: capture.NewOutput(cmd.Stdout, cmd.Stderr)}
	o.head.next = o.Stdout
	return o
}

// A header takes the wrapper's lines from the front of standard output: its process id, and an empty one when it has
// begun.
type header struct {
	next  io.Writer
	found func() // called once, when the process id is known
	line  bytes.Buffer
	id    atomic.Int64 // 0: not seen yet
	begin atomic.Bool
	raw   atomic.Pointer[[]byte]
}

func (h *header) Write(p []byte) (int, error) {
	if h.begin.Load() {
		return h.next.Write(p)
	}
	const most = 1 << 10
	rest := p
	for len(rest) > 0 {
		b := rest[0]
		rest = rest[1:]
		switch {
		case h.id.Load() != 0: // nothing but the end of the second line can come
			h.begin.Store(true)
			if len(rest) > 0 {
				_, _ = h.next.Write(rest)
			}
			return len(p), nil
		case b == '\n':
			if id, err := strconv.ParseInt(h.line.String(), 10, 32); err == nil && id > 1 {
				h.id.Store(id)
				h.found()
				continue
			}
		}
		if h.line.Len() < most {
			h.line.WriteByte(b)
		}
	}
	said := bytes.Clone(h.line.Bytes())
	h.raw.Store(&said)
	return len(p), nil
}

// pid returns the command's process id and session inside, 0 if it is not known.
func (h *header) pid() int64 { return h.id.Load() }

// begun reports whether the command has begun.
func (h *header) begun() bool { return h.begin.Load() }

// said returns what came instead.
func (h *header) said() []byte {
	if p := h.raw.Load(); p != nil {
		return *p
	}
	return nil
}
