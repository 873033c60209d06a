package modalfake_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestACommandHasInputBothOutputsAndAnExitCode(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		e := w.sh(got, "cat; echo bad >&2; exit 3")
		require.NoError(t, e.write(0, "one ", false))
		require.NoError(t, e.write(4, "two", true))
		assert.Equal(t, "one two", e.output())
		text, err := e.read(fdErr, 0)
		require.NoError(t, err)
		assert.Equal(t, "bad\n", text)
		text, err = e.read(fdOut, 4)
		require.NoError(t, err)
		assert.Equal(t, "two", text, "output can be read again from any offset")
		assert.Equal(t, 3, e.wait())
		assert.Equal(t, 3, e.wait(), "and so can the end")
	})
}

func TestInputThatCameAlreadyIsNotTakenTwice(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		e := w.start(got, nil, "cat")
		require.NoError(t, e.write(0, "abc", false))
		require.NoError(t, e.write(0, "abcdef", false))
		refused(t, codes.InvalidArgument, e.write(100, "x", false))
		require.NoError(t, e.write(6, "", true))
		refused(t, codes.FailedPrecondition, func() error { w.sleep(time.Second); return e.write(6, "x", false) }())
		assert.Equal(t, "abcdef", e.output())
	})
}

func TestACommandIsStartedOnceHoweverOftenItsIDComes(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		e := w.sh(got, "echo x >>/tmp/n")
		_, err := w.router.TaskExecStart(e.ctx, pb.TaskExecStartRequest_builder{
			TaskId: e.task, ExecId: e.id, CommandArgs: []string{"sh", "-c", "echo x >>/tmp/n"},
		}.Build())
		require.NoError(t, err)
		assert.Equal(t, 0, e.wait())
		assert.Equal(t, "x\n", w.sh(got, "cat /tmp/n").output())
	})
}

func TestOutputsCanBeDroppedOrJoined(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		joined := w.start(got, func(in *pb.TaskExecStartRequest_builder) {
			in.StderrConfig = pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_STDOUT
		}, "sh", "-c", "echo a; echo b >&2; echo c")
		assert.Equal(t, "a\nb\nc\n", joined.output())
		dropped := w.start(got, func(in *pb.TaskExecStartRequest_builder) {
			in.StdoutConfig = pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_DEVNULL
		}, "echo", "a")
		assert.Empty(t, dropped.output())
	})
}

func TestACommandSeesTheVariablesOfItsSandboxAndItsOwnAboveThem(t *testing.T) {
	o := modalfake.Options{Secrets: map[string]map[string]string{"s": {"A": "secret", "C": "secret"}}}
	bubble(t, o, func(w *world) {
		sec, err := w.modal.SecretGetOrCreate(w.ctx(), pb.SecretGetOrCreateRequest_builder{DeploymentName: "s"}.Build())
		require.NoError(t, err)
		in := w.order(nil)
		env := func(kv ...string) *pb.SecretSource {
			m := map[string]string{}
			for i := 0; i < len(kv); i += 2 {
				m[kv[i]] = kv[i+1]
			}
			return pb.SecretSource_builder{Env: pb.StringMap_builder{Contents: m}.Build()}.Build()
		}
		id := sec.GetSecretId()
		in.SetSecretSources([]*pb.SecretSource{env("A", "1", "B", "1"), pb.SecretSource_builder{SecretId: &id}.Build()})
		got, err := w.modal.SandboxCreateV2(w.ctx(), in)
		require.NoError(t, err)
		e := w.start(got, func(in *pb.TaskExecStartRequest_builder) {
			in.SecretSources = []*pb.SecretSource{env("B", "2")}
			in.Workdir = ptr("/tmp")
		}, "sh", "-c", "echo $A $B $C; pwd")
		assert.Equal(t, "secret 2 secret\n/tmp\n", e.output())
		in.SetSecretSources([]*pb.SecretSource{env("1A", "x")})
		_, err = w.modal.SandboxCreateV2(w.ctx(), in)
		refused(t, codes.InvalidArgument, err)
	})
}

func timeout(secs uint32) func(*pb.TaskExecStartRequest_builder) {
	return func(in *pb.TaskExecStartRequest_builder) { in.TimeoutSecs = &secs }
}

