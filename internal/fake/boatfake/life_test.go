package boatfake_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestAPatchSetsTheTTLAnewFromNow(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.create(object{"ttlSeconds": 600})
		path := "/sandboxes/" + id
		for _, n := range []int{300, 30, 120} {
			time.Sleep(10 * time.Second)
			r := w.do("PATCH", path, object{"ttlSeconds": n}).ok(200)
			assert.Equal(w, "sandbox.updated", r["type"])
			end := time.Now().Add(time.Duration(n) * time.Second).Truncate(time.Millisecond)
			assert.True(w, moment(t, box(r), "archiveAfter").Equal(end))
		}
		assert.Nil(w, box(w.do("PATCH", path, `{"ttlSeconds":null}`).ok(200))["archiveAfter"])
		assert.Nil(w, box(w.do("PATCH", path, object{"name": "n"}).ok(200))["archiveAfter"], "a rename moves nothing")
		w.do("PATCH", path, object{"ttlSeconds": 0}).no(400, "invalid_request")
		w.do("PATCH", "/sandboxes/bx_22222222", object{"ttlSeconds": 1}).no(404, "not_found")
		w.do("PATCH", path, object{"ttlSeconds": 1}).ok(200)
		time.Sleep(2 * time.Second)
		assert.Equal(w, "archiving", w.state(id), "it can be brought nearer")
	})
}

func TestAPatchMayCountFromTheCreation(t *testing.T) {
	in(t, boatfake.Quirks{FromCreation: true}, func(w *world) {
		id := w.ready(object{"ttlSeconds": 60})
		time.Sleep(50 * time.Second)
		made := moment(t, box(w.do("GET", "/sandboxes/"+id, nil).ok(200)), "createdAt")
		r := box(w.do("PATCH", "/sandboxes/"+id, object{"ttlSeconds": 60}).ok(200))
		assert.True(w, moment(t, r, "archiveAfter").Equal(made.Add(time.Minute)))
	})
}

func TestBoat04AndBoat15ExpiryArchivesAndAPatchSaysYesToTheArchived(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(object{"ttlSeconds": 60, "snapshots": false})
		time.Sleep(59 * time.Second)
		r := box(w.do("PATCH", "/sandboxes/"+id, object{"ttlSeconds": 60}).ok(200))
		assert.Equal(w, "archiving", r["state"])
		time.Sleep(5 * time.Second)
		r = box(w.do("PATCH", "/sandboxes/"+id, object{"ttlSeconds": 60, "name": "n"}).ok(200))
		assert.Equal(w, []any{"archived", nil, "n"}, []any{r["state"], r["archiveAfter"], r["name"]})
		time.Sleep(30 * 24 * time.Hour)
		assert.Equal(w, []string{id}, w.list(""))
		assert.Equal(w, []string{id}, w.list("state=error"+url.QueryEscape(",")+"archived"))
		assert.Empty(w, w.list("state=ready,idle,running"))
		w.s.Change(func(q *boatfake.Quirks) { q.PatchDead = 409 })
		assert.Equal(w, 409, w.do("PATCH", "/sandboxes/"+id, object{"ttlSeconds": 60}).status)
		w.delete(id).ok(202)
		assert.Empty(w, w.list(""))
	})
}

func TestWhatTakesNoSnapshotsMayVanish(t *testing.T) {
	in(t, boatfake.Quirks{Vanishes: true}, func(w *world) {
		gone, kept := w.ready(object{"ttlSeconds": 60, "snapshots": false}), w.ready(object{"ttlSeconds": 60})
		time.Sleep(time.Minute + 10*time.Second)
		assert.Equal(w, []string{"Not Found", "archived"}, []string{w.state(gone), w.state(kept)})
		w.s.Change(func(q *boatfake.Quirks) { *q = boatfake.Quirks{Retention: true} })
		id := w.ready(object{"ttlSeconds": 60})
		time.Sleep(time.Minute + 10*time.Second)
		assert.Equal(w, "Not Found", w.state(id))
		op := w.delete(id).ok(202)["operation"].(object)
		assert.Equal(w, "zdr", op["reason"])
	})
}

