package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Task is one job of an agent, at one commit.
type Task struct {
	JobID  string
	Commit string
	Run    func(ctx context.Context, sb sandbox.Sandbox) error
}

// An Outcome is how a task ended.
type Outcome struct {
	Task Task
	Err  error
	Took time.Duration // from the task's turn to the end of its sandbox
}

// RunAll runs each task in a sandbox of its own, at most workers at once, and returns the outcomes in the tasks' order.
// Whatever becomes of one task is no matter to the others. Once ctx has ended, no further task is started.
func RunAll(ctx context.Context, m *sandbox.Manager, workers int, tasks []Task) []Outcome {
	outcomes := make([]Outcome, len(tasks))
	turns := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range turns {
				start := time.Now()
				err := runTask(ctx, m, tasks[i])
				outcomes[i] = Outcome{Task: tasks[i], Err: err, Took: time.Since(start)}
			}
		})
	}
	for i := range tasks {
		turns <- i
	}
	close(turns)
	wg.Wait()
	return outcomes
}

// A PanicError is a task that panicked.
type PanicError struct{ Value any }

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// runTask runs one task. A panic has gone through WithSandbox, and deleted the sandbox on its way, when it arrives here.
func runTask(ctx context.Context, m *sandbox.Manager, task Task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{p}
		}
	}()
	return m.WithSandbox(ctx, task.Run, func(s *sandbox.Scope) {
		s.Tags["agent_job_id"] = task.JobID
		s.Tags["commit_sha"] = task.Commit
	})
}
