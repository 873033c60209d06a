package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/examples/internal/exampletest"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestOnePassPrintsWhatItSaw(t *testing.T) {
	out, err := exampletest.Command(t.Context(), t, "-provider", "memory", "-fleet", "ci").Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "sweep of fleet ci")
	assert.Contains(t, string(out), "memory: 0 seen")
}

func TestWithoutAFleetNothingIsDone(t *testing.T) {
	cmd := exampletest.Command(t.Context(), t, "-provider", "memory")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, 2, cmd.ProcessState.ExitCode())
	assert.Contains(t, string(out), "fleet")
}

func TestSweepOfARealEngineKeepsTheLiving(t *testing.T) {
	p := exampletest.Engine(t)
	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "sweeper-example", Scope: sandbox.Scope{Window: time.Minute}})
	require.NoError(t, err)
	require.NoError(t, m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
		out, err := exampletest.Command(ctx, t, "-provider", "docker", "-fleet", "sweeper-example").Output()
		assert.NoError(t, err)
		assert.Contains(t, string(out), "1 kept")
		_, err = sb.Exec(ctx, sandbox.Shell("true"))
		return err
	}))
}
