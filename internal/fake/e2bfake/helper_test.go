package e2bfake_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server on a network in memory, and a client of its.
type world struct {
	t   *testing.T
	s   *e2bfake.Server
	net *memnet.Network
	c   *http.Client
}

// bubble runs f in a bubble, as a subtest.
func bubble(t *testing.T, name string, o e2bfake.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			t.Helper()
			n := memnet.New()
			w := &world{t, e2bfake.New(o), n, n.Client()}
			stop, err := n.Serve("*.e2b.test:80", w.s)
			require.NoError(t, err)
			defer stop()
			defer n.Close()
			defer w.s.Close()
			f(t, w)
		})
	})
}

// reply is an answer, or why there is none.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// json returns a field of the answer, by its path.
func (r reply) json(path ...string) any {
	var v any
	_ = json.Unmarshal(r.body, &v)
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

func (r reply) rows() []map[string]any {
	var rows []map[string]any
	_ = json.Unmarshal(r.body, &rows)
	return rows
}

func (r reply) ids() []string {
	ids := []string{}
	for _, row := range r.rows() {
		ids = append(ids, row["sandboxID"].(string))
	}
	return ids
}

func send(c *http.Client, r *http.Request) reply {
	resp, err := c.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, b, err}
}

// call makes a request of the control plane. body is JSON, or "".
func (w *world) call(method, path, body string) reply {
	return w.callAs(w.t.Context(), e2bfake.DefaultKey, method, path, body)
}

func (w *world) callAs(ctx context.Context, key, method, path, body string) reply {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://api.e2b.test"+path, strings.NewReader(body))
	require.NoError(w.t, err)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("X-API-Key", key)
	}
	return send(w.c, r)
}

// create makes a sandbox and returns its id and token.
func (w *world) create(body string) (id, token string) {
	w.t.Helper()
	r := w.call("POST", "/v2/sandboxes", body)
	require.Equal(w.t, 201, r.status, "%s", r.body)
	token, _ = r.json("envdAccessToken").(string)
	return r.json("sandboxID").(string), token
}

// left is how long the service says that a sandbox has.
func (w *world) left(id string) time.Duration {
	w.t.Helper()
	r := w.call("GET", "/sandboxes/"+id, "")
	require.Equal(w.t, 200, r.status, "%s", r.body)
	end, err := time.Parse(time.RFC3339, r.json("endAt").(string))
	require.NoError(w.t, err)
	return time.Until(end)
}

// envd makes a request of a sandbox's daemon.
func (w *world) envd(id, token, method, path, kind string, body io.Reader, set ...func(*http.Request)) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://sandbox.e2b.test"+path, body)
	require.NoError(w.t, err)
	r.Header.Set("E2b-Sandbox-Id", id)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	r.Header.Set("X-Access-Token", token)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	for _, f := range set {
		f(r)
	}
	return r
}

func header(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }

func (w *world) rpc(id, token, method, body string, set ...func(*http.Request)) reply {
	w.t.Helper()
	return send(w.c, w.envd(id, token, "POST", method, "application/json", strings.NewReader(body), set...))
}

func envelope(body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}

// stream is what comes of a call that goes on.
type stream struct {
	t    *testing.T
	resp *http.Response
}

func (w *world) open(id, token, method, body string, set ...func(*http.Request)) *stream {
	w.t.Helper()
	r := w.envd(id, token, "POST", method, "application/connect+json", bytes.NewReader(envelope(body)), set...)
	resp, err := w.c.Do(r)
	require.NoError(w.t, err)
	require.Equal(w.t, 200, resp.StatusCode)
	assert.Equal(w.t, "application/connect+json", resp.Header.Get("Content-Type"))
	return &stream{w.t, resp}
}

// next returns the next message, its flags, and whether there was one.
func (s *stream) next() (flags byte, message string, err error) {
	var head [5]byte
	if _, err := io.ReadFull(s.resp.Body, head[:]); err != nil {
		return 0, "", err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err = io.ReadFull(s.resp.Body, b)
	return head[0], string(b), err
}

// rest returns all messages to the end, the last one with "end " before it, or "broken" where there is none.
func (s *stream) rest() []string {
	defer s.resp.Body.Close()
	var all []string
	for {
		flags, m, err := s.next()
		switch {
		case err == io.EOF && len(all) > 0 && strings.HasPrefix(all[len(all)-1], "end "):
			return all
		case err != nil:
			return append(all, "broken")
		case flags == 2:
			m = "end " + m
		}
		all = append(all, m)
	}
}

func (s *stream) close() { s.resp.Body.Close() }

// sh is the body of a Start as the official SDK sends it.
func sh(script string) string {
	b, _ := json.Marshal(map[string]any{
		"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-l", "-c", script}}, "stdin": false,
	})
	return string(b)
}

const start = "/process.Process/Start"
