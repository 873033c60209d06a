package docker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestExecRunsACommandAsAsked(t *testing.T) {
	t.Parallel()
	p := engine(t)
	req := order(10 * time.Minute)
	req.Spec.Env = map[string]string{"A": "spec", "B": "spec"}
	sb := p.Open(create(t, p, req))
	for name, c := range map[string]struct {
		cmd      sandbox.Cmd
		code     int
		out, err string
	}{
		"separate streams":     {cmd: sandbox.Shell("echo out; echo err >&2"), out: "out\n", err: "err\n"},
		"exit code":            {cmd: sandbox.Shell("exit 3"), code: 3},
		"signal":               {cmd: sandbox.Shell("kill -KILL $$"), code: 137},
		"no such program":      {cmd: sandbox.Cmd{Args: []string{"nosuch"}}, code: 127, err: "sandglass: exec: line 0: nosuch: not found\n"},
		"not executable":       {cmd: sandbox.Cmd{Args: []string{"/etc"}}, code: 126, err: "sandglass: exec: line 0: /etc: Permission denied\n"},
		"arguments":            {cmd: sandbox.Cmd{Args: []string{"printf", "%s|", "a b", "", "$HOME", "'", "*", "-n"}}, out: "a b||$HOME|'|*|-n|"},
		"environment":          {cmd: sandbox.Cmd{Args: []string{"sh", "-c", "echo $A $B $C"}, Env: map[string]string{"B": "cmd", "C": "cmd"}}, out: "spec cmd cmd\n"},
		"odd names":            {cmd: sandbox.Cmd{Args: []string{"env"}, Env: map[string]string{"x-odd": "1 2"}}, out: "*x-odd=1 2\n"},
		"folder":               {cmd: sandbox.Cmd{Args: []string{"pwd"}, Dir: "/bin"}, out: "/bin\n"},
		"no such folder":       {cmd: sandbox.Cmd{Args: []string{"pwd"}, Dir: "/nosuch"}, code: 126, err: "sandglass: cd: line 0: can't cd to /nosuch: No such file or directory\n"},
		"user":                 {cmd: sandbox.Cmd{Args: []string{"id", "-u"}, User: "1234:56"}, out: "1234\n"},
		"image's user":         {cmd: sandbox.Cmd{Args: []string{"id", "-u"}}, out: "0\n"},
		"stdin":                {cmd: sandbox.Cmd{Args: []string{"cat"}, Stdin: strings.NewReader("in\x00\xff")}, out: "in\x00\xff"},
		"no stdin":             {cmd: sandbox.Cmd{Args: []string{"cat"}}},
		"endless stdin unread": {cmd: sandbox.Cmd{Args: []string{"echo", "x"}, Stdin: zeros{}}, out: "x\n"},
		"first line like ours": {cmd: sandbox.Shell("echo 7; echo 8"), out: "7\n8\n"},
		"no output":            {cmd: sandbox.Shell("true")},
		"no output any more":   {cmd: sandbox.Shell("exec >&-; sleep 0.3; echo err >&2; exit 6"), code: 6, err: "err\n"},
		"our variable":         {cmd: sandbox.Shell("echo ${REPLY-unset} ${line-unset}"), out: "unset unset\n"},
		"output closed early":  {cmd: sandbox.Shell("exec >/dev/null 2>&1; sleep 0.3; exit 5"), code: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := sb.Exec(t.Context(), c.cmd)
			require.NoError(t, err)
			assert.Equal(t, c.code, r.ExitCode)
			if lines, ok := strings.CutPrefix(c.out, "*"); ok {
				for _, line := range strings.Split(lines, "*") {
					assert.Contains(t, string(r.Stdout), line)
				}
			} else {
				assert.Equal(t, c.out, string(r.Stdout))
			}
			assert.Equal(t, c.err, string(r.Stderr))
			assert.False(t, r.TimedOut || r.Truncated || r.Merged)
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestOddNamesOfTheSpecReachEveryCommand(t *testing.T) {
	t.Parallel()
	p := engine(t)
	req := order(10 * time.Minute)
	req.Spec.Env = map[string]string{"odd.name": "1 2"}
	sb := p.Open(create(t, p, req))
	assert.Contains(t, run(t, sb, sandbox.Cmd{Args: []string{"env"}}), "odd.name=1 2\n")
	r, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"nosuch"}})
	require.NoError(t, err)
	assert.Equal(t, 127, r.ExitCode)
}

