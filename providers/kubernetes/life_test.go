package kubernetes_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// One life from beginning to end, as a program has it.
func TestAFunctionRunsInAPodThatIsGoneAfterwards(t *testing.T) {
	t.Parallel()
	w := onNode(t)
	m, err := sandbox.NewManager(w.p, sandbox.Config{Fleet: "tests"})
	require.NoError(t, err)
	var pod string
	err = m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
		info, err := w.p.Get(ctx, sb.ID())
		if err != nil {
			return err
		}
		pod = info.Run
		if err := sb.Upload(ctx, "/work/a file", strings.NewReader("hello")); err != nil {
			return err
		}
		res, err := sb.Exec(ctx, sandbox.Shell(`cat "/work/a file"; ls /var/run/secrets; env`))
		assert.Contains(t, string(res.Stdout), "hello")
		assert.NotContains(t, string(res.Stdout), "KUBERNETES_SERVICE_HOST_X")
		assert.Contains(t, string(res.Stderr), "No such file", "no token is mounted")
		return err
	}, func(s *sandbox.Scope) { s.Spec = small() })
	require.NoError(t, err)
	assert.Empty(t, w.judge(t, "tests"))
	assert.Empty(t, w.processes(t, pod))
}

// A runtime takes the end of a command's output for the command's, and drops its input: see reader.
func TestInputIsWholeWhateverACommandDoesWithItsOutput(t *testing.T) {
	t.Parallel()
	w := onNode(t)
	sb := w.p.Open(w.make(t, order(10*time.Minute)))
	data := strings.Repeat("0123456789abcde\n", 3<<16)
	for _, script := range []string{"cat >/tmp/x", "exec cat >/tmp/x 2>&1", "exec >/tmp/x 2>&1; sleep 1; cat", "cat | cat >/tmp/x"} {
		cmd := sandbox.Shell(script)
		cmd.Stdin = strings.NewReader(data)
		res, err := sb.Exec(t.Context(), cmd)
		require.NoError(t, err)
		require.NoError(t, res.Err())
		var back strings.Builder
		require.NoError(t, sb.Download(t.Context(), "/tmp/x", &back))
		assert.True(t, back.String() == data, "%s: %d of %d bytes", script, back.Len(), len(data))
	}
}

func TestAPortIsReachedAtThePodsAddress(t *testing.T) {
	t.Parallel()
	w := onNode(t)
	req := order(10 * time.Minute)
	req.Spec.Ports = []int{8080}
	sb := w.p.Open(w.make(t, req))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_, _ = sb.Exec(ctx, sandbox.Shell("mkdir -p /www && echo it works >/www/index.html && exec httpd -f -p 8080 -h /www"))
	}()
	defer func() {
		cancel()
		<-served
	}()
	ep, err := sb.Endpoint(t.Context(), 8080)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DialContext: w.c.DialContext, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	eventually(t, time.Minute, func() bool {
		res, err := client.Get(ep.URL)
		if err != nil {
			return false
		}
		defer func() { _ = res.Body.Close() }()
		b, _ := io.ReadAll(res.Body)
		return string(b) == "it works\n"
	}, func() string { return ep.URL })
}

// The controller manager stops, the API server begins anew, the node's kubelet stops: no sandbox is said to be gone, none
// is ended for it, and all are collected afterwards.
func TestAnOutageIsNoEnd(t *testing.T) {
	t.Parallel()
	w := onFrail(t)
	m, err := sandbox.NewManager(w.p, sandbox.Config{Fleet: "tests", CleanupTimeout: 3 * time.Minute})
	require.NoError(t, err)
	for name, outage := range map[string]func(t *testing.T){
		"the controller manager stops for a minute": func(t *testing.T) {
			require.NoError(t, w.c.Freeze(kubecluster.ControllerManager))
			time.Sleep(time.Minute)
			require.NoError(t, w.c.Thaw(kubecluster.ControllerManager))
		},
		"the API server begins anew": func(t *testing.T) {
			require.NoError(t, w.c.Kill(kubecluster.APIServer))
			time.Sleep(10 * time.Second)
			require.NoError(t, w.c.StartAgain(kubecluster.APIServer))
		},
		"the node's kubelet stops for a minute": func(t *testing.T) {
			require.NoError(t, w.c.Freeze(kubecluster.Kubelet))
			time.Sleep(time.Minute)
			require.NoError(t, w.c.Thaw(kubecluster.Kubelet))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var running, over sync.WaitGroup
			end := make(chan struct{})
			var pods sync.Map
			for range 5 {
				running.Add(1)
				over.Go(func() {
					begun := sync.OnceFunc(running.Done)
					defer begun() // also where it never runs: who waits then sees the error below
					err := m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
						info, err := w.p.Get(ctx, sb.ID())
						if err != nil {
							return err
						}
						pods.Store(info.Run, sb.ID())
						begun()
						select {
						case <-end:
							return nil
						case <-ctx.Done():
							return fmt.Errorf("ended for it: %w", context.Cause(ctx))
						}
					}, func(s *sandbox.Scope) { s.Spec, s.Window, s.Beat = small(), 90*time.Second, 15*time.Second })
					assert.NoError(t, err)
				})
			}
			running.Wait()
			outage(t)
			pods.Range(func(pod, id any) bool {
				assert.NotEmpty(t, w.processes(t, pod.(string)), "it was killed for it")
				return true
			})
			close(end)
			over.Wait()
			assert.Empty(t, w.judge(t, "tests"))
			pods.Range(func(pod, _ any) bool {
				assert.Empty(t, w.processes(t, pod.(string)))
				return true
			})
		})
	}
}

