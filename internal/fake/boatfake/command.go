package boatfake

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

type commandBody struct {
	Command  string `json:"command"`
	CWD      string `json:"cwd"`
	Timeout  *int   `json:"timeoutSeconds"`
	Detached bool   `json:"detached"`
	Stream   bool   `json:"stream"`
}

const (
	defaultTimeout = 30  // seconds
	maxTimeout     = 600 // seconds
	terminated     = 143 // exit code of what has timed out
	maxTail        = 8 << 20
	defaultTail    = 64 << 10               // a guess
	startWait      = time.Minute            // how long a command waits for a start
	glance         = 100 * time.Millisecond // how often it looks
)

// command runs one. A timeout ends the answer, and the process only with Quirks.TimeoutKills; a client that leaves ends
// nothing.
func (s *Server) command(c *call) (int, any, error) {
	var body commandBody
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	timeout := defaultTimeout
	if body.Timeout != nil {
		timeout = *body.Timeout
	}
	switch {
	case body.Command == "":
		return 0, nil, invalid("command is required")
	case timeout < 1 || timeout > maxTimeout:
		return 0, nil, refusal(http.StatusBadRequest, "invalid_timeout", "timeoutSeconds must be between 1 and %d", maxTimeout)
	}
	b, use, err := s.use(c, sandbox.OpExec)
	if err != nil {
		return 0, nil, err
	}
	f := s.disk(c.Context(), b)
	p := s.begin(b, use, body)
	if !s.launch(b, p, f) {
		return 0, nil, context.Canceled
	}
	if body.Detached {
		if err := use.After(c.Context()); err != nil {
			return 0, nil, err
		}
		stdout, stderr := p.logs()
		return http.StatusOK, map[string]any{
			"ok": true, "type": "command.started", "success": true, "processId": p.id, "pid": p.id, "command": p.text, "cwd": p.cwd,
			"startedAt": stamp(p.began), "logPath": stdout, "errLogPath": stderr,
		}, nil
	}
	limit := time.Duration(timeout) * time.Second
	if body.Stream {
		c.header.Set("Content-Type", "application/x-ndjson")
		c.status, c.follow = http.StatusOK, func(st *stream) { s.follow(st, p, limit) }
		return http.StatusOK, nil, nil
	}
	return s.finished(c, p, limit)
}

// use begins a use of the sandbox that a path names, and waits for one that starts.
func (s *Server) use(c *call, op sandbox.Op) (*box, *fake.Use, error) {
	rec, b, err := s.changeable(c)
	if err != nil {
		return nil, nil, err
	}
	for end := s.svc.Now().Add(startWait); rec.State == sandbox.StateStarting || s.cancels(b); {
		if !s.svc.Now().Before(end) {
			return nil, nil, starting()
		}
		if !s.sleep(c.Context(), glance) {
			return nil, nil, context.Canceled
		}
		s.Settle()
		if rec, b, err = s.changeable(c); err != nil {
			return nil, nil, err
		}
	}
	if v := s.view(rec, b, c.from); rec.State != sandbox.StateRunning && rec.Detail != "frozen" {
		return nil, nil, s.notReady(v.State)
	}
	use, err := s.svc.Use(c.Context(), op, rec.ID)
	if e, ok := err.(*sandbox.APIError); ok && e.Code == "not_running" { // its state has changed just now
		return nil, nil, s.notReady("archiving")
	}
	return b, use, err
}

// cancels reports whether it will turn out that there is no machine.
func (s *Server) cancels(b *box) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !b.cancelAt.IsZero()
}

// outcome waits until a process has ended or a limit has passed.
func (s *Server) outcome(c *call, p *process, limit *time.Timer) (timedOut, gone bool) {
	for {
		_, done, changed, _ := p.since(0)
		if done {
			return false, false
		}
		select {
		case <-changed:
		case <-limit.C:
			return true, false
		case <-c.Context().Done():
			return false, true
		case <-s.base.Done():
			return false, true
		}
	}
}

// finished answers with a command's outcome.
func (s *Server) finished(c *call, p *process, limit time.Duration) (int, any, error) {
	t := time.NewTimer(limit)
	defer t.Stop()
	timedOut, gone := s.outcome(c, p, t)
	if gone {
		return 0, nil, context.Canceled
	}
	q := s.Quirks()
	exit, lose := 0, false
	if timedOut {
		exit, lose = terminated, !q.TimeoutKills
		if q.TimeoutKills {
			p.end(errKilled)
			<-p.over
		}
	}
	if err := p.use.After(c.Context()); err != nil {
		return 0, nil, err
	}
	pieces, _, _, lost := p.since(0)
	p.mu.Lock()
	ended := p.ended
	if !timedOut {
		exit = p.exit
	}
	p.mu.Unlock()
	if lost != nil && !timedOut {
		return 0, nil, unreachable()
	}
	var out, errs []byte
	for _, x := range pieces {
		switch {
		case lose:
		case x.stream == "stdout":
			out = append(out, x.data...)
		default:
			errs = append(errs, x.data...)
		}
	}
	if ended.IsZero() {
		ended = s.svc.Now()
	}
	most := q.outputLimit()
	return http.StatusOK, map[string]any{
		"ok": true, "type": "command.finished", "success": exit == 0, "exitCode": exit, "signal": nil, "oomKilled": false,
		"stdout": text8(out[:min(len(out), most)]), "stderr": text8(errs[:min(len(errs), most)]),
		"stdoutTruncated": len(out) > most, "stderrTruncated": len(errs) > most, "timedOut": timedOut, "cwd": p.cwd,
		"startedAt": stamp(p.began), "finishedAt": stamp(ended),
	}, nil
}

