package boatfake

import "time"

// Quirks are habits of this service that the state machine behind it does not know. Everything that takes a
// [fake.Behaviour] is there. The zero Quirks are an account without limits, on the service as far as it is known.
type Quirks struct {
	// The account.
	Plan      Plan          // limits of starts and of active sandboxes
	GiftTTL   time.Duration // a longer TTL is shortened to it, with a notice; 0: none is
	Trial     bool          // a TTL beyond 2 h, or none, is refused, and so is the large type
	Unpaid    bool          // creates are 402
	Retention bool          // zero data retention: what is archived is deleted
	Forbidden []string      // actions that the key is not allowed, such as "sandbox.delete-own"
	OwnOnly   bool          // nobody but its creator may change a sandbox; else every member of its wallet may
	Access    string        // what a colleague's row says of access; "": view

	// Create.
	NoMachine      bool          // no machine is to be had: with failFast 503, else the sandbox comes to nothing ("cancelled")
	OutOfCapacity  bool          // creates are 503
	KeyHeld        time.Duration // how long a key is taken after a create that broke and made nothing; 0: 2 min; negative: not
	KeyAfterDelete KeyUse        // what a key of a sandbox that was deleted does
	ForkKeepsName  bool          // a fork has the name of its origin; else one as after a create

	// Lease.
	FromCreation bool // a PATCH counts the TTL from the creation, not from now
	PatchDead    int  // status of a new TTL for what is archived or archiving; 0: 200, and nothing changes
	SaveFails    bool // disks cannot be saved: at expiry and after a stop sandboxes are "archiving" for a while and then go on
	StopIgnored  bool // a stop is accepted, and nothing comes of it
	Vanishes     bool // what takes no snapshots is gone once archived; else its row stays

	// Delete.
	DeleteAgain int           // status of a delete of what was deleted: 202, with the same operation (the default), or 404
	PurgeTime   time.Duration // how long an operation takes to complete; 0: 20 h; negative: for ever

	// Look.
	PageSize   int    // most rows of a page, whatever the limit asked for; 0: as asked
	NoPageInfo bool   // the list says nothing of pages, and is one page
	Word       string // the state of what runs; "": ready

	// Commands.
	TimeoutKills bool       // a timeout ends the process too, and the answer has its output
	OutputLimit  int        // bytes of each stream in an answer; 0: 1 MiB, a guess
	OldNotReady  bool       // a command on what is archived is refused as "machine_not_running", as it was once
	DeadStreams  DeadStream // what becomes of the stream of a command whose sandbox ends

	// Access.
	Denied     bool // no key is accepted
	Down       bool // every answer is a 503
	HTML       bool // every answer is a web page with status 200, as behind a wrong base URL
	FlatErrors bool // errors come as {"error": code, "message": ...}
}

// A Plan is what an account may have at a time, and start in a rolling minute, hour and day. 0: no limit.
type Plan struct{ MaxActive, PerMinute, PerHour, PerDay int }

// TrialPlan is the plan of a trial.
func TrialPlan() Plan { return Plan{2, 5, 25, 75} }

// SmallPlan is the smallest that is paid for.
func SmallPlan() Plan { return Plan{100, 10, 50, 150} }

// KeyUse is what an idempotency key does once its sandbox was deleted. What the service does is not known.
type KeyUse int

const (
	KeyMakesAnew  KeyUse = iota // a create under it makes another sandbox
	KeyRemembers                // the first answer is given again, about a sandbox that is no more
	KeyIsRejected               // 409 idempotency_key_reused
)

// A DeadStream is how a stream ends whose sandbox does.
type DeadStream int

const (
	StreamTells DeadStream = iota // with a line of type "error"
	StreamCut                     // the connection breaks
	StreamEnds                    // as it would at the command's end, without its last line
	StreamHangs                   // not at all, until the client leaves
)

func (q Quirks) keyHeld() time.Duration {
	if q.KeyHeld == 0 {
		return 2 * time.Minute
	}
	return max(q.KeyHeld, 0)
}

func (q Quirks) outputLimit() int {
	if q.OutputLimit <= 0 {
		return 1 << 20
	}
	return q.OutputLimit
}
