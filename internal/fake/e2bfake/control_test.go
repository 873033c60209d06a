package e2bfake_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestAKeyThatIsNotRightIsRefusedWithABody(t *testing.T) {
	bubble(t, "", e2bfake.Options{}, func(t *testing.T, w *world) {
		for key, why := range map[string]string{"": "no credentials", "sk_1": "format", "e2b_other": "invalid API key"} {
			r := w.callAs(t.Context(), key, "POST", "/v2/sandboxes", `{"templateID":"base"}`)
			assert.Equal(t, 401, r.status, key)
			assert.EqualValues(t, 401, r.json("code"), key)
			assert.Contains(t, r.json("message"), why)
		}
		assert.Empty(t, w.s.Sandboxes())
		id, _ := w.create(`{"templateID":"base"}`)
		w.s.SetKey("")
		assert.Equal(t, 401, w.call("DELETE", "/sandboxes/"+id, "").status)
		w.s.SetKey(e2bfake.DefaultKey)
		w.s.Change(func(q *e2bfake.Quirks) { q.Blocked = true })
		assert.Equal(t, 403, w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`).status)
		assert.Equal(t, 200, w.call("GET", "/v2/sandboxes", "").status)
		assert.Equal(t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
	})
}

func TestBothCreateDialectsHaveTheirOwnDefaults(t *testing.T) {
	for path, want := range map[string]struct {
		left    time.Duration
		secured bool
	}{"/sandboxes": {15 * time.Second, false}, "/v2/sandboxes": {5 * time.Minute, true}} {
		bubble(t, path, e2bfake.Options{}, func(t *testing.T, w *world) {
			r := w.call("POST", path, `{"templateID":"base","metadata":{"a":"b"}}`)
			require.Equal(t, 201, r.status, "%s", r.body)
			id := r.json("sandboxID").(string)
			assert.Regexp(t, "^i[a-z0-9]{20}$", id)
			assert.Equal(t, "rki5dems9wqfm4r03t7g", r.json("templateID"), "the template's id, not its alias")
			assert.Equal(t, "base", r.json("alias"))
			assert.NotEmpty(t, r.json("envdVersion"))
			assert.Equal(t, want.secured, r.json("envdAccessToken") != nil)
			assert.Nil(t, r.json("endAt"), "a create tells no times")
			assert.Equal(t, want.left, w.left(id))
			truth, ok := w.s.Sandbox(id)
			require.True(t, ok)
			assert.Equal(t, map[string]string{"a": "b"}, truth.Tags)
			time.Sleep(want.left)
			assert.Equal(t, 404, w.call("GET", "/sandboxes/"+id, "").status, "it ends by itself")
			assert.Empty(t, w.s.Sandboxes())
		})
	}
	bubble(t, "each can be missing", e2bfake.Options{Quirks: e2bfake.Quirks{NoV2: true}}, func(t *testing.T, w *world) {
		assert.Equal(t, 405, w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`).status)
		assert.Equal(t, 201, w.call("POST", "/sandboxes", `{"templateID":"base"}`).status)
		w.s.Change(func(q *e2bfake.Quirks) { q.NoV1, q.NoV2 = true, false })
		assert.Equal(t, 405, w.call("POST", "/sandboxes", `{"templateID":"base"}`).status)
		assert.Equal(t, 200, w.call("GET", "/v2/sandboxes", "").status)
	})
}

func TestACreateThatIsWrongMakesNothing(t *testing.T) {
	bubble(t, "", e2bfake.Options{Behaviour: fake.Behaviour{PlanLifetime: time.Hour}}, func(t *testing.T, w *world) {
		for body, status := range map[string]int{
			`{"templateID":"base","timeout":0}`:             400,
			`{"templateID":"base","timeout":-1}`:            400,
			`{"templateID":"base","timeout":3601}`:          400,
			`{"templateID":"base","timeout":"60"}`:          400,
			`{"templateID":"base","timeout":1.5}`:           400,
			`{"timeout":60}`:                                400,
			`{"templateID":"nothing"}`:                      404,
			`{`:                                             400,
			``:                                              400,
			`{"templateID":"base","metadata":{"a":1}}`:      400,
			`{"templateID":"base","autoPauseMemory":false}`: 400,
			`{"templateID":"base","autoResume":{}}`:         400,
			`{"templateID":"base","volumeMounts":[{"name":"v","path":"/v"}]}`:              400,
			`{"templateID":"base","iam":{"tokens":{"a":{"audience":"x","tokenType":""}}}}`: 400,
		} {
			r := w.call("POST", "/v2/sandboxes", body)
			assert.Equal(t, status, r.status, "%s: %s", body, r.body)
			assert.EqualValues(t, status, r.json("code"), body)
		}
		assert.Empty(t, w.s.Sandboxes())
		w.create(`{"templateID":"team/base:v1","timeout":3600,"unknown":true,"metadata":null}`)
	})
}

