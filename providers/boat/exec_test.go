package boat_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestACommandMayTakeLongerThanTheServiceWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(request(24 * time.Hour)))
		var seen bytes.Buffer
		began := time.Now()
		res, err := sb.Exec(t.Context(), sandbox.Cmd{
			Args:    []string{"sh", "-c", "for i in 1 2 3 4; do echo $i; sleep 900; done; echo end >&2; exit 7"},
			Timeout: 3 * time.Hour, Stdout: &seen,
		})
		require.NoError(t, err)
		assert.Equal(t, 7, res.ExitCode)
		assert.Equal(t, "1\n2\n3\n4\n", seen.String())
		assert.Equal(t, "end\n", string(res.Stderr))
		assert.InDelta(t, time.Hour.Seconds(), time.Since(began).Seconds(), 5)
		for _, r := range w.Requests() {
			if r.Operation != "command" {
				continue
			}
			var body struct {
				Timeout *int `json:"timeoutSeconds"`
			}
			require.NoError(t, json.Unmarshal(r.Body, &body))
			if body.Timeout != nil {
				assert.True(t, *body.Timeout >= 1 && *body.Timeout <= 600, "%s", r.Body)
			}
		}
	})
}

func TestOutputThatBreaksOffIsReadOnFromThere(t *testing.T) {
	for name, c := range map[string]boatfake.Fault{
		"cut early":        {Cut: 30, Times: 4, Skip: 1},
		"cut in a piece":   {Cut: 5_000, Times: 4, Skip: 1},
		"502":              {Status: 502, Code: "boat_direct_failed", Times: 4, Skip: 1},
		"no answer":        {Drop: true, Times: 4, Skip: 1},
		"other words":      {Body: "{\"type\":\"started\"}\n{\"type\":\"error\",\"error\":\"x\",\"message\":\"y\",\"retryable\":true}\n", Times: 4, Skip: 1},
		"nonsense":         {Body: "\x00\x01 {", Times: 4, Skip: 1},
		"a false end":      {Body: "{\"type\":\"exit\",\"exitCode\":0,\"success\":true,\"timedOut\":false}\n", Times: 4, Skip: 1},
		"the limit":        {Body: "{\"type\":\"exit\",\"exitCode\":143,\"success\":false,\"timedOut\":true}\n", Times: 4, Skip: 1},
		"unknown progress": {Hang: true, Times: 1, Skip: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				sb := w.p.Open(w.make(request(time.Hour)))
				w.Fault("command", c)
				var out bytes.Buffer
				res, err := sb.Exec(t.Context(), sandbox.Cmd{
					Args:    []string{"sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i; done; sleep 20; echo done >&2"},
					Timeout: 10 * time.Minute, Stdout: &out,
				})
				require.NoError(t, err)
				assert.Zero(t, res.ExitCode)
				assert.Equal(t, 2000, strings.Count(out.String(), "\n"))
				assert.True(t, strings.HasSuffix(out.String(), "line 1999\nline 2000\n"))
				assert.Equal(t, out.String(), string(res.Stdout))
				assert.Equal(t, "done\n", string(res.Stderr))
				started := 0
				for _, p := range w.Processes(sb.ID()) {
					if p.Detached {
						started++
					}
				}
				assert.Equal(t, 1, started)
			})
		})
	}
}

func TestOutputThatAlwaysBreaksOffIsAnErrorAndTheCommandIsKilled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(request(time.Hour)))
		w.Fault("command", boatfake.Fault{Status: 502, Code: "boat_direct_failed", Skip: 1, Times: 6})
		_, err := sb.Exec(t.Context(), sandbox.Shell("sleep 3000"))
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		time.Sleep(time.Minute)
		for _, p := range w.Processes(sb.ID()) {
			assert.False(t, p.Running && p.Detached)
		}
	})
}

func TestATimeoutKillsWhatRunsAsRootToo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(request(time.Hour)))
		res, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sleep", "600"}, User: "root", Timeout: 5 * time.Second})
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
		time.Sleep(time.Second)
		for _, p := range w.Processes(sb.ID()) {
			assert.False(t, p.Running && p.Detached)
		}
	})
}

func TestAShellThatIsKilledFromInsideIsNoExitCode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(request(time.Hour)))
		done := make(chan error, 1)
		go func() {
			_, err := sb.Exec(t.Context(), sandbox.Shell("echo begun; sleep 3000"))
			done <- err
		}()
		time.Sleep(10 * time.Second)
		w.KillProcesses(sb.ID(), func(p boatfake.Process) bool { return p.Detached })
		time.Sleep(15 * time.Minute)
		select {
		case err := <-done:
			require.ErrorContains(t, err, "what became of it is not known")
		default:
			t.Error("Exec waits for what has ended")
			w.Close()
			<-done
		}
	})
}

