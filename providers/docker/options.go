package docker

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// DefaultPidsLimit is how many processes and threads a sandbox may have where [Options] does not say. It is room for a
// parallel build or a browser, and an end for a fork bomb.
const DefaultPidsLimit = 4096

// Options are what a [sandbox.Spec] may ask of Docker alone, in Spec.Native as a *Options. Every field is handed to the
// engine as it is and means what it means there; the zero value is the engine's default, except for PidsLimit.
//
// Nothing here reaches what the lease rests on: name, labels, restart policy, automatic removal, the first process and
// its user, the process namespace. Two things weaken it from inside, and are the caller's own risk: the capabilities
// SYS_ADMIN, SYS_PTRACE and the like in CapAdd, and the engine's socket in Binds.
type Options struct {
	Runtime     string   // such as "runsc" or "kata"; it must be known to the engine
	Network     string   // name of a network, "host" or "none"; not together with Spec.Offline
	ExtraHosts  []string // "name:address"
	Binds       []string // "/of/the/engine's/host:/inside[:ro]", or a volume's name in front; these outlive the sandbox
	CapAdd      []string // kernel capabilities beyond the default ones
	CapDrop     []string // default capabilities to do without; "ALL" leaves even root inside little
	SecurityOpt []string // such as "no-new-privileges" or "seccomp=<profile in JSON>"
	ShmSize     int64    // bytes of /dev/shm
	PidsLimit   int64    // processes and threads; 0: [DefaultPidsLimit]. There is no "unlimited"
}

// host returns the host part of a new container, or every reason why there is none. No request is made.
func (p *Provider) host(spec sandbox.Spec) (*container.HostConfig, error) {
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
		fault(sandbox.ErrInvalid, "native options of type %T, not *docker.Options", spec.Native)
	}
	if spec.Disk != 0 {
		fault(errors.ErrUnsupported, "a disk limit, which most of the engine's storage drivers do not know")
	}
	if len(spec.Ports) > 0 {
		switch {
		case spec.Offline:
			fault(sandbox.ErrInvalid, "ports of an offline sandbox")
		case !p.local:
			fault(errors.ErrUnsupported, "ports, which are published on the engine's own loopback address, and that is not this machine's")
		case o.Network == "host" || o.Network == "none" || strings.HasPrefix(o.Network, "container:"):
			fault(sandbox.ErrInvalid, "ports cannot be published on network %q", o.Network)
		}
	}
	if spec.Offline && o.Network != "" && o.Network != "none" {
		fault(sandbox.ErrInvalid, "network %q of an offline sandbox", o.Network)
	}
	if o.PidsLimit < 0 || o.ShmSize < 0 {
		fault(sandbox.ErrInvalid, "negative limit in options")
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}

	if o.PidsLimit == 0 {
		o.PidsLimit = DefaultPidsLimit
	}
	if spec.Offline {
		o.Network = "none"
	}
	return &container.HostConfig{
		Runtime: o.Runtime, NetworkMode: container.NetworkMode(o.Network),
		ExtraHosts: slices.Clone(o.ExtraHosts), Binds: slices.Clone(o.Binds),
		CapAdd: slices.Clone(o.CapAdd), CapDrop: slices.Clone(o.CapDrop), SecurityOpt: slices.Clone(o.SecurityOpt),
		ShmSize: o.ShmSize,
		Resources: container.Resources{
			NanoCPUs:   int64(spec.CPU * 1e9),
			Memory:     spec.Memory,
			MemorySwap: spec.Memory, // the sum of both: no swap on top of what was asked for
			PidsLimit:  &o.PidsLimit,
		},
	}, nil
}
