package sandboxtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestCreate(t *testing.T) {
	dropped := errors.New("connection reset")

	bubble(t, "tells what was made", func(t *testing.T) {
		p := everything(nil)
		i := made(t, p, "a")
		assert.Equal(t, sandbox.StateRunning, i.State)
		assert.Equal(t, nonce("a"), i.Mark.Nonce)
		assert.Equal(t, map[string]string{"job": "7"}, i.Tags)
		assert.Equal(t, 3*time.Minute, i.Left())
		got, err := p.Get(t.Context(), i.ID)
		require.NoError(t, err)
		assert.Equal(t, i, got)
		assert.Equal(t, []string{i.ID}, ids(p.Live()))
	})
	bubble(t, "commits and drops the answer", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: dropped, After: true})
		i, err := p.Create(t.Context(), order("a"))
		require.ErrorIs(t, err, dropped)
		assert.Empty(t, i.ID)
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "commits and hangs", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Hang: true, After: true})
		start := time.Now()
		i, err := p.Create(within(t, time.Second), order("a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, i.ID)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "hangs and does not commit", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Hang: true})
		_, err := p.Create(within(t, time.Second), order("a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, p.Live())
	})
	bubble(t, "is slow, and nothing is made for a caller who leaves", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Delay: 5 * time.Second})
		_, err := p.Create(within(t, time.Second), order("a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		assert.Empty(t, p.Live())
	})
	bubble(t, "is slow, and makes a sandbox although the caller has left", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Delay: 5 * time.Second, Late: true})
		_, err := p.Create(within(t, time.Second), order("a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(3 * time.Second)
		assert.Empty(t, p.Live(), "4 s after the request")
		time.Sleep(time.Second)
		live := p.Live()
		require.Len(t, live, 1, "5 s after the request")
		assert.Equal(t, 3*time.Minute, live[0].Left())
	})
	bubble(t, "is slow, and answers a caller who waits", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Delay: 5 * time.Second, Late: true})
		start := time.Now()
		made(t, p, "a")
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
	bubble(t, "fails at once and commits later", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(504), Delay: 2 * time.Second, Late: true})
		start := time.Now()
		_, err := p.Create(t.Context(), order("a"))
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		assert.Zero(t, time.Since(start))
		ids, err := listed(p, sandbox.Filter{})
		require.NoError(t, err)
		assert.Empty(t, ids)
		time.Sleep(2 * time.Second)
		ids, err = listed(p, sandbox.Filter{})
		require.NoError(t, err)
		assert.Len(t, ids, 1)
	})
	bubble(t, "fails with 500 after the commit, which is no refusal", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(500), After: true})
		_, err := p.Create(t.Context(), order("a"))
		e, ok := errors.AsType[*sandbox.APIError](err)
		require.True(t, ok)
		assert.False(t, e.Refused)
		assert.Equal(t, "memory", e.Provider)
		assert.Equal(t, sandbox.OpCreate, e.Op)
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "answers without an id", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Effect: sandboxtest.EffectEmptyID})
		i, err := p.Create(t.Context(), order("a"))
		require.NoError(t, err)
		assert.Empty(t, i.ID)
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "answers an id that nobody knows", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Effect: sandboxtest.EffectNone})
		i := made(t, p, "a")
		assert.Empty(t, p.Live())
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
	})
	bubble(t, "is unfit: an id next to an error", func(t *testing.T) {
		for _, want := range []error{nil, dropped} {
			p := everything(nil)
			p.Fault(sandbox.OpCreate, sandboxtest.Fault{Effect: sandboxtest.EffectUnfit, Err: want})
			i, err := p.Create(t.Context(), order("a"))
			require.Error(t, err)
			if want != nil {
				require.ErrorIs(t, err, want)
			}
			assert.Equal(t, ids(p.Live()), []string{i.ID})
		}
	})
	bubble(t, "never gets ready", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.NeverReady = true })
		i := made(t, p, "a")
		assert.Equal(t, sandbox.StateStarting, i.State)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, sandbox.StateStarting, state(t, p, i.ID))
		time.Sleep(time.Minute)
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID), "its lease runs all the same")
	})
	bubble(t, "takes its time to get ready", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.StartTime = 5 * time.Second })
		i := made(t, p, "a")
		assert.Equal(t, sandbox.StateStarting, i.State)
		time.Sleep(5*time.Second - 1)
		assert.Equal(t, sandbox.StateStarting, state(t, p, i.ID))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, sandbox.StateRunning, state(t, p, i.ID))
	})
	bubble(t, "fails to start", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.StartsFailed = true })
		i := made(t, p, "a")
		assert.Equal(t, sandbox.StateFailed, i.State)
		assert.Len(t, p.Live(), 1, "a failed sandbox may run")
	})
	bubble(t, "is told to wait", func(t *testing.T) {
		p := everything(nil)
		e := sandboxtest.Status(429)
		e.RetryAfter = 7 * time.Second
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: e})
		_, err := p.Create(t.Context(), order("a"))
		require.ErrorIs(t, err, sandbox.ErrRateLimited)
		got, _ := errors.AsType[*sandbox.APIError](err)
		assert.Equal(t, 7*time.Second, got.RetryAfter)
		assert.True(t, got.Refused)
		assert.Empty(t, p.Live())
		assert.Empty(t, e.Provider, "the test's own error is not written to")
	})
	bubble(t, "finds the quota full, also for a while after an end", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) {
			b.MaxLive, b.LiveLag, b.RetryAfter = 1, 4*time.Second, time.Second
		})
		i := made(t, p, "a")
		_, err := p.Create(t.Context(), order("b"))
		require.ErrorIs(t, err, sandbox.ErrQuota)
		e, _ := errors.AsType[*sandbox.APIError](err)
		assert.Equal(t, 429, e.Status)
		assert.Equal(t, time.Second, e.RetryAfter)
		assert.True(t, e.Refused)
		require.NoError(t, p.Delete(t.Context(), i.ID))
		_, err = p.Create(t.Context(), order("b"))
		require.ErrorIs(t, err, sandbox.ErrQuota)
		time.Sleep(4 * time.Second)
		made(t, p, "b")
	})
	bubble(t, "is one too many at once", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.MaxInFlight, b.RetryAfter = 2, time.Second })
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Delay: time.Second, Times: -1})
		errs := make(chan error, 3)
		for _, n := range []string{"a", "b", "c"} {
			go func() {
				_, err := p.Create(t.Context(), order(n))
				errs <- err
			}()
		}
		require.ErrorIs(t, <-errs, sandbox.ErrRateLimited)
		require.NoError(t, <-errs)
		require.NoError(t, <-errs)
		made(t, p, "c")
	})
	bubble(t, "finds a lower cap on windows", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.MaxWindow = time.Minute })
		_, err := p.Create(t.Context(), order("a"))
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		e, _ := errors.AsType[*sandbox.APIError](err)
		assert.Equal(t, 400, e.Status)
		assert.True(t, e.Refused)
	})
	bubble(t, "is granted another lease than it asked for", func(t *testing.T) {
		for _, c := range []struct {
			name string
			b    func(*sandboxtest.Behaviour)
			left time.Duration
		}{
			{"shorter", func(b *sandboxtest.Behaviour) { b.GrantExtra = -time.Minute }, 2 * time.Minute},
			{"longer", func(b *sandboxtest.Behaviour) { b.GrantExtra = time.Minute }, 4 * time.Minute},
			{"none", func(b *sandboxtest.Behaviour) { b.NoLease = true }, 0},
			{"not told", func(b *sandboxtest.Behaviour) { b.HideDeadline = true }, 0},
			{"cut by the plan", func(b *sandboxtest.Behaviour) { b.PlanLifetime = time.Minute }, time.Minute},
		} {
			p := everything(c.b)
			assert.Equal(t, c.left, made(t, p, "a").Left(), c.name)
		}
	})
	bubble(t, "knows no image of that name", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.UnknownImages = []string{"debian:99"} })
		req := order("a")
		req.Spec.Image = "debian:99"
		_, err := p.Create(t.Context(), req)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		require.NotErrorIs(t, err, sandbox.ErrNotFound)
		req.Spec.Image = "debian:13"
		_, err = p.Create(t.Context(), req)
		require.NoError(t, err)
	})
}

