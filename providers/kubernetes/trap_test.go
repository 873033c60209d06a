package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// Each trap that a cluster has for who keeps sandboxes in it, on the real components.

// K8S-01: near its old deadline the API server says yes to an extension, and the Job ends all the same.
func TestK8S01AnExtensionThatLiesIsFoundOut(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	lied, kept := 0, 0
	for i := range 35 { // from 300 ms before the deadline to 280 ms after it, and the last five as early as can be
		wg.Go(func() {
			info := w.make(t, order(10*time.Minute))
			j, there := w.truth(t, info.ID)
			if !assert.True(t, there) {
				return
			}
			// So near only now: it has to start first, however long that takes.
			w.patch(t, info.ID, object{"spec": object{"activeDeadlineSeconds": int(time.Since(*j.Status.StartTime).Seconds()) + 15}})
			info, err := w.p.Get(t.Context(), info.ID)
			if !assert.NoError(t, err) {
				return
			}
			old := info.Deadline
			if i < 30 {
				time.Sleep(time.Until(old.Add(time.Duration(i*20-300) * time.Millisecond))) // one machine, one clock
			}
			ahead := time.Until(old)
			got, err := w.p.Extend(t.Context(), info, 5*time.Minute)
			answered := err == nil
			// For ten seconds, and for as long as the adapter is in doubt: each answer takes long where much else is done.
			end := old.Add(10 * time.Second)
			limit := time.Now().Add(45 * time.Second)
			var said []time.Time // when it was said to run
			for {
				if err == nil && got.State == sandbox.StateRunning {
					said = append(said, got.AsOf)
				}
				now := time.Now()
				if !now.Before(end) && (err != nil || got.State != sandbox.StateUnknown || !now.Before(limit)) {
					break
				}
				time.Sleep(250 * time.Millisecond)
				got, err = w.p.Get(t.Context(), info.ID)
			}
			lives := false
			eventually(t, 2*time.Minute, func() bool { // on its way out it is neither
				all := w.judge(t, "tests")
				at := slices.IndexFunc(all, func(i sandbox.Info) bool { return i.ID == info.ID })
				lives = at >= 0 && all[at].State == sandbox.StateRunning
				return lives || at < 0
			}, func() string { return info.ID + " neither runs nor is gone" })
			what := fmt.Sprintf("extended %v before its deadline at %v: it lives %v, and was said to run at %v; at last: %v, %v",
				ahead, old, lives, said, got.State, err)
			switch {
			case lives:
				assert.NotEmpty(t, said, what)
			case len(said) > 0:
				// What ends Jobs may stall between its look and its deed, for longer than the adapter doubts. Until the deed the
				// Job runs, and may be said to.
				assert.False(t, said[0].Before(old.Add(3*time.Second)), what)
				ended := w.podDeleted(t, info.ID)
				assert.False(t, said[len(said)-1].After(ended), "%s, and its pod was deleted at %v", what, ended)
			}
			mu.Lock()
			defer mu.Unlock()
			if lives {
				kept++
			} else if answered {
				lied++
			}
		})
	}
	wg.Wait()
	t.Logf("%d were extended, %d more had an answer and ended all the same", kept, lied)
	assert.Positive(t, kept)
}

// podDeleted returns when the controller manager had deleted the pod of a Job, by its own word, in whole seconds.
func (w *world) podDeleted(t *testing.T, id string) (at time.Time) {
	t.Helper()
	_, uid, _ := strings.Cut(id, "/")
	eventually(t, time.Minute, func() bool {
		var list struct {
			Items []struct {
				InvolvedObject struct{ UID string }
				Reason         string
				FirstTimestamp time.Time
			}
		}
		require.NoError(t, w.c.Do(t.Context(), "GET", "/api/v1/namespaces/"+w.ns+"/events", nil, &list))
		for _, e := range list.Items {
			if e.InvolvedObject.UID == uid && e.Reason == "SuccessfulDelete" {
				at = e.FirstTimestamp
			}
		}
		return !at.IsZero()
	}, func() string { return "no event tells that the pod of " + id + " was deleted" })
	return at
}

