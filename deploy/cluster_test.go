package deploy_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
)

// What the files are applied with in place of the registry's images.
const (
	commandImage = "sandglass.test/command:1"
	runnerImage  = "sandglass.test/runner:1"
)

// A ground is a cluster for all tests, with both programs as images on its node.
type ground struct {
	*kubecluster.Cluster
	runner string // the program
}

var shared struct {
	ground
	once sync.Once
	err  error
}

// programs is the folder of what the tests build, each once.
var programs = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "sandglass-deploy-") })

var (
	buildCommand = sync.OnceValues(func() (string, error) { return build("cmd/sandglass") })
	buildRunner  = sync.OnceValues(func() (string, error) { return build("examples/runner") })
)

// build compiles a program as the Dockerfile does, and returns its path.
func build(folder string) (string, error) {
	dir, err := programs()
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, filepath.Base(folder))
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s", "-o", program, ".")
	cmd.Dir = filepath.Join("..", filepath.FromSlash(folder))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", folder, err, out)
	}
	return program, nil
}

// sites is how many of the tests on the cluster run at once, on however few processors: they wait for clocks, mostly. More
// would be more pods than the node has room for.
const sites = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", sites); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	var errs []error
	if shared.Cluster != nil {
		errs = append(errs, shared.Close())
	}
	if dir, err := programs(); err == nil {
		errs = append(errs, os.RemoveAll(dir))
	}
	if code == 0 {
		errs = append(errs, goleak.Find())
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = cmp.Or(code, 1)
	}
	os.Exit(code)
}

// onCluster returns the cluster, which the first test that needs it starts. Without one the test is skipped.
func onCluster(t *testing.T) *ground {
	t.Helper()
	shared.once.Do(func() {
		began := time.Now()
		shared.err = shared.start()
		t.Logf("the cluster was ready after %v", time.Since(began).Round(time.Second))
	})
	if shared.err != nil {
		kubecluster.Skip(t, shared.err)
	}
	return &shared.ground
}

func (g *ground) start() (err error) {
	if g.Cluster, err = kubecluster.Start(context.Background(), kubecluster.Config{Node: true}); err != nil {
		return err
	}
	command, err := buildCommand()
	if err == nil {
		g.runner, err = buildRunner()
	}
	if err == nil {
		err = g.Import(commandImage, map[string]string{"program": command}, "/program")
	}
	if err == nil {
		err = g.Import(runnerImage, map[string]string{"program": g.runner}, "/program")
	}
	return err
}

type object = map[string]any

// documents reads all documents of a file, as it stands.
func documents(t testing.TB, name string) (docs []object) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var doc object
		require.NoError(t, yaml.UnmarshalStrict([]byte(part), &doc), name)
		docs = append(docs, doc)
	}
	return docs
}

// groups has the part of the API that each kind belongs to.
var groups = map[string]string{
	"ServiceAccount": "/api/v1", "Service": "/api/v1", "Pod": "/api/v1", "Deployment": "/apis/apps/v1", "CronJob": "/apis/batch/v1",
	"Job": "/apis/batch/v1", "Role": "/apis/rbac.authorization.k8s.io/v1", "RoleBinding": "/apis/rbac.authorization.k8s.io/v1",
	"NetworkPolicy": "/apis/networking.k8s.io/v1", "Lease": "/apis/coordination.k8s.io/v1", "EndpointSlice": "/apis/discovery.k8s.io/v1",
	"PodDisruptionBudget": "/apis/policy/v1",
}

// A site is a namespace that the files were applied to.
type site struct {
	*ground
	t     *testing.T
	ns    string
	fleet string
}

// path returns that of objects of a kind, or of one of them.
func (s *site) path(kind string, name ...string) string {
	s.t.Helper()
	require.Contains(s.t, groups, kind)
	plural := strings.ToLower(kind) + "s"
	if kind == "NetworkPolicy" {
		plural = "networkpolicies"
	}
	return strings.Join(append([]string{groups[kind] + "/namespaces/" + s.ns + "/" + plural}, name...), "/")
}

func (s *site) do(method, path string, body, into any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(s.t, s.Do(ctx, method, path, body, into))
}

// newSite returns a site beside which other tests run.
func newSite(t *testing.T, replace map[string]string, names ...string) *site {
	t.Helper()
	onCluster(t) // while no test waits for its turn
	t.Parallel()
	return newSiteAhead(t, replace, names...)
}

