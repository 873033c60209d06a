package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// rights are those that the package asks for, and no more.
func rights() []kubecluster.Rule {
	return []kubecluster.Rule{
		kubecluster.May("batch", "jobs", "create", "get", "list", "patch", "delete"),
		kubecluster.May("", "pods", "get", "list", "delete"),
		kubecluster.May("", "pods/exec", "get", "create"),
		kubecluster.May("coordination.k8s.io", "leases", "create", "get", "patch", "delete"),
	}
}

// A world is a namespace of a real cluster, and an adapter for it whose requests pass by where faults can be made.
type world struct {
	c     *kubecluster.Cluster
	ns    string
	token string
	way   *way
	p     *kubernetes.Provider
}

// onPlain returns a world on a cluster without a node, whose pods are played by a puppet.
func onPlain(t *testing.T, change ...func(*kubernetes.Config)) *world {
	t.Helper()
	c, err := plain()
	if err != nil {
		kubecluster.Skip(t, err)
	}
	return newWorld(t, c, change...)
}

// onNode returns a world on a cluster whose pods really run.
func onNode(t *testing.T, change ...func(*kubernetes.Config)) *world {
	t.Helper()
	c, err := whole()
	if err != nil {
		kubecluster.Skip(t, err)
	}
	return newWorld(t, c, change...)
}

// onFrail returns a world on a cluster with a node, of which the test may break any part: no other test is on it.
func onFrail(t *testing.T, change ...func(*kubernetes.Config)) *world {
	t.Helper()
	c, err := frail()
	if err != nil {
		kubecluster.Skip(t, err)
	}
	frailMu.Lock()
	t.Cleanup(frailMu.Unlock)
	return newWorld(t, c, change...)
}

func newWorld(t *testing.T, c *kubecluster.Cluster, change ...func(*kubernetes.Config)) *world {
	t.Helper()
	w := &world{c: c, ns: c.Namespace(t)}
	w.token = c.User(t, w.ns, rights()...)
	w.p, w.way = w.provider(t, change...)
	return w
}

// provider returns another adapter for the same namespace, with a way of its own.
func (w *world) provider(t *testing.T, change ...func(*kubernetes.Config)) (*kubernetes.Provider, *way) {
	t.Helper()
	way := newWay(w.c)
	t.Cleanup(way.close)
	cfg := kubernetes.Config{
		BaseURL: w.c.URL(), Namespace: w.ns, Tokens: tokens(w.token), Image: kubecluster.Image, HTTP: &http.Client{Transport: way},
		Name: "kube/" + w.ns,
	}
	for _, f := range change {
		f(&cfg)
	}
	p, err := kubernetes.New(cfg)
	require.NoError(t, err)
	return p, way
}

// A way is where requests to the API server pass by.
type way struct {
	requests, streams     *http.Transport
	sent, writes, tooMany atomic.Int64

	mu    sync.Mutex
	turns []*turn
	conns map[net.Conn]struct{}
}

// A turn is what happens to requests that match.
type turn struct {
	left  int // how often; negative: until it is healed
	match func(*http.Request) bool
	act   func(r *http.Request, on func(*http.Request) (*http.Response, error)) (*http.Response, error)
}

func newWay(c *kubecluster.Cluster) *way {
	ca := x509.NewCertPool()
	ca.AppendCertsFromPEM(c.CA())
	w := &way{conns: map[net.Conn]struct{}{}}
	make := func() *http.Transport {
		return &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: ca, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 64,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				if err == nil {
					w.mu.Lock()
					w.conns[conn] = struct{}{}
					w.mu.Unlock()
				}
				return conn, err
			},
		}
	}
	w.requests, w.streams = make(), make()
	w.requests.ForceAttemptHTTP2 = true
	return w
}

func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	w.sent.Add(1)
	if r.Method != http.MethodGet {
		w.writes.Add(1)
	}
	on := w.requests.RoundTrip
	if r.Header.Get("Upgrade") != "" {
		on = w.streams.RoundTrip
	}
	w.mu.Lock()
	var chosen *turn
	for _, t := range w.turns {
		if t.left != 0 && t.match(r) {
			chosen = t
			t.left--
			break
		}
	}
	w.mu.Unlock()
	if chosen == nil {
		res, err := on(r)
		if err == nil && res.StatusCode == http.StatusTooManyRequests {
			w.tooMany.Add(1)
		}
		return res, err
	}
	return chosen.act(r, on)
}

