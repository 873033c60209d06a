package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A ref is an ID taken apart: a Job's name and its uid. The name alone is an ID too, for who types it: then it is that of
// whichever sandbox has the name.
type ref struct {
	id   string
	name string
	uid  string // empty: not said
}

func idOf(j *job) string { return j.Meta.Name + "/" + j.Meta.UID }

// parse takes an ID apart.
func (p *Provider) parse(op sandbox.Op, id string) (ref, error) {
	name, uid, both := strings.Cut(id, "/")
	if !names.MatchString(name) || both && !uids.MatchString(uid) {
		return ref{}, p.refuse(op, id, sandbox.ErrNotFound, errors.New("not a sandbox's id"))
	}
	return ref{id: id, name: name, uid: uid}, nil
}

// A view is what one look has shown of a sandbox.
type view struct {
	job    *job // nil: it is gone, and has left pods
	pods   []pod
	looked bool // pods are all there are; false: nobody has asked
	ans    httpapi.Answer
}

// known is what a later call need not ask for again.
type known struct {
	started time.Time // of the Job; zero: no lease runs yet
	dated   bool      // the service has told its time
	pod     string    // name; empty: none is known
	ip      string
	ports   []port
}

// look asks for the Job, and for its pods: a Job's own word for them comes later than theirs, and a Job that is gone may
// have left some. A Job that is not ours is not found.
func (p *Provider) look(ctx context.Context, op sandbox.Op, r ref) (view, error) {
	j, ans, err := p.job(ctx, op, r)
	switch {
	case err == nil:
		v := view{job: j, ans: ans, looked: true}
		v.pods, _, err = p.podsOf(ctx, op, ref{r.id, r.name, j.Meta.UID})
		return v, err
	case !errors.Is(err, sandbox.ErrNotFound):
		return view{}, err
	}
	missing := err
	v := view{looked: true}
	if v.pods, v.ans, err = p.podsOf(ctx, op, r); err != nil {
		return view{}, err
	}
	if len(v.pods) == 0 {
		return view{}, missing
	}
	return v, nil
}

// job asks for the Job. One with another uid, or that is not ours, is not found.
func (p *Provider) job(ctx context.Context, op sandbox.Op, r ref) (*job, httpapi.Answer, error) {
	var j job
	ans, err := p.do(ctx, httpapi.Request{
		Op: op, ID: r.id, Method: http.MethodGet, Path: p.path(batch, "jobs", r.name), Out: &j,
	})
	switch {
	case err != nil:
		return nil, ans, err
	case r.uid != "" && j.Meta.UID != r.uid:
		return nil, ans, p.failed(op, r.id, sandbox.ErrNotFound, fmt.Errorf("the name belongs to another Job now, with uid %s", j.Meta.UID))
	case j.Meta.Labels[managedBy] != manager && markOf(j.Meta, false) == (sandbox.Mark{}): // others change labels
		return nil, ans, p.failed(op, r.id, sandbox.ErrNotFound, errors.New("the Job of this name is no sandbox"))
	}
	return &j, ans, nil
}

// podsOf asks for all pods that the Job with r's uid has made: the label tells them even when they have been orphaned.
// Without a uid they are those of ours that bear the Job's name, as long as one Job alone has made them.
func (p *Provider) podsOf(ctx context.Context, op sandbox.Op, r ref) ([]pod, httpapi.Answer, error) {
	selector := jobUID + "=" + r.uid
	if r.uid == "" {
		selector = managedBy + "=" + manager + "," + jobName + "=" + r.name
	}
	var l page[pod]
	ans, err := p.do(ctx, httpapi.Request{
		Op: op, ID: r.id, Method: http.MethodGet, Path: p.path(core, "pods"), Query: "labelSelector=" + url.QueryEscape(selector), Out: &l,
		Rules: noSandbox,
	})
	for i := range l.Items {
		if uid := l.Items[i].Meta.Labels[jobUID]; err == nil && r.uid == "" && uid != l.Items[0].Meta.Labels[jobUID] {
			err = p.failed(op, r.id, sandbox.ErrConflict, fmt.Errorf("several Jobs of this name have left pods: say which, as %s/%s or %s/%s",
				r.name, l.Items[0].Meta.Labels[jobUID], r.name, uid))
		}
	}
	return l.Items, ans, err
}

// Get looks at the Job and at its pods. A Job that is gone while a pod of it is left is not gone: that is
// [sandbox.StateFailed], or [sandbox.StateEnding] if the pod is on its way.
func (p *Provider) Get(ctx context.Context, id string) (sandbox.Info, error) {
	info, err := p.get(ctx, sandbox.OpGet, id)
	if err == nil { // near the hard end, beats only look
		if err := p.keepLease(ctx, false); err != nil {
			p.warn(ctx, sandbox.OpGet, id, "the owner's Lease is not renewed", err)
		}
	}
	return info, err
}

