package modal

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/internal/killer"
	"github.com/sandglass-dev/sandglass/internal/remote"
	"github.com/sandglass-dev/sandglass/sandbox"
)

//go:embed run.sh
var runner string

const (
	markVar   = "SANDGLASS_EXEC" // in the environment of a command and of all that it starts
	killTime  = 30 * time.Second // the end of a command and its children, detached from the caller
	afterlife = 30 * time.Second // by which the service's own limit, which may spare the children, comes later
	watchTime = 30 * time.Second // how often it is asked whether the sandbox of a command has ended
	drainTime = 2 * time.Second  // how long output is awaited after the command has ended
	stdinSize = 256 << 10        // bytes of standard input in one request
)

// Exec runs cmd in the sandbox, as the image's user: the service knows no other. The image needs sh, unless it was made
// with Options.Beat. The exit code is 126 for a folder that is not there. A command without a Timeout has the service's
// longest life as its limit, so that none outlives its sandbox.
//
// The service can end no command but by its own limit. So at the end of ctx or Timeout a second command kills all that
// belongs to the first: what has inherited its environment, their descendants, and the Unix sessions of these. A process
// that has cleared its environment and left its parents and their sessions cannot be told from others; it lives until the
// sandbox ends. What a command leaves behind when it ends by itself stays.
//
// A command is never started twice: the service knows a repeated request by its id.
//
// A Stdin that blocks does not keep Exec from returning: its goroutine ends when the reader next returns.
func (h *handle) Exec(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	err := cmd.Validate(h.p.Capabilities())
	if cmd.User != "" {
		err = errors.Join(err, fmt.Errorf("command as user %.80q: %w", cmd.User, errors.ErrUnsupported))
	}
	if !carries(cmd) {
		err = errors.Join(err, fmt.Errorf("an argument or a variable that is not UTF-8: %w", sandbox.ErrInvalid))
	}
	if err != nil {
		return sandbox.Result{}, h.p.refuse(sandbox.OpExec, h.id, nil, err)
	}
	if err := h.valid(sandbox.OpExec); err != nil {
		return sandbox.Result{}, err
	}
	if expired(ctx) {
		return sandbox.Result{}, context.Cause(ctx)
	}
	began := time.Now()
	bare, err := h.bare(ctx, sandbox.OpExec)
	if err != nil {
		return sandbox.Result{}, err
	}
	mark := random()
	c, err := commandOf(cmd, mark, bare)
	if err != nil {
		return sandbox.Result{}, h.p.refuse(sandbox.OpExec, h.id, sandbox.ErrInvalid, err)
	}
	r := &running{h: h, op: sandbox.OpExec, bare: bare, mark: mark, command: c, stdin: cmd.Stdin, out: capture.NewOutput(cmd.Stdout, cmd.Stderr)}
	return r.run(ctx, cmd.Timeout, began)
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

// bare reports whether the sandbox has no shell to count on.
func (h *handle) bare(ctx context.Context, op sandbox.Op) (bool, error) {
	k := h.p.recall(h.id)
	if k.learned {
		return len(k.beat) > 0, nil
	}
	tctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	tags, err := h.p.service.tags(tctx, h.id)
	if err != nil {
		return false, h.p.fail(ctx, op, h.id, err)
	}
	k.beat, k.learned = beatOf(tags), true
	h.p.learn(h.id, k)
	return len(k.beat) > 0, nil
}

// commandOf returns what to start. Shells drop variables whose names are none of theirs, and the service refuses them, so
// that these go the way of the program env.
func commandOf(cmd sandbox.Cmd, mark string, bare bool) (command, error) {
	c := command{env: map[string]string{markVar: mark}, limit: maxLife}
	if cmd.Timeout > 0 && cmd.Timeout < maxLife-afterlife {
		c.limit = cmd.Timeout + afterlife
	}
	var odd []string
	for _, k := range slices.Sorted(maps.Keys(cmd.Env)) {
		if variable.MatchString(k) {
			c.env[k] = cmd.Env[k]
		} else {
			odd = append(odd, k+"="+cmd.Env[k])
		}
	}
	if bare {
		if len(odd) > 0 {
			return command{}, errors.New("a variable whose name the service does not take, and no shell for another way")
		}
		c.args, c.dir = cmd.Args, cmd.Dir
		if cmd.Timeout > 0 { // nobody else ends it, but whose timeout it is must show
			c.limit = min(cmd.Timeout+time.Second, maxLife)
		}
		return c, within(c.args)
	}
	input := ""
	if cmd.Stdin != nil {
		input = "in"
	}
	c.args = []string{"sh", "-c", runner, "sandglass", cmd.Dir, input}
	if len(odd) > 0 {
		c.args = append(append(c.args, "env"), odd...)
		if strings.Contains(cmd.Args[0], "=") { // or env would take the program for a variable
			c.args = append(c.args, "sh", "-c", `exec "$@"`, "sh")
		}
	}
	c.args = append(c.args, cmd.Args...)
	return c, within(c.args)
}

func within(args []string) error {
	size := 0
	for _, a := range args {
		size += len(a)
	}
	if size > maxArgs {
		return fmt.Errorf("arguments of %d bytes, the service takes %d", size, maxArgs)
	}
	return nil
}

// A running is one command under way.
type running struct {
	h       *handle
	op      sandbox.Op
	bare    bool
	mark    string
	command command
	stdin   io.Reader // nil: none
	out     *capture.Output
	over    chan struct{} // closed when it is followed no more
}

// run starts the command and waits for its end, for that of ctx, or for its timeout, if there is one.
func (r *running) run(ctx context.Context, limit time.Duration, began time.Time) (sandbox.Result, error) {
	r.over = make(chan struct{})
	return remote.Command{
		Output: r.out, Kill: r.kill, KillTime: killTime, Abandon: r.abandon, Rest: drainTime, Fault: r.fault,
		Follow: func(ctx context.Context) (int, error) {
			defer close(r.over)
			code, err := r.follow(ctx)
			if err != nil {
				err = r.why(ctx, err)
			}
			return code, err
		},
		Left: func(err error) bool {
			e, ok := errors.AsType[*sandbox.APIError](err)
			return err != nil && !(ok && (e.Refused || e.Kind == sandbox.ErrNotFound))
		},
	}.Run(ctx, began, limit)
}

// follow starts the command, and reads its output until it has ended.
func (r *running) follow(ctx context.Context) (int, error) {
	p, err := r.h.p.service.start(ctx, r.h.id, r.command)
	if err != nil {
		return 0, err
	}
	shut := func() { _, _ = p.stdout.Close(), p.stderr.Close() }
	defer shut()
	defer context.AfterFunc(ctx, shut)()
	go r.feed(ctx, p.stdin)
	read := make(chan error, 2)
	for w, from := range map[io.Writer]io.Reader{r.out.Stdout: p.stdout, r.out.Stderr: p.stderr} {
		go func() {
			_, err := io.Copy(w, from)
			read <- err
		}()
	}
	code, err := r.await(ctx, p)
	if err != nil {
		return 0, err
	}
	drain := time.NewTimer(drainTime)
	defer drain.Stop()
	for range cap(read) {
		select {
		case errRead := <-read:
			err = errors.Join(err, errRead)
		case <-drain.C: // what the command left behind holds it open
			return code, err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return code, err
}

// await waits for the command's end. The SDK asks on for ever while it cannot reach the sandbox, which may be because that
// has ended: so now and then somebody else is asked.
func (r *running) await(ctx context.Context, p *process) (int, error) {
	wctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for contain.Sleep(wctx, watchTime) == nil {
			if gone := r.h.p.over(wctx, r.op, r.h.id); gone != nil {
				// Whoever waits may be on the point of hearing how the command ended.
				if contain.Sleep(wctx, drainTime) == nil {
					cancel(gone)
				}
				return
			}
		}
	}()
	code, err := p.wait(wctx)
	if gone := context.Cause(wctx); err != nil && gone != nil {
		err = gone
	}
	cancel(nil)
	<-watched
	return code, err
}

// feed sends standard input. What cannot be sent any more is what nobody reads any more.
func (r *running) feed(ctx context.Context, to io.WriteCloser) {
	if r.stdin == nil && !r.bare {
		return // the wrapper reads nothing
	}
	if r.stdin != nil {
		buf := make([]byte, stdinSize)
		if _, err := io.CopyBuffer(onlyWriter{to}, onlyReader{r.stdin}, buf); err != nil || expired(ctx) {
			return // an input that was cut must not look like one that has ended
		}
	}
	_ = to.Close()
}

// onlyWriter and onlyReader hide short cuts that would choose another size.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

// why says why the outcome is not known.
func (r *running) why(ctx context.Context, err error) error {
	if expired(ctx) {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*sandbox.APIError](err); ok {
		return e
	}
	if gone := r.h.p.over(ctx, r.op, r.h.id); gone != nil {
		return gone
	}
	var secrets []string
	for _, v := range r.command.env {
		secrets = append(secrets, v)
	}
	e := r.h.p.told(r.op, r.h.id, err, secrets...)
	if e.Kind == sandbox.ErrNotFound { // of the command
		e.Kind = nil
	}
	e.Refused = refused(err)
	return e
}

// refused reports whether the service's answer says for certain that nothing was started.
func refused(err error) bool {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return false
	}
	switch f.code {
	case codeInvalid, codeOutOfRange, codePrecondition, codeUnauthenticated, codePermission, codeUnimplemented:
		return true
	}
	return false
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
	err := errors.New("without a shell only its timeout ends it")
	if !r.bare {
		err = r.kill(kctx)
	}
	if err != nil {
		r.h.p.log.WarnContext(kctx, "command not seen to be killed; it ends with its sandbox", slog.String("provider", r.h.p.name),
			slog.String("sandbox_id", r.h.id), slog.String("op", string(r.op)), slog.Any("error", r.h.p.told(r.op, r.h.id, err)))
	}
}

// kill ends all that belongs to the command, or finds that the sandbox is over. Without a shell the service's own limit
// has to do, which comes right after.
func (r *running) kill(ctx context.Context) error {
	if r.bare {
		select {
		case <-r.over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		code, said, err := r.h.p.errand(ctx, r.h.id, command{
			args: []string{"sh", "-c", killer.Script(), "sandglass-kill", markVar + "=" + r.mark}, limit: killTime,
		})
		switch {
		case err == nil && code == 0 && strings.TrimSpace(said) == "done":
			return nil
		case err == nil:
			err = fmt.Errorf("the killer ended with code %d and said %.80q", code, said)
		}
		if r.h.p.over(ctx, r.op, r.h.id) != nil {
			return nil
		}
		if codeIs(err, codeUnauthenticated) || codeIs(err, codePermission) || contain.Sleep(ctx, pause) != nil {
			return err
		}
	}
}