// newSiteAhead makes the namespace of namespace.yaml under a name of the test's own and applies files to it, strictly, as
// they stand but for images and fleet, and what the test replaces in arguments.
func newSiteAhead(t *testing.T, replace map[string]string, names ...string) *site {
	t.Helper()
	s := &site{ground: onCluster(t), t: t, fleet: "f" + strings.ToLower(rand.Text())[:8]}
	s.ns = "agents-" + s.fleet
	for _, doc := range documents(t, "kubernetes/namespace.yaml") {
		doc["metadata"].(object)["name"] = s.ns
		s.do("POST", "/api/v1/namespaces?fieldValidation=Strict", doc, nil)
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.dump()
		}
		s.do("DELETE", "/api/v1/namespaces/"+s.ns, nil, nil)
	})
	s.apply(replace, names...)
	return s
}

// with returns the site for a test below.
func (s *site) with(t *testing.T) *site { return &site{s.ground, t, s.ns, s.fleet} }

func (s *site) apply(replace map[string]string, names ...string) {
	s.t.Helper()
	text := strings.NewReplacer("registry.example.com/agent-runner:v0.1.0", runnerImage, "registry.example.com/sandglass:v0.1.0", commandImage,
		"busybox:1.37", kubecluster.Image, "change-me", s.fleet)
	used := map[string]bool{}
	for _, name := range names {
		for _, doc := range documents(s.t, "kubernetes/"+name+".yaml") {
			changed := edit(doc, func(word string) string {
				if to, ok := replace[word]; ok {
					used[word] = true
					return to
				}
				return text.Replace(word)
			}).(object)
			s.do("POST", s.path(doc["kind"].(string))+"?fieldValidation=Strict", changed, nil)
		}
	}
	for word := range replace {
		require.True(s.t, used[word], "%q stands in none of %v", word, names)
	}
}

// edit returns v with each string of it changed.
func edit(v any, change func(string) string) any {
	switch v := v.(type) {
	case string:
		return change(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = edit(v[i], change)
		}
		return list
	case object:
		m := object{}
		for k := range v {
			m[k] = edit(v[k], change)
		}
		return m
	}
	return v
}

// dump tells what a failed test's namespace looks like.
func (s *site) dump() {
	for _, kind := range []string{"Pod", "Job"} {
		var list struct{ Items []json.RawMessage }
		s.do("GET", s.path(kind), nil, &list)
		for _, item := range list.Items {
			var o struct {
				Metadata struct{ Name, CreationTimestamp, DeletionTimestamp string }
				Status   json.RawMessage
			}
			_ = json.Unmarshal(item, &o)
			s.t.Logf("%s %s created %s deleted %s: %s", kind, o.Metadata.Name, o.Metadata.CreationTimestamp, o.Metadata.DeletionTimestamp, o.Status)
			if kind == "Pod" && !strings.HasPrefix(o.Metadata.Name, "sandglass-") || strings.HasPrefix(o.Metadata.Name, "sandglass-sweep") {
				s.t.Log(s.log(o.Metadata.Name))
			}
		}
	}
	var events struct {
		Items []struct{ Reason, Message string }
	}
	s.do("GET", "/api/v1/namespaces/"+s.ns+"/events", nil, &events)
	for _, e := range events.Items {
		s.t.Log("event", e.Reason, e.Message)
	}
}

// log returns what a pod's container has written.
func (s *site) log(pod string) string {
	req, err := http.NewRequest("GET", s.URL()+"/api/v1/namespaces/"+s.ns+"/pods/"+pod+"/log", nil)
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer "+s.AdminToken())
	ca := x509.NewCertPool()
	ca.AppendCertsFromPEM(s.CA())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca}}}
	res, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return string(text)
}

// A pod is one, as far as these tests look.
type pod struct {
	Metadata struct {
		Name, UID         string
		Labels            map[string]string
		DeletionTimestamp string
	}
	Status struct {
		Phase, PodIP      string
		ContainerStatuses []struct {
			Ready        bool
			RestartCount int
			State        state
			LastState    state
		}
	}
}

type state struct {
	Running    *struct{ StartedAt time.Time }
	Terminated *struct {
		ExitCode int
		Signal   int
	}
}

func (p pod) ready() bool {
	return p.Metadata.DeletionTimestamp == "" && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready
}

