// Package wire is what a test says to the supervisor of its cluster, and hears: lines of JSON over a pair of pipes.
package wire

// A Request is one thing to do. Requests are answered one at a time, in their order.
type Request struct {
	// ID is repeated in the reply.
	ID int `json:"id"`

	// Op is "signal", "start", "processes", "tasks" or "image".
	Op string `json:"op"`

	// Component is the one to signal or to start.
	Component string `json:"component,omitempty"`

	// Signal is a name without SIG, as in "STOP". After KILL and TERM the reply waits for the process's end.
	Signal string `json:"signal,omitempty"`

	// Namespace is the Kubernetes namespace whose containers are asked for. Empty means all.
	Namespace string `json:"namespace,omitempty"`

	// Image is the one to import.
	Image *Image `json:"image,omitempty"`
}

// A Reply answers the request of the same ID. The first one, of ID 0, is sent unasked when the cluster is ready, or
// when it failed to become so.
type Reply struct {
	ID        int       `json:"id"`
	Error     string    `json:"error,omitempty"`
	Hello     *Hello    `json:"hello,omitempty"`
	Processes []Process `json:"processes,omitempty"`
	Tasks     []Task    `json:"tasks,omitempty"`
}

// Hello tells how to reach the cluster.
type Hello struct {
	Dir    string `json:"dir"`    // logs lie in its folder logs; it is removed at the end
	URL    string `json:"url"`    // of the API server
	CA     string `json:"ca"`     // PEM
	Token  string `json:"token"`  // of a user who may do everything
	Dial   string `json:"dial"`   // a socket that dials inside the node's network; empty without a node
	Cgroup string `json:"cgroup"` // of the node's pods, below the mount; empty without a node
}

// A Process is one that runs in a container, as the kernel tells.
type Process struct {
	PID     int    `json:"pid"`
	Cgroup  string `json:"cgroup"`  // has the pod's uid and the container's ID in it
	Command string `json:"command"` // with arguments, space-separated
}

// A Task is a container's main process, as the container runtime tells.
type Task struct {
	Container string            `json:"container"`
	Status    string            `json:"status"` // RUNNING, STOPPED, or empty: there is a container and no task
	Labels    map[string]string `json:"labels"`
}

// An Image is made of files of this machine, and is called by its reference.
type Image struct {
	Ref        string            `json:"ref"`
	Files      map[string]string `json:"files"` // the path in the image to that of an executable here
	Links      map[string]string `json:"links,omitempty"`
	Entrypoint []string          `json:"entrypoint,omitempty"`
}
