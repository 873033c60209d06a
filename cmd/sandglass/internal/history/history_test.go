package history_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/history"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

func open(t *testing.T, limit int64) (*history.File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history")
	f, err := history.Open(path, limit)
	require.NoError(t, err)
	return f, path
}

func read(t *testing.T, path string) history.Record {
	t.Helper()
	r, err := history.Read(path)
	require.NoError(t, err)
	return r
}

// told is what the lines say, in short.
func told(r history.Record) (all []string) {
	for _, l := range r.Lines {
		all = append(all, string(l.By)+" "+string(l.What))
	}
	return all
}

func manager(t *testing.T, p sandbox.Provider, f *history.File, change ...func(*sandbox.Config)) *sandbox.Manager {
	t.Helper()
	cfg := sandbox.Config{Fleet: "ci", Owner: "runner.1", Observers: []sandbox.Observer{f.Observer(history.Scope)}}
	for _, c := range change {
		c(&cfg)
	}
	m, err := sandbox.NewManager(p, cfg)
	require.NoError(t, err)
	return m
}

func TestALifeIsToldFromItsCreateToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, path := open(t, 0)
		began := time.Now()
		m := manager(t, sandboxtest.New(sandbox.Capabilities{}), f)
		err := m.WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error {
			time.Sleep(10 * time.Minute)
			return nil
		}, func(s *sandbox.Scope) { s.Tags["task"], s.Beat = "t1", 10*time.Second })
		require.NoError(t, err)
		require.NoError(t, f.Err())

		r := read(t, path)
		all := told(r)
		assert.True(t, r.Whole())
		require.Greater(t, len(all), 8)
		assert.Equal(t, "scope made", all[0])
		assert.Equal(t, "scope gone", all[len(all)-1])
		made, gone := r.Lines[0], r.Lines[len(all)-1]
		assert.NotEmpty(t, made.ID)
		assert.Equal(t, map[string]string{"task": "t1"}, made.Tags)
		assert.Equal(t, "ci", made.Fleet)
		assert.Equal(t, "runner.1", made.Owner)
		assert.True(t, made.Until.After(began.Add(2*time.Minute)), "the lease of the create is told")
		assert.True(t, made.Hard.After(began.Add(time.Hour)), "so is the end that no beat can move")
		assert.Equal(t, made.Nonce, gone.Nonce)
		beats := r.Lines[1 : len(all)-1]
		assert.GreaterOrEqual(t, len(beats), 10)
		for i, l := range beats {
			assert.Equal(t, history.Lease, l.What)
			assert.False(t, l.Until.Before(l.At.Add(2*time.Minute)))
			if i > 0 {
				assert.GreaterOrEqual(t, l.At.Sub(beats[i-1].At), history.Thin, "a lease's lines do not fill the disk")
			}
		}
	})
}

func TestWhatAnObserverTellsIsToldOfWhoDidIt(t *testing.T) {
	t.Run("a delete that fails, and its end by the same Manager's replay", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, path := open(t, 0)
			p := sandboxtest.New(sandbox.Capabilities{})
			m := manager(t, p, f)
			p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: errors.New("no"), Times: -1})
			err := m.WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error { return nil })
			leak, ok := errors.AsType[*sandbox.LeakError](err)
			require.True(t, ok)
			p.Heal()
			require.NoError(t, m.Replay(t.Context()))
			r := read(t, path)
			assert.Equal(t, []string{"scope made", "scope left", "replay gone"}, slices.DeleteFunc(told(r), func(s string) bool { return s == "scope lease" }))
			i := slices.IndexFunc(r.Lines, func(l history.Line) bool { return l.What == history.Left })
			assert.WithinDuration(t, leak.Sandboxes[0].Deadline, r.Lines[i].Until, 0, "when the lease ends it is told as the error tells it")
			assert.Contains(t, r.Lines[i].Error, "no")
		})
	})
	t.Run("a lease that is lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, path := open(t, 0)
			p := sandboxtest.New(sandbox.Capabilities{})
			_ = manager(t, p, f).WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
				p.Kill(sb.ID())
				<-ctx.Done()
				return nil
			})
			r := read(t, path)
			assert.Contains(t, told(r), "scope lost")
			i := slices.IndexFunc(r.Lines, func(l history.Line) bool { return l.What == history.Lost })
			assert.Equal(t, "gone", r.Lines[i].State)
		})
	})
	t.Run("a sweep", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, path := open(t, 0)
			p := sandboxtest.New(sandbox.Capabilities{})
			m := manager(t, p, f)
			ctx, cancel := context.WithCancel(t.Context())
			_ = m.WithSandbox(ctx, func(_ context.Context, sb sandbox.Sandbox) error {
				p.Pause(sb.ID())
				p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: errors.New("no"), Times: -1})
				return nil
			})
			cancel()
			p.Heal()
			time.Sleep(3 * time.Hour)
			s, err := sweep.New(sweep.Config{Fleet: "ci", Providers: []sandbox.Provider{p}, Observers: []sandbox.Observer{f.Observer(history.Sweeper)}})
			require.NoError(t, err)
			_, err = s.Sweep(t.Context())
			require.NoError(t, err)
			all := told(read(t, path))
			assert.Equal(t, "sweeper gone", all[len(all)-1])
		})
	})
	t.Run("a create that is not answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, path := open(t, 0)
			p := sandboxtest.New(sandbox.Capabilities{})
			p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: errors.New("lost"), After: true, Times: -1})
			_ = manager(t, p, f).WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error { return nil })
			assert.Equal(t, "scope asked", told(read(t, path))[0])
		})
	})
	t.Run("one that was refused is no life", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, path := open(t, 0)
			p := sandboxtest.New(sandbox.Capabilities{})
			p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: &sandbox.APIError{Refused: true, Kind: sandbox.ErrInvalid}, Times: -1})
			_ = manager(t, p, f).WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error { return nil })
			assert.Empty(t, told(read(t, path)))
		})
	})
	t.Run("somebody's own hand", func(t *testing.T) {
		f, path := open(t, 0)
		f.Ended(history.Hand, "e2b/team", sandbox.Info{ID: "sb1"}, nil)
		f.Ended(history.Hand, "e2b/team", sandbox.Info{ID: "sb2", State: sandbox.StateRunning}, errors.New("no"))
		assert.Equal(t, []string{"hand gone", "hand left"}, told(read(t, path)))
	})
}

