package modalfake_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func idle(secs uint32) func(*pb.Sandbox_builder) {
	return func(d *pb.Sandbox_builder) { d.IdleTimeoutSecs = &secs }
}

func entry(args ...string) func(*pb.Sandbox_builder) {
	return func(d *pb.Sandbox_builder) { d.EntrypointArgs = args }
}

func TestASandboxEndsAtItsTimeoutWhateverIsDone(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		start := time.Now()
		got := w.create(nil)
		id := got.GetSandboxId()
		assert.Nil(t, w.wait(id, 0))
		assert.Nil(t, w.wait(id, 10))
		assert.Equal(t, 10*time.Second, since(start), "a wait is a long poll")
		e := w.sh(got, "sleep 100000")
		assert.Equal(t, statusTimeout, w.end(id))
		assert.Equal(t, 10*time.Minute, since(start))
		assert.Equal(t, 137, e.wait())
	})
}

func TestTheTimeoutCountsFromTheCreateOrFromTheStart(t *testing.T) {
	for fromStart, want := range map[bool]time.Duration{false: 10 * time.Minute, true: 10*time.Minute + 30*time.Second} {
		t.Run(fmt.Sprint(fromStart), func(t *testing.T) {
			o := modalfake.Options{
				Quirks: modalfake.Quirks{TimeoutFromStart: fromStart}, Behaviour: fake.Behaviour{StartTime: 30 * time.Second},
			}
			bubble(t, o, func(w *world) {
				start := time.Now()
				id := w.create(nil).GetSandboxId()
				assert.Equal(t, 30*time.Second, since(start), "a create waits for the start")
				assert.Equal(t, statusTimeout, w.end(id))
				assert.Equal(t, want, since(start))
			})
		})
	}
}

func TestATimeoutOfNoneIsFiveMinutesAndOneOfMoreThanADayIsRefusedOrCut(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		id := w.create(func(d *pb.Sandbox_builder) { d.TimeoutSecs = 0 }).GetSandboxId()
		truth, ok := w.fake.Lookup(id)
		require.True(t, ok)
		assert.Equal(t, 5*time.Minute, truth.Timeout)
		long := w.order(func(d *pb.Sandbox_builder) { d.TimeoutSecs = 86401 })
		_, err := w.modal.SandboxCreateV2(w.ctx(), long)
		refused(t, codes.InvalidArgument, err)
		w.fake.Change(func(q *modalfake.Quirks) { q.ClampTimeout = true })
		got, err := w.modal.SandboxCreateV2(w.ctx(), long)
		require.NoError(t, err)
		truth, _ = w.fake.Lookup(got.GetSandboxId())
		assert.Equal(t, 24*time.Hour, truth.Timeout)
	})
}

