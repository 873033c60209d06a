package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/examples/internal/exampletest"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// A world is a service, a manager for it, and what a model has seen.
type world struct {
	p       *sandboxtest.Provider
	m       *sandbox.Manager
	results []string // of the tools
}

// inWorld runs a test in a bubble. At its end the service itself is asked what is left.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{p: sandboxtest.New(sandbox.Capabilities{})}
		var err error
		w.m, err = sandbox.NewManager(w.p, sandbox.Config{
			Fleet: "test", Scope: sandbox.Scope{Window: 5 * time.Minute}, Observers: []sandbox.Observer{func(context.Context, sandbox.Event) {}},
		})
		require.NoError(t, err)
		test(t, w)
		w.nothingIsLeft(t)
	})
}

func (w *world) nothingIsLeft(t *testing.T) {
	t.Helper()
	assert.Empty(t, w.p.Live())
	assert.Empty(t, w.p.Residue())
}

// model returns one that takes these steps and then says "done". Whenever it is asked, no sandbox may be left: the tool
// has returned.
func (w *world) model(t *testing.T, steps ...*schema.Message) Scripted {
	var s Scripted
	for _, answer := range append(steps, say("done")) {
		s = append(s, func(results []string) *schema.Message {
			w.results = results
			w.nothingIsLeft(t)
			return answer
		})
	}
	return s
}

func TestTheModelGetsWhatItsScriptWroteAndItsExitCode(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		answer, err := Ask(t.Context(), w.m, w.model(t, run(Call{Script: "echo out; echo err >&2; exit 3"})), "?")
		require.NoError(t, err)
		assert.Equal(t, "done", answer)
		require.Len(t, w.results, 1)
		assert.JSONEq(t, `{"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}`, w.results[0])
	})
}

func TestTheModelMendsAScriptThatFailed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := Ask(t.Context(), w.m, w.model(t, run(Call{Script: "ehco hi"}), run(Call{Script: "echo hi"})), "?")
		require.NoError(t, err)
		require.Len(t, w.results, 2)
		assert.Contains(t, w.results[0], `"exit_code":127`)
		assert.JSONEq(t, `{"exit_code": 0, "stdout": "hi\n"}`, w.results[1])
		assert.Len(t, w.p.Calls(sandbox.OpCreate), 2, "each run has a sandbox of its own")
	})
}

func TestAnEndlessLoopIsKilledAndTheModelToldSo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		start := time.Now()
		_, err := Ask(t.Context(), w.m, w.model(t,
			run(Call{Script: "echo began; while true; do sleep 1; done", Seconds: 5}),
			run(Call{Script: "while true; do sleep 1; done"}),
			run(Call{Script: "while true; do sleep 1; done", Seconds: 1 << 40}),
		), "?")
		require.NoError(t, err)
		require.Len(t, w.results, 3)
		assert.JSONEq(t, `{"exit_code": -1, "stdout": "began\n", "note": "killed after 5s, for it had not ended; make it faster, or ask for more time"}`, w.results[0])
		assert.Contains(t, w.results[1], "killed after 30s")
		assert.Contains(t, w.results[2], "killed after 5m0s")
		assert.Equal(t, 5*time.Second+30*time.Second+5*time.Minute, time.Since(start).Truncate(5*time.Second))
	})
}

func TestCallsOfOneAnswerRunAtOnceEachInASandboxOfItsOwn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		most := 0
		w.p.Watch(func(sandboxtest.Change) { most = max(most, len(w.p.Live())) })
		script := "test -e /tmp/seen && echo seen; touch /tmp/seen; sleep 3; echo "
		_, err := Ask(t.Context(), w.m, w.model(t, run(Call{Script: script + "one"}, Call{Script: script + "two"})), "?")
		require.NoError(t, err)
		require.Len(t, w.results, 2)
		assert.JSONEq(t, `{"exit_code": 0, "stdout": "one\n"}`, w.results[0])
		assert.JSONEq(t, `{"exit_code": 0, "stdout": "two\n"}`, w.results[1])
		assert.Equal(t, 2, most)
	})
}

func TestWhatTheModelGetsWrongItIsToldAndNoSandboxIsMade(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		unknown, broken := run(Call{}), run(Call{})
		unknown.ToolCalls[0].Function.Name = "browse"
		broken.ToolCalls[0].Function.Arguments = `{"script": 7}`
		_, err := Ask(t.Context(), w.m, w.model(t, unknown, broken), "?")
		require.NoError(t, err)
		require.Len(t, w.results, 2)
		assert.Equal(t, `There is no tool "browse".`, w.results[0])
		assert.Contains(t, w.results[1], "The arguments are not as described")
		assert.Empty(t, w.p.Calls())
	})
}

func TestOfALongOutputTheModelGetsTheEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := Ask(t.Context(), w.m, w.model(t, run(Call{Script: "n=0; while [ $n -lt 5000 ]; do n=$((n + 1)); echo $n; done"})), "?")
		require.NoError(t, err)
		require.Len(t, w.results, 1)
		out := stdout(w.results[0])
		assert.Less(t, len(w.results[0]), 2*outputLimit)
		assert.True(t, strings.HasPrefix(out, "[the beginning is left out]\n"), "%.100s", out)
		assert.True(t, strings.HasSuffix(out, "\n4999\n5000"), "%.100s", out)
	})
}

