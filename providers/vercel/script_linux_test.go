package vercel_test

import (
	"bufio"
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

	"github.com/sandglass-dev/sandglass/providers/vercel"
)

// The scripts that run in a sandbox, on the shells of this machine.

func shells(t *testing.T) (all []string) {
	t.Helper()
	for _, name := range []string{"sh", "dash", "bash"} {
		if path, err := exec.LookPath(name); err == nil {
			all = append(all, path)
		}
	}
	require.NotEmpty(t, all)
	return all
}

func TestTheRunnerTellsExitCodesAndAddsNothing(t *testing.T) {
	dir := t.TempDir()
	for _, sh := range shells(t) {
		for _, c := range []struct {
			dir         string
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
			{args: []string{"echo", `a\nb`}, out: "a\\nb\n"}, // not the shell's own, which may see more in it
			{args: []string{"sh", "-c", `printf '[%s]' "$@"`, "sh", "", "a b", "$x", "-n"}, out: "[][a b][$x][-n]"},
			{dir: dir, args: []string{"pwd"}, out: dir + "\n"},
			{dir: dir + "/missing", args: []string{"pwd"}, code: 126, errors: "missing"},
			{args: []string{"cat"}},
			{args: []string{"sh", "-c", "echo out; echo err >&2"}, out: "out\n", errors: "err\n"},
		} {
			cmd := exec.Command(sh, append([]string{"-c", vercel.Runner, "sandglass", c.dir}, c.args...)...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &errs, dir
			_ = cmd.Run()
			assert.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%s: %q", sh, c.args)
			assert.Equal(t, c.out, out.String(), "%s: %q", sh, c.args)
			if c.errors == "" {
				assert.Empty(t, errs.String(), "%s: %q", sh, c.args)
			} else {
				assert.Contains(t, errs.String(), c.errors, "%s: %q", sh, c.args)
			}
		}
	}
}

func TestTheKillerEndsWhatBelongsToACommandAndNothingElse(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("there is no /proc")
	}
	for _, sh := range shells(t) {
		t.Run(filepath.Base(sh), func(t *testing.T) {
			begin := func(mark, script string) (cmd *exec.Cmd, children []int) {
				cmd = exec.Command(sh, "-c", vercel.Runner, "sandglass", "", "sh", "-c", script)
				cmd.Env = append(os.Environ(), "SANDGLASS_EXEC="+mark)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, cmd.Start())
				in := bufio.NewScanner(out)
				for in.Scan() && in.Text() != "." {
					pid, err := strconv.Atoi(in.Text())
					require.NoError(t, err)
					children = append(children, pid)
				}
				return cmd, children
			}
			mark := "test-" + strconv.Itoa(os.Getpid()) + filepath.Base(sh)
			// One child in the background, one without its environment, and one that has also lost its parent.
			victim, children := begin(mark, `sleep 300 & echo $!; env -i sleep 300 & echo $!; (env -i sh -c 'sleep 300 & echo $!'); echo .; wait`)
			other, others := begin("other-"+mark, `sleep 300 & echo $!; echo .; wait`)
			t.Cleanup(func() {
				_ = syscall.Kill(-other.Process.Pid, syscall.SIGKILL)
				_ = syscall.Kill(-victim.Process.Pid, syscall.SIGKILL)
				_ = other.Wait()
			})
			require.Len(t, children, 3)

			said, err := exec.Command(sh, "-c", vercel.Killer, "sandglass-kill", "SANDGLASS_EXEC="+mark+"\x01").CombinedOutput()
			require.NoError(t, err)
			assert.Equal(t, "done\n", string(said), "nothing carries this mark")
			assert.True(t, alive(children[0]))

			said, err = exec.Command(sh, "-c", vercel.Killer, "sandglass-kill", "SANDGLASS_EXEC="+mark).CombinedOutput()
			require.NoError(t, err)
			assert.True(t, strings.HasSuffix(string(said), "done\n"), "%q", said)
			_ = victim.Wait()
			assert.Equal(t, -1, victim.ProcessState.ExitCode())
			for _, pid := range children {
				assert.Eventually(t, func() bool { return !alive(pid) }, time.Minute, 10*time.Millisecond, "process %d", pid)
			}
			assert.True(t, alive(others[0]), "another command goes on")
		})
	}
}

// alive reports whether a process runs; one that nobody has waited for does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