func TestBoat10TheNameIsASecondCallAndNotUnique(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		a, b := w.create(nil), w.create(nil)
		for _, id := range []string{a, b} {
			assert.Equal(w, "same", box(w.do("PATCH", "/sandboxes/"+id, object{"name": "same"}).ok(200))["name"])
		}
		w.do("PATCH", "/sandboxes/"+a, object{"name": ""}).no(400, "invalid_request")
		cut := box(w.do("PATCH", "/sandboxes/"+a, object{"name": strings.Repeat("ä", 130)}).ok(200))["name"]
		assert.Equal(w, strings.Repeat("ä", 120), cut)
		w.s.Service().Fault(sandbox.OpCreate, fake.Fault{Err: &sandbox.APIError{Status: 500}})
		w.do("PATCH", "/sandboxes/"+a, object{"name": "other"}).no(500, "internal_error")
		assert.Equal(w, cut, box(w.do("GET", "/sandboxes/"+a, nil).ok(200))["name"])
		w.s.Rename(b, "edited")
		made, _ := w.s.Lookup(b)
		assert.Equal(w, "edited", made.Name)
	})
}

func TestASubdomainIsOneSandboxs(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		a, b := w.ready(nil), w.ready(nil)
		assert.Equal(w, "my-app", box(w.do("PATCH", "/sandboxes/"+a, object{"subdomain": "my-app"}).ok(200))["subdomain"])
		w.do("PATCH", "/sandboxes/"+b, object{"subdomain": "my-app"}).no(409, "subdomain_taken")
		w.do("PATCH", "/sandboxes/"+b, object{"subdomain": "-a"}).no(400, "invalid_request")
	})
}

func TestBoat01AndBoat02AStopArchivesAndKeepsWhatItSaved(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.create(nil)
		w.do("POST", "/sandboxes/"+id+"/stop", nil).no(409, "boat_starting")
		time.Sleep(2 * time.Second)
		r := w.do("POST", "/sandboxes/"+id+"/stop", object{}).ok(202)
		assert.Equal(w, []any{"sandbox.stopping", id, "archiving", "archiving"}, []any{r["type"], r["id"], r["status"], box(r)["state"]})
		w.do("POST", "/sandboxes/"+id+"/stop", object{}).ok(202)
		time.Sleep(5 * time.Second)
		assert.Equal(w, "archived", w.state(id))
		d := w.do("POST", "/sandboxes/"+id+"/stop", object{}).no(400, "stop_failed")
		assert.Equal(w, "archived", d["sandbox"].(object)["state"])
		assert.Equal(w, []string{id}, w.list(""))
		snaps := w.do("GET", "/snapshots", nil).ok(200)["snapshots"].([]any)
		require.Len(w, snaps, 1)
		assert.Equal(w, id, snaps[0].(object)["sandboxId"])
		w.delete(id).ok(202)
		assert.Empty(w, w.do("GET", "/snapshots", nil).ok(200)["snapshots"])
	})
}

func TestBoat14AStopAndAnExpiryWhoseSaveFailsLetTheMachineGoOn(t *testing.T) {
	in(t, boatfake.Quirks{SaveFails: true}, func(w *world) {
		id := w.ready(object{"ttlSeconds": 60})
		w.do("POST", "/sandboxes/"+id+"/stop", object{}).ok(202)
		assert.Equal(w, []any{"archiving", sandbox.StateRunning}, []any{w.state(id), w.truth(id)})
		time.Sleep(5 * time.Second)
		assert.Equal(w, "ready", w.state(id))
		time.Sleep(53 * time.Second)
		assert.Equal(w, "archiving", w.state(id))
		time.Sleep(time.Hour)
		assert.Equal(w, "ready", w.state(id))
		assert.Equal(w, true, w.do("GET", "/sandboxes/"+id+"/usage", nil).ok(200)["running"])
		w.delete(id).ok(202)
		assert.Equal(w, "Not Found", w.state(id))
	})
}

