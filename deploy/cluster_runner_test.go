//go:build unix

package deploy_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestARunnerInTheClusterRunsTasksAndLeavesNothing(t *testing.T) {
	s := newSite(t, nil, "rbac", "networkpolicy", "runner", "sweeper", "cluster-sweep")
	runners := s.runners()
	var all sync.WaitGroup
	for _, p := range runners {
		for _, tt := range []struct {
			script string
			want   answer
		}{
			{"echo hello; id -u; id -g", answer{Stdout: "hello\n65532\n65532\n"}},
			{"echo oops >&2; exit 3", answer{ExitCode: 3, Stderr: "oops\n"}},
			{"test ! -e /var/run/secrets && echo no token", answer{Stdout: "no token\n"}},
		} {
			all.Go(func() {
				code, a, err := s.task(t.Context(), p.Status.PodIP, tt.script)
				if assert.NoError(t, err) {
					assert.Equal(t, 200, code)
					assert.NotEmpty(t, a.Sandbox)
					a.Sandbox = ""
					assert.Equal(t, tt.want, a)
				}
			})
		}
	}
	all.Wait()
	objects, err := s.Objects(t.Context(), s.ns, isSandbox)
	require.NoError(t, err)
	assert.Empty(t, objects, "each is gone when its task is answered")

	t.Run("and whoever leaves takes his sandbox with him", func(t *testing.T) {
		s := s.with(t)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		left := make(chan error, 1)
		go func() { _, _, err := s.task(ctx, runners[0].Status.PodIP, "sleep 600"); left <- err }()
		s.eventually(90*time.Second, "the task runs", func() bool { return len(s.sandboxes(runners[0].Metadata.UID)) == 1 })
		uids := s.sandboxes("")
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		s.eventually(90*time.Second, "nothing is left", func() bool { return s.gone("", uids) })
	})
	t.Run("and its service knows those that are ready", func(t *testing.T) {
		s := s.with(t)
		want := []string{runners[0].Status.PodIP, runners[1].Status.PodIP}
		slices.Sort(want)
		s.eventually(90*time.Second, "the service has both runners", func() bool {
			var list struct {
				Items []struct {
					Endpoints []struct {
						Addresses  []string
						Conditions struct{ Ready bool }
					}
				}
			}
			s.do("GET", s.path("EndpointSlice")+"?labelSelector="+url.QueryEscape("kubernetes.io/service-name=agent-runner"), nil, &list)
			var got []string
			for _, slice := range list.Items {
				for _, e := range slice.Endpoints {
					if e.Conditions.Ready {
						got = append(got, e.Addresses...)
					}
				}
			}
			slices.Sort(got)
			return slices.Equal(want, got)
		})
	})
	t.Run("and the policies select exactly what they mean to", func(t *testing.T) { s.with(t).policies(t, runners[0]) })
	t.Run("and a rollout leaves nothing, and no gap", func(t *testing.T) { s.with(t).rollout(t, runners) })
	t.Run("and a drain takes one runner at a time, with its sandboxes", func(t *testing.T) { s.with(t).drain(t) })
}

