package daytonafake_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestABareCreateGetsTheServicesDefaults(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		start := time.Now()
		made := w.do("POST", "/api/sandbox", object{"unheardOf": true}).ok()
		assert.Equal(w, "creating", made["state"], "the answer is of before the wait")
		assert.WithinDuration(w, start.Add(2*time.Second), time.Now(), 200*time.Millisecond, "a create waits for the start")
		got := w.do("GET", "/api/sandbox/"+made["id"].(string), nil).ok()
		for field, want := range map[string]any{
			"state": "started", "desiredState": "started", "name": made["id"], "user": "daytona", "target": "us", "public": false,
			"autoStopInterval": 15., "autoArchiveInterval": 10080., "autoDeleteInterval": -1., "autoPauseInterval": 0.,
			"cpu": 1., "memory": 1., "disk": 3., "gpu": 0., "sandboxClass": "container", "env": object{}, "labels": object{},
			"toolboxProxyUrl": "http://daytona.test/toolbox", "organizationId": "org-1", "networkBlockAll": false,
		} {
			assert.Equal(w, want, got[field], field)
		}
		assert.NotContains(w, got, "autoDestroyAt", "there is no hard end unless it is asked for")
		assert.True(w, moment(t, got, "createdAt").Equal(start))
	})
}

func TestACreateIsRefusedForWhatTheServiceRefuses(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.behave(func(b *fake.Behaviour) { b.UnknownImages, b.MaxLive = []string{"none"}, 1 })
		image := object{"dockerfileContent": "FROM debian:12\n"}
		for name, body := range map[string]object{
			"a negative interval":        {"autoStopInterval": -1},
			"a negative TTL":             {"ttlMinutes": -1},
			"half a minute":              {"ttlMinutes": 0.5},
			"sizes of a snapshot":        {"cpu": 2},
			"a link for a name":          {"name": "https://example.test"},
			"a tag for a name":           {"name": "<b>"},
			"snapshot and build":         {"snapshot": "x", "buildInfo": image},
			"auto-pause of a container":  {"autoPauseInterval": 5},
			"an unknown snapshot":        {"snapshot": "none"},
			"a GPU that is no ephemeral": {"buildInfo": image, "gpu": 1},
		} {
			r := w.do("POST", "/api/sandbox", body)
			assert.Equalf(w, 400, r.status, "%s: %s", name, r.body)
		}
		assert.Equal(w, 400, w.do("POST", "/api/sandbox", "{").status)
		assert.Empty(w, w.s.Service().All())
		w.create(nil)
		full := w.do("POST", "/api/sandbox", nil).refused(400)
		assert.Contains(w, full["message"], "limit exceeded", "a quota is no 429")
	})
}

func TestATakenNameIsAConflictUntilItsSandboxIsDeleted(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"name": "one"})
		w.do("POST", "/api/sandbox", object{"name": "one"}).refused(409)
		assert.Equal(w, id, w.do("GET", "/api/sandbox/one", nil).ok()["id"])
		w.do("DELETE", "/api/sandbox/one", nil).ok()
		assert.Equal(w, "destroying", w.state(id))
		w.do("POST", "/api/sandbox", object{"name": "one"}).ok()
	})
}

func TestDaytona01ADeleteIsAcceptedAndTakesItsTime(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.behave(func(b *fake.Behaviour) { b.DeleteTime = 30 * time.Second })
		id := w.create(nil)
		told := w.do("DELETE", "/api/sandbox/"+id, nil).ok()
		assert.Equal(w, "destroying", told["state"])
		assert.Equal(w, "destroyed", told["desiredState"])
		time.Sleep(29 * time.Second)
		assert.Equal(w, "destroying", w.state(id))
		w.do("DELETE", "/api/sandbox/"+id, nil).refused(409)
		time.Sleep(time.Second)
		assert.Equal(w, "Not Found", w.state(id))
		w.do("DELETE", "/api/sandbox/"+id, nil).refused(404)
	})
}

func TestDaytona02ListsFlapAfterADeleteWhileLooksAreRight(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"labels": object{"run": "r1"}})
		time.Sleep(time.Second)
		w.do("DELETE", "/api/sandbox/"+id, nil).ok()
		seen := map[string]bool{}
		for range 4 {
			page := w.do("GET", "/api/sandbox?labels="+url.QueryEscape(`{"run":"r1"}`), nil).ok()
			if items := page["items"].([]any); len(items) > 0 {
				seen[items[0].(object)["state"].(string)] = true
				assert.Equal(w, id, items[0].(object)["name"], "a stale row has the old name")
			} else {
				seen["absent"] = true
			}
			assert.Equal(w, "destroying", w.state(id))
		}
		assert.Equal(w, map[string]bool{"started": true, "absent": true}, seen)
		time.Sleep(6 * time.Second)
		assert.Empty(w, w.list(""))
	})
}