// follow streams a command's output, and how it ended.
func (s *Server) follow(st *stream, p *process, limit time.Duration) {
	st.line(map[string]any{"type": "started"})
	t := time.NewTimer(limit)
	defer t.Stop()
	split := map[string]*splitter{"stdout": {}, "stderr": {}}
	tell := func(stream, text string) {
		if text != "" {
			st.line(map[string]any{"type": stream, "data": text})
		}
	}
	exit, timedOut := 0, false
	for n := 0; ; {
		more, done, changed, lost := p.since(n)
		for _, x := range more {
			tell(x.stream, split[x.stream].text(x.data))
		}
		n += len(more)
		if done && len(more) == 0 {
			if lost != nil {
				s.dies(st)
				return
			}
			p.mu.Lock()
			exit = p.exit
			p.mu.Unlock()
			break
		}
		if done {
			continue
		}
		select {
		case <-changed:
			continue
		case <-t.C:
			exit, timedOut = terminated, true
		case <-st.c.Context().Done():
			panic(http.ErrAbortHandler)
		case <-s.base.Done():
			panic(http.ErrAbortHandler)
		}
		if s.Quirks().TimeoutKills {
			p.end(errKilled)
		}
		break
	}
	for _, name := range []string{"stdout", "stderr"} {
		tell(name, text8(split[name].rest))
	}
	if p.use.After(st.c.Context()) != nil {
		panic(http.ErrAbortHandler)
	}
	st.line(map[string]any{"type": "exit", "exitCode": exit, "success": exit == 0, "timedOut": timedOut})
}

// dies ends a stream whose sandbox has.
func (s *Server) dies(st *stream) {
	switch s.Quirks().DeadStreams {
	case StreamTells:
		p := unreachable()
		st.line(map[string]any{"type": "error", "error": p.code, "message": p.message, "retryable": false})
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

// commandStatus tells of a detached command, with the ends of its logs. What it says of one that it does not know is a guess.
func (s *Server) commandStatus(c *call) (int, any, error) {
	id, err := strconv.Atoi(c.PathValue("process"))
	if err != nil || id < 1 {
		return 0, nil, invalid("processId must be a positive integer")
	}
	n := defaultTail
	if text := c.URL.Query().Get("tailBytes"); text != "" {
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > maxTail {
			return 0, nil, invalid("tailBytes must be between 1 and %d", maxTail)
		}
	}
	rec, b, _, err := s.known(c)
	if err != nil {
		return 0, nil, err
	}
	switch rec.State {
	case sandbox.StateRunning:
	case sandbox.StateStarting:
		return 0, nil, starting()
	default:
		return 0, nil, s.notReady(s.view(rec, b, c.from).State)
	}
	if err := s.svc.Reach(c.Context(), sandbox.OpExec, rec.ID); err != nil {
		return 0, nil, err
	}
	var p *process
	for _, x := range s.processesOf(WireID(rec.ID)) {
		if x.id == id && x.detached {
			p = x
		}
	}
	if p == nil {
		return http.StatusOK, map[string]any{
			"ok": true, "type": "command.status", "success": true, "processId": id, "status": "lost", "known": false, "running": false,
			"exitCode": nil, "stdout": "", "stderr": "",
		}, nil
	}
	return s.statusOf(p, s.disk(c.Context(), b), n, rec.Run)
}

func (s *Server) statusOf(p *process, f *shell.FS, n int, run string) (int, any, error) {
	out, errs := p.logs()
	stdout, outCut, err := tail(f, out, n)
	if err != nil {
		return 0, nil, err
	}
	stderr, errCut, err := tail(f, errs, n)
	if err != nil {
		return 0, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var exit, ended any
	status := "running"
	switch {
	case p.lost != nil || p.run != run:
		status = "lost"
	case p.done:
		status, exit, ended = "exited", p.exit, stamp(p.ended)
	}
	return http.StatusOK, map[string]any{
		"ok": true, "type": "command.status", "success": true, "processId": p.id, "pid": p.id, "status": status, "known": true,
		"running": status == "running", "exitCode": exit, "signal": nil, "oomKilled": false, "command": p.text, "cwd": p.cwd,
		"startedAt": stamp(p.began), "finishedAt": ended, "stdout": stdout, "stderr": stderr,
		"stdoutTruncated": outCut, "stderrTruncated": errCut, "logPath": out, "errLogPath": errs,
	}, nil
}

// noFile says what a utility said of a file.
func noFile(said string) *problem {
	switch {
	case strings.Contains(said, "No such file"):
		return notFound()
	case strings.Contains(strings.ToLower(said), "permission denied"):
		return forbidden("Permission denied")
	}
	return refusal(http.StatusBadRequest, "file_failed", "%s", cmp.Or(said, "failed")) // the code is a guess
}
