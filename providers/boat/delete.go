package boat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// confirm is the header without which the service deletes nothing: it holds the id once more.
const confirm = "X-Ascii-Confirm-Delete"

// Delete asks for the removal of machine, record, snapshots and data, of a running sandbox as of an archived one. A look
// finds nothing within a second. What then goes on for hours is the removal of data, as an operation that may well be
// "blocked": it is logged and not waited for.
//
// What this process has not made itself, or has deleted before, is looked at first: the service says yes to the second
// delete of what is gone, and to the delete of a colleague's sandbox, which is refused here.
//
// A key that may not delete gets [sandbox.ErrPermission]. The sandbox is then stopped: its record stays, and is what
// there is to report.
func (p *Provider) Delete(ctx context.Context, id string) error {
	if !isID(id) {
		return p.noSuch(sandbox.OpDelete, id)
	}
	if !p.deletes(id) {
		if _, err := p.who(ctx, sandbox.OpDelete, id); err != nil {
			return err
		}
		r, _, err := p.look(ctx, sandbox.OpDelete, id)
		if err != nil {
			return err
		}
		if !p.ours(r) {
			err := fmt.Errorf("it belongs to %.60q, whose it is to delete", cmp.Or(text(r.CreatedBy), text(r.CreatedByID), "somebody else"))
			return p.refuse(sandbox.OpDelete, id, sandbox.ErrPermission, err)
		}
	}
	var told deletion
	ans, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpDelete, ID: id, Method: http.MethodDelete, Path: route(id), Header: http.Header{confirm: {id}}, Out: &told,
	})
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		p.forget(id)
		return err
	case errors.Is(err, sandbox.ErrPermission):
		return errors.Join(err, p.stop(ctx, id))
	case err != nil:
		return err
	case told.Operation.Target != id:
		return p.odd(sandbox.OpDelete, id, ans, errForeign)
	}
	p.deleted(id)
	p.log.InfoContext(ctx, "deletion accepted", slog.String("provider", p.name), slog.String("sandbox_id", id),
		slog.String("op", string(sandbox.OpDelete)), slog.String("operation", told.Operation.ID), slog.String("status", told.Operation.Status))
	return nil
}

// deletion is the answer to a delete.
type deletion struct {
	Operation *struct {
		ID     string `json:"id"`
		Target string `json:"targetId"`
		Status string `json:"status"`
	} `json:"operation"`
}

// Validate reports what is missing.
func (d *deletion) Validate() error {
	if d.Operation == nil || d.Operation.ID == "" {
		return errors.New("a deletion without an operation")
	}
	return nil
}

// stop ends the machine of a sandbox that may not be deleted. Of one that has been stopped already the service says so by
// a failure, which is none.
func (p *Provider) stop(ctx context.Context, id string) error {
	_, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpDelete, ID: id, Method: http.MethodPost, Path: route(id) + "/stop", Body: struct{}{},
	})
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Code == codeNoStop {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("nor could it be stopped: %w", err)
	}
	return nil
}
