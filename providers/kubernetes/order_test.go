package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A stub is an API server that answers what a test tells it to: for what the real one cannot be brought to say.
type stub struct {
	p    *kubernetes.Provider
	seen []*http.Request
	sent []string // their bodies
}

// answer is what a stub says.
type answer struct {
	status int
	body   string
	date   time.Time
	header http.Header
}

// withStub runs test in a bubble with a stub that answers by say.
func withStub(t *testing.T, change func(*kubernetes.Config), say func(n int, r *http.Request) answer, test func(t *testing.T, s *stub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, network := &stub{}, memnet.New()
		stop, err := network.Serve("kube.test:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			s.seen, s.sent = append(s.seen, r), append(s.sent, string(body))
			a := say(len(s.seen), r)
			for k, v := range a.header {
				w.Header()[k] = v
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header()["Date"] = nil
			if !a.date.IsZero() {
				w.Header().Set("Date", a.date.UTC().Format(http.TimeFormat))
			}
			w.WriteHeader(a.status)
			_, _ = io.WriteString(w, a.body)
		}))
		require.NoError(t, err)
		defer stop()
		defer network.Close()
		cfg := kubernetes.Config{BaseURL: "http://kube.test", Namespace: "boxes", HTTP: network.Client(), Name: "kube"}
		if change != nil {
			change(&cfg)
		}
		s.p, err = kubernetes.New(cfg)
		require.NoError(t, err)
		test(t, s)
	})
}

func failure(status int, reason string) answer {
	return answer{status: status, body: `{"kind":"Status","status":"Failure","reason":"` + reason + `","message":"words","code":0}`}
}

func request() sandbox.CreateRequest {
	return sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: "ci-agents", Owner: "runner.7", Nonce: "abcdefghijklmnop", Created: time.Unix(1_800_000_000, 0).UTC(), Lifetime: time.Hour + time.Millisecond,
		},
		Window: 3 * time.Minute,
	}
}

// golden compares text with a file, or writes it with -update.
func golden(t *testing.T, name string, text []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, text, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(text))
}

