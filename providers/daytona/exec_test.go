package daytona_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func newProvider(base string, client *http.Client) (*daytona.Provider, error) {
	return daytona.New(daytona.Config{APIKey: key, BaseURL: base, HTTP: client})
}

const chatter = `for i in 1 2 3 4 5; do printf "out $i\0"; echo "err $i" >&2; sleep 1; done; exit 9`

func said() (out, err string) {
	for i := range 5 {
		out += fmt.Sprintf("out %d\x00", i+1)
		err += fmt.Sprintf("err %d\n", i+1)
	}
	return out, err
}

func TestALogThatBreaksOffAtAnyByteIsReadOnAndTheCommandRunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(t, request(24*time.Hour))
		sb := w.p.Open(info)
		wantOut, wantErr := said()
		for after := int64(0); after < 700; after += 11 {
			from := len(w.Requests())
			// Of a command's exchanges the third one is the log.
			heal := w.net.Break(memnet.Fault{Kind: memnet.Cut, Skip: 2, Times: 1, After: after})
			var out, err bytes.Buffer
			cmd := sandbox.Shell(chatter)
			cmd.Stdout, cmd.Stderr = &out, &err
			res, failed := sb.Exec(t.Context(), cmd)
			heal()
			require.NoError(t, failed, "after %d bytes", after)
			assert.Equal(t, 9, res.ExitCode)
			assert.Equal(t, wantOut, out.String(), "after %d bytes", after)
			assert.Equal(t, wantErr, err.String(), "after %d bytes", after)
			assert.Equal(t, wantOut, string(res.Stdout))
			time.Sleep(time.Second)
			assert.Equal(t, 1, w.count(from, http.MethodPost, "/exec"))
			assert.Equal(t, 1, w.count(from, http.MethodDelete, "/process/session/"))
		}
	})
}

func TestALogThatFallsSilentIsReadOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(t, request(24*time.Hour)))
		for _, kind := range []memnet.Kind{memnet.Hang, memnet.Swallow} {
			time.Sleep(time.Second) // the last command's end is no exchange of the next one
			heal := w.net.Break(memnet.Fault{Kind: kind, Skip: 2, Times: 1})
			res, err := sb.Exec(t.Context(), sandbox.Shell(chatter))
			heal()
			require.NoError(t, err)
			assert.Equal(t, 9, res.ExitCode)
			wantOut, _ := said()
			assert.Equal(t, wantOut, string(res.Stdout))
		}
		began := time.Now()
		res, err := sb.Exec(t.Context(), sandbox.Shell("sleep 5400; echo awake"))
		require.NoError(t, err, "silence of a command is none of its log's")
		assert.Equal(t, "awake\n", string(res.Stdout))
		assert.InDelta(t, 5400, time.Since(began).Seconds(), 5)
	})
}

func TestACommandOutlivesAnOutageAndItsOutputIsWhole(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(t, request(24*time.Hour)))
		wantOut, wantErr := said()
		for name, outage := range map[string]func() (heal func()){
			"parted": func() func() { return w.net.Break(memnet.Fault{Kind: memnet.Partition}) },
			"refused": func() func() {
				cut := w.net.Break(memnet.Fault{Kind: memnet.Cut, Times: 1})
				refuse := w.net.Break(memnet.Fault{Kind: memnet.Refuse})
				return func() { cut(); refuse() }
			},
			"down": func() func() {
				w.Quirk(func(q *daytonafake.Quirks) { q.DaemonDead = true })
				return func() { w.Quirk(func(q *daytonafake.Quirks) { q.DaemonDead = false }) }
			},
		} {
			go func() {
				time.Sleep(2500 * time.Millisecond)
				heal := outage()
				time.Sleep(90 * time.Second)
				heal()
			}()
			res, err := sb.Exec(t.Context(), sandbox.Shell(chatter))
			require.NoError(t, err, name)
			assert.Equal(t, 9, res.ExitCode, name)
			assert.Equal(t, wantOut, string(res.Stdout), name)
			assert.Equal(t, wantErr, string(res.Stderr), name)
			time.Sleep(5 * time.Minute)
		}
	})
}

func TestALogInSmallestMessagesIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Quirk(func(q *daytonafake.Quirks) { q.FrameSize = 1 })
		res, err := w.p.Open(w.make(t, request(time.Hour))).Exec(t.Context(), sandbox.Shell(chatter))
		require.NoError(t, err)
		wantOut, wantErr := said()
		assert.Equal(t, wantOut, string(res.Stdout))
		assert.Equal(t, wantErr, string(res.Stderr))
	})
}

func TestACommandWhoseStartWasNotAnsweredIsKilled(t *testing.T) {
	for _, operation := range []string{"CreateSession", "SessionExecuteCommand"} {
		t.Run(operation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				sb := w.p.Open(w.make(t, request(time.Hour)))
				w.Fault(operation, daytonafake.Fault{After: true, Drop: true})
				from := len(w.Requests())
				_, err := sb.Exec(t.Context(), sandbox.Shell("sleep 1000"))
				e, ok := errors.AsType[*sandbox.APIError](err)
				require.True(t, ok, "%v", err)
				assert.False(t, e.Refused)
				assert.Equal(t, sandbox.OpExec, e.Op)
				time.Sleep(5 * time.Second)
				assert.Equal(t, 1, w.count(from, http.MethodDelete, "/process/session/"))
				assert.LessOrEqual(t, w.count(from, http.MethodPost, "/exec"), 1)
			})
		})
	}
}

func TestAKillThatFailsIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(t, request(time.Hour)))
		w.Fault("DeleteSession", daytonafake.Fault{Status: 500, Times: 3})
		cmd := sandbox.Shell("echo begun; sleep 1000")
		cmd.Timeout = 3 * time.Second
		res, err := sb.Exec(t.Context(), cmd)
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
		assert.Equal(t, "begun\n", string(res.Stdout))

		w.Fault("DeleteSession", daytonafake.Fault{Status: 500, Times: -1})
		began := time.Now()
		res, err = sb.Exec(t.Context(), cmd)
		require.Error(t, err, "it may still run")
		assert.True(t, res.TimedOut)
		assert.Less(t, time.Since(began), time.Minute)
		w.Heal()
	})
}

func TestACommandInAnImageWithoutTheToolsSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		req := request(time.Hour)
		req.Spec.Env = map[string]string{"PATH": "/nowhere"}
		_, err := w.p.Open(w.make(t, req)).Exec(t.Context(), sandbox.Shell("true"))
		require.Error(t, err)
		assert.ErrorContains(t, err, "the image needs sh, dd and base64")
	})
}

func TestACommandForASandboxThatDoesNotRunSaysWhy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(t, request(time.Hour))
		sb := w.p.Open(info)
		require.NoError(t, w.p.Delete(t.Context(), info.ID))
		_, err := sb.Exec(t.Context(), sandbox.Shell("true"))
		require.ErrorIs(t, err, sandbox.ErrConflict)
		time.Sleep(10 * time.Second)
		_, err = sb.Exec(t.Context(), sandbox.Shell("true"))
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		require.ErrorIs(t, sb.Download(t.Context(), "/etc/passwd", io.Discard), sandbox.ErrNotFound)
		require.NotErrorIs(t, sb.Download(t.Context(), "/etc/passwd", io.Discard), fs.ErrNotExist)
		require.ErrorIs(t, sb.Upload(t.Context(), "/tmp/x", strings.NewReader("x")), sandbox.ErrNotFound)
	})
}

func TestADownloadThatBreaksOffIsNoSuccess(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(t, request(time.Hour)))
		data := bytes.Repeat([]byte("0123456789"), 1000)
		require.NoError(t, sb.Upload(t.Context(), "/tmp/x", bytes.NewReader(data)))
		for _, cut := range []int{1, 5000, 9999} {
			w.Fault("DownloadFile", daytonafake.Fault{Cut: cut})
			var out bytes.Buffer
			err := sb.Download(t.Context(), "/tmp/x", &out)
			require.Error(t, err)
			require.NotErrorIs(t, err, fs.ErrNotExist)
			assert.True(t, bytes.HasPrefix(data, out.Bytes()))
		}
		w.Fault("DownloadFile", daytonafake.Fault{Hang: true})
		began := time.Now()
		require.ErrorIs(t, sb.Download(t.Context(), "/tmp/x", io.Discard), sandbox.ErrUnavailable)
		assert.Less(t, time.Since(began), 2*time.Minute)
		w.Heal()
	})
}

