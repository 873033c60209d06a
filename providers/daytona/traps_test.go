package daytona_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// The tests of this file are named after the leak traps of Daytona, in the order of the protocol page.

// inBubble is [synctest.Test] with a world.
func inBubble(t *testing.T, test func(t *testing.T, w *world), change ...func(*daytona.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, change...)) })
}

func TestDaytona01AnAcceptedDeleteIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Service().Behave(func(b *fake.Behaviour) { b.DeleteTime = 30 * time.Second })
		var id string
		began := time.Now()
		require.NoError(t, w.manager(t).WithSandbox(t.Context(), func(_ context.Context, sb sandbox.Sandbox) error {
			id, began = sb.ID(), time.Now()
			return nil
		}))
		assert.GreaterOrEqual(t, time.Since(began), 30*time.Second)
		assert.Equal(t, sandbox.StateGone, w.state(id))
	})
}

func TestDaytona02AListThatFlapsNeitherHidesNorInventsASandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Service().Behave(func(b *fake.Behaviour) { b.ListFlaps, b.ListShowsDeleted = 3*time.Second, 3*time.Second })
		info := w.make(t, request(5*time.Minute))
		time.Sleep(5 * time.Second)
		require.NoError(t, w.p.Delete(t.Context(), info.ID))
		for w.state(info.ID) != sandbox.StateGone {
			time.Sleep(100 * time.Millisecond)
		}
		shown := 0
		for range 100 { // the look by id is right from the first moment on, whatever lists say
			_, err := w.p.Get(t.Context(), info.ID)
			require.ErrorIs(t, err, sandbox.ErrNotFound)
			all, err := collect(t.Context(), w.p, sandbox.Filter{Nonce: info.Mark.Nonce})
			require.NoError(t, err)
			shown += len(all)
			_, err = collect(t.Context(), w.p, sandbox.Filter{}) // the fake's lists flap by turns
			require.NoError(t, err)
			time.Sleep(50 * time.Millisecond)
		}
		assert.Positive(t, shown, "the fake's lists are to lag here")
		require.NoError(t, w.manager(t).WithSandbox(t.Context(), quiet))
		assert.Empty(t, w.left(fleet))
	})
}

func TestDaytona03AFailedSandboxIsHiddenByItsDeleteAndStillReported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(t, request(5*time.Minute))
		time.Sleep(5 * time.Second)
		require.True(t, w.Service().Fail(daytonafake.MachineID(info.ID), "runner lost"))
		seen, err := w.p.Get(t.Context(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateFailed, seen.State)
		assert.Contains(t, seen.Detail, "runner lost")

		require.NoError(t, w.p.Delete(t.Context(), info.ID))
		seen, err = w.p.Get(t.Context(), info.ID)
		require.NoError(t, err, "the service's own answer is 404")
		assert.Equal(t, sandbox.StateFailed, seen.State)
		assert.Contains(t, seen.Detail, "hidden")
		assert.Equal(t, info.Mark.String(), seen.Mark.String(), "although the name is another one")
		all, err := collect(t.Context(), w.p, sandbox.Filter{Nonce: info.Mark.Nonce})
		require.NoError(t, err)
		require.Len(t, all, 1)
		assert.Equal(t, sandbox.StateFailed, all[0].State)

		var id string
		err = w.manager(t).WithSandbox(t.Context(), func(_ context.Context, sb sandbox.Sandbox) error {
			id = sb.ID()
			w.Quirk(func(q *daytonafake.Quirks) { q.DestroyFails = true })
			return nil
		})
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok, "%v", err)
		require.Len(t, leak.Sandboxes, 1)
		assert.Equal(t, id, leak.Sandboxes[0].ID)
		assert.Equal(t, sandbox.StateFailed, leak.Sandboxes[0].State)
	})
}

func TestDaytona04ADeleteThatNeverEndsIsAskedForOnceAndReported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var id string
		from := 0
		err := w.manager(t).WithSandbox(t.Context(), func(_ context.Context, sb sandbox.Sandbox) error {
			id, from = sb.ID(), len(w.Requests())
			w.Service().Fault(sandbox.OpDelete, fake.Fault{Effect: fake.EffectBlocked})
			return nil
		})
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, id, leak.Sandboxes[0].ID)
		assert.Equal(t, sandbox.StateEnding, leak.Sandboxes[0].State)
		assert.ErrorContains(t, err, "accepted")
		assert.Equal(t, 1, w.count(from, http.MethodDelete, "/api/sandbox/"))
		require.NoError(t, w.p.Delete(t.Context(), id), "a refusal (409) of what is being deleted is a yes")
	})
}

