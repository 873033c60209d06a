package killer_test

import (
	"fmt"
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

	"github.com/sandglass-dev/sandglass/internal/killer"
)

// What the killer sees in /proc at moments that come by chance only: it is shown other files there, in a mount namespace of
// its own.

// A view has files by the place in /proc where they are shown.
type view struct {
	files map[string]string
	blind bool // the killer's own stat tells neither memory nor code
}

// killer is one that sees v.
func (v view) killer(t *testing.T, sh []string, mark string) *exec.Cmd {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil || os.Getuid() != 0 {
		require.NotEqual(t, "1", os.Getenv("SANDGLASS_NO_SKIP"), "needs unshare, and root")
		t.Skip("a mount namespace needs unshare, and root")
	}
	const script = `
		while [ "$1" != -- ]; do mount --bind "$1" "/proc/$2" || exit; shift 2; done
		case $2 in ?*) sed 's/[^ ]*/0/23; s/[^ ]*/0/26' /proc/$$/stat >"$2" && mount --bind "$2" /proc/$$/stat || exit ;; esac
		shift 2
		exec "$@"`
	args := []string{"--mount", "sh", "-c", script, "view"}
	for at, file := range v.files {
		args = append(args, file, at)
	}
	own := ""
	if v.blind {
		own = filepath.Join(t.TempDir(), "own")
	}
	args = append(append(append(args, "--", own), sh...), "-c", killer.Script(), "sandglass-kill", mark)
	return exec.Command(unshare, args...)
}

// orphan starts a command in a session that is nobody's, so that nothing but its environment tells whose it is.
func orphan(t *testing.T) (c *command, pid string) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "pid")
	c = begin(t, &syscall.SysProcAttr{Setsid: true}, "sh", "-c", `(setsid sh -c 'echo -n $$ >"$0"; echo ready; exec sleep 1000' "$0" &)`, at)
	require.NoError(t, c.cmd.Wait())
	text, err := os.ReadFile(at)
	require.NoError(t, err)
	return c, string(text)
}

// stat is what the kernel tells of a process, but for the size of its memory and where its code begins.
func stat(t *testing.T, pid, size, code string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	require.NoError(t, err)
	before, after, found := strings.Cut(string(text), ") ")
	require.True(t, found)
	fields := strings.Fields(after)
	fields[20], fields[23] = size, code
	return before + ") " + strings.Join(fields, " ") + "\n"
}

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// serve has what is read from a pipe's name made anew by each for whoever opens it, until the test ends.
func serve(t *testing.T, each func() string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			w, err := os.OpenFile(name, os.O_WRONLY, 0) // waits for a reader
			select {
			case <-stop:
				_ = w.Close()
				return
			default:
			}
			if assert.NoError(t, err) {
				_, _ = w.WriteString(each())
				_ = w.Close()
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		r, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		require.NoError(t, err)
		<-over
		require.NoError(t, r.Close())
	})
	return name
}

// Who executes another program has neither environment nor code meanwhile, and a machine that does much else may let it
// wait there for as long as it likes.
func TestNothingIsSaidToBeDoneWhileAProcessIsAboutToExecuteAnotherProgram(t *testing.T) {
	for name, tt := range map[string]struct {
		size, code string // as its stat tells
		blind      bool
		done       bool
	}{
		"it has memory and no code":         {size: "4096", code: "0"},
		"it has no memory, as the kernel's": {size: "0", code: "0", done: true},
		"it may not be read":                {size: "4096", code: "1", done: true},
		"the kernel tells no code's place":  {size: "4096", code: "0", blind: true, done: true},
	} {
		for shell, sh := range shells(t) {
			t.Run(name+"/"+shell, func(t *testing.T) {
				c, pid := orphan(t)
				v := view{blind: tt.blind, files: map[string]string{
					pid + "/environ": "/dev/null", pid + "/stat": write(t, stat(t, pid, tt.size, tt.code)),
				}}
				said, err := v.killer(t, sh, c.mark).CombinedOutput()
				require.NoError(t, err, "%s", said)
				assert.Equal(t, tt.done, string(said) == "done\n", "%q", said)
				c.kill(sh, os.Getenv("PATH"), c.mark) // now it shows what it has
			})
		}
	}
}

