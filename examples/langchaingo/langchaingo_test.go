package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tmc/langchaingo/llms"

	"github.com/sandglass-dev/sandglass/examples/internal/exampletest"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// timeout is what a script may take in these tests.
const timeout = time.Minute

// A world is a service, a manager for it, and what a model has seen.
type world struct {
	p       *sandboxtest.Provider
	m       *sandbox.Manager
	results []string // of the tool
	alive   []int    // how many sandboxes there were whenever the model was asked
}

// inWorld runs a test in a bubble. At its end the service itself is asked what is left.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{p: sandboxtest.New(sandbox.Capabilities{})}
		var err error
		w.m, err = sandbox.NewManager(w.p, sandbox.Config{
			Fleet: "test", Scope: sandbox.Scope{Window: time.Minute, StallTimeout: 5 * time.Minute}, Observers: []sandbox.Observer{func(context.Context, sandbox.Event) {}},
		})
		require.NoError(t, err)
		test(t, w)
		assert.Empty(t, w.p.Live())
		assert.Empty(t, w.p.Residue())
	})
}

// model returns one that takes these steps and then says "done".
func (w *world) model(steps ...*llms.ContentChoice) *Scripted {
	s := &Scripted{}
	for _, answer := range append(steps, say("done")) {
		s.Steps = append(s.Steps, func(results []string) *llms.ContentChoice {
			w.results = results
			w.alive = append(w.alive, len(w.p.Live())+len(w.p.Residue()))
			return answer
		})
	}
	return s
}

// inBothShapes runs a test for each of the shapes.
func inBothShapes(t *testing.T, test func(t *testing.T, w *world, ask func(context.Context, llms.Model) (string, error))) {
	for name, shape := range map[string]func(context.Context, *sandbox.Manager, llms.Model, string, time.Duration) (string, error){
		"run": Runs, "conversation": Conversation,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				test(t, w, func(ctx context.Context, llm llms.Model) (string, error) { return shape(ctx, w.m, llm, "?", timeout) })
			})
		})
	}
}

func TestTheModelGetsWhatItsScriptWroteAndMendsIt(t *testing.T) {
	inBothShapes(t, func(t *testing.T, w *world, ask func(context.Context, llms.Model) (string, error)) {
		answer, err := ask(t.Context(), w.model(run("echo out; echo err >&2; exit 3"), run("echo hi")))
		require.NoError(t, err)
		assert.Equal(t, "done", answer)
		assert.Equal(t, []string{"exit code: 3\nstdout:\nout\nstderr:\nerr\n", "exit code: 0\nstdout:\nhi\n"}, w.results)
	})
}

func TestAnEndlessLoopIsKilledAndTheModelToldSo(t *testing.T) {
	inBothShapes(t, func(t *testing.T, w *world, ask func(context.Context, llms.Model) (string, error)) {
		start := time.Now()
		_, err := ask(t.Context(), w.model(run("echo began; while true; do sleep 1; done"), run("echo hi")))
		require.NoError(t, err)
		assert.Equal(t, []string{
			"killed: it had not ended after 1m0s; make it faster, or do less\nstdout:\nbegan\n",
			"exit code: 0\nstdout:\nhi\n",
		}, w.results)
		assert.Equal(t, timeout, time.Since(start).Truncate(timeout))
	})
}

func TestARunHasASandboxOfItsOwnWhichIsGoneBeforeTheModelIsAsked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := Runs(t.Context(), w.m, w.model(run("echo 1 >/tmp/n"), run("cat /tmp/n || echo none"), run("echo a", "echo b")), "?", timeout)
		require.NoError(t, err)
		require.Len(t, w.results, 4)
		assert.Equal(t, "none", stdout(w.results[1]))
		assert.Equal(t, "exit code: 0\nstdout:\na\n", w.results[2], "two calls in one answer")
		assert.Equal(t, "exit code: 0\nstdout:\nb\n", w.results[3])
		assert.Equal(t, []int{0, 0, 0, 0}, w.alive)
		assert.Len(t, w.p.Calls(sandbox.OpCreate), 4)
	})
}

func TestAConversationHasOneSandboxAndKeepsItsFiles(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := Conversation(t.Context(), w.m, w.model(run("echo 1 >/tmp/n"), run("cat /tmp/n || echo none")), "?", timeout)
		require.NoError(t, err)
		require.Len(t, w.results, 2)
		assert.Equal(t, "1", stdout(w.results[1]))
		assert.Equal(t, []int{1, 1, 1}, w.alive)
		assert.Len(t, w.p.Calls(sandbox.OpCreate), 1)
	})
}

func TestATimeoutOfOneScriptLeavesTheConversationItsSandbox(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := Conversation(t.Context(), w.m, w.model(run("echo 1 >/tmp/n; sleep 600"), run("cat /tmp/n")), "?", timeout)
		require.NoError(t, err)
		assert.Equal(t, "1", stdout(w.results[1]))
	})
}

func TestACancelEndsTheAgentAndItsSandbox(t *testing.T) {
	inBothShapes(t, func(t *testing.T, w *world, ask func(context.Context, llms.Model) (string, error)) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		_, err := ask(ctx, w.model(run("sleep 50")))
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, w.p.Calls(sandbox.OpCreate), 1)
		assert.Empty(t, w.results, "the model is not asked again")
	})
}