func (p *Provider) get(ctx context.Context, op sandbox.Op, id string) (sandbox.Info, error) {
	r, err := p.parse(op, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	v, err := p.look(ctx, op, r)
	if err != nil {
		if errors.Is(err, sandbox.ErrNotFound) {
			p.doubts.forget(r.uid)
		}
		return sandbox.Info{}, err
	}
	return p.info(id, v), nil
}

// markOf reads the mark. Copies inherit annotations, and anybody can write them: the mark counts only under the name that
// was made from it, or on a pod that the cluster named after it.
func markOf(m meta, isPod bool) sandbox.Mark {
	mark, err := sandbox.ParseMark(m.Annotations[sandbox.MarkKey])
	if err != nil || !isPod && m.Name != mark.Name() || isPod && !strings.HasPrefix(m.Name, mark.Name()+"-") {
		return sandbox.Mark{}
	}
	return mark
}

func tagsOf(m meta) (tags map[string]string) {
	if json.Unmarshal([]byte(m.Annotations[tagsKey]), &tags) != nil {
		return nil
	}
	return tags
}

// present returns the pod that counts: one that is not on its way out, if there is any.
func present(pods []pod) *pod {
	var best *pod
	rank := func(p *pod) int {
		switch {
		case p.Meta.Deleted == nil && p.Status.Phase == "Running":
			return 3
		case p.Meta.Deleted == nil && !p.over():
			return 2
		case !p.over():
			return 1
		}
		return 0
	}
	for i := range pods {
		if best == nil || rank(&pods[i]) > rank(best) {
			best = &pods[i]
		}
	}
	return best
}

// over reports whether all of a pod's processes have ended, by its node's own word.
func (p *pod) over() bool { return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" }

// deadline returns when the pod's node ends it, or a little before that: the node counts from when it has begun the pod, by
// its own clock, which may be any other than the API server's.
func (p *pod) deadline() time.Time {
	if p.Meta.Created == nil || p.Status.Started == nil || p.Spec.Deadline == nil {
		return time.Time{}
	}
	return p.Meta.Created.Add(time.Duration(min(*p.Spec.Deadline, maxSeconds)) * time.Second)
}

// started returns when the Job's deadline began to count: zero as long as no controller has seen the Job, and while it is
// suspended.
func (j *job) started() time.Time {
	if j.Status == nil || j.Status.Started == nil {
		return time.Time{}
	}
	return *j.Status.Started
}

// deadline returns when the Job ends; zero if it never does, or does not know yet.
func (j *job) deadline() time.Time {
	if j.started().IsZero() || j.Spec.Deadline == nil {
		return time.Time{}
	}
	return j.started().Add(time.Duration(min(*j.Spec.Deadline, maxSeconds)) * time.Second)
}

func (j *job) suspended() bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

// ending returns the condition by which the Job is about to end or has ended.
func (j *job) ending() (c condition, finished, ok bool) {
	if j.Status == nil {
		return condition{}, false, false
	}
	if c, ok = has(j.Status.Conditions, "Failed", "Complete"); ok {
		return c, true, true
	}
	c, ok = has(j.Status.Conditions, "FailureTarget", "SuccessCriteriaMet")
	return c, false, ok
}

// stuckTime is how long after its grace a deletion that has not come to its end is taken for one that does not: of a dead
// node, or without a controller.
const stuckTime = time.Minute

// startPatience is how long an image that cannot be had is waited for: registries fail for moments.
const startPatience = time.Minute

// info translates a view.
func (p *Provider) info(id string, v view) sandbox.Info {
	i := sandbox.Info{ID: id, AsOf: v.ans.AsOf()}
	k := &known{dated: !v.ans.Date.IsZero()}
	i.Native = k
	box := present(v.pods)
	if box != nil {
		i.Run = box.Meta.UID
		k.pod, k.ip = box.Meta.Name, box.Status.IP
		for _, c := range box.Spec.Containers {
			if c.Name == boxName {
				k.ports = c.Ports
			}
		}
	}
	j := v.job
	if j == nil {
		orphaned(&i, box)
		return i
	}
	k.started = j.started()
	i.Mark, i.Tags, i.Created = markOf(j.Meta, false), tagsOf(j.Meta), *j.Meta.Created
	i.State, i.Detail = stateOf(j, box, v.looked, i.AsOf)
	if i.State == sandbox.StateRunning && j.started().IsZero() { // the Job was looked at a moment before its pod
		i.State, i.Detail = sandbox.StateStarting, "its lease has not begun"
		return i
	}
	if i.State == sandbox.StateStarting || i.State == sandbox.StateRunning || i.State == sandbox.StateUnknown {
		i.Deadline = j.deadline()
		if box != nil && !j.started().IsZero() { // pods begin before their Job's deadline does: their own end is no lease
			if hard := box.deadline(); !hard.IsZero() && (i.Deadline.IsZero() || hard.Before(i.Deadline)) {
				i.Deadline = hard
			}
		}
		if j.Spec.Deadline == nil {
			i.Detail += ", and its Job has no deadline"
		}
	}
	if i.State == sandbox.StateRunning && p.doubts.doubt(j.Meta.UID, i.AsOf) {
		i.State, i.Detail = sandbox.StateUnknown, "extended so late that the Job may be ending all the same"
	}
	return i
}

// orphaned fills in what a pod tells whose Job is gone. Nothing but its hard end ends it, which is no lease.
func orphaned(i *sandbox.Info, box *pod) {
	i.Mark, i.Tags = markOf(box.Meta, true), tagsOf(box.Meta)
	if box.Meta.Created != nil {
		i.Created = *box.Meta.Created
	}
	switch {
	case box.Meta.Deleted != nil && i.AsOf.Before(box.Meta.Deleted.Add(stuckTime)):
		i.State, i.Detail = sandbox.StateEnding, "its Job is gone, and its pod "+box.Meta.Name+" is ending"
	case box.Meta.Deleted != nil:
		i.State, i.Detail = sandbox.StateFailed, stuckSince(box.Meta.Name, *box.Meta.Deleted)
	case box.over():
		i.State, i.Detail = sandbox.StateDormant, "its Job is gone, and its pod "+box.Meta.Name+" has ended and stays"
	default:
		i.State, i.Detail = sandbox.StateFailed, "its Job is gone, and its pod "+box.Meta.Name+" runs on"
		if hard := box.deadline(); !hard.IsZero() {
			i.Detail += " until " + hard.UTC().Format(time.RFC3339)
		}
	}
}

func stuckSince(what string, at time.Time) string {
	return what + " was to be gone at " + at.UTC().Format(time.RFC3339) +
		", and that is not confirmed: is its node dead, or the controller manager?"
}

// stateOf says how a Job and its pod are, of which there may be none. Without looked, nobody has asked for pods.
func stateOf(j *job, box *pod, looked bool, now time.Time) (sandbox.State, string) {
	end, finished, ends := j.ending()
	runs := box != nil && !box.over()
	switch {
	case j.Meta.Deleted != nil && now.After(j.Meta.Deleted.Add(grace*time.Second+stuckTime)):
		return sandbox.StateFailed, stuckSince("the Job", *j.Meta.Deleted)
	case j.Meta.Deleted != nil:
		return sandbox.StateEnding, "deleted"
	case finished && !runs:
		return sandbox.StateDormant, said(end.Type, end.Reason) // about to be removed
	case ends:
		return sandbox.StateEnding, said(end.Type, end.Reason)
	case j.suspended() && runs:
		return sandbox.StateEnding, "suspended"
	case j.suspended():
		return sandbox.StateDormant, "suspended, so that no deadline ends it"
	case box == nil && !looked:
		return sandbox.StateUnknown, "pods not looked at"
	case box == nil:
		return sandbox.StateStarting, "no pod yet; if it stays so, kubectl describe job " + j.Meta.Name +
			" tells who refuses it, such as Pod Security or a quota"
	case box.Meta.Deleted != nil && now.After(box.Meta.Deleted.Add(stuckTime)):
		return sandbox.StateFailed, stuckSince(box.Meta.Name, *box.Meta.Deleted)
	case box.Meta.Deleted != nil || box.over():
		return sandbox.StateEnding, said("its pod is ending", box.Status.Phase+" "+box.Status.Reason)
	}
	return box.state(now)
}

// state says how a pod is whose Job wants it to run.
func (p *pod) state(now time.Time) (sandbox.State, string) {
	switch p.Status.Phase {
	case "Running":
		return sandbox.StateRunning, p.Status.Phase
	case "Pending":
	default:
		return sandbox.StateUnknown, said(p.Status.Phase, p.Status.Reason)
	}
	for _, c := range p.Status.Containers {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		why := said(w.Reason, w.Message)
		switch w.Reason {
		case "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError": // no wait changes that
			return sandbox.StateFailed, why
		case "ErrImagePull", "ImagePullBackOff", "CreateContainerError", "RunContainerError", "CrashLoopBackOff":
			if p.Meta.Created != nil && now.After(p.Meta.Created.Add(startPatience)) {
				return sandbox.StateFailed, why
			}
		}
		return sandbox.StateStarting, why
	}
	for _, c := range p.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" {
			return sandbox.StateStarting, said(c.Reason, c.Message)
		}
	}
	return sandbox.StateStarting, p.Status.Phase
}

// said joins a word and a reason, shortened.
func said(word, reason string) string {
	const most = 200
	reason = strings.TrimSpace(reason)
	if reason == "" {
		return word
	}
	if reason = word + ": " + reason; len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + " ..."
	}
	return reason
}
