package daytonafake

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// session is one long-lived shell, whose commands run one after another.
type session struct {
	id  string
	run string // of the sandbox; it does not outlive it
	ctx context.Context
	end context.CancelCauseFunc

	mu       sync.Mutex // held for memory operations only
	env      map[string]string
	dir      string
	commands []*command
	exited   bool            // a command has ended the shell itself
	last     <-chan struct{} // closed when the command before has ended; nil: none
}

// command is one of a session's.
type command struct {
	id, text string
	log      transcript
	stdin    *input // nil: it has none
	done     chan struct{}

	mu   sync.Mutex
	exit *int // nil: not known, or never to be
}

func (c *command) code() *int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit
}

func (c *command) described() map[string]any {
	d := map[string]any{"id": c.id, "command": c.text}
	if code := c.code(); code != nil {
		d["exitCode"] = *code
	}
	return d
}

const entrypoint = "entrypoint" // a session id that is taken

func (s *Server) createSession(c *call) (int, any, error) {
	var body struct {
		ID string `json:"sessionId"`
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	if body.ID == "" || body.ID == entrypoint {
		return 0, nil, &problem{status: http.StatusBadRequest, code: "INVALID_REQUEST_BODY", message: "sessionId is required"}
	}
	b := s.box(c)
	n := &session{id: body.ID, env: b.environment(nil), dir: b.home()}
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.sessions[body.ID]; old != nil && old.run == b.run {
		return 0, nil, conflict("session already exists")
	}
	n.run = b.run
	n.ctx, n.end = context.WithCancelCause(s.base)
	if b.sessions == nil {
		b.sessions = map[string]*session{}
	}
	b.sessions[n.id] = n
	return http.StatusCreated, nil, nil
}

// session returns the one in the path.
func (s *Server) session(c *call) (*session, error) {
	b := s.box(c)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.sessions[c.PathValue("session")]; n != nil && n.run == b.run {
		return n, nil
	}
	return nil, &problem{status: http.StatusNotFound, message: "session not found"}
}

// command returns the one in the path.
func (s *Server) command(c *call) (*session, *command, error) {
	n, err := s.session(c)
	if err != nil {
		return nil, nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cmd := range n.commands {
		if cmd.id == c.PathValue("command") {
			return n, cmd, nil
		}
	}
	return nil, nil, &problem{status: http.StatusNotFound, message: "command not found"}
}

func (n *session) described() map[string]any {
	n.mu.Lock()
	defer n.mu.Unlock()
	commands := []any{}
	for _, c := range n.commands {
		commands = append(commands, c.described())
	}
	return map[string]any{"sessionId": n.id, "commands": commands}
}

func (s *Server) listSessions(c *call) (int, any, error) {
	b := s.box(c)
	b.mu.Lock()
	var all []*session
	for _, n := range b.sessions {
		if n.run == b.run {
			all = append(all, n)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(a, b *session) int { return strings.Compare(a.id, b.id) })
	list := []any{}
	for _, n := range all {
		list = append(list, n.described())
	}
	return http.StatusOK, list, nil
}

func (s *Server) getSession(c *call) (int, any, error) {
	n, err := s.session(c)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, n.described(), nil
}

// deleteSession kills what runs in it.
func (s *Server) deleteSession(c *call) (int, any, error) {
	n, err := s.session(c)
	if err != nil {
		return 0, nil, err
	}
	b := s.box(c)
	b.mu.Lock()
	if b.sessions[n.id] == n {
		delete(b.sessions, n.id)
	}
	b.mu.Unlock()
	n.end(errClosed)
	return http.StatusNoContent, nil, nil
}

func (s *Server) getCommand(c *call) (int, any, error) {
	_, cmd, err := s.command(c)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, cmd.described(), nil
}

func (s *Server) sessionExec(c *call) (int, any, error) {
	var body struct {
		Command  string `json:"command"`
		RunAsync bool   `json:"runAsync"`
		Async    bool   `json:"async"` // the old name
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	if body.Command == "" {
		return 0, nil, &problem{status: http.StatusBadRequest, code: "INVALID_REQUEST_BODY", message: "command is required"}
	}
	n, err := s.session(c)
	if err != nil {
		return 0, nil, err
	}
	use, err := s.svc.Use(c.Context(), sandbox.OpExec, c.machine())
	if err != nil {
		return 0, nil, err
	}
	async := body.RunAsync || body.Async
	cmd, err := s.enqueue(n, use, body.Command, async)
	if err != nil {
		use.Release()
		return 0, nil, err
	}
	if async {
		return http.StatusAccepted, map[string]any{"cmdId": cmd.id}, use.After(c.Context())
	}
	select {
	case <-cmd.done:
	case <-n.ctx.Done():
		return 0, nil, invalid("session cancelled")
	case <-c.Context().Done():
		return 0, nil, errDropped
	}
	code := cmd.code()
	if code == nil {
		return 0, nil, invalid("session cancelled")
	}
	if err := use.After(c.Context()); err != nil {
		return 0, nil, err
	}
	log, _, _ := cmd.log.from(0)
	stdout, stderr := split(log)
	return http.StatusOK, map[string]any{
		"cmdId": cmd.id, "exitCode": *code, "output": string(merge(log)), "stdout": stdout, "stderr": stderr,
	}, nil
}

// enqueue has a command run when those before it have.
func (s *Server) enqueue(n *session, use *fake.Use, text string, async bool) (*command, error) {
	b := use.Data().(*box)
	b.mu.Lock()
	b.commands++
	cmd := &command{id: fmt.Sprintf("cmd-%d", b.commands), text: text, done: make(chan struct{})}
	b.mu.Unlock()
	if async {
		cmd.stdin = &input{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.exited || n.ctx.Err() != nil {
		return nil, invalid("failed to write command: the session's shell has ended")
	}
	before := n.last
	n.last = cmd.done
	n.commands = append(n.commands, cmd)
	spawned := s.spawn(func() {
		if before != nil {
			select {
			case <-before:
			case <-n.ctx.Done():
			}
		}
		s.inSession(n, cmd, use)
	})
	if !spawned {
		return nil, invalid("failed to write command: the session's shell has ended")
	}
	return cmd, nil
}

// report is the program by which a command's shell hands over its state. No file system has it, so the shell asks.
const report = "daytona-session-report"

// inSession runs a command in its session's shell. A command that ends the shell leaves neither an exit code nor an end
// of its log, as the daemon does not notice.
func (s *Server) inSession(n *session, cmd *command, use *fake.Use) {
	defer close(cmd.done)
	n.mu.Lock()
	env, dir, exited := n.env, n.dir, n.exited
	n.mu.Unlock()
	if exited || n.ctx.Err() != nil {
		use.Release()
		return
	}
	b := use.Data().(*box)
	file := "/var/daytona/" + cmd.id + ".sh"
	_ = b.disk().WriteFile(file, strings.NewReader(cmd.text)) // on a full disk the shell says that it is missing
	out, errs := &stream{t: &cmd.log, marker: stdoutMarker}, &stream{t: &cmd.log, marker: stderrMarker}
	reported := false
	c := shell.Command{
		Args: []string{"bash", "-c", ". " + file + "\n" + report + " $?"}, Env: env, Dir: dir, Stdout: out, Stderr: errs,
		Exec: func(ctx context.Context, c shell.Command) (int, bool) {
			if c.Args[0] == report && len(c.Args) == 2 {
				n.mu.Lock()
				n.env, n.dir, reported = c.Env, c.Dir, true
				n.mu.Unlock()
				var code int
				_, _ = fmt.Sscan(c.Args[1], &code)
				return code, true
			}
			if s.opts.Exec != nil {
				return s.opts.Exec(ctx, c)
			}
			return 0, false
		},
	}
	if cmd.stdin != nil {
		c.Stdin = cmd.stdin
	}
	bad := shell.Run(n.ctx, b.disk(), shell.Command{Args: []string{"bash", "-n", file}}) != 0
	p := s.launch(n.ctx, use, c, 0)
	<-p.done
	if cmd.stdin != nil {
		cmd.stdin.shut()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.err != nil {
		return // killed: the log ends with the session
	}
	if !reported && !bad { // what the shell cannot parse it does not run, and lives on
		n.exited = true
		return
	}
	out.flush()
	errs.flush()
	cmd.mu.Lock()
	cmd.exit = &p.exit
	cmd.mu.Unlock()
	cmd.log.end()
}

// sendInput writes to the standard input of a command that was started to run by itself.
func (s *Server) sendInput(c *call) (int, any, error) {
	var body struct {
		Data string `json:"data"`
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	_, cmd, err := s.command(c)
	if err != nil {
		return 0, nil, err
	}
	if cmd.stdin == nil || !cmd.stdin.add(body.Data) {
		return 0, nil, &problem{status: http.StatusGone, code: "COMMAND_ALREADY_COMPLETED", message: "command has already completed"}
	}
	return http.StatusNoContent, nil, nil
}

// input is standard input that stays open until the command has ended.
type input struct {
	mu      sync.Mutex // held for memory operations only
	data    []byte
	closed  bool
	changed chan struct{}
}

func (i *input) Read(b []byte) (int, error) {
	for {
		i.mu.Lock()
		if len(i.data) > 0 {
			n := copy(b, i.data)
			i.data = i.data[n:]
			i.mu.Unlock()
			return n, nil
		}
		if i.closed {
			i.mu.Unlock()
			return 0, io.EOF
		}
		if i.changed == nil {
			i.changed = make(chan struct{})
		}
		wait := i.changed
		i.mu.Unlock()
		<-wait
	}
}

// add reports whether the input is still open.
func (i *input) add(data string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.data = append(i.data, data...)
	i.wake()
	return true
}

func (i *input) shut() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.wake()
}

func (i *input) wake() {
	if i.changed != nil {
		close(i.changed)
		i.changed = nil
	}
}
