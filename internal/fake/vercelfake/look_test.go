package vercelfake_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// names lists all pages of a list.
func (w *world) names(query string) []string {
	w.t.Helper()
	var names []string
	for cursor := ""; ; {
		a := w.ok("GET", "/v2/sandboxes", query+cursor, nil)
		assert.Len(w.t, a.Sandboxes, a.Pagination.Count)
		for _, b := range a.Sandboxes {
			names = append(names, b.Name)
		}
		if a.Pagination.Next == nil {
			return names
		}
		cursor = "&cursor=" + *a.Pagination.Next
	}
}

func TestAListGoesOverAllPagesInItsOrder(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		var made []string
		for i := range 45 {
			name := fmt.Sprintf("box-%02d", i)
			w.create(name, nil)
			made = append(made, name)
			w.sleep(time.Second)
		}
		newest := w.names("")
		require.Len(t, newest, 45)
		assert.Equal(t, "box-44", newest[0], "the newest first")
		assert.Equal(t, made, w.names("sortOrder=asc&limit=7"))
		assert.Equal(t, made, w.names("sortBy=name&sortOrder=asc&limit=50"))
		assert.Equal(t, made[:10], w.names("sortBy=name&sortOrder=asc&namePrefix=box-0"))
		assert.Len(t, w.ok("GET", "/v2/sandboxes", "", nil).Sandboxes, 20)
		w.fake.Change(func(q *vercelfake.Quirks) { q.PageSize = 3 })
		assert.Len(t, w.ok("GET", "/v2/sandboxes", "limit=50", nil).Sandboxes, 3)
		assert.Equal(t, made, w.names("sortOrder=asc&limit=50"))

		w.fake.Service().Behave(func(b *fake.Behaviour) { b.RepeatCursor = true })
		next := w.ok("GET", "/v2/sandboxes", "", nil).Pagination.Next
		require.NotNil(t, next)
		assert.Equal(t, *next, *w.ok("GET", "/v2/sandboxes", "cursor="+*next, nil).Pagination.Next)
	})
}

func TestAListTakesOneTagAndSplitsItAtTheFirstColon(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		w.create("a", m{"tags": m{"k": "x:y", "o": "1"}})
		w.create("b", m{"tags": m{"k": "x", "o": "1"}})
		w.create("c", nil)
		assert.Equal(t, []string{"a"}, w.names("tags=k%3Ax%3Ay"))
		assert.Equal(t, []string{"b"}, w.names("tags=k%3Ax"))
		assert.ElementsMatch(t, []string{"a", "b"}, w.names("tags=o%3A1&limit=1"))
		assert.Empty(t, w.names("tags=none%3A"))
		assert.Len(t, w.names("tags="), 3)
		for _, query := range []string{
			"tags=k%3Ax&tags=o%3A1", "tags=k", "limit=0", "limit=51", "limit=x", "sortBy=age", "sortOrder=up", "namePrefix=a",
			"sortBy=createdAt&namePrefix=a", "status=running&sortBy=name", "status=pending", "cursor=%21",
		} {
			w.refused(400, "bad_request", "GET", "/v2/sandboxes", query, nil)
		}
		w.query.Del("project")
		w.refused(400, "bad_request", "GET", "/v2/sandboxes", "", nil)
		w.refused(404, "not_found", "GET", "/v2/sandboxes", "project=other", nil)
	})
}

func TestAListShowsEveryStateOfOneProject(t *testing.T) {
	two := vercelfake.Options{Projects: []vercelfake.Scope{vercelfake.DefaultProject(), {ID: "prj_two", Slug: "two"}}}
	bubble(t, two, func(w *world) {
		w.create("stopped", nil)
		w.sleep(time.Minute)
		w.create("running", nil)
		w.ok("POST", "/v3/sandboxes", "", m{"projectId": "two", "name": "elsewhere"})
		assert.Equal(t, []string{"running", "stopped"}, w.names(""))
		assert.Equal(t, []string{"stopped"}, w.names("status=stopped"))
		assert.Equal(t, []string{"running"}, w.names("status=running"))
		assert.Equal(t, []string{"elsewhere"}, w.names("project=two"))
		assert.Len(t, w.fake.All(), 3)
		all := w.ok("GET", "/v2/sandboxes/sessions", "limit=1", nil)
		assert.Len(t, all.Sessions, 1)
		assert.NotNil(t, all.Pagination.Next)
		w.ok("GET", "/v2/sandboxes/drives", "", nil)
	})
}

func TestLooksLagAsTheStateMachineIsToldTo(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		svc := w.fake.Service()
		svc.Behave(func(b *fake.Behaviour) { b.ListMissesNew, b.GetStale = 5*time.Second, 10*time.Second })
		a := w.create("box", nil)
		assert.Empty(t, w.names(""))
		w.sleep(5 * time.Second)
		assert.Len(t, w.names(""), 1)
		w.sleep(10 * time.Second)
		w.ok("POST", on(a.Session.ID, "extend-timeout"), "", m{"duration": 60_000})
		assert.Equal(t, a.Sandbox.ExpiresAt, w.get("box").Sandbox.ExpiresAt, "an old answer")
		w.sleep(10 * time.Second)
		assert.Equal(t, a.Sandbox.ExpiresAt+60_000, w.get("box").Sandbox.ExpiresAt)
		w.ok("POST", on(a.Session.ID, "stop"), "", nil)
		got := w.session(a.Session.ID).Session
		assert.Equal(t, "running", got.Status)
		assert.Zero(t, got.StoppedAt)
		w.sleep(10 * time.Second)
		assert.Equal(t, "stopped", w.session(a.Session.ID).Session.Status)

		svc.Behave(func(b *fake.Behaviour) { b.WrongScope = true })
		assert.Equal(t, 404, w.get("box").Status)
		assert.Equal(t, 404, w.session(a.Session.ID).Status)
		assert.Equal(t, 404, w.do("DELETE", "/v2/sandboxes/box", "", nil).Status)
		assert.Empty(t, w.names(""))
	})
}

func TestEachPageMeetsAFaultOfItsOwn(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		w.create("a", nil)
		w.create("b", nil)
		w.fake.Service().Fault(sandbox.OpList, fake.Fault{Err: &sandbox.APIError{Status: 500}, Skip: 1})
		next := w.ok("GET", "/v2/sandboxes", "limit=1", nil).Pagination.Next
		w.refused(500, "internal_server_error", "GET", "/v2/sandboxes", "limit=1&cursor="+*next, nil)
		w.ok("GET", "/v2/sandboxes", "limit=1&cursor="+*next, nil)
	})
}

func TestTheServicesClockIsInTheDateHeader(t *testing.T) {
	bubble(t, vercelfake.Options{Behaviour: fake.Behaviour{Skew: 90 * time.Second}}, func(w *world) {
		a := w.create("box", nil)
		assert.Equal(t, time.Now().Add(90*time.Second).UnixMilli(), a.Session.StartedAt)
		date, err := time.Parse(time.RFC1123, a.Header.Get("Date"))
		require.NoError(t, err)
		assert.Equal(t, a.Session.StartedAt/1000, date.Unix())
	})
}
