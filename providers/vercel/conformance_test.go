package vercel_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/providers/providertest"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestConformance(t *testing.T) {
	for name, s := range map[string]setting{
		"at once": func(*vercelfake.Options, *vercel.Config) {},
		"slow":    slow,
		"odd": func(o *vercelfake.Options, c *vercel.Config) { // every choice that no source tells, the other way
			slow(o, c)
			o.Quirks.StopEarly, o.Quirks.StopEnded, o.Quirks.DeleteBusy = true, 422, 409
			o.Quirks.SessionGone, o.Quirks.SessionsKept, o.Quirks.NameForgets = 410, time.Hour, true
			o.Quirks.WideStatus, o.Quirks.KillsLeader, o.Quirks.KillEnded = true, true, 404
			o.Quirks.NoFileCode, o.Quirks.ConflictOfLife, o.Quirks.Unauthorized = true, true, true
		},
	} {
		t.Run(name, func(t *testing.T) { providertest.Run(t, harness(s)) })
	}
}

func harness(settings ...setting) providertest.Harness {
	settings = append(settings, func(o *vercelfake.Options, _ *vercel.Config) {
		o.Quirks.PageSize = 3
		o.Behaviour.UnknownImages = []string{"no-such-image"}
	})
	var worlds sync.Map // of sandbox.Provider
	of := func(p sandbox.Provider) *world {
		w, _ := worlds.Load(p)
		return w.(*world)
	}
	return providertest.Harness{
		New: func(t *testing.T) sandbox.Provider {
			w := newWorld(t, settings...)
			worlds.Store(w.p, w)
			return w.p
		},
		Bubble: true,
		Judge: func(_ *testing.T, p sandbox.Provider, fleet string) []sandbox.Info {
			var infos []sandbox.Info
			for _, t := range of(p).fake.All() {
				m, err := sandbox.ParseMark(t.Record.Tags[sandbox.MarkKey])
				if err == nil && m.Fleet != fleet {
					continue
				}
				infos = append(infos, sandbox.Info{
					ID: t.Sandbox.Name + "/" + t.Session.ID, State: t.Record.State, Mark: m, Deadline: t.Record.Deadline, AsOf: t.Record.AsOf,
				})
			}
			return infos
		},
		Requests: func(p sandbox.Provider) int { return int(of(p).sent.Load()) },
		Made: func(t *testing.T, p sandbox.Provider, id string) sandbox.Spec {
			s := of(p).truth(id).Sandbox
			return sandbox.Spec{CPU: float64(s.VCPUs), Memory: int64(s.Memory) << 20, Offline: s.NetworkPolicy.Mode == "deny-all"}
		},
		Faults: providertest.AllFaults(),
		Inject: func(t *testing.T, p sandbox.Provider, f providertest.Fault, id string) func() {
			return of(p).inject(t, f, id)
		},
		Sizes:        sandbox.Spec{CPU: 4, Memory: 8 << 30},
		Native:       &vercel.Options{Region: "cdg1", AllowDomains: []string{"example.com"}},
		UnknownImage: "no-such-image",
		User:         "root",
		PageSize:     3,
		Secrets:      []string{vercelfake.DefaultToken},
	}
}

func (w *world) inject(t *testing.T, f providertest.Fault, id string) (heal func()) {
	svc := w.fake.Service()
	call := func(op sandbox.Op, f fake.Fault) func() {
		svc.Fault(op, f)
		return svc.Heal
	}
	lost := &sandbox.APIError{} // without a status: the connection breaks instead of an answer
	name, session := parts(id)
	switch f {
	case providertest.CreateLost:
		return call(sandbox.OpCreate, fake.Fault{Err: lost, After: true})
	case providertest.CreateHangs:
		return call(sandbox.OpCreate, fake.Fault{Hang: true, After: true})
	case providertest.CreateLimited:
		limited := failure(429)
		limited.RetryAfter = 2 * time.Second
		return call(sandbox.OpCreate, fake.Fault{Err: limited})
	case providertest.NeverReady:
		w.fake.Change(func(q *vercelfake.Quirks) { q.CreateWait = -1 })
		svc.Behave(func(b *fake.Behaviour) { b.NeverReady = true })
		return func() { svc.Behave(func(b *fake.Behaviour) { b.NeverReady = false }) }
	case providertest.GetFails:
		return call(sandbox.OpGet, fake.Fault{Err: failure(500)})
	case providertest.ListFails:
		w.fake.Change(func(q *vercelfake.Quirks) { q.PageSize = 1 })
		svc.Fault(sandbox.OpList, fake.Fault{Err: failure(500), Skip: 1})
		return svc.Heal
	case providertest.ListLoops:
		w.fake.Change(func(q *vercelfake.Quirks) { q.PageSize = 1 })
		svc.Behave(func(b *fake.Behaviour) { b.RepeatCursor = true })
		return func() { svc.Behave(func(b *fake.Behaviour) { b.RepeatCursor = false }) }
	case providertest.ExtendFails:
		return call(sandbox.OpExtend, fake.Fault{Err: failure(500)})
	case providertest.ExtendLost:
		return call(sandbox.OpExtend, fake.Fault{Err: lost, After: true})
	case providertest.ExtendDown:
		return call(sandbox.OpExtend, fake.Fault{Err: failure(500), Times: -1})
	case providertest.DeleteFails:
		return call(sandbox.OpDelete, fake.Fault{Err: failure(500)})
	case providertest.DeleteLost:
		return call(sandbox.OpDelete, fake.Fault{Err: lost, After: true})
	case providertest.DeleteIgnored:
		return call(sandbox.OpDelete, fake.Fault{Effect: fake.EffectNone})
	case providertest.DeleteDown:
		w.fake.Fault("stopSession", vercelfake.Fault{Status: 500, Times: -1})
		svc.Fault(sandbox.OpDelete, fake.Fault{Err: failure(500), Times: -1})
		return func() { w.fake.Heal(); svc.Heal() }
	case providertest.DeleteHangs:
		w.fake.Fault("stopSession", vercelfake.Fault{Hang: true, Times: -1})
		svc.Fault(sandbox.OpDelete, fake.Fault{Hang: true, Times: -1})
		return func() { w.fake.Heal(); svc.Heal() }
	case providertest.Denied:
		w.fake.SetToken("")
		return func() { w.fake.SetToken(vercelfake.DefaultToken) }
	case providertest.Paused:
		w.stop(session)
	case providertest.Killed:
		truth, _ := w.fake.Lookup(name)
		assert.True(t, svc.Kill(truth.ServiceID))
	}
	return nil
}