func TestWhatIsOrderedIsWhatTheFileSays(t *testing.T) {
	for name, c := range map[string]struct {
		config func(*kubernetes.Config)
		change func(*sandbox.CreateRequest)
	}{
		"plain.json": {nil, func(*sandbox.CreateRequest) {}},
		"all.json": {
			func(c *kubernetes.Config) {
				c.Owner = kubernetes.Owner{Pod: "runner-7", UID: "0b5c", Container: "main", Reference: true}
				c.Offline = map[string]string{"network": "none"}
			},
			func(r *sandbox.CreateRequest) {
				r.Mark.Fleet = "-odd."
				r.Tags = map[string]string{"commit sha": "4b825dc", "ü": ""}
				r.Spec = sandbox.Spec{
					Image: "debian:13", Env: map[string]string{"A": "$HOME $(B) $$", "B": "x"}, CPU: 1.5, Memory: 512 << 20, Disk: 1 << 30,
					Ports: []int{8080, 9}, Offline: true,
					Native: &kubernetes.Options{
						RuntimeClass: "gvisor", PriorityClass: "low", NodeSelector: map[string]string{"pool": "boxes"},
						Tolerations: []kubernetes.Toleration{{Key: "boxes", Operator: "Exists"}}, PullSecrets: []string{"registry"},
						PullPolicy: "Never", Secrets: []string{"keys"}, Labels: map[string]string{"team": "blue"}, ServiceAccount: "nobody",
						Restricted: true, User: 1000, Group: 1001, ReserveCPU: 0.5, ReserveMemory: 64 << 20,
					},
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			withStub(t, c.config, func(int, *http.Request) answer { return failure(500, "InternalError") }, func(t *testing.T, s *stub) {
				req := request()
				c.change(&req)
				_, err := s.p.Create(t.Context(), req)
				require.Error(t, err)
				require.Len(t, s.seen, 1)
				assert.Equal(t, "/apis/batch/v1/namespaces/boxes/jobs", s.seen[0].URL.Path)
				assert.Equal(t, "fieldValidation=Strict", s.seen[0].URL.RawQuery, "a field that is dropped may be the lease")
				var order map[string]any
				require.NoError(t, json.Unmarshal([]byte(s.sent[0]), &order))
				if owner, ok := order["metadata"].(map[string]any)["annotations"].(map[string]any)["sandglass-owner"].(string); ok {
					var o map[string]any // the process's nonce is another each time
					require.NoError(t, json.Unmarshal([]byte(owner), &o))
					s.sent[0] = strings.ReplaceAll(s.sent[0], o["process"].(string), "PROCESS")
					require.NoError(t, json.Unmarshal([]byte(s.sent[0]), &order))
				}
				text, err := json.MarshalIndent(order, "", "  ")
				require.NoError(t, err)
				golden(t, name, append(text, '\n'))
			})
		})
	}
}

func TestWhatCannotBeHonouredIsRefusedBeforeAnyRequest(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sandbox.CreateRequest)
		kind   error
	}{
		"a window of parts of a second":    {func(r *sandbox.CreateRequest) { r.Window = 1500 * time.Millisecond }, sandbox.ErrInvalid},
		"no window":                        {func(r *sandbox.CreateRequest) { r.Window = 0 }, sandbox.ErrInvalid},
		"a window of two days":             {func(r *sandbox.CreateRequest) { r.Window = 48 * time.Hour }, sandbox.ErrInvalid},
		"a lifetime of 100 years":          {func(r *sandbox.CreateRequest) { r.Mark.Lifetime = 100 * 365 * 24 * time.Hour }, sandbox.ErrInvalid},
		"no lifetime":                      {func(r *sandbox.CreateRequest) { r.Mark.Lifetime = 0 }, sandbox.ErrInvalid},
		"a mark that cannot be read":       {func(r *sandbox.CreateRequest) { r.Mark.Nonce = "../../x" }, sandbox.ErrInvalid},
		"no network, of which none knows":  {func(r *sandbox.CreateRequest) { r.Spec.Offline = true }, errors.ErrUnsupported},
		"options of another provider":      {func(r *sandbox.CreateRequest) { r.Spec.Native = struct{}{} }, sandbox.ErrInvalid},
		"a label of ours":                  {native(kubernetes.Options{Labels: map[string]string{"sandglass-fleet": "x"}}), sandbox.ErrInvalid},
		"a label of the cluster's":         {native(kubernetes.Options{Labels: map[string]string{"batch.kubernetes.io/controller-uid": "x"}}), sandbox.ErrInvalid},
		"a label that is none":             {native(kubernetes.Options{Labels: map[string]string{"a b": "x"}}), sandbox.ErrInvalid},
		"a pull policy that is none":       {native(kubernetes.Options{PullPolicy: "Sometimes"}), sandbox.ErrInvalid},
		"more reserved than the limit":     {native(kubernetes.Options{ReserveCPU: 3}), sandbox.ErrInvalid},
		"more memory reserved than that":   {native(kubernetes.Options{ReserveMemory: 3 << 30}), sandbox.ErrInvalid},
		"a user below root":                {native(kubernetes.Options{User: -1}), sandbox.ErrInvalid},
		"next to no CPU":                   {func(r *sandbox.CreateRequest) { r.Spec.CPU = 0.0001 }, sandbox.ErrInvalid},
		"an image with a blank":            {func(r *sandbox.CreateRequest) { r.Spec.Image = "a b" }, sandbox.ErrInvalid},
		"a variable that is not UTF-8":     {func(r *sandbox.CreateRequest) { r.Spec.Env = map[string]string{"A": "\xff"} }, sandbox.ErrInvalid},
		"a tag that is not UTF-8":          {func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"a": "\xff"} }, sandbox.ErrInvalid},
		"a tag that is the mark":           {func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"sandglass": "x"} }, sandbox.ErrInvalid},
		"a tag that is longer than it may": {func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"a": strings.Repeat("x", 257)} }, sandbox.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			withStub(t, nil, func(int, *http.Request) answer { return failure(500, "InternalError") }, func(t *testing.T, s *stub) {
				req := request()
				c.change(&req)
				_, err := s.p.Create(t.Context(), req)
				assert.ErrorIs(t, err, c.kind)
				e, ok := errors.AsType[*sandbox.APIError](err)
				require.True(t, ok)
				assert.True(t, e.Refused)
				assert.Empty(t, s.seen)
			})
		})
	}
}

func native(o kubernetes.Options) func(*sandbox.CreateRequest) {
	return func(r *sandbox.CreateRequest) { r.Spec.Native = &o }
}

