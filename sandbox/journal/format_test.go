package journal_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
)

var older, newer = entry(nonce("a"), "sb-1"), func() sandbox.Entry {
	e := entry(nonce("a"), "sb-1")
	e.Kept = e.Mark.Created.Add(1)
	return e
}()

// images returns a dead owner's folder, and what its one file held before and after its last change.
func images(t testing.TB) (dir string, before, after []byte) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	j, err := journal.Open(dir)
	require.NoError(t, err)
	require.NoError(t, j.Put(t.Context(), entry(nonce("a"), "")))
	require.NoError(t, j.Put(t.Context(), older))
	before, err = os.ReadFile(pathOf(dir, nonce("a")))
	require.NoError(t, err)
	require.NoError(t, j.Put(t.Context(), newer))
	require.NoError(t, j.Close())
	after, err = os.ReadFile(pathOf(dir, nonce("a")))
	require.NoError(t, err)
	require.Len(t, after, len(before))
	return dir, before, after
}

// overwrite changes a file's content and leaves the file the same one.
func overwrite(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(content, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestATornWriteLeavesTheEntryBeforeIt(t *testing.T) {
	dir, before, after := images(t)
	first, last := 0, len(after)
	for before[first] == after[first] {
		first++
	}
	for before[last-1] == after[last-1] {
		last--
	}
	require.LessOrEqual(t, last-first, 4096, "one slot only is written")
	j := open(t, dir)
	for n := first; n <= last; n++ {
		for what, torn := range map[string][]byte{
			"front": append(bytes.Clone(after[:n]), before[n:]...),
			"back":  append(bytes.Clone(before[:n]), after[n:]...), // disks may write their sectors in any order
		} {
			overwrite(t, pathOf(dir, nonce("a")), torn)
			want := older
			if bytes.Equal(torn, after) {
				want = newer
			}
			if found := orphans(t, j); !assert.Equal(t, []sandbox.Entry{want}, found, "%s, cut at %d", what, n) {
				return
			}
		}
	}
}

func TestEverySingleByteIsChecked(t *testing.T) {
	dir, _, after := images(t)
	j := open(t, dir)
	n := len(after) / 2
	newest, _, err := journal.Latest(after)
	require.NoError(t, err)
	place := 0
	if bytes.Equal(newest, after[n:]) {
		place = 1
	}
	for i := range n {
		flip := byte(1) << (i % 8)
		broken := bytes.Clone(after)
		broken[place*n+i] ^= flip
		overwrite(t, pathOf(dir, nonce("a")), broken)
		if found := orphans(t, j); !assert.Equal(t, []sandbox.Entry{older}, found, "byte %d", i) {
			return
		}
		broken[(1-place)*n+i] ^= flip
		overwrite(t, pathOf(dir, nonce("a")), broken)
		errs := faults(t, j)
		if !assert.Len(t, errs, 1, "byte %d", i) {
			return
		}
		assert.ErrorContains(t, errs[0], pathOf(dir, nonce("a")))
		assert.ErrorContains(t, errs[0], "broken entry")
	}
	assert.Len(t, names(t, dir), 1, "kept")
}

func TestAnEntryIsReadableForPeople(t *testing.T) {
	_, _, after := images(t)
	text := string(after)
	assert.Contains(t, text, "sandglass journal 1 0000000000000003 ")
	assert.Contains(t, text, `"id": "sb-1"`)
	assert.Contains(t, text, `"pid": `)
	assert.NotContains(t, text, "\x00")
}

// FuzzLatest: whatever is in a file, reading it does not panic, and what is accepted is exactly what is written.
// The text is tried as the file's first bytes, and under the line with the checksum that it needs to be looked at.
func FuzzLatest(f *testing.F) {
	_, _, after := images(f)
	text := append(bytes.TrimRight(after[:len(after)/2], " \n"), '\n')
	_, body, _ := bytes.Cut(text, []byte("\n"))
	seal := func(text []byte) []byte {
		return journal.Reseal(after, func(slot string) string {
			head, _, _ := strings.Cut(slot, "\n")
			rest := []byte(strings.Repeat(" ", len(slot)-len(head)-2) + "\n")
			copy(rest, text)
			return head + "\n" + string(rest)
		})
	}
	_, _, err := journal.Latest(seal(body))
	require.NoError(f, err, "what is sealed is looked at")
	f.Add(text)
	f.Add(body)
	f.Add(append(bytes.Clone(body), "{}"...))
	f.Add(bytes.Replace(body, []byte(`"kept"`), []byte(`"keep"`), 1))
	f.Add(bytes.ReplaceAll(body, []byte("\t"), nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 3000 {
			return
		}
		raw := bytes.Clone(after)
		copy(raw, text)
		for _, content := range [][]byte{raw, seal(text)} {
			slot, again, err := journal.Latest(content)
			if err == nil {
				assert.Equal(t, string(slot), string(again))
			}
		}
	})
}
