package daytona

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Bounds of a tree of forks.
const (
	maxForks = 64
	maxDepth = 4
)

// Delete asks for the sandbox to be destroyed, which the platform does later: within seconds, or as long as it takes
// where the machine's host is away. Of one that is being deleted already it says so too.
//
// The service refuses (409) while a sandbox is being made or started: that is [sandbox.ErrConflict], to be asked again.
// It also refuses one that has forks. They were made of it, so they are the caller's: they are deleted first, and the
// error is [sandbox.ErrConflict] until they are gone. Snapshots that were made of it, and volumes, stay.
func (p *Provider) Delete(ctx context.Context, id string) error {
	if err := p.sure(ctx, sandbox.OpDelete, id); err != nil {
		return err
	}
	return p.remove(ctx, id, 0)
}

func (p *Provider) remove(ctx context.Context, id string, depth int) error {
	_, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpDelete, ID: id, Method: http.MethodDelete, Path: "/sandbox/" + url.PathEscape(id), Out: &record{},
	})
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Kind == nil || e.Status != http.StatusConflict && e.Status != http.StatusBadRequest {
		return err
	}
	// Refused: for a change under way, which may be the delete itself, or for forks.
	r, _, lerr := p.look(ctx, sandbox.OpDelete, id)
	switch {
	case errors.Is(lerr, sandbox.ErrNotFound):
		return lerr
	case lerr != nil:
		return errors.Join(e, lerr)
	case r.DesiredState == "destroyed" || stateOf(r.State) == sandbox.StateGone:
		return nil
	case e.Status == http.StatusConflict:
		return e
	}
	forks, lerr := p.forks(ctx, id)
	switch {
	case lerr != nil:
		return errors.Join(e, lerr)
	case len(forks) > 0:
		return p.removeForks(ctx, e, forks, depth)
	}
	if s := stateOf(r.State); s == sandbox.StateStarting || s == sandbox.StateEnding { // older services say 400 for 409
		e.Kind = sandbox.ErrConflict
	}
	return e
}

// forks returns the sandboxes that were made of id and still exist.
func (p *Provider) forks(ctx context.Context, id string) ([]*record, error) {
	var children []*record
	_, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpDelete, ID: id, Method: http.MethodGet, Path: "/sandbox/" + url.PathEscape(id) + "/forks", Out: &children,
	})
	if err != nil {
		return nil, err
	}
	var forks []*record
	for _, r := range children {
		if r != nil && isID(r.ID) && r.ID != id && stateOf(r.State) != sandbox.StateGone {
			forks = append(forks, r)
		}
	}
	return forks, nil
}

// removeForks asks for the end of what was made of a sandbox, and returns why the sandbox itself is still there.
func (p *Provider) removeForks(ctx context.Context, refusal *sandbox.APIError, forks []*record, depth int) error {
	conflict := *refusal
	conflict.Kind = sandbox.ErrConflict
	conflict.Err = fmt.Errorf("%d forks of it are deleted first", len(forks))
	if depth >= maxDepth || len(forks) > maxForks {
		conflict.Kind = sandbox.ErrInvalid
		conflict.Err = fmt.Errorf("it has %d forks, %d deep: delete them by hand", len(forks), depth+1)
		return &conflict
	}
	errs := []error{&conflict}
	for _, f := range forks {
		if f.DesiredState == "destroyed" {
			continue
		}
		p.log.WarnContext(ctx, "deleting a fork, which keeps its original from being deleted", slog.String("provider", p.name),
			slog.String("sandbox_id", refusal.ID), slog.String("fork_id", f.ID), slog.String("op", string(sandbox.OpDelete)))
		err := p.remove(ctx, f.ID, depth+1)
		if err != nil && !errors.Is(err, sandbox.ErrNotFound) && !errors.Is(err, sandbox.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
