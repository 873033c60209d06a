package kubernetes_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A session is one command, from the server's side.
type session struct {
	*bufio.ReadWriter
	conn  net.Conn
	query map[string][]string
	mark  string
}

// frame sends one message: a channel and its bytes, in two frames if it is long.
func (s *session) frame(channel byte, text string) {
	payload := append([]byte{channel}, text...)
	first := byte(2)
	if len(payload) > 8 {
		s.raw(first, payload[:5])
		first, payload = 0, payload[5:]
	}
	s.raw(0x80|first, payload)
}

func (s *session) raw(first byte, payload []byte) {
	b := []byte{first}
	if n := len(payload); n < 126 {
		b = append(b, byte(n))
	} else {
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	}
	_, _ = s.conn.Write(append(b, payload...))
}

// next reads one message of a client's: pings are left out.
func (s *session) next() ([]byte, error) {
	for {
		var head [8]byte
		if _, err := io.ReadFull(s, head[:2]); err != nil {
			return nil, err
		}
		kind, n := head[0]&15, uint64(head[1]&127)
		switch n {
		case 126:
			if _, err := io.ReadFull(s, head[:2]); err != nil {
				return nil, err
			}
			n = uint64(binary.BigEndian.Uint16(head[:2]))
		case 127:
			if _, err := io.ReadFull(s, head[:8]); err != nil {
				return nil, err
			}
			n = binary.BigEndian.Uint64(head[:8])
		}
		b := make([]byte, n+4)
		if _, err := io.ReadFull(s, b); err != nil {
			return nil, err
		}
		for i := range b[4:] {
			b[4+i] ^= b[i%4]
		}
		if kind != 9 {
			return b[4:], nil
		}
	}
}

// stdin reads the standard input to its end, and splits off the program.
func (s *session) stdin() (program, rest string, err error) {
	var all []byte
	for {
		b, err := s.next()
		switch {
		case err != nil:
			return "", "", err
		case len(b) == 2 && b[0] == 255 && b[1] == 0:
			program, rest, _ = strings.Cut(string(all), "\n")
			return program, rest, nil
		case len(b) > 0 && b[0] == 0:
			all = append(all, b[1:]...)
			if line, _, whole := strings.Cut(string(all), "\n"); whole && strings.HasSuffix(line, "</dev/null") {
				return line, "", nil // there is no more
			}
		}
	}
}

func (s *session) ends(status string) { s.frame(3, status) }

const success = `{"status":"Success"}`

// withCommands runs test in a bubble with a server on which commands are what command makes of them, and killers succeed.
func withCommands(t *testing.T, command func(s *session), test func(t *testing.T, sb sandbox.Sandbox, ran func() []string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		var mu sync.Mutex
		var marks []string
		var wg sync.WaitGroup
		stop, err := network.Serve("kube.test:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wg.Add(1)
			defer wg.Done()
			if !strings.HasSuffix(r.URL.Path, "/exec") {
				a := shows(time.Minute, jobOf(), podOf())(0, r)
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Date", a.date.UTC().Format(http.TimeFormat))
				_, _ = io.WriteString(w, a.body)
				return
			}
			q := r.URL.Query()
			mark := q["command"][4]
			mu.Lock()
			marks = append(marks, mark)
			mu.Unlock()
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: "+
				r.Header.Get("Sec-WebSocket-Protocol")+"\r\nSec-WebSocket-Accept: "+base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n")
			defer func() { _ = conn.Close() }()
			s := &session{rw, conn, q, mark}
			if mark == "kill" {
				if _, _, err := s.stdin(); err == nil {
					s.frame(1, "done\n")
					s.ends(success)
				}
				return
			}
			command(s)
		}))
		require.NoError(t, err)
		p, err := kubernetes.New(kubernetes.Config{BaseURL: "http://kube.test", Namespace: "boxes", HTTP: network.Client(), Name: "kube"})
		require.NoError(t, err)
		test(t, p.Open(sandbox.Info{ID: boxID}), func() []string {
			mu.Lock()
			defer mu.Unlock()
			return append([]string{}, marks...)
		})
		time.Sleep(time.Minute) // what still ends commands in the background is done by then
		network.Close()
		stop()
		wg.Wait()
	})
}