func TestARepeatedCreate(t *testing.T) {
	bubble(t, "is resolved to the same sandbox where names are unique", func(t *testing.T) {
		p := everything(nil)
		a, b := made(t, p, "a"), made(t, p, "a")
		assert.Equal(t, a.ID, b.ID)
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "makes a new sandbox once the old one is gone", func(t *testing.T) {
		p := everything(nil)
		a := made(t, p, "a")
		require.NoError(t, p.Delete(t.Context(), a.ID))
		assert.NotEqual(t, a.ID, made(t, p, "a").ID)
	})
	bubble(t, "meets another owner's sandbox under its name", func(t *testing.T) {
		p := everything(nil)
		a := made(t, p, "a")
		p.DropTags(a.ID)
		_, err := p.Create(t.Context(), order("a"))
		require.ErrorIs(t, err, sandbox.ErrConflict)
		e, _ := errors.AsType[*sandbox.APIError](err)
		assert.True(t, e.Refused)
	})
	bubble(t, "is answered anew under a key, and refused with another body", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.UniqueNames, b.Keys = false, true })
		req := order("a")
		a, err := p.Create(t.Context(), req)
		require.NoError(t, err)
		b, err := p.Create(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, a.ID, b.ID)
		req.Window = time.Minute
		_, err = p.Create(t.Context(), req)
		require.ErrorIs(t, err, sandbox.ErrConflict)
		assert.Len(t, p.Live(), 1)
	})
	bubble(t, "makes a twin where nothing names it", func(t *testing.T) {
		p := everything(func(b *sandboxtest.Behaviour) { b.UniqueNames = false })
		assert.NotEqual(t, made(t, p, "a").ID, made(t, p, "a").ID)
		ids, err := listed(p, sandbox.Filter{Nonce: nonce("a")})
		require.NoError(t, err)
		assert.Len(t, ids, 2)
	})
	for name, twins := range map[string]int{"by a proxy makes a twin": 2, "by a proxy makes no twin under a unique name": 1} {
		bubble(t, name, func(t *testing.T) {
			p := everything(func(b *sandboxtest.Behaviour) { b.UniqueNames = twins == 1 })
			p.Fault(sandbox.OpCreate, sandboxtest.Fault{Effect: sandboxtest.EffectTwin})
			made(t, p, "a")
			assert.Len(t, p.Live(), twins)
			assert.Len(t, p.Calls(sandbox.OpCreate), 1)
		})
	}
	bubble(t, "that commits late finds the name taken", func(t *testing.T) {
		p := everything(nil)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(504), Late: true, Delay: 2 * time.Second})
		_, err := p.Create(t.Context(), order("a"))
		require.Error(t, err)
		made(t, p, "a")
		time.Sleep(time.Minute)
		assert.Len(t, p.Live(), 1)
	})
}

