package modal

import (
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

// Options are what a [sandbox.Spec] may ask of Modal alone, in Spec.Native as a *Options. The zero value asks for
// nothing. Nothing here reaches what the lease rests on: name, tags, timeouts and the first process.
type Options struct {
	// Command is what the sandbox runs from its start on, as a child of the watchdog, with what it writes in the sandbox's
	// log. When it ends, so does the sandbox.
	Command []string

	// Workdir is where commands start, an absolute path. Default: the image's.
	Workdir string

	// ImageID is the id of an image that Modal has, "im-...", in place of Spec.Image.
	ImageID string

	// CPULimit and MemoryLimit bound what Spec.CPU and Spec.Memory, which are then required, ask for at least.
	CPULimit    float64
	MemoryLimit int64 // bytes, in whole MiB

	GPU     string   // such as "T4" or "A100:2". The service's older backend makes it, which keeps Spec.Env as a secret
	Runtime string   // "gvisor" or "vm"; default: the service's
	Cloud   string   // a cloud provider; default: the service's choice
	Regions []string // default: the service's choice

	// Where the sandbox may connect to. Nil: everywhere; empty but not nil: nowhere. Not together with Spec.Offline.
	AllowNets, AllowDomains []string // nets in CIDR form

	Secrets []string          // names of the environment's own, for variables
	Volumes map[string]string // names of the environment's own, by the absolute paths to mount them at; never deleted

	// Beat is for images without a shell: a program in the image that ends at once, with its arguments. It runs at every
	// beat, for nothing but that something runs.
	//
	// Then there is no watchdog: Command runs as the first process, and the lease is the service's idle time alone. That
	// does not run while a command does, or while anybody is connected to one of Spec.Ports, so that without its owner the
	// sandbox lives on for as long, at most to its hard end. Commands run as they are: none is killed but by its timeout,
	// and there are no Upload and no Download.
	Beat []string
}

// beatKey is the tag of a sandbox without a watchdog. It holds what to run at a beat.
const beatKey = sandbox.MarkKey + "-beat"

const (
	mebi    = 1 << 20
	maxArgs = 1 << 16 // bytes of a command's arguments, by the official SDK
	maxName = 255     // bytes of an image's name
)

// An order is what is asked for, in the service's own units.
type order struct {
	name, mark          string
	image, imageID      string
	life, idle          time.Duration // whole seconds
	window              time.Duration // what the first beat sets
	command             []string
	tags, env           map[string]string
	cpu, cpuLimit       float64
	memory, memoryLimit int // MiB
	ports               []int
	offline             bool
	nets, domains       []string // nil: everywhere
	gpu, runtime, cloud string
	regions, secrets    []string
	volumes             map[string]string
	workdir             string
	beat                []string // without a watchdog
}

// variable is what the service takes for a variable's name.
var variable = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// faulter collects faults.
type faulter func(kind error, format string, args ...any)

// order returns what to ask for, or every reason why that cannot be. No request is made.
func (p *Provider) order(req sandbox.CreateRequest) (*order, error) {
	spec := req.Spec
	faults := []error{spec.Validate()}
	var fault faulter = func(kind error, format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, kind)...))
	}
	var opts Options
	switch native := spec.Native.(type) {
	case nil:
	case *Options:
		if native != nil {
			opts = *native
		}
	default:
		fault(sandbox.ErrInvalid, "native options of type %T, not *modal.Options", spec.Native)
	}
	o := &order{
		image: spec.Image, imageID: opts.ImageID, env: maps.Clone(spec.Env), ports: slices.Clone(spec.Ports), offline: spec.Offline,
		nets: slices.Clone(opts.AllowNets), domains: slices.Clone(opts.AllowDomains), gpu: opts.GPU, runtime: opts.Runtime,
		cloud: opts.Cloud, regions: slices.Clone(opts.Regions), secrets: slices.Clone(opts.Secrets), volumes: maps.Clone(opts.Volumes),
		workdir: opts.Workdir,
	}
	if o.image == "" && o.imageID == "" {
		o.image = p.image
	}
	for k, v := range spec.Env {
		if !variable.MatchString(k) || !utf8.ValidString(v) {
			fault(sandbox.ErrInvalid, "variable %.80q: the service takes letters, digits and _ as its name, and UTF-8 as its value", k)
		}
	}
	opts.check(spec, fault)
	o.size(spec, opts, fault)
	o.lease(req, opts, fault) // last, over all else
	return o, errors.Join(faults...)
}