func TestDaytona03AnErroredSandboxIsHiddenByADeleteAndNotDestroyed(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		w.s.Service().Fail(daytonafake.MachineID(id), "no space left on the runner")
		got := w.do("GET", "/api/sandbox/"+id, nil).ok()
		assert.Equal(w, []any{"error", "started"}, []any{got["state"], got["desiredState"]})
		assert.Equal(w, "no space left on the runner", got["errorReason"])
		assert.Equal(w, []string{id}, w.list(""), "lists hold errored ones")

		told := w.do("DELETE", "/api/sandbox/"+id, nil).ok()
		assert.Equal(w, []any{"error", "destroyed"}, []any{told["state"], told["desiredState"]})
		assert.Equal(w, "Not Found", w.state(id))
		w.do("DELETE", "/api/sandbox/"+id, nil).refused(404)
		w.do("POST", "/api/sandbox/"+id+"/ttl/5", nil).refused(404)
		assert.Empty(w, w.list(""))
		row := w.do("GET", "/api/sandbox?includeErroredDeleted=true&id="+id, nil).ok()["items"].([]any)[0].(object)
		assert.Equal(w, []any{id, "error", "destroyed"}, []any{row["id"], row["state"], row["desiredState"]})
		assert.Equal(w, sandbox.StateFailed, w.truth(id))
		time.Sleep(7*24*time.Hour + time.Minute)
		assert.Empty(w, w.list("includeErroredDeleted=true"))
		assert.Equal(w, sandbox.StateGone, w.truth(id))
	})
}

func TestADestroyThatFailsOnTheRunnerEndsHidden(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"name": "n"})
		w.quirk(func(q *daytonafake.Quirks) { q.DestroyFails = true })
		assert.Equal(w, "destroying", w.do("DELETE", "/api/sandbox/"+id, nil).ok()["state"])
		assert.Equal(w, "destroying", w.state(id))
		assert.Equal(w, "Not Found", w.state("n"))
		time.Sleep(3 * time.Second)
		assert.Equal(w, "Not Found", w.state(id), "every SDK says destroyed")
		assert.Equal(w, []string{id}, w.list("includeErroredDeleted=true"))
		assert.Equal(w, sandbox.StateFailed, w.truth(id), "and it may still run")
	})
}

func TestDaytona04ADeleteCanHangInDestroying(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		w.s.Service().Fault(sandbox.OpDelete, fake.Fault{Effect: fake.EffectBlocked})
		w.do("DELETE", "/api/sandbox/"+id, nil).ok()
		time.Sleep(6 * time.Hour)
		assert.Equal(w, "destroying", w.state(id))
		w.do("DELETE", "/api/sandbox/"+id, nil).refused(409)
	})
}

func TestDaytona05ADeleteIsAConflictWhileTheSandboxIsBeingMade(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.quirk(func(q *daytonafake.Quirks) { q.CreateWait = 0 })
		id := w.do("POST", "/api/sandbox", nil).ok()["id"].(string)
		said := w.do("DELETE", "/api/sandbox/"+id, nil).refused(409)
		assert.Equal(w, "Sandbox state change in progress", said["message"])
		assert.Equal(w, "creating", w.state(id))
		time.Sleep(3 * time.Second)
		w.do("DELETE", "/api/sandbox/"+id, nil).ok()

		w.quirk(func(q *daytonafake.Quirks) { q.BuildQueue = time.Minute })
		w.behave(func(b *fake.Behaviour) { b.StartTime = 5 * time.Minute })
		build := object{"buildInfo": object{"dockerfileContent": "FROM debian:12\n"}, "cpu": 2, "memory": 4, "disk": 8}
		queued := w.do("POST", "/api/sandbox", build).ok()
		assert.Equal(w, "pending_build", queued["state"])
		assert.Equal(w, []any{2., 4., 8.}, []any{queued["cpu"], queued["memory"], queued["disk"]})
		built := w.do("POST", "/api/sandbox", build).ok()["id"].(string)
		w.do("DELETE", "/api/sandbox/"+queued["id"].(string), nil).ok()
		assert.Equal(w, "Not Found", w.state(queued["id"].(string)), "what is queued is destroyed without a runner")
		time.Sleep(time.Minute)
		assert.Equal(w, "building_snapshot", w.state(built))
		w.do("DELETE", "/api/sandbox/"+built, nil).refused(409)
	})
}

