package fake

import (
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Behaviour is how the service lives up to what is said of it, or does not. Package sandboxtest documents the fields,
// which are the same.
type Behaviour struct {
	// The service's clock.
	Skew time.Duration

	// Create.
	UniqueNames, Keys bool

	StartTime     time.Duration
	NeverReady    bool
	StartsFailed  bool
	LeaseFromRun  bool
	UnknownImages []string
	MaxLive       int
	LiveLag       time.Duration
	MaxInFlight   int
	RetryAfter    time.Duration

	// Lease.
	MinWindow    time.Duration
	MaxWindow    time.Duration
	GrantExtra   time.Duration
	NoLease      bool
	HideDeadline bool
	PlanLifetime time.Duration
	NoHardEnd    bool
	AtExpiry     sandbox.State
	EndTime      time.Duration
	Lateness     time.Duration
	Unenforced   bool
	PausedLease  bool
	ResumeWindow time.Duration
	RaceWindow   time.Duration

	// Get.
	GetMissesNew    time.Duration
	GetShowsDeleted time.Duration
	GetStale        time.Duration
	WrongScope      bool

	// List.
	ListMissesNew    time.Duration
	ListShowsDeleted time.Duration
	ListStale        time.Duration
	ListFlaps        time.Duration
	ListHides        []sandbox.State
	ListShowsGone    bool
	PageSize         int
	RepeatCursor     bool
	IgnoreFilter     bool
	OneFilter        bool
	ZonelessTimes    bool

	// Delete.
	DeleteTime        time.Duration
	BusyWhileStarting bool
	FailsWhileDormant bool
	PendingTime       time.Duration
	ReviveAfter       time.Duration
	OrphanTime        time.Duration
	NoDelete          bool
}

func (b Behaviour) clone() Behaviour {
	b.UnknownImages, b.ListHides = slices.Clone(b.UnknownImages), slices.Clone(b.ListHides)
	return b
}
