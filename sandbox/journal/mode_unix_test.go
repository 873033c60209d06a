//go:build unix

package journal_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox/journal"
)

func TestEntriesAreTheirUsersOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	put(t, open(t, dir), entry(nonce("a"), ""))
	for path, mode := range map[string]os.FileMode{
		filepath.Dir(dir): os.ModeDir | 0o700, dir: os.ModeDir | 0o700, pathOf(dir, nonce("a")): 0o600,
	} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode(), path)
	}
}

func TestAFolderOfOthersIsRefused(t *testing.T) {
	for _, mode := range []os.FileMode{0o777, 0o770, 0o702} {
		dir := spool(t)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chmod(dir, mode))
		_, err := journal.Open(dir)
		require.ErrorContains(t, err, "0700")
	}
	if os.Geteuid() == 0 {
		dir := spool(t)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chown(dir, 4711, -1))
		_, err := journal.Open(dir)
		require.ErrorContains(t, err, "user 4711")
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := journal.Open(file)
	require.Error(t, err)
}

func TestNoLinkIsFollowed(t *testing.T) {
	dir, elsewhere := spool(t), spool(t)
	j := open(t, elsewhere)
	put(t, j, entry(nonce("a"), "sb-1"))
	require.NoError(t, j.Close())
	j = open(t, dir)
	require.NoError(t, os.Symlink(pathOf(elsewhere, nonce("a")), pathOf(dir, nonce("a"))))
	errs := faults(t, j)
	require.Len(t, errs, 1)
	assert.ErrorContains(t, errs[0], "no regular file")
	require.Error(t, j.Put(t.Context(), entry(nonce("a"), "")))
}

func TestTheDefaultFolderFollowsTheStateHome(t *testing.T) {
	if dir, _ := journal.DefaultDir(); filepath.Base(filepath.Dir(filepath.Dir(dir))) == "Application Support" {
		t.Skip("macOS has a place of its own")
	}
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	j := open(t, "")
	assert.Equal(t, filepath.Join(home, "sandglass", "journal"), j.Dir())
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", home)
	dir, err := journal.DefaultDir()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(home, ".local", "state", "sandglass", "journal"), dir)
}
