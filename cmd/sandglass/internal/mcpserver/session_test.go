package mcpserver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/mcpserver"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestNothingIsMadeBeforeACallNeedsIt(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version})
		tools, err := c.client.ListTools(t.Context(), nil)
		require.NoError(t, err)
		assert.NotEmpty(t, tools.Tools)
		assert.Equal(t, "none", c.look().State)
		for _, args := range []map[string]any{{}, {"script": "true", "args": []string{"true"}}, {"script": "true", "timeout_seconds": -1}, {"script": "true", "dir": "here"}} {
			assert.Error(t, c.call(t.Context(), "run_command", args, nil))
		}
		assert.Error(t, c.call(t.Context(), "read_file", map[string]any{"path": "not/absolute"}, nil))
		assert.Error(t, c.call(t.Context(), "write_file", map[string]any{"path": "/f"}, nil))
		require.NoError(t, c.call(t.Context(), "end_sandbox", nil, nil))
		time.Sleep(time.Hour)
		assert.Empty(t, c.p.Calls(sandbox.OpCreate))
		assert.NoError(t, c.leave())
	})
}

func TestAllCallsOfASessionShareOneSandbox(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		p := sandboxtest.New(sandbox.Capabilities{})
		p.Behave(func(b *sandboxtest.Behaviour) { b.StartTime = 5 * time.Second })
		c := connect(t, setup{version: version, provider: p})
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				var out ran
				err := c.call(t.Context(), "run_command", map[string]any{"script": fmt.Sprintf("echo %d >/f%d; sleep 10", i, i)}, &out)
				assert.NoError(t, err)
			})
		}
		time.Sleep(time.Second)
		assert.Equal(t, "starting", c.look().State)
		began := time.Now()
		wg.Wait()
		assert.Less(t, time.Since(began), 20*time.Second, "they run side by side")
		assert.Len(t, p.Calls(sandbox.OpCreate), 1)
		assert.Equal(t, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", c.sh("cat /f?").Stdout)
		assert.NoError(t, c.leave())
		assert.Empty(t, p.Live())
	})
}

func TestTheSandboxLivesWhileTheClientIsConnectedAndNoLonger(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version})
		id := c.sh("echo here >/f").SandboxID
		time.Sleep(50 * time.Minute)
		require.Len(t, c.p.Live(), 1)
		assert.Equal(t, ran{SandboxID: id, Stdout: "here\n", StdoutBytes: 5}, c.sh("cat /f"))
		info := c.look()
		assert.Equal(t, "running", info.State)
		assert.Equal(t, id, info.SandboxID)
		assert.Equal(t, "memory", info.Provider)
		assert.InDelta(t, 3000, info.AgeSeconds, 5)
		assert.InDelta(t, 600, info.SecondsLeft, 5)
		assert.Greater(t, info.LeaseSecondsLeft, 60.0)
		assert.LessOrEqual(t, info.LeaseSecondsLeft, 180.0)

		began := time.Now()
		assert.NoError(t, c.leave(), "an orderly end")
		assert.Less(t, time.Since(began), 5*time.Second)
		assert.Empty(t, c.p.Live())
		assert.NotEmpty(t, c.p.Calls(sandbox.OpDelete), "it was deleted, not left to the lease")
	})
}

