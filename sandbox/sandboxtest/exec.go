package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Handler answers a command, or says that it does not; see [Provider.HandleExec].
type Handler func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (res sandbox.Result, handled bool, err error)

// Script answers commands that match instead of running them: their writers get r's output, and their Result is r. The
// latest script or handler that takes a command has it. match must be safe for concurrent use.
//
// A script also answers programs that a shell command calls and the sandbox does not have: one for Args[0] == "go"
// answers {"go", "test"} and [sandbox.Shell]("cd /src && go test ./..."), the rest of which is run.
func (p *Provider) Script(match func(sandbox.Cmd) bool, r sandbox.Result) {
	p.HandleExec(func(_ context.Context, _ sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, bool, error) {
		return r, match(cmd), nil
	})
}

// HandleExec answers commands where a [sandbox.Result] that is known beforehand does not do: h may write to cmd.Stdout
// and cmd.Stderr, which are never nil, read cmd.Stdin, wait, and act on the Provider. What is in the Result's Stdout and
// Stderr is written as well. An h that does not report the command as handled must not have touched it: earlier scripts
// and handlers are asked, and then the shell runs it. cmd.Env holds Spec.Env too. ctx has the values of the caller's
// and ends when the command is killed, for whatever reason; h must then return soon. As with [Provider.Script], h is
// also asked for programs within a shell command. h must be safe for concurrent use.
func (p *Provider) HandleExec(h Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers = append(p.handlers, h)
}

// Open implements [sandbox.Provider].
func (p *Provider) Open(info sandbox.Info) sandbox.Sandbox { return &handle{p, info.ID} }

// handle is one sandbox, as a function sees it.
type handle struct {
	p  *Provider
	id string
}

func (h *handle) ID() string { return h.id }

// Causes that end a command and are not its caller's.
var errTimedOut = errors.New("timed out")

func (h *handle) Exec(ctx context.Context, cmd sandbox.Cmd) (res sandbox.Result, err error) {
	p := h.p
	if err := cmd.Validate(p.caps); err != nil {
		return sandbox.Result{}, p.refusal(sandbox.OpExec, h.id, err)
	}
	call, err := p.arrive(ctx, Call{Op: sandbox.OpExec, ID: h.id, Args: slices.Clone(cmd.Args)})
	if err != nil {
		return sandbox.Result{}, err
	}
	defer p.leave(call, &err)
	use, err := p.svc.Use(ctx, sandbox.OpExec, h.id)
	if err != nil {
		return sandbox.Result{}, p.failure(sandbox.OpExec, h.id, err)
	}
	if use.Effect() == fake.EffectNone {
		use.Release()
		return sandbox.Result{}, p.failure(sandbox.OpExec, h.id, use.After(ctx))
	}

	out := newOutput(cmd, p.caps)
	var ended sandbox.Result
	err = attend(ctx, use, cmd.Timeout, p.caps.Kill, func(ctx context.Context) error {
		var err error
		ended, err = h.run(ctx, use.Data().(*machine), cmd, out)
		return err
	})
	out.shut()
	res = out.result()
	switch {
	case errors.Is(err, errTimedOut):
		res.ExitCode, res.TimedOut = -1, true
		err = nil
	case err != nil:
		res.ExitCode = -1 // nobody knows it
		return res, p.failure(sandbox.OpExec, h.id, err)
	default:
		res.ExitCode, res.TimedOut, res.Truncated = ended.ExitCode, ended.TimedOut, res.Truncated || ended.Truncated
	}
	if err := use.After(ctx); err != nil {
		return res, p.failure(sandbox.OpExec, h.id, err)
	}
	return res, nil
}

// run has a handler or the shell run cmd to its end.
func (h *handle) run(ctx context.Context, m *machine, cmd sandbox.Cmd, out *output) (sandbox.Result, error) {
	cmd.Env = m.env(cmd.Env)
	cmd.Stdout, cmd.Stderr = out.streams()
	if res, handled, err := h.handled(ctx, cmd); handled {
		return res, err
	}
	exit := shell.Run(ctx, m.disk(), shell.Command{
		Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, User: cmd.User, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr,
		Exec: func(ctx context.Context, c shell.Command) (int, bool) {
			res, handled, err := h.handled(ctx, sandbox.Cmd{
				Args: c.Args, Env: c.Env, Dir: c.Dir, User: c.User, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr,
			})
			if err != nil {
				fmt.Fprintf(c.Stderr, "%s: %v\n", c.Args[0], err)
				return 126, true
			}
			if res.TimedOut {
				return 128 + 9, handled
			}
			return res.ExitCode, handled
		},
	})
	return sandbox.Result{ExitCode: exit}, nil
}

