package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What a service said. Classified by status and code, never by message; what is not known stays unclassified.
// What a provider cannot do at all matches [errors.ErrUnsupported].
var (
	ErrNotFound        = errors.New("no such sandbox") // never for an image or a file: an unknown image is ErrInvalid
	ErrConflict        = errors.New("conflict with the sandbox's present state")
	ErrRateLimited     = errors.New("rate limited")
	ErrQuota           = errors.New("quota reached")
	ErrUnauthenticated = errors.New("credentials not accepted")
	ErrPermission      = errors.New("not permitted")
	ErrInvalid         = errors.New("invalid request or configuration")
	ErrUnavailable     = errors.New("service unavailable")
)

// What became of a scope. The first four are causes of its context; ask for them before [context.Canceled],
// which fn's own error often matches as well.
var (
	ErrLeaseLost   = errors.New("lease lost")
	ErrStalled     = errors.New("no progress within the stall timeout")
	ErrMaxLifetime = errors.New("max lifetime reached")
	ErrShutdown    = errors.New("shut down")
	ErrNotStarted  = errors.New("function not started")
	ErrScopeEnded  = errors.New("the sandbox's scope has ended") // of calls on a [Sandbox] after its function
)

// An APIError is one failed call of a provider. Adapters make it, once, where the operation is known; a Manager does so for
// a create that it has not sent, because the service has asked for none until RetryAfter is over.
// It prints as "e2b: delete i3f9: 503 unavailable: ...", without keys, tokens and URLs.
type APIError struct {
	Provider   string
	Op         Op
	ID         string
	Status     int           // HTTP status; 0: the service did not answer, or does not speak HTTP
	Code       string        // the service's code for it, or the gRPC code
	Message    string        // the service's words, shortened, secrets removed
	RequestID  string        // for the provider's support
	RetryAfter time.Duration // as the service asked; 0: it did not
	Refused    bool          // the service said no and did nothing: set only where that is certain
	Kind       error         // one of the sentinels, or nil
	Err        error         // the cause below, or nil
}

func (e *APIError) Error() string {
	var b strings.Builder
	b.WriteString(e.Provider + ": " + string(e.Op))
	if e.ID != "" {
		b.WriteString(" " + e.ID)
	}
	var said []string
	if e.Status != 0 {
		said = append(said, fmt.Sprint(e.Status))
	}
	if e.Code != "" {
		said = append(said, e.Code)
	}
	if len(said) > 0 {
		b.WriteString(": " + strings.Join(said, " "))
	}
	for _, part := range []error{e.Kind, e.Err} {
		if part != nil {
			b.WriteString(": " + part.Error())
		}
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.RequestID != "" {
		b.WriteString(" (request " + e.RequestID + ")")
	}
	return b.String()
}

// Unwrap returns Kind and Err.
func (e *APIError) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// A LeakError names what may be left. Find it with [errors.AsType].
type LeakError struct {
	Provider  string
	Sandboxes []Info // State: residue, or may run. Deadline: when the lease ends it, by this process's clock; zero: nothing will. No ID: a create without an answer
	Err       error  // why it could not be deleted or verified
}

func (e *LeakError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: possible leak:", e.Provider)
	for i, info := range e.Sandboxes {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(" " + leftover(info))
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// leftover says of one sandbox what may still run, until when, and what to do.
func leftover(i Info) string {
	what, state := "sandbox "+i.ID, i.State.String()
	if i.ID == "" {
		what, state = "the sandbox of an unanswered create", "unknown"
	}
	if i.Mark.Nonce != "" {
		what += " (nonce " + i.Mark.Nonce + ")"
	}
	switch {
	case !i.Deadline.IsZero():
		return fmt.Sprintf("%s, last seen %s, may live until %s, when its lease ends; delete it, or let the sweeper do so",
			what, state, i.Deadline.UTC().Format(time.RFC3339))
	case i.State.MayRun():
		return what + ", last seen " + state + ", may live on: nothing is known to end it; delete it by hand"
	default:
		return what + " is left as " + state + " residue, which may bill and which no lease ends; delete it, or let the sweeper do so"
	}
}

// Unwrap returns Err.
func (e *LeakError) Unwrap() error { return e.Err }
