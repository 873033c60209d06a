package boat_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// These tests are named after the traps of the service, by the numbers that the protocol notes of this project give them.

// sweep runs passes of a sweeper, a minute apart, and returns the last report.
func (w *world) sweep(passes int) (last sweep.Report) {
	w.t.Helper()
	s, err := sweep.New(sweep.Config{Fleet: fleet, Providers: []sandbox.Provider{w.p}})
	require.NoError(w.t, err)
	for range passes {
		last, err = s.Sweep(w.t.Context())
		assert.NoError(w.t, err)
		time.Sleep(time.Minute)
	}
	return last
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// says is an answer in place of the service's own.
func says(body string) boatfake.Fault {
	return boatfake.Fault{Body: body, Header: http.Header{"Content-Type": {"application/json"}}}
}

func apiError(t *testing.T, err error) *sandbox.APIError {
	t.Helper()
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok, "%v", err)
	return e
}

func TestBoat01AnEndedScopeLeavesNoArchivedRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		require.NoError(t, w.manager().WithSandbox(t.Context(), quiet))
		assert.Empty(t, w.All(), "in no state, of any name")
	})
}

func TestBoat02CleaningUpDeletesAndNeverStops(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		require.NoError(t, w.manager().WithSandbox(t.Context(), quiet))
		assert.Equal(t, 1, w.Count("deleteSandbox"))
		assert.Zero(t, w.Count("stop"))
		assert.Zero(t, w.Count("resume"))
	})
}

func TestBoat03ADeleteConfirmsTheIDAndARefusalIsSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(request(time.Hour))
		w.Fault("deleteSandbox", boatfake.Fault{Status: http.StatusConflict, Code: "delete_confirmation_required"})
		require.ErrorIs(t, w.p.Delete(t.Context(), info.ID), sandbox.ErrConflict)
		assert.Equal(t, sandbox.StateRunning, w.state(info.ID))
		require.NoError(t, w.p.Delete(t.Context(), info.ID))
		for _, r := range w.Requests() {
			if r.Operation == "deleteSandbox" {
				assert.Equal(t, info.ID, r.Header.Get("X-Ascii-Confirm-Delete"))
			}
		}
		assert.Equal(t, sandbox.StateGone, w.state(info.ID))
	})
}

func TestBoat04TheSweeperDeletesWhatExpiryHasArchived(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.make(request(time.Minute))
		other := request(time.Minute)
		other.Mark.Fleet = "other"
		kept := w.make(other)
		time.Sleep(5 * time.Minute)
		require.Len(t, w.left(fleet), 1)
		require.Equal(t, sandbox.StateDormant, w.left(fleet)[0].State)
		w.sweep(4)
		assert.Empty(t, w.left(fleet))
		assert.Equal(t, sandbox.StateDormant, w.state(kept.ID), "another fleet's is not ours to delete")
	})
}

func TestBoat05NoRequestSwitchesTheGuardOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		require.NoError(t, w.manager().WithSandbox(t.Context(), func(ctx context.Context, _ sandbox.Sandbox) error {
			return wait(ctx, 10*time.Minute)
		}))
		for _, window := range []time.Duration{0, -time.Second, time.Millisecond, 31 * 24 * time.Hour} {
			_, err := w.p.Create(t.Context(), request(window))
			require.ErrorIs(t, err, sandbox.ErrInvalid, window)
			_, err = w.p.Extend(t.Context(), sandbox.Info{ID: "bx_22222222"}, window)
			require.ErrorIs(t, err, sandbox.ErrInvalid, window)
		}
		require.ErrorIs(t, w.p.Shorten(t.Context(), "bx_22222222", 0), sandbox.ErrInvalid)
		n := 0
		for _, r := range w.Requests() {
			if r.Operation == "create" || strings.Contains(string(r.Body), "ttlSeconds") {
				var body struct {
					TTL *int `json:"ttlSeconds"`
				}
				require.NoError(t, json.Unmarshal(r.Body, &body))
				require.NotNil(t, body.TTL, "%s", r.Body)
				assert.Positive(t, *body.TTL)
				n++
			}
		}
		assert.Greater(t, n, 5)
	})
}

