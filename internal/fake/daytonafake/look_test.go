package daytonafake_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// pages follows cursors to the end; between is called after each page.
func (w *world) pages(query string, between func(n int)) (all []string, pages int) {
	w.Helper()
	cursor := ""
	for {
		page := w.do("GET", "/api/sandbox?"+cursor+query, nil).ok()
		pages++
		all = append(all, ids(page)...)
		next, ok := page["nextCursor"].(string)
		if !ok {
			assert.Contains(w, page, "nextCursor")
			return all, pages
		}
		cursor = "cursor=" + url.QueryEscape(next) + "&"
		if between != nil {
			between(pages)
		}
	}
}

func TestDaytona18PagesInTheOrderOfCreationMissNothing(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.quirk(func(q *daytonafake.Quirks) { q.CreateWait = 0 })
		w.behave(func(b *fake.Behaviour) { b.StartTime = 0 })
		var made []string
		for range 250 {
			labels := object{"run": "r1", "code-toolbox-language": "python"}
			made = append(made, w.do("POST", "/api/sandbox", object{"labels": labels}).ok()["id"].(string))
			time.Sleep(time.Second)
		}
		filter := "labels=" + url.QueryEscape(`{"run":"r1"}`)
		active := func(n int) {
			for _, id := range made[max(0, 200-100*n-1):] {
				w.do("POST", "/toolbox/"+id+"/process/session", object{"sessionId": fmt.Sprint("s", n)})
			}
			time.Sleep(time.Second)
		}
		w.list(filter)
		all, pages := w.pages(filter+"&sort=createdAt&order=asc", active)
		assert.Equal(w, made, all)
		assert.Equal(w, 3, pages, "a page is 100 if nothing is said")
		all, _ = w.pages(filter, active)
		assert.Less(w, len(all), 250, "the default order is by activity: what moves while it is read is missed")
		all, pages = w.pages(filter+"&limit=200&sort=createdAt&order=asc", nil)
		assert.Equal(w, []int{250, 2}, []int{len(all), pages})

		w.quirk(func(q *daytonafake.Quirks) { q.PageSize = 7 })
		deleted := false
		all, pages = w.pages("limit=200&sort=createdAt&order=asc", func(int) {
			if !deleted {
				w.s.Service().Kill(daytonafake.MachineID(made[0]))
				deleted = true
			}
		})
		assert.Equal(w, made, all, "a row that goes meanwhile moves no page")
		assert.Equal(w, 36, pages)
	})
}

func TestListsFilter(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.behave(func(b *fake.Behaviour) { b.ListMissesNew = 0 })
		a := w.create(object{"name": "Alpha-1", "labels": object{"k": "1", "l": "x"}, "ttlMinutes": 5})
		time.Sleep(time.Minute)
		middle := time.Now()
		time.Sleep(time.Minute)
		b := w.create(object{"name": "beta-1", "labels": object{"k": "1"}, "public": true})
		w.stop(b)
		between := url.QueryEscape(middle.Format(time.RFC3339))
		for query, want := range map[string][]string{
			"":                                   {b, a},
			"order=asc&sort=createdAt":           {a, b},
			"order=desc&sort=name":               {b, a},
			"name=ALPHA":                         {a},
			"name=lpha":                          {},
			"id=" + a:                            {a},
			"states=started&states=creating":     {a},
			"states=stopped":                     {b},
			"states=destroying":                  {},
			"isPublic=true":                      {b},
			"snapshots=other":                    {},
			"regionIds=us&maxCpu=1":              {b, a},
			"minCpu=2":                           {},
			"createdAtBefore=" + between:         {a},
			"createdAtAfter=" + between:          {b},
			"autoDestroyAtAfter=" + between:      {a},
			"limit=1&labels=" + esc(`{"k":"1"}`): {b},
			"labels=" + esc(`{"k":"1","l":"x"}`): {a},
			"labels=" + esc(`{"k":"2"}`):         {},
		} {
			assert.Equal(w, want, w.list(query), query)
		}
		for _, query := range []string{
			"limit=0", "limit=201", "limit=x", "labels=x", "states=destroyed", "states=none", "sort=none", "order=up", "cursor=x",
			"createdAtAfter=yesterday",
		} {
			assert.Equal(w, 400, w.do("GET", "/api/sandbox?"+query, nil).status, query)
		}
		row := w.do("GET", "/api/sandbox?name=alpha", nil).ok()["items"].([]any)[0].(object)
		for _, field := range []string{"env", "buildInfo", "volumes"} {
			assert.NotContains(w, row, field, "lists tell less")
		}
		assert.Contains(w, row, "autoDestroyAt")

		page := w.do("GET", "/api/sandbox/paginated?limit=1&page=2&sort=createdAt&order=asc", nil).ok()
		assert.Equal(w, []string{b}, ids(page))
		assert.Equal(w, []any{2., 2., 2.}, []any{page["total"], page["page"], page["totalPages"]})
	})
}

