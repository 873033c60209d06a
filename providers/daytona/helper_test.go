package daytona_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	key   = "dtn_0123456789abcdef0123456789abcdef"
	fleet = "daytona-test"
	uuid  = "0b8e2d4c-5f6a-4b7c-8d9e-0f1a2b3c4d5e"
)

// A service is a transport that answers by itself, without a network, and remembers what it was asked.
type service struct {
	answer func(r *http.Request, body string) *http.Response // nil: the connection fails

	mu    sync.Mutex
	asked []string
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
	s.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp := s.answer(r, string(body))
	if resp == nil {
		return nil, io.ErrUnexpectedEOF
	}
	if resp.Header.Get("Date") == "" {
		resp.Header.Set("Date", now.Format(http.TimeFormat))
	}
	resp.Request = r
	return resp, nil
}

func (s *service) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// now is the stub service's clock, which is not ours.
var now = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

// says is an answer; header is in pairs.
func says(status int, body string, header ...string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

// stub returns a provider whose service is the function.
func stub(
	t testing.TB, answer func(r *http.Request, body string) *http.Response, change ...func(*daytona.Config),
) (*daytona.Provider, *service) {
	t.Helper()
	s := &service{answer: answer}
	cfg := daytona.Config{APIKey: key, BaseURL: "https://daytona.test/api", HTTP: &http.Client{Transport: s}}
	for _, f := range change {
		f(&cfg)
	}
	p, err := daytona.New(cfg)
	require.NoError(t, err)
	return p, s
}

func newNonce() string {
	var b [10]byte
	rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
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

func collect(ctx context.Context, p sandbox.Provider, f sandbox.Filter) (all []sandbox.Info, err error) {
	for info, err := range p.List(ctx, f) {
		if err != nil {
			return all, err
		}
		all = append(all, info)
	}
	return all, nil
}

// pieces cuts b into pieces of n bytes.
func pieces(b []byte, n int) [][]byte {
	var all [][]byte
	for len(b) > 0 {
		k := min(n, len(b))
		all = append(all, bytes.Clone(b[:k]))
		b = b[k:]
	}
	return all
}
