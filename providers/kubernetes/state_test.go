package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

var eight = time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)

const boxID = "sandglass-abcdefghijklmnop/u-1"

func stamp(after time.Duration) string { return eight.Add(after).Format(time.RFC3339) }

// jobOf is a Job as the API server shows it, of request's mark, that was made and has started at eight.
func jobOf(change ...func(j object)) object {
	labels := object{"app.kubernetes.io/managed-by": "sandglass", "sandglass-fleet": "ci-agents"}
	j := object{
		"kind": "Job", "metadata": object{
			"name": "sandglass-abcdefghijklmnop", "uid": "u-1", "creationTimestamp": stamp(0), "resourceVersion": "7",
			"labels": labels, "annotations": object{"sandglass": request().Mark.String(), "sandglass-tags": `{"a":"b"}`},
		},
		"spec":   object{"activeDeadlineSeconds": 181, "suspend": false},
		"status": object{"startTime": stamp(0)},
	}
	for _, f := range change {
		f(j)
	}
	return j
}

// podOf is its pod, which runs.
func podOf(change ...func(p object)) object {
	p := object{
		"metadata": object{
			"name": "sandglass-abcdefghijklmnop-x7", "uid": "p-1", "creationTimestamp": stamp(0),
			"labels":      object{"app.kubernetes.io/managed-by": "sandglass", "batch.kubernetes.io/controller-uid": "u-1", "job-name": "sandglass-abcdefghijklmnop"},
			"annotations": object{"sandglass": request().Mark.String()},
		},
		"spec":   object{"activeDeadlineSeconds": 3601, "containers": []object{{"name": "sandbox"}}},
		"status": object{"phase": "Running", "startTime": stamp(time.Second), "podIP": "10.0.0.9"},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func set(value any, path ...string) func(object) {
	return func(o object) {
		for _, name := range path[:len(path)-1] {
			if o[name] == nil {
				o[name] = object{}
			}
			o = o[name].(object)
		}
		o[path[len(path)-1]] = value
	}
}

func condition(kind string) func(object) {
	return set([]object{{"type": kind, "status": "True", "reason": "DeadlineExceeded"}}, "status", "conditions")
}

func waiting(reason string) func(object) {
	return func(p object) {
		set("Pending", "status", "phase")(p)
		set([]object{{"name": "sandbox", "state": object{"waiting": object{"reason": reason, "message": "words"}}}}, "status", "containerStatuses")(p)
	}
}

// text is an answer in JSON.
func text(o any, now time.Duration) answer {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return answer{status: 200, body: string(b), date: eight.Add(now)}
}

// world answers gets of one Job (nil: none) and lists of its pods.
func shows(now time.Duration, j object, pods ...object) func(int, *http.Request) answer {
	return func(_ int, r *http.Request) answer {
		switch {
		case strings.HasSuffix(r.URL.Path, "/pods"):
			return text(object{"kind": "PodList", "metadata": object{}, "items": pods}, now)
		case j == nil:
			a := failure(404, "NotFound")
			a.date = eight.Add(now)
			return a
		}
		return text(j, now)
	}
}

func TestWhatTheClusterShowsIsRead(t *testing.T) {
	const minute = time.Minute
	for name, c := range map[string]struct {
		now      time.Duration
		job      object
		pods     []object
		state    sandbox.State
		deadline time.Duration // 0: none
		detail   string
	}{
		"running":                                 {minute, jobOf(), []object{podOf()}, sandbox.StateRunning, 181 * time.Second, "Running"},
		"not seen by a controller":                {minute, jobOf(set(nil, "status", "startTime")), nil, sandbox.StateStarting, 0, "no pod"},
		"its pod runs, and was looked at later":   {minute, jobOf(set(nil, "status", "startTime")), []object{podOf()}, sandbox.StateStarting, 0, "its lease has not begun"},
		"its pod starts, and was looked at later": {minute, jobOf(set(nil, "status", "startTime")), []object{podOf(waiting("ContainerCreating"))}, sandbox.StateStarting, 0, "ContainerCreating"},
		"no pod yet":                              {minute, jobOf(), nil, sandbox.StateStarting, 181 * time.Second, "kubectl describe job sandglass-abcdefghijklmnop"},
		"no status at all":                        {minute, jobOf(set(nil, "status")), nil, sandbox.StateStarting, 0, "no pod"},
		"pending":                                 {minute, jobOf(), []object{podOf(set("Pending", "status", "phase"))}, sandbox.StateStarting, 181 * time.Second, "Pending"},
		"no node has room":                        {minute, jobOf(), []object{podOf(set("Pending", "status", "phase"), set([]object{{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}}, "status", "conditions"))}, sandbox.StateStarting, 181 * time.Second, "Unschedulable: 0/1"},
		"an image that is none":                   {0, jobOf(), []object{podOf(waiting("InvalidImageName"))}, sandbox.StateFailed, 0, "InvalidImageName: words"},
		"an image that cannot be had yet":         {30 * time.Second, jobOf(), []object{podOf(waiting("ImagePullBackOff"))}, sandbox.StateStarting, 181 * time.Second, "ImagePullBackOff: words"},
		"an image that cannot be had":             {61 * time.Second, jobOf(), []object{podOf(waiting("ImagePullBackOff"))}, sandbox.StateFailed, 0, "ImagePullBackOff: words"},
		"a container that is made":                {minute, jobOf(), []object{podOf(waiting("ContainerCreating"))}, sandbox.StateStarting, 181 * time.Second, "ContainerCreating: words"},
		"a word that nobody knows":                {minute, jobOf(), []object{podOf(set("Dreaming", "status", "phase"))}, sandbox.StateUnknown, 181 * time.Second, "Dreaming"},
		"the pod's end is nearer":                 {minute, jobOf(set(7200, "spec", "activeDeadlineSeconds")), []object{podOf()}, sandbox.StateRunning, 3601 * time.Second, "Running"},
		"its node's clock is an hour behind":      {minute, jobOf(set(7200, "spec", "activeDeadlineSeconds")), []object{podOf(set(stamp(-time.Hour), "status", "startTime"))}, sandbox.StateRunning, 3601 * time.Second, "Running"},
		"its node's clock is an hour ahead":       {minute, jobOf(set(7200, "spec", "activeDeadlineSeconds")), []object{podOf(set(stamp(time.Hour), "status", "startTime"))}, sandbox.StateRunning, 3601 * time.Second, "Running"},
		"without a deadline":                      {minute, jobOf(set(nil, "spec", "activeDeadlineSeconds")), []object{podOf()}, sandbox.StateRunning, 3601 * time.Second, "no deadline"},
		"without any deadline":                    {minute, jobOf(set(nil, "spec", "activeDeadlineSeconds")), []object{podOf(set(nil, "spec", "activeDeadlineSeconds"))}, sandbox.StateRunning, 0, "no deadline"},
		"a deadline that would overflow":          {minute, jobOf(set(int64(1)<<62, "spec", "activeDeadlineSeconds")), []object{podOf(set(nil, "spec", "activeDeadlineSeconds"))}, sandbox.StateRunning, (1<<31 - 1) * time.Second, "Running"},
		"its deadline has come":                   {182 * time.Second, jobOf(condition("FailureTarget")), []object{podOf()}, sandbox.StateEnding, 0, "FailureTarget: DeadlineExceeded"},
		"its main process has left":               {minute, jobOf(), []object{podOf(set("Succeeded", "status", "phase"))}, sandbox.StateEnding, 0, "Succeeded"},
		"finished":                                {minute, jobOf(condition("Failed")), nil, sandbox.StateDormant, 0, "Failed: DeadlineExceeded"},
		"finished, and a pod runs":                {minute, jobOf(condition("Complete")), []object{podOf()}, sandbox.StateEnding, 0, "Complete"},
		"its pod was deleted":                     {minute, jobOf(), []object{podOf(set(stamp(minute), "metadata", "deletionTimestamp"))}, sandbox.StateEnding, 0, "Running"},
		"deleted":                                 {minute, jobOf(set(stamp(minute), "metadata", "deletionTimestamp")), []object{podOf()}, sandbox.StateEnding, 0, "deleted"},
		"deleted long ago":                        {2*minute + 3*time.Second, jobOf(set(stamp(minute), "metadata", "deletionTimestamp")), []object{podOf()}, sandbox.StateFailed, 0, "not confirmed"},
		"its pod was, long ago":                   {2*minute + time.Second, jobOf(), []object{podOf(set(stamp(minute), "metadata", "deletionTimestamp"))}, sandbox.StateFailed, 0, "not confirmed"},
		"suspended":                               {minute, jobOf(set(true, "spec", "suspend")), nil, sandbox.StateDormant, 0, "suspended"},
		"about to be suspended":                   {minute, jobOf(set(true, "spec", "suspend")), []object{podOf()}, sandbox.StateEnding, 0, "suspended"},
		"its Job is gone":                         {minute, nil, []object{podOf()}, sandbox.StateFailed, 0, "runs on until 2027-01-15T09:00:01Z"},
		"its Job is gone, its pod going":          {minute, nil, []object{podOf(set(stamp(minute), "metadata", "deletionTimestamp"))}, sandbox.StateEnding, 0, "is ending"},
		"its Job is gone, its pod stuck":          {3 * minute, nil, []object{podOf(set(stamp(minute), "metadata", "deletionTimestamp"))}, sandbox.StateFailed, 0, "not confirmed"},
		"its Job is gone, its pod has ended":      {minute, nil, []object{podOf(set("Failed", "status", "phase"))}, sandbox.StateDormant, 0, "has ended and stays"},
		"one of two runs":                         {minute, jobOf(), []object{podOf(set(stamp(minute), "metadata", "deletionTimestamp"), set("p-0", "metadata", "uid")), podOf()}, sandbox.StateRunning, 181 * time.Second, "Running"},
	} {
		t.Run(name, func(t *testing.T) {
			withStub(t, nil, shows(c.now, c.job, c.pods...), func(t *testing.T, s *stub) {
				info, err := s.p.Get(t.Context(), boxID)
				require.NoError(t, err)
				assert.Equal(t, c.state, info.State)
				assert.Contains(t, info.Detail, c.detail)
				assert.Equal(t, boxID, info.ID)
				assert.Equal(t, request().Mark, info.Mark)
				assert.Equal(t, eight, info.Created)
				assert.Equal(t, eight.Add(c.now), info.AsOf)
				if c.deadline == 0 {
					assert.Zero(t, info.Deadline)
				} else {
					assert.Equal(t, eight.Add(c.deadline), info.Deadline)
				}
				if c.job != nil {
					assert.Equal(t, map[string]string{"a": "b"}, info.Tags)
				}
				if c.state == sandbox.StateRunning {
					assert.Equal(t, "p-1", info.Run)
				}
			})
		})
	}
}

func TestOnlyTheSandboxItselfCarriesItsMark(t *testing.T) {
	for name, c := range map[string]struct {
		job  object
		pods []object
	}{
		"a Job of another name": {jobOf(set("sandglass-copycopycopycopy", "metadata", "name")), nil},
		"a mark that was edited": {jobOf(func(j object) {
			a := j["metadata"].(object)["annotations"].(object)
			a["sandglass"] = strings.Replace(a["sandglass"].(string), "runner", "runnex", 1)
		}), nil},
		"a pod of another name": {nil, []object{podOf(set("other-x7", "metadata", "name"))}},
	} {
		withStub(t, nil, shows(0, c.job, c.pods...), func(t *testing.T, s *stub) {
			info, err := s.p.Get(t.Context(), boxID)
			require.NoError(t, err, name)
			assert.Zero(t, info.Mark, name)
		})
	}
}

// bare takes all from a Job by which it could be ours.
func bare(j object) {
	set(object{}, "metadata", "labels")(j)
	set(object{}, "metadata", "annotations")(j)
}

func TestWhatIsNotThereOrNotOursIsNotFound(t *testing.T) {
	for name, c := range map[string]struct {
		id   string
		job  object
		pods []object
	}{
		"nothing":                {boxID, nil, nil},
		"another Job":            {boxID, jobOf(set("u-2", "metadata", "uid")), nil},
		"a Job that is no box":   {boxID, jobOf(bare), nil},
		"by name, no box":        {"sandglass-abcdefghijklmnop", jobOf(bare), nil},
		"by name, nothing":       {"sandglass-abcdefghijklmnop", nil, nil},
		"an id that can be none": {"a b", nil, nil},
	} {
		withStub(t, nil, shows(0, c.job, c.pods...), func(t *testing.T, s *stub) {
			_, err := s.p.Get(t.Context(), c.id)
			assert.ErrorIs(t, err, sandbox.ErrNotFound, name)
			err = s.p.Delete(t.Context(), c.id)
			if c.job == nil || !strings.Contains(c.id, "/") {
				assert.ErrorIs(t, err, sandbox.ErrNotFound, name)
			}
			for _, r := range s.seen {
				assert.False(t, r.Method == http.MethodDelete && !strings.Contains(c.id, "/"), "%s: a Job that is no sandbox is not deleted by name", name)
			}
		})
	}
	withStub(t, nil, shows(0, jobOf(), podOf()), func(t *testing.T, s *stub) {
		info, err := s.p.Get(t.Context(), "sandglass-abcdefghijklmnop")
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, info.State, "the name suffices")
	})
	withStub(t, nil, shows(0, jobOf(set(object{}, "metadata", "labels")), podOf()), func(t *testing.T, s *stub) {
		info, err := s.p.Get(t.Context(), boxID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, info.State, "whose labels somebody has changed is ours by its mark")
	})
}

func TestANameAloneFindsThePodThatItsJobHasLeft(t *testing.T) {
	const name = "sandglass-abcdefghijklmnop"
	var ended []string
	world := func(pods ...object) func(int, *http.Request) answer {
		return func(n int, r *http.Request) answer {
			switch {
			case r.Method == http.MethodDelete:
				ended = append(ended, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
				return text(object{"kind": "Status", "status": "Success"}, 0)
			case strings.HasSuffix(r.URL.Path, "/pods"):
				assert.Contains(t, []string{
					"app.kubernetes.io/managed-by=sandglass,batch.kubernetes.io/job-name=" + name, "batch.kubernetes.io/controller-uid=u-1",
				}, r.URL.Query().Get("labelSelector"))
			}
			return shows(time.Minute, nil, pods...)(n, r)
		}
	}
	withStub(t, nil, world(podOf()), func(t *testing.T, s *stub) {
		info, err := s.p.Get(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateFailed, info.State)
		assert.Equal(t, request().Mark, info.Mark)
		require.NoError(t, s.p.Delete(t.Context(), name))
		assert.Equal(t, []string{"sandglass-abcdefghijklmnop-x7"}, ended)
	})
	ended = nil
	two := podOf(set("sandglass-abcdefghijklmnop-x8", "metadata", "name"), func(p object) {
		p["metadata"].(object)["labels"].(object)["batch.kubernetes.io/controller-uid"] = "u-2"
	})
	withStub(t, nil, world(podOf(), two), func(t *testing.T, s *stub) {
		_, err := s.p.Get(t.Context(), name)
		require.ErrorIs(t, err, sandbox.ErrConflict)
		assert.ErrorContains(t, err, name+"/u-1")
		assert.ErrorContains(t, err, name+"/u-2")
		assert.ErrorIs(t, s.p.Delete(t.Context(), name), sandbox.ErrConflict)
		assert.Empty(t, ended, "nobody has said which")
	})
}

func TestAPodThatItsJobHasLeftIsListedByWhateverTellsTheJob(t *testing.T) {
	const uid = "batch.kubernetes.io/controller-uid"
	for name, c := range map[string]struct {
		labels object
		mark   string
		found  bool
		fails  bool
	}{
		"by the label of today":     {object{uid: "u-1", "batch.kubernetes.io/job-name": "sandglass-abcdefghijklmnop"}, "", true, false},
		"by that of older clusters": {object{uid: "u-1", "job-name": "sandglass-abcdefghijklmnop"}, "", true, false},
		"by its mark":               {object{uid: "u-1"}, request().Mark.String(), true, false},
		"by nothing":                {object{uid: "u-1"}, "", false, true},
		"no Job has made it":        {object{}, "", false, false},
	} {
		pod := podOf(set(c.labels, "metadata", "labels"), set(object{"sandglass": c.mark}, "metadata", "annotations"))
		withStub(t, nil, func(n int, r *http.Request) answer {
			if strings.HasSuffix(r.URL.Path, "/jobs") {
				return text(object{"kind": "JobList", "items": []object{}}, time.Minute)
			}
			return shows(time.Minute, nil, pod)(n, r)
		}, func(t *testing.T, s *stub) {
			var ids []string
			var fault error
			for info, err := range s.p.List(t.Context(), sandbox.Filter{}) {
				if fault = err; err == nil {
					ids = append(ids, info.ID)
				}
			}
			assert.Equal(t, c.fails, fault != nil, "%s: %v", name, fault)
			if c.found {
				assert.Equal(t, []string{boxID}, ids, name)
			} else {
				assert.Empty(t, ids, name)
			}
		})
	}
}

func TestWhatCannotBeSeenIsNeverGone(t *testing.T) {
	proxy := answer{status: 404, body: "404 page not found"}
	for name, say := range map[string]func(int, *http.Request) answer{
		"a proxy's 404": func(int, *http.Request) answer { return proxy },
		"pods are not to be seen": func(_ int, r *http.Request) answer {
			if strings.HasSuffix(r.URL.Path, "/pods") {
				return failure(403, "Forbidden")
			}
			return failure(404, "NotFound")
		},
		"the list of pods is none": func(_ int, r *http.Request) answer {
			if strings.HasSuffix(r.URL.Path, "/pods") {
				return answer{status: 200, body: "{}"}
			}
			return failure(404, "NotFound")
		},
		"the pods' answer is a proxy's": func(_ int, r *http.Request) answer {
			if strings.HasSuffix(r.URL.Path, "/pods") {
				return proxy
			}
			return failure(404, "NotFound")
		},
		"the server fails": func(int, *http.Request) answer { return failure(500, "InternalError") },
		"no token":         func(int, *http.Request) answer { return failure(401, "Unauthorized") },
	} {
		withStub(t, nil, say, func(t *testing.T, s *stub) {
			info, err := s.p.Get(t.Context(), boxID)
			require.Error(t, err, name)
			assert.NotErrorIs(t, err, sandbox.ErrNotFound, name)
			assert.Zero(t, info, name)
			for _, err := range s.p.List(t.Context(), sandbox.Filter{}) {
				require.Error(t, err, name)
			}
		})
	}
}

func TestAnExtensionSetsTheDeadlineFromTheServersClock(t *testing.T) {
	for _, c := range []struct {
		started, now time.Time
		window       time.Duration
		want         int64
	}{
		{eight, eight, 3 * time.Minute, 181},
		{eight, eight.Add(time.Hour), 3 * time.Minute, 3781},
		{eight, eight.Add(1500 * time.Millisecond), time.Second, 3},
		{eight, eight.Add(-time.Second), time.Second, 2}, // the clock cannot be before the start
		{time.Time{}, eight, time.Minute, 61},
	} {
		got, err := kubernetes.SecondsFor(c.started, c.now, c.window)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
		if !c.started.IsZero() && !c.now.Before(c.started) {
			end := c.started.Add(time.Duration(got) * time.Second)
			assert.True(t, end.After(c.now.Add(c.window).Add(-time.Nanosecond)), "never earlier than asked")
			assert.LessOrEqual(t, end.Sub(c.now.Add(c.window)), time.Second, "nor more than a second later")
		}
	}
	_, err := kubernetes.SecondsFor(eight, eight.AddDate(100, 0, 0), time.Second)
	assert.Error(t, err, "a deadline of 2^63 ns or more ends a Job at once")
}

func TestAnExtensionNamesTheUIDAndWhatItSeesCounts(t *testing.T) {
	now := 2 * time.Minute
	for name, c := range map[string]struct {
		patched answer
		job     object
		pods    []object
		state   sandbox.State
		err     error
	}{
		"well": {text(jobOf(set(301, "spec", "activeDeadlineSeconds")), now), nil, []object{podOf()}, sandbox.StateRunning, nil},
		"of one that is being deleted": {
			text(jobOf(set(301, "spec", "activeDeadlineSeconds"), set(stamp(now), "metadata", "deletionTimestamp")), now), nil, []object{podOf()}, sandbox.StateEnding, nil,
		},
		"of one whose end has come": {text(jobOf(set(301, "spec", "activeDeadlineSeconds"), condition("FailureTarget")), now), nil, []object{podOf()}, sandbox.StateEnding, nil},
		"of one that is suspended":  {text(jobOf(set(301, "spec", "activeDeadlineSeconds"), set(true, "spec", "suspend")), now), nil, nil, sandbox.StateDormant, nil},
		"of one whose pod is gone":  {text(jobOf(set(301, "spec", "activeDeadlineSeconds")), now), nil, nil, sandbox.StateStarting, nil},
		"of one that is gone":       {failure(404, "NotFound"), nil, nil, 0, sandbox.ErrNotFound},
		"of another":                {failure(422, "Invalid"), jobOf(set("u-2", "metadata", "uid")), nil, 0, sandbox.ErrNotFound},
		"of one that is left a pod": {failure(404, "NotFound"), nil, []object{podOf()}, sandbox.StateFailed, nil},
		"that is refused":           {failure(422, "Invalid"), jobOf(), []object{podOf()}, 0, sandbox.ErrInvalid},
		"that has met a change":     {failure(409, "Conflict"), jobOf(), []object{podOf()}, 0, sandbox.ErrConflict},
		"that was changed":          {text(jobOf(set(9999, "spec", "activeDeadlineSeconds")), now), jobOf(), []object{podOf()}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rest := shows(now, c.job, c.pods...)
			say := func(n int, r *http.Request) answer {
				if r.Method == http.MethodPatch {
					return c.patched
				}
				return rest(n, r)
			}
			var cur sandbox.Info
			withStub(t, nil, shows(now, jobOf(), podOf()), func(t *testing.T, s *stub) {
				var err error
				cur, err = s.p.Get(t.Context(), boxID)
				require.NoError(t, err)
			})
			withStub(t, nil, say, func(t *testing.T, s *stub) {
				info, err := s.p.Extend(t.Context(), cur, 3*time.Minute)
				require.Equal(t, http.MethodPatch, s.seen[0].Method)
				assert.Equal(t, "/apis/batch/v1/namespaces/boxes/jobs/sandglass-abcdefghijklmnop", s.seen[0].URL.Path)
				assert.Equal(t, "fieldValidation=Strict", s.seen[0].URL.RawQuery)
				assert.Equal(t, "application/merge-patch+json", s.seen[0].Header.Get("Content-Type"))
				assert.JSONEq(t, `{"metadata":{"uid":"u-1"},"spec":{"activeDeadlineSeconds":301}}`, s.sent[0])
				switch {
				case name == "that was changed":
					assert.Error(t, err)
				case c.err != nil:
					assert.ErrorIs(t, err, c.err)
				default:
					require.NoError(t, err)
					assert.Equal(t, c.state, info.State)
				}
			})
		})
	}
}

func TestAnExtensionNearTheOldDeadlineProvesNothingUntilItHasPassed(t *testing.T) {
	for name, c := range map[string]struct {
		left, window time.Duration
		doubt        bool
	}{
		"in good time":           {10 * time.Second, 3 * time.Minute, false},
		"at the margin":          {5 * time.Second, 3 * time.Minute, false},
		"within it":              {5*time.Second - 1, 3 * time.Minute, true},
		"at the end":             {0, 3 * time.Minute, true},
		"after it":               {-2 * time.Second, 3 * time.Minute, true},
		"a short one, in time":   {2 * time.Second, 3 * time.Second, false},
		"a short one, too late":  {time.Second, 3 * time.Second, true},
		"one that ends it early": {0, -time.Minute, false},
	} {
		var d kubernetes.Doubts
		now := eight.Add(-c.left)
		d.Extended("u", eight, now.Add(c.window), now, c.window)
		assert.Equal(t, c.doubt, d.Doubt("u", now), name)
		assert.False(t, d.Doubt("other", now), name)
		if c.doubt {
			d.Extended("u", eight.Add(time.Minute), eight.Add(2*time.Minute), eight.Add(time.Minute), c.window)
			assert.True(t, d.Doubt("u", eight.Add(3*time.Second-1)), "%s: the first one stays in doubt", name)
		}
		assert.False(t, d.Doubt("u", eight.Add(3*time.Second)), name)
		assert.Zero(t, d.Len(), name)
	}
	var d kubernetes.Doubts
	for i := range 100 { // of which nobody asks again
		at := eight.Add(time.Duration(i) * 24 * time.Hour)
		d.Extended(fmt.Sprint(i), at, at.Add(time.Minute), at, time.Minute)
	}
	assert.LessOrEqual(t, d.Len(), 2)
}

func TestShortenOnlyEverShortens(t *testing.T) {
	for name, c := range map[string]struct {
		job  object
		want string // the patch; empty: none
	}{
		"a later end":     {jobOf(), `{"metadata":{"uid":"u-1","resourceVersion":"7"},"spec":{"activeDeadlineSeconds":62}}`},
		"a nearer end":    {jobOf(set(61, "spec", "activeDeadlineSeconds")), ""},
		"the same":        {jobOf(set(62, "spec", "activeDeadlineSeconds")), ""},
		"no end":          {jobOf(set(nil, "spec", "activeDeadlineSeconds")), `{"metadata":{"uid":"u-1","resourceVersion":"7"},"spec":{"activeDeadlineSeconds":62}}`},
		"not started yet": {jobOf(set(nil, "status")), `{"metadata":{"uid":"u-1","resourceVersion":"7"},"spec":{"activeDeadlineSeconds":2}}`},
	} {
		say := func(_ int, r *http.Request) answer {
			if r.Method == http.MethodPatch {
				return text(jobOf(set(2, "spec", "activeDeadlineSeconds")), time.Minute)
			}
			return text(c.job, time.Minute)
		}
		withStub(t, nil, say, func(t *testing.T, s *stub) {
			require.NoError(t, s.p.Shorten(t.Context(), boxID, time.Second), name)
			if c.want == "" {
				assert.Len(t, s.seen, 1, name)
				return
			}
			require.Len(t, s.seen, 2, name)
			assert.JSONEq(t, c.want, s.sent[1], name)
		})
	}
}

func TestADeleteNamesUIDAndPolicyAndForcesNothing(t *testing.T) {
	rest := shows(0, jobOf(), podOf(), podOf(set("p-2", "metadata", "uid"), set(stamp(0), "metadata", "deletionTimestamp")))
	say := func(n int, r *http.Request) answer {
		if r.Method == http.MethodDelete {
			return answer{status: 200, body: `{"kind":"Status","status":"Success"}`}
		}
		return rest(n, r)
	}
	for _, id := range []string{boxID, "sandglass-abcdefghijklmnop"} {
		withStub(t, nil, say, func(t *testing.T, s *stub) {
			require.NoError(t, s.p.Delete(t.Context(), id))
			var sent []string
			for i, r := range s.seen {
				if r.Method == http.MethodDelete {
					sent = append(sent, r.URL.String()+" "+s.sent[i])
				}
			}
			assert.Equal(t, []string{
				`/apis/batch/v1/namespaces/boxes/jobs/sandglass-abcdefghijklmnop {"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Foreground","preconditions":{"uid":"u-1"}}`,
				`/api/v1/namespaces/boxes/pods/sandglass-abcdefghijklmnop-x7 {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"p-1"}}`,
			}, sent, "the pod that is on its way out already is left to that")
		})
	}
}

func TestADeleteThatMeetsAnotherUIDTouchesNothing(t *testing.T) {
	say := func(_ int, r *http.Request) answer {
		switch {
		case r.Method == http.MethodDelete:
			return failure(409, "Conflict")
		case strings.HasSuffix(r.URL.Path, "/pods"):
			return text(object{"kind": "PodList", "items": []object{}}, 0)
		}
		return text(jobOf(set("u-2", "metadata", "uid")), 0)
	}
	withStub(t, nil, say, func(t *testing.T, s *stub) {
		assert.ErrorIs(t, s.p.Delete(t.Context(), boxID), sandbox.ErrNotFound)
	})
	withStub(t, nil, func(n int, r *http.Request) answer {
		if r.Method == http.MethodGet && !strings.HasSuffix(r.URL.Path, "/pods") {
			return text(jobOf(), 0)
		}
		return say(n, r)
	}, func(t *testing.T, s *stub) {
		assert.ErrorIs(t, s.p.Delete(t.Context(), boxID), sandbox.ErrConflict, "it is there, so the conflict is another")
	})
}

func TestAnOwnerIsDeadOnlyWhenThatIsSeenTwice(t *testing.T) {
	const pod = `{"namespace":"ci","pod":"runner-1","uid":"o-1","process":"n1"}`
	const leased = `{"namespace":"boxes","process":"n1","lease":"sandglass-owner-n1"}`
	owned := func(owner string) object {
		return jobOf(func(j object) { j["metadata"].(object)["annotations"].(object)["sandglass-owner"] = owner })
	}
	running := func(after time.Duration) object {
		return object{"metadata": object{"name": "runner-1", "uid": "o-1"}, "status": object{
			"phase": "Running", "containerStatuses": []object{{"name": "main", "restartCount": 1, "state": object{"running": object{"startedAt": stamp(after)}}}},
		}}
	}
	container := func(status object) func(now time.Duration) answer {
		return func(now time.Duration) answer {
			return text(set2(running(0), []object{status}, "status", "containerStatuses"), now)
		}
	}
	waits, ended := object{"waiting": object{"reason": "CrashLoopBackOff"}}, func(after time.Duration) object {
		return object{"terminated": object{"startedAt": stamp(-time.Hour), "finishedAt": stamp(after)}}
	}
	lease := func(renewed time.Duration) object {
		return object{"metadata": object{"name": "x", "uid": "l"}, "spec": object{
			"leaseDurationSeconds": 60, "renewTime": eight.Add(renewed).Format("2006-01-02T15:04:05.000000Z07:00"),
		}}
	}
	for name, c := range map[string]struct {
		job   object
		owner func(now time.Duration) answer
		want  sweep.Life // in the end
		fails bool
	}{
		"its pod runs":                     {owned(pod), func(now time.Duration) answer { return text(running(-time.Hour), now) }, sweep.Alive, false},
		"its pod is not there":             {owned(pod), func(time.Duration) answer { return failure(404, "NotFound") }, sweep.Dead, false},
		"its pod is another":               {owned(pod), func(now time.Duration) answer { return text(set2(running(0), "o-2", "metadata", "uid"), now) }, sweep.Dead, false},
		"its pod has ended":                {owned(pod), func(now time.Duration) answer { return text(set2(running(0), "Failed", "status", "phase"), now) }, sweep.Dead, false},
		"its container has begun anew":     {owned(pod), func(now time.Duration) answer { return text(running(90*time.Second), now) }, sweep.Dead, false},
		"it may have begun after it":       {owned(pod), func(now time.Duration) answer { return text(running(50*time.Second), now) }, sweep.Unknown, false},
		"it may have begun before it":      {owned(pod), func(now time.Duration) answer { return text(running(-50*time.Second), now) }, sweep.Unknown, false},
		"its node's clock is ahead":        {owned(pod), container(object{"name": "main", "restartCount": 0, "state": object{"running": object{"startedAt": stamp(5 * time.Minute)}}}), sweep.Alive, false},
		"its container fails and waits":    {owned(pod), container(object{"name": "main", "restartCount": 3, "state": waits, "lastState": ended(90 * time.Second)}), sweep.Dead, false},
		"it waits since before":            {owned(pod), container(object{"name": "main", "restartCount": 3, "state": waits, "lastState": ended(-90 * time.Second)}), sweep.Alive, false},
		"it waits since a moment":          {owned(pod), container(object{"name": "main", "restartCount": 3, "state": waits, "lastState": ended(20 * time.Second)}), sweep.Unknown, false},
		"another container has begun anew": {owned(strings.Replace(pod, "{", `{"container":"other",`, 1)), func(now time.Duration) answer { return text(running(90*time.Second), now) }, sweep.Alive, false},
		"its Lease is kept":                {owned(leased), func(now time.Duration) answer { return text(lease(now-50*time.Second), now) }, sweep.Alive, false},
		"its Lease is not kept":            {owned(leased), func(now time.Duration) answer { return text(lease(0), now) }, sweep.Dead, false},
		"its Lease is gone":                {owned(leased), func(time.Duration) answer { return failure(404, "NotFound") }, sweep.Dead, false},
		"its Lease tells nothing":          {owned(leased), func(now time.Duration) answer { return text(object{"spec": object{}}, now) }, sweep.Unknown, true},
		"it may not be seen":               {owned(pod), func(time.Duration) answer { return failure(403, "Forbidden") }, sweep.Unknown, true},
		"the token is not good":            {owned(pod), func(time.Duration) answer { return failure(401, "Unauthorized") }, sweep.Unknown, true},
		"the server fails":                 {owned(pod), func(time.Duration) answer { return failure(500, "InternalError") }, sweep.Unknown, true},
		"a proxy says 404":                 {owned(pod), func(time.Duration) answer { return answer{status: 404, body: "no"} }, sweep.Unknown, true},
		"nobody is named":                  {jobOf(), nil, sweep.Unknown, false},
		"it is named in a way of its own":  {owned("me"), nil, sweep.Unknown, false},
		"a path stands for its name":       {owned(strings.Replace(pod, "runner-1", "../x", 1)), nil, sweep.Unknown, false},
		"its Lease is elsewhere":           {owned(strings.Replace(leased, "boxes", "kube-system", 1)), nil, sweep.Unknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := 30 * time.Second
			say := func(n int, r *http.Request) answer {
				if strings.Contains(r.URL.Path, "/leases/") || strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/ci/pods/") {
					a := c.owner(now)
					a.date = eight.Add(now)
					return a
				}
				return shows(now, c.job, podOf())(n, r)
			}
			withStub(t, nil, say, func(t *testing.T, s *stub) {
				owners := s.p.Owners()
				ask := func(at time.Duration) (sweep.Life, error) {
					time.Sleep(at - now)
					now = at
					return owners.Life(context.Background(), sandbox.Info{ID: boxID, AsOf: eight.Add(at)})
				}
				life, err := ask(30 * time.Second)
				assert.Equal(t, sweep.Unknown, life, "what is so young tells nothing")
				require.NoError(t, err)
				life, err = ask(2 * time.Minute)
				assert.Equal(t, c.fails, err != nil, "%v", err)
				if c.want == sweep.Dead {
					assert.Equal(t, sweep.Unknown, life, "once is not enough")
				}
				life, _ = ask(2*time.Minute + 29*time.Second)
				assert.NotEqual(t, sweep.Dead, life, "nor twice in a moment")
				life, err = ask(2*time.Minute + 34*time.Second)
				assert.Equal(t, c.want, life)
				assert.Equal(t, c.fails, err != nil, "%v", err)
			})
		})
	}
}

