package sandboxtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inside returns a handle on a new sandbox.
func inside(t *testing.T, p *sandboxtest.Provider, change ...func(*sandbox.CreateRequest)) sandbox.Sandbox {
	t.Helper()
	req := order("a")
	for _, c := range change {
		c(&req)
	}
	i, err := p.Create(t.Context(), req)
	require.NoError(t, err)
	return p.Open(i)
}

// program matches commands by their program.
func program(name string) func(sandbox.Cmd) bool {
	return func(c sandbox.Cmd) bool { return c.Args[0] == name }
}

// waits answers "wait" with a command that prints and then runs until it is killed.
func waits(p *sandboxtest.Provider) {
	p.HandleExec(func(ctx context.Context, _ sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, bool, error) {
		if cmd.Args[0] != "wait" {
			return sandbox.Result{}, false, nil
		}
		io.WriteString(cmd.Stdout, "waiting\n")
		<-ctx.Done()
		return sandbox.Result{ExitCode: 137}, true, nil
	})
}

func TestTheShellRunsCommands(t *testing.T) {
	bubble(t, "with output, errors, environment, folder and exit code", func(t *testing.T) {
		sb := inside(t, everything(nil), func(r *sandbox.CreateRequest) {
			r.Spec.Env = map[string]string{"A": "spec", "B": "spec"}
			r.Spec.Native = &sandboxtest.Options{Files: map[string]string{"/src/name": "file\n"}}
		})
		var stdout, stderr bytes.Buffer
		res, err := sb.Exec(t.Context(), sandbox.Cmd{
			Args: []string{"sh", "-c", `echo "$A $B"; pwd; cat name -; echo oops >&2; exit 3`},
			Env:  map[string]string{"B": "cmd"}, Dir: "/src", Stdin: strings.NewReader("stdin\n"), Stdout: &stdout, Stderr: &stderr,
		})
		require.NoError(t, err)
		assert.Equal(t, 3, res.ExitCode)
		assert.Equal(t, "spec cmd\n/src\nfile\nstdin\n", string(res.Stdout))
		assert.Equal(t, "oops\n", string(res.Stderr))
		assert.Equal(t, string(res.Stdout), stdout.String())
		assert.Equal(t, string(res.Stderr), stderr.String())
		assert.False(t, res.Merged)
		assert.False(t, res.Truncated)
	})
	bubble(t, "as another user", func(t *testing.T) {
		sb := inside(t, everything(nil))
		res, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"id", "-u"}, User: "1000"})
		require.NoError(t, err)
		assert.Equal(t, "1000\n", string(res.Stdout))
	})
	bubble(t, "that share the sandbox's files with uploads and downloads, and with no other sandbox", func(t *testing.T) {
		p := everything(nil)
		sb := inside(t, p)
		require.NoError(t, sb.Upload(t.Context(), "/deep/down/in", strings.NewReader("up")))
		res, err := sb.Exec(t.Context(), sandbox.Shell("cat /deep/down/in > /out; printf ' and down' >> /out"))
		require.NoError(t, err)
		require.NoError(t, res.Err())
		var out bytes.Buffer
		require.NoError(t, sb.Download(t.Context(), "/out", &out))
		assert.Equal(t, "up and down", out.String())

		other := p.Open(made(t, p, "b"))
		require.ErrorIs(t, other.Download(t.Context(), "/out", io.Discard), fs.ErrNotExist)
	})
	bubble(t, "until their timeout, with the output so far", func(t *testing.T) {
		sb := inside(t, everything(nil))
		start := time.Now()
		cmd := sandbox.Shell("echo begun; sleep 60; echo done")
		cmd.Timeout = 5 * time.Second
		res, err := sb.Exec(t.Context(), cmd)
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
		assert.Equal(t, -1, res.ExitCode)
		assert.Equal(t, "begun\n", string(res.Stdout))
		assert.InDelta(t, 5*time.Second, time.Since(start), float64(100*time.Millisecond))
	})
	bubble(t, "and keeps the last 1 MiB of output", func(t *testing.T) {
		sb := inside(t, everything(nil))
		var all bytes.Buffer
		res, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sh", "-c", "head -c 3000000 /dev/zero; echo end"}, Stdout: &all})
		require.NoError(t, err)
		assert.True(t, res.Truncated)
		assert.Len(t, res.Stdout, 1<<20)
		assert.True(t, bytes.HasSuffix(res.Stdout, []byte("end\n")))
		assert.Equal(t, 3000004, all.Len())
	})
	bubble(t, "and asks scripts for programs that a shell command calls", func(t *testing.T) {
		p := everything(nil)
		p.Script(program("go"), sandbox.Result{ExitCode: 1, Stdout: []byte("FAIL\n")})
		res, err := inside(t, p).Exec(t.Context(), sandbox.Shell("mkdir /src && cd /src && go test ./... | tr A-Z a-z; go vet; echo $?"))
		require.NoError(t, err)
		assert.Equal(t, "fail\nFAIL\n1\n", string(res.Stdout))
	})
	bubble(t, "on a disk of the size that was ordered", func(t *testing.T) {
		sb := inside(t, everything(nil), func(r *sandbox.CreateRequest) { r.Spec.Disk = 1 << 20 })
		require.Error(t, sb.Upload(t.Context(), "/big", bytes.NewReader(make([]byte, 2<<20))))
	})
}