func TestATimeoutKillsACommandWithAllThatItRanOrAlone(t *testing.T) {
	for alone, left := range map[bool]string{false: "0\n", true: "1\n"} {
		t.Run(fmt.Sprint(alone), func(t *testing.T) {
			bubble(t, modalfake.Options{Quirks: modalfake.Quirks{KillsLeader: alone}}, func(w *world) {
				got := w.create(nil)
				start := time.Now()
				e := w.start(got, timeout(5), "sh", "-c", "echo begun; sleep 60; echo >/tmp/end")
				assert.Equal(t, 128+9, e.wait())
				assert.Equal(t, 5*time.Second, since(start))
				assert.Equal(t, "begun\n", e.output())
				w.sleep(2 * time.Minute)
				assert.Equal(t, left, w.sh(got, "ls /tmp | wc -l | tr -d ' '").output())
			})
		})
	}
}

func TestACommandGoesOnWhenItsCallerHasLeft(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		e := w.sh(got, "sleep 10; echo done")
		ctx, cancel := context.WithTimeout(e.ctx, time.Second)
		defer cancel()
		_, err := w.router.TaskExecWait(ctx, pb.TaskExecWaitRequest_builder{TaskId: e.task, ExecId: e.id}.Build())
		refused(t, codes.DeadlineExceeded, err)
		poll, err := w.router.TaskExecPoll(e.ctx, pb.TaskExecPollRequest_builder{TaskId: e.task, ExecId: e.id}.Build())
		require.NoError(t, err)
		assert.False(t, poll.HasExitStatus())
		assert.Equal(t, "done\n", e.output())
		poll, err = w.router.TaskExecPoll(e.ctx, pb.TaskExecPollRequest_builder{TaskId: e.task, ExecId: e.id}.Build())
		require.NoError(t, err)
		assert.True(t, poll.HasCode())
	})
}

func TestWhatBecomesOfACommandWhoseSandboxEnds(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		e := w.sh(got, "echo some; sleep 1000")
		w.sleep(time.Second)
		w.terminate(got.GetSandboxId())
		assert.Equal(t, 128+9, e.wait())
		assert.Equal(t, "some\n", e.output())
		start := func() error {
			_, err := w.router.TaskExecStart(e.ctx, pb.TaskExecStartRequest_builder{
				TaskId: e.task, ExecId: "later", CommandArgs: []string{"true"},
			}.Build())
			return err
		}
		refused(t, codes.NotFound, start())
		w.fake.Change(func(q *modalfake.Quirks) {
			q.ExecGone, q.DeadExec, q.LosesOutput = codes.FailedPrecondition, codes.Unavailable, true
		})
		refused(t, codes.FailedPrecondition, start())
		_, err := w.router.TaskExecWait(e.ctx, pb.TaskExecWaitRequest_builder{TaskId: e.task, ExecId: e.id}.Build())
		refused(t, codes.Unavailable, err)
		text, err := e.read(fdOut, 0)
		assert.Empty(t, text)
		refused(t, codes.Unavailable, err)
		refused(t, codes.FailedPrecondition, e.write(0, "x", false))
		_, err = w.modal.SandboxGetCommandRouterAccess(w.ctx(), pb.SandboxGetCommandRouterAccessRequest_builder{
			SandboxId: ptr(got.GetSandboxId()),
		}.Build())
		refused(t, codes.FailedPrecondition, err)
	})
}

func TestInputCanBeStreamedAndResumed(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		e := w.start(got, nil, "cat")
		send := func(offset uint64, end bool, parts ...string) error {
			st, err := w.router.TaskExecStdinWriteStream(e.ctx)
			require.NoError(t, err)
			start := pb.TaskExecStdinWriteStreamStart_builder{TaskId: e.task, ExecId: e.id, Offset: offset}.Build()
			_ = st.Send(pb.TaskExecStdinWriteStreamRequest_builder{Start: start}.Build())
			for _, p := range parts {
				_ = st.Send(pb.TaskExecStdinWriteStreamRequest_builder{Data: []byte(p)}.Build())
			}
			if end {
				_ = st.Send(pb.TaskExecStdinWriteStreamRequest_builder{End: &pb.TaskExecStdinWriteStreamEnd{}}.Build())
			}
			_, err = st.CloseAndRecv()
			return err
		}
		refused(t, codes.InvalidArgument, send(0, false, "ab", "cd"))
		at, err := w.router.TaskExecStdinStatus(e.ctx, pb.TaskExecStdinStatusRequest_builder{TaskId: e.task, ExecId: e.id}.Build())
		require.NoError(t, err)
		assert.Equal(t, uint64(4), at.GetNumBytesWritten())
		assert.False(t, at.GetClosed())
		w.fake.Fault("TaskExecStdinWriteStream", modalfake.Fault{Cut: 1})
		refused(t, codes.Unavailable, send(4, true, "ef", "gh"))
		require.NoError(t, send(6, true, "gh"))
		assert.Equal(t, "abcdefgh", e.output())
	})
}

