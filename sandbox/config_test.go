package sandbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestDefaultsFitEveryProvider(t *testing.T) {
	for _, k := range append(sandboxtest.Kinds(), everything()) {
		_, err := sandbox.NewManager(k.New(), sandbox.Config{Fleet: "ci", Journal: sandboxtest.NewJournal()})
		assert.NoError(t, err, k.Name)
	}
}

func TestWrongConfigurationIsRefusedBeforeAnyRequestAllFaultsAtOnce(t *testing.T) {
	p := sandboxtest.New(sandbox.Capabilities{})
	_, err := sandbox.NewManager(p, sandbox.Config{
		Fleet: "not a word", Owner: "nor/this", MaxLive: -1,
		CreateTimeout: -1, ReadyTimeout: -1, Grace: -1, CleanupTimeout: -1,
		Scope: sandbox.Scope{
			Window: -1, Beat: -1, MaxLifetime: -1, StallTimeout: -1, KeepOnError: -1,
			Tags: map[string]string{"sandglass-fleet": "x"}, Spec: sandbox.Spec{CPU: -1, Ports: []int{0}},
		},
	})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	for _, word := range []string{
		"fleet", "owner", "MaxLive", "CreateTimeout", "ReadyTimeout", "Grace", "CleanupTimeout", "window", "beat",
		"max lifetime", "StallTimeout", "KeepOnError", "sandglass-fleet", "CPU", "port 0",
	} {
		assert.Contains(t, err.Error(), word)
	}
	assert.Empty(t, p.Calls())
}

func TestEachFaultOfConfigurationIsRefused(t *testing.T) {
	caps := sandboxtest.Everything()
	caps.MinWindow, caps.Step, caps.MaxWindow, caps.DeleteTime, caps.MaxLifetime = time.Minute, time.Minute, time.Hour, time.Minute, 24*time.Hour
	caps.MaxTags, caps.MaxTagKey, caps.MaxTagValue = 2, 8, 8
	long := strings.Repeat("x", 9)
	for name, tc := range map[string]struct {
		cfg  sandbox.Config
		want error
	}{
		"no fleet":                              {sandbox.Config{}, sandbox.ErrInvalid},
		"a fleet of 33 characters":              {sandbox.Config{Fleet: strings.Repeat("f", 33)}, sandbox.ErrInvalid},
		"two beats and an attempt beyond W":     {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{Window: 3 * time.Minute, Beat: 80 * time.Second}}, sandbox.ErrInvalid},
		"W below the minimum":                   {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{Window: 59 * time.Second}}, sandbox.ErrInvalid},
		"W that rounding down makes too short":  {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{Window: 119 * time.Second, Beat: 50 * time.Second}}, sandbox.ErrInvalid},
		"W above the maximum":                   {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{Window: 2 * time.Hour}}, sandbox.ErrInvalid},
		"negative W":                            {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{Window: -time.Minute}}, sandbox.ErrInvalid},
		"a lifetime beyond the provider's":      {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{MaxLifetime: 24 * time.Hour}}, sandbox.ErrInvalid},
		"a clean-up that holds one delete only": {sandbox.Config{Fleet: "ci", CleanupTimeout: 119 * time.Second}, sandbox.ErrInvalid},
		"too many tags":                         {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{Tags: map[string]string{"a": "", "b": "", "c": ""}}}, sandbox.ErrInvalid},
		"a tag name too long":                   {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{Tags: map[string]string{long: ""}}}, sandbox.ErrInvalid},
		"a tag value too long":                  {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{Tags: map[string]string{"a": long}}}, sandbox.ErrInvalid},
		"a tag without a name":                  {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{Tags: map[string]string{"": "x"}}}, sandbox.ErrInvalid},
		"keeping longer than a lease":           {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{KeepOnError: 2 * time.Hour}}, sandbox.ErrInvalid},
		"keeping shorter than a lease":          {sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{KeepOnError: time.Second}}, sandbox.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			p := sandboxtest.New(caps)
			_, err := sandbox.NewManager(p, tc.cfg)
			assert.ErrorIs(t, err, tc.want)
			assert.Empty(t, p.Calls())

			m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci"})
			require.NoError(t, err)
			if tc.cfg.Fleet != "ci" || tc.cfg.CleanupTimeout != 0 {
				return
			}
			err = m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
				t.Error("called")
				return nil
			}, func(s *sandbox.Scope) { *s = tc.cfg.Scope })
			assert.ErrorIs(t, err, tc.want, "an option is measured too")
			assert.ErrorIs(t, err, sandbox.ErrNotStarted)
			assert.Empty(t, p.Calls())
		})
	}
	_, err := sandbox.NewManager(nil, sandbox.Config{Fleet: "ci"})
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
}

func TestWhatTheProviderCannotDoIsUnsupported(t *testing.T) {
	bare := kindNamed(t, "bare").New()
	_, err := sandbox.NewManager(bare, sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{Window: time.Minute}})
	assert.ErrorIs(t, err, errors.ErrUnsupported, "a window that nobody can move")
	for _, name := range []string{"bare", "modal"} {
		_, err = sandbox.NewManager(kindNamed(t, name).New(), sandbox.Config{Fleet: "ci", Scope: sandbox.Scope{KeepOnError: time.Hour}})
		assert.ErrorIs(t, err, errors.ErrUnsupported, name)
	}
}

func TestOptionsChangeOneScopeOnly(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{Scope: sandbox.Scope{Tags: map[string]string{"team": "a"}, Spec: sandbox.Spec{Env: map[string]string{"A": "1"}}}}, func(w *world) {
		for range 2 {
			err := w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
				live := w.p.Live()
				require.Len(t, live, 1)
				assert.Equal(t, map[string]string{"team": "a", "job": "7"}, live[0].Tags)
				return nil
			}, func(s *sandbox.Scope) {
				assert.Equal(t, map[string]string{"team": "a"}, s.Tags)
				assert.Equal(t, map[string]string{"A": "1"}, s.Spec.Env)
				s.Tags["job"], s.Spec.Env["A"] = "7", "2"
			})
			require.NoError(t, err)
		}
		w.settle(nil)
	})
}

func TestLocalTagsStayOnThisSide(t *testing.T) {
	k := kind(func(c *sandbox.Capabilities) { c.MaxTags, c.MaxTagKey, c.MaxTagValue = 1, 8, 8 })
	inWorld(t, k, sandbox.Config{LocalTags: true}, func(w *world) {
		tags := map[string]string{"a": "1", "b": "2", "c": strings.Repeat("x", 99)}
		err := w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
			assert.Equal(t, map[string]string{"a": "1"}, w.p.Live()[0].Tags)
			assert.Equal(t, tags, w.journal.Entries()[0].Tags)
			return nil
		}, func(s *sandbox.Scope) { s.Tags = tags })
		require.NoError(t, err)
		for _, e := range w.seen(sandbox.OpCreate, true) {
			assert.Equal(t, tags, e.Info.Tags)
		}
	})
}

func TestMarkOfASandboxTellsFleetOwnerAndLifetime(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{Owner: "runner-1.42", Scope: sandbox.Scope{MaxLifetime: 20 * mins, KeepOnError: mins}}, func(w *world) {
		err := w.m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
			m := w.p.Live()[0].Mark
			assert.Equal(t, "ci", m.Fleet)
			assert.Equal(t, "runner-1.42", m.Owner)
			assert.Equal(t, 20*mins+10*sec+2*mins+mins, m.Lifetime)
			assert.Equal(t, m, w.journal.Entries()[0].Mark)
			return nil
		})
		require.NoError(t, err)
	})
}
