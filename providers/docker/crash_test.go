package docker_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
)

var (
	crashes  = flag.Int("crash.n", 20, "how many processes TestCrash kills")
	unleased = flag.Int("crash.unleased", 6, "how many processes each of TestCrashWithoutALease kills")
)

const (
	crashSpan = 6 * time.Second // killed at an instant within it: before the create, after the delete, or between
	siblings  = 3               // processes of the same fleet that live on
	wave      = 125             // of processes that leave their containers
	// How long an engine with two cores may take for requests already under way, and for removals, with that many at once
	// and other tests beside them. It is far from the hard end, so that beats cannot hide behind it.
	crashSlack = 45 * time.Second
)

// What a lease could not end, the next start ends from the journal. Nobody who lives is touched.
func TestCrash(t *testing.T) {
	c := newCampaign(t, "leased", false)
	stop := c.watchRemovals()
	c.kill(*crashes, 8)

	// What was on its way when its owner died may still come; whatever runs has its window, the watchdog's second, and
	// what the engine takes to remove it.
	last := time.Now()
	for time.Since(last) < crashWindow+time.Second+crashSlack {
		if now := c.left(); now.sum() == now[container.StateCreated] && time.Since(last) > 2*time.Second {
			break
		}
		<-time.After(200 * time.Millisecond)
	}
	left := c.left()
	stop() // what is removed from here on is our doing
	c.replay()
	after := c.left()
	fine := c.finish()

	var lives []time.Duration
	for _, f := range c.fates {
		if f.gone.After(f.died) {
			lives = append(lives, f.gone.Sub(f.died))
		}
	}
	slices.Sort(lives)
	longest := time.Duration(0)
	if n := len(lives); n > 0 {
		longest = lives[n-1]
		t.Logf("%d containers outlived their process, half of them by less than %v, nine of ten by less than %v",
			n, lives[n/2], lives[n*9/10])
	}
	fmt.Printf("killed %d, leases kept by the engine: left %s, longest life %.1f s; %s\n",
		len(c.fates), left, longest.Seconds(), outcome("the next start's replay", after, fine))
	assert.Zero(t, left.sum()-left[container.StateCreated], "left running")
	assert.Zero(t, after.sum(), "left after the replay")
	assert.LessOrEqual(t, longest, crashWindow+time.Second+crashSlack)
	if len(c.fates) >= 20 {
		assert.NotEmpty(t, lives, "nobody died while it had a container: nothing was tried")
	}
}

// Here the engine acts on no lease, so that all that the dead have left is left to journal or sweeper: to one replay, or
// one sweep, for each wave of dead processes. Waves keep the number of containers to what an engine carries.
func TestCrashWithoutALease(t *testing.T) {
	t.Parallel()
	for way, end := range map[string]struct {
		does string
		do   func(*campaign)
	}{
		"replay": {"the next start's replay", (*campaign).replay},
		"sweep":  {"one sweep without the journal", (*campaign).sweep},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := newCampaign(t, way, true)
			left, after := tally{}, tally{}
			for n := *unleased; n > 0; n -= wave {
				c.kill(min(n, wave), 5)
				c.settle()
				left.add(c.left())
				end.do(c)
				after.add(c.left())
			}
			fine := c.finish()
			fmt.Printf("killed %d in waves of up to %d, leases not kept by the engine: left %s; %s\n",
				*unleased, wave, left, outcome(end.does, after, fine))
			assert.Zero(t, after.sum(), "left after %s", end.does)
			if *unleased >= 20 {
				assert.NotZero(t, left[container.StateRunning], "nobody died while it had a container: nothing was tried")
			}
		})
	}
}

// A campaign kills processes that have sandboxes, beside others of their fleet that live on.
type campaign struct {
	t      *testing.T
	engine *client.Client // of the test's own
	errand errand
	label  client.Filters
	fates  []fate
	living []*sibling
	stop   func() // ends the watch over the living

	mu sync.Mutex
}

