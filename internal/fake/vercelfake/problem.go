package vercelfake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// problem is an answer that says no.
type problem struct {
	status  int
	code    string
	message string
	wait    time.Duration // for Retry-After
	also    string        // a field of the body that is true beside code and message
}

func (p *problem) Error() string { return fmt.Sprintf("%d %s: %s", p.status, p.code, p.message) }

func invalid(format string, args ...any) error {
	return &problem{status: http.StatusBadRequest, code: "bad_request", message: fmt.Sprintf(format, args...)}
}

func forbidden(message string) error {
	return &problem{status: http.StatusForbidden, code: "forbidden", message: message}
}

func noSandbox(ref string) error {
	return &problem{status: http.StatusNotFound, code: "sandbox_not_found", message: "Sandbox " + ref + " was not found"}
}

func notFound(format string, args ...any) error {
	return &problem{status: http.StatusNotFound, code: "not_found", message: fmt.Sprintf(format, args...)}
}

func timeoutInvalid(format string, args ...any) error {
	return &problem{status: http.StatusBadRequest, code: "sandbox_timeout_invalid", message: fmt.Sprintf(format, args...)}
}

// snapshotGone is 410, and so is what stands in the way of a resume.
func snapshotGone(id string) error {
	return &problem{status: http.StatusGone, code: "snapshot_not_found", message: "Snapshot " + id + " has expired or was deleted"}
}

// ofLife is the refusal of a call on a session that is in some status.
func (s *Server) ofLife(status string) error {
	p := &problem{status: http.StatusGone, code: "sandbox_stopped", message: "Sandbox has stopped and is no longer available"}
	switch status {
	case stStopping:
		p = &problem{status: http.StatusUnprocessableEntity, code: "sandbox_stopping", message: "Sandbox is stopping"}
	case stSnapshotting:
		p = &problem{status: http.StatusUnprocessableEntity, code: "sandbox_snapshotting", message: "Sandbox is creating a snapshot"}
	case stPending: // no source tells the code
		return &problem{status: http.StatusUnprocessableEntity, code: "sandbox_not_ready", message: "Sandbox is not ready yet"}
	}
	if s.Quirks().ConflictOfLife {
		p.status = http.StatusConflict
	}
	return p
}

// problem makes an error of a handler's or of the state machine's an answer. What is no answer breaks the connection.
func (c *call) problem(err error) (int, any) {
	p := c.translate(err)
	if p == nil {
		panic(http.ErrAbortHandler)
	}
	if p.wait > 0 {
		c.header.Set("Retry-After", fmt.Sprint(int64((p.wait+time.Second-1)/time.Second)))
	}
	return problemOf(p)
}

func problemOf(p *problem) (int, any) {
	detail := map[string]any{"code": cmp.Or(p.code, codes[p.status]), "message": p.message}
	if p.also != "" {
		detail[p.also] = true
	}
	return p.status, map[string]any{"error": detail}
}

// codes are those of statuses where nobody says another. Most are guesses.
var codes = map[int]string{
	http.StatusBadRequest: "bad_request", http.StatusUnauthorized: "unauthorized", http.StatusPaymentRequired: "payment_required",
	http.StatusForbidden: "forbidden", http.StatusNotFound: "not_found", http.StatusConflict: "conflict",
	http.StatusGone: "sandbox_stopped", http.StatusTooManyRequests: "rate_limited",
	http.StatusInternalServerError: "internal_server_error", http.StatusBadGateway: "bad_gateway",
	http.StatusServiceUnavailable: "service_unavailable",
}

// translate puts an error as the service would; nil: it does not answer at all.
func (c *call) translate(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	e, ok := errors.AsType[*sandbox.APIError](err)
	switch {
	case !ok && errors.Is(err, context.DeadlineExceeded):
		return &problem{status: http.StatusGatewayTimeout, code: "gateway_timeout", message: "The request took too long"}
	case !ok || e.Status < 400:
		return nil
	}
	p := &problem{status: e.Status, code: codes[e.Status], message: cmp.Or(e.Message, http.StatusText(e.Status)), wait: e.RetryAfter}
	switch e.Code {
	case "image_unknown":
		p.message = "Image not found: " + e.Message
	case "ending":
		return c.translate(c.s.ofLife(stStopping))
	case "not_found":
		p.code, p.message = "sandbox_not_found", "Sandbox was not found"
	case "timeout_invalid":
		p.code = "sandbox_timeout_invalid"
	case "quota":
		p.message = "Concurrency limit exceeded: " + e.Message
	case "forbidden", "internal", "rate_limited", "starting", "not_running", "machine_unreachable", "":
	default:
		p.code = e.Code // a fault that somebody chose
	}
	return p
}
