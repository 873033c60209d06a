package e2b_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/providers/providertest"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestConformance(t *testing.T) {
	for name, dialect := range map[string]e2b.Dialect{"v1": e2b.DialectV1, "v2": e2b.DialectV2} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, harness(func(o *e2bfake.Options, c *e2b.Config) {
				c.Dialect = dialect
				o.Quirks.NoV1, o.Quirks.NoV2 = dialect == e2b.DialectV2, dialect == e2b.DialectV1
				o.Quirks.PageSize = 3
			}))
		})
	}
}

func harness(settings ...setting) providertest.Harness {
	var worlds sync.Map // of sandbox.Provider
	of := func(p sandbox.Provider) *world {
		w, _ := worlds.Load(p)
		return w.(*world)
	}
	// A create is answered when the machine runs: nothing is ever seen that does not.
	faults := slices.DeleteFunc(providertest.AllFaults(), func(f providertest.Fault) bool { return f == providertest.NeverReady })
	return providertest.Harness{
		New: func(t *testing.T) sandbox.Provider {
			w := newWorld(t, settings...)
			worlds.Store(w.p, w)
			return w.p
		},
		Bubble: true,
		Judge: func(_ *testing.T, p sandbox.Provider, fleet string) []sandbox.Info {
			var infos []sandbox.Info
			for _, r := range of(p).alive() {
				m, err := sandbox.ParseMark(r.Tags[sandbox.MarkKey])
				if err == nil && m.Fleet != fleet {
					continue
				}
				infos = append(infos, sandbox.Info{ID: r.ID, State: r.State, Mark: m, Deadline: r.Deadline, AsOf: of(p).fake.Service().Now()})
			}
			return infos
		},
		Made: func(t *testing.T, p sandbox.Provider, id string) sandbox.Spec {
			code, body := of(p).ask(http.MethodGet, "/sandboxes/"+id, nil)
			assert.Equal(t, http.StatusOK, code)
			var d struct {
				AllowInternetAccess *bool `json:"allowInternetAccess"`
			}
			assert.NoError(t, json.Unmarshal(body, &d))
			return sandbox.Spec{Offline: d.AllowInternetAccess != nil && !*d.AllowInternetAccess}
		},
		Requests: func(p sandbox.Provider) int { return int(of(p).sent.Load()) },
		Faults:   faults,
		Inject: func(t *testing.T, p sandbox.Provider, f providertest.Fault, id string) func() {
			return of(p).inject(t, f, id)
		},
		Native:       &e2b.Options{MaskHost: "localhost:${PORT}"},
		UnknownImage: "no-such-template",
		User:         "root",
		PageSize:     3,
		Secrets:      []string{e2bfake.DefaultKey},
	}
}

func (w *world) inject(t *testing.T, f providertest.Fault, id string) (heal func()) {
	svc := w.fake.Service()
	call := func(op sandbox.Op, f fake.Fault) func() {
		svc.Fault(op, f)
		return svc.Heal
	}
	lost := &sandbox.APIError{} // without a status: the connection breaks instead of an answer
	switch f {
	case providertest.CreateLost:
		return call(sandbox.OpCreate, fake.Fault{Err: lost, After: true})
	case providertest.CreateHangs:
		return call(sandbox.OpCreate, fake.Fault{Hang: true, After: true})
	case providertest.CreateLimited:
		limited := status(429)
		limited.RetryAfter = 2 * time.Second
		return call(sandbox.OpCreate, fake.Fault{Err: limited})
	case providertest.GetFails:
		return call(sandbox.OpGet, fake.Fault{Err: status(500)})
	case providertest.ListFails:
		w.fake.Change(func(q *e2bfake.Quirks) { q.PageSize = 1 })
		svc.Fault(sandbox.OpList, fake.Fault{Err: status(500), Skip: 1})
		return svc.Heal
	case providertest.ListLoops:
		svc.Behave(func(b *fake.Behaviour) { b.RepeatCursor = true })
		w.fake.Change(func(q *e2bfake.Quirks) { q.PageSize = 1 })
		return func() { svc.Behave(func(b *fake.Behaviour) { b.RepeatCursor = false }) }
	case providertest.ExtendFails:
		return call(sandbox.OpExtend, fake.Fault{Err: status(500)})
	case providertest.ExtendLost:
		return call(sandbox.OpExtend, fake.Fault{Err: lost, After: true})
	case providertest.ExtendDown:
		return call(sandbox.OpExtend, fake.Fault{Err: status(500), Times: -1})
	case providertest.DeleteFails:
		return call(sandbox.OpDelete, fake.Fault{Err: status(500)})
	case providertest.DeleteLost:
		return call(sandbox.OpDelete, fake.Fault{Err: lost, After: true})
	case providertest.DeleteIgnored:
		return call(sandbox.OpDelete, fake.Fault{Effect: fake.EffectNone})
	case providertest.DeleteDown:
		return call(sandbox.OpDelete, fake.Fault{Err: status(500), Times: -1})
	case providertest.DeleteHangs:
		return call(sandbox.OpDelete, fake.Fault{Hang: true, Times: -1})
	case providertest.Denied:
		w.fake.SetKey("")
		return func() { w.fake.SetKey(e2bfake.DefaultKey) }
	case providertest.Paused:
		assert.True(t, svc.Pause(w.fake.ServiceID(id)))
	case providertest.Killed:
		assert.True(t, svc.Kill(w.fake.ServiceID(id)))
	}
	return nil
}