func set2(o object, value any, path ...string) object {
	set(value, path...)(o)
	return o
}

func TestAnOwnerSeenAliveBetweenIsNotDead(t *testing.T) {
	dead, now := true, 2*time.Minute
	job := jobOf(func(j object) {
		j["metadata"].(object)["annotations"].(object)["sandglass-owner"] = `{"namespace":"ci","pod":"runner-1","uid":"o-1","process":"n1"}`
	})
	withStub(t, nil, func(n int, r *http.Request) answer {
		if !strings.Contains(r.URL.Path, "/ci/") {
			return shows(now, job, podOf())(n, r)
		}
		if dead {
			a := failure(404, "NotFound")
			a.date = eight.Add(now)
			return a
		}
		return text(object{"metadata": object{"name": "runner-1", "uid": "o-1"}, "status": object{"phase": "Running"}}, now)
	}, func(t *testing.T, s *stub) {
		owners := s.p.Owners()
		for _, step := range []struct {
			at   time.Duration
			dead bool
			want sweep.Life
		}{{120, true, sweep.Unknown}, {130, false, sweep.Alive}, {160, true, sweep.Unknown}, {184, true, sweep.Unknown}, {190, true, sweep.Dead}} {
			time.Sleep(step.at*time.Second - now)
			now, dead = step.at*time.Second, step.dead
			life, err := owners.Life(t.Context(), sandbox.Info{ID: boxID})
			require.NoError(t, err)
			assert.Equal(t, step.want, life, "at %v", now)
		}
	})
}

