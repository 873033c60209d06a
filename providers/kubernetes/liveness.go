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
	maxFound = 10_000           // owners and sandboxes that are remembered, each
	twice    = 30 * time.Second // between the two looks that have to agree
	fresh    = 5 * time.Second  // for which an answer about an owner counts for all of his sandboxes
)

// Owners tells whether the owners of sandboxes live, by what [Owner] has written on them: it is a [sweep.Liveness]. Make it
// with [Provider.Owners]; one that is used for all passes of a sweeper learns the most, and asks the least: what is
// written on a sandbox once, and for an owner no more than every 5 s. It is safe for concurrent use.
type Owners struct {
	p *Provider

	mu    sync.Mutex            // held for memory operations only
	owned map[string]owned      // by sandbox, with its uid: who is written on it never changes
	seen  map[string]ownerState // by owner, the latest answer
	found map[string]sighting   // by owner, when he was first found dead
}

// owned is whose a sandbox is.
type owned struct {
	owner ownership // zero: nobody is named, or not in our way
	made  time.Time // zero: not told
}

// ownerState is an answer of the API server about an owner.
type ownerState struct {
	at    time.Time // when it arrived, by our clock
	now   time.Time // the service's
	over  bool
	anew  time.Time // when the process's container began anew, or ended; zero: it runs for the first time, or nobody tells
	proof string    // what it goes by
}

// A sighting is what an owner was found dead by. Only the same seen again is proof: in between he may have lived.
type sighting struct {
	at    time.Time // by the service's clock
	proof string
}

// Owners returns a source of liveness, which asks with p's credentials. These need the right to get pods in the owners'
// namespaces, and Leases in p's.
func (p *Provider) Owners() *Owners {
	return &Owners{p: p, owned: map[string]owned{}, seen: map[string]ownerState{}, found: map[string]sighting{}}
}

// Life looks at the sandbox and then at its owner. Dead is an owner whose pod is not there, has another uid, or has ended;
// whose container has begun anew, or ended, when the sandbox was older than a minute; or whose Lease was not renewed in
// time: the same seen twice, at least 30 s apart, by the service's clock, of a sandbox that is older than a minute. What
// cannot be seen, for want of a right, an answer or a word on the sandbox, is unknown, and never dead: so is an owner whose
// container began anew within a minute of the sandbox, before or after, since nodes and API servers have clocks of their own.
func (o *Owners) Life(ctx context.Context, info sandbox.Info) (sweep.Life, error) {
	box, err := o.of(ctx, info.ID)
	if err != nil || box.made.IsZero() || box.owner == (ownership{}) || !info.AsOf.IsZero() && info.AsOf.Sub(box.made) < youth {
		return sweep.Unknown, err
	}
	state, err := o.state(ctx, box.owner)
	switch {
	case err != nil: // seen dead before is still seen
		return sweep.Unknown, err
	case state.now.Sub(box.made) < youth:
		return sweep.Unknown, nil
	}
	if !state.over && state.anew.After(box.made.Add(-skew)) && !state.anew.After(box.made.Add(skew)) {
		return sweep.Unknown, nil
	}
	return o.judge(box.owner.key(), state.over || state.anew.After(box.made), state), nil
}

// of reads whose a sandbox is. A sandbox that is gone is nobody's.
func (o *Owners) of(ctx context.Context, id string) (owned, error) {
	r, err := o.p.parse(sandbox.OpGet, id)
	if err != nil {
		return owned{}, err
	}
	if box, ok := recall(o, o.owned, id); ok {
		return box, nil
	}
	var m meta
	switch j, _, err := o.p.job(ctx, sandbox.OpGet, r); {
	case err == nil:
		m = j.Meta
	case !errors.Is(err, sandbox.ErrNotFound):
		return owned{}, err
	case r.uid == "":
		return owned{}, nil
	default: // a pod that its Job has left
		pods, _, err := o.p.podsOf(ctx, sandbox.OpGet, r)
		if err != nil || len(pods) == 0 {
			return owned{}, err
		}
		m = pods[0].Meta
	}
	var box owned
	if m.Created != nil {
		box.made = *m.Created
	}
	if said := m.Annotations[ownerKey]; said != "" && (json.Unmarshal([]byte(said), &box.owner) != nil || !box.owner.plausible(o.p.namespace)) {
		box.owner = ownership{}
	}
	if r.uid != "" {
		remember(o, o.owned, id, box)
	}
	return box, nil
}

