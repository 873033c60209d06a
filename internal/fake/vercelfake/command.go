package vercelfake

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// commandBody is what a command is asked for with.
type commandBody struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	CWD     string            `json:"cwd"`
	Env     map[string]string `json:"env"`
	Sudo    bool              `json:"sudo"`
	Wait    bool              `json:"wait"`
	Logs    bool              `json:"logs"`
	Timeout *int64            `json:"timeout"`
}

// Limits of a command's timeout, in ms.
const (
	minCommandTimeout = 100
	maxCommandTimeout = 18_000_000
)

func (b *commandBody) check() error {
	switch {
	case b.Command == "":
		return invalid("command is required")
	case b.Logs && !b.Wait:
		return invalid("logs needs wait")
	case b.Timeout != nil && (*b.Timeout < minCommandTimeout || *b.Timeout > maxCommandTimeout):
		return invalid("timeout must be between %d and %d", minCommandTimeout, maxCommandTimeout)
	}
	return nil
}

// runCommand starts a command. Without wait it answers at once, else with a stream that ends with it.
func (s *Server) runCommand(ctx context.Context, c *call) (any, error) {
	var body commandBody
	if err := c.decode(&body); err != nil {
		return nil, err
	}
	if err := body.check(); err != nil {
		return nil, err
	}
	ses, use, err := s.use(ctx, c, sandbox.OpExec)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	conf := ses.box.config
	s.mu.Unlock()
	disk := s.disk(ctx, ses)
	run := body.command(conf)
	if use.Effect() != fake.EffectNone && !found(ctx, disk, run) {
		use.Release()
		return nil, &problem{status: 400, code: "executable_not_found", message: "Executable " + body.Command + " was not found"}
	}
	cmd := &command{
		id: newID("cmd_"), session: ses, run: run, began: s.svc.Now(), clock: s.svc.Now, use: use, over: make(chan struct{}),
	}
	s.mu.Lock()
	ses.commands = append(ses.commands, cmd)
	s.mu.Unlock()
	var limit time.Duration
	if body.Timeout != nil {
		limit = time.Duration(*body.Timeout) * time.Millisecond
	}
	if !s.launch(cmd, disk, limit) {
		return nil, context.Canceled
	}
	if !body.Wait {
		if err := use.After(ctx); err != nil {
			return nil, err
		}
		return map[string]any{"command": cmd.view()}, nil
	}
	c.streams(func(st *stream) {
		st.line(map[string]any{"command": cmd.begun()})
		if !s.followTo(st, cmd, body.Logs) {
			return
		}
		if use.After(c.Context()) != nil {
			panic(http.ErrAbortHandler)
		}
		st.line(map[string]any{"command": cmd.view()})
	})
	return nil, nil
}

// use begins a use of the session that a path names.
func (s *Server) use(ctx context.Context, c *call, op sandbox.Op) (*session, *fake.Use, error) {
	ses, _, err := s.live(c)
	if err != nil {
		return nil, nil, err
	}
	use, err := s.svc.Use(ctx, op, ses.box.id)
	if e, ok := err.(*sandbox.APIError); ok && (e.Code == "not_running" || e.Code == "machine_unreachable") {
		if _, _, err := s.live(c); err != nil { // its state has changed just now
			return nil, nil, err
		}
		return nil, nil, s.ofLife(stStopping)
	}
	return ses, use, err
}

// streams makes the answer a stream.
func (c *call) streams(follow func(*stream)) {
	kind := c.s.Quirks().StreamType
	if kind == "" {
		kind = "application/x-ndjson"
	}
	c.header.Set("Content-Type", kind)
	c.follow = follow
}

