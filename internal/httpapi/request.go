package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// ErrTooLarge is matched by the error of an answer that is longer than its limit.
var ErrTooLarge = errors.New("the answer is too large")

// ErrSilent is matched by the error of a stream that brought nothing for longer than its limit.
var ErrSilent = errors.New("the stream has fallen silent")

// A Request is one exchange. Op, Method and Path are required.
type Request struct {
	Op     sandbox.Op
	ID     string // the sandbox that errors name; empty: none
	Method string

	// Path follows the base URL's. It is escaped already: [url.PathEscape] is for the parts that are not constant.
	Path  string
	Query string // encoded, without '?': [url.Values.Encode], or what the service wants instead

	// Base takes the place of the client's base URL. Its host gets nothing of Config.Header unless it is the same one.
	Base *url.URL

	Header  http.Header // in addition to Config.Header, over which it goes
	Secrets []string    // that this exchange knows and errors must not show, such as tokens in Header and variables in Body

	Body   any       // sent as JSON; nil: no body
	Stream io.Reader // sent as it comes, in place of Body; a Content-Type must be in Header. It may hang: the request does not

	OK  []int // statuses of success; empty: every one from 200 to 299
	Out any   // a pointer that the answer is decoded into, as JSON; nil: the answer's body is not read

	Rules   Rules         // what failures of this request mean, ahead of Config.Rules
	Timeout time.Duration // for the exchange; with Open until the answer's header is there. 0: Config.Timeout; negative: none
	MaxBody int64         // bytes of the answer; 0: DefaultMaxBody

	// Idle is for Open: how long neither side of the exchange may bring a byte, once the request is under way. The time
	// that Stream or the reader of the answer take does not count. 0: without limit.
	Idle time.Duration
}

// An Answer is what came back, beside its body.
type Answer struct {
	Status int
	Header http.Header
	Sent   time.Time // by our clock, when the request was about to leave
	Came   time.Time // by our clock, when the answer's header was there
	Date   time.Time // the service's Date header; zero: it sent none
}

// AsOf returns the service's clock at the answer, up to a second and the way back behind: see the package comment.
// Where the service tells no time it is Sent.
func (a Answer) AsOf() time.Time {
	if a.Date.IsZero() {
		return a.Sent
	}
	return a.Date
}

// Skew returns the service's clock minus ours, to the second, unless the service tells no time.
func (a Answer) Skew() (skew time.Duration, known bool) {
	if a.Date.IsZero() {
		return 0, false
	}
	middle := a.Sent.Add(a.Came.Sub(a.Sent) / 2)
	return a.Date.Add(500 * time.Millisecond).Sub(middle).Round(time.Second), true
}

// An optional method of what Request.Out points to: it reports what is missing or wrong after decoding.
type validator interface{ Validate() error }

// Do makes one exchange. When ctx ends, the error is its cause; every other error is an [*sandbox.APIError]. Refused is
// set if the request is sure not to have left, and where the rules say so.
//
// A 2xx whose body cannot be read is an error with that Status: the service did what was asked, and what it said of it
// is lost.
func (c *Client) Do(ctx context.Context, req Request) (Answer, error) {
	limit := req.Timeout
	if limit == 0 {
		limit = c.cfg.Timeout
	}
	actx, cancel := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		actx, cancel = context.WithTimeoutCause(ctx, limit, noAnswer(limit))
	}
	defer cancel()
	stream, release := piped(actx, req.Stream, newIdle(0, nil))
	req.Stream = stream
	defer release()
	resp, ans, err := c.send(ctx, actx, req)
	if err != nil {
		return ans, err
	}
	defer func() { _ = resp.Body.Close() }()
	if req.Out == nil {
		// What little there may be is read, so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
		return ans, nil
	}
	most := req.MaxBody
	if most <= 0 {
		most = DefaultMaxBody
	}
	body, err := readAll(resp.Body, most)
	if err == nil {
		err = decode(ans.Header, body, req.Out)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ans, context.Cause(ctx)
		}
		if actx.Err() != nil {
			err = context.Cause(actx)
		}
		e := c.fault(req, err)
		e.Status, e.RequestID = ans.Status, requestID(ans.Header)
		return ans, e
	}
	return ans, nil
}

