package e2bfake

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Flags of an envelope: one byte before the length.
const (
	flagCompressed = 1
	flagEnd        = 2
)

// openEnvelope returns the message of a body that is one envelope.
func openEnvelope(b []byte) ([]byte, error) {
	switch {
	case len(b) < 5:
		return nil, io.ErrUnexpectedEOF
	case b[0]&flagCompressed != 0:
		return nil, errors.New("compressed message without a compression")
	case int64(binary.BigEndian.Uint32(b[1:5])) != int64(len(b)-5):
		return nil, errors.New("a request must be one message")
	}
	return b[5:], nil
}

// stream is the answer of a call that goes on.
type stream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "application/connect+json")
	w.WriteHeader(http.StatusOK)
	return &stream{w, http.NewResponseController(w)}
}

// send writes one envelope and has it leave at once. The error is that of a client that has gone.
func (st *stream) send(flags byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values that are made here
	}
	head := append([]byte{flags}, binary.BigEndian.AppendUint32(nil, uint32(len(b)))...)
	if _, err := st.w.Write(append(head, b...)); err != nil {
		return err
	}
	return st.c.Flush()
}

// end ends the stream as Connect has it. nil: well.
func (st *stream) end(e *connectError) {
	trailer := struct {
		Error    *connectError       `json:"error,omitempty"`
		Metadata map[string][]string `json:"metadata,omitempty"`
	}{Error: e}
	_ = st.send(flagEnd, trailer)
}

// message is what a stream of a process tells.
type message struct {
	Event processEvent `json:"event"`
}

type processEvent struct {
	Start     *startEvent `json:"start,omitempty"`
	Data      *dataEvent  `json:"data,omitempty"`
	End       *endEvent   `json:"end,omitempty"`
	Keepalive *struct{}   `json:"keepalive,omitempty"`
}

type startEvent struct {
	PID int `json:"pid"`
}

type dataEvent struct {
	Stdout []byte `json:"stdout,omitempty"` // base64
	Stderr []byte `json:"stderr,omitempty"`
}

// startRequest is the body of Start.
type startRequest struct {
	Process *processConfig  `json:"process"`
	PTY     json.RawMessage `json:"pty"`
	Tag     string          `json:"tag"`
	Stdin   *bool           `json:"stdin"`
}

// startProcess runs a command and follows it to its end.
func (s *Server) startProcess(w http.ResponseWriter, r *http.Request) {
	var req startRequest
	if !s.rpcRequest(w, r, &req) {
		return
	}
	b := boxOf(r)
	who, ok := user(r, b.m)
	limit, err := timeoutOf(r)
	switch {
	case !ok:
		s.rpcFail(w, r, connectError{"unauthenticated", "invalid username"})
		return
	case err != nil || req.Process == nil || req.Process.Cmd == "":
		s.rpcFail(w, r, connectError{"invalid_argument", "no command, or no number in Connect-Timeout-Ms"})
		return
	case len(req.PTY) > 0 && string(req.PTY) != "null":
		s.rpcFail(w, r, connectError{"unimplemented", "there are no terminals here"})
		return
	}
	dir := who.home
	if req.Process.Cwd != nil && *req.Process.Cwd != "" {
		dir = who.abs(*req.Process.Cwd)
	}
	if _, _, exit := b.m.tool(r.Context(), "test", "-d", dir); exit != 0 {
		s.rpcFail(w, r, connectError{"invalid_argument", "cwd '" + dir + "' does not exist"})
		return
	}
	use, ok := s.use(w, r, sandbox.OpExec)
	if !ok {
		return
	}
	p := &process{
		tag: req.Tag, config: *req.Process, env: b.m.environment(who, req.Process.Envs), user: who.name,
		ended: make(chan struct{}), over: make(chan struct{}), listeners: map[*listener]struct{}{},
	}
	if req.Stdin == nil || *req.Stdin {
		p.stdin = &pipe{}
	}
	l := p.listen()
	defer p.unlisten(l)
	s.spawn(use, b.wire, p, dir, limit)
	s.follow(w, r, p, l, limit, func() error { return use.After(r.Context()) })
}

// timeoutOf returns the limit of a call; 0: none.
func timeoutOf(r *http.Request) (time.Duration, error) {
	text := r.Header.Get("Connect-Timeout-Ms")
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err == nil && ms < 0 {
		err = strconv.ErrRange
	}
	return time.Duration(ms) * time.Millisecond, err
}

// follow streams what becomes of a process until it has ended, the limit has passed or the client has gone. last is
// asked before the end is told.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, p *process, l *listener, limit time.Duration, last func() error) {
	began := time.Now()
	st := newStream(w)
	if st.send(0, message{processEvent{Start: &startEvent{p.pid}}}) != nil {
		return
	}
	every := keepaliveOf(r)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var limited <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		limited = t.C
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			panic(http.ErrAbortHandler)
		case <-limited:
			st.end(&connectError{"deadline_exceeded", "the deadline of the call has passed"})
			return
		case <-ticker.C:
			if s.Quirks().NoKeepalive {
				continue
			}
			if st.send(0, message{processEvent{Keepalive: &struct{}{}}}) != nil {
				return
			}
		case o := <-l.data:
			d := &dataEvent{Stdout: o.data}
			if o.stderr {
				d = &dataEvent{Stderr: o.data}
			}
			if st.send(0, message{processEvent{Data: d}}) != nil {
				return
			}
			ticker.Reset(every)
		case <-p.ended:
			if limit > 0 && time.Since(began) >= limit { // which is what ended it
				st.end(&connectError{"deadline_exceeded", "the deadline of the call has passed"})
				return
			}
			s.tellEnd(st, r, p, last)
			return
		}
	}
}

