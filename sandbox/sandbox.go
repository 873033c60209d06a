package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A Sandbox is a running machine as the function sees it. All methods are safe for concurrent use, count as
// progress for the stall switch, and return an error matching [errors.ErrUnsupported], before any request,
// for what the provider cannot do. Errors of the service are [*APIError].
//
// The interface is frozen: it never gains a method. More is found with [As].
type Sandbox interface {
	// ID is the one string by which [Provider.Get] and [Provider.Delete] know the sandbox.
	ID() string

	// Exec runs cmd to its end. A non-zero exit (127 if there is no such program), a signal and a passed Timeout are
	// a Result, not an error: an error means that the outcome is not known. When ctx ends, Exec returns its cause at once with the output
	// so far, and the command is killed with all its children; where that is impossible (Capabilities.Kill) its
	// Timeout ends it. No command is ever started twice.
	Exec(ctx context.Context, cmd Cmd) (Result, error)

	// Upload writes all of r to the absolute path name, making parent folders; another path is [ErrInvalid].
	// A failed upload may leave a part.
	Upload(ctx context.Context, name string, r io.Reader) error

	// Download copies the file at the absolute path name to w. A missing file matches [io/fs.ErrNotExist], never [ErrNotFound].
	Download(ctx context.Context, name string, w io.Writer) error

	// Endpoint says how to reach a port that Spec.Ports declared; another port is [ErrInvalid].
	Endpoint(ctx context.Context, port int) (Endpoint, error)
}

// Cmd is a command, in the manner of [os/exec.Cmd]. There is one way to run it: streaming is a writer, standard
// input a reader, killing a cancelled context, a background process a goroutine. If Stdout and Stderr are one writer,
// it is never written to from two goroutines at once; after Exec has returned, neither is written to any more. A writer
// that fails is not written to again, and the command goes on: its output is in the Result all the same.
type Cmd struct {
	Args    []string          // program and arguments, no shell; see [Shell]
	Env     map[string]string // in addition to Spec.Env
	Dir     string            // absolute; default: the image's
	User    string            // default: the image's
	Stdin   io.Reader         // nil: empty. Needs Capabilities.Stdin
	Stdout  io.Writer         // written as output arrives; may be nil, since Result keeps the end of it anyway
	Stderr  io.Writer         // likewise; another writer than Stdout needs Capabilities.SplitOutput
	Timeout time.Duration     // then it is killed; default and maximum: what is left of the scope's MaxLifetime
}

// Shell returns the command that has sh run script.
func Shell(script string) Cmd { return Cmd{Args: []string{"sh", "-c", script}} }

// Validate reports every fault of c that needs no request to be found, for a provider with the given facts. Each
// matches [ErrInvalid] or [errors.ErrUnsupported]. Adapters call it first of all in Exec.
func (c Cmd) Validate(caps Capabilities) error {
	var faults []error
	if len(c.Args) == 0 || c.Args[0] == "" {
		faults = append(faults, fmt.Errorf("command without a program: %w", ErrInvalid))
	}
	if slices.ContainsFunc(c.Args, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		faults = append(faults, fmt.Errorf("NUL in an argument: %w", ErrInvalid))
	}
	if c.Dir != "" && !path.IsAbs(c.Dir) {
		faults = append(faults, fmt.Errorf("command folder %q is not absolute: %w", c.Dir, ErrInvalid))
	}
	if c.Timeout < 0 {
		faults = append(faults, fmt.Errorf("command timeout %v is negative: %w", c.Timeout, ErrInvalid))
	}
	if c.Stdin != nil && !caps.Stdin {
		faults = append(faults, fmt.Errorf("standard input: %w", errors.ErrUnsupported))
	}
	if c.Stderr != nil && !caps.SplitOutput && !c.oneWriter() {
		faults = append(faults, fmt.Errorf("stderr apart from stdout: %w", errors.ErrUnsupported))
	}
	return errors.Join(append(faults, envFaults(c.Env)...)...)
}

