package kubecluster

import (
	"context"
	"fmt"
	"net/url"

	"github.com/sandglass-dev/sandglass/internal/kubecluster/wire"
)

// A Process is one that runs in a container, as the kernel tells: its id on this machine, its cgroup, which has the
// pod's uid in it, and its command.
type Process = wire.Process

// A Task is a container that the runtime keeps, whether its process runs or not.
type Task = wire.Task

// An Object is a Job or a Pod, as far as a judge looks.
type Object struct {
	Kind     string `json:"-"`
	Metadata struct {
		Namespace, Name, UID string
		Labels, Annotations  map[string]string
		DeletionTimestamp    string
	}
	Status struct {
		Phase string // of a pod
	}
}

func (o Object) String() string {
	s := o.Kind + " " + o.Metadata.Namespace + "/" + o.Metadata.Name
	if o.Status.Phase != "" {
		s += " " + o.Status.Phase
	}
	if o.Metadata.DeletionTimestamp != "" {
		s += " deleting"
	}
	return s
}

// Objects lists the Jobs and the pods of a namespace, or of all if it is empty, by a label selector, or all if that is
// empty: the API server's own word.
func (c *Cluster) Objects(ctx context.Context, namespace, selector string) ([]Object, error) {
	if namespace != "" {
		namespace = "/namespaces/" + namespace
	}
	var all []Object
	for _, kind := range []struct{ name, path string }{
		{"Job", "/apis/batch/v1" + namespace + "/jobs"},
		{"Pod", "/api/v1" + namespace + "/pods"},
	} {
		var list struct{ Items []Object }
		if err := c.Do(ctx, "GET", kind.path+"?labelSelector="+url.QueryEscape(selector), nil, &list); err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			o.Kind = kind.name
			all = append(all, o)
		}
	}
	return all, nil
}

// Tasks lists the containers of a namespace's pods, or of all if it is empty, by the runtime's own client. There is one
// more for each pod than it has containers, which holds its network. What has ended may be listed for a minute more,
// until the kubelet tidies up, with a status other than RUNNING. Without a node there are none.
func (c *Cluster) Tasks(namespace string) ([]Task, error) {
	if c.hello.Cgroup == "" {
		return nil, nil
	}
	reply, err := c.request(wire.Request{Op: "tasks", Namespace: namespace})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return reply.Tasks, nil
}

// Processes lists what runs in the containers of all pods, by the kernel's own account. Without a node there are none.
func (c *Cluster) Processes() ([]Process, error) {
	if c.hello.Cgroup == "" {
		return nil, nil
	}
	reply, err := c.request(wire.Request{Op: "processes"})
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return reply.Processes, nil
}

// Import gives the node an image of statically linked programs of this machine: files has the path in the image to the
// one here, which must not be below /run, /var/lib or /var/log. Pods may use it a moment later.
func (c *Cluster) Import(ref string, files map[string]string, entrypoint ...string) error {
	_, err := c.request(wire.Request{Op: "image", Image: &wire.Image{Ref: ref, Files: files, Entrypoint: entrypoint}})
	return err
}