func TestScripts(t *testing.T) {
	bubble(t, "answer with result and output, the latest first", func(t *testing.T) {
		p := everything(nil)
		p.Script(program("go"), sandbox.Result{ExitCode: 1, Stdout: []byte("old")})
		p.Script(program("go"), sandbox.Result{ExitCode: 2, Stdout: []byte("out"), Stderr: []byte("err")})
		p.Script(program("make"), sandbox.Result{})
		var stdout, stderr bytes.Buffer
		res, err := inside(t, p).Exec(t.Context(), sandbox.Cmd{Args: []string{"go", "test"}, Stdout: &stdout, Stderr: &stderr})
		require.NoError(t, err)
		assert.Equal(t, sandbox.Result{ExitCode: 2, Stdout: []byte("out"), Stderr: []byte("err")}, res)
		assert.Equal(t, "out", stdout.String())
		assert.Equal(t, "err", stderr.String())
	})
	bubble(t, "may time out", func(t *testing.T) {
		p := everything(nil)
		p.Script(program("go"), sandbox.Result{ExitCode: -1, TimedOut: true})
		res, err := inside(t, p).Exec(t.Context(), sandbox.Cmd{Args: []string{"go"}})
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
	})
	bubble(t, "see the whole command, with the sandbox's environment", func(t *testing.T) {
		p := everything(nil)
		type key struct{}
		var got sandbox.Cmd
		var value any
		p.HandleExec(func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, bool, error) {
			got, value = cmd, ctx.Value(key{})
			in, err := io.ReadAll(cmd.Stdin)
			fmt.Fprintf(cmd.Stdout, "%s in %s", in, sb.ID())
			return sandbox.Result{}, true, err
		})
		sb := inside(t, p, func(r *sandbox.CreateRequest) { r.Spec.Env = map[string]string{"A": "spec", "B": "spec"} })
		ctx := context.WithValue(t.Context(), key{}, "trace")
		res, err := sb.Exec(ctx, sandbox.Cmd{
			Args: []string{"x", "y"}, Env: map[string]string{"B": "cmd"}, Dir: "/d", User: "u", Stdin: strings.NewReader("in"),
		})
		require.NoError(t, err)
		assert.Equal(t, "in in "+sb.ID(), string(res.Stdout))
		assert.Equal(t, []string{"x", "y"}, got.Args)
		assert.Equal(t, map[string]string{"A": "spec", "B": "cmd"}, got.Env)
		assert.Equal(t, "/d", got.Dir)
		assert.Equal(t, "u", got.User)
		assert.Equal(t, "trace", value)
	})
	bubble(t, "may fail, and then the outcome is not known", func(t *testing.T) {
		p := everything(nil)
		p.HandleExec(func(context.Context, sandbox.Sandbox, sandbox.Cmd) (sandbox.Result, bool, error) {
			return sandbox.Result{}, true, sandboxtest.Status(502)
		})
		_, err := inside(t, p).Exec(t.Context(), sandbox.Shell("x"))
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
	})
	bubble(t, "may act on the provider", func(t *testing.T) {
		p := everything(nil)
		p.HandleExec(func(_ context.Context, sb sandbox.Sandbox, _ sandbox.Cmd) (sandbox.Result, bool, error) {
			p.Kill(sb.ID())
			return sandbox.Result{}, true, nil
		})
		_, err := inside(t, p).Exec(t.Context(), sandbox.Shell("x"))
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		assert.Empty(t, p.Live())
	})
}

