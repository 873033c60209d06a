package vercelfake_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestASessionEndsAtItsTimeoutAndTheRecordStays(t *testing.T) {
	bubble(t, vercelfake.Options{Behaviour: fake.Behaviour{EndTime: 2 * time.Second}}, func(w *world) {
		a := w.create("box", nil)
		w.sleep(60*time.Second - time.Nanosecond)
		assert.Equal(t, "running", w.get("box").Session.Status)
		w.sleep(time.Nanosecond)
		assert.Equal(t, "stopping", w.get("box").Session.Status)
		w.refused(422, "sandbox_stopping", "POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 60_000})
		w.sleep(2 * time.Second)
		g := w.get("box")
		assert.Equal(t, "stopped", g.Session.Status)
		assert.Equal(t, "stopped", g.Sandbox.Status)
		assert.Equal(t, a.Session.StartedAt+62_000, g.Session.StoppedAt)
		assert.EqualValues(t, 60_000, *g.Session.Timeout)
		assert.Zero(t, g.Sandbox.ExpiresAt)
		w.refused(410, "sandbox_stopped", "POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 60_000})
		w.refused(410, "sandbox_stopped", "POST", on(a.Session.ID, "cmd"), "", m{"command": "true"})
		assert.Len(t, w.ok("GET", "/v2/sandboxes", "", nil).Sandboxes, 1)
		assert.Empty(t, w.fake.Snapshots())
	})
}

func TestAnExtendAdds(t *testing.T) {
	bubble(t, vercelfake.Options{Behaviour: fake.Behaviour{PlanLifetime: 5 * time.Minute}}, func(w *world) {
		a := w.create("box", nil)
		w.sleep(10 * time.Second)
		for i := range 2 {
			e := w.ok("POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 30_000})
			assert.EqualValues(t, 60_000+30_000*(i+1), *e.Session.Timeout)
			assert.Equal(t, a.Session.StartedAt+10_000, e.Session.UpdatedAt)
		}
		assert.Equal(t, a.Session.StartedAt+120_000, w.get("box").Sandbox.ExpiresAt)
		w.refused(400, "bad_request", "POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 999})
		w.refused(400, "bad_request", "POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": -1000})
		w.refused(400, "bad_request", "POST", on(a.Session.ID, "extend-timeout"), "", m{})
		w.refused(400, "sandbox_timeout_invalid", "POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 180_001})
		w.refused(400, "sandbox_timeout_invalid", "POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": int64(1) << 60})
		w.ok("POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 180_000})
		w.refused(404, "sandbox_not_found", "POST", on("sbx_none", "extend-timeout"), "", m{"duration": 1000})

		w.fake.Fault("extendTimeout", vercelfake.Fault{Ignore: true})
		w.fake.Service().Behave(func(b *fake.Behaviour) { b.PlanLifetime = -1 })
		e := w.ok("POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 5 * 86_400_000})
		assert.EqualValues(t, 300_000, *e.Session.Timeout)
		e = w.ok("POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 5 * 86_400_000})
		assert.EqualValues(t, 300_000+5*86_400_000, *e.Session.Timeout)
	})
}

func TestNothingButResumeStartsAnotherSession(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		w.write(a.Session.ID, 0o644, map[string]string{"vercel/sandbox/f": "x"})
		w.ok("POST", on(a.Session.ID, "stop"), "", nil)
		g := w.ok("GET", "/v2/sandboxes/box", "resume=false", nil)
		assert.Equal(t, "stopped", g.Session.Status)
		assert.False(t, *g.Resumed)

		r := w.ok("GET", "/v2/sandboxes/box", "resume=true", nil)
		assert.True(t, *r.Resumed)
		assert.NotEqual(t, a.Session.ID, r.Session.ID)
		assert.Equal(t, r.Session.ID, r.Sandbox.CurrentSessionID)
		out, _, _ := w.run(r.Session.ID, sh("ls"))
		assert.Empty(t, out, "what keeps no files begins without")
		assert.Equal(t, "stopped", w.session(a.Session.ID).Session.Status)
		w.refused(410, "sandbox_stopped", "POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 1000})
		assert.False(t, *w.ok("GET", "/v2/sandboxes/box", "resume=true", nil).Resumed, "it runs")
		all := w.ok("GET", "/v2/sandboxes/sessions", "name=box", nil).Sessions
		require.Len(t, all, 2)
	})
}

func TestAResumedSessionHasTheTimeoutOfItsSandboxHoweverLongTheResumeTakes(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		w.fake.Service().Watch(func(fake.Change) { time.Sleep(5 * time.Millisecond) })
		for _, timeout := range []int64{*a.Session.Timeout, 90_000, 30_000} {
			w.ok("PATCH", "/v2/sandboxes/box", "", m{"timeout": timeout})
			w.ok("POST", on(w.get("box").Session.ID, "stop"), "", nil)
			r := w.ok("GET", "/v2/sandboxes/box", "resume=true", nil)
			assert.Equal(t, timeout, *r.Session.Timeout)
			assert.Equal(t, r.Session.StartedAt+timeout, r.Sandbox.ExpiresAt)
		}
	})
}

func TestWhatKeepsItsFilesGoesOnFromItsSnapshotWhileThatExists(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", m{"persistent": true})
		w.write(a.Session.ID, 0o644, map[string]string{"vercel/sandbox/f": "x", "tmp/g": "y"})
		w.run(a.Session.ID, m{"command": "sh", "args": []string{"-c", "echo r >/root/h"}, "sudo": true})
		w.sleep(time.Minute) // the end of the lease keeps files too
		snaps := w.fake.Snapshots()
		require.Len(t, snaps, 1)
		assert.Equal(t, a.Session.ID, snaps[0].SourceSessionID)
		assert.Regexp(t, `^snap_[A-Za-z0-9]{28}$`, snaps[0].ID)
		assert.Equal(t, snaps[0].CreatedAt+30*86_400_000, snaps[0].ExpiresAt)

		r := w.ok("GET", "/v2/sandboxes/box", "resume=true", nil)
		assert.Equal(t, snaps[0].ID, r.Session.SourceSnapshotID)
		look := sh("cat f /tmp/g /root/h; stat -c %U f /root/h")
		look["sudo"] = true
		out, _, _ := w.run(r.Session.ID, look)
		assert.Equal(t, "xyr\nvercel-sandbox\nroot\n", out)
		s := w.ok("POST", on(r.Session.ID, "stop"), "", nil)
		require.NotNil(t, s.Snapshot)
		assert.Equal(t, s.Snapshot.ID, s.Sandbox.CurrentSnapshotID)
		assert.Equal(t, snaps[0].ID, s.Snapshot.ParentID)

		w.ok("DELETE", "/v2/sandboxes/snapshots/"+s.Snapshot.ID, "", nil)
		w.refused(410, "snapshot_not_found", "GET", "/v2/sandboxes/box", "resume=true", nil)
		assert.Equal(t, 200, w.get("box").Status, "the record is there all the same")
		w.refused(404, "not_found", "GET", "/v2/sandboxes/snapshots/"+s.Snapshot.ID, "", nil)
	})
}

func TestAStopAnswersWhenTheSessionHasStopped(t *testing.T) {
	quirks := vercelfake.Quirks{StopTime: 3 * time.Second, SnapshotTime: 4 * time.Second}
	bubble(t, vercelfake.Options{Quirks: quirks}, func(w *world) {
		a := w.create("plain", nil)
		start := time.Now()
		s := w.ok("POST", on(a.Session.ID, "stop"), "", nil)
		assert.Equal(t, 3*time.Second, since(start))
		assert.Equal(t, "stopped", s.Session.Status)
		assert.Equal(t, s.Session.RequestedStopAt+3000, s.Session.StoppedAt)
		assert.Nil(t, s.Snapshot)
		s = w.ok("POST", on(a.Session.ID, "stop"), "", nil)
		assert.Equal(t, "stopped", s.Session.Status)
		for _, status := range []int{410, 422} {
			w.fake.Change(func(q *vercelfake.Quirks) { q.StopEnded = status })
			w.refused(status, "sandbox_stopped", "POST", on(a.Session.ID, "stop"), "", nil)
		}

		b := w.create("keeps", m{"persistent": true})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := w.client.Do(w.request(ctx, "POST", on(b.Session.ID, "stop"), "", nil))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, "snapshotting", w.session(b.Session.ID).Session.Status)
		assert.Equal(t, "stopping", w.get("keeps").Sandbox.Status)
		w.refused(422, "sandbox_snapshotting", "POST", on(b.Session.ID, "cmd"), "", m{"command": "true"})
		w.sleep(4 * time.Second)
		assert.Equal(t, "stopping", w.session(b.Session.ID).Session.Status)
		w.refused(422, "sandbox_stopping", "POST", on(b.Session.ID, "extend-timeout"), "", m{"duration": 1000})
		w.fake.Change(func(q *vercelfake.Quirks) { q.ConflictOfLife = true })
		w.refused(409, "sandbox_stopping", "POST", on(b.Session.ID, "extend-timeout"), "", m{"duration": 1000})
		s = w.ok("POST", on(b.Session.ID, "stop"), "", nil) // joins
		assert.Equal(t, "stopped", s.Session.Status)
		require.NotNil(t, s.Snapshot)
		assert.Len(t, w.fake.Snapshots(), 1)
	})
}

