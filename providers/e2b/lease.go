package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Extend sets the end of cur to window from when the service takes the request, and reads it back: the service cuts what
// goes beyond the plan and says nothing. It never uses the calls that wake a paused sandbox.
//
// "Not found" of the first request says that nothing runs under the id; the second one tells whether it is paused or
// gone. A conflict passes: the sandbox is being snapshotted, paused or killed.
func (p *Provider) Extend(ctx context.Context, cur sandbox.Info, window time.Duration) (sandbox.Info, error) {
	if err := validWindow(window); err != nil {
		return sandbox.Info{}, p.api.Refuse(sandbox.OpExtend, cur.ID, nil, err)
	}
	err := p.setTimeout(ctx, sandbox.OpExtend, cur.ID, window)
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return sandbox.Info{}, err
	}
	info, look := p.get(ctx, sandbox.OpExtend, cur.ID)
	switch {
	case look != nil:
		return sandbox.Info{}, look
	case err != nil && info.State == sandbox.StateRunning: // resumed or snapshotted in between
		err := errors.New("not found when its end was to be set, and running when it was looked at")
		return sandbox.Info{}, &sandbox.APIError{Provider: p.name, Op: sandbox.OpExtend, ID: cur.ID, Kind: sandbox.ErrConflict, Err: err}
	}
	return info, nil
}

// setTimeout sets the end to left from now; an end that lies nearer is moved away too.
func (p *Provider) setTimeout(ctx context.Context, op sandbox.Op, id string, left time.Duration) error {
	if !ids.MatchString(id) {
		return p.noSuch(op, id)
	}
	_, err := p.api.Do(ctx, httpapi.Request{
		Op: op, ID: id, Method: http.MethodPost, Path: "/sandboxes/" + id + "/timeout",
		Body: timeoutBody{int64(left / time.Second)}, OK: []int{http.StatusNoContent},
	})
	return err
}

type timeoutBody struct {
	TimeoutSeconds int64 `json:"timeout"`
}

// Shorten looks, and sets the end to left from now if that is nearer. The service has no call that only shortens: a
// request that is held up on its way until just before the end can prolong the life by left, once, and wakes nothing.
func (p *Provider) Shorten(ctx context.Context, id string, left time.Duration) error {
	if err := validWindow(left); err != nil {
		return p.api.Refuse(sandbox.OpShorten, id, nil, err)
	}
	info, err := p.get(ctx, sandbox.OpShorten, id)
	if err != nil {
		return err
	}
	if info.State != sandbox.StateRunning {
		err := fmt.Errorf("it is %s: no lease runs on it", info.Detail)
		return p.api.Refuse(sandbox.OpShorten, id, sandbox.ErrConflict, err)
	}
	if !info.Deadline.IsZero() && info.Left() <= left {
		return nil
	}
	return p.setTimeout(ctx, sandbox.OpShorten, id, left)
}
