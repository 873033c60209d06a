package modal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/modal"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A world is a service, a network and the provider under test. It is made inside of a bubble.
type world struct {
	t    testing.TB
	net  *memnet.Network
	fake *modalfake.Server
	cfg  modal.Config
	p    *modal.Provider
}

// A setting changes a world before it begins.
type setting func(*modalfake.Options, *modal.Config)

func newWorld(t testing.TB, settings ...setting) *world {
	t.Helper()
	w := &world{t: t, net: memnet.New()}
	address := newAddress(w.net)
	var o modalfake.Options
	w.cfg = modal.Config{
		TokenID: modalfake.DefaultTokenID, TokenSecret: modalfake.DefaultTokenSecret, ServerURL: "http://" + address,
	}
	for _, s := range settings {
		s(&o, &w.cfg)
	}
	w.fake = modalfake.New(o)
	w.fake.HandleExec(w.kill)
	l, err := w.net.Listen(address)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- w.fake.Serve(l) }()
	t.Cleanup(func() { // after the providers
		w.fake.Close()
		w.net.Close()
		networks.Delete(address)
		assert.NoError(t, <-served)
	})
	w.p = w.another()
	return w
}

// another is one more provider for the same account, as another process has it.
func (w *world) another() *modal.Provider {
	w.t.Helper()
	p, err := modal.New(w.cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		time.Sleep(40 * time.Second) // the killers of commands that were left behind have ended
		p.Close()
	})
	return p
}

// slow makes everything take its time.
func slow(o *modalfake.Options, _ *modal.Config) {
	o.Behaviour.StartTime, o.Behaviour.EndTime, o.Behaviour.DeleteTime = time.Second, 3*time.Second, 3*time.Second
}

// kill does what kill.sh does on a real machine, where it has a process table to look at.
func (w *world) kill(_ context.Context, c modalfake.Exec) (int, bool) {
	if len(c.Args) < 5 || c.Args[3] != "sandglass-kill" {
		return 0, false
	}
	name, value, _ := strings.Cut(c.Args[4], "=")
	w.fake.KillProcesses(c.Sandbox, func(p modalfake.Process) bool { return p.Env[name] == value })
	fmt.Fprintln(c.Stdout, "done")
	return 0, true
}

var marks atomic.Int64

// mark returns a mark that no other has.
func mark(fleet string) sandbox.Mark {
	nonce := []byte("aaaaaaaaaaaaaaaa")
	for i, n := len(nonce)-1, marks.Add(1); n > 0; i, n = i-1, n/26 {
		nonce[i] = byte('a' + n%26)
	}
	return sandbox.Mark{Fleet: fleet, Owner: "test", Nonce: string(nonce), Created: time.Unix(1_700_000_000, 0).UTC(), Lifetime: time.Hour}
}

func order(window time.Duration) sandbox.CreateRequest {
	return sandbox.CreateRequest{Mark: mark("fleet"), Window: window}
}

// make makes a sandbox, which runs.
func (w *world) make(window time.Duration) sandbox.Info { return w.makeOf(order(window)) }

func (w *world) makeOf(req sandbox.CreateRequest) sandbox.Info {
	w.t.Helper()
	info, err := w.p.Create(context.Background(), req)
	require.NoError(w.t, err)
	require.Equal(w.t, sandbox.StateRunning, info.State, "%+v", info)
	return info
}

// list returns what the adapter lists.
func (w *world) list(f sandbox.Filter) ([]sandbox.Info, error) {
	var all []sandbox.Info
	for info, err := range w.p.List(context.Background(), f) {
		if err != nil {
			return all, err
		}
		all = append(all, info)
	}
	return all, nil
}

// truth is what the service knows of a sandbox, be it gone.
func (w *world) truth(id string) modalfake.Truth {
	w.t.Helper()
	t, ok := w.fake.Lookup(id)
	require.True(w.t, ok)
	return t
}

// runs reports whether the service says that a sandbox has not ended.
func (w *world) runs(id string) bool { return w.truth(id).Result == nil }

func apiError(t testing.TB, err error) *sandbox.APIError {
	t.Helper()
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok, "%v", err)
	return e
}