// tellEnd ends a stream whose process has ended, be it because its sandbox has.
func (s *Server) tellEnd(st *stream, r *http.Request, p *process, last func() error) {
	if rec, ok := s.svc.Lookup(boxOf(r).id); !ok || rec.State != sandbox.StateRunning || rec.Lost {
		if s.Quirks().DeadStreamsHang {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	if err := last(); err != nil {
		status, _, text := wireError(err)
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		st.end(&connectError{"unavailable", text})
		return
	}
	p.mu.Lock()
	e := p.result
	p.mu.Unlock()
	if st.send(0, message{processEvent{End: &e}}) == nil {
		st.end(nil)
	}
}

// keepaliveOf is how long a stream may be silent.
func keepaliveOf(r *http.Request) time.Duration {
	seconds, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval"))
	if err != nil || seconds <= 0 {
		seconds = 90
	}
	return time.Duration(seconds) * time.Second
}

// selector says which process is meant.
type selector struct {
	Process struct {
		PID *int    `json:"pid"`
		Tag *string `json:"tag"`
	} `json:"process"`
}

// process finds the one that is meant. Those that have ended are known to Connect alone.
func (s *Server) process(w http.ResponseWriter, r *http.Request, sel selector, alive bool) *process {
	want := sel.Process
	for _, p := range boxOf(r).m.processes() {
		known := want.PID != nil && *want.PID == p.pid || want.PID == nil && want.Tag != nil && *want.Tag == p.tag
		if known && !(alive && p.hasEnded()) && !p.stale() {
			return p
		}
	}
	s.rpcFail(w, r, connectError{"not_found", "process not found"})
	return nil
}

// stale reports whether the process ended so long ago that envd has forgotten how.
func (p *process) stale() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.endedAt.IsZero() && time.Since(p.endedAt) >= endKept
}

// connectProcess follows a process from now on.
func (s *Server) connectProcess(w http.ResponseWriter, r *http.Request) {
	var req selector
	if !s.rpcRequest(w, r, &req) {
		return
	}
	limit, err := timeoutOf(r)
	if err != nil {
		s.rpcFail(w, r, connectError{"invalid_argument", err.Error()})
		return
	}
	p := s.process(w, r, req, false)
	if p == nil {
		return
	}
	l := p.listen()
	defer p.unlisten(l)
	s.follow(w, r, p, l, limit, func() error { return nil })
}

func (s *Server) listProcesses(w http.ResponseWriter, r *http.Request) {
	type info struct {
		Config processConfig `json:"config"`
		PID    int           `json:"pid"`
		Tag    string        `json:"tag,omitempty"`
	}
	var all struct {
		Processes []info `json:"processes,omitempty"`
	}
	for _, p := range boxOf(r).m.processes() {
		if !p.hasEnded() {
			all.Processes = append(all.Processes, info{p.config, p.pid, p.tag})
		}
	}
	s.rpcAnswer(w, all)
}

func (s *Server) sendInput(w http.ResponseWriter, r *http.Request) {
	var req struct {
		selector
		Input struct {
			Stdin string `json:"stdin"`
			PTY   string `json:"pty"`
		} `json:"input"`
	}
	if !s.rpcRequest(w, r, &req) {
		return
	}
	data, err := base64.StdEncoding.DecodeString(req.Input.Stdin)
	if err != nil {
		s.rpcFail(w, r, connectError{"invalid_argument", "unmarshal message: stdin is no base64"})
		return
	}
	p := s.process(w, r, req.selector, true)
	if p == nil {
		return
	}
	if p.stdin == nil || req.Input.PTY != "" {
		s.rpcFail(w, r, connectError{"internal", "error writing to stdin: " + errPipeClosed.Error()})
		return
	}
	if err := p.stdin.write(r.Context(), data); err != nil {
		if r.Context().Err() == nil {
			s.rpcFail(w, r, connectError{"internal", "error writing to stdin: " + err.Error()})
		}
		return
	}
	s.rpcAnswer(w, struct{}{})
}

func (s *Server) closeStdin(w http.ResponseWriter, r *http.Request) {
	var req selector
	if !s.rpcRequest(w, r, &req) {
		return
	}
	p := s.process(w, r, req, true)
	if p == nil {
		return
	}
	if p.stdin != nil {
		p.stdin.close()
	}
	s.rpcAnswer(w, struct{}{})
}

func (s *Server) sendSignal(w http.ResponseWriter, r *http.Request) {
	var req struct {
		selector
		Signal json.RawMessage `json:"signal"`
	}
	if !s.rpcRequest(w, r, &req) {
		return
	}
	p := s.process(w, r, req.selector, true)
	if p == nil {
		return
	}
	switch strings.Trim(string(req.Signal), `"`) {
	case "SIGNAL_SIGKILL", "9":
		p.signal(killSignal)
	case "SIGNAL_SIGTERM", "15":
		p.signal(termSignal)
	default:
		s.rpcFail(w, r, connectError{"unimplemented", "invalid signal"})
		return
	}
	if s.Quirks().KillsChildren {
		p.end(errKilled)
	}
	s.rpcAnswer(w, struct{}{})
}
