package daytona_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Time and sockets are real here, with TLS and HTTP/2, over which no WebSocket goes.
func TestItWorksOverTLSAndHTTP2(t *testing.T) {
	var fake *daytonafake.Server
	var versions [3]atomic.Bool
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		versions[r.ProtoMajor].Store(true)
		fake.ServeHTTP(w, r)
	}))
	proxy := "https://" + server.Listener.Addr().String() + "/toolbox"
	fake = daytonafake.New(daytonafake.Options{Key: key, Prompt: true, ProxyURL: proxy})
	server.EnableHTTP2 = true
	server.StartTLS()
	client := server.Client()
	p, err := daytona.New(daytona.Config{APIKey: key, BaseURL: server.URL + "/api", HTTP: client})
	require.NoError(t, err)
	defer func() {
		client.CloseIdleConnections()
		fake.Close()
		server.Close()
	}()

	info, err := p.Create(t.Context(), request(10*time.Minute))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		info, err = p.Get(t.Context(), info.ID)
		return err == nil && info.State == sandbox.StateRunning
	}, 20*time.Second, 20*time.Millisecond)
	sb := p.Open(info)
	data := bytes.Repeat([]byte("0123456789\x00\xff"), 20_000)
	require.NoError(t, sb.Upload(t.Context(), "/tmp/a b", bytes.NewReader(data)))
	var out bytes.Buffer
	require.NoError(t, sb.Download(t.Context(), "/tmp/a b", &out))
	assert.True(t, bytes.Equal(data, out.Bytes()))
	res, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sh", "-c", `cat "/tmp/a b"; echo err >&2; exit 4`}})
	require.NoError(t, err)
	assert.Equal(t, 4, res.ExitCode)
	assert.True(t, bytes.Equal(data, res.Stdout))
	assert.Equal(t, "err\n", string(res.Stderr))
	require.NoError(t, p.Delete(t.Context(), info.ID))
	// Exec ends a command's session behind its caller, and tries that again for a while if nobody answers.
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(fake.Requests(), func(r daytonafake.Request) bool { return r.Operation == "DeleteSession" && r.Status != 0 })
	}, 20*time.Second, 20*time.Millisecond)
	assert.True(t, versions[1].Load() && versions[2].Load())
}
