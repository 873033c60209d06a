package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A ci is .ci/run in a folder of its own, where every program that would change the machine only notes how it was called.
type ci struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
	out bytes.Buffer
}

// start starts it. Scripts go before the programs that do nothing, and may use $state, a folder.
func start(t *testing.T, scripts map[string]string, env ...string) *ci {
	t.Helper()
	c := &ci{t: t, dir: t.TempDir()}
	bin, state := filepath.Join(c.dir, "bin"), filepath.Join(c.dir, "state")
	for _, dir := range []string{bin, state, filepath.Join(c.dir, ".ci")} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	script, err := os.ReadFile("../../.ci/run")
	require.NoError(t, err)
	c.write(".ci/run", string(script))
	c.write(".ci/image", "#!/bin/sh\n")
	for _, name := range []string{"bash", "awk", "cat", "chmod", "dirname", "env", "grep", "mktemp", "mv", "rm", "seq", "setpriv", "sleep", "sort", "tail", "umount", "uname", "xargs"} {
		if path, err := exec.LookPath(name); err == nil {
			require.NoError(t, os.Symlink(path, filepath.Join(bin, name)))
		}
	}
	bodies := map[string]string{
		"node":    "echo 22",
		"dockerd": `[ "$1" = --version ] || { echo $$ >$state/engine; exec sleep 600; }`,
	}
	for _, name := range []string{
		"apt-get", "busybox", "cgroupfs-mount", "chromium", "containerd", "ctr", "curl", "docker", "fish", "gcc", "git", "go", "ip", "make",
		"mountpoint", "npm", "ps", "runc", "systemd-analyze", "zsh",
	} {
		bodies[name] = ""
	}
	for name, body := range scripts {
		bodies[name] = body
	}
	for name, body := range bodies {
		if body != "missing" {
			c.write("bin/"+name, fmt.Sprintf("#!/bin/sh\nstate=%s\necho \"%s $*\" >>$state/calls\n%s\n", state, name, body))
		}
	}
	c.cmd = exec.Command(filepath.Join(bin, "bash"), filepath.Join(c.dir, ".ci", "run"))
	c.cmd.Env = append([]string{"PATH=" + bin, "HOME=" + c.dir}, env...)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	c.cmd.WaitDelay = time.Minute // else who is left, and has our standard output, would be waited for
	require.NoError(t, c.cmd.Start())
	return c
}

func (c *ci) write(name, text string) {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o755))
}

// noted returns what a program has written, once it has.
func (c *ci) noted(name string) string {
	c.t.Helper()
	var text []byte
	require.Eventually(c.t, func() bool {
		var err error
		text, err = os.ReadFile(filepath.Join(c.dir, "state", name))
		return err == nil && bytes.HasSuffix(text, []byte("\n"))
	}, time.Minute, 20*time.Millisecond, name)
	return strings.TrimSpace(string(text))
}

// code waits for the end and returns the exit code. The run's own folder and its bridge are gone then.
func (c *ci) code() int {
	c.t.Helper()
	err := c.cmd.Wait()
	require.NotNil(c.t, c.cmd.ProcessState, err)
	c.t.Logf("%s", &c.out)
	calls := c.noted("calls")
	if strings.Contains(calls, "ip link add") {
		assert.Contains(c.t, calls, fmt.Sprintf("ip link delete sg%d", c.cmd.Process.Pid))
	}
	if m := regexp.MustCompile(`--data-root (\S+)/data`).FindStringSubmatch(calls); m != nil {
		assert.NoDirExists(c.t, m[1])
	}
	return c.cmd.ProcessState.ExitCode()
}