// on has act happen to the next n requests that match, or all if n is negative, until it is healed.
func (w *way) on(n int, match func(*http.Request) bool, act func(*http.Request, func(*http.Request) (*http.Response, error)) (*http.Response, error)) (heal func()) {
	t := &turn{n, match, act}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns = append(w.turns, t)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		t.left = 0
	}
}

// cut breaks all connections that there are.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

func (w *way) close() {
	w.requests.CloseIdleConnections()
	w.streams.CloseIdleConnections()
	w.cut()
}

// Matchers.

func jobs(method string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.Method == method && strings.Contains(r.URL.Path, "/jobs") }
}

func method(method string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.Method == method }
}

func oneJob(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/jobs/")
}

func lists(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Has("limit")
}

// Acts.

type onward = func(*http.Request) (*http.Response, error)

func response(r *http.Request, status int, body string, header http.Header) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: r,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func fails(status int, reason string, header http.Header) func(*http.Request, onward) (*http.Response, error) {
	return func(r *http.Request, _ onward) (*http.Response, error) {
		return response(r, status, fmt.Sprintf(`{"kind":"Status","status":"Failure","reason":%q,"message":"a test's words","code":%d}`, reason, status), header.Clone()), nil
	}
}

// loses has the request done, and its answer lost.
func loses(r *http.Request, on onward) (*http.Response, error) {
	res, err := on(r)
	if err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// hangs never answers; before, it has the request done if it is told so.
func hangs(after bool) func(*http.Request, onward) (*http.Response, error) {
	return func(r *http.Request, on onward) (*http.Response, error) {
		if after {
			if _, err := loses(r, on); !errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, err
			}
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
}

// pretends says yes and does nothing.
func pretends(r *http.Request, _ onward) (*http.Response, error) {
	return response(r, 200, `{"kind":"Status","status":"Success"}`, nil), nil
}

// rewrites changes the body, which is in JSON.
func rewrites(change func(body map[string]any)) func(*http.Request, onward) (*http.Response, error) {
	return func(r *http.Request, on onward) (*http.Response, error) {
		b, err := io.ReadAll(r.Body)
		var body map[string]any
		if err == nil {
			err = json.Unmarshal(b, &body)
		}
		if err != nil {
			return nil, err
		}
		change(body)
		b, err = json.Marshal(body)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		if err != nil {
			return nil, err
		}
		return on(r)
	}
}

// asks changes the query.
func asks(change func(q url.Values)) func(*http.Request, onward) (*http.Response, error) {
	return func(r *http.Request, on onward) (*http.Response, error) {
		q := r.URL.Query()
		change(q)
		r = r.Clone(r.Context())
		r.URL.RawQuery = q.Encode()
		return on(r)
	}
}

// loops gives the first page again and again.
func loops(r *http.Request, on onward) (*http.Response, error) {
	res, err := asks(func(q url.Values) {
		q.Set("limit", "1")
		q.Del("continue")
	})(r, on)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	var body map[string]any
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return nil, err
	}
	body["metadata"].(map[string]any)["continue"] = "again"
	b, err := json.Marshal(body)
	return response(r, res.StatusCode, string(b), res.Header), err
}

// A real is a Job or pod as the API server shows it to an admin.
type real struct {
	Metadata struct {
		Name, UID, ResourceVersion string
		Labels, Annotations        map[string]string
		DeletionTimestamp          *time.Time
		DeletionGracePeriodSeconds int64
		CreationTimestamp          time.Time
	}
	Spec struct {
		ActiveDeadlineSeconds         *int64
		TerminationGracePeriodSeconds int64
		Suspend                       bool
		Template                      struct {
			Spec struct {
				Containers []struct {
					Resources struct{ Limits map[string]string }
				}
			}
		}
	}
	Status struct {
		StartTime  *time.Time
		Phase      string
		Conditions []struct{ Type, Status, Reason string }
	}
}

// reals returns all Jobs, or pods, of the namespace.
func (w *world) reals(t testing.TB, kind string) []real {
	t.Helper()
	path := "/apis/batch/v1/namespaces/" + w.ns + "/jobs"
	if kind == "pods" {
		path = "/api/v1/namespaces/" + w.ns + "/pods"
	}
	var list struct{ Items []real }
	require.NoError(t, w.c.Do(context.Background(), "GET", path, nil, &list))
	return list.Items
}

// truth returns the Job of an id, as it is.
func (w *world) truth(t testing.TB, id string) (real, bool) {
	t.Helper()
	for _, j := range w.reals(t, "jobs") {
		if j.Metadata.Name+"/"+j.Metadata.UID == id {
			return j, true
		}
	}
	return real{}, false
}

// judge says what there is of a fleet, by the API server's own list.
func (w *world) judge(t testing.TB, fleet string) (infos []sandbox.Info) {
	t.Helper()
	now := time.Now()
	left := w.reals(t, "pods")
	for _, j := range w.reals(t, "jobs") {
		info := sandbox.Info{ID: j.Metadata.Name + "/" + j.Metadata.UID, AsOf: now, State: sandbox.StateStarting}
		info.Mark, _ = sandbox.ParseMark(j.Metadata.Annotations["sandglass"])
		rest := left[:0:0]
		for _, p := range left {
			if p.Metadata.Labels["batch.kubernetes.io/controller-uid"] != j.Metadata.UID {
				rest = append(rest, p)
				continue
			}
			if p.Status.Phase == "Running" && info.State == sandbox.StateStarting {
				info.State = sandbox.StateRunning
			}
			if p.Metadata.DeletionTimestamp != nil || p.Status.Phase == "Failed" || p.Status.Phase == "Succeeded" {
				info.State = sandbox.StateEnding
			}
		}
		pods := len(left) - len(rest)
		left = rest
		for _, c := range j.Status.Conditions {
			if c.Status == "True" && c.Type != "Suspended" {
				info.State = sandbox.StateEnding
			}
		}
		switch {
		case j.Metadata.DeletionTimestamp != nil:
			info.State = sandbox.StateEnding
		case j.Spec.Suspend && pods == 0:
			info.State = sandbox.StateDormant
		}
		if j.Status.StartTime != nil && j.Spec.ActiveDeadlineSeconds != nil {
			info.Deadline = j.Status.StartTime.Add(time.Duration(*j.Spec.ActiveDeadlineSeconds) * time.Second)
		}
		if info.Mark.Fleet == fleet || info.Mark.Fleet == "" {
			infos = append(infos, info)
		}
	}
	for _, p := range left {
		if p.Metadata.Labels["batch.kubernetes.io/controller-uid"] == "" {
			continue // a test's own
		}
		info := sandbox.Info{
			ID: p.Metadata.Labels["job-name"] + "/" + p.Metadata.Labels["batch.kubernetes.io/controller-uid"], AsOf: now, State: sandbox.StateFailed,
		}
		if info.Mark, _ = sandbox.ParseMark(p.Metadata.Annotations["sandglass"]); info.Mark.Fleet == fleet || info.Mark.Fleet == "" {
			infos = append(infos, info)
		}
	}
	return infos
}

// patch has an admin change a Job.
func (w *world) patch(t testing.TB, id string, body any) {
	t.Helper()
	name, _, _ := strings.Cut(id, "/")
	require.NoError(t, w.c.Do(context.Background(), "PATCH", "/apis/batch/v1/namespaces/"+w.ns+"/jobs/"+name, body, nil))
}

// order is one for a sandbox of a small kind.
func order(window time.Duration) sandbox.CreateRequest {
	return sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: "tests", Owner: "owner", Nonce: nonce(), Created: time.Now().UTC().Truncate(time.Second), Lifetime: time.Hour,
		},
		Spec:   small(),
		Window: window,
	}
}

