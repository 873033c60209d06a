package boatfake_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestACreateAnswersBeforeTheStartAndItsTTLRunsFromThen(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		w.behave(func(b *fake.Behaviour) { b.StartTime = 40 * time.Second })
		now := time.Now().Truncate(time.Millisecond)
		made := w.do("POST", "/sandboxes", object{"type": "small", "ttlSeconds": 60, "noEnv": true, "snapshots": false}).ok(202)
		assert.Equal(w, []any{"sandbox.created", "provisioning", 60.}, []any{made["type"], made["status"], made["ttlSeconds"]})
		b := box(made)
		assert.Regexp(w, `^bx_[23456789abcdefghjkmnpqrstuvwxyz]{8}$`, b["id"])
		assert.Equal(w, []any{"provisioning", "small", 2., 4., false, "owner", nil, "Sandbox " + now.UTC().Format("2006-01-02 15:04")},
			[]any{b["state"], b["type"], b["vcpu"], b["memoryGB"], b["snapshots"], b["access"], b["environment"], b["name"]})
		assert.True(w, moment(t, b, "createdAt").Equal(now))
		assert.True(w, moment(t, b, "archiveAfter").Equal(now.Add(time.Minute)))
		id := b["id"].(string)
		time.Sleep(40 * time.Second)
		assert.Equal(w, "ready", w.state(id))
		time.Sleep(20 * time.Second)
		time.Sleep(w.s.Service().Behaviour().Lateness)
		assert.Equal(w, "archiving", w.state(id), "what a slow start took is not given back")
	})
}

func TestBoat22WhatIsNotAskedForIsTheLessSafe(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		made := w.do("POST", "/sandboxes", nil).ok(202)
		assert.Equal(w, 3600., made["ttlSeconds"])
		b := box(made)
		assert.Equal(w, []any{"default", true, "base", true}, []any{b["type"], b["snapshots"], b["environment"], b["holdsCreatorLogins"]})
	})
}

func TestBoat05NullMeansForEver(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		for _, ttl := range []string{"null", `"infinite"`} {
			made := w.do("POST", "/sandboxes", `{"ttlSeconds":`+ttl+`}`).ok(202)
			assert.Nil(w, made["ttlSeconds"])
			assert.Nil(w, box(made)["archiveAfter"])
			time.Sleep(365 * 24 * time.Hour)
			assert.Equal(w, "ready", w.state(box(made)["id"].(string)))
		}
	})
}

func TestWhatACreateMayNotAskForIsRefusedByCode(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		for body, want := range map[string]string{
			`{`:                                "400 invalid_json",
			`{"type":"xlarge"}`:                "400 invalid_request",
			`{"ttlSeconds":0}`:                 "400 invalid_request",
			`{"ttlSeconds":-1}`:                "400 invalid_request",
			`{"ttlSeconds":1.5}`:               "400 invalid_request",
			`{"ttlSeconds":"60"}`:              "400 invalid_request",
			`{"ttlSeconds":2592001}`:           "400 invalid_request",
			`{"env":{"1A":"b"}}`:               "400 invalid_env",
			`{"env":{"BOAT_ID":"b"}}`:          "400 invalid_env",
			`{"env":{"A":1}}`:                  "400 invalid_env",
			`{"setupScript":"true"}`:           "400 invalid_setup_script",
			`{"environment":"none"}`:           "400 unknown_environment",
			`{"from":"none"}`:                  "404 named_snapshot_not_found",
			`{"org":"blue"}`:                   "403 not_org_member",
			`{"teamId":"twin"}`:                "409 ambiguous_org",
			`{"env":{"A":"` + long(70) + `"}}`: "400 invalid_env",
		} {
			r := w.do("POST", "/sandboxes", body)
			assert.Equal(w, want, fmt.Sprint(r.status, " ", r.json()["code"]), body[:min(len(body), 40)])
		}
		assert.Empty(w, w.s.All())
		w.create(`{"from":"golden","machineProvider":"any","name":"not a field"}`)
		assert.NotEqual(w, "not a field", w.s.All()[0].Name)
	})
}

// long is so many KiB of text.
func long(kib int) string { return strings.Repeat("x", kib<<10) }

