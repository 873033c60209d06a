package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// quickstart runs the program. When it prints a line that contains at, then is called with the process, once.
func quickstart(t *testing.T, at string, then func(*os.Process), args ...string) (stdout string, code, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exampletest.Command(ctx, t, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var all strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		if then != nil && strings.Contains(lines.Text(), at) {
			then(cmd.Process)
			then = nil
		}
	}
	err = cmd.Wait()
	t.Logf("it printed:\n%s%s", all.String(), stderr.String())
	require.NoError(t, ctx.Err(), "it did not end")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	return all.String(), code, cmd.Process.Pid
}

// inOrder holds the lines of a life to the order in which it is lived.
func inOrder(t *testing.T, out string, patterns ...string) {
	t.Helper()
	assert.Regexp(t, regexp.MustCompile("(?ms)"+strings.Join(patterns, ".*")), out)
}

func TestTheLifeIsPrintedInTheOrderInWhichItIsLived(t *testing.T) {
	out, code, _ := quickstart(t, "", nil, "-provider", "memory")
	assert.Zero(t, code)
	inOrder(t, out, `^provider: memory \(as asked\)$`, `created \S+ in`, `running, lease until \d\d:\d\d:\d\d, (1[0-5]|\d)s from now`,
		`output: working: 1 of 6$`, `beat: lease until`, `output: working: 6 of 6$`, `command over after`, `deleted: `, `verified gone in \d+ ms$`)
}

func TestAFailingCommandIsToldAndItsSandboxGone(t *testing.T) {
	out, code, _ := quickstart(t, "", nil, "-provider", "memory", "sh", "-c", "echo bad >&2; printf end; exit 3")
	assert.Equal(t, 1, code)
	inOrder(t, out, `output: end$`, `verified gone`)
	assert.Contains(t, out, "output: bad\n")
}

func TestSignalsEndTheSandboxToo(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(sig.String(), func(t *testing.T) {
			out, code, _ := quickstart(t, "output: ready", func(p *os.Process) { assert.NoError(t, p.Signal(sig)) },
				"-provider", "memory", "sh", "-c", "echo ready; sleep 3600; echo late")
			assert.Equal(t, want, code)
			inOrder(t, out, `output: ready$`, `command over after`, `deleted: `, `verified gone in \d+ ms$`)
			assert.NotContains(t, out, "late")
		})
	}
}

func TestOnARealEngineNothingIsLeftEither(t *testing.T) {
	engine := exampletest.Engine(t)
	left := func(pid int) int { return len(exampletest.Left(t, engine, "quickstart", pid)) }
	t.Run("after its end", func(t *testing.T) {
		out, code, pid := quickstart(t, "", nil, "-provider", "docker", "sh", "-c", "echo hello from $(uname -s)")
		assert.Zero(t, code)
		inOrder(t, out, `^provider: docker/\S+ \(a Docker engine answers\)$`, `created \S+ in`, `running, lease until`, `output: hello from Linux$`, `verified gone in \d+ ms$`)
		assert.Zero(t, left(pid))
	})
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run("after "+sig.String(), func(t *testing.T) {
			out, code, pid := quickstart(t, "output: ready", func(p *os.Process) {
				assert.Equal(t, 1, left(p.Pid), "the engine's list shows it while it runs")
				assert.NoError(t, p.Signal(sig))
			}, "-provider", "docker", "sh", "-c", "echo ready; sleep 3600")
			assert.Equal(t, want, code)
			inOrder(t, out, `output: ready$`, `verified gone in \d+ ms$`)
			assert.Zero(t, left(pid))
		})
	}
}
