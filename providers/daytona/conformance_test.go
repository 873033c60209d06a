package daytona_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/providers/providertest"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestConformance(t *testing.T) { providertest.Run(t, harness()) }

func TestConformanceWithoutTTL(t *testing.T) {
	h := harness(allowIdle)
	h.Judge = nil // of an idle clock the state machine behind the fake knows no deadline, and the TTL is another one
	providertest.Run(t, h)
}

func harness(change ...func(*daytona.Config)) providertest.Harness {
	var all worlds
	return providertest.Harness{
		New: func(t *testing.T) sandbox.Provider {
			w := all.add(newWorld(t, change...))
			w.Service().Behave(func(b *fake.Behaviour) { b.UnknownImages = []string{"no-such-snapshot"} })
			w.Quirk(func(q *daytonafake.Quirks) { q.PageSize = 3; q.VM = true })
			return w.p
		},
		Peer: func(t *testing.T, p sandbox.Provider) sandbox.Provider { return all.of(p).provider(t, change...) },
		Judge: func(_ *testing.T, p sandbox.Provider, fleet string) []sandbox.Info {
			return all.of(p).left(fleet)
		},
		Requests: func(p sandbox.Provider) int { return all.of(p).Count("") },
		Made: func(t *testing.T, p sandbox.Provider, id string) sandbox.Spec {
			made, ok := all.of(p).Lookup(id)
			assert.True(t, ok)
			return sandbox.Spec{
				CPU: float64(made.CPU), Memory: int64(made.Memory) << 30, Disk: int64(made.Disk) << 30, Offline: made.NetworkBlockAll,
			}
		},
		Bubble: true,
		Faults: providertest.AllFaults(),
		Inject: func(t *testing.T, p sandbox.Provider, f providertest.Fault, id string) func() {
			return inject(t, all.of(p), f, id)
		},
		Native:       &daytona.Options{Dockerfile: "FROM debian:12\n", User: "daytona"},
		UnknownImage: "no-such-snapshot",
		User:         "root",
		PageSize:     3,
		Secrets:      []string{key},
	}
}

func inject(t *testing.T, w *world, f providertest.Fault, id string) (heal func()) {
	svc := w.Service()
	call := func(op sandbox.Op, f fake.Fault) func() {
		svc.Fault(op, f)
		return svc.Heal
	}
	habit := func(on func(*fake.Behaviour)) func() {
		before := svc.Behaviour()
		svc.Behave(on)
		return func() { svc.Behave(func(b *fake.Behaviour) { *b = before }) }
	}
	wire := func(operation string, f daytonafake.Fault) func() {
		w.Fault(operation, f)
		return w.Heal
	}
	beats := "setTtl"
	if w.p.Capabilities().Extend == sandbox.ExtendActivity {
		beats = "updateLastActivity"
	}
	down := status(500)
	switch f {
	case providertest.CreateLost:
		return call(sandbox.OpCreate, fake.Fault{Err: down, After: true})
	case providertest.CreateHangs:
		return call(sandbox.OpCreate, fake.Fault{Hang: true, After: true})
	case providertest.CreateLimited:
		limited := status(429)
		limited.RetryAfter = 2 * time.Second
		return call(sandbox.OpCreate, fake.Fault{Err: limited})
	case providertest.NeverReady:
		return habit(func(b *fake.Behaviour) { b.NeverReady = true })
	case providertest.GetFails:
		return call(sandbox.OpGet, fake.Fault{Err: down})
	case providertest.ListFails:
		w.Quirk(func(q *daytonafake.Quirks) { q.PageSize = 1 })
		undo := call(sandbox.OpList, fake.Fault{Err: down, Skip: 1})
		return func() { w.Quirk(func(q *daytonafake.Quirks) { q.PageSize = 3 }); undo() }
	case providertest.ListLoops:
		return habit(func(b *fake.Behaviour) { b.RepeatCursor = true })
	case providertest.ExtendFails:
		return wire(beats, daytonafake.Fault{Status: 500})
	case providertest.ExtendLost:
		return wire(beats, daytonafake.Fault{Status: 500, After: true})
	case providertest.ExtendDown:
		return wire(beats, daytonafake.Fault{Status: 500, Times: -1})
	case providertest.DeleteFails:
		return call(sandbox.OpDelete, fake.Fault{Err: down})
	case providertest.DeleteLost:
		return call(sandbox.OpDelete, fake.Fault{Err: down, After: true})
	case providertest.DeleteIgnored:
		return call(sandbox.OpDelete, fake.Fault{Effect: fake.EffectNone})
	case providertest.DeleteDown:
		return call(sandbox.OpDelete, fake.Fault{Err: down, Times: -1})
	case providertest.DeleteHangs:
		return wire("deleteSandbox", daytonafake.Fault{Hang: true, Times: -1})
	case providertest.Denied:
		w.Quirk(func(q *daytonafake.Quirks) { q.Denied = true })
		return func() { w.Quirk(func(q *daytonafake.Quirks) { q.Denied = false }) }
	case providertest.Paused:
		assert.True(t, svc.Pause(daytonafake.MachineID(id)))
	case providertest.Killed:
		assert.True(t, svc.Kill(daytonafake.MachineID(id)))
	}
	return nil
}
