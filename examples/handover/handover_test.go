package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/examples/internal/exampletest"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestTwoRunnersInOneProcessDoOneJobInOneSandbox(t *testing.T) {
	dir := t.TempDir()
	out, err := exampletest.Command(t.Context(), t, "-provider", "memory", "-steps", "4", "-state", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, 2, strings.Count(string(out), "at work in sandbox sb-1\n"), string(out))
	assert.Equal(t, 1, strings.Count(string(out), "step 4 of 4\n"))
	assert.NotContains(t, string(out), "starting anew")
	left, err := filepath.Glob(filepath.Join(dir, "journal", "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A deploy ends the first runner in a regular way, a crash the second. The third ends the job, all in one sandbox. It alone
// takes the job for a short one, so that no other comes to its end before it is told to go.
func TestAJobOutlivesADeployAndACrashOfItsRunner(t *testing.T) {
	p, dir := exampletest.Engine(t), t.TempDir()
	ids := map[string]bool{}
	start := func(steps string) (*exec.Cmd, *bufio.Scanner) {
		cmd := exampletest.Command(t.Context(), t, "-provider", "docker", "-steps", steps, "-state", dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "at work in sandbox "); ok {
				ids[id] = true
			}
			if strings.HasPrefix(lines.Text(), "step ") {
				break
			}
		}
		return cmd, lines
	}
	t.Cleanup(func() {
		for id := range ids {
			assert.NoError(t, sandbox.Terminate(context.WithoutCancel(t.Context()), p, id))
		}
	})
	first, out := start("500")
	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	rest(out)
	require.NoError(t, first.Wait(), "letting go is no failure")

	second, out := start("500")
	require.NoError(t, second.Process.Kill())
	rest(out)
	require.Error(t, second.Wait())

	third, out := start("3")
	assert.Regexp(t, `^step ([3-9]|\d\d+) of 3$`, out.Text(), "it goes on, and its first step is the last")
	assert.NotContains(t, rest(out), "step ")
	require.NoError(t, third.Wait())
	require.Len(t, ids, 1, "one sandbox for the whole job")
	for id := range ids {
		_, err := p.Get(t.Context(), id)
		assert.ErrorIs(t, err, sandbox.ErrNotFound)
	}
}

// rest reads what is left, so that the program does not block on it.
func rest(s *bufio.Scanner) string {
	var b strings.Builder
	for s.Scan() {
		_, _ = io.WriteString(&b, s.Text()+"\n")
	}
	return b.String()
}
