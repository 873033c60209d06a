package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A right is one that the API server can be asked for.
type right struct {
	Namespace   string `json:"namespace"`
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
}

func (r right) String() string {
	s := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	if r.Group != "" {
		s += "." + r.Group
	}
	return s
}

// rights are those that the provider needs. Commands need "get" up to Kubernetes 1.34 and "create" from 1.35 on.
func (p *Provider) rights() []right {
	var all []right
	add := func(group, resource, subresource string, verbs ...string) {
		for _, v := range verbs {
			all = append(all, right{p.namespace, v, group, resource, subresource})
		}
	}
	add("batch", "jobs", "", "create", "get", "list", "patch", "delete")
	add("", "pods", "", "get", "list", "delete")
	add("", "pods", "exec", "get", "create")
	if p.owner.Lease > 0 {
		add("coordination.k8s.io", "leases", "", "create", "get", "patch", "delete")
	}
	return all
}

type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Attributes right `json:"resourceAttributes"`
	} `json:"spec"`
	Status struct {
		Allowed bool   `json:"allowed"`
		Denied  bool   `json:"denied"`
		Error   string `json:"evaluationError"`
	} `json:"status"`
}

// Check asks the API server whether the credentials are good and for each right that is needed; those that are missing are
// named, in an error that matches [sandbox.ErrPermission]. An owner's pod that is not in the cluster, in the provider's
// namespace, is [sandbox.ErrInvalid]: each sandbox would be taken for a dead one's. Nothing is made. What it cannot find out:
// quotas, and what admission would do to a sandbox.
func (p *Provider) Check(ctx context.Context) (sandbox.Account, error) {
	account := sandbox.Account{ID: p.name}
	var who struct {
		Status struct {
			User struct {
				Name string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	ask := map[string]string{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
	_, err := p.do(ctx, httpapi.Request{Op: sandbox.OpGet, Method: http.MethodPost, Path: whoAm, Body: ask, Out: &who, Rules: noSandbox})
	switch {
	case err == nil && who.Status.User.Name != "":
		account.ID = who.Status.User.Name
	case err != nil && !isStatus(err, http.StatusNotFound, "") && !errors.Is(err, sandbox.ErrPermission): // before 1.28
		return sandbox.Account{}, err
	}
	var missing []string
	for _, r := range p.rights() {
		q := review{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
		q.Spec.Attributes = r
		var a review
		ans, err := p.do(ctx, httpapi.Request{Op: sandbox.OpGet, Method: http.MethodPost, Path: auth, Body: q, Out: &a, Rules: noSandbox})
		if err != nil {
			return sandbox.Account{}, err
		}
		account.Skew, account.SkewKnown = ans.Skew()
		if !a.Status.Allowed {
			missing = append(missing, r.String())
		}
	}
	if len(missing) > 0 {
		err := fmt.Errorf("in namespace %s these rights are missing: %s", p.namespace, strings.Join(missing, ", "))
		return sandbox.Account{}, p.failed(sandbox.OpGet, "", sandbox.ErrPermission, err)
	}
	if err := p.ownerIsThere(ctx); err != nil {
		return sandbox.Account{}, err
	}
	return account, nil
}

// ownerIsThere looks for the owner's pod, where the rights reach.
func (p *Provider) ownerIsThere(ctx context.Context) error {
	if p.owner.Pod == "" || p.owner.Namespace != p.namespace {
		return nil
	}
	var now pod
	_, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpGet, Method: http.MethodGet, Path: p.path(core, "pods", p.owner.Pod), Out: &now, Rules: noSandbox,
	})
	if isStatus(err, http.StatusNotFound, "NotFound") || err == nil && now.Meta.UID != p.owner.UID {
		return p.failed(sandbox.OpGet, "", sandbox.ErrInvalid, fmt.Errorf("the owner's pod %s, uid %s, is not in this cluster's namespace %s",
			p.owner.Pod, p.owner.UID, p.namespace))
	}
	return err
}