func TestACreateThatCannotBeHonouredIsRefusedWithoutARequest(t *testing.T) {
	many := map[string]string{}
	for i := range 33 {
		many[string(rune('a'+i))] = "x"
	}
	limited := sandboxtest.Everything()
	limited.Endpoints = false
	for name, c := range map[string]struct {
		caps   sandbox.Capabilities
		change func(*sandbox.CreateRequest)
		kind   error
	}{
		"no mark":              {change: func(r *sandbox.CreateRequest) { r.Mark = sandbox.Mark{} }, kind: sandbox.ErrInvalid},
		"no window":            {change: func(r *sandbox.CreateRequest) { r.Window = 0 }, kind: sandbox.ErrInvalid},
		"window too short":     {change: func(r *sandbox.CreateRequest) { r.Window = time.Millisecond }, kind: sandbox.ErrInvalid},
		"window too long":      {change: func(r *sandbox.CreateRequest) { r.Window = 25 * time.Hour }, kind: sandbox.ErrInvalid},
		"window between steps": {change: func(r *sandbox.CreateRequest) { r.Window = 1500 * time.Millisecond }, kind: sandbox.ErrInvalid},
		"too many tags":        {change: func(r *sandbox.CreateRequest) { r.Tags = many }, kind: sandbox.ErrInvalid},
		"tag of the mark":      {change: func(r *sandbox.CreateRequest) { r.Tags = map[string]string{sandbox.NonceKey: "x"} }, kind: sandbox.ErrInvalid},
		"tag without a key":    {change: func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"": "x"} }, kind: sandbox.ErrInvalid},
		"foreign native":       {change: func(r *sandbox.CreateRequest) { r.Spec.Native = 7 }, kind: sandbox.ErrInvalid},
		"relative file": {change: func(r *sandbox.CreateRequest) {
			r.Spec.Native = &sandboxtest.Options{Files: map[string]string{"x": ""}}
		}, kind: sandbox.ErrInvalid},
		"bad environment":     {change: func(r *sandbox.CreateRequest) { r.Spec.Env = map[string]string{"A=B": "x"} }, kind: sandbox.ErrInvalid},
		"ports not to be had": {caps: limited, change: func(r *sandbox.CreateRequest) { r.Spec.Ports = []int{80} }, kind: errors.ErrUnsupported},
		"port out of range":   {change: func(r *sandbox.CreateRequest) { r.Spec.Ports = []int{0} }, kind: sandbox.ErrInvalid},
		"negative memory":     {change: func(r *sandbox.CreateRequest) { r.Spec.Memory = -1 }, kind: sandbox.ErrInvalid},
		"value of a tag too long": {change: func(r *sandbox.CreateRequest) {
			r.Tags = map[string]string{"k": strings.Repeat("x", 257)}
		}, kind: sandbox.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			p := sandboxtest.New(c.caps)
			req := order("a")
			c.change(&req)
			_, err := p.Create(t.Context(), req)
			require.ErrorIs(t, err, c.kind)
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok)
			assert.True(t, e.Refused)
			assert.Empty(t, p.Calls())
			assert.Empty(t, p.Live())
		})
	}
}

func TestAMarkThatNeedsASecondCallCanBeMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caps := sandboxtest.Everything()
		caps.MarkAtCreate = false
		p := sandboxtest.New(caps)
		p.Behave(func(b *sandboxtest.Behaviour) { b.UniqueNames, b.Keys = false, true })
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Skip: 1, Err: sandboxtest.Status(503)})
		req := order("a")
		i, err := p.Create(t.Context(), req)
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		require.NotEmpty(t, i.ID, "made, but unfit")
		live := p.Live()
		require.Len(t, live, 1)
		assert.Zero(t, live[0].Mark)

		again, err := p.Create(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, i.ID, again.ID)
		assert.Equal(t, req.Mark.Nonce, again.Mark.Nonce)
		assert.Len(t, p.Calls(sandbox.OpCreate), 4)
	})
}
