package modalfake

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// An Exec is a program that is to be run.
type Exec struct {
	Sandbox   string // id
	Container string // id; empty: the main one
	shell.Command
}

// A Program answers commands that the shell's own utilities cannot, as a real machine would. It must return soon after
// ctx has ended, and have written nothing where it says that the command is not for it.
type Program func(ctx context.Context, c Exec) (exit int, handled bool)

// HandleExec has p asked for every command before it is run, and for programs within one that the shell does not have.
// The latest that takes a command has it.
func (s *Server) HandleExec(p Program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.programs = append(s.programs, p)
}

func (s *Server) handled(ctx context.Context, p *process, c shell.Command) (int, bool) {
	s.mu.Lock()
	programs, noTools := slices.Clone(s.programs), s.quirks.NoFileTools
	s.mu.Unlock()
	for _, program := range slices.Backward(programs) {
		if exit, ok := program(ctx, Exec{p.box.id, p.container, c}); ok {
			return exit, true
		}
	}
	if len(c.Args) > 0 && c.Args[0] == fileTools && !noTools {
		return runFileTools(ctx, p.disk, c), true
	}
	return 0, false
}

// A Process is a command of a sandbox, with all that came of it.
type Process struct {
	ID        string   // empty: the entrypoint
	Container string   // id; empty: the main one
	Args      []string // program and arguments
	Env       map[string]string
	Timeout   time.Duration // 0: none
	Ended     bool          // the command itself has ended, as its caller was told or could have been
	Running   bool          // something of it runs
}

// Processes returns those of a sandbox by its id, in no order but the entrypoint first.
func (s *Server) Processes(id string) []Process {
	var all []Process
	for _, p := range s.processes(id) {
		all = append(all, p.describe())
	}
	return all
}

// KillProcesses kills those that match, with all that came of them, as a killer inside of the sandbox would: it returns
// when nothing of them runs, and says how many there were. match must not call s.
func (s *Server) KillProcesses(id string, match func(Process) bool) int {
	n := 0
	for _, p := range s.processes(id) {
		if d := p.describe(); d.Running && match(d) {
			p.conclude(0, sigKill, nil)
			p.end(errKilled)
			<-p.over
			n++
		}
	}
	return n
}

func (s *Server) processes(id string) []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.ids[id]
	if b == nil {
		return nil
	}
	var all []*process
	if b.entry != nil {
		all = append(all, b.entry)
	}
	return slices.AppendSeq(all, maps.Values(b.execs))
}

const sigKill = 9

var errKilled = errors.New("killed")

// maxOutput is how much of a stream of output is kept.
const maxOutput = 64 << 20

// process is a command that a sandbox runs. It goes on when its caller has gone.
type process struct {
	box       *box
	id        string
	container string
	run       shell.Command
	disk      *shell.FS
	limit     time.Duration
	merged    bool      // standard error goes where standard output does
	use       *fake.Use // nil: it is no activity
	end       context.CancelCauseFunc
	over      chan struct{} // closed when nothing of it runs

	mu      sync.Mutex // held for memory operations only
	out     [2]output
	in      []byte
	read    int    // of in
	written uint64 // accepted on standard input so far
	shut    bool   // no more comes on standard input
	exit    int32
	signal  int32
	ended   bool
	lost    error         // why it ended without either
	changed chan struct{} // made by who waits, closed when something is new
	evict   chan struct{} // closed when another stream to standard input takes over
}

// output is one stream of output.
type output struct {
	data  []byte
	start int  // how many bytes before data are no longer kept
	none  bool // it is thrown away
	keep  int  // most bytes of data
}

func newProcess(b *box, run shell.Command) *process {
	p := &process{box: b, run: run, over: make(chan struct{})}
	for i := range p.out {
		p.out[i].keep = maxOutput
	}
	return p
}

func (p *process) describe() Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Process{
		ID: p.id, Container: p.container, Args: slices.Clone(p.run.Args), Env: maps.Clone(p.run.Env), Timeout: p.limit,
		Ended: p.ended, Running: p.running(),
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

// wake has everybody look who waits. The lock is held.
func (p *process) wake() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// waker returns what the next wake closes. The lock is held.
func (p *process) waker() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// conclude ends the command for its callers, once.
func (p *process) conclude(exit, signal int32, lost error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended, p.exit, p.signal, p.lost, p.shut = true, exit, signal, lost, true
		p.wake()
	}
}

