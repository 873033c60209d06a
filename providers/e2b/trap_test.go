package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// The tests below are named after the leak traps of the notes on E2B's protocol. Trap 15, machines whose record the
// service itself has lost, is out of reach from here, as the package comment says; what of it follows from a failed
// delete is trap 3.

func (w *world) manager(change ...func(*sandbox.Config)) *sandbox.Manager {
	w.t.Helper()
	cfg := sandbox.Config{Fleet: "fleet", Owner: "test"}
	for _, f := range change {
		f(&cfg)
	}
	m, err := sandbox.NewManager(w.p, cfg)
	require.NoError(w.t, err)
	return m
}

func (w *world) sweeper(fleet string) *sweep.Sweeper {
	w.t.Helper()
	s, err := sweep.New(sweep.Config{Fleet: fleet, Providers: []sandbox.Provider{w.p}})
	require.NoError(w.t, err)
	return s
}

// ask makes a request as somebody else with the key would.
func (w *world) ask(method, path string, body any) (int, []byte) {
	w.t.Helper()
	b, err := json.Marshal(body)
	require.NoError(w.t, err)
	r, err := http.NewRequest(method, "http://api.e2b.test"+path, bytes.NewReader(b))
	require.NoError(w.t, err)
	r.Header.Set("X-API-Key", e2bfake.DefaultKey)
	c := w.net.Client()
	defer c.CloseIdleConnections()
	resp, err := c.Do(r)
	require.NoError(w.t, err)
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, all
}

func in(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestE2B01_AResumeThatOutlivesADeleteIsDeletedAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t, func(o *e2bfake.Options, _ *e2b.Config) { o.Quirks.ResumeTime = time.Second })
		info := w.make(time.Minute)
		require.True(t, w.fake.Service().Pause(w.fake.ServiceID(info.ID)))
		resumed := make(chan int)
		go func() {
			code, _ := w.ask(http.MethodPost, "/v2/sandboxes/"+info.ID+"/connect", map[string]int{"timeout": 300})
			resumed <- code
		}()
		time.Sleep(20 * time.Millisecond)
		w.fake.ForgetRequests()
		require.NoError(t, sandbox.Terminate(t.Context(), w.p, info.ID))
		assert.Equal(t, http.StatusCreated, <-resumed, "the trap: it was resumed all the same")
		assert.Empty(t, w.alive())
		deletes := 0
		for _, r := range w.requests() {
			if r == "DELETE /sandboxes/"+info.ID {
				deletes++
			}
		}
		assert.Equal(t, 2, deletes)
	})
}

func TestE2B02_WhatAListHidesIsNotTakenForGone(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		info := w.make(time.Minute)
		w.fake.Snapshotting(info.ID, 2*time.Second)
		listed, err := w.list(sandbox.Filter{Fleet: "fleet"})
		require.NoError(t, err)
		require.Empty(t, listed, "the trap: a list hides it")
		now, err := w.p.Get(t.Context(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, now.State)

		require.NoError(t, sandbox.Terminate(t.Context(), w.p, info.ID))
		assert.Empty(t, w.alive())
	})
	t.Run("a sweeper finds it in a later pass", func(t *testing.T) {
		in(t, func(t *testing.T) {
			w := newWorld(t)
			info := w.make(time.Minute)
			w.fake.Service().Behave(func(b *fake.Behaviour) { b.Unenforced = true })
			time.Sleep(10 * time.Minute)
			s := w.sweeper("fleet")
			w.fake.Snapshotting(info.ID, 2*time.Second)
			_, _ = s.Sweep(t.Context())
			require.Len(t, w.alive(), 1, "the trap: one pass does not see it")
			time.Sleep(15 * time.Minute)
			for range 2 {
				_, err := s.Sweep(t.Context())
				require.NoError(t, err)
			}
			assert.Empty(t, w.alive())
		})
	})
}

func TestE2B03_AfterADeleteThatFailedNotFoundProvesNothingForAWhile(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t, func(o *e2bfake.Options, _ *e2b.Config) { o.Behaviour.OrphanTime = 80 * time.Second })
		w.fault(sandbox.OpDelete, fake.Fault{Effect: fake.EffectOrphan, Err: status(500), After: true})
		var returned time.Time
		err := w.manager().WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error {
			returned = time.Now()
			return nil
		})
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(returned), 80*time.Second, "it must not be called gone while it may run")
		assert.Empty(t, w.alive())
	})
	t.Run("with less time than that it is reported", func(t *testing.T) {
		in(t, func(t *testing.T) {
			w := newWorld(t, func(o *e2bfake.Options, _ *e2b.Config) { o.Behaviour.OrphanTime = 80 * time.Second })
			info := w.make(time.Minute)
			w.fault(sandbox.OpDelete, fake.Fault{Effect: fake.EffectOrphan, Err: status(500), After: true})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			leak, ok := errors.AsType[*sandbox.LeakError](sandbox.Terminate(ctx, w.p, info.ID))
			require.True(t, ok)
			require.Len(t, leak.Sandboxes, 1)
			assert.True(t, leak.Sandboxes[0].State.MayRun())
		})
	})
}