func TestAStopCanAnswerTooSoonOrLie(t *testing.T) {
	bubble(t, vercelfake.Options{Quirks: vercelfake.Quirks{StopTime: 3 * time.Second}}, func(w *world) {
		a := w.create("box", m{"timeout": 600_000})
		w.fake.Fault("stopSession", vercelfake.Fault{Ignore: true})
		assert.Equal(t, "stopping", w.ok("POST", on(a.Session.ID, "stop"), "", nil).Session.Status)
		w.sleep(time.Minute)
		assert.Equal(t, "running", w.session(a.Session.ID).Session.Status)

		w.fake.Change(func(q *vercelfake.Quirks) { q.StopEarly = true })
		start := time.Now()
		assert.Equal(t, "stopping", w.ok("POST", on(a.Session.ID, "stop"), "", nil).Session.Status)
		assert.Zero(t, since(start))
		assert.Equal(t, "stopping", w.session(a.Session.ID).Session.Status)
		w.sleep(3 * time.Second)
		assert.Equal(t, "stopped", w.session(a.Session.ID).Session.Status)
	})
}

func TestADeleteHidesTheNameAtOnceAndTheSessionTellsTheRest(t *testing.T) {
	bubble(t, vercelfake.Options{Behaviour: fake.Behaviour{DeleteTime: 3 * time.Second}}, func(w *world) {
		a := w.create("box", m{"tags": m{"a": "b"}})
		d := w.ok("DELETE", "/v2/sandboxes/box", "", nil)
		assert.Equal(t, "box", d.Sandbox.Name)
		w.refused(404, "sandbox_not_found", "GET", "/v2/sandboxes/box", "", nil)
		w.refused(404, "sandbox_not_found", "GET", "/v2/sandboxes/box", "resume=true", nil)
		w.refused(404, "sandbox_not_found", "DELETE", "/v2/sandboxes/box", "", nil)
		assert.Empty(t, w.ok("GET", "/v2/sandboxes", "tags=a%3Ab", nil).Sandboxes)
		assert.Equal(t, "stopping", w.session(a.Session.ID).Session.Status)
		require.Len(t, w.fake.All(), 1)
		assert.True(t, w.fake.All()[0].Deleted)
		w.sleep(3 * time.Second)
		w.refused(404, "sandbox_not_found", "GET", "/v2/sandboxes/sessions/"+a.Session.ID, "", nil)
		assert.Empty(t, w.fake.All())

		w.fake.Change(func(q *vercelfake.Quirks) { q.SessionGone = 410 })
		w.refused(410, "sandbox_stopped", "GET", "/v2/sandboxes/sessions/"+a.Session.ID, "", nil)
		w.refused(410, "sandbox_stopped", "POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 1000})
		w.fake.Change(func(q *vercelfake.Quirks) { q.SessionsKept = time.Hour })
		assert.Equal(t, "stopped", w.session(a.Session.ID).Session.Status)
		tr, ok := w.fake.Lookup(a.Session.ID)
		require.True(t, ok)
		assert.Equal(t, sandbox.StateGone, tr.Record.State)
	})
}

func TestDeletesThatFailLieOrAreUndoneShowIt(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		svc := w.fake.Service()
		a := w.create("box", m{"timeout": 600_000})
		svc.Fault(sandbox.OpDelete, fake.Fault{Effect: fake.EffectNone})
		w.ok("DELETE", "/v2/sandboxes/box", "", nil)
		assert.Equal(t, "running", w.get("box").Session.Status)
		w.fake.Fault("deleteSandbox", vercelfake.Fault{Ignore: true}, vercelfake.Fault{Status: 500})
		w.ok("DELETE", "/v2/sandboxes/box", "", nil)
		w.refused(500, "internal_server_error", "DELETE", "/v2/sandboxes/box", "", nil)
		assert.Equal(t, "running", w.get("box").Session.Status)
		svc.Behave(func(b *fake.Behaviour) { b.NoDelete = true })
		w.refused(403, "forbidden", "DELETE", "/v2/sandboxes/box", "", nil)
		svc.Behave(func(b *fake.Behaviour) { b.NoDelete, b.ReviveAfter = false, 5*time.Second })

		svc.Fault(sandbox.OpDelete, fake.Fault{Effect: fake.EffectRevive})
		w.ok("DELETE", "/v2/sandboxes/box", "deleteOrphanSnapshots=true", nil)
		assert.Equal(t, 404, w.get("box").Status)
		w.sleep(5 * time.Second)
		again := w.get("box")
		assert.Equal(t, "running", again.Session.Status)
		assert.NotEqual(t, a.Session.ID, again.Session.ID)
		assert.Equal(t, "stopped", w.session(a.Session.ID).Session.Status)
		w.ok("POST", on(again.Session.ID, "snapshot"), "", nil)
		assert.Len(t, w.fake.Snapshots(), 1, "the delete was of another life")
		again = w.ok("GET", "/v2/sandboxes/box", "resume=true", nil)

		svc.Fault(sandbox.OpDelete, fake.Fault{Effect: fake.EffectOrphan})
		w.ok("DELETE", "/v2/sandboxes/box", "", nil)
		assert.Equal(t, 404, w.get("box").Status)
		assert.Equal(t, 404, w.session(again.Session.ID).Status)
		assert.True(t, w.fake.All()[0].Record.Lost)
	})
}