func TestTheImagesUserRunsCommandsAndOwnsUploads(t *testing.T) {
	t.Parallel()
	p := engine(t)
	ref := imports(t, "user", derived(t, map[string]string{
		"etc/passwd": "root:x:0:0::/:/bin/sh\napp:x:1001:1002::/home:/bin/sh\n", "etc/group": "root:x:0:\nstaff:x:1003:\n",
	}), "USER app:staff")
	req := order(10 * time.Minute)
	req.Spec.Image = ref
	sb := p.Open(create(t, p, req))
	assert.Equal(t, "uid=1001(app) gid=1003(staff) groups=1003(staff)", strings.TrimSpace(run(t, sb, sandbox.Cmd{Args: []string{"id"}})))
	require.NoError(t, sb.Upload(t.Context(), "/deep/er/file", strings.NewReader("x")))
	assert.Equal(t, "1001:1003 1001:1003 1001:1003 644\n",
		run(t, sb, sandbox.Shell("echo $(stat -c %u:%g /deep /deep/er /deep/er/file) $(stat -c %a /deep/er/file)")))
	r, err := sb.Exec(t.Context(), sandbox.Shell("kill -KILL 1; echo x >/proc/1/fd/0; cat /proc/1/environ"))
	require.NoError(t, err)
	assert.NotZero(t, r.ExitCode)
	assert.Empty(t, r.Stdout)
}

func TestOutputArrivesBeforeTheEndAndTheLastMebibyteIsKept(t *testing.T) {
	t.Parallel()
	p := engine(t)
	sb := p.Open(create(t, p, order(10*time.Minute)))
	first, w := io.Pipe()
	got := make(chan string, 1)
	go func() {
		b := make([]byte, 6)
		_, _ = io.ReadFull(first, b)
		got <- string(b)
		_, _ = io.Copy(io.Discard, first)
	}()
	in, release := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sh", "-c", "echo early; read x; echo late"}, Stdin: in, Stdout: w})
		done <- err
	}()
	require.Equal(t, "early\n", <-got)
	_, err := io.WriteString(release, "go\n")
	require.NoError(t, err)
	require.NoError(t, <-done)

	var all bytes.Buffer
	r, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sh", "-c", "dd if=/dev/zero bs=1024 count=2048 2>/dev/null; echo end"}, Stdout: &all})
	require.NoError(t, err)
	assert.Equal(t, 2<<20+4, all.Len())
	assert.True(t, r.Truncated)
	assert.Len(t, r.Stdout, 1<<20)
	assert.True(t, bytes.HasSuffix(r.Stdout, []byte("\x00end\n")))
}

// family starts children of every kind: in the session, in a session of their own, orphaned in the session, orphaned in
// a session of their own, without the environment, and one that never stops making more.
const family = `
	echo begun
	sleep 301 &
	setsid sleep 302 &
	(sleep 305 &)
	(setsid sleep 304 &)
	setsid sh -c 'setsid sleep 305 & setsid sh -c "sleep 306 & sleep 307"; wait' &
	setsid sh -c '(sleep 303 &); (env -i PATH=/bin sleep 307 &)'
	setsid env -i PATH=/bin sh -c '(sleep 309 &); sleep 300' &
	while :; do (sleep 308 &); sleep 0.05; done`

// sleeps is how many of the family live.
const sleeps = `n=0; for c in /proc/[0-9]*/cmdline; do { read -r l <$c; } 2>/dev/null; case $l in sleep30*) n=$((n+1));; esac; done; echo $n`

