package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// disk mounts a small file system of its own and returns where.
func disk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		t.Skip("no file system may be mounted here: ", err)
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

func TestOnAFullDiskTheIDStillFits(t *testing.T) {
	dir := disk(t)
	j := open(t, filepath.Join(dir, "spool"))
	put(t, j, entry(nonce("a"), ""))
	fill, err := os.Create(filepath.Join(dir, "fill"))
	require.NoError(t, err)
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, fill.Close())

	err = j.Put(t.Context(), entry(nonce("b"), ""))
	require.ErrorIs(t, err, syscall.ENOSPC, "before the create")
	assert.Equal(t, []string{nonce("a") + ".entry"}, names(t, j.Dir()), "nothing is left of it")

	kept := entry(nonce("a"), "sb-1")
	kept.Kept = kept.Mark.Created.Add(1)
	put(t, j, kept)
	require.NoError(t, j.Close())
	j = open(t, j.Dir())
	assert.Equal(t, []sandbox.Entry{kept}, orphans(t, j), "a replay works on it too")
	require.NoError(t, j.Remove(t.Context(), nonce("a")))
}

func TestAReadOnlyDiskStopsTheCreate(t *testing.T) {
	dir := disk(t)
	spool := filepath.Join(dir, "spool")
	j := open(t, spool)
	put(t, j, entry(nonce("a"), "sb-1"))
	require.NoError(t, j.Close())
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skip("not remounted: ", err)
	}
	j = open(t, spool)
	require.ErrorIs(t, j.Put(t.Context(), entry(nonce("b"), "")), syscall.EROFS)
	errs := faults(t, j)
	require.Len(t, errs, 1)
	assert.ErrorContains(t, errs[0], nonce("a"))
	assert.True(t, errors.Is(errs[0], syscall.EROFS))
	require.Error(t, j.Remove(t.Context(), nonce("a")))
	assert.Equal(t, []string{nonce("a") + ".entry"}, names(t, spool))
}