func TestBoat05WhatWasMadeWithoutAnEndIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Service().Behave(func(b *fake.Behaviour) { b.NoLease = true })
		err := w.manager().WithSandbox(t.Context(), quiet)
		require.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.Empty(t, w.All())
	})
}

func TestBoat05AnAnswerWithoutAnEndOrWithALaterOneMakesItUnfit(t *testing.T) {
	for ttl, says := range map[string]string{"null": "without an end", "301": "longer than"} {
		p, _ := stub(t, func(*http.Request, string) *http.Response {
			return answer(202, `{"ttlSeconds":`+ttl+`,"sandbox":{"id":"bx_22222222","name":"x","state":"ready"}}`)
		})
		info, err := p.Create(t.Context(), fixed())
		require.ErrorContains(t, err, says)
		assert.Equal(t, "bx_22222222", info.ID, "so that it is deleted")
		assert.False(t, apiError(t, err).Refused)
	}
}

func TestBoat06BeatsFollowTheDeadlineThatAGiftShortens(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Change(func(q *boatfake.Quirks) { q.GiftTTL = time.Minute })
		require.NoError(t, w.manager().WithSandbox(t.Context(), func(ctx context.Context, _ sandbox.Sandbox) error {
			return wait(ctx, 20*time.Minute)
		}))
		assert.Empty(t, w.All())
	})
}

func TestBoat06ATrialThatRefusesTheTTLIsToldAsSuch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Change(func(q *boatfake.Quirks) { q.Trial = true })
		err := w.manager(func(c *sandbox.Config) { c.Scope.Window, c.Scope.MaxLifetime = 3*time.Hour, 10*time.Hour }).WithSandbox(t.Context(), quiet)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		require.ErrorContains(t, err, "smaller Window")
		assert.Equal(t, 1, w.Count("create"), "a refusal is not tried again")
	})
}

func TestBoat07NobodyWaitsForTheOperation(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Change(func(q *boatfake.Quirks) { q.PurgeTime = -1 })
		var ended time.Time
		require.NoError(t, w.manager().WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error {
			time.Sleep(10 * time.Second)
			ended = time.Now()
			return nil
		}))
		assert.Less(t, time.Since(ended), time.Second)
		assert.Zero(t, w.Count("getDeletionOperation"))
	})
}

func TestBoat08ALaggingListIsNoProof(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		cfg := boat.Config{KeyID: "key_1"}
		p := w.provider(cfg)
		info := w.make(request(time.Hour))
		w.Service().Behave(func(b *fake.Behaviour) { b.ListHides = []sandbox.State{sandbox.StateRunning} })
		all, err := collect(t.Context(), p, sandbox.Filter{})
		require.NoError(t, err)
		require.Empty(t, all, "the list hides it")
		assert.False(t, p.Capabilities().GoneByList)
		err = leakcheck.Find(t.Context(), p, leakcheck.Known(info), leakcheck.Fleet(fleet), leakcheck.Patience(0))
		require.ErrorIs(t, err, leakcheck.ErrLeak)

		// The key's own books know it, even without a known id.
		books, err := p.Ledger(t.Context())
		require.NoError(t, err)
		assert.Contains(t, books, info.ID)
		err = leakcheck.Find(t.Context(), p, leakcheck.Fleet(fleet), leakcheck.Source(p.Ledger), leakcheck.Patience(0))
		require.Error(t, err)
		assert.Equal(t, sandbox.StateRunning, w.state(info.ID))
	})
}