func TestQuotaAndLimitsAreToldAsTheServiceDoes(t *testing.T) {
	bubble(t, "", e2bfake.Options{Behaviour: fake.Behaviour{MaxLive: 1, DeleteTime: time.Second}}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base"}`)
		r := w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`)
		assert.Equal(t, 429, r.status)
		assert.Empty(t, r.header.Get("Retry-After"))
		require.Equal(t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
		assert.Equal(t, 429, w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`).status, "the slot is free when the machine is")
		assert.Equal(t, 404, w.call("DELETE", "/sandboxes/"+id, "").status, "its record went first")
		assert.Equal(t, 404, w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).status)
		time.Sleep(time.Second)
		w.create(`{"templateID":"base"}`)

		w.s.Service().Fault(sandbox.OpCreate, fake.Fault{Err: &sandbox.APIError{Status: 429, Message: "slow down", RetryAfter: 1500 * time.Millisecond}})
		r = w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`)
		assert.Equal(t, 429, r.status)
		assert.Equal(t, "2", r.header.Get("Retry-After"))
		w.s.Service().Fault(sandbox.OpCreate, fake.Fault{Err: &sandbox.APIError{Status: 503, Code: "sandbox_capacity_unavailable"}})
		r = w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`)
		assert.Equal(t, 503, r.status)
		assert.Equal(t, "sandbox_capacity_unavailable", r.json("error_code"))
	})
}

func TestACreateIsAnsweredWhenTheSandboxRuns(t *testing.T) {
	bubble(t, "and boot time is not taken from its time", e2bfake.Options{Behaviour: fake.Behaviour{StartTime: 10 * time.Second}}, func(t *testing.T, w *world) {
		began := time.Now()
		go func() {
			time.Sleep(5 * time.Second)
			assert.Empty(t, w.call("GET", "/v2/sandboxes", "").rows(), "what starts is not there yet")
		}()
		id, _ := w.create(`{"templateID":"base","timeout":60}`)
		assert.Equal(t, 10*time.Second, time.Since(began))
		assert.Equal(t, time.Minute, w.left(id))
	})
	bubble(t, "or fails to start", e2bfake.Options{Behaviour: fake.Behaviour{StartTime: time.Second, StartsFailed: true}}, func(t *testing.T, w *world) {
		r := w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`)
		assert.Equal(t, 500, r.status)
		assert.Equal(t, "sandbox_create_failed", r.json("error_code"))
		assert.Empty(t, w.s.Sandboxes())
	})
	bubble(t, "or takes too long", e2bfake.Options{}, func(t *testing.T, w *world) {
		w.s.Service().Fault(sandbox.OpCreate, fake.Fault{Hang: true})
		began := time.Now()
		assert.Equal(t, 504, w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`).status)
		assert.Equal(t, 70*time.Second, time.Since(began))
	})
	bubble(t, "or the service gives up", e2bfake.Options{Behaviour: fake.Behaviour{NeverReady: true}}, func(t *testing.T, w *world) {
		began := time.Now()
		r := w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`)
		assert.Equal(t, 504, r.status)
		assert.Equal(t, "sandbox_placement_timeout", r.json("error_code"))
		assert.Equal(t, 70*time.Second, time.Since(began))
		assert.Empty(t, w.s.Sandboxes())
	})
}

// The service carries out what it was asked for, whether or not somebody waits.
func TestE2B05ACreateWhoseClientHasGoneIsCarriedOut(t *testing.T) {
	slow := e2bfake.Options{Behaviour: fake.Behaviour{StartTime: 10 * time.Second}}
	leave := func(w *world) {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		w.s.Service().Fault(sandbox.OpCreate, fake.Fault{Delay: 5 * time.Second})
		r := w.callAs(ctx, e2bfake.DefaultKey, "POST", "/v2/sandboxes", `{"templateID":"base","metadata":{"nonce":"n1"}}`)
		require.ErrorIs(w.t, r.err, context.DeadlineExceeded)
		assert.Empty(w.t, w.s.Sandboxes())
		time.Sleep(20 * time.Second)
	}
	bubble(t, "", slow, func(t *testing.T, w *world) {
		leave(w)
		assert.Len(t, w.call("GET", "/v2/sandboxes?metadata=nonce%3Dn1", "").rows(), 1)
	})
	bubble(t, "unless it is of another kind", slow, func(t *testing.T, w *world) {
		w.s.Change(func(q *e2bfake.Quirks) { q.AbortsWithClient = true })
		leave(w)
		assert.Empty(t, w.s.Sandboxes())
	})
}

func TestLostAnswersAreProcessed(t *testing.T) {
	bubble(t, "", e2bfake.Options{}, func(t *testing.T, w *world) {
		svc := w.s.Service()
		lost := errors.New("lost")
		svc.Fault(sandbox.OpCreate, fake.Fault{Err: lost, After: true}, fake.Fault{Err: lost})
		require.Error(t, w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`).err)
		require.Error(t, w.call("POST", "/v2/sandboxes", `{"templateID":"base"}`).err)
		require.Len(t, w.s.Sandboxes(), 1)
		id := w.s.Sandboxes()[0].ID
		svc.Fault(sandbox.OpExtend, fake.Fault{Err: lost, After: true})
		require.Error(t, w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":900}`).err)
		assert.Equal(t, 15*time.Minute, w.left(id))
		svc.Fault(sandbox.OpDelete, fake.Fault{Err: lost, After: true})
		require.Error(t, w.call("DELETE", "/sandboxes/"+id, "").err)
		assert.Empty(t, w.s.Sandboxes())
	})
}

