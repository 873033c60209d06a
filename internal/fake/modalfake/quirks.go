package modalfake

import (
	"time"

	"google.golang.org/grpc/codes"
)

// Quirks are habits of this service beyond those that package fake knows. The zero Quirks are the service as far as it
// is known, with everything that takes time taking none.
type Quirks struct {
	// Create.
	TimeoutFromStart bool          // the timeout counts from the start, not from the create
	ClampTimeout     bool          // a timeout above 24 h is taken for 24 h; else it is refused
	MinIdle, MaxIdle time.Duration // an idle timeout beyond is refused; 0: no limit
	MaxTags          int           // more are refused; 0: no limit
	MaxTagKey        int           // in bytes; 0: no limit
	MaxTagValue      int           // in bytes; 0: no limit
	PlacementWait    time.Duration // how long a create waits for the start, until it is refused; 0: 1 min
	NoRouterAccess   bool          // a create does not tell the way to the command router, which has to be asked for
	NoTunnels        bool          // a create does not tell tunnels
	TunnelTime       time.Duration // how long after the start tunnels are known
	EqualTimes       bool          // sandboxes made at the same moment have equal times; else each is a little later than the last

	// Life.
	ExecsHoldEnd     bool   // the sandbox ends only when the commands that run at its entrypoint's exit have ended too
	IdleExitCode     int32  // in the result of an idle timeout
	TimeoutExitCode  int32  // in the result of a timeout
	TerminatedCode   int32  // in the result of a terminated sandbox
	TokenTrafficIdle bool   // requests to a tunnel are no activity, as it may be with those by connect token
	StatusUnset      bool   // a running sandbox has a result with status 0, which naive clients take for an end
	Warning          string // sent with every answer of the control plane

	// Look.
	PageSize         int           // most rows on a page; 0: 100
	EdgeIncluded     bool          // a page begins with the time asked for, and not before it: a naive loop never ends
	HidesTerminating bool          // what is being terminated is no longer listed
	MirrorLag        time.Duration // how long the newer list misses what the older backend made
	Forgets          time.Duration // how long after its end a sandbox is still known by its id; 0: for ever
	EndedTask        bool          // the task of a sandbox that has ended is no longer told, only its result
	LookupCode       codes.Code    // of calls about an id that is not known; 0: NOT_FOUND

	// Commands.
	ExecGone    codes.Code    // of a command's start in a sandbox that has ended; 0: NOT_FOUND
	DeadExec    codes.Code    // of the wait for a command whose sandbox ended before it; 0: its end by signal 9 is told
	LosesOutput bool          // what a command wrote is lost when its sandbox ends
	KillsLeader bool          // a timeout ends the command itself, and what it ran goes on; else all of it ends
	StdioKept   int           // bytes of an entrypoint's output that can be read again; 0: 64 MiB
	RouterToken time.Duration // how long a token of the command router is good; 0: 1 h; negative: for ever, and it does not tell
	AuthToken   time.Duration // how long a token of the control plane is good; 0: 20 min; negative: the same, and it does not tell
	NoFileTools bool          // the image has no program for files
	NoShell     bool          // the image has no sh
	ChunkSize   int           // most bytes in one message of output; 0: 64 KiB
	NoPolicy    bool          // a refusal for the rate comes without the policy that says when to try again
}