func TestDaytona05ARefusalWhileASandboxStartsIsNoDelete(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Service().Behave(func(b *fake.Behaviour) { b.StartTime = 40 * time.Second })
		w.Quirk(func(q *daytonafake.Quirks) { q.CreateWait = 0 })
		info, err := w.p.Create(t.Context(), request(5*time.Minute))
		require.NoError(t, err)
		require.Equal(t, sandbox.StateStarting, info.State)
		err = w.p.Delete(t.Context(), info.ID)
		require.ErrorIs(t, err, sandbox.ErrConflict)
		require.NotErrorIs(t, err, sandbox.ErrNotFound)
		assert.Equal(t, sandbox.StateStarting, w.state(info.ID))

		from := len(w.Requests())
		err = w.manager(t, func(c *sandbox.Config) { c.ReadyTimeout = time.Second }).WithSandbox(t.Context(), quiet)
		require.ErrorIs(t, err, sandbox.ErrNotStarted)
		_, leaked := errors.AsType[*sandbox.LeakError](err)
		assert.False(t, leaked, "%v", err)
		assert.Greater(t, w.count(from, http.MethodDelete, "/api/sandbox/"), 2)
		require.NoError(t, sandbox.Terminate(t.Context(), w.p, info.ID))
		assert.Empty(t, w.left(fleet))
	})
}

func TestDaytona06WhatACreateMadeWithoutSayingSoIsFoundAndDeleted(t *testing.T) {
	t.Run("an answer that was lost", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.Fault("createSandbox", daytonafake.Fault{After: true, Drop: true})
			require.NoError(t, w.manager(t).WithSandbox(t.Context(), quiet), "it is found by its name")
			assert.Empty(t, w.left(fleet))
		})
	})
	t.Run("a 400 after the fact, without an id", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.Service().Behave(func(b *fake.Behaviour) { b.StartsFailed = true })
			req := request(5 * time.Minute)
			info, err := w.p.Create(t.Context(), req)
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.False(t, e.Refused)
			assert.Equal(t, http.StatusBadRequest, e.Status)
			assert.Equal(t, sandbox.StateFailed, info.State)
			require.Len(t, w.left(fleet), 1)
			assert.Equal(t, w.left(fleet)[0].ID, info.ID)

			err = w.manager(t).WithSandbox(t.Context(), quiet)
			require.ErrorIs(t, err, sandbox.ErrNotStarted)
			leak, ok := errors.AsType[*sandbox.LeakError](err)
			require.True(t, ok, "what has failed is hidden by its delete, and is not known to be gone: %v", err)
			assert.Equal(t, sandbox.StateFailed, leak.Sandboxes[0].State)
		})
	})
	t.Run("a 400 that was a refusal", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.Service().Behave(func(b *fake.Behaviour) { b.UnknownImages = []string{"none"} })
			req := request(5 * time.Minute)
			req.Spec.Image = "none"
			info, err := w.p.Create(t.Context(), req)
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.True(t, e.Refused)
			assert.Empty(t, info.ID)
		})
	})
	t.Run("a 400 whose meaning cannot be found out", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.Service().Behave(func(b *fake.Behaviour) { b.StartsFailed = true })
			w.Service().Fault(sandbox.OpGet, fake.Fault{Err: status(500)})
			_, err := w.p.Create(t.Context(), request(5*time.Minute))
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.False(t, e.Refused, "%v", err)
		})
	})
}

func TestDaytona07ASandboxWhoseOwnerWasKilledDies(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(t, request(3*time.Minute)) // and nobody extends it
		created, ok := w.Lookup(info.ID)
		require.True(t, ok)
		assert.Equal(t, 60, created.AutoStopInterval, "the lifetime, and never 0")
		assert.Equal(t, 0, created.AutoDeleteInterval)
		time.Sleep(3*time.Minute + w.p.Capabilities().Lateness + 2*time.Second)
		assert.Equal(t, sandbox.StateGone, w.state(info.ID))
	})
}