func TestIDs(t *testing.T) {
	bubble(t, "", e2bfake.Options{}, func(t *testing.T, w *world) {
		seen := map[string]bool{}
		for range 300 {
			id, _ := w.create(`{"templateID":"base"}`)
			assert.False(t, seen[id])
			seen[id] = true
			r, ok := w.s.Service().Lookup(w.s.ServiceID(id))
			require.True(t, ok)
			require.Equal(t, w.s.ServiceID(id), r.ID)
		}
		id, _ := w.create(`{"templateID":"base"}`)
		other := e2bfake.New(e2bfake.Options{})
		for path, want := range map[string]int{
			id: 200, id + "-6532622b": 200, id + "-a-b": 400, "A1": 400, "i%20": 400, "-": 400, id + "-": 400, "ifff": 404, id[:20] + "z": 404,
		} {
			if got := w.call("GET", "/sandboxes/"+path, "").status; path != id[:20]+"z" || id[20] != 'z' {
				assert.Equal(t, want, got, path)
			}
		}
		_, ok := other.Sandbox(id)
		assert.False(t, ok, "another server has other ids")
	})
}

func TestTimeoutSetsTheEnd(t *testing.T) {
	bubble(t, "", e2bfake.Options{Behaviour: fake.Behaviour{PlanLifetime: time.Hour}}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base","timeout":600}`)
		set := func(body string) int { return w.call("POST", "/sandboxes/"+id+"/timeout", body).status }
		assert.Equal(t, 204, set(`{"timeout":60}`))
		assert.Equal(t, time.Minute, w.left(id), "it may shorten")
		assert.Equal(t, 400, set(`{}`))
		assert.Equal(t, 400, set(`{"timeout":-1}`))
		assert.Equal(t, 400, set(``))
		assert.Equal(t, 204, set(`{"timeout":7200}`))
		assert.Equal(t, time.Hour, w.left(id), "what the plan does not allow is cut off in silence")
		time.Sleep(50 * time.Minute)
		assert.Equal(t, 204, set(`{"timeout":3600}`))
		assert.Equal(t, 10*time.Minute, w.left(id), "counted from the start")
		assert.Equal(t, 204, set(`{"timeout":0}`))
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, 404, set(`{"timeout":60}`))
		assert.Empty(t, w.s.Sandboxes())
	})
	bubble(t, "but not of one that is older than the plan allows", e2bfake.Options{Behaviour: fake.Behaviour{
		PlanLifetime: time.Hour, Lateness: time.Minute,
	}}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base","timeout":3600}`)
		time.Sleep(time.Hour)
		assert.Equal(t, 400, w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).status)
	})
	bubble(t, "and refreshes never shorten", e2bfake.Options{}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base","timeout":60}`)
		refresh := func(body string) int { return w.call("POST", "/sandboxes/"+id+"/refreshes", body).status }
		assert.Equal(t, 204, refresh(`{"duration":30}`))
		assert.Equal(t, time.Minute, w.left(id))
		assert.Equal(t, 204, refresh(`{"duration":90}`))
		assert.Equal(t, 90*time.Second, w.left(id))
		time.Sleep(85 * time.Second)
		assert.Equal(t, 204, refresh(``))
		assert.Equal(t, 15*time.Second, w.left(id), "15 s at least")
		assert.Equal(t, 400, refresh(`{"duration":3601}`))
	})
}

// A paused sandbox has no running record: a heartbeat does not find it, and it is there all the same.
func TestE2B07AHeartbeatDoesNotFindWhatIsPaused(t *testing.T) {
	bubble(t, "", e2bfake.Options{}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base"}`)
		require.Equal(t, 204, w.call("POST", "/sandboxes/"+id+"/pause", `{}`).status)
		assert.Equal(t, 409, w.call("POST", "/sandboxes/"+id+"/pause", `{}`).status)
		for _, call := range []string{"timeout", "refreshes"} {
			r := w.call("POST", "/sandboxes/"+id+"/"+call, `{"timeout":60}`)
			assert.Equal(t, 404, r.status, call)
			assert.EqualValues(t, 404, r.json("code"), call)
		}
		time.Sleep(1000 * time.Hour)
		r := w.call("GET", "/sandboxes/"+id, "")
		assert.Equal(t, "paused", r.json("state"))
		assert.Equal(t, -1000*time.Hour, w.left(id), "its end is the time of the pause")
		assert.Equal(t, []string{id}, w.call("GET", "/v2/sandboxes", "").ids())
		assert.Empty(t, w.call("GET", "/v2/sandboxes?state=running", "").ids())
		assert.Empty(t, w.call("GET", "/sandboxes", "").ids(), "the old list does not show it")
		assert.Equal(t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
		assert.Equal(t, 404, w.call("GET", "/sandboxes/"+id, "").status)
	})
}

