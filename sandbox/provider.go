package sandbox

import (
	"context"
	"iter"
	"time"
)

// A Provider is one account on one control plane. An adapter translates: one call, one request where that can be.
// The core plans, retries, waits, checks marks and reports. Adapters return [*APIError] and pass context errors on.
//
// The core promises: windows within Capabilities and whole multiples of Step; a mark on every create; no two calls
// at once that change the same sandbox; no Extend after a Delete. All methods may be called concurrently.
//
// A wrapper embeds Provider, overrides what it wants, and has a method Unwrap() Provider.
// The interface is frozen: it never gains a method. More is found with [As].
type Provider interface {
	// Name tells accounts apart in journals and reports: "e2b/team-blue", or a fingerprint of base URL and key where
	// the user gives no word. A journal trusts a 404 only under the Name that made the sandbox.
	Name() string

	// Capabilities are facts that need no request and do not change.
	Capabilities() Capabilities

	// Create asks once for a sandbox that carries req.Mark and ends by itself, and need not wait until it runs.
	// An Info with an ID next to an error means: made, but unfit, and the core deletes it. An error without an ID
	// leaves open whether something was made, unless it is an [*APIError] with Refused. A Spec that cannot be
	// honoured is such an error, before any request, matching [ErrInvalid] or [errors.ErrUnsupported].
	Create(ctx context.Context, req CreateRequest) (Info, error)

	// Get looks at one sandbox. [ErrNotFound] (or StateGone) only if the service keeps nothing of it: where a 404 may
	// hide a failed or dormant one, the adapter looks there too.
	Get(ctx context.Context, id string) (Info, error)

	// List yields every sandbox that still exists in any state, over all pages. It may yield more than f asks for,
	// never less. An error ends it and means "could not see"; a repeated cursor is such an error.
	List(ctx context.Context, f Filter) iter.Seq2[Info, error]

	// Extend sets the end of cur to window from now, never later, and wakes nothing that sleeps. It returns the state
	// and the deadline that the service granted. A service that only adds is given window - cur.Left(): the core has
	// moved cur.AsOf on to now, and calls Get after every failure. Where there is nothing to change, it looks.
	Extend(ctx context.Context, cur Info, window time.Duration) (Info, error)

	// Delete asks for removal of all that bills: machine, record, snapshots of its own. It need not wait.
	// [ErrNotFound] if there is nothing. It never resumes or connects on the way.
	Delete(ctx context.Context, id string) error

	// Open returns a handle on a sandbox from any of the calls above, of this process or another, and makes no request.
	Open(info Info) Sandbox
}

// CreateRequest is a resolved order: nothing is left to the provider's defaults.
type CreateRequest struct {
	Mark   Mark              // to be written at create; Nonce serves as unique name or idempotency key, Lifetime as hard end
	Tags   map[string]string // the user's; they fit Capabilities
	Spec   Spec
	Window time.Duration // first end of the lease, or the idle window where activity extends it; Capabilities.StartAllowance is in it
	Beat   time.Duration // how often Extend or Get will be called while the owner lives; 0: not told
}

// Info is what a service says of a sandbox. Times are the service's: only differences of two of them count.
// In a [LeakError] and in what the core presumes, Deadline and AsOf are this process's clock.
type Info struct {
	ID       string // suffices alone, in any process; an adapter with two ids joins them
	State    State
	Mark     Mark              // zero: not ours, or unreadable, which is the same
	Tags     map[string]string // the user's
	Created  time.Time         // of the sandbox, not of its last start, where the service tells
	Deadline time.Time         // when it ends unless extended; zero: the service does not tell, or there is none
	AsOf     time.Time         // the service's clock at this answer (its Date header), else when the request was sent
	Run      string            // identity of the present run (start time, session id): a change is another machine under the same id
	Detail   string            // the service's own word for the state, and a reason if it gives one

	// Native is the provider's own record, which may save Open a request. The core passes the latest one on
	// and never prints, journals or compares it; secrets in it belong in unexported fields.
	Native any `json:"-"`
}

// Left returns Deadline - AsOf, the lease as granted: 0 if there is no Deadline, negative if it has passed.
func (i Info) Left() time.Duration {
	if i.Deadline.IsZero() {
		return 0
	}
	return i.Deadline.Sub(i.AsOf)
}