func TestBoat08StatesThatAListMayHideAreAskedFor(t *testing.T) {
	p, s := stub(t, func(r *http.Request, _ string) *http.Response {
		switch {
		case r.URL.Path == "/api/v1/me":
			return answer(200, `{"user":{"id":"u"}}`)
		case r.URL.Query().Get("state") == "":
			return answer(200, `{"sandboxes":[{"id":"bx_22222222","name":"a","state":"ready"}]}`)
		}
		return answer(200, `{"sandboxes":[{"id":"bx_22222222","name":"a","state":"error"},{"id":"bx_33333333","name":"b","state":"error"}]}`)
	})
	all, err := collect(t.Context(), p, sandbox.Filter{})
	require.NoError(t, err)
	assert.Equal(t, []string{"bx_22222222", "bx_33333333"}, ids(all))
	_, err = collect(t.Context(), p, sandbox.Filter{})
	require.NoError(t, err)
	assert.Len(t, s.requests(), 5, "who we are is asked once")
}

func TestBoat09AnotherAccountIsAnotherName(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(request(time.Hour))
		other := w.provider(boat.Config{APIKey: foreign})
		assert.NotEqual(t, w.p.Name(), other.Name(), "so that a journal does not take the other's word")
		_, err := other.Get(t.Context(), info.ID)
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		require.ErrorIs(t, other.Delete(t.Context(), info.ID), sandbox.ErrNotFound)
		assert.Equal(t, sandbox.StateRunning, w.state(info.ID))

		// Nor is an operation about something else a yes.
		w.Fault("deleteSandbox", says(`{"ok":true,"type":"sandbox.deleting","operation":{"id":"bdop_1","targetId":"bx_22222222","status":"pending"}}`))
		require.ErrorContains(t, w.p.Delete(t.Context(), info.ID), "another sandbox")
	})
}

// orphan makes what is left when its owner dies between the create and the name.
func (w *world) orphan(req sandbox.CreateRequest) {
	w.t.Helper()
	w.Fault("update", boatfake.Fault{Drop: true, Times: -1})
	_, err := w.p.Create(w.t.Context(), req)
	require.Error(w.t, err)
	w.Heal()
	require.Len(w.t, w.left(fleet), 1)
	require.Equal(w.t, sandbox.Mark{}, w.left(fleet)[0].Mark)
}

func TestBoat10AnOrphanWithoutANameIsFoundByRepeatingItsCreate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		req := request(10 * time.Minute)
		req.Spec.Native = &boat.Options{Environment: "ci"}
		req.Spec.Env = map[string]string{"TOKEN": "sesame-4711"}
		body, err := w.p.Order(req)
		require.NoError(t, err)
		assert.NotContains(t, string(body), "sesame")
		w.orphan(req)
		for _, r := range w.Requests() {
			if r.Operation == "create" {
				assert.Equal(t, string(body), string(r.Body), "the journal holds the exact bytes")
			}
		}
		time.Sleep(22 * time.Hour)
		heir := w.provider(boat.Config{})
		info, err := heir.Repeat(t.Context(), req.Mark, body)
		require.NoError(t, err)
		assert.Equal(t, w.left(fleet)[0].ID, info.ID)
		assert.Equal(t, req.Mark.String(), w.left(fleet)[0].Mark.String())
		require.NoError(t, heir.Delete(t.Context(), info.ID))
		assert.Empty(t, w.left(fleet))
	})
}

func TestBoat10TheNextStartsReplayEndsWhatDiedBeforeItsNameWasWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		req := request(3 * time.Minute)
		body, err := w.p.Order(req)
		require.NoError(t, err)
		w.orphan(req)
		j := sandboxtest.NewJournal()
		require.NoError(t, j.Put(t.Context(), sandbox.Entry{Provider: w.p.Name(), Mark: req.Mark, Order: body}))
		j.Abandon()
		require.NoError(t, w.manager(func(c *sandbox.Config) { c.Journal = j }).Replay(t.Context()))
		assert.Empty(t, w.All())
		assert.Empty(t, j.Entries())
		for _, r := range w.Requests() {
			if r.Operation == "create" {
				assert.Equal(t, string(body), string(r.Body))
			}
		}
	})
}

