package kubernetes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Limits of a sandbox whose Spec and Options name none. What it reserves for itself is the least of these and of the
// limits: [ReserveCPU], [ReserveMemory].
const (
	DefaultCPU    = 2.0      // cores
	DefaultMemory = 2 << 30  // bytes
	DefaultDisk   = 10 << 30 // bytes of the container's own files, logs included

	ReserveCPU    = 0.1       // cores
	ReserveMemory = 128 << 20 // bytes
)

// Options are what a [sandbox.Spec] may ask of Kubernetes alone, in Spec.Native as a *Options. The zero value asks for
// nothing; fields without a word of their own mean what they mean in a pod's spec.
//
// Nothing here reaches what the lease rests on: the Job's fields, the pod's deadline, grace and restart policy, the name
// and labels of ours, the container's command.
//
// The pod gets no token of a service account, is not privileged, cannot gain privileges and runs under the runtime's
// default seccomp profile, whatever the options say.
type Options struct {
	RuntimeClass  string            // such as "gvisor" or "kata", which must be known to the cluster
	PriorityClass string            //
	NodeSelector  map[string]string //
	Tolerations   []Toleration      //
	PullSecrets   []string          // names of Secrets for the image
	PullPolicy    string            // "Always", "IfNotPresent" or "Never"; default: the cluster's

	// Secrets are names of Secrets whose entries are variables of every command. Spec.Env is readable for whoever may
	// read Jobs and pods; these are not.
	Secrets []string

	// Labels are put on Job and pod beside ours, for NetworkPolicies of the namespace to select them.
	Labels map[string]string

	// ServiceAccount is whose name the pod bears. It gets no token of it.
	ServiceAccount string

	// Restricted drops all capabilities and refuses root, as the Pod Security Standard "restricted" asks. The image must
	// then name a user other than root by number, or User do so.
	Restricted bool

	User, Group int64 // numbers; 0: the image's

	// What the node reserves for the sandbox. Where it is less than the limit, sandboxes share what is idle. 0: the least
	// of the limit and of [ReserveCPU] or [ReserveMemory]; it may not be above the limit.
	ReserveCPU    float64 // cores
	ReserveMemory int64   // bytes
}

// Labels that are not the mark's own keys.
const (
	managedBy = "app.kubernetes.io/managed-by"
	manager   = "sandglass"
	ownerKey  = "sandglass-owner"                    // label: a uid; annotation: all of the owner
	tagsKey   = "sandglass-tags"                     // annotation: in JSON
	jobUID    = "batch.kubernetes.io/controller-uid" // the cluster's own, on pods
	jobName   = "batch.kubernetes.io/job-name"       // the same
	boxName   = "sandbox"                            // of the container
	inCommand = "sh"
)

// sleeper is the first process. It leaves at once when told to, and reaps what commands leave behind.
const sleeper = `trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done`

// undisturbed has autoscalers leave a sandbox on its node, which looks idle to them: what they move, they end. It lasts no
// longer than the hard end. https://karpenter.sh/docs/concepts/disruption, and the FAQ of the cluster autoscaler.
var undisturbed = map[string]string{
	"cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
	"karpenter.sh/do-not-disrupt":                    "true",
}

var (
	labels     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	values     = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
	qualifieds = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
)

func isLabel(s string) bool { return labels.MatchString(s) }
func isValue(s string) bool { return values.MatchString(s) }

// isOwn reports whether a label is ours or the cluster's.
func isOwn(key string) bool {
	return strings.HasPrefix(key, sandbox.MarkKey) || key == managedBy || strings.HasPrefix(key, "batch.kubernetes.io/") ||
		key == "controller-uid" || key == "job-name"
}

// valueOf returns the label value for a fleet: itself, unless it begins or ends with what no value may.
func valueOf(fleet string) string {
	if isValue(fleet) {
		return fleet
	}
	return "x" + fleet + "x"
}

