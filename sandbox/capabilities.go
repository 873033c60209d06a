package sandbox

import (
	"time"

	"github.com/sandglass-dev/sandglass/ttl"
)

// Capabilities are facts about a provider. Zero means "no" or "not known", never "unlimited".
type Capabilities struct {
	Extend         ExtendMode
	MinWindow      time.Duration // shortest window that the service accepts
	MaxWindow      time.Duration // longest; required
	Step           time.Duration // windows are whole multiples of it
	MaxLifetime    time.Duration // no sandbox lives longer, on any plan; a plan's own: see [Checker]
	StartAllowance time.Duration // added to a create's window where the lease runs while the machine is still being made
	ReadsDeadline  bool          // Info.Deadline is the service's own word, not the adapter's sum
	AtExpiry       State         // StateGone, or StateDormant where a record stays

	CreateOnce   bool          // the same Mark never makes a second sandbox, so a create may be repeated
	MarkAtCreate bool          // false: a second call writes the mark, and only the journal covers the gap
	CommitDelay  time.Duration // how long after its request an unanswered create may still appear
	ReadLag      time.Duration // how long a Get or List may miss a new sandbox, or show a deleted one
	Revival      time.Duration // how long after a confirmed delete it is worth one more look
	Lateness     time.Duration // how late the service acts on its own deadline
	DeleteTime   time.Duration // the longest that one Delete may take; Config.CleanupTimeout must hold two. 0: 30 s
	DeleteDoubt  time.Duration // how long after a delete that the service failed (5xx) a missing id proves nothing
	GoneByList   bool          // a missing id is proof only when List, asked for the nonce twice, agrees

	MaxTags, MaxTagKey, MaxTagValue int // user's tags: how many, how long

	Stdin       bool // Cmd.Stdin
	SplitOutput bool // stdout and stderr apart
	BinaryOut   bool // output arrives byte for byte
	Kill        bool // a cancelled Exec kills the command at once
	Endpoints   bool // Endpoint
}

// limits is what [ttl] needs of c.
func (c Capabilities) limits() ttl.Limits {
	return ttl.Limits{
		Min: c.MinWindow, Max: c.MaxWindow, Step: c.Step,
		MaxLifetime: c.MaxLifetime, Fixed: c.Extend == ExtendNone,
	}
}

// deleteTime is the limit of one Delete.
func (c Capabilities) deleteTime() time.Duration {
	if c.DeleteTime > 0 {
		return c.DeleteTime
	}
	return 30 * time.Second
}

// ExtendMode is how a beat moves the deadline. All modes have the same effect: now + window.
type ExtendMode int

const (
	ExtendNone     ExtendMode = iota // never moves: a scope's Window is its MaxLifetime
	ExtendSet                        // the service sets it
	ExtendAdd                        // the service adds; the adapter computes the difference
	ExtendActivity                   // use restarts an idle clock; the beat is a short timed command
)

// String returns "none", "set", "add" or "activity".
func (e ExtendMode) String() string {
	words := [...]string{"none", "set", "add", "activity"}
	if e < 0 || int(e) >= len(words) {
		return words[ExtendNone]
	}
	return words[e]
}