// Between two outages of an owner, in which his Lease was not renewed, he has lived.
func TestOnlyTheSameDeathSeenTwiceIsOne(t *testing.T) {
	var now, renewed time.Duration
	job := jobOf(func(j object) {
		j["metadata"].(object)["annotations"].(object)["sandglass-owner"] = `{"namespace":"boxes","process":"n1","lease":"sandglass-owner-n1"}`
	})
	withStub(t, nil, func(n int, r *http.Request) answer {
		if !strings.Contains(r.URL.Path, "/leases/") {
			return shows(now, job, podOf())(n, r)
		}
		return text(object{"metadata": object{"name": "x", "uid": "l"}, "spec": object{
			"leaseDurationSeconds": 60, "renewTime": eight.Add(renewed).Format("2006-01-02T15:04:05.000000Z07:00"),
		}}, now)
	}, func(t *testing.T, s *stub) {
		owners := s.p.Owners()
		for _, step := range []struct {
			at, renewed time.Duration
			want        sweep.Life
		}{
			{2 * time.Minute, 0, sweep.Unknown},
			{time.Hour, 58 * time.Minute, sweep.Unknown}, // stale again, an hour later
			{time.Hour + 10*time.Second, 58 * time.Minute, sweep.Unknown},
			{time.Hour + 31*time.Second, 58 * time.Minute, sweep.Dead},
		} {
			time.Sleep(step.at - now)
			now, renewed = step.at, step.renewed
			life, err := owners.Life(t.Context(), sandbox.Info{ID: boxID})
			require.NoError(t, err)
			assert.Equal(t, step.want, life, "at %v", now)
		}
	})
}

