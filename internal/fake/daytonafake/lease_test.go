package daytonafake_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestATTLEndsASandboxInAnyState(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		order := object{"ttlMinutes": 10, "autoStopInterval": 0}
		started, stopped, archived, errored := w.create(order), w.create(order), w.create(order), w.create(order)
		end := moment(t, w.do("GET", "/api/sandbox/"+errored, nil).ok(), "autoDestroyAt")
		for _, id := range []string{stopped, archived} {
			w.stop(id)
		}
		w.do("POST", "/api/sandbox/"+archived+"/archive", nil).ok()
		w.s.Service().Fail(daytonafake.MachineID(errored), "boom")
		time.Sleep(time.Until(end) - time.Minute)
		want := []string{"started", "stopped", "archived", "error"}
		assert.Equal(w, want, []string{w.state(started), w.state(stopped), w.state(archived), w.state(errored)})
		time.Sleep(time.Minute + 10*time.Second + 3*time.Second)
		for _, id := range []string{started, stopped, archived, errored} {
			assert.Equal(w, "Not Found", w.state(id))
		}
	})
}

func TestATTLIsSetAnewAndNeverAdded(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"ttlMinutes": 10})
		for _, minutes := range []string{"30", "1", "5"} {
			r := w.do("POST", "/api/sandbox/"+id+"/ttl/"+minutes, nil)
			d, _ := time.ParseDuration(minutes + "m")
			assert.WithinDuration(w, time.Now().Add(d), moment(t, r.ok(), "autoDestroyAt"), time.Millisecond)
			time.Sleep(10 * time.Second)
		}
		off := w.do("POST", "/api/sandbox/"+id+"/ttl/0", nil).ok()
		assert.NotContains(w, off, "autoDestroyAt", "0 switches it off")
		w.do("POST", "/api/sandbox/"+id+"/ttl/-1", nil).refused(400)
		w.do("POST", "/api/sandbox/"+id+"/ttl/1.5", nil).refused(400)
		w.do("POST", "/api/sandbox/none/ttl/1", nil).refused(404)
		w.do("DELETE", "/api/sandbox/"+id, nil).ok()
		assert.Equal(w, "destroying", w.do("POST", "/api/sandbox/"+id+"/ttl/5", nil).ok()["state"])
		time.Sleep(time.Minute)
		w.do("POST", "/api/sandbox/"+id+"/ttl/5", nil).refused(404)
	})
}

func TestTheOrganizationsLongestLifeIsCountedFromTheCreate(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.behave(func(b *fake.Behaviour) { b.PlanLifetime, b.StartTime = time.Hour, 0 })
		id := w.create(object{"ttlMinutes": 600})
		made := w.do("GET", "/api/sandbox/"+id, nil).ok()
		end := moment(t, made, "createdAt").Add(time.Hour)
		assert.True(w, end.Equal(moment(t, made, "autoDestroyAt")))
		time.Sleep(30 * time.Minute)
		for _, minutes := range []string{"0", "45"} {
			r := w.do("POST", "/api/sandbox/"+id+"/ttl/"+minutes, nil).ok()
			assert.True(w, end.Equal(moment(t, r, "autoDestroyAt")), minutes)
		}
		bare := w.do("GET", "/api/sandbox/"+w.create(nil), nil).ok()
		assert.Contains(w, bare, "autoDestroyAt", "it is the default, too")
	})
}

func TestDaytona21AServerFromBeforeTheTTLIgnoresItInSilence(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.quirk(func(q *daytonafake.Quirks) { q.NoTTL = true })
		id := w.create(object{"ttlMinutes": 1, "autoStopInterval": 0})
		assert.NotContains(w, w.do("GET", "/api/sandbox/"+id, nil).ok(), "autoDestroyAt")
		w.do("POST", "/api/sandbox/"+id+"/ttl/5", nil).refused(404)
		time.Sleep(24 * time.Hour)
		assert.Equal(w, "started", w.state(id))
	})
}

func TestDaytona07AnEphemeralSandboxThatNeverStopsByItselfNeverDies(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		immortal := w.create(object{"autoStopInterval": 0, "autoDeleteInterval": 0})
		mortal := w.create(object{"autoStopInterval": 0, "autoDeleteInterval": 0, "ttlMinutes": 30})
		time.Sleep(30*24*time.Hour - time.Minute)
		assert.Equal(w, []sandbox.State{sandbox.StateRunning, sandbox.StateGone}, []sandbox.State{w.truth(immortal), w.truth(mortal)})
	})
}