func TestOnlyCommandsInputAndTunnelsAreActivity(t *testing.T) {
	type created = *pb.SandboxCreateV2Response
	write := func(w *world, got created, offset int) {
		_, err := w.router.SandboxStdinWriteV2(w.bearer(got), pb.SandboxStdinWriteV2Request_builder{
			TaskId: got.GetTaskId(), Offset: uint64(offset), Data: []byte("x"),
		}.Build())
		require.NoError(w.t, err)
	}
	for name, c := range map[string]struct {
		do     func(w *world, got created, round int)
		active bool
	}{
		"nothing": {func(*world, created, int) {}, false},
		"looking": {func(w *world, got created, _ int) {
			w.wait(got.GetSandboxId(), 0)
			w.list(pb.SandboxListRequest_builder{})
			_, err := w.modal.SandboxTagsGetV2(w.ctx(), pb.SandboxTagsGetRequest_builder{SandboxId: got.GetSandboxId()}.Build())
			require.NoError(w.t, err)
		}, false},
		"tagging": {func(w *world, got created, _ int) {
			_, err := w.modal.SandboxTagsSetV2(w.ctx(), pb.SandboxTagsSetRequest_builder{SandboxId: got.GetSandboxId()}.Build())
			require.NoError(w.t, err)
		}, false},
		"a command":               {func(w *world, got created, _ int) { assert.Equal(w.t, 0, w.start(got, nil, "true").wait()) }, true},
		"input":                   {write, true},
		"input that came already": {func(w *world, got created, _ int) { write(w, got, 0) }, false},
		"a request through a tunnel": {func(w *world, got created, _ int) {
			r := httptest.NewRequest(http.MethodGet, "https://"+got.GetTunnels()[0].GetHost()+"/", nil)
			w.fake.ServeHTTP(httptest.NewRecorder(), r)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, modalfake.Options{}, func(w *world) {
				w.fake.HandlePort(80, http.NotFoundHandler())
				got := w.create(func(d *pb.Sandbox_builder) {
					d.EntrypointArgs, d.IdleTimeoutSecs = []string{"cat"}, ptr(uint32(60))
					d.OpenPorts = pb.PortSpecs_builder{Ports: []*pb.PortSpec{pb.PortSpec_builder{Port: 80}.Build()}}.Build()
				})
				write(w, got, 0)
				for round := range 4 {
					w.sleep(25 * time.Second)
					if w.wait(got.GetSandboxId(), 0) == nil {
						c.do(w, got, round+1)
					}
				}
				if !c.active {
					assert.Equal(t, statusIdle, w.wait(got.GetSandboxId(), 0).GetStatus())
					return
				}
				require.Nil(t, w.wait(got.GetSandboxId(), 0))
				start := time.Now()
				assert.Equal(t, statusIdle, w.end(got.GetSandboxId()))
				assert.Equal(t, time.Minute, since(start))
			})
		})
	}
}

func TestASandboxIsNotIdleWhileACommandRunsAndCountsAnewWhenItEnds(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		start := time.Now()
		got := w.create(idle(30))
		w.sh(got, "sleep 300")
		assert.Equal(t, statusIdle, w.end(got.GetSandboxId()))
		assert.Equal(t, 330*time.Second, since(start))
	})
}

func TestACommandWhoseCallerIsGoneKeepsASandboxUntilItsTimeout(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		start := time.Now()
		got := w.create(idle(30))
		w.sh(got, "sleep 100000")
		assert.Equal(t, statusTimeout, w.end(got.GetSandboxId()))
		assert.Equal(t, 10*time.Minute, since(start))
	})
}

func TestTheSandboxEndsWithItsEntrypoint(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		start := time.Now()
		good, bad := w.create(entry("sleep", "5")), w.create(entry("sh", "-c", "sleep 9; exit 42"))
		e := w.sh(bad, "sleep 100000")
		assert.Equal(t, statusSuccess, w.end(good.GetSandboxId()))
		assert.Equal(t, 5*time.Second, since(start))
		got := w.wait(bad.GetSandboxId(), 60)
		assert.Equal(t, statusFailure, got.GetStatus())
		assert.Equal(t, int32(42), got.GetExitcode())
		assert.Equal(t, 9*time.Second, since(start))
		assert.Equal(t, 137, e.wait(), "what ran in it is killed")
		assert.Equal(t, 9*time.Second, since(start))
	})
}

func TestAnEntrypointMayLeaveRunningCommandsTheirTime(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{ExecsHoldEnd: true}}, func(w *world) {
		start := time.Now()
		got := w.create(entry("sleep", "5"))
		e := w.sh(got, "sleep 20; exit 3")
		assert.Equal(t, statusSuccess, w.end(got.GetSandboxId()))
		assert.Equal(t, 20*time.Second, since(start))
		assert.Equal(t, 3, e.wait())
	})
}

func TestTheEntrypointIsAScriptThatReallyRuns(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		start := time.Now()
		got := w.create(entry("sh", "-c",
			`echo $(($(date +%s)+5)) >/tmp/end; while [ $(date +%s) -lt $(cat /tmp/end) ]; do sleep 1; done; exit 97`))
		w.sleep(3500 * time.Millisecond)
		assert.Equal(t, 0, w.sh(got, "echo $(($(date +%s)+10)) >/tmp/end").wait())
		assert.Equal(t, int32(97), w.wait(got.GetSandboxId(), 60).GetExitcode())
		assert.InDelta(t, 13.5, since(start).Seconds(), 1, "a command on the same disk put it off")
	})
}

