package sandboxtest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Journal is a [sandbox.Journal] in memory. It is safe for concurrent use. Use [NewJournal].
type Journal struct {
	mu                       sync.Mutex
	entries                  []sandbox.Entry // in the order of their first Put
	dead                     map[string]bool // nonces whose owner is dead
	puts                     []sandbox.Entry
	put, remove, readOrphans error
}

var _ sandbox.Journal = (*Journal)(nil)

// NewJournal returns an empty journal.
func NewJournal() *Journal { return &Journal{dead: map[string]bool{}} }

// Put implements [sandbox.Journal]. An entry that is put again has a living owner again.
func (j *Journal) Put(ctx context.Context, e sandbox.Entry) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.put != nil {
		return j.put
	}
	e.Tags = maps.Clone(e.Tags)
	j.puts = append(j.puts, e)
	delete(j.dead, e.Mark.Nonce)
	if i := j.index(e.Mark.Nonce); i >= 0 {
		j.entries[i] = e
	} else {
		j.entries = append(j.entries, e)
	}
	return nil
}

// Remove implements [sandbox.Journal].
func (j *Journal) Remove(ctx context.Context, nonce string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.remove != nil {
		return j.remove
	}
	if i := j.index(nonce); i >= 0 {
		j.entries = slices.Delete(j.entries, i, i+1)
	}
	delete(j.dead, nonce)
	return nil
}

// Orphans implements [sandbox.Journal]: it yields the entries that were there at the last [Journal.Abandon] and have
// not been put again since.
func (j *Journal) Orphans(ctx context.Context) iter.Seq2[sandbox.Entry, error] {
	return func(yield func(sandbox.Entry, error) bool) {
		j.mu.Lock()
		var orphans []sandbox.Entry
		for _, e := range j.copies(j.entries) {
			if j.dead[e.Mark.Nonce] {
				orphans = append(orphans, e)
			}
		}
		failure := j.readOrphans
		j.mu.Unlock()
		for _, e := range orphans {
			if ctx.Err() != nil {
				yield(sandbox.Entry{}, context.Cause(ctx))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if failure != nil {
			yield(sandbox.Entry{}, failure)
		}
	}
}

// Entries returns all entries, in the order of their first Put.
func (j *Journal) Entries() []sandbox.Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.copies(j.entries)
}

// Puts returns every entry that was ever put, in order, with what it then held.
func (j *Journal) Puts() []sandbox.Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.copies(j.puts)
}

// Abandon has the owners of all present entries dead, as after a crash of their process.
func (j *Journal) Abandon() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		j.dead[e.Mark.Nonce] = true
	}
}

// FailPut has every Put fail with err from now on, like a full disk; nil: no more.
func (j *Journal) FailPut(err error) { j.fail(&j.put, err) }

// FailRemove has every Remove fail with err from now on; nil: no more.
func (j *Journal) FailRemove(err error) { j.fail(&j.remove, err) }

// FailOrphans has every Orphans yield err after its entries from now on; nil: no more.
func (j *Journal) FailOrphans(err error) { j.fail(&j.readOrphans, err) }

func (j *Journal) fail(what *error, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	*what = err
}

func (j *Journal) index(nonce string) int {
	return slices.IndexFunc(j.entries, func(e sandbox.Entry) bool { return e.Mark.Nonce == nonce })
}

func (j *Journal) copies(entries []sandbox.Entry) []sandbox.Entry {
	c := slices.Clone(entries)
	for i := range c {
		c[i].Tags = maps.Clone(c[i].Tags)
	}
	return c
}
