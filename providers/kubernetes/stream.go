package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/internal/wsock"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// protocol is the oldest in which the end of the standard input can be told. API servers speak it from Kubernetes 1.30 on
// (1.29 if that is switched on).
const protocol = "v5.channel.k8s.io"

// Channels, the first byte of every message.
const (
	toStdin    = 0
	fromStdout = 1
	fromStderr = 2
	fromStatus = 3
	closes     = 255 // the channel whose number follows
)

const (
	startTime = time.Minute      // until a command's stream begins
	pingEvery = 15 * time.Second // so that a connection that has died is noticed
	silence   = time.Minute      // without a byte, not even a pong: then it has
	stall     = 15 * time.Minute // the same, while the command does not take its input, behind which the pings wait
	maxStatus = 64 << 10
	chunk     = 32 << 10 // of the standard input
	lastLook  = 5 * time.Second
)

// stream runs one command and returns its exit code.
func (r *running) stream(ctx context.Context, cmd sandbox.Cmd) (int, error) {
	header, key := wsock.Upgrade(protocol)
	req := httpapi.Request{
		Op: r.op, ID: r.h.id, Method: http.MethodGet, Path: r.h.p.path(core, "pods", r.pod, "exec"),
		Query: url.Values{
			"container": {boxName}, "command": command(r.mark), "stdin": {"true"}, "stdout": {"true"}, "stderr": {"true"},
		}.Encode(),
		Header: header, OK: []int{http.StatusSwitchingProtocols}, Timeout: startTime, Rules: inside,
	}
	if err := r.h.p.prepare(ctx, &req); err != nil {
		return 0, err
	}
	body, err := r.h.p.streams.Open(ctx, req)
	if err != nil {
		return 0, r.notStarted(ctx, advise(req, err))
	}
	defer func() { _ = body.Close() }()
	if err := wsock.Upgraded(body.Header, key, protocol); err != nil {
		return 0, body.Fault(err)
	}
	in := newPatient(body)
	defer in.timer.Stop()
	conn, over, tended := wsock.New(in), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(tended)
		conn.Tend(pingEvery, over)
	}()
	defer func() {
		close(over)
		_ = body.Close() // which ends writes under way
		<-tended
	}()
	go feed(in.fed(conn), program(cmd), cmd.Stdin, body.Interrupt)
	end, err := r.receive(conn)
	if err != nil {
		return 0, r.broken(ctx, body.Fault(err))
	}
	code, err := end.code()
	if err != nil {
		return 0, r.notStarted(ctx, r.fault(err))
	}
	return code, nil
}

// A patient is a connection on which something must come now and then, for its peer answers pings. The time that is not
// spent in reading does not count: it is the caller's writer that takes it. Where the command does not take its input, no
// ping gets through to the peer either, and silence says little.
type patient struct {
	*httpapi.Body
	timer *time.Timer

	mu      sync.Mutex // held for memory operations only
	reading time.Time  // since when something has been waited for; zero: nothing is
	feeding time.Time  // since when a piece of the input has been on its way; zero: none is
}

func newPatient(b *httpapi.Body) *patient {
	p := &patient{Body: b}
	p.timer = time.AfterFunc(silence, p.silent)
	p.timer.Stop()
	return p
}

func (p *patient) silent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.reading.IsZero():
	case time.Since(p.reading) < silence, !p.feeding.IsZero() && time.Since(p.feeding) < stall: // something has just come, or cannot
		p.timer.Reset(silence)
	default:
		p.Interrupt(fmt.Errorf("%w: nothing for %v", httpapi.ErrSilent, silence))
	}
}

func (p *patient) Read(b []byte) (int, error) {
	p.reads(time.Now())
	defer p.reads(time.Time{})
	return p.Body.Read(b)
}

func (p *patient) reads(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading = since; since.IsZero() {
		p.timer.Stop()
	} else {
		p.timer.Reset(silence)
	}
}

