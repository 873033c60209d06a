package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Reasons of the API server's that decide something here.
const (
	reasonExists   = "AlreadyExists"
	reasonConflict = "Conflict"
	reasonInvalid  = "Invalid"
	reasonBusy     = "TooManyRequests"
)

// Tables of what a failure means.
var (
	common = httpapi.Rules{
		{Status: http.StatusGone, Kind: sandbox.ErrUnavailable}, // a list whose cursor has expired: begin anew
		{Status: http.StatusInternalServerError},                // of unknown effect
	}

	// creating knows the refusals of a create. A 409 is not among them: the name may be taken by an earlier request of
	// ours. Nor is anything of 5xx: a request that was given up by the server may have been carried out.
	creating = httpapi.Rules{
		{Status: http.StatusBadRequest, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusUnauthorized, Kind: sandbox.ErrUnauthenticated, Refused: true},
		{Status: http.StatusForbidden, Kind: sandbox.ErrPermission, Refused: true},
		{Status: http.StatusNotFound, Kind: sandbox.ErrInvalid, Refused: true}, // the namespace
		{Status: http.StatusRequestEntityTooLarge, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusUnprocessableEntity, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusTooManyRequests, Kind: sandbox.ErrRateLimited, Refused: true},
	}

	// noSandbox is for requests that name none: a 404 there is a wrong base URL.
	noSandbox = httpapi.Rules{{Status: http.StatusNotFound, Kind: sandbox.ErrInvalid}}

	// inside is for what happens in a sandbox: whether it is there is found out by a look.
	inside = httpapi.Rules{{Status: http.StatusNotFound}}
)

// parseFailure reads a Status, the form of all the API server's failures but one: what it has no time for it turns away
// in plain words, and is known by the number that it gives to every request.
func parseFailure(code int, header http.Header, body []byte) (reason, message string, ok bool) {
	if code == http.StatusTooManyRequests && header.Get("Audit-Id") != "" {
		return reasonBusy, string(body), true
	}
	var s status
	if json.Unmarshal(body, &s) != nil || s.Kind != "Status" {
		return "", "", false
	}
	return s.Reason, s.Message, true
}

// status is what the API server says of a request, and a kubelet of a command.
type status struct {
	Kind    string `json:"kind"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		Causes []struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"causes"`
	} `json:"details"`
}

// prepare gives req the present token.
func (p *Provider) prepare(ctx context.Context, req *httpapi.Request) error {
	if p.tokens == nil {
		return nil
	}
	token, err := p.tokens(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return p.refuse(req.Op, req.ID, sandbox.ErrUnauthenticated, fmt.Errorf("no token: %w", err))
	case !sendable(token):
		err := errors.New("a token that is empty, or holds what no token has")
		return p.refuse(req.Op, req.ID, sandbox.ErrUnauthenticated, err)
	}
	header := http.Header{"Authorization": {"Bearer " + token}}
	for k, v := range req.Header {
		header[k] = v
	}
	req.Header, req.Secrets = header, append(req.Secrets[:len(req.Secrets):len(req.Secrets)], token)
	return nil
}

func sendable(token string) bool {
	for _, r := range token {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return token != ""
}

// do makes one request.
func (p *Provider) do(ctx context.Context, req httpapi.Request) (httpapi.Answer, error) {
	if err := p.prepare(ctx, &req); err != nil {
		return httpapi.Answer{}, err
	}
	ans, err := p.api.Do(ctx, req)
	return ans, advise(req, err)
}

// advise adds to a failure what to do about it.
func advise(req httpapi.Request, err error) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Err != nil {
		return err
	}
	switch e.Kind {
	case sandbox.ErrUnauthenticated:
		e.Err = errors.New("is the token still valid, and of this cluster?")
	case sandbox.ErrPermission:
		if req.Op == sandbox.OpDelete {
			e.Err = errors.New("a right is missing, without which only the lease ends what was made")
		}
	case sandbox.ErrInvalid:
		if e.Status == http.StatusNotFound {
			e.Err = errors.New("are the namespace and the base URL right?")
		}
	}
	return err
}

// refuse returns the error of something that was not asked of the service.
func (p *Provider) refuse(op sandbox.Op, id string, kind, err error) error {
	return p.api.Refuse(op, id, kind, err)
}

// failed returns the error of an answer that is no use.
func (p *Provider) failed(op sandbox.Op, id string, kind, err error) error {
	return &sandbox.APIError{Provider: p.name, Op: op, ID: id, Kind: kind, Err: err}
}

// isStatus reports whether err is the API server's own word with the status and, if it is not empty, the reason.
func isStatus(err error, code int, reason string) bool {
	e, ok := errors.AsType[*sandbox.APIError](err)
	return ok && e.Status == code && e.Code != "" && (reason == "" || e.Code == reason)
}
