package sweep_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// TestTenThousand sweeps an account of 10,000 sandboxes, twice and by two sweepers at once, while 30 % of the deletes fail
// and one hangs: all that can be proven ownerless goes, and nothing else is so much as asked to.
func TestTenThousand(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		var hidden, aliveOwner, deadOwner set // what tells no lease; whose owner is known to be alive, or dead
		w.onAnswer = func(i *sandbox.Info) {
			if hidden.has(i.ID) {
				i.Deadline = time.Time{}
			}
		}

		passed := w.make(2000)
		over := w.make(800, lifetime(time.Minute))
		hidden.add(over...)
		orphans := w.make(800)
		hidden.add(orphans...)
		deadOwner.add(orphans...)
		residue := w.make(800)
		w.pause(residue...)

		var foreign []string
		for _, id := range w.make(1000) {
			require.True(w.t, w.DropTags(id))
			foreign = append(foreign, id)
		}
		foreign = append(foreign, w.make(500, ofFleet("ci-agent"))...)
		foreign = append(foreign, w.make(500, ofFleet("Ci-agents"))...)
		for _, id := range passed[:1000] {
			foreign = append(foreign, w.Fork(id))
		}
		byOwner := w.make(500)
		w.pause(byOwner...)
		aliveOwner.add(byOwner...)
		unknown := w.make(500)
		hidden.add(unknown...)
		protected := w.make(100, tag("keep", "yes"))
		time.Sleep(10 * time.Minute)
		leased := w.make(1000, window(24*time.Hour))
		time.Sleep(time.Minute)
		require.Len(t, append(w.Live(), w.Residue()...), 9500)

		var fresh []string
		var once sync.Once
		w.onList = func() {
			once.Do(func() {
				fresh = w.make(500)
				hidden.add(fresh...)
				deadOwner.add(fresh...)
			})
		}
		w.Behave(func(b *sandboxtest.Behaviour) { b.IgnoreFilter = true })
		var failed, asked atomic.Int64
		random, mu := rand.New(rand.NewPCG(1, 2)), sync.Mutex{}
		stuck := passed[77]
		w.onDelete = func(ctx context.Context, id string) error {
			if id == stuck {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			mu.Lock()
			dice := random.IntN(100)
			mu.Unlock()
			asked.Add(1)
			if dice >= 30 {
				return nil
			}
			failed.Add(1)
			err := sandboxtest.Status(503)
			if dice < 15 {
				err = sandboxtest.Status(429)
				err.RetryAfter = time.Second
			}
			return err
		}
		liveness := func(_ context.Context, i sandbox.Info) (sweep.Life, error) {
			switch {
			case aliveOwner.has(i.ID):
				return sweep.Alive, nil
			case deadOwner.has(i.ID):
				return sweep.Dead, nil
			}
			return sweep.Unknown, nil
		}
		config := func(c *sweep.Config) {
			c.Liveness, c.ProtectTags, c.MaxDeletes = liveness, map[string]string{"keep": "yes"}, 10_000
		}
		one, two := w.sweeper(config), w.sweeper(config)

		var wg sync.WaitGroup
		var first sweep.Report
		wg.Go(func() {
			var err error
			first, err = one.Sweep(w.t.Context())
			assert.ErrorIs(t, err, sweep.ErrLeft)
			assert.ErrorContains(t, err, stuck)
			assert.NotErrorIs(t, err, sweep.ErrBlind)
		})
		wg.Go(func() {
			_, err := two.Sweep(w.t.Context())
			assert.ErrorIs(t, err, sweep.ErrLeft)
		})
		wg.Wait()

		assert.Equal(t, []string{stuck}, w.there(passed...), "running, with a lease long passed")
		assert.Empty(t, w.there(over...), "past their hard end")
		assert.Empty(t, w.there(orphans...), "of dead owners")
		assert.Len(t, w.there(residue...), len(residue), "residue that one pass has seen")
		assert.Len(t, w.there(fresh...), 500, "made while the pass was under way")
		assert.Equal(t, 3000, first.Accounts[0].Foreign)
		assert.Equal(t, 10_000, first.Accounts[0].Seen)
		assert.InDelta(t, 0.3, float64(failed.Load())/float64(asked.Load()), 0.05, "the share of deletes that failed")

		deadOwner.mu.Lock()
		deadOwner.ids = nil
		deadOwner.mu.Unlock()
		time.Sleep(15 * time.Minute)
		_, err := one.Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrLeft)
		assert.Empty(t, w.there(residue...), "residue that two passes have seen")

		for name, ids := range map[string][]string{
			"foreign": foreign, "alive by lease": leased, "alive by liveness": byOwner,
			"just created": fresh, "unknown": unknown, "protected": protected,
		} {
			assert.Len(t, w.there(ids...), len(ids), name)
			var untouchable set
			untouchable.add(ids...)
			for _, c := range w.Calls(sandbox.OpDelete, sandbox.OpShorten) {
				if untouchable.has(c.ID) {
					assert.Fail(t, "touched", "%s %s, which is %s", c.Op, c.ID, name)
				}
			}
		}
	})
}

