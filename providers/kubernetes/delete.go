package kubernetes

import (
	"context"
	"errors"
	"net/http"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Delete asks for removal of the Job, which is to stay until its pod is gone (the foreground policy), and of its pods, each
// with its own grace: without a controller manager the first is accepted and does nothing. Both name the uid, so that
// nothing else of the same name is ever met. Nothing is forced: a record that is removed by force proves nothing about
// processes. It does not wait; [Provider.Get] finds nothing once Job and pods are gone.
func (p *Provider) Delete(ctx context.Context, id string) error {
	r, err := p.parse(sandbox.OpDelete, id)
	if err != nil {
		return err
	}
	var missing error
	if r.uid == "" {
		var j *job
		if j, _, missing = p.job(ctx, sandbox.OpDelete, r); missing == nil {
			r.uid = j.Meta.UID
		}
	}
	if missing == nil {
		missing = p.remove(ctx, r, "jobs", r.name, r.uid)
	}
	if missing != nil && !errors.Is(missing, sandbox.ErrNotFound) {
		return missing
	}
	pods, _, err := p.podsOf(ctx, sandbox.OpDelete, r)
	if err != nil {
		return err
	}
	var faults []error
	for _, pod := range pods {
		if pod.Meta.Deleted != nil {
			continue
		}
		if err := p.remove(ctx, r, "pods", pod.Meta.Name, pod.Meta.UID); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			faults = append(faults, err)
		}
	}
	switch {
	case len(faults) > 0:
		return faults[0]
	case len(pods) == 0:
		return missing
	}
	return nil
}

// remove asks for removal of one object. One that has another uid now is not found.
func (p *Provider) remove(ctx context.Context, r ref, kind, name, uid string) error {
	group, policy := batch, "Foreground"
	if kind == "pods" {
		group, policy = core, ""
	}
	_, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpDelete, ID: r.id, Method: http.MethodDelete, Path: p.path(group, kind, name),
		Body: deletion{APIVersion: "v1", Kind: "DeleteOptions", Policy: policy, Preconditions: preconditions{uid}},
	})
	if !isStatus(err, http.StatusConflict, reasonConflict) {
		return err
	}
	// Either the uid differs, or the object was changed meanwhile: a look tells.
	var now struct {
		Meta meta `json:"metadata"`
	}
	_, lookErr := p.do(ctx, httpapi.Request{
		Op: sandbox.OpDelete, ID: r.id, Method: http.MethodGet, Path: p.path(group, kind, name), Out: &now,
	})
	switch {
	case errors.Is(lookErr, sandbox.ErrNotFound):
		return lookErr
	case lookErr == nil && now.Meta.UID != uid:
		return p.failed(sandbox.OpDelete, r.id, sandbox.ErrNotFound, errors.New("the name belongs to another object now"))
	}
	return err
}
