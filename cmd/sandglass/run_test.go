//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
)

// The windows of these tests are short; a busy machine needs some time to remove a container.
const (
	window  = 30 * time.Second
	removal = 90 * time.Second
)

// fleetOf returns a fleet of the test's own: the engine is shared.
func fleetOf(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("cmd-%d-%d", os.Getpid(), time.Now().UnixNano()%1e9)
}

// dies waits until no process has the id any more.
func dies(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	require.NoError(t, err)
	assert.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
		if err != nil {
			return syscall.Kill(n, 0) != nil
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(rest, "Z") // nobody may be there to wait for it
	}, 30*time.Second, 20*time.Millisecond, "process %d lives on", n)
}

// until waits for a file and returns what is in it.
func until(t *testing.T, path string) string {
	t.Helper()
	var text []byte
	require.Eventually(t, func() bool {
		var err error
		text, err = os.ReadFile(path)
		return err == nil && bytes.HasSuffix(text, []byte("\n"))
	}, time.Minute, 20*time.Millisecond, "no %s", path)
	return string(text)
}

// whileThere is a script that goes on while a file is there.
func whileThere(path string) string { return "while [ -e '" + path + "' ]; do sleep 0.1; done" }

func TestTheExitCodeIsTheProgramsOwn(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	for script, want := range map[string]int{
		"exit 0": 0, "exit 7": 7, "kill -KILL $$": 128 + 9, "kill -TERM $$": 128 + 15,
	} {
		r := b.run("run", "-p", "e2b", "-f", "ci", "--", "sh", "-c", script)
		assert.Equal(t, want, r.code, script)
		assert.Contains(t, r.stderr, "deleted and seen to be gone")
	}
	assert.Empty(t, e.fake.Sandboxes())
	assert.Empty(t, b.spool())
}

