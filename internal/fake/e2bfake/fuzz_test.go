package e2bfake_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
)

// FuzzRequests holds the server to answering whatever it is sent: with a status, or by breaking off.
func FuzzRequests(f *testing.F) {
	for _, seed := range [][4]string{
		{"POST", "/v2/sandboxes", "", `{"templateID":"base","timeout":60,"metadata":{"a":"b"},"network":{"allowPublicTraffic":false}}`},
		{"GET", "/v2/sandboxes?metadata=a%253Db%2526c&state=running,paused&limit=2&order=asc&nextToken=MQ==", "", ""},
		{"POST", "/sandboxes/ID/timeout", "", `{"timeout":2147483647}`},
		{"POST", "/sandboxes/ID/fork", "", `{"count":3,"timeout":9}`},
		{"DELETE", "/templates/snap0000000000000002:default", "", ""},
		{"GET", "/events/sandboxes/ID?limit=5&types=sandbox.lifecycle.created", "", ""},
		{"POST", "/process.Process/SendInput", "ID", `{"process":{"pid":301},"input":{"stdin":"eA=="}}`},
		{"POST", "/process.Process/List", "ID", `{}`},
		{"POST", "/filesystem.Filesystem/ListDir", "ID", `{"path":"/","depth":3}`},
		{"POST", "/files?path=a%00b", "ID", "x"},
		{"GET", "/files?path=../../etc/passwd&signature=v1_x&signature_expiration=9", "ID", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, method, target, sandbox, body string) {
		s := e2bfake.New(e2bfake.Options{})
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		call := func(method, target, sandbox, body string) *httptest.ResponseRecorder {
			r, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1"+target, strings.NewReader(body))
			if err != nil {
				t.Skip("no request")
			}
			r.Header.Set("X-API-Key", e2bfake.DefaultKey)
			r.Header.Set("Content-Type", "application/json")
			if strings.HasPrefix(target, "/files") {
				r.Header.Set("Content-Type", "application/octet-stream")
			}
			if sandbox != "" {
				r.Header.Set("E2b-Sandbox-Id", sandbox)
			}
			w := httptest.NewRecorder()
			defer func() {
				if p := recover(); p != nil && p != http.ErrAbortHandler {
					panic(p)
				}
			}()
			s.ServeHTTP(w, r)
			return w
		}
		call("POST", "/sandboxes", "", `{"templateID":"base","timeout":60}`)
		id := s.Sandboxes()[0].ID
		w := call(method, strings.ReplaceAll(target, "ID", id), strings.ReplaceAll(sandbox, "ID", id), body)
		if w != nil && (w.Code < 100 || w.Code > 599) {
			t.Errorf("status %d", w.Code)
		}
	})
}