// alive reports whether a process that a program has noted runs.
func (c *ci) alive(name string) bool {
	c.t.Helper()
	pid, err := strconv.Atoi(c.noted(name))
	require.NoError(c.t, err)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// ignored returns which signals a process ignores: one that it is started with stays so for all that it starts.
func ignored(t *testing.T, status string) uint64 {
	t.Helper()
	_, text, _ := strings.Cut(status, "SigIgn:")
	mask, err := strconv.ParseUint(strings.Fields(text)[0], 16, 64)
	require.NoError(t, err)
	return mask
}

// hanging is a make whose step does not end, and which has a child that would outlive it.
func hanging(step string) map[string]string {
	return map[string]string{"make": `
		[ "$1" = ` + step + ` ] || exit 0
		cat /proc/$$/status >$state/status
		sleep 600 &
		echo $! >$state/child
		wait`}
}

func TestCIThatIsToldToEndDoesNotWaitForItsStep(t *testing.T) {
	for _, step := range []string{"sdks", "kube", "lint", "test", "crash"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			c := start(t, hanging(step))
			require.True(t, c.alive("child"))
			if step != "sdks" {
				require.True(t, c.alive("engine"))
			}
			require.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
			assert.Equal(t, 143, c.code())
			assert.False(t, c.alive("child"), "nor does it leave any of it")
			if step != "sdks" {
				assert.False(t, c.alive("engine"))
			}
			own, err := os.ReadFile("/proc/self/status")
			require.NoError(t, err)
			const sigint = 1 << (syscall.SIGINT - 1)
			assert.Equal(t, ignored(t, string(own))&sigint, ignored(t, c.noted("status"))&sigint, "tests have shells that trap SIGINT")
		})
	}
}

func TestCIThatIsKilledTakesItsEngineWithIt(t *testing.T) {
	if _, err := exec.LookPath("setpriv"); err != nil {
		require.NotEqual(t, "1", os.Getenv("SANDGLASS_NO_SKIP"), "there is no setpriv")
		t.Skip("there is no setpriv")
	}
	c := start(t, hanging("kube"))
	require.True(t, c.alive("child"))
	require.True(t, c.alive("engine"))
	pid, err := strconv.Atoi(c.noted("child"))
	require.NoError(t, err)
	require.NoError(t, c.cmd.Process.Kill())
	assert.Eventually(t, func() bool { return !c.alive("engine") }, time.Minute, 20*time.Millisecond)
	_ = syscall.Kill(pid, syscall.SIGKILL)
	_ = c.cmd.Wait()
	m := regexp.MustCompile(`/tmp/sandglass-ci\.\w+`).FindString(c.noted("calls"))
	assert.NoError(t, os.RemoveAll(m))
}

func TestCIWhoseBridgeCannotBeUsedLeavesNone(t *testing.T) {
	c := start(t, map[string]string{"ip": `[ "$1" != address ]`})
	assert.Equal(t, 1, c.code())
	assert.Contains(t, c.noted("calls"), "ip link delete")
}

func TestCIRunsEveryStepAndTakesNoAddressOfAnyNetwork(t *testing.T) {
	c := start(t, map[string]string{"make": "echo \"$1 kube=$SANDGLASS_KUBE\" >>$state/steps"}, "SANDGLASS_KUBE=off")
	assert.Equal(t, 0, c.code())
	assert.Equal(t, "sdks kube=\nkube kube=\nlint kube=\ntest kube=\ncrash kube=", c.noted("steps"), "what is switched off elsewhere is tested here")
	assert.Regexp(t, `ip address add 198\.1[89]\.\d+\.1/24 dev sg`, c.noted("calls"), "of the range that is for benchmarks")
	assert.NotContains(t, c.noted("calls"), "docker-cli")
}

func TestCIFailsWithTheStepThatFails(t *testing.T) {
	c := start(t, map[string]string{"make": `echo $1 >>$state/steps; [ "$1" != lint ] || exit 7`})
	assert.Equal(t, 7, c.code())
	assert.Equal(t, "sdks\nkube\nlint", c.noted("steps"))
}

func TestCIInstallsTheDockerClientWhereTheEngineComesWithoutIt(t *testing.T) {
	c := start(t, map[string]string{
		"docker": "missing",
		"apt-get": `case "$*" in *docker-cli*)
			printf '#!/bin/sh\n' >$state/../bin/docker
			chmod 755 $state/../bin/docker ;; esac`,
	})
	assert.Equal(t, 0, c.code())
	assert.Regexp(t, `(?s)apt-get .*install .*docker\.io.*apt-get .*install .*docker-cli\n`, c.noted("calls"))
}