// The same with all that lies above: whose beats arrive too late loses the lease, and learns so.
func TestK8S01AnOwnerWhoseBeatsComeTooLateLosesTheLease(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	m, err := sandbox.NewManager(w.p, sandbox.Config{Fleet: "tests", Grace: 5 * time.Second})
	require.NoError(t, err)
	w.way.on(-1, jobs("PATCH"), func(r *http.Request, on onward) (*http.Response, error) {
		time.Sleep(19 * time.Second)
		return on(r.Clone(context.WithoutCancel(r.Context())))
	})
	start := time.Now()
	err = m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, func(s *sandbox.Scope) { s.Spec, s.Window, s.Beat = small(), 20*time.Second, 6*time.Second })
	assert.ErrorIs(t, err, sandbox.ErrLeaseLost)
	assert.Less(t, time.Since(start), 2*time.Minute)
	assert.Empty(t, w.judge(t, "tests"))
}

// K8S-02: a deadline of 2^63 ns or more ends a Job at once.
func TestK8S02ADeadlineThatOverflowsIsNeverAsked(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	req := order(time.Minute)
	req.Mark.Lifetime = 290 * 365 * 24 * time.Hour
	_, err := w.p.Create(t.Context(), req)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.Empty(t, w.reals(t, "jobs"))

	// What would happen.
	info := w.make(t, order(time.Minute))
	w.patch(t, info.ID, object{"spec": object{"activeDeadlineSeconds": 9223372037}})
	w.await(t, info.ID, sandbox.StateGone)
}

// K8S-03: a Job whose deadline is taken away lives for ever.
func TestK8S03ADeadlineThatWasTakenAwayIsReportedAndSetAgain(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	info := w.make(t, order(time.Minute))
	w.patch(t, info.ID, object{"spec": object{"activeDeadlineSeconds": nil}})
	listed := map[string]sandbox.Info{}
	for i, err := range w.p.List(t.Context(), sandbox.Filter{Fleet: "tests"}) {
		require.NoError(t, err)
		listed[i.ID] = i
	}
	assert.Contains(t, listed[info.ID].Detail, "no deadline")
	began := time.Now()
	got, err := w.p.Get(t.Context(), info.ID)
	require.NoError(t, err)
	assert.Greater(t, got.Left(), 50*time.Minute, "nothing but the pod's own end is left")
	got, err = w.p.Extend(t.Context(), got, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, sandbox.StateRunning, got.State)
	left := got.Left() // counted from the look, and told after the patch
	assert.LessOrEqual(t, left, 62*time.Second)
	assert.GreaterOrEqual(t, left, 59*time.Second-time.Since(began))
}

// K8S-04: a Job that is suspended lives for ever, and ends at once when it is resumed late.
func TestK8S04ASuspendedSandboxIsResidueAndIsNotWoken(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	info := w.make(t, order(time.Minute))
	w.patch(t, info.ID, object{"spec": object{"suspend": true}})
	dormant := w.await(t, info.ID, sandbox.StateDormant)
	assert.Contains(t, dormant.Detail, "suspended")
	assert.Zero(t, dormant.Deadline)
	got, err := w.p.Extend(t.Context(), dormant, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, sandbox.StateDormant, got.State)
	j, there := w.truth(t, info.ID)
	require.True(t, there)
	assert.True(t, j.Spec.Suspend)
	w.swept(t, info.ID)
}

