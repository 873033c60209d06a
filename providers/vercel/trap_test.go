package vercel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// These tests are named after the traps of the service, by the numbers that the protocol notes of this project give them.
// Number 7, that the official SDK's "await using" only stops, is of the SDK alone: what it leaves is what 5 and 6 remove.

// bubble runs f in a world of its own, in fake time.
func bubble(t *testing.T, f func(*world), settings ...setting) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, settings...)) })
}

func (w *world) manager(change ...func(*sandbox.Config)) *sandbox.Manager {
	w.t.Helper()
	cfg := sandbox.Config{Fleet: "fleet", Owner: "test", Grace: 2 * time.Second, Observers: []sandbox.Observer{w.observe}}
	for _, f := range change {
		f(&cfg)
	}
	m, err := sandbox.NewManager(w.p, cfg)
	require.NoError(w.t, err)
	return m
}

func (w *world) observe(_ context.Context, e sandbox.Event) {
	if e.Err != nil {
		w.t.Logf("%s %s: attempt %d, final %v: %v", e.Op, e.Info.ID, e.Attempt, e.Final, e.Err)
	}
}

func (w *world) nothing() {
	w.t.Helper()
	for _, t := range w.fake.All() {
		assert.Fail(w.t, "left", "%s: %s", t.Sandbox.Name, t.Session.Status)
	}
	assert.Empty(w.t, w.fake.Snapshots())
}

// sweep runs passes of a sweeper, so many, so far apart.
func (w *world) sweep(passes int, every time.Duration) (last sweep.Report) {
	w.t.Helper()
	s, err := sweep.New(sweep.Config{Fleet: "fleet", Providers: []sandbox.Provider{w.p}})
	require.NoError(w.t, err)
	for range passes {
		time.Sleep(every)
		last, err = s.Sweep(context.Background())
		assert.NoError(w.t, err)
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

func TestVercel01ABeatNeverRevivesWhatHasStopped(t *testing.T) {
	for name, end := range map[string]func(w *world, id string){
		"stopped by hand": func(w *world, id string) {
			_, session := parts(id)
			w.stop(session)
		},
		"killed by the platform": func(w *world, id string) { assert.True(w.t, w.fake.Service().Kill(w.truth(id).ServiceID)) },
		"another session began":  func(w *world, id string) { _, session := parts(id); w.stop(session); w.resume(id) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				sessions := 1
				if name == "another session began" {
					sessions = 2
				}
				err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
					end(w, sb.ID())
					err := wait(ctx, time.Hour)
					if name != "killed by the platform" {
						assert.Len(t, w.truth(sb.ID()).Sessions, sessions)
					}
					return err
				})
				assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
				w.nothing()
			})
		})
	}
}

func TestVercel02ALostAnswerToACreateMakesNoSecondSandbox(t *testing.T) {
	bubble(t, func(w *world) {
		w.fault(sandbox.OpCreate, fake.Fault{Err: &sandbox.APIError{}, After: true})
		err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			assert.Len(t, w.fake.All(), 1)
			return nil
		})
		assert.NoError(t, err)
		w.nothing()
	})
}

func TestVercel03ATakenNameIsFoundToBeOurOwn(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(time.Minute)
		w.fake.Fault("createSandbox", vercelfake.Fault{Status: http.StatusBadGateway, After: true})
		_, err := w.p.Create(context.Background(), req)
		assert.False(t, apiError(t, err).Refused)
		info, err := w.p.Create(context.Background(), req)
		require.NoError(t, err)
		assert.Equal(t, req.Mark, info.Mark)
		assert.Len(t, w.fake.All(), 1)
	})
}

func TestVercel03ATakenNameOfAnotherIsRefused(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(time.Minute)
		status, answer := w.others("POST", "/v3/sandboxes", `{"projectId":"prj_test","name":"`+req.Mark.Name()+`"}`)
		require.Equal(t, http.StatusOK, status, answer)
		_, err := w.p.Create(context.Background(), req)
		e := apiError(t, err)
		assert.True(t, e.Refused)
		assert.ErrorIs(t, err, sandbox.ErrConflict)
		assert.Len(t, w.fake.All(), 1)
	})
}

