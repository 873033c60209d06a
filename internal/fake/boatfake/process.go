package boatfake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// A Process is a command, with all that came of it.
type Process struct {
	ID       int
	Command  string // its text
	Detached bool
	Running  bool // something of it runs, whatever its caller was told
}

// Processes returns those of a sandbox that were ever begun, oldest first.
func (s *Server) Processes(id string) []Process {
	var all []Process
	for _, p := range s.processesOf(id) {
		all = append(all, p.describe())
	}
	return all
}

// KillProcesses kills those that match, with all that came of them, as a killer inside of the sandbox would: it returns
// when nothing of them runs, and says how many there were. match must not call s.
func (s *Server) KillProcesses(id string, match func(Process) bool) int {
	n := 0
	for _, p := range s.processesOf(id) {
		if d := p.describe(); d.Running && match(d) {
			p.end(errKilled)
			<-p.over
			n++
		}
	}
	return n
}

func (s *Server) processesOf(id string) []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[MachineID(id)]; b != nil {
		return slices.Clone(b.processes)
	}
	return nil
}

var errKilled = errors.New("killed")

// firstPID is the number of a sandbox's first command.
const firstPID = 101

// maxKept is how much of a command's output is kept for its caller.
const maxKept = 64 << 20

// piece is some output.
type piece struct {
	stream string
	data   []byte
}

// process is a command under way. It goes on when its caller has gone.
type process struct {
	id       int
	text     string
	cwd      string
	detached bool
	run      string // of the sandbox
	began    time.Time
	use      *fake.Use
	end      context.CancelCauseFunc
	over     chan struct{} // closed when nothing of it runs

	mu      sync.Mutex // held for memory operations only
	pieces  []piece
	size    int
	done    bool // it has ended, by itself or with its sandbox
	exit    int
	ended   time.Time
	lost    error         // why it ended without an exit code
	changed chan struct{} // made by who waits, closed when something is new
}

func (p *process) describe() Process {
	d := Process{ID: p.id, Command: p.text, Detached: p.detached, Running: true}
	select {
	case <-p.over:
		d.Running = false
	default:
	}
	return d
}

func (p *process) logs() (stdout, stderr string) {
	return fmt.Sprintf("%s/%d.out.log", logDir, p.id), fmt.Sprintf("%s/%d.err.log", logDir, p.id)
}

// finish ends the process for its callers, once.
func (p *process) finish(at time.Time, exit int, lost error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		p.done, p.exit, p.ended, p.lost = true, exit, at, lost
		p.wake()
	}
}

// wake has everybody look who waits. The lock is held.
func (p *process) wake() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// since returns what follows the first n pieces, whether the process has ended, what is closed when there is more, and
// why it ended if that was not by itself.
func (p *process) since(n int) (more []piece, done bool, changed <-chan struct{}, lost error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return slices.Clone(p.pieces[n:]), p.done, p.changed, p.lost
}

// outlet is one of a process's output streams.
type outlet struct {
	p      *process
	stream string
}

func (o *outlet) Write(b []byte) (int, error) {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	if len(b) > 0 && !o.p.done && o.p.size < maxKept {
		o.p.size += len(b)
		o.p.pieces = append(o.p.pieces, piece{o.stream, slices.Clone(b)})
		o.p.wake()
	}
	return len(b), nil
}

// begin makes a process of a sandbox.
func (s *Server) begin(b *box, use *fake.Use, body commandBody) *process {
	p := &process{
		text: body.Command, cwd: within(body.CWD), detached: body.Detached, began: s.svc.Now(), use: use, over: make(chan struct{}),
	}
	rec, _ := s.svc.Lookup(b.id)
	p.run = rec.Run
	s.mu.Lock()
	defer s.mu.Unlock()
	p.id = firstPID + len(b.processes)
	return p
}

// launch runs a process until it ends or its sandbox does. It reports false after Close.
func (s *Server) launch(b *box, p *process, f *shell.FS) bool {
	ctx, end := context.WithCancelCause(s.base)
	p.end = end
	s.mu.Lock()
	b.processes = append(b.processes, p)
	s.mu.Unlock()
	watched := make(chan struct{})
	if !s.spawn(func() { // the end of the sandbox's run ends it
		defer close(watched)
		if err := p.use.Watch(ctx); err != nil {
			p.finish(s.svc.Now(), 0, err)
			end(err)
		}
	}) {
		end(nil)
		p.use.Release()
		close(p.over)
		return false
	}
	exec := func() {
		exit := 0
		if p.use.Effect() != fake.EffectNone {
			exit = s.execute(ctx, b, p, f)
		}
		p.use.Hold(ctx) // a frozen machine tells nothing
		if err := p.use.Ended(); err != nil {
			p.finish(s.svc.Now(), 0, err) // and a dead one neither
		}
		p.finish(s.svc.Now(), exit, nil)
		p.use.Release()
		end(nil)
		<-watched
		close(p.over)
	}
	if !s.spawn(exec) {
		end(nil)
		p.use.Release()
		close(p.over)
		return false
	}
	return true
}

// execute runs the process's text and returns its exit code.
func (s *Server) execute(ctx context.Context, b *box, p *process, f *shell.FS) int {
	run := s.run(b, p.text, p.cwd)
	if !p.detached {
		run.Stdout, run.Stderr = &outlet{p, "stdout"}, &outlet{p, "stderr"}
		return shell.Run(ctx, f, run)
	}
	stdout, stderr := p.logs()
	run.Args = []string{"bash", "-c", `exec bash -lc "$1" >"$2" 2>"$3"`, "bash", p.text, stdout, stderr}
	return shell.Run(ctx, f, run)
}

// tail returns the last bytes of a log, as text.
func tail(f *shell.FS, name string, n int) (text string, cut bool, err error) {
	var b bytes.Buffer
	if err := f.ReadFile(name, &b); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", false, err
	}
	data := b.Bytes()
	if cut = len(data) > n; cut {
		data = data[len(data)-n:]
	}
	return text8(data), cut, nil
}

// text8 makes text of bytes. What is none is spoiled.
func text8(b []byte) string { return strings.ToValidUTF8(string(b), string(utf8.RuneError)) }

// splitter makes text of a stream that comes in pieces, in which characters may be cut in two.
type splitter struct{ rest []byte }

func (t *splitter) text(b []byte) string {
	all := append(t.rest, b...)
	whole := len(all)
	for i := 1; i < utf8.UTFMax && i <= len(all); i++ {
		if utf8.RuneStart(all[len(all)-i]) {
			if !utf8.FullRune(all[len(all)-i:]) {
				whole = len(all) - i
			}
			break
		}
	}
	t.rest = slices.Clone(all[whole:])
	return text8(all[:whole])
}
