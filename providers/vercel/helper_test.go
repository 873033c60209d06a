package vercel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A world is a service, a network and the provider under test. It is made inside of a bubble.
type world struct {
	t    testing.TB
	net  *memnet.Network
	fake *vercelfake.Server
	http *http.Client // of somebody else
	p    *vercel.Provider
	sent atomic.Int64 // requests of the provider that have left
}

// A setting changes a world before it begins.
type setting func(*vercelfake.Options, *vercel.Config)

const base = "http://api.vercel.test/api"

func newWorld(t testing.TB, settings ...setting) *world {
	t.Helper()
	w := &world{t: t, net: memnet.New()}
	var o vercelfake.Options
	cfg := vercel.Config{
		Token: vercelfake.DefaultToken, Team: vercelfake.DefaultTeam().ID, Project: vercelfake.DefaultProject().ID, BaseURL: base,
	}
	for _, s := range settings {
		s(&o, &cfg)
	}
	w.fake = vercelfake.New(o)
	stop, err := w.net.Serve("*:80", w.fake)
	require.NoError(t, err)
	transport := w.net.Transport()
	w.http = &http.Client{Transport: transport}
	cfg.HTTP = &http.Client{Transport: counter{w, transport}}
	w.p, err = vercel.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		time.Sleep(40 * time.Second) // the killers of commands that were left behind have ended
		w.fake.Close()
		transport.CloseIdleConnections()
		w.net.Close()
		stop()
	})
	return w
}

// slow makes everything take its time.
func slow(o *vercelfake.Options, _ *vercel.Config) {
	o.Behaviour.StartTime, o.Behaviour.EndTime, o.Behaviour.DeleteTime = time.Second, 3*time.Second, 3*time.Second
	o.Quirks.CreateWait, o.Quirks.StopTime = -1, 3*time.Second
}

type counter struct {
	w    *world
	next http.RoundTripper
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.w.sent.Add(1)
	assert.NotContains(c.w.t, r.URL.RawQuery, "resume", "nothing is ever resumed")
	return c.next.RoundTrip(r)
}

// ours returns the commands of which something runs, as the service knows it, killers left out.
func (w *world) ours(session string) []string {
	synctest.Wait() // a killer that is done has taken them out of the process table, and they may still be on their way out
	var all []string
	for _, p := range w.fake.Processes(session) {
		if p.Running && p.Env["SANDGLASS_EXEC"] != "" {
			all = append(all, fmt.Sprint(p.Args[3:]))
		}
	}
	return all
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

// make makes a sandbox and waits until it runs.
func (w *world) make(window time.Duration) sandbox.Info {
	w.t.Helper()
	info, err := w.p.Create(context.Background(), order(window))
	require.NoError(w.t, err)
	for range 100 {
		info, err = w.p.Get(context.Background(), info.ID)
		require.NoError(w.t, err)
		if info.State == sandbox.StateRunning {
			return info
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Fail(w.t, "it does not get to run")
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

// parts takes an ID apart.
func parts(id string) (name, session string) {
	name, session, _ = strings.Cut(id, "/")
	return name, session
}

// truth is what the service knows of a sandbox, be it gone.
func (w *world) truth(id string) vercelfake.Truth {
	w.t.Helper()
	name, _ := parts(id)
	t, ok := w.fake.Lookup(name)
	require.True(w.t, ok)
	return t
}

// left is how much of a sandbox's lease is left, by the service's own clock; negative if it does not run.
func (w *world) left(id string) time.Duration {
	r := w.truth(id).Record
	if r.State != sandbox.StateRunning {
		return -1
	}
	return r.Deadline.Sub(r.AsOf)
}

// others asks the service for something, as somebody else with the same token.
func (w *world) others(method, path, body string) (status int, answer string) {
	w.t.Helper()
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	r, err := http.NewRequest(method, base+path+sep+"teamId="+vercelfake.DefaultTeam().ID, strings.NewReader(body))
	require.NoError(w.t, err)
	r.Header.Set("Authorization", "Bearer "+vercelfake.DefaultToken)
	resp, err := w.http.Do(r)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, string(b)
}

// resume does what an official SDK does by itself with a sandbox that has stopped.
func (w *world) resume(id string) {
	w.t.Helper()
	name, _ := parts(id)
	status, answer := w.others(http.MethodGet, "/v2/sandboxes/"+name+"?resume=true&projectId="+vercelfake.DefaultProject().ID, "")
	require.Equal(w.t, http.StatusOK, status, answer)
}

// stop does what somebody does who ends the session by hand.
func (w *world) stop(session string) {
	w.t.Helper()
	status, answer := w.others(http.MethodPost, "/v2/sandboxes/sessions/"+session+"/stop", "")
	require.Equal(w.t, http.StatusOK, status, answer)
}

// snapshot makes one, which ends the session, and returns its id.
func (w *world) snapshot(session string) string {
	w.t.Helper()
	before := map[string]bool{}
	for _, s := range w.fake.Snapshots() {
		before[s.ID] = true
	}
	status, answer := w.others(http.MethodPost, "/v2/sandboxes/sessions/"+session+"/snapshot", "{}")
	require.Equal(w.t, http.StatusOK, status, answer)
	for _, s := range w.fake.Snapshots() {
		if !before[s.ID] {
			return s.ID
		}
	}
	require.Fail(w.t, "no snapshot")
	return ""
}

// failure is an answer of the service of the given status.
func failure(code int) *sandbox.APIError {
	return &sandbox.APIError{Status: code, Message: "as ordered"}
}

// fault injects faults of the service itself.
func (w *world) fault(op sandbox.Op, f ...fake.Fault) { w.fake.Service().Fault(op, f...) }

// asked returns how often an operation was asked for since the last call.
func (w *world) asked() func(operation string) int {
	before := map[string]int{}
	for _, r := range w.fake.Requests() {
		before[r.Operation]++
	}
	return func(operation string) int { return w.fake.Count(operation) - before[operation] }
}

func apiError(t testing.TB, err error) *sandbox.APIError {
	t.Helper()
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok, "%v", err)
	return e
}

// A transport answers by itself, without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answers is a provider whose service gives these answers, one after another, and the last one ever after.
func answers(t testing.TB, all ...string) *vercel.Provider {
	t.Helper()
	n := 0
	p, err := vercel.New(vercel.Config{
		Token: "token-of-a-test", Team: "team_test", Project: "prj_test", BaseURL: base,
		HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			text := all[min(n, len(all)-1)]
			n++
			status, body, _ := strings.Cut(text, " ")
			var code int
			_, err := fmt.Sscan(status, &code)
			return &http.Response{
				StatusCode: code, Request: r, Body: io.NopCloser(strings.NewReader(body)),
				Header: http.Header{"Content-Type": {"application/json"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}},
			}, err
		})},
	})
	require.NoError(t, err)
	return p
}