func TestACommandEnds(t *testing.T) {
	stop := errors.New("stop")
	bubble(t, "at once with its caller's context, with the cause and the output so far", func(t *testing.T) {
		p := everything(nil)
		waits(p)
		sb := inside(t, p)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		start := time.Now()
		res, err := sb.Exec(ctx, sandbox.Cmd{Args: []string{"wait"}})
		assert.Equal(t, stop, err)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, "waiting\n", string(res.Stdout))
		assert.NotZero(t, res.ExitCode)
	})
	bubble(t, "with its timeout", func(t *testing.T) {
		p := everything(nil)
		waits(p)
		res, err := inside(t, p).Exec(t.Context(), sandbox.Cmd{Args: []string{"wait"}, Timeout: time.Minute})
		require.NoError(t, err)
		assert.Equal(t, sandbox.Result{ExitCode: -1, TimedOut: true, Stdout: []byte("waiting\n")}, res)
	})
	for name, c := range map[string]struct {
		do   func(*sandboxtest.Provider, string)
		kind error
	}{
		"with the lease":           {func(*sandboxtest.Provider, string) {}, sandbox.ErrNotFound},
		"when the service expires": {func(p *sandboxtest.Provider, _ string) { p.Expire() }, sandbox.ErrNotFound},
		"when the sandbox is deleted": {func(p *sandboxtest.Provider, id string) {
			if err := p.Delete(context.Background(), id); err != nil {
				panic(err)
			}
		}, sandbox.ErrNotFound},
		"when the platform kills":          {func(p *sandboxtest.Provider, id string) { p.Kill(id) }, sandbox.ErrNotFound},
		"when the platform gives up":       {func(p *sandboxtest.Provider, id string) { p.Fail(id, "") }, sandbox.ErrUnavailable},
		"when somebody pauses":             {func(p *sandboxtest.Provider, id string) { p.Pause(id) }, sandbox.ErrUnavailable},
		"when somebody pauses and resumes": {func(p *sandboxtest.Provider, id string) { p.Pause(id); p.Resume(id) }, sandbox.ErrUnavailable},
	} {
		bubble(t, name, func(t *testing.T) {
			p := everything(nil)
			waits(p)
			sb := inside(t, p)
			time.AfterFunc(time.Minute, func() { c.do(p, sb.ID()) })
			start := time.Now()
			res, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"wait"}})
			require.ErrorIs(t, err, c.kind)
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok)
			assert.False(t, e.Refused, "the command was started")
			assert.Equal(t, sb.ID(), e.ID)
			assert.LessOrEqual(t, time.Since(start), 3*time.Minute)
			assert.Equal(t, "waiting\n", string(res.Stdout))
		})
	}
	bubble(t, "not, while the sandbox is frozen", func(t *testing.T) {
		p := everything(nil)
		p.HandleExec(func(ctx context.Context, _ sandbox.Sandbox, _ sandbox.Cmd) (sandbox.Result, bool, error) {
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
			return sandbox.Result{}, true, nil
		})
		sb := inside(t, p)
		time.AfterFunc(time.Second, func() { p.Freeze(sb.ID()) })
		time.AfterFunc(time.Minute, func() { p.Thaw(sb.ID()) })
		start := time.Now()
		_, err := sb.Exec(t.Context(), sandbox.Shell("x"))
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(start))
		p.Freeze(sb.ID())
		_, err = sb.Exec(within(t, time.Second), sandbox.Shell("x"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	bubble(t, "much later where the service cannot kill: it is activity until then", func(t *testing.T) {
		caps := sandboxtest.Everything()
		caps.Extend, caps.Kill = sandbox.ExtendActivity, false
		p := sandboxtest.New(caps)
		waits(p)
		sb := inside(t, p)
		_, err := sb.Exec(within(t, time.Second), sandbox.Cmd{Args: []string{"wait"}, Timeout: 10 * time.Minute})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(12 * time.Minute)
		assert.Len(t, p.Live(), 1, "10 min of the command, 3 min idle")
		time.Sleep(time.Minute)
		assert.Empty(t, p.Live())
	})
	bubble(t, "never, as activity, but for the hard end", func(t *testing.T) {
		p := extending(sandbox.ExtendActivity, nil)
		waits(p)
		sb := inside(t, p)
		start := time.Now()
		_, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"wait"}})
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		assert.Equal(t, time.Hour, time.Since(start))
	})
	bubble(t, "although its writer hangs, and nothing is written to it later", func(t *testing.T) {
		p := everything(nil)
		waits(p)
		r, w := io.Pipe() // nobody reads
		start := time.Now()
		_, err := inside(t, p).Exec(within(t, time.Second), sandbox.Cmd{Args: []string{"wait"}, Stdout: w})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(start), 2*time.Second)
		r.Close()
		synctest.Wait()
	})
	bubble(t, "and is not harmed by a writer that fails", func(t *testing.T) {
		p := everything(nil)
		p.Script(program("go"), sandbox.Result{Stdout: []byte("kept")})
		r, w := io.Pipe()
		r.Close()
		res, err := inside(t, p).Exec(t.Context(), sandbox.Cmd{Args: []string{"go"}, Stdout: w})
		require.NoError(t, err)
		assert.Equal(t, "kept", string(res.Stdout))
	})
}

