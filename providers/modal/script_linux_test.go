package modal_test

import (
	"bytes"
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

	"github.com/sandglass-dev/sandglass/providers/modal"
)

// The scripts that run in a sandbox, on the shells of this machine, in real time. The killer's own test is vercel's.

func shells(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, name := range []string{"sh", "dash", "bash", "ash", "busybox"} {
		path, err := exec.LookPath(name)
		switch {
		case err != nil:
		case name == "busybox":
			all[name] = []string{path, "sh"}
		default:
			all[name] = []string{path}
		}
	}
	require.NotEmpty(t, all)
	return all
}

// A dog is a watchdog that runs here.
type dog struct {
	t     *testing.T
	shell []string
	dir   string // in place of /tmp
	cmd   *exec.Cmd
	over  chan struct{}
	began time.Time
	ended time.Time
}

func startDog(t *testing.T, shell []string, window, hard int, command ...string) *dog {
	t.Helper()
	d := &dog{t: t, shell: shell, dir: t.TempDir(), over: make(chan struct{})}
	args := append(append([]string{}, shell[1:]...), "-c", d.here(modal.Watchdog), "sandglass", strconv.Itoa(window), strconv.Itoa(hard))
	d.cmd = exec.Command(shell[0], append(args, command...)...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	d.began = time.Now()
	require.NoError(t, d.cmd.Start())
	go func() {
		defer close(d.over)
		_ = d.cmd.Wait()
		d.ended = time.Now()
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL) // the session that was begun here
		<-d.over
	})
	return d
}

func (d *dog) here(script string) string {
	return strings.NewReplacer("/tmp/.sandglass", d.dir+"/beat", "[ -d /tmp ] || mkdir /tmp", "").Replace(script)
}

// beat sends one and returns what it says, and its exit code.
func (d *dog) beat(owner string, number, seconds int) (said string, code int) {
	d.t.Helper()
	args := append(append([]string{}, d.shell[1:]...), "-c", d.here(modal.Beater), "sandglass-beat", owner, strconv.Itoa(number), strconv.Itoa(seconds))
	cmd := exec.Command(d.shell[0], args...)
	out, err := cmd.Output()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		require.NoError(d.t, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// heard sends a beat until the dog hears it: where a machine does much else, that takes longer than a beat waits.
func (d *dog) heard(owner string, number, seconds int) (said string) {
	d.t.Helper()
	for range 8 {
		var code int
		if said, code = d.beat(owner, number, seconds); code != 4 {
			require.Zero(d.t, code)
			return said
		}
	}
	require.Fail(d.t, "nobody hears")
	return ""
}

// lasted requires that the dog ends with a code, so long after a time, and no later than the machine makes it.
func (d *dog) lasted(since time.Time, want time.Duration, code int) {
	d.t.Helper()
	select {
	case <-d.over:
	case <-time.After(want + 20*time.Second):
		require.Fail(d.t, "it does not end")
	}
	assert.Equal(d.t, code, d.cmd.ProcessState.ExitCode())
	assert.GreaterOrEqual(d.t, d.ended.Sub(since), want-20*time.Millisecond, "hundredths are cut off")
}

func TestTheWatchdogEndsWithItsWindow(t *testing.T) {
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDog(t, sh, 2, 60)
			d.lasted(d.began, 2*time.Second, 97)
		})
	}
}

func TestTheWatchdogFollowsBeatsUntilTheHardEnd(t *testing.T) {
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDog(t, sh, 19, 20)
			left, ok := modal.ReadLeft(d.heard("owner", 7, 19))
			assert.True(t, ok && left <= 19*time.Second && left > 3*time.Second, "%v", left)

			left, ok = modal.ReadLeft(d.heard("other", 1, 3600)) // each owner counts his own
			assert.True(t, ok && left <= 19*time.Second, "never more than the window: %v", left)
			d.heard("other", 2, 19)
			d.lasted(d.began, 19900*time.Millisecond, 97) // the hard end, on its own clock
		})
	}
}

func TestABeatThatIsOvertakenByALaterOneIsNotHeard(t *testing.T) {
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDog(t, sh, 60, 60)
			sent := time.Now()
			d.heard("owner", 10, 3) // the end comes nearer
			heard := time.Now()
			require.NoError(t, os.WriteFile(d.dir+"/beat", []byte("owner 9 60\n"), 0o644)) // an older one, late
			d.lasted(sent, 3*time.Second, 97)
			assert.Less(t, d.ended.Sub(heard), 30*time.Second)
		})
	}
}