func TestDaytona08NoFailureOfADeleteIsASuccess(t *testing.T) {
	for _, code := range []int{401, 403, 408, 409, 429, 500, 502, 503, 504} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				journal := sandboxtest.NewJournal()
				var id string
				m := w.manager(t, func(c *sandbox.Config) { c.Journal = journal })
				err := m.WithSandbox(t.Context(), func(_ context.Context, sb sandbox.Sandbox) error {
					id = sb.ID()
					w.Fault("deleteSandbox", daytonafake.Fault{Status: code, Times: -1})
					require.Error(t, w.p.Delete(t.Context(), id))
					return nil
				})
				leak, ok := errors.AsType[*sandbox.LeakError](err)
				if w.state(id) != sandbox.StateGone {
					require.True(t, ok, "%v", err)
					assert.Equal(t, id, leak.Sandboxes[0].ID)
					assert.Len(t, journal.Entries(), 1)
				}
			})
		})
	}
}

func TestDaytona09AKeyThatMayNotDeleteIsFoundOutAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		account, err := w.p.Check(t.Context())
		require.NoError(t, err)
		assert.NotEmpty(t, account.ID)
		w.Service().Behave(func(b *fake.Behaviour) { b.NoDelete = true })
		_, err = w.p.Check(t.Context())
		require.ErrorIs(t, err, sandbox.ErrPermission)
		assert.ErrorContains(t, err, "delete:sandboxes")

		began := time.Now()
		err = w.manager(t).WithSandbox(t.Context(), quiet)
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok, "%v", err)
		require.ErrorIs(t, err, sandbox.ErrPermission)
		require.ErrorContains(t, err, "delete:sandboxes")
		assert.Less(t, time.Since(began), time.Minute)
		time.Sleep(time.Until(leak.Sandboxes[0].Deadline) + 5*time.Second)
		assert.Empty(t, w.left(fleet), "the lease ends it when the error says")
	})
}

func TestDaytona10ASandboxThatStopsIsDestroyedAndNeverArchived(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(t, request(2*time.Minute))
		from := len(w.Requests())
		time.Sleep(2*time.Minute + w.p.Capabilities().Lateness + 2*time.Second)
		assert.Equal(t, sandbox.StateGone, w.state(info.ID))
		assert.Len(t, w.Requests(), from)
	}, allowIdle)
}

func TestDaytona11ABeatOfADeadSandboxIsNoSuccess(t *testing.T) {
	for name, change := range map[string][]func(*daytona.Config){"with TTL": nil, "without": {allowIdle}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				info := w.make(t, request(5*time.Minute))
				require.True(t, w.Service().Kill(daytonafake.MachineID(info.ID)))
				time.Sleep(5 * time.Second)
				_, err := w.p.Extend(t.Context(), info, 3*time.Minute)
				require.ErrorIs(t, err, sandbox.ErrNotFound)

				began := time.Now()
				err = w.manager(t).WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
					w.Service().Kill(daytonafake.MachineID(sb.ID()))
					began = time.Now()
					<-ctx.Done()
					return context.Cause(ctx)
				})
				require.ErrorIs(t, err, sandbox.ErrLeaseLost)
				assert.Less(t, time.Since(began), 90*time.Second, "one beat, and what it takes to be sure")
			}, change...)
		})
	}
}

func TestDaytona12ABeatThatIsWrittenDownLateIsEarlyEnough(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, window := range []time.Duration{2 * time.Minute, 3 * time.Minute} {
			require.NoError(t, w.manager(t).WithSandbox(t.Context(), func(ctx context.Context, _ sandbox.Sandbox) error {
				select {
				case <-time.After(30 * time.Minute):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}, func(s *sandbox.Scope) { s.Window = window }))
		}
	}, allowIdle)
}

func TestDaytona13AQuietOwnerKeepsItsSandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		require.NoError(t, w.manager(t).WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			time.Sleep(50 * time.Minute) // much longer than the service's default of 15 min
			_, err := sb.Exec(ctx, sandbox.Shell("true"))
			return err
		}))
	})
}

func TestDaytona14ADeadDaemonIsUnavailableAndItsSandboxIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		err := w.manager(t).WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			w.Quirk(func(q *daytonafake.Quirks) { q.DaemonDead = true })
			_, err := sb.Exec(ctx, sandbox.Shell("true"))
			return err
		})
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		_, leaked := errors.AsType[*sandbox.LeakError](err)
		assert.False(t, leaked, "%v", err)
		assert.Empty(t, w.left(fleet))
	})
}