func TestAnIdleSandboxIsStoppedOnATickAndAnEphemeralOneDestroyed(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		kept := w.create(object{"autoStopInterval": 5})
		gone := w.create(object{"autoStopInterval": 5, "autoDeleteInterval": 0})
		time.Sleep(5*time.Minute - 3*time.Second)
		for range 3 { // looks, lists and settings are no activity
			assert.Equal(w, sandbox.StateRunning, w.truth(kept))
			assert.Equal(w, "started", w.state(kept))
			w.list("")
			w.do("POST", "/api/sandbox/"+kept+"/autoarchive/60", nil).ok()
		}
		time.Sleep(13 * time.Second)
		// The state machine knows it although nobody has asked the server.
		assert.Equal(w, sandbox.StateDormant, w.truth(kept))
		assert.Equal(w, sandbox.StateGone, w.truth(gone))
		assert.Equal(w, "stopped", w.state(kept))
	})
}

func TestDaytona13OnlyProxiedRequestsAreActivity(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		busy := w.create(object{"autoStopInterval": 2})
		skipping := w.create(object{"autoStopInterval": 2})
		detached := w.create(object{"autoStopInterval": 2})
		w.do("POST", "/toolbox/"+detached+"/process/session", object{"sessionId": "s"})
		w.do("POST", "/toolbox/"+detached+"/process/session/s/exec", object{"command": "sleep 36000", "runAsync": true}).ok()
		long := make(chan object, 1)
		go func() { long <- w.exec(busy, "sleep 3640; echo done") }()
		for range 6 {
			time.Sleep(time.Minute)
			url := "/toolbox/" + skipping + "/process/execute"
			w.do("POST", url, object{"command": "true"}, "X-Daytona-Skip-Last-Activity-Update", "true")
		}
		assert.Equal(w, "stopped", w.state(skipping))
		assert.Equal(w, "stopped", w.state(detached), "a command in the background keeps nothing alive")
		assert.Equal(w, "started", w.state(busy))
		assert.Equal(w, "done\n", (<-long)["result"], "a request that is open does")
		time.Sleep(110 * time.Second) // the proxy's last refresh is up to 50 s before the request's end
		assert.Equal(w, "stopped", w.state(busy))
	})
}

func TestDaytona12ARefreshRightBeforeTheEndIsLost(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.behave(func(b *fake.Behaviour) { b.StartTime = 0 })
		early, late := w.create(object{"autoStopInterval": 1}), w.create(object{"autoStopInterval": 1})
		refresh := func(id string) {
			r := w.do("POST", "/api/sandbox/"+id+"/last-activity", object{})
			assert.Equal(w, 201, r.status)
			assert.Empty(w, r.body)
		}
		time.Sleep(45 * time.Second)
		refresh(early)
		time.Sleep(10 * time.Second)
		refresh(late) // the job of the tick at 60 s looks before this one is written
		time.Sleep(10 * time.Second)
		assert.Equal(w, []string{"started", "stopped"}, []string{w.state(early), w.state(late)})
		time.Sleep(39 * time.Second)
		assert.Equal(w, "started", w.state(early))
		time.Sleep(10 * time.Second)
		assert.Equal(w, "stopped", w.state(early))
	})
}

func TestRefreshesCloserThanTheThrottleAreDropped(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		start := moment(t, w.do("GET", "/api/sandbox/"+id, nil).ok(), "lastActivityAt")
		time.Sleep(10 * time.Second)
		first := time.Now()
		for range 4 {
			w.do("POST", "/api/sandbox/"+id+"/last-activity", nil)
			assert.True(w, start.Equal(moment(t, w.do("GET", "/api/sandbox/"+id, nil).ok(), "lastActivityAt")), "it is buffered")
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		assert.WithinDuration(w, first, moment(t, w.do("GET", "/api/sandbox/"+id, nil).ok(), "lastActivityAt"), time.Millisecond)
	})
}

func TestDaytona11ARefreshSaysYesToTheDead(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"name": "n"})
		path := "/api/sandbox/" + id + "/last-activity"
		w.stop(id)
		assert.Equal(w, 201, w.do("POST", path, nil).status)
		w.do("POST", "/api/sandbox/n/last-activity", nil).refused(404)
		w.do("DELETE", "/api/sandbox/"+id, nil).ok()
		time.Sleep(time.Minute)
		assert.Equal(w, "Not Found", w.state(id))
		assert.Equal(w, 201, w.do("POST", path, nil).status)
		time.Sleep(25 * time.Hour)
		w.do("POST", path, nil).refused(404)
	})
}

