package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

const errandVar = "SANDGLASS_ERRAND" // an errand as JSON makes the test binary a process that does it

// An errand is what a child process is to do: to be a program that uses Sandglass as documented.
type errand struct {
	Do       string // one of those below
	Fleet    string
	Owner    string
	Spool    string
	Unleased bool              // the engine keeps no lease: see unenforced
	Scopes   int               // of doSignal
	Alive    map[string]string // of doSweep: by owner, the ids of the sandboxes that are known to be somebody's
}

// Errands.
const (
	doWork   = "work"   // one scope with a second's work, to be killed at any time
	doExit   = "exit"   // end the process within a scope
	doLive   = "live"   // keep a scope, whose id is printed, until standard input ends; then use the sandbox once more
	doSweep  = "sweep"  // one pass of a sweeper that has no journal
	doSignal = "signal" // many scopes whose functions do not mind the end of their context; prints "ready"
)

// Windows of the processes that are killed, and of those that live on however busy the machine is.
const (
	crashWindow = 5 * time.Second
	liveWindow  = time.Minute
)

// command returns the process that does the errand.
func (e errand) command(t *testing.T) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	order, err := json.Marshal(e)
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), errandVar+"="+string(order))
	return cmd
}

// provider returns the engine of the environment, with leases or without.
func (e errand) provider() (sandbox.Provider, error) {
	p, err := docker.FromEnv()
	if err != nil || !e.Unleased {
		return p, err
	}
	return unenforced{p}, nil
}

// manager returns a Manager for the fleet, with the journal if there is a spool.
func (e errand) manager() (*sandbox.Manager, error) {
	p, err := e.provider()
	if err != nil {
		return nil, err
	}
	cfg := sandbox.Config{
		Fleet: e.Fleet, Owner: e.Owner,
		Scope: sandbox.Scope{
			// Without a network: an engine under such a load is at times seen to lock itself up in its network code.
			Spec:        sandbox.Spec{Image: image, Offline: true},
			Window:      crashWindow,
			MaxLifetime: 3 * overtime, // far away, so that nothing can hide behind it
		},
	}
	if e.Do == doLive {
		cfg.Scope.Window = liveWindow
	}
	if e.Do == doSignal {
		cfg.Scope.Window, cfg.Grace = 20*time.Second, 20*time.Second // far longer than the process may live on
	}
	if e.Spool != "" {
		if cfg.Journal, err = journal.Open(e.Spool); err != nil {
			return nil, err
		}
	}
	return sandbox.NewManager(p, cfg)
}

// errandMain does the errand and ends the process.
func errandMain(order string) {
	var e errand
	err := json.Unmarshal([]byte(order), &e)
	if err == nil {
		switch e.Do {
		case doSweep:
			err = e.sweep()
		case doSignal:
			err = e.signal()
		default:
			err = e.scope()
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (e errand) scope() error {
	m, err := e.manager()
	if err != nil {
		return err
	}
	err = m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
		switch e.Do {
		case doExit:
			_, _ = sb.Exec(ctx, sandbox.Shell("sleep 600 >/dev/null 2>&1 &"))
			os.Exit(0)
		case doLive:
			fmt.Println(sb.ID())
			_, _ = io.Copy(io.Discard, os.Stdin)
			r, err := sb.Exec(ctx, sandbox.Shell("true"))
			return errors.Join(err, r.Err())
		}
		_, err := sb.Exec(ctx, sandbox.Shell("sleep 600 >/dev/null 2>&1 & sleep 1"))
		return err
	})
	if e.Do == doWork && errors.Is(err, sandbox.ErrLeaseLost) { // a machine too busy for its beats is no fault of the life cycle
		return nil
	}
	return err
}

// sweep makes one pass as cron would start it: what runs is known from the scheduler, and every other owner is dead.
func (e errand) sweep() error {
	p, err := e.provider()
	if err != nil {
		return err
	}
	s, err := sweep.New(sweep.Config{
		Fleet: e.Fleet, Providers: []sandbox.Provider{p}, MaxDeletes: 10_000,
		Known: func(context.Context, string) (ids []string, err error) {
			for _, id := range e.Alive {
				ids = append(ids, id)
			}
			return ids, nil
		},
		Liveness: func(_ context.Context, info sandbox.Info) (sweep.Life, error) {
			if _, ok := e.Alive[info.Mark.Owner]; ok {
				return sweep.Alive, nil
			}
			return sweep.Dead, nil
		},
	})
	if err != nil {
		return err
	}
	report, err := s.Sweep(context.Background())
	return errors.Join(err, report.WriteTable(os.Stdout))
}

func (e errand) signal() error {
	m, err := e.manager()
	if err != nil {
		return err
	}
	ctx, stop := sandbox.ShutdownOnSignal(context.Background(), m, time.Minute, syscall.SIGTERM)
	defer stop()
	var ready sync.WaitGroup
	ready.Add(e.Scopes)
	faults := make(chan error, e.Scopes)
	starting := make(chan struct{}, 4) // other tests want their engine, too
	for range e.Scopes {
		go func() {
			starting <- struct{}{}
			faults <- m.WithSandbox(ctx, func(context.Context, sandbox.Sandbox) error {
				<-starting
				ready.Done()
				select {} // a task that does not mind its context
			})
		}()
	}
	go func() {
		ready.Wait()
		fmt.Println("ready")
	}()
	return <-faults // only what could not be started comes back
}
