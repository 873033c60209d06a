package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// streams answers with what write writes, until the request's context ends.
func streams(write func(w io.Writer)) service {
	return func(r *http.Request) (*http.Response, error) {
		pr, pw := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = pw.CloseWithError(r.Context().Err()) })
		go func() {
			write(pw)
			_ = pw.Close()
		}()
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: pr}, nil
	}
}

func TestAStreamOutlivesTheLimitOfItsHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, streams(func(w io.Writer) {
			for range 10 {
				time.Sleep(20 * time.Second)
				_, _ = io.WriteString(w, "tick\n")
			}
		}))
		req := get("/x")
		req.Idle, req.Timeout = 30*time.Second, time.Second
		b, err := c.Open(t.Context(), req)
		require.NoError(t, err)
		defer func() { _ = b.Close() }()
		all, err := io.ReadAll(b)
		require.NoError(t, err)
		assert.Equal(t, strings.Repeat("tick\n", 10), string(all))
	})
}

func TestAStreamThatFallsSilentIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, streams(func(w io.Writer) {
			_, _ = io.WriteString(w, "one\n")
			time.Sleep(time.Hour)
		}))
		req := get("/x")
		req.Idle = 30 * time.Second
		b, err := c.Open(t.Context(), req)
		require.NoError(t, err)
		lines := bufio.NewScanner(b)
		require.True(t, lines.Scan())
		time.Sleep(time.Minute) // the reader's own time does not count
		began := time.Now()
		assert.False(t, lines.Scan())
		assert.ErrorIs(t, lines.Err(), httpapi.ErrSilent)
		assert.ErrorIs(t, lines.Err(), sandbox.ErrUnavailable)
		assert.Equal(t, 30*time.Second, time.Since(began))
		_ = b.Close()
		time.Sleep(time.Hour)
	})
}

func TestAStreamEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, streams(func(io.Writer) { time.Sleep(time.Hour) }))
		reason := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		b, err := c.Open(ctx, get("/x"))
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { cancel(reason) })
		_, err = b.Read(make([]byte, 8))
		assert.Equal(t, reason, err)
		assert.Equal(t, reason, b.Fault(io.ErrUnexpectedEOF))
		_ = b.Close()
		time.Sleep(time.Hour)
	})
}

func TestAStreamWithoutAHeaderEndsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		req := get("/x")
		req.Timeout = 5 * time.Second
		began := time.Now()
		_, err := c.Open(t.Context(), req)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 5*time.Second, time.Since(began))
	})
}

func TestAnUploadThatMakesNoProgressIsNoticedButASlowReaderIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := readerFunc(func(p []byte) (int, error) {
			time.Sleep(time.Minute)
			return 0, io.EOF
		})
		req := get("/x")
		req.Method, req.Stream, req.Idle, req.Timeout = http.MethodPost, slow, 10*time.Second, -1
		c := client(t, func(r *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, r.Body)
			return says(200, ""), err
		})
		b, err := c.Open(t.Context(), req)
		require.NoError(t, err)
		_ = b.Close()

		stuck := client(t, func(r *http.Request) (*http.Response, error) {
			_, _ = r.Body.Read(make([]byte, 1))
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		req.Stream = strings.NewReader("abc")
		_, err = stuck.Open(t.Context(), req)
		assert.ErrorIs(t, err, httpapi.ErrSilent)
	})
}

func TestARequestWhoseStreamHangsEndsWithItsContext(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer srv.Close()
	c, err := httpapi.New(httpapi.Config{Provider: "acme", BaseURL: srv.URL})
	require.NoError(t, err)
	defer c.CloseIdle()
	for name, call := range map[string]func(context.Context, httpapi.Request) error{
		"Do":   func(ctx context.Context, r httpapi.Request) error { _, err := c.Do(ctx, r); return err },
		"Open": func(ctx context.Context, r httpapi.Request) error { _, err := c.Open(ctx, r); return err },
	} {
		hang, began := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-began
			cancel()
		}()
		req := get("/x")
		req.Method = http.MethodPost
		req.Stream = io.MultiReader(strings.NewReader("x"), readerFunc(func([]byte) (int, error) {
			close(began)
			<-hang
			return 0, io.EOF
		}))
		assert.ErrorIs(t, call(ctx, req), context.Canceled, name)
		close(hang)
	}
}

func TestAConnectionThatChangedItsProtocolGoesBothWaysAndEndsWithItsContext(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = buf.Flush()
		_, _ = io.Copy(conn, buf)
	}))
	defer srv.Close()
	c, err := httpapi.New(httpapi.Config{Provider: "acme", BaseURL: srv.URL})
	require.NoError(t, err)
	defer c.CloseIdle()
	ctx, cancel := context.WithCancel(t.Context())
	req := get("/x")
	req.OK, req.Header = []int{http.StatusSwitchingProtocols}, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	b, err := c.Open(ctx, req)
	require.NoError(t, err)
	defer func() { _ = b.Close() }()
	_, err = io.WriteString(b, "hello")
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(b, got)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
	cancel()
	_, err = b.Read(got)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestPagesEndOnACursorThatComesBackAndOnTooMany(t *testing.T) {
	collect := func(fetch func(string) ([]int, string, error)) (got []int, err error) {
		for i, e := range httpapi.Pages(fetch) {
			if e != nil {
				return got, e
			}
			got = append(got, i)
		}
		return got, nil
	}
	next := map[string]string{"": "a", "a": "b", "b": ""}
	var asked []string
	got, err := collect(func(c string) ([]int, string, error) {
		asked = append(asked, c)
		return []int{len(asked)}, next[c], nil
	})
	require.NoError(t, err)
	assert.Equal(t, []int{1, 2, 3}, got)
	assert.Equal(t, []string{"", "a", "b"}, asked)

	next["b"] = "a"
	_, err = collect(func(c string) ([]int, string, error) { return nil, next[c], nil })
	assert.ErrorIs(t, err, httpapi.ErrEndless)

	n := 0
	_, err = collect(func(string) ([]int, string, error) {
		n++
		return nil, strings.Repeat("x", n%50) + string(rune('a'+n%26)) + http.StatusText(n) + time.Duration(n).String(), nil
	})
	assert.ErrorIs(t, err, httpapi.ErrEndless)
	assert.LessOrEqual(t, n, httpapi.MaxPages)

	_, err = collect(func(string) ([]int, string, error) { return nil, strings.Repeat("x", 1<<20), nil })
	assert.ErrorIs(t, err, httpapi.ErrEndless)

	broken := errors.New("broken")
	got, err = collect(func(c string) ([]int, string, error) {
		if c != "" {
			return []int{9}, "", broken
		}
		return []int{1}, "a", nil
	})
	assert.ErrorIs(t, err, broken)
	assert.Equal(t, []int{1}, got)

	for range httpapi.Pages(func(string) ([]int, string, error) { return []int{1, 2}, "a", nil }) {
		break
	}
}
