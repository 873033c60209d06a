//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sandglass-dev/sandglass/internal/kubecluster/wire"
)

// Sockets in the cluster's folder: see forward.go.
const (
	apiSocket     = "api.sock"
	kubeletSocket = "kubelet.sock"
	dialSocket    = "dial.sock"
)

// A node is our end of the process that runs kubelet and containerd, in namespaces of their own.
type node struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	listen []net.Listener
}

// place is what the processes of a node need to know. It lies in the cluster's folder as node.json.
type place struct {
	Dir         string
	Kube        string
	APIPort     int
	KubeletPort int // the same outside and inside
}

func (p place) node(path ...string) string {
	return filepath.Join(append([]string{p.Dir, "node"}, path...)...)
}

// startNode returns when containerd and kubelet have been started. The node returned with an error is to be killed.
func startNode(c *control) (*node, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("a node needs root")
	}
	kubelet, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &node{listen: []net.Listener{kubelet}}
	api, err := listenUnix(c.dir, apiSocket)
	if err != nil {
		return n, err
	}
	n.listen = append(n.listen, api)
	go forward(kubelet, "unix", filepath.Join(c.dir, kubeletSocket))
	go forward(api, "tcp", fmt.Sprintf("127.0.0.1:%d", c.port))

	text, err := json.Marshal(place{Dir: c.dir, Kube: c.kube, APIPort: c.port, KubeletPort: kubelet.Addr().(*net.TCPAddr).Port})
	if err != nil {
		return n, err
	}
	if err := os.WriteFile(filepath.Join(c.dir, "node.json"), text, 0o600); err != nil {
		return n, err
	}
	if err := makeCgroups(filepath.Base(c.dir)); err != nil {
		return n, err
	}
	cmd := exec.Command("/proc/self/exe", "init", c.dir)
	cmd.Env = environ()
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:  syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	if n.in, err = cmd.StdinPipe(); err != nil {
		return n, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return n, err
	}
	n.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return n, fmt.Errorf("start the node in namespaces of its own: %w", err)
	}
	n.cmd = cmd
	_, err = n.reply()
	return n, err
}

func (n *node) reply() (wire.Reply, error) {
	line, err := n.out.ReadBytes('\n')
	if err != nil {
		return wire.Reply{}, fmt.Errorf("the node's supervisor is gone (%w): see kubed.log", err)
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

func (n *node) ask(req wire.Request) (wire.Reply, error) {
	if err := json.NewEncoder(n.in).Encode(req); err != nil {
		return wire.Reply{}, err
	}
	return n.reply()
}

// kill ends all processes of the node: the kernel does, with the first of their namespace, and waits for them.
func (n *node) kill() error {
	for _, l := range n.listen {
		l.Close()
	}
	if n.cmd == nil {
		return nil
	}
	if err := n.cmd.Process.Kill(); err != nil {
		return err
	}
	var status *exec.ExitError
	if err := n.cmd.Wait(); !errors.As(err, &status) {
		return err
	}
	return nil
}

// initNode is the first process in a node's namespaces. It hides from the rest what kubelet, containerd and CNI write
// outside of folders that one may name, starts the second process, and reaps whoever loses its parent.
func initNode(dir string) error {
	p, err := readPlace(dir)
	if err != nil {
		return err
	}
	if err := mounts(p); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", "node", dir)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ(), os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case pid == cmd.Process.Pid:
			return fmt.Errorf("the node's supervisor has ended: %v", status)
		}
	}
}

func readPlace(dir string) (p place, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "node.json"))
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(text, &p)
}

// mounts makes what is mounted from now on private, and puts folders in memory over those that are written to.
func mounts(p place) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// The binary may lie below a folder that is hidden next.
	kube := filepath.Join(p.Dir, "kube")
	if err := errors.Join(os.WriteFile(kube, nil, 0o755), syscall.Mount(p.Kube, kube, "", syscall.MS_BIND, "")); err != nil {
		return fmt.Errorf("bind %s: %w", kube, err)
	}
	if err := os.Mkdir(p.node(), 0o755); err != nil {
		return err
	}
	for _, dir := range []string{p.node(), "/run", "/var/lib", "/var/log"} {
		if strings.HasPrefix(p.Dir, dir+"/") {
			return fmt.Errorf("the folder for temporary files, %s, must not be below %s", os.TempDir(), dir)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount memory on %s: %w", dir, err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// The kubelet sets what it does not find as it wants it. These belong to the whole machine.
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		file := p.node(strings.ReplaceAll(name, "/", "."))
		if err := errors.Join(os.WriteFile(file, []byte(value+"\n"), 0o644), syscall.Mount(file, "/proc/sys/"+name, "", syscall.MS_BIND, "")); err != nil {
			return fmt.Errorf("cover /proc/sys/%s: %w", name, err)
		}
	}
	return nil
}
