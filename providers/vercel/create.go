package vercel

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Create asks for one sandbox, under the name that the mark gives, and does not wait until it runs. A sandbox of the
// same name and mark is taken for this one: it was made by an earlier request that was not answered, or by a proxy that
// has sent this one twice. The service refuses a taken name with the code that all faults of a request have, so that a
// refusal is followed by a look.
func (p *Provider) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
	body, err := p.order(req)
	if err != nil {
		return sandbox.Info{}, p.refuse(sandbox.OpCreate, "", nil, err)
	}
	var made shown
	ans, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpCreate, Method: http.MethodPost, Path: body.path(), Body: body, Out: &made, Rules: creating,
		Secrets: body.secrets(), Timeout: -1, // the caller's
	})
	if err == nil {
		return p.fit(body, view{record: made.Sandbox, session: made.Session, routes: made.Routes, ans: ans})
	}
	e := said(err)
	switch {
	case e == nil:
		return sandbox.Info{}, err
	case e.Code == codeTimeout:
		e.Err = fmt.Errorf("the plan allows no session of %v: ask for a shorter window, or for a larger plan", req.Window)
	case e.Kind == sandbox.ErrQuota:
		e.Err = errors.New("as many sandboxes run as the plan allows, or were made in the last minutes")
	case e.Refused && e.Kind == sandbox.ErrInvalid && e.Err == nil:
		e.Err = errors.New("an unknown image, runtime or snapshot, or a wrong team or project")
	case e.Status == http.StatusBadRequest, e.Status == http.StatusConflict, e.Status == http.StatusUnprocessableEntity:
		return p.taken(ctx, body, e)
	}
	return sandbox.Info{}, err
}

// taken finds out what a refusal was for: the name, or something else.
func (p *Provider) taken(ctx context.Context, body *order, refusal *sandbox.APIError) (sandbox.Info, error) {
	v, err := p.look(ctx, sandbox.OpCreate, ref{name: body.Name})
	no := *refusal
	no.Refused = true
	switch {
	case ctx.Err() != nil:
		return sandbox.Info{}, context.Cause(ctx)
	case errors.Is(err, sandbox.ErrNotFound):
		if no.Err == nil {
			no.Err = errors.New("an unknown image, runtime or snapshot, or something else that the plan or the service does not allow")
		}
		return sandbox.Info{}, &no
	case err != nil: // what has the name is not known
		return sandbox.Info{}, errors.Join(refusal, err)
	case v.record.Tags[sandbox.MarkKey] != body.Tags[sandbox.MarkKey]:
		no.Kind, no.Err = sandbox.ErrConflict, fmt.Errorf("the name %s is taken by a sandbox that carries another mark", body.Name)
		return sandbox.Info{}, &no
	}
	info, err := p.fit(body, v)
	if err == nil && info.State != sandbox.StateStarting && info.State != sandbox.StateRunning {
		err = p.failed(sandbox.OpCreate, info.ID, sandbox.ErrConflict, fmt.Errorf("it was made before, and is %s", info.Detail))
	}
	return info, err
}

// fit returns what was made, with an error if it is not what was ordered.
func (p *Provider) fit(body *order, v view) (sandbox.Info, error) {
	info := p.info(idOf(v.record.Name, v.record.Session), v)
	unfit := func(format string, args ...any) (sandbox.Info, error) {
		return info, p.failed(sandbox.OpCreate, info.ID, nil, fmt.Errorf(format, args...))
	}
	switch {
	case v.record.Name != body.Name: // the name is our only hold on it
		return unfit("the service has named it %s, not %s", v.record.Name, body.Name)
	case v.record.Tags[sandbox.MarkKey] != body.Tags[sandbox.MarkKey]:
		return unfit("the service has not written its mark")
	case v.record.Persistent:
		return unfit("the service has made it persistent, although it was told not to: each stop would leave a snapshot")
	}
	return info, nil
}
