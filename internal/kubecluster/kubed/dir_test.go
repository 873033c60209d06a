//go:build linux

package main

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAFolderIsNotTakenForALeftOneWhileItIsMade(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	done := make(chan struct{})
	var others sync.WaitGroup
	defer others.Wait()
	defer close(done)
	for range 2 {
		others.Go(func() { // another cluster begins
			for {
				select {
				case <-done:
					return
				default:
					assert.NoError(t, sweepDirs())
				}
			}
		})
	}
	for range 100 {
		dir, lock, err := newDir()
		require.NoError(t, err)
		assert.DirExists(t, dir)
		assert.NoError(t, removeDir(dir))
		assert.NoError(t, lock.Close())
	}
}