func TestATerminateReturnsBeforeTheEnd(t *testing.T) {
	bubble(t, modalfake.Options{Behaviour: fake.Behaviour{DeleteTime: 15 * time.Second}}, func(w *world) {
		start := time.Now()
		id := w.create(nil, "k", "v").GetSandboxId()
		assert.Nil(t, w.terminate(id))
		assert.Nil(t, w.wait(id, 0))
		assert.Equal(t, []string{id}, w.list(pb.SandboxListRequest_builder{}), "what is ending is listed")
		w.fake.Change(func(q *modalfake.Quirks) { q.HidesTerminating = true })
		assert.Empty(t, w.list(pb.SandboxListRequest_builder{}))
		assert.Nil(t, w.terminate(id), "twice")
		assert.Equal(t, statusTerminated, w.wait(id, 60).GetStatus())
		assert.Equal(t, 15*time.Second, since(start))
		assert.Equal(t, statusTerminated, w.terminate(id).GetStatus(), "and what it is then")
		assert.Empty(t, w.list(pb.SandboxListRequest_builder{}))
		assert.Equal(t, []string{id}, w.list(pb.SandboxListRequest_builder{IncludeFinished: true}))
	})
}

func TestEachStatusCanBe(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		for _, s := range []pb.GenericResult_GenericStatus{statusInternal, statusEviction, statusInit} {
			id := w.create(nil).GetSandboxId()
			assert.True(t, w.fake.End(id, s, 9))
			assert.False(t, w.fake.End(id, statusSuccess, 0))
			got := w.wait(id, 10)
			assert.Equal(t, s, got.GetStatus())
			assert.Equal(t, int32(9), got.GetExitcode())
		}
		id := w.create(nil).GetSandboxId()
		truth, _ := w.fake.Lookup(id)
		w.fake.Service().Fail(truth.ServiceID, "gave up")
		assert.Equal(t, statusInternal, w.wait(id, 10).GetStatus())
		id = w.create(nil).GetSandboxId()
		truth, _ = w.fake.Lookup(id)
		w.fake.Service().Kill(truth.ServiceID)
		assert.Equal(t, statusTerminated, w.wait(id, 10).GetStatus())
		w.fake.Service().Behave(func(b *fake.Behaviour) { b.StartsFailed = true })
		assert.Equal(t, statusInit, w.wait(w.create(nil).GetSandboxId(), 10).GetStatus())
	})
}

func TestExitCodesOfEndsThatAreNoExitsAreAsTheQuirksSay(t *testing.T) {
	q := modalfake.Quirks{IdleExitCode: 7, TimeoutExitCode: 124, TerminatedCode: 137}
	bubble(t, modalfake.Options{Quirks: q}, func(w *world) {
		a, b, c := w.create(idle(5)).GetSandboxId(), w.create(nil).GetSandboxId(), w.create(nil).GetSandboxId()
		assert.Nil(t, w.terminate(c))
		w.sleep(11 * time.Minute)
		assert.Equal(t, int32(7), w.wait(a, 0).GetExitcode())
		assert.Equal(t, int32(124), w.wait(b, 0).GetExitcode())
		assert.Equal(t, int32(137), w.wait(c, 0).GetExitcode())
	})
}

func TestACreateThatCannotBePlacedIsRefusedAndLeavesNothing(t *testing.T) {
	bubble(t, modalfake.Options{Behaviour: fake.Behaviour{NeverReady: true}}, func(w *world) {
		start := time.Now()
		_, err := w.modal.SandboxCreateV2(w.ctx(), w.order(nil))
		refused(t, codes.ResourceExhausted, err)
		assert.Equal(t, time.Minute, since(start))
		assert.Empty(t, w.fake.All())
	})
}