func TestDaytona10ArchivingComesBeforeDeletingAndForestallsIt(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		order := func(archive, remove int) string {
			id := w.create(object{"autoArchiveInterval": archive, "autoDeleteInterval": remove})
			w.stop(id)
			return id
		}
		archived, deleted, both := order(30, 60), order(60, 30), order(30, 30)
		time.Sleep(31 * time.Minute)
		assert.Equal(w, []string{"archived", "Not Found", "archived"}, []string{w.state(archived), w.state(deleted), w.state(both)})
		time.Sleep(365 * 24 * time.Hour)
		assert.Equal(w, "archived", w.state(archived), "what is archived piles up for ever")
	})
}

func TestARefreshKeepsTheDiskOfAStoppedSandbox(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		kept, gone := w.create(object{"autoDeleteInterval": 5}), w.create(object{"autoDeleteInterval": 5})
		for _, id := range []string{kept, gone} {
			w.stop(id)
		}
		for range 10 {
			time.Sleep(time.Minute)
			w.do("POST", "/api/sandbox/"+kept+"/last-activity", nil)
		}
		assert.Equal(w, []string{"stopped", "Not Found"}, []string{w.state(kept), w.state(gone)})
	})
}

func TestTheLongestArchiveIntervalIsThirtyDaysAndZeroMeansIt(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"autoArchiveInterval": 100000})
		assert.Equal(w, 43200., w.do("GET", "/api/sandbox/"+id, nil).ok()["autoArchiveInterval"])
		w.do("POST", "/api/sandbox/"+id+"/autoarchive/0", nil).ok()
		w.stop(id)
		time.Sleep(30*24*time.Hour - time.Minute)
		assert.Equal(w, "stopped", w.state(id))
		time.Sleep(2 * time.Minute)
		assert.Equal(w, "archived", w.state(id))
	})
}

func TestIntervalsAreChangedWithoutBeingActivity(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"autoStopInterval": 0})
		path := "/api/sandbox/" + id
		assert.Equal(w, 1., w.do("POST", path+"/autostop/1", nil).ok()["autoStopInterval"])
		assert.Equal(w, -1., w.do("POST", path+"/autodelete/-7", nil).ok()["autoDeleteInterval"])
		w.do("POST", path+"/autostop/-1", nil).refused(400)
		w.do("POST", path+"/autostop/x", nil).refused(400)
		w.do("POST", path+"/autopause/5", nil).refused(422)
		w.quirk(func(q *daytonafake.Quirks) { q.Created = true })
		assert.Equal(w, 201, w.do("POST", path+"/autodelete/0", nil).status)
		assert.Equal(w, 201, w.do("POST", path+"/ttl/5", nil).status)
		time.Sleep(75 * time.Second)
		assert.Equal(w, "Not Found", w.state(id))
	})
}

func TestAVirtualMachineIsPausedWhenIdle(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.quirk(func(q *daytonafake.Quirks) { q.VM = true })
		id := w.create(nil)
		got := w.do("GET", "/api/sandbox/"+id, nil).ok()
		assert.Equal(w, []any{0., 60., "linux-vm"}, []any{got["autoStopInterval"], got["autoPauseInterval"], got["sandboxClass"]})
		time.Sleep(61 * time.Minute)
		assert.Equal(w, "paused", w.state(id))
		time.Sleep(365 * 24 * time.Hour)
		assert.Equal(w, "paused", w.state(id))
		assert.Equal(w, "started", w.do("POST", "/api/sandbox/"+id+"/start", nil).ok()["state"])
		assert.Equal(w, "paused", w.do("POST", "/api/sandbox/"+id+"/pause", nil).ok()["state"])
	})
}

func TestEverythingHappensAtItsTimeWhenTheClockIsMoved(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"autoStopInterval": 10, "autoArchiveInterval": 20})
		var at []time.Time
		w.s.Service().Watch(func(c fake.Change) {
			if c.Record.State == sandbox.StateDormant {
				at = append(at, c.At)
			}
		})
		start := w.s.Service().Now()
		w.s.Advance(29 * time.Minute)
		assert.Equal(w, "stopped", w.state(id))
		assert.NotEmpty(w, at)
		assert.WithinDuration(w, start.Add(10*time.Minute), at[0], 10*time.Second)
		w.s.Advance(2 * time.Minute)
		assert.Equal(w, "archived", w.state(id))
	})
}
