package e2bfake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// endKept is how long envd remembers how a process ended.
const endKept = 30 * time.Second

const (
	killSignal = 9
	termSignal = 15
)

var errKilled = errors.New("killed")

// signalWords are the signals that end a process, as Go names them.
func signalWord(n int) string {
	return map[int]string{
		1: "hangup", 2: "interrupt", 3: "quit", 6: "aborted", 9: "killed", 13: "broken pipe", 14: "alarm clock", 15: "terminated",
	}[n]
}

// process is one that envd started.
type process struct {
	pid    int
	tag    string
	config processConfig
	env    map[string]string
	user   string
	stdin  *pipe // nil: none
	end    context.CancelCauseFunc
	ended  chan struct{} // closed when the process is over for its callers
	over   chan struct{} // closed when nothing of it runs

	mu        sync.Mutex // held for memory operations only
	result    endEvent   // from ended on
	endedAt   time.Time
	listeners map[*listener]struct{}
}

type processConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  *string           `json:"cwd,omitempty"`
}

// endEvent is how a process ended. The JSON of protocol buffers leaves zeros out.
type endEvent struct {
	ExitCode int    `json:"exitCode,omitempty"`
	Exited   bool   `json:"exited,omitempty"`
	Status   string `json:"status,omitempty"`
	Error    string `json:"error,omitempty"`
}

func exitEvent(code int) endEvent {
	if word := signalWord(code - 128); word != "" {
		return signalEvent(code - 128)
	}
	e := endEvent{ExitCode: code, Exited: true, Status: fmt.Sprintf("exit status %d", code)}
	if code != 0 {
		e.Error = e.Status
	}
	return e
}

func signalEvent(n int) endEvent {
	status := "signal: " + signalWord(n)
	return endEvent{ExitCode: -1, Status: status, Error: status}
}

// listener is a stream that follows a process.
type listener struct {
	data chan output
	gone chan struct{} // closed when it listens no more
}

type output struct {
	stderr bool
	data   []byte
}

// listen adds a stream. What the process writes waits for it.
func (p *process) listen() *listener {
	l := &listener{data: make(chan output), gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners[l] = struct{}{}
	return l
}

func (p *process) unlisten(l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.listeners, l)
	close(l.gone)
}

// chunk is how much of its output a process gives at once.
const chunk = 32 << 10

// outlet is one of a process's output streams.
type outlet struct {
	p      *process
	stderr bool
}

// Write gives b to who listens; what nobody hears is lost, and what comes after the end too.
func (o outlet) Write(b []byte) (int, error) {
	if o.p.hasEnded() {
		return len(b), nil
	}
	for rest := range slices.Chunk(b, chunk) {
		o.p.mu.Lock()
		all := slices.Collect(maps.Keys(o.p.listeners))
		o.p.mu.Unlock()
		for _, l := range all {
			select {
			case l.data <- output{o.stderr, slices.Clone(rest)}:
			case <-l.gone:
			case <-o.p.ended:
			}
		}
	}
	return len(b), nil
}

// conclude ends the process for its callers, once.
func (p *process) conclude(e endEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
		return
	default:
	}
	p.result, p.endedAt = e, time.Now()
	close(p.ended)
	if p.stdin != nil {
		p.stdin.close()
	}
}

// signal ends the process, and nothing that it ran.
func (p *process) signal(n int) { p.conclude(signalEvent(n)) }

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *process) running() bool {
	select {
	case <-p.over:
		return false
	default:
		return true
	}
}

// forgotten reports whether envd no longer knows the process, and nothing of it is left.
func (p *process) forgotten() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.running() && !p.endedAt.IsZero() && time.Since(p.endedAt) >= endKept
}

func (p *process) describe() Process {
	return Process{
		PID: p.pid, Args: append([]string{p.config.Cmd}, p.config.Args...), Env: maps.Clone(p.env), User: p.user,
		Ended: p.hasEnded(), Running: p.running(),
	}
}

// spawn runs a command in a sandbox, whatever becomes of the request that asked for it. limit is when it is ended; 0:
// never.
func (s *Server) spawn(use *fake.Use, wire string, p *process, dir string, limit time.Duration) {
	ctx, end := context.WithCancelCause(s.ctx)
	p.end = end
	use.Data().(*machine).add(p)
	if !s.goes(func() { s.run(ctx, use, wire, p, dir, limit) }) {
		end(nil)
		panic(http.ErrAbortHandler)
	}
}

// run is the life of a process. The end of its sandbox is its end too.
func (s *Server) run(ctx context.Context, use *fake.Use, wire string, p *process, dir string, limit time.Duration) {
	if limit > 0 {
		defer time.AfterFunc(limit, func() {
			p.signal(killSignal)
			if s.Quirks().KillsChildren {
				p.end(errKilled)
			}
		}).Stop()
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := use.Watch(ctx); err != nil {
			p.end(err)
		}
	}()
	c := shell.Command{
		Args: append([]string{p.config.Cmd}, p.config.Args...), Env: p.env, Dir: dir, User: p.user, PID: p.pid,
		Stdout: outlet{p, false}, Stderr: outlet{p, true},
	}
	if p.stdin != nil {
		c.Stdin = p.stdin
	}
	e := exitEvent(shell.Run(ctx, use.Data().(*machine).disk(), c))
	if ctx.Err() != nil {
		e = signalEvent(killSignal)
	}
	p.conclude(e)
	p.end(nil)
	use.Release()
	<-watched
	close(p.over)
}

// pipe is a process's standard input.
type pipe struct {
	mu      sync.Mutex // held for memory operations only
	buf     []byte
	closed  bool
	changed chan struct{}
}

// pipeSize is how much a pipe holds.
const pipeSize = 64 << 10

var errPipeClosed = errors.New("stdin not enabled or closed")

// locked calls f until it says that it is done, waiting for a change in between.
func (p *pipe) locked(ctx context.Context, f func() bool) error {
	for {
		p.mu.Lock()
		if f() {
			if p.changed != nil {
				close(p.changed)
				p.changed = nil
			}
			p.mu.Unlock()
			return nil
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		wait := p.changed
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// write waits until there is room for b.
func (p *pipe) write(ctx context.Context, b []byte) error {
	for len(b) > 0 {
		var err error
		if waited := p.locked(ctx, func() bool {
			if p.closed {
				err = errPipeClosed
				return true
			}
			n := min(len(b), pipeSize-len(p.buf))
			p.buf, b = append(p.buf, b[:n]...), b[n:]
			return n > 0
		}); waited != nil {
			return waited
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Read implements [io.Reader] for the shell.
func (p *pipe) Read(b []byte) (n int, err error) {
	_ = p.locked(context.Background(), func() bool {
		n = copy(b, p.buf)
		p.buf = p.buf[n:]
		if n == 0 && p.closed {
			err = io.EOF
		}
		return n > 0 || p.closed || len(b) == 0
	})
	return n, err
}

func (p *pipe) close() {
	_ = p.locked(context.Background(), func() bool {
		p.closed = true
		return true
	})
}
