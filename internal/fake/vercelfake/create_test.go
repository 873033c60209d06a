package vercelfake_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestAnEmptyCreateHasTheDefaultsOfTheService(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.ok("POST", "/v3/sandboxes", "", m{"projectId": "prj_test"})
		assert.True(t, a.Sandbox.Persistent, "a sandbox keeps its files unless it is told not to")
		assert.EqualValues(t, 300_000, a.Sandbox.Timeout)
		assert.EqualValues(t, 300_000, *a.Session.Timeout)
		assert.Equal(t, []int{2, 4096}, []int{a.Sandbox.VCPUs, a.Sandbox.Memory})
		assert.Contains(t, a.Sandbox.Image, "vercel/sandbox/universal@sha256:")
		assert.NotEmpty(t, a.Sandbox.Name)
		assert.Equal(t, a.Session.ID, a.Sandbox.CurrentSessionID)
		assert.Regexp(t, `^sbx_`, a.Session.ID)
		assert.Equal(t, "running", a.Session.Status)
		assert.Empty(t, a.Routes)

		a = w.ok("POST", "/v2/sandboxes", "", m{"projectId": "test"}) // the slug
		assert.Equal(t, "node24", a.Sandbox.Runtime)
		assert.Empty(t, a.Sandbox.Image)
		require.Len(t, w.fake.All(), 2)
	})
}

func TestACreateTellsWhatWasOrdered(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("lease-1", m{
			"tags": m{"a": "x:y", "b": ""}, "ports": []int{3000, 8080}, "resources": m{"vcpus": 4}, "image": "vercel/sandbox/node:24",
			"networkPolicy": m{"mode": "deny-all"}, "region": "cdg1", "failoverRegions": []string{"iad1"}, "env": m{"K": "secret"},
			"__private": 1,
		})
		assert.Equal(t, map[string]string{"a": "x:y", "b": ""}, a.Sandbox.Tags)
		assert.Equal(t, "cdg1", a.Session.Region)
		assert.Equal(t, 8192, a.Session.Memory)
		assert.Equal(t, "deny-all", a.Sandbox.NetworkPolicy.Mode)
		require.Len(t, a.Routes, 2)
		assert.Equal(t, "https://"+a.Routes[1].Subdomain+".vercel.run", a.Routes[1].URL)
		assert.NotContains(t, a.Text, "secret", "variables cannot be read back")
		assert.Equal(t, a.Routes, w.get("lease-1").Routes, "routes stay what they are")
		assert.Equal(t, a.Session.CreatedAt+60_000, a.Sandbox.ExpiresAt)
	})
}

func TestACreateThatIsNotValidIsRefusedAndMakesNothing(t *testing.T) {
	bodies := map[string]string{
		"unknown field":         `{"projectId":"prj_test","idempotencyKey":"x"}`,
		"no JSON":               `{`,
		"null for an object":    `[]`,
		"no project":            `{"name":"a"}`,
		"bad name":              `{"projectId":"prj_test","name":"a b"}`,
		"empty name":            `{"projectId":"prj_test","name":""}`,
		"long name":             `{"projectId":"prj_test","name":"` + strings.Repeat("a", 129) + `"}`,
		"short timeout":         `{"projectId":"prj_test","timeout":999}`,
		"timeout is no integer": `{"projectId":"prj_test","timeout":1000.5}`,
		"six tags":              `{"projectId":"prj_test","tags":{"a":"","b":"","c":"","d":"","e":"","f":""}}`,
		"long tag":              `{"projectId":"prj_test","tags":{"a":"` + strings.Repeat("x", 257) + `"}}`,
		"tag is no string":      `{"projectId":"prj_test","tags":{"a":1}}`,
		"three cores":           `{"projectId":"prj_test","resources":{"vcpus":3}}`,
		"more than the plan":    `{"projectId":"prj_test","resources":{"vcpus":32}}`,
		"other memory":          `{"projectId":"prj_test","resources":{"vcpus":2,"memory":2048}}`,
		"low port":              `{"projectId":"prj_test","ports":[80]}`,
		"reserved port":         `{"projectId":"prj_test","ports":[23456]}`,
		"a port twice":          `{"projectId":"prj_test","ports":[3000,3000]}`,
		"image and runtime":     `{"projectId":"prj_test","image":"vercel/sandbox/ubuntu","runtime":"node24"}`,
		"unknown image":         `{"projectId":"prj_test","image":"vercel/sandbox/haiku"}`,
		"unknown runtime":       `{"projectId":"prj_test","runtime":"node4"}`,
		"unknown region":        `{"projectId":"prj_test","region":"mars1"}`,
		"fails over to itself":  `{"projectId":"prj_test","region":"iad1","failoverRegions":["iad1"]}`,
		"unknown policy":        `{"projectId":"prj_test","networkPolicy":{"mode":"some"}}`,
		"expires in an hour":    `{"projectId":"prj_test","snapshotExpiration":3600000}`,
		"keeps eleven":          `{"projectId":"prj_test","keepLastSnapshots":{"count":11}}`,
		"source from the net":   `{"projectId":"prj_test","source":{"type":"git","url":"https://example.test/x.git"}}`,
	}
	bubble(t, vercelfake.Options{}, func(w *world) {
		for what, body := range bodies {
			a := w.do("POST", "/v2/sandboxes", "", body)
			assert.Equal(t, 400, a.Status, "%s: %s", what, a.Text)
			assert.Equal(t, "bad_request", a.Error.Code, what)
		}
		w.refused(400, "sandbox_timeout_invalid", "POST", "/v3/sandboxes", "", m{"projectId": "prj_test", "timeout": 86_400_001})
		w.refused(410, "snapshot_not_found", "POST", "/v3/sandboxes", "", m{
			"projectId": "prj_test", "source": m{"type": "snapshot", "snapshotId": "snap_none"},
		})
		w.refused(400, "bad_request", "POST", "/v3/sandboxes", "", m{"projectId": "prj_test", "runtime": "node24"})
		w.fake.Service().Behave(func(b *fake.Behaviour) { b.UnknownImages = []string{"team/app/gone:1"} })
		w.refused(400, "bad_request", "POST", "/v3/sandboxes", "", m{"projectId": "prj_test", "image": "team/app/gone:1"})
		assert.Empty(t, w.fake.All())
	})
}

