package leakcheck

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// An Option says what a check is to look for, or how it can know that it sees. Options add up.
type Option func(*check)

// Known names sandboxes that this process made and that must be gone: by ID, by nonce, or both.
func Known(infos ...sandbox.Info) Option {
	infos = slices.Clone(infos)
	return func(c *check) {
		for _, i := range infos {
			c.known(i)
		}
	}
}

// Manager has the check look for what m, at the time of the check, has not seen to be gone: m.Live(). Running scopes and
// sandboxes that KeepOnError has left are found as well, so let them end before. What a Manager has already seen to be gone,
// or has left to a lease that should have ended by now, it does not remember: a [Record] does.
func Manager(m *sandbox.Manager) Option {
	return func(c *check) {
		for _, i := range m.Live() {
			c.known(i)
		}
	}
}

// A Record remembers the nonces of all sandboxes that Managers of this process made, took over or ended, so that a check also
// finds those that come back after they were seen to be gone, and where in the code each was made. A sandbox that a scope is
// only a guest of is its owner's. Its zero value is ready for use, by any number of Managers at once.
type Record struct {
	mu    sync.Mutex
	sites map[string]string // by nonce
}

// Observe is a [sandbox.Observer], for [sandbox.Config].Observers.
func (r *Record) Observe(_ context.Context, e sandbox.Event) {
	switch e.Op { // what a guest does not do
	case sandbox.OpCreate, sandbox.OpDelete, sandbox.OpConfirm:
	case sandbox.OpJournal:
		if e.Err != nil { // a take-over that found a living owner
			return
		}
	case sandbox.OpScope:
		if e.Final { // the first is before a guest knows whose guest it is
			return
		}
	default:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	nonce := e.Info.Mark.Nonce
	if _, known := r.sites[nonce]; known || nonce == "" {
		return
	}
	if r.sites == nil {
		r.sites = map[string]string{}
	}
	r.sites[nonce] = site()
}

// site returns file and line of the call of a Manager that is under way on this goroutine, where a scope's first event is
// told; empty: there is none.
func site() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		if more && (name == "sandbox.(*Manager).WithSandbox" || name == "sandbox.(*Manager).AttachSandbox") {
			f, _ = frames.Next()
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// Recorded has the check look for all that r remembers.
func Recorded(r *Record) Option {
	return func(c *check) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for n, site := range r.sites {
			c.nonces[n] = true
			c.sites[n] = site
		}
	}
}

// Fleet has the check fail on sandboxes of the fleet that are past their lease, whoever made them. Default: only those of
// this process count.
func Fleet(name string) Option { return func(c *check) { c.fleet = name } }

// Witness names sandboxes that are known to be alive, of whatever fleet. If one of them is not listed, the check is blind.
func Witness(ids ...string) Option {
	ids = slices.Clone(ids)
	return func(c *check) { c.witnesses = append(c.witnesses, ids...) }
}

// Source is a second way to learn what exists, such as a ledger of usage: f returns the ids of what is there, possibly none.
// What it names must be listed. Its error is [ErrBlind].
func Source(f func(ctx context.Context) ([]string, error)) Option {
	return func(c *check) { c.sources = append(c.sources, f) }
}

// Canary has the check make a sandbox of its own from spec, see it in the list, delete it and see it gone. That costs one
// start, and the lease ends it should the process die meanwhile. It belongs to the fleet "sandglass-leakcheck".
func Canary(spec sandbox.Spec) Option { return func(c *check) { c.canary = &spec } }

// Unwitnessed accepts that nothing proves the list to show what there is: nothing seen is then good enough.
func Unwitnessed() Option { return func(c *check) { c.unwitnessed = true } }

// Strict has the check fail on sandboxes without any mark, too, as fits an account in which nobody else works.
func Strict() Option { return func(c *check) { c.strict = true } }

// Patience is how long a check waits for what is on its way out, and for lists that lag. Default: 5 s and four times the
// provider's ReadLag, at most a minute.
func Patience(d time.Duration) Option { return func(c *check) { c.patience = max(0, d) } }
