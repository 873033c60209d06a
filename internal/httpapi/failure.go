package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Rule says what one kind of failure means.
type Rule struct {
	Status  int    // 0: every one
	Code    string // the service's own; empty: every one
	Kind    error  // one of the sentinels of package sandbox, or nil: not classified
	Refused bool   // the service did nothing: for certain
}

// Rules are consulted in order: the first that fits rules.
type Rules []Rule

func (rs Rules) find(status int, code string) (Rule, bool) {
	for _, r := range rs {
		if (r.Status == 0 || r.Status == status) && (r.Code == "" || r.Code == code) {
			return r, true
		}
	}
	return Rule{}, false
}

// general is what the statuses mean where no rule fits.
var general = map[int]error{
	http.StatusBadRequest:          sandbox.ErrInvalid,
	http.StatusUnauthorized:        sandbox.ErrUnauthenticated,
	http.StatusForbidden:           sandbox.ErrPermission,
	http.StatusNotFound:            sandbox.ErrNotFound,
	http.StatusConflict:            sandbox.ErrConflict,
	http.StatusUnprocessableEntity: sandbox.ErrInvalid,
	http.StatusTooManyRequests:     sandbox.ErrRateLimited,
	http.StatusBadGateway:          sandbox.ErrUnavailable,
	http.StatusServiceUnavailable:  sandbox.ErrUnavailable,
	http.StatusGatewayTimeout:      sandbox.ErrUnavailable,
}

// byAnybody are those that mean the same whoever answers.
var byAnybody = map[int]bool{
	http.StatusUnauthorized:       true,
	http.StatusTooManyRequests:    true,
	http.StatusBadGateway:         true,
	http.StatusServiceUnavailable: true,
	http.StatusGatewayTimeout:     true,
}

// A FailureParser reads the body of a failure. ok says that it has the service's form, and so is the service's word.
type FailureParser func(status int, header http.Header, body []byte) (code, message string, ok bool)

// ParseFailure reads {"message": "..."} with a code beside it, under the name "code" or "error_code", a number or a
// word. The word goes before the number, which most services make equal to the status.
func ParseFailure(_ int, _ http.Header, body []byte) (code, message string, ok bool) {
	var f struct {
		Code      json.RawMessage `json:"code"`
		ErrorCode *string         `json:"error_code"`
		Message   *string         `json:"message"`
	}
	if json.Unmarshal(body, &f) != nil || f.Message == nil && f.Code == nil {
		return "", "", false
	}
	var word string
	if json.Unmarshal(f.Code, &word) == nil {
		code = word
	}
	if f.ErrorCode != nil && *f.ErrorCode != "" {
		code = *f.ErrorCode
	}
	if f.Message != nil {
		message = *f.Message
	}
	return code, message, true
}

// failure is the error of an answer that is none of success.
func (c *Client) failure(req Request, ans Answer, body []byte) *sandbox.APIError {
	clean := c.scrubberOf(req)
	e := &sandbox.APIError{
		Provider: c.cfg.Provider, Op: req.Op, ID: req.ID, Status: ans.Status,
		RequestID: clean.short(requestID(ans.Header)), RetryAfter: c.cfg.RetryAfter(ans.Header, ans.AsOf()),
	}
	code, message, own := c.cfg.Failure(ans.Status, ans.Header, body)
	e.Code, e.Message = clean.short(code), clean.short(message)
	rule, ruled := req.Rules.find(ans.Status, code)
	if !ruled {
		rule, ruled = c.cfg.Rules.find(ans.Status, code)
	}
	if !ruled {
		rule = Rule{Kind: general[ans.Status]}
	}
	switch {
	case own:
		e.Kind, e.Refused = rule.Kind, rule.Refused
	case ans.Status >= 300 && ans.Status <= 399:
		e.Err = fmt.Errorf("a redirect%s, which is not followed: is the base URL right?", clean.host(ans.Header.Get("Location")))
	default:
		if byAnybody[ans.Status] {
			e.Kind = general[ans.Status]
		}
		e.Err = fmt.Errorf("not in the service's form (%s): is the base URL right, or does a proxy answer?",
			clean.short(contentType(ans.Header)))
	}
	return e
}

// fault is the error of a request without an answer that could be used.
func (c *Client) fault(req Request, err error) *sandbox.APIError {
	return &sandbox.APIError{Provider: c.cfg.Provider, Op: req.Op, ID: req.ID, Err: c.scrubberOf(req).error(err)}
}

// Refuse returns the error of something that was not asked of the service.
func (c *Client) Refuse(op sandbox.Op, id string, kind, err error) *sandbox.APIError {
	return &sandbox.APIError{Provider: c.cfg.Provider, Op: op, ID: id, Refused: true, Kind: kind, Err: err}
}

func contentType(h http.Header) string {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	if t == "" {
		return "no content type"
	}
	return t
}

func requestID(h http.Header) string {
	for _, name := range []string{"X-Request-Id", "Request-Id", "X-Trace-Id", "X-Vercel-Id", "Cf-Ray"} {
		if id := h.Get(name); id != "" {
			return id
		}
	}
	return ""
}

// maxRetryAfter is where a longer one is cut: no caller waits for so long.
const maxRetryAfter = 24 * time.Hour

// RetryAfter returns how long the service asks to wait: in seconds, or until a date, which is counted from now, the
// service's clock. 0: it does not ask, or not in a form that can be read, or the time is over.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	said := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseUint(said, 10, 32); err == nil {
		return min(time.Duration(s)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(said); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// host returns " to <host>" of an address, without what else may be in it.
func (s scrubber) host(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	return " to " + s.short(u.Host)
}