func TestBoat23AStopMayComeToNothing(t *testing.T) {
	in(t, boatfake.Quirks{StopIgnored: true}, func(w *world) {
		id := w.ready(nil)
		assert.Equal(w, "archiving", w.do("POST", "/sandboxes/"+id+"/stop", nil).ok(202)["status"])
		assert.Equal(w, "ready", w.state(id))
	})
}

func TestBoat03ADeleteWithoutTheHeaderDeletesNothing(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		for _, confirm := range []string{"", "bx_22222222", "true"} {
			d := w.do("DELETE", "/sandboxes/"+id, nil, "X-Ascii-Confirm-Delete", confirm).no(409, "delete_confirmation_required")
			assert.Equal(w, id, d["targetId"])
		}
		assert.Equal(w, "ready", w.state(id))
		assert.Equal(w, "no-store", w.delete(id).header.Get("Cache-Control"))
		w.delete("bx_22222222").no(404, "not_found")
	})
}

func TestBoat07ADeleteHidesAtOnceAndItsOperationIsBlockedForHours(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		r := w.delete(id).ok(202)
		op := r["operation"].(object)
		assert.Equal(w, []any{"sandbox.deleting", "sandbox", id, "explicit", "pending", 1., nil},
			[]any{r["type"], op["kind"], op["targetId"], op["reason"], op["status"], op["attemptCount"], op["completedAt"]})
		assert.Regexp(w, `^bdop_[0-9a-f]{32}$`, op["id"])
		assert.Equal(w, []any{"Not Found", sandbox.StateGone}, []any{w.state(id), w.truth(id)})
		assert.Empty(w, w.list(""))
		w.do("GET", "/sandboxes/"+id+"/usage", nil).no(404, "not_found")
		again := w.delete(id).ok(202)["operation"].(object)
		assert.Equal(w, []any{op["id"], 2.}, []any{again["id"], again["attemptCount"]})
		look := func() object {
			return w.do("GET", "/deletion-operations/"+op["id"].(string), nil).ok(200)["operation"].(object)
		}
		time.Sleep(time.Minute)
		assert.Equal(w, []any{"blocked", "waiting_for_uploads"}, []any{look()["status"], look()["stage"]})
		assert.True(w, moment(t, look(), "expectedBy").Before(time.Now().Add(6*time.Hour)))
		time.Sleep(19 * time.Hour)
		assert.Equal(w, "blocked", look()["status"])
		time.Sleep(time.Hour)
		assert.Equal(w, "completed", look()["status"])
		w.as(foreignKey).do("GET", "/deletion-operations/"+op["id"].(string), nil).no(404, "not_found")
		w.s.Change(func(q *boatfake.Quirks) { q.DeleteAgain, q.PurgeTime = 404, -1 })
		w.delete(id).no(404, "not_found")
		assert.Equal(w, "blocked", look()["status"])
	})
}

func TestADeleteWorksInEveryState(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		starting, archiving, failed := w.create(nil), w.ready(nil), w.ready(nil)
		w.do("POST", "/sandboxes/"+archiving+"/stop", nil).ok(202)
		w.s.Service().Fail(boatfake.MachineID(failed), "boom")
		r := box(w.do("GET", "/sandboxes/"+failed, nil).ok(200))
		assert.Equal(w, []any{"error", "boom"}, []any{r["state"], r["error"]})
		expiring := w.ready(object{"ttlSeconds": 10})
		time.Sleep(9 * time.Second)
		require.Equal(w, "archiving", w.state(expiring))
		for _, id := range []string{starting, archiving, failed, expiring} {
			w.delete(id).ok(202)
		}
		time.Sleep(5 * time.Second)
		for _, id := range []string{starting, archiving, failed, expiring} {
			assert.Equal(w, "Not Found", w.state(id))
		}
		assert.Empty(w, w.s.All())
	})
}

