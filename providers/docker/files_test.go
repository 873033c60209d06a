package docker_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestFilesTravelUnchanged(t *testing.T) {
	t.Parallel()
	p := engine(t)
	sb := p.Open(create(t, p, order(10*time.Minute)))
	big := make([]byte, 3<<20)
	_, _ = rand.Read(big)
	for name, c := range map[string]struct {
		path string
		data []byte
	}{
		"empty":       {"/tmp/empty", nil},
		"binary":      {"/tmp/big", big},
		"new folders": {"/new/deep/er/file", []byte("x")},
		"odd name":    {"/odd/-a b'\"ключ\n$HOME*", []byte("x")},
		"unclean":     {"/tmp/../tmp//./unclean", []byte("x")},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []io.Reader{bytes.NewReader(c.data), iotest.OneByteReader(bytes.NewReader(c.data[:min(len(c.data), 9)])), io.MultiReader(bytes.NewReader(c.data))} {
				require.NoError(t, sb.Upload(t.Context(), c.path, r))
			}
			var got bytes.Buffer
			require.NoError(t, sb.Download(t.Context(), c.path, &got))
			assert.True(t, bytes.Equal(c.data, got.Bytes()))
			assert.Equal(t, string(c.data[:min(len(c.data), 100)]), run(t, sb, sandbox.Cmd{Args: []string{"head", "-c", "100", c.path}}))
		})
	}
}

func TestFilesThatCannotTravelAreErrors(t *testing.T) {
	t.Parallel()
	p := engine(t)
	info := create(t, p, order(10*time.Minute))
	sb := p.Open(info)
	run(t, sb, sandbox.Shell("mkdir /folder; echo 1 >/file; chmod 750 /file; ln -s /file /link; ln -s ../file /folder/up; ln -s /loop /loop; ln -s /nowhere/new /broken; mknod /pipe p; mkdir /real; ln -s /real /by"))

	require.ErrorIs(t, sb.Download(t.Context(), "/missing", io.Discard), fs.ErrNotExist)
	require.NotErrorIs(t, sb.Download(t.Context(), "/missing", io.Discard), sandbox.ErrNotFound)
	require.ErrorIs(t, sb.Download(t.Context(), "/broken", io.Discard), fs.ErrNotExist)
	for _, name := range []string{"relative", "", "/", "/folder", "/folder/", "/a\x00b", "/pipe"} {
		require.ErrorIs(t, sb.Download(t.Context(), name, io.Discard), sandbox.ErrInvalid, name)
	}
	for _, name := range []string{"relative", "", "/", "/folder", "/folder/", "/a\x00b", "/file/below"} {
		require.ErrorIs(t, sb.Upload(t.Context(), name, strings.NewReader("x")), sandbox.ErrInvalid, name)
	}
	require.Error(t, sb.Download(t.Context(), "/loop", io.Discard))
	for _, name := range []string{"/proc/version", "/dev/shm/x", "/sys/x"} {
		require.ErrorIs(t, sb.Download(t.Context(), name, io.Discard), errors.ErrUnsupported, name)
		require.ErrorIs(t, sb.Upload(t.Context(), name, strings.NewReader("x")), errors.ErrUnsupported, name)
	}

	for _, name := range []string{"/link", "/folder/up"} {
		var got bytes.Buffer
		require.NoError(t, sb.Download(t.Context(), name, &got))
		assert.Equal(t, "1\n", got.String())
	}
	require.NoError(t, sb.Upload(t.Context(), "/link", strings.NewReader("2\n")))
	assert.Equal(t, "2\n750\n", run(t, sb, sandbox.Shell("cat /file; stat -c %a /file; test -L /link")))
	require.NoError(t, sb.Upload(t.Context(), "/broken", strings.NewReader("3\n")))
	assert.Equal(t, "3\n", run(t, sb, sandbox.Shell("cat /nowhere/new")))
	require.NoError(t, sb.Upload(t.Context(), "/by/way/of", strings.NewReader("4\n")))
	assert.Equal(t, "4\n755\n", run(t, sb, sandbox.Shell("cat /real/way/of; stat -c %a /real")))

	bad := errors.New("bad")
	require.ErrorIs(t, sb.Upload(t.Context(), "/half", io.MultiReader(strings.NewReader("x"), iotest.ErrReader(bad))), bad)
	require.ErrorIs(t, sb.Download(t.Context(), "/file", failing{bad}), bad)

	require.NoError(t, p.Delete(t.Context(), info.ID))
	until(t, removal, "removed", func() bool { return !exists(t, info.ID) })
	require.ErrorIs(t, sb.Download(t.Context(), "/file", io.Discard), sandbox.ErrNotFound)
	require.ErrorIs(t, sb.Upload(t.Context(), "/file", strings.NewReader("x")), sandbox.ErrNotFound)
}
