package docker

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A call is what the official client does not return of one request: when it was sent, and the answer's status and date.
type call struct {
	sent time.Time

	mu     sync.Mutex
	left   bool // a connection was there, so that the request may have reached the engine
	status int
	date   time.Time
	end    time.Time
	retry  time.Duration
}

type callKey struct{}

// watch returns a context whose request is noted in the call.
func watch(ctx context.Context) (context.Context, *call) {
	c := &call{sent: time.Now()}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.left = true
	}})
	return context.WithValue(ctx, callKey{}, c), c
}

func (c *call) answered(resp *http.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if path.Base(resp.Request.URL.Path) != "_ping" { // may be the client's own, ahead of the request proper
		c.status = resp.StatusCode
	}
	c.end = time.Now()
	if s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31); err == nil { // of a proxy; engines have none
		c.retry = time.Duration(s) * time.Second
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		c.date = date
	}
}

// asOf is the engine's clock at the answer, in whole seconds, else the time at which the request was sent.
func (c *call) asOf() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() {
		return c.sent
	}
	return c.date
}

// middle is our clock half-way between request and answer.
func (c *call) middle() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end.IsZero() {
		c.end = time.Now()
	}
	return c.sent.Add(c.end.Sub(c.sent) / 2)
}

// seen returns the answer's status, 0 if there was none, and whether the request may have reached the engine.
func (c *call) seen() (status int, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status, c.left
}

func (c *call) retryAfter() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.retry
}

// statusOf is the status behind the official client's error class, for a client that [observe] is not part of.
func statusOf(err error) int {
	switch {
	case errdefs.IsNotFound(err):
		return http.StatusNotFound
	case errdefs.IsConflict(err):
		return http.StatusConflict
	case errdefs.IsInvalidArgument(err):
		return http.StatusBadRequest
	case errdefs.IsUnauthorized(err):
		return http.StatusUnauthorized
	case errdefs.IsPermissionDenied(err):
		return http.StatusForbidden
	case errdefs.IsUnavailable(err):
		return http.StatusServiceUnavailable
	case errdefs.IsInternal(err):
		return http.StatusInternalServerError
	}
	return 0
}

func kindOf(status int) error {
	switch status {
	case http.StatusBadRequest:
		return sandbox.ErrInvalid
	case http.StatusUnauthorized:
		return sandbox.ErrUnauthenticated
	case http.StatusForbidden:
		return sandbox.ErrPermission
	case http.StatusNotFound:
		return sandbox.ErrNotFound
	case http.StatusConflict:
		return sandbox.ErrConflict
	case http.StatusTooManyRequests:
		return sandbox.ErrRateLimited
	case http.StatusServiceUnavailable:
		return sandbox.ErrUnavailable
	}
	return nil
}

const noEngine = "no Docker engine answers there: start one, or point DOCKER_HOST (or Config.Host) to one"

// fail returns the error of one request, as the contract wants it: what ctx ended is the cause of its end, all else an
// [*sandbox.APIError]. Refused is left to those who know what the request would have done.
func (p *Provider) fail(ctx context.Context, c *call, op sandbox.Op, id string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.apiError(c, op, id, err)
}

func (p *Provider) apiError(c *call, op sandbox.Op, id string, err error) *sandbox.APIError {
	if known, ok := errors.AsType[*sandbox.APIError](err); ok {
		return known
	}
	e := &sandbox.APIError{Provider: p.name, Op: op, ID: id, RetryAfter: c.retryAfter(), Err: words{err}}
	e.Status, _ = c.seen()
	if e.Status < 400 { // the answer was not seen, or its body was at fault
		e.Status = statusOf(err)
	}
	e.Kind = kindOf(e.Status)
	if client.IsErrConnectionFailed(err) {
		e.Status, e.Kind = 0, sandbox.ErrUnavailable
		if _, left := c.seen(); !left {
			e.Message = noEngine
		}
	}
	return e
}

// words is an error of the official client, cut to a readable length and without the request's address.
type words struct{ error }

func (w words) Error() string {
	said := strings.TrimPrefix(w.error.Error(), "Error response from daemon: ")
	if u, ok := errors.AsType[*url.Error](w.error); ok {
		said = u.Err.Error()
	}
	const most = 400
	if len(said) > most {
		said = strings.ToValidUTF8(said[:most], "") + " ..."
	}
	return said
}

func (w words) Unwrap() error { return w.error }

// refused returns err as the engine's certain word that nothing was made or begun.
func refused(err error) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		return err
	}
	no := *e
	no.Refused = true
	return &no
}

// refuse returns an error about a request that was not sent.
func (p *Provider) refuse(op sandbox.Op, kind error, err error) error {
	return &sandbox.APIError{Provider: p.name, Op: op, Refused: true, Kind: kind, Err: err}
}