// small reserves next to nothing, so that many fit on a node.
func small() sandbox.Spec {
	return sandbox.Spec{Native: &kubernetes.Options{PullPolicy: "Never", ReserveCPU: 0.002, ReserveMemory: 4 << 20}}
}

func nonce() string { return strings.ToLower(rand.Text())[:16] }

// make creates a sandbox and waits until it runs.
func (w *world) make(t testing.TB, req sandbox.CreateRequest) sandbox.Info {
	t.Helper()
	info, err := w.p.Create(context.Background(), req)
	require.NoError(t, err)
	return w.await(t, info.ID, sandbox.StateRunning)
}

// await looks until a sandbox has a state.
func (w *world) await(t testing.TB, id string, states ...sandbox.State) (info sandbox.Info) {
	t.Helper()
	var err error
	eventually(t, 2*time.Minute, func() bool {
		info, err = w.p.Get(context.Background(), id)
		if errors.Is(err, sandbox.ErrNotFound) {
			info.State = sandbox.StateGone
		} else if err != nil {
			return false
		}
		for _, s := range states {
			if info.State == s {
				return true
			}
		}
		return false
	}, func() string {
		return fmt.Sprintf("%s is %v (%s), error %v, want %v", id, info.State, info.Detail, err, states)
	})
	return info
}

// eventually asks until ok says yes.
func eventually(t testing.TB, limit time.Duration, ok func() bool, why func() string) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, why())
		}
	}
}
