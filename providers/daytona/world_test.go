package daytona_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A world is one service on a network in memory, and an adapter for it. It lives in a bubble.
type world struct {
	*daytonafake.Server
	net *memnet.Network
	p   *daytona.Provider
}

func newWorld(t testing.TB, change ...func(*daytona.Config)) *world {
	t.Helper()
	w := &world{Server: daytonafake.New(daytonafake.Options{Key: key, ForeignKey: foreign}), net: memnet.New()}
	stop, err := w.net.Serve("daytona.test:80", w.Server)
	require.NoError(t, err)
	w.p = w.provider(t, change...)
	t.Cleanup(func() {
		time.Sleep(killTime) // what still ends commands in the background is done by then
		w.Server.Close()
		w.net.Close()
		stop()
	})
	return w
}

const killTime = 31 * time.Second

const foreign = "dtn_ffffffffffffffffffffffffffffffff"

// provider is another adapter for the same service.
func (w *world) provider(t testing.TB, change ...func(*daytona.Config)) *daytona.Provider {
	t.Helper()
	client := w.net.Client()
	cfg := daytona.Config{APIKey: key, BaseURL: "http://daytona.test/api", HTTP: client}
	for _, f := range change {
		f(&cfg)
	}
	p, err := daytona.New(cfg)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return p
}

func allowIdle(c *daytona.Config) { c.AllowIdle = true }

// worlds finds the world of an adapter.
type worlds struct{ m sync.Map }

func (ws *worlds) of(p sandbox.Provider) *world {
	d, _ := sandbox.As[*daytona.Provider](p)
	w, _ := ws.m.Load(d)
	return w.(*world)
}

func (ws *worlds) add(w *world) *world {
	ws.m.Store(w.p, w)
	return w
}

// left is what the service has of sandboxes with a mark of ours, or with none, whatever its answers say.
func (w *world) left(fleet string) []sandbox.Info {
	var all []sandbox.Info
	for _, rec := range w.Service().All() {
		if rec.State == sandbox.StateGone {
			continue
		}
		mark, _ := sandbox.ParseMark(rec.Tags[sandbox.MarkKey])
		if mark.Fleet == fleet || mark == (sandbox.Mark{}) {
			all = append(all, sandbox.Info{
				ID: daytonafake.WireID(rec.ID), State: rec.State, Mark: mark, Deadline: rec.Deadline, AsOf: rec.AsOf,
			})
		}
	}
	return all
}

// status is an answer of the service's own with a status.
func status(code int) *sandbox.APIError {
	return &sandbox.APIError{Status: code, Message: "so it says"}
}

// manager runs scopes on the world.
func (w *world) manager(t testing.TB, change ...func(*sandbox.Config)) *sandbox.Manager {
	t.Helper()
	cfg := sandbox.Config{Fleet: fleet, Owner: "test"}
	for _, f := range change {
		f(&cfg)
	}
	m, err := sandbox.NewManager(w.p, cfg)
	require.NoError(t, err)
	return m
}

// make makes a running sandbox.
func (w *world) make(t testing.TB, req sandbox.CreateRequest) sandbox.Info {
	t.Helper()
	info, err := w.p.Create(t.Context(), req)
	require.NoError(t, err)
	return w.running(t, info.ID)
}

func (w *world) running(t testing.TB, id string) sandbox.Info {
	t.Helper()
	for range 600 {
		info, err := w.p.Get(t.Context(), id)
		require.NoError(t, err)
		if info.State == sandbox.StateRunning {
			return info
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s does not get to run", id)
	return sandbox.Info{}
}

// count returns how many requests of a method went to a path that has the part, from index on.
func (w *world) count(from int, method, part string) int {
	n := 0
	for _, r := range w.Requests()[from:] {
		if r.Method == method && strings.Contains(r.Path, part) {
			n++
		}
	}
	return n
}

func (w *world) state(id string) sandbox.State {
	rec, ok := w.Service().Lookup(daytonafake.MachineID(id))
	if !ok {
		return sandbox.StateGone
	}
	return rec.State
}

// quiet is a function for a scope that does nothing.
func quiet(context.Context, sandbox.Sandbox) error { return nil }