func TestANameIsTakenOncePerProject(t *testing.T) {
	two := vercelfake.Options{Projects: []vercelfake.Scope{vercelfake.DefaultProject(), {ID: "prj_two", Slug: "two"}}}
	bubble(t, two, func(w *world) {
		first := w.create("same", nil)
		w.refused(400, "bad_request", "POST", "/v3/sandboxes", "", m{"projectId": "prj_test", "name": "same"})
		second := w.ok("POST", "/v3/sandboxes", "", m{"projectId": "two", "name": "same"})
		assert.NotEqual(t, first.Session.ID, second.Session.ID)
		assert.Equal(t, "prj_two", second.Session.ProjectID)

		w.ok("DELETE", "/v2/sandboxes/same", "", nil)
		assert.Equal(t, 404, w.get("same").Status)
		assert.Equal(t, second.Session.ID, w.ok("GET", "/v2/sandboxes/same", "projectId=prj_two", nil).Session.ID)
		w.create("same", nil)
	})
}

func TestWhoMayNotAskIsRefused(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		w.create("mine", nil)
		const path = "/v2/sandboxes/mine"
		w.refused(403, "forbidden", "GET", path, "teamId=team_other", nil)
		w.refused(403, "forbidden", "GET", path, "slug=other", nil)
		w.refused(404, "not_found", "GET", path, "projectId=prj_other", nil)
		w.ok("GET", path, "projectId=test&slug=test-team", nil)
		w.query.Del("teamId")
		w.refused(403, "forbidden", "GET", path, "", nil)
		w.query.Set("teamId", "team_test")

		for token, word := range map[string]string{"": "missingToken", "other": "invalidToken", "a.b.c": "invalidToken"} {
			w.token = token
			assert.Contains(t, w.refused(403, "forbidden", "GET", path, "", nil).Text, `"`+word+`":true`)
		}
		w.token = vercelfake.DefaultToken
		w.fake.Change(func(q *vercelfake.Quirks) { q.Foreign = true })
		assert.NotContains(t, w.refused(403, "forbidden", "GET", path, "", nil).Text, "Token")
		w.fake.SetToken("")
		minted := w.fake.MintToken(time.Hour)
		w.token = minted
		w.refused(403, "forbidden", "GET", path, "", nil)
		w.fake.Change(func(q *vercelfake.Quirks) { q.Unauthorized = true })
		w.refused(401, "unauthorized", "GET", path, "", nil)
	})
}

func TestATokenOfADeploymentIsForItsProjectAndEnds(t *testing.T) {
	two := vercelfake.Options{Projects: []vercelfake.Scope{vercelfake.DefaultProject(), {ID: "prj_two", Slug: "two"}}}
	bubble(t, two, func(w *world) {
		other := w.ok("POST", "/v3/sandboxes", "", m{"projectId": "two", "name": "other"})
		w.query = nil
		w.token = w.fake.MintToken(12 * time.Hour)
		w.ok("POST", "/v3/sandboxes", "", m{"name": "mine"}) // needs neither team nor project
		w.ok("GET", "/v2/sandboxes/mine", "", nil)
		w.refused(404, "not_found", "GET", "/v2/sandboxes/other", "projectId=prj_two", nil)
		assert.Equal(t, 404, w.session(other.Session.ID).Status)
		w.sleep(12 * time.Hour)
		w.refused(403, "forbidden", "GET", "/v2/sandboxes/mine", "", nil)
	})
}

