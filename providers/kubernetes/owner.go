package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// An Owner says who owns the sandboxes of a process, so that [Owners] can tell whether he lives. It only ever shortens a
// sandbox's life: the lease ends it all the same.
type Owner struct {
	// The pod that the process runs in, by the downward API (metadata.name, metadata.uid and metadata.namespace), in the
	// same cluster as the sandboxes: a pod of another cluster is taken for dead. Namespace defaults to the provider's.
	// [InCluster] fills them in from POD_NAME, POD_UID and POD_NAMESPACE.
	Namespace, Pod, UID string

	// Container is the name of the process's container in it: when that has begun anew since a sandbox was made, its
	// owner is dead. Default: the only container; of several it is not known, and only the pod's end counts.
	Container string

	// Reference makes the cluster itself remove the sandboxes when the pod is deleted. The pod must be in the provider's
	// namespace.
	Reference bool

	// Lease is for a process outside of the cluster: it keeps an object of that kind (coordination.k8s.io), made with the
	// first sandbox and renewed with the beats, and counts as dead when that has not been renewed for so long. A sandbox
	// whose beats are more than half of it apart is refused ([sandbox.ErrInvalid]); three beats, which is a window unless
	// the scope says otherwise, bear one that fails. [Provider.Retire] removes it. Not together with Pod. 0: none.
	Lease time.Duration
}

// check reports every fault of o.
func (o *Owner) check(namespace string, fault func(format string, args ...any)) {
	if o.Pod != "" && o.Namespace == "" {
		o.Namespace = namespace
	}
	switch {
	case o.Pod == "" && (o.UID != "" || o.Reference || o.Container != "" || o.Namespace != ""):
		fault("an owner without the name of its pod")
	case o.Pod != "" && (!names.MatchString(o.Pod) || !uids.MatchString(o.UID) || !isLabel(o.Namespace)):
		fault("owner: pod %.80q, uid %.80q or namespace %.80q is none", o.Pod, o.UID, o.Namespace)
	case o.Pod != "" && o.Lease != 0:
		fault("an owner that is a pod, and keeps a Lease as well")
	case o.Reference && o.Namespace != namespace:
		fault("an owner in namespace %q, by reference from %q: the cluster would take it for a dead one", o.Namespace, namespace)
	case o.Lease != 0 && (o.Lease < 10*time.Second || o.Lease > 24*time.Hour):
		fault("an owner's Lease of %v, not 10 s to 24 h", o.Lease)
	}
}

// ownership is the annotation that tells an owner.
type ownership struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
	Container string `json:"container,omitempty"`
	Process   string `json:"process"`
	Lease     string `json:"lease,omitempty"`
}

// owned writes the owner on a Job and its pod.
func (p *Provider) owned(j *job) {
	o := ownership{
		Namespace: p.owner.Namespace, Pod: p.owner.Pod, UID: p.owner.UID, Container: p.owner.Container, Process: p.process,
	}
	switch {
	case p.owner.Pod != "":
		j.Meta.Labels[ownerKey] = o.UID
		if p.owner.Reference {
			j.Meta.Owners = []reference{{"v1", "Pod", o.Pod, o.UID}}
		}
	case p.owner.Lease > 0:
		o.Namespace, o.Lease = p.namespace, p.leaseName()
		j.Meta.Labels[ownerKey] = p.process
	default:
		return
	}
	if b, err := json.Marshal(o); err == nil { // there is nothing in it that could not be
		j.Meta.Annotations[ownerKey] = string(b)
	}
}

func newNonce() string { return strings.ToLower(rand.Text()) }

func (p *Provider) leaseName() string { return "sandglass-owner-" + p.process }

// An ownerLease is what is known of the process's own Lease.
type ownerLease struct {
	mu      sync.Mutex // held for memory operations only
	busy    bool       // somebody renews it
	renewed time.Time  // by our clock
}

// lease is a Lease.
type lease struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Meta       meta      `json:"metadata"`
	Spec       leaseSpec `json:"spec"`
}

type leaseSpec struct {
	Holder   string `json:"holderIdentity,omitempty"`
	Duration int64  `json:"leaseDurationSeconds,omitempty"`
	Renewed  string `json:"renewTime,omitempty"`
}