func TestACommandMeetsFaults(t *testing.T) {
	bubble(t, "before it starts", func(t *testing.T) {
		p := everything(nil)
		ran := false
		p.HandleExec(func(context.Context, sandbox.Sandbox, sandbox.Cmd) (sandbox.Result, bool, error) {
			ran = true
			return sandbox.Result{}, true, nil
		})
		p.Fault(sandbox.OpExec, sandboxtest.Fault{Err: sandboxtest.Status(502)})
		sb := inside(t, p)
		_, err := sb.Exec(t.Context(), sandbox.Shell("x"))
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		assert.False(t, ran)
		assert.Equal(t, sandbox.StateRunning, state(t, p, sb.ID()), "a zombie")

		p.Fault(sandbox.OpExec, sandboxtest.Fault{Err: sandboxtest.Status(502), After: true})
		_, err = sb.Exec(t.Context(), sandbox.Shell("x"))
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		assert.True(t, ran)

		ran = false
		p.Fault(sandbox.OpExec, sandboxtest.Fault{Effect: sandboxtest.EffectNone})
		_, err = sb.Exec(t.Context(), sandbox.Shell("x"))
		require.NoError(t, err)
		assert.False(t, ran)
	})
	bubble(t, "and a sandbox that does not run", func(t *testing.T) {
		p := everything(nil)
		sb := inside(t, p)
		for _, c := range []struct {
			do   func(string) bool
			kind error
		}{
			{p.Pause, sandbox.ErrConflict},
			{func(id string) bool { return p.Fail(id, "") }, sandbox.ErrUnavailable},
			{p.Kill, sandbox.ErrNotFound},
		} {
			c.do(sb.ID())
			_, err := sb.Exec(t.Context(), sandbox.Shell("x"))
			require.ErrorIs(t, err, c.kind)
		}
	})
}

func TestACommandThatTheServiceCannotRunIsRefusedWithoutARequest(t *testing.T) {
	bare := sandboxtest.Everything()
	bare.Stdin, bare.SplitOutput = false, false
	for name, c := range map[string]struct {
		caps sandbox.Capabilities
		cmd  sandbox.Cmd
		kind error
	}{
		"no program":     {cmd: sandbox.Cmd{}, kind: sandbox.ErrInvalid},
		"relative dir":   {cmd: sandbox.Cmd{Args: []string{"x"}, Dir: "x"}, kind: sandbox.ErrInvalid},
		"bad timeout":    {cmd: sandbox.Cmd{Args: []string{"x"}, Timeout: -1}, kind: sandbox.ErrInvalid},
		"standard input": {caps: bare, cmd: sandbox.Cmd{Args: []string{"x"}, Stdin: strings.NewReader("")}, kind: errors.ErrUnsupported},
		"two writers":    {caps: bare, cmd: sandbox.Cmd{Args: []string{"x"}, Stdout: io.Discard, Stderr: &bytes.Buffer{}}, kind: errors.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			p := sandboxtest.New(c.caps)
			_, err := inside(t, p).Exec(t.Context(), c.cmd)
			require.ErrorIs(t, err, c.kind)
			e, _ := errors.AsType[*sandbox.APIError](err)
			assert.True(t, e.Refused)
			assert.Empty(t, p.Calls(sandbox.OpExec))
		})
	}
}

