package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/ttl"
)

// Config is the long-lived setting of a [Manager]. The zero value of every field but Fleet is a good default.
type Config struct {
	Fleet     string // required: what one sweeper looks after, such as "ci-agents"; at most 32 letters, digits, '.' and '-'
	Owner     string // who this process is, in marks and reports; the same alphabet; default "<host>.<pid>"
	Scope     Scope  // defaults of every scope; an [Option] may change a copy
	MaxLive   int    // sandboxes alive at once; further scopes wait, obeying their context. 0: no limit
	LocalTags bool   // tags that the provider cannot hold stay in journal and events; false: they are an error

	CreateTimeout  time.Duration // one create, from request to answer, and trying again after refusals, which may have been another scope's; default 2 min. An unanswered one is then looked for, as long as Capabilities.CommitDelay asks
	ReadyTimeout   time.Duration // from created to running; default 5 min
	Grace          time.Duration // how long fn may ignore its ended context before the delete; default 10 s
	CleanupTimeout time.Duration // delete and verify, detached from the caller's context; default 2 min, more where the provider's delete is slow

	OnLeak func(context.Context, *LeakError) // nil: joined to the error of WithSandbox; else called instead, so that finished work does not fail

	Journal   Journal    // nil: none, a create whose process dies unanswered is then left to lease and sweeper
	Unmarked  bool       // without a Journal, accept a provider that writes the mark by a second call (Capabilities.MarkAtCreate): what a process makes that dies between the two is nobody's. false: it is refused
	Observers []Observer // none: possible leaks go to slog.Default at Error, and nothing else is reported
}

// Scope is what one call of WithSandbox may set for itself. Zero fields are the defaults; negative times are refused.
type Scope struct {
	Spec         Spec              // what to create; zero: the provider's default machine
	Tags         map[string]string // the user's, such as agent_job_id and commit_sha; never nil inside an Option
	Window       time.Duration     // longest life without its owner, rounded down to the provider's step; default 3 min
	Beat         time.Duration     // time between extensions; default a third of Window; two beats and one attempt (a sixth of Window, at most 30 s) must fit into it
	MaxLifetime  time.Duration     // hard end of fn, which no beat moves, counted from the create's request; default 1 h, less if the provider's cap is; the service's own end lies Grace + CleanupTimeout + KeepOnError later
	StallTimeout time.Duration     // neither call nor [Touch] for so long: [ErrStalled]. 0: off
	KeepOnError  time.Duration     // if fn fails or panics, leave the sandbox this much longer, then let the lease end it; not after a Shutdown or a cancel. 0: delete
}

// An Option changes one scope. It gets a deep copy of [Config.Scope]:
//
//	m.WithSandbox(ctx, task.run, func(s *sandbox.Scope) { s.Tags["commit_sha"] = task.sha })
type Option func(*Scope)

// clone returns a deep copy of s, except Spec.Native, which only the adapter knows.
func (s Scope) clone() Scope {
	s.Spec.Env = maps.Clone(s.Spec.Env)
	s.Spec.Ports = slices.Clone(s.Spec.Ports)
	s.Tags = maps.Clone(s.Tags)
	if s.Tags == nil {
		s.Tags = map[string]string{}
	}
	return s
}

