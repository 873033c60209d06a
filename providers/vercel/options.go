package vercel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Options are what a [sandbox.Spec] may ask of Vercel alone, in Spec.Native as a *Options. The zero value asks for
// nothing. Nothing here reaches what the lease rests on: name, tags, timeout and persistence.
type Options struct {
	// Runtime is one of the older machines, such as "node24" or "python3.13", in place of Spec.Image.
	Runtime string

	// One of these may be what the sandbox starts with.
	Git      *Git   // a repository
	Tarball  string // the address of an archive
	Snapshot string // the id of a snapshot, in place of Spec.Image and Runtime

	Region       string   // such as "iad1"; default: the service's
	Failover     []string // regions to take where that one cannot; not Region itself
	Architecture string   // "amd64" or "arm64"; default: the service's

	// Where the sandbox may connect to. Empty: everywhere. Not together with Spec.Offline.
	AllowDomains, AllowNets, DenyNets []string // nets in CIDR form

	// Drives are mounted, by their absolute paths. They bill until somebody deletes them: nothing here ever does.
	Drives map[string]Drive
}

// Git is a repository to start with.
type Git struct {
	URL                string
	Revision           string // a commit, branch or tag; default: the default branch
	Depth              int    // of the history; 0: the service's default
	Username, Password string // both or none; secrets
}

// Drive is one of the project's own.
type Drive struct {
	Name     string
	Snapshot bool // mount a copy that nobody writes back
}

// order is the body of a create. Fields without omitempty are always sent: they are the lease.
type order struct {
	Project      string            `json:"projectId"`
	Name         string            `json:"name"`
	TimeoutMs    int64             `json:"timeout"`    // never left to the service's default, 5 min
	Persistent   bool              `json:"persistent"` // false, and said so: the default keeps a snapshot at every stop
	Tags         map[string]string `json:"tags"`
	Ports        []int             `json:"ports"`
	Env          map[string]string `json:"env,omitempty"`
	Resources    *resources        `json:"resources,omitempty"`
	Image        string            `json:"image,omitempty"`
	Runtime      string            `json:"runtime,omitempty"`
	Source       *source           `json:"source,omitempty"`
	Region       string            `json:"region,omitempty"`
	Failover     []string          `json:"failoverRegions,omitempty"`
	Architecture string            `json:"architecture,omitempty"`
	Network      *network          `json:"networkPolicy,omitempty"`
	Mounts       map[string]mount  `json:"mounts,omitempty"`
}

type resources struct {
	CPUs int `json:"vcpus"` // memory follows from it
}

