// Command runner is an agent runner for a Kubernetes cluster: it takes tasks over HTTP and runs each in a sandbox of its own,
// which is gone when the task is answered. deploy/kubernetes has what it needs in a cluster.
//
//	curl --data 'uname -a' http://agent-runner/tasks           # {"sandbox":"...","exit_code":0,"stdout":"Linux ..."}
//	curl --data 'make test' http://agent-runner/tasks?offline  # without a way out to the network
//
// In a pod it uses the pod's service account, and names the pod as the sandboxes' owner, so that the cluster removes them with
// it. Where KUBECONFIG is set it uses that cluster instead, and keeps a Lease there that says that it lives. A context without a
// namespace means "default"; SANDGLASS_NAMESPACE goes before it:
//
//	kubectl config view --raw --minify --flatten -o json >kube.json
//	KUBECONFIG=kube.json SANDGLASS_NAMESPACE=agents go run ./examples/runner -fleet ci-agents
//
// SIGTERM ends all tasks and their sandboxes. The exit code is 0 if none is left then, 1 if some may be, which their leases
// end, or if it could not start; 2 for wrong flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Limits of a sandbox's life outside of its task.
const (
	createTimeout  = time.Minute     // until the cluster has answered
	readyTimeout   = 3 * time.Minute // until the image is there and the pod runs
	cleanupTimeout = 90 * time.Second
	taskGrace      = 5 * time.Second // for a task to end when it has been told to
)

const readTimeout = 30 * time.Second // until a request is there, its script included

func main() {
	listen := flag.String("listen", ":8080", "where to serve")
	fleet := flag.String("fleet", "", "the name for what one sweeper looks after; required")
	image := flag.String("image", "", "image of the sandboxes, which needs sh, env, cat, mkdir and sleep; default: busybox")
	user := flag.Int64("user", 65532, "number of the user that the image runs as, not root: the Pod Security Standard \"restricted\" asks for it")
	window := flag.Duration("window", time.Minute, "how long a sandbox may outlive this process")
	limit := flag.Duration("limit", 10*time.Minute, "how long a task may take")
	tasks := flag.Int("tasks", 16, "how many run at once")
	grace := flag.Duration("grace", time.Minute, "time to delete all sandboxes after SIGTERM; less than the pod's own")
	flag.Parse()

	p, err := cluster(*window)
	var m *sandbox.Manager
	if err == nil {
		m, err = sandbox.NewManager(p, sandbox.Config{
			Fleet: *fleet, CreateTimeout: createTimeout, ReadyTimeout: readyTimeout, Grace: taskGrace, CleanupTimeout: cleanupTimeout,
			Scope: sandbox.Scope{
				Spec:   sandbox.Spec{Image: *image, Native: &kubernetes.Options{Restricted: true, User: *user, Group: *user}},
				Window: *window, MaxLifetime: *limit,
			},
		})
	}
	if err == nil && (*tasks < 1 || *user < 1) {
		err = fmt.Errorf("%d tasks at once, as user %d", *tasks, *user)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(2)
	}
	if err := serve(context.Background(), p, m, newRunner(m, *tasks, overdue(*limit)), *listen, *grace); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

// cluster returns that of KUBECONFIG, or the one that this process runs in, with this process as owner of what it makes.
func cluster(window time.Duration) (*kubernetes.Provider, error) {
	cfg, err := config(window)
	if err != nil {
		return nil, err
	}
	return kubernetes.New(cfg)
}

// config makes no request.
func config(window time.Duration) (cfg kubernetes.Config, err error) {
	cfg, err = kubernetes.ConfigFromEnv()
	switch {
	case err != nil:
	case os.Getenv("KUBECONFIG") != "": // this pod, if it is one, need not be of that cluster
		cfg.Owner.Lease = max(time.Minute, window) // it is renewed with the beats, of which a window has three
	case cfg.Owner.Pod == "":
		err = errors.New("POD_NAME and POD_UID are not set, by which sandboxes name this pod as their owner")
	default:
		cfg.Owner.Reference, cfg.Owner.Container = true, os.Getenv("CONTAINER_NAME")
	}
	cfg.Offline = map[string]string{"agent-runner/network": "none"} // which a NetworkPolicy selects
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return cfg, err
}

// server returns one that waits for no request without end. Its limit is for reading: a task may take longer.
func server(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: readTimeout, IdleTimeout: time.Minute}
}

// serve answers until a signal comes, and returns when every sandbox is gone or grace is over.
func serve(ctx context.Context, p *kubernetes.Provider, m *sandbox.Manager, r *runner, listen string, grace time.Duration) error {
	if _, err := p.Check(ctx); err != nil { // now, rather than with the first task
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	ctx, stop := sandbox.ShutdownOnSignal(ctx, m, grace, os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := server(r.routes(ctx.Done()))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	fmt.Printf("runner: serves %s on %s\n", p.Name(), l.Addr())
	select {
	case <-ctx.Done():
		stop() // returns when the signal's Shutdown does
	case err = <-served: // it cannot go on
		sctx, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		_ = m.Shutdown(sctx) // see below
	}
	left := len(m.Live())
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("%d sandboxes may be left: their leases end them", left))
	}
	// What tasks still answer, and the Lease of a process outside, which is to stay while something may be left.
	sctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.Shutdown(sctx)
	if left == 0 {
		err = errors.Join(err, p.Retire(sctx))
	}
	return err
}