func TestTheOwnerOfAPodThatItsJobHasLeftIsKnownToo(t *testing.T) {
	pod := podOf(func(p object) {
		p["metadata"].(object)["annotations"].(object)["sandglass-owner"] = `{"namespace":"ci","pod":"runner-1","uid":"o-1","process":"n1"}`
	})
	withStub(t, nil, func(n int, r *http.Request) answer {
		if strings.Contains(r.URL.Path, "/ci/") {
			return text(object{"metadata": object{"name": "runner-1", "uid": "o-1"}, "status": object{"phase": "Running"}}, 2*time.Minute)
		}
		return shows(2*time.Minute, nil, pod)(n, r)
	}, func(t *testing.T, s *stub) {
		life, err := s.p.Owners().Life(t.Context(), sandbox.Info{ID: boxID})
		require.NoError(t, err)
		assert.Equal(t, sweep.Alive, life)
	})
	withStub(t, nil, shows(2*time.Minute, nil), func(t *testing.T, s *stub) {
		life, err := s.p.Owners().Life(t.Context(), sandbox.Info{ID: boxID})
		require.NoError(t, err)
		assert.Equal(t, sweep.Unknown, life, "there is nothing left to decide on")
	})
}

func TestAnOwnerIsAskedForOnceForAllOfItsSandboxes(t *testing.T) {
	now := 2 * time.Minute
	say := func(n int, r *http.Request) answer {
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch {
		case strings.Contains(r.URL.Path, "/ci/"):
			return text(object{"metadata": object{"name": name, "uid": "o-1"}, "status": object{"phase": "Running"}}, now)
		case name == "pods":
			return text(object{"kind": "PodList", "items": []object{}}, now)
		}
		return text(jobOf(set(name, "metadata", "name"), set("u-"+name, "metadata", "uid"), func(j object) {
			j["metadata"].(object)["annotations"].(object)["sandglass-owner"] = `{"namespace":"ci","pod":"runner-1","uid":"o-1","process":"n1"}`
		}), now)
	}
	withStub(t, nil, say, func(t *testing.T, s *stub) {
		owners := s.p.Owners()
		pass := func() (asked map[string]int) {
			begun := len(s.seen)
			for i := range 50 {
				name := fmt.Sprintf("sandglass-%016d", i)
				life, err := owners.Life(t.Context(), sandbox.Info{ID: name + "/u-" + name})
				require.NoError(t, err)
				require.Equal(t, sweep.Alive, life)
			}
			asked = map[string]int{}
			for _, r := range s.seen[begun:] {
				switch {
				case strings.Contains(r.URL.Path, "/ci/"):
					asked["owner"]++
				default:
					asked["sandbox"]++
				}
			}
			return asked
		}
		assert.Equal(t, map[string]int{"owner": 1, "sandbox": 50}, pass())
		assert.Empty(t, pass(), "an answer counts for a moment")
		time.Sleep(5 * time.Second)
		now += 5 * time.Second
		assert.Equal(t, map[string]int{"owner": 1}, pass(), "who is written on a sandbox is known")
	})
}

