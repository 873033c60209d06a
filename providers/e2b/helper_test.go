package e2b_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a service, a network and the provider under test. It is made inside of a bubble.
type world struct {
	t    testing.TB
	net  *memnet.Network
	fake *e2bfake.Server
	p    *e2b.Provider
	sent atomic.Int64 // requests that have left
}

// A setting changes a world before it begins.
type setting func(*e2bfake.Options, *e2b.Config)

func newWorld(t testing.TB, settings ...setting) *world {
	t.Helper()
	w := &world{t: t, net: memnet.New()}
	o := e2bfake.Options{}
	cfg := e2b.Config{
		APIKey: e2bfake.DefaultKey, APIURL: "http://api.e2b.test", SandboxURL: "http://sandbox.e2b.test", Dialect: e2b.DialectV2,
	}
	for _, s := range settings {
		s(&o, &cfg)
	}
	w.fake = e2bfake.New(o)
	stop, err := w.net.Serve("*.e2b.test:80", w.fake)
	require.NoError(t, err)
	transport := w.net.Transport()
	cfg.HTTP = &http.Client{Transport: counter{w, transport}}
	w.p, err = e2b.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		time.Sleep(20 * time.Second) // the killers of commands that were left behind have ended
		w.fake.Close()
		transport.CloseIdleConnections()
		w.net.Close()
		stop()
	})
	return w
}

type counter struct {
	w    *world
	next http.RoundTripper
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.w.sent.Add(1)
	return c.next.RoundTrip(r)
}

func (c counter) CloseIdleConnections() {
	if t, ok := c.next.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// ours returns the commands of which something runs, as the service knows it, killers left out.
func (w *world) ours(id string) []string {
	synctest.Wait() // a killer that is done has taken them out of the process table, and they may still be on their way out
	var all []string
	for _, p := range w.fake.Processes(id) {
		if p.Running && p.Env["SANDGLASS_EXEC"] != "" {
			all = append(all, fmt.Sprint(p.Args[3:]))
		}
	}
	return all
}

// mark returns a mark that no other has.
func mark(fleet string) sandbox.Mark {
	markCount.Lock()
	defer markCount.Unlock()
	markCount.n++
	nonce := []byte("aaaaaaaaaaaaaaaa")
	for i, n := len(nonce)-1, markCount.n; n > 0; i, n = i-1, n/26 {
		nonce[i] = byte('a' + n%26)
	}
	return sandbox.Mark{Fleet: fleet, Owner: "test", Nonce: string(nonce), Created: time.Unix(1_700_000_000, 0).UTC(), Lifetime: time.Hour}
}

var markCount struct {
	sync.Mutex
	n int
}

func order(window time.Duration) sandbox.CreateRequest {
	return sandbox.CreateRequest{Mark: mark("fleet"), Window: window}
}

// make makes a sandbox and looks at it.
func (w *world) make(window time.Duration) sandbox.Info {
	w.t.Helper()
	info, err := w.p.Create(context.Background(), order(window))
	require.NoError(w.t, err)
	info, err = w.p.Get(context.Background(), info.ID)
	require.NoError(w.t, err)
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

// alive returns what the service says may run or is kept, whatever the adapter thinks.
func (w *world) alive() []fake.Record {
	var left []fake.Record
	for _, r := range w.fake.Sandboxes() {
		if r.State != sandbox.StateGone {
			left = append(left, r)
		}
	}
	return left
}

// fault injects faults of the service itself.
func (w *world) fault(op sandbox.Op, f ...fake.Fault) { w.fake.Service().Fault(op, f...) }

// status is a failure with which the service answers.
func status(code int) *sandbox.APIError {
	return &sandbox.APIError{Status: code, Message: "as ordered"}
}

// requests returns "METHOD path" of what the service got, since the last call of ForgetRequests.
func (w *world) requests() []string {
	var all []string
	for _, r := range w.fake.Requests() {
		all = append(all, r.Method+" "+r.Path)
	}
	return all
}

func apiError(t testing.TB, err error) *sandbox.APIError {
	t.Helper()
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok, "%v", err)
	return e
}

// answers is a transport that answers every request in the same way.
func answers(status int, body string) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
		}, nil
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// oneRunning is what the service says of a sandbox.
const oneRunning = `{"sandboxID":"i1","state":"running","startedAt":"2026-01-01T00:00:00Z","endAt":"2026-01-01T00:03:00Z"}`

// with returns oneRunning with more fields.
func with(fields string) string { return strings.TrimSuffix(oneRunning, "}") + "," + fields + "}" }
