package kubecluster_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
)

// running returns the processes of a pod, by the kernel's account, without the one that holds its network.
func running(t *testing.T, c *kubecluster.Cluster, uid string) (commands []string) {
	t.Helper()
	processes, err := c.Processes()
	require.NoError(t, err)
	for _, p := range processes {
		if strings.Contains(p.Cgroup, uid) && !strings.Contains(p.Command, "2147483647") {
			commands = append(commands, p.Command)
		}
	}
	return commands
}

// tasks asks the runtime, whose client gives up on a machine that does much else, until there is an answer.
func tasks(t *testing.T, c *kubecluster.Cluster, ns string) (list []kubecluster.Task) {
	t.Helper()
	eventually(t, "the runtime's client has an answer", func() bool {
		var err error
		list, err = c.Tasks(ns)
		return err == nil
	})
	return list
}

// runs waits until a command is all that runs in a pod. For a moment after the pod is said to run, its process may be the
// runtime's own that is about to execute the command.
func runs(t *testing.T, c *kubecluster.Cluster, uid, command string) {
	t.Helper()
	eventually(t, command+" is all that runs", func() bool { return slices.Equal([]string{command}, running(t, c, uid)) })
}

func TestOnANodeAPodRunsAndAllJudgesSeeIt(t *testing.T) {
	c := node.get(t)
	ns := c.Namespace(t)
	job := create(t, c, ns, "one", 1000, "sleep", "12345")
	eventually(t, "a running pod", func() bool { return pod(t, c, ns).Status.Phase == "Running" })
	uid := pod(t, c, ns).Metadata.UID
	runs(t, c, uid, "sleep 12345")
	log := "/api/v1/namespaces/" + ns + "/pods/" + pod(t, c, ns).Metadata.Name + "/log"
	assert.Equal(t, 200, get(t, c, c.AdminToken(), log), "the API server reaches the kubelet")
	list := tasks(t, c, ns)
	require.Len(t, list, 2, pretty(list))
	for _, task := range list {
		assert.Equal(t, "RUNNING", task.Status)
		assert.Equal(t, uid, task.Labels["io.kubernetes.pod.uid"])
	}
	objects, err := c.Objects(t.Context(), ns, "")
	require.NoError(t, err)
	require.Len(t, objects, 2)
	assert.Equal(t, "Job "+ns+"/one", objects[0].String())
	assert.Contains(t, objects[1].String(), "Pod "+ns+"/one-")

	require.NoError(t, c.Do(t.Context(), "DELETE", job, object{"propagationPolicy": "Foreground"}, nil))
	eventually(t, "nothing", func() bool { return empty(t, c, ns) })
	assert.Empty(t, running(t, c, uid))
	for _, task := range tasks(t, c, ns) {
		assert.NotEqual(t, "RUNNING", task.Status, pretty(task))
	}
}

func TestOnANodeALeaseEndsAProcessThatIgnoresSIGTERM(t *testing.T) {
	c := node.get(t)
	ns := c.Namespace(t)
	job := create(t, c, ns, "one", 1000, "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
	eventually(t, "a running pod", func() bool { return pod(t, c, ns).Status.Phase == "Running" })
	uid := pod(t, c, ns).Metadata.UID
	require.NotEmpty(t, running(t, c, uid))
	endNow(t, c, job)
	eventually(t, "nothing", func() bool { return empty(t, c, ns) })
	assert.Empty(t, running(t, c, uid))
}

func TestAPodOutlivesItsKubeletAndEndsWhenItIsBack(t *testing.T) {
	c := node.get(t)
	ns := c.Namespace(t)
	job := create(t, c, ns, "one", 1000, "sleep", "1000")
	eventually(t, "a running pod", func() bool { return pod(t, c, ns).Status.Phase == "Running" })
	uid := pod(t, c, ns).Metadata.UID
	require.NoError(t, c.Kill(kubecluster.Kubelet))
	require.NoError(t, c.Do(t.Context(), "DELETE", job, object{"propagationPolicy": "Foreground"}, nil))
	time.Sleep(3 * time.Second) // longer than its grace
	assert.NotEmpty(t, running(t, c, uid))
	assert.False(t, empty(t, c, ns))
	require.NoError(t, c.StartAgain(kubecluster.Kubelet))
	eventually(t, "nothing", func() bool { return empty(t, c, ns) })
	assert.Empty(t, running(t, c, uid))
}

func TestAPodOutlivesItsContainerd(t *testing.T) {
	c := node.get(t)
	ns := c.Namespace(t)
	create(t, c, ns, "one", 1000, "sleep", "1000")
	eventually(t, "a running pod", func() bool { return pod(t, c, ns).Status.Phase == "Running" })
	uid := pod(t, c, ns).Metadata.UID
	require.NoError(t, c.Restart(kubecluster.Containerd))
	assert.NotEmpty(t, running(t, c, uid))
	eventually(t, "containerd knows it", func() bool {
		tasks, err := c.Tasks(ns)
		return err == nil && len(tasks) == 2
	})
}

func TestATestReachesAPodAndAPodReachesTheAPIServerWithItsToken(t *testing.T) {
	c := node.get(t)
	ns := c.Namespace(t)
	create(t, c, ns, "one", 1000, "sh", "-c",
		`cd /var/run/secrets/kubernetes.io/serviceaccount && test -s ca.crt &&
			wget -O /tmp/answer --no-check-certificate --header "Authorization: Bearer $(cat token)" "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/version" &&
			exec nc -ll -p 8080 -e cat /tmp/answer`)
	eventually(t, "a running pod", func() bool { return pod(t, c, ns).Status.Phase == "Running" })
	var said string
	eventually(t, "an answer", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		conn, err := c.DialContext(ctx, "tcp", pod(t, c, ns).Status.PodIP+":8080")
		if err != nil {
			return false
		}
		defer conn.Close()
		text, err := io.ReadAll(conn)
		said = string(text)
		return err == nil && said != ""
	})
	assert.Contains(t, said, kubecluster.Version)
	_, err := c.DialContext(t.Context(), "tcp", "127.0.0.1:1")
	require.ErrorContains(t, err, "refused")
}

