// Package sdkcheck_test has the providers' official SDKs live an ordinary life against our fakes, and compares what
// they report with what the fakes know. A fake that the official client does not accept is wrong.
package sdkcheck_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An sdk is a program that drives one SDK.
type sdk struct {
	t       *testing.T
	orders  io.Writer
	answers *json.Decoder
}

// A fault is an error as the SDK's user sees it.
type fault struct {
	Class, Message string
	Code           string // the service's word, where the SDK hands it on
	StatusCode     int
	ExitCode       int
	Stdout, Stderr string
}

// start runs program with the SDK that package.json knows by name, and with next to no environment. It ends with the
// test, which fails if the SDK tried to reach anything but 127.0.0.1. Without node or the SDKs the test is skipped.
func start(t *testing.T, program, name string) *sdk {
	t.Helper()
	here := installed(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // it outlives the test's own context
	cmd := exec.CommandContext(ctx, "node", "--require", filepath.Join(here, "loopback.cjs"), filepath.Join(here, program), name)
	cmd.Dir = t.TempDir() // the SDKs read .env files where they run
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir}
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	s := &sdk{t, stdin, json.NewDecoder(stdout)}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		defer cancel()
		assert.Empty(t, ask[[]string](s, "strays"), "what the SDK tried to reach beyond 127.0.0.1")
		assert.NoError(t, stdin.Close())
		assert.NoError(t, cmd.Wait())
	})
	return s
}

// oldestNode is the oldest major version of node on which all of the SDKs run.
const oldestNode = 20

// in returns the same program for a subtest, which has it look for its service where env says.
func (s *sdk) in(t *testing.T, env options) *sdk {
	t.Helper()
	in := &sdk{t, s.orders, s.answers}
	in.must("open", env)
	return in
}

// installed returns this folder if all is there that the SDKs need.
func installed(t *testing.T) string {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("SANDGLASS_NO_SKIP") == "1" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	node, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		missing("no node, which runs the official SDKs: %v", err)
	}
	var major int
	if _, err := fmt.Sscanf(string(node), "v%d.", &major); err != nil || major < oldestNode {
		missing("node %s is too old for the official SDKs, which want %d", bytes.TrimSpace(node), oldestNode)
	}
	if _, err := os.Stat("node_modules"); err != nil {
		missing("no official SDKs in sdkcheck/node_modules: make sdkcheck installs them")
	}
	for name, want := range pinned(t) {
		raw, err := os.ReadFile(filepath.Join("node_modules", name, "package.json"))
		require.NoError(t, err, "make sdkcheck installs what package.json asks for")
		var is struct{ Version string }
		require.NoError(t, json.Unmarshal(raw, &is))
		require.Equal(t, version(want), is.Version, "%s: make sdkcheck installs what package.json asks for", name)
	}
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	return here
}

// pinned returns the SDKs that package.json asks for and their versions.
func pinned(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("package.json")
	require.NoError(t, err)
	var asked struct{ Dependencies map[string]string }
	require.NoError(t, json.Unmarshal(raw, &asked))
	return asked.Dependencies
}

// version returns the version of a dependency, which may go by another name than its own.
func version(dependency string) string { return dependency[strings.LastIndex(dependency, "@")+1:] }

// options are named arguments.
type options map[string]any

func (o options) with(name string, value any) options {
	o = maps.Clone(o)
	o[name] = value
	return o
}

func (s *sdk) do(action string, args ...any) (json.RawMessage, *fault) {
	s.t.Helper()
	order, err := json.Marshal(append([]any{action}, args...))
	require.NoError(s.t, err)
	_, err = s.orders.Write(append(order, '\n'))
	require.NoError(s.t, err, "the program has ended")
	var answer struct {
		Value json.RawMessage
		Error *fault
	}
	require.NoError(s.t, s.answers.Decode(&answer), "%s: the program has ended", action)
	return answer.Value, answer.Error
}

// ask has the SDK do something that succeeds, and returns what it reports.
func ask[T any](s *sdk, action string, args ...any) T {
	s.t.Helper()
	raw, failed := s.do(action, args...)
	require.Nil(s.t, failed, "%s%v", action, args)
	var got T
	require.NoError(s.t, json.Unmarshal(raw, &got), "%s: %s", action, raw)
	return got
}

// must has the SDK do something that succeeds and reports nothing of interest.
func (s *sdk) must(action string, args ...any) {
	s.t.Helper()
	ask[any](s, action, args...)
}

// fails has the SDK do something that fails with an error of class.
func (s *sdk) fails(class, action string, args ...any) fault {
	s.t.Helper()
	raw, failed := s.do(action, args...)
	require.NotNil(s.t, failed, "%s%v reports %s", action, args, raw)
	require.Equal(s.t, class, failed.Class, "%s%v: %s", action, args, failed.Message)
	return *failed
}

// A wire is a fake on a port of 127.0.0.1, with a record of what it was asked.
type wire struct {
	URL string

	mu    sync.Mutex
	calls []string // method and path
}

func serve(t *testing.T, fake http.Handler) *wire {
	t.Helper()
	w := &wire{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.calls = append(w.calls, r.Method+" "+r.URL.Path)
		w.mu.Unlock()
		fake.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	w.URL = server.URL
	return w
}

// since runs f and returns what was asked meanwhile.
func (w *wire) since(f func()) []string {
	w.mu.Lock()
	before := len(w.calls)
	w.mu.Unlock()
	f()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls[before:])
}

func TestVersionsArePinnedAndTheLockFileNamesNoAddress(t *testing.T) {
	lock, err := os.ReadFile("package-lock.json")
	require.NoError(t, err)
	var locked struct {
		Packages map[string]struct{ Version, Resolved, Integrity string }
	}
	require.NoError(t, json.Unmarshal(lock, &locked))
	for name, want := range pinned(t) {
		assert.Regexp(t, `^(npm:[^@]+@)?\d+\.\d+\.\d+$`, want, name)
		assert.Equal(t, locked.Packages["node_modules/"+name].Version, version(want), name)
	}
	for path, p := range locked.Packages {
		assert.Empty(t, p.Resolved, path)
		assert.True(t, path == "" || strings.HasPrefix(p.Integrity, "sha512-"), "%s is not held to a hash", path)
	}
}

func TestNothingBut127001IsReached(t *testing.T) {
	here := installed(t)
	for _, try := range []string{
		`fetch('http://127.0.0.2:12345')`,
		`fetch('http://[::1]:12345')`,
		`fetch('http://sandglass.invalid')`,
		`fetch('https://sandglass.invalid')`,
		`new Promise((_, no) => require('node:net').connect('/var/run/none.sock').on('error', no))`,
		`new Promise((_, no) => require('node:http').get('http://192.0.2.1').on('error', no))`,
		`require('node:dns').promises.resolve('sandglass.invalid')`,
		`(async () => require('node:dgram').createSocket('udp4').send('x', 9, '127.0.0.1'))()`,
	} {
		script := fmt.Sprintf(`(async () => { try { await %s } catch {} })()
			.then(() => { console.log(globalThis.strays.length); process.exit() })`, try)
		cmd := exec.CommandContext(t.Context(), "node", "--require", filepath.Join(here, "loopback.cjs"), "-e", script)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", try, out)
		assert.Equal(t, "1", strings.TrimSpace(string(out)), try)
	}
}
