package fake_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func create(t *testing.T, s *fake.Service, o fake.Order) fake.Record {
	t.Helper()
	r, err := s.Create(t.Context(), o)
	require.NoError(t, err)
	return r
}

func TestCreateKeepsWhatWasOrdered(t *testing.T) {
	s := fake.New(sandbox.ExtendSet, fake.Behaviour{UniqueNames: true})
	tags := map[string]string{"a": "1"}
	r := create(t, s, fake.Order{Name: "n", Key: "k", Image: "debian", Tags: tags, Data: 7})
	tags["a"] = "2"
	r.Tags["a"] = "3"
	got, err := s.Get(t.Context(), r.ID)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": "1"}, got.Tags, "a copy")
	assert.Equal(t, "n", got.Name)
	assert.Equal(t, "k", got.Key)
	assert.Equal(t, "debian", got.Image)
	assert.Equal(t, 7, got.Data)

	taken, err := s.Create(t.Context(), fake.Order{Name: "n"})
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok)
	assert.Equal(t, fake.NameTaken, e.Code)
	assert.Equal(t, r.ID, taken.ID, "who has the name")
	assert.NotEmpty(t, create(t, s, fake.Order{}).Name)
}

func TestALeaseOfNoneIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.New(sandbox.ExtendSet, fake.Behaviour{})
		r := create(t, s, fake.Order{})
		time.Sleep(1000 * time.Hour)
		got, err := s.Get(t.Context(), r.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, got.State)
		assert.True(t, got.Deadline.IsZero())
		_, err = s.Create(t.Context(), fake.Order{Window: -1})
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		_, err = s.Extend(t.Context(), r.ID, 0)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		got, err = s.Extend(t.Context(), r.ID, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, got.Deadline.Sub(got.AsOf))
	})
}

func TestWhatIsDueHappensAtItsOwnTimeHoweverLateSomebodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.New(sandbox.ExtendSet, fake.Behaviour{
			UniqueNames: true, StartTime: time.Second, AtExpiry: sandbox.StateDormant, EndTime: time.Second,
		})
		start := s.Now()
		var told []string
		s.Watch(func(c fake.Change) {
			told = append(told, fmt.Sprint(c.Record.ID, " ", c.Record.State, " ", c.At.Sub(start)))
		})
		create(t, s, fake.Order{Name: "n", Window: 10 * time.Second})
		// The first of these finds its name taken: its holder is dormant by then, and keeps it.
		s.Fault(sandbox.OpCreate, fake.Fault{Late: true, Delay: 20 * time.Second, Err: errors.New("lost")},
			fake.Fault{Late: true, Delay: 5 * time.Second, Err: errors.New("lost")})
		_, err := s.Create(t.Context(), fake.Order{Name: "n", Window: time.Second})
		require.Error(t, err)
		_, err = s.Create(t.Context(), fake.Order{Window: 10 * time.Second})
		require.Error(t, err)
		time.Sleep(time.Hour)
		s.Now()
		assert.Equal(t, []string{
			"sb-1 starting 0s", "sb-1 running 1s",
			"sb-2 starting 5s", "sb-2 running 6s",
			"sb-1 ending 10s", "sb-1 dormant 11s",
			"sb-2 ending 15s", "sb-2 dormant 16s",
		}, told)
	})
}

func TestLateCreatesAreJudgedWhenTheyArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.New(sandbox.ExtendSet, fake.Behaviour{UniqueNames: true})
		create(t, s, fake.Order{Name: "n", Window: 10 * time.Second})
		s.Fault(sandbox.OpCreate, fake.Fault{Late: true, Delay: 9 * time.Second, Err: errors.New("lost")},
			fake.Fault{Late: true, Delay: 11 * time.Second, Err: errors.New("lost")})
		for range 2 {
			_, err := s.Create(t.Context(), fake.Order{Name: "n", Window: time.Hour})
			require.EqualError(t, err, "lost")
		}
		time.Sleep(30 * time.Second)
		all := s.All()
		require.Len(t, all, 1, "at 9 s the name is taken, at 11 s it is free again")
		assert.Equal(t, "sb-2", all[0].ID)
		assert.Equal(t, 19*time.Second, all[0].AsOf.Sub(all[0].Created))
	})
}