func TestTheExitCodeIsOursWhereOursFailed(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	run := func(args ...string) result {
		return b.run(append([]string{"run", "-p", "e2b", "-f", "ci"}, args...)...)
	}
	t.Run("there is no such program", func(t *testing.T) {
		assert.Equal(t, exitNotFound, run("--", "no-such-program").code)
		assert.Equal(t, exitNotFound, run("--", "./no/such/program").code)
	})
	t.Run("the program cannot be run", func(t *testing.T) {
		text := filepath.Join(b.dir, "text")
		require.NoError(t, os.WriteFile(text, []byte("no program"), 0o600))
		assert.Equal(t, exitNotRun, run("--", text).code)
		require.NoError(t, os.Chmod(text, 0o700)) // found, and then refused by the kernel, when there is a sandbox already
		assert.Equal(t, exitNotRun, run("--", text).code)
	})
	t.Run("settings and arguments are wrong", func(t *testing.T) {
		assert.Equal(t, exitOurs, run().code)
		assert.Equal(t, exitOurs, run("--no-such-flag", "--", "true").code)
		assert.Equal(t, exitOurs, run("--window", "1000h", "--", "true").code)
		assert.Equal(t, exitOurs, run("--tag", "novalue", "--", "true").code)
		assert.Equal(t, exitOurs, b.run("run", "-p", "e2b", "--", "true").code, "without a fleet")
		assert.Equal(t, exitOurs, b.run("run", "-f", "ci", "--", "true").code, "without a provider")
		assert.Equal(t, exitOurs, b.run("run", "-p", "other", "-f", "ci", "--", "true").code)
		r := run("--env", "SECRET=s3cr3t", "--", "true")
		assert.Equal(t, exitOurs, r.code)
		assert.NotContains(t, r.stderr, "s3cr3t", "it is not read out")
	})
	t.Run("no sandbox was made", func(t *testing.T) {
		e.fake.SetKey("another")
		defer e.fake.SetKey(fakeKey)
		r := run("--", "true")
		assert.Equal(t, exitOurs, r.code)
		assert.Contains(t, r.stderr, "check E2B_API_KEY")
		assert.NotContains(t, r.stdout+r.stderr, "5afe5afe")
	})
	t.Run("the max lifetime is reached", func(t *testing.T) {
		// It counts from the create on, and on a busy machine it takes seconds from there to the trap.
		r := run("--max-lifetime", "20s", "--grace", "1s", "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
		assert.Equal(t, exitEnded, r.code)
		assert.Contains(t, r.stderr, "max lifetime reached")
		assert.Contains(t, r.stderr, "is killed")
	})
	t.Run("the lease is lost", func(t *testing.T) {
		ready := filepath.Join(b.dir, "lost")
		done := make(chan result)
		go func() { done <- run("--beat", "5s", "--window", "30s", "--", "sh", "-c", "echo >"+ready+"; sleep 300") }()
		until(t, ready)
		for _, s := range e.fake.Service().All() {
			e.fake.Service().Kill(s.ID)
		}
		r := <-done
		assert.Equal(t, exitEnded, r.code)
		assert.Contains(t, r.stderr, "lease lost")
	})
	assert.Empty(t, e.fake.Sandboxes())
	t.Run("something may be left", func(t *testing.T) {
		e.fake.Service().Fault(sandbox.OpDelete, denied())
		r := run("--", "sh", "-c", "exit 7")
		assert.Equal(t, exitLeak, r.code, "whatever the program's own")
		assert.Contains(t, r.stderr, "possible leak")
		assert.Regexp(t, `may live until 20\S+Z, when its lease ends`, r.stderr)
		assert.Len(t, b.spool(), 1, "it stays in the journal")

		e.fake.Service().Heal()
		for _, s := range e.fake.Service().All() {
			e.fake.Service().Pause(s.ID) // no lease ends it
		}
		r = run("--", "sh", "-c", whileThere(b.spool()[0]))
		assert.Equal(t, 0, r.code)
		assert.Empty(t, b.spool(), "the next run finishes it")
	})
}

func TestTheHelpNamesEveryExitCodeOfOurs(t *testing.T) {
	help := newBench(t).run("run", "--help")
	assert.Equal(t, 0, help.code)
	for _, code := range []int{exitLeak, exitEnded, exitOurs, exitNotRun, exitNotFound} {
		assert.Contains(t, help.stdout, fmt.Sprintf("    %d  ", code))
	}
}

func TestTheProgramGetsTheSandboxByItsEnvironmentAndStandardStreamsUntouched(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, append([]string{"PASSED=through"}, e.env...)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := b.command(ctx, "run", "-p", "e2b", "-f", "ci", "--env", "PASSED", "--tag", "commit_sha=4f1c9a7", "-q", "--",
		"sh", "-c", `cat; echo "$SANDGLASS_SANDBOX_ID $E2B_SANDBOX_ID $SANDGLASS_PROVIDER $SANDGLASS_FLEET $SANDGLASS_NONCE"; echo problem >&2; "$0" ls --json`, selfPath(t))
	cmd.Stdin = strings.NewReader("input\n")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s", &stderr)
	assert.Equal(t, "problem\n", stderr.String(), "quiet is quiet")
	lines := strings.Split(stdout.String(), "\n")
	require.Len(t, lines, 4)
	assert.Equal(t, "input", lines[0])
	words := strings.Fields(lines[1])
	require.Len(t, words, 5)
	assert.Equal(t, words[0], words[1])
	assert.Equal(t, []string{"e2b", "ci"}, words[2:4])
	rows := decode[listing](t, lines[2]).Sandboxes
	require.Len(t, rows, 1, "the program's own sandglass sees what run has made")
	assert.Equal(t, words[0], rows[0].ID)
	assert.Equal(t, words[4], rows[0].Nonce)
	assert.Equal(t, map[string]string{"commit_sha": "4f1c9a7"}, rows[0].Tags)
}

func selfPath(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return self
}

func TestSignalsReachTheProgram(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	ready := filepath.Join(b.dir, "ready")
	cmd := b.command(t.Context(), "run", "-p", "e2b", "-f", "ci", "--grace", "1m", "--", "sh", "-c",
		"trap 'echo told' USR1; trap 'echo asked; exit 9' TERM; echo >"+ready+"; while :; do sleep 0.05; done")
	var out watcher
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	until(t, ready)
	require.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
	out.await(t, "told")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	assert.Equal(t, 9, cmd.ProcessState.ExitCode())
	assert.Contains(t, out.String(), "asked")
	assert.Empty(t, e.fake.Sandboxes())
}

func TestASignalBeforeTheProgramStartsLeavesNothing(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	arrived, signalled := make(chan struct{}, 16), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			arrived <- struct{}{}
			<-signalled
			time.Sleep(2 * time.Second) // nothing tells us when it is heard, and the create is waited for all the same
		}
		e.fake.ServeHTTP(w, r)
	}))
	defer slow.Close()
	b.env = append(b.env, "E2B_API_URL="+slow.URL)
	started := filepath.Join(b.dir, "started")
	cmd := b.command(t.Context(), "run", "-p", "e2b", "-f", "ci", "--", "touch", started)
	var out watcher
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	<-arrived
	err := cmd.Process.Signal(syscall.SIGTERM)
	close(signalled)
	require.NoError(t, err)
	_ = cmd.Wait()
	assert.Equal(t, 128+15, cmd.ProcessState.ExitCode(), "%s", &out)
	assert.NoFileExists(t, started)
	assert.Empty(t, e.fake.Sandboxes())
	assert.Empty(t, b.spool())
}