func TestWhatARefusedCreateMeansIsCertainOnlyWhereTheServerSaysSo(t *testing.T) {
	for _, c := range []struct {
		answer  answer
		kind    error
		refused bool
	}{
		{failure(400, "BadRequest"), sandbox.ErrInvalid, true},
		{failure(401, "Unauthorized"), sandbox.ErrUnauthenticated, true},
		{failure(403, "Forbidden"), sandbox.ErrPermission, true},
		{failure(404, "NotFound"), sandbox.ErrInvalid, true},
		{failure(422, "Invalid"), sandbox.ErrInvalid, true},
		{failure(429, "TooManyRequests"), sandbox.ErrRateLimited, true},
		{answer{status: 429, body: "Too many requests, please try again later.\n", header: http.Header{"Audit-Id": {"x"}}}, sandbox.ErrRateLimited, true},
		{answer{status: 429, body: "a proxy's words"}, sandbox.ErrRateLimited, false},
		{failure(500, "InternalError"), nil, false},
		{failure(503, "ServiceUnavailable"), sandbox.ErrUnavailable, false},
		{failure(504, "Timeout"), sandbox.ErrUnavailable, false},
		{answer{status: 404, body: "404 page not found"}, nil, false},
		{answer{status: 403, body: "a proxy's words"}, nil, false},
		{answer{status: 201, body: "{}"}, nil, false},
		{answer{status: 201, body: `{"kind":"Pod","metadata":{"name":"a","uid":"b"}}`}, nil, false},
	} {
		withStub(t, nil, func(int, *http.Request) answer { return c.answer }, func(t *testing.T, s *stub) {
			info, err := s.p.Create(context.Background(), request())
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%d: %v", c.answer.status, err)
			assert.Equal(t, c.kind, e.Kind, "%d: %v", c.answer.status, err)
			assert.Equal(t, c.refused, e.Refused, "%d: %v", c.answer.status, err)
			assert.Empty(t, info.ID)
			assert.NotErrorIs(t, err, sandbox.ErrNotFound)
		})
	}
}

// echo answers a create with what was ordered, changed.
func echo(t *testing.T, body string, change func(job map[string]any)) answer {
	var j map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &j))
	meta := j["metadata"].(map[string]any)
	meta["uid"], meta["creationTimestamp"] = "u-1", "2027-01-15T08:00:00Z"
	change(j)
	b, err := json.Marshal(j)
	require.NoError(t, err)
	return answer{status: 201, body: string(b), date: time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)}
}

// at returns the object at a path of names and numbers.
func at(j map[string]any, path ...any) map[string]any {
	var here any = j
	for _, p := range path {
		switch p := p.(type) {
		case string:
			here = here.(map[string]any)[p]
		case int:
			here = here.([]any)[p]
		}
	}
	return here.(map[string]any)
}

func TestWhatAdmissionHasMadeOfAnOrderIsLookedAt(t *testing.T) {
	spec := func(j map[string]any) map[string]any { return at(j, "spec") }
	podOf := func(j map[string]any) map[string]any { return at(j, "spec", "template", "spec") }
	for name, change := range map[string]func(j map[string]any){
		"no deadline":                    func(j map[string]any) { delete(spec(j), "activeDeadlineSeconds") },
		"a later deadline":               func(j map[string]any) { spec(j)["activeDeadlineSeconds"] = 3600 },
		"a record that stays":            func(j map[string]any) { delete(spec(j), "ttlSecondsAfterFinished") },
		"a record that stays for a day":  func(j map[string]any) { spec(j)["ttlSecondsAfterFinished"] = 86400 },
		"a second pod after the first":   func(j map[string]any) { spec(j)["backoffLimit"] = 6 },
		"two pods":                       func(j map[string]any) { spec(j)["parallelism"] = 2 },
		"suspended":                      func(j map[string]any) { spec(j)["suspend"] = true },
		"another controller's":           func(j map[string]any) { spec(j)["managedBy"] = "kueue.x-k8s.io/multikueue" },
		"no hard end":                    func(j map[string]any) { delete(podOf(j), "activeDeadlineSeconds") },
		"a later hard end":               func(j map[string]any) { podOf(j)["activeDeadlineSeconds"] = 1 << 30 },
		"restarted":                      func(j map[string]any) { podOf(j)["restartPolicy"] = "OnFailure" },
		"no grace at all":                func(j map[string]any) { podOf(j)["terminationGracePeriodSeconds"] = 0 },
		"half a minute of grace":         func(j map[string]any) { podOf(j)["terminationGracePeriodSeconds"] = 30 },
		"a token":                        func(j map[string]any) { podOf(j)["automountServiceAccountToken"] = true },
		"the node's network":             func(j map[string]any) { podOf(j)["hostNetwork"] = true },
		"privileged":                     func(j map[string]any) { at(podOf(j), "containers", 0, "securityContext")["privileged"] = true },
		"no container of ours":           func(j map[string]any) { at(podOf(j), "containers", 0)["name"] = "other" },
		"no mark":                        func(j map[string]any) { delete(at(j, "metadata", "annotations"), "sandglass") },
		"no mark on the pod":             func(j map[string]any) { delete(at(j, "spec", "template", "metadata", "annotations"), "sandglass") },
		"no label by which it is listed": func(j map[string]any) { delete(at(j, "metadata", "labels"), "sandglass-fleet") },
		"another name":                   func(j map[string]any) { at(j, "metadata")["name"] = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			var s *stub
			withStub(t, nil, func(int, *http.Request) answer { return echo(t, s.sent[0], change) }, func(t *testing.T, got *stub) {
				s = got
				info, err := s.p.Create(t.Context(), request())
				require.Error(t, err)
				assert.Contains(t, err.Error(), "the cluster has made something else")
				assert.NotEmpty(t, info.ID, "made, but unfit: it has to be deleted")
				e, _ := errors.AsType[*sandbox.APIError](err)
				assert.False(t, e.Refused)
			})
		})
	}
	for name, change := range map[string]func(j map[string]any){
		"as ordered":        func(map[string]any) {},
		"more labels":       func(j map[string]any) { at(j, "metadata", "labels")["x"] = "y" },
		"a nearer deadline": func(j map[string]any) { spec(j)["activeDeadlineSeconds"] = 60 },
		"moved when its node empties": func(j map[string]any) {
			at(j, "spec", "template", "metadata", "annotations")["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "true"
		},
		"a sidecar": func(j map[string]any) {
			podOf(j)["containers"] = append([]any{map[string]any{"name": "proxy", "image": "x"}}, podOf(j)["containers"].([]any)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s *stub
			withStub(t, nil, func(int, *http.Request) answer { return echo(t, s.sent[0], change) }, func(t *testing.T, got *stub) {
				s = got
				info, err := s.p.Create(t.Context(), request())
				require.NoError(t, err)
				assert.Equal(t, "sandglass-abcdefghijklmnop/u-1", info.ID)
			})
		})
	}
}

