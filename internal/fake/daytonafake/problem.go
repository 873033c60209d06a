package daytonafake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// problem is an answer that says no.
type problem struct {
	status  int
	code    string // empty: made of the status
	message string
	wait    time.Duration // for Retry-After
}

func (p *problem) Error() string { return fmt.Sprintf("%d %s", p.status, p.message) }

func invalid(format string, args ...any) error {
	return &problem{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

func conflict(format string, args ...any) error {
	return &problem{status: http.StatusConflict, message: fmt.Sprintf(format, args...)}
}

func unknown(idOrName string) error {
	return &problem{status: http.StatusNotFound, message: "Sandbox with ID or name " + idOrName + " not found"}
}

// cannot is the answer of a server that has no such route.
func cannot(r *http.Request) error {
	return &problem{status: http.StatusNotFound, message: "Cannot " + r.Method + " " + r.URL.Path}
}

var errPending = &problem{status: http.StatusConflict, message: "Sandbox state change in progress"}

// problem makes an error an answer. What is no answer breaks the connection.
func (s *Server) problem(c *call, p plane, err error) (int, any) {
	at := s.translate(c, err)
	if at == nil {
		panic(http.ErrAbortHandler)
	}
	source := "DAYTONA_API"
	switch {
	case p == toolbox && at.status == http.StatusUnauthorized, p == toolbox && at.status == http.StatusBadGateway:
		source = "DAYTONA_PROXY"
	case p == toolbox:
		source = "DAYTONA_DAEMON"
	}
	if at.status == http.StatusTooManyRequests {
		s.limit(c, at.wait)
	}
	body := map[string]any{
		"path": c.URL.Path, "method": c.Method, "timestamp": stamp(s.svc.Now()), "statusCode": at.status,
		"message": at.message, "source": source,
		"code": cmp.Or(at.code, strings.ReplaceAll(strings.ToUpper(http.StatusText(at.status)), " ", "_")),
	}
	if p != toolbox {
		body["error"] = http.StatusText(at.status)
	}
	return at.status, body
}

// translate puts an error of the state machine as the service would; nil: no answer at all.
func (s *Server) translate(c *call, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Status == 0 || errors.Is(err, context.Canceled) {
		return nil
	}
	p := &problem{status: e.Status, message: cmp.Or(e.Message, http.StatusText(e.Status)), wait: e.RetryAfter}
	switch {
	case errors.Is(e.Kind, sandbox.ErrQuota): // quotas are 400 here, and only rates are 429
		p.status, p.message = http.StatusBadRequest, "Total CPU limit exceeded. "+e.Message
	case e.Code == "image_unknown":
		p.message = "Snapshot not found: " + e.Message
	case e.Code == "starting" || e.Code == "ending":
		return errPending
	case e.Status == http.StatusForbidden:
		p.message = "Forbidden resource"
	case e.Status == http.StatusNotFound && e.Message == "":
		p.message = unknown(c.PathValue("id")).(*problem).message
	}
	return p
}

// limit sets the headers of a 429, whose names end in the group of the limit.
func (s *Server) limit(c *call, wait time.Duration) {
	group := "authenticated"
	switch c.log.Operation() {
	case "createSandbox", "forkSandbox":
		group = "sandbox-create"
	case "deleteSandbox", "startSandbox", "stopSandbox", "pauseSandbox", "archiveSandbox", "recoverSandbox":
		group = "sandbox-lifecycle"
	}
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	h := c.out.header
	h.Set("X-RateLimit-Limit-"+group, "300")
	h.Set("X-RateLimit-Remaining-"+group, "0")
	h.Set("X-RateLimit-Reset-"+group, seconds)
	if wait > 0 {
		h.Set("Retry-After-"+group, seconds)
		if s.quirk().PlainRetry {
			h.Set("Retry-After", seconds)
		}
	}
}

// stamp prints a time as JavaScript does.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