func TestNonsenseInTheFileOfBeatsIsNotHeard(t *testing.T) {
	d := startDog(t, shells(t)["sh"], 4, 60)
	for _, text := range []string{"", "\n", "a b c\n", "a 1\n", "a 1 -5\n", "a 01 50\n", "a 1 050\n", "a 1 99999999999999999999\n", "a 1 $(id)\n", "* * *\n", "a 1 5x", string([]byte{0, 1, 2})} {
		require.NoError(t, os.WriteFile(d.dir+"/beat", []byte(text), 0o644))
		time.Sleep(100 * time.Millisecond)
	}
	require.NoError(t, os.Remove(d.dir+"/beat"))
	d.lasted(d.began, 4*time.Second, 97) // neither before nor later
}

func TestABeatThatNobodyHearsSaysSo(t *testing.T) {
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDog(t, sh, 60, 60)
			d.heard("owner", 1, 60)
			require.NoError(t, d.cmd.Process.Signal(syscall.SIGSTOP))
			_, code := d.beat("owner", 2, 60)
			assert.Equal(t, 4, code)
		})
	}
}

func TestTheCallersCommandRunsBesideAndEndsAllWithItsCode(t *testing.T) {
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDog(t, sh, 60, 60, "sh", "-c", `trap "exit 9" USR1; kill -USR1 $$; exit 3`)
			d.lasted(d.began, 0, 9) // signals are as they were
			d = startDog(t, sh, 60, 60, "no-such-program-here")
			d.lasted(d.began, 0, 127)
			d = startDog(t, sh, 2, 60, "sleep", "600")
			d.lasted(d.began, 2*time.Second, 97)
		})
	}
}

func TestTheWatchdogEndsOnTERM(t *testing.T) {
	d := startDog(t, shells(t)["sh"], 60, 60)
	d.heard("owner", 1, 60)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-d.over:
	case <-time.After(20 * time.Second):
		assert.Fail(t, "it does not end")
	}
}

func TestTheRunnerTellsExitCodesAndAddsNothing(t *testing.T) {
	dir := t.TempDir()
	for name, sh := range shells(t) {
		for _, c := range []struct {
			dir, mode   string
			args        []string
			code        int
			out, errors string // errors: a part of what is to be there; empty: nothing
		}{
			{args: []string{"true"}},
			{args: []string{"sh", "-c", "exit 3"}, code: 3},
			{args: []string{"sh", "-c", "kill -KILL $$"}, code: 137},
			{args: []string{"sh", "-c", "kill -TERM $$"}, code: 143},
			{args: []string{"no-such-program-here"}, code: 127, errors: "no-such-program-here"},
			{args: []string{"/"}, code: 126, errors: "/"},
			{args: []string{"sh", "-c", `printf '[%s]' "$@"`, "sh", "", "a b", "$x", "-n"}, out: "[][a b][$x][-n]"},
			{dir: dir, args: []string{"pwd"}, out: dir + "\n"},
			{dir: dir + "/missing", args: []string{"pwd"}, code: 126, errors: "missing"},
			{args: []string{"cat"}},
			{mode: "in", args: []string{"cat"}, out: "input"},
			{args: []string{"sh", "-c", "echo out; echo err >&2"}, out: "out\n", errors: "err\n"},
		} {
			cmd := exec.Command(sh[0], append(append(append([]string{}, sh[1:]...), "-c", modal.Runner, "sandglass", c.dir, c.mode), c.args...)...)
			var out, errs bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = strings.NewReader("input"), &out, &errs, dir
			_ = cmd.Run()
			assert.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%s: %q", name, c.args)
			assert.Equal(t, c.out, out.String(), "%s: %q", name, c.args)
			if c.errors == "" {
				assert.Empty(t, errs.String(), "%s: %q", name, c.args)
			} else {
				assert.Contains(t, errs.String(), c.errors, "%s: %q", name, c.args)
			}
		}
	}
}

func TestFilesAreCopiedByTheShellsOfThisMachine(t *testing.T) {
	for name, sh := range shells(t) {
		run := func(script, in string, args ...string) (string, int) {
			cmd := exec.Command(sh[0], append(append(append([]string{}, sh[1:]...), "-c", script, "sandglass"), args...)...)
			cmd.Stdin = strings.NewReader(in)
			out, _ := cmd.Output()
			return string(out), cmd.ProcessState.ExitCode()
		}
		file := filepath.Join(t.TempDir(), "a folder", "-rf $x")
		out, code := run(modal.Placer, "text", file, filepath.Dir(file))
		assert.Equal(t, "done\n", out, name)
		assert.Zero(t, code, name)
		out, code = run(modal.Fetcher, "", file)
		assert.Equal(t, "text", out, name)
		assert.Zero(t, code, name)
		_, code = run(modal.Fetcher, "", file+"x")
		assert.Equal(t, 44, code, name)
		_, code = run(modal.Fetcher, "", filepath.Dir(file))
		assert.Equal(t, 45, code, name)
		_, code = run(modal.Placer, "", filepath.Dir(file), "/")
		assert.Equal(t, 45, code, name)
	}
}
