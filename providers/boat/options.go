package boat

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Options are what a [sandbox.Spec] may ask of boat.dev alone, in Spec.Native as a *Options. The zero value asks for
// nothing. Nothing here reaches what the lease rests on: name, key and TTL.
type Options struct {
	// Environment names a bundle of the account's secrets, repositories and logins to be copied into the sandbox, as the
	// service does by default. Empty: none is.
	Environment string

	// FailFast has a create fail within seconds where no machine is ready, in place of waiting for one.
	FailFast bool

	// Public lets everybody reach the ports, without the token that Endpoint's URL holds otherwise.
	Public bool
}

// order is the body of a create. Fields without omitempty are always sent: they are the lease, and what is kept out of
// the sandbox. There is no field for a secret: the body is what a journal holds.
type order struct {
	Type        string `json:"type,omitempty"`
	From        string `json:"from,omitempty"` // a named snapshot
	TTLSeconds  int64  `json:"ttlSeconds"`
	NoEnv       bool   `json:"noEnv"`
	Environment string `json:"environment,omitempty"`
	Snapshots   bool   `json:"snapshots"`
	FailFast    bool   `json:"failFast,omitempty"`
}

// A size is one of the machines that there are.
type size struct {
	name         string
	cpu          float64
	memory, disk int64 // GiB
}

var sizes = [...]size{{"small", 2, 4, 12}, {"default", 4, 8, 50}, {"large", 8, 16, 125}}

const gib = 1 << 30

// order returns the body of a create, or every reason why there is none. No request is made.
func (p *Provider) order(req sandbox.CreateRequest) (*order, Options, error) {
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
		fault(sandbox.ErrInvalid, "native options of type %T, not *boat.Options", spec.Native)
	}
	body := &order{From: spec.Image, NoEnv: o.Environment == "", Environment: o.Environment, FailFast: o.FailFast}
	if spec.CPU != 0 || spec.Memory != 0 || spec.Disk != 0 {
		s, ok := sizeOf(spec)
		if !ok {
			fault(errors.ErrUnsupported, "%v CPUs, %d bytes of memory, %d of disk: there are %s",
				spec.CPU, spec.Memory, spec.Disk, allSizes())
		}
		body.Type = s.name
	}
	if spec.Offline {
		fault(errors.ErrUnsupported, "a sandbox without a network")
	}
	if !utf8.ValidString(spec.Image + o.Environment) {
		fault(sandbox.ErrInvalid, "a snapshot's or an environment's name that is not UTF-8")
	}
	if m, err := sandbox.ParseMark(req.Mark.String()); err != nil || m.Nonce != req.Mark.Nonce {
		fault(sandbox.ErrInvalid, "mark %q cannot be read back", req.Mark)
	}
	if len(req.Tags) > 0 {
		fault(sandbox.ErrInvalid, "%d tags: the service has a name to write on and no more", len(req.Tags))
	}
	if req.Window < minWindow || req.Window > maxWindow || req.Window%time.Second != 0 {
		fault(sandbox.ErrInvalid, "window %v is not in %v to %v in whole seconds", req.Window, minWindow, maxWindow)
	}
	body.TTLSeconds = int64(req.Window / time.Second)
	return body, o, errors.Join(faults...)
}

// sizeOf returns the smallest machine that has exactly what was asked for.
func sizeOf(spec sandbox.Spec) (size, bool) {
	for _, s := range sizes {
		if (spec.CPU == 0 || spec.CPU == s.cpu) && (spec.Memory == 0 || spec.Memory == s.memory*gib) && (spec.Disk == 0 || spec.Disk == s.disk*gib) {
			return s, true
		}
	}
	return size{}, false
}

func allSizes() string {
	var all []string
	for _, s := range sizes {
		all = append(all, fmt.Sprintf("%v CPUs with %d GiB and %d GiB", s.cpu, s.memory, s.disk))
	}
	return strings.Join(all, ", ")
}
