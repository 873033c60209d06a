package kubecluster_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
)

// childVar has the test binary start a cluster, tell its folder and wait to be killed.
const childVar = "SANDGLASS_KUBECLUSTER_CHILD"

func TestMain(m *testing.M) {
	if kind := os.Getenv(childVar); kind != "" {
		c, err := kubecluster.Start(context.Background(), kubecluster.Config{Node: kind == "node"})
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(c.Dir())
		select {}
	}
	code := m.Run()
	for _, shared := range []*shared{&control, &node} {
		if shared.c != nil {
			if err := shared.c.Close(); err != nil {
				fmt.Fprintln(os.Stderr, "close a cluster:", err)
				code = 1
			}
		}
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A shared cluster is started by the first test that needs it.
type shared struct {
	once sync.Once
	cfg  kubecluster.Config
	c    *kubecluster.Cluster
	err  error
}

var (
	control shared
	node    = shared{cfg: kubecluster.Config{Node: true}}
)

func (s *shared) get(t *testing.T) *kubecluster.Cluster {
	t.Helper()
	s.once.Do(func() {
		began := time.Now()
		s.c, s.err = kubecluster.Start(context.Background(), s.cfg)
		t.Logf("a cluster (%+v) was ready after %v", s.cfg, time.Since(began).Round(100*time.Millisecond))
	})
	if s.err != nil {
		kubecluster.Skip(t, s.err)
	}
	return s.c
}

type object = map[string]any

// sleeper is a Job of one pod that runs a command and may take grace to end.
func sleeper(name string, deadline int, command ...string) object {
	return object{
		"metadata": object{"name": name},
		"spec": object{
			"backoffLimit": 0, "activeDeadlineSeconds": deadline, "ttlSecondsAfterFinished": 0,
			"template": object{"spec": object{
				"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
				"containers": []object{{"name": "main", "image": kubecluster.Image, "imagePullPolicy": "Never", "command": command}},
			}},
		},
	}
}

func jobs(ns string) string { return "/apis/batch/v1/namespaces/" + ns + "/jobs" }

// create creates a Job, and returns the path of it.
func create(t *testing.T, c *kubecluster.Cluster, ns, name string, deadline int, command ...string) string {
	t.Helper()
	require.NoError(t, c.Do(t.Context(), "POST", jobs(ns), sleeper(name, deadline, command...), nil))
	return jobs(ns) + "/" + name
}

// endNow moves a Job's deadline to a moment that has passed, or is about to: one that was near from the start might come
// before anybody has looked.
func endNow(t *testing.T, c *kubecluster.Cluster, job string) {
	t.Helper()
	require.NoError(t, c.Do(t.Context(), "PATCH", job, object{"spec": object{"activeDeadlineSeconds": 1}}, nil))
}

// eventually is for what the cluster needs time for, on a machine that does much else.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 4*time.Minute {
			require.Fail(t, "not within four minutes: "+what)
		}
	}
}

type podObject struct {
	Metadata struct{ Name, UID string }
	Status   struct{ Phase, PodIP string }
}

// pod returns the namespace's only pod, or an empty one if there is none.
func pod(t *testing.T, c *kubecluster.Cluster, ns string) (p podObject) {
	t.Helper()
	var list struct{ Items []podObject }
	require.NoError(t, c.Do(t.Context(), "GET", "/api/v1/namespaces/"+ns+"/pods", nil, &list))
	require.LessOrEqual(t, len(list.Items), 1)
	for _, p = range list.Items {
	}
	return p
}

func empty(t *testing.T, c *kubecluster.Cluster, ns string) bool {
	t.Helper()
	objects, err := c.Objects(t.Context(), ns, "")
	require.NoError(t, err)
	return len(objects) == 0
}

func TestAPodStaysPendingWithoutANodeAndItsJobEndsAtItsDeadline(t *testing.T) {
	c := control.get(t)
	ns := c.Namespace(t)
	job := create(t, c, ns, "one", 1000, "sleep", "1000")
	eventually(t, "a pod", func() bool { return pod(t, c, ns).Status.Phase == "Pending" })
	endNow(t, c, job)
	eventually(t, "nothing", func() bool { return empty(t, c, ns) })
}

func TestAPuppetHasPodsRunAndEnd(t *testing.T) {
	c := control.get(t)
	ns := c.Namespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.RunPuppet(ctx) }()
	job := create(t, c, ns, "one", 1000, "sleep", "1000")
	eventually(t, "a running pod", func() bool { return pod(t, c, ns).Status.Phase == "Running" })
	require.NoError(t, c.Do(ctx, "DELETE", job, object{"propagationPolicy": "Foreground"}, nil))
	eventually(t, "nothing", func() bool { return empty(t, c, ns) })
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// get asks the API server as the user of a token.
func get(t *testing.T, c *kubecluster.Cluster, token, path string) (code int) {
	t.Helper()
	ca := x509.NewCertPool()
	require.True(t, ca.AppendCertsFromPEM(c.CA()))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca}}}
	req, err := http.NewRequestWithContext(t.Context(), "GET", c.URL()+path, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	return res.StatusCode
}