func TestDaytona06ACreateWithoutAGoodAnswerMayHaveMadeASandbox(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.s.Fault("createSandbox", daytonafake.Fault{Drop: true, After: true})
		_, err := w.try("POST", "/api/sandbox", object{"name": "lost"})
		require.Error(w, err)
		assert.Equal(w, "started", w.state("lost"))

		w.behave(func(b *fake.Behaviour) { b.StartsFailed = true })
		said := w.do("POST", "/api/sandbox", object{"name": "failed"}).refused(400)
		assert.Contains(w, said["message"], "Sandbox failed to start")
		assert.NotContains(w, said, "id")
		assert.Equal(w, "error", w.state("failed"))
		build := object{"name": "unbuilt", "buildInfo": object{"dockerfileContent": "FROM debian:12\n"}}
		w.do("POST", "/api/sandbox", build).ok()
		time.Sleep(3 * time.Second)
		assert.Equal(w, "build_failed", w.state("unbuilt"))
	})
}

func TestDaytona08EveryRefusalOfADeleteLeavesTheSandbox(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		for _, status := range []int{401, 403, 409, 429, 500, 503} {
			w.s.Fault("deleteSandbox", daytonafake.Fault{Status: status})
			w.do("DELETE", "/api/sandbox/"+id, nil).refused(status)
		}
		assert.Equal(w, "started", w.state(id))
	})
}

func TestDaytona09AKeyMayBeGoodForEverythingButDeletes(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		assert.Equal(w, []any{"write:sandboxes", "delete:sandboxes"}, w.do("GET", "/api/api-keys/current", nil).ok()["permissions"])
		w.behave(func(b *fake.Behaviour) { b.NoDelete = true })
		id := w.create(nil)
		w.do("DELETE", "/api/sandbox/"+id, nil).refused(403)
		w.do("DELETE", "/api/sandbox/unknown", nil).refused(403)
		assert.Equal(w, []any{"write:sandboxes"}, w.do("GET", "/api/api-keys/current", nil).ok()["permissions"])
		assert.Equal(w, "started", w.state(id))
	})
}

func TestDaytona16StoppedSandboxesKeepTheirRecord(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"ttlMinutes": 600})
		end := moment(t, w.do("GET", "/api/sandbox/"+id, nil).ok(), "autoDestroyAt")
		told := w.do("POST", "/api/sandbox/"+id+"/stop?force=false", nil).ok()
		assert.Equal(w, []any{"stopping", "stopped"}, []any{told["state"], told["desiredState"]})
		w.do("DELETE", "/api/sandbox/"+id, nil).refused(409)
		w.do("POST", "/api/sandbox/"+id+"/start", nil).refused(409)
		time.Sleep(2 * time.Second)
		assert.Equal(w, "stopped", w.state(id))
		assert.Equal(w, []string{id}, w.list("states=stopped&states=paused"))
		w.do("POST", "/api/sandbox/"+id+"/stop", nil).refused(400)
		time.Sleep(time.Hour)
		started := w.do("POST", "/api/sandbox/"+id+"/start", nil).ok()
		assert.Equal(w, "started", started["state"])
		assert.True(w, moment(t, started, "autoDestroyAt").Equal(end), "a start does not move the TTL")
		w.do("POST", "/api/sandbox/"+id+"/archive", nil).refused(400)
		w.do("POST", "/api/sandbox/"+id+"/pause", nil).refused(422)
		w.stop(id)
		assert.Equal(w, "archived", w.do("POST", "/api/sandbox/"+id+"/archive", nil).ok()["state"])
		w.do("DELETE", "/api/sandbox/"+id, nil).ok()
		assert.Equal(w, "Not Found", w.state(id), "what is archived needs no runner to be destroyed")
	})
}

func TestWhatIsStartedWithoutATTLGetsNone(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"ttlMinutes": 5, "autoStopInterval": 0})
		w.do("POST", "/api/sandbox/"+id+"/ttl/0", nil).ok()
		w.stop(id)
		assert.NotContains(w, w.do("POST", "/api/sandbox/"+id+"/start", nil).ok(), "autoDestroyAt")
		time.Sleep(time.Hour)
		assert.Equal(w, "started", w.state(id))
	})
}