func TestDaytona15ListsShowWhatHasFailed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(t, request(5*time.Minute))
		require.True(t, w.Service().Fail(daytonafake.MachineID(info.ID), "gave up"))
		time.Sleep(5 * time.Second)
		for _, f := range []sandbox.Filter{{}, {Fleet: fleet}, {Nonce: info.Mark.Nonce}} {
			all, err := collect(t.Context(), w.p, f)
			require.NoError(t, err)
			require.Len(t, all, 1)
			assert.Equal(t, sandbox.StateFailed, all[0].State)
		}
	})
	for _, word := range []string{"error", "build_failed"} {
		assert.Equal(t, sandbox.StateFailed, daytona.StateOf(word))
	}
}

func TestDaytona16AnEndGivesTheQuotaBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Service().Behave(func(b *fake.Behaviour) { b.MaxLive = 1 })
		for range 3 {
			require.NoError(t, w.manager(t).WithSandbox(t.Context(), quiet))
		}
		info := w.make(t, request(5*time.Minute))
		_, err := w.p.Create(t.Context(), request(5*time.Minute))
		e, ok := errors.AsType[*sandbox.APIError](err)
		require.True(t, ok, "%v", err)
		assert.True(t, e.Refused)
		assert.ErrorContains(t, err, "quota")
		require.NoError(t, sandbox.Terminate(t.Context(), w.p, info.ID))
	})
}

func TestDaytona17ANameIsNoID(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(t, request(5*time.Minute))
		name := info.Mark.Name()
		_, err := w.p.Get(t.Context(), name)
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		require.ErrorIs(t, w.p.Delete(t.Context(), name), sandbox.ErrNotFound)
		_, err = w.p.Extend(t.Context(), sandbox.Info{ID: name}, time.Minute)
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		require.ErrorIs(t, w.p.Shorten(t.Context(), name, time.Minute), sandbox.ErrNotFound)
		assert.Equal(t, sandbox.StateRunning, w.state(info.ID))

		w.Service().Behave(func(b *fake.Behaviour) { b.DeleteTime = time.Minute })
		require.NoError(t, w.p.Delete(t.Context(), info.ID))
		seen, err := w.p.Get(t.Context(), info.ID)
		require.NoError(t, err, "the name is free already, and the sandbox still runs")
		assert.Equal(t, sandbox.StateEnding, seen.State)
		assert.Equal(t, info.Mark.String(), seen.Mark.String())
	})
}

func TestDaytona18AllPagesAreListedWhileActivityMovesThem(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Quirk(func(q *daytonafake.Quirks) { q.PageSize, q.CreateWait = 100, 0 })
		want := map[string]bool{}
		for range 250 {
			info, err := w.p.Create(t.Context(), request(10*time.Minute))
			require.NoError(t, err)
			want[info.ID] = true
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		seen := map[string]bool{}
		for info, err := range w.p.List(t.Context(), sandbox.Filter{Fleet: fleet}) {
			require.NoError(t, err)
			assert.False(t, seen[info.ID], "twice")
			if seen[info.ID] = true; len(seen)%50 == 1 { // the ones to come get busy
				for id := range want {
					if !seen[id] {
						_, err := w.p.Open(sandbox.Info{ID: id}).Exec(t.Context(), sandbox.Shell("true"))
						require.NoError(t, err)
						time.Sleep(12 * time.Second)
						break
					}
				}
			}
		}
		assert.Equal(t, want, seen)
	})
}

func TestDaytona19AnUnansweredCreateOfADeadProcessIsFoundByItsJournal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		journal := sandboxtest.NewJournal()
		mark := request(5 * time.Minute).Mark
		req := request(5 * time.Minute)
		req.Mark = mark
		require.NoError(t, journal.Put(t.Context(), sandbox.Entry{Provider: w.p.Name(), Mark: mark})) // as before every create
		w.Fault("createSandbox", daytonafake.Fault{After: true, Drop: true})
		_, err := w.p.Create(t.Context(), req)
		require.Error(t, err)
		require.Len(t, w.left(fleet), 1)
		journal.Abandon()
		require.NoError(t, w.manager(t, func(c *sandbox.Config) { c.Journal = journal }).Replay(t.Context()))
		assert.Empty(t, journal.Entries())
		assert.Empty(t, w.left(fleet))
	})
}