func TestE2B06WithAutoPauseNothingEverDies(t *testing.T) {
	bubble(t, "", e2bfake.Options{}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base","timeout":60,"autoPause":true}`)
		assert.Equal(t, "pause", w.call("GET", "/sandboxes/"+id, "").json("lifecycle", "onTimeout"))
		time.Sleep(30 * time.Second)
		require.Equal(t, 204, w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).status)
		time.Sleep(59 * time.Second)
		assert.Equal(t, "running", w.call("GET", "/sandboxes/"+id, "").json("state"))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, "paused", w.call("GET", "/sandboxes/"+id, "").json("state"))
		time.Sleep(1000 * time.Hour)
		assert.Equal(t, []string{id}, w.call("GET", "/v2/sandboxes", "").ids())
		assert.Equal(t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
		assert.Empty(t, w.s.Sandboxes())
	})
}

func TestE2B08ConnectExtendsOnlyAndResumesWhatIsPaused(t *testing.T) {
	for path, version := range map[string]int{"/sandboxes/": 1, "/v2/sandboxes/": 2} {
		bubble(t, path, e2bfake.Options{}, func(t *testing.T, w *world) {
			id, _ := w.create(`{"templateID":"base","timeout":600}`)
			r := w.call("POST", path+id+"/connect", `{"timeout":60}`)
			assert.Equal(t, 200, r.status)
			assert.Equal(t, id, r.json("sandboxID"))
			assert.NotEmpty(t, r.json("envdAccessToken"))
			assert.Equal(t, 10*time.Minute, w.left(id), "it does not shorten")
			assert.Equal(t, 400, w.call("POST", path+id+"/connect", `{"timeout":86401}`).status)
			r = w.call("POST", path+id+"/connect", `{}`)
			assert.Equal(t, map[int]int{1: 400, 2: 200}[version], r.status)
			time.Sleep(time.Minute)
			require.Equal(t, 204, w.call("POST", "/sandboxes/"+id+"/pause", "").status)
			assert.Equal(t, 201, w.call("POST", path+id+"/connect", `{"timeout":60}`).status)
			assert.Equal(t, time.Minute, w.left(id))
			started := w.call("GET", "/sandboxes/"+id, "").json("startedAt").(string)
			at, err := time.Parse(time.RFC3339, started)
			require.NoError(t, err)
			assert.Zero(t, time.Since(at), "a resume starts anew")
			assert.Equal(t, 409, w.call("POST", "/sandboxes/"+id+"/resume", `{}`).status)
			require.Equal(t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
			assert.Equal(t, 404, w.call("POST", path+id+"/connect", `{"timeout":60}`).status)
		})
	}
}

func TestE2B19PhasesConflictWithHeartbeats(t *testing.T) {
	bubble(t, "", e2bfake.Options{Quirks: e2bfake.Quirks{KillTime: 5 * time.Second}}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base"}`)
		w.s.Snapshotting(id, 3*time.Second)
		assert.Equal(t, 409, w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).status)
		assert.Equal(t, "running", w.call("GET", "/sandboxes/"+id, "").json("state"))
		assert.Empty(t, w.call("GET", "/v2/sandboxes", "").ids(), "E2B-02: lists leave it out")
		time.Sleep(3 * time.Second)
		assert.Equal(t, 204, w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).status)
		assert.Equal(t, []string{id}, w.call("GET", "/v2/sandboxes", "").ids())

		w.s.Pausing(id, 3*time.Second)
		assert.Equal(t, 409, w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).status)
		assert.Equal(t, "paused", w.call("GET", "/sandboxes/"+id, "").json("state"))
		assert.Equal(t, []string{id}, w.call("GET", "/v2/sandboxes?state=paused", "").ids())
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Equal(t, 404, w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).status)

		go w.call("DELETE", "/sandboxes/"+id, "")
		time.Sleep(time.Second)
		assert.Equal(t, 409, w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).status)
		assert.Equal(t, 404, w.call("GET", "/sandboxes/"+id, "").status)
		assert.Empty(t, w.call("GET", "/v2/sandboxes", "").ids())
		time.Sleep(5 * time.Second)
	})
}