func TestACancelEndsTheAgentAndItsSandboxes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		_, err := Ask(ctx, w.m, w.model(t, run(Call{Script: "sleep 20"}, Call{Script: "sleep 20"})), "?")
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, w.p.Calls(sandbox.OpCreate), 2)
	})
}

func TestAModelThatPanicsIsAnErrorAndLeavesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		chat := w.model(t, run(Call{Script: "echo hi"}))
		chat[1] = func([]string) *schema.Message { panic("no such model") }
		_, err := Ask(t.Context(), w.m, chat, "?")
		require.ErrorContains(t, err, "no such model")
	})
}

// A faulty is a tool that works for a while and then panics.
type faulty struct{}

func (faulty) Info(context.Context) (*schema.ToolInfo, error) {
	return &schema.ToolInfo{Name: "faulty"}, nil
}

func (faulty) InvokableRun(context.Context, string, ...tool.Option) (string, error) {
	time.Sleep(5 * time.Second)
	panic("a tool with a bug")
}

// eino does not wait for our tool when the one beside it panics. Its sandbox ends all the same.
func TestAPanicOfAnotherToolEndsTheSandboxesToo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		both := run(Call{}, Call{Script: "sleep 20"})
		both.ToolCalls[0].Function.Name = "faulty"
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Delay: 500 * time.Millisecond})
		_, err := Ask(t.Context(), w.m, w.model(t, both), "?", faulty{})
		require.ErrorContains(t, err, "a tool with a bug")
		assert.Len(t, w.p.Live(), 1, "ours is still being deleted")
		time.Sleep(time.Second) // far less than its script takes, so it was told to end
		w.nothingIsLeft(t)
		require.NoError(t, w.m.Shutdown(t.Context()))
	})
}

func TestEveryLeakReachesTheProgramThoughEinoReturnsOneError(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		_, err := Ask(t.Context(), w.m, w.model(t, run(Call{Script: "echo one"}, Call{Script: "echo two"})), "?")
		assert.Len(t, leaked(err), 2, "%v", err)
		assert.Empty(t, w.results, "the model is not asked again")
		assert.Len(t, w.p.Live(), 2)
		w.p.Heal()
		require.NoError(t, w.m.Shutdown(t.Context()))
	})
}

// leaked returns the ids of all sandboxes that err names as left, each once.
func leaked(err error) map[string]bool {
	ids := map[string]bool{}
	var visit func(error)
	visit = func(err error) {
		if leak, ok := err.(*sandbox.LeakError); ok {
			for _, info := range leak.Sandboxes {
				ids[info.ID] = true
			}
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			visit(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, e := range e.Unwrap() {
				visit(e)
			}
		}
	}
	visit(err)
	return ids
}

func TestALostLeaseReachesTheProgramThoughAnotherCallFailedFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.p.Fault(sandbox.OpUpload, sandboxtest.Fault{Err: sandboxtest.Status(403)})
		time.AfterFunc(5*time.Second, func() {
			for _, info := range w.p.Live() {
				w.p.Freeze(info.ID)
			}
		})
		_, err := Ask(t.Context(), w.m, w.model(t, run(Call{Script: "sleep 300", Seconds: 300}, Call{Script: "sleep 300", Seconds: 300})), "?")
		assert.ErrorIs(t, err, sandbox.ErrPermission)
		assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
		assert.Empty(t, w.results)
	})
}

func TestWithoutASandboxTheProgramIsToldNotTheModel(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(401)})
		_, err := Ask(t.Context(), w.m, w.model(t, run(Call{Script: "echo hi"})), "?")
		require.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.ErrorIs(t, err, sandbox.ErrUnauthenticated)
	})
}

func TestConversationsAtOnceDoNotMeet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		chat := Scripted{
			func([]string) *schema.Message { return run(Call{Script: "sleep 1; echo hi"}) },
			func(results []string) *schema.Message { return say(stdout(results[0])) },
		}
		errs := make(chan error)
		for range 8 {
			go func() {
				answer, err := Ask(t.Context(), w.m, chat, "?")
				if answer != "hi" {
					err = errors.Join(err, fmt.Errorf("answer %q", answer))
				}
				errs <- err
			}()
		}
		for range 8 {
			assert.NoError(t, <-errs)
		}
	})
}

func program(t *testing.T, provider string) (out string, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exampletest.Command(ctx, t, "-provider", provider)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	return string(text), cmd.Process.Pid
}

func checkTranscript(t *testing.T, out string) {
	t.Helper()
	t.Log(out)
	assert.Contains(t, out, `"exit_code":127`)
	assert.Contains(t, out, "killed after 2s")
	assert.Contains(t, out, "6 times 7 is 42, and 1 to 10 make 55 (by formula: 55)\n")
	assert.Equal(t, 5, strings.Count(out, " is gone\n"))
}

func TestTheProgramAnswersInMemory(t *testing.T) {
	out, _ := program(t, "memory")
	checkTranscript(t, out)
}

func TestTheProgramAnswersOnARealEngineAndLeavesNothing(t *testing.T) {
	engine := exampletest.Engine(t)
	out, pid := program(t, "docker")
	checkTranscript(t, out)
	assert.Empty(t, exampletest.Left(t, engine, "eino", pid))
}
