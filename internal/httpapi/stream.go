package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Body is the body of an answer that is read as it comes, and after a 101 (Switching Protocols) written to as well. It
// must be closed.
type Body struct {
	Answer

	c      *Client
	req    Request
	ctx    context.Context // the caller's
	sctx   context.Context // the stream's
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	idle   *idle

	release func() // of the request's stream
}

// Open makes one exchange like [Client.Do], and returns once the answer's header is there and of success. Request.Out
// and MaxBody are not used: it is the caller who bounds what he reads.
func (c *Client) Open(ctx context.Context, req Request) (*Body, error) {
	sctx, cancel := context.WithCancelCause(ctx)
	watch := newIdle(req.Idle, func() {
		cancel(fmt.Errorf("%w: nothing for %v", ErrSilent, req.Idle))
	})
	stream, release := piped(sctx, req.Stream, watch)
	req.Stream = stream
	limit := req.Timeout
	if limit == 0 {
		limit = c.cfg.Timeout
	}
	stop := func() bool { return true }
	if limit > 0 {
		timer := time.AfterFunc(limit, func() { cancel(noAnswer(limit)) })
		stop = timer.Stop
	}
	resp, ans, err := c.send(ctx, sctx, req)
	if err == nil && !stop() {
		<-sctx.Done() // the limit came first after all
		_ = resp.Body.Close()
		err = c.fault(req, context.Cause(sctx))
	}
	stop()
	if err != nil {
		watch.stop()
		cancel(nil)
		release()
		return nil, err
	}
	watch.touch()
	if ans.Status == http.StatusSwitchingProtocols { // from here on the connection is ours, and ends with no context
		context.AfterFunc(sctx, func() { _ = resp.Body.Close() })
	}
	return &Body{Answer: ans, c: c, req: req, ctx: ctx, sctx: sctx, cancel: cancel, body: resp.Body, idle: watch, release: release}, nil
}

// Read reads on. Its error is [io.EOF] at the regular end, the cause of the caller's context if that has ended, else an
// [*sandbox.APIError] that matches [sandbox.ErrUnavailable] and, where Request.Idle has passed, [ErrSilent].
func (b *Body) Read(p []byte) (int, error) {
	b.idle.touch()
	n, err := b.body.Read(p)
	b.idle.rest()
	if err == nil || errors.Is(err, io.EOF) { // io.ErrUnexpectedEOF is another
		return n, err
	}
	return n, b.Fault(err)
}

// Write writes to the connection after a 101; otherwise it is an error.
func (b *Body) Write(p []byte) (int, error) {
	w, ok := b.body.(io.Writer)
	if !ok {
		return 0, b.Fault(errors.New("the stream goes one way only"))
	}
	b.idle.touch()
	n, err := w.Write(p)
	if err != nil {
		return n, b.Fault(err)
	}
	return n, nil
}

// Fault returns the error of a stream that has failed with err, which may be the reader's own finding: as Read does.
func (b *Body) Fault(err error) error {
	if known, ok := errors.AsType[*sandbox.APIError](err); ok {
		return known
	}
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	if cause := context.Cause(b.sctx); cause != nil {
		err = cause
	}
	e := b.c.fault(b.req, err)
	e.Kind, e.RequestID = sandbox.ErrUnavailable, requestID(b.Header)
	return e
}

// Interrupt makes Read return with an error soon. It may be called from another goroutine.
func (b *Body) Interrupt(cause error) { b.cancel(cause) }

// Close ends the exchange. It may be called more than once.
func (b *Body) Close() error {
	b.idle.stop()
	b.cancel(nil)
	b.release()
	return b.body.Close()
}

// piped returns r as a request's body in which no Read outlasts ctx: a transport waits for a Read under way when a
// request is given up, and a caller's reader may hang. What then hangs is a goroutine, until the reader returns. A reader
// of what is in memory is returned as it is.
func piped(ctx context.Context, r io.Reader, watch *idle) (body io.Reader, release func()) {
	switch r.(type) {
	case nil, *bytes.Reader, *strings.Reader, *bytes.Buffer:
		return r, func() {}
	}
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, busyReader{r, watch})
		_ = pw.CloseWithError(err) // nil is the regular end
	}()
	over := func() { _ = pr.CloseWithError(errors.New("the request is over")) }
	stop := context.AfterFunc(ctx, over)
	return pr, func() { stop(); over() }
}

// Failure returns the error of a failure that came in another way than as an answer's status, such as at the end of a
// stream: with the rules that hold for a status of that kind.
func (c *Client) Failure(req Request, header http.Header, status int, body []byte) *sandbox.APIError {
	return c.failure(req, Answer{Status: status, Header: header, Sent: time.Now()}, body)
}

// An idle calls out when nothing has moved for a while. What others take is not counted.
type idle struct {
	limit time.Duration

	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

func newIdle(limit time.Duration, out func()) *idle {
	i := &idle{limit: limit, over: limit <= 0}
	if limit > 0 {
		i.timer = time.AfterFunc(limit, out)
	}
	return i
}

// touch starts the time anew.
func (i *idle) touch() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.over {
		i.timer.Reset(i.limit)
	}
}

// rest stops it until the next touch.
func (i *idle) rest() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.over {
		i.timer.Stop()
	}
}

func (i *idle) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.over {
		i.over = true
		i.timer.Stop()
	}
}

// A busyReader is a request's body: while its reader is waited for, nothing is idle.
type busyReader struct {
	r    io.Reader
	idle *idle
}

func (b busyReader) Read(p []byte) (int, error) {
	b.idle.rest()
	n, err := b.r.Read(p)
	b.idle.touch()
	return n, err
}