// handled asks scripts and handlers, the latest first, and writes the output that they return.
func (h *handle) handled(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, bool, error) {
	h.p.mu.Lock()
	handlers := slices.Clone(h.p.handlers)
	h.p.mu.Unlock()
	if cmd.Stdin == nil {
		cmd.Stdin = strings.NewReader("")
	}
	for _, f := range slices.Backward(handlers) {
		if res, handled, err := f(ctx, h, cmd); handled {
			cmd.Stdout.Write(res.Stdout) // never fails; see output
			cmd.Stderr.Write(res.Stderr)
			return res, true, err
		}
	}
	return sandbox.Result{}, false, nil
}

func (h *handle) Upload(ctx context.Context, name string, r io.Reader) (err error) {
	return h.copy(ctx, sandbox.OpUpload, name, func(ctx context.Context, m *machine) error {
		return m.disk().WriteFile(name, readerFunc(func(b []byte) (int, error) {
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			return r.Read(b)
		}))
	})
}

func (h *handle) Download(ctx context.Context, name string, w io.Writer) (err error) {
	g := capture.NewGate(w)
	defer g.Shut()
	return h.copy(ctx, sandbox.OpDownload, name, func(ctx context.Context, m *machine) error {
		return m.disk().ReadFile(name, writerFunc(func(b []byte) (int, error) {
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			return g.Write(b)
		}))
	})
}

// copy is an upload or a download.
func (h *handle) copy(ctx context.Context, op sandbox.Op, name string, work func(context.Context, *machine) error) (err error) {
	p := h.p
	if !path.IsAbs(name) || strings.ContainsRune(name, 0) {
		return p.refusal(op, h.id, fmt.Errorf("path %q is not absolute: %w", name, sandbox.ErrInvalid))
	}
	call, err := p.arrive(ctx, Call{Op: op, ID: h.id})
	if err != nil {
		return err
	}
	defer p.leave(call, &err)
	use, err := p.svc.Use(ctx, op, h.id)
	if err != nil {
		return p.failure(op, h.id, err)
	}
	err = attend(ctx, use, 0, true, func(ctx context.Context) error {
		if use.Effect() == fake.EffectNone {
			return nil
		}
		if err := work(ctx, use.Data().(*machine)); err != nil && ctx.Err() == nil {
			return &sandbox.APIError{Err: err}
		}
		return nil
	})
	if err == nil {
		err = use.After(ctx)
	}
	return p.failure(op, h.id, err)
}

// Endpoint returns a URL of this machine's loopback interface on which nothing is served: port 1, with the sandbox and
// the port in its path.
func (h *handle) Endpoint(ctx context.Context, port int) (_ sandbox.Endpoint, err error) {
	p := h.p
	if !p.caps.Endpoints {
		return sandbox.Endpoint{}, p.refusal(sandbox.OpEndpoint, h.id, fmt.Errorf("endpoints: %w", errors.ErrUnsupported))
	}
	if r, ok := p.svc.Lookup(h.id); ok && !slices.Contains(r.Data.(*machine).spec.Ports, port) {
		err := fmt.Errorf("port %d is not declared: %w", port, sandbox.ErrInvalid)
		return sandbox.Endpoint{}, p.refusal(sandbox.OpEndpoint, h.id, err)
	}
	call, err := p.arrive(ctx, Call{Op: sandbox.OpEndpoint, ID: h.id})
	if err != nil {
		return sandbox.Endpoint{}, err
	}
	defer p.leave(call, &err)
	if err := p.svc.Reach(ctx, sandbox.OpEndpoint, h.id); err != nil {
		return sandbox.Endpoint{}, p.failure(sandbox.OpEndpoint, h.id, err)
	}
	return sandbox.Endpoint{URL: fmt.Sprintf("http://127.0.0.1:1/%s/%d", h.id, port)}, nil
}

