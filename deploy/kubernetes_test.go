package deploy_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// decode reads a document strictly: a field that Kubernetes does not know, or that stands there twice, fails.
func decode[T any](t *testing.T, doc object) *T {
	t.Helper()
	text, err := yaml.Marshal(doc)
	require.NoError(t, err)
	into := new(T)
	require.NoError(t, yaml.UnmarshalStrict(text, into))
	return into
}

func cronJob(t *testing.T, name string) *batchv1.CronJob {
	t.Helper()
	return decode[batchv1.CronJob](t, documents(t, "kubernetes/"+name+".yaml")[0])
}

func deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	return decode[appsv1.Deployment](t, documents(t, "kubernetes/"+name+".yaml")[0])
}

// podSpecs returns all pods that the files ask for, by file.
func podSpecs(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	return map[string]corev1.PodSpec{
		"cronjob":       cronJob(t, "cronjob").Spec.JobTemplate.Spec.Template.Spec,
		"cluster-sweep": cronJob(t, "cluster-sweep").Spec.JobTemplate.Spec.Template.Spec,
		"sweeper":       deployment(t, "sweeper").Spec.Template.Spec,
		"runner":        deployment(t, "runner").Spec.Template.Spec,
	}
}

func TestEveryDocumentIsOneOfKubernetesOwn(t *testing.T) {
	names, err := filepath.Glob("kubernetes/*.yaml")
	require.NoError(t, err)
	n := 0
	for _, name := range names {
		for _, doc := range documents(t, name) {
			n++
			switch kind := doc["apiVersion"].(string) + " " + doc["kind"].(string); kind {
			case "v1 Namespace":
				decode[corev1.Namespace](t, doc)
				continue // the others have none, so that they go wherever they are applied to
			case "v1 ServiceAccount":
				decode[corev1.ServiceAccount](t, doc)
			case "v1 Service":
				decode[corev1.Service](t, doc)
			case "rbac.authorization.k8s.io/v1 Role":
				decode[rbacv1.Role](t, doc)
			case "rbac.authorization.k8s.io/v1 RoleBinding":
				decode[rbacv1.RoleBinding](t, doc)
			case "apps/v1 Deployment":
				decode[appsv1.Deployment](t, doc)
			case "batch/v1 CronJob":
				decode[batchv1.CronJob](t, doc)
			case "policy/v1 PodDisruptionBudget":
				decode[policyv1.PodDisruptionBudget](t, doc)
			case "networking.k8s.io/v1 NetworkPolicy":
				decode[networkingv1.NetworkPolicy](t, doc)
			default:
				t.Errorf("%s: %s is none that is looked at here", name, kind)
			}
			assert.NotContains(t, doc["metadata"], "namespace", name)
		}
	}
	assert.Greater(t, n, 15)
}

func TestTheCronJobsAreSafe(t *testing.T) {
	for _, name := range []string{"cronjob", "cluster-sweep"} {
		job := cronJob(t, name)
		every := interval(t, job.Spec.Schedule)
		assert.Equal(t, 15*time.Minute, every)
		assert.Equal(t, batchv1.ForbidConcurrent, job.Spec.ConcurrencyPolicy)
		run := job.Spec.JobTemplate.Spec
		assert.Less(t, time.Duration(*run.ActiveDeadlineSeconds)*time.Second, every, "a pass is over before the next one")
		assert.Zero(t, *run.BackoffLimit)
		assert.Equal(t, corev1.RestartPolicyNever, run.Template.Spec.RestartPolicy)
	}
	pod := podSpecs(t)["cronjob"]
	assert.False(t, *pod.AutomountServiceAccountToken)
	for _, e := range pod.Containers[0].Env {
		if e.Name == "E2B_API_KEY" {
			assert.Empty(t, e.Value)
			assert.Equal(t, "sandglass-keys", e.ValueFrom.SecretKeyRef.Name)
		}
	}
}

func TestEveryPodIsSafe(t *testing.T) {
	for name, pod := range podSpecs(t) {
		assert.True(t, *pod.SecurityContext.RunAsNonRoot, name)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type, name)
		assert.False(t, *pod.EnableServiceLinks, name)
		require.Len(t, pod.Containers, 1, name)
		c := pod.Containers[0]
		assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
		assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
		assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
		assert.False(t, c.Resources.Limits.Memory().IsZero(), name)
		assert.False(t, c.Resources.Requests.Cpu().IsZero(), name)
		assert.Contains(t, strings.Join(c.Args, " "), "change-me", "as it stands %s is for no fleet of anybody", name)
	}
}

func TestTheRunnersTimesFitIntoEachOther(t *testing.T) {
	pod := podSpecs(t)["runner"]
	c := pod.Containers[0]
	at := slices.IndexFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--grace=") })
	require.GreaterOrEqual(t, at, 0)
	grace, err := time.ParseDuration(strings.TrimPrefix(c.Args[at], "--grace="))
	require.NoError(t, err)
	assert.Greater(t, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second, grace+5*time.Second, "and what tasks still answer")
	assert.Less(t, *c.LivenessProbe.TerminationGracePeriodSeconds, int64(15), "a process that hangs is not waited for")
	assert.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path)
	assert.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path, "which fails in a shutdown, and must not have it killed")
}

func TestRunnersDoNotGoWithOneNodeWhereThereAreOthers(t *testing.T) {
	runner := deployment(t, "runner")
	spread := runner.Spec.Template.Spec.TopologySpreadConstraints
	require.Len(t, spread, 1)
	assert.Equal(t, "kubernetes.io/hostname", spread[0].TopologyKey)
	assert.Equal(t, corev1.ScheduleAnyway, spread[0].WhenUnsatisfiable, "one node has to do where there is no other")
	assert.Equal(t, runner.Spec.Selector, spread[0].LabelSelector)

	docs := documents(t, "kubernetes/runner.yaml")
	at := slices.IndexFunc(docs, func(doc object) bool { return doc["kind"] == "PodDisruptionBudget" })
	require.GreaterOrEqual(t, at, 0)
	budget := decode[policyv1.PodDisruptionBudget](t, docs[at])
	assert.Equal(t, runner.Spec.Selector, budget.Spec.Selector)
	assert.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
	assert.Greater(t, int(*runner.Spec.Replicas), 1, "else a drain would leave none")
}

func TestAFieldThatKubernetesDoesNotKnowFails(t *testing.T) {
	assert.Error(t, yaml.UnmarshalStrict([]byte("apiVersion: batch/v1\nkind: CronJob\nspec: {shedule: '* * * * *'}\n"), &batchv1.CronJob{}))
}

// interval returns the time between runs of a cron expression, which must be the same all day.
func interval(t *testing.T, expression string) time.Duration {
	t.Helper()
	s, err := cron.ParseStandard(expression)
	require.NoError(t, err)
	at := s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	every := s.Next(at).Sub(at)
	for range 24 * time.Hour / every {
		next := s.Next(at)
		require.Equal(t, every, next.Sub(at), "after %v", at)
		at = next
	}
	return every
}
