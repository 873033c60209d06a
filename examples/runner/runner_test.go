package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/examples/internal/exampletest"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// A bench is a runner in memory.
type bench struct {
	t        *testing.T
	p        *sandboxtest.Provider
	m        *sandbox.Manager
	h        http.Handler
	slots    chan struct{}
	stopping chan struct{}
}

const limit = 10 * time.Minute

func newBench(t *testing.T, tasks int) *bench {
	t.Helper()
	b := &bench{t: t, p: sandboxtest.New(sandbox.Capabilities{}), stopping: make(chan struct{})}
	var err error
	b.m, err = sandbox.NewManager(b.p, sandbox.Config{
		Fleet: "test", CreateTimeout: createTimeout, ReadyTimeout: readyTimeout, Grace: taskGrace, CleanupTimeout: cleanupTimeout,
		Scope: sandbox.Scope{Window: time.Minute, MaxLifetime: limit},
	})
	require.NoError(t, err)
	r := newRunner(b.m, tasks, overdue(limit))
	b.h, b.slots = r.routes(b.stopping), r.slots
	return b
}

// ask returns the status and the text of an answer.
func (b *bench) ask(ctx context.Context, method, path, body string) (int, string) {
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func (b *bench) task(ctx context.Context, script string) (int, answer) {
	code, text := b.ask(ctx, "POST", "/tasks", script)
	var a answer
	assert.NoError(b.t, json.Unmarshal([]byte(text), &a), text)
	return code, a
}

func (b *bench) probe(path string) int {
	code, _ := b.ask(b.t.Context(), "GET", path, "")
	return code
}

func TestATaskIsAnsweredWhenItsSandboxIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		code, a := b.task(t.Context(), "echo out; echo err >&2; exit 3")
		assert.Equal(t, 200, code)
		assert.NotEmpty(t, a.Sandbox)
		a.Sandbox = ""
		assert.Equal(t, answer{ExitCode: 3, Stdout: "out\n", Stderr: "err\n"}, a)
		assert.Empty(t, b.p.Live())
		assert.Len(t, b.p.Calls(sandbox.OpCreate), 1)
	})
}

func TestWhatIsNoTaskMakesNoSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		for _, script := range []string{"", strings.Repeat("#", maxScript+1)} {
			code, a := b.task(t.Context(), script)
			assert.Equal(t, 400, code)
			assert.Equal(t, -1, a.ExitCode)
		}
		code, _ := b.ask(t.Context(), "GET", "/tasks", "")
		assert.Equal(t, 405, code)
		assert.Empty(t, b.p.Calls(sandbox.OpCreate))
	})
}

func TestATaskForWhichThereIsNoSlotIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		for range 2 {
			go b.task(t.Context(), "sleep 60")
		}
		synctest.Wait()
		began := time.Now()
		code, a := b.task(t.Context(), "true")
		assert.Equal(t, 429, code)
		assert.NotEmpty(t, a.Error)
		assert.Zero(t, time.Since(began))
		time.Sleep(2 * time.Minute)
		code, _ = b.task(t.Context(), "true")
		assert.Equal(t, 200, code, "once there is one again")
	})
}

func TestAnUploadThatNeverEndsHoldsASlotAndAConnectionForHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		n := memnet.New()
		l, err := n.Listen("runner:80")
		require.NoError(t, err)
		s := server(b.h)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		defer func() {
			assert.NoError(t, s.Close())
			assert.ErrorIs(t, <-served, http.ErrServerClosed)
			n.Close()
		}()
		var clients []net.Conn
		for range 8 {
			c, err := n.DialContext(t.Context(), "tcp", "runner:80")
			require.NoError(t, err)
			defer c.Close()
			clients = append(clients, c)
			_, err = io.WriteString(c, "POST /tasks HTTP/1.1\r\nHost: runner\r\nContent-Length: 100000\r\n\r\necho")
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Len(t, b.slots, 1)
		time.Sleep(readTimeout)
		synctest.Wait()
		assert.Empty(t, b.slots)
		for _, c := range clients {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
			_, err := io.ReadAll(c)
			assert.NoError(t, err, "it was answered, and closed")
		}

		began := time.Now()
		client := n.Client()
		defer client.CloseIdleConnections()
		res, err := client.Post("http://runner/tasks", "", strings.NewReader("sleep 120; echo done"))
		require.NoError(t, err)
		defer res.Body.Close()
		var a answer
		require.NoError(t, json.NewDecoder(res.Body).Decode(&a))
		assert.Equal(t, 200, res.StatusCode, "a task may take longer than its upload: %s", a.Error)
		assert.Equal(t, "done\n", a.Stdout)
		assert.GreaterOrEqual(t, time.Since(began), 2*time.Minute)
	})
}

func TestWhoLeavesTakesHisSandboxWithHim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Second, leave)
		code, a := b.task(ctx, "sleep 600")
		assert.Equal(t, 502, code, a.Error)
		assert.Empty(t, b.p.Live())
	})
}

func TestATaskThatTakesTooLongIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		began := time.Now()
		code, a := b.task(t.Context(), "sleep 3600")
		assert.Equal(t, 504, code, a.Error)
		assert.InDelta(t, limit, time.Since(began), float64(time.Minute))
		assert.Empty(t, b.p.Live())
	})
}

func TestTheProbesSayWhetherTasksComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 3)
		assert.Equal(t, 200, b.probe("/livez"))
		// A call that its own limit does not end: this program's fault, or ours.
		b.p.Fault(sandbox.OpExec, sandboxtest.Fault{Hang: true, Deaf: true})
		over := make(chan struct{})
		go func() { defer close(over); b.task(t.Context(), "true") }()
		time.Sleep(overdue(limit) - time.Second)
		assert.Equal(t, 200, b.probe("/livez"), "it may still come back")
		assert.Empty(t, b.p.Live(), "the sandbox has ended long ago")
		time.Sleep(2 * time.Second)
		assert.Equal(t, 500, b.probe("/livez"))
		assert.Equal(t, 200, b.probe("/readyz"), "others may yet be served until the restart")
		b.p.Heal()
		<-over
		assert.Equal(t, 200, b.probe("/livez"))
	})
}

func TestAServiceThatDoesNotAnswerIsNoReasonForARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
		over := make(chan int, 1)
		go func() { code, _ := b.task(t.Context(), "true"); over <- code }()
		for len(over) == 0 {
			assert.Equal(t, 200, b.probe("/livez"))
			time.Sleep(time.Second)
		}
		assert.Equal(t, 502, <-over)
	})
}

func TestAShutdownRefusesTasksAndEndsThoseUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		codes := make(chan int, 1)
		go func() { code, _ := b.task(t.Context(), "sleep 600"); codes <- code }()
		time.Sleep(30 * time.Second)
		assert.Equal(t, 200, b.probe("/readyz"))
		close(b.stopping)
		assert.Equal(t, 503, b.probe("/readyz"))
		assert.Equal(t, 200, b.probe("/livez"), "to be killed now would leave more")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, b.m.Shutdown(ctx))
		assert.Equal(t, 503, <-codes)
		code, a := b.task(t.Context(), "true")
		assert.Equal(t, 503, code, a.Error)
		assert.Empty(t, b.p.Live())
	})
}

// kubeconfig writes one, and returns its name.
func kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kube.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "u", "user": {"token": "t"}}]}`), 0o600))
	return file
}

func TestALeaseOutsideOfTheClusterIsNeverShorterThanTheWindow(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", kubeconfig(t))
	for window, want := range map[time.Duration]time.Duration{
		15 * time.Second: time.Minute,
		time.Minute:      time.Minute,
		10 * time.Minute: 10 * time.Minute, // with a beat of 200 s a Lease of a minute would say for most of it that nobody lives
	} {
		cfg, err := config(window)
		require.NoError(t, err)
		assert.Equal(t, want, cfg.Owner.Lease, window)
	}
}

func TestAKubeconfigGoesBeforeThePodAndANamedNamespaceBeforeBoth(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "2")
	t.Setenv("KUBECONFIG", kubeconfig(t))
	t.Setenv("SANDGLASS_NAMESPACE", "")
	cfg, err := config(time.Minute)
	require.NoError(t, err)
	assert.Equal(t, "https://127.0.0.1:1", cfg.BaseURL)
	assert.Equal(t, "default", cfg.Namespace)
	assert.False(t, cfg.Owner.Reference, "this pod is none of that cluster's")
	t.Setenv("SANDGLASS_NAMESPACE", "agents")
	cfg, err = config(time.Minute)
	require.NoError(t, err)
	assert.Equal(t, "agents", cfg.Namespace)
}

func TestTheProgramSaysWhatItLacks(t *testing.T) {
	file := kubeconfig(t)
	for name, tt := range map[string]struct {
		args, env []string
		code      int
		want      string
	}{
		"a cluster":            {args: []string{"-fleet", "f"}, code: 2, want: "KUBECONFIG"},
		"a fleet":              {env: []string{"KUBECONFIG=" + file}, code: 2, want: `fleet ""`},
		"slots":                {args: []string{"-fleet", "f", "-tasks", "0"}, env: []string{"KUBECONFIG=" + file}, code: 2, want: "0 tasks"},
		"a user who is nobody": {args: []string{"-fleet", "f", "-user", "0"}, env: []string{"KUBECONFIG=" + file}, code: 2, want: "user 0"},
		"a service account": {
			args: []string{"-fleet", "f"}, env: []string{"KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=1"}, code: 2, want: "service account",
		},
		"an API server": {args: []string{"-fleet", "f"}, env: []string{"KUBECONFIG=" + file}, code: 1, want: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exampletest.Command(ctx, t, append([]string{"-listen", "127.0.0.1:0"}, tt.args...)...)
			for _, v := range cmd.Env {
				if strings.HasPrefix(v, "KUBE") || strings.HasPrefix(v, "SANDGLASS_NAMESPACE=") {
					continue
				}
				tt.env = append(tt.env, v)
			}
			cmd.Env = tt.env
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			assert.Equal(t, tt.code, cmd.ProcessState.ExitCode(), "%s", out)
			assert.Contains(t, string(out), tt.want)
		})
	}
}