// patience is how long a command that was killed may take to stop before its caller is answered all the same. Only a
// writer of the caller's that hangs takes so long.
const patience = 100 * time.Millisecond

// attend has work done in another goroutine and returns its error, or at once why it was ended: the cause of ctx, the
// limit (errTimedOut; 0: none) or the sandbox's end. Unless kill, the end of ctx leaves the work going on, as on
// services that cannot kill; limit and sandbox end it later.
func attend(ctx context.Context, use *fake.Use, limit time.Duration, kill bool, work func(context.Context) error) error {
	run, end := context.WithCancelCause(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := use.Watch(run); err != nil {
			end(err)
		}
	}()
	var timer *time.Timer
	if limit > 0 {
		timer = time.AfterFunc(limit, func() { end(errTimedOut) })
	}
	done := make(chan error, 1)
	go func() {
		err := work(run)
		use.Hold(run) // a frozen machine tells nothing
		if e := use.Ended(); e != nil {
			err = e // and a dead one neither
		}
		use.Release()
		if timer != nil {
			timer.Stop()
		}
		if cause := context.Cause(run); cause != nil {
			err = cause
		}
		done <- err // before end, so that whoever sees the end of run finds it
		end(nil)
	}()

	select {
	case err := <-done:
		<-watched
		return err
	case <-ctx.Done():
		if !kill {
			return context.Cause(ctx)
		}
		end(context.Cause(ctx))
	case <-run.Done():
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case err := <-done:
		<-watched
		return err
	case <-t.C:
		return context.Cause(run)
	}
}

// output keeps a command's output and passes it on.
type output struct {
	split          bool
	gates          []*capture.Gate
	texts          []*text
	stdout, stderr *capture.Tail
	out, err       io.Writer
}

func newOutput(cmd sandbox.Cmd, caps sandbox.Capabilities) *output {
	o := &output{split: caps.SplitOutput}
	gate, other := capture.Gates(cmd.Stdout, cmd.Stderr)
	stream := func(g *capture.Gate) (*capture.Tail, io.Writer) {
		o.gates = append(o.gates, g)
		tail := capture.NewTail(g)
		if caps.BinaryOut {
			return tail, tail
		}
		t := &text{w: tail}
		o.texts = append(o.texts, t)
		return tail, t
	}
	o.stdout, o.out = stream(gate)
	o.stderr, o.err = o.stdout, o.out
	if o.split {
		o.stderr, o.err = stream(other)
	}
	return o
}

// streams returns where a command's output goes.
func (o *output) streams() (stdout, stderr io.Writer) { return o.out, o.err }

// shut passes nothing on from now on.
func (o *output) shut() {
	for _, t := range o.texts {
		t.flush()
	}
	for _, g := range o.gates {
		g.Shut()
	}
}

func (o *output) result() sandbox.Result {
	var r sandbox.Result
	r.Stdout, r.Truncated = o.stdout.Bytes()
	r.Merged = !o.split
	if o.split {
		var more bool
		r.Stderr, more = o.stderr.Bytes()
		r.Truncated = r.Truncated || more
	}
	return r
}

// text passes text on and spoils what is none, like services that send output as strings.
type text struct {
	mu   sync.Mutex
	rest []byte // the beginning of a character
	w    io.Writer
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	all := append(t.rest, b...)
	cut := len(all)
	for i := 1; i <= min(utf8.UTFMax-1, len(all)); i++ {
		if c := all[len(all)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(all[len(all)-i:]) {
				cut = len(all) - i
			}
			break
		}
	}
	t.rest = slices.Clone(all[cut:])
	whole := strings.ToValidUTF8(string(all[:cut]), string(utf8.RuneError))
	t.mu.Unlock()
	t.w.Write([]byte(whole)) // a Tail, which never fails
	return len(b), nil
}

// flush passes on what is left of a character that never became whole.
func (t *text) flush() {
	t.mu.Lock()
	left := len(t.rest) > 0
	t.rest = nil
	t.mu.Unlock()
	if left {
		t.w.Write([]byte(string(utf8.RuneError)))
	}
}

type (
	readerFunc func([]byte) (int, error)
	writerFunc func([]byte) (int, error)
)

func (f readerFunc) Read(b []byte) (int, error)  { return f(b) }
func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
