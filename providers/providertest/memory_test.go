package providertest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/providers/providertest"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestEveryImitationPasses(t *testing.T) {
	for _, k := range sandboxtest.Kinds() {
		t.Run(k.Name, func(t *testing.T) { providertest.Run(t, inMemory(k.New)) })
	}
}

func TestAServiceThatCanDoEverythingPasses(t *testing.T) {
	providertest.Run(t, inMemory(func() *sandboxtest.Provider { return sandboxtest.New(sandbox.Capabilities{}) }))
}

// inMemory is the harness of the in-memory provider. It also serves wrappers around one.
func inMemory(service func() *sandboxtest.Provider) providertest.Harness {
	return providertest.Harness{
		New: func(*testing.T) sandbox.Provider {
			p := service()
			p.Behave(func(b *sandboxtest.Behaviour) { b.UnknownImages = []string{"no-such-image"}; b.PageSize = 3 })
			return p
		},
		Bubble:       true,
		Judge:        judge,
		Requests:     func(p sandbox.Provider) int { return len(memory(p).Calls()) },
		Faults:       providertest.AllFaults(),
		Inject:       inject,
		Native:       &sandboxtest.Options{},
		UnknownImage: "no-such-image",
		User:         "user",
		PageSize:     3,
		Secrets:      []string{"the-account's-key"},
	}
}

func memory(p sandbox.Provider) *sandboxtest.Provider {
	m, _ := sandbox.As[*sandboxtest.Provider](p)
	return m
}

func judge(_ *testing.T, p sandbox.Provider, fleet string) []sandbox.Info {
	all := append(memory(p).Live(), memory(p).Residue()...)
	return slices.DeleteFunc(all, func(i sandbox.Info) bool { return i.Mark.Fleet != fleet && i.Mark != sandbox.Mark{} })
}

func inject(t *testing.T, p sandbox.Provider, f providertest.Fault, id string) (heal func()) {
	m := memory(p)
	call := func(op sandbox.Op, f sandboxtest.Fault) func() {
		m.Fault(op, f)
		return m.Heal
	}
	habit := func(on func(*sandboxtest.Behaviour)) func() {
		var before sandboxtest.Behaviour
		m.Behave(func(b *sandboxtest.Behaviour) { before = *b; on(b) })
		return func() { m.Behave(func(b *sandboxtest.Behaviour) { *b = before }) }
	}
	down := sandboxtest.Status(500)
	switch f {
	case providertest.CreateLost:
		return call(sandbox.OpCreate, sandboxtest.Fault{Err: down, After: true})
	case providertest.CreateHangs:
		return call(sandbox.OpCreate, sandboxtest.Fault{Hang: true, After: true})
	case providertest.CreateLimited:
		limited := sandboxtest.Status(429)
		limited.RetryAfter = 2 * time.Second
		return call(sandbox.OpCreate, sandboxtest.Fault{Err: limited})
	case providertest.NeverReady:
		return habit(func(b *sandboxtest.Behaviour) { b.NeverReady = true })
	case providertest.GetFails:
		return call(sandbox.OpGet, sandboxtest.Fault{Err: down})
	case providertest.ListFails:
		undo := habit(func(b *sandboxtest.Behaviour) { b.PageSize = 1 })
		m.Fault(sandbox.OpList, sandboxtest.Fault{Err: down, Skip: 1})
		return func() { undo(); m.Heal() }
	case providertest.ListLoops:
		return habit(func(b *sandboxtest.Behaviour) { b.PageSize = 1; b.RepeatCursor = true })
	case providertest.ExtendFails:
		return call(sandbox.OpExtend, sandboxtest.Fault{Err: down})
	case providertest.ExtendLost:
		return call(sandbox.OpExtend, sandboxtest.Fault{Err: down, After: true})
	case providertest.ExtendDown:
		return call(sandbox.OpExtend, sandboxtest.Fault{Err: down, Times: -1})
	case providertest.DeleteFails:
		return call(sandbox.OpDelete, sandboxtest.Fault{Err: down})
	case providertest.DeleteLost:
		return call(sandbox.OpDelete, sandboxtest.Fault{Err: down, After: true})
	case providertest.DeleteIgnored:
		return call(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectNone})
	case providertest.DeleteDown:
		return call(sandbox.OpDelete, sandboxtest.Fault{Err: down, Times: -1})
	case providertest.DeleteHangs:
		return call(sandbox.OpDelete, sandboxtest.Fault{Hang: true, Times: -1})
	case providertest.Denied:
		denied := sandboxtest.Fault{Err: sandboxtest.Status(401), Times: -1}
		for _, op := range []sandbox.Op{sandbox.OpCreate, sandbox.OpGet, sandbox.OpList, sandbox.OpExtend, sandbox.OpDelete} {
			m.Fault(op, denied)
		}
		return m.Heal
	case providertest.Paused:
		assert.True(t, m.Pause(id))
	case providertest.Killed:
		assert.True(t, m.Kill(id))
	}
	return nil
}