// order returns the Job of a create, or every reason why there is none. No request is made.
func (p *Provider) order(req sandbox.CreateRequest) (*job, error) {
	spec := req.Spec
	faults := []error{spec.Validate()}
	fault := func(kind error, format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, kind)...))
	}
	var o Options
	switch native := spec.Native.(type) {
	case nil:
	case *Options:
		if native != nil {
			o = *native
		}
	default:
		fault(sandbox.ErrInvalid, "native options of type %T, not *kubernetes.Options", spec.Native)
	}
	j := &job{APIVersion: "batch/v1", Kind: "Job"}
	j.Meta.Labels = map[string]string{}
	for k, v := range o.Labels {
		if !qualifieds.MatchString(k) || !isValue(v) || isOwn(k) {
			fault(sandbox.ErrInvalid, "label %.80q cannot be set", k)
		}
		j.Meta.Labels[k] = v
	}
	if spec.Offline {
		if len(p.offline) == 0 {
			fault(errors.ErrUnsupported, "an offline sandbox, which only a NetworkPolicy can make: see Config.Offline")
		}
		maps.Copy(j.Meta.Labels, p.offline)
	}
	j.Spec.Template.Spec = o.pod(p.image, spec, fault)
	p.leased(j, req, fault) // last, over all else
	return j, errors.Join(faults...)
}

// pod returns the pod, but for what the lease rests on.
func (o Options) pod(image string, spec sandbox.Spec, fault func(kind error, format string, args ...any)) podSpec {
	no, yes := false, true
	if spec.Image != "" {
		image = spec.Image
	}
	if !utf8.ValidString(image) || strings.ContainsAny(image, " \t\r\n") {
		fault(sandbox.ErrInvalid, "image %.80q is no name of one", image)
	}
	switch o.PullPolicy {
	case "", "Always", "IfNotPresent", "Never":
	default:
		fault(sandbox.ErrInvalid, "pull policy %.40q is none", o.PullPolicy)
	}
	if o.User < 0 || o.Group < 0 {
		fault(sandbox.ErrInvalid, "user %d or group %d is negative", o.User, o.Group)
	}
	c := container{
		Name: boxName, Image: image, PullPolicy: o.PullPolicy, Resources: o.resources(spec, fault),
		Security: &containerSecurity{Privileged: &no, Escalation: &no},
	}
	for _, k := range slices.Sorted(maps.Keys(spec.Env)) {
		if !utf8.ValidString(k + spec.Env[k]) {
			fault(sandbox.ErrInvalid, "variable %q that is not UTF-8", k)
		}
		// A dollar would otherwise begin a reference to another variable.
		c.Env = append(c.Env, variable{k, strings.ReplaceAll(spec.Env[k], "$", "$$")})
	}
	for _, number := range spec.Ports {
		c.Ports = append(c.Ports, port{number})
	}
	for _, name := range o.Secrets {
		c.EnvFrom = append(c.EnvFrom, envFrom{named{name}})
	}
	s := podSpec{
		MountToken: &no, ServiceLinks: &no, ServiceAccount: o.ServiceAccount, RuntimeClass: o.RuntimeClass, PriorityClass: o.PriorityClass,
		NodeSelector: maps.Clone(o.NodeSelector), Tolerations: slices.Clone(o.Tolerations),
		SecurityContext: &podSecurity{SeccompTyp: &seccomp{"RuntimeDefault"}},
	}
	for _, name := range o.PullSecrets {
		s.PullSecrets = append(s.PullSecrets, named{name})
	}
	if o.User > 0 {
		s.SecurityContext.User = &o.User
	}
	if o.Group > 0 {
		s.SecurityContext.Group = &o.Group
	}
	if o.Restricted {
		s.SecurityContext.NonRoot = &yes
		c.Security.Capabilities = &capabilities{Drop: []string{"ALL"}}
	}
	s.Containers = []container{c}
	return s
}

// resources returns limits for everything, and what is reserved.
func (o Options) resources(spec sandbox.Spec, fault func(kind error, format string, args ...any)) *resources {
	const most = 1 << 20 // cores
	cpu, memory, disk := spec.CPU, spec.Memory, spec.Disk
	if cpu == 0 {
		cpu = DefaultCPU
	}
	if memory == 0 {
		memory = DefaultMemory
	}
	if disk == 0 {
		disk = DefaultDisk
	}
	some, room := o.ReserveCPU, o.ReserveMemory
	if some == 0 {
		some = min(cpu, ReserveCPU)
	}
	if room == 0 {
		room = min(memory, ReserveMemory)
	}
	switch {
	case !(cpu <= most) || cpu < 0.001:
		fault(sandbox.ErrInvalid, "%v cores are not 0.001 to %d", cpu, most)
	case !(some > 0 && some <= cpu):
		fault(sandbox.ErrInvalid, "%v cores to reserve of a limit of %v", some, cpu)
	}
	if room < 0 || room > memory {
		fault(sandbox.ErrInvalid, "%d bytes of memory to reserve of a limit of %d", room, memory)
	}
	milli := func(cores float64) string { return strconv.FormatInt(int64(cores*1000+0.5), 10) + "m" }
	bytes := func(n int64) string { return strconv.FormatInt(n, 10) }
	return &resources{
		Limits:   map[string]string{"cpu": milli(cpu), "memory": bytes(memory), "ephemeral-storage": bytes(disk)},
		Requests: map[string]string{"cpu": milli(some), "memory": bytes(room), "ephemeral-storage": "0"},
	}
}

