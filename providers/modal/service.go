package modal

import (
	"context"
	"io"
	"time"
)

// A service is all that the adapter asks of Modal, in words and values of its own. It has one implementation, in sdk.go:
// the only file that knows the official SDK, so that the SDK's next breaking release touches that file.
//
// Every error is a [*failure], unless its context has ended: then it is whatever.
type service interface {
	// environment looks up the environment and returns its id.
	environment(ctx context.Context) (id string, err error)

	// create asks once for a sandbox. A failure tells in sent whether the request for it has left. An id next to it is that
	// of a sandbox which was made, but is unfit.
	create(ctx context.Context, o *order) (id string, err error)

	// named returns the id of the sandbox that runs under a name in our App.
	named(ctx context.Context, name string) (id string, err error)

	// wait returns how a sandbox has ended, or nothing if it has not within the time given; 0 does not wait.
	wait(ctx context.Context, id string, limit time.Duration) (ending, error)

	// tags returns a sandbox's tags.
	tags(ctx context.Context, id string) (map[string]string, error)

	// page returns one page of the list of all Apps, newest first, of what was made before a time in seconds; 0: now.
	page(ctx context.Context, tags map[string]string, before float64, finished bool) ([]row, error)

	// terminate asks for the end, and returns how it had ended before.
	terminate(ctx context.Context, id string) (ending, error)

	// tunnels returns the ways to a sandbox's ports, for which it may wait.
	tunnels(ctx context.Context, id string, limit time.Duration) ([]tunnel, error)

	// start starts a command.
	start(ctx context.Context, id string, c command) (*process, error)

	// forget lets go of what is held open for a sandbox.
	forget(id string)

	// native returns the SDK's own client, or its handle on a sandbox.
	native(id string) any

	close()
}

// A failure is what the service, or the way to it, said.
type failure struct {
	code       string        // as gRPC spells it, such as "NOT_FOUND"; empty: not told
	message    string        // the service's words, or the SDK's
	retryAfter time.Duration // as the service asked
	throttled  bool          // the service asked to be asked again later
	sent       bool          // of a create: the request has left
}

func (f *failure) Error() string { return f.code + ": " + f.message }

// Codes that decide something.
const (
	codeNotFound         = "NOT_FOUND"
	codeExists           = "ALREADY_EXISTS"
	codePrecondition     = "FAILED_PRECONDITION"
	codeExhausted        = "RESOURCE_EXHAUSTED"
	codeInvalid          = "INVALID_ARGUMENT"
	codeOutOfRange       = "OUT_OF_RANGE"
	codeUnauthenticated  = "UNAUTHENTICATED"
	codePermission       = "PERMISSION_DENIED"
	codeUnimplemented    = "UNIMPLEMENTED"
	codeUnavailable      = "UNAVAILABLE"
	codeInternal         = "INTERNAL"
	codeDeadlineExceeded = "DEADLINE_EXCEEDED"
	codeAborted          = "ABORTED"
	codeBuild            = "IMAGE_BUILD" // ours: the service says that an image could not be built
)

// An ending is how a sandbox has ended.
type ending struct {
	over bool
	word string // the service's, such as "TERMINATED"
	exit int
	why  string
}

// A row is what a list says of a sandbox.
type row struct {
	id, name   string
	tags       map[string]string
	created    float64 // in seconds since 1970
	started    bool
	finished   bool
	unfinished ending // how it has ended, if finished
}

// A tunnel is the way from outside to a port.
type tunnel struct {
	port int // inside
	url  string
}

// A command is what to run in a sandbox. The service's own limit kills its first process.
type command struct {
	args  []string
	env   map[string]string
	dir   string
	limit time.Duration // rounded up to seconds; required
	mute  bool          // its output is not wanted
}

// A process is a command that was started. Stdin must be closed; stdout and stderr may be closed while they are read.
type process struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser
	wait           func(ctx context.Context) (code int, err error) // 128+n after signal n
}