// A runner's pod is deleted with 50 live sandboxes: by its reference they go within a minute, of which the garbage collector
// takes some seconds on a machine of its own, and a sibling's stay.
func TestTheSandboxesOfADeletedRunnerGoAndASiblingsStay(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	runner := func(name string) (string, *kubernetes.Provider) {
		var made real
		require.NoError(t, w.c.Do(t.Context(), "POST", "/api/v1/namespaces/"+w.ns+"/pods", object{
			"metadata": object{"name": name}, "spec": object{"terminationGracePeriodSeconds": 1, "containers": []object{{"name": "main", "image": kubecluster.Image}}},
		}, &made))
		p, _ := w.provider(t, func(c *kubernetes.Config) {
			c.Owner = kubernetes.Owner{Pod: name, UID: made.Metadata.UID, Reference: true}
		})
		return made.Metadata.UID, p
	}
	_, mine := runner("mine")
	_, other := runner("other")
	make := func(p *kubernetes.Provider, n int) map[string]bool {
		ids := map[string]bool{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				info, err := p.Create(t.Context(), order(time.Hour))
				if assert.NoError(t, err) {
					mu.Lock()
					defer mu.Unlock()
					ids[info.ID] = true
				}
			})
		}
		wg.Wait()
		return ids
	}
	gone, stay := make(mine, 50), make(other, 10)
	require.Len(t, gone, 50)
	require.NoError(t, w.c.Do(t.Context(), "DELETE", "/api/v1/namespaces/"+w.ns+"/pods/mine", nil, nil))
	start := time.Now()
	eventually(t, time.Minute, func() bool {
		for _, info := range w.judge(t, "tests") {
			if gone[info.ID] {
				return false
			}
		}
		return true
	}, func() string { return "some of the deleted runner's sandboxes are left" })
	t.Logf("gone after %v", time.Since(start))
	left := map[string]bool{}
	for _, info := range w.judge(t, "tests") {
		left[info.ID] = info.State == sandbox.StateRunning || info.State == sandbox.StateStarting
	}
	assert.Equal(t, stay, left)
}

// An owner outside of the cluster keeps a Lease; when it no longer does, it is dead.
func TestAnOwnersLeaseIsKeptWithTheBeatsAndItsEndIsSeen(t *testing.T) {
	t.Parallel()
	w := onPlain(t, func(c *kubernetes.Config) { c.Owner = kubernetes.Owner{Lease: 30 * time.Second} })
	began := time.Now()
	req := order(10 * time.Minute)
	req.Beat = 2 * time.Second
	info := w.make(t, req)
	path := "/apis/coordination.k8s.io/v1/namespaces/" + w.ns + "/leases/" + w.p.LeaseName()
	renewed := func() time.Time {
		var l struct{ Spec struct{ RenewTime time.Time } }
		require.NoError(t, w.c.Do(t.Context(), "GET", path, nil, &l))
		return l.Spec.RenewTime
	}
	first := renewed()
	assert.WithinRange(t, first, began.Add(-2*time.Second), time.Now().Add(time.Second), "by the service's clock, in whole seconds")
	time.Sleep(9 * time.Second) // more than a quarter of it
	info, err := w.p.Extend(t.Context(), info, 10*time.Minute)
	require.NoError(t, err)
	assert.Greater(t, renewed().Sub(first), time.Second)
	owners := w.p.Owners()
	for end := info.Created.Add(70 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Second) {
		info, err = w.p.Extend(t.Context(), info, 10*time.Minute)
		require.NoError(t, err)
	}
	life, err := owners.Life(t.Context(), info)
	require.NoError(t, err)
	assert.Equal(t, sweep.Alive, life)
	seen := []sweep.Life{life}
	eventually(t, 4*time.Minute, func() bool { // nobody beats
		life, err = owners.Life(t.Context(), info)
		require.NoError(t, err)
		if seen[len(seen)-1] != life {
			seen = append(seen, life)
		}
		return life == sweep.Dead
	}, func() string { return fmt.Sprint("he was seen ", seen) })
	assert.Equal(t, []sweep.Life{sweep.Alive, sweep.Unknown, sweep.Dead}, seen)
	require.NoError(t, w.p.Retire(t.Context()))
	require.NoError(t, w.p.Retire(t.Context()))
	assert.Error(t, w.c.Do(t.Context(), "GET", path, nil, nil))
}

