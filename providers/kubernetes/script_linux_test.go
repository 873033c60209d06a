package kubernetes_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// shells are those of this machine: each is tried as the "sh" of a sandbox.
func shells(t *testing.T) (all [][]string) {
	t.Helper()
	for _, words := range [][]string{{"sh"}, {"dash"}, {"bash"}, {"busybox", "sh"}} {
		if path, err := exec.LookPath(words[0]); err == nil {
			all = append(all, append([]string{path}, words[1:]...))
		}
	}
	require.NotEmpty(t, all)
	return all
}

// runScript runs cmd as a sandbox would, with sent as all that arrives, if it is not nil.
func runScript(sh []string, cmd sandbox.Cmd, sent *string, stdin string) (code int, stdout, stderr string) {
	args := kubernetes.Command("mark4711")
	args[2] = strings.Replace(args[2], "exec sh", "exec "+strings.Join(sh, " "), 1)
	c := exec.Command(sh[0], append(append(sh[1:len(sh):len(sh)], args[1:]...), []string{}...)...)
	line := kubernetes.Program(cmd) + "\n"
	if sent != nil {
		line = *sent
	}
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(line+stdin), &out, &errs
	_ = c.Run()
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestAProgramRunsAsItIsOnEveryShell(t *testing.T) {
	dir := t.TempDir()
	odd := []string{
		"a b", "", "$HOME", "`id`", "$(id)", `"double"`, "it's", `back\slash`, `\n`, "line\nbreak", "\n", "tab\t", "*", "-n", "a=b",
		"ünïcödé 文件", "{{x}}", "%s%d", "<a&b>", "trailing ", " leading", "#hash", ";true", "~", "!x", "\r", "\x81\x87\xff", strings.Repeat("x", 100_000),
	}
	print := []string{"sh", "-c", `printf '[%s]' "$@"`, "sh"}
	for _, sh := range shells(t) {
		for _, c := range []struct {
			cmd    sandbox.Cmd
			stdin  string
			code   int
			stdout string
			stderr string // all of it; empty: anything
			quiet  bool   // nothing on stderr
		}{
			{cmd: sandbox.Cmd{Args: []string{"true"}}},
			{cmd: sandbox.Shell("exit 3"), code: 3},
			{cmd: sandbox.Cmd{Args: []string{"no-such-program-here"}}, code: 127},
			{cmd: sandbox.Cmd{Args: []string{"/no/such/program"}}, code: 127},
			{cmd: sandbox.Cmd{Args: []string{"/"}}, code: 126},
			{cmd: sandbox.Shell("kill -KILL $$"), code: 137, quiet: true},
			{cmd: sandbox.Shell("kill -TERM $$"), code: 143, quiet: true},
			{cmd: sandbox.Shell("exit 255"), code: 255, quiet: true},
			{cmd: sandbox.Shell("echo out; echo err >&2; [ ! -e /proc/$$/fd/3 ] || echo three"), stdout: "out\n", stderr: "err\n"},
			{cmd: sandbox.Cmd{Args: []string{"pwd"}, Dir: dir}, stdout: dir + "\n"},
			{cmd: sandbox.Cmd{Args: []string{"pwd"}, Dir: dir + "/missing"}, code: 126},
			{cmd: sandbox.Cmd{Args: append(print, odd...)}, stdout: "[" + strings.Join(odd, "][") + "]"},
			{cmd: sandbox.Cmd{Args: []string{"cat"}}, stdin: "not for it"},
			{cmd: sandbox.Cmd{Args: []string{"cat"}, Stdin: strings.NewReader("")}, stdin: "for it\nall \xff", stdout: "for it\nall \xff"},
			{
				cmd:    sandbox.Cmd{Args: []string{"sh", "-c", `printf '%s|%s|%s' "$A" "$PATH" "$UID"`}, Env: map[string]string{"A": "it's\n$B", "UID": "7", "odd name": "x"}},
				stdout: "it's\n$B|" + pathOf(t) + "|7",
			},
			{cmd: sandbox.Cmd{Args: []string{"env"}, Env: map[string]string{"odd.name": "x y"}}, stdout: "odd.name=x y\n"},
			{cmd: sandbox.Cmd{Args: []string{"no=such=program"}, Env: map[string]string{"A": "x"}}, code: 127},
		} {
			code, stdout, stderr := runScript(sh, c.cmd, nil, c.stdin)
			assert.Equal(t, c.code, code, "%s: %.100q: %s", sh, c.cmd.Args, stderr)
			if c.cmd.Args[0] == "env" {
				assert.Contains(t, stdout, c.stdout, "%s", sh)
				assert.Contains(t, stdout, "SANDGLASS_EXEC=mark4711\n", "%s: children inherit the mark", sh)
				assert.NotContains(t, stdout, "SANDGLASS_RUN", "%s", sh)
				continue
			}
			assert.Equal(t, c.stdout, stdout, "%s: %.100q: %s", sh, c.cmd.Args, stderr)
			if c.quiet || c.stderr != "" {
				assert.Equal(t, c.stderr, stderr, "%s: %.100q", sh, c.cmd.Args)
			}
			if c.code == 127 {
				assert.NotEmpty(t, stderr, "%s: %.100q", sh, c.cmd.Args)
			}
		}
	}
}

func pathOf(t *testing.T) string {
	out, err := exec.Command("sh", "-c", `printf %s "$PATH"`).Output()
	require.NoError(t, err)
	return string(out)
}

func TestAProgramThatBreaksOffDoesNotBegin(t *testing.T) {
	whole := kubernetes.Program(sandbox.Shell("echo begun; echo on"))
	require.NotContains(t, whole, "\n")
	for _, sh := range shells(t) {
		for n := range len(whole) + 1 {
			part := whole[:n]
			code, stdout, _ := runScript(sh, sandbox.Cmd{}, &part, "")
			assert.Equal(t, 126, code, "%s: cut at %d", sh, n)
			assert.Empty(t, stdout, "%s: cut at %d", sh, n)
		}
	}
}