func TestAPanicOfTheModelGoesThroughAndLeavesNothing(t *testing.T) {
	inBothShapes(t, func(t *testing.T, w *world, ask func(context.Context, llms.Model) (string, error)) {
		llm := w.model(run("echo hi"))
		llm.Steps[1] = func([]string) *llms.ContentChoice { panic("no such model") }
		assert.PanicsWithValue(t, "no such model", func() { _, _ = ask(t.Context(), llm) })
		assert.Len(t, w.p.Calls(sandbox.OpCreate), 1)
		assert.Empty(t, w.p.Live(), "it is gone when the panic arrives")
	})
}

func TestAModelThatNeverAnswersEndsTheConversation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := Conversation(t.Context(), w.m, silent{}, "?", timeout)
		require.ErrorIs(t, err, sandbox.ErrStalled)
	})
}

// silent is a model that never answers.
type silent struct{ llms.Model }

func (silent) GenerateContent(ctx context.Context, _ []llms.MessageContent, _ ...llms.CallOption) (*llms.ContentResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestALostLeaseIsTheProgramsNotTheModels(t *testing.T) {
	inBothShapes(t, func(t *testing.T, w *world, ask func(context.Context, llms.Model) (string, error)) {
		time.AfterFunc(5*time.Second, func() { w.p.Freeze(w.p.Live()[0].ID) })
		_, err := ask(t.Context(), w.model(run("sleep 50")))
		require.ErrorIs(t, err, sandbox.ErrLeaseLost)
		assert.Empty(t, w.results)
	})
}

func TestALeakIsTheProgramsNotTheModels(t *testing.T) {
	inBothShapes(t, func(t *testing.T, w *world, ask func(context.Context, llms.Model) (string, error)) {
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true }) // the lease ends it no sooner
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		_, err := ask(t.Context(), w.model(run("echo hi")))
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok, "%v", err)
		require.Len(t, w.p.Live(), 1)
		assert.Equal(t, w.p.Live()[0].ID, leak.Sandboxes[0].ID)
		w.p.Heal()
		require.NoError(t, w.m.Shutdown(t.Context()))
	})
}

func TestWithoutASandboxTheProgramIsTold(t *testing.T) {
	inBothShapes(t, func(t *testing.T, w *world, ask func(context.Context, llms.Model) (string, error)) {
		w.p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(401)})
		_, err := ask(t.Context(), w.model(run("echo hi")))
		require.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.ErrorIs(t, err, sandbox.ErrUnauthenticated)
	})
}

func TestOneToolServesAgentsAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		code, most := EachInItsOwn(w.m, timeout), 0
		w.p.Watch(func(sandboxtest.Change) { most = max(most, len(w.p.Live())) })
		errs := make(chan error)
		for i := range 8 {
			go func() {
				result, err := code.Call(t.Context(), fmt.Sprintf("test -e /tmp/n || echo %d >/tmp/n; sleep 1; cat /tmp/n", i))
				if stdout(result) != fmt.Sprint(i) {
					err = errors.Join(err, fmt.Errorf("call %d got %q", i, result))
				}
				errs <- err
			}()
		}
		for range 8 {
			assert.NoError(t, <-errs)
		}
		assert.Equal(t, 8, most)
	})
}

func TestOfALongOutputTheModelGetsTheEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		result, err := EachInItsOwn(w.m, timeout).Call(t.Context(), "n=0; while [ $n -lt 5000 ]; do n=$((n + 1)); echo $n; done")
		require.NoError(t, err)
		assert.Less(t, len(result), outputLimit+100)
		assert.True(t, strings.HasPrefix(result, "exit code: 0\nstdout, without its beginning:\n"), "%.100s", result)
		assert.True(t, strings.HasSuffix(result, "\n4999\n5000\n"), "%.100s", result)
	})
}

func program(t *testing.T, args ...string) (out string, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// Far more than any script takes that ends, even on a busy machine.
	cmd := exampletest.Command(ctx, t, append(args, "-timeout", "15s")...)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	return string(text), cmd.Process.Pid
}

func checkTranscript(t *testing.T, out, shape string) {
	t.Helper()
	t.Log(out)
	assert.Contains(t, out, `"exit code: 127\n`)
	assert.Contains(t, out, "killed: it had not ended after 15s")
	if shape == "run" {
		assert.Contains(t, out, "1 to 10 make 55 (the file with it: not kept)\n")
		assert.Equal(t, 4, strings.Count(out, " is gone\n"))
	} else {
		assert.Contains(t, out, "1 to 10 make 55 (the file with it: 55)\n")
		assert.Equal(t, 1, strings.Count(out, " is gone\n"))
	}
}

func TestTheProgramAnswersInMemory(t *testing.T) {
	for _, shape := range []string{"run", "conversation"} {
		t.Run(shape, func(t *testing.T) {
			out, _ := program(t, "-provider", "memory", "-shape", shape)
			checkTranscript(t, out, shape)
		})
	}
}

func TestTheProgramAnswersOnARealEngineAndLeavesNothing(t *testing.T) {
	engine := exampletest.Engine(t)
	for _, shape := range []string{"run", "conversation"} {
		t.Run(shape, func(t *testing.T) {
			out, pid := program(t, "-provider", "docker", "-shape", shape)
			checkTranscript(t, out, shape)
			assert.Empty(t, exampletest.Left(t, engine, "langchaingo", pid))
		})
	}
}
