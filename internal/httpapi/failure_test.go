package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func failure(t testing.TB, resp *http.Response, change ...func(*httpapi.Request)) *sandbox.APIError {
	t.Helper()
	c := client(t, func(*http.Request) (*http.Response, error) { return resp, nil }, func(cfg *httpapi.Config) {
		cfg.Rules = httpapi.Rules{
			{Status: 409, Code: "in_flight", Kind: sandbox.ErrUnavailable}, {Status: 418, Kind: sandbox.ErrQuota}, {Status: 429, Kind: sandbox.ErrRateLimited},
		}
	})
	req := get("/x")
	for _, f := range change {
		f(&req)
	}
	_, err := c.Do(t.Context(), req)
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok, "%v", err)
	return e
}

func TestFailuresAreClassifiedByStatusAndCode(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		kind   error
		code   string
	}{
		{400, `{"code":400,"message":"m"}`, sandbox.ErrInvalid, ""},
		{401, `{"code":401,"message":"m"}`, sandbox.ErrUnauthenticated, ""},
		{403, `{"message":"m"}`, sandbox.ErrPermission, ""},
		{404, `{"code":404}`, sandbox.ErrNotFound, ""},
		{409, `{"code":409,"message":"m"}`, sandbox.ErrConflict, ""},
		{409, `{"code":409,"message":"m","error_code":"in_flight"}`, sandbox.ErrUnavailable, "in_flight"},
		{409, `{"code":"in_flight","message":"m"}`, sandbox.ErrUnavailable, "in_flight"},
		{418, `{"message":"m"}`, sandbox.ErrQuota, ""},
		{429, `{"message":"m"}`, sandbox.ErrRateLimited, ""},
		{500, `{"message":"no such sandbox"}`, nil, ""},
		{503, `{"message":"m"}`, sandbox.ErrUnavailable, ""},
		{599, `{"message":"m"}`, nil, ""},
	} {
		t.Run(fmt.Sprint(tt.status, tt.code), func(t *testing.T) {
			e := failure(t, says(tt.status, tt.body))
			assert.Equal(t, tt.kind, e.Kind)
			assert.Equal(t, tt.code, e.Code)
			assert.Equal(t, tt.status, e.Status)
			assert.False(t, e.Refused, "nobody said so")
			assert.Equal(t, "i1", e.ID)
			assert.Equal(t, sandbox.OpGet, e.Op)
		})
	}
}

func TestARequestsOwnRulesComeFirst(t *testing.T) {
	e := failure(t, says(429, `{"message":"m"}`), func(r *httpapi.Request) {
		r.Rules = httpapi.Rules{{Status: 429, Kind: sandbox.ErrQuota, Refused: true}}
	})
	assert.Equal(t, sandbox.ErrQuota, e.Kind)
	assert.True(t, e.Refused)
}

// A proxy, a gateway or a wrong base URL says "not found" too, and must not be believed.
func TestWhatIsNotTheServicesOwnWordProvesNothing(t *testing.T) {
	sure := func(r *httpapi.Request) { r.Rules = httpapi.Rules{{Kind: sandbox.ErrNotFound, Refused: true}} }
	for _, body := range []string{"", "404 page not found", "<html>Not Found</html>", `{"error":"x"}`, `[]`, `"x"`, `{"message":`} {
		for status, kind := range map[int]error{
			400: nil, 401: sandbox.ErrUnauthenticated, 403: nil, 404: nil, 409: nil,
			429: sandbox.ErrRateLimited, 500: nil, 502: sandbox.ErrUnavailable, 503: sandbox.ErrUnavailable,
		} {
			e := failure(t, says(status, body, "Content-Type", "text/html; charset=utf-8"), sure)
			assert.Equal(t, kind, e.Kind, "%d %s", status, body)
			assert.False(t, e.Refused)
			assert.Contains(t, e.Error(), "is the base URL right")
			assert.Contains(t, e.Error(), "text/html")
		}
	}
}

