package sandboxtest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestJournal(t *testing.T) {
	entry := func(last, id string) sandbox.Entry {
		return sandbox.Entry{Provider: "memory", ID: id, Mark: sandbox.Mark{Nonce: nonce(last)}, Tags: map[string]string{"job": "7"}}
	}
	orphans := func(j *sandboxtest.Journal) (found []sandbox.Entry, err error) {
		for e, err := range j.Orphans(t.Context()) {
			if err != nil {
				return found, err
			}
			found = append(found, e)
		}
		return found, nil
	}
	t.Run("an entry replaces one with its nonce", func(t *testing.T) {
		j := sandboxtest.NewJournal()
		require.NoError(t, j.Put(t.Context(), entry("a", "")))
		require.NoError(t, j.Put(t.Context(), entry("b", "")))
		require.NoError(t, j.Put(t.Context(), entry("a", "sb-1")))
		assert.Equal(t, []sandbox.Entry{entry("a", "sb-1"), entry("b", "")}, j.Entries())
		assert.Equal(t, []sandbox.Entry{entry("a", ""), entry("b", ""), entry("a", "sb-1")}, j.Puts())
		require.NoError(t, j.Remove(t.Context(), nonce("a")))
		require.NoError(t, j.Remove(t.Context(), nonce("z")))
		assert.Equal(t, []sandbox.Entry{entry("b", "")}, j.Entries())
	})
	t.Run("entries are copies", func(t *testing.T) {
		j := sandboxtest.NewJournal()
		e := entry("a", "")
		require.NoError(t, j.Put(t.Context(), e))
		e.Tags["job"] = "8"
		j.Entries()[0].Tags["job"] = "9"
		assert.Equal(t, "7", j.Entries()[0].Tags["job"])
	})
	t.Run("entries of living owners are no orphans", func(t *testing.T) {
		j := sandboxtest.NewJournal()
		require.NoError(t, j.Put(t.Context(), entry("a", "sb-1")))
		require.NoError(t, j.Put(t.Context(), entry("b", "sb-2")))
		found, err := orphans(j)
		require.NoError(t, err)
		assert.Empty(t, found)
		j.Abandon()
		require.NoError(t, j.Put(t.Context(), entry("b", "sb-2")))
		require.NoError(t, j.Put(t.Context(), entry("c", "sb-3")))
		found, err = orphans(j)
		require.NoError(t, err)
		assert.Equal(t, []sandbox.Entry{entry("a", "sb-1")}, found)
	})
	t.Run("it fails as told", func(t *testing.T) {
		full := errors.New("no space left on device")
		j := sandboxtest.NewJournal()
		j.FailPut(full)
		require.ErrorIs(t, j.Put(t.Context(), entry("a", "")), full)
		assert.Empty(t, j.Entries())
		j.FailPut(nil)
		require.NoError(t, j.Put(t.Context(), entry("a", "")))
		j.FailRemove(full)
		require.ErrorIs(t, j.Remove(t.Context(), nonce("a")), full)
		assert.Len(t, j.Entries(), 1)
		j.Abandon()
		j.FailOrphans(full)
		found, err := orphans(j)
		require.ErrorIs(t, err, full)
		assert.Len(t, found, 1)
	})
}