// await returns when done says so, with nil, or with ctx's cause. done is called with the lock held, after every change.
func (p *process) await(ctx context.Context, done func() bool) error {
	for {
		p.mu.Lock()
		ok, wake := done(), p.waker()
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// outlet writes one of a process's streams.
type outlet struct {
	p  *process
	fd int
}

func (o *outlet) Write(b []byte) (int, error) {
	p := o.p
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &p.out[o.fd]
	if p.ended || out.none {
		return len(b), nil // nobody listens
	}
	out.data = append(out.data, b...)
	if more := len(out.data) - out.keep; more > 0 {
		out.data = slices.Clone(out.data[more:])
		out.start += more
	}
	p.wake()
	return len(b), nil
}

// next returns output from an offset on as soon as there is some, where it starts, and whether the stream is at its end.
func (p *process) next(ctx context.Context, fd, offset, most int) (data []byte, at int, end bool, err error) {
	err = p.await(ctx, func() bool {
		out := &p.out[fd]
		at = max(offset, out.start)
		if n := at - out.start; n < len(out.data) {
			data = slices.Clone(out.data[n:min(len(out.data), n+most)])
			return true
		}
		end = p.ended
		return end
	})
	return data, at, end, err
}

// inlet is a process's standard input.
type inlet struct {
	p   *process
	ctx context.Context
}

func (i *inlet) Read(b []byte) (n int, err error) {
	p := i.p
	_ = p.await(i.ctx, func() bool { // whose end ends the input too
		n = copy(b, p.in[p.read:])
		if p.read += n; p.read == len(p.in) {
			p.in, p.read = nil, 0
		}
		return n > 0 || p.shut
	})
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// feed takes in data for standard input that begins at an offset, of which it may have had some already.
func (p *process) feed(offset uint64, data []byte, eof bool) (fresh bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return false, refuse(codes.FailedPrecondition, "the process has exited")
	case offset > p.written:
		return false, invalid("offset %d is beyond the %d bytes written", offset, p.written)
	}
	data = data[min(uint64(len(data)), p.written-offset):]
	if p.shut && len(data) > 0 {
		return false, refuse(codes.FailedPrecondition, "stdin is closed")
	}
	p.in = append(p.in, data...)
	p.written += uint64(len(data))
	p.shut = p.shut || eof
	p.wake()
	return len(data) > 0, nil
}

// launch runs a process until it ends, its limit has passed, or its sandbox has ended.
func (s *Server) launch(p *process, after func(exit int)) bool {
	run, end := context.WithCancelCause(s.base)
	p.end = end
	watched := make(chan struct{})
	if p.use == nil {
		close(watched)
	} else if !s.begin(func() { // the end of the sandbox ends it
		defer close(watched)
		if err := p.use.Watch(run); err != nil {
			p.conclude(0, sigKill, err)
			end(err)
		}
	}) {
		close(watched)
	}
	var timer *time.Timer
	if p.limit > 0 {
		timer = time.AfterFunc(p.limit, func() {
			p.conclude(0, sigKill, nil)
			if !s.Quirks().KillsLeader {
				end(errKilled)
			}
		})
	}
	ok := s.begin(func() {
		how := p.run
		out, errs := &outlet{p, 0}, &outlet{p, 1}
		if p.merged {
			errs = out
		}
		how.Stdin, how.Stdout, how.Stderr = &inlet{p, run}, out, errs
		how.Exec = func(ctx context.Context, inner shell.Command) (int, bool) { return s.handled(ctx, p, inner) }
		exit, known := 0, p.use != nil && p.use.Effect() == fake.EffectNone
		if !known {
			exit, known = s.handled(run, p, how)
		}
		if !known {
			exit = shell.Run(run, p.disk, how)
		}
		if timer != nil {
			timer.Stop()
		}
		if p.use != nil {
			p.use.Hold(run) // a frozen machine tells nothing
			if err := p.use.Ended(); err != nil {
				p.conclude(0, sigKill, err) // and a dead one neither
			}
		}
		if signal := int32(exit - 128); slices.Contains(signals, signal) {
			p.conclude(0, signal, nil)
		} else {
			p.conclude(int32(exit), 0, nil)
		}
		if p.use != nil {
			p.use.Release()
		}
		end(nil)
		<-watched
		close(p.over)
		s.mu.Lock()
		p.box.wake()
		s.mu.Unlock()
		if after != nil {
			after(exit)
		}
	})
	return ok
}

// signals are those whose exit code is taken for an end by a signal: the shell tells no other difference.
var signals = []int32{1, 2, 3, 6, sigKill, 11, 13, 15}