func TestEveryWayOfGoingDeletesTheSandbox(t *testing.T) {
	for name, way := range map[string]struct {
		go_    func(c *pair)
		broken bool // not an orderly end
		either bool // it depends on which stream is noted first
	}{
		"end of input":                {go_: func(c *pair) { _ = c.link.up.w.Close() }},
		"both pipes cut":              {go_: func(c *pair) { c.link.cut() }},
		"output cut, noted at a call": {go_: func(c *pair) { _ = c.link.down.r.Close(); go c.look2() }, either: true},
		"a frame that is no JSON":     {go_: func(c *pair) { _, _ = c.link.up.w.Write([]byte("{{{\n")) }, broken: true},
		"half a frame":                {go_: func(c *pair) { _, _ = c.link.up.w.Write([]byte(`{"jsonrpc"`)); _ = c.link.up.w.Close() }},
		"a signal":                    {go_: func(c *pair) { c.cancel(errors.New("signal terminated")) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, version string) {
				c := connect(t, setup{version: version})
				c.sh("true")
				var wg sync.WaitGroup
				wg.Go(func() { // one is under way
					assert.Error(t, c.call(t.Context(), "run_command", map[string]any{"script": "sleep 1000"}, nil))
				})
				synctest.Wait()
				began := time.Now()
				way.go_(c)
				err := c.over()
				wg.Wait()
				switch {
				case way.broken:
					assert.ErrorIs(t, err, mcpserver.ErrClientGone)
				case way.either && err != nil:
					assert.ErrorIs(t, err, mcpserver.ErrClientGone)
				default:
					assert.NoError(t, err)
				}
				assert.Less(t, time.Since(began), 5*time.Second)
				assert.Empty(t, c.p.Live())
				for _, call := range c.p.Calls(sandbox.OpExec) {
					assert.False(t, call.End.IsZero(), "a command still runs")
				}
			})
		})
	}
}

func (c *pair) look2() {
	_ = c.call(c.t.Context(), "sandbox_info", nil, nil)
	_ = c.call(c.t.Context(), "sandbox_info", nil, nil)
}

func TestAClientThatGoesWhileTheSandboxIsBeingMadeLeavesNone(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		p := sandboxtest.New(sandbox.Capabilities{})
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Delay: 20 * time.Second, Late: true})
		c := connect(t, setup{version: version, provider: p})
		go func() { _ = c.call(t.Context(), "run_command", map[string]any{"script": "true"}, nil) }()
		time.Sleep(time.Second)
		assert.NoError(t, c.leave())
		assert.Len(t, p.Calls(sandbox.OpCreate), 1)
		assert.Empty(t, p.Live())
	})
}

func TestAClientThatHangsLosesItsSandboxAfterThreePings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, setup{version: older})
		id := c.sh("true").SandboxID
		time.Sleep(10 * time.Minute)
		require.Len(t, c.p.Live(), 1, "it answers")
		c.link.freeze()
		time.Sleep(50 * time.Second)
		assert.Len(t, c.p.Live(), 1, "one or two pings are not enough")
		time.Sleep(50 * time.Second)
		assert.Empty(t, c.p.Live())
		select {
		case <-c.served:
			t.Fatal("a client that comes back finds its server")
		default:
		}
		c.link.unfreeze()
		err := c.call(t.Context(), "run_command", map[string]any{"script": "true"}, nil)
		require.Error(t, err)
		assert.Contains(t, err.Error(), id)
		assert.Contains(t, err.Error(), "seemed to be dead")
		assert.Contains(t, err.Error(), "new_sandbox")
		assert.NoError(t, c.leave())
	})
}

func TestAClientThatReadsNothingLosesItsSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, setup{version: newer})
		c.sh("true")
		c.link.down.frozen.Store(true)
		go c.look2() // is answered, and the answers do not get through
		time.Sleep(5 * time.Minute)
		assert.Empty(t, c.p.Live())
		c.link.cut()
		if err := c.over(); err != nil { // it depends on which stream is noted first
			assert.ErrorIs(t, err, mcpserver.ErrClientGone)
		}
	})
}

func TestAClientOfTheNewerProtocolIsNotJudgedByPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, setup{version: newer})
		c.sh("true")
		c.link.up.frozen.Store(true)
		time.Sleep(30 * time.Minute)
		assert.Len(t, c.p.Live(), 1)
		c.link.up.frozen.Store(false)
		c.sh("true")
		assert.NoError(t, c.leave())
	})
}

