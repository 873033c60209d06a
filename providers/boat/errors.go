package boat

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Codes of the service that decide something here.
const (
	codeForbidden  = "api_key_action_forbidden"
	codeInProgress = "idempotency_in_progress"
	codeReused     = "idempotency_key_reused"
	codeAmbiguous  = "ambiguous_org"
	codeNotMember  = "not_org_member"
	codeTrial      = "trial_auto_stop_required"
	codeNoStop     = "stop_failed"
	codeRate       = "rate_limited"
	codeNoMachine  = "no_ready_machine"
	codeNoCapacity = "out_of_capacity"
	codeStarting   = "boat_starting"
	codeNotReady   = "sandbox_not_ready"
	codeNotRunning = "machine_not_running"
)

// The service counts starts in windows of time and tells which one is full in a field of its own. These codes are ours.
const (
	codeRateHour = codeRate + "/hour"
	codeRateDay  = codeRate + "/day"
)

// How long to wait after a refused create where the service does not say. It counts refused ones as starts too, so that
// trying again soon makes it worse; and it may hold their key for about two minutes, in which the next answer would be "in
// progress", which leaves open whether there is a sandbox.
const (
	afterRefusal = 130 * time.Second
	afterHour    = 10 * time.Minute
	afterDay     = time.Hour
)

// Tables of what a failure means, by operation. Everywhere else the statuses mean what they mean in general.
var (
	common = httpapi.Rules{
		{Status: http.StatusPaymentRequired, Kind: sandbox.ErrPermission},
		{Code: codeAmbiguous, Kind: sandbox.ErrInvalid},
	}

	// noSandbox is for requests that name no sandbox: a 404 there is a wrong base URL or organization.
	noSandbox = httpapi.Rules{{Status: http.StatusNotFound, Kind: sandbox.ErrInvalid}}

	// creating knows the refusals of a create: by the description of the API, every definite 4xx is one. A 409 is none,
	// but for the organization's: it says that there is, or will be, a sandbox under the same key.
	creating = httpapi.Rules{
		{Status: http.StatusBadRequest, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusUnauthorized, Kind: sandbox.ErrUnauthenticated, Refused: true},
		{Status: http.StatusPaymentRequired, Kind: sandbox.ErrPermission, Refused: true},
		{Status: http.StatusForbidden, Kind: sandbox.ErrPermission, Refused: true},
		{Status: http.StatusNotFound, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusUnprocessableEntity, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusConflict, Code: codeAmbiguous, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusTooManyRequests, Code: codeRate, Kind: sandbox.ErrRateLimited, Refused: true},
		{Status: http.StatusTooManyRequests, Kind: sandbox.ErrQuota, Refused: true},
		{Status: http.StatusServiceUnavailable, Code: codeNoMachine, Kind: sandbox.ErrUnavailable, Refused: true},
		{Status: http.StatusServiceUnavailable, Code: codeNoCapacity, Kind: sandbox.ErrUnavailable, Refused: true},
	}

	// inside is for commands, of which these say that nothing was run.
	inside = httpapi.Rules{
		{Status: http.StatusConflict, Code: codeStarting, Kind: sandbox.ErrConflict, Refused: true},
		{Status: http.StatusConflict, Code: codeNotReady, Kind: sandbox.ErrConflict, Refused: true},
		{Status: http.StatusConflict, Code: codeNotRunning, Kind: sandbox.ErrConflict, Refused: true},
	}
)

// parseFailure reads the service's envelope, and the flat form {"error": code, "message": ...} of some answers about keys.
func parseFailure(_ int, _ http.Header, body []byte) (code, message string, ok bool) {
	var f struct {
		Code      any             `json:"code"`
		Message   any             `json:"message"`
		Error     json.RawMessage `json:"error"`
		RequestID any             `json:"requestId"`
	}
	if json.Unmarshal(body, &f) != nil {
		return "", "", false
	}
	var inner struct {
		Code    any `json:"code"`
		Message any `json:"message"`
		Details struct {
			Window any `json:"window"`
		} `json:"details"`
	}
	code, message = word(f.Code), word(f.Message)
	if json.Unmarshal(f.Error, &code) != nil && json.Unmarshal(f.Error, &inner) == nil {
		code, message = first(code, word(inner.Code)), first(message, word(inner.Message))
	}
	if code == "" && message == "" {
		return "", "", false
	}
	if window := word(inner.Details.Window); code == codeRate && (window == "hour" || window == "day") {
		code += "/" + window
	}
	if id := word(f.RequestID); id != "" {
		message = strings.TrimSpace(message + " (request " + id + ")")
	}
	return code, message, true
}