func TestDelete(t *testing.T) {
	bubble(t, "joins others whatever their order", e2bfake.Options{}, func(t *testing.T, w *world) {
		for i := range 50 {
			id, _ := w.create(`{"templateID":"base"}`)
			w.s.Service().Fault(sandbox.OpDelete, fake.Fault{Delay: time.Second, Times: 3})
			done := make(chan int)
			for range 3 {
				go func() { done <- w.call("DELETE", "/sandboxes/"+id, "").status }()
			}
			for range 3 {
				assert.Equal(t, 204, <-done, i)
			}
		}
	})
	bubble(t, "twice is gone and not found", e2bfake.Options{}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base"}`)
		r := w.call("DELETE", "/sandboxes/"+id, "")
		assert.Equal(t, 204, r.status)
		assert.Empty(t, r.body)
		r = w.call("DELETE", "/sandboxes/"+id, "")
		assert.Equal(t, 404, r.status)
		assert.EqualValues(t, 404, r.json("code"))
	})
	for name, q := range map[string]e2bfake.Quirks{"a slow one": {KillTime: 10 * time.Second}, "one that a fault delays": {}} {
		bubble(t, "joins "+name, e2bfake.Options{Quirks: q}, func(t *testing.T, w *world) {
			id, _ := w.create(`{"templateID":"base"}`)
			if q.KillTime == 0 {
				w.s.Service().Fault(sandbox.OpDelete, fake.Fault{Delay: 10 * time.Second, Times: 2})
			}
			done := make(chan int)
			for range 2 {
				go func() { done <- w.call("DELETE", "/sandboxes/"+id, "").status }()
			}
			assert.Equal(t, 204, <-done)
			assert.Equal(t, 204, <-done)
			assert.Equal(t, 404, w.call("DELETE", "/sandboxes/"+id, "").status)
		})
	}
	bubble(t, "waits for a pause, and takes what it leaves", e2bfake.Options{Quirks: e2bfake.Quirks{PauseTime: 20 * time.Second}}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base"}`)
		paused := make(chan int, 1)
		go func() { paused <- w.call("POST", "/sandboxes/"+id+"/pause", "").status }()
		synctest.Wait()
		began := time.Now()
		assert.Equal(t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
		assert.Equal(t, 20*time.Second, time.Since(began))
		assert.Equal(t, 204, <-paused)
		assert.Empty(t, w.s.Sandboxes())
	})
}

func TestAdvanceLetsEverythingHappenOnTheWay(t *testing.T) {
	s := e2bfake.New(e2bfake.Options{}) // real time, in which none of this would happen
	defer s.Close()
	server := httptest.NewServer(s)
	defer server.Close()
	create := func(body string) string {
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v2/sandboxes", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("X-API-Key", e2bfake.DefaultKey)
		got := send(server.Client(), r)
		require.Equal(t, 201, got.status, "%s", got.body)
		return got.json("sandboxID").(string)
	}
	first := create(`{"templateID":"base","timeout":600,"autoPause":true}`)
	second := create(`{"templateID":"base","timeout":1200,"autoPause":true}`)
	killed := create(`{"templateID":"base","timeout":600}`)
	state := func(id string) sandbox.State {
		r, ok := s.Sandbox(id)
		require.True(t, ok)
		return r.State
	}
	s.Advance(9 * time.Minute)
	assert.Equal(t, []sandbox.State{sandbox.StateRunning, sandbox.StateRunning, sandbox.StateRunning}, []sandbox.State{state(first), state(second), state(killed)})
	s.Advance(2 * time.Minute)
	assert.Equal(t, []sandbox.State{sandbox.StateDormant, sandbox.StateRunning, sandbox.StateGone}, []sandbox.State{state(first), state(second), state(killed)})
	s.Advance(time.Hour)
	assert.Equal(t, []sandbox.State{sandbox.StateDormant, sandbox.StateDormant, sandbox.StateGone}, []sandbox.State{state(first), state(second), state(killed)})
}

// A delete that fails on the node has dropped the record, and the machine may run on.
func TestE2B03ADeleteThatFailsDropsTheRecord(t *testing.T) {
	bubble(t, "", e2bfake.Options{Behaviour: fake.Behaviour{OrphanTime: 80 * time.Second}}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base","timeout":600}`)
		w.s.Service().Fault(sandbox.OpDelete, fake.Fault{Effect: fake.EffectOrphan, After: true, Err: &sandbox.APIError{Status: 500}})
		assert.Equal(t, 500, w.call("DELETE", "/sandboxes/"+id, "").status)
		assert.Equal(t, 404, w.call("DELETE", "/sandboxes/"+id, "").status)
		assert.Equal(t, 404, w.call("GET", "/sandboxes/"+id, "").status)
		assert.Empty(t, w.call("GET", "/v2/sandboxes", "").ids())
		kinds := func() string { return fmt.Sprint(events(w, id)) }
		time.Sleep(79 * time.Second)
		require.Len(t, w.s.Sandboxes(), 1, "and it runs")
		assert.Equal(t, "[created]", kinds())
		time.Sleep(time.Second)
		assert.Empty(t, w.s.Sandboxes())
		assert.Equal(t, "[created killed:orphaned]", kinds())
	})
}

// events returns what the audit says of a sandbox, oldest first.
func events(w *world, id string) []string {
	var all []string
	for _, e := range w.call("GET", "/events/sandboxes/"+id+"?orderAsc=true&limit=100", "").rows() {
		kind := strings.TrimPrefix(e["type"].(string), "sandbox.lifecycle.")
		if data, _ := e["event_data"].(map[string]any); data["kill_reason"] != nil {
			kind += ":" + data["kill_reason"].(string)
		}
		all = append(all, kind)
	}
	return all
}