func TestASandboxWhoseCreatorHasLeftLivesOn(t *testing.T) {
	bubble(t, modalfake.Options{Behaviour: fake.Behaviour{StartTime: 2 * time.Second}}, func(w *world) {
		ctx, cancel := context.WithTimeout(w.ctx(), 500*time.Millisecond)
		defer cancel()
		_, err := w.modal.SandboxCreateV2(ctx, w.order(nil))
		refused(t, codes.DeadlineExceeded, err)
		w.sleep(time.Minute)
		require.Len(t, w.fake.All(), 1)
		assert.Equal(t, sandbox.StateRunning, w.fake.All()[0].Record.State)
	})
}

func TestAFinishedSandboxIsForgottenInTime(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{Forgets: time.Hour}}, func(w *world) {
		id := w.create(nil).GetSandboxId()
		w.terminate(id)
		w.sleep(59 * time.Minute)
		assert.Equal(t, statusTerminated, w.wait(id, 0).GetStatus())
		w.sleep(2 * time.Minute)
		_, err := w.modal.SandboxWaitV2(w.ctx(), pb.SandboxWaitRequest_builder{SandboxId: id}.Build())
		refused(t, codes.NotFound, err)
		assert.Empty(t, w.list(pb.SandboxListRequest_builder{IncludeFinished: true}))
		w.fake.Change(func(q *modalfake.Quirks) { q.LookupCode = codes.PermissionDenied })
		_, err = w.modal.SandboxTerminateV2(w.ctx(), pb.SandboxTerminateRequest_builder{SandboxId: "sb-none"}.Build())
		refused(t, codes.PermissionDenied, err)
	})
}

func TestStoppingAnAppEndsAllOfItsSandboxes(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		a, b := w.create(nil).GetSandboxId(), w.create(nil).GetSandboxId()
		_, err := w.modal.AppStop(w.ctx(), pb.AppStopRequest_builder{AppId: w.app}.Build())
		require.NoError(t, err)
		assert.Equal(t, statusTerminated, w.wait(a, 10).GetStatus())
		assert.Equal(t, statusTerminated, w.wait(b, 10).GetStatus())
		_, err = w.modal.SandboxCreateV2(w.ctx(), w.order(nil))
		refused(t, codes.FailedPrecondition, err)
		_, err = w.modal.AppStop(w.ctx(), pb.AppStopRequest_builder{AppId: "ap-none"}.Build())
		refused(t, codes.NotFound, err)
	})
}