func TestE2B04_ASlotThatIsFreedLateIsWaitedFor(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t, func(o *e2bfake.Options, _ *e2b.Config) { o.Behaviour.MaxLive, o.Behaviour.LiveLag = 1, 5*time.Second })
		m := w.manager()
		began := w.sent.Load()
		for range 3 {
			require.NoError(t, m.WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error {
				time.Sleep(5 * time.Second)
				return nil
			}))
		}
		assert.Empty(t, w.alive())
		refused := 0
		for _, r := range w.fake.Requests() {
			if r.Status == http.StatusTooManyRequests {
				refused++
			}
		}
		assert.Positive(t, refused, "the trap")
		assert.Less(t, refused, 10)
		assert.Equal(t, int64(3*6+refused), w.sent.Load()-began, "nothing is deleted or looked for on a 429")
	})
}

func TestE2B05_ACreateWhoseCallerHasGoneIsFoundAndDeleted(t *testing.T) {
	in(t, func(t *testing.T) {
		for name, f := range map[string]fake.Fault{
			"made later":              {Delay: 30 * time.Second, Late: true},
			"made, and never told":    {Hang: true, After: true},
			"made, and told with 504": {Err: status(504), After: true},
		} {
			w := newWorld(t)
			w.fault(sandbox.OpCreate, f)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			err := w.manager(func(c *sandbox.Config) { c.CreateTimeout = 5 * time.Second }).
				WithSandbox(ctx, func(context.Context, sandbox.Sandbox) error { return nil })
			cancel()
			if err != nil {
				_, leaks := errors.AsType[*sandbox.LeakError](err)
				assert.False(t, leaks, "%s: %v", name, err)
			}
			assert.Empty(t, w.alive(), name)
			_, made := w.fake.Service().Lookup("sb-1")
			assert.True(t, made, "%s: the trap: it was made all the same", name)
		}
	})
}

func TestE2B06_WhatWasPausedAtItsTimeoutIsSweptAway(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		m := mark("fleet")
		code, _ := w.ask(http.MethodPost, "/v2/sandboxes", map[string]any{
			"templateID": "base", "timeout": 60, "autoPause": true, "metadata": map[string]string{
				sandbox.MarkKey: m.String(), sandbox.FleetKey: m.Fleet, sandbox.NonceKey: m.Nonce,
			},
		})
		require.Equal(t, http.StatusCreated, code)
		id := w.alive()[0].ID
		info, err := w.p.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Zero(t, info.Deadline, "a pause is no end")
		time.Sleep(2 * time.Minute)
		info, err = w.p.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateDormant, info.State, "the trap: it is parked for ever")
		assert.Zero(t, info.Deadline)
		s := w.sweeper("fleet")
		for range 3 {
			_, _ = s.Sweep(t.Context())
			time.Sleep(15 * time.Minute)
		}
		assert.Empty(t, w.alive())
	})
}

func TestE2B07_ABeatThatIsNotFoundMayMeetAPausedSandbox(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		info := w.make(time.Minute)
		require.True(t, w.fake.Service().Pause(w.fake.ServiceID(info.ID)))
		now, err := w.p.Extend(t.Context(), info, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateDormant, now.State)

		w = newWorld(t)
		err = w.manager().WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			w.fake.Service().Pause(w.fake.ServiceID(sb.ID()))
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, sandbox.ErrLeaseLost)
		_, leaks := errors.AsType[*sandbox.LeakError](err)
		assert.False(t, leaks, "%v", err)
		assert.Empty(t, w.alive(), "the paused one is deleted too")
	})
}