func TestADeleteMaySayYesAndDoNothingOrTakeItsTimeOrBeLost(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		w.s.Service().Fault(sandbox.OpDelete, fake.Fault{Effect: fake.EffectNone})
		w.delete(id).ok(202)
		assert.Equal(w, "ready", w.state(id))
		w.s.Fault("deleteSandbox", boatfake.Fault{Ignore: true})
		w.delete(id).ok(202)
		assert.Equal(w, []any{"ready", []string{id}}, []any{w.state(id), w.list("")})
		w.behave(func(b *fake.Behaviour) { b.DeleteTime = 3 * time.Second })
		w.delete(id).ok(202)
		assert.Equal(w, []any{"ready", []string{}}, []any{w.state(id), w.list("")}, "a look shows what no list does")
		time.Sleep(3 * time.Second)
		assert.Equal(w, "Not Found", w.state(id))

		w.behave(func(b *fake.Behaviour) { b.DeleteTime = 0 })
		lost := w.ready(nil)
		w.s.Service().Fault(sandbox.OpDelete, fake.Fault{Err: &sandbox.APIError{Status: 500}, After: true})
		w.delete(lost).no(500, "internal_error")
		assert.Equal(w, "Not Found", w.state(lost))
		assert.Equal(w, lost, w.delete(lost).ok(202)["operation"].(object)["targetId"])
	})
}

func TestBoat13AKeyMayBeForbiddenActions(t *testing.T) {
	in(t, boatfake.Quirks{Forbidden: []string{"sandbox.delete-own", "exec"}}, func(w *world) {
		id := w.ready(nil)
		w.delete(id).no(403, "api_key_action_forbidden")
		w.do("POST", "/sandboxes/"+id+"/commands", object{"command": "true"}).no(403, "api_key_action_forbidden")
		assert.Empty(w, w.do("GET", "/api-keys", nil).ok(200)["apiKeys"])
		w.do("POST", "/sandboxes/"+id+"/stop", nil).ok(202)
		w.s.Change(func(q *boatfake.Quirks) { q.Forbidden = nil })
		w.behave(func(b *fake.Behaviour) { b.NoDelete = true })
		w.delete(id).no(403, "api_key_action_forbidden")
	})
}

func TestBoat20ForksHaveATTLOfTheirOwnAndNamedSnapshotsOutlive(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(object{"ttlSeconds": 600})
		w.do("PATCH", "/sandboxes/"+id, object{"name": "mine"}).ok(200)
		r := w.do("POST", "/sandboxes/"+id+"/fork", nil, "Idempotency-Key", "f").ok(202)
		child := r["id"].(string)
		assert.NotEqual(w, id, child)
		assert.Regexp(w, "^Sandbox ", box(r)["name"])
		assert.True(w, moment(t, box(r), "archiveAfter").Equal(time.Now().Add(time.Hour).Truncate(time.Millisecond)))
		assert.Equal(w, child, w.do("POST", "/sandboxes/"+id+"/fork", nil, "Idempotency-Key", "f").ok(202)["id"])
		assert.True(w, w.s.NameSnapshot("kept", id))
		w.delete(id).ok(202)
		assert.Equal(w, "ready", w.state(child))
		named := w.do("GET", "/named-snapshots", nil).ok(200)["snapshots"].([]any)
		require.Len(w, named, 2)
		assert.Equal(w, []any{"kept", id}, []any{named[1].(object)["name"], named[1].(object)["sourceSandboxId"]})
		w.create(object{"from": "kept"})
		bare := w.ready(object{"snapshots": false})
		w.do("POST", "/sandboxes/"+bare+"/fork", nil).no(409, "snapshot_unavailable")
	})
}