// followTo writes a command's output until it has ended, and reports whether it ended by itself.
func (s *Server) followTo(st *stream, cmd *command, logs bool) bool {
	for n := 0; ; {
		more, ended, changed, lost := cmd.since(n)
		if logs {
			for _, l := range more {
				st.line(l)
			}
		}
		n += len(more)
		switch {
		case s.base.Err() != nil: // and what has ended now has ended by that
			panic(http.ErrAbortHandler)
		case ended && lost != nil:
			s.dies(st)
			return false
		case ended:
			return true
		default:
			select {
			case <-changed:
			case <-st.c.Context().Done():
				panic(http.ErrAbortHandler)
			case <-s.base.Done():
				panic(http.ErrAbortHandler)
			}
		}
	}
}

// dies ends a stream whose session has.
func (s *Server) dies(st *stream) {
	switch s.Quirks().DeadStreams {
	case StreamTells:
		st.line(map[string]any{"stream": "error", "data": map[string]string{
			"code": "sandbox_stream_closed", "message": "Sandbox stream was closed and is not accepting commands.",
		}})
	case StreamCut:
		panic(http.ErrAbortHandler)
	case StreamHangs:
		select {
		case <-st.c.Context().Done():
		case <-s.base.Done():
		}
		panic(http.ErrAbortHandler)
	}
}

// commandOf returns the command that a path names, of a session that runs.
func (s *Server) commandOf(c *call) (*command, error) {
	ses, _, err := s.live(c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(ses.commands, func(cmd *command) bool { return cmd.id == c.PathValue("cmd") })
	if i < 0 {
		return nil, notFound("Command %s was not found", c.PathValue("cmd"))
	}
	return ses.commands[i], nil
}

// getCommand tells of a command, with wait when it has ended.
func (s *Server) getCommand(_ context.Context, c *call) (any, error) {
	cmd, err := s.commandOf(c)
	if err != nil {
		return nil, err
	}
	if c.URL.Query().Get("wait") != "true" {
		return map[string]any{"command": cmd.view()}, nil
	}
	for n := 0; ; {
		more, ended, changed, lost := cmd.since(n)
		n += len(more)
		switch {
		case s.base.Err() != nil:
			return nil, context.Canceled
		case ended && lost != nil:
			return nil, s.ofLife(stStopped)
		case ended:
			return map[string]any{"command": cmd.view()}, nil
		}
		select {
		case <-changed:
		case <-c.Context().Done():
			return nil, context.Canceled
		case <-s.base.Done():
			return nil, context.Canceled
		}
	}
}

func (s *Server) listCommands(_ context.Context, c *call) (any, error) {
	ses, _, err := s.live(c)
	if err != nil {
		return nil, err
	}
	views := []Command{}
	for _, cmd := range slices.Backward(s.commandsOf(ses.id)) {
		views = append(views, cmd.view())
	}
	return map[string]any{"commands": views}, nil
}

// getLogs streams a command's output from its beginning until the command has ended.
func (s *Server) getLogs(_ context.Context, c *call) (any, error) {
	cmd, err := s.commandOf(c)
	if err != nil {
		return nil, err
	}
	c.streams(func(st *stream) { s.followTo(st, cmd, true) })
	return nil, nil
}

func (s *Server) killCommand(_ context.Context, c *call) (any, error) {
	var body struct {
		Signal *int `json:"signal"`
	}
	if err := c.decode(&body); err != nil {
		return nil, err
	}
	signal := sigTerm
	if body.Signal != nil {
		signal = *body.Signal
	}
	if !slices.Contains([]int{sigHangup, sigInterrupt, sigQuit, sigKill, sigTerm}, signal) {
		return nil, invalid("signal %d is not supported here", signal)
	}
	cmd, err := s.commandOf(c)
	if err != nil {
		return nil, err
	}
	if v := cmd.view(); v.ExitCode != nil {
		status := s.Quirks().KillEnded
		switch status {
		case http.StatusOK:
			return map[string]any{"command": v}, nil
		case 0:
			status = http.StatusBadRequest
		}
		return nil, &problem{status: status, code: codes[status], message: "Command " + v.ID + " is not running"}
	}
	if !c.fault.Ignore {
		s.signal(cmd, signal)
	}
	return map[string]any{"command": cmd.view()}, nil
}