func noAnswer(limit time.Duration) error {
	return fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded)
}

// readAll reads at most most bytes.
func readAll(r io.Reader, most int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(body)) > most {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)
	}
	return body, err
}

// decode reads JSON, of which unknown fields are allowed.
func decode(h http.Header, body []byte, out any) error {
	if t := h.Get("Content-Type"); t != "" && !strings.Contains(t, "json") {
		return fmt.Errorf("the answer is %s, not JSON: is the base URL right, or does a proxy answer?", contentType(h))
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	if v, ok := out.(validator); ok {
		if err := v.Validate(); err != nil {
			return fmt.Errorf("the answer cannot be right: %w", err)
		}
	}
	return nil
}

// send sends one request and returns an answer of success, its body unread. ctx is the caller's, actx the attempt's.
func (c *Client) send(ctx, actx context.Context, req Request) (*http.Response, Answer, error) {
	ans := Answer{Sent: time.Now()}
	if ctx.Err() != nil { // nothing has left
		e := c.fault(req, context.Cause(ctx))
		e.Refused = true
		return nil, ans, e
	}
	var left atomic.Bool // a connection was there, so that something may have left
	tctx := httptrace.WithClientTrace(actx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { left.Store(true) }})
	r, err := c.build(tctx, req)
	if err != nil {
		e := c.fault(req, err)
		e.Kind, e.Refused = sandbox.ErrInvalid, true
		return nil, ans, e
	}
	if c.cfg.Count != nil {
		c.cfg.Count(req.Op)
	}
	resp, err := c.http.Do(r)
	ans.Came = time.Now()
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	c.log(ctx, req, status, ans.Came.Sub(ans.Sent), err)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ans, context.Cause(ctx)
		}
		if actx.Err() != nil {
			err = context.Cause(actx)
		}
		e := c.fault(req, err)
		e.Kind, e.Refused = sandbox.ErrUnavailable, !left.Load() && neverLeft(err)
		return nil, ans, e
	}
	ans.Status, ans.Header = status, resp.Header
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		ans.Date = date
	}
	if req.accepts(status) {
		return resp, ans, nil
	}
	body, _ := readAll(resp.Body, maxErrorBody) // a body that breaks off is not of the service's form
	_ = resp.Body.Close()
	return nil, ans, c.failure(req, ans, body)
}

func (r Request) accepts(status int) bool {
	if len(r.OK) == 0 {
		return status >= 200 && status <= 299
	}
	return slices.Contains(r.OK, status)
}

func (c *Client) build(ctx context.Context, req Request) (*http.Request, error) {
	base := c.base
	if req.Base != nil {
		base = req.Base
	}
	target := base.String() + req.Path
	if req.Query != "" {
		target += "?" + req.Query
	}
	var body io.Reader
	header := http.Header{}
	switch {
	case req.Stream != nil:
		body = req.Stream
	case req.Body != nil:
		b, err := Encode(req.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
		header.Set("Content-Type", "application/json")
	}
	r, err := http.NewRequestWithContext(ctx, req.Method, target, body)
	if err != nil {
		return nil, err
	}
	header.Set("User-Agent", c.agent)
	header.Set("Accept", "application/json")
	if base.Host == c.base.Host && base.Scheme == c.base.Scheme {
		for name, values := range c.cfg.Header {
			header[name] = slices.Clone(values)
		}
	}
	for name, values := range req.Header {
		header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	r.Header = header
	return r, nil
}

// Encode returns v in JSON as it is sent: on one line, with no character escaped that JSON allows.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// neverLeft reports whether err says that no connection came about, so that no byte of a request has left.
func neverLeft(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func (c *Client) log(ctx context.Context, req Request, status int, took time.Duration, err error) {
	if !c.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{
		slog.String("provider", c.cfg.Provider), slog.String("op", string(req.Op)), slog.String("sandbox_id", req.ID),
		slog.String("method", req.Method), slog.String("path", c.scrubberOf(req).clean(req.Path)),
		slog.Int("status", status), slog.Duration("took", took),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", c.scrubberOf(req).error(err)))
	}
	c.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "request", attrs...)
}