func TestATakenNameIsThatOfAnEarlierRequestOrARefusal(t *testing.T) {
	full := func(t *testing.T, body string, change func(map[string]any)) answer {
		a := echo(t, body, change)
		a.status = 200
		return a
	}
	for name, c := range map[string]struct {
		found   func(t *testing.T, body string) answer
		id      bool
		kind    error // of the error; nil without an error
		refused bool
	}{
		"by this very order": {func(t *testing.T, body string) answer { return full(t, body, func(map[string]any) {}) }, true, nil, false},
		"by one with another mark": {func(t *testing.T, body string) answer {
			return full(t, body, func(j map[string]any) { at(j, "metadata", "annotations")["sandglass"] = "x" })
		}, false, sandbox.ErrConflict, true},
		"by one that is ending": {func(t *testing.T, body string) answer {
			return full(t, body, func(j map[string]any) { at(j, "metadata")["deletionTimestamp"] = stamp(0) })
		}, true, sandbox.ErrConflict, false},
		"by one that is gone now":    {func(*testing.T, string) answer { return failure(404, "NotFound") }, false, sandbox.ErrConflict, true},
		"by what cannot be seen":     {func(*testing.T, string) answer { return failure(503, "ServiceUnavailable") }, false, sandbox.ErrUnavailable, false},
		"by what is not to be seen":  {func(*testing.T, string) answer { return failure(403, "Forbidden") }, false, sandbox.ErrPermission, false},
		"by a Job that is none ours": {func(t *testing.T, _ string) answer { return text(jobOf(bare), 0) }, false, sandbox.ErrConflict, true},
	} {
		t.Run(name, func(t *testing.T) {
			var s *stub
			withStub(t, nil, func(n int, r *http.Request) answer {
				switch {
				case r.Method == http.MethodPost:
					return failure(409, "AlreadyExists")
				case strings.HasSuffix(r.URL.Path, "/pods"):
					return text(object{"kind": "PodList", "items": []object{}}, 0)
				}
				return c.found(t, s.sent[0])
			}, func(t *testing.T, got *stub) {
				s = got
				info, err := s.p.Create(t.Context(), request())
				assert.Equal(t, c.id, info.ID != "")
				if c.kind == nil {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, c.kind)
				e, ok := errors.AsType[*sandbox.APIError](err)
				require.True(t, ok)
				assert.Equal(t, c.refused, e.Refused, "%v", err)
			})
		})
	}
}