func TestAProcessIsFoundWhereTheKernelTellsNothingOfMemory(t *testing.T) {
	for shell, sh := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			c, pid := orphan(t)
			v := view{blind: true, files: map[string]string{pid + "/stat": write(t, stat(t, pid, "0", "0"))}}
			said, err := v.killer(t, sh, c.mark).CombinedOutput()
			require.NoError(t, err, "%s", said) // it goes on to be shown as it was, and is never seen to end
			c.ended()
		})
	}
}

// A program is executed whenever somebody is about to read the environment, and shows none.
func TestThatThereIsNoMarkIsNotBelievedOfAnotherProgramThanWasThereBefore(t *testing.T) {
	for shell, sh := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			c, pid := orphan(t)
			const first = "409600000"
			code, text := 409600000, stat(t, pid, "4096", first)
			shown := write(t, text)
			again := func() string {
				code += 4096 // to one of as many digits, so that nobody reads a part of it
				if f, err := os.OpenFile(shown, os.O_WRONLY, 0); assert.NoError(t, err) {
					_, err = f.WriteString(strings.Replace(text, first, strconv.Itoa(code), 1))
					assert.NoError(t, err)
					assert.NoError(t, f.Close())
				}
				return ""
			}
			v := view{files: map[string]string{pid + "/environ": serve(t, again), pid + "/stat": shown}}
			said, err := v.killer(t, sh, c.mark).CombinedOutput()
			require.NoError(t, err, "%s", said)
			assert.Empty(t, string(said))
			c.kill(sh, os.Getenv("PATH"), c.mark)
		})
	}
}

// While the killer looks at another process, each that it has listed of the command leaves a child and ends, twice.
func TestAChildIsFoundThatWasNotThereWhenTheProcessesWereListed(t *testing.T) {
	const life = `echo $$; read line <"$1"; setsid sh -c "$0" "$0" "$1" &`
	for shell, sh := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			gate := filepath.Join(t.TempDir(), "gate")
			require.NoError(t, syscall.Mkfifo(gate, 0o600))
			other := first(t)
			c := begin(t, &syscall.SysProcAttr{Setsid: true}, "sh", "-c", `echo ready; exec sh -c "$0" "$0" "$1"`, life, gate)
			next := func() int {
				line, err := c.out.ReadString('\n')
				assert.NoError(t, err)
				pid, err := strconv.Atoi(strings.TrimSpace(line))
				assert.NoError(t, err)
				return pid
			}
			pid, steps := next(), 0
			place := strconv.Itoa(other.Pid)
			look := func() string {
				text, err := os.ReadFile("/proc/" + place + "/stat")
				assert.NoError(t, err)
				if steps++; steps <= 2 {
					assert.NoError(t, os.WriteFile(gate, []byte("go on\n"), 0))
					ended := pid
					pid = next()
					assert.Greater(t, strconv.Itoa(pid), place)
					for alive(ended) {
						time.Sleep(time.Millisecond)
					}
				}
				return string(text)
			}
			v := view{files: map[string]string{place + "/stat": serve(t, look)}}
			c.done(v.killer(t, sh, c.mark))
			assert.GreaterOrEqual(t, steps, 2)
			assert.NoError(t, other.Signal(syscall.Signal(0)))
		})
	}
}

// first starts a process that is listed before all that are started soon after: they are listed by the letters of their
// numbers.
func first(t *testing.T) *os.Process {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/kernel/pid_max")
	require.NoError(t, err)
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	for {
		p := bystander(t)
		if soon := p.Pid + 1000; soon < most && len(strconv.Itoa(soon)) == len(strconv.Itoa(p.Pid)) {
			return p
		}
		require.NoError(t, p.Kill())
	}
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}
