package vercel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	poll     = 500 * time.Millisecond // the makers' own
	patience = 20 * time.Second       // for a stop that was accepted before it was done
	removal  = 30 * time.Second       // of a record; machines that run are stopped first
)

// Delete stops the present session, waits until it has stopped, and deletes the record with the snapshots that no other
// sandbox uses, unless Config.KeepSnapshots. A stop that fails does not keep it from deleting, which stops too; one that
// was accepted and has not come to an end is [sandbox.ErrConflict], to be asked again, and the record stays: it is what
// the machine can be found by. Where the record is gone, it stops the session in id. Nothing is resumed on the way.
func (p *Provider) Delete(ctx context.Context, id string) error {
	r, err := p.parse(sandbox.OpDelete, id)
	if err != nil {
		return err
	}
	v, err := p.look(ctx, sandbox.OpDelete, r)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return p.deleteAlone(ctx, r, err)
	case err != nil:
		return err
	}
	for _, session := range v.living() {
		if err := p.stop(ctx, ref{id, r.name, session}); err != nil && (ctx.Err() != nil || !worthDeleting(err)) {
			return err
		}
	}
	orphans := "true" // snapshots that no other sandbox uses
	if p.keep {
		orphans = ""
	}
	_, err = p.do(ctx, httpapi.Request{
		Op: sandbox.OpDelete, ID: id, Method: http.MethodDelete, Path: "/v2/sandboxes/" + r.name,
		Query: p.query("projectId", p.project, "deleteOrphanSnapshots", orphans), Timeout: removal,
	})
	return err
}

// living returns the ids of the sessions that may run. There should be one at most, which need not be the one in the ID:
// somebody may have resumed.
func (v view) living() (ids []string) {
	if v.session != nil && !v.session.terminal() {
		ids = append(ids, v.session.ID)
	}
	if v.session == nil || v.session.ID != v.record.Session {
		ids = append(ids, v.record.Session)
	}
	return ids
}

// deleteAlone stops a session whose record is gone. missing is why there is none.
func (p *Provider) deleteAlone(ctx context.Context, r ref, missing error) error {
	if r.session == "" {
		return missing
	}
	s, _, err := p.session(ctx, sandbox.OpDelete, r)
	switch {
	case isGone(err), err == nil && s.terminal():
		return missing
	case err != nil:
		return err
	}
	return p.stop(ctx, r)
}

// worthDeleting reports whether a record is to be deleted although the stop of its session has failed with err: the
// delete stops too, and may fare better where the service has failed. Where the stop was accepted it would only take away
// what the machine can be found by.
func worthDeleting(err error) bool {
	for _, kind := range []error{sandbox.ErrConflict, sandbox.ErrUnauthenticated, sandbox.ErrPermission, sandbox.ErrRateLimited} {
		if errors.Is(err, kind) {
			return false
		}
	}
	return true
}

// stop stops the session in r, and waits for that.
func (p *Provider) stop(ctx context.Context, r ref) error {
	var got told
	_, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpDelete, ID: r.id, Method: http.MethodPost, Path: "/v2/sandboxes/sessions/" + r.session + "/stop",
		Out: &got, Timeout: stopTime,
	})
	e, ok := errors.AsType[*sandbox.APIError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case isGone(err), err == nil && got.Session.terminal():
		return nil
	case ok && e.Status >= 300 && !isOver(err): // else it was accepted, is under way already, or may be
		return err
	}
	failed, status := err, "of unknown state"
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err := contain.Sleep(ctx, poll); err != nil {
			return err
		}
		s, _, err := p.session(ctx, sandbox.OpDelete, r)
		switch {
		case isGone(err), err == nil && s.terminal():
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			status = s.Status
		}
	}
	if failed != nil && !isOver(failed) {
		return failed
	}
	err = fmt.Errorf("session %s was told to stop, and is %s", r.session, status)
	return p.failed(sandbox.OpDelete, r.id, sandbox.ErrConflict, err)
}