func TestOutput(t *testing.T) {
	bubble(t, "is merged where the service cannot tell the streams apart", func(t *testing.T) {
		caps := sandboxtest.Everything()
		caps.SplitOutput = false
		p := sandboxtest.New(caps)
		p.Script(program("go"), sandbox.Result{Stdout: []byte("out "), Stderr: []byte("err")})
		var both bytes.Buffer
		res, err := inside(t, p).Exec(t.Context(), sandbox.Cmd{Args: []string{"go"}, Stdout: &both, Stderr: &both})
		require.NoError(t, err)
		assert.True(t, res.Merged)
		assert.Equal(t, "out err", string(res.Stdout))
		assert.Empty(t, res.Stderr)
		assert.Equal(t, "out err", both.String())
	})
	bubble(t, "may go to one writer, which is written by one at a time", func(t *testing.T) {
		p := everything(nil)
		p.HandleExec(func(_ context.Context, _ sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, bool, error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 100 {
					io.WriteString(cmd.Stdout, "o")
				}
			}()
			for range 100 {
				io.WriteString(cmd.Stderr, "e")
			}
			<-done
			return sandbox.Result{}, true, nil
		})
		var both bytes.Buffer // the race detector is the judge
		res, err := inside(t, p).Exec(t.Context(), sandbox.Cmd{Args: []string{"go"}, Stdout: &both, Stderr: &both})
		require.NoError(t, err)
		assert.Len(t, res.Stdout, 100)
		assert.Len(t, res.Stderr, 100)
		assert.Equal(t, 200, both.Len())
	})
	bubble(t, "is spoilt where it is no text and the service sends strings, characters in pieces excepted", func(t *testing.T) {
		caps := sandboxtest.Everything()
		caps.BinaryOut = false
		p := sandboxtest.New(caps)
		p.HandleExec(func(_ context.Context, _ sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, bool, error) {
			for _, b := range []byte("añ€𝄞\xff.\xe2\x82") {
				cmd.Stdout.Write([]byte{b})
			}
			return sandbox.Result{}, true, nil
		})
		res, err := inside(t, p).Exec(t.Context(), sandbox.Cmd{Args: []string{"go"}})
		require.NoError(t, err)
		assert.Equal(t, "añ€𝄞\uFFFD.\uFFFD", string(res.Stdout))
	})
}

