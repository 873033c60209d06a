package sandboxtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestKindsComeInTheirOrder(t *testing.T) {
	var names []string
	for _, k := range sandboxtest.Kinds() {
		names = append(names, k.Name)
		assert.Equal(t, "memory/"+k.Name, k.New().Name())
	}
	assert.Equal(t, []string{"e2b", "daytona", "modal", "vercel", "boat", "docker", "kubernetes", "bare"}, names)
}

// The adapters of docker and modal are modules of their own: the module of the examples holds their kinds to them.
func TestKindsHaveTheFactsOfTheirAdapters(t *testing.T) {
	adapters := map[string]func() (sandbox.Provider, error){
		"boat":    func() (sandbox.Provider, error) { return boat.New(boat.Config{APIKey: "boat_0000"}) },
		"daytona": func() (sandbox.Provider, error) { return daytona.New(daytona.Config{APIKey: "dtn_0000"}) },
		"e2b":     func() (sandbox.Provider, error) { return e2b.New(e2b.Config{APIKey: "e2b_0000"}) },
		"kubernetes": func() (sandbox.Provider, error) {
			return kubernetes.New(kubernetes.Config{
				BaseURL: "https://127.0.0.1:6443", Namespace: "sandboxes", Tokens: func(context.Context) (string, error) { return "0000", nil },
			})
		},
		"vercel": func() (sandbox.Provider, error) {
			return vercel.New(vercel.Config{Token: "vcp_0000", Team: "team_0", Project: "prj_0"})
		},
	}
	var other []string
	for _, k := range sandboxtest.Kinds() {
		open, known := adapters[k.Name]
		if !known {
			other = append(other, k.Name)
			continue
		}
		p, err := open()
		require.NoError(t, err)
		assert.Equal(t, p.Capabilities(), k.Capabilities, k.Name)
	}
	assert.Equal(t, []string{"modal", "docker", "bare"}, other)
}

// kinds runs f in a bubble for every imitation and for a service that can do everything.
func kinds(t *testing.T, f func(t *testing.T, p *sandboxtest.Provider)) {
	t.Helper()
	all := append(sandboxtest.Kinds(), sandboxtest.Kind{Name: "everything", Capabilities: sandboxtest.Everything()})
	for _, k := range all {
		bubble(t, k.Name, func(t *testing.T) { f(t, k.New()) })
	}
}

// simple is an order that every kind takes.
func simple(p *sandboxtest.Provider) sandbox.CreateRequest {
	req := order("a")
	req.Tags = nil
	req.Window += p.Capabilities().StartAllowance
	return req
}

func TestEveryKindIsAcceptedWithTheDefaults(t *testing.T) {
	kinds(t, func(t *testing.T, p *sandboxtest.Provider) {
		m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "test", Journal: sandboxtest.NewJournal()})
		require.NoError(t, err)
		p.HandleExec(func(ctx context.Context, _ sandbox.Sandbox, _ sandbox.Cmd) (sandbox.Result, bool, error) {
			time.Sleep(20 * time.Minute)
			return sandbox.Result{}, true, nil
		})
		err = m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			_, err := sb.Exec(ctx, sandbox.Shell("x"))
			return err
		})
		require.NoError(t, err)
		assert.Empty(t, p.Live())
		assert.Empty(t, p.Residue())
	})
}

func TestEveryKindAgreesWithItsCapabilities(t *testing.T) {
	kinds(t, func(t *testing.T, p *sandboxtest.Provider) {
		caps := p.Capabilities()
		req := simple(p)
		i, err := p.Create(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, req.Mark.Nonce, i.Mark.Nonce)
		for i.State == sandbox.StateStarting {
			time.Sleep(time.Second)
			i, err = p.Get(t.Context(), i.ID)
			require.NoError(t, err)
		}
		require.Equal(t, sandbox.StateRunning, i.State)
		i, err = p.Get(t.Context(), i.ID)
		require.NoError(t, err)
		assert.Equal(t, caps.ReadsDeadline, !i.Deadline.IsZero())

		again, err := p.Create(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, caps.CreateOnce, again.ID == i.ID)
		if again.ID != i.ID {
			p.Kill(again.ID)
		}

		_, ok := sandbox.As[sandbox.Shortener](p)
		assert.Equal(t, caps.Extend == sandbox.ExtendSet, ok)

		before := p.Live()[0].Deadline
		time.Sleep(time.Minute)
		i.AsOf = i.AsOf.Add(time.Minute)
		got, err := p.Extend(t.Context(), i, 3*time.Minute)
		require.NoError(t, err)
		after := p.Live()[0]
		switch caps.Extend {
		case sandbox.ExtendNone:
			assert.Equal(t, before, after.Deadline)
		case sandbox.ExtendSet, sandbox.ExtendAdd, sandbox.ExtendActivity:
			assert.Equal(t, 3*time.Minute, after.Left())
			assert.Equal(t, 3*time.Minute, got.Left())
		}
		left := after.Left()
		time.Sleep(left - 1)
		assert.Len(t, p.Live(), 1)
		time.Sleep(caps.Lateness + 10*time.Second)
		assert.Empty(t, p.Live(), "its owner is silent")
		if caps.AtExpiry == sandbox.StateDormant {
			assert.Len(t, p.Residue(), 1)
			require.NoError(t, p.Delete(t.Context(), i.ID))
			time.Sleep(caps.DeleteTime)
		}
		assert.Empty(t, p.Residue())
		assert.Empty(t, p.Live())
	})
}

func TestDeletesConfirmWithinTheTimeThatTheKindStates(t *testing.T) {
	kinds(t, func(t *testing.T, p *sandboxtest.Provider) {
		i, err := p.Create(t.Context(), simple(p))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, p.Delete(t.Context(), i.ID))
		limit := p.Capabilities().DeleteTime
		require.Positive(t, limit)
		time.Sleep(limit)
		assert.Equal(t, sandbox.StateGone, state(t, p, i.ID))
		time.Sleep(p.Capabilities().ReadLag)
		for range 2 {
			found, err := listed(p, sandbox.Filter{})
			require.NoError(t, err)
			assert.Empty(t, found)
		}
	})
}

func TestTheDeadlineIsAtMostTheWindowAhead(t *testing.T) {
	kinds(t, func(t *testing.T, p *sandboxtest.Provider) {
		caps := p.Capabilities()
		if caps.Extend == sandbox.ExtendNone {
			return // one window is the whole life
		}
		var worst time.Duration
		p.Watch(func(c sandboxtest.Change) { worst = max(worst, c.Info.Deadline.Sub(c.At)) })
		i, err := p.Create(t.Context(), simple(p))
		require.NoError(t, err)
		for range 55 {
			time.Sleep(time.Minute)
			i, err = p.Get(t.Context(), i.ID)
			require.NoError(t, err)
			_, err = p.Extend(t.Context(), i, 3*time.Minute)
			require.NoError(t, err)
		}
		assert.LessOrEqual(t, worst, 3*time.Minute+caps.StartAllowance)
		require.NoError(t, p.Delete(t.Context(), i.ID))
	})
}

func TestAProviderMadeOutsideOfABubbleWorksInIt(t *testing.T) {
	p := everything(nil)
	synctest.Test(t, func(t *testing.T) {
		waits(p)
		i := made(t, p, "a")
		_, err := p.Open(i).Exec(t.Context(), sandbox.Cmd{Args: []string{"wait"}})
		require.ErrorIs(t, err, sandbox.ErrNotFound)
	})
}
