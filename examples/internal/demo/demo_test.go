package demo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/examples/internal/demo"
)

// nowhere points the environment to a Docker engine that does not answer.
func nowhere(t *testing.T) {
	t.Helper()
	t.Setenv("DOCKER_HOST", "unix://"+t.TempDir()+"/none.sock")
}

func TestAutoFallsBackToMemoryAndSaysWhy(t *testing.T) {
	nowhere(t)
	p, why, err := demo.Provider(t.Context(), "auto")
	require.NoError(t, err)
	assert.Equal(t, "memory", p.Name())
	assert.Contains(t, why, "no Docker engine")
}

func TestDockerWithoutAnEngineIsAnError(t *testing.T) {
	nowhere(t)
	_, _, err := demo.Provider(t.Context(), "docker")
	assert.Error(t, err)
}

func TestMemoryIsNeverAnythingElse(t *testing.T) {
	p, _, err := demo.Provider(t.Context(), "memory")
	require.NoError(t, err)
	assert.Equal(t, "memory", p.Name())
}

func TestAnUnknownProviderIsAnError(t *testing.T) {
	_, _, err := demo.Provider(t.Context(), "podman")
	assert.ErrorContains(t, err, `"podman"`)
}

func TestLinesArriveWholeHoweverTheyAreWritten(t *testing.T) {
	var got []string
	l := demo.NewLines(func(line string) { got = append(got, line) })
	for _, part := range []string{"one\ntw", "o", "\n\nfo", "ur"} {
		_, err := fmt.Fprint(l, part)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"one", "two", ""}, got)
	l.Flush()
	l.Flush()
	assert.Equal(t, []string{"one", "two", "", "four"}, got)
}