func TestDaytona17ADeleteFreesTheNameWhileTheMachineStillRuns(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"name": "n"})
		told := w.do("DELETE", "/api/sandbox/n", nil).ok()
		assert.Regexp(w, `^DESTROYED_n_\d{12,13}$`, told["name"])
		assert.Equal(w, "Not Found", w.state("n"))
		assert.Equal(w, "destroying", w.state(id))
		assert.Equal(w, sandbox.StateEnding, w.truth(id))
	})
}

func TestDaytona20ForksBlockTheDeleteOfTheirParent(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"labels": object{"run": "r1"}, "name": "parent", "ttlMinutes": 60})
		child := w.do("POST", "/api/sandbox/"+id+"/fork", object{"name": "child"}).ok()
		assert.Equal(w, object{"run": "r1"}, child["labels"], "a fork inherits labels")
		assert.Equal(w, "child", child["name"])
		w.do("DELETE", "/api/sandbox/"+id, nil).refused(400)
		r := w.do("GET", "/api/sandbox/"+id+"/forks", nil)
		assert.Contains(w, string(r.body), child["id"])
		w.do("DELETE", "/api/sandbox/child", nil).ok()
		time.Sleep(5 * time.Second)
		w.do("DELETE", "/api/sandbox/"+id, nil).ok()
	})
}

func TestDaytona22TheKeyOfAnotherOrganizationReadsAsGone(t *testing.T) {
	in(t, daytonafake.Options{ForeignKey: "dtn_other"}, func(w *world) {
		id := w.create(nil)
		w.key = "dtn_other"
		assert.Equal(w, "Not Found", w.state(id))
		w.do("DELETE", "/api/sandbox/"+id, nil).refused(404)
		assert.Empty(w, w.list(""))
		w.do("POST", "/api/sandbox", nil).refused(403)
		w.do("POST", "/toolbox/"+id+"/process/execute", object{"command": "true"}).refused(401)
		w.key = "dtn_bad"
		w.do("GET", "/api/sandbox/"+id, nil).refused(401)
		assert.Equal(w, sandbox.StateRunning, w.truth(id))
	})
}

func TestATokenNeedsItsOrganization(t *testing.T) {
	in(t, daytonafake.Options{Token: "jwt"}, func(w *world) {
		id := w.create(nil)
		w.key = "jwt"
		assert.Equal(w, 200, w.do("GET", "/api/sandbox/"+id, nil, "X-Daytona-Organization-ID", "org-1").status)
		assert.Equal(w, 404, w.do("GET", "/api/sandbox/"+id, nil, "X-Daytona-Organization-ID", "org-2").status)
		assert.Equal(w, 404, w.do("GET", "/api/sandbox/"+id, nil).status)
	})
}

func TestLabelsAreReplacedAsAWhole(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"labels": object{"a": "1", "b": "2"}})
		got := w.do("PUT", "/api/sandbox/"+id+"/labels", object{"labels": object{"b": "3"}}).ok()
		assert.Equal(w, object{"labels": object{"b": "3"}}, got)
		assert.Equal(w, object{"b": "3"}, w.do("GET", "/api/sandbox/"+id, nil).ok()["labels"])
	})
}

func TestErrorsHaveTheServicesForm(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		said := w.do("GET", "/api/sandbox/none", nil).refused(404)
		for field, want := range map[string]any{
			"path": "/api/sandbox/none", "statusCode": 404., "error": "Not Found", "source": "DAYTONA_API", "code": "NOT_FOUND",
		} {
			assert.Equal(w, want, said[field], field)
		}
		moment(t, said, "timestamp")
		w.do("GET", "/api/none", nil).refused(404)

		page := w.do("GET", "/sandbox/none", nil)
		assert.Equal(w, http.StatusOK, page.status, "outside of the API the dashboard answers")
		assert.Contains(w, page.header.Get("Content-Type"), "text/html")
	})
}

