package vercelfake

import "time"

// Quirks are habits of this service beyond those that package fake knows. The zero Quirks are the service as far as it
// is known, with everything that takes time taking none.
type Quirks struct {
	// Create.
	CreateWait time.Duration // how long a create waits for the start before it answers "pending"; 0: 10 s; negative: not at all
	MaxCPUs    int           // the plan's; 0: 8

	// End of a session.
	SnapshotTime time.Duration // how long "snapshotting" lasts when a sandbox is stopped that keeps its files
	StopTime     time.Duration // how long "stopping" lasts when it is stopped by a call; at the lease's end it is Behaviour.EndTime
	StopEarly    bool          // a stop answers while it is under way, as it did on v1
	StopEnded    int           // status of a stop of what has stopped: 200 (the default), 410 or 422
	DeleteBusy   int           // status of a delete while a session stops or is snapshotted; 0: it goes through
	SessionGone  int           // status of a look at a session whose sandbox was deleted; 0: 404
	SessionsKept time.Duration // how long such a session is still shown, once it has stopped
	Retention    time.Duration // how long a stopped record is kept that keeps no files; 0: 14 days; negative: for ever

	// Snapshots.
	OrphanLag   time.Duration // how long after a delete its orphaned snapshots are deleted, if that was asked for
	NameForgets bool          // the list of a sandbox's snapshots is empty once the sandbox was deleted

	// Look.
	PageSize   int  // most rows on a page, whatever limit was asked for; 0: as asked
	WideStatus bool // a record's status is the session's, with seven values; else one of running, stopping and stopped

	// Commands and files.
	DeadStreams    DeadStream // what becomes of the stream of a command whose session ends
	StreamType     string     // content type of streams; default application/x-ndjson, which the SDK takes only as it is
	KillsLeader    bool       // a signal or timeout ends the command itself, and what it ran goes on; else all of it ends
	KillEnded      int        // status of a kill of what has ended; 0: 400
	StrictMkdir    bool       // mkdir makes no parents, and fails where the folder is there, unless recursive is true
	NoFileCode     bool       // a missing file has the code of a missing session
	ConflictOfLife bool       // 409 stands for the 410 and 422 of a session's life, with the same codes

	// Access.
	Unauthorized bool // a token that is not accepted is a 401; else a 403
	Foreign      bool // the token is good and of another team, or not for this project: 403 for everything
	HTML         bool // every answer is a web page with status 200, as behind a wrong base URL
	Down         bool // every answer is a 503
}

// A DeadStream is how a stream ends whose session does.
type DeadStream int

const (
	StreamTells DeadStream = iota // with a line {"stream":"error"}
	StreamCut                     // the connection breaks
	StreamEnds                    // as it would at the command's end, without its last line
	StreamHangs                   // not at all, until the client leaves
)