// fed returns how a piece of the input is sent.
func (p *patient) fed(conn *wsock.Conn) func(parts ...[]byte) error {
	since := func(t time.Time) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.feeding = t
	}
	return func(parts ...[]byte) error {
		since(time.Now())
		defer since(time.Time{})
		return conn.Write(wsock.Binary, parts...)
	}
}

// feed sends the program and then the standard input. Where that cannot be read to its end, the command must not take what
// it has for all there is: the connection ends.
func feed(send func(parts ...[]byte) error, program string, stdin io.Reader, interrupt func(error)) {
	head := []byte{toStdin}
	for line := []byte(program + "\n"); len(line) > 0; {
		n := min(len(line), chunk)
		if send(head, line[:n]) != nil { // the reader sees it too
			return
		}
		line = line[n:]
	}
	if stdin == nil { // the program does without, and a runtime may drop what it has not passed on when the end comes
		return
	}
	for buf := make([]byte, chunk); ; {
		n, err := stdin.Read(buf)
		if n > 0 && send(head, buf[:n]) != nil {
			return
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			interrupt(fmt.Errorf("standard input: %w", err))
			return
		}
	}
	_ = send([]byte{closes, toStdin})
}

// receive passes output on until the end has been told.
func (r *running) receive(conn *wsock.Conn) (*status, error) {
	for {
		if _, err := conn.Next(); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the stream ended before the command did")
			}
			return nil, err
		}
		var channel [1]byte
		if _, err := io.ReadFull(conn, channel[:]); errors.Is(err, io.EOF) {
			continue // an empty message: servers open with some
		} else if err != nil {
			return nil, err
		}
		var err error
		switch channel[0] {
		case fromStdout:
			_, err = io.Copy(r.out.Stdout, onlyReader{conn})
		case fromStderr:
			_, err = io.Copy(r.out.Stderr, onlyReader{conn})
		case fromStatus:
			return readStatus(conn)
		}
		if err != nil {
			return nil, err
		}
	}
}

// onlyReader hides everything else that a connection can do, such as writing.
type onlyReader struct{ io.Reader }

func readStatus(r io.Reader) (*status, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxStatus+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxStatus {
		return nil, fmt.Errorf("%w: the command's status", httpapi.ErrTooLarge)
	}
	s := &status{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("the command's status cannot be read: %w", err)
	}
	return s, nil
}

// code returns the exit code, or why there is none.
func (s *status) code() (int, error) {
	switch {
	case s.Status == "Success":
		return 0, nil
	case s.Status == "Failure" && s.Reason == "NonZeroExitCode":
		for _, c := range s.Details.Causes {
			if c.Reason != "ExitCode" {
				continue
			}
			if code, err := strconv.Atoi(c.Message); err == nil && code > 0 && code < 256 {
				return code, nil
			}
		}
		return 0, errors.New("the command's status tells no exit code")
	}
	return 0, fmt.Errorf("the command ended with %.40q %.40q: %.300s", s.Status, s.Reason, s.Message)
}

// notStarted says why a command could not be started: the sandbox may be gone, or not run.
func (r *running) notStarted(ctx context.Context, err error) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Kind != nil && !errors.Is(e.Kind, sandbox.ErrUnavailable) && !errors.Is(e.Kind, sandbox.ErrInvalid) {
		return err
	}
	if e.Status == http.StatusForbidden && e.Code == "" {
		e.Err = fmt.Errorf("%s: does the API server speak %s, as it does from Kubernetes 1.30 on?", e.Err, protocol)
		return e
	}
	return r.broken(ctx, err)
}

// broken returns err, or what a look says if the sandbox is gone.
func (r *running) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	lctx, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	if _, gone := r.h.look(lctx, r.op); gone != nil && (errors.Is(gone, sandbox.ErrNotFound) || errors.Is(gone, sandbox.ErrConflict)) {
		return gone
	}
	return err
}
