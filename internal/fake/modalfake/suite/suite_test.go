// Package suite_test runs the tests that Modal's own Go SDK brings along, against modalfake: they are the nearest thing to a
// specification of the service. The lists in testdata say which must pass, which of these may need a second try and why, and why the others are not run.
package suite_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/modal-labs/modal-client/go" // the SDK under test, and what its tests need
	_ "github.com/onsi/gomega"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
)

const sdk = "github.com/modal-labs/modal-client/go"

// cases is one of the lists in testdata.
type cases struct {
	pass []string
	not  map[string]string // reason by name
	race map[string]string // those of pass that a busy machine may fail, with the reason
}

func read(t *testing.T, name string) cases {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	c := cases{not: map[string]string{}, race: map[string]string{}}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rest, not := strings.CutPrefix(line, "- ")
		rest, race := strings.CutPrefix(rest, "~ ")
		test, reason, _ := strings.Cut(rest, " ")
		require.Equal(t, not || race, reason != "", line)
		switch {
		case not:
			c.not[test] = reason
			continue
		case race:
			c.race[test] = reason
		}
		c.pass = append(c.pass, test)
	}
	return c
}

// compile builds the tests of one of the SDK's packages, from the module cache and not into it.
func compile(t *testing.T, args ...string) string {
	t.Helper()
	if testing.Short() {
		skip(t, "-short: building and running the SDK's own tests takes a minute")
	}
	if out, err := command(t, "go", "list", "-deps", "-test", sdk+"/test").CombinedOutput(); err != nil {
		skip(t, "the SDK's module or one that its tests need is not here: %s", out)
	}
	binary := filepath.Join(t.TempDir(), "sdk.test")
	out, err := command(t, "go", append([]string{"test", "-c", "-o", binary}, args...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("SANDGLASS_NO_SKIP") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return cmd
}

// serve has a fake with what the tests expect of Modal's own workspace.
func serve(t *testing.T) (*modalfake.Server, string) {
	t.Helper()
	s := modalfake.New(modalfake.Options{
		Proxies: []string{"libmodal-test-proxy"},
		Secrets: map[string]map[string]string{
			"libmodal-test-secret":                {"a": "1", "b": "2", "c": "hello world"},
			"libmodal-aws-ecr-test":               {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"},
			"libmodal-gcp-artifact-registry-test": {"REGISTRY_USERNAME": "x", "REGISTRY_PASSWORD": "x", "SERVICE_ACCOUNT_JSON": "{}"},
		},
	})
	s.HandleExec(func(_ context.Context, c modalfake.Exec) (int, bool) {
		if !slices.Equal(c.Args, []string{"python", "-c", `print("a" * 1_000_000)`}) {
			return 0, false
		}
		fmt.Fprintln(c.Stdout, strings.Repeat("a", 1_000_000))
		return 0, true
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		assert.NoError(t, <-served)
	})
	return s, "http://" + l.Addr().String()
}

var verdict = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)

// try runs cases against a server and requires that each passes; those that a busy machine may fail, at the second try.
func try(t *testing.T, binary, url string, c cases, names []string, env ...string) {
	t.Helper()
	passed, said := run(t, binary, url, names, env...)
	failed := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(passed, name) })
	for _, name := range failed {
		if c.race[name] != "" {
			t.Logf("%s is run once more, since %s: %s", name, c.race[name], said)
			again, saidAgain := run(t, binary, url, []string{name}, env...)
			passed, said = append(passed, again...), said+saidAgain
		}
	}
	assert.ElementsMatch(t, names, passed, said)
}

// run runs cases and returns those that passed, and what the others had to say.
func run(t *testing.T, binary, url string, names []string, env ...string) (passed []string, said string) {
	t.Helper()
	cmd := command(t, binary, "-test.v", "-test.timeout=5m", "-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Env, "MODAL_SERVER_URL="+url, "MODAL_TOKEN_ID="+modalfake.DefaultTokenID, "MODAL_PROFILE=",
		"MODAL_TOKEN_SECRET="+modalfake.DefaultTokenSecret, "MODAL_CONFIG_PATH="+filepath.Join(cmd.Dir, "none.toml"))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	for _, m := range verdict.FindAllStringSubmatch(string(out), -1) {
		if m[1] == "PASS" {
			passed = append(passed, m[2])
		}
	}
	if err == nil && len(passed) == len(names) {
		return passed, ""
	}
	if len(passed) == len(names) {
		t.Errorf("all passed, and yet: %v\n%s", err, out) // as where goroutines were left
	}
	return passed, fmt.Sprintf("%v\n%s\n", err, out)
}

// complete requires that a list has every case of a binary, and no other.
func complete(t *testing.T, binary, pattern string, c cases) {
	t.Helper()
	out, err := command(t, binary, "-test.list="+pattern).Output()
	require.NoError(t, err)
	listed := slices.Clone(c.pass)
	for name := range c.not {
		listed = append(listed, name)
	}
	assert.ElementsMatch(t, strings.Fields(string(out)), listed)
}

// understood requires that no method was called that the fake does not have.
func understood(t *testing.T, s *modalfake.Server) {
	t.Helper()
	for _, r := range s.Requests() {
		assert.NotEqual(t, codes.Unimplemented, r.Code, r.Method)
	}
}

func TestModalsOwnTestsPass(t *testing.T) {
	c := read(t, "live.txt")
	binary := compile(t, sdk+"/test")
	complete(t, binary, ".", c)
	// With the older backend a secret is made at the service before it is used, and this case has it that none is.
	old := slices.DeleteFunc(slices.Clone(c.pass), func(name string) bool { return name == "TestSecretFromMap" })
	for name, run := range map[string]struct {
		cases []string
		env   string
	}{
		"newer backend": {c.pass, "MODAL_SANDBOX_V2=1"},
		"older backend": {old, "MODAL_SANDBOX_V2=0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := serve(t)
			try(t, binary, url, c, run.cases, run.env)
			understood(t, s)
		})
	}
}

func TestModalsOwnTestsOfFilesPass(t *testing.T) {
	c := read(t, "files.txt")
	binary := compile(t, "-tags=integration", sdk)
	complete(t, binary, "^TestSandboxFsE2e", c)
	s, url := serve(t)
	// Each of the cases that watch files takes four seconds, one after another: some at a time.
	const runs = 6
	parts := make([][]string, runs)
	for i, name := range c.pass {
		parts[i%runs] = append(parts[i%runs], name)
	}
	var all sync.WaitGroup
	for _, names := range parts {
		all.Go(func() { try(t, binary, url, c, names) })
	}
	start := time.Now()
	all.Wait()
	t.Logf("%d cases took %v", len(c.pass), time.Since(start).Round(time.Second))
	understood(t, s)
}