// 500 sandboxes through one namespace, 100 at a time.
func TestFiveHundredSandboxesPassThroughOneNamespace(t *testing.T) {
	w := onPlain(t)
	m, err := sandbox.NewManager(w.p, sandbox.Config{Fleet: "tests", MaxLive: 100, CreateTimeout: 5 * time.Minute, CleanupTimeout: 5 * time.Minute})
	require.NoError(t, err)
	var wg sync.WaitGroup
	var done atomic.Int64
	start := time.Now()
	for range 500 {
		wg.Go(func() {
			err := m.WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error { return nil }, func(s *sandbox.Scope) { s.Spec = small() })
			if assert.NoError(t, err) {
				done.Add(1)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 500, done.Load())
	took, sent, writes := time.Since(start), w.way.sent.Load(), w.way.writes.Load()
	t.Logf("500 in %v, %d requests, of which %d were writes", took, sent, writes)
	assert.Less(t, writes, int64(500*6), "writes are bounded")
	assert.Less(t, sent, int64(500*30)+100*int64(took.Seconds()), "and so are looks: in the long run one a second for each that lives")
	assert.Empty(t, w.judge(t, "tests"))
	assert.Empty(t, w.reals(t, "pods"))
}

// What the server asks for is obeyed.
func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	m, err := sandbox.NewManager(w.p, sandbox.Config{Fleet: "tests"})
	require.NoError(t, err)
	var tries []time.Time // one after the other
	w.way.on(-1, jobs("POST"), func(r *http.Request, on onward) (*http.Response, error) {
		if tries = append(tries, time.Now()); len(tries) > 3 {
			return on(r)
		}
		return fails(429, "TooManyRequests", http.Header{"Retry-After": {"3"}})(r, on)
	})
	start, before := time.Now(), w.way.sent.Load()
	err = m.WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error { return nil }, func(s *sandbox.Scope) { s.Spec = small() })
	require.NoError(t, err)
	require.Len(t, tries, 4)
	for i := range tries[1:] {
		assert.GreaterOrEqual(t, tries[i+1].Sub(tries[i]), 3*time.Second)
	}
	assert.Less(t, w.way.sent.Load()-before, 60+int64(time.Since(start).Seconds()), "looks go on while others are slow")
}

// A server that lets hardly anything through slows a fleet down, and nothing is lost or left.
func TestARealServersTooManyRequestsOnlySlowAFleetDown(t *testing.T) {
	w := onPlain(t)
	const flow = "/apis/flowcontrol.apiserver.k8s.io/v1"
	require.NoError(t, w.c.Do(t.Context(), "POST", flow+"/prioritylevelconfigurations", object{
		"metadata": object{"name": w.ns}, "spec": object{"type": "Limited", "limited": object{
			"nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": object{"type": "Reject"},
		}},
	}, nil))
	require.NoError(t, w.c.Do(t.Context(), "POST", flow+"/flowschemas", object{
		"metadata": object{"name": w.ns}, "spec": object{
			"matchingPrecedence": 100, "priorityLevelConfiguration": object{"name": w.ns},
			"rules": []object{{
				"subjects":      []object{{"kind": "ServiceAccount", "serviceAccount": object{"namespace": w.ns, "name": "*"}}},
				"resourceRules": []object{{"verbs": []string{"*"}, "apiGroups": []string{"*"}, "resources": []string{"*"}, "namespaces": []string{"*"}}},
			}},
		},
	}, nil))
	t.Cleanup(func() {
		for _, kind := range []string{"/flowschemas/", "/prioritylevelconfigurations/"} {
			assert.NoError(t, w.c.Do(context.Background(), "DELETE", flow+kind+w.ns, nil, nil))
		}
	})
	m, err := sandbox.NewManager(w.p, sandbox.Config{Fleet: "tests", CreateTimeout: 5 * time.Minute, CleanupTimeout: 5 * time.Minute})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			assert.NoError(t, m.WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error { return nil }, func(s *sandbox.Scope) { s.Spec = small() }))
		})
	}
	wg.Wait()
	t.Logf("%d requests, of which %d were too many", w.way.sent.Load(), w.way.tooMany.Load())
	assert.Positive(t, w.way.tooMany.Load())
	assert.Empty(t, w.judge(t, "tests"))
}