func TestAServiceThatAsksForAPauseHasIt(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(50)
		time.Sleep(10 * time.Minute)
		var until time.Time
		var mu sync.Mutex
		n := 0
		w.onDelete = func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n%10 != 0 {
				return nil
			}
			until = time.Now().Add(90 * time.Second)
			err := sandboxtest.Status(429)
			err.RetryAfter = 90 * time.Second
			return err
		}
		w.onGet = func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			assert.False(t, time.Now().Before(until), "asked again %v before the end of the pause", time.Until(until))
			return nil
		}
		r, err := w.sweeper(func(c *sweep.Config) { c.Parallel = 1 }).Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(ids...))
		assert.Equal(t, 50, r.Count(sweep.Deleted))
		assert.False(t, until.IsZero(), "no pause was asked for")
	})
}

func TestAPauseIsNoPartOfASandboxsTime(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(6)
		time.Sleep(10 * time.Minute)
		limited := sandboxtest.Status(429)
		limited.RetryAfter = 5 * time.Minute
		w.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: limited}, sandboxtest.Fault{}, sandboxtest.Fault{}, sandboxtest.Fault{Err: limited})
		began := time.Now()
		_, err := w.sweeper(func(c *sweep.Config) { c.Parallel, c.ItemTimeout = 1, time.Minute }).Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(ids...))
		assert.GreaterOrEqual(t, time.Since(began), 10*time.Minute)
	})
	t.Run("nor if it begins between two looks", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			ids := w.make(1)
			time.Sleep(10 * time.Minute)
			limited := sandboxtest.Status(429)
			limited.RetryAfter = 5 * time.Minute
			w.Fault(sandbox.OpGet, sandboxtest.Fault{Err: limited})
			_, err := w.sweeper(func(c *sweep.Config) { c.ItemTimeout = time.Minute }).Sweep(w.t.Context())
			require.NoError(t, err)
			assert.Empty(t, w.there(ids...))
		})
	})
	t.Run("but one of hours is for the next pass", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			ids := w.make(20)
			time.Sleep(10 * time.Minute)
			limited := sandboxtest.Status(429)
			limited.RetryAfter = 5 * time.Hour
			w.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: limited})
			began := time.Now()
			s := w.sweeper(func(c *sweep.Config) { c.Parallel = 1 })
			_, err := s.Sweep(w.t.Context())
			require.ErrorIs(t, err, sweep.ErrLeft)
			require.ErrorIs(t, err, sandbox.ErrRateLimited)
			assert.Len(t, w.Calls(sandbox.OpDelete), 1)
			assert.Less(t, time.Since(began), 10*time.Minute)
			time.Sleep(5 * time.Hour)
			_, err = s.Sweep(w.t.Context())
			require.NoError(t, err)
			assert.Empty(t, w.there(ids...))
		})
	})
}

