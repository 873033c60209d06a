package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// strict has a field that the API server does not know refused: it would be dropped otherwise, and a lease that is
// dropped is none.
const strict = "fieldValidation=Strict"

// Create asks for one Job, under the name that the mark gives, and does not wait until its pod runs. A Job of the same
// name and mark is taken for this one: it was made by an earlier request that was not answered, or by a proxy that has
// sent this one twice.
//
// What the cluster has made is compared with what was asked, since admission may change all of it: a Job that does not end
// by itself as ordered comes back with an error. That an image does not exist, or that no pod may be made of it, turns out
// later: by what [Provider.Get] says.
func (p *Provider) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
	order, err := p.order(req)
	if err != nil {
		return sandbox.Info{}, p.refuse(sandbox.OpCreate, "", nil, err)
	}
	if err := p.keepLease(ctx, true); err != nil {
		if !p.leaseHolds() { // of the sandbox nothing was asked yet
			return sandbox.Info{}, p.unowned(err)
		}
		p.warn(ctx, sandbox.OpCreate, "", "the owner's Lease is not renewed", err)
	}
	var made job
	ans, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpCreate, Method: http.MethodPost, Path: p.path(batch, "jobs"), Query: strict, Body: order, Out: &made,
		Rules: creating, Secrets: secrets(req.Spec), Timeout: -1, // the caller's
	})
	switch {
	case isStatus(err, http.StatusConflict, ""):
		return p.taken(ctx, order, err)
	case err != nil:
		return sandbox.Info{}, err
	}
	for _, w := range ans.Header["Warning"] {
		p.log.WarnContext(ctx, "the cluster warns of a sandbox", slog.String("provider", p.name),
			slog.String("sandbox_id", idOf(&made)), slog.String("op", string(sandbox.OpCreate)), slog.String("warning", p.api.Clean(w)))
	}
	return p.fit(order, view{job: &made, ans: ans})
}

// taken finds out by what the name is taken.
func (p *Provider) taken(ctx context.Context, order *job, conflict error) (sandbox.Info, error) {
	refusal, _ := errors.AsType[*sandbox.APIError](conflict)
	no := *refusal
	no.Refused, no.Kind = true, sandbox.ErrConflict
	v, err := p.look(ctx, sandbox.OpCreate, ref{name: order.Meta.Name})
	switch {
	case ctx.Err() != nil:
		return sandbox.Info{}, context.Cause(ctx)
	case errors.Is(err, sandbox.ErrNotFound), err == nil && v.job == nil: // none, or pods that one has left
		if no.Code != reasonExists { // nothing has the name: servers that count a quota at once can stand in each other's way
			no.Kind = sandbox.ErrUnavailable
		}
		return sandbox.Info{}, &no
	case err != nil: // what has the name is not known
		return sandbox.Info{}, errors.Join(conflict, err)
	case v.job.Meta.Annotations[sandbox.MarkKey] != order.Meta.Annotations[sandbox.MarkKey]:
		no.Err = fmt.Errorf("the name %s is taken by a Job that carries another mark", order.Meta.Name)
		return sandbox.Info{}, &no
	}
	info, err := p.fit(order, v)
	if err == nil && info.State != sandbox.StateStarting && info.State != sandbox.StateRunning {
		err = p.failed(sandbox.OpCreate, info.ID, sandbox.ErrConflict, fmt.Errorf("it was made before, and is %s: %s", info.State, info.Detail))
	}
	return info, err
}

// fit returns what was made, with an error if it is not what was ordered.
func (p *Provider) fit(order *job, v view) (sandbox.Info, error) {
	info := p.info(idOf(v.job), v)
	if err := differs(order, v.job); err != nil {
		return info, p.failed(sandbox.OpCreate, info.ID, nil, fmt.Errorf("the cluster has made something else: %w", err))
	}
	return info, nil
}

// differs returns what of a Job that was made would live longer, or more freely, than the one that was ordered, or could
// not be found again.
func differs(order, made *job) error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	ours, theirs := &order.Spec.Template.Spec, &made.Spec.Template.Spec
	is := func(got *int32, want int32) bool { return got != nil && *got == want }
	fault(made.Meta.Name != order.Meta.Name, "it is named %.80q", made.Meta.Name)
	for what, made := range map[string]meta{"Job": made.Meta, "pod": made.Spec.Template.Meta} {
		fault(!includes(made.Labels, order.Meta.Labels), "labels of its %s are missing", what)
		fault(!includes(made.Annotations, order.Meta.Annotations), "annotations of its %s are missing, among which the mark is", what)
	}
	fault(made.Spec.Deadline == nil, "it has no deadline")
	fault(made.Spec.Deadline != nil && (*made.Spec.Deadline < 1 || *made.Spec.Deadline > *order.Spec.Deadline),
		"its deadline is another")
	fault(!is(made.Spec.TTL, 0), "its record would stay")
	fault(!is(made.Spec.Backoff, 0) || !is(made.Spec.Parallelism, 1) || !is(made.Spec.Completions, 1),
		"it would make more than one pod")
	fault(made.Spec.Suspend != nil && *made.Spec.Suspend, "it is suspended, and a deadline does not run while it is")
	fault(made.Spec.ManagedBy != nil && *made.Spec.ManagedBy != "kubernetes.io/job-controller", "another controller has it")
	fault(theirs.Restart != "Never", "its commands would begin anew")
	fault(theirs.Grace == nil || *theirs.Grace < 1 || *theirs.Grace > *ours.Grace, "its time to end is another")
	fault(theirs.Deadline == nil || *theirs.Deadline < 1 || *theirs.Deadline > *ours.Deadline, "its pod has not the hard end that the node keeps")
	fault(theirs.MountToken == nil || *theirs.MountToken, "its pod would hold a token of the cluster")
	fault(theirs.HostNetwork || theirs.HostPID || theirs.HostIPC, "its pod would share the node's namespaces")
	at := -1
	for i := range theirs.Containers {
		if theirs.Containers[i].Name == boxName {
			at = i
		}
	}
	fault(at < 0, "its container is missing")
	if at >= 0 {
		s := theirs.Containers[at].Security
		fault(s == nil || s.Privileged == nil || *s.Privileged || s.Escalation == nil || *s.Escalation, "its container would be privileged")
	}
	return errors.Join(faults...)
}

// includes reports whether all of part is in whole.
func includes(whole, part map[string]string) bool {
	for k, v := range part {
		if got, ok := whole[k]; !ok || got != v {
			return false
		}
	}
	return true
}
