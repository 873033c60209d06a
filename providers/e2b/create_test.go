package e2b_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

// finite requires that a create's body has an end, in the words of the service, and that the end is one.
func finite(t *testing.T, body []byte, window time.Duration) {
	t.Helper()
	var b struct {
		Timeout    *float64 `json:"timeout"`
		AutoPause  *bool    `json:"autoPause"`
		AutoResume any      `json:"autoResume"`
	}
	require.NoError(t, json.Unmarshal(body, &b))
	require.NotNil(t, b.Timeout, "the end is left to the service")
	assert.Equal(t, window.Seconds(), *b.Timeout)
	assert.Positive(t, *b.Timeout)
	require.NotNil(t, b.AutoPause, "what happens at the end is left to the service")
	assert.False(t, *b.AutoPause, "it would be parked for ever")
	assert.Nil(t, b.AutoResume)
}

func fullOrder() sandbox.CreateRequest {
	return sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: "ci-agents", Owner: "host.42", Nonce: "aaaabbbbccccdddd", Created: time.Unix(1_790_000_000, 0).UTC(), Lifetime: 90 * time.Minute,
		},
		Tags: map[string]string{"agent_job_id": "4711", "commit_sha": "4b825dc6"},
		Spec: sandbox.Spec{
			Image: "code-interpreter-v1", Env: map[string]string{"CI": "true", "GREETING": "a <b> & \"c\""}, Ports: []int{8080, 3000},
			Native: &e2b.Options{
				AllowOut: []string{"pypi.org"}, DenyOut: []string{"0.0.0.0/0"}, MaskHost: "localhost:${PORT}",
				Volumes: []e2b.Volume{{Name: "cache", Path: "/cache"}},
			},
		},
		Window: 3 * time.Minute,
	}
}

func TestCreateBodiesAreGolden(t *testing.T) {
	plain := fullOrder()
	plain.Tags, plain.Spec = nil, sandbox.Spec{}
	offline := plain
	offline.Spec = sandbox.Spec{Offline: true}
	for name, req := range map[string]sandbox.CreateRequest{"plain": plain, "full": fullOrder(), "offline": offline} {
		for version, dialect := range map[string]e2b.Dialect{"v1": e2b.DialectV1, "v2": e2b.DialectV2} {
			t.Run(name+" "+version, func(t *testing.T) {
				in(t, func(t *testing.T) {
					w := newWorld(t, func(_ *e2bfake.Options, c *e2b.Config) { c.Dialect = dialect })
					_, _ = w.p.Create(t.Context(), req) // the fake knows no volumes; what counts is what was sent
					all := w.fake.Requests()
					require.Len(t, all, 1)
					assert.Equal(t, map[string]string{"v1": "/sandboxes", "v2": "/v2/sandboxes"}[version], all[0].Path)
					var got bytes.Buffer
					require.NoError(t, json.Indent(&got, all[0].Body, "", "  "))
					got.WriteByte('\n')
					file := filepath.Join("testdata", "create", name+"."+version+".json")
					if *update {
						require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
						require.NoError(t, os.WriteFile(file, got.Bytes(), 0o644))
					}
					want, err := os.ReadFile(file)
					require.NoError(t, err)
					assert.Equal(t, string(want), got.String())
					finite(t, all[0].Body, req.Window)
				})
			})
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "create", "*.json"))
	require.NoError(t, err)
	assert.Len(t, files, 6)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		finite(t, b, 3*time.Minute)
	}
}

func TestEveryCreateHasAnEndWhateverIsOrdered(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		full := fullOrder()
		for range 200 {
			w.fake.ForgetRequests()
			req := sandbox.CreateRequest{Mark: full.Mark, Window: time.Duration(1+rand.IntN(86_400)) * time.Second}
			if rand.IntN(2) == 0 {
				req.Tags = map[string]string{"timeout": "0", "autoPause": "true"}
			}
			if rand.IntN(2) == 0 {
				req.Spec = full.Spec
			}
			_, _ = w.p.Create(t.Context(), req)
			all := w.fake.Requests()
			require.Len(t, all, 1)
			finite(t, all[0].Body, req.Window)
		}
	})
}

