package vercel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Codes of the service that decide something here.
const (
	codeStopped      = "sandbox_stopped"
	codeStopping     = "sandbox_stopping"
	codeSnapshotting = "sandbox_snapshotting"
	codeTimeout      = "sandbox_timeout_invalid" // longer than the plan allows, from the session's start
	codeNoProgram    = "executable_not_found"
	codeBadToken     = "invalid_token" // ours, for what the service says of a token in another field
)

// Tables of what a failure means. The three words for a session that is over or on its way count whatever the status.
var (
	common = httpapi.Rules{
		{Code: codeBadToken, Kind: sandbox.ErrUnauthenticated},
		{Code: codeStopped, Kind: sandbox.ErrConflict},
		{Code: codeStopping, Kind: sandbox.ErrConflict},
		{Code: codeSnapshotting, Kind: sandbox.ErrConflict},
		{Status: http.StatusPaymentRequired, Kind: sandbox.ErrPermission},
		{Status: http.StatusGone, Kind: sandbox.ErrConflict},
	}

	// noSandbox is for requests that name no sandbox: a 404 there is a wrong team, project or base URL.
	noSandbox = httpapi.Rules{{Status: http.StatusNotFound, Kind: sandbox.ErrInvalid}}

	// creating knows the refusals of a create. A 400 and a 409 are not among them: they are also what a name that is taken
	// gets, be it by an earlier request of ours. See refusal.
	creating = httpapi.Rules{
		{Code: codeBadToken, Kind: sandbox.ErrUnauthenticated, Refused: true},
		{Status: http.StatusBadRequest, Code: codeTimeout, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusUnauthorized, Kind: sandbox.ErrUnauthenticated, Refused: true},
		{Status: http.StatusPaymentRequired, Kind: sandbox.ErrPermission, Refused: true},
		{Status: http.StatusForbidden, Kind: sandbox.ErrPermission, Refused: true},
		{Status: http.StatusNotFound, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusGone, Kind: sandbox.ErrInvalid, Refused: true}, // a snapshot that is no longer there
		{Status: http.StatusTooManyRequests, Kind: sandbox.ErrQuota, Refused: true},
	}

	// inside is for what a session does not find: a command or a file, unless it is the session itself.
	inside = httpapi.Rules{{Status: http.StatusNotFound}}
)

