package e2b

import (
	"context"
	"errors"
	"net/http"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Create makes one sandbox, which runs when the service answers. Its lease is counted from then on, not from the
// request; the answer tells no times, which is why Deadline is not set.
//
// The service knows neither keys for idempotency nor names: a create that is repeated makes a second sandbox, and one
// without an answer is found by its nonce, for as long as Capabilities.CommitDelay.
func (p *Provider) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
	body, err := p.body(req)
	if err != nil {
		return sandbox.Info{}, p.api.Refuse(sandbox.OpCreate, "", nil, err)
	}
	path := "/v2/sandboxes"
	if p.dialect == DialectV1 {
		path = "/sandboxes"
	}
	var made created
	ans, err := p.api.Do(ctx, httpapi.Request{
		Op: sandbox.OpCreate, Method: http.MethodPost, Path: path, Body: body, Out: &made,
		Timeout: createTime, Rules: createRules(), Secrets: values(req.Spec.Env),
	})
	if err != nil {
		return sandbox.Info{}, p.explain(err, body.TemplateID)
	}
	mark, tags, ports := unmetadata(body.Metadata)
	return sandbox.Info{
		ID: made.SandboxID, State: sandbox.StateRunning, Mark: mark, Tags: tags, AsOf: ans.AsOf(), Detail: "running",
		Native: &Record{
			TemplateID: made.TemplateID, EnvdVersion: made.EnvdVersion, Domain: made.Domain,
			token: made.EnvdAccessToken, ports: ports, whole: true,
		},
	}, nil
}

// createRules says of which failures it is certain that nothing was made: those of checks before the machine is asked
// for. After any 5xx, 504 above all, it may yet turn up.
func createRules() httpapi.Rules {
	return httpapi.Rules{
		{Status: http.StatusBadRequest, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusUnauthorized, Kind: sandbox.ErrUnauthenticated, Refused: true},
		{Status: http.StatusForbidden, Kind: sandbox.ErrPermission, Refused: true},
		{Status: http.StatusNotFound, Kind: sandbox.ErrInvalid, Refused: true}, // the template, or the route: never a sandbox
		{Status: http.StatusMethodNotAllowed, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusTooManyRequests, Kind: sandbox.ErrQuota, Refused: true},
	}
}

// explain says what to do where the service's words do not.
func (p *Provider) explain(err error, template string) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || !e.Refused {
		return err
	}
	more := *e
	switch {
	case e.Status == http.StatusTooManyRequests && e.RetryAfter > 0:
		more.Kind = sandbox.ErrRateLimited // the quota of sandboxes alive comes without a time to wait
	case e.Status == http.StatusTooManyRequests:
		more.Err = errors.New("as many sandboxes live as the plan allows: set Config.MaxLive, or ask for more")
	case e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed:
		more.Err = errors.New("no template " + p.api.Clean(template) + ", or a server that does not know this way to create: see Config.Dialect")
	case e.Status == http.StatusForbidden:
		more.Err = errors.New("the team may not create sandboxes; it can still list and delete them")
	}
	return &more
}

// created is the answer to a create.
type created struct {
	SandboxID       string `json:"sandboxID"`
	TemplateID      string `json:"templateID"`
	EnvdVersion     string `json:"envdVersion"`
	EnvdAccessToken string `json:"envdAccessToken"`
	Domain          string `json:"domain"`
}

// Validate refuses an answer without an id that can be asked for again.
func (c *created) Validate() error {
	if !ids.MatchString(c.SandboxID) {
		return errors.New("no sandboxID")
	}
	return nil
}

func values(m map[string]string) []string {
	var vs []string
	for _, v := range m {
		vs = append(vs, v)
	}
	return vs
}