func TestTooManyRequestsSayInWhichGroup(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		limited := &sandbox.APIError{Status: 429, Kind: sandbox.ErrRateLimited, RetryAfter: 1500 * time.Millisecond}
		for op, x := range map[sandbox.Op]struct{ method, path, group string }{
			sandbox.OpCreate: {"POST", "", "sandbox-create"},
			sandbox.OpDelete: {"DELETE", "/" + id, "sandbox-lifecycle"},
			sandbox.OpGet:    {"GET", "/" + id, "authenticated"},
		} {
			w.s.Service().Fault(op, fake.Fault{Err: limited})
			r := w.do(x.method, "/api/sandbox"+x.path, nil)
			r.refused(429)
			assert.Equal(w, "2", r.header.Get("Retry-After-"+x.group), op)
			assert.Equal(w, "0", r.header.Get("X-RateLimit-Remaining-"+x.group), op)
			assert.Empty(w, r.header.Get("Retry-After"), op)
		}
		w.quirk(func(q *daytonafake.Quirks) { q.PlainRetry = true })
		w.s.Service().Fault(sandbox.OpGet, fake.Fault{Err: limited})
		assert.Equal(w, "2", w.do("GET", "/api/sandbox/"+id, nil).header.Get("Retry-After"))
	})
}

func TestTheDateIsTheServicesOwn(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.behave(func(b *fake.Behaviour) { b.Skew = -3 * time.Hour })
		at, err := http.ParseTime(w.do("GET", "/api/sandbox", nil).header.Get("Date"))
		require.NoError(w, err)
		assert.WithinDuration(w, time.Now().Add(-3*time.Hour), at, time.Second)
	})
}

func TestEveryRequestIsLoggedWithoutItsKey(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.do("POST", "/api/sandbox", object{"name": "n"}).ok()
		w.s.Fault("getSandbox", daytonafake.Fault{Drop: true, Times: -1})
		_, err := w.try("DELETE", "/api/none", nil)
		require.NoError(w, err)
		log := w.s.Requests()
		require.Len(w, log, 2)
		assert.Equal(w, "createSandbox", log[0].Operation)
		assert.JSONEq(w, `{"name":"n"}`, string(log[0].Body))
		assert.Equal(w, 200, log[0].Status)
		assert.Contains(w, string(log[0].Answer), `"state":"creating"`)
		assert.NotContains(w, fmt.Sprint(log), key)
		assert.Equal(w, []any{"", 404, 1}, []any{log[1].Operation, log[1].Status, w.s.Count("createSandbox")})
	})
}

func TestFaultsBreakAnswersInEveryWay(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		get := func() (reply, error) { return w.try("PUT", "/api/sandbox/"+id+"/labels", object{"labels": object{}}) }
		op := "replaceLabels"
		w.s.Fault(op,
			daytonafake.Fault{Status: 502, Body: "<html>bad gateway</html>"},
			daytonafake.Fault{Cut: 5},
			daytonafake.Fault{Drop: true},
			daytonafake.Fault{Header: http.Header{"X-Odd": {"1"}}},
			daytonafake.Fault{Delay: time.Minute, Skip: 1},
		)
		r, err := get()
		require.NoError(w, err)
		assert.Equal(w, []any{502, "<html>bad gateway</html>"}, []any{r.status, string(r.body)})
		r, err = get()
		require.Error(w, err)
		assert.Equal(w, `{"lab`, string(r.body))
		_, err = get()
		require.Error(w, err)
		r, err = get()
		require.NoError(w, err)
		assert.Equal(w, "1", r.header.Get("X-Odd"))
		r, err = get()
		require.NoError(w, err)
		assert.Equal(w, 200, r.status)
		start := time.Now()
		r, err = get()
		require.NoError(w, err)
		assert.Equal(w, 200, r.status)
		assert.Equal(w, time.Minute, time.Since(start))

		w.s.Fault(op, daytonafake.Fault{Hang: true})
		time.AfterFunc(time.Hour, w.s.Heal)
		start = time.Now()
		_, err = get()
		require.Error(w, err)
		assert.Equal(w, time.Hour, time.Since(start))

		w.s.Service().Fault(sandbox.OpGet, fake.Fault{Err: fmt.Errorf("cable cut"), Times: -1})
		_, err = w.try("GET", "/api/sandbox/"+id, nil)
		require.Error(w, err, "an error that is no answer breaks the connection")
	})
}

func TestQuirksTakeTheWholeServiceDown(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.quirk(func(q *daytonafake.Quirks) { q.Down = true })
		w.do("GET", "/api/sandbox", nil).refused(503)
		w.quirk(func(q *daytonafake.Quirks) { q.Down, q.Denied = false, true })
		w.do("GET", "/api/sandbox", nil).refused(401)
		w.quirk(func(q *daytonafake.Quirks) { q.Denied = false })
		assert.Empty(w, w.list(""))
	})
}