func TestAResumeIsAnotherRunAndTakesNoKey(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(object{"ttlSeconds": 600})
		w.do("POST", "/sandboxes/"+id+"/resume", nil).no(409, "not_archived")
		w.do("PATCH", "/sandboxes/"+id, object{"ttlSeconds": 120}).ok(200)
		w.do("POST", "/sandboxes/"+id+"/stop", nil).ok(202)
		time.Sleep(5 * time.Second)
		r := w.do("POST", "/sandboxes/"+id+"/resume", nil).ok(202)
		assert.Equal(w, []any{"sandbox.resuming", "ready"}, []any{r["type"], box(r)["state"]})
		stored := time.Now().Add(2 * time.Minute).Truncate(time.Millisecond)
		assert.True(w, moment(t, box(r), "archiveAfter").Equal(stored))
		bare := w.ready(object{"snapshots": false})
		w.do("POST", "/sandboxes/"+bare+"/stop", nil).ok(202)
		time.Sleep(5 * time.Second)
		w.do("POST", "/sandboxes/"+bare+"/resume", nil).no(409, "snapshot_unavailable")
	})
}

func TestTheMeterRunsWhileTheMachineDoes(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(object{"type": "small"})
		time.Sleep(time.Minute)
		use := w.do("GET", "/sandboxes/"+id+"/usage", nil).ok(200)
		assert.Equal(w, []any{60., true, 0.5, 60. / 200_000},
			[]any{use["seconds"], use["running"], use["billingMultiplier"], use["dollars"]})
		w.do("POST", "/sandboxes/"+id+"/stop", nil).ok(202)
		time.Sleep(time.Hour)
		use = w.do("GET", "/sandboxes/"+id+"/usage", nil).ok(200)
		assert.Equal(w, []any{60., false}, []any{use["seconds"], use["running"]})
	})
}

func TestPagesGoByCreationAndCanBeAskedForEitherWay(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		var want, back []string
		for range 5 {
			id := w.create(nil)
			want, back = append(want, id), append([]string{id}, back...)
		}
		assert.Empty(w, w.list(""), "the list is a second late")
		time.Sleep(time.Second)
		assert.Equal(w, back, w.list("limit=2"))
		assert.Equal(w, want, w.list("limit=1&sort=asc"))
		w.s.Change(func(q *boatfake.Quirks) { q.PageSize = 3 })
		page := w.do("GET", "/sandboxes", nil).ok(200)
		info := page["pageInfo"].(object)
		assert.Equal(w, []any{3, 3., true}, []any{len(page["sandboxes"].([]any)), info["limit"], info["hasMore"]})
		w.s.Change(func(q *boatfake.Quirks) { q.PageSize, q.NoPageInfo = 0, true })
		page = w.do("GET", "/sandboxes", nil).ok(200)
		assert.Equal(w, []any{5, nil}, []any{len(page["sandboxes"].([]any)), page["pageInfo"]})
		w.s.Change(func(q *boatfake.Quirks) { q.NoPageInfo = false })
		w.behave(func(b *fake.Behaviour) { b.RepeatCursor = true })
		for _, cursor := range []string{"", "&cursor=again"} {
			info := w.do("GET", "/sandboxes?limit=2"+cursor, nil).ok(200)["pageInfo"].(object)
			assert.Equal(w, []any{"again", true}, []any{info["nextCursor"], info["hasMore"]})
		}
		for _, bad := range []string{"limit=0", "limit=201", "limit=x", "sort=up", "cursor=!", "cursor=e30"} {
			r := w.do("GET", "/sandboxes?"+bad, nil)
			if bad == "cursor=e30" { // an empty place is before everything
				r.ok(200)
				continue
			}
			r.no(400, "invalid_request")
		}
	})
}

func TestBoat08ARowMayBeMissingWhileTheSandboxLives(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		w.behave(func(b *fake.Behaviour) { b.ListMissesNew = time.Hour })
		assert.Empty(w, w.list(""))
		assert.Equal(w, "ready", w.state(id))
		made := w.do("GET", "/api-keys/key_1/usage", nil).ok(200)["createdResources"].([]any)
		require.Len(w, made, 1)
		assert.Equal(w, id, made[0].(object)["id"], "the key's ledger is another witness")
	})
}

