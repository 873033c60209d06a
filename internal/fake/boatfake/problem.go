package boatfake

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// problem is an answer that says no.
type problem struct {
	status  int
	code    string // empty: made of the status
	message string
	details map[string]any
	wait    time.Duration // for Retry-After, which the service is not known to send
}

func (p *problem) Error() string { return fmt.Sprintf("%d %s: %s", p.status, p.code, p.message) }

// refusal makes a problem of a status and a code, both of which the service is known for, unless it is said otherwise.
func refusal(status int, code, format string, args ...any) *problem {
	return &problem{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// with adds a detail.
func (p *problem) with(key string, value any) *problem {
	d := maps.Clone(p.details)
	if d == nil {
		d = map[string]any{}
	}
	d[key] = value
	return &problem{p.status, p.code, p.message, d, p.wait}
}

// invalid is a 400 whose code nobody has told.
func invalid(format string, args ...any) *problem {
	return refusal(http.StatusBadRequest, "invalid_request", format, args...)
}

func notFound() *problem { return refusal(http.StatusNotFound, "not_found", "not_found") }

func forbidden(message string) *problem {
	return refusal(http.StatusForbidden, "forbidden", "%s", message)
}

func actionForbidden(action string) *problem {
	p := refusal(http.StatusForbidden, "api_key_action_forbidden", "This API key is not allowed to use %s", action)
	return p.with("action", action)
}

func starting() *problem {
	return refusal(http.StatusConflict, "boat_starting", "The sandbox is still starting").with("retryable", true)
}

// notReady is the refusal of what needs a machine that runs.
func (s *Server) notReady(state string) *problem {
	if s.Quirks().OldNotReady {
		return refusal(http.StatusConflict, "machine_not_running", "The machine is not running")
	}
	p := refusal(http.StatusConflict, "sandbox_not_ready", "The sandbox is %s", state)
	return p.with("retryable", false).with("state", state)
}

func unreachable() *problem {
	return refusal(http.StatusBadGateway, "boat_direct_failed", "The machine did not answer; the command may be running")
}

// codes are those of statuses where nobody says another. Those of 402, 500 and 504 are guesses.
var codes = map[int]string{
	http.StatusBadRequest: "invalid_request", http.StatusUnauthorized: "unauthorized", http.StatusPaymentRequired: "payment_required",
	http.StatusForbidden: "forbidden", http.StatusNotFound: "not_found", http.StatusConflict: "conflict",
	http.StatusTooManyRequests: "rate_limited", http.StatusInternalServerError: "internal_error",
	http.StatusBadGateway: "gateway_error", http.StatusServiceUnavailable: "out_of_capacity",
}

// envelope is the body of a problem's answer.
func (s *Server) envelope(p *problem) any {
	code := cmp.Or(p.code, codes[p.status], "error")
	if s.Quirks().FlatErrors {
		return map[string]any{"error": code, "message": p.message}
	}
	details := map[string]any{"error": code}
	if p.message != code {
		details["message"] = p.message
	}
	maps.Copy(details, p.details)
	return map[string]any{
		"ok": false, "type": "sandbox.error", "status": p.status, "code": code, "message": p.message,
		"error":     map[string]any{"code": code, "message": p.message, "status": p.status, "details": details},
		"requestId": "req_" + randomHex(),
	}
}

// problem makes an error of a handler's or of the state machine's an answer. What is no answer breaks the connection.
func (c *call) problem(s *Server, err error) (int, any) {
	p := translate(err)
	if p == nil {
		panic(http.ErrAbortHandler)
	}
	if p.wait > 0 {
		c.header.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.wait.Seconds()))))
	}
	return p.status, s.envelope(p)
}

// translate puts an error as the service would; nil: it does not answer at all.
func translate(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Status < 400 {
		return nil
	}
	p := &problem{status: e.Status, code: e.Code, message: cmp.Or(e.Message, http.StatusText(e.Status)), wait: e.RetryAfter}
	switch e.Code {
	case "not_found":
		return notFound()
	case "quota":
		p.code = "limit_reached"
	case "image_unknown":
		return unknownSnapshot(e.Message)
	case "forbidden":
		return actionForbidden("sandbox.delete-own")
	case "starting":
		return refusal(http.StatusConflict, "save_in_progress", "The sandbox is busy").with("retryable", true)
	case "machine_unreachable":
		return unreachable()
	case "timeout_invalid":
		p.code = ""
	case "internal":
		p.code = "internal_error"
	}
	return p
}
