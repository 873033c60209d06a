package sweep_test

import (
	"context"
	"iter"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

const fleet = "ci-agents"

// nonce returns the n-th nonce.
func nonce(n int) string {
	b := []byte("aaaaaaaaaaaaaaaa")
	for i := len(b) - 1; n > 0; i-- {
		b[i] = "abcdefghijklmnopqrstuvwxyz"[n%26]
		n /= 26
	}
	return string(b)
}

// A world is a service that does not act on its deadlines, so that what is left to the sweeper stays there.
type world struct {
	t *testing.T
	*sandboxtest.Provider
	n int

	// Hooks of the account that the sweeper is given, each may be nil. The last runs on every answer.
	onList   func()
	lists    int                                        // how often each list shows the same rows, beyond once
	onGet    func(ctx context.Context, id string) error // an error is the call's
	onDelete func(ctx context.Context, id string) error
	onAnswer func(*sandbox.Info)
}

// inWorld runs f in a bubble, with a service of all abilities that change has changed.
func inWorld(t *testing.T, change func(*sandbox.Capabilities), f func(w *world)) {
	t.Helper()
	// Timers of a bubble that fire on two processors at once crash the race detector: golang/go#78156.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		caps := sandboxtest.Everything()
		if change != nil {
			change(&caps)
		}
		w := &world{t: t, Provider: sandboxtest.New(caps)}
		w.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced, b.NoHardEnd = true, true })
		f(w)
	})
}

// An account is the world's service with the world's hooks.
type account struct {
	sandbox.Provider
	w *world
}

func (w *world) account() sandbox.Provider { return account{w.Provider, w} }

func (a account) Unwrap() sandbox.Provider { return a.Provider }

func (a account) answer(i sandbox.Info) sandbox.Info {
	if a.w.onAnswer != nil {
		a.w.onAnswer(&i)
	}
	return i
}

func (a account) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		if a.w.onList != nil {
			a.w.onList()
		}
		for range 1 + a.w.lists {
			for i, err := range a.Provider.List(ctx, f) {
				if !yield(a.answer(i), err) {
					return
				}
			}
		}
	}
}

func (a account) Get(ctx context.Context, id string) (sandbox.Info, error) {
	if a.w.onGet != nil {
		if err := a.w.onGet(ctx, id); err != nil {
			return sandbox.Info{}, err
		}
	}
	i, err := a.Provider.Get(ctx, id)
	return a.answer(i), err
}

func (a account) Delete(ctx context.Context, id string) error {
	if a.w.onDelete != nil {
		if err := a.w.onDelete(ctx, id); err != nil {
			return err
		}
	}
	return a.Provider.Delete(ctx, id)
}

// make makes n sandboxes with a lease of a minute and a lifetime of ten hours, each as the changes say.
func (w *world) make(n int, changes ...func(*sandbox.CreateRequest)) (ids []string) {
	w.t.Helper()
	for range n {
		w.n++
		req := sandbox.CreateRequest{
			Mark:   sandbox.Mark{Fleet: fleet, Owner: "host.1", Nonce: nonce(w.n), Created: time.Now(), Lifetime: 10 * time.Hour},
			Window: time.Minute,
		}
		for _, change := range changes {
			change(&req)
		}
		i, err := w.Create(context.Background(), req)
		require.NoError(w.t, err)
		ids = append(ids, i.ID)
	}
	return ids
}

func window(d time.Duration) func(*sandbox.CreateRequest) {
	return func(r *sandbox.CreateRequest) { r.Window = d }
}

func lifetime(d time.Duration) func(*sandbox.CreateRequest) {
	return func(r *sandbox.CreateRequest) { r.Mark.Lifetime = d }
}

func ofFleet(name string) func(*sandbox.CreateRequest) {
	return func(r *sandbox.CreateRequest) { r.Mark.Fleet = name }
}

func ofOwner(name string) func(*sandbox.CreateRequest) {
	return func(r *sandbox.CreateRequest) { r.Mark.Owner = name }
}

func tag(k, v string) func(*sandbox.CreateRequest) {
	return func(r *sandbox.CreateRequest) { r.Tags = map[string]string{k: v} }
}

func (w *world) pause(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		require.True(w.t, w.Pause(id))
	}
}

// sweeper returns a sweeper of the world's account.
func (w *world) sweeper(changes ...func(*sweep.Config)) *sweep.Sweeper {
	w.t.Helper()
	c := sweep.Config{
		Fleet: fleet, Providers: []sandbox.Provider{w.account()},
		Observers: []sandbox.Observer{func(context.Context, sandbox.Event) {}}, // or leaks go to the default log
	}
	for _, change := range changes {
		change(&c)
	}
	s, err := sweep.New(c)
	require.NoError(w.t, err)
	return s
}

// there returns those of ids that the service still has, by its own truth.
func (w *world) there(ids ...string) (left []string) {
	has := map[string]bool{}
	for _, i := range append(w.Live(), w.Residue()...) {
		has[i.ID] = true
	}
	for _, id := range ids {
		if has[id] {
			left = append(left, id)
		}
	}
	return left
}

// item returns what a report says of one sandbox.
func (w *world) item(r sweep.Report, id string) sweep.Item {
	w.t.Helper()
	for _, a := range r.Accounts {
		for _, i := range a.Items {
			if i.ID == id {
				return i
			}
		}
	}
	require.Fail(w.t, "not in the report", id)
	return sweep.Item{}
}

// writes returns the requests that change something.
func (w *world) writes() []sandboxtest.Call {
	return w.Calls(sandbox.OpCreate, sandbox.OpExtend, sandbox.OpDelete, sandbox.OpShorten, sandbox.OpExec, sandbox.OpUpload)
}

// A set of ids is safe for concurrent use.
type set struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (s *set) add(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	for _, id := range ids {
		s.ids[id] = true
	}
}

func (s *set) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[id]
}