// microTime is the form of a Lease's times.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// leaseTries is how often a Lease is renewed within its duration.
const leaseTries = 4

// keepLease makes or renews the process's Lease, if there is to be one and it is time: with each beat, whether that extends
// or only looks, and with each create. Of calls at the same time one does so, but while there is none yet each create makes sure
// that there is one.
func (p *Provider) keepLease(ctx context.Context, first bool) error {
	if p.owner.Lease <= 0 {
		return nil
	}
	l := &p.lease
	l.mu.Lock()
	due := l.renewed.IsZero() && first || !l.renewed.IsZero() && time.Since(l.renewed) >= p.owner.Lease/leaseTries
	busy := l.busy && !l.renewed.IsZero()
	if due && !busy {
		l.busy = true
	}
	l.mu.Unlock()
	if !due || busy {
		return nil
	}
	sent := time.Now()
	err := p.renew(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
	if err == nil {
		l.renewed = sent
	}
	return err
}

// leaseHolds reports whether the Lease has half of its time left, in which beats can still renew it.
func (p *Provider) leaseHolds() bool {
	p.lease.mu.Lock()
	defer p.lease.mu.Unlock()
	return !p.lease.renewed.IsZero() && time.Since(p.lease.renewed) < p.owner.Lease/2
}

// unowned returns the error of a create that was not sent, since its owner would soon be taken for dead.
func (p *Provider) unowned(err error) error {
	if e, ok := errors.AsType[*sandbox.APIError](err); ok {
		no := *e
		no.Op, no.Refused, no.Err = sandbox.OpCreate, true, fmt.Errorf("the owner's Lease: %w", e.Err)
		return &no
	}
	return p.refuse(sandbox.OpCreate, "", nil, fmt.Errorf("the owner's Lease: %w", err))
}

// renew writes the service's own time into the Lease, so that no clock of ours is in it: it is what the API server's Date
// says, which the Lease itself is asked for.
func (p *Provider) renew(ctx context.Context) error {
	var now lease
	ans, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpExtend, Method: http.MethodGet, Path: p.path(coord, "leases", p.leaseName()), Out: &now, Rules: inside,
	})
	missing := isStatus(err, http.StatusNotFound, "")
	if err != nil && !missing {
		return err
	}
	if ans.Date.IsZero() {
		return p.failed(sandbox.OpExtend, "", nil, errors.New("the API server tells no time (Date)"))
	}
	spec := leaseSpec{Holder: p.process, Duration: int64(p.owner.Lease / time.Second), Renewed: ans.AsOf().UTC().Format(microTime)}
	req := httpapi.Request{
		Op: sandbox.OpExtend, Method: http.MethodPatch, Path: p.path(coord, "leases", p.leaseName()), Query: strict, Header: mergePatch,
		Body: map[string]any{"spec": spec}, Rules: inside,
	}
	if missing {
		made := lease{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Spec: spec}
		made.Meta.Name, made.Meta.Labels = p.leaseName(), map[string]string{managedBy: manager}
		req.Method, req.Path, req.Header, req.Body = http.MethodPost, p.path(coord, "leases"), nil, made
	}
	if _, err = p.do(ctx, req); missing && isStatus(err, http.StatusConflict, reasonExists) {
		return nil
	}
	return err
}

// Retire removes the process's Lease, if it has one: to be called once its last sandbox is gone. Without it the Lease
// stays, a small record that stands for a dead process.
func (p *Provider) Retire(ctx context.Context) error {
	if p.owner.Lease <= 0 {
		return nil
	}
	_, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpDelete, Method: http.MethodDelete, Path: p.path(coord, "leases", p.leaseName()), Rules: inside,
	})
	if err != nil && !isStatus(err, http.StatusNotFound, "") {
		return fmt.Errorf("owner's Lease: %w", err)
	}
	p.lease.mu.Lock()
	defer p.lease.mu.Unlock()
	p.lease.renewed = time.Time{}
	return nil
}

func (p *Provider) warn(ctx context.Context, op sandbox.Op, id, what string, err error) {
	p.log.WarnContext(ctx, what, slog.String("provider", p.name), slog.String("sandbox_id", id), slog.String("op", string(op)),
		slog.Any("error", err))
}