func TestACreateWaitsForTheStartAndThenAnswersPending(t *testing.T) {
	bubble(t, vercelfake.Options{Behaviour: fake.Behaviour{StartTime: 3 * time.Second}}, func(w *world) {
		start := time.Now()
		a := w.create("quick", nil)
		assert.Equal(t, 3*time.Second, since(start))
		assert.Equal(t, "running", a.Session.Status)
		assert.Equal(t, a.Session.CreatedAt+3000, a.Session.StartedAt)
		assert.Equal(t, a.Session.StartedAt+60_000, a.Sandbox.ExpiresAt, "the timeout counts from the start")

		w.fake.Service().Behave(func(b *fake.Behaviour) { b.NeverReady = true })
		start = time.Now()
		a = w.create("slow", nil)
		assert.Equal(t, 10*time.Second, since(start))
		assert.Equal(t, "pending", a.Session.Status)
		assert.Zero(t, a.Session.StartedAt)
		assert.Zero(t, a.Sandbox.ExpiresAt)
		assert.Equal(t, "running", a.Sandbox.Status, "the record has no word for it")
		w.fake.Change(func(q *vercelfake.Quirks) { q.WideStatus = true })
		assert.Equal(t, "pending", w.get("slow").Sandbox.Status)
		w.refused(422, "sandbox_not_ready", "POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 1000})
		w.refused(422, "sandbox_not_ready", "POST", on(a.Session.ID, "cmd"), "", m{"command": "true"})
		w.refused(422, "sandbox_not_ready", "POST", on(a.Session.ID, "stop"), "", nil)

		w.fake.Service().Behave(func(b *fake.Behaviour) { b.NeverReady, b.StartsFailed = false, true })
		assert.Equal(t, "failed", w.create("broken", nil).Session.Status)
	})
}

func TestACreateIsCarriedOutThoughItsClientHasLeft(t *testing.T) {
	bubble(t, vercelfake.Options{Behaviour: fake.Behaviour{StartTime: 5 * time.Second}}, func(w *world) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := w.client.Do(w.request(ctx, "POST", "/v3/sandboxes", "", m{"projectId": "prj_test", "name": "orphan"}))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		w.sleep(5 * time.Second)
		assert.Equal(t, "running", w.get("orphan").Session.Status)
	})
}

func TestACreateWhoseAnswerIsLostIsThere(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		w.fake.Fault("createSandbox",
			vercelfake.Fault{Drop: true, After: true}, vercelfake.Fault{Status: 502, After: true}, vercelfake.Fault{Status: 502})
		_, err := w.client.Do(w.request(context.Background(), "POST", "/v3/sandboxes", "", m{"projectId": "prj_test", "name": "one"}))
		require.Error(t, err)
		w.refused(502, "bad_gateway", "POST", "/v3/sandboxes", "", m{"projectId": "prj_test", "name": "two"})
		w.refused(502, "bad_gateway", "POST", "/v3/sandboxes", "", m{"projectId": "prj_test", "name": "three"})
		assert.Equal(t, 200, w.get("one").Status)
		assert.Equal(t, 200, w.get("two").Status)
		assert.Equal(t, 404, w.get("three").Status)
	})
}

func TestTooManySandboxesAre429(t *testing.T) {
	bubble(t, vercelfake.Options{Behaviour: fake.Behaviour{MaxLive: 1, RetryAfter: 1500 * time.Millisecond}}, func(w *world) {
		w.create("one", nil)
		a := w.refused(429, "rate_limited", "POST", "/v3/sandboxes", "", m{"projectId": "prj_test"})
		assert.Equal(t, "2", a.Header.Get("Retry-After"))
		assert.Len(t, w.fake.All(), 1)
	})
}

func TestFaultsOfTheStateMachineReachTheWire(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		svc := w.fake.Service()
		svc.Fault(sandbox.OpCreate, fake.Fault{Effect: fake.EffectEmptyID}, fake.Fault{Effect: fake.EffectNone})
		a := w.create("nameless", nil)
		assert.Empty(t, a.Sandbox.Name+a.Session.ID)
		assert.Equal(t, 200, w.get("nameless").Status)
		a = w.create("nothing", nil)
		assert.Equal(t, "nothing", a.Sandbox.Name)
		assert.EqualValues(t, 60_000, *a.Session.Timeout)
		assert.Equal(t, 404, w.get("nothing").Status)
		assert.Equal(t, 404, w.session(a.Session.ID).Status)

		svc.Fault(sandbox.OpGet, fake.Fault{Err: &sandbox.APIError{Status: 500}})
		w.refused(500, "internal_server_error", "GET", "/v2/sandboxes/nameless", "", nil)
		svc.Fault(sandbox.OpGet, fake.Fault{Err: &sandbox.APIError{Status: 402, Code: "payment_required"}})
		w.refused(402, "payment_required", "GET", "/v2/sandboxes/nobody", "", nil)
		svc.Behave(func(b *fake.Behaviour) { b.HideDeadline = true })
		a = w.get("nameless")
		assert.Nil(t, a.Session.Timeout)
		assert.Zero(t, a.Sandbox.ExpiresAt)
	})
}