func TestWhatCannotBeMadeIsRefusedBeforeAnyRequest(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		for name, change := range map[string]func(*sandbox.CreateRequest){
			"a mark that cannot be read back": func(r *sandbox.CreateRequest) { r.Mark.Owner = "a b" },
			"a tag under the library's name":  func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"sandglass-ports": "1"} },
			"a tag that is no text":           func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"a": "\xff"} },
			"a tag with NUL":                  func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"a": "\x00"} },
			"a variable that is no text":      func(r *sandbox.CreateRequest) { r.Spec.Env = map[string]string{"a": "\xff"} },
			"a size":                          func(r *sandbox.CreateRequest) { r.Spec.Memory = 1 << 30 },
			"rules for no network": func(r *sandbox.CreateRequest) {
				r.Spec.Offline, r.Spec.Native = true, &e2b.Options{AllowOut: []string{"pypi.org"}}
			},
			"a volume at a relative path": func(r *sandbox.CreateRequest) {
				r.Spec.Native = &e2b.Options{Volumes: []e2b.Volume{{Name: "v", Path: "v"}}}
			},
		} {
			req := order(time.Minute)
			change(&req)
			_, err := w.p.Create(t.Context(), req)
			e := apiError(t, err)
			assert.True(t, e.Refused, name)
		}
		assert.Zero(t, w.sent.Load())
	})
}

// For an answer without an id nothing can be deleted by id, and for one with a strange id neither.
func TestACreateWithoutAUsableIDIsAnErrorThatRefusesNothing(t *testing.T) {
	for _, body := range []string{`{}`, `{"sandboxID":""}`, `{"sandboxID":"../x"}`, `{"sandboxID":7}`, `[]`, `null`, ``} {
		p, err := e2b.New(e2b.Config{APIKey: "e2b_x", HTTP: &http.Client{Transport: answers(http.StatusCreated, body)}})
		require.NoError(t, err)
		info, err := p.Create(t.Context(), order(time.Minute))
		assert.Empty(t, info.ID)
		e := apiError(t, err)
		assert.False(t, e.Refused, body)
		assert.Equal(t, http.StatusCreated, e.Status)
	}
}

func TestOfWhichFailuresItIsCertainThatNothingWasMade(t *testing.T) {
	for status, certain := range map[int]bool{
		400: true, 401: true, 403: true, 404: true, 405: true, 429: true, 408: false, 409: false, 500: false, 502: false, 503: false, 504: false,
	} {
		p, err := e2b.New(e2b.Config{APIKey: "e2b_x", HTTP: &http.Client{Transport: answers(status, `{"code":1,"message":"m"}`)}})
		require.NoError(t, err)
		_, err = p.Create(t.Context(), order(time.Minute))
		assert.Equal(t, certain, apiError(t, err).Refused, status)
	}
}

func TestTooManyRequestsAndTooManySandboxesAreToldApart(t *testing.T) {
	for after, kind := range map[string]error{"": sandbox.ErrQuota, "3": sandbox.ErrRateLimited} {
		p, err := e2b.New(e2b.Config{APIKey: "e2b_x", HTTP: httpOf(transport(func(r *http.Request) (*http.Response, error) {
			resp, err := answers(429, `{"code":429,"message":"m"}`).RoundTrip(r)
			resp.Header.Set("Retry-After", after)
			return resp, err
		}))})
		require.NoError(t, err)
		_, err = p.Create(t.Context(), order(time.Minute))
		assert.Equal(t, kind, apiError(t, err).Kind)
	}
}

func TestNoErrorShowsWhatTheServiceRepeatsOfASecret(t *testing.T) {
	const secret = `s3cr3t "value"`
	said, err := json.Marshal(map[string]any{"code": 400, "message": "cannot set KEY=" + secret + " for e2b_0123456789, token tok-4711"})
	require.NoError(t, err)
	p, err := e2b.New(e2b.Config{APIKey: "e2b_0123456789", HTTP: httpOf(transport(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Host, "api.") {
			return answers(200, with(`"envdAccessToken":"tok-4711"`)).RoundTrip(r)
		}
		return answers(400, string(said)).RoundTrip(r)
	}))})
	require.NoError(t, err)
	req := order(time.Minute)
	req.Spec.Env = map[string]string{"KEY": secret}
	_, made := p.Create(t.Context(), req)
	_, ran := p.Open(sandbox.Info{ID: "i1"}).Exec(t.Context(), sandbox.Cmd{Args: []string{"true"}, Env: req.Spec.Env})
	for _, err := range []error{made, ran} {
		apiError(t, err)
		for _, s := range []string{"s3cr3t", "e2b_0123456789"} {
			assert.NotContains(t, err.Error(), s)
		}
	}
	assert.NotContains(t, ran.Error(), "tok-4711")
}