// HardDeadline returns the time past which no owner can want the sandbox: Created + Mark.Lifetime, on the service's
// clock, so that neither the owner's clock nor the reader's plays a part. Mark.Created stands in where the service
// tells no time. Zero without a mark.
func (i Info) HardDeadline() time.Time {
	from := i.Created
	if from.IsZero() {
		from = i.Mark.Created
	}
	if i.Mark.Lifetime <= 0 || from.IsZero() {
		return time.Time{}
	}
	return from.Add(i.Mark.Lifetime)
}

// State is as much of a provider's states as decisions need.
type State int

const (
	StateUnknown  State = iota // a word that the adapter does not know: may run, proves no life
	StateStarting              // will run
	StateRunning               // the only state that a beat may report as success, once it has been seen
	StateEnding                // stopping, deleting, snapshotting on the way out
	StateDormant               // stopped, paused, archived: residue that may bill
	StateFailed                // given up by the service; may still run
	StateGone                  // the service keeps nothing but history
)

// MayRun reports whether compute may still run.
func (s State) MayRun() bool { return s != StateDormant && s != StateGone }

// String returns "running" and the like.
func (s State) String() string {
	words := [...]string{"unknown", "starting", "running", "ending", "dormant", "failed", "gone"}
	if s < 0 || int(s) >= len(words) {
		return words[StateUnknown]
	}
	return words[s]
}

// Filter narrows a List where the service can narrow. The zero Filter asks for everything in sight.
type Filter struct {
	Fleet string // of one fleet
	Nonce string // of one create: by unique name, key or tag, whichever the service answers soonest
}

// A Checker is a Provider that can tell before the first create what would fail later. Optional; see [As].
type Checker interface {
	// Check makes reading requests only. Errors match [ErrUnauthenticated], [ErrPermission] (may not delete) and so on.
	Check(ctx context.Context) (Account, error)
}

// Account is what a provider says of itself. Zero means not known.
type Account struct {
	ID          string        // whose key it is
	MaxLifetime time.Duration // the plan's
	MaxLive     int           // the plan's
	Skew        time.Duration // the service's clock minus ours
	SkewKnown   bool          // false: the service tells no time, and Skew nothing
}

// A Shortener is a Provider that can bring the end of a lease nearer by a call which can never move it further away,
// start, resume or revive anything, so that it may follow a failed Delete. Optional; see [As].
type Shortener interface {
	// Shorten sets the end of id to left from now unless it lies nearer already. left is at least MinWindow.
	Shorten(ctx context.Context, id string, left time.Duration) error
}

// A Repeater is a Provider that writes the mark by a second call (Capabilities.MarkAtCreate is false) and whose creates
// have an idempotency key: what a process made that died between the two calls is found by sending its create again.
// Optional; see [As].
type Repeater interface {
	// Order returns what Create would send for req, for a journal. It holds no secret, and no request is made.
	Order(req CreateRequest) ([]byte, error)

	// Repeat sends an order again and returns the sandbox that the first one made, or, if that never arrived, a new one:
	// only who holds the lock of its journal entry may call it, and must delete what it returns. [ErrInvalid], before any
	// request, if the key is so old that the service may have forgotten it.
	Repeat(ctx context.Context, mark Mark, order []byte) (Info, error)
}

// A Snapshotter is a Provider whose service keeps what was made from a sandbox (a snapshot, an image, a volume) after the
// sandbox is gone, as an object of its own that carries no mark but names its source. A scope leaves such objects, for
// its function made them on purpose; a sweeper removes those of sandboxes whose owner is gone. Optional; see [As].
type Snapshotter interface {
	// Snapshots yields what was made from the sandbox id and still exists, over all pages. An error ends it.
	Snapshots(ctx context.Context, id string) iter.Seq2[Snapshot, error]

	// DeleteSnapshot asks for removal of one. [ErrNotFound] if there is none.
	DeleteSnapshot(ctx context.Context, s Snapshot) error
}

// Snapshot is an object that was made from a sandbox. Times are the service's.
type Snapshot struct {
	ID      string
	Source  string    // the sandbox's Info.ID, as the service tells it
	Kind    string    // the service's word, such as "snapshot" or "volume"
	Created time.Time // zero: not told
}