func TestAnUploadThatIsNotTakenIsNoSuccess(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(t, request(time.Hour)))
		w.Fault("UploadFile", daytonafake.Fault{Status: 500})
		require.Error(t, sb.Upload(t.Context(), "/tmp/x", strings.NewReader("x")))
		w.Fault("UploadFile", daytonafake.Fault{Drop: true})
		require.ErrorIs(t, sb.Upload(t.Context(), "/tmp/x", strings.NewReader("x")), sandbox.ErrUnavailable)
		broken := errors.New("broken")
		err := sb.Upload(t.Context(), "/tmp/x", io.MultiReader(strings.NewReader("x"), errReader{broken}))
		require.ErrorIs(t, err, broken)
		require.ErrorIs(t, sb.Download(t.Context(), "/tmp/x", io.Discard), fs.ErrNotExist, "nothing of it is left")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, wr := io.Pipe() // a reader that never brings anything
		defer wr.Close()
		require.ErrorIs(t, sb.Upload(ctx, "/tmp/x", r), context.DeadlineExceeded)
	})
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func TestAUserOtherThanTheSandboxsIsRefused(t *testing.T) {
	p, s := stub(t, func(*http.Request, string) *http.Response { return says(200, madeAs(time.Minute)) })
	cmd := sandbox.Shell("id")
	cmd.User = "root"
	_, err := p.Open(sandbox.Info{ID: uuid}).Exec(t.Context(), cmd)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	assert.Empty(t, s.requests())
}

// A wire is a connection on which the server says something, and then nothing more.
type wire struct {
	io.Reader
	closed chan struct{}
	once   sync.Once
	wrote  atomic.Int64
}

func newWire(said []byte) *wire {
	w := &wire{closed: make(chan struct{})}
	w.Reader = io.MultiReader(bytes.NewReader(said), w.silence())
	return w
}

func (w *wire) silence() io.Reader { return silent(w.closed) }

type silent chan struct{}

func (s silent) Read([]byte) (int, error) {
	<-s
	return 0, io.ErrClosedPipe
}

func (w *wire) Write(p []byte) (int, error) {
	w.wrote.Add(1)
	return len(p), nil
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

func TestALogWhoseServerSaysNothingAtAllIsGivenUpAndReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := append([]byte("\x01\x01\x01@B\n"), logged()...)
		var wires []*wire
		p, s := stub(t, func(r *http.Request, _ string) *http.Response {
			switch {
			case r.Header.Get("Upgrade") != "":
				said := framed(whole, 50)
				if len(wires) < 2 {
					said = framed(whole[:20], 20)
					said = said[:len(said)-4-4] // without the ping and the close
				}
				wires = append(wires, newWire(said))
				sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
				accept := base64.StdEncoding.EncodeToString(sum[:])
				resp := says(101, "", "Upgrade", "websocket", "Connection", "Upgrade", "Sec-Websocket-Accept", accept)
				resp.Body = wires[len(wires)-1]
				return resp
			case strings.HasSuffix(r.URL.Path, "/exec"):
				return says(202, `{"cmdId":"c1"}`)
			case strings.Contains(r.URL.Path, "/command/"):
				return says(200, `{"id":"c1","command":"x"}`)
			case r.Method == http.MethodGet:
				return says(200, madeAs(time.Hour, with("state", "started")))
			}
			return says(204, "")
		})
		began := time.Now()
		res, err := p.Open(sandbox.Info{ID: uuid}).Exec(t.Context(), sandbox.Shell("x"))
		require.NoError(t, err)
		assert.Equal(t, "out\x00 1\n", string(res.Stdout))
		assert.Equal(t, "err", string(res.Stderr))
		assert.Equal(t, 3, res.ExitCode)
		require.Len(t, wires, 3)
		assert.Positive(t, wires[0].wrote.Load(), "pings")
		assert.InDelta(t, 120, time.Since(began).Seconds(), 10)
		time.Sleep(time.Second)
		n := 0
		for _, r := range s.requests() {
			if strings.HasSuffix(r, "/exec") {
				n++
			}
		}
		assert.Equal(t, 1, n)
	})
}