// A delete of a paused sandbox does not stop a resume that is under way.
func TestE2B01AResumeUnderWayOutlivesADelete(t *testing.T) {
	race := func(w *world) (id string, resumed chan int) {
		id, _ = w.create(`{"templateID":"base"}`)
		require.Equal(w.t, 204, w.call("POST", "/sandboxes/"+id+"/pause", "").status)
		resumed = make(chan int, 1)
		go func() { resumed <- w.call("POST", "/v2/sandboxes/"+id+"/connect", `{"timeout":60}`).status }()
		time.Sleep(20 * time.Millisecond)
		assert.Equal(w.t, 409, w.call("POST", "/v2/sandboxes/"+id+"/connect", `{}`).status)
		assert.Equal(w.t, 404, w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).status)
		assert.Equal(w.t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
		assert.Equal(w.t, 404, w.call("DELETE", "/sandboxes/"+id, "").status)
		assert.Equal(w.t, 404, w.call("GET", "/sandboxes/"+id, "").status)
		assert.Empty(w.t, w.call("GET", "/v2/sandboxes", "").ids())
		return id, resumed
	}
	bubble(t, "", e2bfake.Options{Quirks: e2bfake.Quirks{ResumeTime: time.Second}}, func(t *testing.T, w *world) {
		id, resumed := race(w)
		assert.Equal(t, 201, <-resumed)
		assert.Equal(t, "running", w.call("GET", "/sandboxes/"+id, "").json("state"))
		assert.Equal(t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
		assert.Empty(t, w.s.Sandboxes())
	})
	bubble(t, "unless the service has learnt of it", e2bfake.Options{Quirks: e2bfake.Quirks{ResumeTime: time.Second, Tombstones: true}}, func(t *testing.T, w *world) {
		_, resumed := race(w)
		assert.Equal(t, 404, <-resumed)
		assert.Empty(t, w.s.Sandboxes())
	})
}

// The bytes are those that the official SDK 2.51.0 was seen to send for {"leak.run": "a b&c=d/é", "owner": "x"}.
func TestE2B18AFilterIsEncodedThreeTimes(t *testing.T) {
	bubble(t, "", e2bfake.Options{}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base","metadata":{"leak.run":"a b&c=d/é","owner":"x","more":"y"}}`)
		w.create(`{"templateID":"base","metadata":{"leak.run":"a b&c=d/é","owner":"other"}}`)
		list := func(query string) reply { return w.call("GET", "/v2/sandboxes?"+query, "") }
		assert.Equal(t, []string{id}, list("metadata=leak.run%3Da%252520b%252526c%25253Dd%25252F%2525C3%2525A9%26owner%3Dx").ids())
		assert.Len(t, list("metadata=leak.run%3Da%252520b%252526c%25253Dd%25252F%2525C3%2525A9").ids(), 2)
		assert.Equal(t, []string{id}, list("metadata="+url.QueryEscape("owner=x")).ids(), "plain words need no more")
		assert.Empty(t, list("metadata="+url.QueryEscape("leak.run=a b&c=d/é")).ids(), "encoded once it matches nothing, in silence")
		assert.Equal(t, 400, list("metadata="+url.QueryEscape("owner=100%")).status)
		assert.Equal(t, 400, list("metadata="+url.QueryEscape("owner=a=b")).status)
		assert.Equal(t, 400, list("metadata=").status)
		assert.Equal(t, 400, list("metadata=owner").status)
		assert.Equal(t, 400, list("metadata=a%253D%3Db%26").status)
		assert.Empty(t, list("metadata=owner%3Dx%26more%3Dz").ids(), "all must match")
		assert.Empty(t, list("metadata=owner%3D").ids(), "and exactly")
	})
}

