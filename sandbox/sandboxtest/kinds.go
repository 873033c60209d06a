package sandboxtest

import (
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Kind is a kind of service to imitate: facts, and habits beyond them.
type Kind struct {
	Name         string // such as "e2b"
	Capabilities sandbox.Capabilities
	Behave       func(*Behaviour) // habits that Capabilities do not tell; nil: none
}

// Kinds returns imitations of e2b, daytona, modal, vercel, boat, docker and kubernetes, and "bare", whose deadlines
// never move and which can do next to nothing, in this order. They imitate the kind of service (how it extends, ends,
// names, lists and deletes) in the slowest form that is known, not the wire. Their Capabilities are those of the adapters:
// of Docker's, that of an engine on this machine, and of Daytona's, that of a service with TTLs.
func Kinds() []Kind {
	return []Kind{e2b(), daytona(), modal(), vercel(), boat(), docker(), kubernetes(), bare()}
}

// e2b sets deadlines and kills. No name, no key: a repeated create makes a twin. A delete confirms, but one that fails
// drops the record and may leave the machine.
func e2b() Kind {
	return Kind{
		Name: "e2b",
		Capabilities: sandbox.Capabilities{
			Extend: sandbox.ExtendSet, MinWindow: time.Second, MaxWindow: 24 * time.Hour, Step: time.Second,
			MaxLifetime: 24 * time.Hour, ReadsDeadline: true, AtExpiry: sandbox.StateGone,
			MarkAtCreate: true, CommitDelay: 75 * time.Second, ReadLag: 2 * time.Second, Revival: 70 * time.Second,
			Lateness: 5 * time.Second, DeleteTime: 80 * time.Second, DeleteDoubt: 90 * time.Second, GoneByList: true,
			MaxTags: 32, MaxTagKey: 64, MaxTagValue: 512,
			Stdin: true, SplitOutput: true, BinaryOut: true, Kill: true, Endpoints: true,
		},
		Behave: func(b *Behaviour) {
			b.LeaseFromRun, b.NoHardEnd = true, true
			b.PlanLifetime, b.ResumeWindow = 24*time.Hour, 5*time.Minute
			b.ListHides = []sandbox.State{sandbox.StateEnding}
		},
	}
}

// daytona sets deadlines in whole minutes, from the create on and whatever the state. Names are unique. A delete is
// accepted, refused while the sandbox starts, and lists flap after it.
func daytona() Kind {
	return Kind{
		Name: "daytona",
		Capabilities: sandbox.Capabilities{
			Extend: sandbox.ExtendSet, MinWindow: time.Minute, MaxWindow: 24 * time.Hour, Step: time.Minute,
			StartAllowance: 2 * time.Minute, ReadsDeadline: true, AtExpiry: sandbox.StateGone,
			CreateOnce: true, MarkAtCreate: true, CommitDelay: time.Minute, ReadLag: 3 * time.Second,
			Lateness: 20 * time.Second, DeleteTime: time.Minute, GoneByList: true,
			MaxTags: 32, MaxTagKey: 64, MaxTagValue: 512,
			SplitOutput: true, BinaryOut: true, Kill: true, Endpoints: true,
		},
		Behave: func(b *Behaviour) {
			b.NoHardEnd, b.PausedLease = true, true
			b.StartTime, b.EndTime, b.DeleteTime = 2*time.Second, 2*time.Second, 2*time.Second
			b.BusyWhileStarting = true
			b.ListShowsDeleted, b.ListFlaps = 0, 3*time.Second
		},
	}
}

// modal has a fixed hard end and an idle clock that use restarts; it tells neither. Windows hold some beats, of which each
// is a command. Names are unique among what runs, a delete is accepted.
func modal() Kind {
	return Kind{
		Name: "modal",
		Capabilities: sandbox.Capabilities{
			Extend: sandbox.ExtendActivity, MinWindow: 20 * time.Second, MaxWindow: 24 * time.Hour, Step: time.Second,
			MaxLifetime: 24 * time.Hour, AtExpiry: sandbox.StateGone,
			CreateOnce: true, MarkAtCreate: true, CommitDelay: time.Minute, ReadLag: 2 * time.Second,
			Lateness: 20 * time.Second, DeleteTime: time.Minute,
			MaxTags: 32, MaxTagKey: 64, MaxTagValue: 256,
			Stdin: true, SplitOutput: true, BinaryOut: true, Kill: true, Endpoints: true,
		},
		Behave: func(b *Behaviour) { b.DeleteTime = 5 * time.Second },
	}
}

// vercel adds to deadlines and stops at expiry: the record stays. Names are unique, lists take one tag.
func vercel() Kind {
	return Kind{
		Name: "vercel",
		Capabilities: sandbox.Capabilities{
			Extend: sandbox.ExtendAdd, MinWindow: time.Second, MaxWindow: 24 * time.Hour, Step: time.Millisecond,
			MaxLifetime: 24 * time.Hour, ReadsDeadline: true, AtExpiry: sandbox.StateDormant,
			CreateOnce: true, MarkAtCreate: true, CommitDelay: time.Minute, ReadLag: 2 * time.Second,
			Lateness: 10 * time.Second, DeleteTime: 3 * time.Minute,
			MaxTags: 3, MaxTagKey: 64, MaxTagValue: 256, // five, of which the mark takes two
			SplitOutput: true, Kill: true, Endpoints: true,
		},
		Behave: func(b *Behaviour) {
			b.NoHardEnd, b.OneFilter, b.LeaseFromRun = true, true, true
			b.PlanLifetime = 24 * time.Hour
			b.StartTime, b.EndTime, b.DeleteTime = time.Second, 3*time.Second, 3*time.Second
			b.PageSize = 20
		},
	}
}

// boat sets deadlines and archives at expiry: the record stays. Creates have an idempotency key and carry no mark,
// which a second call writes; lists cannot filter and lag.
func boat() Kind {
	return Kind{
		Name: "boat",
		Capabilities: sandbox.Capabilities{
			Extend: sandbox.ExtendSet, MinWindow: time.Second, MaxWindow: 30 * 24 * time.Hour, Step: time.Second,
			StartAllowance: time.Minute, ReadsDeadline: true, AtExpiry: sandbox.StateDormant,
			CreateOnce: true, CommitDelay: time.Minute, ReadLag: 3 * time.Second,
			Lateness: 30 * time.Second, DeleteTime: time.Minute,
			SplitOutput: true, BinaryOut: true, Kill: true, Endpoints: true,
		},
		Behave: func(b *Behaviour) {
			b.UniqueNames, b.Keys = false, true
			b.NoHardEnd, b.IgnoreFilter = true, true
			b.StartTime, b.EndTime, b.DeleteTime = 2*time.Second, 5*time.Second, time.Second
			b.ResumeWindow = time.Hour
		},
	}
}

// docker has a watchdog in the container, which the caller sets; the engine confirms deletes.
func docker() Kind {
	return Kind{
		Name: "docker",
		Capabilities: sandbox.Capabilities{
			Extend: sandbox.ExtendSet, MinWindow: 2 * time.Second, MaxWindow: 24 * time.Hour, Step: time.Second,
			MaxLifetime: 30 * 24 * time.Hour, ReadsDeadline: true, AtExpiry: sandbox.StateGone,
			CreateOnce: true, MarkAtCreate: true, CommitDelay: 30 * time.Second,
			Lateness: 5 * time.Second, DeleteTime: 15 * time.Second,
			MaxTags: 64, MaxTagKey: 128, MaxTagValue: 4096,
			Stdin: true, SplitOutput: true, BinaryOut: true, Kill: true, Endpoints: true,
		},
		Behave: func(b *Behaviour) { b.EndTime = time.Second },
	}
}

// kubernetes sets a job's deadline. Names are unique, and pod and job take some seconds to go.
func kubernetes() Kind {
	return Kind{
		Name: "kubernetes",
		Capabilities: sandbox.Capabilities{
			Extend: sandbox.ExtendSet, MinWindow: time.Second, MaxWindow: 24 * time.Hour, Step: time.Second,
			ReadsDeadline: true, AtExpiry: sandbox.StateGone,
			CreateOnce: true, MarkAtCreate: true, CommitDelay: time.Minute,
			Lateness: 5 * time.Second, DeleteTime: 30 * time.Second,
			MaxTags: 32, MaxTagKey: 63, MaxTagValue: 256,
			Stdin: true, SplitOutput: true, BinaryOut: true, Kill: true, Endpoints: true,
		},
		Behave: func(b *Behaviour) {
			b.StartTime, b.EndTime, b.DeleteTime = time.Second, 3*time.Second, 4*time.Second
		},
	}
}

// bare has one deadline for a whole life and can do no more than run a command.
func bare() Kind {
	return Kind{
		Name: "bare",
		Capabilities: sandbox.Capabilities{
			Extend: sandbox.ExtendNone, MinWindow: time.Second, MaxWindow: 24 * time.Hour, Step: time.Second,
			AtExpiry: sandbox.StateGone, MarkAtCreate: true, CommitDelay: 10 * time.Second, DeleteTime: 10 * time.Second,
		},
	}
}
