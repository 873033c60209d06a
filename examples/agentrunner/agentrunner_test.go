package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/examples/internal/exampletest"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func newManager(t *testing.T, p sandbox.Provider) *sandbox.Manager {
	t.Helper()
	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "test", Scope: sandbox.Scope{Window: time.Minute, StallTimeout: 3 * time.Second}})
	require.NoError(t, err)
	return m
}

// A transcript is what tasks have printed, by job.
type transcript struct {
	mu    sync.Mutex
	lines map[string][]string
}

func (s *transcript) print(job, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines == nil {
		s.lines = map[string][]string{}
	}
	s.lines[job] = append(s.lines[job], line)
}

func TestEveryTaskEndsInItsOwnWayAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sandboxtest.New(sandbox.Capabilities{})
		var said transcript
		outcomes := RunAll(t.Context(), newManager(t, p), 3, tasks(said.print))

		got := map[string]string{}
		for _, o := range outcomes {
			got[o.Task.JobID] = word(o.Err)
		}
		assert.Equal(t, map[string]string{"greet": "done", "build": "done", "test": "failed", "crash": "panicked", "hang": "stalled"}, got)
		assert.Equal(t, []string{"building parser", "building compiler", "building linker", "1.0.0"}, said.lines["build"])
		assert.Len(t, p.Calls(sandbox.OpCreate), 5)
		assert.Empty(t, p.Live())
		assert.Empty(t, p.Residue())
	})
}

func TestEachSandboxSaysWhoseItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sandboxtest.New(sandbox.Capabilities{})
		outcomes := RunAll(t.Context(), newManager(t, p), 1, []Task{{JobID: "j1", Commit: "abc", Run: func(context.Context, sandbox.Sandbox) error {
			require.Len(t, p.Live(), 1)
			assert.Equal(t, map[string]string{"agent_job_id": "j1", "commit_sha": "abc"}, p.Live()[0].Tags)
			return nil
		}}})
		assert.NoError(t, outcomes[0].Err)
	})
}

func TestNoMoreTasksRunAtOnceThanThereAreWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sandboxtest.New(sandbox.Capabilities{})
		most := 0
		p.Watch(func(sandboxtest.Change) { most = max(most, len(p.Live())) })
		var jobs []Task
		for range 20 {
			jobs = append(jobs, Task{Run: func(ctx context.Context, sb sandbox.Sandbox) error {
				_, err := sb.Exec(ctx, sandbox.Shell("sleep 2"))
				return err
			}})
		}
		for _, o := range RunAll(t.Context(), newManager(t, p), 4, jobs) {
			assert.NoError(t, o.Err)
		}
		assert.Equal(t, 4, most)
		assert.Empty(t, p.Live())
	})
}

func TestACancelEndsAllTasksAndStartsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sandboxtest.New(sandbox.Capabilities{})
		ctx, cancel := context.WithCancel(t.Context())
		var jobs []Task
		for range 6 {
			jobs = append(jobs, Task{Run: func(ctx context.Context, sb sandbox.Sandbox) error {
				_, err := sb.Exec(ctx, sandbox.Shell("sleep 600"))
				return err
			}})
		}
		time.AfterFunc(10*time.Second, cancel)
		for _, o := range RunAll(ctx, newManager(t, p), 2, jobs) {
			assert.Equal(t, "cancelled", word(o.Err), "%v", o.Err)
		}
		assert.Len(t, p.Calls(sandbox.OpCreate), 2)
		assert.Empty(t, p.Live())
	})
}

func TestALeakIsTheWordOfAnOutcomeWhateverElseHappened(t *testing.T) {
	leak := &sandbox.LeakError{Sandboxes: make([]sandbox.Info, 2)}
	assert.Equal(t, "left 2 behind", word(errors.Join(sandbox.ErrStalled, leak)))
}

func runner(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exampletest.Command(ctx, t, args...).CombinedOutput()
	return string(out), err
}

// patience is longer than a busy machine lets a task wait that does something.
const patience = "15s"

func checkTable(t *testing.T, out string) {
	t.Helper()
	for job, outcome := range map[string]string{"greet": "done", "build": "done", "test": "failed", "crash": "panicked", "hang": "stalled"} {
		assert.Regexp(t, `(?m)^`+job+` +4f1c9a7 +\d+\.\ds +`+outcome+` `, out)
	}
	assert.Contains(t, out, "[build] building linker\n[build] 1.0.0\n")
	assert.True(t, strings.HasSuffix(out, "\nleft: 0\n"), out)
}

func TestTheProgramPrintsItsTableInMemory(t *testing.T) {
	out, err := runner(t, "-provider", "memory", "-workers", "5", "-stall", patience)
	require.NoError(t, err, out)
	checkTable(t, out)
}

func TestTheProgramPrintsItsTableOnARealEngine(t *testing.T) {
	exampletest.Engine(t)
	out, err := runner(t, "-provider", "docker", "-workers", "5", "-stall", patience)
	require.NoError(t, err, out)
	checkTable(t, out)
}

func TestNoWorkersIsAnError(t *testing.T) {
	out, err := runner(t, "-workers", "0")
	require.Error(t, err)
	assert.Contains(t, out, "0 workers")
}