func TestACommandEndsWithItsSandbox(t *testing.T) {
	for _, how := range []boatfake.DeadStream{boatfake.StreamTells, boatfake.StreamCut, boatfake.StreamEnds, boatfake.StreamHangs} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.Change(func(q *boatfake.Quirks) { q.DeadStreams = how })
				info := w.make(request(time.Hour))
				sb := w.p.Open(info)
				time.AfterFunc(10*time.Second, func() { w.Service().Pause(boatfake.MachineID(info.ID)) })
				began := time.Now()
				_, err := sb.Exec(t.Context(), sandbox.Shell("sleep 3000"))
				require.Error(t, err)
				require.ErrorIs(t, err, sandbox.ErrConflict)
				assert.Less(t, time.Since(began), 2*time.Minute)
				_, err = sb.Exec(t.Context(), sandbox.Shell("true"))
				require.ErrorIs(t, err, sandbox.ErrConflict)
				assert.True(t, apiError(t, err).Refused)
				assert.Equal(t, sandbox.StateDormant, w.state(info.ID), "no command wakes it")
				require.NoError(t, w.p.Delete(t.Context(), info.ID))
				_, err = sb.Exec(t.Context(), sandbox.Shell("true"))
				require.ErrorIs(t, err, sandbox.ErrNotFound)
			})
		})
	}
}

func TestFilesOfCommandsAreRemovedByTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(request(time.Hour)))
		for range 5 {
			_, err := sb.Exec(t.Context(), sandbox.Shell("echo x"))
			require.NoError(t, err)
		}
		res, err := sb.Exec(t.Context(), sandbox.Shell("ls -d /tmp/sandglass-*"))
		require.NoError(t, err)
		assert.Len(t, strings.Fields(string(res.Stdout)), 1, "its own")
	})
}

func TestACommandMayRunAsAnotherUserWithItsVariables(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		req := request(time.Hour)
		req.Spec.Env = map[string]string{"A": "spec", "odd.name": "it's"}
		sb := w.p.Open(w.make(req))
		res, err := sb.Exec(t.Context(), sandbox.Cmd{
			Args: []string{"sh", "-c", `id -un; printf '%s\n' "$A" "$B"`}, Env: map[string]string{"B": "cmd"}, User: "root",
		})
		require.NoError(t, err)
		assert.Equal(t, "root\nspec\ncmd\n", string(res.Stdout))
		res, err = sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"printenv", "odd.name"}, User: "root"})
		require.NoError(t, err)
		assert.Equal(t, "it's\n", string(res.Stdout))
		res, err = sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"id"}, User: "nobody-here"})
		require.NoError(t, err)
		assert.NotZero(t, res.ExitCode)
		_, err = sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"id"}, User: "-i"})
		require.ErrorIs(t, err, sandbox.ErrInvalid)
	})
}

func TestVariablesAndWordsOfACommandAreInNoError(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		req := request(time.Hour)
		req.Spec.Env = map[string]string{"TOKEN": "sesame-4711"}
		sb := w.p.Open(w.make(req))
		w.Fault("writeFile", boatfake.Fault{Status: 400, Code: "invalid_path", Message: "TOKEN=sesame-4711 cannot be written by " + key})
		_, err := sb.Exec(t.Context(), sandbox.Shell("true"))
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "sesame")
		assert.NotContains(t, err.Error(), key)
		w.Fault("command", boatfake.Fault{Status: 500, Message: "bash: sesame-4712 is wrong"})
		_, err = sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"true"}, Env: map[string]string{"X": "sesame-4712"}})
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "sesame")
	})
}

func TestWhatTheSpecSaysIsBroughtInOnceAndOnlyIfThereIsSomething(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		plain := w.p.Open(w.make(request(time.Hour)))
		_, err := plain.Exec(t.Context(), sandbox.Shell("true"))
		require.NoError(t, err)
		assert.Zero(t, w.Count("writeFile"))
		assert.Equal(t, 2, w.Count("command"), "one that starts it and one that tells of it")

		req := request(time.Hour)
		req.Spec.Env, req.Spec.Ports = map[string]string{"A": "1"}, []int{8080}
		sb := w.p.Open(w.make(req))
		for range 3 {
			_, err := sb.Exec(t.Context(), sandbox.Shell("true"))
			require.NoError(t, err)
		}
		_, err = sb.Endpoint(t.Context(), 8080)
		require.NoError(t, err)
		assert.Equal(t, 1, w.Count("writeFile"))
		for _, r := range w.Requests() {
			if r.Operation == "create" {
				assert.NotContains(t, string(r.Body), "env\"", "nothing secret is in a create")
			}
		}
	})
}

func TestAnEndpointIsKnownToAnotherProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		req := request(time.Hour)
		req.Spec.Ports, req.Spec.Native = []int{3000, 8080}, &boat.Options{Public: true}
		info := w.make(req)
		other := w.provider(boat.Config{}).Open(sandbox.Info{ID: info.ID})
		_, err := other.Endpoint(t.Context(), 3000)
		require.ErrorIs(t, err, sandbox.ErrInvalid, "its owner has not used it yet")
		_, err = w.p.Open(info).Exec(t.Context(), sandbox.Shell("true"))
		require.NoError(t, err)
		e, err := other.Endpoint(t.Context(), 3000)
		require.NoError(t, err)
		assert.NotContains(t, e.URL, "_token", "everybody may reach it")
		_, err = other.Endpoint(t.Context(), 3001)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		require.NoError(t, w.p.Delete(t.Context(), info.ID))
		_, err = other.Endpoint(t.Context(), 3000)
		require.ErrorIs(t, err, sandbox.ErrNotFound)
	})
	inBubble(t, func(t *testing.T, w *world) {
		req := request(time.Hour)
		req.Spec.Ports = []int{3000}
		e, err := w.p.Open(w.make(req)).Endpoint(t.Context(), 3000)
		require.NoError(t, err)
		assert.Contains(t, e.URL, "_token=")
	})
}

func TestAReaderThatHangsDoesNotHoldAnUpload(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(request(time.Hour)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, in := io.Pipe()
		began := time.Now()
		require.ErrorIs(t, sb.Upload(ctx, "/tmp/x", r), context.DeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(began))
		_ = in.Close()
	})
}

func TestALargeFileGoesInPiecesAndAnywhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(request(time.Hour)))
		data := bytes.Repeat([]byte("0123456789abcdef"), 9<<20/16)
		require.NoError(t, sb.Upload(t.Context(), "/home/user/deep/er/file", bytes.NewReader(data)))
		assert.Equal(t, 3, w.Count("writeFile"))
		for _, r := range w.Requests() {
			assert.Less(t, len(r.Body), 6<<20, "bounded memory on the other side too")
		}
		var out bytes.Buffer
		require.NoError(t, sb.Download(t.Context(), "/home/user/deep/er/file", &out))
		assert.True(t, bytes.Equal(data, out.Bytes()))
		err := sb.Upload(t.Context(), "/etc/file", strings.NewReader("x"))
		require.Error(t, err, "user may not write there")
		res, err := sb.Exec(t.Context(), sandbox.Shell("ls /tmp | grep -c ^sandglass-; true"))
		require.NoError(t, err)
		assert.Equal(t, "1\n", string(res.Stdout), "pieces are removed; the folder is the command's own")
	})
}

func TestADownloadThatIsCutIsAnError(t *testing.T) {
	frame := func(v map[string]any) string {
		b, _ := json.Marshal(v)
		return string(b) + "\n"
	}
	text := base64.StdEncoding.EncodeToString([]byte("half of it"))
	exit := frame(map[string]any{"type": "exit", "exitCode": 0, "success": true, "timedOut": false})
	for name, body := range map[string]string{
		"no end of the stream": frame(map[string]any{"type": "stdout", "data": text + "\n.\n"}),
		"no end of the file":   frame(map[string]any{"type": "stdout", "data": text + "\n"}) + exit,
		"more after its end":   frame(map[string]any{"type": "stdout", "data": text + "\n.\n" + text + "\n"}) + exit,
		"not base64":           frame(map[string]any{"type": "stdout", "data": "?!\n.\n"}) + exit,
		"its time over":        frame(map[string]any{"type": "exit", "exitCode": 143, "success": false, "timedOut": true}),
		"an exit code":         frame(map[string]any{"type": "stderr", "data": "sh: no"}) + frame(map[string]any{"type": "exit", "exitCode": 1}),
		"no exit code":         frame(map[string]any{"type": "exit"}),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				sb := w.p.Open(w.make(request(time.Hour)))
				w.Fault("command", boatfake.Fault{Body: body, Header: http.Header{"Content-Type": {"application/x-ndjson"}}})
				err := sb.Download(t.Context(), "/tmp/x", io.Discard)
				require.Error(t, err)
				require.NotErrorIs(t, err, sandbox.ErrNotFound)
				_, ok := errors.AsType[*sandbox.APIError](err)
				assert.True(t, ok, "%v", err)
			})
		})
	}
}

func TestACommandThatRemovesItsOwnFilesIsNoExitCode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sb := w.p.Open(w.make(request(time.Hour)))
		began := time.Now()
		_, err := sb.Exec(t.Context(), sandbox.Shell("echo x; rm -rf /tmp/sandglass-*; sleep 60"))
		require.ErrorContains(t, err, "what became of it is not known")
		assert.InDelta(t, 70, time.Since(began).Seconds(), 15)
	})
}