func TestAClientThatForgetsItsSandboxLosesItThoughItAnswersPings(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version, scope: sandbox.Scope{StallTimeout: 10 * time.Minute}})
		id := c.sh("true").SandboxID
		assert.InDelta(t, 600, c.look().IdleLimitSeconds, 0)
		for range 3 {
			time.Sleep(9 * time.Minute)
			assert.Equal(t, "running", c.look().State, "a look is a sign of life")
		}
		require.NoError(t, c.call(t.Context(), "run_command", map[string]any{"script": "sleep 900", "timeout_seconds": 1000}, nil), "and so is a long command")
		time.Sleep(12 * time.Minute)
		assert.Empty(t, c.p.Live())
		assert.Equal(t, "ended", c.look().State)
		for name, args := range map[string]map[string]any{
			"run_command": {"script": "true"}, "read_file": {"path": "/f"}, "write_file": {"path": "/f", "content": ""},
		} {
			err := c.call(t.Context(), name, args, nil)
			require.Error(t, err)
			assert.Contains(t, err.Error(), id)
			assert.Contains(t, err.Error(), "no tool was called for too long")
		}
		assert.Len(t, c.p.Calls(sandbox.OpCreate), 1, "none takes its place unasked")
		assert.NoError(t, c.leave())
	})
}

func TestALostLeaseIsToldAndANewSandboxIsMadeOnlyWhenAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version})
		id := c.sh("echo here >/f").SandboxID
		result := make(chan error, 1)
		go func() {
			result <- c.call(t.Context(), "run_command", map[string]any{"script": "sleep 10000", "timeout_seconds": 20000}, nil)
		}()
		synctest.Wait()
		require.True(t, c.p.Kill(id))
		err := <-result
		require.Error(t, err, "the call that was under way")
		assert.Contains(t, err.Error(), id)
		time.Sleep(5 * time.Minute)
		for range 3 {
			err = c.call(t.Context(), "run_command", map[string]any{"script": "cat /f"}, nil)
			require.Error(t, err)
			assert.Contains(t, err.Error(), id)
			assert.Contains(t, err.Error(), "is lost")
			assert.Contains(t, err.Error(), "new_sandbox")
		}
		assert.Len(t, c.p.Calls(sandbox.OpCreate), 1)

		var made struct {
			SandboxID string `json:"sandbox_id"`
		}
		require.NoError(t, c.call(t.Context(), "new_sandbox", nil, &made))
		assert.NotEqual(t, id, made.SandboxID)
		out := c.sh("ls /f")
		assert.Equal(t, made.SandboxID, out.SandboxID)
		assert.NotZero(t, out.ExitCode, "it is empty")
		err = c.call(t.Context(), "new_sandbox", nil, nil)
		require.Error(t, err, "there is one at a time")
		assert.Contains(t, err.Error(), "end_sandbox")
		assert.NoError(t, c.leave())
		assert.Empty(t, c.p.Live())
	})
}

func TestTheMaxLifetimeEndsTheSandboxAndIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version, scope: sandbox.Scope{MaxLifetime: 10 * time.Minute}})
		c.sh("true")
		time.Sleep(11 * time.Minute)
		err := c.call(t.Context(), "run_command", map[string]any{"script": "true"}, nil)
		require.Error(t, err)
		assert.Contains(t, err.Error(), "no sandbox lives longer here")
		assert.Empty(t, c.p.Live())
		assert.NoError(t, c.leave())
	})
}

func TestEndSandboxDeletesAndWaits(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version})
		id := c.sh("true").SandboxID
		under := make(chan error, 1)
		go func() {
			under <- c.call(t.Context(), "run_command", map[string]any{"script": "sleep 100"}, nil)
		}()
		synctest.Wait()
		var out struct {
			SandboxID string `json:"sandbox_id"`
			Gone      bool
		}
		for range 2 {
			require.NoError(t, c.call(t.Context(), "end_sandbox", nil, &out))
			assert.Equal(t, id, out.SandboxID)
			assert.True(t, out.Gone)
			assert.Empty(t, c.p.Live())
		}
		err := <-under
		require.Error(t, err)
		assert.Contains(t, err.Error(), "ended by end_sandbox")
		assert.Error(t, c.call(t.Context(), "run_command", map[string]any{"script": "true"}, nil))
		require.NoError(t, c.call(t.Context(), "new_sandbox", nil, nil))
		assert.NotEqual(t, id, c.sh("true").SandboxID)
		assert.NoError(t, c.leave())
		assert.Empty(t, c.p.Live())
	})
}

