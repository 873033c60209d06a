package boat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// The fake acts on a TTL up to 1 s late and takes 5 s to archive.
const lateness = 6 * time.Second

// startAllowance is what a create's window has beyond the beats'.
const startAllowance = time.Minute

func TestAtAnyInstantOfTenHoursTheDeadlineIsAtMostTheWindowAheadAndNothingRunsLongerThanItsOwner(t *testing.T) {
	const window, session = 3 * time.Minute, 10 * time.Hour
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	deaths := []time.Duration{0, 100 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 2 * time.Minute, session - time.Second}
	for range 8 {
		deaths = append(deaths, time.Duration(random.Int64N(int64(session))))
	}
	for _, death := range deaths {
		t.Run(fmt.Sprint(death), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var mu sync.Mutex
				var ahead []time.Duration
				w.Service().Watch(func(c fake.Change) {
					if c.Record.State == sandbox.StateRunning && !c.Record.Deadline.IsZero() {
						mu.Lock()
						defer mu.Unlock()
						ahead = append(ahead, c.Record.Deadline.Sub(c.At))
					}
				})
				m := w.manager(func(c *sandbox.Config) { c.Scope.Window, c.Scope.MaxLifetime = window, session })
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
					most += startAllowance
				}
				mu.Unlock()
				time.Sleep(most + lateness)
				w.Settle()
				for _, row := range w.All() {
					assert.Equal(t, sandbox.StateDormant, w.state(row.ID), "%v after its owner", most+lateness)
				}
				assert.Error(t, <-done)
				mu.Lock()
				defer mu.Unlock()
				for i, a := range ahead {
					assert.LessOrEqual(t, a, window+startAllowance, "change %d", i)
					if i >= 2 {
						assert.LessOrEqual(t, a, window, "change %d", i)
					}
				}
			})
		})
	}
}

func TestTheRecordOfADeadOwnerIsFoundByTheSweeper(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		done := make(chan error, 1)
		go func() {
			done <- w.manager().WithSandbox(t.Context(), func(ctx context.Context, _ sandbox.Sandbox) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(20 * time.Minute)
		heal := w.net.Break(memnet.Fault{Kind: memnet.Partition})
		assert.Error(t, <-done)
		heal()
		require.Len(t, w.left(fleet), 1)
		w.sweep(4)
		assert.Empty(t, w.left(fleet))
	})
}

func TestWhatCannotWorkIsATypedErrorAndLeavesNothing(t *testing.T) {
	large := sandbox.Spec{CPU: 8, Memory: 16 << 30, Disk: 125 << 30}
	for name, c := range map[string]struct {
		quirk func(*boatfake.Quirks)
		spec  sandbox.Spec
		want  error
		says  string
	}{
		"a bad key":               {func(q *boatfake.Quirks) { q.Denied = true }, sandbox.Spec{}, sandbox.ErrUnauthenticated, "is the key right"},
		"a key that may not":      {func(q *boatfake.Quirks) { q.Forbidden = []string{"sandbox.create"} }, sandbox.Spec{}, sandbox.ErrPermission, "full-sandbox"},
		"no plan":                 {func(q *boatfake.Quirks) { q.Unpaid = true }, sandbox.Spec{}, sandbox.ErrPermission, "no plan or credit"},
		"a plan without the size": {func(q *boatfake.Quirks) { q.Trial = true }, large, sandbox.ErrPermission, "large"},
		"a quota reached":         {func(q *boatfake.Quirks) { q.Plan.MaxActive = 1 }, sandbox.Spec{}, sandbox.ErrQuota, "GET /limits"},
		"no capacity":             {func(q *boatfake.Quirks) { q.OutOfCapacity = true }, sandbox.Spec{}, sandbox.ErrUnavailable, "out_of_capacity"},
		"an unknown snapshot":     {func(*boatfake.Quirks) {}, sandbox.Spec{Image: "nosuch"}, sandbox.ErrInvalid, "nosuch"},
		"an unknown environment":  {func(*boatfake.Quirks) {}, sandbox.Spec{Native: &boat.Options{Environment: "nosuch"}}, sandbox.ErrInvalid, "nosuch"},
		"a size of no meaning":    {func(*boatfake.Quirks) {}, sandbox.Spec{CPU: 3}, errors.ErrUnsupported, "there are 2 CPUs"},
		"a web page":              {func(q *boatfake.Quirks) { q.HTML = true }, sandbox.Spec{}, sandbox.ErrInvalid, "/api/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				if name == "a quota reached" {
					other := request(time.Hour)
					other.Mark.Fleet = "other"
					w.make(other)
				}
				w.Change(c.quirk)
				err := w.manager().WithSandbox(t.Context(), quiet, func(s *sandbox.Scope) { s.Spec = c.spec })
				require.ErrorIs(t, err, sandbox.ErrNotStarted)
				require.ErrorIs(t, err, c.want)
				require.ErrorContains(t, err, c.says)
				assert.NotContains(t, err.Error(), key)
				leak, _ := errors.AsType[*sandbox.LeakError](err)
				assert.Nil(t, leak, "%v", err)
				assert.Empty(t, w.left(fleet))
			})
		})
	}
	for base, org := range map[string]string{"http://boat.test": "personal", "http://boat.test/api/v2": "personal", baseURL: "nosuch"} {
		t.Run("wrong: "+strings.TrimPrefix(base, "http://")+" of "+org, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				began := time.Now()
				err := w.manager().WithSandbox(t.Context(), quiet)
				require.True(t, errors.Is(err, sandbox.ErrInvalid) || errors.Is(err, sandbox.ErrPermission), "%v", err)
				assert.Less(t, time.Since(began), time.Second)
				leak, _ := errors.AsType[*sandbox.LeakError](err)
				assert.Nil(t, leak, "%v", err)
				assert.Empty(t, w.All())
			}, func(_ *boatfake.Options, c *boat.Config) { c.BaseURL, c.Org = base, org })
		})
	}
	t.Run("two organizations of one name", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			err := w.manager().WithSandbox(t.Context(), quiet)
			require.ErrorIs(t, err, sandbox.ErrInvalid)
			require.ErrorContains(t, err, "Config.Org")
			assert.Empty(t, w.All())
		}, func(o *boatfake.Options, c *boat.Config) {
			o.Teams = []boatfake.Team{{ID: "team_1", Name: "red"}, {ID: "team_2", Name: "red"}}
			c.Org = "red"
		})
	})
}

