package speccheck_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// live has an adapter make all the calls that it can, by way of what users use. Before the sandbox is left it waits for
// what the adapter does behind its caller.
func live(t *testing.T, p sandbox.Provider, spec sandbox.Spec, behind ...func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if c, ok := sandbox.As[sandbox.Checker](p); ok {
		_, err := c.Check(ctx)
		require.NoError(t, err)
	}
	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "speccheck", Unmarked: true, LocalTags: true, Scope: sandbox.Scope{
		Spec: spec, Tags: map[string]string{"job": "7", "odd": "a=b&c d"}, KeepOnError: 4 * time.Minute,
	}})
	require.NoError(t, err)
	var id string
	kept := errors.New("leave it for the rest")
	err = m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		id = sb.ID()
		res, err := sb.Exec(ctx, sandbox.Shell("echo out; echo err >&2; exit 3"))
		require.NoError(t, err)
		assert.Equal(t, 3, res.ExitCode)
		require.NoError(t, sb.Upload(ctx, "/tmp/deep/file", strings.NewReader("content")))
		var content bytes.Buffer
		require.NoError(t, sb.Download(ctx, "/tmp/deep/file", &content))
		assert.Equal(t, "content", content.String())
		assert.Error(t, sb.Download(ctx, "/tmp/none", &content))
		_, err = sb.Endpoint(ctx, 8080)
		require.NoError(t, err)
		for _, done := range behind {
			require.Eventually(t, done, time.Minute, 10*time.Millisecond)
		}
		return kept
	})
	require.ErrorIs(t, err, kept)
	seen := 0
	for _, err := range p.List(ctx, sandbox.Filter{}) {
		require.NoError(t, err)
		seen++
	}
	assert.Positive(t, seen)
	info, err := p.Get(ctx, id)
	require.NoError(t, err)
	if s, ok := sandbox.As[sandbox.Snapshotter](p); ok {
		for _, err := range s.Snapshots(ctx, id) {
			require.NoError(t, err)
		}
	}
	if s, ok := sandbox.As[sandbox.Shortener](p); ok {
		require.NoError(t, s.Shorten(ctx, info.ID, p.Capabilities().MinWindow))
	}
	require.NoError(t, sandbox.Terminate(ctx, p, id))
}

// all checks that each of ops was met, and prints what was.
func all(t *testing.T, met map[string]bool, ops ...string) {
	t.Helper()
	for _, op := range ops {
		assert.True(t, met[op], "%s was never asked for", op)
	}
	t.Logf("held against the description: %s", strings.Join(slices.Sorted(maps.Keys(met)), ", "))
}
