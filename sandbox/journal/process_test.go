package journal_test

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestOnlyADeadProcessLeavesOrphans(t *testing.T) {
	dir := spool(t)
	j := open(t, dir)
	doomed := spawn(t, nil, "own", dir, nonce("a"), nonce("b"))
	sibling := spawn(t, nil, "own", dir, nonce("c"))
	doomed.expect("holds")
	sibling.expect("holds")
	assert.Empty(t, orphans(t, j))

	doomed.kill()
	assert.Equal(t, []sandbox.Entry{entry(nonce("a"), "sb-"+nonce("a")), entry(nonce("b"), "sb-"+nonce("b"))}, orphans(t, j))
	alive, known, err := j.Owner(nonce("c"))
	require.NoError(t, err)
	assert.True(t, alive && known)
	require.NoError(t, j.Remove(t.Context(), nonce("a")))
	require.NoError(t, j.Remove(t.Context(), nonce("b")))
	assert.Equal(t, []string{nonce("c") + ".entry"}, names(t, dir), "the living sibling's is untouched")
}

func TestAProcessThatExecsIsDeadUnderItsOwnPid(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no exec on Windows")
	}
	dir := spool(t)
	j := open(t, dir)
	c := spawn(t, nil, "own", dir, nonce("a"))
	pid := c.expect("holds as")
	assert.Empty(t, orphans(t, j))
	c.say()
	assert.Equal(t, pid, c.expect("waits as"), "the same process")
	assert.Equal(t, []string{nonce("a")}, nonces(orphans(t, j)), "nobody is left who would end its scope")
}

func TestTwoProcessesThatReplayShareTheWork(t *testing.T) {
	dir := spool(t)
	var want []string
	for i := range 60 {
		want = append(want, nonce("a"+letters(i)))
	}
	doomed := spawn(t, nil, "own", dir, want...)
	doomed.expect("holds")
	doomed.kill()
	children := []*child{spawn(t, nil, "replay", dir, "remove"), spawn(t, nil, "replay", dir, "remove")}
	for _, c := range children {
		c.expect("ready")
	}
	for _, c := range children {
		c.say()
	}
	got := make([][]string, len(children))
	var wg sync.WaitGroup
	for i, c := range children {
		wg.Go(func() { got[i] = c.orphans() })
	}
	wg.Wait()
	all := slices.Sorted(slices.Values(slices.Concat(got...)))
	assert.Equal(t, want, all, "each once")
	assert.Empty(t, names(t, dir))
}

// A process is killed at some instant of its puts and removes. What it had said to have put is there, what it had said
// to have removed is not, and nothing is broken.
func TestAKillAtAnyInstantLosesNothing(t *testing.T) {
	dir := spool(t)
	j := open(t, dir)
	for round := range 20 {
		prefix := string(rune('a' + round))
		c := spawn(t, nil, "churn", dir, prefix)
		c.expect("ready")
		there := map[string]bool{}
		hear := func(line string) {
			what, n, _ := strings.Cut(line, " ")
			require.Contains(t, []string{"put", "removed"}, what, line)
			there[n] = what == "put"
		}
		for range round * 3 { // its instant
			hear(c.line())
		}
		require.NoError(t, c.cmd.Process.Kill())
		for line := c.line(); line != ""; line = c.line() { // what it had still said
			hear(line)
		}
		c.kill()
		found := map[string]bool{}
		for _, e := range orphans(t, j) {
			found[e.Mark.Nonce] = true
			if !there[e.Mark.Nonce] {
				assert.NotContains(t, there, e.Mark.Nonce, "was removed")
			}
		}
		missing := 0
		for n, is := range there {
			if is && !found[n] {
				missing++ // at most the one whose removal it had no time to tell
			}
		}
		assert.LessOrEqual(t, missing, 1)
		for n := range found {
			require.NoError(t, j.Remove(t.Context(), n))
		}
		require.Empty(t, names(t, dir), "no temporary file is left either")
	}
}

func TestAPidProvesNothing(t *testing.T) {
	dir := spool(t)
	j := open(t, dir)
	c := spawn(t, nil, "own", dir, nonce("a"))
	pid, err := strconv.Atoi(c.expect("holds as"))
	require.NoError(t, err)
	c.kill()
	put(t, j, entry(nonce("b"), ""))
	require.NoError(t, j.Release(t.Context(), nonce("b")))
	found := orphans(t, j)
	require.Len(t, found, 2, fmt.Sprintf("pid %d is gone, ours lives, and both locks are free", pid))
}
