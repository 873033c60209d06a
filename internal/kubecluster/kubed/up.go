//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandglass-dev/sandglass/internal/kubecluster/wire"
)

// patience is how long a cluster may take to become ready, on a machine that does much else.
const patience = 3 * time.Minute

// up runs a cluster, says hello, and does what it is asked to until its standard input ends: when the test closes it,
// or when the test's process is gone, however it went. Nothing is left then. If up itself is killed, the kernel ends
// its processes, and the next up removes the folder.
func up(kube string, withNode bool) (err error) {
	if err := syscall.Setpgid(0, 0); err != nil { // an interrupt at the terminal is for the test
		return fmt.Errorf("leave the process group: %w", err)
	}
	answers := json.NewEncoder(os.Stdout)
	defer func() {
		if err != nil {
			err = errors.Join(err, answers.Encode(wire.Reply{Error: err.Error()}))
		}
	}()
	swept := sweepDirs()
	dir, lock, err := newDir()
	if err != nil {
		return err
	}
	defer lock.Close()
	defer func() { err = errors.Join(err, removeDir(dir)) }()
	if err := ownLog(filepath.Join(dir, "logs", "kubed.log")); err != nil {
		return err
	}
	if swept != nil {
		fmt.Fprintln(os.Stderr, "remove what others have left:", swept)
	}

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	requests := make(chan wire.Request)
	go func() {
		defer cancel()
		read(ctx, os.Stdin, requests)
	}()

	starting, cancelStarting := context.WithTimeoutCause(ctx, patience, errors.New("the time for the start is up"))
	defer cancelStarting()
	c, err := newControl(dir, kube)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.units.kill()) }()
	if err := c.start(starting, withNode); err != nil {
		return err
	}
	ca, err := os.ReadFile(c.pki.path("ca.crt"))
	if err != nil {
		return err
	}
	hello := &wire.Hello{Dir: dir, URL: c.url(), CA: string(ca), Token: c.token}
	var n *node
	if withNode {
		if n, err = startNode(c); n != nil {
			defer func() { err = errors.Join(err, n.kill()) }()
		}
		if err == nil {
			err = c.until(starting, "the node is ready", c.nodeReady)
		}
		if err != nil {
			return err
		}
		hello.Dial, hello.Cgroup = filepath.Join(dir, dialSocket), filepath.Base(dir)
	}
	if err := answers.Encode(wire.Reply{Hello: hello}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case req := <-requests:
			reply, err := c.answer(req, n)
			reply.ID = req.ID
			if err != nil {
				reply.Error = err.Error()
			}
			if err := answers.Encode(reply); err != nil {
				return nil // nobody reads any more
			}
		}
	}
}

// read sends the requests in r until it ends or ctx does.
func read(ctx context.Context, r io.Reader, requests chan<- wire.Request) {
	for dec := json.NewDecoder(r); ; {
		var req wire.Request
		if err := dec.Decode(&req); err != nil {
			return
		}
		select {
		case requests <- req:
		case <-ctx.Done():
			return
		}
	}
}

func (c *control) answer(req wire.Request, n *node) (wire.Reply, error) {
	if u := c.units.named(req.Component); u != nil {
		return wire.Reply{}, act(u, req)
	}
	if n == nil {
		return wire.Reply{}, fmt.Errorf("%s %s: the cluster has no node", req.Op, req.Component)
	}
	if req.Op == "processes" {
		processes, err := processes(filepath.Base(c.dir))
		return wire.Reply{Processes: processes}, err
	}
	return n.ask(req)
}

// act does what is asked of one unit.
func act(u *unit, req wire.Request) error {
	switch req.Op {
	case "start":
		return u.start()
	case "signal":
		return u.signal(req.Signal)
	}
	return fmt.Errorf("unknown operation %q", req.Op)
}

func (c *control) nodeReady() error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
		Spec struct {
			Taints []struct{ Key string }
		}
	}
	if err := c.get("/api/v1/nodes/"+nodeName, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" && len(node.Spec.Taints) == 0 {
			return nil
		}
	}
	return fmt.Errorf("the node has taints %v and conditions %v", node.Spec.Taints, node.Status.Conditions)
}

// processes lists what runs in a node's containers, by the kernel's own account.
func processes(cgroup string) ([]wire.Process, error) {
	var found []wire.Process
	root := filepath.Join(cgroupMounts()[0], cgroup)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone since its folder was read
		}
		if err != nil || entry.IsDir() || entry.Name() != "cgroup.procs" {
			return err
		}
		pids, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(pids)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			command, err := os.ReadFile(filepath.Join("/proc", field, "cmdline"))
			if err != nil || len(command) == 0 {
				continue // gone, or a zombie
			}
			found = append(found, wire.Process{
				PID: pid, Cgroup: strings.TrimPrefix(filepath.Dir(path), root),
				Command: strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " ")),
			})
		}
		return nil
	})
	return found, err
}

// ownLog has our standard error go to a file, panics included: nobody may be there to read it.
func ownLog(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	return syscall.Dup3(int(log.Fd()), 2, 0)
}

// listenUnix listens at a socket in the cluster's folder.
func listenUnix(dir, name string) (net.Listener, error) {
	return net.Listen("unix", filepath.Join(dir, name))
}