func TestDaytona20ForksAreDeletedBeforeTheirOriginal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		fork := func(id string) {
			address := "http://daytona.test/api/sandbox/" + id + "/fork"
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(`{}`))
			require.NoError(t, err)
			req.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}}
			client := w.net.Client()
			defer client.CloseIdleConnections()
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		bystander := w.make(t, request(60*time.Minute))
		require.NoError(t, w.manager(t).WithSandbox(t.Context(), func(_ context.Context, sb sandbox.Sandbox) error {
			fork(sb.ID())
			fork(sb.ID())
			require.ErrorIs(t, w.p.Delete(t.Context(), sb.ID()), sandbox.ErrConflict)
			return nil
		}))
		left := w.left(fleet)
		require.Len(t, left, 1)
		assert.Equal(t, bystander.ID, left[0].ID)

		info := w.make(t, request(5*time.Minute))
		fork(info.ID)
		time.Sleep(15 * time.Minute)
		s, err := sweep.New(sweep.Config{Fleet: fleet, Providers: []sandbox.Provider{w.p}})
		require.NoError(t, err)
		for range 3 {
			_, _ = s.Sweep(t.Context())
			time.Sleep(time.Minute)
		}
		left = w.left(fleet)
		require.Len(t, left, 1)
		assert.Equal(t, bystander.ID, left[0].ID)
	})
}

func TestDaytona21AServiceThatIgnoresTheTTLIsFoundOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Quirk(func(q *daytonafake.Quirks) { q.NoTTL = true })
		info, err := w.p.Create(t.Context(), request(5*time.Minute))
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "AllowIdle")
		assert.NotEmpty(t, info.ID, "it was made, so that the caller deletes it")
		require.NoError(t, sandbox.Terminate(t.Context(), w.p, info.ID))

		err = w.manager(t).WithSandbox(t.Context(), quiet)
		require.ErrorIs(t, err, sandbox.ErrNotStarted)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		assert.Empty(t, w.left(fleet))

		idle := w.provider(t, allowIdle)
		m, err := sandbox.NewManager(idle, sandbox.Config{Fleet: fleet})
		require.NoError(t, err)
		require.NoError(t, m.WithSandbox(t.Context(), quiet))
		assert.Empty(t, w.left(fleet))
	})
}

func TestDaytona22ANotFoundOfAnotherAccountClosesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		journal := sandboxtest.NewJournal()
		info := w.make(t, request(60*time.Minute))
		require.NoError(t, journal.Put(t.Context(), sandbox.Entry{Provider: w.p.Name(), ID: info.ID, Mark: info.Mark}))
		journal.Abandon()
		other := w.provider(t, func(c *daytona.Config) { c.APIKey = foreign })
		require.NotEqual(t, w.p.Name(), other.Name())
		_, err := other.Get(t.Context(), info.ID)
		require.ErrorIs(t, err, sandbox.ErrNotFound, "the service hides it")
		m, err := sandbox.NewManager(other, sandbox.Config{Fleet: fleet, Journal: journal})
		require.NoError(t, err)
		require.Error(t, m.Replay(t.Context()))
		assert.Len(t, journal.Entries(), 1)
		assert.Equal(t, sandbox.StateRunning, w.state(info.ID))
	})
}

func TestDaytona23ACommandEndsWithItsSandboxThoughItsLogStaysOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Quirk(func(q *daytonafake.Quirks) { q.StreamLinger = 10 * time.Minute })
		info := w.make(t, request(60*time.Minute))
		var began time.Time
		go func() {
			time.Sleep(10 * time.Second)
			began = time.Now()
			w.Service().Kill(daytonafake.MachineID(info.ID))
		}()
		_, err := w.p.Open(info).Exec(t.Context(), sandbox.Shell("sleep 3600"))
		require.Error(t, err)
		assert.Less(t, time.Since(began), 3*time.Minute, "silence is noticed")
	})
	inBubble(t, func(t *testing.T, w *world) {
		w.Quirk(func(q *daytonafake.Quirks) { q.StreamLinger = 10 * time.Minute })
		returned := make(chan time.Time, 1)
		var over time.Time
		require.NoError(t, w.manager(t).WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			go func() {
				_, err := sb.Exec(ctx, sandbox.Shell("sleep 3600"))
				assert.Error(t, err)
				returned <- time.Now()
			}()
			time.Sleep(10 * time.Second)
			over = time.Now()
			return nil
		}))
		assert.WithinDuration(t, over, <-returned, time.Second)
	})
}