// word returns v if it is text: one field of another kind than expected must not hide the others.
func word(v any) string {
	s, _ := v.(string)
	return s
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// do makes one request, and says of its failure what to do about it.
func (p *Provider) do(ctx context.Context, req httpapi.Request) (httpapi.Answer, error) {
	req.Secrets = append(req.Secrets[:len(req.Secrets):len(req.Secrets)], p.secret)
	ans, err := p.api.Do(ctx, req)
	return ans, p.advise(req, ans.Header, err)
}

// open is do for an answer that is read as it comes.
func (p *Provider) open(ctx context.Context, req httpapi.Request) (*httpapi.Body, error) {
	req.Secrets = append(req.Secrets[:len(req.Secrets):len(req.Secrets)], p.secret)
	body, err := p.api.Open(ctx, req)
	return body, p.advise(req, nil, err)
}

// advise adds to a failure what to do about it.
func (p *Provider) advise(req httpapi.Request, header http.Header, err error) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		return err
	}
	posted := req.Op == sandbox.OpCreate && req.Method == http.MethodPost
	again := errors.Is(err, sandbox.ErrRateLimited) || errors.Is(err, sandbox.ErrQuota) || errors.Is(err, sandbox.ErrUnavailable)
	if posted && e.Refused && e.Status != 0 && again && e.RetryAfter == 0 {
		e.RetryAfter = afterRefusal
		switch e.Code {
		case codeRateHour:
			e.RetryAfter = afterHour
		case codeRateDay:
			e.RetryAfter = afterDay
		}
	}
	switch {
	case e.Status >= 200 && e.Status <= 299 && strings.Contains(header.Get("Content-Type"), "html"):
		e.Kind, e.Refused = sandbox.ErrInvalid, true
		e.Err = errors.New("a page for people is no answer of the API: does the base URL end with /api/v1?")
	case posted && (e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed) && e.Code == "":
		e.Kind, e.Refused = sandbox.ErrInvalid, true // whoever has said so has not made anything
		e.Err = errors.New("there is no API: does the base URL end with /api/v1?")
	case e.Kind == nil || e.Err != nil:
	case e.Code == codeReused:
		e.Err = errors.New("there is a sandbox under this key, ordered with another body: its id is not known")
	case e.Code == codeAmbiguous:
		e.Err = errors.New("two organizations have this name: set Config.Org to an id (team_...)")
	case e.Code == codeNotMember:
		e.Err = errors.New("is Config.Org right?")
	case e.Code == codeTrial:
		e.Err = errors.New("the plan does not allow a TTL of this length: set a smaller Window")
	case e.Kind == sandbox.ErrUnauthenticated:
		e.Err = errors.New("is the key right, and not yet expired? Keys last for 90 days unless made for longer")
	case e.Status == http.StatusPaymentRequired:
		e.Err = errors.New("the account has no plan or credit")
	case e.Code == codeForbidden && req.Op == sandbox.OpDelete:
		e.Err = errors.New("the key may not delete (sandbox.delete-own): make one that may, and delete what this one has made")
	case e.Code == codeForbidden:
		e.Err = errors.New("the key may not do this: make one with the preset full-sandbox")
	case posted && e.Kind == sandbox.ErrQuota:
		e.Err = errors.New("the plan allows no more sandboxes at once, or today: see GET /limits, and for forgotten ones the list")
	}
	return err
}

// refuse returns the error of something that was not asked of the service.
func (p *Provider) refuse(op sandbox.Op, id string, kind, err error) error {
	return p.api.Refuse(op, id, kind, err)
}

// odd returns the error of an answer of success that cannot be right.
func (p *Provider) odd(op sandbox.Op, id string, ans httpapi.Answer, err error) error {
	return &sandbox.APIError{Provider: p.name, Op: op, ID: id, Status: ans.Status, Err: err}
}

// isID reports whether id can be the service's: it has no characters that mean something in a path.
func isID(id string) bool {
	return id != "" && len(id) <= 64 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

func (p *Provider) noSuch(op sandbox.Op, id string) error {
	return p.refuse(op, id, sandbox.ErrNotFound, errors.New("not a sandbox's id"))
}

var errForeign = errors.New("the answer is about another sandbox")