// A fate is what became of one process and its container.
type fate struct {
	died, gone time.Time // by this machine's clock; gone is zero where no container was removed
}

// A sibling is a process that lives through a campaign.
type sibling struct {
	cmd   *exec.Cmd
	input io.Closer // closed to have it finish
	said  strings.Builder
	id    string // of its sandbox
	seen  int    // how often the engine's list has shown it running
	lost  bool   // and once it has not
}

func newCampaign(t *testing.T, name string, unleased bool) *campaign {
	engine(t)
	fleet := fmt.Sprintf("crash-%s-%d", name, time.Now().Unix())
	c := &campaign{
		t: t, engine: judge(t), label: client.Filters{}.Add("label", sandbox.FleetKey+"="+fleet),
		errand: errand{Fleet: fleet, Spool: t.TempDir(), Unleased: unleased, Alive: map[string]string{}},
	}
	t.Cleanup(func() {
		for _, s := range c.living { // nothing but what a failed test has left
			_ = s.cmd.Process.Kill()
		}
		for _, row := range c.all() {
			_, _ = c.engine.ContainerRemove(context.Background(), row.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
	})
	for i := range siblings {
		c.begin(fmt.Sprintf("sibling-%d", i))
	}
	c.watchLiving()
	return c
}

// begin starts a sibling and returns when it is in its scope.
func (c *campaign) begin(owner string) {
	e, s := c.errand, &sibling{}
	e.Do, e.Owner = doLive, owner
	s.cmd = e.command(c.t)
	s.cmd.Stderr = &s.said
	input, err := s.cmd.StdinPipe()
	require.NoError(c.t, err)
	s.input = input
	out, err := s.cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, s.cmd.Start())
	c.living = append(c.living, s)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(c.t, err, "%s ended: %s", owner, &s.said)
	s.id = strings.TrimSpace(line)
	c.errand.Alive[owner] = s.id
}

// watchLiving holds the engine's list to showing the siblings' containers, again and again until c.stop.
func (c *campaign) watchLiving() {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			running := map[string]bool{}
			for _, row := range c.all() {
				running[row.ID] = row.State == container.StateRunning
			}
			for _, s := range c.living {
				if running[s.id] {
					s.seen++
				} else {
					s.lost = true
				}
			}
			select {
			case <-over:
				return
			case <-tick.C:
			}
		}
	})
	c.stop = sync.OnceFunc(func() {
		close(over)
		wg.Wait()
	})
	c.t.Cleanup(c.stop)
}

// watchRemovals notes when containers are removed, until stop.
func (c *campaign) watchRemovals() (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	about := c.label.Clone().Add("type", "container").Add("event", "destroy")
	watching := c.engine.Events(ctx, client.EventsListOptions{Filters: about})
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
				if assert.NoError(c.t, errors.Join(err, err2)) {
					c.mu.Lock()
					c.fates[i].gone = time.Now()
					c.mu.Unlock()
				}
			case err := <-watching.Err:
				if ctx.Err() == nil {
					c.t.Errorf("the engine's events ended: %v", err)
				}
				return
			}
		}
	})
	return func() {
		cancel()
		watcher.Wait()
	}
}

// kill runs n processes, some at once, and returns when all are dead: four of five by SIGKILL at a random instant, the
// others by ending within their scope.
func (c *campaign) kill(n, atOnce int) {
	c.mu.Lock()
	c.fates = make([]fate, n)
	c.mu.Unlock()
	slots := make(chan struct{}, atOnce)
	var children sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		children.Go(func() {
			defer func() { <-slots }()
			e := c.errand
			e.Do, e.Owner = doWork, strconv.Itoa(i)
			wait := rand.N(crashSpan)
			if i%5 == 4 {
				e.Do, wait = doExit, 2*time.Minute
			}
			var out strings.Builder
			child := e.command(c.t)
			child.Stdout, child.Stderr = &out, &out
			if !assert.NoError(c.t, child.Start()) {
				return
			}
			kill := time.AfterFunc(wait, func() { _ = child.Process.Kill() })
			_ = child.Wait()
			died := time.Now()
			kill.Stop()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fates[i].died = died
			if child.ProcessState.Exited() {
				assert.True(c.t, child.ProcessState.Success(), "process %d failed by itself: %s", i, &out)
			}
		})
	}
	children.Wait()
}