// policies compares what each NetworkPolicy selects, by the API server's own lists, with what it is for.
func (s *site) policies(t *testing.T, runner pod) {
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer leave()
	uids := func(selector string) (uids []string) {
		for _, p := range s.pods(selector) {
			uids = append(uids, p.Metadata.UID)
		}
		slices.Sort(uids)
		return uids
	}
	for _, query := range []string{"", "?offline"} {
		all.Go(func() { _, _, _ = s.post(ctx, "http://"+runner.Status.PodIP+":8080/tasks"+query, "sleep 600") })
	}
	s.eventually(2*time.Minute, "one sandbox with and one without a way out", func() bool { return len(s.sandboxes("")) == 2 })
	boxes, offline, runners := s.sandboxes(""), uids("agent-runner/network=none"), uids(isRunner)
	require.Len(t, offline, 1)
	require.Subset(t, boxes, offline)
	online := slices.DeleteFunc(slices.Clone(boxes), func(uid string) bool { return uid == offline[0] })

	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				PodSelector selector
				PolicyTypes []string
				Ingress     []struct {
					From []struct{ PodSelector selector }
				}
				Egress []object
			}
		}
	}
	s.do("GET", s.path("NetworkPolicy"), nil, &list)
	selected := map[string][]string{}
	for _, p := range list.Items {
		selected[p.Metadata.Name] = uids(p.Spec.PodSelector.String())
		switch p.Metadata.Name {
		case "sandbox-ingress":
			assert.Equal(t, []string{"Ingress"}, p.Spec.PolicyTypes)
			require.Len(t, p.Spec.Ingress, 1)
			require.Len(t, p.Spec.Ingress[0].From, 1)
			assert.Equal(t, runners, uids(p.Spec.Ingress[0].From[0].PodSelector.String()), "who may come in")
		case "agent-runner":
			assert.Equal(t, []string{"Ingress"}, p.Spec.PolicyTypes)
			assert.Empty(t, uids(p.Spec.Ingress[0].From[0].PodSelector.String()), "nobody, until somebody bears the label")
		case "sandbox-egress":
			assert.Equal(t, []string{"Egress"}, p.Spec.PolicyTypes)
			assert.Len(t, p.Spec.Egress, 2)
		case "sandbox-offline":
			assert.Equal(t, []string{"Egress"}, p.Spec.PolicyTypes)
			assert.Empty(t, p.Spec.Egress)
		}
	}
	assert.Equal(t, map[string][]string{
		"sandbox-ingress": boxes, "sandbox-egress": online, "sandbox-offline": offline, "agent-runner": runners,
	}, selected)
	others := len(s.pods("")) - len(boxes) - len(runners)
	assert.GreaterOrEqual(t, others, 1, "the sweeper is there, and in none of them")

	leave()
	all.Wait()
	s.eventually(2*time.Minute, "nothing is left", func() bool { return s.gone("", boxes) })
}

// A selector is a label selector.
type selector struct {
	MatchLabels      map[string]string
	MatchExpressions []struct {
		Key, Operator string
		Values        []string
	}
}

// String returns it as a list request takes it.
func (s selector) String() string {
	var parts []string
	for k, v := range s.MatchLabels {
		parts = append(parts, k+"="+v)
	}
	for _, e := range s.MatchExpressions {
		switch e.Operator {
		case "Exists":
			parts = append(parts, e.Key)
		case "NotIn":
			parts = append(parts, e.Key+" notin ("+strings.Join(e.Values, ",")+")")
		default:
			parts = append(parts, e.Operator+" is not known here")
		}
	}
	return strings.Join(parts, ",")
}

// rollout restarts the Deployment as kubectl does, with tasks under way.
func (s *site) rollout(t *testing.T, old []pod) {
	codes := make(chan int, len(old))
	for _, p := range old {
		go func() {
			code, _, err := s.task(t.Context(), p.Status.PodIP, "sleep 600")
			assert.NoError(t, err)
			codes <- code
		}()
	}
	var uids []string
	s.eventually(2*time.Minute, "both run a task", func() bool { uids = s.sandboxes(""); return len(uids) == 2 })
	annotations := object{"kubectl.kubernetes.io/restartedAt": time.Now().Format(time.RFC3339)}
	s.do("PATCH", s.path("Deployment", "agent-runner"), object{"spec": object{"template": object{"metadata": object{"annotations": annotations}}}}, nil)
	fewest := 2
	s.eventually(3*time.Minute, "two others are ready, and the old ones are gone", func() bool {
		ready, others := 0, 0
		pods := s.pods(isRunner)
		for _, p := range pods {
			if p.ready() {
				ready++
			}
			if p.Metadata.UID != old[0].Metadata.UID && p.Metadata.UID != old[1].Metadata.UID {
				others++
			}
		}
		fewest = min(fewest, ready)
		return len(pods) == 2 && others == 2 && ready == 2
	})
	assert.Equal(t, 2, fewest, "runners that were ready at any time")
	for range old {
		assert.Equal(t, 503, <-codes, "a task that was ended is answered")
	}
	assert.True(t, s.gone("", uids), "nothing is left")
}

