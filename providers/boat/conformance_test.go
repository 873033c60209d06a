package boat_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/providers/providertest"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestConformance(t *testing.T) { providertest.Run(t, harness()) }

// TestConformanceOtherwise has every choice that no source tells the other way than TestConformance.
func TestConformanceOtherwise(t *testing.T) {
	providertest.Run(t, harness(func(o *boatfake.Options, c *boat.Config) {
		o.Quirks.DeleteAgain, o.Quirks.PatchDead, o.Quirks.KeyAfterDelete = 404, 409, boatfake.KeyRemembers
		o.Quirks.TimeoutKills, o.Quirks.OldNotReady, o.Quirks.DeadStreams = true, true, boatfake.StreamCut
		o.Quirks.FlatErrors, o.Quirks.Word = true, "idle"
		c.Org = team
		c.KeyID = "key_1"
	}))
}

func harness(settings ...setting) providertest.Harness {
	var all worlds
	var cfg boat.Config
	for _, s := range settings {
		s(&boatfake.Options{}, &cfg)
	}
	return providertest.Harness{
		New: func(t *testing.T) sandbox.Provider {
			w := all.add(newWorld(t, settings...))
			w.Change(func(q *boatfake.Quirks) { q.PageSize = 3 })
			return w.p
		},
		Peer: func(_ *testing.T, p sandbox.Provider) sandbox.Provider { return all.of(p).provider(cfg) },
		Judge: func(_ *testing.T, p sandbox.Provider, fleet string) []sandbox.Info {
			return all.of(p).left(fleet)
		},
		Requests: func(p sandbox.Provider) int { return len(all.of(p).Requests()) },
		Made: func(t *testing.T, p sandbox.Provider, id string) sandbox.Spec {
			made, ok := all.of(p).Lookup(id)
			assert.True(t, ok)
			disk := map[string]int64{"small": 12, "default": 50, "large": 125}[made.Type]
			return sandbox.Spec{CPU: float64(made.VCPU), Memory: int64(made.MemoryGB) << 30, Disk: disk << 30}
		},
		Bubble: true,
		Faults: providertest.AllFaults(),
		Inject: func(t *testing.T, p sandbox.Provider, f providertest.Fault, id string) func() {
			return inject(t, all.of(p), f, id)
		},
		Sizes:        sandbox.Spec{CPU: 2, Memory: 4 << 30, Disk: 125 << 30},
		Native:       &boat.Options{Environment: "ci", Public: true},
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
	wire := func(operation string, f boatfake.Fault) func() {
		w.Fault(operation, f)
		return w.Heal
	}
	quirk := func(on func(*boatfake.Quirks)) func() {
		before := w.Quirks()
		w.Change(on)
		return func() { w.Change(func(q *boatfake.Quirks) { *q = before }) }
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
		undo := quirk(func(q *boatfake.Quirks) { q.PageSize = 1 })
		w.Fault("sandboxes", boatfake.Fault{Status: 500, Skip: 1})
		return func() { undo(); w.Heal() }
	case providertest.ListLoops:
		loop := says(`{"ok":true,"type":"sandbox.list","sandboxes":[],"pageInfo":{"nextCursor":"again","hasMore":true,"limit":200}}`)
		loop.Times = -1
		return wire("sandboxes", loop)
	case providertest.ExtendFails:
		return wire("update", boatfake.Fault{Status: 500})
	case providertest.ExtendLost:
		return wire("update", boatfake.Fault{Status: 500, After: true})
	case providertest.ExtendDown:
		return wire("update", boatfake.Fault{Status: 500, Times: -1})
	case providertest.DeleteFails:
		return call(sandbox.OpDelete, fake.Fault{Err: down})
	case providertest.DeleteLost:
		return call(sandbox.OpDelete, fake.Fault{Err: down, After: true})
	case providertest.DeleteIgnored:
		return wire("deleteSandbox", boatfake.Fault{Ignore: true})
	case providertest.DeleteDown:
		return call(sandbox.OpDelete, fake.Fault{Err: down, Times: -1})
	case providertest.DeleteHangs:
		return wire("deleteSandbox", boatfake.Fault{Hang: true, Times: -1})
	case providertest.Denied:
		return quirk(func(q *boatfake.Quirks) { q.Denied = true })
	case providertest.Paused, providertest.Killed:
		svc.Pause(boatfake.MachineID(id))
		if f == providertest.Killed {
			break
		}
		assert.Equal(t, sandbox.StateDormant, w.state(id))
	}
	return nil
}