func TestTheEntrypointCanBeReadAndWrittenAndReadWhenItIsOver(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{StdioKept: 6}}, func(w *world) {
		got := w.create(entry("sh", "-c", "cat; echo; sleep 5"))
		_, err := w.router.SandboxStdinWriteV2(w.bearer(got), pb.SandboxStdinWriteV2Request_builder{
			TaskId: got.GetTaskId(), Data: []byte("0123456789"), Eof: true,
		}.Build())
		require.NoError(t, err)
		assert.Equal(t, statusSuccess, w.end(got.GetSandboxId()))
		st, err := w.router.SandboxStdioReadV2(w.bearer(got), pb.SandboxStdioReadV2Request_builder{TaskId: got.GetTaskId()}.Build())
		require.NoError(t, err)
		m, err := st.Recv()
		require.NoError(t, err)
		assert.Equal(t, "56789\n", string(m.GetData()), "only the latest is kept")
		assert.Equal(t, uint64(5), m.GetStartingOffset())
		_, err = st.Recv()
		assert.Equal(t, io.EOF, err)
	})
}

func TestTokensOfTheCommandRouterAreForOneTaskAndATime(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{RouterToken: time.Minute}}, func(w *world) {
		a, b := w.create(nil), w.create(nil)
		e := w.start(a, nil, "true")
		call := func(token, task string) error {
			ctx := metadata.AppendToOutgoingContext(w.ctx(), "authorization", "Bearer "+token)
			_, err := w.router.TaskExecWait(ctx, pb.TaskExecWaitRequest_builder{TaskId: task, ExecId: e.id}.Build())
			return err
		}
		jwt := a.GetCommandRouterAccess().GetJwt()
		require.NoError(t, call(jwt, e.task))
		refused(t, codes.PermissionDenied, call(b.GetCommandRouterAccess().GetJwt(), e.task))
		refused(t, codes.Unauthenticated, call(jwt+"x", e.task))
		refused(t, codes.Unauthenticated, call("", e.task))
		assert.Len(t, strings.Split(jwt, "."), 3)
		assert.Equal(t, "https://"+address, a.GetCommandRouterAccess().GetUrl())
		w.sleep(time.Minute)
		refused(t, codes.Unauthenticated, call(jwt, e.task))
		access, err := w.modal.SandboxGetCommandRouterAccess(w.ctx(), pb.SandboxGetCommandRouterAccessRequest_builder{
			SandboxId: ptr(a.GetSandboxId()),
		}.Build())
		require.NoError(t, err)
		require.NoError(t, call(access.GetJwt(), e.task))
	})
}

func TestProcessesAreToldAndKilledAndProgramsAnswered(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		w.fake.HandleExec(func(_ context.Context, c modalfake.Exec) (int, bool) {
			if c.Args[0] != "python" {
				return 0, false
			}
			fmt.Fprint(c.Stdout, c.Env["WHO"])
			return 4, true
		})
		got := w.create(nil)
		p := w.sh(got, "WHO=me python -c x; echo $?")
		assert.Equal(t, "me4\n", p.output())
		e := w.sh(got, "sleep 1000")
		w.sleep(time.Second)
		all := w.fake.Processes(got.GetSandboxId())
		require.Len(t, all, 3)
		assert.Equal(t, []string{"sleep", "172800"}, all[0].Args, "the entrypoint")
		n := w.fake.KillProcesses(got.GetSandboxId(), func(p modalfake.Process) bool { return p.ID == e.id })
		assert.Equal(t, 1, n)
		assert.Equal(t, 128+9, e.wait())
		truth, _ := w.fake.Lookup(got.GetSandboxId())
		assert.Zero(t, truth.Running)
	})
}

