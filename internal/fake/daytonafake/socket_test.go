package daytonafake_test

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
)

func TestAWholeLifeOverARealSocketLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := daytonafake.New(daytonafake.Options{Key: key, Prompt: true})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: s}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	base := "http://" + listener.Addr().String()
	w := &world{T: t, s: s, api: &http.Client{Transport: &http.Transport{}}, key: key}

	id := w.do("POST", base+"/api/sandbox", object{"ttlMinutes": 5}).ok()["id"].(string)
	var got object
	require.Eventually(t, func() bool {
		got = w.do("GET", base+"/api/sandbox/"+id, nil).ok()
		return got["state"] == "started"
	}, 10*time.Second, 10*time.Millisecond)
	assert.Equal(t, base+"/toolbox", got["toolboxProxyUrl"], "an address that the client can reach")
	run := w.do("POST", base+"/toolbox/"+id+"/process/execute", object{"command": "echo hi"}).ok()
	assert.Equal(t, "hi\n", run["result"])
	w.do("DELETE", base+"/api/sandbox/"+id, nil).ok()
	require.Eventually(t, func() bool {
		return w.do("GET", base+"/api/sandbox/"+id, nil).status == http.StatusNotFound
	}, 10*time.Second, 10*time.Millisecond)

	w.api.CloseIdleConnections()
	require.NoError(t, server.Close())
	assert.ErrorIs(t, <-served, http.ErrServerClosed)
	s.Close()
}

func TestAServerThatIsClosedTakesNoCommands(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id, session := w.open(nil)
		w.s.Close()
		_, err := w.try("POST", "/toolbox/"+id+"/process/execute", object{"command": "sleep 5"})
		assert.Error(w, err)
		w.do("POST", session+"/exec", object{"command": "sleep 5", "runAsync": true}).refused(400)
	})
}

func FuzzNoRequestBreaksTheServer(f *testing.F) {
	for _, seed := range []struct{ method, path, body string }{
		{"POST", "/api/sandbox", `{"name":"n","labels":{"a":"b"},"ttlMinutes":5}`},
		{"POST", "/api/sandbox", `{"buildInfo":{"dockerfileContent":"FROM"}}`},
		{"POST", "/api/sandbox", `null`},
		{"GET", "/api/sandbox?limit=1&cursor=eyJrIjoiIn0=", ""},
		{"GET", "/api/sandbox?labels=%7B%7D&sort=name&createdAtAfter=2024-01-01T00:00:00Z", ""},
		{"GET", "/api/sandbox/paginated?page=99999999999", ""},
		{"POST", "/api/sandbox/5a9d1a55-0000-4000-8000-000000000001/ttl/9223372036854775807", ""},
		{"POST", "/api/sandbox/5a9d1a55-0000-4000-8000-000000000001/autostop/153722868", ""},
		{"DELETE", "/api/sandbox/n", ""},
		{"GET", "/toolbox/5a9d1a55-0000-4000-8000-000000000001/files?path=/", ""},
		{"POST", "/toolbox/5a9d1a55-0000-4000-8000-000000000001/process/session", `{"sessionId":"s"}`},
		{"GET", "//", ""},
	} {
		f.Add(seed.method, seed.path, seed.body)
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if strings.Contains(path, "exec") || strings.Contains(path, "code-run") {
			t.Skip("what runs is the shell's affair")
		}
		r, err := http.NewRequest(method, "http://daytona.test", bytes.NewReader([]byte(body)))
		if err != nil {
			t.Skip("no request")
		}
		if r.URL, err = r.URL.Parse(path); err != nil {
			t.Skip("no URL")
		}
		r.Header.Set("Authorization", "Bearer "+key)
		s := daytonafake.New(daytonafake.Options{Prompt: true})
		defer s.Close()
		first := httptest.NewRequest("POST", "/api/sandbox", strings.NewReader(`{"name":"first"}`))
		first.Header = r.Header
		s.Service().Behave(immediate)
		s.ServeHTTP(httptest.NewRecorder(), first)
		s.ServeHTTP(httptest.NewRecorder(), r) // a panic fails the test
		s.Advance(time.Hour)
	})
}