func TestBoat06ATrialIsRefusedAndAGiftIsCutInSilence(t *testing.T) {
	in(t, boatfake.Quirks{GiftTTL: time.Minute}, func(w *world) {
		made := w.do("POST", "/sandboxes", object{"ttlSeconds": 600}).ok(202)
		assert.NotEmpty(w, made["giftLimitNotice"])
		assert.Equal(w, 60., made["ttlSeconds"])
		id := box(made)["id"].(string)
		assert.True(w, moment(t, box(made), "archiveAfter").Equal(time.Now().Add(time.Minute).Truncate(time.Millisecond)))
		beat := w.do("PATCH", "/sandboxes/"+id, object{"ttlSeconds": 600}).ok(200)
		assert.NotEmpty(w, beat["giftLimitNotice"])
		limit := w.do("GET", "/limits", nil).ok(200)["giftLimit"].(object)
		assert.Equal(w, 60., limit["maxTtlSeconds"])
		w.s.Change(func(q *boatfake.Quirks) { q.GiftTTL, q.Trial = 0, true })
		w.do("POST", "/sandboxes", object{"ttlSeconds": 7201}).no(400, "trial_auto_stop_required")
		w.do("POST", "/sandboxes", `{"ttlSeconds":null}`).no(400, "trial_auto_stop_required")
		w.do("POST", "/sandboxes", object{"type": "large"}).no(403, "trial_machine_class_not_allowed")
		w.create(object{"ttlSeconds": 7200})
	})
}

func TestBoat11AKeyHoldsForADayAndForTheSameBytes(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		const body = `{"ttlSeconds":86400}`
		first := w.create(body, "Idempotency-Key", "k")
		again := w.do("POST", "/sandboxes", body, "idempotency-key", "k").ok(202)
		assert.Equal(w, []any{first, "provisioning"}, []any{box(again)["id"], again["status"]})
		time.Sleep(2 * time.Second)
		again = w.do("POST", "/sandboxes", body, "Idempotency-Key", "k").ok(202)
		assert.Equal(w, []any{first, "ready"}, []any{box(again)["id"], again["status"]})
		w.do("POST", "/sandboxes", `{"ttlSeconds": 86400}`, "Idempotency-Key", "k").no(409, "idempotency_key_reused")
		other := w.as(colleagueKey).create(body, "Idempotency-Key", "k")
		assert.NotEqual(w, first, other, "keys are an account's own")
		assert.NotEqual(w, first, w.create(body))
		time.Sleep(24 * time.Hour)
		assert.NotEqual(w, first, w.create(body, "Idempotency-Key", "k"))
		w.do("POST", "/sandboxes", body, "Idempotency-Key", long(1)).no(400, "invalid_request")
	})
}

func TestBoat11AnAnswerThatIsLostCanBeHadAgain(t *testing.T) {
	lost := map[string]func(w *world){
		"the connection breaks": func(w *world) { w.s.Fault("create", boatfake.Fault{After: true, Drop: true}) },
		"500":                   func(w *world) { w.s.Fault("create", boatfake.Fault{After: true, Status: 500}) },
		"500 of the machine": func(w *world) {
			w.s.Service().Fault(sandbox.OpCreate, fake.Fault{After: true, Err: &sandbox.APIError{Status: 500}})
		},
	}
	for name, breaks := range lost {
		t.Run(name, func(t *testing.T) {
			in(t, boatfake.Quirks{}, func(w *world) {
				breaks(w)
				_, _ = w.try("POST", "/sandboxes", `{}`, "Idempotency-Key", "k")
				require.Len(w, w.s.All(), 1)
				assert.Equal(w, w.s.All()[0].ID, w.create(`{}`, "Idempotency-Key", "k"))
				assert.Len(w, w.s.All(), 1)
			})
		})
	}
}

func TestAKeyIsTakenWhileItsCreateIsUnderWay(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		w.s.Service().Fault(sandbox.OpCreate, fake.Fault{Delay: 10 * time.Second})
		first := make(chan string)
		go func() { first <- w.create(`{}`, "Idempotency-Key", "k") }()
		time.Sleep(time.Second)
		w.do("POST", "/sandboxes", `{}`, "Idempotency-Key", "k").no(409, "idempotency_in_progress")
		id := <-first
		assert.Equal(w, id, w.create(`{}`, "Idempotency-Key", "k"))
	})
}

func TestACreateThatBrokeHoldsItsKeyForAWhileAndARefusedOneDoesNot(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		w.s.Service().Fault(sandbox.OpCreate, fake.Fault{Err: &sandbox.APIError{Status: 500}})
		assert.Equal(w, 500, w.do("POST", "/sandboxes", `{}`, "Idempotency-Key", "k").status)
		w.do("POST", "/sandboxes", `{}`, "Idempotency-Key", "k").no(409, "idempotency_in_progress")
		assert.Empty(w, w.s.All())
		time.Sleep(2 * time.Minute)
		w.create(`{}`, "Idempotency-Key", "k")

		w.s.Change(func(q *boatfake.Quirks) { q.Unpaid = true })
		w.do("POST", "/sandboxes", `{}`, "Idempotency-Key", "k2").no(402, "payment_required")
		w.s.Change(func(q *boatfake.Quirks) { q.Unpaid = false })
		w.create(`{}`, "Idempotency-Key", "k2")
	})
}

