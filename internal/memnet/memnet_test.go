package memnet_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns both ends of a connection.
func pair(t *testing.T, n *memnet.Network) (client, server net.Conn) {
	t.Helper()
	l, err := n.Listen("a.test:1")
	require.NoError(t, err)
	defer l.Close()
	client, err = n.DialContext(t.Context(), "tcp", "a.test:1")
	require.NoError(t, err)
	server, err = l.Accept()
	require.NoError(t, err)
	return client, server
}

// bubble runs f in a bubble, as a subtest, with a network that is closed at its end.
func bubble(t *testing.T, name string, f func(t *testing.T, n *memnet.Network)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := memnet.New()
			defer n.Close()
			f(t, n)
		})
	})
}

func TestADialFindsTheListenerThatSaysMost(t *testing.T) {
	n := memnet.New()
	defer n.Close()
	accepted := make(chan string, 1)
	listen := func(address string) {
		l, err := n.Listen(address)
		require.NoError(t, err)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
				accepted <- address
			}
		}()
	}
	for _, a := range []string{"api.x.test:80", "*.x.test:80", "*.deep.x.test:80", "*:443"} {
		listen(a)
	}
	for dial, want := range map[string]string{
		"api.x.test:80": "api.x.test:80", "API.X.test:80": "api.x.test:80", "49983-id.x.test:80": "*.x.test:80",
		"a.deep.x.test:80": "*.deep.x.test:80", "whatever:443": "*:443",
	} {
		c, err := n.DialContext(t.Context(), "tcp", dial)
		require.NoError(t, err, dial)
		assert.Equal(t, want, <-accepted, dial)
		c.Close()
	}
	_, err := n.DialContext(t.Context(), "tcp", "api.x.test:81")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, err = n.DialContext(t.Context(), "tcp", "nonsense")
	require.Error(t, err)
	_, err = n.Listen("*.x.test:80")
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	empty := memnet.New()
	_, err = empty.DialContext(t.Context(), "tcp", "x.test:80")
	e, ok := errors.AsType[*net.DNSError](err)
	require.True(t, ok, "%v", err)
	assert.True(t, e.IsNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = empty.DialContext(ctx, "tcp", "x.test:80")
	require.ErrorIs(t, err, context.Canceled)
}

func TestBytesArriveInOrderAndWhole(t *testing.T) {
	bubble(t, "a megabyte each way at once", func(t *testing.T, n *memnet.Network) {
		a, b := pair(t, n)
		sums := make(chan [32]byte)
		send := func(c net.Conn, seed uint64) [32]byte {
			data := make([]byte, 1<<20)
			rnd := rand.NewChaCha8([32]byte{byte(seed)})
			rnd.Read(data)
			go func() {
				for rest := data; len(rest) > 0; {
					k, err := c.Write(rest[:min(len(rest), 1+int(rnd.Uint64()%100_000))])
					if err != nil {
						return
					}
					rest = rest[k:]
				}
			}()
			return sha256.Sum256(data)
		}
		receive := func(c net.Conn) {
			h := sha256.New()
			io.CopyN(h, c, 1<<20)
			sums <- [32]byte(h.Sum(nil))
		}
		go receive(b)
		toB := send(a, 1)
		go receive(a)
		toA := send(b, 2)
		assert.ElementsMatch(t, [][32]byte{toA, toB}, [][32]byte{<-sums, <-sums})
	})
	bubble(t, "the writer waits while the reader does not read", func(t *testing.T, n *memnet.Network) {
		a, b := pair(t, n)
		var sent atomic.Int64
		go func() {
			for {
				k, err := a.Write(make([]byte, 1000))
				sent.Add(int64(k))
				if err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		assert.Equal(t, int64(65_000), sent.Load(), "64 KiB, in whole writes")
		_, err := io.ReadFull(b, make([]byte, 5000))
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, int64(70_000), sent.Load())
		b.Close()
	})
}

func TestCloseEndsWhatWaits(t *testing.T) {
	bubble(t, "a read of the other end sees what was sent and then the end", func(t *testing.T, n *memnet.Network) {
		a, b := pair(t, n)
		_, err := a.Write([]byte("last"))
		require.NoError(t, err)
		require.NoError(t, a.Close())
		got, err := io.ReadAll(b)
		require.NoError(t, err)
		assert.Equal(t, "last", string(got))
		_, err = b.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
		_, err = a.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, a.Close(), net.ErrClosed)
		assert.Equal(t, 1, n.Open())
		b.Close()
		assert.Zero(t, n.Open())
	})
	bubble(t, "its own read and write", func(t *testing.T, n *memnet.Network) {
		a, _ := pair(t, n)
		ends := make(chan error)
		go func() { _, err := a.Read(make([]byte, 1)); ends <- err }()
		go func() { _, err := a.Write(make([]byte, 1<<20)); ends <- err }()
		synctest.Wait()
		a.Close()
		require.ErrorIs(t, <-ends, net.ErrClosed)
		require.ErrorIs(t, <-ends, net.ErrClosed)
	})
	bubble(t, "the network's, dials and accepts too", func(t *testing.T, n *memnet.Network) {
		l, err := n.Listen("b.test:1")
		require.NoError(t, err)
		a, b := pair(t, n)
		n.Break(memnet.Fault{Kind: memnet.Partition})
		ends := make(chan error)
		go func() { _, err := a.Read(make([]byte, 1)); ends <- err }()
		go func() { _, err := b.Write(make([]byte, 1<<20)); ends <- err }()
		go func() { _, err := l.Accept(); ends <- err }()
		go func() { _, err := n.DialContext(t.Context(), "tcp", "b.test:1"); ends <- err }()
		synctest.Wait()
		n.Close()
		for range 4 {
			require.Error(t, <-ends)
		}
	})
}