// What a life costs is in the README.
func TestAnUndisturbedLifeCostsFewRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		beats := 0
		require.NoError(t, w.manager().WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error {
			time.Sleep(10 * time.Second)
			from := len(w.Requests())
			time.Sleep(30 * time.Minute)
			beats = w.count(from, http.MethodPatch, "/sandboxes/")
			assert.Len(t, w.Requests(), from+beats, "one request a beat")
			return nil
		}))
		assert.InDelta(t, 30, beats, 5)
		counts := map[string]int{}
		for _, r := range w.Requests() {
			counts[r.Operation]++
		}
		t.Logf("%v with %d beats", counts, beats)
		assert.Equal(t, 1, counts["create"])
		assert.Equal(t, 1, counts["deleteSandbox"])
		assert.LessOrEqual(t, counts["update"], beats+3, "the name, and a beat at once")
		// The machine takes 2 s to start, and is looked at meanwhile; then there is one look after the delete.
		assert.LessOrEqual(t, counts["get"], 8)
		assert.Len(t, counts, 4, "no list")
	})
	inBubble(t, func(t *testing.T, w *world) { // with a machine that is there at once
		w.Service().Behave(func(b *fake.Behaviour) { b.StartTime = 0 })
		require.NoError(t, w.manager().WithSandbox(t.Context(), func(ctx context.Context, _ sandbox.Sandbox) error {
			return wait(ctx, 10*time.Second)
		}))
		var ops []string
		for _, r := range w.Requests() {
			ops = append(ops, r.Operation)
		}
		assert.LessOrEqual(t, len(ops), 6, "%v: create, name, a beat at once, at most one look, delete, look", ops)
	})
}

func TestABeatWritesTheMarkAgainThatSomebodyHasEdited(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		require.NoError(t, w.manager().WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			w.Rename(sb.ID(), "my machine")
			require.NoError(t, wait(ctx, 3*time.Minute))
			row, _ := w.Lookup(sb.ID())
			mark, err := sandbox.ParseMark(row.Name)
			require.NoError(t, err)
			assert.Equal(t, fleet, mark.Fleet)
			return nil
		}))
	})
}

func TestARunOverManyFailuresLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.manager()
		for i, f := range []struct {
			operation string
			boatfake.Fault
		}{
			{"create", boatfake.Fault{Drop: true, After: true}},
			{"create", boatfake.Fault{Status: 500}},
			{"create", boatfake.Fault{Status: 503, Code: "no_ready_machine"}},
			{"create", boatfake.Fault{Cut: 40}},
			{"update", boatfake.Fault{Drop: true}},
			{"update", boatfake.Fault{Status: 502, After: true}},
			{"get", boatfake.Fault{Status: 500, Times: 2}},
			{"get", boatfake.Fault{Hang: true}},
			{"get", boatfake.Fault{Body: `{"ok":true}`, Header: http.Header{"Content-Type": {"application/json"}}}},
			{"deleteSandbox", boatfake.Fault{Drop: true, After: true}},
			{"deleteSandbox", boatfake.Fault{Status: 409, Code: "save_in_progress", Times: 3}},
			{"deleteSandbox", boatfake.Fault{Ignore: true}},
			{"deleteSandbox", boatfake.Fault{Hang: true}},
		} {
			w.Fault(f.operation, f.Fault)
			err := m.WithSandbox(t.Context(), func(ctx context.Context, _ sandbox.Sandbox) error { return wait(ctx, 3*time.Minute) })
			leak, _ := errors.AsType[*sandbox.LeakError](err)
			assert.Nil(t, leak, "fault %d: %v", i, err)
			assert.Empty(t, w.All(), "fault %d", i)
			w.Heal()
		}
	})
}

func TestCheckSaysWhoseKeyItIsAndWhatThePlanAllows(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Change(func(q *boatfake.Quirks) { q.Plan = boatfake.SmallPlan() })
		account, err := w.p.Check(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "user_1", account.ID)
		assert.Equal(t, 100, account.MaxLive)
		for _, r := range w.Requests() {
			assert.Equal(t, http.MethodGet, r.Method)
		}
		w.Change(func(q *boatfake.Quirks) { q.Forbidden = []string{"account.read"} })
		_, err = w.provider(boat.Config{}).Check(t.Context())
		require.NoError(t, err, "a key need not be allowed to know that")
		w.Change(func(q *boatfake.Quirks) { q.Forbidden = []string{"sandbox.read"} })
		_, err = w.provider(boat.Config{}).Check(t.Context())
		require.ErrorIs(t, err, sandbox.ErrPermission)
		w.Change(func(q *boatfake.Quirks) { q.Denied = true })
		_, err = w.p.Check(t.Context())
		require.ErrorIs(t, err, sandbox.ErrUnauthenticated)
		_, err = w.provider(boat.Config{Org: "nosuch"}).Check(t.Context())
		require.Error(t, err)
	})
}