// drain has both runners evicted, as kubectl does before somebody takes their node away.
func (s *site) drain(t *testing.T) {
	old := s.runners()
	evict := func(p pod) int {
		err := s.Do(t.Context(), "POST", s.path("Pod", p.Metadata.Name, "eviction"), object{
			"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": p.Metadata.Name},
		}, nil)
		if failure, ok := errors.AsType[*kubecluster.StatusError](err); ok {
			return failure.Code
		}
		require.NoError(t, err)
		return http.StatusCreated
	}
	s.eventually(2*time.Minute, "one may go", func() bool {
		var budget struct {
			Status struct{ DisruptionsAllowed int }
		}
		s.do("GET", s.path("PodDisruptionBudget", "agent-runner"), nil, &budget)
		return budget.Status.DisruptionsAllowed == 1
	})
	uids := s.occupy(old[0], 1)
	assert.Equal(t, http.StatusCreated, evict(old[0]))
	if code := evict(old[1]); code != http.StatusCreated { // else there was another, before anybody could ask
		assert.Equal(t, http.StatusTooManyRequests, code, "until there is another")
		s.eventually(3*time.Minute, "the other one may go as well", func() bool { return evict(old[1]) == http.StatusCreated })
	}
	assert.True(t, slices.ContainsFunc(s.pods(isRunner), func(p pod) bool {
		return p.ready() && p.Metadata.UID != old[0].Metadata.UID && p.Metadata.UID != old[1].Metadata.UID
	}), "the one that has come meanwhile")
	s.eventually(2*time.Minute, "its sandboxes are gone", func() bool { return s.gone(old[0].Metadata.UID, uids) })
}

func TestSandboxesOfADeletedRunnerGoWithItAndASiblingsStay(t *testing.T) {
	s := newSite(t, map[string]string{"--window=1m": "--window=5m"}, "rbac", "runner") // a lease that a busy node does not outlast
	runners := s.runners()
	doomed, sibling := runners[0], runners[1]
	const n = 3
	uids, others := s.occupy(doomed, n), s.occupy(sibling, n)

	// It cannot tidy up itself: it is stopped, and killed before it could go on.
	s.signal(doomed.Metadata.UID, syscall.SIGSTOP)
	lease := slices.MinFunc(s.deadlines(doomed.Metadata.UID), time.Time.Compare)
	deleted := time.Now()
	s.do("DELETE", s.path("Pod", doomed.Metadata.Name), object{"gracePeriodSeconds": 1}, nil)
	s.eventually(3*time.Minute, "all of its sandboxes are gone", func() bool { return s.gone(doomed.Metadata.UID, uids) })
	t.Logf("%d sandboxes were gone %v after their runner's delete", n, time.Since(deleted).Round(100*time.Millisecond))
	assert.Positive(t, time.Until(lease), "before the first of their leases ended")
	assert.Equal(t, others, s.sandboxes(sibling.Metadata.UID))
	for _, uid := range others {
		assert.NotEmpty(t, s.processes(uid))
	}
}