func TestListPages(t *testing.T) {
	bubble(t, "newest first, and bound to their order", e2bfake.Options{}, func(t *testing.T, w *world) {
		var made []string
		for i := range 5 {
			id, _ := w.create(`{"templateID":"base","metadata":{"n":"` + fmt.Sprint(i/4) + `"}}`)
			made = append(made, id)
			time.Sleep(time.Second)
		}
		walk := func(query string) (ids []string, pages int) {
			for token := ""; ; {
				r := w.call("GET", "/v2/sandboxes?"+query+token, "")
				require.Equal(t, 200, r.status, "%s", r.body)
				ids = append(ids, r.ids()...)
				pages++
				next := r.header.Get("X-Next-Token")
				if next == "" {
					return ids, pages
				}
				token = "&nextToken=" + url.QueryEscape(next)
			}
		}
		ids, pages := walk("limit=2&order=asc")
		assert.Equal(t, made, ids)
		assert.Equal(t, 3, pages)
		ids, _ = walk("limit=2")
		slices.Reverse(ids)
		assert.Equal(t, made, ids)
		ids, pages = walk("limit=2&metadata=n%3D0&order=asc")
		assert.Equal(t, made[:4], ids)
		assert.Equal(t, 2, pages, "no empty page at the end")
		w.s.Change(func(q *e2bfake.Quirks) { q.PageSize = 1 })
		ids, pages = walk("limit=100&order=asc")
		assert.Equal(t, made, ids)
		assert.Equal(t, 5, pages)

		r := w.call("GET", "/v2/sandboxes?limit=2&order=asc", "")
		assert.Equal(t, "5", r.header.Get("X-Total-Running"))
		token := r.header.Get("X-Next-Token")
		assert.Equal(t, 400, w.call("GET", "/v2/sandboxes?order=desc&nextToken="+url.QueryEscape(token), "").status)
		for _, bad := range []string{"limit=0", "limit=101", "limit=x", "order=up", "state=gone", "nextToken=x", "startedAfter=now", "template=a:b"} {
			assert.Equal(t, 400, w.call("GET", "/v2/sandboxes?"+bad, "").status, bad)
		}
		w.s.Change(func(q *e2bfake.Quirks) { q.PageSize = 0 })
		after := url.QueryEscape(time.Now().Add(-2 * time.Second).Format(time.RFC3339Nano))
		assert.Equal(t, []string{made[4], made[3]}, w.call("GET", "/v2/sandboxes?startedAfter="+after, "").ids())
		assert.Len(t, w.call("GET", "/v2/sandboxes?template=base", "").ids(), 5)
		assert.Empty(t, w.call("GET", "/v2/sandboxes?template=other", "").ids())
	})
	bubble(t, "many at one instant", e2bfake.Options{}, func(t *testing.T, w *world) {
		for range 7 {
			w.create(`{"templateID":"base"}`)
		}
		seen := map[string]bool{}
		token := ""
		for range 10 {
			r := w.call("GET", "/v2/sandboxes?limit=3"+token, "")
			for _, id := range r.ids() {
				assert.False(t, seen[id])
				seen[id] = true
			}
			next := r.header.Get("X-Next-Token")
			if next == "" {
				break
			}
			token = "&nextToken=" + url.QueryEscape(next)
		}
		assert.Len(t, seen, 7)
	})
	bubble(t, "that go round in circles", e2bfake.Options{}, func(t *testing.T, w *world) {
		w.create(`{"templateID":"base"}`)
		w.s.Service().Behave(func(b *fake.Behaviour) { b.RepeatCursor = true })
		first := w.call("GET", "/v2/sandboxes", "")
		again := w.call("GET", "/v2/sandboxes?nextToken="+url.QueryEscape(first.header.Get("X-Next-Token")), "")
		assert.Equal(t, first.ids(), again.ids())
		assert.Equal(t, first.header.Get("X-Next-Token"), again.header.Get("X-Next-Token"))
		assert.NotEmpty(t, again.ids())
	})
	bubble(t, "one of which fails", e2bfake.Options{}, func(t *testing.T, w *world) {
		w.s.Service().Fault(sandbox.OpList, fake.Fault{Skip: 1, Err: &sandbox.APIError{Status: 500}})
		assert.Equal(t, 200, w.call("GET", "/v2/sandboxes", "").status)
		assert.Equal(t, 500, w.call("GET", "/v2/sandboxes", "").status)
		assert.Equal(t, 200, w.call("GET", "/v2/sandboxes", "").status)
	})
}

func TestE2B21SnapshotsOutliveTheirSandbox(t *testing.T) {
	bubble(t, "", e2bfake.Options{Quirks: e2bfake.Quirks{SnapshotTime: time.Second}}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base","metadata":{"a":"b"}}`)
		r := w.call("POST", "/sandboxes/"+id+"/snapshots", `{"name":"keep"}`)
		require.Equal(t, 201, r.status, "%s", r.body)
		snap := r.json("snapshotID").(string)
		require.Equal(t, 201, w.call("POST", "/sandboxes/"+id+"/snapshots", `{}`).status)
		require.Equal(t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
		assert.Len(t, w.call("GET", "/snapshots?sandboxID="+id, "").rows(), 2)
		first := w.call("GET", "/snapshots?limit=1", "")
		assert.Len(t, first.rows(), 1)
		assert.Len(t, w.call("GET", "/snapshots?limit=1&nextToken="+first.header.Get("X-Next-Token"), "").rows(), 1)
		assert.NotContains(t, string(first.body), "metadata")
		unnamed := w.s.Service().Snapshot(w.s.ServiceID(id))
		assert.Empty(t, unnamed, "of one that is gone")
		from, _ := w.create(`{"templateID":"` + snap + `"}`)
		path := "/templates/" + url.PathEscape(snap)
		assert.Equal(t, 400, w.call("DELETE", path, "").status)
		require.Equal(t, 204, w.call("DELETE", "/sandboxes/"+from, "").status)
		assert.Equal(t, 204, w.call("DELETE", path, "").status)
		assert.Equal(t, 404, w.call("DELETE", path, "").status)
	})
}