func TestADeleteAtTheEndOfTheLeaseHidesTheName(t *testing.T) {
	bubble(t, vercelfake.Options{Behaviour: fake.Behaviour{EndTime: 5 * time.Second}}, func(w *world) {
		a := w.create("box", nil)
		w.sleep(time.Minute)
		assert.Equal(t, "stopping", w.get("box").Session.Status)
		w.ok("DELETE", "/v2/sandboxes/box", "", nil)
		assert.Equal(t, 404, w.get("box").Status)
		assert.Equal(t, "stopping", w.session(a.Session.ID).Session.Status)
		w.sleep(5 * time.Second)
		assert.Empty(t, w.fake.All())
	})
}

func TestADeleteMayBeRefusedWhileASessionStops(t *testing.T) {
	quirks := vercelfake.Quirks{StopTime: 3 * time.Second, StopEarly: true, DeleteBusy: 422}
	bubble(t, vercelfake.Options{Quirks: quirks}, func(w *world) {
		a := w.create("box", nil)
		w.ok("POST", on(a.Session.ID, "stop"), "", nil)
		w.refused(422, "sandbox_stopping", "DELETE", "/v2/sandboxes/box", "", nil)
		w.sleep(3 * time.Second)
		w.ok("DELETE", "/v2/sandboxes/box", "", nil)

		w.fake.Change(func(q *vercelfake.Quirks) { q.DeleteBusy = 0 })
		b := w.create("other", nil)
		w.ok("POST", on(b.Session.ID, "stop"), "", nil)
		w.ok("DELETE", "/v2/sandboxes/other", "", nil)
		assert.Equal(t, 404, w.get("other").Status)
		w.sleep(3 * time.Second)
		assert.Empty(t, w.fake.All())
	})
}