func TestDeadlines(t *testing.T) {
	bubble(t, "end reads and writes at their time", func(t *testing.T, n *memnet.Network) {
		a, _ := pair(t, n)
		start := time.Now()
		require.NoError(t, a.SetDeadline(start.Add(time.Second)))
		_, err := a.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		e, ok := errors.AsType[net.Error](err)
		require.True(t, ok)
		assert.True(t, e.Timeout())
		k, err := a.Write(make([]byte, 1<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Zero(t, k, "it has passed")
		assert.Equal(t, time.Second, time.Since(start))

		require.NoError(t, a.SetWriteDeadline(time.Now().Add(time.Second)))
		k, err = a.Write(make([]byte, 1<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 64<<10, k, "what fitted into the window")
	})
	bubble(t, "can be moved under a waiting read", func(t *testing.T, n *memnet.Network) {
		a, _ := pair(t, n)
		done := make(chan time.Duration)
		start := time.Now()
		go func() { a.Read(make([]byte, 1)); done <- time.Since(start) }()
		time.Sleep(time.Second)
		a.SetReadDeadline(time.Now().Add(time.Hour))
		a.SetReadDeadline(time.Now().Add(time.Minute))
		assert.Equal(t, time.Minute+time.Second, <-done)
	})
}

// get makes a request and returns the status and the body, or the error of either.
func get(ctx context.Context, c *http.Client, method, url string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestHTTPRunsOverIt(t *testing.T) {
	bubble(t, "by host, with connections kept", func(t *testing.T, n *memnet.Network) {
		stop, err := n.Serve("*.x.test:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Host+r.URL.Path)
		}))
		require.NoError(t, err)
		defer stop()
		c := n.Client()
		for range 10 {
			status, body, err := get(t.Context(), c, "GET", "http://api.x.test/p")
			require.NoError(t, err)
			assert.Equal(t, 200, status)
			assert.Equal(t, "api.x.test/p", body)
		}
		assert.Equal(t, 1, n.Open())
	})
	bubble(t, "a caller that goes ends the handler's context", func(t *testing.T, n *memnet.Network) {
		ended := make(chan time.Duration, 1)
		stop, err := n.Serve("x.test:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			<-r.Context().Done()
			ended <- time.Since(start)
		}))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _, err = get(ctx, n.Client(), "POST", "http://x.test/")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Minute, <-ended)
		stop()
	})
	bubble(t, "its end comes after that of all its goroutines", func(t *testing.T, n *memnet.Network) {
		stop, err := n.Serve("x.test:80", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		require.NoError(t, err)
		resp, err := n.Client().Post("http://x.test/", "text/plain", bytes.NewReader(make([]byte, 1<<20)))
		if err == nil { // the answer came before the connection was closed on the rest of the request
			resp.Body.Close()
		}
		start := time.Now()
		stop()
		assert.Positive(t, time.Since(start), "net/http lingers after an answer to a request that was not read")
	})
	bubble(t, "a large body crosses in both directions", func(t *testing.T, n *memnet.Network) {
		stop, err := n.Serve("x.test:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			w.Write(b)
		}))
		require.NoError(t, err)
		defer stop()
		data := bytes.Repeat([]byte("0123456789"), 30_000)
		resp, err := n.Client().Post("http://x.test/", "text/plain", io.MultiReader(bytes.NewReader(data)))
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		assert.True(t, bytes.Equal(data, got))
	})
}

