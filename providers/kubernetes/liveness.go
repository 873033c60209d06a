package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

const (
	youth    = time.Minute      // a sandbox so new tells nothing: what it was read against may be older
	skew     = time.Minute      // between the clocks of a node and of the API server, at most
	maxFound = 10_000           // owners that are remembered as seen dead
	twice    = 30 * time.Second // between the two looks that have to agree
)

// Owners tells whether the owners of sandboxes live, by what [Owner] has written on them: it is a [sweep.Liveness]. Make it
// with [Provider.Owners]; one that is used for all passes of a sweeper learns the most. It is safe for concurrent use.
type Owners struct {
	p *Provider

	mu    sync.Mutex           // held for memory operations only
	found map[string]time.Time // when an owner was first found dead, by the service's clock
}

// Owners returns a source of liveness, which asks with p's credentials. These need the right to get pods in the owners'
// namespaces, and Leases in p's.
func (p *Provider) Owners() *Owners { return &Owners{p: p, found: map[string]time.Time{}} }

// Life looks at the sandbox and then at its owner. Dead is an owner whose pod is not there, has another uid, or has ended;
// whose container has begun anew since; or whose Lease was not renewed in time: each seen twice, at least 30 s apart, by
// the service's clock, of a sandbox that is older than a minute. What cannot be seen, for want of a right, an answer or a
// word on the sandbox, is unknown, and never dead.
func (o *Owners) Life(ctx context.Context, info sandbox.Info) (sweep.Life, error) {
	r, err := o.p.parse(sandbox.OpGet, info.ID)
	if err != nil {
		return sweep.Unknown, err
	}
	v, err := o.p.look(ctx, sandbox.OpGet, r)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return sweep.Unknown, nil // there is nothing left to decide on
	case err != nil:
		return sweep.Unknown, err
	}
	var m meta
	switch {
	case v.job != nil:
		m = v.job.Meta
	case len(v.pods) > 0:
		m = v.pods[0].Meta
	}
	var owner ownership
	if said := m.Annotations[ownerKey]; said == "" || json.Unmarshal([]byte(said), &owner) != nil {
		return sweep.Unknown, nil
	}
	if m.Created == nil || v.ans.AsOf().Sub(*m.Created) < youth {
		return sweep.Unknown, nil
	}
	var dead bool
	var now time.Time
	switch {
	case owner.Lease != "" && names.MatchString(owner.Lease) && owner.Namespace == o.p.namespace:
		dead, now, err = o.leaseOver(ctx, owner)
	case isLabel(owner.Namespace) && names.MatchString(owner.Pod) && uids.MatchString(owner.UID):
		dead, now, err = o.podOver(ctx, owner, *m.Created)
	default:
		return sweep.Unknown, nil
	}
	return o.judge(owner, dead, now, err)
}

// judge has two looks agree.
func (o *Owners) judge(owner ownership, dead bool, now time.Time, err error) (sweep.Life, error) {
	key := owner.Namespace + "/" + owner.UID + "/" + owner.Process
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil { // seen before is still seen
		return sweep.Unknown, err
	}
	if !dead {
		delete(o.found, key)
		return sweep.Alive, nil
	}
	first, seen := o.found[key]
	if !seen {
		if len(o.found) >= maxFound {
			clear(o.found)
		}
		o.found[key] = now
		return sweep.Unknown, nil
	}
	if now.Sub(first) < twice {
		return sweep.Unknown, nil
	}
	return sweep.Dead, nil
}

// podOver reports whether an owner's pod has ended, or its container has begun anew since the sandbox was made.
func (o *Owners) podOver(ctx context.Context, owner ownership, made time.Time) (bool, time.Time, error) {
	var pd pod
	ans, err := o.p.do(ctx, httpapi.Request{
		Op: sandbox.OpGet, Method: http.MethodGet, Path: core + "/namespaces/" + owner.Namespace + "/pods/" + owner.Pod, Out: &pd,
	})
	switch {
	case isStatus(err, http.StatusNotFound, "NotFound"):
		return true, ans.AsOf(), nil
	case err != nil:
		return false, time.Time{}, err
	case pd.Meta.UID != owner.UID || pd.over():
		return true, ans.AsOf(), nil
	}
	all := pd.Status.Containers
	i := slices.IndexFunc(all, func(c containerStatus) bool { return c.Name == owner.Container })
	if owner.Container == "" && len(all) == 1 {
		i = 0
	}
	if i >= 0 && all[i].State.Running != nil && all[i].State.Running.Started.After(made.Add(skew)) {
		return true, ans.AsOf(), nil
	}
	return false, ans.AsOf(), nil
}

// leaseOver reports whether an owner's Lease was not renewed in time.
func (o *Owners) leaseOver(ctx context.Context, owner ownership) (bool, time.Time, error) {
	var l lease
	ans, err := o.p.do(ctx, httpapi.Request{
		Op: sandbox.OpGet, Method: http.MethodGet, Path: o.p.path(coord, "leases", owner.Lease), Out: &l,
	})
	switch {
	case isStatus(err, http.StatusNotFound, "NotFound"):
		return true, ans.AsOf(), nil
	case err != nil:
		return false, time.Time{}, err
	case ans.Date.IsZero():
		return false, time.Time{}, errors.New("kubernetes: the API server tells no time (Date), against which a Lease could be read")
	}
	renewed, err := time.Parse(microTime, l.Spec.Renewed)
	if err != nil || l.Spec.Duration <= 0 {
		return false, time.Time{}, errors.New("kubernetes: an owner's Lease that tells no time")
	}
	return ans.AsOf().After(renewed.Add(time.Duration(l.Spec.Duration) * time.Second)), ans.AsOf(), nil
}
