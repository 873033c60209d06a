package docker_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
)

var crashes = flag.Int("crash.n", 20, "how many processes TestCrash kills")

const (
	crashVar    = "SANDGLASS_CRASH_CHILD" // "<fleet> <number> <how to die> <spool>" makes the test binary such a process
	crashWindow = 5 * time.Second
	crashSpan   = 6 * time.Second // killed at an instant within it: before the create, after the delete, or between
	crashAtOnce = 8
	// How long an engine with two cores may take for requests already under way, and for removals, with that many at once
	// and other tests beside them. It is far from the hard end, so that beats cannot hide behind it.
	crashSlack = 45 * time.Second
)

// crashChild is a program that uses Sandglass as documented. How it dies is "kill", by its parent and whenever that
// likes, or "exit", by itself in its function.
func crashChild(order string) {
	words := strings.Fields(order)
	p, err := docker.FromEnv()
	if err != nil {
		fail(err)
	}
	j, err := journal.Open(words[3])
	if err != nil {
		fail(err)
	}
	m, err := sandbox.NewManager(p, sandbox.Config{
		Fleet: words[0], Owner: words[1], Grace: time.Second, CleanupTimeout: 2 * p.Capabilities().DeleteTime, Journal: j,
		Scope: sandbox.Scope{Spec: sandbox.Spec{Image: image}, Window: crashWindow, MaxLifetime: 10 * time.Minute},
	})
	if err != nil {
		fail(err)
	}
	err = m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
		if words[2] == "exit" {
			_, _ = sb.Exec(ctx, sandbox.Shell("sleep 600 >/dev/null 2>&1 &"))
			os.Exit(0)
		}
		_, err := sb.Exec(ctx, sandbox.Shell("sleep 600 >/dev/null 2>&1 & sleep 1"))
		return err
	})
	if err != nil && !errors.Is(err, sandbox.ErrLeaseLost) { // a machine too busy for its beats is no fault of the life cycle
		fail(err)
	}
	os.Exit(0)
}

func fail(err error) {
	_, _ = fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A fate is what became of one process and its container.
type fate struct {
	died, gone time.Time // by this machine's clock; gone is zero where no container was removed
	output     string    // of a process that failed
}

func TestCrash(t *testing.T) {
	p := engine(t)
	c := judge(t)
	spool := t.TempDir()
	fleet := fmt.Sprintf("crash-%d", time.Now().UnixNano())
	label := client.Filters{}.Add("label", sandbox.FleetKey+"="+fleet)

	fates := make([]fate, *crashes)
	var mu sync.Mutex
	ectx, stop := context.WithCancel(t.Context())
	watching := c.Events(ectx, client.EventsListOptions{Filters: label.Clone().Add("type", "container").Add("event", "destroy")})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case e := <-watching.Messages:
				if e.Action != events.ActionDestroy {
					continue
				}
				mark, err := sandbox.ParseMark(e.Actor.Attributes[sandbox.MarkKey])
				i, err2 := strconv.Atoi(mark.Owner)
				if assert.NoError(t, errors.Join(err, err2)) {
					mu.Lock()
					fates[i].gone = time.Now()
					mu.Unlock()
				}
			case err := <-watching.Err:
				if ectx.Err() == nil {
					t.Errorf("the engine's events ended: %v", err)
				}
				return
			}
		}
	})

	self, err := os.Executable()
	require.NoError(t, err)
	slots := make(chan struct{}, crashAtOnce)
	var children sync.WaitGroup
	for i := range fates {
		slots <- struct{}{}
		children.Go(func() {
			defer func() { <-slots }()
			how := "kill"
			if i%5 == 4 {
				how = "exit"
			}
			var out strings.Builder
			child := exec.Command(self)
			child.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s %s", crashVar, fleet, i, how, spool))
			child.Stdout, child.Stderr = &out, &out
			if !assert.NoError(t, child.Start()) {
				return
			}
			var kill *time.Timer
			if how == "kill" {
				kill = time.AfterFunc(rand.N(crashSpan), func() { _ = child.Process.Kill() })
			} else {
				kill = time.AfterFunc(2*time.Minute, func() { _ = child.Process.Kill() })
			}
			_ = child.Wait()
			died := time.Now()
			kill.Stop()
			mu.Lock()
			defer mu.Unlock()
			fates[i].died = died
			if child.ProcessState.Exited() && !child.ProcessState.Success() {
				fates[i].output = out.String()
			}
		})
	}
	children.Wait()

	// The engine's word, in all states, asked without the code under test. What was on its way when its owner died may
	// still come; whatever runs has its window, the watchdog's second, and what the engine takes to remove it.
	all := func() (running, created []container.Summary) {
		r, err := c.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: label})
		require.NoError(t, err)
		for _, s := range r.Items {
			if s.State == container.StateCreated {
				created = append(created, s)
			} else {
				running = append(running, s)
			}
		}
		return running, created
	}
	last := time.Now()
	for time.Since(last) < crashWindow+time.Second+crashSlack {
		if running, _ := all(); len(running) == 0 && time.Since(last) > 2*time.Second {
			break
		}
		<-time.After(200 * time.Millisecond)
	}
	running, created := all()
	stop()
	watcher.Wait() // what is removed from here on is our doing

	// The next start: what the lease could not end, the journal knows.
	j, err := journal.Open(spool)
	require.NoError(t, err)
	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: fleet, Journal: j})
	require.NoError(t, err)
	assert.NoError(t, m.Replay(t.Context()))
	stillRunning, stillCreated := all()
	for _, s := range append(stillRunning, stillCreated...) {
		_, err := c.ContainerRemove(context.Background(), s.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		require.NoError(t, err)
	}
	var lives []time.Duration
	for i, f := range fates {
		assert.Empty(t, f.output, "process %d failed by itself", i)
		if f.gone.After(f.died) {
			lives = append(lives, f.gone.Sub(f.died))
		}
	}
	slices.Sort(lives)
	longest := time.Duration(0)
	if n := len(lives); n > 0 {
		longest = lives[n-1]
		t.Logf("%d containers outlived their process, half of them by less than %v, nine of ten by less than %v", n, lives[n/2], lives[n*9/10])
	}
	fmt.Printf("killed %d, left running %d, left created %d, longest life %.1f s\n", len(fates), len(running), len(created), longest.Seconds())
	fmt.Printf("after the next start's replay: left running %d, left created %d\n", len(stillRunning), len(stillCreated))
	assert.Empty(t, running)
	assert.Empty(t, stillRunning)
	assert.Empty(t, stillCreated)
	assert.LessOrEqual(t, longest, crashWindow+time.Second+crashSlack)
	if len(fates) >= 20 {
		assert.NotEmpty(t, lives, "nobody died while it had a container: nothing was tried")
	}
}
