package deploy_test

import (
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// stray makes a Job with a mark, as the provider does but without the hard end that a node keeps, which somebody has taken
// away, and returns its name once its pod runs.
func (s *site) stray(fleet string, lifetime time.Duration, tags string) (name string) {
	s.t.Helper()
	mark := sandbox.Mark{
		Fleet: fleet, Owner: "nobody.1", Nonce: strings.ToLower(rand.Text())[:16], Created: time.Now().Truncate(time.Second), Lifetime: lifetime,
	}
	meta := func() object {
		m := object{
			"labels": object{
				"app.kubernetes.io/managed-by": "sandglass", sandbox.FleetKey: fleet, sandbox.NonceKey: mark.Nonce,
			},
			"annotations": object{sandbox.MarkKey: mark.String()},
		}
		if tags != "" {
			m["annotations"].(object)["sandglass-tags"] = tags
		}
		return m
	}
	job := object{"metadata": meta(), "spec": object{
		"activeDeadlineSeconds": 3600, "backoffLimit": 0, "ttlSecondsAfterFinished": 0,
		"template": object{"metadata": meta(), "spec": object{
			"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "automountServiceAccountToken": false,
			"securityContext": object{"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": object{"type": "RuntimeDefault"}},
			"containers": []object{{
				"name": "sandbox", "image": kubecluster.Image, "command": []string{"sleep", "3600"},
				"securityContext": object{"allowPrivilegeEscalation": false, "capabilities": object{"drop": []string{"ALL"}}},
				"resources":       object{"requests": object{"cpu": "10m"}},
			}},
		}},
	}}
	job["metadata"].(object)["name"] = mark.Name()
	s.do("POST", s.path("Job")+"?fieldValidation=Strict", job, nil)
	s.eventually(2*time.Minute, "its pod runs", func() bool { return len(s.podsOf(mark.Name(), "Running")) == 1 })
	return mark.Name()
}

// podsOf returns the uids of a Job's pods in a phase, whether the Job is there or not.
func (s *site) podsOf(job, phase string) (uids []string) {
	s.t.Helper()
	for _, p := range s.pods("job-name=" + job) {
		if p.Status.Phase == phase {
			uids = append(uids, p.Metadata.UID)
		}
	}
	return uids
}

func TestAPassOfTheCronJobEndsWhatIsPastItsEndAndSparesTheRest(t *testing.T) {
	s := newSite(t, map[string]string{
		"--max-deletes": "--grace=1s", "100": "--max-deletes=100", // else nothing is deleted for 5 min after its hard end
		"4,19,34,49 * * * *": "0 0 29 2 *", // else the cluster may be quicker with a pass of its own
	}, "rbac", "runner", "cluster-sweep")
	orphaned := s.stray(s.fleet, time.Second, "")
	suspended := s.stray(s.fleet, time.Second, "")
	living := []string{
		s.stray(s.fleet, time.Hour, ""),                   // not past its end
		s.stray(s.fleet+"-2", time.Second, ""),            // of another fleet
		s.stray(s.fleet, time.Second, `{"keep": "true"}`), // protected
	}
	uid := s.podsOf(orphaned, "Running")
	s.do("DELETE", s.path("Job", orphaned), object{"propagationPolicy": "Orphan"}, nil)
	s.do("PATCH", s.path("Job", suspended), object{"spec": object{"suspend": true}}, nil)
	s.eventually(90*time.Second, "the Job is gone and its pod is not, and the other has no pod and no end", func() bool {
		return s.status(s.path("Job", orphaned)) == 404 && len(s.processes(uid...)) == 1 && len(s.pods("job-name="+suspended)) == 0
	})
	runners := s.runners()
	living2 := s.occupy(runners[0], 1)

	code, said := s.once(s.fromCronJob("now"))
	assert.Equal(t, 0, code, said)
	t.Log(said)
	assert.Empty(t, s.pods("job-name="+orphaned))
	assert.Empty(t, s.processes(uid...))
	assert.Equal(t, 404, s.status(s.path("Job", suspended)))
	for _, name := range living {
		assert.Equal(t, 200, s.status(s.path("Job", name)))
		assert.Len(t, s.podsOf(name, "Running"), 1)
	}
	assert.Equal(t, living2, s.sandboxes(runners[0].Metadata.UID))
	assert.Regexp(t, `(?m)^deleted +`+orphaned, said)
	assert.Regexp(t, `(?m)^deleted +`+suspended, said)
	for _, p := range runners {
		assert.Zero(t, s.pod(p.Metadata.Name).restarts())
	}

	t.Run("and under too few rights it fails, and says so", func(t *testing.T) {
		s := s.with(t)
		s.do("DELETE", s.path("RoleBinding", "sandglass-sweep"), nil, nil)
		s.eventually(time.Minute, "it counts", func() bool { return !s.may("sandglass-sweep", "list", "batch", "jobs", "") })
		code, said := s.once(s.fromCronJob("blind"))
		assert.Equal(t, 1, code, said)
		assert.Contains(t, said, "jobs.batch is forbidden")
		t.Log(said)
	})
}

// status returns that of a GET, as an administrator.
func (s *site) status(path string) int {
	err := s.Do(s.t.Context(), "GET", path, nil, nil)
	if failure, ok := errors.AsType[*kubecluster.StatusError](err); ok {
		return failure.Code
	}
	require.NoError(s.t, err)
	return http.StatusOK
}

// may asks the API server whether an account may do something in its namespace.
func (s *site) may(account, verb, group, resource, subresource string) bool {
	s.t.Helper()
	return s.mayIn(s.ns, account, verb, group, resource, subresource)
}

func (s *site) mayIn(namespace, account, verb, group, resource, subresource string) bool {
	s.t.Helper()
	var answer struct{ Status struct{ Allowed bool } }
	s.do("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", object{"spec": object{
		"user": "system:serviceaccount:" + s.ns + ":" + account, "groups": []string{"system:serviceaccounts", "system:authenticated"},
		"resourceAttributes": object{"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": subresource},
	}}, &answer)
	return answer.Status.Allowed
}

func TestEachAccountMayExactlyWhatItNeeds(t *testing.T) {
	s := newSite(t, nil, "rbac", "cluster-sweep")
	want := map[string][]string{
		"agent-runner": {
			"create jobs.batch", "get jobs.batch", "list jobs.batch", "patch jobs.batch", "delete jobs.batch",
			"get pods", "list pods", "delete pods", "get pods/exec", "create pods/exec",
		},
		"sandglass-sweep": {
			"get jobs.batch", "list jobs.batch", "delete jobs.batch", "get pods", "list pods", "delete pods", "get leases.coordination.k8s.io",
		},
		"default": nil,
	}
	for account, wanted := range want {
		var got []string
		for _, resource := range []string{
			"jobs.batch", "cronjobs.batch", "pods", "pods/exec", "pods/log", "pods/attach", "pods/portforward", "pods/ephemeralcontainers",
			"pods/eviction", "secrets", "configmaps", "serviceaccounts", "serviceaccounts/token", "leases.coordination.k8s.io", "deployments.apps",
			"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "networkpolicies.networking.k8s.io", "namespaces", "nodes",
		} {
			full, group, _ := strings.Cut(resource, ".")
			name, sub, _ := strings.Cut(full, "/")
			for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
				if s.may(account, verb, group, name, sub) {
					got = append(got, verb+" "+resource)
				}
			}
		}
		assert.ElementsMatch(t, wanted, got, account)
		for _, verb := range []string{"get", "list", "create", "delete"} {
			for _, resource := range []string{"pods", "secrets"} {
				assert.False(t, s.mayIn("kube-system", account, verb, "", resource, ""), "%s: %s %s elsewhere", account, verb, resource)
			}
		}
	}

	t.Run("which the command says as well, in the cluster", func(t *testing.T) {
		s := s.with(t)
		code, said := s.once(s.command("agent-runner", "doctor", "--provider", "kubernetes"))
		assert.Equal(t, 0, code, said)
		assert.Regexp(t, `key accepted +yes\n +may delete +yes`, said)
		code, said = s.once(s.command("sandglass-sweep", "doctor", "--provider", "kubernetes"))
		assert.Equal(t, 1, code, said)
		assert.Regexp(t, `key accepted +yes\n +may delete +yes`, said)
		assert.Contains(t, said, "these rights are missing: create jobs.batch, patch jobs.batch, get pods/exec, create pods/exec;")
		code, said = s.once(s.command("default", "doctor", "--provider", "kubernetes"))
		assert.Equal(t, 1, code, said)
		assert.Regexp(t, `may delete +no\n`, said)
		assert.Contains(t, said, "apply -f deploy/kubernetes/rbac.yaml")
	})
}

func TestTheWordsOfTheCommandAreThoseOfTheFiles(t *testing.T) {
	var accounts []string
	for _, doc := range documents(t, "kubernetes/rbac.yaml") {
		if doc["kind"] == "ServiceAccount" || doc["kind"] == "Role" {
			accounts = append(accounts, doc["metadata"].(object)["name"].(string))
		}
	}
	for _, name := range []string{"agent-runner", "agent-runner-outside", "sandglass-sweep"} { // see clusterHint
		assert.True(t, slices.Contains(accounts, name), name)
	}
}