func TestVercel04ACreateThatIsCancelledLeavesNothing(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 10 * time.Second, 29 * time.Second, 31 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			bubble(t, func(w *world) {
				w.fault(sandbox.OpCreate, fake.Fault{Delay: 30 * time.Second, Late: true})
				ctx, cancel := context.WithTimeout(context.Background(), after)
				defer cancel()
				err := w.manager().WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error {
					<-ctx.Done()
					return nil
				})
				leak, _ := errors.AsType[*sandbox.LeakError](err)
				time.Sleep(time.Minute)
				if leak == nil {
					w.nothing()
				}
				assert.Nil(t, leak, "the create appears within the time in which it is looked for")
			})
		})
	}
}

func TestVercel05AnEndedScopeLeavesNeitherRecordNorSnapshot(t *testing.T) {
	bubble(t, func(w *world) {
		err := w.manager().WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { return nil })
		assert.NoError(t, err)
		for _, r := range w.fake.Requests() {
			if r.Operation == "createSandbox" {
				assert.Contains(t, string(r.Body), `"persistent":false`)
			}
		}
		w.nothing()
	})
}

func TestVercel06TheSweeperRemovesStoppedOrphansAndTheirSnapshots(t *testing.T) {
	bubble(t, func(w *world) {
		for i := range 8 {
			info := w.make(time.Minute)
			name, session := parts(info.ID)
			if i%2 == 0 { // an SDK that turns persistence on
				status, answer := w.others("PATCH", "/v2/sandboxes/"+name+"?projectId=prj_test", `{"persistent":true}`)
				require.Equal(t, http.StatusOK, status, answer)
			}
			if i%4 < 2 {
				w.stop(session)
			}
		}
		time.Sleep(2 * time.Minute)
		require.Len(t, w.fake.All(), 8)
		require.NotEmpty(t, w.fake.Snapshots())
		w.sweep(3, 15*time.Minute)
		w.nothing()
		for _, r := range w.fake.Requests() {
			if r.Operation == "deleteSandbox" {
				assert.Contains(t, r.Query, "deleteOrphanSnapshots=true")
			}
		}
	})
}

func TestVercel08AStopThatLiesIsWaitedForAndAskedAgain(t *testing.T) {
	bubble(t, func(w *world) {
		asked := w.asked()
		w.fake.Fault("stopSession", vercelfake.Fault{Ignore: true, Times: 3})
		err := w.manager().WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { return nil })
		assert.NoError(t, err)
		assert.Equal(t, 4, asked("stopSession"))
		w.nothing()
	})
}

func TestVercel08AStopThatNeverEndsIsALeakThatIsNamed(t *testing.T) {
	bubble(t, func(w *world) {
		w.fake.Fault("stopSession", vercelfake.Fault{Ignore: true, Times: -1})
		var id string
		err := w.manager().WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error {
			id = sb.ID()
			return nil
		})
		if leak, ok := errors.AsType[*sandbox.LeakError](err); assert.True(t, ok, "%v", err) {
			assert.Equal(t, id, leak.Sandboxes[0].ID)
		}
		w.fake.Heal()
		w.sweep(3, 15*time.Minute)
		w.nothing()
	}, func(o *vercelfake.Options, _ *vercel.Config) { o.Behaviour.Unenforced = true }) // else the lease would end it
}

func TestVercel09A410OnANameIsNoProof(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		w.fake.Fault("getSandbox", vercelfake.Fault{Status: 410, Code: "snapshot_not_found", Times: -1})
		now, err := w.p.Get(context.Background(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, info.Mark, now.Mark)
		assert.Equal(t, sandbox.StateRunning, now.State)

		_, session := parts(info.ID)
		w.stop(session)
		now, err = w.p.Get(context.Background(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateDormant, now.State)

		assert.NoError(t, w.p.Delete(context.Background(), info.ID))
		_, err = w.p.Get(context.Background(), info.ID)
		assert.NotErrorIs(t, err, sandbox.ErrNotFound, "the service does not say that there is none")
		w.fake.Heal()
		_, err = w.p.Get(context.Background(), info.ID)
		assert.ErrorIs(t, err, sandbox.ErrNotFound)
		w.nothing()
	})
}

