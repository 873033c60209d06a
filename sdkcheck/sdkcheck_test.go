// Package sdkcheck_test has the providers' official SDKs live an ordinary life against our fakes, and compares what
// they report with what the fakes know. A fake that the official client does not accept is wrong.
package sdkcheck_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sdkcheck/internal/drive"
)

type (
	sdk     = drive.SDK
	fault   = drive.Fault
	options = drive.Options
)

// start runs program with the SDK that package.json knows by name.
func start(t *testing.T, program, name string) *sdk {
	t.Helper()
	return drive.Start(t, ".", program, name)
}

// ask has the SDK do something that succeeds, and returns what it reports.
func ask[T any](s *sdk, action string, args ...any) T {
	s.T.Helper()
	return drive.Ask[T](s, action, args...)
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
	for name, want := range drive.Pinned(t, ".") {
		assert.Regexp(t, `^(npm:[^@]+@)?\d+\.\d+\.\d+$`, want, name)
		assert.Equal(t, locked.Packages["node_modules/"+name].Version, drive.Version(want), name)
	}
	for path, p := range locked.Packages {
		assert.Empty(t, p.Resolved, path)
		assert.True(t, path == "" || strings.HasPrefix(p.Integrity, "sha512-"), "%s is not held to a hash", path)
	}
}

func TestNothingBut127001IsReached(t *testing.T) {
	here := drive.Installed(t, ".")
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