func TestAnImageOfOnesOwnRuns(t *testing.T) {
	c := node.get(t)
	ns := c.Namespace(t)
	busybox, err := exec.LookPath("busybox")
	require.NoError(t, err)
	require.NoError(t, c.Import("sandglass.test/own:1", map[string]string{"own/busybox": busybox}, "/own/busybox", "sleep", "54321"))
	job := sleeper("one", 1000)
	spec := job["spec"].(object)["template"].(object)["spec"].(object)
	spec["containers"] = []object{{"name": "main", "image": "sandglass.test/own:1", "imagePullPolicy": "Never"}}
	require.NoError(t, c.Do(t.Context(), "POST", jobs(ns), job, nil))
	eventually(t, "a running pod", func() bool { return pod(t, c, ns).Status.Phase == "Running" })
	runs(t, c, pod(t, c, ns).Metadata.UID, "/own/busybox sleep 54321")
}

// machine tells what kubelets and containerds change on the machines that they run on.
func machine(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "net/ipv4/ip_forward"} {
		text, err := os.ReadFile("/proc/sys/" + name)
		require.NoError(t, err)
		state[name] = string(text)
	}
	for _, dir := range []string{"/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/var/log/pods", "/run/netns", "/run/flannel", "/var/lib/containerd"} {
		entries, _ := filepath.Glob(dir + "/*")
		state[dir] = strings.Join(entries, " ")
	}
	// Others may run Docker meanwhile, with links and mounts that come and go, also of network namespaces.
	ours := func(text []byte, words ...string) string {
		var lines []string
		for line := range strings.Lines(string(text)) {
			if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) }) {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	links, err := exec.Command("ip", "-oneline", "address").Output()
	require.NoError(t, err)
	state["links"] = ours(links, "cni", "10.88.", "10.95.", "10.96.")
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		if rules, err := exec.Command(program).Output(); err == nil {
			state[program] = ours(rules, "KUBE", "CNI")
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	state["mounts"] = ours(mounts, "sandglass-kube", "kubelet", " /run/netns/", " /var/run/netns/", "/cni-")
	return state
}

func TestAClusterLeavesTheMachineAsItWas(t *testing.T) {
	before := machine(t)
	c, err := kubecluster.Start(t.Context(), kubecluster.Config{Node: true})
	if err != nil {
		kubecluster.Skip(t, err)
	}
	const ns = "default"
	create(t, c, ns, "one", 1000, "sleep", "1000")
	eventually(t, "a running pod", func() bool { return pod(t, c, ns).Status.Phase == "Running" })
	during := machine(t)
	dir := c.Dir()
	require.NotEmpty(t, of(t, dir))
	require.NoError(t, c.Close())
	assert.Equal(t, before, during, "while it runs")
	assert.Equal(t, before, machine(t), "afterwards")
	gone(t, dir, true)
}
