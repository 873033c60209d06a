package sandboxtest

import (
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Behaviour is how the service lives up to what its [sandbox.Capabilities] say, or does not. It starts out as they
// say, late and lagging by the full amounts they admit; [Provider.Behave] changes it at any time. What single calls do
// wrong is a [Fault].
type Behaviour struct {
	// The service's clock.
	Skew time.Duration // how far the service's clock is ahead of ours, apart from Advance and Expire

	// Create.
	//
	// UniqueNames: the name made from the nonce is unique. A repeated create is a conflict, resolved to the sandbox that
	// has the name. Keys: the nonce is an idempotency key. The same create is answered with the same sandbox, another body
	// under the key refused with 409. Without either, a repeated create makes a twin.
	UniqueNames, Keys bool

	StartTime     time.Duration // from a create to running
	NeverReady    bool          // sandboxes stay in StateStarting
	StartsFailed  bool          // sandboxes are StateFailed where they should run
	LeaseFromRun  bool          // a lease counts from running on; false: from the create
	UnknownImages []string      // names for Spec.Image that are refused
	MaxLive       int           // more sandboxes that may run are refused with 429, ErrQuota and RetryAfter; 0: no limit
	LiveLag       time.Duration // how long one that has ended still counts for MaxLive
	MaxInFlight   int           // more creates under way at once are refused with 429, ErrRateLimited and RetryAfter; 0: no limit
	RetryAfter    time.Duration // in those two answers; 0: none

	// Lease.
	MinWindow    time.Duration // shorter windows are refused with 400; 0: no limit
	MaxWindow    time.Duration // longer windows are refused with 400; 0: no limit
	GrantExtra   time.Duration // added to every window that is granted; negative: less than asked
	NoLease      bool          // creates and extends succeed and set no deadline at all
	HideDeadline bool          // answers tell no deadline, though there is one
	PlanLifetime time.Duration // deadlines further than this from the start of a run are silently cut; 0: none
	NoHardEnd    bool          // the lifetime in the mark is not made a hard end at the service
	AtExpiry     sandbox.State // StateGone: killed. StateDormant: stopped, paused or archived, and the record stays
	EndTime      time.Duration // how long StateEnding lasts at expiry
	Lateness     time.Duration // how long after a deadline the service acts on it
	Unenforced   bool          // deadlines are told and pass without effect
	PausedLease  bool          // a lease goes on while the sandbox is dormant and ends the record too
	ResumeWindow time.Duration // the lease that a resume sets; 0: the one that the create asked for
	RaceWindow   time.Duration // extends so close to the deadline succeed, and the sandbox ends all the same

	// Get.
	GetMissesNew    time.Duration // how long Get answers 404 for a new sandbox
	GetShowsDeleted time.Duration // how long Get shows one that is gone, as it was
	GetStale        time.Duration // how old the states and deadlines are that Get tells
	WrongScope      bool          // as with another account's key: Get and Delete answer 404 for everything, lists are empty

	// List. A page is one call.
	ListMissesNew    time.Duration   // how long lists miss a new sandbox
	ListShowsDeleted time.Duration   // how long lists show one that is gone, as it was
	ListStale        time.Duration   // how old the states and deadlines are that lists tell
	ListFlaps        time.Duration   // so long after an end lists show the row as it was before and not at all, in turn
	ListHides        []sandbox.State // rows that lists leave out
	ListShowsGone    bool            // lists keep rows of gone sandboxes, as StateGone, for ever; Get and Delete answer 404
	PageSize         int             // rows of a page; 0: 100
	RepeatCursor     bool            // every page leads to itself
	IgnoreFilter     bool            // lists tell of everything
	OneFilter        bool            // of a filter by fleet and nonce only the fleet counts
	ZonelessTimes    bool            // lists print times without a zone, which nobody may trust: Created and Deadline stay zero

	// Delete.
	DeleteTime        time.Duration // how long StateEnding lasts after a delete; 0: gone when the call returns
	BusyWhileStarting bool          // deletes of a starting sandbox are refused with 409
	FailsWhileDormant bool          // deletes of a dormant sandbox fail with 500 and do nothing
	PendingTime       time.Duration // of EffectPending
	ReviveAfter       time.Duration // of EffectRevive
	OrphanTime        time.Duration // of EffectOrphan; 0: for ever
	NoDelete          bool          // deletes are refused with 403, as for a key that may only create; Check tells
}