func TestADeleteLeavesSnapshotsUnlessItIsTold(t *testing.T) {
	bubble(t, vercelfake.Options{Quirks: vercelfake.Quirks{OrphanLag: 10 * time.Second}}, func(w *world) {
		for _, name := range []string{"left", "used", "purged"} {
			a := w.create(name, m{"persistent": true})
			w.ok("POST", on(a.Session.ID, "stop"), "", nil)
		}
		w.ok("POST", "/v2/sandboxes/used/fork", "", m{"name": "copy", "persistent": false})
		w.ok("DELETE", "/v2/sandboxes/left", "", nil)
		w.ok("DELETE", "/v2/sandboxes/used", "deleteOrphanSnapshots=true", nil)
		w.ok("DELETE", "/v2/sandboxes/purged", "deleteOrphanSnapshots=true", nil)
		assert.Len(t, w.fake.Snapshots(), 3, "they are deleted later")
		assert.Len(t, w.ok("GET", "/v2/sandboxes/snapshots", "name=purged", nil).Snapshots, 1)
		w.fake.Change(func(q *vercelfake.Quirks) { q.NameForgets = true })
		assert.Empty(t, w.ok("GET", "/v2/sandboxes/snapshots", "name=purged", nil).Snapshots)
		assert.Len(t, w.ok("GET", "/v2/sandboxes/snapshots", "", nil).Snapshots, 3)
		w.sleep(10 * time.Second)
		var names []string
		for _, n := range w.fake.Snapshots() {
			names = append(names, n.Sandbox)
		}
		assert.Equal(t, []string{"left", "used"}, names)
		w.ok("DELETE", "/v2/sandboxes/copy", "", nil)
		assert.Len(t, w.fake.Snapshots(), 1, "nobody needs it any more")
	})
}