func TestFaults(t *testing.T) {
	const url = "http://x.test/"
	var served atomic.Int64
	var last atomic.Pointer[time.Time]
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		now := time.Now()
		last.Store(&now)
		io.WriteString(w, strings.Repeat("x", 1000))
	})
	// wire has a client that has a connection already if warm.
	wire := func(name string, warm bool, f func(t *testing.T, n *memnet.Network, c *http.Client)) {
		bubble(t, name, func(t *testing.T, n *memnet.Network) {
			served.Store(0)
			stop, err := n.Serve("x.test:80", handler)
			require.NoError(t, err)
			c := n.Client()
			if warm {
				_, _, err := get(t.Context(), c, "GET", url)
				require.NoError(t, err)
				served.Store(0)
			}
			f(t, n, c)
			n.Close()
			stop()
		})
	}
	limited := func(t *testing.T, c *http.Client, method string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, _, err := get(ctx, c, method, url)
		return err
	}
	for _, warm := range []bool{false, true} {
		on := map[bool]string{false: " on a new connection", true: " on a kept connection"}[warm]
		wire("a reset before the request leaves nothing at the server"+on, warm, func(t *testing.T, n *memnet.Network, c *http.Client) {
			n.Break(memnet.Fault{Kind: memnet.Reset, Times: 1})
			require.ErrorIs(t, limited(t, c, "POST"), syscall.ECONNRESET)
			assert.Zero(t, served.Load())
			require.NoError(t, limited(t, c, "POST"))
		})
		wire("a request that never arrives"+on, warm, func(t *testing.T, n *memnet.Network, c *http.Client) {
			n.Break(memnet.Fault{Kind: memnet.Reset, Host: "x.test:81"})
			n.Break(memnet.Fault{Kind: memnet.Hang, Host: "x.test:80", Times: 1})
			require.ErrorIs(t, limited(t, c, "POST"), context.DeadlineExceeded)
			assert.Zero(t, served.Load())
			require.NoError(t, limited(t, c, "POST"))
		})
		wire("an answer that never arrives"+on, warm, func(t *testing.T, n *memnet.Network, c *http.Client) {
			n.Break(memnet.Fault{Kind: memnet.Swallow, Host: "*.other.test", Times: 1})
			n.Break(memnet.Fault{Kind: memnet.Swallow, Host: "*", Times: 1})
			require.ErrorIs(t, limited(t, c, "POST"), context.DeadlineExceeded)
			assert.Equal(t, int64(1), served.Load())
			require.NoError(t, limited(t, c, "POST"))
		})
		wire("an answer that is cut"+on, warm, func(t *testing.T, n *memnet.Network, c *http.Client) {
			n.Break(memnet.Fault{Kind: memnet.Cut, After: 500, Times: 1})
			start := time.Now()
			require.ErrorIs(t, limited(t, c, "POST"), syscall.ECONNRESET)
			assert.Equal(t, int64(1), served.Load())
			n.Break(memnet.Fault{Kind: memnet.Cut, Times: 1, Skip: 1})
			require.NoError(t, limited(t, c, "POST"))
			require.Error(t, limited(t, c, "POST"))
			require.NoError(t, limited(t, c, "POST"))
			assert.Zero(t, time.Since(start))
		})
		wire("a late request is processed though its sender has gone"+on, warm, func(t *testing.T, n *memnet.Network, c *http.Client) {
			n.Break(memnet.Fault{Kind: memnet.LateRequest, Delay: time.Minute, Times: 1})
			start := time.Now()
			require.ErrorIs(t, limited(t, c, "POST"), context.DeadlineExceeded)
			assert.Zero(t, served.Load())
			time.Sleep(time.Hour)
			require.Equal(t, int64(1), served.Load())
			assert.Equal(t, time.Minute, last.Load().Sub(start))
		})
		wire("delays in both directions add up"+on, warm, func(t *testing.T, n *memnet.Network, c *http.Client) {
			n.Break(memnet.Fault{Kind: memnet.LateRequest, Delay: time.Second})
			n.Break(memnet.Fault{Kind: memnet.LateAnswer, Delay: 2 * time.Second})
			start := time.Now()
			for range 3 {
				require.NoError(t, limited(t, c, "GET"))
			}
			assert.Equal(t, 9*time.Second, time.Since(start))
		})
		wire("a partition holds back what arrives when it is over"+on, warm, func(t *testing.T, n *memnet.Network, c *http.Client) {
			heal := n.Break(memnet.Fault{Kind: memnet.Partition})
			require.ErrorIs(t, limited(t, c, "POST"), context.DeadlineExceeded)
			assert.Zero(t, served.Load())
			heal()
			synctest.Wait()
			if warm { // without a connection there was nothing to send
				assert.Equal(t, int64(1), served.Load(), "the kernel goes on sending")
			}
			require.NoError(t, limited(t, c, "POST"))
			n.Break(memnet.Fault{Kind: memnet.Partition})
			time.AfterFunc(5*time.Second, n.Heal)
			require.NoError(t, limited(t, c, "POST"))
		})
	}
	bubble(t, "the end of a late request is late too", func(t *testing.T, n *memnet.Network) {
		n.Break(memnet.Fault{Kind: memnet.LateRequest, Delay: time.Minute})
		a, b := pair(t, n)
		start := time.Now()
		_, err := a.Write([]byte("x"))
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		require.NoError(t, a.Close())
		_, err = b.Read(make([]byte, 1))
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(start))
		_, err = b.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, time.Minute+10*time.Second, time.Since(start))
	})
	wire("refused dials leave what stands", true, func(t *testing.T, n *memnet.Network, c *http.Client) {
		heal := n.Break(memnet.Fault{Kind: memnet.Refuse})
		require.NoError(t, limited(t, c, "POST"))
		c.CloseIdleConnections()
		require.ErrorIs(t, limited(t, c, "POST"), syscall.ECONNREFUSED)
		heal()
		require.NoError(t, limited(t, c, "POST"))
	})
}
