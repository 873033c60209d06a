package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "e2b_0123456789abcdef"

// A service is a transport that answers by itself, without a network.
type service func(*http.Request) (*http.Response, error)

func (s service) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

// says is an answer; header is in pairs.
func says(status int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func client(t testing.TB, s service, change ...func(*httpapi.Config)) *httpapi.Client {
	t.Helper()
	cfg := httpapi.Config{
		Provider: "acme", BaseURL: "https://api.acme.test/v1/", Header: http.Header{"X-Api-Key": {key}},
		HTTP: &http.Client{Transport: s},
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := httpapi.New(cfg)
	require.NoError(t, err)
	return c
}

func get(path string) httpapi.Request {
	return httpapi.Request{Op: sandbox.OpGet, ID: "i1", Method: http.MethodGet, Path: path}
}