// swept has a sweeper look twice, which must then have deleted the sandbox.
func (w *world) swept(t *testing.T, id string) {
	t.Helper()
	s, err := sweep.New(sweep.Config{Fleet: "tests", Providers: []sandbox.Provider{w.p}})
	require.NoError(t, err)
	time.Sleep(3 * time.Second) // what a pass began with is not judged by it
	for range 2 {
		_, _ = s.Sweep(t.Context())
	}
	_, err = w.p.Get(t.Context(), id)
	assert.ErrorIs(t, err, sandbox.ErrNotFound)
	assert.Empty(t, w.judge(t, "tests"))
}

// K8S-05: a Job that is deleted in the API's own default manner leaves its pod, which nothing ends any more.
func TestK8S05AnOrphanedPodIsSeenAndSwept(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	info := w.make(t, order(time.Minute))
	name, _, _ := strings.Cut(info.ID, "/")
	require.NoError(t, w.c.Do(t.Context(), "DELETE", "/apis/batch/v1/namespaces/"+w.ns+"/jobs/"+name,
		object{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}, nil))
	eventually(t, time.Minute, func() bool { return len(w.reals(t, "jobs")) == 0 }, func() string { return "the Job is still there" })
	got, err := w.p.Get(t.Context(), info.ID)
	require.NoError(t, err, "a Job that is gone is no sandbox that is gone")
	assert.Equal(t, sandbox.StateFailed, got.State)
	assert.Equal(t, info.Mark, got.Mark)
	var ids []string
	for i, err := range w.p.List(t.Context(), sandbox.Filter{Fleet: "tests"}) {
		require.NoError(t, err)
		ids = append(ids, i.ID)
	}
	assert.Equal(t, []string{info.ID}, ids)
	got, err = w.p.Extend(t.Context(), got, time.Minute)
	if err == nil {
		assert.Equal(t, sandbox.StateFailed, got.State, "a beat is no success")
	}
	w.swept(t, info.ID)
}

// K8S-06: a Job that is deleted in the background is gone before its pod is.
func TestK8S06WhatIsGoneHasNoProcess(t *testing.T) {
	t.Parallel()
	w := onNode(t)
	for _, policy := range []string{"", "Background"} {
		info := w.make(t, order(time.Minute))
		uid := info.Run
		if policy == "" {
			require.NoError(t, w.p.Delete(t.Context(), info.ID))
		} else {
			name, _, _ := strings.Cut(info.ID, "/")
			require.NoError(t, w.c.Do(t.Context(), "DELETE", "/apis/batch/v1/namespaces/"+w.ns+"/jobs/"+name,
				object{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}, nil))
		}
		w.goneWithItsProcesses(t, info.ID, uid)
	}
}

// goneWithItsProcesses looks until a sandbox is gone, at which moment none of its processes may be left.
func (w *world) goneWithItsProcesses(t *testing.T, id, pod string) {
	t.Helper()
	eventually(t, 3*time.Minute, func() bool {
		_, err := w.p.Get(context.Background(), id)
		return errors.Is(err, sandbox.ErrNotFound)
	}, func() string { return id + " is still there" })
	assert.Empty(t, w.processes(t, pod))
}

// processes returns the command lines of what the kernel has of a pod.
func (w *world) processes(t *testing.T, pod string) (left []string) {
	t.Helper()
	all, err := w.c.Processes()
	require.NoError(t, err)
	for _, p := range all {
		if strings.Contains(strings.ReplaceAll(p.Cgroup, "_", "-"), pod) {
			left = append(left, p.Command)
		}
	}
	return left
}

// K8S-07: a delete without grace, or by force, takes the record before the process.
func TestK8S07NoDeleteIsForced(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	info := w.make(t, order(time.Minute))
	var bodies []string
	w.way.on(-1, method("DELETE"), rewrites(func(b map[string]any) { bodies = append(bodies, fmt.Sprint(b)) }))
	require.NoError(t, sandbox.Terminate(t.Context(), w.p, info.ID))
	require.NotEmpty(t, bodies)
	for _, b := range bodies {
		assert.NotContains(t, b, "gracePeriodSeconds")
		assert.Contains(t, b, "uid")
	}
}