func TestAUserMayDoWhatItsRulesSayAndNothingElse(t *testing.T) {
	c := control.get(t)
	ns, other := c.Namespace(t), c.Namespace(t)
	user := c.User(t, ns, kubecluster.May("batch", "jobs", "list"))
	poor := c.User(t, ns)
	assert.Equal(t, 200, get(t, c, user, jobs(ns)))
	assert.Equal(t, 403, get(t, c, user, jobs(other)))
	assert.Equal(t, 403, get(t, c, user, "/api/v1/namespaces/"+ns+"/pods"))
	assert.Equal(t, 403, get(t, c, poor, jobs(ns)))
	assert.Equal(t, 401, get(t, c, "nobody", jobs(ns)))
	assert.Equal(t, 200, get(t, c, c.AdminToken(), jobs(other)))
}

func TestAnAPIServerThatWasKilledComesBackAtItsAddressWithWhatItKnew(t *testing.T) {
	c := control.get(t)
	ns := c.Namespace(t)
	require.NoError(t, c.Kill(kubecluster.APIServer))
	require.Error(t, c.Do(t.Context(), "GET", "/readyz", nil, nil))
	require.NoError(t, c.StartAgain(kubecluster.APIServer))
	require.NoError(t, c.WaitReady(t.Context()))
	require.NoError(t, c.Do(t.Context(), "GET", "/api/v1/namespaces/"+ns, nil, nil))
	require.Error(t, c.StartAgain(kubecluster.APIServer), "it runs")
}

func TestAFrozenControllerManagerDoesItsWorkWhenThawed(t *testing.T) {
	c := control.get(t)
	ns := c.Namespace(t)
	require.NoError(t, c.Freeze(kubecluster.ControllerManager))
	create(t, c, ns, "one", 1000, "sleep", "1000")
	time.Sleep(2 * time.Second) // no sign tells that nothing will happen
	assert.Empty(t, pod(t, c, ns).Metadata.UID)
	require.NoError(t, c.Thaw(kubecluster.ControllerManager))
	eventually(t, "a pod", func() bool { return pod(t, c, ns).Metadata.UID != "" })
}

func TestWithoutANodeNothingOfANodeIsThere(t *testing.T) {
	c := control.get(t)
	for _, component := range []kubecluster.Component{kubecluster.Kubelet, kubecluster.Containerd, kubecluster.Scheduler} {
		require.ErrorContains(t, c.Kill(component), "no node")
	}
	_, err := c.DialContext(t.Context(), "tcp", "10.96.0.1:443")
	require.ErrorContains(t, err, "no node")
}

func TestTheVersionIsTheOneThatIsBuilt(t *testing.T) {
	text, err := os.ReadFile("../kubetest/go.mod")
	require.NoError(t, err)
	assert.Contains(t, string(text), "\tk8s.io/kubernetes "+kubecluster.Version+"\n")
	staging := "v0" + strings.TrimPrefix(kubecluster.Version, "v1")
	for line := range strings.Lines(string(text)) {
		if _, version, replaced := strings.Cut(line, " => "); replaced {
			assert.True(t, strings.HasSuffix(strings.TrimSpace(version), " "+staging), line)
		}
	}

	c := control.get(t)
	var version struct{ GitVersion string }
	require.NoError(t, c.Do(t.Context(), "GET", "/version", nil, &version))
	assert.Equal(t, kubecluster.Version, version.GitVersion)
}

func TestAMissingBuildIsToldFromAFailure(t *testing.T) {
	t.Setenv("SANDGLASS_KUBE", filepath.Join(t.TempDir(), "none"))
	_, err := kubecluster.Start(t.Context(), kubecluster.Config{})
	require.ErrorIs(t, err, kubecluster.ErrUnavailable)
	require.ErrorContains(t, err, "make kube")

	t.Setenv("SANDGLASS_KUBE", "bin/kube")
	_, err = kubecluster.Start(t.Context(), kubecluster.Config{})
	require.NotErrorIs(t, err, kubecluster.ErrUnavailable, "it may be built, and yet not be found from here")
	require.ErrorContains(t, err, "relative")

	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho no such luck\nexit 3\n"), 0o755))
	t.Setenv("SANDGLASS_KUBE", broken)
	_, err = kubecluster.Start(t.Context(), kubecluster.Config{})
	require.Error(t, err)
	require.NotErrorIs(t, err, kubecluster.ErrUnavailable)
	require.ErrorContains(t, err, "no such luck", "the end of the component's log")
}

// A reporter notes how a test was ended by Skip.
type reporter struct {
	testing.TB
	failed, skipped bool
}

func (r *reporter) Helper()               {}
func (r *reporter) Fatalf(string, ...any) { r.failed = true }
func (r *reporter) Skipf(string, ...any)  { r.skipped = !r.failed }