func TestRetag(t *testing.T) {
	s := fake.New(sandbox.ExtendSet, fake.Behaviour{})
	r := create(t, s, fake.Order{Tags: map[string]string{"a": "1"}})
	got, err := s.Retag(t.Context(), r.ID, map[string]string{"b": "2"})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"b": "2"}, got.Tags)
	_, err = s.Retag(t.Context(), "sb-99", nil)
	require.ErrorIs(t, err, sandbox.ErrNotFound)
}

func TestReachIsNoActivityAndUseIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.New(sandbox.ExtendActivity, fake.Behaviour{})
		r := create(t, s, fake.Order{Window: time.Minute})
		time.Sleep(30 * time.Second)
		require.NoError(t, s.Reach(t.Context(), sandbox.OpEndpoint, r.ID))
		left := func() time.Duration {
			got, ok := s.Lookup(r.ID)
			require.True(t, ok)
			return got.Deadline.Sub(got.AsOf)
		}
		assert.Equal(t, 30*time.Second, left())
		u, err := s.Use(t.Context(), sandbox.OpExec, r.ID)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, time.Minute, left(), "a full idle time while it is under way")
		require.NoError(t, u.Ended())
		u.Release()
		u.Release()
		time.Sleep(time.Minute)
		require.ErrorIs(t, u.Ended(), sandbox.ErrNotFound)
		require.ErrorIs(t, s.Reach(t.Context(), sandbox.OpEndpoint, r.ID), sandbox.ErrNotFound)
	})
}

func TestListPagesByLimitAndRefusesForeignCursors(t *testing.T) {
	s := fake.New(sandbox.ExtendSet, fake.Behaviour{})
	for i := range 5 {
		create(t, s, fake.Order{Name: fmt.Sprint("n", i), Tags: map[string]string{"odd": fmt.Sprint(i % 2)}})
	}
	page, err := s.List(t.Context(), fake.Query{Limit: 2, Tags: []fake.Tag{{Key: "odd", Value: "0"}}})
	require.NoError(t, err)
	assert.Len(t, page.Records, 2)
	require.NotEmpty(t, page.Next)
	page, err = s.List(t.Context(), fake.Query{Limit: 2, Tags: []fake.Tag{{Key: "odd", Value: "0"}}, Cursor: page.Next})
	require.NoError(t, err)
	assert.Len(t, page.Records, 1)
	assert.Empty(t, page.Next)
	page, err = s.List(t.Context(), fake.Query{Name: "n1"})
	require.NoError(t, err)
	assert.Len(t, page.Records, 1, "n1, and not n10 or the like")
	_, err = s.List(t.Context(), fake.Query{Cursor: "x"})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}

func TestABehaviourIsACopy(t *testing.T) {
	s := fake.New(sandbox.ExtendSet, fake.Behaviour{})
	s.Behave(func(b *fake.Behaviour) { b.UnknownImages = []string{"x"} })
	s.Behaviour().UnknownImages[0] = "y"
	assert.Equal(t, []string{"x"}, s.Behaviour().UnknownImages)
}

func TestAWatcherThatPanicsDoesNotSilenceTheOthersForEver(t *testing.T) {
	s := fake.New(sandbox.ExtendSet, fake.Behaviour{})
	angry := true
	heard := 0
	s.Watch(func(fake.Change) {
		heard++
		if angry {
			panic("watcher")
		}
	})
	assert.Panics(t, func() { s.Create(t.Context(), fake.Order{}) })
	angry = false
	create(t, s, fake.Order{})
	assert.Equal(t, 2, heard)
}

