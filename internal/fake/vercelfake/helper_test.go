package vercelfake_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
)

// world is a fake in a bubble with a client of its own.
type world struct {
	t      *testing.T
	fake   *vercelfake.Server
	net    *memnet.Network
	client *http.Client
	token  string
	query  url.Values // with every request
}

// bubble has f try a fake.
func bubble(t *testing.T, o vercelfake.Options, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, fake: vercelfake.New(o), net: memnet.New(), token: vercelfake.DefaultToken}
		w.query = url.Values{"teamId": {"team_test"}, "projectId": {"prj_test"}, "project": {"prj_test"}}
		stop, err := w.net.Serve("*:80", w.fake)
		require.NoError(t, err)
		w.client = w.net.Client()
		defer stop()
		defer w.net.Close()
		defer w.fake.Close()
		defer w.client.CloseIdleConnections()
		f(w)
	})
}

// answer is what came back.
type answer struct {
	Status int
	Header http.Header
	Text   string

	Sandbox    vercelfake.Sandbox
	Session    vercelfake.Session
	Routes     []vercelfake.Route
	Resumed    *bool
	Sandboxes  []vercelfake.Sandbox
	Sessions   []vercelfake.Session
	Snapshot   *vercelfake.Snapshot
	Snapshots  []vercelfake.Snapshot
	Command    vercelfake.Command
	Commands   []vercelfake.Command
	Pagination vercelfake.Pagination
	Error      struct{ Code, Message string }
}

// request makes one; body is JSON, or any other value to be made JSON. query is "k=v&k=v".
func (w *world) request(ctx context.Context, method, path, query string, body any) *http.Request {
	w.t.Helper()
	var text []byte
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	case []byte:
		text = b
	default:
		var err error
		text, err = json.Marshal(b)
		require.NoError(w.t, err)
	}
	q, err := url.ParseQuery(query)
	require.NoError(w.t, err)
	for k, v := range w.query {
		if !q.Has(k) {
			q[k] = v
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://api.vercel.test"+path+"?"+q.Encode(), bytes.NewReader(text))
	require.NoError(w.t, err)
	r.Header.Set("Content-Type", "application/json")
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	return r
}

func (w *world) send(r *http.Request) answer {
	w.t.Helper()
	got, err := w.client.Do(r)
	require.NoError(w.t, err)
	return w.read(got)
}

func (w *world) read(got *http.Response) answer {
	w.t.Helper()
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(w.t, err)
	a := answer{Status: got.StatusCode, Header: got.Header, Text: string(text)}
	if strings.HasPrefix(got.Header.Get("Content-Type"), "application/json") {
		require.NoError(w.t, json.Unmarshal(text, &a), a.Text)
	}
	return a
}

// do makes a request and returns whatever the answer is.
func (w *world) do(method, path, query string, body any) answer {
	w.t.Helper()
	return w.send(w.request(context.Background(), method, path, query, body))
}

// ok makes a request that must succeed.
func (w *world) ok(method, path, query string, body any) answer {
	w.t.Helper()
	a := w.do(method, path, query, body)
	require.Equal(w.t, 200, a.Status, a.Text)
	return a
}

// refused makes a request that must fail so.
func (w *world) refused(status int, code, method, path, query string, body any) answer {
	w.t.Helper()
	a := w.do(method, path, query, body)
	assert.Equal(w.t, status, a.Status, a.Text)
	assert.Equal(w.t, code, a.Error.Code, a.Text)
	assert.NotEmpty(w.t, a.Error.Message)
	return a
}

type m = map[string]any

// create makes a sandbox of this name that keeps no files and has a minute, with more in the body.
func (w *world) create(name string, more m) answer {
	w.t.Helper()
	body := m{"projectId": "prj_test", "name": name, "timeout": 60_000, "persistent": false}
	for k, v := range more {
		body[k] = v
	}
	return w.ok("POST", "/v3/sandboxes", "", body)
}

func (w *world) get(name string) answer {
	w.t.Helper()
	return w.do("GET", "/v2/sandboxes/"+name, "", nil)
}

func (w *world) session(id string) answer {
	w.t.Helper()
	return w.do("GET", "/v2/sandboxes/sessions/"+id, "", nil)
}

// on is the path of something of a session.
func on(session, what string) string { return "/v2/sandboxes/sessions/" + session + "/" + what }

// run runs a command to its end and returns its output, by stream, and its last line.
func (w *world) run(session string, body m) (stdout, stderr string, last vercelfake.Command) {
	w.t.Helper()
	body["wait"], body["logs"] = true, true
	a := w.ok("POST", on(session, "cmd"), "", body)
	out := map[string]string{}
	for _, l := range lines(w.t, a.Text) {
		if l.Command != nil {
			last = *l.Command
		}
		if l.Stream != "" {
			var data string
			require.NoError(w.t, json.Unmarshal(l.Data, &data), a.Text)
			out[l.Stream] += data
		}
	}
	return out["stdout"], out["stderr"], last
}

// sh is the body of a command for the shell.
func sh(script string) m { return m{"command": "sh", "args": []string{"-c", script}} }

// line is one of a stream.
type line struct {
	Command *vercelfake.Command
	Stream  string
	Data    json.RawMessage
}

func lines(t *testing.T, text string) []line {
	t.Helper()
	var all []line
	for one := range strings.Lines(text) {
		var l line
		require.NoError(t, json.Unmarshal([]byte(one), &l), one)
		all = append(all, l)
	}
	return all
}

// archive packs files with a mode each.
func archive(t *testing.T, mode int64, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	tw := tar.NewWriter(z)
	for name, text := range files {
		require.NoError(t, tw.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), Typeflag: tar.TypeReg}))
		_, err := tw.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, tw.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

func (w *world) write(session string, mode int64, files map[string]string) answer {
	w.t.Helper()
	r := w.request(context.Background(), "POST", on(session, "fs/write"), "", archive(w.t, mode, files))
	r.Header.Set("Content-Type", "application/gzip")
	r.Header.Set("X-Cwd", "/")
	return w.send(r)
}

func since(start time.Time) time.Duration { return time.Since(start).Round(time.Millisecond) }

// sleep has time pass, and everything happen that is due by then.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
