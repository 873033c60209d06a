package sdkcheck_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
)

const boatSDK = "@boatdev/sdk"

// A boatRow is what the SDK reports of a sandbox.
type boatRow struct {
	ID, Name, State string
	ArchiveAfter    *time.Time
}

// TestBoat skips even where nothing may be skipped: whether the SDK can be had is up to the registry alone.
func TestBoat(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join("node_modules", boatSDK, "package.json")); err != nil {
		t.Skipf("%s is not in sdkcheck/node_modules; make sdks installs it once the registry has it, so this is no "+
			"failure with SANDGLASS_NO_SKIP=1 either", boatSDK)
	}
	program := start(t, "boat.mjs", boatSDK)
	server := boatfake.New(boatfake.Options{Key: "boat_sdkcheck", Prompt: true})
	t.Cleanup(server.Close)
	env := options{"url": serve(t, server).URL + "/api/v1", "key": "boat_sdkcheck"}
	boat := program.In(t, env)
	truth := func(id string) boatfake.Sandbox {
		t.Helper()
		truth, ok := server.Lookup(id)
		require.True(t, ok, "the fake knows no %q", id)
		return truth
	}
	same := func(id string) {
		t.Helper()
		want, got := truth(id), ask[boatRow](boat, "get", id)
		assert.Equal(t, want.ID, got.ID)
		assert.Equal(t, want.Name, got.Name)
		assert.Equal(t, want.State, got.State)
		require.NotNil(t, want.ArchiveAfter)
		require.NotNil(t, got.ArchiveAfter)
		assert.Equal(t, *want.ArchiveAfter, got.ArchiveAfter.Format("2006-01-02T15:04:05.000Z07:00"))
	}

	order := options{"ttlSeconds": 300, "noEnv": true, "snapshots": false}
	id := ask[string](boat, "create", "key-1", order)
	assert.Equal(t, id, ask[string](boat, "create", "key-1", order), "the same key makes nothing")
	assert.Len(t, server.All(), 1)
	_, failed := boat.Do("create", "key-1", order.With("ttlSeconds", 301))
	require.NotNil(t, failed)
	assert.Equal(t, 409, failed.StatusCode, failed.Message)
	boat.Must("update", id, options{"name": "sdkcheck"})
	boat.Must("ready", id)
	assert.Equal(t, "sdkcheck", truth(id).Name)
	same(id)

	got := ask[fault](boat, "command", id, options{"command": "echo out; echo err >&2; exit 3"})
	assert.Equal(t, fault{ExitCode: 3, Stdout: "out\n", Stderr: "err\n"}, got)

	before := *truth(id).ArchiveAfter
	boat.Must("update", id, options{"ttlSeconds": 600})
	assert.Greater(t, *truth(id).ArchiveAfter, before)
	same(id)
	assert.Equal(t, []string{id}, ask[[]string](boat, "list", options{"limit": 10, "state": "ready,idle,running"}))

	_, failed = boat.Do("delete", id, "another")
	require.NotNil(t, failed)
	assert.Equal(t, 409, failed.StatusCode, failed.Message)
	boat.Must("delete", id, id)
	assert.Equal(t, "deleted", truth(id).State)
	_, failed = boat.Do("get", id)
	require.NotNil(t, failed)
	assert.Equal(t, 404, failed.StatusCode, failed.Message)
	assert.Empty(t, ask[[]string](boat, "list", options{"limit": 10}))

	boat = program.In(t, env.With("key", "another"))
	_, failed = boat.Do("create", "key-2", order)
	require.NotNil(t, failed)
	assert.Equal(t, 401, failed.StatusCode, failed.Message)
	assert.Empty(t, server.All())
}
