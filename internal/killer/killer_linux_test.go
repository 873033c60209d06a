package killer_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/killer"
)

// The script on real processes of this machine, in its shells.

// shells returns those that are there, each once, by name.
func shells(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, words := range [][]string{{"dash"}, {"bash", "--posix"}, {"busybox", "sh"}, {"sh"}} {
		path, err := exec.LookPath(words[0])
		if err != nil {
			continue
		}
		program, err := filepath.EvalSymlinks(path)
		require.NoError(t, err)
		if name := filepath.Base(program); all[name] == nil {
			all[name] = append([]string{path}, words[1:]...)
		}
	}
	require.NotEmpty(t, all)
	return all
}

// A command is to be killed. All that it starts holds its standard output open, so that the output's end is the proof that
// nothing is left.
type command struct {
	t    *testing.T
	cmd  *exec.Cmd
	pipe *os.File
	out  *bufio.Reader // of pipe
	mark string
}

// begin starts a command that says "ready". It leads a session unless attr says otherwise.
func begin(t *testing.T, attr *syscall.SysProcAttr, args ...string) *command {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	c := &command{
		t: t, cmd: exec.Command(args[0], args[1:]...), pipe: r, out: bufio.NewReader(r),
		mark: fmt.Sprintf("SANDGLASS_EXEC=%d.%x", os.Getpid(), t.Name()),
	}
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), c.mark, "LAST=1"} // not the first, which any grep finds
	c.cmd.Stdout, c.cmd.SysProcAttr = w, attr
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		_ = r.Close()
	})
	require.NoError(t, w.Close())
	require.NoError(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	line, err := c.out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return c
}

// bystander starts a process in the killer's own session, which is nobody's to kill.
func bystander(t *testing.T) *os.Process {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{"SANDGLASS_EXEC=another"}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process
}

// kill runs the killer with a PATH, and requires that it sees to the end of the whole command.
func (c *command) kill(sh []string, path string, args ...string) {
	c.t.Helper()
	cmd := exec.Command(sh[0], append(append(sh[1:len(sh):len(sh)], "-c", killer.Script(), "sandglass-kill"), args...)...)
	cmd.Env = []string{"PATH=" + path}
	c.done(cmd)
}

// done has a killer run.
func (c *command) done(cmd *exec.Cmd) {
	c.t.Helper()
	said, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "%s", said)
	require.Equal(c.t, "done\n", string(said))
	c.ended()
}

// ended requires that nothing is left of the command.
func (c *command) ended() {
	c.t.Helper()
	require.NoError(c.t, c.pipe.SetReadDeadline(time.Now().Add(time.Minute)))
	rest, err := io.ReadAll(c.out)
	require.NoError(c.t, err, "something of it lives")
	assert.Empty(c.t, rest)
}

func TestACommandIsKilledWithAllThatCameOfItAndNothingElse(t *testing.T) {
	session, inherited := &syscall.SysProcAttr{Setsid: true}, &syscall.SysProcAttr{}
	for name, tt := range map[string]struct {
		args  []string
		attr  *syscall.SysProcAttr
		byPID bool // nothing but its process id tells that it is the one
	}{
		"children": {
			args: []string{"sh", "-c", "sleep 1000 & sh -c 'sleep 1000 & sleep 1000' & echo ready; wait"}, attr: session,
		},
		"orphans, in its session and not": {
			args: []string{"sh", "-c", "(sleep 1000 &); (setsid sleep 1000 &); echo ready; sleep 1000"}, attr: session,
		},
		"children without its environment": {
			args: []string{"sh", "-c", "env -i setsid sleep 1000 & (env -i sleep 1000 &); echo ready; wait"}, attr: session,
		},
		"one that ignores signals": {
			args: []string{"sh", "-c", "trap '' TERM HUP INT; sleep 1000 & echo ready; wait"}, attr: session,
		},
		"one that forks on and on": {
			args: []string{"sh", "-c", "echo ready; while :; do (sleep 1000 &); sleep 0.05; done"}, attr: session,
		},
		"one that executes itself on and on": {
			args: []string{"sh", "-c", `echo ready; (setsid sh -c "$0" "$0" &)`, `exec sh -c "$0" "$0"`}, attr: session,
		},
		"one in the session of the agent": {
			args: []string{"sh", "-c", "sleep 1000 & (sleep 1000 &); echo ready; wait"}, attr: inherited,
		},
		"one that has ended": {
			args: []string{"sh", "-c", "(setsid sleep 1000 &); echo ready"}, attr: session,
		},
		"one without its environment": {
			args: []string{"env", "-i", "sh", "-c", "sleep 1000 & (sleep 1000 &); echo ready; wait"}, attr: session, byPID: true,
		},
		"one without its environment, in the session of the agent": {
			args: []string{"env", "-i", "sh", "-c", "echo ready; while :; do sleep 1000; done"}, attr: inherited, byPID: true,
		},
	} {
		for shell, sh := range shells(t) {
			for how, args := range map[string]func(c *command) []string{
				"by both":     func(c *command) []string { return []string{c.mark, strconv.Itoa(c.cmd.Process.Pid)} },
				"by its mark": func(c *command) []string { return []string{c.mark, "0"} },
			} {
				if tt.byPID && how != "by both" {
					continue
				}
				t.Run(name+"/"+shell+"/"+how, func(t *testing.T) {
					other, c := bystander(t), begin(t, tt.attr, tt.args...)
					c.kill(sh, os.Getenv("PATH"), args(c)...)
					assert.NoError(t, other.Signal(syscall.Signal(0)))
				})
			}
		}
	}
}