func TestBoat10AKeyThatIsTooOldIsNotRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		req := request(10 * time.Minute)
		body, err := w.p.Order(req)
		require.NoError(t, err)
		w.orphan(req)
		time.Sleep(23*time.Hour + time.Second)
		sent := len(w.Requests())
		_, err = w.p.Repeat(t.Context(), req.Mark, body)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		for _, bad := range []string{``, `{}`, `{"ttlSeconds":null}`, `{"ttlSeconds":0}`} {
			fresh := request(time.Minute)
			_, err = w.p.Repeat(t.Context(), fresh.Mark, []byte(bad))
			require.ErrorIs(t, err, sandbox.ErrInvalid, bad)
		}
		assert.Len(t, w.Requests(), sent, "it would make a second one")
	})
}

func TestBoat10AnOrphanWithoutANameIsReportedAndNeverDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.orphan(request(10 * time.Minute))
		id := w.left(fleet)[0].ID
		time.Sleep(time.Hour)
		w.sweep(5)
		assert.Equal(t, sandbox.StateDormant, w.state(id))
		err := leakcheck.Find(t.Context(), w.p, leakcheck.Fleet(fleet), leakcheck.Strict(), leakcheck.Unwitnessed(), leakcheck.Patience(0))
		found, ok := errors.AsType[*leakcheck.Error](err)
		require.True(t, ok, "%v", err)
		require.Len(t, found.Leaks, 1)
		assert.Equal(t, leakcheck.Unmarked, found.Leaks[0].Class)
		assert.Equal(t, id, found.Leaks[0].Info.ID)
	})
}

func TestBoat10AScopeWhoseCreateWasNotAnsweredAsksAgainBeforeItEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		w.Fault("create", boatfake.Fault{After: true, Drop: true, Times: 2})
		time.AfterFunc(100*time.Millisecond, cancel)
		err := w.manager().WithSandbox(ctx, quiet)
		require.ErrorIs(t, err, sandbox.ErrNotStarted)
		leak, _ := errors.AsType[*sandbox.LeakError](err)
		assert.Nil(t, leak, "%v", err)
		assert.Empty(t, w.All())
	})
}

func TestBoat10ACreateWhoseRenameFailedIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Fault("update", boatfake.Fault{Status: http.StatusForbidden, Code: "api_key_action_forbidden", Times: -1})
		err := w.manager().WithSandbox(t.Context(), quiet)
		require.ErrorIs(t, err, sandbox.ErrNotStarted)
		require.ErrorIs(t, err, sandbox.ErrPermission)
		assert.Empty(t, w.All())
		assert.Equal(t, 1, w.Count("create"))
	})
	inBubble(t, func(t *testing.T, w *world) { // once is not for ever
		w.Fault("update", boatfake.Fault{Status: http.StatusInternalServerError, Times: 2})
		require.NoError(t, w.manager().WithSandbox(t.Context(), quiet))
		assert.Equal(t, 1, w.Count("create"))
		assert.Empty(t, w.All())
	})
}

func TestBoat11ALostAnswerMakesNoSecondSandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Fault("create", boatfake.Fault{After: true, Drop: true})
		require.NoError(t, w.manager().WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error {
			assert.Len(t, w.All(), 1)
			return nil
		}))
		assert.Equal(t, 2, w.Count("create"))
		assert.Empty(t, w.All())
	})
}

func TestBoat11AnotherBodyUnderTheSameKeyIsNoRefusal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		req := request(time.Hour)
		w.make(req)
		req.Window += time.Second
		info, err := w.p.Create(t.Context(), req)
		require.ErrorIs(t, err, sandbox.ErrConflict)
		assert.False(t, apiError(t, err).Refused, "there is a sandbox, and its id is not known")
		assert.Empty(t, info.ID)
		assert.Len(t, w.All(), 1)
	})
}

func TestBoat12OneThatCameToNothingIsAnErrorAndNotAPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Change(func(q *boatfake.Quirks) { q.NoMachine = true })
		began := time.Now()
		err := w.manager().WithSandbox(t.Context(), quiet)
		require.ErrorIs(t, err, sandbox.ErrNotStarted)
		leak, _ := errors.AsType[*sandbox.LeakError](err)
		assert.Nil(t, leak, "%v", err)
		assert.Less(t, time.Since(began), 5*time.Minute)
		assert.Empty(t, w.All())
	})
	inBubble(t, func(t *testing.T, w *world) {
		info, err := w.p.Create(t.Context(), request(time.Hour))
		require.NoError(t, err)
		w.Fault("get", says(`{"ok":true,"type":"sandbox.info","sandbox":{"id":"`+info.ID+`","state":"cancelled","error":"No machine"}}`))
		now, err := w.p.Get(t.Context(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateFailed, now.State)
		assert.Contains(t, now.Detail, "No machine")
	})
}