func TestFilesAndPorts(t *testing.T) {
	bubble(t, "a missing file is no missing sandbox", func(t *testing.T) {
		sb := inside(t, everything(nil))
		err := sb.Download(t.Context(), "/none", io.Discard)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NotErrorIs(t, err, sandbox.ErrNotFound)
	})
	bubble(t, "a relative path is refused", func(t *testing.T) {
		p := everything(nil)
		sb := inside(t, p)
		require.ErrorIs(t, sb.Upload(t.Context(), "x", strings.NewReader("")), sandbox.ErrInvalid)
		require.ErrorIs(t, sb.Download(t.Context(), "x", io.Discard), sandbox.ErrInvalid)
		assert.Empty(t, p.Calls(sandbox.OpUpload, sandbox.OpDownload))
	})
	bubble(t, "a reader that fails is found in the error", func(t *testing.T) {
		broken := errors.New("broken")
		sb := inside(t, everything(nil))
		require.ErrorIs(t, sb.Upload(t.Context(), "/x", iotest.ErrReader(broken)), broken)
	})
	bubble(t, "an upload ends with its context though its reader hangs", func(t *testing.T) {
		sb := inside(t, everything(nil))
		r, w := io.Pipe()
		require.ErrorIs(t, sb.Upload(within(t, time.Second), "/x", r), context.DeadlineExceeded)
		w.Close()
		synctest.Wait()
	})
	bubble(t, "files stay through a pause, and are gone with the sandbox", func(t *testing.T) {
		p := everything(nil)
		sb := inside(t, p)
		require.NoError(t, sb.Upload(t.Context(), "/x", strings.NewReader("1")))
		p.Pause(sb.ID())
		p.Resume(sb.ID())
		require.NoError(t, sb.Download(t.Context(), "/x", io.Discard))
		p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectRevive})
		require.NoError(t, p.Delete(t.Context(), sb.ID()))
		time.Sleep(time.Minute)
		require.ErrorIs(t, sb.Download(t.Context(), "/x", io.Discard), fs.ErrNotExist)
	})
	bubble(t, "a copy ends with its sandbox", func(t *testing.T) {
		p := everything(nil)
		sb := inside(t, p)
		r, w := io.Pipe()
		time.AfterFunc(time.Second, func() { p.Kill(sb.ID()) })
		require.ErrorIs(t, sb.Upload(t.Context(), "/x", r), sandbox.ErrNotFound)
		w.Close()
		require.ErrorIs(t, sb.Download(t.Context(), "/x", io.Discard), sandbox.ErrNotFound)
	})
	bubble(t, "copies meet faults", func(t *testing.T) {
		p := everything(nil)
		sb := inside(t, p)
		e := sandboxtest.Status(503)
		p.Fault(sandbox.OpUpload, sandboxtest.Fault{Err: e}, sandboxtest.Fault{Err: e, After: true})
		require.ErrorIs(t, sb.Upload(t.Context(), "/x", strings.NewReader("1")), sandbox.ErrUnavailable)
		require.ErrorIs(t, sb.Download(t.Context(), "/x", io.Discard), fs.ErrNotExist)
		require.ErrorIs(t, sb.Upload(t.Context(), "/x", strings.NewReader("2")), sandbox.ErrUnavailable)
		require.NoError(t, sb.Download(t.Context(), "/x", io.Discard))
	})
	bubble(t, "an endpoint is told for ports that were declared", func(t *testing.T) {
		p := everything(nil)
		sb := inside(t, p, func(r *sandbox.CreateRequest) { r.Spec.Ports = []int{8080} })
		e, err := sb.Endpoint(t.Context(), 8080)
		require.NoError(t, err)
		assert.Equal(t, "http://127.0.0.1:1/"+sb.ID()+"/8080", e.URL)
		_, err = sb.Endpoint(t.Context(), 8081)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		p.Fault(sandbox.OpEndpoint, sandboxtest.Fault{Err: sandboxtest.Status(500)})
		_, err = sb.Endpoint(t.Context(), 8080)
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		p.Kill(sb.ID())
		_, err = sb.Endpoint(t.Context(), 8080)
		require.ErrorIs(t, err, sandbox.ErrNotFound)

		caps := sandboxtest.Everything()
		caps.Endpoints = false
		_, err = inside(t, sandboxtest.New(caps)).Endpoint(t.Context(), 8080)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

func TestCallsAreLoggedWhenTheyArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := everything(nil)
		waits(p)
		start := time.Now()
		sb := inside(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			sb.Exec(ctx, sandbox.Cmd{Args: []string{"wait", "a while"}})
		}()
		time.Sleep(time.Second)
		calls := p.Calls(sandbox.OpExec)
		require.Len(t, calls, 1)
		assert.Equal(t, sandboxtest.Call{
			Op: sandbox.OpExec, ID: sb.ID(), Nonce: nonce("a"), Args: []string{"wait", "a while"}, Start: start,
		}, calls[0])
		cancel()
		<-done
		calls = p.Calls(sandbox.OpExec, sandbox.OpCreate)
		require.Len(t, calls, 2)
		assert.Equal(t, sandboxtest.Call{
			Op: sandbox.OpCreate, ID: sb.ID(), Nonce: nonce("a"), Window: 3 * time.Minute, Start: start, End: start,
		}, calls[0])
		assert.Equal(t, start.Add(time.Second), calls[1].End)
		require.ErrorIs(t, calls[1].Err, context.Canceled)
	})
}

func TestManyCallersAtOnce(t *testing.T) {
	p := everything(func(b *sandboxtest.Behaviour) { b.UniqueNames = false })
	p.Script(program("go"), sandbox.Result{Stdout: []byte("ok")})
	p.Watch(func(sandboxtest.Change) { p.Live() })
	done := make(chan error)
	const n = 50
	for range n {
		go func() {
			done <- func() error {
				i, err := p.Create(t.Context(), order("a"))
				if err != nil {
					return err
				}
				if _, err := p.Extend(t.Context(), i, time.Minute); err != nil {
					return err
				}
				if _, err := p.Open(i).Exec(t.Context(), sandbox.Cmd{Args: []string{"go"}}); err != nil {
					return err
				}
				if _, err := listed(p, sandbox.Filter{}); err != nil {
					return err
				}
				return p.Delete(t.Context(), i.ID)
			}()
		}()
	}
	for range n {
		require.NoError(t, <-done)
	}
	assert.Empty(t, p.Live())
	assert.Len(t, p.Calls(sandbox.OpDelete), n)
}
