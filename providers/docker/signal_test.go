package docker_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The engine acts on no lease here, so that it is Replay and nothing else that ends what the process has left.
func TestTwoSignalsEndAProcessAtOnceAndTheNextStartEndsItsSandboxes(t *testing.T) {
	t.Parallel()
	const scopes = 30
	c := newCampaign(t, "signal", true)
	e := c.errand
	e.Do, e.Owner, e.Scopes = doSignal, "signalled", scopes
	cmd := e.command(t)
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		why, _ := io.ReadAll(errs)
		t.Fatalf("it ended: %s", why)
	}
	require.Equal(t, "ready\n", line)
	require.Equal(t, tally{"running": scopes}, c.left())

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	// It says so once a second signal will be the kernel's to act on; before that, two may be taken for one.
	said, shutting := bufio.NewReader(errs), fmt.Sprintf("sandboxes=%d", scopes)
	for line = ""; !strings.Contains(line, shutting); {
		line, err = said.ReadString('\n')
		require.NoError(t, err, "it ended, and has not said %s", shutting)
	}
	second := time.Now()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, said)
	_ = cmd.Wait()
	took := time.Since(second)
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	assert.True(t, status.Signaled(), "ended by the signal itself: %v", cmd.ProcessState)
	assert.Less(t, took, 15*time.Second, "its functions have 20 s, and the shutdown a minute")

	entries, left := c.entries(), c.left()
	assert.Len(t, entries, scopes, "left in the journal")
	assert.Equal(t, tally{"running": scopes}, left)
	c.replay()
	after := c.left()
	fine := c.finish()
	fmt.Printf("two signals to a process with %d scopes: gone %.1f s after the second, %d journal entries, left %s; %s\n",
		scopes, took.Seconds(), len(entries), left, outcome("the next start's replay", after, fine))
	assert.Zero(t, after.sum())
}