func TestTheFileProgramTellsErrorsAsItsCallersExpect(t *testing.T) {
	const tools = "/__modal/.bin/modal-sandbox-fs-tools"
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		run := func(arg, in string) (string, string, int) {
			e := w.start(got, nil, tools, arg)
			_ = e.write(0, in, true) // or it has ended already
			out := e.output()
			errs, err := e.read(fdErr, 0)
			require.NoError(t, err)
			return out, errs, e.wait()
		}
		_, _, exit := run(`{"WriteFile":{"path":"/tmp/a/b"}}`, "text")
		assert.Equal(t, 0, exit)
		out, _, exit := run(`{"ReadFile":{"path":"/tmp/a/b"}}`, "")
		assert.Equal(t, 0, exit)
		assert.Equal(t, "text", out)
		for arg, kind := range map[string]string{
			`{"ReadFile":{"path":"/tmp/none"}}`:                     "NotFound",
			`{"ReadFile":{"path":"/tmp/a"}}`:                        "IsDirectory",
			`{"WriteFile":{"path":"/tmp/a"}}`:                       "IsDirectory",
			`{"ListFiles":{"path":"/tmp/a/b"}}`:                     "NotDirectory",
			`{"Stat":{"path":"/tmp/a/b/c"}}`:                        "NotDirectory",
			`{"MakeDirectory":{"path":"/tmp/a","parents":false}}`:   "PathAlreadyExists",
			`{"MakeDirectory":{"path":"/tmp/x/y","parents":false}}`: "NotFound",
			`{"Remove":{"path":"/tmp/a","recursive":false}}`:        "DirectoryNotEmpty",
			`{"Watch":{"path":"/tmp/none","timeout_secs":1}}`:       "NotFound",
			`{"Unheard":{}}`: "Usage",
			`nonsense`:       "Usage",
		} {
			_, errs, exit := run(arg, "")
			assert.NotZero(t, exit, arg)
			assert.Contains(t, errs, `"error_kind":"`+kind+`"`, arg)
		}
		out, _, exit = run(`{"ListFiles":{"path":"/tmp"}}`, "")
		assert.Equal(t, 0, exit)
		assert.Contains(t, out, `"type":"directory"`)
		_, _, exit = run(`{"Remove":{"path":"/tmp/a","recursive":true}}`, "")
		assert.Equal(t, 0, exit)
		w.fake.Change(func(q *modalfake.Quirks) { q.NoFileTools = true })
		_, _, exit = run(`{"Stat":{"path":"/"}}`, "")
		assert.Equal(t, 127, exit)
	})
}

func TestAWatchTellsWhatChangesBelowAFolderThatWasEmpty(t *testing.T) {
	const tools = "/__modal/.bin/modal-sandbox-fs-tools"
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		require.Equal(t, 0, w.sh(got, "mkdir -p /w/gone").wait())
		watch := func(change, arg string) string {
			e := w.start(got, nil, tools, arg)
			time.Sleep(time.Second)
			require.Equal(t, 0, w.sh(got, change).wait())
			out := e.output()
			assert.Equal(t, 0, e.wait())
			return out
		}
		assert.Equal(t, `{"event_type":"Create","paths":["/w/gone/f"]}`+"\n"+`{"event_type":"Modify","paths":["/w/gone/f"]}`+"\n",
			watch("touch /w/gone/f", `{"Watch":{"path":"/w/gone","timeout_secs":3}}`))
		assert.Empty(t, watch("touch /w/gone/g", `{"Watch":{"path":"/w/gone","timeout_secs":3,"filter":["Remove"]}}`))
		assert.ElementsMatch(t, []string{ // it may be looked at halfway
			`{"event_type":"Remove","paths":["/w/gone"]}`, `{"event_type":"Remove","paths":["/w/gone/f"]}`,
			`{"event_type":"Remove","paths":["/w/gone/g"]}`,
		}, strings.Split(strings.TrimSuffix(watch("rm -r /w/gone", `{"Watch":{"path":"/w/gone","recursive":true,"timeout_secs":3}}`), "\n"), "\n"))
	})
}

func TestAnImageMayHaveNoShell(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{NoShell: true}}, func(w *world) {
		got := w.create(nil)
		assert.Equal(t, 127, w.sh(got, "true").wait())
		assert.Equal(t, 0, w.start(got, nil, "true").wait())
		assert.Equal(t, int32(127), w.wait(w.create(entry("sh", "-c", "sleep 9")).GetSandboxId(), 5).GetExitcode())
	})
}

func TestFaultsOfTheStateMachineAreMetByCommands(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		w.fake.Service().Fault(sandbox.OpExec, fake.Fault{Effect: fake.EffectNone})
		assert.Empty(t, w.start(got, nil, "echo", "x").output())
	})
}