func TestANewSandboxWaitsUntilTheOneBeforeIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		p := sandboxtest.New(sandbox.Capabilities{})
		most := 0
		p.Watch(func(sandboxtest.Change) { most = max(most, len(p.Live())) })
		c := connect(t, setup{version: version, provider: p, scope: sandbox.Scope{StallTimeout: time.Minute}})
		c.sh("true")
		p.Behave(func(b *sandboxtest.Behaviour) { b.DeleteTime = 20 * time.Second })
		for c.look2(); len(p.Calls(sandbox.OpDelete)) == 0; {
			time.Sleep(time.Second)
		}
		assert.Equal(t, "ending", c.look().State)
		require.NoError(t, c.call(t.Context(), "new_sandbox", nil, nil))
		assert.Equal(t, 1, most)
		assert.NoError(t, c.leave())
		assert.Empty(t, p.Live())
	})
}

func TestAFailedCreateIsToldWithWhatCanBeDoneAndMayBeTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		p := sandboxtest.New(sandbox.Capabilities{})
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(401)})
		c := connect(t, setup{version: version, provider: p, hint: func(err error) string {
			assert.ErrorIs(t, err, sandbox.ErrUnauthenticated)
			return "check THE_KEY"
		}})
		err := c.call(t.Context(), "run_command", map[string]any{"script": "true"}, nil)
		require.Error(t, err)
		assert.Contains(t, err.Error(), "credentials not accepted")
		assert.Contains(t, err.Error(), "check THE_KEY")
		assert.Equal(t, "none", c.look().State)
		c.sh("true")
		assert.NoError(t, c.leave())
		assert.Empty(t, p.Live())
	})
}

func TestACancelledCallKillsItsCommandAndNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version})
		id := c.sh("true").SandboxID
		var wg sync.WaitGroup
		wg.Go(func() {
			assert.NoError(t, c.call(t.Context(), "run_command", map[string]any{"script": "sleep 60; echo done >/done"}, nil))
		})
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			assert.ErrorIs(t, c.call(ctx, "run_command", map[string]any{"script": "sleep 60; echo killed >/killed"}, nil), context.Canceled)
		})
		time.Sleep(10 * time.Second)
		cancel()
		time.Sleep(within)
		calls := c.p.Calls(sandbox.OpExec)
		require.Len(t, calls, 3)
		running := 0
		for _, call := range calls {
			if call.End.IsZero() {
				running++
			}
		}
		assert.Equal(t, 1, running)
		wg.Wait()
		assert.Equal(t, ran{SandboxID: id, Stdout: "/done\n", StdoutBytes: 6}, c.sh("ls /done /killed 2>/dev/null || true"))
		assert.NoError(t, c.leave())
	})
}

func TestASandboxThatCannotBeDeletedIsNamedToTheModelAndInTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version})
		id := c.sh("true").SandboxID
		c.p.Behave(func(b *sandboxtest.Behaviour) { b.NoDelete = true })
		c.p.Fault(sandbox.OpExtend, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		c.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(403), Times: -1})
		c.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		err := c.call(t.Context(), "end_sandbox", nil, nil)
		require.Error(t, err)
		assert.Contains(t, err.Error(), id)
		assert.Contains(t, err.Error(), "possible leak")
		err = c.leave()
		left, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok, "%v", err)
		require.Len(t, left.Sandboxes, 1)
		assert.Equal(t, id, left.Sandboxes[0].ID)
	})
}

func TestProgressCarriesTheOutputToThoseWhoAskForIt(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		var mu sync.Mutex
		text, last, count := "", 0.0, 0
		c := connect(t, setup{version: version, client: mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
				mu.Lock()
				defer mu.Unlock()
				assert.Equal(t, "token", req.Params.ProgressToken)
				assert.Greater(t, req.Params.Progress, last, "it must grow")
				text, last, count = text+req.Params.Message, req.Params.Progress, count+1
			},
		}})
		params := &mcp.CallToolParams{Name: "run_command", Arguments: map[string]any{"script": "for i in 1 2 3; do echo line $i; sleep 5; done; sleep 60"}}
		params.SetProgressToken("token")
		var out ran
		require.NoError(t, c.ask(t.Context(), params, &out))
		synctest.Wait()
		assert.Equal(t, "line 1\nline 2\nline 3\n", out.Stdout)
		mu.Lock()
		assert.Equal(t, out.Stdout, text)
		assert.Greater(t, count, 6, "a quiet command says that it runs")
		before := count
		mu.Unlock()
		c.sh("echo and one that nobody asked for; sleep 60")
		mu.Lock()
		assert.Equal(t, before, count)
		mu.Unlock()
		assert.NoError(t, c.leave())
	})
}