// Owners are killed at random instants; afterwards neither the API server nor the container runtime has anything of
// theirs.
func TestCrashOwnersThatAreKilledLeaveNothing(t *testing.T) {
	if os.Getenv(crashVar) != "" {
		crashOwner()
	}
	w := onNode(t)
	all, atOnce := *crashN, 20
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	var begun, made atomic.Int64
	for i := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			cmd := exec.Command(os.Args[0], "-test.run=^TestCrashOwnersThatAreKilledLeaveNothing$")
			cfg, err := json.Marshal(crashConfig{w.c.URL(), w.c.CA(), w.ns, w.token})
			if !assert.NoError(t, err) {
				return
			}
			cmd.Env = append(os.Environ(), crashVar+"="+string(cfg))
			out, err := cmd.StdoutPipe()
			if !assert.NoError(t, err) || !assert.NoError(t, cmd.Start()) {
				return
			}
			word := []string{"ready", "running"}[i%2] // before the create, and with a sandbox
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), word) {
					if word == "running" {
						made.Add(1)
					}
					break
				}
			}
			time.Sleep(time.Duration(i) * 5 * time.Second / time.Duration(all)) // up to a beat or two
			begun.Add(1)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	wg.Wait()
	assert.EqualValues(t, all, begun.Load())
	start := time.Now()
	assert.Greater(t, made.Load(), int64(all/5), "owners were killed before they had made anything")
	running := func() (n int) {
		tasks, err := w.c.Tasks(w.ns)
		if err != nil { // the runtime's client gives up on a busy machine: ask again
			return -1
		}
		for _, task := range tasks {
			if task.Status == "RUNNING" { // of what has ended the kubelet keeps a record for some time
				n++
			}
		}
		return n
	}
	eventually(t, 5*time.Minute, func() bool {
		return running() == 0 && len(w.reals(t, "jobs")) == 0 && len(w.reals(t, "pods")) == 0
	}, func() string {
		return fmt.Sprintf("%d Jobs, %d pods, %d containers", len(w.reals(t, "jobs")), len(w.reals(t, "pods")), running())
	})
	t.Logf("killed %d, %d of them with a sandbox for certain; nothing is left %.1f s after the last kill", all, made.Load(), time.Since(start).Seconds())
}

var crashN = flag.Int("crash.n", 30, "how many owners TestCrash kills")

const crashVar = "SANDGLASS_TEST_OWNER"

type crashConfig struct {
	URL   string
	CA    []byte
	NS    string
	Token string
}

// crashOwner is a process that keeps one sandbox until it is killed.
func crashOwner() {
	var c crashConfig
	if err := json.Unmarshal([]byte(os.Getenv(crashVar)), &c); err != nil {
		os.Exit(3)
	}
	p, err := kubernetes.New(kubernetes.Config{
		BaseURL: c.URL, CA: c.CA, Namespace: c.NS, Image: kubecluster.Image, Name: "kube",
		Tokens: func(context.Context) (string, error) { return c.Token, nil },
	})
	if err != nil {
		os.Exit(4)
	}
	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "crash"})
	if err != nil {
		os.Exit(5)
	}
	fmt.Println("ready")
	_ = m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
		fmt.Println("running")
		_, _ = sb.Exec(ctx, sandbox.Shell("sleep 1000 & setsid sleep 1000 & wait"))
		<-ctx.Done()
		return nil
	}, func(s *sandbox.Scope) {
		s.Spec, s.Window, s.Beat, s.MaxLifetime = small(), 10*time.Second, 3*time.Second, time.Hour
	})
	os.Exit(6)
}