func TestManyWritersLoseNothing(t *testing.T) {
	f, path := open(t, 0)
	g, err := history.Open(path, 0)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		for _, file := range []*history.File{f, g} {
			wg.Go(func() {
				for range 50 {
					file.Ended(history.Hand, "p", sandbox.Info{ID: "sb"}, nil)
				}
			})
		}
	}
	wg.Wait()
	r := read(t, path)
	assert.Len(t, r.Lines, 800)
	assert.True(t, r.Whole())
}

func TestAHistoryHasALimitAndSaysWhenItHasReachedIt(t *testing.T) {
	const limit = 40_000
	f, path := open(t, limit)
	for range 100 {
		f.Ended(history.Hand, "p", sandbox.Info{ID: "sb"}, nil)
	}
	r := read(t, path)
	assert.Len(t, r.Lines, 100, "more than one file is read as one")
	assert.False(t, r.Dropped)
	for range 2000 {
		f.Ended(history.Hand, "p", sandbox.Info{ID: "sb"}, nil)
	}
	require.NoError(t, f.Err())
	r = read(t, path)
	assert.True(t, r.Dropped)
	assert.False(t, r.Whole())
	assert.Greater(t, len(r.Lines), 100)
	var sum int64
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		sum += info.Size()
	}
	assert.LessOrEqual(t, sum, int64(limit))
}

func TestWhatCannotBeReadOrWrittenIsCounted(t *testing.T) {
	f, path := open(t, 0)
	f.Ended(history.Hand, "p", sandbox.Info{ID: "a"}, nil)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"v":1,"at":"2026-` + "\n" + `{"v":7,"at":"2026-01-01T00:00:00Z","what":"gone"}` + "\n" + strings.Repeat("x", 3<<20) + "\n")
	require.NoError(t, err)
	require.NoError(t, file.Close())

	moved := path + ".away"
	require.NoError(t, os.Rename(path, moved))
	require.NoError(t, os.Mkdir(path, 0o700)) // so that nothing can be written
	f.Ended(history.Hand, "p", sandbox.Info{ID: "b"}, nil)
	f.Ended(history.Hand, "p", sandbox.Info{ID: "c"}, nil)
	require.Error(t, f.Err())
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(moved, path))
	half := func() {
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = file.WriteString(`{"v":1,`)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	half() // as the disk was full within a line
	f.Ended(history.Hand, "p", sandbox.Info{ID: "d"}, nil)

	r := read(t, path)
	assert.Equal(t, 4, r.Broken)
	assert.Equal(t, 2, r.Missed)
	require.Len(t, r.Lines, 2)
	assert.Equal(t, "d", r.Lines[1].ID)

	half() // another process's
	f, err = history.Open(path, 0)
	require.NoError(t, err)
	f.Ended(history.Hand, "p", sandbox.Info{ID: "e"}, nil)
	r = read(t, path)
	assert.Equal(t, 5, r.Broken)
	require.Len(t, r.Lines, 3)
	assert.Equal(t, "e", r.Lines[2].ID)
}

func TestAHistoryThatCannotBeWrittenIsAnErrorAtOnce(t *testing.T) {
	_, err := history.Open(filepath.Join(t.TempDir(), "none", "history"), 0)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = history.Open(t.TempDir(), 0)
	require.Error(t, err)
	_, err = history.Read(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAHistoryIsItsOwnersAlone(t *testing.T) {
	_, path := open(t, 0)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077)
}

func FuzzReadNeverFailsOnWhatIsInAFile(f *testing.F) {
	f.Add([]byte(`{"v":1,"at":"2026-01-01T00:00:00Z","what":"gone","by":"hand"}` + "\n{"))
	f.Add([]byte("\n\n\x00\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "history")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		_, err := history.Read(path)
		require.NoError(t, err)
	})
}
