package boat_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
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

	"github.com/sandglass-dev/sandglass/providers/boat"
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

// stream is a script's output as the service sends it.
func stream(stdout []byte) io.Reader {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	_ = enc.Encode(map[string]any{"type": "started"})
	for len(stdout) > 0 {
		n := min(1000, len(stdout))
		_ = enc.Encode(map[string]any{"type": "stdout", "data": string(stdout[:n])})
		stdout = stdout[n:]
	}
	_ = enc.Encode(map[string]any{"type": "exit", "exitCode": 0, "success": true, "timedOut": false})
	return &b
}

func TestWhatACommandLeavesIsToldByteForByte(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, os.WriteFile(home+"/.sandglass", []byte(boat.Notes(map[string]string{"S": "it's\n$HOME", "A": "spec"}, []int{1}, false)), 0o600))
	binary := make([]byte, 0, 512)
	for i := range 256 {
		binary = append(binary, byte(i), byte(255-i))
	}
	require.NoError(t, os.WriteFile(home+"/binary", binary, 0o600))
	large := bytes.Repeat([]byte("0123456789abcde\n"), 60_000)
	require.NoError(t, os.WriteFile(home+"/large", large, 0o600))
	for _, sh := range shells(t) {
		for i, c := range []struct {
			dir    string
			args   []string
			code   int
			out    string
			errors string // a part of what is to be there; empty: nothing
		}{
			{args: []string{"true"}},
			{args: []string{"sh", "-c", "exit 3"}, code: 3},
			{args: []string{"sh", "-c", "kill -KILL $$"}, code: 137},
			{args: []string{"sh", "-c", "kill -TERM $$"}, code: 143},
			{args: []string{"no-such-program-here"}, code: 127, errors: "no-such-program-here"},
			{args: []string{"/"}, code: 126, errors: "/"},
			{args: []string{"echo", `a\nb`}, out: "a\\nb\n"},
			{args: []string{"sh", "-c", `printf '[%s]' "$@"`, "sh", "", "a b", "$x", "-n"}, out: "[][a b][$x][-n]"},
			{dir: home, args: []string{"pwd"}, out: home + "\n"},
			{dir: home + "/missing", args: []string{"pwd"}, code: 126},
			{args: []string{"cat"}},
			{args: []string{"sh", "-c", "echo out; echo err >&2"}, out: "out\n", errors: "err\n"},
			{args: []string{"cat", home + "/binary"}, out: string(binary)},
			{args: []string{"cat", home + "/large"}, out: string(large)},
			{args: []string{"sh", "-c", `printf '%s|%s|%s' "$S" "$A" "$B"`}, out: "it's\n$HOME|cmd|x=y"},
			{args: []string{"sh", "-c", "sleep 0.3; echo late"}, out: "late\n"},
		} {
			folder := filepath.Join(t.TempDir(), "run"+strconv.Itoa(i))
			words := append([]string{folder, c.dir, "", "A=cmd", "B=x=y"}, c.args...)
			run := exec.Command(sh, append([]string{"-c", boat.Runner, "sandglass"}, words...)...)
			run.Env = append(os.Environ(), "HOME="+home, "SANDGLASS_EXEC=x")
			require.NoError(t, run.Start())
			require.Eventually(t, func() bool { // or the follower may take it for one that is not there
				_, err := os.Stat(folder)
				return err == nil
			}, time.Minute, time.Millisecond)
			follow := exec.Command(sh, "-c", boat.Follower, "sandglass-follow", folder, "0", "0")
			told, err := follow.Output()
			require.NoError(t, err)
			require.NoError(t, run.Wait())
			got, errs := boat.Tell(stream(told))
			require.NoError(t, errs[0])
			assert.True(t, got.Exited)
			assert.Equal(t, c.code, got.Code, "%s: %q", sh, c.args)
			assert.True(t, c.out == got.Stdout, "%s: %q: %.300q", sh, c.args, got.Stdout)
			if c.errors == "" && c.code != 126 {
				assert.Empty(t, got.Stderr, "%s: %q", sh, c.args)
			} else {
				assert.Contains(t, got.Stderr, c.errors, "%s: %q", sh, c.args)
			}
			info, err := os.Stat(folder)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())

			// Broken off anywhere and asked again from there, it is the same.
			cut := len(told) / 2
			first, _ := boat.Tell(stream(told[:cut]))
			again, err := exec.Command(sh, "-c", boat.Follower, "sandglass-follow", folder,
				strconv.FormatInt(first.Taken[0], 10), strconv.FormatInt(first.Taken[1], 10)).Output()
			require.NoError(t, err)
			both, errs := boat.Tell(stream(told[:cut]), stream(again))
			require.NoError(t, errs[1])
			assert.True(t, got.Stdout == both.Stdout && got.Stderr == both.Stderr && got.Code == both.Code, "%s: %q", sh, c.args)
		}
	}
}