func TestAForkCopiesAllButTheNameAndTheEnd(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("original", m{"tags": m{"owner": "me"}, "persistent": true, "env": m{"K": "v"}, "timeout": 90_000})
		w.write(a.Session.ID, 0o640, map[string]string{"vercel/sandbox/f": "kept"})
		w.ok("POST", on(a.Session.ID, "stop"), "", nil)
		w.sleep(time.Minute)
		f := w.ok("POST", "/v2/sandboxes/original/fork", "", m{"name": "copy"})
		assert.Equal(t, map[string]string{"owner": "me"}, f.Sandbox.Tags)
		assert.Equal(t, "copy", f.Sandbox.Name)
		assert.EqualValues(t, 90_000, *f.Session.Timeout)
		assert.NotEqual(t, a.Session.ID, f.Session.ID)
		out, _, _ := w.run(f.Session.ID, sh("cat f; stat -c %U:%a f; echo $K"))
		assert.Equal(t, "keptvercel-sandbox:640\nv\n", out)

		f = w.ok("POST", "/v2/sandboxes/original/fork", "", m{"tags": m{"x": "y"}, "persistent": false})
		assert.Equal(t, map[string]string{"x": "y"}, f.Sandbox.Tags)
		assert.False(t, f.Sandbox.Persistent)
		w.refused(400, "bad_request", "POST", "/v2/sandboxes/original/fork", "", m{"name": "copy"})
		w.refused(404, "sandbox_not_found", "POST", "/v2/sandboxes/none/fork", "", m{})
	})
}

func TestAnUpdateReplacesTagsAndLeavesTheRunningSessionAlone(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", m{"tags": m{"a": "1", "b": "2"}, "ports": []int{3000}})
		u := w.ok("PATCH", "/v2/sandboxes/box", "", m{
			"tags": m{"c": "3"}, "timeout": 1000, "ports": []int{4000}, "keepLastSnapshots": nil,
		})
		assert.Equal(t, map[string]string{"c": "3"}, u.Sandbox.Tags)
		assert.EqualValues(t, 1000, u.Sandbox.Timeout)
		assert.Equal(t, 4000, u.Routes[0].Port)
		g := w.get("box")
		assert.Equal(t, a.Sandbox.ExpiresAt, g.Sandbox.ExpiresAt)
		assert.EqualValues(t, 60_000, *g.Session.Timeout)
		w.refused(400, "bad_request", "PATCH", "/v2/sandboxes/box", "", m{"name": "other"})

		w.sleep(time.Minute)
		r := w.ok("GET", "/v2/sandboxes/box", "resume=true", nil)
		assert.EqualValues(t, 1000, *r.Session.Timeout, "it holds for the next one")
		p := w.ok("POST", on(r.Session.ID, "network-policy"), "", m{"allow": []string{"example.test"}})
		assert.Equal(t, "custom", p.Session.NetworkPolicy.Mode)
	})
}

func TestOtherAddressesAreNotTheService(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		w.create("box", nil)
		w.refused(404, "not_found", "GET", "/v1/sandboxes", "", nil)
		w.ok("GET", "/api/v2/sandboxes/box", "", nil)
		assert.Equal(t, "/v2/sandboxes/box", w.fake.Requests()[2].Path)
		assert.Equal(t, "getSandbox", w.fake.Requests()[2].Operation)
		assert.Empty(t, w.fake.Requests()[2].Header.Get("Authorization"))
		w.fake.Change(func(q *vercelfake.Quirks) { q.HTML = true })
		a := w.do("DELETE", "/v2/sandboxes/box", "", nil)
		assert.Equal(t, 200, a.Status)
		assert.Contains(t, a.Text, "<!doctype html>")
		w.fake.Change(func(q *vercelfake.Quirks) { q.HTML, q.Down = false, true })
		w.refused(503, "service_unavailable", "GET", "/v2/sandboxes/box", "", nil)
		w.fake.Change(func(q *vercelfake.Quirks) { q.Down = false })
		assert.Equal(t, 200, w.get("box").Status, "neither did anything")
		assert.Equal(t, 6, w.fake.Count(""))
		assert.Equal(t, http.MethodDelete, w.fake.Requests()[3].Method)
	})
}