func TestE2B08_NothingEverConnectsResumesOrPauses(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		lost := w.manager().WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			_, err := sb.Exec(ctx, sandbox.Shell("echo hello"))
			require.NoError(t, err)
			time.Sleep(10 * time.Minute)
			w.fake.Service().Pause(w.fake.ServiceID(sb.ID()))
			<-ctx.Done()
			_, err = sb.Exec(context.WithoutCancel(ctx), sandbox.Shell("echo hello"))
			require.Error(t, err)
			return nil
		})
		require.ErrorIs(t, lost, sandbox.ErrLeaseLost)
		times := 0
		for _, r := range w.fake.Requests() {
			for _, word := range []string{"connect", "resume", "refreshes", "pause", "fork"} {
				assert.NotContains(t, r.Path, word)
			}
			if strings.HasSuffix(r.Path, "/timeout") || r.Method == http.MethodPost && r.Path == "/v2/sandboxes" {
				var body struct{ Timeout *int }
				require.NoError(t, json.Unmarshal(r.Body, &body))
				require.NotNil(t, body.Timeout, "%s", r.Body)
				assert.Positive(t, *body.Timeout)
				times++
			}
		}
		assert.Greater(t, times, 9)
	})
}

func TestE2B09_NoBeatComesAfterTheDelete(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		w.fault(sandbox.OpExtend, fake.Fault{Delay: 8 * time.Second})
		err := w.manager().WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error {
			time.Sleep(61 * time.Second) // a beat is under way
			return nil
		})
		require.NoError(t, err)
		beat, deleted := time.Time{}, time.Time{}
		for _, r := range w.fake.Requests() {
			switch {
			case strings.HasSuffix(r.Path, "/timeout"):
				beat = r.At
			case r.Method == http.MethodDelete && deleted.IsZero():
				deleted = r.At
			}
		}
		require.False(t, beat.IsZero())
		require.False(t, deleted.IsZero())
		assert.True(t, beat.Before(deleted), "beat at %v, delete at %v", beat, deleted)
		assert.Empty(t, w.alive())
	})
}

func TestE2B10_ATimeoutKillsTheChildrenToo(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		info := w.make(10 * time.Minute)
		sb := w.p.Open(info)
		family := sandbox.Cmd{Args: []string{"sh", "-c", "sh -c 'sleep 3600' & sleep 3600"}, Timeout: 5 * time.Second}
		res, err := sb.Exec(t.Context(), family)
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
		assert.Empty(t, w.ours(info.ID))
		// The trap: the daemon's own limit, which stands behind, would have spared them.
		ours := false
		for _, r := range w.fake.Requests() {
			if r.Path == "/process.Process/Start" && !ours {
				ours = true
				assert.Equal(t, "50000", r.Header.Get("Connect-Timeout-Ms"), "the command's, and time for us to come first")
			}
		}
		require.True(t, ours)
	})
}

func TestE2B11_ACommandWhoseSandboxDiesDoesNotHang(t *testing.T) {
	for name, hangs := range map[string]bool{"the stream breaks off": false, "the stream falls silent": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				w := newWorld(t, func(o *e2bfake.Options, _ *e2b.Config) { o.Quirks.DeadStreamsHang = hangs })
				info := w.make(10 * time.Minute)
				died := time.Now().Add(40 * time.Second)
				time.AfterFunc(time.Until(died), func() { w.fake.Service().Kill(w.fake.ServiceID(info.ID)) })
				_, err := w.p.Open(info).Exec(t.Context(), sandbox.Cmd{Args: []string{"sleep", "3600"}})
				require.Error(t, err)
				assert.ErrorIs(t, err, sandbox.ErrUnavailable)
				assert.LessOrEqual(t, time.Since(died), 100*time.Second)
			})
		})
	}
	t.Run("a quiet command that lives is left alone", func(t *testing.T) {
		in(t, func(t *testing.T) {
			w := newWorld(t)
			res, err := w.p.Open(w.make(2*time.Hour)).Exec(t.Context(), sandbox.Cmd{Args: []string{"sleep", "3600"}})
			require.NoError(t, err)
			assert.Zero(t, res.ExitCode)
		})
	})
	t.Run("without signs of life it is given up", func(t *testing.T) {
		in(t, func(t *testing.T) {
			w := newWorld(t, func(o *e2bfake.Options, _ *e2b.Config) { o.Quirks.NoKeepalive = true })
			info := w.make(2 * time.Hour)
			_, err := w.p.Open(info).Exec(t.Context(), sandbox.Cmd{Args: []string{"sleep", "3600"}})
			require.ErrorIs(t, err, sandbox.ErrUnavailable)
			time.Sleep(20 * time.Second)
			assert.Empty(t, w.ours(info.ID), "nobody would know how it ends")
		})
	})
}