// Whatever a server says, nothing panics, and only its own "not found" is one.
func FuzzGet(f *testing.F) {
	one := func(o any) string { b, _ := json.Marshal(o); return string(b) }
	pods := func(p ...object) string { return one(object{"kind": "PodList", "items": p}) }
	f.Add(200, one(jobOf()), pods(podOf()))
	f.Add(200, one(jobOf(condition("Failed"))), pods())
	f.Add(404, failure(404, "NotFound").body, pods(podOf(waiting("x"))))
	f.Add(404, failure(404, "NotFound").body, pods())
	f.Add(200, `{"kind":"Job","metadata":{"name":"a","uid":"u-1","creationTimestamp":null}}`, `{"kind":"PodList","items":[{}]}`)
	f.Fuzz(func(t *testing.T, status int, job, list string) {
		if status < 200 || status > 599 || status == 204 || status == 304 {
			return
		}
		say := func(_ int, r *http.Request) answer {
			if strings.HasSuffix(r.URL.Path, "/pods") {
				return answer{status: 200, body: list}
			}
			return answer{status: status, body: job}
		}
		withStub(t, nil, say, func(t *testing.T, s *stub) {
			info, err := s.p.Get(t.Context(), boxID)
			if err == nil {
				assert.Equal(t, boxID, info.ID)
				return
			}
			_, ok := errors.AsType[*sandbox.APIError](err)
			assert.True(t, ok, "%v", err)
			var parsed struct {
				Kind string `json:"kind"`
			}
			if errors.Is(err, sandbox.ErrNotFound) && status >= 300 {
				assert.Equal(t, 404, status)
				assert.NoError(t, json.Unmarshal([]byte(job), &parsed))
			}
		})
	})
}