func TestTheOlderBackendHasCallsOfItsOwn(t *testing.T) {
	bubble(t, modalfake.Options{Behaviour: fake.Behaviour{StartTime: 3 * time.Second}}, func(w *world) {
		ctx := w.ctx()
		in := w.order(entry("cat"), "k", "v")
		start := time.Now()
		made, err := w.modal.SandboxCreate(ctx, pb.SandboxCreateRequest_builder{
			AppId: w.app, Definition: in.GetDefinition(), Tags: in.GetTags(),
		}.Build())
		require.NoError(t, err)
		id := made.GetSandboxId()
		assert.Regexp(t, `^sb-[0-9A-Za-z]{22}$`, id)
		assert.Zero(t, since(start), "it does not wait for the start")
		task, err := w.modal.SandboxGetTaskId(ctx, pb.SandboxGetTaskIdRequest_builder{SandboxId: id, Timeout: ptr(float32(0.5))}.Build())
		require.NoError(t, err)
		assert.False(t, task.HasTaskId())
		task, err = w.modal.SandboxGetTaskId(ctx, pb.SandboxGetTaskIdRequest_builder{SandboxId: id, Timeout: ptr(float32(10))}.Build())
		require.NoError(t, err)
		assert.True(t, task.HasTaskId())
		assert.Equal(t, 3*time.Second, since(start))

		_, err = w.modal.SandboxWaitV2(ctx, pb.SandboxWaitRequest_builder{SandboxId: id}.Build())
		refused(t, codes.NotFound, err)
		newer := w.create(nil).GetSandboxId()
		assert.Regexp(t, `^sb-[0-9A-Z]{26}$`, newer)
		_, err = w.modal.SandboxWait(ctx, pb.SandboxWaitRequest_builder{SandboxId: newer}.Build())
		refused(t, codes.NotFound, err)

		for i, text := range []string{"a", "b", "b", "c"} {
			_, err = w.modal.SandboxStdinWrite(ctx, pb.SandboxStdinWriteRequest_builder{
				SandboxId: id, Input: []byte(text), Index: uint32([]int{1, 2, 2, 3}[i]), Eof: text == "c",
			}.Build())
			require.NoError(t, err)
		}
		logs, err := w.modal.SandboxGetLogs(ctx, pb.SandboxGetLogsRequest_builder{
			SandboxId: id, FileDescriptor: pb.FileDescriptor_FILE_DESCRIPTOR_STDOUT, Timeout: 55, LastEntryId: "0-0",
		}.Build())
		require.NoError(t, err)
		text := ""
		for {
			m, err := logs.Recv()
			require.NoError(t, err)
			for _, i := range m.GetItems() {
				text += i.GetData()
			}
			if m.GetEof() {
				break
			}
		}
		assert.Equal(t, "abc", text)
		got, err := w.modal.SandboxWait(ctx, pb.SandboxWaitRequest_builder{SandboxId: id, Timeout: 10}.Build())
		require.NoError(t, err)
		assert.Equal(t, statusSuccess, got.GetResult().GetStatus())
		tags, err := w.modal.SandboxTagsGet(ctx, pb.SandboxTagsGetRequest_builder{SandboxId: id}.Build())
		require.NoError(t, err)
		assert.Equal(t, "v", tags.GetTags()[0].GetTagValue())
		end, err := w.modal.SandboxTerminate(ctx, pb.SandboxTerminateRequest_builder{SandboxId: id}.Build())
		require.NoError(t, err)
		assert.True(t, end.HasExistingResult())
	})
}

func TestAReadyProbeIsTriedUntilItSucceeds(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(func(d *pb.Sandbox_builder) {
			d.EntrypointArgs = []string{"sh", "-c", "sleep 7; touch /tmp/up; sleep 100"}
			d.ReadinessProbe = pb.Probe_builder{
				ExecCommand: pb.Probe_ExecCommand_builder{Argv: []string{"test", "-f", "/tmp/up"}}.Build(), IntervalMs: ptr(uint32(500)),
			}.Build()
		})
		start := time.Now()
		_, err := w.router.SandboxWaitUntilReady(w.bearer(got), pb.SandboxWaitUntilReadyTcrRequest_builder{
			TaskId: got.GetTaskId(), Timeout: 2,
		}.Build())
		refused(t, codes.DeadlineExceeded, err)
		ready, err := w.router.SandboxWaitUntilReady(w.bearer(got), pb.SandboxWaitUntilReadyTcrRequest_builder{
			TaskId: got.GetTaskId(), Timeout: 60,
		}.Build())
		require.NoError(t, err)
		assert.InDelta(t, 7.0, since(start).Seconds(), 0.6)
		assert.InDelta(t, 7.0, ready.GetReadyAt()-float64(start.Unix()), 1)
	})
}

func TestAnEndIsKnownToWhoeverAsksThoughTheNewsOfAnotherAreStillBeingTold(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		one, two := w.create(nil).GetSandboxId(), w.create(nil).GetSandboxId()
		w.fake.Service().Watch(func(fake.Change) { time.Sleep(5 * time.Second) })
		told := make(chan struct{})
		go func() {
			defer close(told)
			w.terminate(one)
		}()
		time.Sleep(time.Second)
		w.terminate(two)
		got := w.wait(two, 0)
		assert.Equal(t, pb.GenericResult_GENERIC_STATUS_TERMINATED, got.GetStatus())
		assert.NotNil(t, w.terminate(two), "it tells the result that there is")
		<-told
	})
}