func TestE2B12_HoweverTheFunctionEndsTheSandboxIsDeleted(t *testing.T) {
	broken := errors.New("broken")
	for name, f := range map[string]func(context.Context) error{
		"it returns": func(context.Context) error { return nil },
		"it fails":   func(context.Context) error { return broken },
		"it panics":  func(context.Context) error { panic(broken) },
		"it exits":   func(context.Context) error { runtime.Goexit(); return nil },
		"it is cancelled": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				w := newWorld(t)
				over := make(chan struct{})
				go func() {
					defer close(over)
					defer func() { _ = recover() }()
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					_ = w.manager().WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error { return f(ctx) })
				}()
				<-over
				assert.Empty(t, w.alive())
				_, made := w.fake.Service().Lookup("sb-1")
				assert.True(t, made)
			})
		})
	}
}

func TestE2B13_ASandboxThatVanishesIsLostAndNoLeak(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		err := w.manager().WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			w.fake.Service().Kill(w.fake.ServiceID(sb.ID()))
			<-ctx.Done()
			return nil
		})
		require.ErrorIs(t, err, sandbox.ErrLeaseLost)
		_, leaks := errors.AsType[*sandbox.LeakError](err)
		assert.False(t, leaks, "%v", err)
	})
}

func TestE2B14_ListsShowPausedOnesToo(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.make(time.Minute), w.make(time.Minute)
		w.fake.Service().Pause(w.fake.ServiceID(b.ID))
		all, err := w.list(sandbox.Filter{})
		require.NoError(t, err)
		states := map[string]sandbox.State{}
		for _, i := range all {
			states[i.ID] = i.State
		}
		assert.Equal(t, map[string]sandbox.State{a.ID: sandbox.StateRunning, b.ID: sandbox.StateDormant}, states)
	})
}

func TestE2B16_ASweeperDeletesNothingOfAnotherFleet(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		for _, fleet := range []string{"a", "b"} {
			req := order(time.Minute)
			req.Mark.Fleet = fleet
			_, err := w.p.Create(t.Context(), req)
			require.NoError(t, err)
		}
		code, _ := w.ask(http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 60})
		require.Equal(t, http.StatusCreated, code)
		w.fake.Service().Behave(func(b *fake.Behaviour) { b.Unenforced = true })
		time.Sleep(3 * time.Hour) // past every end
		s := w.sweeper("a")
		for range 3 {
			_, _ = s.Sweep(t.Context())
			time.Sleep(15 * time.Minute)
		}
		left := w.alive()
		require.Len(t, left, 2)
		for _, r := range left {
			assert.NotEqual(t, "a", r.Tags[sandbox.FleetKey])
		}
	})
}

func TestE2B17_NoTimeoutThatIsNoneAndThePlansLimitIsNamed(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t, func(o *e2bfake.Options, _ *e2b.Config) { o.Behaviour.PlanLifetime = time.Hour })
		info := w.make(time.Minute)
		before := w.sent.Load()
		for _, window := range []time.Duration{0, -time.Second, 500 * time.Millisecond, 1500 * time.Millisecond, 25 * time.Hour} {
			_, err := w.p.Create(t.Context(), order(window))
			assert.ErrorIs(t, err, sandbox.ErrInvalid)
			_, err = w.p.Extend(t.Context(), info, window)
			assert.ErrorIs(t, err, sandbox.ErrInvalid)
			assert.ErrorIs(t, w.p.Shorten(t.Context(), info.ID, window), sandbox.ErrInvalid)
		}
		assert.Equal(t, before, w.sent.Load(), "refused before any request")

		_, err := w.p.Create(t.Context(), order(2*time.Hour))
		e, ok := errors.AsType[*sandbox.APIError](err)
		require.True(t, ok, "%v", err)
		assert.True(t, e.Refused)
		assert.Equal(t, sandbox.ErrInvalid, e.Kind)
		assert.NotEmpty(t, e.Message, "the service's words name the limit")
	})
	t.Run("a scope ends before the plan does", func(t *testing.T) {
		in(t, func(t *testing.T) {
			w := newWorld(t, func(o *e2bfake.Options, _ *e2b.Config) { o.Behaviour.PlanLifetime = time.Hour })
			began := time.Now()
			err := w.manager().WithSandbox(t.Context(), func(ctx context.Context, _ sandbox.Sandbox) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}, func(s *sandbox.Scope) { s.MaxLifetime = 5 * time.Hour })
			require.ErrorIs(t, err, sandbox.ErrMaxLifetime)
			assert.NotErrorIs(t, err, sandbox.ErrLeaseLost)
			assert.Less(t, time.Since(began), time.Hour)
			assert.Empty(t, w.alive())
		})
	})
}