func TestATimeoutKillsTheWholeFamily(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"", "1234:1234"} {
		t.Run("user "+user, func(t *testing.T) {
			t.Parallel()
			p := engine(t)
			sb := p.Open(create(t, p, order(10*time.Minute)))
			bystand(t, sb)
			var r sandbox.Result
			var err error
			// On a busy machine a short time may be up before it begins. A long one for all would make too many to kill.
			for _, limit := range []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second} {
				r, err = sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sh", "-c", family}, User: user, Timeout: limit})
				require.NoError(t, err)
				assert.True(t, r.TimedOut)
				assert.Equal(t, -1, r.ExitCode)
				assert.Equal(t, "0\n", run(t, sb, sandbox.Shell(sleeps)))
				if len(r.Stdout) > 0 {
					break
				}
			}
			assert.Equal(t, "begun\n", string(r.Stdout))
			assert.Equal(t, "1\n", run(t, sb, sandbox.Shell(bystanders)), "another command was killed")
		})
	}
}

// bystanders is how many of those live that bystand starts.
var bystanders = strings.ReplaceAll(sleeps, "sleep30", "sleep399")

// bystand starts a command that lives for as long as the test, and returns when it runs.
func bystand(t *testing.T, sb sandbox.Sandbox) {
	t.Helper()
	go func() { _, _ = sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sleep", "399"}}) }()
	until(t, time.Minute, "the bystander runs", func() bool { return run(t, sb, sandbox.Shell(bystanders)) == "1\n" })
}

func TestTheEndOfItsContextReturnsAtOnceAndKillsTheCommand(t *testing.T) {
	t.Parallel()
	p := engine(t)
	sb := p.Open(create(t, p, order(10*time.Minute)))
	why := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	begun := cue{said: make(chan struct{})}
	go func() {
		<-begun.said
		cancel(why)
	}()
	r, err := sb.Exec(ctx, sandbox.Cmd{Args: []string{"sh", "-c", family}, Stdout: &begun})
	require.ErrorIs(t, err, why)
	assert.Equal(t, "begun\n", string(r.Stdout))
	until(t, time.Minute, "its family is dead", func() bool { return run(t, sb, sandbox.Shell(sleeps)) == "0\n" })

	_, err = sb.Exec(ctx, sandbox.Shell("true"))
	require.ErrorIs(t, err, why)
}

func TestACommandCancelledWhileItStartsIsKilledAndNoOtherIs(t *testing.T) {
	t.Parallel()
	p := engine(t)
	sb := p.Open(create(t, p, order(10*time.Minute)))
	bystand(t, sb)
	dead := func() bool { return run(t, sb, sandbox.Shell(sleeps)) == "0\n" }
	for i := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*30*time.Millisecond)
		_, err := sb.Exec(ctx, sandbox.Shell(family))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if i%3 == 2 { // with more of them to kill at once, the time for it can be up on a busy machine
			until(t, time.Minute, "those so far are dead", dead)
		}
	}
	<-time.After(3 * time.Second) // what was on its way has begun
	until(t, time.Minute, "all are dead", dead)
	assert.Equal(t, "1\n", run(t, sb, sandbox.Shell(bystanders)), "another command was killed")
}

