package daytona_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// The fake acts on a TTL up to 10 s late and takes 2 s to destroy.
const lateness = 12 * time.Second

func TestAtAnyInstantOfTenHoursTheDeadlineIsAtMostTheWindowAheadAndNothingOutlivesItsOwnerLonger(t *testing.T) {
	const window, session = 3 * time.Minute, 10 * time.Hour
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	deaths := []time.Duration{
		0, 100 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 2 * time.Minute, session - time.Second,
	}
	for range 8 {
		deaths = append(deaths, time.Duration(random.Int64N(int64(session))))
	}
	for _, death := range deaths {
		t.Run(fmt.Sprint(death), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var mu sync.Mutex
				var ahead []time.Duration
				w.Service().Watch(func(c fake.Change) {
					if c.Record.State == sandbox.StateRunning {
						mu.Lock()
						defer mu.Unlock()
						ahead = append(ahead, c.Record.Deadline.Sub(c.At))
					}
				})
				m := w.manager(t, func(c *sandbox.Config) { c.Scope.Window, c.Scope.MaxLifetime = window, session })
				done := make(chan error, 1)
				go func() {
					done <- m.WithSandbox(t.Context(), func(ctx context.Context, _ sandbox.Sandbox) error {
						<-ctx.Done()
						return context.Cause(ctx)
					})
				}()
				time.Sleep(death)
				w.net.Break(memnet.Fault{Kind: memnet.Partition}) // the owner and its host are gone, as far as the service can see
				most := window
				mu.Lock()
				if len(ahead) < 2 { // no beat yet: it is the create's own window
					most += 2 * time.Minute
				}
				mu.Unlock()
				time.Sleep(most + lateness)
				w.Settle()
				for _, rec := range w.Service().All() {
					assert.Equal(t, sandbox.StateGone, rec.State, "%v after its owner", most+lateness)
				}
				assert.Error(t, <-done)
				mu.Lock()
				defer mu.Unlock()
				for i, a := range ahead {
					limit := window
					if i == 0 {
						limit += 2 * time.Minute
					}
					assert.LessOrEqual(t, a, limit, "change %d", i)
				}
			})
		})
	}
}

func TestTheLongestLifeOfAnOrganizationEndsAScopeInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Service().Behave(func(b *fake.Behaviour) { b.PlanLifetime = 20 * time.Minute })
		began := time.Now()
		err := w.manager(t).WithSandbox(t.Context(), func(ctx context.Context, _ sandbox.Sandbox) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, sandbox.ErrMaxLifetime)
		require.NotErrorIs(t, err, sandbox.ErrLeaseLost)
		assert.Less(t, time.Since(began), 20*time.Minute)
		assert.Empty(t, w.left(fleet))
	})
	inBubble(t, func(t *testing.T, w *world) {
		w.Service().Behave(func(b *fake.Behaviour) { b.PlanLifetime = time.Minute })
		err := w.manager(t).WithSandbox(t.Context(), quiet)
		require.ErrorIs(t, err, sandbox.ErrNotStarted)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		require.ErrorContains(t, err, "maxSandboxLifespan")
		assert.Empty(t, w.left(fleet))
	})
}