// settle waits until what was on its way has come, and the leases of all that the dead have left have passed.
func (c *campaign) settle() {
	began, seen, since := time.Now(), c.left(), time.Now()
	for time.Since(began) < crashSlack {
		<-time.After(200 * time.Millisecond)
		if now := c.left(); !maps.Equal(now, seen) {
			seen, since = now, time.Now()
		}
		if time.Since(since) > 5*time.Second && time.Since(began) > crashWindow+10*time.Second {
			return
		}
	}
}

// all is the engine's word on the fleet, in all states and asked without the code under test.
func (c *campaign) all() []container.Summary {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := c.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: c.label})
	assert.NoError(c.t, err)
	return r.Items
}

// rows are all but the living.
func (c *campaign) rows() []container.Summary {
	return slices.DeleteFunc(c.all(), func(row container.Summary) bool {
		return slices.Contains(slices.Collect(maps.Values(c.errand.Alive)), row.ID)
	})
}

// A tally is a number of containers by state.
type tally map[container.ContainerState]int

func (c *campaign) left() tally {
	all := tally{}
	for _, row := range c.rows() {
		all[row.State]++
	}
	return all
}

func (a tally) sum() (n int) {
	for _, m := range a {
		n += m
	}
	return n
}

func (a tally) add(b tally) {
	for state, n := range b {
		a[state] += n
	}
}

// String returns "2 created, 1 running", or "0 in all states".
func (a tally) String() string {
	var words []string
	for _, state := range slices.Sorted(maps.Keys(a)) {
		words = append(words, fmt.Sprintf("%d %s", a[state], state))
	}
	if len(words) == 0 {
		return "0 in all states"
	}
	return strings.Join(words, ", ")
}

func outcome(of string, left tally, fine int) string {
	return fmt.Sprintf("after %s: left %s, %d of %d living siblings untouched", of, left, fine, siblings)
}

// replay is the next start. What it has ended is forgotten.
func (c *campaign) replay() {
	e := c.errand
	e.Owner = "next"
	m, err := e.manager()
	require.NoError(c.t, err)
	assert.NoError(c.t, m.Replay(c.t.Context()))
	assert.Empty(c.t, c.entries(), "left in the journal")
}

// sweep is a pass from another process.
func (c *campaign) sweep() {
	e := c.errand
	e.Do, e.Spool = doSweep, ""
	out, err := e.command(c.t).CombinedOutput()
	assert.NoError(c.t, err, "%s", out)
}

// entries are what the journal has of the dead.
func (c *campaign) entries() (left []string) {
	j, err := journal.Open(c.errand.Spool)
	require.NoError(c.t, err)
	for e, err := range j.Orphans(context.Background()) {
		assert.NoError(c.t, err)
		left = append(left, e.Mark.Owner)
	}
	assert.NoError(c.t, j.Close())
	return left
}

// finish has the siblings end their scopes, and returns how many did so without an error, in a sandbox of which the
// engine's list never failed to show that it was running.
func (c *campaign) finish() (fine int) {
	c.stop()
	for _, s := range c.living {
		assert.NoError(c.t, s.input.Close())
		stuck := time.AfterFunc(3*time.Minute, func() { _ = s.cmd.Process.Signal(syscall.SIGQUIT) }) // it says where
		ended := assert.NoError(c.t, s.cmd.Wait(), "a sibling failed: %s", &s.said)
		stuck.Stop()
		kept := assert.False(c.t, s.lost || s.seen == 0, "the engine's list has not shown a sibling's container")
		if ended && kept {
			fine++
		}
		assert.False(c.t, exists(c.t, s.id), "a sibling left its container")
	}
	return fine
}
