package daytona

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Options are what a [sandbox.Spec] may ask of Daytona alone, in Spec.Native as a *Options. The zero value asks for
// nothing. Nothing here reaches what the lease rests on: name, labels, TTL and the idle clocks.
type Options struct {
	// Dockerfile is what to build an image from, such as "FROM debian:12". It takes the place of Spec.Image, which names
	// a snapshot, and only with it CPU, Memory, Disk and GPU can be chosen. A first build takes minutes: see
	// [sandbox.Config].ReadyTimeout.
	Dockerfile string

	User     string   // whom commands run as; default: the service's, "daytona"
	Target   string   // region, by name or id; default: Config.Target
	GPU      int      // how many; 0 or 1
	GPUTypes []string // such as "H100", the most wanted first; needs GPU
	Public   bool     // ports are reached without a token
	Volumes  []Volume // these outlive the sandbox

	AllowNets    []string // networks in CIDR form that can be reached; empty: all. Not together with Spec.Offline
	AllowDomains []string // domains that can be reached; empty: all. Not together with Spec.Offline
}

// Volume is one of the account's own, to be mounted.
type Volume struct {
	ID      string // or name
	Path    string // where, absolute
	Subpath string // what of it; empty: all
}

// order is the body of a create. Fields without omitempty are always sent: they are the lease.
type order struct {
	Name      string            `json:"name"`
	Snapshot  string            `json:"snapshot,omitempty"`
	Build     *build            `json:"buildInfo,omitempty"`
	User      string            `json:"user,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Labels    map[string]string `json:"labels"`
	Public    bool              `json:"public,omitempty"`
	Target    string            `json:"target,omitempty"`
	CPU       int64             `json:"cpu,omitempty"`
	Memory    int64             `json:"memory,omitempty"` // GiB
	Disk      int64             `json:"disk,omitempty"`   // GiB
	GPU       int               `json:"gpu,omitempty"`
	GPUTypes  []string          `json:"gpuType,omitempty"`
	Volumes   []volume          `json:"volumes,omitempty"`
	BlockAll  bool              `json:"networkBlockAll,omitempty"`
	AllowList string            `json:"networkAllowList,omitempty"`
	Domains   string            `json:"domainAllowList,omitempty"`

	AutoStopMinutes   int64 `json:"autoStopInterval"`
	AutoDeleteMinutes int64 `json:"autoDeleteInterval"`
	TTLMinutes        int64 `json:"ttlMinutes"`
}

type build struct {
	Dockerfile string `json:"dockerfileContent"`
}

type volume struct {
	ID      string `json:"volumeId"`
	Path    string `json:"mountPath"`
	Subpath string `json:"subpath,omitempty"`
}

const gib = 1 << 30

// order returns the body of a create, or every reason why there is none. No request is made.
func (p *Provider) order(req sandbox.CreateRequest) (*order, error) {
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
		fault(sandbox.ErrInvalid, "native options of type %T, not *daytona.Options", spec.Native)
	}
	body := &order{
		Name: req.Mark.Name(), Snapshot: spec.Image, User: o.User, Env: maps.Clone(spec.Env), Public: o.Public, Target: o.Target,
		GPU: o.GPU, GPUTypes: slices.Clone(o.GPUTypes), BlockAll: spec.Offline,
		AllowList: strings.Join(o.AllowNets, ","), Domains: strings.Join(o.AllowDomains, ","),
	}
	if body.Target == "" {
		body.Target = p.target
	}
	if o.Dockerfile != "" {
		body.Build = &build{o.Dockerfile}
		if spec.Image != "" {
			fault(sandbox.ErrInvalid, "both a snapshot and a Dockerfile")
		}
	}
	whole := func(what string, amount, unit int64) int64 {
		switch {
		case amount == 0:
		case o.Dockerfile == "":
			fault(errors.ErrUnsupported, "%s of a snapshot's sandbox, which has what the snapshot says: give Options.Dockerfile", what)
		case amount%unit != 0:
			fault(sandbox.ErrInvalid, "%s that is not whole GiB", what)
		}
		return amount / unit
	}
	if spec.CPU != float64(int64(spec.CPU)) {
		fault(sandbox.ErrInvalid, "%v CPUs, which are no whole number", spec.CPU)
	}
	body.CPU = whole("CPU", int64(spec.CPU), 1)
	body.Memory, body.Disk = whole("memory", spec.Memory, gib), whole("disk", spec.Disk, gib)
	switch {
	case o.GPU < 0 || o.GPU > 1 || o.GPU == 0 && len(o.GPUTypes) > 0:
		fault(sandbox.ErrInvalid, "%d GPUs of types %q", o.GPU, o.GPUTypes)
	case o.GPU > 0 && o.Dockerfile == "":
		fault(errors.ErrUnsupported, "a GPU for a snapshot's sandbox, which has what the snapshot says: give Options.Dockerfile")
	}
	if spec.Offline && (body.AllowList != "" || body.Domains != "") {
		fault(sandbox.ErrInvalid, "networks that an offline sandbox may reach")
	}
	for _, v := range o.Volumes {
		if v.ID == "" || !strings.HasPrefix(v.Path, "/") {
			fault(sandbox.ErrInvalid, "a volume without an id or an absolute path")
		}
		body.Volumes = append(body.Volumes, volume(v))
	}
	for k, v := range spec.Env {
		if !utf8.ValidString(k + v) {
			fault(sandbox.ErrInvalid, "variable %q that is not UTF-8", k)
		}
	}
	p.lease(body, req, fault)
	label(body, req, fault)
	return body, errors.Join(faults...)
}

// lease sets the clocks: every one of them is finite.
func (p *Provider) lease(body *order, req sandbox.CreateRequest, fault func(kind error, format string, args ...any)) {
	if req.Window < minWindow || req.Window > maxWindow || req.Window%time.Minute != 0 {
		fault(sandbox.ErrInvalid, "window %v is not in %v to %v in whole minutes", req.Window, minWindow, maxWindow)
	}
	if req.Mark.Lifetime <= 0 || req.Mark.Lifetime > maxLifetime {
		fault(sandbox.ErrInvalid, "lifetime %v is not in 0 to %v", req.Mark.Lifetime, maxLifetime)
	}
	window := int64(req.Window / time.Minute)
	lifetime := max(window, int64((req.Mark.Lifetime+time.Minute-1)/time.Minute))
	// A stop deletes. A clock for archiving would never come to anything then, and one for pausing is not allowed.
	body.AutoDeleteMinutes = 0
	if p.idle {
		body.AutoStopMinutes, body.TTLMinutes = window, lifetime
		return
	}
	// A beat is no activity, and an owner who thinks is not idle: the idle clock is the whole life.
	body.AutoStopMinutes, body.TTLMinutes = lifetime, window
}

// label sets mark, tags and ports.
func label(body *order, req sandbox.CreateRequest, fault func(kind error, format string, args ...any)) {
	if m, err := sandbox.ParseMark(req.Mark.String()); err != nil || m.Nonce != req.Mark.Nonce {
		fault(sandbox.ErrInvalid, "mark %q cannot be read back", req.Mark)
	}
	if len(req.Tags) > maxTags {
		fault(sandbox.ErrInvalid, "%d tags are more than %d", len(req.Tags), maxTags)
	}
	body.Labels = map[string]string{}
	for k, v := range req.Tags {
		switch {
		case k == "" || len(k) > maxTagKey || len(v) > maxTagValue:
			fault(sandbox.ErrInvalid, "tag %.40q is not 1 to %d bytes with a value of at most %d", k, maxTagKey, maxTagValue)
		case !utf8.ValidString(k + v):
			fault(sandbox.ErrInvalid, "tag %.40q that is not UTF-8", k)
		case strings.HasPrefix(k, sandbox.MarkKey):
			fault(sandbox.ErrInvalid, "tag %.40q, whose name is the library's", k)
		}
		body.Labels[k] = v
	}
	if len(req.Spec.Ports) > 0 {
		ports := make([]string, 0, len(req.Spec.Ports))
		for _, port := range req.Spec.Ports {
			ports = append(ports, strconv.Itoa(port))
		}
		body.Labels[portsLabel] = strings.Join(ports, ",")
	}
	body.Labels[sandbox.MarkKey] = req.Mark.String()
	body.Labels[sandbox.FleetKey] = req.Mark.Fleet
	body.Labels[sandbox.NonceKey] = req.Mark.Nonce
}

// hasPort reports whether a port is among those of a label.
func hasPort(label string, port int) bool {
	return slices.Contains(strings.Split(label, ","), strconv.Itoa(port))
}