func TestForksInheritMetadata(t *testing.T) {
	bubble(t, "", e2bfake.Options{}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base","metadata":{"a":"b"}}`)
		r := w.call("POST", "/sandboxes/"+id+"/fork", `{"count":2,"timeout":60}`)
		require.Equal(t, 201, r.status, "%s", r.body)
		assert.Len(t, w.call("GET", "/v2/sandboxes?metadata=a%3Db", "").ids(), 3)
		for _, row := range r.rows() {
			fork := row["sandbox"].(map[string]any)["sandboxID"].(string)
			assert.Equal(t, time.Minute, w.left(fork))
		}
		assert.Empty(t, w.call("GET", "/snapshots", "").rows())
	})
}

func TestTheAuditTellsEveryLife(t *testing.T) {
	bubble(t, "", e2bfake.Options{Behaviour: fake.Behaviour{DeleteTime: time.Second}, Quirks: e2bfake.Quirks{EventLag: 10 * time.Second}}, func(t *testing.T, w *world) {
		a, _ := w.create(`{"templateID":"base","timeout":60,"metadata":{"run":"r1"}}`)
		b, _ := w.create(`{"templateID":"base"}`)
		w.call("POST", "/sandboxes/"+b+"/timeout", `{"timeout":900}`)
		w.call("POST", "/sandboxes/"+b+"/pause", ``)
		w.call("POST", "/v2/sandboxes/"+b+"/connect", ``)
		w.call("DELETE", "/sandboxes/"+b, "")
		assert.Empty(t, events(w, b), "it takes a while")
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"created", "updated", "paused", "resumed", "killed:request"}, events(w, b))
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"created", "killed:timeout"}, events(w, a))
		row := w.call("GET", "/events/sandboxes?types=sandbox.lifecycle.killed&limit=1", "").rows()[0]
		assert.Equal(t, a, row["sandbox_id"], "the latest first")
		assert.Equal(t, map[string]any{"run": "r1"}, row["event_data"].(map[string]any)["sandbox_metadata"])
		w.s.Change(func(q *e2bfake.Quirks) { q.CamelEvents = true })
		row = w.call("GET", "/events/sandboxes?types=sandbox.lifecycle.killed&limit=1&offset=1", "").rows()[0]
		assert.Equal(t, b, row["sandboxId"])
		assert.Nil(t, row["eventData"])
		assert.Equal(t, 400, w.call("GET", "/events/sandboxes?limit=101", "").status)
	})
}

func TestTheClockOfAnswersIsTheServices(t *testing.T) {
	bubble(t, "", e2bfake.Options{Behaviour: fake.Behaviour{Skew: -time.Hour}}, func(t *testing.T, w *world) {
		r := w.call("GET", "/v2/sandboxes", "")
		at, err := http.ParseTime(r.header.Get("Date"))
		require.NoError(t, err)
		assert.Equal(t, time.Hour, time.Since(at).Truncate(time.Second))
	})
}

func TestTheLogHasEveryRequestWithItsAnswer(t *testing.T) {
	bubble(t, "", e2bfake.Options{}, func(t *testing.T, w *world) {
		id, _ := w.create(`{"templateID":"base"}`)
		w.call("GET", "/v2/sandboxes?limit=1", "")
		w.net.Break(memnet.Fault{Kind: memnet.Swallow, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.callAs(ctx, e2bfake.DefaultKey, "DELETE", "/sandboxes/"+id, "")
		log := w.s.Requests()
		require.Len(t, log, 3)
		assert.Equal(t, 3, w.s.Count())
		assert.Equal(t, "POST /v2/sandboxes 201", fmt.Sprint(log[0].Method, " ", log[0].Path, " ", log[0].Status))
		assert.JSONEq(t, `{"templateID":"base"}`, string(log[0].Body))
		assert.Contains(t, string(log[0].Answer), id)
		assert.Equal(t, "limit=1", log[1].Query)
		assert.Equal(t, 204, log[2].Status, "whose answer was lost")
		for _, r := range log {
			assert.Equal(t, "control", r.Plane)
			assert.True(t, r.Done)
			assert.Equal(t, e2bfake.DefaultKey, r.Header.Get("X-Api-Key"))
		}
		w.s.ForgetRequests()
		assert.Empty(t, w.s.Requests())
	})
}

func TestAnswersCanBeOfAnotherService(t *testing.T) {
	bubble(t, "", e2bfake.Options{}, func(t *testing.T, w *world) {
		w.s.Change(func(q *e2bfake.Quirks) { q.HTML = true })
		r := w.call("GET", "/sandboxes/ix", "")
		assert.Equal(t, 200, r.status)
		assert.Contains(t, r.header.Get("Content-Type"), "text/html")
		w.s.Change(func(q *e2bfake.Quirks) { q.HTML, q.NakedErrors = false, true })
		r = w.call("GET", "/sandboxes/ix", "")
		assert.Equal(t, 404, r.status)
		assert.Empty(t, r.body)
		assert.Equal(t, 404, w.call("GET", "/nothing", "").status)
	})
}