func TestACommandThatIsStartedAfterItsCallerHasLeftNeverRuns(t *testing.T) {
	t.Parallel()
	p, c := throughProxy(t), judge(t)
	sb := p.provider.Open(create(t, p.provider, order(10*time.Minute)))
	for name, leave := range map[string]struct {
		timeout time.Duration
		cancel  bool
	}{"cancelled": {cancel: true}, "timed out": {timeout: 5 * time.Second}} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		type end struct {
			res sandbox.Result
			err error
		}
		var start *late
		var ended chan end
		var id string
		for id == "" { // on a busy machine its time may be up before the start is asked for
			start, ended = newLate(), make(chan end, 1)
			heal := p.add(start.fault())
			go func() {
				res, err := sb.Exec(ctx, sandbox.Cmd{Args: []string{"sh", "-c", "echo >/ran; sleep 301"}, Timeout: leave.timeout})
				ended <- end{res, err}
			}()
			select {
			case id = <-start.asked:
			case e := <-ended:
				require.NoError(t, e.err, name)
				require.True(t, e.res.TimedOut, name)
				close(start.let)
			}
			heal()
		}
		if leave.cancel {
			cancel()
		}
		select {
		case e := <-ended:
			assert.Equal(t, leave.timeout > 0, e.res.TimedOut, name)
			if leave.cancel {
				assert.ErrorIs(t, e.err, context.Canceled, name)
			} else {
				assert.NoError(t, e.err, name)
			}
		case <-time.After(leave.timeout + removal):
			t.Fatalf("%s: the call waits for the engine's start", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			<-time.After(16 * time.Second) // longer than anybody goes on killing
			close(start.let)
			require.NoError(t, <-start.begun)
			until(t, removal, "the engine has started it, and it has ended", func() bool {
				i, err := c.ExecInspect(t.Context(), id, client.ExecInspectOptions{})
				return err == nil && !i.Running && i.PID != 0
			})
			assert.Equal(t, "0\n", run(t, sb, sandbox.Shell(sleeps)))
			assert.Equal(t, "never\n", run(t, sb, sandbox.Shell("test -e /ran || echo never")))
		})
	}
}

func TestACommandThatWasNotSeenToBeginIsAnErrorAndNoResult(t *testing.T) {
	t.Parallel()
	p := throughProxy(t)
	sb := p.provider.Open(create(t, p.provider, order(10*time.Minute)))
	p.add(&fault{about: isExecStart, do: loseInput, once: true})
	r, err := sb.Exec(t.Context(), sandbox.Shell("echo >/ran"))
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok, "%v %v", r, err)
	assert.False(t, e.Refused, "who knows")
	assert.Equal(t, "never\n", run(t, sb, sandbox.Shell("test -e /ran || echo never")))
}

// A cue closes said at the first write.
type cue struct {
	said chan struct{}
	once bool
}

func (c *cue) Write(p []byte) (int, error) {
	if !c.once {
		c.once = true
		close(c.said)
	}
	return len(p), nil
}

func TestAHangingWriterDoesNotKeepExecFromReturning(t *testing.T) {
	t.Parallel()
	p := engine(t)
	sb := p.Open(create(t, p, order(10*time.Minute)))
	ctx, cancel := context.WithCancel(t.Context())
	hang := &hanging{entered: make(chan struct{}), release: make(chan struct{})}
	defer close(hang.release)
	go func() {
		<-hang.entered
		cancel()
	}()
	_, err := sb.Exec(ctx, sandbox.Cmd{Args: []string{"sh", "-c", "while :; do echo x; done"}, Stdout: hang})
	require.ErrorIs(t, err, context.Canceled)
}

type hanging struct {
	entered, release chan struct{}
	once             bool
}

func (h *hanging) Write(p []byte) (int, error) {
	if !h.once {
		h.once = true
		close(h.entered)
	}
	<-h.release
	return len(p), nil
}

func TestAFailingWriterDoesNotEndTheCommand(t *testing.T) {
	t.Parallel()
	p := engine(t)
	sb := p.Open(create(t, p, order(10*time.Minute)))
	r, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sh", "-c", "echo x; exit 4"}, Stdout: failing{errors.New("full")}})
	require.NoError(t, err)
	assert.Equal(t, 4, r.ExitCode)
	assert.Equal(t, "x\n", string(r.Stdout))
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestManyCommandsRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	p := engine(t)
	sb := p.Open(create(t, p, order(10*time.Minute)))
	results := make(chan error, 8)
	for i := range cap(results) {
		go func() {
			r, err := sb.Exec(t.Context(), sandbox.Shell(fmt.Sprintf("sleep 0.2; echo %d", i)))
			if err == nil && string(r.Stdout) != fmt.Sprintf("%d\n", i) {
				err = fmt.Errorf("command %d wrote %q", i, r.Stdout)
			}
			results <- err
		}()
	}
	for range cap(results) {
		require.NoError(t, <-results)
	}
}

