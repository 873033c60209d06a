package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	nearest = 4 * time.Second // before its old deadline, a Job may end although it was extended
	settle  = 3 * time.Second // after it, a Job that lives was really extended
)

var mergePatch = http.Header{"Content-Type": {"application/merge-patch+json"}}

// Extend sets the Job's deadline, which counts from its start, in one request, and looks at its pod in another. The
// service's clock is its Date header, which lies up to a second behind the true one, and the start is cut off to a whole
// second; a second is added for these, so that the owner may rely on what is granted. The end is at most one second later
// than asked.
//
// The API server also says yes to an extension that comes too late: what ends Jobs is another component, which may have
// seen the deadline before. So an extension near the old deadline counts only once that has passed and the Job is still
// there. Until then the state is [sandbox.StateUnknown], in [Provider.Get] too.
//
// It never touches another Job than the one in cur.ID, and wakes nothing: of one that is suspended or on its way out it
// returns what it sees.
func (p *Provider) Extend(ctx context.Context, cur sandbox.Info, window time.Duration) (sandbox.Info, error) {
	r, err := p.parse(sandbox.OpExtend, cur.ID)
	if err != nil {
		return sandbox.Info{}, err
	}
	if window < minWindow || window > maxWindow || window%time.Second != 0 {
		err := fmt.Errorf("window %v is not in %v to %v in whole seconds", window, minWindow, maxWindow)
		return sandbox.Info{}, p.refuse(sandbox.OpExtend, cur.ID, sandbox.ErrInvalid, err)
	}
	k, _ := cur.Native.(*known)
	seen := time.Now()
	if k == nil || !k.dated || k.started.IsZero() || r.uid == "" {
		v, err := p.look(ctx, sandbox.OpExtend, r)
		seen = time.Now()
		switch {
		case err != nil:
			return sandbox.Info{}, err
		case v.job == nil:
			return p.info(cur.ID, v), nil
		case v.ans.Date.IsZero():
			err := errors.New("the API server tells no time (Date), so that nothing can be counted from its now")
			return sandbox.Info{}, p.failed(sandbox.OpExtend, cur.ID, nil, err)
		}
		r.uid, cur = v.job.Meta.UID, p.info(cur.ID, v)
		k, _ = cur.Native.(*known)
	}
	patch := deadlinePatch{}
	patch.Meta.UID = r.uid
	patch.Spec.Deadline, err = secondsFor(k.started, cur.AsOf, window)
	if err != nil {
		return sandbox.Info{}, p.refuse(sandbox.OpExtend, cur.ID, sandbox.ErrInvalid, err)
	}
	j, ans, err := p.patch(ctx, sandbox.OpExtend, r, patch)
	if err != nil {
		if isStatus(err, http.StatusNotFound, "") || isStatus(err, http.StatusUnprocessableEntity, reasonInvalid) {
			return p.after(ctx, r, err)
		}
		return sandbox.Info{}, err
	}
	now := cur.AsOf.Add(time.Since(seen))
	if ans.AsOf().After(now) {
		now = ans.AsOf()
	}
	p.doubts.extended(r.uid, cur.Deadline, j.deadline(), now, window)
	v := view{job: j, ans: ans, looked: true}
	if v.pods, err = p.pod(ctx, r, k.pod); err != nil {
		return sandbox.Info{}, err
	}
	if err := p.keepLease(ctx, false); err != nil { // the sandbox is extended all the same
		p.warn(ctx, sandbox.OpExtend, cur.ID, "the owner's Lease is not renewed", err)
	}
	return p.info(cur.ID, v), nil
}

// secondsFor returns the deadline of a Job that started at started to end window from now.
func secondsFor(started, now time.Time, window time.Duration) (int64, error) {
	var passed time.Duration
	if !started.IsZero() { // else the deadline counts from the start that is yet to come
		passed = max(now.Sub(started), 0)
	}
	seconds := int64((passed+window)/time.Second) + 1
	if seconds > maxSeconds {
		return 0, fmt.Errorf("a deadline of %d s, of which the cluster knows no more than %d", seconds, maxSeconds)
	}
	return seconds, nil
}