func TestVercel09A410OnASessionIsItsEnd(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		_, session := parts(info.ID)
		w.stop(session)
		info.Deadline = info.AsOf.Add(time.Second)
		now, err := w.p.Extend(context.Background(), info, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateDormant, now.State)
	})
}

func TestVercel10SnapshotsAreFoundWhenTheirRecordIsGone(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		name, session := parts(info.ID)
		id := w.snapshot(session)
		time.Sleep(15 * 24 * time.Hour)
		_, err := w.p.Get(context.Background(), info.ID)
		require.ErrorIs(t, err, sandbox.ErrNotFound, "records without files vanish after two weeks")
		require.NotEmpty(t, name)
		var all []sandbox.Snapshot
		for s, err := range w.p.Snapshots(context.Background(), "") {
			require.NoError(t, err)
			all = append(all, s)
		}
		require.Len(t, all, 1)
		assert.Equal(t, id, all[0].ID)
		assert.Equal(t, session, all[0].Source)
		require.NoError(t, w.p.DeleteSnapshot(context.Background(), all[0]))
		assert.Empty(t, w.fake.Snapshots())
		assert.ErrorIs(t, w.p.DeleteSnapshot(context.Background(), all[0]), sandbox.ErrNotFound)
	})
}

func TestVercel11ASnapshotEndsTheSessionAndALookSaysSo(t *testing.T) {
	bubble(t, func(w *world) {
		err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			_, session := parts(sb.ID())
			w.snapshot(session)
			info, err := w.p.Get(ctx, sb.ID())
			require.NoError(t, err)
			assert.Equal(t, sandbox.StateDormant, info.State)
			_, err = sb.Exec(ctx, sandbox.Shell("true"))
			assert.ErrorIs(t, err, sandbox.ErrConflict)
			return wait(ctx, time.Hour)
		})
		assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
		w.nothing()
	})
}

func TestVercel12AForkCarriesTheTagsAndIsForeign(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(2 * time.Minute)
		name, _ := parts(info.ID)
		status, answer := w.others("POST", "/v2/sandboxes/"+name+"/fork?projectId=prj_test", `{"name":"fork-of-mine"}`)
		require.Equal(t, http.StatusOK, status, answer)
		all, err := w.list(sandbox.Filter{Fleet: "fleet"})
		require.NoError(t, err)
		require.Len(t, all, 2)
		for _, i := range all {
			assert.Equal(t, i.ID == info.ID, i.Mark == info.Mark)
			assert.Equal(t, i.ID == info.ID, i.Mark != sandbox.Mark{})
		}
		w.sweep(3, 15*time.Minute)
		left := w.fake.All()
		require.Len(t, left, 1)
		assert.Equal(t, "fork-of-mine", left[0].Sandbox.Name)
	})
}

func TestVercel13ACreateFromASnapshotThatIsGoneLeavesNothing(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.manager(func(c *sandbox.Config) {
			c.Scope.Spec.Native = &vercel.Options{Snapshot: "snap_0123456789012345678901234567"}
		})
		err := m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { return nil })
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.True(t, apiError(t, err).Refused)
		w.nothing()
	})
}

func TestVercel14ADeleteThatFailsIsTriedAgain(t *testing.T) {
	for _, operation := range []string{"getSandbox", "stopSession", "deleteSandbox", "getSession"} {
		t.Run(operation, func(t *testing.T) {
			bubble(t, func(w *world) {
				err := w.manager().WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
					w.fake.Fault(operation, vercelfake.Fault{Status: 500, Times: 3})
					return nil
				})
				assert.NoError(t, err)
				w.nothing()
			})
		})
	}
}

func TestVercel15SnapshotsTellTheirAge(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		_, session := parts(info.ID)
		w.snapshot(session)
		made := w.fake.Service().Now()
		time.Sleep(48 * time.Hour)
		for s, err := range w.p.Snapshots(context.Background(), info.ID) {
			require.NoError(t, err)
			assert.Equal(t, info.ID, s.Source)
			assert.WithinDuration(t, made, s.Created, time.Second)
		}
	})
}