// With several API servers, creates that count one quota at the same time stand in each other's way.
func TestAConflictThatIsNoTakenNameIsTriedAgain(t *testing.T) {
	withStub(t, nil, func(_ int, r *http.Request) answer {
		switch {
		case r.Method == http.MethodPost:
			return failure(409, "Conflict")
		case strings.HasSuffix(r.URL.Path, "/pods"):
			return text(object{"kind": "PodList", "items": []object{}}, 0)
		}
		return failure(404, "NotFound")
	}, func(t *testing.T, s *stub) {
		_, err := s.p.Create(t.Context(), request())
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		e, _ := errors.AsType[*sandbox.APIError](err)
		assert.True(t, e.Refused, "nothing was made")
	})
}

func TestAnOwnersLeaseIsAtLeastTwoBeatsLong(t *testing.T) {
	for _, c := range []struct {
		lease, window, beat time.Duration
		fits                bool
	}{
		{time.Minute, 10 * time.Minute, 30 * time.Second, true},
		{time.Minute, 10 * time.Minute, 31 * time.Second, false},
		{time.Minute, 10 * time.Minute, 200 * time.Second, false},
		{time.Minute, time.Minute, 0, true}, // no beats are further apart
		{time.Minute, 61 * time.Second, 0, false},
	} {
		var s *stub
		withStub(t, func(cfg *kubernetes.Config) { cfg.Owner.Lease = c.lease }, func(n int, r *http.Request) answer {
			if strings.HasSuffix(r.URL.Path, "/jobs") {
				return echo(t, s.sent[n-1], func(map[string]any) {})
			}
			return text(object{"kind": "Lease", "metadata": object{"name": "x", "uid": "l"}}, 0)
		}, func(t *testing.T, got *stub) {
			s = got
			req := request()
			req.Window, req.Beat = c.window, c.beat
			_, err := s.p.Create(t.Context(), req)
			if c.fits {
				require.NoError(t, err, "%+v", c)
				return
			}
			require.ErrorIs(t, err, sandbox.ErrInvalid, "%+v", c)
			assert.ErrorContains(t, err, "Lease")
			assert.Empty(t, s.seen, "nothing is sent")
		})
	}
}

// Near the hard end, beats only look.
func TestAnOwnersLeaseIsKeptByLooksToo(t *testing.T) {
	renewals := 0
	var s *stub
	withStub(t, func(cfg *kubernetes.Config) { cfg.Owner.Lease = time.Minute }, func(n int, r *http.Request) answer {
		switch {
		case strings.Contains(r.URL.Path, "/leases"):
			if r.Method != http.MethodGet {
				renewals++
			}
			return text(object{"kind": "Lease", "metadata": object{"name": "x", "uid": "l"}}, 0)
		case r.Method == http.MethodPost:
			return echo(t, s.sent[n-1], func(map[string]any) {})
		}
		return shows(0, jobOf(), podOf())(n, r)
	}, func(t *testing.T, got *stub) {
		s = got
		req := request()
		req.Beat = 20 * time.Second
		info, err := s.p.Create(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, 1, renewals)
		for range 6 {
			time.Sleep(req.Beat)
			_, err = s.p.Get(t.Context(), info.ID)
			require.NoError(t, err)
		}
		assert.Equal(t, 7, renewals)
	})
}

// What cannot be renewed now can be renewed by beats, as long as half of the Lease is left.
func TestACreateIsRefusedOnlyWhereItsOwnerWouldBeTakenForDead(t *testing.T) {
	broken := false
	var s *stub
	withStub(t, func(cfg *kubernetes.Config) { cfg.Owner.Lease = time.Minute }, func(n int, r *http.Request) answer {
		switch {
		case strings.Contains(r.URL.Path, "/leases") && broken:
			return failure(500, "InternalError")
		case strings.Contains(r.URL.Path, "/leases"):
			return text(object{"kind": "Lease", "metadata": object{"name": "x", "uid": "l"}}, 0)
		}
		return echo(t, s.sent[n-1], func(map[string]any) {})
	}, func(t *testing.T, got *stub) {
		s = got
		req := request()
		req.Beat = 20 * time.Second
		refused := func(ctx context.Context) bool {
			_, err := s.p.Create(ctx, req)
			if err == nil {
				return false
			}
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, sandbox.OpCreate, e.Op)
			assert.True(t, e.Refused, "%v", err)
			assert.ErrorContains(t, err, "Lease")
			return true
		}
		broken = true
		assert.True(t, refused(t.Context()), "there is none yet")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("left"))
		assert.True(t, refused(ctx), "nor was one asked for")
		broken = false
		assert.False(t, refused(t.Context()))
		broken = true
		time.Sleep(20 * time.Second)
		assert.False(t, refused(t.Context()), "40 s are left")
		time.Sleep(11 * time.Second)
		assert.True(t, refused(t.Context()), "29 s are left")
	})
}
