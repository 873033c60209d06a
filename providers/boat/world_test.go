package boat_test

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	key       = "boat_0123456789abcdef"
	colleague = "boat_ccccccccccccccc"
	foreign   = "boat_fffffffffffffff"
	fleet     = "boat-test"
	team      = "team_1"
	baseURL   = "http://boat.test/api/v1"
)

// A world is one service on a network in memory, and an adapter for it. It lives in a bubble.
type world struct {
	*boatfake.Server
	t   testing.TB
	net *memnet.Network
	p   *boat.Provider
}

// A setting changes a world before it begins.
type setting func(*boatfake.Options, *boat.Config)

func newWorld(t testing.TB, settings ...setting) *world {
	t.Helper()
	o := boatfake.Options{
		Key: key, ColleagueKey: colleague, ForeignKey: foreign, Teams: []boatfake.Team{{ID: team, Name: "blue"}},
		NamedSnapshots: []string{"golden"}, Environments: []string{"ci"},
	}
	cfg := boat.Config{}
	for _, s := range settings {
		s(&o, &cfg)
	}
	w := &world{Server: boatfake.New(o), t: t, net: memnet.New()}
	stop, err := w.net.Serve("boat.test:80", w.Server)
	require.NoError(t, err)
	w.p = w.provider(cfg)
	t.Cleanup(func() {
		time.Sleep(killTime) // what still ends commands in the background is done by then
		w.Server.Close()
		w.net.Close()
		stop()
	})
	return w
}

const killTime = 31 * time.Second

// provider is another adapter for the same service.
func (w *world) provider(cfg boat.Config) *boat.Provider {
	w.t.Helper()
	client := w.net.Client()
	cfg.HTTP = client
	if cfg.APIKey == "" {
		cfg.APIKey = key
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = baseURL
	}
	p, err := boat.New(cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(client.CloseIdleConnections)
	return p
}

// worlds finds the world of an adapter.
type worlds struct{ m sync.Map }

func (ws *worlds) of(p sandbox.Provider) *world {
	b, _ := sandbox.As[*boat.Provider](p)
	w, _ := ws.m.Load(b)
	return w.(*world)
}

func (ws *worlds) add(w *world) *world {
	ws.m.Store(w.p, w)
	return w
}

// left is what the service has of sandboxes with a mark of the fleet, or with none, whatever its answers say.
func (w *world) left(fleet string) []sandbox.Info {
	var all []sandbox.Info
	for _, row := range w.All() {
		rec, ok := w.Service().Lookup(boatfake.MachineID(row.ID))
		if !ok || rec.State == sandbox.StateGone {
			continue
		}
		mark, _ := sandbox.ParseMark(row.Name)
		if mark.Fleet == fleet || mark == (sandbox.Mark{}) {
			all = append(all, sandbox.Info{ID: row.ID, State: rec.State, Mark: mark, Deadline: rec.Deadline, AsOf: rec.AsOf})
		}
	}
	return all
}

// manager runs scopes on the world.
func (w *world) manager(change ...func(*sandbox.Config)) *sandbox.Manager {
	w.t.Helper()
	cfg := sandbox.Config{Fleet: fleet, Owner: "test", Unmarked: true}
	for _, f := range change {
		f(&cfg)
	}
	m, err := sandbox.NewManager(w.p, cfg)
	require.NoError(w.t, err)
	return m
}

// make makes a running sandbox.
func (w *world) make(req sandbox.CreateRequest) sandbox.Info {
	w.t.Helper()
	info, err := w.p.Create(w.t.Context(), req)
	require.NoError(w.t, err)
	return w.running(info.ID)
}

func (w *world) running(id string) sandbox.Info {
	w.t.Helper()
	for range 600 {
		info, err := w.p.Get(w.t.Context(), id)
		require.NoError(w.t, err)
		if info.State == sandbox.StateRunning {
			return info
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("%s does not get to run", id)
	return sandbox.Info{}
}

func (w *world) state(id string) sandbox.State {
	rec, ok := w.Service().Lookup(boatfake.MachineID(id))
	if !ok {
		return sandbox.StateGone
	}
	return rec.State
}

// request is an order for the smallest sandbox.
func request(window time.Duration) sandbox.CreateRequest {
	return sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: fleet, Owner: "test", Nonce: newNonce(), Created: time.Now().UTC().Truncate(time.Second), Lifetime: time.Hour,
		},
		Window: window,
	}
}

func newNonce() string {
	var b [10]byte
	rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

func collect(ctx context.Context, p sandbox.Provider, f sandbox.Filter) (all []sandbox.Info, err error) {
	for info, err := range p.List(ctx, f) {
		if err != nil {
			return all, err
		}
		all = append(all, info)
	}
	return all, nil
}

func ids(infos []sandbox.Info) (all []string) {
	for _, i := range infos {
		all = append(all, i.ID)
	}
	return all
}

// status is an answer of the service's own with a status.
func status(code int) *sandbox.APIError {
	return &sandbox.APIError{Status: code, Message: "so it says"}
}

// inBubble runs a test on a world of its own.
func inBubble(t *testing.T, test func(t *testing.T, w *world), settings ...setting) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, settings...)) })
}

// quiet is a function for a scope that does nothing.
func quiet(context.Context, sandbox.Sandbox) error { return nil }

// count returns how many requests of a method went to a path with the part in it, from index on.
func (w *world) count(from int, method, part string) int {
	n := 0
	for _, r := range w.Requests()[from:] {
		if r.Method == method && strings.Contains(r.Path, part) {
			n++
		}
	}
	return n
}
