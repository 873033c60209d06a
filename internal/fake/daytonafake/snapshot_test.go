package daytonafake_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
)

func TestSnapshotsOutliveTheirSandboxAndNameIt(t *testing.T) {
	in(t, daytonafake.Options{ForeignKey: "dtn_other"}, func(w *world) {
		id, other := w.create(nil), w.create(nil)
		w.do("POST", "/api/sandbox/"+id+"/snapshot", object{}).refused(400)
		w.do("POST", "/api/sandbox/"+id+"/snapshot", object{"name": "one"}).ok()
		w.do("POST", "/api/sandbox/"+id+"/snapshot", object{"name": "two"}).ok()
		w.do("POST", "/api/sandbox/"+other+"/snapshot", object{"name": "three"}).ok()
		w.do("DELETE", "/api/sandbox/"+id, nil).ok()
		time.Sleep(time.Minute)
		assert.Equal(w, "Not Found", w.state(id))

		page := w.do("GET", "/api/snapshots?sourceSandboxId="+id+"&limit=1&page=2", nil).ok()
		assert.Equal(w, []any{2., 2., 2.}, []any{page["total"], page["page"], page["totalPages"]})
		item := page["items"].([]any)[0].(object)
		assert.Equal(w, []any{"one", id, "active"}, []any{item["name"], item["sourceSandboxId"], item["state"]})
		assert.Len(w, w.do("GET", "/api/snapshots", nil).ok()["items"], 3)
		assert.Empty(w, w.do("GET", "/api/snapshots?sourceSandboxId=none", nil).ok()["items"])
		w.do("GET", "/api/snapshots?limit=201", nil).refused(400)

		path := "/api/snapshots/" + item["id"].(string)
		assert.Equal(w, item, w.do("GET", path, nil).ok())
		assert.Equal(w, item, w.do("GET", "/api/snapshots/one", nil).ok(), "by name, too")
		w.do("GET", "/api/snapshots/none", nil).refused(404)
		w.key = "dtn_other"
		w.do("GET", path, nil).refused(404)
		w.do("DELETE", path, nil).refused(404)
		assert.Empty(w, w.do("GET", "/api/snapshots", nil).ok()["items"])
		w.key = key
		assert.Equal(w, 200, w.do("DELETE", path, nil).status)
		w.do("DELETE", path, nil).refused(404)
		assert.Len(w, w.do("GET", "/api/snapshots", nil).ok()["items"], 2)
	})
}