func TestVercel16AHolderThatDiesIsFollowedWithinTheWindow(t *testing.T) {
	bubble(t, func(w *world) {
		const window = 3 * time.Minute
		info := w.make(window)
		at := time.Now()
		for range 30 { // it lives for half an hour
			time.Sleep(time.Minute)
			cur := info
			cur.AsOf = cur.AsOf.Add(time.Since(at))
			var err error
			info, err = w.p.Extend(context.Background(), cur, window)
			require.NoError(t, err)
			at = time.Now()
		}
		left := w.left(info.ID)
		assert.LessOrEqual(t, left, window)
		time.Sleep(window - 5*time.Second)
		assert.Equal(t, sandbox.StateRunning, w.truth(info.ID).Record.State)
		time.Sleep(6 * time.Second)
		assert.Equal(t, sandbox.StateDormant, w.truth(info.ID).Record.State)
	})
}

func TestVercel17TwoHoldersNeverAddUpToMoreThanOneBeat(t *testing.T) {
	bubble(t, func(w *world) {
		const window, beat = 3 * time.Minute, time.Minute
		info := w.make(window)
		type holder struct {
			cur sandbox.Info
			at  time.Time
		}
		holders := []*holder{{info, time.Now()}, {info, time.Now()}}
		for range 60 {
			time.Sleep(beat)
			for _, h := range holders {
				cur := h.cur
				cur.AsOf = cur.AsOf.Add(time.Since(h.at))
				now, err := w.p.Extend(context.Background(), cur, window)
				require.NoError(t, err)
				h.cur, h.at = now, time.Now()
				assert.LessOrEqual(t, w.left(info.ID), window+beat+2*time.Second)
			}
		}
	})
}

func TestVercel18ThePlansCapEndsTheScopeBeforeTheSession(t *testing.T) {
	bubble(t, func(w *world) {
		const plan = 45 * time.Minute
		asked := w.asked()
		var died time.Duration
		began := time.Now()
		err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			err := wait(ctx, 2*time.Hour)
			died = time.Since(began)
			assert.Equal(t, sandbox.StateRunning, w.truth(sb.ID()).Record.State)
			return err
		})
		assert.ErrorIs(t, err, sandbox.ErrMaxLifetime)
		assert.NotErrorIs(t, err, sandbox.ErrLeaseLost)
		assert.Less(t, died, plan)
		assert.Greater(t, died, plan-4*time.Minute)
		assert.LessOrEqual(t, asked("extendTimeout"), 55, "no storm of requests")
		refused := 0
		for _, r := range w.fake.Requests() {
			if r.Operation == "extendTimeout" && r.Status == http.StatusBadRequest {
				refused++
			}
		}
		assert.Equal(t, 1, refused)
		w.nothing()
	}, func(o *vercelfake.Options, _ *vercel.Config) { o.Behaviour.PlanLifetime = 45 * time.Minute })
}

func TestVercel18ThePlansCapIsATypedError(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		_, err := w.p.Extend(context.Background(), info, time.Hour)
		assert.ErrorIs(t, err, errors.ErrUnsupported, "which ends the beats")
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.Equal(t, "sandbox_timeout_invalid", apiError(t, err).Code)

		_, err = w.p.Create(context.Background(), order(time.Hour))
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.True(t, apiError(t, err).Refused)
		assert.Contains(t, err.Error(), "shorter window")
	}, func(o *vercelfake.Options, _ *vercel.Config) { o.Behaviour.PlanLifetime = 45 * time.Minute })
}

func TestVercel19AListShowsAllPages(t *testing.T) {
	bubble(t, func(w *world) {
		want := map[string]bool{}
		for range 120 {
			info, err := w.p.Create(context.Background(), order(time.Hour))
			require.NoError(t, err)
			want[info.ID] = true
			time.Sleep(time.Millisecond)
		}
		for _, f := range []sandbox.Filter{{}, {Fleet: "fleet"}} {
			asked := w.asked()
			all, err := w.list(f)
			require.NoError(t, err)
			got := map[string]bool{}
			for _, i := range all {
				got[i.ID] = true
			}
			assert.Equal(t, want, got)
			assert.Equal(t, 3, asked("listSandboxes"))
		}
	})
}