func esc(s string) string { return url.QueryEscape(s) }

func TestDaytona15ListsHoldEveryStateButDestroyed(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.behave(func(b *fake.Behaviour) { b.ListMissesNew, b.ListFlaps, b.DeleteTime = 0, 0, time.Hour })
		errored := w.create(object{"autoStopInterval": 1, "autoDeleteInterval": 0})
		w.s.Service().Fail(daytonafake.MachineID(errored), "boom")
		stopped, deleted := w.create(nil), w.create(nil)
		w.stop(stopped)
		w.do("DELETE", "/api/sandbox/"+deleted, nil).ok()
		time.Sleep(30 * time.Minute)
		assert.Equal(w, []string{errored, stopped, deleted}, w.list("sort=createdAt&order=asc"), "idle clocks pass errored ones by")
	})
}

func TestANewSandboxIsListedALittleLater(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.quirk(func(q *daytonafake.Quirks) { q.CreateWait = 0 })
		id := w.do("POST", "/api/sandbox", nil).ok()["id"].(string)
		assert.Empty(w, w.list(""))
		assert.Equal(w, "creating", w.state(id))
		time.Sleep(time.Second)
		assert.Equal(w, []string{id}, w.list(""))
	})
}

func TestAPageIsOneCallForFaults(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.create(nil)
		w.create(nil)
		time.Sleep(time.Second)
		w.quirk(func(q *daytonafake.Quirks) { q.PageSize = 1 })
		w.s.Service().Fault(sandbox.OpList, fake.Fault{Err: &sandbox.APIError{Status: 500}, Skip: 1})
		first := w.do("GET", "/api/sandbox", nil).ok()
		assert.Len(w, ids(first), 1)
		w.do("GET", "/api/sandbox?cursor="+esc(first["nextCursor"].(string)), nil).refused(500)
		w.behave(func(b *fake.Behaviour) { b.RepeatCursor = true })
		first = w.do("GET", "/api/sandbox", nil).ok()
		second := w.do("GET", "/api/sandbox?cursor="+first["nextCursor"].(string), nil).ok()
		assert.Equal(w, first, second)
	})
}

func TestTheStateMachinesOwnPagesHideNothing(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		for range 3 {
			w.create(nil)
		}
		time.Sleep(time.Second)
		w.behave(func(b *fake.Behaviour) { b.PageSize = 1 })
		assert.Len(w, w.list(""), 3)
	})
}

func TestLookupPutsTheTruthLikeTheWire(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		build := object{"dockerfileContent": "FROM debian:12\n"}
		id := w.create(object{"buildInfo": build, "cpu": 2, "memory": 4, "disk": 8, "networkBlockAll": true, "env": object{"A": "b"}})
		v, ok := w.s.Lookup(id)
		require.True(w, ok)
		assert.Equal(w, []any{2, 4, 8, true, "started", "b"}, []any{v.CPU, v.Memory, v.Disk, v.NetworkBlockAll, v.State, v.Env["A"]})
		w.s.Service().Kill(daytonafake.MachineID(id))
		v, ok = w.s.Lookup(id)
		assert.True(w, ok)
		assert.Equal(w, "destroyed", v.State)
		_, ok = w.s.Lookup("none")
		assert.False(w, ok)
	})
}