// Whatever is done in whatever order: no lease reaches further than the longest window asked for, nothing runs past its
// deadline, and what has a lease is gone once it has ended.
func TestNoRandomLifeOutlivesItsLease(t *testing.T) {
	const window = 3 * time.Minute
	for seed := range uint64(200) {
		bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			b := fake.Behaviour{UniqueNames: rnd.IntN(2) == 0, StartTime: time.Duration(rnd.IntN(3)) * time.Second}
			b.EndTime, b.DeleteTime = time.Duration(rnd.IntN(3))*time.Second, time.Duration(rnd.IntN(3))*time.Second
			b.Lateness = time.Duration(rnd.IntN(3)) * time.Second
			s := fake.New(sandbox.ExtendSet, b)
			s.Watch(func(c fake.Change) {
				if left := c.Record.Deadline.Sub(c.At); !c.Record.Deadline.IsZero() && left > window {
					t.Errorf("%s at %v: %v left", c.Record.ID, c.At, left)
				}
			})
			var ids []string
			for range 100 {
				s.Fault(sandbox.OpExtend, fake.Fault{Effect: fake.Effect(rnd.IntN(10)), After: rnd.IntN(2) == 0, Late: rnd.IntN(4) == 0})
				delay := time.Duration(rnd.IntN(5)) * time.Second
				s.Fault(sandbox.OpDelete, fake.Fault{Effect: fake.Effect(rnd.IntN(2)), Delay: delay, Late: rnd.IntN(2) == 0})
				switch id := append(ids, "none")[rnd.IntN(len(ids)+1)]; rnd.IntN(8) {
				case 0:
					if r, err := s.Create(t.Context(), fake.Order{Name: fmt.Sprint(rnd.IntN(5)), Window: window}); err == nil {
						ids = append(ids, r.ID)
					}
				case 1, 2:
					s.Extend(t.Context(), id, time.Duration(1+rnd.Int64N(int64(window))))
				case 3:
					s.Delete(t.Context(), id)
				case 4:
					s.Kill(id)
				case 5:
					s.Pause(id)
				case 6:
					s.Resume(id)
				case 7:
					if u, err := s.Use(t.Context(), sandbox.OpExec, id); err == nil {
						u.Release()
					}
				}
				time.Sleep(time.Duration(rnd.IntN(40)) * time.Second)
				for _, r := range s.All() {
					if r.State.MayRun() && !r.Deadline.IsZero() && r.AsOf.Sub(r.Deadline) > b.Lateness+b.EndTime+b.DeleteTime {
						t.Errorf("%s is %s %v after its deadline", r.ID, r.State, r.AsOf.Sub(r.Deadline))
					}
				}
			}
			s.Expire()
			for _, r := range s.All() {
				if r.State.MayRun() {
					t.Errorf("%s is still %s", r.ID, r.State)
				}
			}
		})
	}
}

func TestManyCallersInOneBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.New(sandbox.ExtendSet, fake.Behaviour{})
		s.Fault(sandbox.OpExtend, fake.Fault{Delay: time.Second, Times: -1})
		done := make(chan error)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for range 100 {
			go func() {
				r, err := s.Create(ctx, fake.Order{Window: time.Minute})
				for range 10 {
					if err == nil {
						_, err = s.Extend(ctx, r.ID, time.Minute)
					}
				}
				if err == nil {
					err = s.Delete(ctx, r.ID)
				}
				done <- err
			}()
		}
		start := time.Now()
		for range 100 {
			require.NoError(t, <-done)
		}
		assert.Equal(t, 10*time.Second, time.Since(start), "side by side, not one after another")
		assert.Empty(t, s.All())
	})
}

func BenchmarkALifeAmongTenThousandOthers(b *testing.B) {
	s := fake.New(sandbox.ExtendSet, fake.Behaviour{UniqueNames: true})
	for i := range 10_000 {
		s.Create(b.Context(), fake.Order{Name: fmt.Sprint("other", i), Window: time.Hour})
	}
	i := 0
	for b.Loop() {
		i++
		r, err := s.Create(b.Context(), fake.Order{Name: fmt.Sprint("n", i), Window: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		s.Extend(b.Context(), r.ID, time.Minute)
		s.Delete(b.Context(), r.ID)
	}
}