func TestADeleteOfWhatRunsAndKeepsFilesKeepsThem(t *testing.T) {
	bubble(t, vercelfake.Options{Behaviour: fake.Behaviour{DeleteTime: time.Second}}, func(w *world) {
		w.create("a", m{"persistent": true})
		w.ok("DELETE", "/v2/sandboxes/a", "", nil)
		w.create("b", m{"persistent": true})
		w.ok("DELETE", "/v2/sandboxes/b", "deleteOrphanSnapshots=true", nil)
		w.sleep(time.Second)
		snaps := w.fake.Snapshots()
		require.Len(t, snaps, 1)
		assert.Equal(t, "a", snaps[0].Sandbox)

		w.create("c", m{"persistent": true})
		w.fake.Service().Fault(sandbox.OpDelete, fake.Fault{Err: &sandbox.APIError{Status: 500}, After: true})
		w.refused(500, "internal_server_error", "DELETE", "/v2/sandboxes/c", "deleteOrphanSnapshots=true", nil)
		assert.Equal(t, 404, w.get("c").Status)
		w.sleep(time.Second)
		assert.Len(t, w.fake.Snapshots(), 1, "an answer that is lost loses nothing of the effect")
	})
}

func TestASnapshotEndsItsSession(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		n := w.ok("POST", on(a.Session.ID, "snapshot"), "", m{"expiration": 2 * 86_400_000})
		assert.Equal(t, "stopped", n.Session.Status)
		assert.Equal(t, "manual", n.Snapshot.CreationMethod)
		assert.Equal(t, n.Snapshot.CreatedAt+2*86_400_000, n.Snapshot.ExpiresAt)
		w.refused(410, "sandbox_stopped", "POST", on(a.Session.ID, "snapshot"), "", nil)

		assert.Equal(t, *n.Snapshot, *w.ok("GET", "/v2/sandboxes/snapshots/"+n.Snapshot.ID, "", nil).Snapshot)
		source := m{"type": "snapshot", "snapshotId": n.Snapshot.ID}
		from := w.ok("POST", "/v3/sandboxes", "", m{"projectId": "prj_test", "source": source})
		assert.Equal(t, n.Snapshot.ID, from.Session.SourceSnapshotID)
		w.refused(400, "bad_request", "POST", on(from.Session.ID, "snapshot"), "", m{"expiration": 1000})
	})
}

