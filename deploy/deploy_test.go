package deploy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"mvdan.cc/sh/v3/syntax"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

// files are all that is to be used: each one has a test, and a line in the README.
func files(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*/*", "Dockerfile"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		names = append(names, found...)
	}
	return names
}

func TestTheReadmeNamesEachFile(t *testing.T) {
	readme := read(t, "README.md")
	all := files(t)
	require.GreaterOrEqual(t, len(all), 7)
	for _, name := range all {
		assert.Contains(t, readme, "("+name+")", "the README has no link to it")
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(readme, -1) {
		_, err := os.Stat(filepath.FromSlash(m[1]))
		assert.NoError(t, err)
	}
}

func TestNoFileHoldsAKey(t *testing.T) {
	// What looks like a value behind a name of a key, and is no reference.
	key := regexp.MustCompile(`[A-Z0-9_]*(KEY|TOKEN|SECRET|PASSWORD|HEADERS)[A-Z0-9_]*"?[ \t]*[=:][ \t]*(\S+)`)
	for _, name := range files(t) {
		for _, m := range key.FindAllStringSubmatch(read(t, name), -1) {
			ok := strings.HasPrefix(m[2], "...") || strings.HasPrefix(m[2], "${{")
			assert.True(t, ok, "%s: %s", name, m[0])
		}
	}
}

// shell returns all calls of the command in a script, with their arguments; what is expanded stands for itself.
func shell(t *testing.T, script string) (calls [][]string) {
	t.Helper()
	f, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(script), "script")
	require.NoError(t, err, script)
	syntax.Walk(f, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		var words []string
		for _, w := range call.Args {
			var b strings.Builder
			require.NoError(t, syntax.NewPrinter().Print(&b, w))
			words = append(words, strings.Trim(b.String(), `"`))
		}
		if i := slices.IndexFunc(words, func(w string) bool { return filepath.Base(w) == "sandglass" }); i >= 0 && i+1 < len(words) {
			calls = append(calls, words[i+1:])
		}
		return true
	})
	return calls
}

// calls are all calls of the command in all files, by file.
func calls(t *testing.T) map[string][][]string {
	t.Helper()
	all := map[string][][]string{
		"kubernetes/cronjob.yaml":         {cronJob(t, "cronjob").Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args},
		"kubernetes/cluster-sweep.yaml":   {cronJob(t, "cluster-sweep").Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args},
		"kubernetes/sweeper.yaml":         {deployment(t, "sweeper").Spec.Template.Spec.Containers[0].Args},
		"systemd/sandglass-sweep.service": shell(t, option(t, "systemd/sandglass-sweep.service", "Service", "ExecStart")),
	}
	for _, e := range crontab(t) {
		all["cron/sandglass"] = append(all["cron/sandglass"], shell(t, e.command)...)
	}
	for _, script := range scripts(t) {
		all["github/workflow.yml"] = append(all["github/workflow.yml"], shell(t, script)...)
	}
	return all
}

func TestTheCommandKnowsEachCall(t *testing.T) {
	t.Parallel()
	program, err := buildCommand()
	require.NoError(t, err)
	calls := calls(t)
	t.Run("and its flags", func(t *testing.T) {
		flag := regexp.MustCompile(`--[a-z][a-z-]*`)
		n := 0
		for name, calls := range calls {
			assert.NotEmpty(t, calls, name)
			for _, args := range calls {
				help, err := exec.Command(program, args[0], "--help").Output()
				require.NoError(t, err, "%s: sandglass %s --help", name, args[0])
				known := flag.FindAllString(string(help), -1)
				for _, a := range args[1:] {
					if a == "--" {
						break
					}
					if f := flag.FindString(a); f != "" {
						assert.Contains(t, known, f, "%s: sandglass %s", name, strings.Join(args, " "))
						n++
					}
				}
			}
		}
		assert.Greater(t, n, 15)
	})
	// As they stand: nothing is there, so that sweeps are complete, and audits with a canary clean.
	t.Run("and each sweep and audit runs against the emulated service", func(t *testing.T) {
		n := 0
		for name, calls := range calls {
			for _, args := range calls {
				if args[0] != "sweep" && args[0] != "audit" || slices.Contains(args, "kubernetes") { // which has a real cluster
					continue
				}
				n++
				args = slices.Clone(args)
				for i, a := range args {
					if strings.HasPrefix(a, "$") {
						args[i] = "ci-1"
					}
				}
				cmd := exec.Command(program, slices.Concat([]string{"emulate", "e2b", "--", program}, args)...)
				cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir(), "XDG_STATE_HOME="+t.TempDir())
				out, err := cmd.CombinedOutput()
				assert.NoError(t, err, "%s: sandglass %s:\n%s", name, strings.Join(args, " "), out)
			}
		}
		assert.Equal(t, 5, n)
	})
	t.Run("and a sweep tells a collector what the rules ask for", func(t *testing.T) {
		var mu sync.Mutex
		told := map[string]string{} // by path, as it came: names stand in OTLP as they are
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			told[r.URL.Path] += string(body)
		}))
		defer s.Close()
		args := calls["kubernetes/cronjob.yaml"][0]
		cmd := exec.Command(program, slices.Concat([]string{"emulate", "e2b", "--", program}, args)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "OTEL_EXPORTER_OTLP_ENDPOINT="+s.URL, "OTEL_RESOURCE_ATTRIBUTES=service.instance.id=sandglass-sweep")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		mu.Lock()
		defer mu.Unlock()
		for _, name := range []string{"sandglass.sweep.last_success.time", "sandglass.sweep.sandboxes", "sandglass.sandbox.leaks", "sandglass-sweep"} {
			assert.Contains(t, told["/v1/metrics"], name)
		}
		assert.Contains(t, told["/v1/traces"], "sandbox sweep")
	})
}