func TestACommandGoesTheWayOfTheStandardInput(t *testing.T) {
	var program, rest string
	var query map[string][]string
	withCommands(t, func(s *session) {
		query = s.query
		program, rest, _ = s.stdin()
		s.raw(0x82, nil) // servers open with empty messages
		s.frame(1, "")
		s.frame(1, "out "+strings.Repeat("x", 1000))
		s.frame(2, "err")
		s.frame(1, " more")
		s.ends(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`)
	}, func(t *testing.T, sb sandbox.Sandbox, ran func() []string) {
		var out, errs bytes.Buffer
		res, err := sb.Exec(t.Context(), sandbox.Cmd{
			Args: []string{"make", "it's"}, Env: map[string]string{"TOKEN": "sesame-4711"}, Stdin: strings.NewReader("input\nlines"), Stdout: &out, Stderr: &errs,
		})
		require.NoError(t, err)
		want := "out " + strings.Repeat("x", 1000) + " more"
		assert.Equal(t, sandbox.Result{ExitCode: 3, Stdout: []byte(want), Stderr: []byte("err")}, res)
		assert.Equal(t, want, out.String())
		assert.Equal(t, "err", errs.String())
		assert.Equal(t, `(exec env 'TOKEN=sesame-4711' 'make' 'it'\''s') 2>&3 3>&-`, program)
		assert.Equal(t, "input\nlines", rest)
		assert.Equal(t, []string{"sandbox"}, query["container"])
		for _, words := range query {
			assert.NotContains(t, strings.Join(words, " "), "sesame", "addresses are kept in audit logs")
		}
		assert.Len(t, ran(), 1, "nothing is killed that has ended")
	})
}

func TestWhatAServerSaysOfACommandsEndIsReadOrAnError(t *testing.T) {
	for status, code := range map[string]int{
		success: 0,
		`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"x"},{"reason":"ExitCode","message":"137"}]}}`: 137,
		`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"0"}]}}`:                  -1,
		`{"status":"Failure","reason":"NonZeroExitCode"}`:                                                                             -1,
		`{"status":"Failure","reason":"InternalError","message":"OCI runtime exec failed"}`:                                           -1,
		`{"status":"Odd"}`:         -1,
		`{`:                        -1,
		strings.Repeat("x", 1<<15): -1,
	} {
		withCommands(t, func(s *session) {
			_, _, _ = s.stdin()
			s.ends(status)
		}, func(t *testing.T, sb sandbox.Sandbox, _ func() []string) {
			res, err := sb.Exec(t.Context(), sandbox.Shell("x"))
			assert.Equal(t, code, res.ExitCode, "%.100s", status)
			if code >= 0 {
				require.NoError(t, err)
				return
			}
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, sandbox.OpExec, e.Op)
			assert.Less(t, len(err.Error()), 1000)
		})
	}
}

func TestAStreamThatBreaksOffOrFallsSilentIsAnErrorAndTheCommandIsKilled(t *testing.T) {
	for name, c := range map[string]struct {
		command func(s *session)
		after   time.Duration
		is      error
	}{
		"broken":     {func(s *session) { _, _, _ = s.stdin(); s.frame(1, "some") }, 0, io.ErrUnexpectedEOF},
		"closed":     {func(s *session) { _, _, _ = s.stdin(); s.frame(1, "some"); s.raw(0x88, []byte{3, 0xe8}) }, 0, nil},
		"no frame":   {func(s *session) { _, _, _ = s.stdin(); s.frame(1, "some"); s.raw(0xff, []byte("x")) }, 0, nil},
		"silent":     {func(s *session) { s.frame(1, "some"); _, _ = io.Copy(io.Discard, s) }, time.Minute, httpapi.ErrSilent},
		"chattering": {func(s *session) { s.frame(1, "some"); chatter(s, 10*time.Minute) }, 10 * time.Minute, nil},
	} {
		t.Run(name, func(t *testing.T) {
			withCommands(t, c.command, func(t *testing.T, sb sandbox.Sandbox, ran func() []string) {
				start := time.Now()
				res, err := sb.Exec(t.Context(), sandbox.Shell("x"))
				assert.InDelta(t, c.after.Seconds(), time.Since(start).Seconds(), 1)
				require.ErrorIs(t, err, sandbox.ErrUnavailable)
				if c.is != nil {
					assert.ErrorIs(t, err, c.is)
				}
				assert.Equal(t, -1, res.ExitCode)
				assert.Equal(t, "some", string(res.Stdout), "what there was until then")
				time.Sleep(10 * time.Second)
				require.Len(t, ran(), 2)
				assert.Equal(t, "kill", ran()[1], "it is never started again")
			})
		})
	}
}

// chatter answers pings and says nothing, for some time.
func chatter(s *session, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(30 * time.Second) {
		s.raw(0x8a, nil)
	}
}

func TestASlowWriterIsNoSilence(t *testing.T) {
	withCommands(t, func(s *session) {
		_, _, _ = s.stdin()
		s.frame(1, "slow")
		s.ends(success)
	}, func(t *testing.T, sb sandbox.Sandbox, _ func() []string) {
		cmd := sandbox.Shell("x")
		cmd.Stdout = writerFunc(func(p []byte) (int, error) {
			time.Sleep(5 * time.Minute)
			return len(p), nil
		})
		res, err := sb.Exec(t.Context(), cmd)
		require.NoError(t, err)
		assert.Equal(t, "slow", string(res.Stdout))
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestStandardInputThatFailsIsNoEnd(t *testing.T) {
	broken := errors.New("broken")
	ended := make(chan error, 1)
	withCommands(t, func(s *session) {
		_, _, err := s.stdin()
		ended <- err
	}, func(t *testing.T, sb sandbox.Sandbox, ran func() []string) {
		cmd := sandbox.Shell("cat")
		cmd.Stdin = io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) { return 0, broken }))
		_, err := sb.Exec(t.Context(), cmd)
		assert.ErrorIs(t, err, broken)
		assert.Error(t, <-ended, "the command must not take half of it for all")
		time.Sleep(10 * time.Second)
		assert.Equal(t, "kill", ran()[1])
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestAHangingStandardInputHoldsUpNothing(t *testing.T) {
	withCommands(t, func(s *session) {
		_, _ = s.next()
		s.ends(success)
	}, func(t *testing.T, sb sandbox.Sandbox, _ func() []string) {
		release := make(chan struct{})
		defer close(release)
		cmd := sandbox.Shell("x")
		cmd.Stdin = readerFunc(func([]byte) (int, error) { <-release; return 0, io.EOF })
		start := time.Now()
		_, err := sb.Exec(t.Context(), cmd)
		require.NoError(t, err)
		assert.Zero(t, time.Since(start))
	})
}

func TestACommandThatReadsNothingEndsAllTheSame(t *testing.T) {
	withCommands(t, func(s *session) {
		_, _ = s.next()
		time.Sleep(time.Second) // by then the connection is full
		s.ends(success)
		time.Sleep(time.Hour)
	}, func(t *testing.T, sb sandbox.Sandbox, _ func() []string) {
		cmd := sandbox.Shell("x")
		cmd.Stdin = readerFunc(func(p []byte) (int, error) { return len(p), nil })
		start := time.Now()
		_, err := sb.Exec(t.Context(), cmd)
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// A server answers no ping while the input before it waits for the command to take it.
func TestACommandThatIsSlowToTakeItsInputIsNotSilent(t *testing.T) {
	const input = 1 << 20 // more than the connection holds
	for _, c := range []struct {
		waits time.Duration
		fine  bool
	}{{90 * time.Second, true}, {14 * time.Minute, true}, {time.Hour, false}} {
		var got int
		withCommands(t, func(s *session) {
			time.Sleep(c.waits)
			_, rest, _ := s.stdin()
			got = len(rest)
			s.ends(success)
		}, func(t *testing.T, sb sandbox.Sandbox, _ func() []string) {
			cmd := sandbox.Shell("sleep 90; cat >/f")
			cmd.Stdin = strings.NewReader(strings.Repeat("x", input))
			start := time.Now()
			res, err := sb.Exec(t.Context(), cmd)
			if c.fine {
				require.NoError(t, err, "%v", c.waits)
				assert.Zero(t, res.ExitCode)
				assert.Equal(t, input, got)
				return
			}
			require.ErrorIs(t, err, httpapi.ErrSilent)
			assert.Less(t, time.Since(start), 20*time.Minute)
		})
	}
}

func TestATimeoutAndACallersLeavingKill(t *testing.T) {
	hang := func(s *session) {
		s.frame(1, "some")
		_, _ = io.Copy(io.Discard, s)
	}
	withCommands(t, hang, func(t *testing.T, sb sandbox.Sandbox, ran func() []string) {
		cmd := sandbox.Shell("x")
		cmd.Timeout = 5 * time.Second
		start := time.Now()
		res, err := sb.Exec(t.Context(), cmd)
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
		assert.Equal(t, -1, res.ExitCode)
		assert.Equal(t, "some", string(res.Stdout))
		assert.InDelta(t, 5, time.Since(start).Seconds(), 1.5)
		assert.Equal(t, "kill", ran()[1])
	})
	withCommands(t, hang, func(t *testing.T, sb sandbox.Sandbox, ran func() []string) {
		left := errors.New("left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(left) })
		start := time.Now()
		_, err := sb.Exec(ctx, sandbox.Shell("x"))
		require.ErrorIs(t, err, left)
		assert.Equal(t, time.Second, time.Since(start))
		time.Sleep(time.Second)
		assert.Equal(t, "kill", ran()[1])
	})
}

func TestACommandThatCannotBeginSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		look   func(int, *http.Request) answer
		kind   error
		says   string
	}{
		"an old API server":     {answer{status: 403}, shows(0, jobOf(), podOf()), nil, "from Kubernetes 1.30 on"},
		"no right":              {failure(403, "Forbidden"), shows(0, jobOf(), podOf()), sandbox.ErrPermission, ""},
		"the pod is gone":       {failure(404, "NotFound"), shows(0, nil), sandbox.ErrNotFound, ""},
		"the pod is going":      {failure(500, "InternalError"), shows(0, jobOf(set(stamp(0), "metadata", "deletionTimestamp")), podOf()), sandbox.ErrConflict, "deleted"},
		"the container is gone": {failure(400, "BadRequest"), shows(0, jobOf(), podOf(set("Failed", "status", "phase"))), sandbox.ErrConflict, ""},
		"no upgrade":            {answer{status: 200, body: "{}"}, shows(0, jobOf(), podOf()), nil, ""},
	} {
		first := true
		withStub(t, nil, func(n int, r *http.Request) answer {
			switch {
			case strings.HasSuffix(r.URL.Path, "/exec"):
				first = false
				return c.answer
			case first:
				return shows(0, jobOf(), podOf())(n, r)
			}
			return c.look(n, r)
		}, func(t *testing.T, s *stub) {
			_, err := s.p.Open(sandbox.Info{ID: boxID}).Exec(t.Context(), sandbox.Shell("x"))
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%s: %v", name, err)
			assert.Equal(t, c.kind, e.Kind, "%s: %v", name, err)
			assert.ErrorContains(t, err, c.says, name)
			time.Sleep(2 * time.Minute) // what would kill the command gives up
		})
	}
}

// Whatever comes on a command's stream, it ends, and only the server's word for it is an exit code.
func FuzzStream(f *testing.F) {
	frames := func(messages ...string) []byte {
		var b []byte
		for _, m := range messages {
			b = append(append(b, 0x82, byte(len(m))), m...)
		}
		return b
	}
	f.Add(frames("", "\x01out", "\x02err", "\x03"+success))
	f.Add(frames("\x01out", `{"status":"Success"}`))
	f.Add(append(frames("\x07?"), 0x88, 2, 3, 0xe8))
	f.Add(frames("\x03" + `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		withCommands(t, func(s *session) {
			_, _, _ = s.stdin()
			_, _ = s.conn.Write(b)
		}, func(t *testing.T, sb sandbox.Sandbox, _ func() []string) {
			res, err := sb.Exec(t.Context(), sandbox.Shell("x"))
			assert.LessOrEqual(t, len(res.Stdout)+len(res.Stderr), len(b))
			if err == nil {
				assert.True(t, bytes.Contains(b, []byte("Success")) || bytes.Contains(b, []byte("NonZeroExitCode")) || bytes.Contains(b, []byte(`\u`)), "%q", b)
				assert.GreaterOrEqual(t, res.ExitCode, 0)
			}
		})
	})
}
