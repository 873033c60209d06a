package docker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/providers/providertest"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestConformance(t *testing.T) {
	engine(t)
	t.Parallel()
	c := judge(t)
	faults := []providertest.Fault{providertest.Paused, providertest.Killed}
	for _, f := range providertest.AllFaults() {
		if faultOf(f) != nil {
			faults = append(faults, f)
		}
	}
	var proxies sync.Map // of *docker.Provider: the proxy that it goes through
	way := func(p sandbox.Provider) *proxy {
		own, _ := proxies.Load(p)
		return own.(*proxy)
	}
	providertest.Run(t, providertest.Harness{
		New: func(t *testing.T) sandbox.Provider {
			p := throughProxy(t)
			proxies.Store(p.provider, p)
			return p.provider
		},
		Requests: func(p sandbox.Provider) int { return way(p).count() },
		Parallel: true,
		Judge: func(t *testing.T, _ sandbox.Provider, fleet string) []sandbox.Info {
			r, err := c.ContainerList(context.Background(), client.ContainerListOptions{
				All: true, Filters: client.Filters{}.Add("label", sandbox.FleetKey+"="+fleet),
			})
			require.NoError(t, err)
			var infos []sandbox.Info
			for _, s := range r.Items {
				mark, err := sandbox.ParseMark(s.Labels[sandbox.MarkKey])
				require.NoError(t, err)
				infos = append(infos, sandbox.Info{ID: s.ID, Mark: mark, State: judged(s.State)})
			}
			return infos
		},
		Made: func(t *testing.T, _ sandbox.Provider, id string) sandbox.Spec {
			r, err := c.ContainerInspect(context.Background(), id, client.ContainerInspectOptions{})
			require.NoError(t, err)
			h := r.Container.HostConfig
			return sandbox.Spec{CPU: float64(h.NanoCPUs) / 1e9, Memory: h.Memory, Offline: h.NetworkMode == "none"}
		},
		Faults: faults,
		Inject: func(t *testing.T, p sandbox.Provider, f providertest.Fault, id string) func() {
			if f := faultOf(f); f != nil {
				return way(p).add(f)
			}
			if f == providertest.Killed {
				_, err := c.ContainerKill(context.Background(), id, client.ContainerKillOptions{Signal: "KILL"})
				require.NoError(t, err)
				return nil
			}
			_, err := c.ContainerPause(context.Background(), id, client.ContainerPauseOptions{})
			require.NoError(t, err)
			return func() { _, _ = c.ContainerUnpause(context.Background(), id, client.ContainerUnpauseOptions{}) }
		},
		Window:       20 * time.Second, // of which a busy machine takes many for one request
		Slack:        removal,
		Spec:         sandbox.Spec{Image: image},
		Native:       &docker.Options{CapDrop: []string{"NET_RAW"}},
		UnknownImage: "127.0.0.1:1/no/such:image",
		User:         "1234",
		Serve: func(port int, body string) sandbox.Cmd {
			return sandbox.Shell(fmt.Sprintf("mkdir -p /tmp/www && printf %%s %q >/tmp/www/index.html && exec httpd -f -p %d -h /tmp/www", body, port))
		},
	})
}

func judged(s container.ContainerState) sandbox.State {
	switch s {
	case container.StateRunning:
		return sandbox.StateRunning
	case container.StateCreated, container.StatePaused:
		return sandbox.StateDormant
	}
	return sandbox.StateEnding
}