func TestRetryAfterIsReadInBothForms(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	for said, want := range map[string]time.Duration{
		"": 0, "2": 2 * time.Second, " 7 ": 7 * time.Second, "0": 0, "-1": 0, "1.5": 0, "soon": 0, "4294967295": 24 * time.Hour, "99999999999999999999": 0,
		now.Add(90 * time.Second).Format(http.TimeFormat):  90 * time.Second,
		now.Add(-time.Second).Format(http.TimeFormat):      0,
		now.Add(1e6 * time.Second).Format(http.TimeFormat): 24 * time.Hour,
	} {
		assert.Equal(t, want, httpapi.RetryAfter(http.Header{"Retry-After": {said}}, now), said)
	}
	// The service's clock counts, not ours.
	there := now.Add(-48 * time.Hour)
	e := failure(t, says(503, `{"message":"m"}`, "Date", there.Format(http.TimeFormat), "Retry-After", there.Add(5*time.Second).Format(http.TimeFormat)))
	assert.Equal(t, 5*time.Second, e.RetryAfter)
}

func TestAServiceMaySayInAnotherWayWhenToComeBack(t *testing.T) {
	c := client(t, func(*http.Request) (*http.Response, error) {
		return says(429, `{"message":"m"}`, "Retry-After-Create", "3"), nil
	},
		func(cfg *httpapi.Config) {
			cfg.RetryAfter = func(h http.Header, now time.Time) time.Duration {
				return httpapi.RetryAfter(http.Header{"Retry-After": h["Retry-After-Create"]}, now)
			}
		})
	_, err := c.Do(t.Context(), get("/x"))
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok)
	assert.Equal(t, 3*time.Second, e.RetryAfter)
}

func TestNoErrorShowsASecret(t *testing.T) {
	const value = `p"a<s>s w&rd/é`
	message := strings.Join([]string{
		"key " + key, "env " + value, `json p\"a<s>s w&rd/é`, `json p\"a\u003cs\u003es w\u0026rd/é`, "form p%22a%3Cs%3Es+w%26rd%2F%C3%A9",
		"see https://user:hunter2@files.test/a/b?X-Signature=0a1b2c, or", "Authorization: Bearer abcdefgh12345678",
		"other e2b_ffffffffffffffff dtn_ffffffffffffffff eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
	}, " | ")
	body, err := httpapi.Encode(map[string]any{"code": key, "message": message})
	require.NoError(t, err)
	for _, resp := range []*http.Response{says(400, string(body), "X-Request-Id", "r-1 "+key), says(302, "", "Location", "https://u:hunter2@x.test/?X-Signature=0a1b2c")} {
		e := failure(t, resp, func(r *httpapi.Request) { r.Secrets = []string{value, "1"} })
		for _, secret := range []string{key, value, "w&rd", "u0026rd", "w%26rd", "hunter2", "0a1b2c", "abcdefgh12345678", "ffff", "eyJ"} {
			assert.NotContains(t, e.Error(), secret)
		}
		if resp.StatusCode == 400 {
			assert.Contains(t, e.Error(), "files.test/a/b?[hidden]", "what is no secret stays")
		}
	}
	// What had one in it can be asked for, but is not to be had.
	cause := errors.New("cannot reach " + key)
	c := client(t, func(*http.Request) (*http.Response, error) { return nil, cause })
	_, err = c.Do(t.Context(), get("/x"))
	require.ErrorIs(t, err, cause)
	for e := err; e != nil; e = errors.Unwrap(e) {
		assert.NotContains(t, e.Error(), key)
	}
}

func TestALongMessageIsCut(t *testing.T) {
	e := failure(t, says(400, `{"message":"`+strings.Repeat("é", 20_000)+`"}`))
	assert.Less(t, len(e.Message), 500)
	assert.True(t, strings.HasSuffix(e.Message, "é ..."))
}

func FuzzFailure(f *testing.F) {
	for _, s := range []string{`{"code":404,"message":"m"}`, `{"code":"x"}`, `{"error_code":null,"message":null}`, `https://a@b?c`, ``, `{`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		e := failure(t, says(404, body))
		assert.NotContains(t, e.Error(), key)
		assert.Less(t, len(e.Error()), 2000)
	})
}
