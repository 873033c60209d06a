package leaktest_test

import (
	"context"
	"log"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/examples/leaktest"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// What all tests here share, since one check is made for all of them.
var (
	provider = sandboxtest.New(sandbox.Capabilities{}) // or a real one: nothing below is particular to this one
	record   leakcheck.Record                          // of every sandbox that was made, and of the line that made it
	runner   leaktest.Runner
)

// TestMain checks, after the tests, that every sandbox which they made is gone. The canary is the proof that the check can
// see: it is made, found in the account's list, and deleted. Without one an empty list would only say "nothing seen".
func TestMain(m *testing.M) {
	manager, err := sandbox.NewManager(provider, sandbox.Config{Fleet: "leaktest", Observers: []sandbox.Observer{record.Observe}})
	if err != nil {
		log.Fatal(err)
	}
	runner.Manager = manager
	leakcheck.VerifyTestMain(spoiled{m}, provider, leakcheck.Recorded(&record), leakcheck.Canary(sandbox.Spec{}))
}

func TestRunReturnsWhatTheScriptWrote(t *testing.T) {
	out, err := runner.Run(t.Context(), "echo hello")
	require.NoError(t, err)
	assert.Equal(t, "hello\n", out)
}

func TestRunReportsAScriptThatFails(t *testing.T) {
	_, err := runner.Run(t.Context(), "echo no such thing >&2; exit 3")
	require.ErrorContains(t, err, "no such thing")
}

// From here on it is about the check itself. Tests of your own do without this part, and hand m to VerifyTestMain.

const spoilerVar = "LEAKTEST_SPOILER" // the name of a spoiler, in the environment of a child process

// A spoiler makes a run of tests leak, or its check blind, although each of the tests passes.
type spoiler struct {
	before, after func() // of the tests; nil: nothing
}

var spoilers = map[string]spoiler{
	"none": {},
	"a scope that nobody ends": {before: func() {
		begun := make(chan struct{})
		go func() {
			_ = runner.Manager.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
				close(begun)
				<-ctx.Done()
				return nil
			})
		}()
		<-begun
	}},
	"a sandbox that comes back": {
		before: func() {
			provider.Behave(func(b *sandboxtest.Behaviour) { b.ReviveAfter = time.Hour })
			provider.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectRevive})
		},
		after: func() { provider.Advance(time.Hour + time.Second) },
	},
	"a list that hides what runs": {before: func() {
		provider.Behave(func(b *sandboxtest.Behaviour) { b.ListHides = []sandbox.State{sandbox.StateRunning} })
	}},
}

// spoiled are the tests with the spoiler of the environment.
type spoiled struct{ tests leakcheck.M }

// Run implements [leakcheck.M].
func (s spoiled) Run() int {
	spoil := spoilers[os.Getenv(spoilerVar)]
	if spoil.before != nil {
		spoil.before()
	}
	if spoil.after != nil {
		defer spoil.after()
	}
	return s.tests.Run()
}

func TestTheCheckFailsWhereTestsPassAndSandboxesAreLeft(t *testing.T) {
	for name, want := range map[string]struct {
		code int
		says []string
	}{
		"none":                        {code: 0},
		"a scope that nobody ends":    {code: 1, says: []string{"sandboxes are left", "(ours)", "made at", "leaktest_test.go:"}},
		"a sandbox that comes back":   {code: 1, says: []string{"sandboxes are left", "(ours)", "made at", "runner.go:"}},
		"a list that hides what runs": {code: 1, says: []string{"could not see everything"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRun")
			tests.Env = append(os.Environ(), spoilerVar+"="+name)
			out, _ := tests.CombinedOutput() // the exit code says it all
			assert.Equal(t, want.code, tests.ProcessState.ExitCode(), "%s", out)
			assert.Contains(t, string(out), "PASS\n", "the tests themselves saw nothing")
			for _, words := range want.says {
				assert.Contains(t, string(out), words)
			}
			t.Logf("%s", out)
		})
	}
}
