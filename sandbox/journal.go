package sandbox

import (
	"context"
	"iter"
	"time"
)

// A Journal remembers creates across a crash of the process. Safe for many processes on one host.
//
// It may have one method more, which gives up the lock on an entry and keeps the entry, for scopes that are over while
// their sandbox may be left, or is kept, in a process that lives on. Without it, nobody else can finish or take over what
// such a scope has left until the process ends. One that wraps another Journal has to pass it on:
//
//	Release(ctx context.Context, nonce string) error
type Journal interface {
	// Put makes e durable before it returns, in place of an entry with the same nonce, and makes the caller its owner.
	// An error stops the create. It matches [ErrConflict] if another living owner has the entry, and only then: who tries
	// again to end a sandbox leaves it to that owner.
	Put(ctx context.Context, e Entry) error
	// Remove forgets an entry whose sandbox is seen to be gone; an unknown nonce is no error.
	Remove(ctx context.Context, nonce string) error
	// Orphans yields entries whose owner is proven dead: its lock on the entry could be taken. Pid and boot id prove
	// nothing (containers and hosts share spools) and are there to be read. An error is an entry that cannot be read
	// or judged; the rest follow.
	Orphans(ctx context.Context) iter.Seq2[Entry, error]
}

// Entry is one create, as remembered. It holds no secret.
type Entry struct {
	Provider string // Provider.Name
	ID       string // empty until the create was answered
	Mark     Mark
	Tags     map[string]string
	Kept     time.Time // left for debugging until then, by the owner's clock; zero: not
	Order    []byte    // of a create that was not answered yet, from a [Repeater]; else nil
}