type source struct {
	Type     string `json:"type"`
	URL      string `json:"url,omitempty"`
	Revision string `json:"revision,omitempty"`
	Depth    int    `json:"depth,omitempty"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Snapshot string `json:"snapshotId,omitempty"`
}

type network struct {
	Mode    string   `json:"mode,omitempty"`
	Allow   []string `json:"allow,omitempty"`
	Subnets *subnets `json:"subnets,omitempty"`
}

type subnets struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

type mount struct {
	Drive string `json:"drive"`
	Mode  string `json:"mode"`
}

// The service's limits of an order.
const (
	maxImage     = 255
	maxPorts     = 15
	minPort      = 1024
	takenPort    = 23456
	maxCPUs      = 32
	memoryPerCPU = 2 << 30
	maxDrives    = 4
)

// path is the create's: there are two versions, told apart by the kind of machine.
func (o *order) path() string {
	if o.Runtime != "" {
		return "/v2/sandboxes"
	}
	return "/v3/sandboxes"
}

// secrets are what errors of the create must not show.
func (o *order) secrets() []string {
	all := slices.Collect(maps.Values(o.Env))
	if o.Source != nil {
		all = append(all, o.Source.Username, o.Source.Password)
	}
	return all
}

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
		fault(sandbox.ErrInvalid, "native options of type %T, not *vercel.Options", spec.Native)
	}
	body := &order{
		Project: p.project, Env: maps.Clone(spec.Env), Ports: append([]int{}, spec.Ports...),
		Image: spec.Image, Runtime: o.Runtime, Region: o.Region, Failover: slices.Clone(o.Failover), Architecture: o.Architecture,
		Source: o.source(spec, fault), Network: o.network(spec, fault), Mounts: o.mounts(fault),
	}
	size(body, spec, fault)
	if len(spec.Image) > maxImage || !utf8.ValidString(spec.Image) {
		fault(sandbox.ErrInvalid, "an image whose name is longer than %d bytes, or not UTF-8", maxImage)
	}
	if spec.Image != "" && o.Runtime != "" {
		fault(sandbox.ErrInvalid, "both an image and a runtime")
	}
	if len(spec.Ports) > maxPorts {
		fault(sandbox.ErrInvalid, "%d ports, the service has room for %d", len(spec.Ports), maxPorts)
	}
	for _, port := range spec.Ports {
		if port > 0 && port < minPort || port == takenPort {
			fault(sandbox.ErrInvalid, "port %d: the service takes those from %d on, but for %d", port, minPort, takenPort)
		}
	}
	for k, v := range spec.Env {
		if !utf8.ValidString(k + v) {
			fault(sandbox.ErrInvalid, "variable %q that is not UTF-8", k)
		}
	}
	if slices.Contains(o.Failover, o.Region) && o.Region != "" {
		fault(sandbox.ErrInvalid, "region %q to fail over to is the region itself", o.Region)
	}
	lease(body, req, fault) // last, over all else
	return body, errors.Join(faults...)
}

// lease sets what the lease rests on.
func lease(body *order, req sandbox.CreateRequest, fault func(kind error, format string, args ...any)) {
	if req.Window < minWindow || req.Window > maxWindow {
		fault(sandbox.ErrInvalid, "window %v is not in %v to %v", req.Window, minWindow, maxWindow)
	}
	body.TimeoutMs = req.Window.Milliseconds() // down
	body.Persistent = false
	body.Name = req.Mark.Name()
	if m, err := sandbox.ParseMark(req.Mark.String()); err != nil || m.Nonce != req.Mark.Nonce {
		fault(sandbox.ErrInvalid, "mark %q cannot be read back", req.Mark)
	}
	body.Tags = map[string]string{}
	if len(req.Tags) > maxTags {
		fault(sandbox.ErrInvalid, "%d tags, the service has room for %d beside its owner's mark", len(req.Tags), maxTags)
	}
	for k, v := range req.Tags {
		switch {
		case k == "" || strings.HasPrefix(k, sandbox.MarkKey):
			fault(sandbox.ErrInvalid, "tag %q: an empty name, or one that starts with %q, cannot be yours", k, sandbox.MarkKey)
		case len(k) > maxTagKey || len(v) > maxTagValue:
			fault(sandbox.ErrInvalid, "tag %.80q does not fit: names of up to %d bytes and values of up to %d", k, maxTagKey, maxTagValue)
		case strings.Contains(k, ":"):
			fault(sandbox.ErrInvalid, "tag %q: lists are filtered by name:value, so that a name with a colon cannot be asked for", k)
		case !utf8.ValidString(k + v):
			fault(sandbox.ErrInvalid, "tag %q that is not UTF-8", k)
		}
		body.Tags[k] = v
	}
	body.Tags[sandbox.MarkKey] = req.Mark.String()
	body.Tags[sandbox.FleetKey] = req.Mark.Fleet
}

// size sets the number of CPUs, of which the memory is a multiple.
func size(body *order, spec sandbox.Spec, fault func(kind error, format string, args ...any)) {
	if spec.Disk > 0 {
		fault(errors.ErrUnsupported, "a disk of a size of its own")
	}
	cpus := int64(spec.CPU)
	switch {
	case spec.CPU < 0 || spec.Memory < 0 || spec.CPU == 0 && spec.Memory == 0:
		return // a fault already, or nothing
	case spec.CPU == 0:
		cpus = spec.Memory / memoryPerCPU
	}
	switch {
	case spec.CPU != 0 && spec.CPU != float64(cpus) || cpus < 1 || cpus > maxCPUs || cpus > 1 && cpus%2 != 0:
		fault(sandbox.ErrInvalid, "%v CPUs and %d bytes: the service has 1 CPU or an even number of up to %d, with %d bytes for each",
			spec.CPU, spec.Memory, maxCPUs, int64(memoryPerCPU))
	case spec.Memory != 0 && spec.Memory != cpus*memoryPerCPU:
		fault(sandbox.ErrInvalid, "%d bytes of memory: the service gives %d for each CPU", spec.Memory, int64(memoryPerCPU))
	}
	body.Resources = &resources{CPUs: int(cpus)}
}

func (o *Options) source(spec sandbox.Spec, fault func(kind error, format string, args ...any)) *source {
	var found []*source
	if g := o.Git; g != nil {
		if g.URL == "" || g.Depth < 0 || (g.Username == "") != (g.Password == "") {
			fault(sandbox.ErrInvalid, "a repository without an address, with a negative depth, or with half of its credentials")
		}
		found = append(found, &source{
			Type: "git", URL: g.URL, Revision: g.Revision, Depth: g.Depth, Username: g.Username, Password: g.Password,
		})
	}
	if o.Tarball != "" {
		found = append(found, &source{Type: "tarball", URL: o.Tarball})
	}
	if o.Snapshot != "" {
		found = append(found, &source{Type: "snapshot", Snapshot: o.Snapshot})
		if spec.Image != "" || o.Runtime != "" {
			fault(sandbox.ErrInvalid, "a snapshot, which is a machine's whole state, and an image or runtime")
		}
	}
	switch {
	case len(found) == 0:
		return nil
	case len(found) > 1:
		fault(sandbox.ErrInvalid, "more than one of Git, Tarball and Snapshot")
	}
	return found[0]
}

func (o *Options) network(spec sandbox.Spec, fault func(kind error, format string, args ...any)) *network {
	limited := len(o.AllowDomains) > 0 || len(o.AllowNets) > 0 || len(o.DenyNets) > 0
	switch {
	case spec.Offline && limited:
		fault(sandbox.ErrInvalid, "rules for the network of an offline sandbox")
	case spec.Offline:
		return &network{Mode: "deny-all"}
	case limited:
		n := &network{Allow: slices.Clone(o.AllowDomains)}
		if len(o.AllowNets) > 0 || len(o.DenyNets) > 0 {
			n.Subnets = &subnets{Allow: slices.Clone(o.AllowNets), Deny: slices.Clone(o.DenyNets)}
		}
		return n
	}
	return nil
}

func (o *Options) mounts(fault func(kind error, format string, args ...any)) map[string]mount {
	if len(o.Drives) == 0 {
		return nil
	}
	if len(o.Drives) > maxDrives {
		fault(sandbox.ErrInvalid, "%d drives, the service has room for %d", len(o.Drives), maxDrives)
	}
	all := map[string]mount{}
	for path, d := range o.Drives {
		if !strings.HasPrefix(path, "/") || d.Name == "" {
			fault(sandbox.ErrInvalid, "a drive without a name, or not at an absolute path but %q", path)
		}
		m := mount{Drive: d.Name, Mode: "read-write"}
		if d.Snapshot {
			m.Mode = "snapshot"
		}
		all[path] = m
	}
	return all
}
