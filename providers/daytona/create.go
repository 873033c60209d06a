package daytona

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// createTime is how long one create may take, if its context says no less: the service itself waits for up to 30 s.
const createTime = 3 * time.Minute

// Create asks for one sandbox, under the name that the mark gives, and does not wait until it runs. Its clocks are all
// finite: a TTL of the window, and an idle clock of the whole lifetime whose end deletes. The TTL is read back: a
// service that ignores it does not know it, and what it has made is returned with an error.
//
// A sandbox of the same name and mark is taken for this one. A create that the service answers with 400 may have made
// one all the same, which did not start; it is looked for by its name, and returned with the error.
func (p *Provider) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
	body, err := p.order(req)
	if err != nil {
		return sandbox.Info{}, p.refuse(sandbox.OpCreate, "", nil, err)
	}
	made := &record{}
	ans, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpCreate, Method: http.MethodPost, Path: "/sandbox", Body: body, Out: made, Rules: creating, Timeout: createTime,
		Secrets: slices.Collect(maps.Values(body.Env)),
	})
	if err == nil {
		return p.fit(ctx, req, made, ans)
	}
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Refused {
		return sandbox.Info{}, err
	}
	switch {
	case e.Status == http.StatusConflict && e.Kind != nil:
		return p.twin(ctx, req, e)
	case (e.Status == http.StatusBadRequest || e.Status == http.StatusUnprocessableEntity) && e.Kind != nil:
		return p.failed(ctx, req, e)
	}
	return sandbox.Info{}, err
}

// fit returns what was made, with an error if its clock is not the one that was asked for.
func (p *Provider) fit(ctx context.Context, req sandbox.CreateRequest, made *record, ans httpapi.Answer) (sandbox.Info, error) {
	if !p.idle && made.deadline.IsZero() { // once more, so that no gap in one answer is taken for a service without TTLs
		if again, ans2, err := p.look(ctx, sandbox.OpCreate, made.ID); err == nil {
			made, ans = again, ans2
		} else {
			return p.info(made, ans), nil // who waits for it to run will look again
		}
	}
	info := p.info(made, ans)
	unfit := func(kind error, format string, args ...any) (sandbox.Info, error) {
		return info, &sandbox.APIError{Provider: p.name, Op: sandbox.OpCreate, ID: info.ID, Kind: kind, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case made.AutoDeleteInterval != nil && *made.AutoDeleteInterval != 0:
		return unfit(sandbox.ErrInvalid, "a stop would delete it %v min later only: the service has changed that", *made.AutoDeleteInterval)
	case p.idle:
		if made.AutoStopInterval != nil && int64(*made.AutoStopInterval) != int64(req.Window/time.Minute) {
			return unfit(sandbox.ErrInvalid, "its idle clock is %v min, not %v: the service has changed that",
				*made.AutoStopInterval, req.Window)
		}
	case made.deadline.IsZero():
		return unfit(errors.ErrUnsupported, "the service has ignored the TTL: it does not know TTLs, and nothing but idleness would"+
			" end a sandbox. Update it, or set Config.AllowIdle if that is enough")
	case info.Left() < req.Window-startAllowance-time.Minute:
		return unfit(sandbox.ErrInvalid, "the window is %v, and the service ends it after %v: the organization's longest life"+
			" (maxSandboxLifespan) is too short. Ask for a shorter window, or have the limit raised", req.Window, info.Left())
	}
	return info, nil
}

// twin returns the sandbox that has the mark's name, if it was made for this very mark: by an earlier request that was
// not answered, or by a proxy that has sent this one twice.
func (p *Provider) twin(ctx context.Context, req sandbox.CreateRequest, conflict *sandbox.APIError) (sandbox.Info, error) {
	r, ans, err := p.named(ctx, req.Mark)
	switch {
	case ctx.Err() != nil:
		return sandbox.Info{}, context.Cause(ctx)
	case err != nil: // it may just be going, or be unseen as yet
		return sandbox.Info{}, unseen(conflict, err)
	case markOf(r).String() != req.Mark.String():
		return sandbox.Info{}, notMade(conflict)
	}
	if s := stateOf(r.State); s != sandbox.StateStarting && s != sandbox.StateRunning {
		return p.info(r, ans), conflict
	}
	return p.fit(ctx, req, r, ans)
}

// failed finds out what a 400 was: a refusal, or the end of a sandbox that did not start, of which a record stays.
func (p *Provider) failed(ctx context.Context, req sandbox.CreateRequest, said *sandbox.APIError) (sandbox.Info, error) {
	const hint = "an unknown snapshot, a size that is not allowed, or a quota reached, in which stopped sandboxes count"
	r, ans, err := p.named(ctx, req.Mark)
	switch {
	case ctx.Err() != nil:
		return sandbox.Info{}, context.Cause(ctx)
	case errors.Is(err, sandbox.ErrNotFound):
		no := notMade(said)
		if no.Err == nil {
			no.Err = errors.New(hint)
		}
		return sandbox.Info{}, no
	case err != nil:
		return sandbox.Info{}, unseen(said, err)
	case markOf(r).String() != req.Mark.String():
		return sandbox.Info{}, notMade(said)
	}
	info := p.info(r, ans)
	with := *said
	with.ID = info.ID
	return info, &with
}

// unseen returns what the service said to a create where a look could not tell what that means.
func unseen(said *sandbox.APIError, look error) error {
	with := *said
	with.Err = fmt.Errorf("what has the name cannot be seen: %s", look.Error()) // the look's kind is not the create's
	return &with
}

// named looks for the sandbox that has a mark's name.
func (p *Provider) named(ctx context.Context, mark sandbox.Mark) (*record, httpapi.Answer, error) {
	r := &record{}
	ans, err := p.do(ctx, httpapi.Request{Op: sandbox.OpCreate, Method: http.MethodGet, Path: "/sandbox/" + mark.Name(), Out: r})
	return r, ans, err
}