// TestWhateverAClientDoesNothingIsLeft has clients of random habits go away at random points. Run it again with the seed
// that it prints in SANDGLASS_TEST_SEED.
func TestWhateverAClientDoesNothingIsLeft(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("SANDGLASS_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SANDGLASS_TEST_SEED=%d", seed)
	for round := range 60 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { wild(t, rand.New(rand.NewPCG(seed, uint64(round)))) })
		})
	}
}

func wild(t *testing.T, r *rand.Rand) {
	p := sandboxtest.New(sandbox.Capabilities{})
	p.Behave(func(b *sandboxtest.Behaviour) {
		b.StartTime = time.Duration(r.IntN(10)) * time.Second
		b.DeleteTime = time.Duration(r.IntN(10)) * time.Second
	})
	for _, op := range []sandbox.Op{sandbox.OpCreate, sandbox.OpExtend, sandbox.OpDelete, sandbox.OpGet, sandbox.OpExec} {
		if r.IntN(3) == 0 {
			// A refusal that was none (a 4xx after the effect) would be a lie that nobody can see through.
			status := []int{409, 429, 500, 503}[r.IntN(4)]
			p.Fault(op, sandboxtest.Fault{
				Err: sandboxtest.Status(status), After: status >= 500 && r.IntN(2) == 0, Skip: r.IntN(4), Times: 1 + r.IntN(3),
			})
		}
	}
	c := connect(t, setup{
		version: []string{older, newer}[r.IntN(2)], provider: p, scope: sandbox.Scope{StallTimeout: time.Duration(r.IntN(2)) * 5 * time.Minute},
	})
	var wg sync.WaitGroup
	until := time.Now().Add(time.Duration(r.IntN(600)) * time.Second)
	for range 1 + r.IntN(4) {
		own := rand.New(rand.NewPCG(r.Uint64(), 0))
		wg.Go(func() {
			for time.Now().Before(until) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(own.IntN(90)+1)*time.Second)
				switch own.IntN(8) {
				case 0:
					_ = c.call(ctx, "end_sandbox", nil, nil)
				case 1:
					_ = c.call(ctx, "new_sandbox", nil, nil)
				case 2:
					_ = c.call(ctx, "write_file", map[string]any{"path": "/f", "content": "x"}, nil)
				case 3:
					_ = c.call(ctx, "sandbox_info", nil, nil)
				default:
					_ = c.call(ctx, "run_command", map[string]any{"script": fmt.Sprintf("sleep %d", own.IntN(60))}, nil)
				}
				cancel()
				time.Sleep(time.Duration(own.IntN(20)) * time.Second)
			}
		})
	}
	time.Sleep(time.Until(until) * time.Duration(r.IntN(120)) / 100)
	live := 0
	for _, info := range p.Live() {
		if info.State == sandbox.StateRunning || info.State == sandbox.StateStarting {
			live++
		}
	}
	assert.LessOrEqual(t, live, 1, "one at a time")
	switch r.IntN(5) {
	case 0:
		_ = c.link.up.w.Close()
	case 1:
		c.link.cut()
	case 2:
		c.cancel(errors.New("signal"))
	case 3:
		c.link.freeze()
		time.Sleep(time.Minute)
		c.link.cut()
	case 4:
		_ = c.client.Close()
	}
	began := time.Now()
	err := c.over()
	assert.Less(t, time.Since(began), 5*time.Minute)
	wg.Wait()
	if _, left := errors.AsType[*sandbox.LeakError](err); left {
		p.Expire()
	}
	assert.Empty(t, p.Live(), "%v", err)
}
