package kubernetes_test

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/providers/providertest"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	w := onNode(t)
	var ways sync.Map // of sandbox.Provider
	of := func(p sandbox.Provider) *way {
		v, _ := ways.Load(p)
		return v.(*way)
	}
	providertest.Run(t, providertest.Harness{
		New: func(t *testing.T) sandbox.Provider {
			p, way := w.provider(t)
			ways.Store(p, way)
			return p
		},
		Parallel: true,
		Judge:    func(t *testing.T, _ sandbox.Provider, fleet string) []sandbox.Info { return w.judge(t, fleet) },
		Requests: func(p sandbox.Provider) int { return int(of(p).sent.Load()) },
		Made: func(t *testing.T, _ sandbox.Provider, id string) sandbox.Spec {
			j, ok := w.truth(t, id)
			require.True(t, ok)
			limits := j.Spec.Template.Spec.Containers[0].Resources.Limits
			cpu, err := strconv.ParseFloat(strings.TrimSuffix(limits["cpu"], "m"), 64)
			require.NoError(t, err)
			if strings.HasSuffix(limits["cpu"], "m") {
				cpu /= 1000
			}
			memory, disk := bytesOf(t, limits["memory"]), bytesOf(t, limits["ephemeral-storage"])
			return sandbox.Spec{CPU: cpu, Memory: memory, Disk: disk}
		},
		Faults: providertest.AllFaults(),
		Inject: func(t *testing.T, p sandbox.Provider, f providertest.Fault, id string) func() {
			return w.inject(t, of(p), f, id)
		},
		Window: 30 * time.Second, // of which a busy machine takes many for one request
		Slack:  20 * time.Second, // likewise, for the begin and the end of a command
		Spec:   small(),
		Native: &kubernetes.Options{
			PullPolicy: "IfNotPresent", ReserveCPU: 0.002, ReserveMemory: 4 << 20, Labels: map[string]string{"team": "blue"},
			NodeSelector: map[string]string{"kubernetes.io/os": "linux"}, Tolerations: []kubernetes.Toleration{{Operator: "Exists"}},
		},
		PageSize: 3,
		Secrets:  []string{w.token},
	})
}

// bytesOf reads what the cluster makes of a number of bytes.
func bytesOf(t *testing.T, quantity string) int64 {
	t.Helper()
	factor := int64(1)
	for suffix, f := range map[string]int64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if s, ok := strings.CutSuffix(quantity, suffix); ok {
			quantity, factor = s, f
		}
	}
	n, err := strconv.ParseInt(quantity, 10, 64)
	require.NoError(t, err)
	return n * factor
}

func (w *world) inject(t *testing.T, on *way, f providertest.Fault, id string) (heal func()) {
	t.Helper()
	internal := fails(500, "InternalError", nil)
	all := func(heals ...func()) func() {
		return func() {
			for _, h := range heals {
				h()
			}
		}
	}
	switch f {
	case providertest.CreateLost:
		return on.on(1, jobs("POST"), loses)
	case providertest.CreateHangs:
		return on.on(1, jobs("POST"), hangs(true))
	case providertest.CreateLimited:
		return on.on(1, jobs("POST"), fails(429, "TooManyRequests", http.Header{"Retry-After": {"2"}}))
	case providertest.NeverReady:
		return on.on(-1, jobs("POST"), rewrites(func(j map[string]any) {
			at(j, "spec", "template", "spec")["nodeSelector"] = map[string]any{"no": "such"}
		}))
	case providertest.GetFails:
		return on.on(1, oneJob, internal)
	case providertest.ListFails:
		second := func(r *http.Request) bool { return lists(r) && r.URL.Query().Has("continue") }
		small := on.on(1, lists, asks(func(q url.Values) { q.Set("limit", "1") }))
		return all(small, on.on(1, second, internal))
	case providertest.ListLoops:
		return on.on(-1, lists, loops)
	case providertest.ExtendFails:
		return on.on(1, jobs("PATCH"), internal)
	case providertest.ExtendLost:
		return on.on(1, jobs("PATCH"), loses)
	case providertest.ExtendDown:
		return on.on(-1, jobs("PATCH"), internal)
	case providertest.DeleteFails:
		return on.on(1, method("DELETE"), internal)
	case providertest.DeleteLost:
		return on.on(1, method("DELETE"), loses)
	case providertest.DeleteIgnored:
		return on.on(2, method("DELETE"), pretends) // the Job's and its pod's
	case providertest.DeleteDown:
		return on.on(-1, method("DELETE"), internal)
	case providertest.DeleteHangs:
		return on.on(-1, method("DELETE"), hangs(false))
	case providertest.Denied:
		return on.on(-1, func(*http.Request) bool { return true }, func(r *http.Request, next onward) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer of-nobody")
			return next(r)
		})
	case providertest.Paused:
		w.patch(t, id, object{"spec": object{"suspend": true}})
	case providertest.Killed:
		w.patch(t, id, object{"spec": object{"activeDeadlineSeconds": 0}})
	}
	return nil
}

func TestListsOfManyPagesAreWhole(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	want := map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			info, err := w.p.Create(context.Background(), order(10*time.Minute))
			if err == nil {
				mu.Lock()
				want[info.ID] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, want, 24)
	w.way.on(-1, lists, asks(func(q url.Values) { q.Set("limit", "5") }))
	seen := map[string]bool{}
	for info, err := range w.p.List(t.Context(), sandbox.Filter{Fleet: "tests"}) {
		require.NoError(t, err)
		require.False(t, seen[info.ID])
		seen[info.ID] = true
	}
	require.Equal(t, want, seen)
}