// oneWriter reports whether both streams go to one writer; values that cannot be compared are two.
func (c Cmd) oneWriter() bool {
	return c.Stdout != nil && reflect.TypeOf(c.Stdout).Comparable() && reflect.TypeOf(c.Stderr).Comparable() && c.Stdout == c.Stderr
}

func envFaults(env map[string]string) []error {
	var faults []error
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			faults = append(faults, fmt.Errorf("environment name %q cannot be set: %w", k, ErrInvalid))
		}
	}
	return faults
}

// Result is how a command ended.
type Result struct {
	ExitCode       int    // 128+n after signal n; -1 if TimedOut
	Stdout, Stderr []byte // the last 1 MiB of each
	Merged         bool   // Stdout holds both streams, since the provider cannot tell them apart
	Truncated      bool   // there was more
	TimedOut       bool   // killed because Cmd.Timeout passed
}

// Err returns nil after exit 0, otherwise an error with the exit code and the end of what was written to stderr.
func (r Result) Err() error {
	said := r.Stderr
	if r.Merged {
		said = r.Stdout
	}
	tail := strings.TrimSpace(string(said[max(0, len(said)-500):]))
	if tail != "" {
		tail = ": " + strings.ToValidUTF8(tail, "")
	}
	switch {
	case r.TimedOut:
		return fmt.Errorf("command timed out and was killed%s", tail)
	case r.ExitCode != 0:
		return fmt.Errorf("command ended with exit code %d%s", r.ExitCode, tail)
	}
	return nil
}

// Endpoint is the way from outside to a port.
type Endpoint struct {
	URL    string            // may hold a token: not for logs
	Header map[string]string // to be sent with every request, secret too; often empty
}

// Spec is what to create, in terms that most providers share. The zero Spec is the provider's default machine.
// A field that a provider cannot honour is refused, never dropped.
type Spec struct {
	Image   string            // image, template or snapshot, as the provider names it
	Env     map[string]string // for every command; never journaled, logged or sent to an Observer
	CPU     float64           // cores
	Memory  int64             // bytes
	Disk    int64             // bytes
	Ports   []int             // what Endpoint may be asked for
	Offline bool              // no way out to the network

	// Native holds options of one provider, of the type that its package documents, such as *docker.Options.
	// Another type is [ErrInvalid]. It cannot touch lease, name or mark: the adapter sets those last.
	Native any
}

// Validate reports every fault of s that no provider could accept; each matches [ErrInvalid].
func (s Spec) Validate() error {
	faults := envFaults(s.Env)
	if !(s.CPU >= 0) || s.Memory < 0 || s.Disk < 0 { // the first form also catches NaN
		faults = append(faults, fmt.Errorf("negative CPU, memory or disk: %w", ErrInvalid))
	}
	for i, p := range s.Ports {
		if p < 1 || p > 65535 || slices.Contains(s.Ports[:i], p) {
			faults = append(faults, fmt.Errorf("port %d is out of range or given twice: %w", p, ErrInvalid))
		}
	}
	return errors.Join(faults...)
}

// As finds T in v, a [Sandbox] or a [Provider]: v itself, or what its Native() any method returns, then the same
// of what its Unwrap method returns, inwards. It reaches optional interfaces and the provider's own client:
//
//	if c, ok := sandbox.As[*client.Client](provider); ok { ... }
//
// Calls made that way are outside the stall switch, and a sandbox made that way is outside every guarantee.
func As[T any](v any) (T, bool) {
	for v != nil {
		if t, ok := v.(T); ok {
			return t, true
		}
		if n, ok := v.(interface{ Native() any }); ok {
			if t, ok := n.Native().(T); ok {
				return t, true
			}
		}
		switch w := v.(type) {
		case interface{ Unwrap() Sandbox }:
			v = w.Unwrap()
		case interface{ Unwrap() Provider }:
			v = w.Unwrap()
		default:
			v = nil
		}
	}
	var zero T
	return zero, false
}