func TestWhatTheProgramLeavesOfItsGroupDiesWithIt(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	pid := filepath.Join(b.dir, "pid")
	r := b.run("run", "-p", "e2b", "-f", "ci", "--", "sh", "-c", "(trap '' HUP TERM; sleep 300) & echo $! >"+pid)
	assert.Equal(t, 0, r.code)
	dies(t, until(t, pid))
}

func TestNoKeyIsInAProcessTitleOrAnOutput(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	ready := filepath.Join(b.dir, "ready")
	cmd := b.command(t.Context(), "run", "-p", "e2b", "-f", "ci", "--env", "E2B_API_KEY", "--", "sh", "-c", "echo $$ >"+ready+"; while [ -e "+ready+" ]; do sleep 0.05; done")
	var out watcher
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	until(t, ready)
	titles, err := exec.Command("ps", "-e", "-o", "args=").Output()
	require.NoError(t, err)
	assert.Contains(t, string(titles), guardWord, "the list shows our processes")
	assert.NotContains(t, string(titles), "5afe5afe")
	require.NoError(t, os.Remove(ready))
	require.NoError(t, cmd.Wait())
	entries, err := exec.Command("grep", "-r", "5afe5afe", b.dir).Output()
	assert.Error(t, err, "nor in a file: %s", entries)
	assert.NotContains(t, out.String(), "5afe5afe")
}

func TestRunKilledByItsOwnProgramLeavesNothingAfterTheWindow(t *testing.T) {
	const window = 75 * time.Second // more than two processes may take to die
	p, host := engine(t)
	b := newBench(t, host)
	fleet := fleetOf(t)
	pids := filepath.Join(b.dir, "pids")
	cmd := b.command(t.Context(), "run", "-p", "docker", "-f", fleet, "--window", window.String(), "--beat", "5s", "--",
		"sh", "-c", `sleep 300 & echo $$ $! >`+pids+`; kill -9 $PPID; sleep 300`)
	var out watcher
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	_ = cmd.Wait()
	killed := time.Now()
	assert.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%s", &out)
	for _, pid := range strings.Fields(until(t, pids)) {
		dies(t, pid) // the program, by the kernel, and what it started, by the guard
	}
	assert.Less(t, time.Since(killed), window, "the group does not wait for the lease")
	requireGone(t, p, fleet, window+removal)

	t.Run("and the next run clears the journal", func(t *testing.T) {
		require.Len(t, b.spool(), 1)
		r := b.run("run", "-p", "docker", "-f", fleet, "--", "sh", "-c", whileThere(b.spool()[0]))
		assert.Equal(t, 0, r.code)
		assert.Empty(t, b.spool())
	})
}

func TestAProgramThatIgnoresSIGTERMLeavesNothing(t *testing.T) {
	p, host := engine(t)
	b := newBench(t, host)
	fleet := fleetOf(t)
	ready := filepath.Join(b.dir, "ready")
	cmd := b.command(t.Context(), "run", "-p", "docker", "-f", fleet, "--grace", "1s", "--", "sh", "-c", "trap '' TERM INT HUP; echo $$ >"+ready+"; while :; do sleep 0.1; done")
	var out watcher
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	pid := until(t, ready)
	require.Len(t, left(t, p, fleet), 1)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	assert.Equal(t, 128+9, cmd.ProcessState.ExitCode(), "%s", &out)
	dies(t, pid)
	assert.Empty(t, left(t, p, fleet), "at once")
	assert.Empty(t, b.spool())
}