func TestBoat09AnotherAccountsKeySeesNothing(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		other := w.as(foreignKey)
		assert.Equal(w, "Not Found", other.state(id))
		other.delete(id).no(404, "not_found")
		assert.Empty(w, other.list(""))
		other.do("GET", "/sandboxes?org="+team, nil).no(403, "not_org_member")
		other.do("GET", "/api-keys/key_1/usage", nil).no(404, "not_found")
		assert.Empty(w, other.do("GET", "/api-keys/key_3/usage", nil).ok(200)["createdResources"])
		assert.Equal(w, "ready", w.state(id))
		w.delete(id).ok(202)
		other.delete(id).no(404, "not_found")
	})
}

func TestBoat21ATeamsListShowsOthersMachinesAndADeleteOfThoseSucceeds(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		theirs := w.as(colleagueKey).ready(nil, "X-Boat-Org", "red")
		private := w.as(colleagueKey).ready(nil)
		mine := w.ready(nil, "X-Boat-Org", team)
		own := w.ready(nil)
		time.Sleep(time.Second)
		assert.Equal(w, []string{own}, w.list(""))
		assert.Equal(w, []string{own}, w.list("org=personal"))
		assert.Equal(w, []string{mine, theirs}, w.list("org="+team))
		assert.Equal(w, []string{mine, theirs}, w.list("org=red"))
		w.do("GET", "/sandboxes?org=twin", nil).no(409, "ambiguous_org")
		w.s.Switch(team)
		assert.Equal(w, []string{mine, theirs}, w.list(""), "a person has switched the active wallet")
		assert.Equal(w, []string{own}, w.list("org=personal"))
		row := box(w.do("GET", "/sandboxes/"+theirs, nil).ok(200))
		assert.Equal(w, []any{"view", "user_2", "bob", object{"id": team, "name": "red"}},
			[]any{row["access"], row["createdById"], row["createdBy"], row["team"]})
		w.do("GET", "/sandboxes/"+private, nil).no(404, "not_found")
		w.s.Change(func(q *boatfake.Quirks) { q.Access, q.OwnOnly = "use", true })
		assert.Equal(w, "use", box(w.do("GET", "/sandboxes/"+theirs, nil).ok(200))["access"])
		w.delete(theirs).no(403, "forbidden")
		w.s.Change(func(q *boatfake.Quirks) { q.OwnOnly = false })
		w.delete(theirs).ok(202)
		assert.Equal(w, sandbox.StateGone, w.truth(theirs))
		orgs := w.do("GET", "/orgs", nil).ok(200)["orgs"].([]any)
		assert.Len(w, orgs, 4)
	})
}

func TestStatesCanBeCalledByOtherWords(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		for _, word := range []string{"idle", "running", "hibernating"} {
			w.s.Change(func(q *boatfake.Quirks) { q.Word = word })
			assert.Equal(w, word, w.state(id))
		}
		w.s.Change(func(q *boatfake.Quirks) { q.Word = "" })
		w.s.Service().Freeze(boatfake.MachineID(id))
		r := box(w.do("GET", "/sandboxes/"+id, nil).ok(200))
		assert.Equal(w, []any{"ready", "degraded"}, []any{r["state"], r["health"]})
	})
}

func TestIdsOnTheWireAreThoseOfTheStateMachineInDisguise(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []string{"sb-0", "sb-1", "sb-2", "sb-31", "sb-1000", "sb-4294967295"} {
		wire := boatfake.WireID(id)
		assert.Regexp(t, `^bx_[23456789abcdefghjkmnpqrstuvwxyz]{8}$`, wire)
		assert.Equal(t, id, boatfake.MachineID(wire))
		assert.False(t, seen[wire])
		seen[wire] = true
	}
	for _, other := range []string{"", "bx_", "bx_0000000l", "bx_222222222", "sb-1"} {
		assert.Empty(t, boatfake.MachineID(other))
	}
	assert.Equal(t, "other", boatfake.WireID("other"))
}