func TestALateCreateComesToSomethingUnderItsKey(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		w.s.Service().Fault(sandbox.OpCreate, fake.Fault{Late: true, Delay: 20 * time.Second, Err: &sandbox.APIError{Status: 504}})
		assert.Equal(w, 504, w.do("POST", "/sandboxes", `{}`, "Idempotency-Key", "k").status)
		w.do("POST", "/sandboxes", `{}`, "Idempotency-Key", "k").no(409, "idempotency_in_progress")
		time.Sleep(20 * time.Second)
		require.Len(w, w.s.All(), 1)
		assert.Equal(w, w.s.All()[0].ID, w.create(`{}`, "Idempotency-Key", "k"))
	})
}

func TestWhatAKeyOfADeletedSandboxDoesCanBeChosen(t *testing.T) {
	for use, want := range map[boatfake.KeyUse]string{
		boatfake.KeyMakesAnew: "another", boatfake.KeyRemembers: "deleted", boatfake.KeyIsRejected: "409",
	} {
		t.Run(want, func(t *testing.T) {
			in(t, boatfake.Quirks{KeyAfterDelete: use}, func(w *world) {
				id := w.create(`{}`, "Idempotency-Key", "k")
				w.delete(id).ok(202)
				r := w.do("POST", "/sandboxes", `{}`, "Idempotency-Key", "k")
				switch use {
				case boatfake.KeyIsRejected:
					r.no(409, "idempotency_key_reused")
				case boatfake.KeyRemembers:
					assert.Equal(w, id, box(r.ok(202))["id"])
					assert.Equal(w, "Not Found", w.state(id))
				default:
					assert.NotEqual(w, id, box(r.ok(202))["id"])
				}
			})
		})
	}
}

func TestBoat12WhatComesToNothingIsToldOnceAndInPart(t *testing.T) {
	in(t, boatfake.Quirks{NoMachine: true}, func(w *world) {
		w.do("POST", "/sandboxes", object{"failFast": true}).no(503, "no_ready_machine")
		assert.Empty(w, w.s.All())
		id := w.create(nil)
		w.do("PATCH", "/sandboxes/"+id, object{"name": "n"}).ok(200)
		assert.Equal(w, "provisioning", w.state(id))
		assert.NotEqual(w, sandbox.StateRunning, w.truth(id))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(w, sandbox.StateGone, w.truth(id), "also when nobody asks the server")
		r := w.do("GET", "/sandboxes/"+id, nil).ok(200)
		assert.Equal(w, object{"id": id, "state": "cancelled", "error": "No machine was available"}, r["sandbox"])
		w.do("GET", "/sandboxes/"+id, nil).no(404, "not_found")
		w.s.Change(func(q *boatfake.Quirks) { q.NoMachine, q.OutOfCapacity = false, true })
		w.do("POST", "/sandboxes", nil).no(503, "out_of_capacity")
	})
}

func TestBoat19RefusedStartsCountAsStarts(t *testing.T) {
	in(t, boatfake.Quirks{Plan: boatfake.TrialPlan()}, func(w *world) {
		w.s.Change(func(q *boatfake.Quirks) { q.Plan.MaxActive = 0 })
		for range 5 {
			w.create(nil)
		}
		for i := range 3 {
			r := w.do("POST", "/sandboxes", nil)
			assert.Empty(w, r.header.Get("Retry-After"))
			d := r.no(429, "rate_limited")
			assert.Equal(w, []any{"minute", 5., float64(6 + i)}, []any{d["window"], d["limit"], d["starts"]})
			time.Sleep(10 * time.Second)
		}
		time.Sleep(30 * time.Second)
		w.create(nil) // of the first minute's, only two that were refused still count
		for range 4 {
			w.do("POST", "/sandboxes", nil)
		}
		w.do("POST", "/sandboxes", nil).no(429, "rate_limited")
		for range 30 {
			w.do("POST", "/sandboxes", nil)
			time.Sleep(30 * time.Second)
		}
		assert.Equal(w, "hour", w.do("POST", "/sandboxes", nil).no(429, "rate_limited")["window"])
		starts := w.do("GET", "/limits", nil).ok(200)["starts"].(object)
		assert.Greater(w, starts["lastHour"], 25.)
	})
}

