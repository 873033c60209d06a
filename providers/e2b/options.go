package e2b

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

// portsKey is the metadata that holds Spec.Ports, so that another process knows them too.
const portsKey = sandbox.MarkKey + "-ports"

// Options are what a [sandbox.Spec] may ask of E2B alone, in Spec.Native as a *Options. The zero value is the service's
// default. Nothing here reaches what the lease rests on: auto-pause is always off, and auto-resume with it.
type Options struct {
	// AllowOut and DenyOut limit where the sandbox may connect to: CIDR blocks and addresses, AllowOut also domains. What
	// is allowed goes before what is denied. Not together with Spec.Offline.
	AllowOut, DenyOut []string

	// MaskHost is the Host that requests from outside arrive with, such as "localhost:${PORT}".
	MaskHost string

	// Volumes are mounted from the start. They outlive the sandbox: nothing here ever deletes one.
	Volumes []Volume
}

// A Volume is mounted at an absolute path.
type Volume struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// createBody is what a create sends. Field names are the service's.
type createBody struct {
	TemplateID     string            `json:"templateID"`
	TimeoutSeconds int64             `json:"timeout"`   // never left to the service's default, 15 s or 300 s
	AutoPause      bool              `json:"autoPause"` // false, and said so: a paused sandbox has no end
	Secure         *bool             `json:"secure,omitempty"`
	Metadata       map[string]string `json:"metadata"`
	EnvVars        map[string]string `json:"envVars,omitempty"`
	Internet       *bool             `json:"allow_internet_access,omitempty"`
	Network        *networkBody      `json:"network,omitempty"`
	VolumeMounts   []Volume          `json:"volumeMounts,omitempty"`
}

type networkBody struct {
	AllowOut        []string `json:"allowOut,omitempty"`
	DenyOut         []string `json:"denyOut,omitempty"`
	MaskRequestHost string   `json:"maskRequestHost,omitempty"`
}

// body returns what to send for req, or every reason why it cannot be made. No request is made.
func (p *Provider) body(req sandbox.CreateRequest) (createBody, error) {
	faults := []error{req.Spec.Validate(), fits(req)}
	fault := func(kind error, format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, kind)...))
	}
	var o Options
	switch native := req.Spec.Native.(type) {
	case nil:
	case *Options:
		if native != nil {
			o = *native
		}
	default:
		fault(sandbox.ErrInvalid, "native options of type %T, not *e2b.Options", req.Spec.Native)
	}
	if s := req.Spec; s.CPU != 0 || s.Memory != 0 || s.Disk != 0 {
		fault(errors.ErrUnsupported, "CPU, memory or disk: they are the template's, build one with the size that is needed")
	}
	if req.Spec.Offline && (len(o.AllowOut) > 0 || len(o.DenyOut) > 0) {
		fault(sandbox.ErrInvalid, "rules for the network of an offline sandbox")
	}
	for _, v := range o.Volumes {
		if v.Name == "" || !strings.HasPrefix(v.Path, "/") {
			fault(sandbox.ErrInvalid, "volume %q at %q, which is no absolute path", v.Name, v.Path)
		}
	}
	for k, v := range req.Spec.Env {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			fault(sandbox.ErrInvalid, "variable %q is not in UTF-8, which is all that the service can carry", k)
		}
	}
	if !utf8.ValidString(req.Spec.Image) {
		fault(sandbox.ErrInvalid, "the template's name is not in UTF-8")
	}
	if err := errors.Join(faults...); err != nil {
		return createBody{}, err
	}

	b := createBody{
		TemplateID: req.Spec.Image, EnvVars: maps.Clone(req.Spec.Env), VolumeMounts: slices.Clone(o.Volumes),
		Metadata: metadata(req),
		// These are the lease, and last.
		TimeoutSeconds: int64(req.Window / time.Second), AutoPause: false,
	}
	if b.TemplateID == "" {
		b.TemplateID = p.template
	}
	if len(o.AllowOut) > 0 || len(o.DenyOut) > 0 || o.MaskHost != "" {
		b.Network = &networkBody{AllowOut: o.AllowOut, DenyOut: o.DenyOut, MaskRequestHost: o.MaskHost}
	}
	yes, no := true, false
	if req.Spec.Offline {
		b.Internet = &no
	}
	if p.dialect == DialectV1 { // in the other, every sandbox is
		b.Secure = &yes
	}
	return b, nil
}

// fits reports every fault of req's mark, window and tags.
func fits(req sandbox.CreateRequest) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, sandbox.ErrInvalid)...))
	}
	if m, err := sandbox.ParseMark(req.Mark.String()); err != nil || m.Nonce != req.Mark.Nonce {
		fault("mark %q cannot be read back", req.Mark)
	}
	if err := validWindow(req.Window); err != nil {
		faults = append(faults, err)
	}
	if len(req.Tags) > maxTags {
		fault("%d tags are more than %d", len(req.Tags), maxTags)
	}
	for k, v := range req.Tags {
		switch {
		case k == "" || len(k) > maxTagKey || len(v) > maxTagValue:
			fault("tag %.40q is not 1 to %d bytes with a value of at most %d", k, maxTagKey, maxTagValue)
		case strings.HasPrefix(k, sandbox.MarkKey):
			fault("tag %.40q: names that start with %q are the library's", k, sandbox.MarkKey)
		case !utf8.ValidString(k) || !utf8.ValidString(v) || strings.ContainsRune(k+v, 0):
			fault("tag %.40q is not in UTF-8, or holds NUL", k)
		}
	}
	return errors.Join(faults...)
}

func validWindow(w time.Duration) error {
	if w < minWindow || w > maxWindow || w%step != 0 {
		return fmt.Errorf("window %v is not in %v to %v in whole seconds: %w", w, minWindow, maxWindow, sandbox.ErrInvalid)
	}
	return nil
}

// metadata holds the mark, what lists are filtered by, the ports, and the user's tags under their own names.
func metadata(req sandbox.CreateRequest) map[string]string {
	m := maps.Clone(req.Tags)
	if m == nil {
		m = map[string]string{}
	}
	if len(req.Spec.Ports) > 0 {
		var ports []string
		for _, p := range req.Spec.Ports {
			ports = append(ports, strconv.Itoa(p))
		}
		m[portsKey] = strings.Join(ports, ".")
	}
	m[sandbox.MarkKey], m[sandbox.FleetKey], m[sandbox.NonceKey] = req.Mark.String(), req.Mark.Fleet, req.Mark.Nonce
	return m
}

// unmetadata reverses metadata. A mark that cannot be read is none.
func unmetadata(m map[string]string) (mark sandbox.Mark, tags map[string]string, ports []int) {
	mark, _ = sandbox.ParseMark(m[sandbox.MarkKey])
	for k, v := range m {
		if !strings.HasPrefix(k, sandbox.MarkKey) {
			if tags == nil {
				tags = map[string]string{}
			}
			tags[k] = v
		}
	}
	for p := range strings.SplitSeq(m[portsKey], ".") {
		if n, err := strconv.Atoi(p); err == nil && n > 0 && n <= 65535 {
			ports = append(ports, n)
		}
	}
	return mark, tags, ports
}