func TestRecordsAndSnapshotsEndByThemselves(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		w.create("plain", nil)
		w.create("keeps", m{"persistent": true, "snapshotExpiration": 20 * 86_400_000})
		w.create("for-ever", m{"persistent": true, "snapshotExpiration": 0})
		w.sleep(time.Minute + 14*24*time.Hour - time.Second)
		assert.Equal(t, 200, w.get("plain").Status)
		w.sleep(time.Second)
		assert.Equal(t, 404, w.get("plain").Status)
		assert.Equal(t, 200, w.get("keeps").Status)
		assert.Len(t, w.fake.Snapshots(), 2)
		w.sleep(6 * 24 * time.Hour)
		assert.Len(t, w.fake.Snapshots(), 1)
		w.refused(410, "snapshot_not_found", "GET", "/v2/sandboxes/keeps", "resume=true", nil)
		w.ok("GET", "/v2/sandboxes/for-ever", "resume=true", nil)
	})
}

func TestOfAutomaticSnapshotsOnlySoManyAreKept(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", m{"persistent": true, "keepLastSnapshots": m{"count": 2}})
		for range 4 {
			w.ok("POST", on(a.Session.ID, "stop"), "", nil)
			a = w.ok("GET", "/v2/sandboxes/box", "resume=true", nil)
		}
		assert.Len(t, w.fake.Snapshots(), 2)
	})
}

func TestTheEndOfTheMachineByOthersIsSeen(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a, b, c := w.create("a", nil), w.create("b", nil), w.create("c", nil)
		svc := w.fake.Service()
		id := func(name string) string {
			tr, ok := w.fake.Lookup(name)
			require.True(t, ok)
			return tr.ServiceID
		}
		svc.Pause(id("a"))
		assert.Equal(t, "stopped", w.session(a.Session.ID).Session.Status)
		svc.Kill(id("b"))
		assert.Equal(t, 404, w.session(b.Session.ID).Status)
		svc.Fail(id("c"), "aborted")
		got := w.session(c.Session.ID).Session
		assert.Equal(t, "aborted", got.Status)
		assert.NotZero(t, got.AbortedAt)
		assert.Equal(t, "stopped", w.get("c").Sandbox.Status)
	})
}

func TestFaultsOfTheWire(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		w.create("box", m{"timeout": 3_600_000})
		get := func(ctx context.Context) (*http.Response, error) {
			return w.client.Do(w.request(ctx, "GET", "/v2/sandboxes/box", "", nil))
		}
		w.fake.Fault("getSandbox",
			vercelfake.Fault{Status: 418, Code: "teapot", Message: "short", Skip: 1, Times: 2},
			vercelfake.Fault{Body: "{", Header: http.Header{"X-A": {"b"}}},
			vercelfake.Fault{Delay: 7 * time.Second},
		)
		assert.Equal(t, 200, w.get("box").Status)
		for range 2 {
			assert.Equal(t, "teapot", w.refused(418, "teapot", "GET", "/v2/sandboxes/box", "", nil).Error.Code)
		}
		got, err := get(context.Background())
		require.NoError(t, err)
		assert.Equal(t, "b", got.Header.Get("X-A"))
		assert.EqualValues(t, 1, got.ContentLength)
		require.NoError(t, got.Body.Close())
		start := time.Now()
		assert.Equal(t, 200, w.get("box").Status)
		assert.Equal(t, 7*time.Second, since(start))

		w.fake.Fault("", vercelfake.Fault{Cut: 20})
		got, err = get(context.Background())
		require.NoError(t, err)
		text := make([]byte, 100)
		n, _ := got.Body.Read(text)
		assert.Equal(t, 20, n)
		_, err = got.Body.Read(text)
		require.Error(t, err)
		require.NoError(t, got.Body.Close())

		w.fake.Fault("getSandbox", vercelfake.Fault{Hang: true, Times: -1})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = get(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		w.fake.Heal()
		assert.Equal(t, 200, w.get("box").Status)
	})
}