func TestBoat13AKeyThatMayNotDeleteStopsAndReports(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Change(func(q *boatfake.Quirks) { q.Forbidden = []string{"sandbox.delete-own"} })
		err := w.manager().WithSandbox(t.Context(), quiet)
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok, "%v", err)
		require.ErrorIs(t, err, sandbox.ErrPermission)
		require.ErrorContains(t, err, "delete-own")
		require.Len(t, leak.Sandboxes, 1)
		time.Sleep(time.Minute)
		assert.Equal(t, sandbox.StateDormant, w.state(leak.Sandboxes[0].ID), "what bills most has ended")
		assert.NotZero(t, w.Count("stop"))
	})
}

func TestBoat14WhatCannotBeArchivedIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Change(func(q *boatfake.Quirks) { q.SaveFails = true })
		require.NoError(t, w.manager().WithSandbox(t.Context(), quiet))
		assert.Empty(t, w.All())
		w.make(request(time.Minute))
		time.Sleep(10 * time.Minute)
		require.Len(t, w.left(fleet), 1)
		require.True(t, w.left(fleet)[0].State.MayRun(), "it runs on past its end")
		w.sweep(4)
		assert.Empty(t, w.left(fleet))
	})
}

func TestBoat15ABeatForWhatIsArchivedIsNoSuccess(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		err := w.manager().WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			time.Sleep(time.Minute)
			require.True(t, w.Service().Pause(boatfake.MachineID(sb.ID())))
			began := time.Now()
			err := wait(ctx, time.Hour)
			assert.Less(t, time.Since(began), 2*time.Minute)
			assert.Equal(t, sandbox.StateDormant, w.state(sb.ID()), "nothing woke it")
			return err
		})
		require.ErrorIs(t, err, sandbox.ErrLeaseLost)
		assert.Empty(t, w.All())
	})
}

func TestBoat16ATimeoutKillsAndTheScopeDeletesAllTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		require.NoError(t, w.manager().WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			res, err := sb.Exec(ctx, sandbox.Cmd{Args: []string{"sh", "-c", "echo so far; sleep 3600"}, Timeout: time.Minute})
			assert.True(t, res.TimedOut)
			assert.Equal(t, "so far\n", string(res.Stdout), "what it has printed is not lost")
			synctest.Wait() // who was killed has left the process table, and may still be on his way out
			for _, p := range w.Processes(sb.ID()) {
				assert.False(t, p.Running && p.Detached, "%.200s", p.Command)
			}
			return err
		}))
		assert.Empty(t, w.All())
	})
}

func TestBoat17NoCommandIsStartedTwice(t *testing.T) {
	for name, f := range map[string]boatfake.Fault{
		"502":       {Status: http.StatusBadGateway, Code: "boat_direct_failed", After: true},
		"no answer": {Drop: true, After: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				sb := w.p.Open(w.make(request(time.Hour)))
				w.Fault("command", f)
				_, err := sb.Exec(t.Context(), sandbox.Shell("echo x >>/tmp/runs; sleep 600"))
				require.Error(t, err)
				time.Sleep(time.Minute)
				started := 0
				for _, p := range w.Processes(sb.ID()) {
					if strings.Contains(p.Command, "/tmp/runs") {
						started++
						assert.False(t, p.Running, "what may run is killed")
					}
				}
				assert.Equal(t, 1, started)
			})
		})
	}
}

func TestBoat18AStalledLookEndsWithItsLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Fault("get", boatfake.Fault{Hang: true, Times: 3})
		began := time.Now()
		require.NoError(t, w.manager().WithSandbox(t.Context(), quiet))
		assert.Less(t, time.Since(began), 3*time.Minute)
		assert.Empty(t, w.All())
		info := w.make(request(time.Hour))
		w.Fault("get", boatfake.Fault{Hang: true})
		began = time.Now()
		_, err := w.p.Get(context.Background(), info.ID)
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		assert.LessOrEqual(t, time.Since(began), 31*time.Second, "without any limit of the caller's")
	})
}

func TestBoat19RefusedStartsAreNotHammered(t *testing.T) {
	for window, most := range map[string]int{"minute": 2, "hour": 1, "day": 1} {
		t.Run(window, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.Fault("create", boatfake.Fault{
					Status: http.StatusTooManyRequests, Code: "rate_limited", Details: map[string]any{"window": window}, Times: -1,
				})
				err := w.manager(func(c *sandbox.Config) { c.CreateTimeout = 150 * time.Second }).WithSandbox(t.Context(), quiet)
				require.ErrorIs(t, err, sandbox.ErrNotStarted)
				if window == "minute" {
					require.ErrorIs(t, err, sandbox.ErrRateLimited)
				} else {
					require.ErrorIs(t, err, sandbox.ErrQuota)
				}
				var last time.Time
				for _, r := range w.Requests() {
					if !last.IsZero() {
						assert.GreaterOrEqual(t, r.At.Sub(last), 65*time.Second)
					}
					last = r.At
				}
				assert.LessOrEqual(t, w.Count("create"), most)
				assert.Empty(t, w.All())
			})
		})
	}
}

func TestBoat20NamedSnapshotsAreSeenAndNotTakenForDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(request(time.Hour))
		name := w.Service().Snapshot(boatfake.MachineID(info.ID))
		require.NotEmpty(t, name)
		var found []sandbox.Snapshot
		for s, err := range w.p.Snapshots(t.Context(), info.ID) {
			require.NoError(t, err)
			found = append(found, s)
		}
		require.Len(t, found, 1)
		assert.Equal(t, info.ID, found[0].Source)
		require.ErrorIs(t, w.p.DeleteSnapshot(t.Context(), found[0]), errors.ErrUnsupported)
		for s := range w.p.Snapshots(t.Context(), "bx_22222222") {
			assert.Fail(t, "another's", "%v", s)
		}
	})
}

func TestBoat20NothingCanBeForkedAndACopyOfANameIsNotTakenForTheSandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		info := w.make(request(time.Minute))
		time.Sleep(10 * time.Second)
		w.post(key, "/sandboxes/"+info.ID+"/fork", `{"ttlSeconds":86400}`, http.StatusConflict)
		copied := w.post(key, "/sandboxes", `{"ttlSeconds":86400}`, http.StatusAccepted)
		w.Rename(copied, info.Mark.String())
		time.Sleep(10 * time.Minute)
		require.Len(t, w.left(fleet), 2)
		w.sweep(5)
		assert.Equal(t, sandbox.StateGone, w.state(info.ID))
		assert.Equal(t, sandbox.StateRunning, w.state(copied), "its mark was written for another")
	})
}

// post makes a request as somebody's SDK would, and returns the id in the answer.
func (w *world) post(key, path, body string, want int) string {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, baseURL+path, strings.NewReader(body))
	require.NoError(w.t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	client := w.net.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	require.Equal(w.t, want, resp.StatusCode)
	var told struct {
		ID      string
		Sandbox struct{ ID string }
	}
	require.NoError(w.t, json.NewDecoder(resp.Body).Decode(&told))
	if told.ID != "" {
		return told.ID
	}
	return told.Sandbox.ID
}