// leased sets what the lease rests on, and all that says whose the sandbox is.
func (p *Provider) leased(j *job, req sandbox.CreateRequest, fault func(kind error, format string, args ...any)) {
	if req.Window < minWindow || req.Window > maxWindow || req.Window%time.Second != 0 {
		fault(sandbox.ErrInvalid, "window %v is not in %v to %v in whole seconds", req.Window, minWindow, maxWindow)
	}
	hard := int64((req.Mark.Lifetime + time.Second - 1) / time.Second)
	if hard < 1 || hard > maxSeconds {
		fault(sandbox.ErrInvalid, "lifetime %v is not in 1 s to %d s", req.Mark.Lifetime, maxSeconds)
	}
	if m, err := sandbox.ParseMark(req.Mark.String()); err != nil || m.Nonce != req.Mark.Nonce {
		fault(sandbox.ErrInvalid, "mark %q cannot be read back", req.Mark)
	}
	j.Meta.Name = req.Mark.Name()
	j.Meta.Namespace = p.namespace
	maps.Copy(j.Meta.Labels, map[string]string{
		managedBy: manager, sandbox.FleetKey: valueOf(req.Mark.Fleet), sandbox.NonceKey: req.Mark.Nonce,
	})
	j.Meta.Annotations = map[string]string{sandbox.MarkKey: req.Mark.String()}
	p.tag(j.Meta.Annotations, req.Tags, fault)
	p.owned(j)
	// Where the beats are not told, they may be as far apart as a window lets them be.
	if beat := cmp.Or(req.Beat, req.Window/2); p.owner.Lease > 0 && p.owner.Lease < 2*beat {
		fault(sandbox.ErrInvalid, "an owner's Lease of %v, which is renewed with beats %v apart: with less than two of them it would tell of a living owner that he is dead",
			p.owner.Lease, beat)
	}

	zero, one, no := int32(0), int32(1), false
	seconds, gracePeriod := int64(req.Window/time.Second)+1, int64(grace)
	j.Spec.Deadline = &seconds // from the start, whose time is cut off to whole seconds
	j.Spec.TTL, j.Spec.Backoff = &zero, &zero
	j.Spec.Parallelism, j.Spec.Completions, j.Spec.Suspend = &one, &one, &no

	t := &j.Spec.Template
	t.Meta.Labels, t.Meta.Annotations = maps.Clone(j.Meta.Labels), maps.Clone(j.Meta.Annotations)
	maps.Copy(t.Meta.Annotations, undisturbed)
	t.Spec.Restart, t.Spec.Grace, t.Spec.Deadline = "Never", &gracePeriod, &hard
	t.Spec.Containers[0].Command = []string{inCommand, "-c", sleeper}
}

// tag writes the user's tags.
func (p *Provider) tag(annotations, tags map[string]string, fault func(kind error, format string, args ...any)) {
	if len(tags) > maxTags {
		fault(sandbox.ErrInvalid, "%d tags are more than %d", len(tags), maxTags)
	}
	for k, v := range tags {
		switch {
		case k == "" || strings.HasPrefix(k, sandbox.MarkKey):
			fault(sandbox.ErrInvalid, "tag %q: an empty name, or one that starts with %q, cannot be yours", k, sandbox.MarkKey)
		case len(k) > maxTagKey || len(v) > maxTagValue:
			fault(sandbox.ErrInvalid, "tag %.80q does not fit: names of up to %d bytes and values of up to %d", k, maxTagKey, maxTagValue)
		case !utf8.ValidString(k + v):
			fault(sandbox.ErrInvalid, "tag %.80q that is not UTF-8", k)
		}
	}
	if len(tags) > 0 {
		b, err := json.Marshal(tags)
		if err != nil {
			fault(sandbox.ErrInvalid, "tags: %w", err)
		}
		annotations[tagsKey] = string(b)
	}
}

// secrets are what errors of the create must not show.
func secrets(spec sandbox.Spec) []string { return slices.Collect(maps.Values(spec.Env)) }