func TestATestIsSkippedOnlyForWantOfAClusterAndOnlyWhereThatIsAllowed(t *testing.T) {
	for name, tt := range map[string]struct {
		noSkip, kube string
		err          error
		want         bool // skipped
	}{
		"not built":                               {"", "", fmt.Errorf("x: %w", kubecluster.ErrUnavailable), true},
		"not built, but skipping forbidden":       {"1", "", fmt.Errorf("x: %w", kubecluster.ErrUnavailable), false},
		"switched off, though skipping forbidden": {"1", "off", fmt.Errorf("x: %w", kubecluster.ErrUnavailable), true},
		"broken":                   {"", "", io.ErrUnexpectedEOF, false},
		"broken, and switched off": {"1", "off", io.ErrUnexpectedEOF, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SANDGLASS_NO_SKIP", tt.noSkip)
			t.Setenv("SANDGLASS_KUBE", tt.kube)
			r := &reporter{TB: t}
			kubecluster.Skip(r, tt.err)
			assert.Equal(t, tt.want, r.skipped)
			assert.Equal(t, !tt.want, r.failed)
		})
	}
}

// child starts a process that starts a cluster, and returns it with the cluster's folder.
func child(t *testing.T, kind string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+kind)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	dir = strings.TrimSpace(line)
	if !filepath.IsAbs(dir) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		require.Fail(t, "no cluster", "%s %v", line, err)
	}
	t.Cleanup(func() { // what is left then, the test has said
		for pid := range of(t, dir) {
			_ = exec.Command("kill", "-KILL", pid).Run()
		}
	})
	return cmd, dir
}

// of returns the processes of a cluster: they have its folder among their arguments, or are its pods'.
func of(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	files, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, file := range files {
		command, _ := os.ReadFile(file + "/cmdline")
		cgroup, _ := os.ReadFile(file + "/cgroup")
		if bytes.Contains(command, []byte(dir)) || bytes.Contains(cgroup, []byte(filepath.Base(dir))) {
			found[filepath.Base(file)] = string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// gone waits until nothing of a cluster is on this machine, but for its folder if that may stay.
func gone(t *testing.T, dir string, folder bool) {
	t.Helper()
	eventually(t, "the processes of "+dir+" are gone", func() bool { return len(of(t, dir)) == 0 })
	if !folder {
		return
	}
	eventually(t, dir+" is gone", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
	require.Empty(t, cgroups(t, "/sys/fs/cgroup", dir))
}

// cgroups returns a cluster's below root, which has all of them in version 2, and a folder for each controller before.
func cgroups(t *testing.T, root, dir string) (found []string) {
	t.Helper()
	for _, above := range []string{root, root + "/*"} {
		names, err := filepath.Glob(above + "/" + filepath.Base(dir))
		require.NoError(t, err)
		found = append(found, names...)
	}
	return found
}

func TestACgroupThatIsLeftIsFoundInEitherVersion(t *testing.T) {
	for _, path := range []string{"one", "memory/one"} {
		root := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(root, path), 0o755))
		assert.Equal(t, []string{filepath.Join(root, path)}, cgroups(t, root, "/tmp/one"))
	}
}

// kinds are the clusters that can be had here.
func kinds(t *testing.T) []string {
	t.Helper()
	control.get(t)
	if os.Getuid() == 0 {
		node.get(t)
		return []string{"control", "node"}
	}
	return []string{"control"}
}

func TestNothingIsLeftWhenTheTestIsKilled(t *testing.T) {
	for _, kind := range kinds(t) {
		t.Run(kind, func(t *testing.T) {
			cmd, dir := child(t, kind)
			require.NotEmpty(t, of(t, dir))
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			gone(t, dir, true)
		})
	}
}

func TestNothingRunsOnWhenTheSupervisorIsKilledAndTheNextOneTidiesUp(t *testing.T) {
	for _, kind := range kinds(t) {
		t.Run(kind, func(t *testing.T) {
			ownTemp(t)
			cmd, dir := child(t, kind)
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			supervisor, err := exec.Command("pgrep", "-P", fmt.Sprint(cmd.Process.Pid)).Output()
			require.NoError(t, err)
			require.NoError(t, exec.Command("kill", "-KILL", strings.TrimSpace(string(supervisor))).Run())
			gone(t, dir, false)

			require.DirExists(t, dir)
			c, err := kubecluster.Start(t.Context(), kubecluster.Config{})
			require.NoError(t, err)
			gone(t, dir, true)
			dir = c.Dir()
			require.NoError(t, c.Close())
			gone(t, dir, true)
		})
	}
}

func TestAStartThatIsCancelledLeavesNothing(t *testing.T) {
	control.get(t)
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 3 * time.Second} { // in the build, in the start
		t.Run(after.String(), func(t *testing.T) {
			dir := ownTemp(t)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			c, err := kubecluster.Start(ctx, kubecluster.Config{})
			if err == nil { // it was quick
				require.NoError(t, c.Close())
			}
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

// ownTemp gives clusters a folder where no other package's clusters look. Its path is short, as a socket's must be.
func ownTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sgk")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	t.Setenv("TMPDIR", dir)
	return dir
}

func pretty(v any) string {
	text, _ := json.MarshalIndent(v, "", "  ")
	return string(text)
}
