package httpapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestARequestIsSentAsOrdered(t *testing.T) {
	var got *http.Request
	var body []byte
	counted := []sandbox.Op{}
	c := client(t, func(r *http.Request) (*http.Response, error) {
		got = r
		body, _ = io.ReadAll(r.Body)
		return says(201, `{"id":"i1","new":true}`), nil
	}, func(cfg *httpapi.Config) { cfg.Count = func(op sandbox.Op) { counted = append(counted, op) } })
	var out struct{ ID string }
	_, err := c.Do(t.Context(), httpapi.Request{
		Op: sandbox.OpCreate, Method: http.MethodPost, Path: "/boxes/a%2Fb", Query: "a=%2525", Header: http.Header{"x-extra": {"1"}},
		Body: map[string]any{"a": "<&>"}, Out: &out,
	})
	require.NoError(t, err)
	assert.Equal(t, "https://api.acme.test/v1/boxes/a%2Fb?a=%2525", got.URL.String())
	assert.JSONEq(t, `{"a":"<&>"}`, string(body))
	assert.NotContains(t, string(body), `\u003c`)
	assert.Equal(t, key, got.Header.Get("X-Api-Key"))
	assert.Equal(t, "1", got.Header.Get("X-Extra"))
	assert.Equal(t, "application/json", got.Header.Get("Content-Type"))
	assert.Regexp(t, `^sandglass/\S+$`, got.Header.Get("User-Agent"))
	assert.Equal(t, "i1", out.ID, "unknown fields are allowed")
	assert.Equal(t, []sandbox.Op{sandbox.OpCreate}, counted)
}

func TestTheKeyGoesToItsOwnHostOnly(t *testing.T) {
	seen := map[string]string{}
	c := client(t, func(r *http.Request) (*http.Response, error) {
		seen[r.URL.Host] = r.Header.Get("X-Api-Key")
		if strings.HasSuffix(r.URL.Path, "/moved") {
			return says(307, "", "Location", "https://evil.test/v1/boxes?token=abc"), nil
		}
		return says(200, ""), nil
	})
	other, err := httpapi.ParseBase("https://inside.acme.test")
	require.NoError(t, err)
	req := get("/x")
	req.Base = other
	_, err = c.Do(t.Context(), req)
	require.NoError(t, err)

	req = get("/moved")
	req.Method, req.Op = http.MethodDelete, sandbox.OpDelete
	_, err = c.Do(t.Context(), req)
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 307, e.Status)
	assert.NoError(t, e.Kind)
	assert.False(t, e.Refused)
	assert.Contains(t, e.Error(), "redirect to evil.test, which is not followed")
	assert.NotContains(t, e.Error(), "token")
	assert.Equal(t, map[string]string{"inside.acme.test": "", "api.acme.test": key}, seen, "evil.test is not asked")
}

func TestAnAnswerThatIsTooLargeIsATypedErrorAndReadNoFurther(t *testing.T) {
	var read int64
	endless := readerFunc(func(p []byte) (int, error) {
		read += int64(len(p))
		return len(p), nil
	})
	for name, status := range map[string]int{"success": 200, "failure": 500} {
		t.Run(name, func(t *testing.T) {
			read = 0
			c := client(t, func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(endless)}, nil
			})
			req := get("/x")
			req.Out, req.MaxBody = new(any), 100_000
			_, err := c.Do(t.Context(), req)
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, status, e.Status)
			assert.Equal(t, status == 200, errors.Is(err, httpapi.ErrTooLarge))
			assert.Less(t, read, int64(300_000))
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type needy struct{ ID string }

func (n *needy) Validate() error {
	if n.ID == "" {
		return errors.New("no id")
	}
	return nil
}

func TestAnAnswerThatCannotBeReadIsAnErrorThatSaysTheServiceActed(t *testing.T) {
	for body, want := range map[string]string{
		``: "cannot be read", `<html>`: "cannot be read", `{"id":"i1"} x`: "cannot be read", `{"id":7}`: "cannot be read", `{"other":1}`: "no id",
	} {
		c := client(t, func(*http.Request) (*http.Response, error) { return says(201, body), nil })
		req := get("/x")
		req.Op, req.Out = sandbox.OpCreate, new(needy)
		_, err := c.Do(t.Context(), req)
		e, ok := errors.AsType[*sandbox.APIError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, 201, e.Status)
		assert.False(t, e.Refused)
		assert.ErrorContains(t, err, want, body)
	}
}

func TestAnAnswerThatIsNotJSONIsAnErrorWhateverItHolds(t *testing.T) {
	c := client(t, func(*http.Request) (*http.Response, error) {
		return says(200, `{}`, "Content-Type", "text/html; charset=utf-8"), nil
	})
	req := get("/x")
	req.Out = new(any)
	_, err := c.Do(t.Context(), req)
	assert.ErrorContains(t, err, "text/html, not JSON: is the base URL right")
}

func TestACallerWhoseContextEndsGetsItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		reason := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(reason) })
		_, err := c.Do(ctx, get("/x"))
		assert.Equal(t, reason, err)

		_, err = c.Do(ctx, get("/x")) // over already
		e, ok := errors.AsType[*sandbox.APIError](err)
		require.True(t, ok)
		assert.ErrorIs(t, err, reason)
		assert.True(t, e.Refused, "nothing was sent")
	})
}

func TestARequestHasALimitOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(r *http.Request) (*http.Response, error) { // a header at once, a body never
			body := readerFunc(func([]byte) (int, error) {
				<-r.Context().Done()
				return 0, r.Context().Err()
			})
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(body)}, nil
		}
		silent := func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		for name, s := range map[string]service{"no header": silent, "no body": slow} {
			for _, limit := range []time.Duration{0, 3 * time.Second} {
				began := time.Now()
				req := get("/x")
				req.Timeout, req.Out = limit, new(any)
				_, err := client(t, s).Do(t.Context(), req)
				e, ok := errors.AsType[*sandbox.APIError](err)
				require.True(t, ok, "%s: %v", name, err)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.False(t, e.Refused)
				want := limit
				if want == 0 {
					want = httpapi.DefaultTimeout
				}
				assert.Equal(t, want, time.Since(began), name)
			}
		}
	})
}

func TestOnlyWhatNeverLeftIsRefused(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	read := &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
	for _, tt := range []struct {
		err     error
		refused bool
	}{
		{dial, true},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, true},
		{read, false},
		{io.ErrUnexpectedEOF, false},
		{errors.New("who knows"), false},
	} {
		c := client(t, func(*http.Request) (*http.Response, error) { return nil, tt.err })
		_, err := c.Do(t.Context(), get("/boxes/secret"))
		e, ok := errors.AsType[*sandbox.APIError](err)
		require.True(t, ok)
		assert.Equal(t, tt.refused, e.Refused, tt.err.Error())
		assert.ErrorIs(t, err, sandbox.ErrUnavailable)
		assert.ErrorIs(t, err, tt.err)
		assert.NotContains(t, err.Error(), "https://")
	}
	t.Run("a connection that broke is not one that never was", func(t *testing.T) {
		var requests atomic.Int32
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}))
		defer srv.Close()
		c, err := httpapi.New(httpapi.Config{Provider: "acme", BaseURL: srv.URL})
		require.NoError(t, err)
		defer c.CloseIdle()
		_, err = c.Do(t.Context(), httpapi.Request{Op: sandbox.OpCreate, Method: http.MethodPost, Path: "/x", Body: 1})
		e, ok := errors.AsType[*sandbox.APIError](err)
		require.True(t, ok)
		assert.False(t, e.Refused)
		assert.EqualValues(t, 1, requests.Load(), "a POST is not sent again")
	})
}

func TestTheServicesClockIsItsDateHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := time.Now().Add(-time.Hour).UTC()
		date := there.Format(http.TimeFormat)
		c := client(t, func(*http.Request) (*http.Response, error) {
			time.Sleep(800 * time.Millisecond)
			return says(200, "", "Date", date), nil
		})
		ans, err := c.Do(t.Context(), get("/x"))
		require.NoError(t, err)
		assert.True(t, ans.AsOf().Equal(there))
		skew, known := ans.Skew()
		assert.Equal(t, -time.Hour, skew)
		assert.True(t, known)

		date = "yesterday"
		sent := time.Now()
		ans, err = c.Do(t.Context(), get("/x"))
		require.NoError(t, err)
		assert.Equal(t, sent, ans.AsOf(), "no date: when the request was sent")
		skew, known = ans.Skew()
		assert.Zero(t, skew)
		assert.False(t, known)
	})
}

func TestTheLogHoldsNoSecret(t *testing.T) {
	var log bytes.Buffer
	c := client(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("refused " + key) }, func(cfg *httpapi.Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	req := get("/boxes/sig-4711")
	req.Query, req.Secrets = "signature=abcdef", []string{"sig-4711"}
	_, _ = c.Do(t.Context(), req)
	assert.Contains(t, log.String(), "path=/boxes/[hidden]")
	for _, secret := range []string{key, "sig-4711", "signature", "abcdef"} {
		assert.NotContains(t, log.String(), secret)
	}
}

func TestConfigIsCheckedBeforeAnyRequest(t *testing.T) {
	for _, base := range []string{"", "api.acme.test", "ftp://x", "https://", "https://u:hunter2@x", "https://x?a=b", "https://x#f", "https://u:hunter2@x:port"} {
		_, err := httpapi.New(httpapi.Config{Provider: "acme", BaseURL: base})
		require.ErrorIs(t, err, sandbox.ErrInvalid, base)
		assert.NotContains(t, err.Error(), "hunter2")
	}
	_, err := httpapi.New(httpapi.Config{BaseURL: "https://x"})
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
}
