package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatIsSwitchedOffIsNotBuilt(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("SANDGLASS_KUBE", "off")
	require.ErrorContains(t, build(), "SANDGLASS_KUBE is off")
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	assert.Empty(t, files)
}

func TestABuildGoesWhereItsCallerMeansIt(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("SANDGLASS_KUBE", filepath.Join("bin", "kube"))
	path, err := target()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "bin", "kube"), path)
}