func TestE2B18_TheFilterIsEncodedAsTheServiceDecodesIt(t *testing.T) {
	// These bytes are what the official SDK sends.
	assert.Equal(t, "leak.run%3Da%252520b%252526c%25253Dd%25252F%2525C3%2525A9%26owner%3Dx",
		e2b.EncodeMetadata([][2]string{{"leak.run", "a b&c=d/é"}, {"owner", "x"}}))
	in(t, func(t *testing.T) {
		w := newWorld(t)
		req := order(time.Minute)
		req.Tags = map[string]string{"job": "a b&c=d/é%+", "k&=% +": "v"}
		_, err := w.p.Create(t.Context(), req)
		require.NoError(t, err)
		w.make(time.Minute)
		for _, kv := range [][2]string{{"job", "a b&c=d/é%+"}, {"k&=% +", "v"}, {sandbox.NonceKey, req.Mark.Nonce}} {
			code, body := w.ask(http.MethodGet, "/v2/sandboxes?metadata="+e2b.EncodeMetadata([][2]string{kv}), nil)
			require.Equal(t, http.StatusOK, code, "%s", body)
			var rows []any
			require.NoError(t, json.Unmarshal(body, &rows))
			assert.Len(t, rows, 1, "%q", kv)
		}
		found, err := w.list(sandbox.Filter{Nonce: req.Mark.Nonce})
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, req.Tags, found[0].Tags)
	})
}

func TestE2B19_AConflictDuringASnapshotIsNotTheEnd(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		info := w.make(time.Minute)
		w.fake.Snapshotting(info.ID, 3*time.Second)
		_, err := w.p.Extend(t.Context(), info, time.Minute)
		require.ErrorIs(t, err, sandbox.ErrConflict, "the trap")

		w = newWorld(t)
		err = w.manager().WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			for range 30 {
				time.Sleep(time.Minute)
				w.fake.Snapshotting(sb.ID(), 20*time.Second)
			}
			return ctx.Err()
		})
		require.NoError(t, err)
		assert.Empty(t, w.alive())
	})
}

func TestE2B20_InTheOfficialSDKsDebugModeNothingIsPromised(t *testing.T) {
	for _, name := range []string{"E2B_API_KEY", "E2B_DOMAIN", "E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DEBUG"} {
		t.Setenv(name, "")
	}
	t.Setenv("E2B_API_KEY", "e2b_x")
	_, err := e2b.FromEnv()
	require.NoError(t, err)
	t.Setenv("E2B_DEBUG", "True")
	_, err = e2b.FromEnv()
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.ErrorContains(t, err, "E2B_DEBUG")
}

func TestE2B21_SnapshotsOfASandboxAreFoundAndRemovedAndNoOther(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.make(time.Minute), w.make(time.Minute)
		for _, id := range []string{a.ID, a.ID, b.ID} {
			code, body := w.ask(http.MethodPost, "/sandboxes/"+id+"/snapshots", map[string]any{})
			require.Equal(t, http.StatusCreated, code, "%s", body)
		}
		snapshots := func(id string) (all []sandbox.Snapshot) {
			for s, err := range w.p.Snapshots(t.Context(), id) {
				require.NoError(t, err)
				assert.Equal(t, id, s.Source)
				all = append(all, s)
			}
			return all
		}
		require.NoError(t, sandbox.Terminate(t.Context(), w.p, a.ID))
		ofA, ofB := snapshots(a.ID), snapshots(b.ID)
		require.Len(t, ofA, 2, "the trap: they outlive their sandbox")
		require.Len(t, ofB, 1)

		w.fake.ForgetRequests()
		assert.ErrorIs(t, w.p.DeleteSnapshot(t.Context(), sandbox.Snapshot{ID: "base", Source: a.ID}), sandbox.ErrNotFound)
		assert.ErrorIs(t, w.p.DeleteSnapshot(t.Context(), sandbox.Snapshot{ID: ofB[0].ID, Source: a.ID}), sandbox.ErrNotFound)
		for _, r := range w.requests() {
			assert.NotContains(t, r, "DELETE", "a template is nobody's snapshot")
		}
		for _, s := range ofA {
			require.NoError(t, w.p.DeleteSnapshot(t.Context(), s))
		}
		assert.ErrorIs(t, w.p.DeleteSnapshot(t.Context(), ofA[0]), sandbox.ErrNotFound)
		assert.Empty(t, snapshots(a.ID))
		assert.Len(t, snapshots(b.ID), 1)
	})
}

// Partition is used by the tests of the lease too.
func (w *world) partition() { w.net.Break(memnet.Fault{Kind: memnet.Partition}) }
