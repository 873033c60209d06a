package daytona

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// noFile is the machine's code for a path at which there is nothing.
const noFile = "FILE_NOT_FOUND"

// Tables of what a failure means, by operation. Everywhere else the statuses mean what they mean in general.
var (
	// noSandbox is for requests that name no sandbox: a 404 there is a wrong base URL.
	noSandbox = httpapi.Rules{{Status: http.StatusNotFound, Kind: sandbox.ErrInvalid}}

	// creating knows the refusals of a create. A 400 is none: it is also what a create says of a sandbox that was made
	// and then did not start, and of quotas, and of images that are not there, all without a code.
	creating = httpapi.Rules{
		{Status: http.StatusUnauthorized, Kind: sandbox.ErrUnauthenticated, Refused: true},
		{Status: http.StatusForbidden, Kind: sandbox.ErrPermission, Refused: true},
		{Status: http.StatusNotFound, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusTooManyRequests, Kind: sandbox.ErrRateLimited, Refused: true},
	}

	// inside is for requests to the machine. A 404 there may be a file's, a session's or a command's as well as that of a
	// proxy which knows no such sandbox: who needs to know asks the control plane.
	inside = httpapi.Rules{{Status: http.StatusNotFound}}
)

// parseFailure reads a failure of the control plane, the proxy or the machine.
func parseFailure(_ int, _ http.Header, body []byte) (code, message string, ok bool) {
	var f struct {
		StatusCode *int            `json:"statusCode"`
		Code       json.RawMessage `json:"code"`
		ErrorCode  json.RawMessage `json:"error_code"`
		Message    json.RawMessage `json:"message"`
		Error      json.RawMessage `json:"error"`
		Errors     []string        `json:"errors"` // of an upload
	}
	if json.Unmarshal(body, &f) != nil {
		return "", "", false
	}
	word := func(raw json.RawMessage) string {
		var s string
		_ = json.Unmarshal(raw, &s)
		return s
	}
	code = cmp.Or(word(f.Code), word(f.ErrorCode))
	message = cmp.Or(word(f.Message), word(f.Error), strings.Join(f.Errors, "; "))
	return code, message, message != "" || code != "" || f.StatusCode != nil
}

// do makes one request, and says of its failure what to do about it.
func (p *Provider) do(ctx context.Context, req httpapi.Request) (httpapi.Answer, error) {
	req.Secrets = append(req.Secrets, p.secret)
	ans, err := p.api.Do(ctx, req)
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		return ans, err
	}
	switch {
	case e.Status >= 200 && e.Status <= 299 && strings.Contains(ans.Header.Get("Content-Type"), "html"):
		// The dashboard's page, which the service's host shows for every path that is not the API's.
		e.Kind, e.Refused = sandbox.ErrInvalid, true
		e.Err = errors.New("a page for people is no answer of the API: does the base URL end with /api?")
	case e.Op == sandbox.OpCreate && req.Method == http.MethodPost && e.Status == http.StatusNotFound:
		e.Err = errors.New("there is no API: does the base URL end with /api?")
	case e.Op == sandbox.OpDelete && e.Status == http.StatusForbidden && e.Kind != nil:
		e.Err = errors.New("does the key lack delete:sandboxes? Make one that has it, and delete what this one has made")
	}
	return ans, err
}

// open is do for an answer that is read as it comes.
func (p *Provider) open(ctx context.Context, req httpapi.Request) (*httpapi.Body, error) {
	req.Secrets = append(req.Secrets, p.secret)
	return p.api.Open(ctx, req)
}

// retryAfter also reads the header that is named after the group of requests that were too many, in seconds, such as
// Retry-After-sandbox-create.
func retryAfter(header http.Header, now time.Time) time.Duration {
	longest := httpapi.RetryAfter(header, now)
	for name, values := range header {
		if strings.HasPrefix(name, "Retry-After-") && len(values) > 0 {
			longest = max(longest, httpapi.RetryAfter(http.Header{"Retry-After": values}, now))
		}
	}
	return longest
}

// refuse returns the error of something that was not asked of the service.
func (p *Provider) refuse(op sandbox.Op, id string, kind, err error) error {
	return p.api.Refuse(op, id, kind, err)
}

// isID reports whether id can be a sandbox's: the service gives UUIDs, and what it may give one day has no characters
// that mean something in a path.
func isID(id string) bool {
	return id != "" && len(id) <= 128 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// isUUID reports whether id has the form of a UUID, which no name has that anybody would choose.
func isUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i, c := range []byte(id) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

func (p *Provider) noSuch(op sandbox.Op, id string) error {
	return p.refuse(op, id, sandbox.ErrNotFound, errors.New("not a sandbox's id"))
}

// sure returns an error unless id is a sandbox's id, and not its name: the service takes both, and a name says nothing
// of the sandbox that had it before. An id of the usual form costs no request.
func (p *Provider) sure(ctx context.Context, op sandbox.Op, id string) error {
	if !isID(id) {
		return p.noSuch(op, id)
	}
	if isUUID(id) {
		return nil
	}
	_, _, err := p.look(ctx, op, id)
	return err
}

// notMade returns err as the service's certain word that nothing was made.
func notMade(e *sandbox.APIError) *sandbox.APIError {
	no := *e
	no.Refused = true
	return &no
}

var errForeign = errors.New("the answer is about another sandbox")
