// Package kubecluster gives a test a Kubernetes of its own: real components, on this machine, reached on the loopback
// interface, and gone with the test's process however that ends.
//
//	c, err := kubecluster.Start(ctx, kubecluster.Config{Node: true})
//	if err != nil {
//		kubecluster.Skip(t, err)
//	}
//	ns := c.Namespace(t)
//	token := c.User(t, ns, kubecluster.May("batch", "jobs", "create", "get"))
//
// The components are one binary, which "make kube" builds. Without it, or with SANDGLASS_KUBE=off in the environment,
// [Start] fails with [ErrUnavailable].
//
// Without a node, there are etcd, API server and controller manager, and no root is needed. Pods stay Pending, unless
// [Cluster.RunPuppet] plays their node. With a node, there are also scheduler, kubelet and containerd, which need root,
// and the programs containerd, ctr, runc, ip, a static busybox and the CNI plugins. They run in namespaces of their
// own: nothing of the machine's network, mounts and settings is touched, and no container outlives the cluster. Pods
// reach the API server at its service's address as in any cluster, and nothing else outside; there is no DNS, and
// a NetworkPolicy is stored but not enforced.
//
// What the components do is real, and so is the clock: no cluster in a synctest bubble. A [Cluster] may be used by
// many goroutines at once, and has no goroutine of its own in the test's process.
package kubecluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/kubecluster/wire"
)

// Version is that of the components.
const Version = "v1.34.4"

// Image is the one that a node has: a static busybox with all of its applets. Nothing is ever pulled, so a pod's
// imagePullPolicy must be Never or IfNotPresent. See [Cluster.Import] for others.
const Image = "sandglass.test/busybox:1"

// ErrUnavailable is in the error of [Start] where a cluster cannot be had on this machine as it is, with the reason.
var ErrUnavailable = errors.New("no Kubernetes for tests")

// TB is the part of testing.TB that is needed here.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Off, as SANDGLASS_KUBE, says that no cluster is wanted.
const Off = "off"

// Skip skips a test that has no cluster because of err. It fails the test instead if err is not [ErrUnavailable], or if
// SANDGLASS_NO_SKIP is 1, unless SANDGLASS_KUBE is off.
func Skip(t TB, err error) {
	t.Helper()
	if !errors.Is(err, ErrUnavailable) || os.Getenv("SANDGLASS_NO_SKIP") == "1" && os.Getenv("SANDGLASS_KUBE") != Off {
		t.Fatalf("%v", err)
	}
	t.Skipf("%v", err)
}

// Path returns where the components' binary is built, and looked for: SANDGLASS_KUBE, or a file in the user's cache.
func Path() (string, error) {
	if path := os.Getenv("SANDGLASS_KUBE"); path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "sandglass", "kubernetes-"+Version), nil
}

// Config says what a cluster is to be.
type Config struct {
	// Node adds a node on which pods really run.
	Node bool
}

// A Cluster is a running Kubernetes.
type Cluster struct {
	hello wire.Hello
	cmd   *exec.Cmd

	mu  sync.Mutex // held for one request and its reply
	in  *os.File
	out *os.File
	r   *bufio.Reader
	id  int
}

// Start starts a cluster and returns when it is ready, which takes about five seconds, ten with a node. The context
// counts for the start only. The cluster lives until [Cluster.Close] or until this process ends.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	kube, err := available(cfg)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "sandglass-kube-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp) // the supervisor does without it once it runs
	kubed := filepath.Join(tmp, "kubed")
	compile := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", kubed, "github.com/sandglass-dev/sandglass/internal/kubecluster/kubed")
	compile.Env = append(os.Environ(), "GOTMPDIR="+tmp)
	compile.Cancel = func() error { return compile.Process.Signal(os.Interrupt) }
	compile.WaitDelay = 10 * time.Second
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the cluster's supervisor: %w: %s", err, out)
	}
	c := &Cluster{cmd: exec.Command(kubed, "up", "-kube="+kube, fmt.Sprintf("-node=%t", cfg.Node))}
	if err := c.launch(); err != nil {
		return nil, fmt.Errorf("start the cluster's supervisor: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.in.Close() })
	reply, err := c.read()
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a cluster: %w", err), c.Close())
	}
	c.hello = *reply.Hello
	return c, nil
}

// available returns the path of the components, if everything is there that a cluster needs.
func available(cfg Config) (string, error) {
	no := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%w: "+format, append([]any{ErrUnavailable}, args...)...)
	}
	if runtime.GOOS != "linux" {
		return no("it needs Linux")
	}
	path, err := Path()
	if err != nil {
		return no("%w", err)
	}
	if path == Off {
		return no("SANDGLASS_KUBE is off")
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("SANDGLASS_KUBE: %q is relative, and means another file in the folder of each package", path)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return no("it is not built: make kube")
	} else if err != nil {
		return no("%w", err)
	}
	programs := []string{"go"}
	if cfg.Node {
		if os.Getuid() != 0 {
			return no("a node needs root")
		}
		programs = append(programs, "containerd", "ctr", "runc", "ip", "busybox")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return no("%s is missing", program)
		}
	}
	return path, nil
}

// launch starts the supervisor with pipes that know deadlines.
func (c *Cluster) launch() error {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return err
	}
	defer theirOut.Close()
	c.cmd.Stdin, c.cmd.Stdout = theirIn, theirOut
	if err := c.cmd.Start(); err != nil {
		in.Close()
		out.Close()
		return err
	}
	c.in, c.out, c.r = in, out, bufio.NewReader(out)
	return nil
}

// Close ends the cluster with all that runs in it, and waits for that.
func (c *Cluster) Close() error {
	c.in.Close()
	err := c.cmd.Wait()
	c.out.Close()
	return err
}

// request asks the supervisor. Its requests are bounded, and so is this.
func (c *Cluster) request(req wire.Request) (wire.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id++
	req.ID = c.id
	line, err := json.Marshal(req)
	if err != nil {
		return wire.Reply{}, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return wire.Reply{}, fmt.Errorf("the cluster's supervisor is gone: %w", err)
	}
	if err := c.out.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		return wire.Reply{}, err
	}
	reply, err := c.read()
	if err == nil && reply.ID != req.ID {
		err = fmt.Errorf("the cluster's supervisor answers request %d, not %d", reply.ID, req.ID)
	}
	return reply, err
}

func (c *Cluster) read() (wire.Reply, error) {
	line, err := c.r.ReadBytes('\n')
	if err != nil {
		return wire.Reply{}, fmt.Errorf("the cluster's supervisor is gone: %w", err)
	}
	var reply wire.Reply
	if err := json.Unmarshal(line, &reply); err != nil {
		return wire.Reply{}, err
	}
	if reply.Error != "" {
		return reply, errors.New(reply.Error)
	}
	return reply, nil
}
