//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/kubecluster/wire"
)

// runNode is the second process in a node's namespaces: it runs containerd and kubelet, and does what it is asked to.
func runNode(dir string) error {
	answers := json.NewEncoder(os.Stdout)
	p, err := readPlace(dir)
	if err != nil {
		return err
	}
	w := &worker{place: p}
	if err := w.start(); err != nil {
		return errors.Join(err, answers.Encode(wire.Reply{Error: err.Error()}))
	}
	if err := answers.Encode(wire.Reply{}); err != nil {
		return err
	}
	requests := make(chan wire.Request)
	go func() {
		read(context.Background(), os.Stdin, requests)
		close(requests)
	}()
	for req := range requests {
		reply, err := w.answer(req)
		reply.ID = req.ID
		if err != nil {
			reply.Error = err.Error()
		}
		if err := answers.Encode(reply); err != nil {
			return err
		}
	}
	return nil
}

type worker struct {
	place
	units group
}

func (w *worker) start() error {
	if err := w.network(); err != nil {
		return err
	}
	config, err := w.containerdConfig()
	if err != nil {
		return err
	}
	kubelet, err := w.kubeletConfig()
	if err != nil {
		return err
	}
	w.units = group{
		{name: "containerd", args: []string{"containerd", "--config=" + config}, log: w.logFile("containerd")},
		{name: "kubelet", args: []string{
			filepath.Join(w.Dir, "kube"), "kubelet", "--config=" + kubelet, "--kubeconfig=" + filepath.Join(w.Dir, "pki", "kubelet.conf"),
			"--hostname-override=" + nodeName, "--node-ip=" + nodeIP, "--root-dir=/var/lib/kubelet", "--cert-dir=" + w.node("pki"),
		}, log: w.logFile("kubelet")},
	}
	if err := w.units[0].start(); err != nil {
		return err
	}
	for range 300 {
		if err := w.units[0].failure(); err != nil {
			return err
		}
		if _, err = w.ctr("version"); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	busybox, err := busyboxImage()
	if err != nil {
		return err
	}
	if err := w.importImage(busybox...); err != nil {
		return err
	}
	return w.units[1].start()
}

func (w *worker) logFile(name string) string { return filepath.Join(w.Dir, "logs", name+".log") }

// network gives the node its addresses, and ways to the API server for the kubelet and for pods, and in from outside.
func (w *worker) network() error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", serviceIP + "/32", "dev", "lo"},
		{"address", "add", nodeIP + "/32", "dev", "lo"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	for _, address := range []string{fmt.Sprintf("127.0.0.1:%d", w.APIPort), serviceIP + ":443"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go forward(l, "unix", filepath.Join(w.Dir, apiSocket))
	}
	l, err := listenUnix(w.Dir, kubeletSocket)
	if err != nil {
		return err
	}
	go forward(l, "tcp", fmt.Sprintf("127.0.0.1:%d", w.KubeletPort))
	if l, err = listenUnix(w.Dir, dialSocket); err != nil {
		return err
	}
	go dialer(l)
	return nil
}

func (w *worker) socket() string { return w.node("containerd.sock") }

// containerdConfig writes the configuration of a containerd that shares nothing with another one on this machine.
func (w *worker) containerdConfig() (string, error) {
	bin := "/usr/lib/cni" // as Debian has it
	if _, err := os.Stat(filepath.Join(bin, "bridge")); err != nil {
		bin = "/opt/cni/bin"
	}
	if _, err := os.Stat(filepath.Join(bin, "bridge")); err != nil {
		return "", errors.New("no CNI plugins in /usr/lib/cni or /opt/cni/bin: install them (Debian: containernetworking-plugins)")
	}
	network, err := json.Marshal(map[string]any{
		"cniVersion": "0.4.0", "name": "sandglass",
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": w.node("addresses"),
				"ranges": []any{[]any{map[string]any{"subnet": pods}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	})
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(w.node("cni"), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(w.node("cni", "10-bridge.conflist"), network, 0o644); err != nil {
		return "", err
	}
	// Without restrict_oom_score_adj no pod starts where the machine is itself a container, which may not lower a score.
	text := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
address = %q

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %q
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = %q
conf_dir = %q
`, w.node("containerd"), w.node("containerd-state"), w.socket(), pauseRef, bin, w.node("cni"))
	path := w.node("containerd.toml")
	return path, os.WriteFile(path, []byte(text), 0o644)
}

func (w *worker) kubeletConfig() (string, error) {
	type object = map[string]any
	pki := filepath.Join(w.Dir, "pki")
	text, err := json.Marshal(object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": "127.0.0.1", "port": w.KubeletPort, "readOnlyPort": 0, "healthzPort": 0,
		"authentication": object{"anonymous": object{"enabled": false}, "webhook": object{"enabled": false}, "x509": object{"clientCAFile": filepath.Join(pki, "ca.crt")}},
		"authorization":  object{"mode": "AlwaysAllow"},
		"tlsCertFile":    filepath.Join(pki, "kubelet-server.crt"), "tlsPrivateKeyFile": filepath.Join(pki, "kubelet-server.key"),
		"containerRuntimeEndpoint": "unix://" + w.socket(),
		"cgroupDriver":             "cgroupfs", "cgroupRoot": "/" + filepath.Base(w.Dir), "enforceNodeAllocatable": []string{},
		"failSwapOn": false, "makeIPTablesUtilChains": false, "localStorageCapacityIsolation": false,
		"maxPods": 500, "clusterDNS": []string{"10.96.0.10"}, "clusterDomain": "cluster.local", // where nobody answers
		// The machine's disk is not the node's to judge.
		"evictionHard":                object{"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
	})
	if err != nil {
		return "", err
	}
	path := w.node("kubelet.json")
	return path, os.WriteFile(path, text, 0o644)
}

func (w *worker) answer(req wire.Request) (reply wire.Reply, err error) {
	if u := w.units.named(req.Component); u != nil {
		return reply, act(u, req)
	}
	switch req.Op {
	case "tasks":
		reply.Tasks, err = w.tasks(req.Namespace)
		return reply, err
	case "image":
		return reply, w.importImage(*req.Image)
	}
	return reply, fmt.Errorf("unknown operation or component: %s %s", req.Op, req.Component)
}

// ctr asks containerd through its own client, among what belongs to Kubernetes.
func (w *worker) ctr(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", w.socket(), "--namespace", "k8s.io"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out), nil
}

// tasks lists the containers of a Kubernetes namespace, or of all, pods' own included, with the state of their tasks.
func (w *worker) tasks(namespace string) ([]wire.Task, error) {
	args := []string{"containers", "list", "--quiet"}
	if namespace != "" {
		args = append(args, fmt.Sprintf(`labels."io.kubernetes.pod.namespace"==%q`, namespace))
	}
	list, err := w.ctr(args...)
	if err != nil {
		return nil, err
	}
	states, err := w.ctr("tasks", "list")
	if err != nil {
		return nil, err
	}
	state := map[string]string{}
	for line := range strings.Lines(states) {
		if fields := strings.Fields(line); len(fields) == 3 {
			state[fields[0]] = fields[2]
		}
	}
	tasks := []wire.Task{}
	for _, id := range strings.Fields(list) {
		text, err := w.ctr("containers", "info", id)
		if err != nil {
			if strings.Contains(err.Error(), "not found") {
				continue // gone since
			}
			return nil, err
		}
		var info struct{ Labels map[string]string }
		if err := json.Unmarshal([]byte(text), &info); err != nil {
			return nil, fmt.Errorf("ctr containers info: %w", err)
		}
		tasks = append(tasks, wire.Task{Container: id, Status: state[id], Labels: info.Labels})
	}
	return tasks, nil
}