func TestWhatAProcessLeavesItsLeaseEnds(t *testing.T) {
	const window = 2 * time.Minute // of which two thirds are left at any time: longer than a busy kubelet takes
	s := newSite(t, map[string]string{"--window=1m": "--window=" + window.String()}, "rbac", "runner")
	runners := s.runners()
	for i, tt := range []struct {
		name     string
		signal   os.Signal
		restarts time.Duration // at most until there is a new one
	}{
		{"killed, it begins anew in the same pod", syscall.SIGKILL, 45 * time.Second},
		{"hanging, it is found out by its probe", syscall.SIGSTOP, 90 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := runners[i]
			s := s.with(t)
			uids := s.occupy(p, 2)
			s.signal(p.Metadata.UID, tt.signal)
			began := time.Now()
			s.eventually(tt.restarts, "the kubelet has started it again", func() bool { return s.pod(p.Metadata.Name).restarts() == 1 })
			t.Logf("it was started again after %v", time.Since(began).Round(100*time.Millisecond))
			assert.Equal(t, p.Metadata.UID, s.pod(p.Metadata.Name).Metadata.UID)
			if tt.signal == syscall.SIGKILL {
				assert.Equal(t, uids, s.sandboxes(p.Metadata.UID), "the pod lives, and so no reference ends them")
			}
			s.eventually(window+90*time.Second-time.Since(began), "the window is over, and they are gone", func() bool { return s.gone(p.Metadata.UID, uids) })
			t.Logf("its sandboxes were gone after %v", time.Since(began).Round(100*time.Millisecond))
			s.eventually(90*time.Second, "the new process serves", func() bool {
				code, a, err := s.task(t.Context(), p.Status.PodIP, "echo again")
				return err == nil && code == 200 && a.Stdout == "again\n"
			})
		})
	}
}

func TestASweeperEndsWhatARestartedProcessHasLeftBeforeItsLeaseDoes(t *testing.T) {
	s := newSiteAhead(t, map[string]string{"--window=1m": "--window=20m", "--limit=10m": "--limit=1h"}, "rbac", "runner", "sweeper")
	runners := s.runners()
	killed, sibling := runners[0], runners[1]
	uids, others := s.occupy(killed, 1), s.occupy(sibling, 1)
	made := time.Now()
	t.Parallel()                                       // from here on it waits for clocks
	time.Sleep(time.Until(made.Add(62 * time.Second))) // a container that began within the first minute may be the one that made them

	leases := s.deadlines(killed.Metadata.UID)
	require.Len(t, leases, 1)
	s.signal(killed.Metadata.UID, syscall.SIGKILL)
	began := time.Now()
	s.eventually(90*time.Second, "it runs again", func() bool { p := s.pod(killed.Metadata.Name); return p.restarts() == 1 && p.ready() })
	alive := s.occupy(s.pod(killed.Metadata.Name), 1)
	s.eventually(150*time.Second, "what the killed process left is gone", func() bool {
		return len(s.processes(uids...)) == 0 && !slices.Contains(s.sandboxes(killed.Metadata.UID), uids[0])
	})
	t.Logf("gone %v after the kill, %v before the lease's end", time.Since(began).Round(time.Second), time.Until(leases[0]).Round(time.Second))
	assert.Greater(t, time.Until(leases[0]), 5*time.Minute, "of the lease")
	time.Sleep(20 * time.Second) // one pass more
	assert.Equal(t, alive, s.sandboxes(killed.Metadata.UID), "the new process's stays")
	assert.Equal(t, others, s.sandboxes(sibling.Metadata.UID), "and so does a sibling's")
	sweepers := s.pods("app.kubernetes.io/component=sweeper")
	require.Len(t, sweepers, 1)
	assert.Regexp(t, `deleted +sandglass-\S+ +running.*its owner is dead, and its lease would run for another`, s.log(sweepers[0].Metadata.Name))
	assert.Zero(t, sweepers[0].restarts())
}

// deadlines returns when the leases of an owner's sandboxes end, as the cluster's own controller counts.
func (s *site) deadlines(owner string) (ends []time.Time) {
	s.t.Helper()
	var list struct {
		Items []struct {
			Spec   struct{ ActiveDeadlineSeconds int64 }
			Status struct{ StartTime time.Time }
		}
	}
	s.do("GET", s.path("Job")+"?labelSelector="+url.QueryEscape("sandglass-owner="+owner), nil, &list)
	for _, j := range list.Items {
		ends = append(ends, j.Status.StartTime.Add(time.Duration(j.Spec.ActiveDeadlineSeconds)*time.Second))
	}
	return ends
}