func TestOneThatHangsDelaysNobody(t *testing.T) {
	for name, deaf := range map[string]bool{"until it is given up": false, "whatever is done": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				ids := w.make(60)
				other := &world{t: t, Provider: sandboxtest.Kind{Name: "other", Capabilities: sandboxtest.Everything()}.New(), n: 1000}
				other.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
				elsewhere := other.make(60)
				time.Sleep(10 * time.Minute)
				release := make(chan struct{})
				defer close(release)
				w.onGet = func(ctx context.Context, id string) error {
					switch {
					case id != ids[0]:
						return nil
					case deaf:
						<-release
					default:
						<-ctx.Done()
					}
					return context.Cause(ctx)
				}
				began := time.Now()
				s := w.sweeper(func(c *sweep.Config) { c.Parallel, c.Providers = 2, append(c.Providers, other.account()) })
				r, err := s.Sweep(w.t.Context())
				require.ErrorIs(t, err, sweep.ErrLeft)
				assert.Equal(t, ids[:1], w.there(ids...))
				assert.Empty(t, other.there(elsewhere...))
				assert.Equal(t, sweep.Left, w.item(r, ids[0]).Outcome)
				for _, c := range append(w.Calls(sandbox.OpDelete), other.Calls(sandbox.OpDelete)...) {
					assert.Less(t, c.Start.Sub(began), 5*time.Second, "the delete of %s waited", c.ID)
				}
				assert.LessOrEqual(t, time.Since(began), 3*time.Minute)
			})
		})
	}
}

func TestADryRunMakesNoRequestThatWrites(t *testing.T) { // I24
	inWorld(t, nil, func(w *world) {
		ids := w.make(40)
		w.make(10, lifetime(time.Minute), window(time.Hour))
		time.Sleep(10 * time.Minute)
		before := len(w.writes())
		r, err := w.sweeper(func(c *sweep.Config) { c.DryRun = true }).Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Equal(t, 50, r.Count(sweep.WouldDelete))
		assert.Len(t, w.writes(), before)
		assert.Len(t, w.there(ids...), 40)
	})
}

func TestNoClockButTheServicesCounts(t *testing.T) { // J03
	for _, skew := range []time.Duration{-2 * time.Hour, 0, 2 * time.Hour} {
		for _, owner := range []time.Duration{-2 * time.Hour, 0, 2 * time.Hour} {
			t.Run("service "+skew.String()+", owner "+owner.String(), func(t *testing.T) {
				inWorld(t, nil, func(w *world) {
					w.Behave(func(b *sandboxtest.Behaviour) { b.Skew = skew })
					clock := func(r *sandbox.CreateRequest) { r.Mark.Created = time.Now().Add(owner) }
					dead := w.make(5, clock)
					over := w.make(5, clock, lifetime(time.Minute), window(24*time.Hour))
					time.Sleep(10 * time.Minute)
					living := w.make(5, clock, lifetime(time.Hour), window(3*time.Minute))
					hidden := w.make(5, clock, lifetime(time.Hour))
					w.onAnswer = func(i *sandbox.Info) {
						for _, id := range hidden {
							if i.ID == id {
								i.Deadline = time.Time{}
							}
						}
					}
					time.Sleep(2 * time.Minute)
					_, err := w.sweeper().Sweep(w.t.Context())
					require.NoError(t, err)
					assert.Empty(t, w.there(dead...), "dead by lease")
					assert.Empty(t, w.there(over...), "past their hard end")
					assert.Len(t, w.there(living...), 5)
					assert.Len(t, w.there(hidden...), 5)
				})
			})
		}
	}
}

func TestListsWithoutZonesAreLookedThrough(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) { b.ZonelessTimes = true })
		dead := w.make(5)
		over := w.make(5, lifetime(time.Minute), window(24*time.Hour))
		time.Sleep(10 * time.Minute)
		living := w.make(5, window(time.Hour))
		time.Sleep(time.Minute)
		_, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(dead...))
		assert.Empty(t, w.there(over...))
		assert.Len(t, w.there(living...), 5)
	})
	t.Run("and where no answer tells a time nothing is old enough", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			ids := w.make(5, lifetime(time.Minute))
			w.onAnswer = func(i *sandbox.Info) { i.Created, i.Deadline = time.Time{}, time.Time{} }
			time.Sleep(100 * time.Hour)
			dead := func(context.Context, sandbox.Info) (sweep.Life, error) { return sweep.Dead, nil }
			_, err := w.sweeper(func(c *sweep.Config) { c.Liveness = dead }).Sweep(w.t.Context())
			require.NoError(t, err)
			assert.Len(t, w.there(ids...), 5)
		})
	})
}