// K8S-08: on a dead node a delete comes to no end.
func TestK8S08ADeadNodeIsNotConfirmed(t *testing.T) {
	t.Parallel()
	w := onFrail(t)
	info := w.make(t, order(10*time.Minute))
	require.NoError(t, w.c.Freeze(kubecluster.Kubelet))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := sandbox.Terminate(ctx, w.p, info.ID)
	thaw := w.c.Thaw(kubecluster.Kubelet)
	leak, ok := errors.AsType[*sandbox.LeakError](err)
	require.True(t, ok, "a dead node's sandbox was said to be gone: %v", err)
	assert.True(t, leak.Sandboxes[0].State.MayRun())
	require.NoError(t, thaw)
	w.goneWithItsProcesses(t, info.ID, info.Run)
}

// K8S-09: without a controller manager no lease ends anything, and a delete of a Job does nothing.
func TestK8S09WithoutAControllerManagerTheContainerIsEndedAllTheSame(t *testing.T) {
	t.Parallel()
	w := onFrail(t)
	info := w.make(t, order(10*time.Minute))
	short := order(10 * time.Minute)
	short.Mark.Lifetime = 2 * time.Minute // within which it has to start
	hard := w.make(t, short)
	require.NoError(t, w.c.Kill(kubecluster.ControllerManager))
	back := sync.OnceFunc(func() { assert.NoError(t, w.c.StartAgain(kubecluster.ControllerManager)) })
	defer back()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := sandbox.Terminate(ctx, w.p, info.ID)
	leak, ok := errors.AsType[*sandbox.LeakError](err)
	require.True(t, ok, "nobody was there to confirm it: %v", err)
	assert.Equal(t, info.ID, leak.Sandboxes[0].ID)
	eventually(t, time.Minute, func() bool { return len(w.processes(t, info.Run)) == 0 },
		func() string { return "the container has not ended" })
	eventually(t, 4*time.Minute, func() bool { return len(w.processes(t, hard.Run)) == 0 },
		func() string { return "the node has not kept the hard end" })
	back()
	w.goneWithItsProcesses(t, info.ID, info.Run)
	w.goneWithItsProcesses(t, hard.ID, hard.Run)
}

// K8S-10: the cluster's default for the time between TERM and KILL is half a minute, beyond the lease.
func TestK8S10ALeaseEndsWithinSecondsEvenIfNobodyHearsTERM(t *testing.T) {
	t.Parallel()
	w := onNode(t)
	info := w.make(t, order(time.Minute)) // within which it has to start, on a machine that does much else
	_, err := w.p.Open(info).Exec(t.Context(), sandbox.Shell("nohup sh -c 'trap \"\" TERM; while :; do sleep 1; done' >/dev/null 2>&1 &"))
	require.NoError(t, err)
	pods := w.reals(t, "pods")
	require.Len(t, pods, 1)
	assert.EqualValues(t, 2, pods[0].Spec.TerminationGracePeriodSeconds, "and not half a minute")
	time.Sleep(time.Until(info.Deadline))
	eventually(t, 3*time.Minute, func() bool {
		for _, p := range w.reals(t, "pods") { // what its node goes by, however long it takes for that
			assert.LessOrEqual(t, p.Metadata.DeletionGracePeriodSeconds, int64(2))
		}
		_, err := w.p.Get(t.Context(), info.ID)
		return errors.Is(err, sandbox.ErrNotFound)
	}, func() string { return info.ID + " is still there" })
	assert.Empty(t, w.processes(t, info.Run))
}