// patch moves the deadline.
func (p *Provider) patch(ctx context.Context, op sandbox.Op, r ref, patch deadlinePatch) (*job, httpapi.Answer, error) {
	var j job
	ans, err := p.do(ctx, httpapi.Request{
		Op: op, ID: r.id, Method: http.MethodPatch, Path: p.path(batch, "jobs", r.name), Query: strict, Header: mergePatch, Body: patch, Out: &j,
	})
	if err == nil && (j.Meta.UID != r.uid || j.Spec.Deadline == nil || *j.Spec.Deadline > patch.Spec.Deadline) {
		err = p.failed(op, r.id, nil, errors.New("the answer is about another Job, or its deadline is not the one that was set"))
	}
	return &j, ans, err
}

// pod looks at the one pod that is known, or at all.
func (p *Provider) pod(ctx context.Context, r ref, name string) ([]pod, error) {
	if name != "" {
		var one pod
		_, err := p.do(ctx, httpapi.Request{
			Op: sandbox.OpExtend, ID: r.id, Method: http.MethodGet, Path: p.path(core, "pods", name), Out: &one, Rules: inside,
		})
		if err == nil && one.Meta.Labels[jobUID] == r.uid {
			return []pod{one}, nil
		}
		if err != nil && !isStatus(err, http.StatusNotFound, "") {
			return nil, err
		}
	}
	pods, _, err := p.podsOf(ctx, sandbox.OpExtend, r)
	return pods, err
}

// after looks at what has become of a Job that could not be extended because it is not there, or has another uid. That it
// is there all the same is no success.
func (p *Provider) after(ctx context.Context, r ref, refusal error) (sandbox.Info, error) {
	info, err := p.get(ctx, sandbox.OpExtend, r.id)
	if err == nil && (info.State == sandbox.StateRunning || info.State == sandbox.StateStarting) {
		return sandbox.Info{}, refusal
	}
	return info, err
}

// Shorten sets the Job's deadline left from now, unless it is nearer. A beat that comes in between is a conflict, and the
// deadline stays.
func (p *Provider) Shorten(ctx context.Context, id string, left time.Duration) error {
	r, err := p.parse(sandbox.OpShorten, id)
	if err != nil {
		return err
	}
	if left < minWindow {
		return p.refuse(sandbox.OpShorten, id, sandbox.ErrInvalid, fmt.Errorf("%v is less than %v", left, minWindow))
	}
	j, ans, err := p.job(ctx, sandbox.OpShorten, r)
	if err != nil {
		return err
	}
	if ans.Date.IsZero() {
		return p.failed(sandbox.OpShorten, id, nil, errors.New("the API server tells no time (Date)"))
	}
	seconds, err := secondsFor(j.started(), ans.AsOf(), left)
	if err != nil || j.Spec.Deadline != nil && *j.Spec.Deadline <= seconds {
		return nil
	}
	patch := deadlinePatch{}
	patch.Meta.UID, patch.Meta.ResourceVersion, patch.Spec.Deadline = j.Meta.UID, j.Meta.ResourceVersion, seconds
	_, _, err = p.patch(ctx, sandbox.OpShorten, ref{id, j.Meta.Name, j.Meta.UID}, patch)
	return err
}

// doubts are the extensions that came so late that the Job may have ended all the same, by uid: the deadlines that were
// before them. There is an entry only where there is such a one. The zero value is ready for use.
type doubts struct {
	mu  sync.Mutex // held for memory operations only
	old map[string]time.Time
}

// extended notes an extension that moved a deadline from before to after. now is the service's clock at its answer, up to
// a second behind.
func (d *doubts) extended(uid string, before, after, now time.Time, window time.Duration) {
	if before.IsZero() || !after.After(before) || !now.Add(time.Second+min(nearest, window/5)).After(before) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for other, old := range d.old { // what nobody has asked for again
		if now.After(old.Add(24 * time.Hour)) {
			delete(d.old, other)
		}
	}
	if d.old == nil {
		d.old = map[string]time.Time{}
	}
	if _, there := d.old[uid]; !there { // an end that is in doubt already is the earlier one
		d.old[uid] = before
	}
}

// doubt reports whether a Job that shows no end now may yet be ending. Once that can no longer be, it is forgotten.
func (d *doubts) doubt(uid string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, there := d.old[uid]
	if there && !now.Before(old.Add(settle)) {
		delete(d.old, uid)
		there = false
	}
	return there
}

func (d *doubts) forget(uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.old, uid)
}