func TestThePlanLimitsWhatIsActive(t *testing.T) {
	in(t, boatfake.Quirks{Plan: boatfake.Plan{MaxActive: 2}}, func(w *world) {
		a := w.ready(nil)
		w.ready(nil)
		w.do("POST", "/sandboxes", nil).no(429, "limit_reached")
		got := w.do("GET", "/limits", nil).ok(200)
		assert.Equal(w, []any{2., 2., false}, []any{got["activeSandboxes"], got["maxActiveSandboxes"], got["canStart"]})
		w.do("POST", "/sandboxes/"+a+"/stop", nil).ok(202)
		w.create(nil)
	})
}

func TestAccountsAreToldApartAndWrongKeysRefused(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.create(nil)
		for _, k := range []string{"", "wrong"} {
			w.as(k).do("GET", "/sandboxes/"+id, nil).no(401, "unauthorized")
		}
		who := func(k string) any { return w.as(k).do("GET", "/me", nil).ok(200)["user"].(object)["id"] }
		assert.NotEqual(w, who(key), who(foreignKey))
		w.s.Change(func(q *boatfake.Quirks) { q.Denied = true })
		w.do("GET", "/me", nil).no(401, "unauthorized")
		w.s.Change(func(q *boatfake.Quirks) { *q = boatfake.Quirks{FlatErrors: true, Denied: true} })
		assert.JSONEq(w, `{"error":"unauthorized","message":"Missing or invalid API key"}`, string(w.do("GET", "/me", nil).body))
		w.s.Change(func(q *boatfake.Quirks) { *q = boatfake.Quirks{Down: true} })
		w.do("GET", "/me", nil).no(503, "unavailable")
		w.s.Change(func(q *boatfake.Quirks) { *q = boatfake.Quirks{} })
		for _, url := range []string{"http://boat.test/v1/me", "http://boat.test/"} {
			r := w.do("GET", url, nil)
			assert.Equal(w, []any{200, "text/html; charset=utf-8"}, []any{r.status, r.header.Get("Content-Type")})
		}
		w.do("GET", "/nothing", nil).no(404, "not_found")
	})
}

func TestEveryRequestIsKeptAndNoSecretOfIt(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.create(`{"ttlSeconds":60}`, "Idempotency-Key", "k")
		w.delete("bx_22222222")
		w.s.Fault("get", boatfake.Fault{Drop: true})
		_, err := w.try("GET", "/sandboxes/"+id, nil)
		assert.Error(w, err)
		var got []string
		for _, r := range w.s.Requests() {
			got = append(got, fmt.Sprint(r.Operation, " ", r.Method, " ", r.Path, " ", string(r.Body), " ", r.Status))
			assert.NotContains(w, fmt.Sprint(r.Header), key)
		}
		assert.Equal(w, []string{
			`create POST /api/v1/sandboxes {"ttlSeconds":60} 202`, "deleteSandbox DELETE /api/v1/sandboxes/bx_22222222  404",
			"get GET /api/v1/sandboxes/" + id + "  0",
		}, got)
		assert.Equal(w, []int{3, 1}, []int{w.s.Count(""), w.s.Count("create")})
	})
}

func TestFaultsBreakSingleAnswers(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		path := "/sandboxes/" + id
		limited := boatfake.Fault{Status: 429, Code: "rate_limited", Details: object{"window": "day"}, Skip: 1}
		w.s.Fault("get", limited, boatfake.Fault{Body: "not JSON"})
		w.do("GET", path, nil).ok(200)
		assert.Equal(w, "day", w.do("GET", path, nil).no(429, "rate_limited")["window"])
		assert.Equal(w, "not JSON", string(w.do("GET", path, nil).body))
		w.s.Fault("get", boatfake.Fault{Cut: 10, Header: http.Header{"X-A": {"b"}}})
		r, err := w.try("GET", path, nil)
		assert.Error(w, err)
		assert.Equal(w, []any{10, "b"}, []any{len(r.body), r.header.Get("X-A")})
		began := time.Now()
		w.s.Fault("get", boatfake.Fault{Delay: time.Minute})
		w.do("GET", path, nil).ok(200)
		assert.Equal(w, time.Minute, time.Since(began))
		w.s.Fault("", boatfake.Fault{Hang: true, Times: -1})
		time.AfterFunc(time.Hour, w.s.Heal)
		_, err = w.try("GET", path, nil)
		assert.Error(w, err)
		assert.Equal(w, time.Hour+time.Minute, time.Since(began))
		w.do("GET", path, nil).ok(200)
	})
}
