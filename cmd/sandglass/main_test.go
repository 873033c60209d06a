package main

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// asProgram, in the environment, has the test binary be the program, so that this runs with the race detector too.
const asProgram = "SANDGLASS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// A bench is the program's surroundings: a home of its own, and no account but those of the test.
type bench struct {
	t   *testing.T
	dir string
	env []string
}

// newBench returns surroundings with the given variables, as NAME=value.
func newBench(t *testing.T, env ...string) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{t: t, dir: dir}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		official := strings.HasPrefix(name, "E2B_") || strings.HasPrefix(name, "DAYTONA_") || strings.HasPrefix(name, "VERCEL_") ||
			strings.HasPrefix(name, "BOAT_") || strings.HasPrefix(name, "BOX_") || strings.HasPrefix(name, "DOCKER_") || strings.HasPrefix(name, "MODAL_")
		if !official && !strings.HasPrefix(name, "SANDGLASS_") && !strings.HasPrefix(name, "XDG_") && !strings.HasPrefix(name, "OTEL_") && name != "NO_COLOR" {
			b.env = append(b.env, v)
		}
	}
	b.env = append(b.env, "HOME="+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "XDG_CONFIG_HOME="+filepath.Join(dir, "config"))
	b.env = append(b.env, env...)
	return b
}

// journal is where the program's journal lies by default.
func (b *bench) journal() string { return filepath.Join(b.dir, "state", "sandglass", "journal") }

// spool returns the names of the journal's entries.
func (b *bench) spool() []string {
	names, err := filepath.Glob(filepath.Join(b.journal(), "*"))
	require.NoError(b.t, err)
	return names
}

// configure writes the configuration file.
func (b *bench) configure(text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, "config", "sandglass", "config.json")
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(b.t, os.WriteFile(path, []byte(text), 0o600))
}

// command returns the program, which is killed if the test takes too long.
func (b *bench) command(ctx context.Context, args ...string) *exec.Cmd {
	b.t.Helper()
	self, err := os.Executable()
	require.NoError(b.t, err)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Dir = b.dir
	cmd.Env = append(append([]string{}, b.env...), asProgram+"=1")
	return cmd
}

// A result is what a run of the program came to.
type result struct {
	stdout, stderr string
	code           int
}

// run runs the program to its end.
func (b *bench) run(args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := b.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NoError(b.t, ctx.Err(), "sandglass %v did not end:\n%s%s", args, &stdout, &stderr)
	if cmd.ProcessState == nil {
		require.NoError(b.t, err)
	}
	b.t.Logf("sandglass %s: exit code %d\n%s%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), &stdout, &stderr)
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// needs returns the path of a program. Without it the test is skipped, or fails if the environment has SANDGLASS_NO_SKIP=1.
func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
	case os.Getenv("SANDGLASS_NO_SKIP") == "1":
		t.Fatalf("there is no %s", program)
	default:
		t.Skipf("there is no %s", program)
	}
	return path
}

// engine returns the Docker engine of the environment and the variable that names it. Without one the test is skipped, or
// fails if the environment has SANDGLASS_NO_SKIP=1.
func engine(t *testing.T) (sandbox.Provider, string) {
	t.Helper()
	p, err := docker.FromEnv()
	if err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err = p.Check(ctx)
		cancel()
	}
	switch {
	case err == nil:
		return p, "DOCKER_HOST=" + os.Getenv("DOCKER_HOST")
	case os.Getenv("SANDGLASS_NO_SKIP") == "1":
		t.Fatalf("no Docker engine: %v", err)
	default:
		t.Skipf("no Docker engine: %v", err)
	}
	return nil, ""
}

// left returns what a provider still has of a fleet, in any state.
func left(t *testing.T, p sandbox.Provider, fleet string) []sandbox.Info {
	t.Helper()
	var infos []sandbox.Info
	for info, err := range p.List(t.Context(), sandbox.Filter{Fleet: fleet}) {
		require.NoError(t, err)
		if info.Mark.Fleet == fleet && info.State != sandbox.StateGone {
			infos = append(infos, info)
		}
	}
	return infos
}

// requireGone waits until nothing is left of a fleet: a real engine and real processes need real time.
func requireGone(t *testing.T, p sandbox.Provider, fleet string, within time.Duration) {
	t.Helper()
	assert.Eventually(t, func() bool { return len(left(t, p, fleet)) == 0 }, within, 100*time.Millisecond, "of fleet %s", fleet)
}

// emulated is a wire-level E2B, and an adapter with the same key.
type emulated struct {
	fake *e2bfake.Server
	p    *e2b.Provider
	env  []string
}

const fakeKey = "e2b_5afe5afe5afe5afe5afe5afe5afe5afe5afe5afe"

func newE2B(t *testing.T) *emulated {
	t.Helper()
	f := e2bfake.New(e2bfake.Options{})
	f.SetKey(fakeKey)
	s := httptest.NewServer(f)
	p, err := e2b.New(e2b.Config{APIKey: fakeKey, APIURL: s.URL, SandboxURL: s.URL})
	require.NoError(t, err)
	t.Cleanup(func() {
		p.CloseIdle()
		s.Close()
		f.Close()
	})
	return &emulated{fake: f, p: p, env: []string{"E2B_API_KEY=" + fakeKey, "E2B_API_URL=" + s.URL, "E2B_SANDBOX_URL=" + s.URL}}
}

// make makes a marked sandbox that nobody owns, with a lease of an hour.
func (e *emulated) make(t *testing.T, fleet, owner, nonce string, life time.Duration, tags map[string]string) string {
	t.Helper()
	info, err := e.p.Create(t.Context(), sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: fleet, Owner: owner, Nonce: strings.Repeat(nonce, 16), Created: time.Now().UTC().Truncate(time.Second), Lifetime: life,
		},
		Tags: tags, Spec: sandbox.Spec{Image: "base"}, Window: time.Hour,
	})
	require.NoError(t, err)
	return info.ID
}

// forget pauses a sandbox: no lease runs on it any more, and nothing will ever end it.
func (e *emulated) forget(t *testing.T, id string) {
	t.Helper()
	require.True(t, e.fake.Service().Pause(e.fake.ServiceID(id)))
}

// deletes counts the requests that delete.
func (e *emulated) deletes() (n int) {
	for _, r := range e.fake.Requests() {
		if r.Method == "DELETE" {
			n++
		}
	}
	return n
}

// A watcher collects what a process writes, for a test that waits for some of it.
type watcher struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

func (w *watcher) await(t *testing.T, text string) {
	t.Helper()
	if !assert.Eventually(t, func() bool { return strings.Contains(w.String(), text) }, time.Minute, 20*time.Millisecond) {
		t.Fatalf("no %q in:\n%s", text, w)
	}
}

// denied is what a service answers to a key that may not.
func denied() fake.Fault {
	return fake.Fault{Err: &sandbox.APIError{Status: 403, Kind: sandbox.ErrPermission, Message: "may not"}, Times: -1}
}
