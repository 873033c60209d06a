package daytona

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Extend sets the TTL anew, in one request, and returns the deadline that its answer tells. Where the organization's
// longest life is reached and the service refuses, it returns the deadline that stays, read by a look.
//
// With Config.AllowIdle it notes an activity, which the service answers with yes for stopped and destroyed sandboxes
// too, and looks.
func (p *Provider) Extend(ctx context.Context, cur sandbox.Info, window time.Duration) (sandbox.Info, error) {
	if k, ok := cur.Native.(*known); !ok || k.id != cur.ID { // else the service itself has told the id
		if err := p.sure(ctx, sandbox.OpExtend, cur.ID); err != nil {
			return sandbox.Info{}, err
		}
	}
	minutes := int64(window / time.Minute) // down: never later than asked
	if minutes < 1 || window > maxWindow {
		err := fmt.Errorf("window %v is not in %v to %v", window, minWindow, maxWindow)
		return sandbox.Info{}, p.refuse(sandbox.OpExtend, cur.ID, sandbox.ErrInvalid, err)
	}
	if p.idle {
		return p.touch(ctx, cur.ID, minutes)
	}
	info, err := p.set(ctx, sandbox.OpExtend, cur.ID, "ttl", minutes)
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Kind == nil || e.Status != http.StatusBadRequest && e.Status != http.StatusUnprocessableEntity {
		return info, err
	}
	r, ans, lerr := p.look(ctx, sandbox.OpExtend, cur.ID)
	if lerr != nil {
		return sandbox.Info{}, err
	}
	if left := r.deadline.Sub(ans.AsOf()); left <= 0 || left > window { // the refusal was for another reason
		return sandbox.Info{}, err
	}
	return p.info(r, ans), nil
}

// set sets one of the clocks, and returns the sandbox as the answer shows it. Minutes are never 0, which means never.
func (p *Provider) set(ctx context.Context, op sandbox.Op, id, clock string, minutes int64) (sandbox.Info, error) {
	r := &record{}
	ans, err := p.do(ctx, httpapi.Request{
		Op: op, ID: id, Method: http.MethodPost, Out: r,
		Path: "/sandbox/" + url.PathEscape(id) + "/" + clock + "/" + strconv.FormatInt(max(minutes, 1), 10),
	})
	if err != nil {
		return sandbox.Info{}, err
	}
	if r.ID != id {
		return sandbox.Info{}, &sandbox.APIError{Provider: p.name, Op: op, ID: id, Status: ans.Status, Err: errForeign}
	}
	info := p.info(r, ans)
	if clock == "ttl" && info.State == sandbox.StateRunning && info.Deadline.IsZero() && !p.idle {
		return info, &sandbox.APIError{Provider: p.name, Op: op, ID: id, Status: ans.Status, Err: errors.New("the answer tells no end")}
	}
	return info, nil
}

// touch restarts the idle clock, and sets it to another length where that has changed.
func (p *Provider) touch(ctx context.Context, id string, minutes int64) (sandbox.Info, error) {
	_, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpExtend, ID: id, Method: http.MethodPost, Body: struct{}{},
		Path: "/sandbox/" + url.PathEscape(id) + "/last-activity",
	})
	if err != nil {
		return sandbox.Info{}, err
	}
	r, ans, err := p.look(ctx, sandbox.OpExtend, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if stateOf(r.State) == sandbox.StateRunning && r.AutoStopInterval != nil && int64(*r.AutoStopInterval) != minutes {
		return p.set(ctx, sandbox.OpExtend, id, "autostop", minutes)
	}
	return p.info(r, ans), nil
}

// Shorten sets the TTL to left, in whole minutes, after a look that shows that it ends later than that. With
// Config.AllowIdle it is the idle clock. Neither starts or resumes anything.
func (p *Provider) Shorten(ctx context.Context, id string, left time.Duration) error {
	if err := p.sure(ctx, sandbox.OpExtend, id); err != nil {
		return err
	}
	minutes := int64(left / time.Minute)
	if minutes < 1 {
		err := fmt.Errorf("%v is less than %v", left, minWindow)
		return p.refuse(sandbox.OpExtend, id, sandbox.ErrInvalid, err)
	}
	r, ans, err := p.look(ctx, sandbox.OpExtend, id)
	if err != nil {
		return err
	}
	if stateOf(r.State) == sandbox.StateGone {
		return p.refuse(sandbox.OpExtend, id, sandbox.ErrNotFound, errors.New("destroyed"))
	}
	if p.idle {
		if r.AutoStopInterval != nil && *r.AutoStopInterval > 0 && int64(*r.AutoStopInterval) <= minutes {
			return nil
		}
		_, err = p.set(ctx, sandbox.OpExtend, id, "autostop", minutes)
		return err
	}
	// What is read is up to a second and the way back older than what the service will count from.
	const reserve = 5 * time.Second
	spare := r.deadline.Sub(ans.AsOf()) - time.Duration(minutes)*time.Minute - reserve
	if !r.deadline.IsZero() && spare <= 0 {
		return nil
	}
	if !r.deadline.IsZero() { // were it longer on its way, it could move the end away
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, spare+reserve)
		defer cancel()
	}
	_, err = p.set(ctx, sandbox.OpExtend, id, "ttl", minutes)
	return err
}
