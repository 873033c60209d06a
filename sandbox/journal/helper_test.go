package journal_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
)

const roleVar = "SANDGLASS_JOURNAL_ROLE"

// TestMain runs the tests, or plays a process in one of them: its role, folder and arguments stand in the environment.
func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(roleVar)); len(words) > 0 {
		play(words[0], words[1], words[2:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// play is a child process. It says what it did on standard output, a line each, and waits for lines on standard input.
func play(role, dir string, args []string) {
	check := func(err error) {
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
	ctx, in := context.Background(), bufio.NewReader(os.Stdin)
	wait := func() {
		if _, err := in.ReadString('\n'); err != nil {
			os.Exit(0) // the test is over
		}
	}
	if role == "wait" {
		fmt.Println("waits as", os.Getpid())
		wait()
		return
	}
	j, err := journal.Open(dir)
	check(err)
	switch role {
	case "own": // puts its arguments and holds them
		for _, nonce := range args {
			check(j.Put(ctx, entry(nonce, "sb-"+nonce)))
		}
		fmt.Println("holds as", os.Getpid())
		wait()
		execAgain()
	case "churn": // puts and removes until it is killed
		fmt.Println("ready")
		for i := range 1_000_000 {
			n := nonce(args[0] + letters(i))
			check(j.Put(ctx, entry(n, "")))
			check(j.Put(ctx, entry(n, "sb-"+n)))
			fmt.Println("put", n)
			if i%2 == 0 {
				check(j.Remove(ctx, n))
				fmt.Println("removed", n)
			}
		}
	case "replay": // takes orphans, and removes them if told so
		fmt.Println("ready as", os.Getpid())
		wait()
		for e, err := range j.Orphans(ctx) {
			if err != nil {
				fmt.Println("error", err)
				continue
			}
			fmt.Println("orphan", e.Mark.Nonce)
			if len(args) > 0 {
				check(j.Remove(ctx, e.Mark.Nonce))
			}
		}
		fmt.Println("done")
	}
}

// A child is a process with a role.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func spawn(t *testing.T, prepare func(*exec.Cmd), role, dir string, args ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	c := &child{t: t, cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), roleVar+"="+strings.Join(append([]string{role, dir}, args...), " "))
	c.cmd.Stderr = os.Stderr
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.out = bufio.NewReader(out)
	if prepare != nil {
		prepare(c.cmd)
	}
	if err := c.cmd.Start(); err != nil {
		if prepare != nil {
			t.Skip("no such process may be started here: ", err)
		}
		require.NoError(t, err)
	}
	t.Cleanup(c.kill)
	return c
}

// kill ends the child as the kernel does, without any last words, and waits for its end.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	}
}

func (c *child) say() {
	c.t.Helper()
	_, err := io.WriteString(c.in, "go on\n")
	require.NoError(c.t, err)
}

// line returns the next line of the child, "" at its end.
func (c *child) line() string {
	line, _ := c.out.ReadString('\n')
	return strings.TrimSpace(line)
}

func (c *child) expect(prefix string) string {
	c.t.Helper()
	line := c.line()
	require.True(c.t, strings.HasPrefix(line, prefix), "got %q, not %q", line, prefix)
	return strings.TrimSpace(strings.TrimPrefix(line, prefix))
}

// orphans returns what a replaying child saw.
func (c *child) orphans() (found []string) {
	c.t.Helper()
	for {
		line := c.line()
		if line == "done" {
			return found
		}
		nonce, ok := strings.CutPrefix(line, "orphan ")
		require.True(c.t, ok, "the child said %q", line)
		found = append(found, nonce)
	}
}

// nonce pads s to a nonce.
func nonce(s string) string { return s + strings.Repeat("2", 16-len(s)) }

// letters writes a number in the alphabet of nonces.
func letters(i int) string {
	return strings.Map(func(r rune) rune { return 'a' + r - '0' }, fmt.Sprintf("%06d", i))
}

func entry(nonce, id string) sandbox.Entry {
	return sandbox.Entry{
		Provider: "memory", ID: id,
		Mark: sandbox.Mark{
			Fleet: "ci", Owner: "host.1", Nonce: nonce,
			Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Lifetime: time.Hour,
		},
		Tags: map[string]string{"job": "7 <&>\x01 µ"},
	}
}

func open(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, j.Close()) })
	return j
}

// spool returns a folder for a journal.
func spool(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "spool")
}

func put(t *testing.T, j *journal.Journal, entries ...sandbox.Entry) {
	t.Helper()
	for _, e := range entries {
		require.NoError(t, j.Put(t.Context(), e))
	}
}

// orphans returns what j yields, which must be without error.
func orphans(t *testing.T, j *journal.Journal) (found []sandbox.Entry) {
	t.Helper()
	for e, err := range j.Orphans(t.Context()) {
		require.NoError(t, err)
		found = append(found, e)
	}
	return found
}

func faults(t *testing.T, j *journal.Journal) (errs []error) {
	t.Helper()
	for e, err := range j.Orphans(t.Context()) {
		require.Error(t, err, "%v", e)
		errs = append(errs, err)
	}
	return errs
}

func nonces(entries []sandbox.Entry) (list []string) {
	for _, e := range entries {
		list = append(list, e.Mark.Nonce)
	}
	return list
}

// names returns the files in a folder.
func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		list = append(list, f.Name())
	}
	return list
}

func pathOf(dir, nonce string) string { return filepath.Join(dir, nonce+".entry") }