func TestVercel20AMissingSessionIsNoMissingFile(t *testing.T) {
	for _, code := range []bool{false, true} {
		t.Run(fmt.Sprintf("one code for both: %v", code), func(t *testing.T) {
			bubble(t, func(w *world) {
				w.fake.Change(func(q *vercelfake.Quirks) { q.NoFileCode = code })
				info := w.make(time.Minute)
				sb := w.p.Open(info)
				err := sb.Download(context.Background(), "/missing", &bytes.Buffer{})
				assert.ErrorIs(t, err, fs.ErrNotExist)
				assert.NotErrorIs(t, err, sandbox.ErrNotFound)

				_, session := parts(info.ID)
				w.stop(session)
				err = sb.Download(context.Background(), "/missing", &bytes.Buffer{})
				assert.NotErrorIs(t, err, fs.ErrNotExist)
				assert.ErrorIs(t, err, sandbox.ErrConflict)

				require.NoError(t, w.p.Delete(context.Background(), info.ID))
				err = sb.Download(context.Background(), "/missing", &bytes.Buffer{})
				assert.NotErrorIs(t, err, fs.ErrNotExist)
				assert.ErrorIs(t, err, sandbox.ErrNotFound)
			})
		})
	}
}

func TestVercel21AFailedStartIsNotWaitedFor(t *testing.T) {
	bubble(t, func(w *world) {
		asked := w.asked()
		began := time.Now()
		err := w.manager().WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { return nil })
		assert.ErrorIs(t, err, sandbox.ErrNotStarted)
		assert.Less(t, time.Since(began), 20*time.Second)
		assert.Equal(t, 1, asked("createSandbox"))
		w.nothing()
	}, slow, func(o *vercelfake.Options, _ *vercel.Config) { o.Behaviour.StartsFailed = true })
}

// bodies are the bodies of all requests for an operation.
func (w *world) bodies(operation string) (all []map[string]any) {
	w.t.Helper()
	for _, r := range w.fake.Requests() {
		if r.Operation == operation {
			var body map[string]any
			require.NoError(w.t, json.Unmarshal(r.Body, &body))
			all = append(all, body)
		}
	}
	return all
}

func TestNoRequestOfALifeEverAsksForAResume(t *testing.T) {
	bubble(t, func(w *world) { // the transport looks at every query
		err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			_, session := parts(sb.ID())
			w.stop(session)
			own := sb.(interface{ Unwrap() sandbox.Sandbox }).Unwrap() // which a scope that is over does not keep from asking
			_, err := own.Exec(ctx, sandbox.Shell("true"))
			assert.Error(t, err)
			assert.Error(t, own.Upload(ctx, "/x", strings.NewReader("x")))
			_, err = sb.Exec(ctx, sandbox.Shell("true"))
			return err
		})
		assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
		assert.True(t, slices.ContainsFunc(w.fake.Requests(), func(r vercelfake.Request) bool { return r.Operation == "getSandbox" }))
		w.nothing()
	})
}

// The scenarios of public leak reports that are of this service, by the numbers of the project's list.

func TestG18AStopThatIsNotOverYetIsWaitedFor(t *testing.T) {
	bubble(t, func(w *world) {
		began := time.Now()
		err := w.manager().WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error { return nil })
		assert.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(began), 3*time.Second)
		w.nothing()
	}, func(o *vercelfake.Options, _ *vercel.Config) {
		o.Quirks.StopEarly, o.Quirks.StopTime = true, 3*time.Second
	})
}

func TestG19APersistentSandboxLeavesNoSnapshot(t *testing.T) {
	bubble(t, func(w *world) {
		err := w.manager().WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error {
			name, _ := parts(sb.ID())
			status, answer := w.others("PATCH", "/v2/sandboxes/"+name+"?projectId=prj_test", `{"persistent":true}`)
			require.Equal(t, http.StatusOK, status, answer)
			return nil
		})
		assert.NoError(t, err)
		w.nothing()
	})
}