func TestAFolderThatIsNotThereIsToldAsSuch(t *testing.T) {
	told, err := exec.Command("sh", "-c", boat.Follower, "sandglass-follow", t.TempDir()+"/missing", "0", "0").Output()
	require.NoError(t, err)
	assert.Equal(t, "G\n", string(told))
}

func TestWordsThatAreNoUTF8ArriveAsTheyAre(t *testing.T) {
	for _, sh := range shells(t) {
		line := boat.Script(`printf '[%s]' "$@"`, "name", "a\xff\xfeb", "it's\n$x", "")
		_, err := json.Marshal(line)
		require.NoError(t, err)
		out, err := exec.Command(sh, "-c", "export X=1; "+line).Output()
		require.NoError(t, err)
		assert.Equal(t, "[a\xff\xfeb][it's\n$x][]", string(out), sh)
	}
}

func TestPiecesOfAFileArePutTogether(t *testing.T) {
	dir := t.TempDir()
	for _, sh := range shells(t) {
		for _, name := range []string{"file", "-rf", "a b 'c' $d\n", "deep/er/file"} {
			target := dir + "/" + name
			for i, text := range []string{"one", "two"} {
				part := dir + "/part"
				require.NoError(t, os.WriteFile(part, []byte(text), 0o600))
				mode := []string{"new", "more"}[i]
				require.NoError(t, exec.Command(sh, "-c", boat.Placer, "sandglass-place", part, target, mode).Run())
				assert.NoFileExists(t, part)
			}
			got, err := os.ReadFile(target)
			require.NoError(t, err)
			assert.Equal(t, "onetwo", string(got))
			out, err := exec.Command(sh, "-c", boat.Fetcher, "sandglass-fetch", target).Output()
			require.NoError(t, err)
			assert.Equal(t, base64.StdEncoding.EncodeToString(got)+"\n.\n", string(out))
		}
		for _, c := range []struct {
			args []string
			code int
		}{
			{[]string{boat.Placer, "x", "/nowhere/part", dir, "new"}, 45},
			{[]string{boat.Placer, "x", "/nowhere/part", dir + "/x", "new"}, 1},
			{[]string{boat.Placer, "x", dir + "/file", dir + "/file/below", "new"}, 1},
			{[]string{boat.Fetcher, "x", dir}, 45},
			{[]string{boat.Fetcher, "x", dir + "/missing"}, 44},
		} {
			cmd := exec.Command(sh, append([]string{"-c"}, c.args...)...)
			_ = cmd.Run()
			assert.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%s: %q", sh, c.args[1:])
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
				folder := filepath.Join(t.TempDir(), "run")
				cmd = exec.Command(sh, "-c", boat.Runner, "sandglass", folder, "", "", "sh", "-c", script)
				cmd.Env = append(os.Environ(), "SANDGLASS_EXEC="+mark)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				require.NoError(t, cmd.Start())
				require.Eventually(t, func() bool {
					out, _ := os.ReadFile(folder + "/out")
					return strings.HasSuffix(string(out), ".\n")
				}, time.Minute, 10*time.Millisecond)
				out, err := os.Open(folder + "/out")
				require.NoError(t, err)
				defer out.Close()
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
			said, err := exec.Command(sh, "-c", boat.Killer, "sandglass-kill", "SANDGLASS_EXEC="+mark).CombinedOutput()
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