func TestWhatCannotWorkIsATypedErrorAndLeavesNothing(t *testing.T) {
	denied := func(w *world) { w.Quirk(func(q *daytonafake.Quirks) { q.Denied = true }) }
	habit := func(on func(*fake.Behaviour)) func(*world) {
		return func(w *world) { w.Service().Behave(on) }
	}
	full, picky := habit(func(b *fake.Behaviour) { b.MaxLive = 1 }), habit(func(b *fake.Behaviour) { b.UnknownImages = []string{"x"} })
	for name, c := range map[string]struct {
		world func(*world)
		spec  sandbox.Spec
		want  error
		says  string
	}{
		"a bad key":            {denied, sandbox.Spec{}, sandbox.ErrUnauthenticated, "401"},
		"a quota reached":      {full, sandbox.Spec{}, sandbox.ErrInvalid, "quota"},
		"an unknown snapshot":  {picky, sandbox.Spec{Image: "x"}, sandbox.ErrInvalid, "snapshot"},
		"a size of no meaning": {func(*world) {}, sandbox.Spec{CPU: 2}, errors.ErrUnsupported, "Dockerfile"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				if name == "a quota reached" {
					other := request(time.Hour)
					other.Mark.Fleet = "other"
					w.make(t, other)
				}
				c.world(w)
				err := w.manager(t).WithSandbox(t.Context(), quiet, func(s *sandbox.Scope) { s.Spec = c.spec })
				require.ErrorIs(t, err, sandbox.ErrNotStarted)
				require.ErrorIs(t, err, c.want)
				require.ErrorContains(t, err, c.says)
				assert.Empty(t, w.left(fleet))
			})
		})
	}
	t.Run("a wrong base URL", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			for _, base := range []string{"http://daytona.test", "http://daytona.test/app"} {
				client := w.net.Client()
				p, err := newProvider(base, client)
				require.NoError(t, err)
				m, err := sandbox.NewManager(p, sandbox.Config{Fleet: fleet})
				require.NoError(t, err)
				began := time.Now()
				err = m.WithSandbox(t.Context(), quiet)
				require.ErrorIs(t, err, sandbox.ErrInvalid)
				require.ErrorContains(t, err, "/api")
				assert.Less(t, time.Since(began), time.Second)
				client.CloseIdleConnections()
			}
			assert.Empty(t, w.left(fleet))
		})
	})
}

// What a life costs is in the README.
func TestAnUndisturbedLifeCostsFewRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		beats := 0
		require.NoError(t, w.manager(t).WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error {
			time.Sleep(10 * time.Second)
			from := len(w.Requests())
			time.Sleep(30 * time.Minute)
			beats = w.count(from, http.MethodPost, "/ttl/")
			assert.Len(t, w.Requests(), from+beats, "one request a beat")
			return nil
		}))
		assert.InDelta(t, 30, beats, 5)
		counts := map[string]int{}
		for _, r := range w.Requests() {
			counts[r.Operation]++
		}
		t.Logf("%v", counts)
		assert.Equal(t, 1, counts["createSandbox"])
		assert.Equal(t, 1, counts["deleteSandbox"])
		assert.LessOrEqual(t, counts["setTtl"], beats+2)
		assert.LessOrEqual(t, counts["listSandboxes"], 3, "one beside the last look, two as a second witness")
		// The platform takes 2 s to destroy, and is looked at meanwhile; else there is one look before and one after.
		assert.LessOrEqual(t, counts["getSandbox"], 9)
		assert.Len(t, counts, 5)
	})
}

func TestASweeperRemovesWhatWasMadeOfADeadOwnersSandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(t, request(5*time.Minute))
		other := request(24 * time.Hour)
		other.Mark.Fleet = "other"
		kept := w.make(t, other)
		ours := w.Service().Snapshot(daytonafake.MachineID(info.ID))
		theirs := w.Service().Snapshot(daytonafake.MachineID(kept.ID))
		var ids []string
		for snap, err := range w.p.Snapshots(t.Context(), info.ID) {
			require.NoError(t, err)
			ids = append(ids, snap.ID)
		}
		assert.Equal(t, []string{ours}, ids)
		w.Service().Behave(func(b *fake.Behaviour) { b.Unenforced = true }) // so that the sweeper finds it alive past its lease
		time.Sleep(10 * time.Minute)
		s, err := sweep.New(sweep.Config{Fleet: fleet, Providers: []sandbox.Provider{w.p}})
		require.NoError(t, err)
		for range 4 {
			_, err := s.Sweep(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Minute)
		}
		assert.Empty(t, w.left(fleet))
		var left []string
		for _, source := range []string{info.ID, kept.ID} {
			for snap, err := range w.p.Snapshots(t.Context(), source) {
				require.NoError(t, err)
				left = append(left, snap.ID)
			}
		}
		assert.Equal(t, []string{theirs}, left)
	})
}
