package boatfake_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Keys of the accounts, and the teams that two of them share.
const (
	key          = "boat_test"
	colleagueKey = "boat_colleague"
	foreignKey   = "boat_foreign"
	team         = "team_red"
)

// world is a service in a bubble and a client of it.
type world struct {
	*testing.T
	s   *boatfake.Server
	net *memnet.Network
	api *http.Client
	key string
}

// in runs f in a bubble, on a service with some quirks.
func in(t *testing.T, q boatfake.Quirks, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := boatfake.New(boatfake.Options{
			Key: key, ColleagueKey: colleagueKey, ForeignKey: foreignKey, Quirks: q, NamedSnapshots: []string{"golden"},
			Teams: []boatfake.Team{{ID: team, Name: "red"}, {ID: "team_a", Name: "twin"}, {ID: "team_b", Name: "twin"}},
		})
		w := &world{T: t, s: s, net: memnet.New(), key: key}
		transport := w.net.Transport()
		transport.DisableKeepAlives = true // net/http sends once more what breaks on a connection that was used before
		w.api = &http.Client{Transport: transport}
		stop, err := w.net.Serve("*:80", w.s)
		require.NoError(t, err)
		defer func() {
			w.net.Close()
			w.s.Close()
			stop()
			w.api.CloseIdleConnections()
		}()
		f(w)
	})
}

// as is the same service for who has another key.
func (w *world) as(key string) *world {
	other := *w
	other.key = key
	return &other
}

// reply is an answer that was read.
type reply struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// object is JSON.
type object = map[string]any

func (r reply) json() object {
	r.t.Helper()
	var o object
	require.NoErrorf(r.t, json.Unmarshal(r.body, &o), "body %q", r.body)
	return o
}

// ok returns a good answer, whose status must be as the page says.
func (r reply) ok(status int) object {
	r.t.Helper()
	require.Equalf(r.t, status, r.status, "%s", r.body)
	o := r.json()
	require.Equal(r.t, true, o["ok"])
	return o
}

// no returns the details of a bad answer.
func (r reply) no(status int, code string) object {
	r.t.Helper()
	require.Equalf(r.t, status, r.status, "%s", r.body)
	o := r.json()
	require.Equalf(r.t, code, o["code"], "%s", r.body)
	inner := o["error"].(object)
	require.Equal(r.t, []any{false, "sandbox.error", code, float64(status)}, []any{o["ok"], o["type"], inner["code"], inner["status"]})
	require.Regexp(r.t, `^req_[0-9a-f]{32}$`, o["requestId"])
	return inner["details"].(object)
}

// try sends a request; body is JSON, text, or nil.
func (w *world) try(method, url string, body any, headers ...string) (reply, error) {
	w.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		require.NoError(w, err)
		in = bytes.NewReader(text)
	}
	if !strings.HasPrefix(url, "http") {
		url = "http://boat.test/api/v1" + url
	}
	req, err := http.NewRequestWithContext(w.Context(), method, url, in)
	require.NoError(w, err)
	req.Header.Set("Content-Type", "application/json") // also without a body, as the SDK does
	if w.key != "" {
		req.Header.Set("Authorization", "Bearer "+w.key)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.api.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{w.T, res.StatusCode, res.Header, text}, err
}

func (w *world) do(method, url string, body any, headers ...string) reply {
	w.Helper()
	r, err := w.try(method, url, body, headers...)
	require.NoError(w, err)
	return r
}

// box is the sandbox in an answer.
func box(o object) object { return o["sandbox"].(object) }

// create makes a sandbox, and does not wait until it runs.
func (w *world) create(body any, headers ...string) (id string) {
	w.Helper()
	return box(w.do("POST", "/sandboxes", body, headers...).ok(202))["id"].(string)
}

// ready makes a sandbox and waits until it runs.
func (w *world) ready(body any, headers ...string) (id string) {
	w.Helper()
	id = w.create(body, headers...)
	time.Sleep(w.s.Service().Behaviour().StartTime)
	require.Equal(w, "ready", w.state(id))
	return id
}

// state is what a look says: the state, or the status.
func (w *world) state(id string) string {
	w.Helper()
	r := w.do("GET", "/sandboxes/"+id, nil)
	if r.status != http.StatusOK {
		return http.StatusText(r.status)
	}
	return box(r.json())["state"].(string)
}

func (w *world) delete(id string) reply {
	w.Helper()
	return w.do("DELETE", "/sandboxes/"+id, nil, "X-Ascii-Confirm-Delete", id)
}

// truth is the state by the state machine.
func (w *world) truth(id string) sandbox.State {
	rec, _ := w.s.Service().Lookup(boatfake.MachineID(id))
	return rec.State
}

// list returns the ids of all pages.
func (w *world) list(query string) []string {
	w.Helper()
	all, cursor := []string{}, ""
	for range 100 {
		page := w.do("GET", "/sandboxes?"+query+cursor, nil).ok(200)
		for _, item := range page["sandboxes"].([]any) {
			all = append(all, item.(object)["id"].(string))
		}
		info := page["pageInfo"].(object)
		if info["hasMore"] == false {
			require.Nil(w, info["nextCursor"])
			return all
		}
		cursor = "&cursor=" + info["nextCursor"].(string)
	}
	w.Fatal("the list does not end")
	return nil
}

func (w *world) exec(id, command string) object {
	w.Helper()
	return w.do("POST", "/sandboxes/"+id+"/commands", object{"command": command}).ok(200)
}

// stream runs a command and returns the frames that came before the connection ended, and how it did.
func (w *world) stream(id, command string, timeout int) ([]object, error) {
	w.Helper()
	body := object{"command": command, "stream": true, "timeoutSeconds": timeout}
	r, err := w.try("POST", "/sandboxes/"+id+"/commands", body)
	require.Equal(w, 200, r.status)
	require.Equal(w, "application/x-ndjson", r.header.Get("Content-Type"))
	var frames []object
	for line := range strings.Lines(string(r.body)) {
		var f object
		require.NoErrorf(w, json.Unmarshal([]byte(line), &f), "%q", line)
		frames = append(frames, f)
	}
	return frames, err
}

func (w *world) behave(f func(b *fake.Behaviour)) { w.s.Service().Behave(f) }

// moment parses a time of an answer.
func moment(t *testing.T, o object, field string) time.Time {
	t.Helper()
	text, _ := o[field].(string)
	require.Regexpf(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`, text, "%s in %v", field, o)
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}