// K8S-11: who deletes a pod must not get another one, empty and under the same name.
func TestK8S11APodThatSomebodyDeletesIsTheEnd(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	info := w.make(t, order(10*time.Minute))
	pods := w.reals(t, "pods")
	require.Len(t, pods, 1)
	require.NoError(t, w.c.Do(t.Context(), "DELETE", "/api/v1/namespaces/"+w.ns+"/pods/"+pods[0].Metadata.Name, nil, nil))
	seen := map[string]bool{}
	eventually(t, time.Minute, func() bool {
		for _, p := range w.reals(t, "pods") {
			seen[p.Metadata.UID] = true
		}
		_, err := w.p.Get(t.Context(), info.ID)
		return errors.Is(err, sandbox.ErrNotFound)
	}, func() string { return "it is still there" })
	delete(seen, pods[0].Metadata.UID)
	assert.Empty(t, seen, "no other pod was made")
}

// K8S-12: when the main process leaves, the sandbox is over, and its record with it.
func TestK8S12TheMainProcessIsASleeperAndItsEndTheSandboxs(t *testing.T) {
	t.Parallel()
	w := onNode(t)
	info := w.make(t, order(10*time.Minute))
	sb := w.p.Open(info)
	res, err := sb.Exec(t.Context(), sandbox.Shell("exit 7"))
	require.NoError(t, err)
	assert.Equal(t, 7, res.ExitCode, "a command's end is not the sandbox's")
	w.await(t, info.ID, sandbox.StateRunning)
	_, _ = sb.Exec(t.Context(), sandbox.Shell("kill -TERM 1"))
	w.goneWithItsProcesses(t, info.ID, info.Run)
}

// K8S-13: the end of a request for a command is not the command's.
func TestK8S13ACommandWhoseCallerLeavesIsKilled(t *testing.T) {
	t.Parallel()
	w := onNode(t)
	info := w.make(t, order(10*time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	cmd := sandbox.Shell("echo begun; sleep 4711 & setsid sleep 4712 & wait")
	var once sync.Once
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		once.Do(func() { close(begun) })
		return len(p), nil
	})
	go func() {
		<-begun
		cancel()
	}()
	_, err := w.p.Open(info).Exec(ctx, cmd)
	require.ErrorIs(t, err, context.Canceled)
	eventually(t, time.Minute, func() bool { return !strings.Contains(fmt.Sprint(w.processes(t, info.Run)), "471") },
		func() string { return fmt.Sprint(w.processes(t, info.Run)) })

	// So is one whose connection breaks.
	cmd = sandbox.Shell("echo begun; sleep 4713")
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		w.way.cut()
		return len(p), nil
	})
	_, err = w.p.Open(info).Exec(t.Context(), cmd)
	require.Error(t, err)
	eventually(t, time.Minute, func() bool { return !strings.Contains(fmt.Sprint(w.processes(t, info.Run)), "471") },
		func() string { return fmt.Sprint(w.processes(t, info.Run)) })
}

// What is missing of the rights is named before the first sandbox.
func TestCheckNamesTheRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	w := onPlain(t)
	account, err := w.p.Check(t.Context())
	require.NoError(t, err)
	assert.Contains(t, account.ID, "system:serviceaccount:"+w.ns+":")
	assert.True(t, account.SkewKnown)
	assert.Less(t, account.Skew.Abs(), 30*time.Second, "one clock, and an answer that may take long")
	poor, _ := w.provider(t, func(c *kubernetes.Config) {
		c.Tokens = tokens(w.c.User(t, w.ns, kubecluster.May("batch", "jobs", "create", "get", "list", "patch"), kubecluster.May("", "pods", "get", "list")))
		c.Owner = kubernetes.Owner{Lease: time.Minute}
	})
	_, err = poor.Check(t.Context())
	require.ErrorIs(t, err, sandbox.ErrPermission)
	for _, want := range []string{"delete jobs.batch", "delete pods", "get pods/exec", "create pods/exec", "patch leases.coordination.k8s.io"} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "create jobs")
	nobody, _ := w.provider(t, func(c *kubernetes.Config) { c.Tokens = tokens("nobody's") })
	_, err = nobody.Check(t.Context())
	assert.ErrorIs(t, err, sandbox.ErrUnauthenticated)
}