func TestTheExitCodeOfARunnerSaysWhetherSomethingIsLeft(t *testing.T) {
	const window = 3 * time.Minute // of which enough is left when the grace is over
	s := newSite(t, map[string]string{"--window=1m": "--window=" + window.String()}, "rbac", "runner")
	runners := s.runners()
	exit := func(p pod) int {
		s.signal(p.Metadata.UID, syscall.SIGTERM)
		code := -1
		s.eventually(3*time.Minute, "its process has ended", func() bool {
			p = s.pod(p.Metadata.Name)
			for _, c := range p.Status.ContainerStatuses {
				if c.LastState.Terminated != nil {
					code = c.LastState.Terminated.ExitCode
				}
			}
			return code >= 0
		})
		return code
	}
	uids := s.occupy(runners[0], 2)
	assert.Equal(t, 0, exit(runners[0]))
	assert.True(t, s.gone(runners[0].Metadata.UID, uids), "all is gone by then")

	uids = s.occupy(runners[1], 1)
	var role struct{ Rules []object }
	s.do("GET", s.path("Role", "agent-runner"), nil, &role)
	for _, rule := range role.Rules {
		rule["verbs"] = slices.DeleteFunc(rule["verbs"].([]any), func(verb any) bool { return verb == "delete" })
	}
	s.do("PATCH", s.path("Role", "agent-runner"), object{"rules": role.Rules}, nil)
	s.eventually(time.Minute, "it counts", func() bool {
		return !s.may("agent-runner", "delete", "batch", "jobs", "") && !s.may("agent-runner", "delete", "", "pods", "")
	})
	assert.Equal(t, 1, exit(runners[1]), "without the right to delete")
	s.eventually(window+90*time.Second, "its lease ends what it left", func() bool { return s.gone(runners[1].Metadata.UID, uids) })
}

func TestARunnerOutsideOfTheClusterKeepsALease(t *testing.T) {
	s := newSite(t, nil, "rbac")
	s.do("POST", s.path("ServiceAccount"), object{"metadata": object{"name": "ci"}}, nil)
	s.bind("system:serviceaccount:"+s.ns+":ci", "agent-runner-outside")
	kubeconfig := s.kubeconfig(s.token("ci"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.runner, "-fleet", s.fleet, "-listen", "127.0.0.1:0", "-image", "sandglass.test/busybox:1", "-window", "1m")
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var errs strings.Builder
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	text := make([]byte, 200)
	n, err := out.Read(text)
	require.NoError(t, err, &errs)
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(text[:n]))
	require.NotEmpty(t, address, "%s", text[:n])

	code, a, err := s.post(ctx, "http://"+address+"/tasks", "echo from outside")
	require.NoError(t, err)
	assert.Equal(t, 200, code, a.Error)
	assert.Equal(t, "from outside\n", a.Stdout)
	leases := func() int {
		var list struct{ Items []object }
		s.do("GET", s.path("Lease"), nil, &list)
		return len(list.Items)
	}
	assert.Equal(t, 1, leases())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, cmd.Wait(), &errs)
	assert.Zero(t, leases(), "who retires leaves no record")
	assert.True(t, s.gone("", nil))
}

func TestDefaultPodsPassBaselineAndNotRestricted(t *testing.T) {
	s := newSite(t, nil)
	try := func(ready time.Duration) error {
		m, err := sandbox.NewManager(s.kube(), sandbox.Config{
			Fleet: s.fleet, ReadyTimeout: ready, Scope: sandbox.Scope{Window: time.Minute, MaxLifetime: 5 * time.Minute},
		})
		require.NoError(t, err)
		return m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			_, err := sb.Exec(ctx, sandbox.Shell("true"))
			return err
		})
	}
	err := try(10 * time.Second) // there will be no pod, however long it waits
	require.ErrorIs(t, err, sandbox.ErrNotStarted)
	s.do("PATCH", "/api/v1/namespaces/"+s.ns, object{"metadata": object{"labels": object{"pod-security.kubernetes.io/enforce": "baseline"}}}, nil)
	require.NoError(t, try(2*time.Minute))
}
