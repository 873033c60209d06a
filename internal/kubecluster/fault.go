package kubecluster

import (
	"context"
	"fmt"

	"github.com/sandglass-dev/sandglass/internal/kubecluster/wire"
)

// A Component is a process of a cluster.
type Component string

// The components. The last three are there with a node only.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kubelet           Component = "kubelet"
	Containerd        Component = "containerd"
)

// Freeze stops a component where it is (SIGSTOP), connections and all, until [Cluster.Thaw].
func (c *Cluster) Freeze(component Component) error { return c.signal(component, "STOP") }

// Thaw lets a frozen component go on.
func (c *Cluster) Thaw(component Component) error { return c.signal(component, "CONT") }

// Kill ends a component at once (SIGKILL), and returns when its process is gone. Containers go on without kubelet and
// containerd, as on any node.
func (c *Cluster) Kill(component Component) error { return c.signal(component, "KILL") }

// StartAgain starts a component that was killed, with what it had kept, at its old address. It does not wait until it
// is ready: see [Cluster.WaitReady].
func (c *Cluster) StartAgain(component Component) error {
	_, err := c.request(wire.Request{Op: "start", Component: string(component)})
	if err != nil {
		return fmt.Errorf("start %s again: %w", component, err)
	}
	return nil
}

// Restart kills a component and starts it again.
func (c *Cluster) Restart(component Component) error {
	if err := c.Kill(component); err != nil {
		return err
	}
	return c.StartAgain(component)
}

func (c *Cluster) signal(component Component, signal string) error {
	_, err := c.request(wire.Request{Op: "signal", Component: string(component), Signal: signal})
	if err != nil {
		return fmt.Errorf("SIG%s to %s: %w", signal, component, err)
	}
	return nil
}

// WaitReady returns when the API server says that it is ready, and the node too where there is one. A node that is
// down is called ready for up to 50 seconds.
func (c *Cluster) WaitReady(ctx context.Context) error {
	return c.poll(ctx, "the cluster is ready", func() (bool, error) {
		if err := c.Do(ctx, "GET", "/readyz", nil, nil); err != nil {
			return false, nil
		}
		if c.hello.Cgroup == "" {
			return true, nil
		}
		var nodes struct {
			Items []struct {
				Status struct {
					Conditions []struct{ Type, Status string }
				}
			}
		}
		if err := c.Do(ctx, "GET", "/api/v1/nodes", nil, &nodes); err != nil {
			return false, nil
		}
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == "Ready" && condition.Status != "True" {
					return false, nil
				}
			}
		}
		return len(nodes.Items) > 0, nil
	})
}
