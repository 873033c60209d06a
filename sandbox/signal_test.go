//go:build unix

package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

const signalVar = "SANDGLASS_SIGNAL_CHILD" // "<spool> <number of scopes> <quick|hung|unnamed>" makes the test binary such a process

// TestSignalChild is not a test but the process that the tests below send signals to.
func TestSignalChild(t *testing.T) {
	order := strings.Fields(os.Getenv(signalVar))
	if len(order) != 3 {
		t.Skip("for the child processes of the tests of signals")
	}
	j, err := journal.Open(order[0])
	require.NoError(t, err)
	p := sandboxtest.New(sandbox.Capabilities{})
	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci", Journal: j})
	require.NoError(t, err)
	grace := time.Minute
	switch order[2] {
	case "hung":
		grace = 2 * time.Second
		fallthrough
	case "stuck":
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Hang: true, Times: -1})
	}
	earlier := make(chan os.Signal, 1)
	signal.Notify(earlier, syscall.SIGTERM)
	named := []os.Signal{syscall.SIGTERM}
	resized := make(chan os.Signal, 1)
	if order[2] == "unnamed" {
		named = nil
		signal.Notify(resized, syscall.SIGWINCH)
	}
	ctx, stop := sandbox.ShutdownOnSignal(context.Background(), m, grace, named...)
	var n int
	_, _ = fmt.Sscan(order[1], &n)
	var ready, over sync.WaitGroup
	ready.Add(n)
	for range n {
		over.Go(func() {
			err := m.WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error {
				ready.Done()
				<-ctx.Done()
				return context.Cause(ctx)
			})
			assert.ErrorIs(t, err, sandbox.ErrShutdown)
		})
	}
	ready.Wait()
	fmt.Println("ready")
	select {
	case <-ctx.Done():
	case <-resized:
		fmt.Println("resized")
		<-ctx.Done()
	}
	assert.ErrorIs(t, context.Cause(ctx), sandbox.ErrShutdown)
	stop()
	select {
	case <-earlier:
		fmt.Println("the earlier handler was called")
	default:
	}
	fmt.Println("live", len(p.Live()))
	if order[2] != "hung" {
		over.Wait()
	}
	os.Exit(3)
}

// child starts such a process and returns it once all its scopes are open.
func child(t *testing.T, spool string, scopes int, how string) (*exec.Cmd, *bufio.Scanner, *syncBuffer) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSignalChild$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", signalVar, spool, scopes, how))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var said syncBuffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return cmd, lines, &said
		}
	}
	require.Fail(t, "the child ended", said.String())
	return nil, nil, nil
}

func orphans(t *testing.T, spool string) (n int) {
	t.Helper()
	j, err := journal.Open(spool)
	require.NoError(t, err)
	defer func() { assert.NoError(t, j.Close()) }()
	for _, err := range j.Orphans(context.Background()) {
		require.NoError(t, err)
		n++
	}
	return n
}

func TestFirstSignalDrainsAndEarlierHandlersAreCalled(t *testing.T) {
	spool := t.TempDir()
	cmd, lines, said := child(t, spool, 50, "quick")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	var out []string
	for lines.Scan() {
		out = append(out, lines.Text())
	}
	_ = cmd.Wait()
	assert.Contains(t, out, "the earlier handler was called")
	assert.Contains(t, out, "live 0")
	assert.Equal(t, 3, cmd.ProcessState.ExitCode(), "%s", said.String())
	assert.Contains(t, said.String(), "sandboxes=50")
	assert.Zero(t, orphans(t, spool))
}

func TestWithoutNamedSignalsOnlyAnInterruptOrATermShutsDown(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd, lines, said := child(t, t.TempDir(), 1, "unnamed")
		require.NoError(t, cmd.Process.Signal(syscall.SIGCHLD), "a child that ended")
		require.NoError(t, cmd.Process.Signal(syscall.SIGWINCH), "a window that changed its size")
		for lines.Scan() && lines.Text() != "resized" { // of several that wait, the kernel would hand over s first
		}
		require.NoError(t, cmd.Process.Signal(s))
		for lines.Scan() {
		}
		_ = cmd.Wait()
		assert.Equal(t, 3, cmd.ProcessState.ExitCode(), "%s", said.String())
		assert.Contains(t, said.String(), "signal="+s.String())
	}
}

func TestWhatASignalLeavesIsNamedAndJournalled(t *testing.T) {
	spool := t.TempDir()
	cmd, lines, said := child(t, spool, 500, "hung")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
	}
	_ = cmd.Wait()
	assert.Equal(t, 3, cmd.ProcessState.ExitCode())
	assert.Equal(t, 500, orphans(t, spool), "the next start can end each of them")
	assert.Contains(t, said.String(), "sandboxes left")
	assert.Contains(t, said.String(), "sb-500")
}

func TestSecondSignalEndsTheProcessAtOnceWithTheJournalIntact(t *testing.T) {
	spool := t.TempDir()
	cmd, lines, said := child(t, spool, 100, "stuck")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return strings.Contains(said.String(), "shutting down") }, 30*time.Second, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
	}
	_ = cmd.Wait()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	assert.True(t, status.Signaled(), "ended by the signal itself: %v", cmd.ProcessState)
	assert.Equal(t, 100, orphans(t, spool))
}