// check finds what is wrong with o alone, or with the rest of spec.
func (o Options) check(spec sandbox.Spec, fault faulter) {
	if spec.Image != "" && o.ImageID != "" {
		fault(sandbox.ErrInvalid, "both an image and an image's id")
	}
	if len(spec.Image) > maxName || strings.ContainsFunc(spec.Image, func(r rune) bool { return r <= ' ' || r == utf8.RuneError }) {
		fault(sandbox.ErrInvalid, "an image whose name is longer than %d bytes, or has a blank or a line's end in it", maxName)
	}
	if spec.Offline && (o.AllowNets != nil || o.AllowDomains != nil) {
		fault(sandbox.ErrInvalid, "rules for the network of an offline sandbox")
	}
	if o.Workdir != "" && !strings.HasPrefix(o.Workdir, "/") {
		fault(sandbox.ErrInvalid, "work folder %.80q is not absolute", o.Workdir)
	}
	if o.Runtime != "" && o.Runtime != "gvisor" && o.Runtime != "vm" {
		fault(sandbox.ErrInvalid, "runtime %.80q is not gvisor or vm", o.Runtime)
	}
	for path, name := range o.Volumes {
		if !strings.HasPrefix(path, "/") || name == "" {
			fault(sandbox.ErrInvalid, "a volume without a name, or not at an absolute path but %.80q", path)
		}
	}
	for _, args := range [][]string{o.Command, o.Beat} {
		if len(args) > 0 && args[0] == "" || slices.ContainsFunc(args, func(a string) bool { return !plain(a) }) {
			fault(sandbox.ErrInvalid, "a command without a program, or with NUL or what is not UTF-8 in it")
		}
	}
}

// plain reports whether s can be sent as text and be an argument.
func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// size sets processors and memory.
func (o *order) size(spec sandbox.Spec, opts Options, fault faulter) {
	if spec.Disk > 0 {
		fault(errors.ErrUnsupported, "a disk of a size of its own")
	}
	if spec.Memory%mebi != 0 || opts.MemoryLimit%mebi != 0 || opts.MemoryLimit < 0 || spec.Memory>>20 > 1<<30 || opts.MemoryLimit>>20 > 1<<30 {
		fault(sandbox.ErrInvalid, "memory of %d bytes, at most %d: the service counts in MiB", spec.Memory, opts.MemoryLimit)
	}
	if spec.CPU > 0 && spec.CPU < 0.001 || spec.CPU > 1<<20 || !(opts.CPULimit >= 0) || opts.CPULimit > 1<<20 {
		fault(sandbox.ErrInvalid, "%v CPUs, at most %v: the service counts in thousandths", spec.CPU, opts.CPULimit)
	}
	if opts.CPULimit > 0 && opts.CPULimit < spec.CPU || opts.CPULimit > 0 && spec.CPU == 0 ||
		opts.MemoryLimit > 0 && opts.MemoryLimit < spec.Memory || opts.MemoryLimit > 0 && spec.Memory == 0 {
		fault(sandbox.ErrInvalid, "a limit of CPUs or memory below what is asked for, or without that")
	}
	o.cpu, o.cpuLimit = spec.CPU, opts.CPULimit
	o.memory, o.memoryLimit = int(spec.Memory/mebi), int(opts.MemoryLimit/mebi)
}

// lease sets what the lease rests on.
func (o *order) lease(req sandbox.CreateRequest, opts Options, fault faulter) {
	if m, err := sandbox.ParseMark(req.Mark.String()); err != nil || m.Nonce != req.Mark.Nonce {
		fault(sandbox.ErrInvalid, "mark %q cannot be read back", req.Mark)
	}
	o.name, o.mark = req.Mark.Name(), req.Mark.String()
	if req.Window < minWindow || req.Window > maxLife {
		fault(sandbox.ErrInvalid, "window %v is not in %v to %v", req.Window, minWindow, maxLife)
	}
	if req.Mark.Lifetime < time.Second || req.Mark.Lifetime > maxLife {
		fault(sandbox.ErrInvalid, "lifetime %v is not in %v to %v", req.Mark.Lifetime, time.Second, maxLife)
	}
	o.life, o.idle = req.Mark.Lifetime.Truncate(time.Second), req.Window.Truncate(time.Second) // down
	o.window = min(o.idle, o.life)

	o.tags = map[string]string{}
	if len(req.Tags) > maxTags {
		fault(sandbox.ErrInvalid, "%d tags are more than %d", len(req.Tags), maxTags)
	}
	for k, v := range req.Tags {
		switch {
		case k == "" || strings.HasPrefix(k, sandbox.MarkKey):
			fault(sandbox.ErrInvalid, "tag %.80q: an empty name, or one that starts with %q, cannot be yours", k, sandbox.MarkKey)
		case len(k) > maxTagKey || len(v) > maxTagValue:
			fault(sandbox.ErrInvalid, "tag %.80q does not fit: names of up to %d bytes and values of up to %d", k, maxTagKey, maxTagValue)
		case !utf8.ValidString(k + v):
			fault(sandbox.ErrInvalid, "tag %.80q that is not UTF-8", k)
		}
		o.tags[k] = v
	}
	o.tags[sandbox.MarkKey], o.tags[sandbox.FleetKey], o.tags[sandbox.NonceKey] = o.mark, req.Mark.Fleet, req.Mark.Nonce

	if len(opts.Beat) > 0 {
		o.beat, o.command = slices.Clone(opts.Beat), slices.Clone(opts.Command)
		text, err := json.Marshal(o.beat)
		if err != nil || len(text) > maxTagValue {
			fault(sandbox.ErrInvalid, "what to run at a beat does not fit into a tag of %d bytes", maxTagValue)
		}
		o.tags[beatKey] = string(text)
		return
	}
	seconds := func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
	o.command = append([]string{"sh", "-c", watchdog, "sandglass", seconds(o.window), seconds(o.life)}, opts.Command...)
	size := 0
	for _, a := range o.command {
		size += len(a)
	}
	if size > maxArgs {
		fault(sandbox.ErrInvalid, "the command is longer than %d bytes", maxArgs)
	}
}