func TestAResumeWaitsForTheStopAndTakesTheLatestTimeout(t *testing.T) {
	o := vercelfake.Options{
		Quirks: vercelfake.Quirks{StopTime: 5 * time.Second, StopEarly: true}, Behaviour: fake.Behaviour{EndTime: 2 * time.Second},
	}
	bubble(t, o, func(w *world) {
		a := w.create("box", nil)
		w.ok("PATCH", "/v2/sandboxes/box", "", m{"timeout": 90_000})
		w.ok("POST", on(a.Session.ID, "stop"), "", nil)
		start := time.Now()
		r := w.ok("GET", "/v2/sandboxes/box", "resume=true", nil)
		assert.Equal(t, 5*time.Second, since(start))
		assert.True(t, *r.Resumed)
		assert.EqualValues(t, 90_000, *r.Session.Timeout)
		w.sleep(90 * time.Second)
		start = time.Now()
		r = w.ok("GET", "/v2/sandboxes/box", "resume=true", nil)
		assert.Equal(t, 2*time.Second, since(start), "its lease is just ending")
		assert.Equal(t, r.Session.StartedAt+90_000, r.Sandbox.ExpiresAt)
		assert.Len(t, w.ok("GET", "/v2/sandboxes/sessions", "", nil).Sessions, 3)
	})
}

func TestManyLivesAtOnceAreEachWhatTheyWere(t *testing.T) {
	o := vercelfake.Options{
		Quirks: vercelfake.Quirks{StopTime: time.Second}, Behaviour: fake.Behaviour{StartTime: time.Second, DeleteTime: time.Second},
	}
	bubble(t, o, func(w *world) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				name := fmt.Sprintf("box-%d", i)
				a := w.create(name, m{"persistent": i%2 == 0, "tags": m{"n": name}})
				out, _, _ := w.run(a.Session.ID, sh("sleep 1; echo "+name))
				assert.Equal(t, name+"\n", out)
				e := w.ok("POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 1000 * (i + 1)})
				assert.EqualValues(t, 60_000+1000*(i+1), *e.Session.Timeout)
				if i%3 == 0 {
					w.ok("POST", on(a.Session.ID, "stop"), "", nil)
				}
				assert.Equal(t, []string{name}, w.names("tags=n%3A"+name))
				w.ok("DELETE", "/v2/sandboxes/"+name, "deleteOrphanSnapshots=true", nil)
			})
		}
		all.Wait()
		w.sleep(time.Second)
		assert.Empty(t, w.fake.All())
		assert.Empty(t, w.fake.Snapshots())
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	defer goleak.VerifyNone(t)
	fake := vercelfake.New(vercelfake.Options{Quirks: vercelfake.Quirks{StopTime: time.Hour}})
	server := httptest.NewServer(fake)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	defer fake.Close()
	post := func(path, body string) string {
		r, err := http.NewRequest("POST", server.URL+path+"?teamId=team_test", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+vercelfake.DefaultToken)
		got, err := client.Do(r)
		if err != nil {
			return err.Error()
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	require.Contains(t, post("/api/v3/sandboxes", `{"projectId":"prj_test","name":"box"}`), "running")
	id := fake.All()[0].Session.ID
	require.Contains(t, post("/api"+on(id, "cmd"), `{"command":"sleep","args":["3600"]}`), "cmd_")
	answers := make(chan string, 2)
	soon := func(happens func() bool) { require.Eventually(t, happens, 10*time.Second, time.Millisecond) }
	go func() {
		answers <- post("/api"+on(id, "cmd"), `{"command":"sleep","args":["3600"],"wait":true,"logs":true}`)
	}()
	soon(func() bool { return len(fake.Processes(id)) == 2 })
	go func() { answers <- post("/api"+on(id, "stop"), "") }()
	soon(func() bool { return fake.All()[0].Session.Status == "stopping" })
	fake.Close()
	for range 2 {
		assert.Contains(t, <-answers, "EOF")
	}
	assert.Contains(t, post("/api"+on(id, "stop"), ""), "EOF")
}
