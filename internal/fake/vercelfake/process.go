package vercelfake

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// A Process is a command of a session, with all that came of it.
type Process struct {
	ID      string
	Args    []string // program and arguments
	Env     map[string]string
	User    string
	Ended   bool // the command itself has ended, as its caller was told or could have been
	Running bool // something of it runs
}

// Processes returns those of a session by its id, oldest first.
func (s *Server) Processes(id string) []Process {
	var all []Process
	for _, c := range s.commandsOf(id) {
		all = append(all, c.describe())
	}
	return all
}

// KillProcesses kills those that match, with all that came of them, as a killer inside of the sandbox would: it returns
// when nothing of them runs, and says how many there were. match must not call s.
func (s *Server) KillProcesses(id string, match func(Process) bool) int {
	n := 0
	for _, c := range s.commandsOf(id) {
		if d := c.describe(); d.Running && match(d) {
			c.conclude(128 + sigKill)
			c.end(errKilled)
			<-c.over
			n++
		}
	}
	return n
}

func (s *Server) commandsOf(id string) []*command {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := s.sessions[id]; ses != nil {
		return slices.Clone(ses.commands)
	}
	return nil
}

const (
	sigHangup    = 1
	sigInterrupt = 2
	sigQuit      = 3
	sigKill      = 9
	sigTerm      = 15
)

var errKilled = errors.New("killed")

// maxLog is how much of a command's output is kept.
const maxLog = 64 << 20

// logLine is a piece of output.
type logLine struct {
	Stream string `json:"stream"`
	Data   string `json:"data"`
}

// command is one that a session runs. It goes on when its caller has gone.
type command struct {
	id      string
	session *session
	run     shell.Command
	began   time.Time // by the service's clock
	clock   func() time.Time
	use     *fake.Use
	end     context.CancelCauseFunc
	over    chan struct{} // closed when nothing of it runs

	mu      sync.Mutex // held for memory operations only
	log     []logLine
	size    int
	exit    int
	ended   time.Time     // zero: it runs
	lost    error         // why it ended without an exit code
	changed chan struct{} // made by who waits, closed when something is new
}

// A Command is one as the wire has it.
type Command struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Args       []string `json:"args"`
	CWD        string   `json:"cwd"`
	SessionID  string   `json:"sessionId"`
	ExitCode   *int     `json:"exitCode"` // null: it runs
	StartedAt  int64    `json:"startedAt"`
	DurationMS *int64   `json:"durationMs,omitempty"`
}

func (c *command) view() Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.begun()
	if !c.ended.IsZero() && c.lost == nil {
		exit, took := c.exit, c.ended.Sub(c.began).Milliseconds()
		v.ExitCode, v.DurationMS = &exit, &took
	}
	return v
}

// begun is the command before it has ended.
func (c *command) begun() Command {
	return Command{
		ID: c.id, Name: c.run.Args[0], Args: slices.Clone(c.run.Args[1:]), CWD: c.run.Dir, SessionID: c.session.id,
		StartedAt: ms(c.began),
	}
}

func (c *command) describe() Process {
	p := Process{ID: c.id, Args: slices.Clone(c.run.Args), Env: maps.Clone(c.run.Env), User: c.run.User, Running: true}
	select {
	case <-c.over:
		p.Running = false
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.Ended = !c.ended.IsZero()
	return p
}

// since returns what follows the first n pieces, whether the command has ended, what is closed when there is more, and why
// it ended if that was not by itself.
func (c *command) since(n int) (more []logLine, ended bool, changed <-chan struct{}, lost error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return slices.Clone(c.log[n:]), !c.ended.IsZero(), c.changed, c.lost
}

// wake has everybody look who waits. The lock is held.
func (c *command) wake() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// conclude ends the command for its callers, once.
func (c *command) conclude(exit int) { c.close(exit, nil) }

func (c *command) close(exit int, lost error) {
	now := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended.IsZero() {
		c.exit, c.ended, c.lost = exit, now, lost
		c.wake()
	}
}

// outlet is one of a command's output streams, as text: what is none is spoiled.
type outlet struct {
	c      *command
	stream string
	rest   []byte // the beginning of a character
}

func (o *outlet) Write(b []byte) (int, error) {
	all := append(o.rest, b...)
	whole := len(all)
	for i := 1; i < utf8.UTFMax && i <= len(all); i++ {
		if c := all[len(all)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(all[len(all)-i:]) {
				whole = len(all) - i
			}
			break
		}
	}
	o.rest = slices.Clone(all[whole:])
	o.add(all[:whole])
	return len(b), nil
}

func (o *outlet) add(text []byte) {
	if len(text) == 0 {
		return
	}
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended.IsZero() || c.size > maxLog {
		return // nobody listens any more
	}
	c.size += len(text)
	c.log = append(c.log, logLine{o.stream, strings.ToValidUTF8(string(text), string(utf8.RuneError))})
	c.wake()
}

func (o *outlet) flush() {
	o.add(o.rest)
	o.rest = nil
}

// launch runs a command until it ends, its limit has passed (0: none), or its session is over.
func (s *Server) launch(c *command, disk *shell.FS, limit time.Duration) bool {
	run, end := context.WithCancelCause(s.base)
	c.end = end
	var timer *time.Timer
	if limit > 0 {
		timer = time.AfterFunc(limit, func() { s.signal(c, sigKill) })
	}
	watched := make(chan struct{})
	if !s.begin(func() { // the end of the session ends it
		defer close(watched)
		if err := c.use.Watch(run); err != nil {
			c.close(0, err)
			end(err)
		}
	}) {
		close(watched)
	}
	return s.begin(func() {
		out, errs := &outlet{c: c, stream: "stdout"}, &outlet{c: c, stream: "stderr"}
		how := c.run
		how.Stdout, how.Stderr = out, errs
		exit := 0
		if c.use.Effect() != fake.EffectNone {
			exit = shell.Run(run, disk, how)
		}
		if timer != nil {
			timer.Stop()
		}
		c.use.Hold(run) // a frozen machine tells nothing
		if err := c.use.Ended(); err != nil {
			c.close(0, err) // and a dead one neither
		}
		out.flush()
		errs.flush()
		c.conclude(exit)
		c.use.Release()
		end(nil)
		<-watched
		close(c.over)
	})
}

// signal has a signal end a command, with what it ran or without.
func (s *Server) signal(c *command, n int) {
	c.conclude(128 + n)
	if !s.Quirks().KillsLeader {
		c.end(errKilled)
	}
}