func TestCallsLeaveNoGoroutineBehind(t *testing.T) { // not parallel: others would be seen
	before := goleak.IgnoreCurrent()
	p := engine(t)
	info := create(t, p, order(10*time.Minute))
	sb := p.Open(info)
	run(t, sb, sandbox.Cmd{Args: []string{"cat"}, Stdin: strings.NewReader("x")})
	r, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sleep", "60"}, Timeout: time.Second})
	require.NoError(t, err)
	require.True(t, r.TimedOut)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = sb.Exec(ctx, sandbox.Cmd{Args: []string{"sleep", "60"}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, sb.Upload(t.Context(), "/x", iotest.OneByteReader(strings.NewReader("x"))))
	require.NoError(t, sb.Download(t.Context(), "/x", io.Discard))
	_, err = p.Extend(t.Context(), info, time.Minute)
	require.NoError(t, err)
	for _, err := range p.List(t.Context(), sandbox.Filter{Nonce: info.Mark.Nonce}) {
		require.NoError(t, err)
	}
	require.NoError(t, p.Delete(t.Context(), info.ID))
	until(t, time.Minute, "the command of the ended context is killed, and all goroutines are gone", func() bool {
		c, _ := sandbox.As[*client.Client](p)
		_ = c.Close() // idle connections only
		return goleak.Find(before, goleak.IgnoreAnyFunction("github.com/stretchr/testify/assert.Eventually"),
			goleak.IgnoreAnyFunction("github.com/sandglass-dev/sandglass/providers/docker_test.until")) == nil
	})
}

func TestACommandThatTheEngineCannotStartIsARefusal(t *testing.T) {
	t.Parallel()
	p := engine(t)
	sb := p.Open(create(t, p, order(10*time.Minute)))
	_, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"true"}, User: "nosuch"})
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok, "%v", err)
	assert.True(t, e.Refused)
	assert.Contains(t, e.Error(), "nosuch")
}

func TestACommandInAGoneSandboxIsNotFound(t *testing.T) {
	t.Parallel()
	p := engine(t)
	info := create(t, p, order(10*time.Minute))
	sb := p.Open(info)
	run(t, sb, sandbox.Shell("true"))
	running := make(chan error, 1)
	begun := cue{said: make(chan struct{})}
	go func() {
		r, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sh", "-c", "echo; sleep 60"}, Stdout: &begun})
		if err == nil && r.ExitCode != 137 { // an error says that the outcome is not known, which is as true
			err = fmt.Errorf("exit code %d", r.ExitCode)
		} else {
			err = nil
		}
		running <- err
	}()
	<-begun.said
	require.NoError(t, p.Delete(t.Context(), info.ID))
	require.NoError(t, <-running)
	until(t, removal, "removed", func() bool { return !exists(t, info.ID) })
	_, err := sb.Exec(t.Context(), sandbox.Shell("true"))
	require.ErrorIs(t, err, sandbox.ErrNotFound)
}

func TestATimeoutKillsAForkBomb(t *testing.T) {
	t.Parallel()
	p := engine(t)
	c := judge(t)
	req := order(10 * time.Minute)
	req.Spec.CPU = 0.5 // for the sake of the other tests
	req.Spec.Native = &docker.Options{PidsLimit: 64}
	info := create(t, p, req)
	r, err := p.Open(info).Exec(t.Context(), sandbox.Cmd{Args: []string{"sh", "-c", bomb}, Timeout: 3 * time.Second})
	require.NoError(t, err)
	assert.True(t, r.TimedOut)
	until(t, removal, "only the watchdog lives", func() bool { return processes(t, c, info.ID) == 1 })
}