func TestBoat21AColleaguesMachineIsNeverTouched(t *testing.T) {
	for _, access := range []string{"view", "use", "owner"} {
		t.Run(access, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.Change(func(q *boatfake.Quirks) { q.Access = access })
				mark := request(time.Minute).Mark // somebody has pasted the name of one of ours
				theirs := w.post(colleague, "/sandboxes?org="+team, `{"ttlSeconds":86400}`, http.StatusAccepted)
				w.Rename(theirs, mark.String())
				ours := w.make(request(time.Minute))
				time.Sleep(10 * time.Minute)
				all, err := collect(t.Context(), w.p, sandbox.Filter{})
				require.NoError(t, err)
				assert.Equal(t, []string{ours.ID}, ids(all))
				w.sweep(4)
				assert.Equal(t, sandbox.StateGone, w.state(ours.ID))
				assert.Equal(t, sandbox.StateRunning, w.state(theirs))
				require.ErrorIs(t, w.p.Delete(t.Context(), theirs), sandbox.ErrPermission, "not even when asked for by its id")
				other := w.provider(boat.Config{Org: team})
				require.ErrorIs(t, other.Delete(t.Context(), theirs), sandbox.ErrPermission, "nor by who has listed nothing")
				w.Change(func(q *boatfake.Quirks) { q.Forbidden = []string{"account.read"} })
				blind := w.provider(boat.Config{Org: team}) // it does not know who it is
				if access != "owner" {
					info, err := blind.Get(t.Context(), theirs)
					require.NoError(t, err)
					assert.Equal(t, sandbox.Mark{}, info.Mark)
					require.ErrorIs(t, blind.Delete(t.Context(), theirs), sandbox.ErrPermission)
				}
				assert.Equal(t, sandbox.StateRunning, w.state(theirs))
			}, func(_ *boatfake.Options, c *boat.Config) { c.Org = team })
		})
	}
}

func TestBoat21TheOrganizationIsPinned(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.make(request(time.Hour))
		w.Switch(team) // somebody makes another wallet the active one
		b := w.make(request(time.Hour))
		time.Sleep(5 * time.Second)
		all, err := collect(t.Context(), w.p, sandbox.Filter{})
		require.NoError(t, err)
		assert.ElementsMatch(t, []string{a.ID, b.ID}, ids(all))
		for _, r := range w.Requests() {
			if r.Operation == "create" || r.Operation == "sandboxes" || r.Operation == "limits" {
				assert.Contains(t, r.Query, "org=personal")
			}
		}
	})
}

func TestBoat22NothingOfTheAccountsIsCopiedIntoTheSandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.make(request(time.Hour))
		for _, r := range w.Requests() {
			if r.Operation == "create" {
				assert.Contains(t, string(r.Body), `"noEnv":true`)
				assert.Contains(t, string(r.Body), `"snapshots":false`)
			}
		}
		require.Len(t, w.All(), 1)
		assert.False(t, w.All()[0].HoldsCreatorLogins)
	})
	inBubble(t, func(t *testing.T, w *world) { // a service that did it all the same
		w.Fault("create", boatfake.Fault{After: true, Body: "x"})
		req := request(time.Hour)
		_, err := w.p.Create(t.Context(), req)
		require.Error(t, err)
		row, err := json.Marshal(w.All()[0])
		require.NoError(t, err)
		said := strings.Replace(string(row), `"holdsCreatorLogins":false`, `"holdsCreatorLogins":true`, 1)
		w.Fault("create", says(`{"ok":true,"type":"sandbox.created","status":"ready","ttlSeconds":3600,"sandbox":`+said+`}`))
		info, err := w.p.Create(t.Context(), req)
		require.ErrorContains(t, err, "logins")
		assert.NotEmpty(t, info.ID, "so that it is deleted")
	})
}

func TestBoat23AStopThatDoesNothingIsNotTakenForAnEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Change(func(q *boatfake.Quirks) {
			q.Forbidden, q.StopIgnored = []string{"sandbox.delete-own"}, true
		})
		began := time.Now()
		err := w.manager().WithSandbox(t.Context(), quiet)
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok, "%v", err)
		assert.Less(t, time.Since(began), 3*time.Minute)
		require.Len(t, leak.Sandboxes, 1)
		assert.True(t, leak.Sandboxes[0].State.MayRun())
		time.Sleep(time.Until(leak.Sandboxes[0].Deadline))
		assert.Equal(t, sandbox.StateDormant, w.state(leak.Sandboxes[0].ID), "it has ended by the time that the report names")
	})
}
