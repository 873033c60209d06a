package modal_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/providers/modal"
	"github.com/sandglass-dev/sandglass/providers/providertest"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestConformance(t *testing.T) {
	for name, s := range map[string]setting{
		"at once": func(*modalfake.Options, *modal.Config) {},
		"slow":    slow,
		"odd": func(o *modalfake.Options, c *modal.Config) { // every choice that no source tells, the other way
			slow(o, c)
			q := &o.Quirks
			q.TimeoutFromStart, q.NoRouterAccess, q.NoTunnels, q.TunnelTime = true, true, true, time.Second
			q.EqualTimes, q.ExecsHoldEnd, q.StatusUnset, q.EdgeIncluded, q.HidesTerminating = true, true, true, true, true
			q.TokenTrafficIdle, q.KillsLeader, q.LosesOutput, q.EndedTask = true, true, true, true
			q.ExecGone, q.DeadExec, q.RouterToken, q.ChunkSize = codes.FailedPrecondition, codes.Unavailable, time.Minute, 1000
		},
	} {
		t.Run(name, func(t *testing.T) { providertest.Run(t, harness(s)) })
	}
}

func harness(settings ...setting) providertest.Harness {
	settings = append(settings, func(o *modalfake.Options, _ *modal.Config) {
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
		Peer: func(t *testing.T, p sandbox.Provider) sandbox.Provider {
			w := *of(p)
			w.t = t
			peer := w.another()
			worlds.Store(peer, &w)
			return peer
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
					ID: t.ID, State: t.Record.State, Mark: m, Deadline: t.Record.Deadline, AsOf: t.Record.AsOf,
				})
			}
			return infos
		},
		Requests: func(p sandbox.Provider) int { return of(p).fake.Count("") },
		Made: func(t *testing.T, p sandbox.Provider, id string) sandbox.Spec {
			d := of(p).truth(id).Definition
			return sandbox.Spec{
				CPU: float64(d.GetResources().GetMilliCpu()) / 1000, Memory: int64(d.GetResources().GetMemoryMb()) << 20,
				Offline: d.GetNetworkAccess().GetNetworkAccessType().String() == "BLOCKED",
			}
		},
		Faults: faults(),
		Inject: func(t *testing.T, p sandbox.Provider, f providertest.Fault, id string) func() {
			return of(p).inject(t, f, id)
		},
		Native:       &modal.Options{Regions: []string{"us-east"}, AllowDomains: []string{"example.com"}, Command: []string{"sleep", "100000"}},
		UnknownImage: "no-such-image",
		PageSize:     3,
		Secrets:      []string{modalfake.DefaultTokenID, modalfake.DefaultTokenSecret},
	}
}

// faults are all but two that this service does not have: there is no pause, and a create is answered when the sandbox
// has a place, or refused when there is none.
func faults() []providertest.Fault {
	return slices.DeleteFunc(providertest.AllFaults(), func(f providertest.Fault) bool {
		return f == providertest.Paused || f == providertest.NeverReady
	})
}

// tries is how often the SDK sends a call that a service fails.
const tries = 4

func (w *world) inject(t *testing.T, f providertest.Fault, id string) (heal func()) {
	svc := w.fake.Service()
	fault := func(method string, f modalfake.Fault) func() {
		w.fake.Fault(method, f)
		return w.fake.Heal
	}
	const broken = codes.Internal
	switch f {
	case providertest.CreateLost:
		return fault("SandboxCreateV2", modalfake.Fault{Code: codes.Unavailable, After: true})
	case providertest.CreateHangs:
		return fault("SandboxCreateV2", modalfake.Fault{Hang: true, After: true})
	case providertest.CreateLimited:
		return fault("SandboxCreateV2", modalfake.Fault{Code: codes.ResourceExhausted, RetryAfter: 2 * time.Second})
	case providertest.GetFails:
		return fault("SandboxWaitV2", modalfake.Fault{Code: broken, Times: tries})
	case providertest.ListFails:
		w.fake.Change(func(q *modalfake.Quirks) { q.PageSize = 1 })
		return fault("SandboxListV2", modalfake.Fault{Code: broken, Times: tries, Skip: 1})
	case providertest.ListLoops:
		w.fake.Change(func(q *modalfake.Quirks) { q.PageSize = 1 })
		svc.Behave(func(b *fake.Behaviour) { b.RepeatCursor = true })
		return func() { svc.Behave(func(b *fake.Behaviour) { b.RepeatCursor = false }) }
	case providertest.ExtendFails:
		return fault("TaskExecStart", modalfake.Fault{Code: codes.ResourceExhausted, Times: tries})
	case providertest.ExtendLost:
		return fault("TaskExecWait", modalfake.Fault{Code: codes.DataLoss, After: true})
	case providertest.ExtendDown:
		return fault("TaskExecStart", modalfake.Fault{Code: codes.ResourceExhausted, Times: -1})
	case providertest.DeleteFails:
		return fault("SandboxTerminateV2", modalfake.Fault{Code: broken, Times: tries})
	case providertest.DeleteLost:
		return fault("SandboxTerminateV2", modalfake.Fault{Code: broken, After: true, Times: tries})
	case providertest.DeleteIgnored:
		return fault("SandboxTerminateV2", modalfake.Fault{Ignore: true})
	case providertest.DeleteDown:
		return fault("SandboxTerminateV2", modalfake.Fault{Code: broken, Times: -1})
	case providertest.DeleteHangs:
		return fault("SandboxTerminateV2", modalfake.Fault{Hang: true, Times: -1})
	case providertest.Denied:
		w.fake.Deny(true)
		return func() { w.fake.Deny(false) }
	case providertest.Killed:
		assert.True(t, svc.Kill(w.truth(id).ServiceID))
	}
	return nil
}