// withDefaults returns c with every zero field set, and its faults.
func (c Config) withDefaults(caps Capabilities) (Config, []error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, ErrInvalid)...))
	}
	if !word(c.Fleet) {
		fault("fleet %q is not 1 to %d letters, digits, '.' and '-' (there is no default: it says what a sweeper may delete)", c.Fleet, wordLen)
	}
	if c.Owner == "" {
		c.Owner = defaultOwner()
	} else if !word(c.Owner) {
		fault("owner %q is not 1 to %d letters, digits, '.' and '-'", c.Owner, wordLen)
	}
	if !caps.MarkAtCreate && c.Journal == nil && !c.Unmarked {
		fault("the provider writes the mark by a second call, so that without a Journal nothing finds what a process makes that dies between the two (Unmarked accepts that)")
	}
	if c.MaxLive < 0 {
		fault("MaxLive %d is negative", c.MaxLive)
	}
	for _, t := range []struct {
		name string
		d    *time.Duration
		std  time.Duration
	}{
		{"CreateTimeout", &c.CreateTimeout, 2 * time.Minute},
		{"ReadyTimeout", &c.ReadyTimeout, 5 * time.Minute},
		{"Grace", &c.Grace, 10 * time.Second},
		{"CleanupTimeout", &c.CleanupTimeout, max(2*time.Minute, 2*caps.deleteTime())},
	} {
		if *t.d < 0 {
			fault("%s %v is negative", t.name, *t.d)
		}
		if *t.d == 0 {
			*t.d = t.std
		}
	}
	if c.CleanupTimeout > 0 && c.CleanupTimeout < 2*caps.deleteTime() {
		fault("CleanupTimeout %v does not hold two deletes of up to %v each", c.CleanupTimeout, caps.deleteTime())
	}
	c.Scope = c.Scope.clone()
	c.Observers = slices.Clone(c.Observers)
	return c, faults
}

// defaultOwner is "<host>.<pid>" in the mark's alphabet, cut from the left: the pid tells processes of one host apart.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	owner := strings.Map(func(r rune) rune {
		if markRune(r) {
			return r
		}
		return '-'
	}, fmt.Sprintf("%s.%d", host, os.Getpid()))
	return owner[max(0, len(owner)-wordLen):]
}

// plan resolves one scope against the provider's facts. The error joins every fault.
func (m *Manager) plan(s Scope) (ttl.Plan, error) {
	var faults []error
	fault := func(kind error, format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, kind)...))
	}
	plan, err := ttl.Policy{
		Window: s.Window, Beat: s.Beat, MaxLifetime: s.MaxLifetime,
		After: m.cfg.Grace + m.cfg.CleanupTimeout + max(0, s.KeepOnError),
	}.Resolve(m.caps.limits())
	if err != nil {
		faults = append(faults, fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	if s.StallTimeout < 0 {
		fault(ErrInvalid, "StallTimeout %v is negative", s.StallTimeout)
	}
	switch keep := s.KeepOnError; {
	case keep < 0:
		fault(ErrInvalid, "KeepOnError %v is negative", keep)
	case keep > 0 && m.caps.Extend != ExtendSet && m.caps.Extend != ExtendAdd:
		fault(errors.ErrUnsupported, "KeepOnError: the provider cannot set a sandbox's end")
	case keep > 0 && err == nil && (plan.Down(keep) < max(m.caps.MinWindow, 1) || plan.Down(keep) > m.caps.MaxWindow):
		fault(ErrInvalid, "KeepOnError %v is outside of the provider's %v to %v, in steps of %v", keep, m.caps.MinWindow, m.caps.MaxWindow, m.caps.Step)
	}
	for k, v := range s.Tags {
		if k == "" || strings.HasPrefix(k, MarkKey) {
			fault(ErrInvalid, "tag %q: an empty name, or one that starts with %q, cannot be yours", k, MarkKey)
		} else if !m.cfg.LocalTags && (len(k) > m.caps.MaxTagKey || len(v) > m.caps.MaxTagValue) {
			fault(ErrInvalid, "tag %q does not fit: names of up to %d bytes and values of up to %d (LocalTags keeps what does not fit on this side)", k, m.caps.MaxTagKey, m.caps.MaxTagValue)
		}
	}
	if len(s.Tags) > m.caps.MaxTags && !m.cfg.LocalTags {
		fault(ErrInvalid, "%d tags, the provider holds %d (LocalTags keeps what does not fit on this side)", len(s.Tags), m.caps.MaxTags)
	}
	if err := s.Spec.Validate(); err != nil {
		faults = append(faults, err)
	}
	return plan, errors.Join(faults...)
}

// remoteTags returns those of tags that the provider can hold: in the order of their names, so that it is always the same ones.
func (m *Manager) remoteTags(tags map[string]string) map[string]string {
	fit := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if len(fit) < m.caps.MaxTags && len(k) <= m.caps.MaxTagKey && len(tags[k]) <= m.caps.MaxTagValue {
			fit[k] = tags[k]
		}
	}
	return fit
}