// A process whose first thread has ended is shown as a zombie without an environment, whatever its other threads do.
func TestAProcessLivesAfterItsFirstThread(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			c := begin(t, &syscall.SysProcAttr{Setsid: true}, "sh", "-c", `(CHILD=headless setsid "$0" &)`, self)
			require.NoError(t, c.cmd.Wait())
			c.kill(sh, os.Getenv("PATH"), c.mark)
		})
	}
}

// headless ends the first thread of this process, which init runs in, once another has found that to be so.
func headless() {
	debug.SetGCPercent(-1) // which would wait for the first thread
	go func() {
		stat := fmt.Sprintf("/proc/%d/stat", os.Getpid())
		for {
			if text, _ := os.ReadFile(stat); strings.Contains(string(text), ") Z ") {
				fmt.Println("ready")
				time.Sleep(time.Hour)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

func init() {
	if os.Getenv("CHILD") == "headless" {
		headless()
	}
}

func TestNothingIsKilledWhereNothingCarriesTheMark(t *testing.T) {
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			gate := filepath.Join(t.TempDir(), "gate")
			require.NoError(t, syscall.Mkfifo(gate, 0o600))
			c := begin(t, &syscall.SysProcAttr{Setsid: true}, "sh", "-c", `echo ready; read line <"$0"; echo lives`, gate)
			said, err := exec.Command(sh[0], append(sh[1:len(sh):len(sh)], "-c", killer.Script(), "sandglass-kill", c.mark+"\x01")...).Output()
			require.NoError(t, err)
			assert.Equal(t, "done\n", string(said))
			require.NoError(t, os.WriteFile(gate, []byte("go on\n"), 0)) // waits for the reader
			rest, err := io.ReadAll(c.out)
			require.NoError(t, err)
			assert.Equal(t, "lives\n", string(rest))
		})
	}
}

func TestAGrepIsBelievedOnlyIfItFinds(t *testing.T) {
	system, err := exec.LookPath("grep")
	require.NoError(t, err)
	for grep, script := range map[string]string{
		"none":                   "",
		"the system's":           "exec " + system + ` "$@"`,
		"busybox's":              `exec busybox grep "$@"`,
		"one that finds nothing": "exit 1",
		"one that fails":         "echo usage; exit 2",
		"one that is killed":     system + ` "$@" | head -c 8; kill -KILL $$`,
		"one that cannot be run": "#!/no/such/program",
	} {
		if _, err := exec.LookPath("busybox"); err != nil && grep == "busybox's" {
			continue
		}
		for shell, sh := range shells(t) {
			t.Run(grep+"/"+shell, func(t *testing.T) {
				bin := t.TempDir()
				asked := filepath.Join(bin, "asked")
				if script != "" {
					text := "#!/bin/sh\n: >" + asked + "\nPATH=" + os.Getenv("PATH") + "\n" + script + "\n"
					if strings.HasPrefix(script, "#!") {
						text = script + "\n"
					}
					require.NoError(t, os.WriteFile(filepath.Join(bin, "grep"), []byte(text), 0o755))
				}
				c := begin(t, &syscall.SysProcAttr{Setsid: true}, "sh", "-c", "(setsid sleep 1000 &); echo ready; wait")
				c.kill(sh, bin, c.mark)
				if grep == "the system's" && shell != "busybox" { // which may have its own
					_, err := os.Stat(asked)
					assert.Equal(t, shell == "bash", os.IsNotExist(err), "whoever reads byte by byte takes seconds without it: %v", err)
				}
			})
		}
	}
}

func TestWhereNoProcessCanBeMadeACommandIsKilledAllTheSame(t *testing.T) {
	as := &syscall.SysProcAttr{Setsid: true}
	if os.Getuid() == 0 { // whom no limit concerns
		as.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	limited := func(args ...string) *exec.Cmd { // dash and busybox call the limit by another letter than bash
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -p 0 2>/dev/null || ulimit -u 0; exec "$@"`, "limited"}, args...)...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{"PATH=" + os.Getenv("PATH")}, "/", as
		return cmd
	}
	require.NoError(t, limited("sh", "-c", ":").Run())
	require.Error(t, limited("sh", "-c", "(:)").Run(), "the limit does not hold")
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			c := begin(t, as, "sh", "-c", "(setsid sleep 1000 &); sleep 1000 & echo ready; wait")
			c.done(limited(append(sh[:len(sh):len(sh)], "-c", killer.Script(), "sandglass-kill", c.mark)...))
		})
	}
}
