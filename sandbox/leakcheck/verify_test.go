package leakcheck_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

var (
	_ leakcheck.TB = testing.TB(nil)
	_ leakcheck.M  = (*testing.M)(nil)
)

// childKey tells a child process of TestVerifyTestMain what to leave.
const childKey = "LEAKCHECK_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childKey); mode != "" {
		child(mode)
	}
	goleak.VerifyTestMain(m)
}

// An exit is a run of tests with that exit code.
type exit int

func (e exit) Run() int { return int(e) }

func child(mode string) {
	p := sandboxtest.New(sandbox.Capabilities{})
	var opts []leakcheck.Option
	code := exit(0)
	for word := range strings.SplitSeq(mode, ",") {
		switch word {
		case "leak":
			i, err := p.Create(context.Background(), sandbox.CreateRequest{
				Mark:   sandbox.Mark{Fleet: "ci", Owner: "host.1", Nonce: "aaaaaaaaaaaaaaaa", Created: time.Now(), Lifetime: time.Hour},
				Window: time.Hour,
			})
			if err != nil {
				panic(err)
			}
			opts = append(opts, leakcheck.Known(i), leakcheck.Patience(0))
		case "canary":
			opts = append(opts, leakcheck.Canary(sandbox.Spec{}))
		case "failed":
			code = 7
		}
	}
	leakcheck.VerifyTestMain(code, p, opts...)
	panic("VerifyTestMain has returned")
}

func TestVerifyTestMainEndsTheProcess(t *testing.T) {
	for mode, want := range map[string]struct {
		code int
		says string
	}{
		"canary":      {0, ""},
		"leak,canary": {1, "sandbox sb-1 is running"},
		"none":        {1, "nothing seen"},
		"failed,leak": {7, "sandbox sb-1 is running"},
	} {
		t.Run(mode, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childKey+"="+mode)
			var said strings.Builder
			cmd.Stderr = &said
			_ = cmd.Run() // the exit code says it all
			assert.Equal(t, want.code, cmd.ProcessState.ExitCode(), said.String())
			if want.says == "" {
				assert.Empty(t, said.String())
			} else {
				assert.Contains(t, said.String(), want.says)
			}
		})
	}
}

// A tb remembers what it was told.
type tb []string

func (*tb) Helper()             {}
func (t *tb) Error(args ...any) { *t = append(*t, fmt.Sprint(args...)) }

func TestVerifyNoneFailsTheTest(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		var told tb
		leakcheck.VerifyNone(&told, w, leakcheck.Canary(sandbox.Spec{}))
		require.Empty(t, told)
		i := w.make(1, "ci")[0]
		leakcheck.VerifyNone(&told, w, leakcheck.Canary(sandbox.Spec{}), leakcheck.Known(i))
		require.Len(t, told, 1)
		assert.Contains(t, told[0], i.ID)
	})
}