// parseFailure reads {"error": {"code": ..., "message": ...}}.
//
// Of a token that it does not accept the service says no more than "forbidden", as it does of what a good token may not
// do. It is known from its other APIs to add a field for the first; without that, a 403 is a missing permission.
func parseFailure(status int, _ http.Header, body []byte) (code, message string, ok bool) {
	var f struct {
		Error *struct {
			Code         json.RawMessage `json:"code"`
			Message      string          `json:"message"`
			InvalidToken bool            `json:"invalidToken"`
			MissingToken bool            `json:"missingToken"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &f) != nil || f.Error == nil {
		return "", "", false
	}
	_ = json.Unmarshal(f.Error.Code, &code) // a number would be the status
	if status == http.StatusForbidden && (f.Error.InvalidToken || f.Error.MissingToken) {
		code = codeBadToken
	}
	return code, f.Error.Message, code != "" || f.Error.Message != ""
}

// query returns a query of the team and the given names and values, of which empty ones are left out.
func (p *Provider) query(pairs ...string) string {
	var b strings.Builder
	b.WriteString("teamId=" + url.QueryEscape(p.team))
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			b.WriteString("&" + pairs[i] + "=" + url.QueryEscape(pairs[i+1]))
		}
	}
	return b.String()
}

// prepare gives req a token and, unless it has one, the query that every request has.
func (p *Provider) prepare(ctx context.Context, req *httpapi.Request) error {
	token, err := p.token(ctx, req.Op, req.ID)
	if err != nil {
		return err
	}
	header := http.Header{"Authorization": {"Bearer " + token}}
	for k, v := range req.Header {
		header[k] = v
	}
	req.Header, req.Secrets = header, append(req.Secrets[:len(req.Secrets):len(req.Secrets)], token)
	if req.Query == "" {
		req.Query = p.query()
	}
	return nil
}

// do makes one request, and says of its failure what to do about it.
func (p *Provider) do(ctx context.Context, req httpapi.Request) (httpapi.Answer, error) {
	if err := p.prepare(ctx, &req); err != nil {
		return httpapi.Answer{}, err
	}
	ans, err := p.api.Do(ctx, req)
	return ans, p.advise(req, ans.Header, err)
}

// open is do for an answer that is read as it comes.
func (p *Provider) open(ctx context.Context, req httpapi.Request) (*httpapi.Body, error) {
	if err := p.prepare(ctx, &req); err != nil {
		return nil, err
	}
	body, err := p.api.Open(ctx, req)
	return body, p.advise(req, nil, err)
}

// advise adds to a failure what to do about it.
func (p *Provider) advise(req httpapi.Request, header http.Header, err error) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		return err
	}
	switch {
	case e.Status >= 200 && e.Status <= 299 && strings.Contains(header.Get("Content-Type"), "html"):
		e.Kind, e.Refused = sandbox.ErrInvalid, true
		e.Err = errors.New("a page for people is no answer of the API: is the base URL right?")
	case e.Kind == nil || e.Err != nil:
	case e.Kind == sandbox.ErrUnauthenticated, e.Status == http.StatusForbidden:
		e.Err = p.tokenHint(req, e)
	case e.Status == http.StatusPaymentRequired:
		e.Err = errors.New("the account has no payment method, or its plan does not include this")
	case e.Status == http.StatusNotFound && e.Kind == sandbox.ErrInvalid && req.Op != sandbox.OpCreate:
		e.Err = fmt.Errorf("are team %s, project %s and the base URL right?", p.team, p.project)
	}
	return err
}

func (p *Provider) tokenHint(req httpapi.Request, e *sandbox.APIError) error {
	token, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	switch late := readClaims(token).expired(time.Now()); {
	case late > 0:
		return fmt.Errorf("the OIDC token expired %v ago: set Config.Tokens to a source that renews it", late.Round(time.Second))
	case e.Kind == sandbox.ErrUnauthenticated:
		return errors.New("is the token right, and still valid?")
	case req.Op == sandbox.OpDelete:
		return errors.New("may the token not delete? Make one that may, and delete what this one has made: its lease ends" +
			" the session, but the record stays")
	}
	return fmt.Errorf("may the token do this in team %s and project %s, and is it still valid?", p.team, p.project)
}

// refuse returns the error of something that was not asked of the service.
func (p *Provider) refuse(op sandbox.Op, id string, kind, err error) error {
	return p.api.Refuse(op, id, kind, err)
}

// failed returns the error of an answer that is no use.
func (p *Provider) failed(op sandbox.Op, id string, kind, err error) error {
	return &sandbox.APIError{Provider: p.name, Op: op, ID: id, Kind: kind, Err: err}
}

// said returns the service's own word in err: nil if it has said nothing, or nothing that is certain to be its own.
func said(err error) *sandbox.APIError {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Kind == nil || e.Status == 0 {
		return nil
	}
	return e
}

// refused reports whether err says for certain that nothing was done: by the service's own word, or since the request has
// not left.
func refused(err error) bool {
	e, ok := errors.AsType[*sandbox.APIError](err)
	return ok && (e.Status == 0 && e.Refused || e.Status >= 400 && e.Status <= 499 && e.Kind != nil)
}

// isOver reports whether err says that a session is over or ending, or that there is none.
func isOver(err error) bool {
	e := said(err)
	if e == nil {
		return false
	}
	switch e.Code {
	case codeStopped, codeStopping, codeSnapshotting:
		return true
	}
	return e.Status == http.StatusNotFound || e.Status == http.StatusGone
}

// isGone reports whether err says that a session has ended for good, or that there is none.
func isGone(err error) bool {
	e := said(err)
	return e != nil && (e.Status == http.StatusNotFound || e.Status == http.StatusGone || e.Code == codeStopped)
}