func (p pod) restarts() int {
	if len(p.Status.ContainerStatuses) != 1 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// pods lists those that a label selector selects, oldest first as the API server has them.
func (s *site) pods(selector string) []pod {
	s.t.Helper()
	var list struct{ Items []pod }
	s.do("GET", s.path("Pod")+"?labelSelector="+url.QueryEscape(selector), nil, &list)
	return list.Items
}

func (s *site) pod(name string) pod {
	s.t.Helper()
	var p pod
	s.do("GET", s.path("Pod", name), nil, &p)
	return p
}

const (
	isRunner  = "app.kubernetes.io/name=agent-runner"
	isSandbox = "sandglass-nonce"
)

// runners returns the runner's pods once there are as many as the file asks for, all ready.
func (s *site) runners() []pod {
	s.t.Helper()
	var pods []pod
	s.eventually(3*time.Minute, "two runners are ready", func() bool {
		pods = s.pods(isRunner)
		return len(pods) == 2 && pods[0].ready() && pods[1].ready()
	})
	return pods
}

func (s *site) eventually(within time.Duration, what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(within); !done(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// sandboxes returns the uids of the sandboxes' pods that the API server lists under an owner: a pod's uid, or empty for all.
func (s *site) sandboxes(owner string) (uids []string) {
	s.t.Helper()
	selector := isSandbox
	if owner != "" {
		selector += ",sandglass-owner=" + owner
	}
	for _, p := range s.pods(selector) {
		if p.Status.Phase == "Running" {
			uids = append(uids, p.Metadata.UID)
		}
	}
	slices.Sort(uids)
	return uids
}

// gone reports whether nothing is left of an owner's sandboxes in the API server's lists, and of pods in the kernel's.
func (s *site) gone(owner string, uids []string) bool {
	s.t.Helper()
	selector := isSandbox
	if owner != "" {
		selector += ",sandglass-owner=" + owner
	}
	objects, err := s.Objects(s.t.Context(), s.ns, selector)
	require.NoError(s.t, err)
	return len(objects) == 0 && len(s.processes(uids...)) == 0
}

// processes lists what runs in pods, by the kernel's account, but for what holds their network.
func (s *site) processes(uids ...string) (list []kubecluster.Process) {
	s.t.Helper()
	all, err := s.Processes()
	require.NoError(s.t, err)
	for _, p := range all {
		if slices.ContainsFunc(uids, func(uid string) bool { return strings.Contains(p.Cgroup, uid) }) && !strings.Contains(p.Command, "2147483647") {
			list = append(list, p)
		}
	}
	return list
}

// signal sends one to the only process of a pod.
func (s *site) signal(uid string, signal os.Signal) {
	s.t.Helper()
	list := s.processes(uid)
	require.Len(s.t, list, 1)
	p, err := os.FindProcess(list[0].PID)
	require.NoError(s.t, err)
	require.NoError(s.t, p.Signal(signal))
}

// An answer is what the runner says of a task.
type answer struct {
	Sandbox               string
	ExitCode              int `json:"exit_code"`
	Stdout, Stderr, Error string
}

// task has a pod's runner run a script, and returns the answer with its status.
func (s *site) task(ctx context.Context, ip, script string) (int, answer, error) {
	return s.post(ctx, "http://"+ip+":8080/tasks", script)
}

func (s *site) post(ctx context.Context, to, script string) (int, answer, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", to, strings.NewReader(script))
	if err != nil {
		return 0, answer{}, err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: s.DialContext, DisableKeepAlives: true}}
	if strings.HasPrefix(to, "http://127.0.0.1:") {
		client.Transport = &http.Transport{DisableKeepAlives: true}
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, answer{}, err
	}
	defer res.Body.Close()
	var a answer
	text, err := io.ReadAll(res.Body)
	if err == nil {
		if err = json.NewDecoder(bytes.NewReader(text)).Decode(&a); err != nil {
			err = fmt.Errorf("%w: %s", err, text)
		}
	}
	return res.StatusCode, a, err
}

// occupy hands in tasks that would take all the time that there is, and returns their sandboxes when these run. What there was
// before may end meanwhile.
func (s *site) occupy(p pod, tasks int) (uids []string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	s.t.Cleanup(func() { cancel(); all.Wait() })
	before := s.sandboxes(p.Metadata.UID)
	for range tasks {
		all.Go(func() {
			code, a, err := s.task(ctx, p.Status.PodIP, "sleep 7200")
			s.t.Logf("a task of %s is over, after the test's own end: %t: %d %+v %v", p.Metadata.Name, ctx.Err() != nil, code, a, err)
		})
	}
	s.eventually(2*time.Minute, "the sandboxes run their tasks", func() bool {
		uids = slices.DeleteFunc(s.sandboxes(p.Metadata.UID), func(uid string) bool { return slices.Contains(before, uid) })
		n := 0
		for _, process := range s.processes(uids...) {
			if process.Command == "sleep 7200" {
				n++
			}
		}
		return len(uids) == tasks && n == tasks
	})
	return uids
}

// once runs a Job and returns the exit code of its pod, with what it has written.
func (s *site) once(job object) (code int, log string) {
	s.t.Helper()
	var made struct{ Metadata struct{ Name string } }
	s.do("POST", s.path("Job")+"?fieldValidation=Strict", job, &made)
	var p pod
	s.eventually(2*time.Minute, "the job's pod has ended", func() bool {
		pods := s.pods("job-name=" + made.Metadata.Name)
		if len(pods) != 1 || len(pods[0].Status.ContainerStatuses) != 1 {
			return false
		}
		p = pods[0]
		return p.Status.ContainerStatuses[0].State.Terminated != nil
	})
	return p.Status.ContainerStatuses[0].State.Terminated.ExitCode, s.log(p.Metadata.Name)
}

// command returns a Job that runs the command under an account, made of the CronJob's pod, which has all that is needed.
func (s *site) command(account string, args ...string) object {
	s.t.Helper()
	job := s.fromCronJob("command-" + strings.ToLower(rand.Text())[:8])
	spec := job["spec"].(object)["template"].(object)["spec"].(object)
	spec["serviceAccountName"] = account
	spec["containers"].([]any)[0].(object)["args"] = args
	return job
}

// fromCronJob returns a Job of the CronJob's template, as kubectl create job --from does.
func (s *site) fromCronJob(name string) object {
	s.t.Helper()
	var cron struct {
		Metadata struct{ Name, UID string }
		Spec     struct {
			JobTemplate struct {
				Metadata object
				Spec     object
			}
		}
	}
	s.do("GET", s.path("CronJob", "sandglass-cluster-sweep"), nil, &cron)
	return object{
		"apiVersion": "batch/v1", "kind": "Job", "spec": cron.Spec.JobTemplate.Spec,
		"metadata": object{
			"name": name, "labels": cron.Spec.JobTemplate.Metadata["labels"], "annotations": object{"cronjob.kubernetes.io/instantiate": "manual"},
			"ownerReferences": []object{{
				"apiVersion": "batch/v1", "kind": "CronJob", "name": cron.Metadata.Name, "uid": cron.Metadata.UID, "controller": true,
			}},
		},
	}
}

// bind gives a role to the service account of a token.
func (s *site) bind(user, role string) {
	s.t.Helper()
	s.do("POST", s.path("RoleBinding"), object{
		"metadata": object{"name": "bound-" + strings.ToLower(rand.Text())[:8]},
		"subjects": []object{{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}},
		"roleRef":  object{"kind": "Role", "name": role, "apiGroup": "rbac.authorization.k8s.io"},
	}, nil)
}

// token returns one of a service account.
func (s *site) token(account string) string {
	s.t.Helper()
	var answer struct{ Status struct{ Token string } }
	s.do("POST", s.path("ServiceAccount", account, "token"), object{"spec": object{"expirationSeconds": 3600}}, &answer)
	return answer.Status.Token
}

// kubeconfig writes one for a token.
func (s *site) kubeconfig(token string) (path string) {
	s.t.Helper()
	path = filepath.Join(s.t.TempDir(), "kube.json")
	require.NoError(s.t, os.WriteFile(path, s.Kubeconfig(token, s.ns), 0o600))
	return path
}

// kube returns a provider of the namespace, as an administrator.
func (s *site) kube() *kubernetes.Provider {
	s.t.Helper()
	p, err := kubernetes.New(kubernetes.Config{
		BaseURL: s.URL(), CA: s.CA(), Namespace: s.ns, Image: kubecluster.Image,
		Tokens: func(context.Context) (string, error) { return s.AdminToken(), nil },
	})
	require.NoError(s.t, err)
	s.t.Cleanup(p.CloseIdle)
	return p
}