// plausible reports whether o can be asked for: it was read from where others may write.
func (o ownership) plausible(namespace string) bool {
	if o.Lease != "" {
		return names.MatchString(o.Lease) && o.Namespace == namespace
	}
	return isLabel(o.Namespace) && names.MatchString(o.Pod) && uids.MatchString(o.UID)
}

func (o ownership) key() string { return o.Namespace + "/" + o.UID + "/" + o.Process }

// state asks for an owner, unless that was done a moment ago.
func (o *Owners) state(ctx context.Context, owner ownership) (ownerState, error) {
	if s, ok := recall(o, o.seen, owner.key()); ok && time.Since(s.at) < fresh {
		return s, nil
	}
	ask := o.pod
	if owner.Lease != "" {
		ask = o.lease
	}
	s, err := ask(ctx, owner)
	if err != nil {
		return ownerState{}, err
	}
	s.at = time.Now()
	remember(o, o.seen, owner.key(), s)
	return s, nil
}

// recall and remember keep what is known within bounds.
func recall[T any](o *Owners, m map[string]T, key string) (T, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := m[key]
	return v, ok
}

func remember[T any](o *Owners, m map[string]T, key string, v T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(m) >= maxFound {
		clear(m)
	}
	m[key] = v
}

// judge has two looks agree.
func (o *Owners) judge(key string, dead bool, s ownerState) sweep.Life {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !dead {
		delete(o.found, key)
		return sweep.Alive
	}
	first, seen := o.found[key]
	if !seen || first.proof != s.proof {
		if len(o.found) >= maxFound {
			clear(o.found)
		}
		o.found[key] = sighting{s.now, s.proof}
		return sweep.Unknown
	}
	if s.now.Sub(first.at) < twice {
		return sweep.Unknown
	}
	return sweep.Dead
}

// pod asks whether an owner's pod has ended, and when its container began.
func (o *Owners) pod(ctx context.Context, owner ownership) (ownerState, error) {
	var pd pod
	ans, err := o.p.do(ctx, httpapi.Request{
		Op: sandbox.OpGet, Method: http.MethodGet, Path: core + "/namespaces/" + owner.Namespace + "/pods/" + owner.Pod, Out: &pd,
	})
	s := ownerState{now: ans.AsOf()}
	switch {
	case isStatus(err, http.StatusNotFound, "NotFound"):
		s.over, s.proof = true, "no pod"
		return s, nil
	case err != nil:
		return ownerState{}, err
	case pd.Meta.UID != owner.UID || pd.over():
		s.over, s.proof = true, "pod "+pd.Meta.UID+" "+pd.Status.Phase
		return s, nil
	}
	all := pd.Status.Containers
	i := slices.IndexFunc(all, func(c containerStatus) bool { return c.Name == owner.Container })
	if owner.Container == "" && len(all) == 1 {
		i = 0
	}
	if i >= 0 && all[i].Restarts > 0 { // without, it is the container's first time, whatever the node's clock says
		switch c := all[i]; {
		case c.State.Running != nil:
			s.anew = c.State.Running.Started
		case c.Last.Terminated != nil: // it waits for its next time
			s.anew = c.Last.Terminated.Finished
		}
		s.proof = "restarted"
	}
	return s, nil
}

// lease asks whether an owner's Lease was not renewed in time.
func (o *Owners) lease(ctx context.Context, owner ownership) (ownerState, error) {
	var l lease
	ans, err := o.p.do(ctx, httpapi.Request{
		Op: sandbox.OpGet, Method: http.MethodGet, Path: o.p.path(coord, "leases", owner.Lease), Out: &l,
	})
	s := ownerState{now: ans.AsOf()}
	switch {
	case isStatus(err, http.StatusNotFound, "NotFound"):
		s.over, s.proof = true, "no Lease"
		return s, nil
	case err != nil:
		return ownerState{}, err
	case ans.Date.IsZero():
		return ownerState{}, errors.New("kubernetes: the API server tells no time (Date), against which a Lease could be read")
	}
	renewed, err := time.Parse(microTime, l.Spec.Renewed)
	if err != nil || l.Spec.Duration <= 0 {
		return ownerState{}, errors.New("kubernetes: an owner's Lease that tells no time")
	}
	s.over, s.proof = s.now.After(renewed.Add(time.Duration(l.Spec.Duration)*time.Second)), l.Spec.Renewed
	return s, nil
}
