package e2b_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/e2b"
)

// The scripts that run and kill commands, on real processes of this machine. All that a command starts holds its
// standard output open, so that the output's end is the proof that nothing is left.
func TestTheKillerEndsAllOfACommandAndNothingElse(t *testing.T) {
	shells := [][]string{}
	for _, s := range [][]string{{"sh"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		if path, err := exec.LookPath(s[0]); err == nil {
			shells = append(shells, append([]string{path}, s[1:]...))
		}
	}
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		t.Skip("this machine has no setsid")
	}
	const ready = "; echo ready; wait; sleep 1000"
	for i, shell := range shells {
		for name, tt := range map[string]struct {
			script string
			path   bool // the image has setsid and grep
			noPID  bool // the command's start was not seen
		}{
			"children":                          {"sleep 1000 & sh -c 'sleep 1000 & sleep 1000' &" + ready[1:], true, false},
			"a child in its own session":        {"env -i " + setsid + " sleep 1000 &" + ready[1:], true, false},
			"an orphan":                         {"(sleep 1000 &)" + ready, true, false},
			"an orphan without setsid and grep": {"(sleep 1000 &)" + ready, false, false},
			"an orphan in its own session":      {"(" + setsid + " sleep 1000 &)" + ready, true, false},
			"one that ignores signals":          {"trap '' TERM HUP INT; sleep 1000 &" + ready[1:], true, false},
			"one that was not seen to start":    {"sleep 1000 & (sleep 1000 &)" + ready, true, true},
			"one that has ended":                {"(sleep 1000 &); echo ready", true, false},
		} {
			if i > 0 && name != "an orphan" {
				continue // what is the system's part is the same for every shell
			}
			t.Run(filepath.Base(shell[0])+" "+name, func(t *testing.T) {
				mark := "SANDGLASS_EXEC=" + strconv.Itoa(os.Getpid()) + strings.ToLower(strings.Map(letters, t.Name()))
				bin := t.TempDir()
				for _, tool := range []string{"sh", "sleep", "env"} {
					path, err := exec.LookPath(tool)
					require.NoError(t, err)
					require.NoError(t, os.Symlink(path, filepath.Join(bin, tool)))
				}
				path := bin
				if tt.path {
					path += ":" + filepath.Dir(setsid)
				}

				bystander := exec.Command("sleep", "1000")
				require.NoError(t, bystander.Start())
				defer func() { _ = bystander.Wait() }()
				defer func() { _ = bystander.Process.Kill() }()

				r, w, err := os.Pipe()
				require.NoError(t, err)
				defer func() { _ = r.Close() }()
				args := append(shell[1:len(shell):len(shell)], "-c", e2b.Runner, "sandglass", "sh", "-c", tt.script)
				cmd := exec.Command(shell[0], args...)
				cmd.Env = []string{"PATH=" + path, mark}
				cmd.Stdout, cmd.Stderr = w, os.Stderr
				require.NoError(t, cmd.Start())
				_ = w.Close()
				out := bufio.NewReader(r)
				line, err := out.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "ready\n", line)

				pid := strconv.Itoa(cmd.Process.Pid)
				if tt.noPID {
					pid = "0"
				}
				killer := exec.Command(shell[0], append(shell[1:len(shell):len(shell)], "-c", e2b.Killer, "sandglass-kill", mark, pid)...)
				killer.Env = []string{"PATH=" + path}
				said, err := killer.CombinedOutput()
				require.NoError(t, err, "%s", said)
				assert.Equal(t, "done\n", string(said))

				rest, err := io.ReadAll(out) // ends when nobody holds the other end any more
				require.NoError(t, err)
				assert.Empty(t, rest)
				_ = cmd.Wait()
				assert.NoError(t, bystander.Process.Signal(syscall.Signal(0)), "it was none of the command's")
			})
		}
	}
}

func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return -1
}
