package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// A world is a service, a Manager on it and what was seen of both. It lives in a bubble, where time costs nothing.
type world struct {
	t       *testing.T
	p       *sandboxtest.Provider
	cfg     sandbox.Config
	m       *sandbox.Manager
	journal *sandboxtest.Journal

	mu     sync.Mutex
	events []sandbox.Event
}

// inWorld runs f in a bubble of its own. The bubble fails the test if a goroutine is left at the end.
func inWorld(t *testing.T, kind sandboxtest.Kind, cfg sandbox.Config, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, p: kind.New(), cfg: cfg, journal: sandboxtest.NewJournal()}
		w.cfg.Fleet = "ci"
		w.cfg.Journal = w.journal
		w.cfg.Observers = append(slices.Clone(cfg.Observers), w.see)
		m, err := sandbox.NewManager(w.p, w.cfg)
		require.NoError(t, err)
		w.m = m
		f(w)
	})
}

// everything is the provider that can do all there is.
func everything() sandboxtest.Kind {
	return sandboxtest.Kind{Name: "everything", Capabilities: sandboxtest.Everything()}
}

// kind is everything with other facts.
func kind(change func(*sandbox.Capabilities)) sandboxtest.Kind {
	k := everything()
	change(&k.Capabilities)
	return k
}

func kindNamed(t *testing.T, name string) sandboxtest.Kind {
	t.Helper()
	for _, k := range sandboxtest.Kinds() {
		if k.Name == name {
			return k
		}
	}
	require.Fail(t, "no such kind", name)
	return sandboxtest.Kind{}
}

func (w *world) see(_ context.Context, e sandbox.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

func (w *world) seen(op sandbox.Op, final bool) (found []sandbox.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Op == op && e.Final == final {
			found = append(found, e)
		}
	}
	return found
}

// settle checks, after a scope, what must hold whatever happened: nothing lives by the service's own truth, or the leak
// in err (or heard of by OnLeak) names exactly what does, and until when; and no extend was sent after the first delete.
func (w *world) settle(err error) *sandbox.LeakError {
	w.t.Helper()
	leak, _ := errors.AsType[*sandbox.LeakError](err)
	w.honest(leak)
	deleted := map[string]time.Time{}
	for _, c := range w.p.Calls(sandbox.OpDelete) {
		if at, ok := deleted[c.ID]; !ok || c.Start.Before(at) {
			deleted[c.ID] = c.Start
		}
	}
	for _, c := range w.p.Calls(sandbox.OpExtend) {
		if at, ok := deleted[c.ID]; ok {
			assert.False(w.t, c.Start.After(at), "an extend of %s was sent after its delete", c.ID)
		}
	}
	if leak == nil {
		assert.Empty(w.t, w.m.Live(), "the manager thinks that something is left")
		assert.Empty(w.t, w.journal.Entries(), "the journal has an entry left")
	} else {
		assert.Len(w.t, w.m.Live(), 1)
		assert.Len(w.t, w.journal.Entries(), 1)
	}
	return leak
}

// honest checks a leak, or its absence, against the service's own state.
func (w *world) honest(leak *sandbox.LeakError) {
	w.t.Helper()
	live := append(w.p.Live(), w.p.Residue()...)
	if leak == nil {
		assert.Empty(w.t, live, "something is left, and no error says so")
		return
	}
	var last time.Time
	for _, info := range leak.Sandboxes {
		if info.ID != "" {
			assert.Contains(w.t, leak.Error(), info.ID)
		}
		if info.Deadline.After(last) {
			last = info.Deadline
		}
	}
	for _, l := range live {
		i := slices.IndexFunc(leak.Sandboxes, func(s sandbox.Info) bool {
			unmarked := l.Mark == sandbox.Mark{} && !w.p.Capabilities().MarkAtCreate // its mark was never written
			return s.ID == l.ID || s.ID == "" && (s.Mark.Nonce == l.Mark.Nonce || unmarked)
		})
		assert.GreaterOrEqual(w.t, i, 0, "%s is left, and the leak error does not name it: %v", l.ID, leak)
	}
	if last.IsZero() {
		return
	}
	time.Sleep(time.Until(last) + time.Second)
	for _, info := range w.p.Live() { // what is told is when the lease ends it; how long that takes is the platform's affair
		assert.Equal(w.t, sandbox.StateEnding, info.State, "runs on after the time that the leak error told")
	}
}
