package deploy_test

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// cronJob decodes strictly: a field that Kubernetes does not know, or that stands there twice, fails.
func cronJob(t *testing.T) *batchv1.CronJob {
	t.Helper()
	job := &batchv1.CronJob{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(read(t, "kubernetes/cronjob.yaml")), job))
	require.Equal(t, "batch/v1 CronJob", job.APIVersion+" "+job.Kind)
	return job
}

func TestTheCronJobIsSafe(t *testing.T) {
	job := cronJob(t)
	every := interval(t, job.Spec.Schedule)
	assert.Equal(t, 15*time.Minute, every)
	assert.Equal(t, batchv1.ForbidConcurrent, job.Spec.ConcurrencyPolicy)
	run := job.Spec.JobTemplate.Spec
	assert.Less(t, time.Duration(*run.ActiveDeadlineSeconds)*time.Second, every, "a pass is over before the next one")
	assert.Zero(t, *run.BackoffLimit)

	pod := run.Template.Spec
	assert.Equal(t, corev1.RestartPolicyNever, pod.RestartPolicy)
	assert.False(t, *pod.AutomountServiceAccountToken)
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]
	assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	assert.NotEmpty(t, c.Resources.Limits.Memory().String())
	for _, e := range c.Env {
		if e.Name == "E2B_API_KEY" {
			assert.Empty(t, e.Value)
			assert.Equal(t, "sandglass-keys", e.ValueFrom.SecretKeyRef.Name)
		}
	}
	assert.Contains(t, c.Args, "change-me", "as it stands it is for no fleet of anybody")
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