func TestTheGuardEndsTheGroupWhereTheKernelDoesNot(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	pids := filepath.Join(b.dir, "pids")
	cmd := b.command(t.Context(), "run", "-p", "e2b", "-f", "ci", "--", "sh", "-c", "sh -c 'trap \"\" TERM HUP INT; sleep 300; :' & echo $$ $! >"+pids+"; wait")
	require.NoError(t, cmd.Start())
	all := strings.Fields(until(t, pids))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for _, pid := range all {
		dies(t, pid)
	}
}

func TestASIGKILLOfTheGuardIsNoEndOfTheRun(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	r := b.run("run", "-p", "e2b", "-f", "ci", "--", "sh", "-c", `guard=$(ps -o pgid= -p $$); kill -9 $guard; sleep 0.2; exit 4`)
	assert.Equal(t, 4, r.code)
	assert.Empty(t, e.fake.Sandboxes())
}

func TestKeepOnErrorKeepsAFailedProgramsSandboxAndSaysUntilWhen(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	r := b.run("run", "-p", "e2b", "-f", "ci", "--keep-on-error", "30m", "--", "sh", "-c", "exit 3")
	assert.Equal(t, 3, r.code)
	assert.Contains(t, r.stderr, "is kept")
	require.Len(t, e.fake.Sandboxes(), 1)
	e.fake.Service().Advance(time.Minute) // or it is too young for any sweep
	r = b.run("sweep", "-p", "e2b", "-f", "ci", "--end-dead")
	assert.Equal(t, 0, r.code, r.stderr)
	assert.Len(t, e.fake.Sandboxes(), 1, "it was kept for somebody to look at, although the run is over")
	r = b.run("run", "-p", "e2b", "-f", "ci2", "--keep-on-error", "30m", "--", "true")
	assert.Equal(t, 0, r.code)
	assert.Len(t, e.fake.Sandboxes(), 1, "not that of one that worked")
}

func TestAJournalThatCannotBeOpenedStopsTheRunBeforeTheCreate(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	file := filepath.Join(b.dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r := b.run("run", "-p", "e2b", "-f", "ci", "--journal", file, "--", "true")
	assert.Equal(t, exitOurs, r.code)
	assert.Contains(t, r.stderr, "--no-journal")
	assert.Empty(t, e.fake.Requests())
	assert.Equal(t, 0, b.run("run", "-p", "e2b", "-f", "ci", "--journal", file, "--no-journal", "--", "true").code)
}

func TestSweepFinishesWhatADeadRunLeftInTheJournal(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	j, err := journal.Open(b.journal())
	require.NoError(t, err)
	id := e.make(t, "ci", "dead.1", "a", 10*time.Hour, map[string]string{"keep": ""})
	e.forget(t, id)
	info, err := e.p.Get(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, j.Put(t.Context(), sandbox.Entry{Provider: e.p.Name(), ID: id, Mark: info.Mark}))
	e.fake.Service().Advance(time.Minute)
	t.Run("not while its owner lives", func(t *testing.T) {
		assert.Equal(t, 0, b.run("sweep", "-p", "e2b", "-f", "ci").code)
		assert.Len(t, e.fake.Sandboxes(), 1)
	})
	require.NoError(t, j.Close())                                     // the owner is dead: its lock is gone
	r := b.run("sweep", "-p", "e2b", "-f", "ci", "--protect", "keep") // from the sweeper itself
	assert.Equal(t, 0, r.code)
	assert.Empty(t, e.fake.Sandboxes())
	assert.Empty(t, b.spool())
}

func TestSweepEveryFinishesWhatARunThatDiesMeanwhileLeavesInTheJournal(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	j, err := journal.Open(b.journal())
	require.NoError(t, err)
	id := e.make(t, "ci", "dead.1", "a", 10*time.Hour, map[string]string{"keep": ""})
	info, err := e.p.Get(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, j.Put(t.Context(), sandbox.Entry{Provider: e.p.Name(), ID: id, Mark: info.Mark}))
	cmd := b.command(t.Context(), "sweep", "-p", "e2b", "-f", "ci", "--every", "200ms", "--protect", "keep") // from the sweeper itself
	var out watcher
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	out.await(t, "1 kept")
	assert.Len(t, e.fake.Sandboxes(), 1, "its owner lives")
	e.forget(t, id)
	require.NoError(t, j.Close())
	assert.Eventually(t, func() bool { return len(b.spool()) == 0 }, time.Minute, 50*time.Millisecond, "what is over is not kept in mind")
	assert.Empty(t, e.fake.Sandboxes())
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	assert.NoError(t, cmd.Wait())
}
