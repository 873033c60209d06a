package boat_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

// now is the stub service's clock, which is not ours.
var now = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

// A service is a transport that answers by itself, without a network, and remembers what it was asked.
type service struct {
	answer func(r *http.Request, body string) *http.Response // nil: the connection fails

	mu    sync.Mutex
	asked []string
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
	s.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp := s.answer(r, string(body))
	if resp == nil {
		return nil, io.ErrUnexpectedEOF
	}
	resp.Header.Set("Date", now.Format(http.TimeFormat))
	resp.Request = r
	return resp, nil
}

func (s *service) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

func answer(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json;charset=utf-8"}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

// stub returns a provider whose service is the function.
func stub(t testing.TB, f func(r *http.Request, body string) *http.Response, change ...func(*boat.Config)) (*boat.Provider, *service) {
	t.Helper()
	s := &service{answer: f}
	cfg := boat.Config{APIKey: key, HTTP: &http.Client{Transport: s}}
	for _, f := range change {
		f(&cfg)
	}
	p, err := boat.New(cfg)
	require.NoError(t, err)
	return p, s
}

// fixed is an order whose mark is always the same.
func fixed() sandbox.CreateRequest {
	return sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: "ci-agents", Owner: "host.4711", Nonce: "abcdefghijklmnop",
			Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Lifetime: 62*time.Minute + 11*time.Second,
		},
		Window: 5 * time.Minute,
	}
}

func TestCreateBodiesHaveAFiniteEndAndNothingSecret(t *testing.T) {
	for name, change := range map[string]func(*sandbox.CreateRequest){
		"smallest": func(*sandbox.CreateRequest) {},
		"full": func(r *sandbox.CreateRequest) {
			r.Spec = sandbox.Spec{
				Image: "golden <1>", Env: map[string]string{"TOKEN": "sesame-4711"}, Ports: []int{8080}, CPU: 8, Memory: 16 << 30, Disk: 125 << 30,
			}
			r.Spec.Native = &boat.Options{Environment: "ci", FailFast: true, Public: true}
		},
		"small":    func(r *sandbox.CreateRequest) { r.Spec.CPU = 2 },
		"shortest": func(r *sandbox.CreateRequest) { r.Window, r.Mark.Lifetime = time.Second, time.Second },
		"longest":  func(r *sandbox.CreateRequest) { r.Window = 30 * 24 * time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			req := fixed()
			change(&req)
			var sent []string
			p, s := stub(t, func(r *http.Request, body string) *http.Response {
				sent = append(sent, body)
				assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
				assert.Equal(t, "Bearer "+key, r.Header.Get("Authorization"))
				if r.Method == http.MethodPost {
					assert.Equal(t, req.Mark.Nonce, r.Header.Get("Idempotency-Key"))
				}
				var o struct {
					TTL json.Number `json:"ttlSeconds"`
				}
				_ = json.Unmarshal([]byte(body), &o)
				name := "Sandbox 2026-01-02 03:04"
				if r.Method == http.MethodPatch {
					name = req.Mark.String()
				}
				row := `{"id":"bx_22222222","name":"` + name + `","state":"provisioning","archiveAfter":"` + now.Add(req.Window).Format(time.RFC3339) + `"}`
				return answer(202, `{"ok":true,"type":"x","ttlSeconds":`+string(cmpNumber(o.TTL))+`,"sandbox":`+row+`}`)
			})
			info, err := p.Create(t.Context(), req)
			require.NoError(t, err)
			assert.Equal(t, req.Mark.String(), info.Mark.String())
			assert.Equal(t, []string{"POST /api/v1/sandboxes?org=personal", "PATCH /api/v1/sandboxes/bx_22222222"}, s.requests())

			var body map[string]any
			require.NoError(t, json.Unmarshal([]byte(sent[0]), &body))
			ttl, _ := body["ttlSeconds"].(float64)
			assert.Positive(t, ttl, "null is never")
			assert.LessOrEqual(t, ttl, req.Window.Seconds())
			assert.Equal(t, false, body["snapshots"])
			assert.NotNil(t, body["noEnv"])
			assert.NotContains(t, sent[0], "sesame")
			order, err := p.Order(req)
			require.NoError(t, err)
			assert.Equal(t, sent[0], string(order))

			golden := filepath.Join("testdata", "create-"+name+".json")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(sent[0]+"\n"), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), sent[0]+"\n")
		})
	}
}

func cmpNumber(n json.Number) json.Number {
	if n == "" {
		return "null"
	}
	return n
}

func TestTheLongestMarkFitsIntoAName(t *testing.T) {
	mark := fixed().Mark
	mark.Fleet, mark.Owner = strings.Repeat("f", 32), strings.Repeat("o", 32)
	mark.Lifetime, mark.Created = 365*24*time.Hour, time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
	assert.LessOrEqual(t, len(mark.String()), 120, "the service cuts off the rest")
}

func TestAConfigurationWithFaultsIsRefused(t *testing.T) {
	for name, c := range map[string]boat.Config{
		"nothing":                 {},
		"space alone":             {APIKey: " \n"},
		"a key with a line's end": {APIKey: "a\nb"},
		"a URL without a scheme":  {APIKey: "k", BaseURL: "boat.dev/api/v1"},
		"a URL with a user":       {APIKey: "k", BaseURL: "https://u:secret@boat.dev/api/v1"},
		"a URL with a query":      {APIKey: "k", BaseURL: "https://boat.dev/api/v1?key=secret"},
		"a key id that is none":   {APIKey: "k", KeyID: "a/b"},
	} {
		_, err := boat.New(c)
		require.ErrorIs(t, err, sandbox.ErrInvalid, name)
		assert.NotContains(t, err.Error(), "secret", name)
	}
}

func TestTheEnvironmentIsThatOfTheServicesOwnExamples(t *testing.T) {
	for _, name := range []string{"BOAT_API_KEY", "BOX_API_KEY", "BOAT_BASE_URL", "BOAT_API_URL", "BOX_BASE_URL"} {
		t.Setenv(name, "")
	}
	_, err := boat.FromEnv()
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	require.ErrorContains(t, err, "BOAT_API_KEY")
	name := func() string {
		p, err := boat.FromEnv()
		require.NoError(t, err)
		return p.Name()
	}
	t.Setenv("BOX_API_KEY", key)
	hosted := name()
	same, err := boat.New(boat.Config{APIKey: " " + key + "\n", BaseURL: boat.DefaultBaseURL + "/", Org: boat.DefaultOrg})
	require.NoError(t, err)
	assert.Equal(t, same.Name(), hosted)
	assert.NotContains(t, hosted, key)
	t.Setenv("BOAT_API_KEY", "boat_other")
	other := name()
	assert.NotEqual(t, hosted, other)
	t.Setenv("BOX_BASE_URL", "https://ascii.dev/api/box/v1")
	assert.Equal(t, other, name(), "the former API is not for us")
	t.Setenv("BOAT_API_URL", "https://a.test/api/v1")
	a := name()
	assert.NotEqual(t, other, a)
	t.Setenv("BOAT_BASE_URL", "https://b.test/api/v1")
	assert.NotEqual(t, a, name())
	team, err := boat.New(boat.Config{APIKey: key, Org: "team_1"})
	require.NoError(t, err)
	assert.NotEqual(t, hosted, team.Name(), "another wallet is another account")
}

func TestAnOrderThatCannotBeHonouredIsRefusedWithoutARequest(t *testing.T) {
	p, s := stub(t, func(*http.Request, string) *http.Response { return nil })
	for name, c := range map[string]struct {
		change func(*sandbox.CreateRequest)
		want   error
	}{
		"tags":              {func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"a": "b"} }, sandbox.ErrInvalid},
		"offline":           {func(r *sandbox.CreateRequest) { r.Spec.Offline = true }, errors.ErrUnsupported},
		"a size in between": {func(r *sandbox.CreateRequest) { r.Spec.CPU, r.Spec.Memory = 2, 8<<30 }, errors.ErrUnsupported},
		"half a second":     {func(r *sandbox.CreateRequest) { r.Window += time.Second / 2 }, sandbox.ErrInvalid},
		"foreign options":   {func(r *sandbox.CreateRequest) { r.Spec.Native = boat.Options{} }, sandbox.ErrInvalid},
		"no mark":           {func(r *sandbox.CreateRequest) { r.Mark = sandbox.Mark{} }, sandbox.ErrInvalid},
		"a name of no text": {func(r *sandbox.CreateRequest) { r.Spec.Image = "\xff" }, sandbox.ErrInvalid},
	} {
		req := fixed()
		c.change(&req)
		_, err := p.Create(t.Context(), req)
		require.ErrorIs(t, err, c.want, name)
		assert.True(t, apiError(t, err).Refused, name)
		_, err = p.Order(req)
		require.ErrorIs(t, err, c.want, name)
	}
	assert.Empty(t, s.requests())
}

func TestStatesAreTranslated(t *testing.T) {
	for word, want := range map[string]sandbox.State{
		"init": sandbox.StateStarting, "provisioning": sandbox.StateStarting, "provisioned": sandbox.StateStarting, "cloning": sandbox.StateStarting,
		"ready": sandbox.StateRunning, "idle": sandbox.StateRunning, "running": sandbox.StateRunning,
		"archiving": sandbox.StateEnding, "archived": sandbox.StateDormant, "error": sandbox.StateFailed, "cancelled": sandbox.StateFailed,
		"": sandbox.StateUnknown, "hibernating": sandbox.StateUnknown,
	} {
		p, _ := stub(t, func(r *http.Request, _ string) *http.Response {
			if strings.HasSuffix(r.URL.Path, "/usage") {
				return answer(200, `{"running":true}`)
			}
			return answer(200, `{"sandbox":{"id":"bx_22222222","name":"x","state":"`+word+`","archiveAfter":"2031-05-06T07:09:09.500Z","createdAt":"2031-05-06T07:00:00.000Z"}}`)
		})
		info, err := p.Get(t.Context(), "bx_22222222")
		require.NoError(t, err)
		assert.Equal(t, want, info.State, word)
		assert.Equal(t, now, info.AsOf)
		if want.MayRun() {
			assert.Equal(t, time.Minute+time.Second/2, info.Left(), word)
		} else {
			assert.Zero(t, info.Deadline, "what does not run has no lease")
		}
		if word == "error" {
			assert.Contains(t, info.Detail, "its meter runs")
		}
	}
}

func TestWhatIsNoAnswerProvesNothing(t *testing.T) {
	for name, resp := range map[string]func() *http.Response{
		"a proxy's 404":       func() *http.Response { return answer(404, `<html>nginx</html>`) },
		"an empty 404":        func() *http.Response { return answer(404, ``) },
		"a redirect":          func() *http.Response { return answer(302, ``) },
		"an empty object":     func() *http.Response { return answer(200, `{}`) },
		"another sandbox":     func() *http.Response { return answer(200, `{"sandbox":{"id":"bx_33333333","state":"ready"}}`) },
		"an id that is none":  func() *http.Response { return answer(200, `{"sandbox":{"id":"../x","state":"ready"}}`) },
		"a time that is none": func() *http.Response { return answer(200, `{"sandbox":{"id":"bx_22222222","archiveAfter":"soon"}}`) },
		"too much":            func() *http.Response { return answer(200, strings.Repeat(" ", 9<<20)+`{}`) },
	} {
		p, _ := stub(t, func(*http.Request, string) *http.Response { return resp() })
		_, err := p.Get(t.Context(), "bx_22222222")
		require.Error(t, err, name)
		require.NotErrorIs(t, err, sandbox.ErrNotFound, name)
		require.NotErrorIs(t, p.Delete(t.Context(), "bx_22222222"), sandbox.ErrNotFound, name)
	}
}

func TestABeatThatTellsNoEndIsAnErrorAndALongerOneIsLogged(t *testing.T) {
	var said strings.Builder
	end := "null"
	p, _ := stub(t, func(*http.Request, string) *http.Response {
		return answer(200, `{"sandbox":{"id":"bx_22222222","state":"ready","archiveAfter":`+end+`}}`)
	}, func(c *boat.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	_, err := p.Extend(t.Context(), sandbox.Info{ID: "bx_22222222"}, time.Minute)
	require.ErrorContains(t, err, "no end")
	assert.Empty(t, said.String())
	end = `"` + now.Add(time.Hour).Format(time.RFC3339) + `"`
	info, err := p.Extend(t.Context(), sandbox.Info{ID: "bx_22222222"}, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, time.Hour, info.Left(), "what was granted rules")
	assert.Contains(t, said.String(), "more than was asked for")
}

func TestThereIsNoSecretInLogsAndErrors(t *testing.T) {
	var said strings.Builder
	p, _ := stub(t, func(*http.Request, string) *http.Response {
		return answer(500, `{"code":"x","message":"see https://u:p@host/?_token=abc for `+key+`"}`)
	}, func(c *boat.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	_, err := p.Get(t.Context(), "bx_22222222")
	require.Error(t, err)
	for _, text := range []string{said.String(), err.Error()} {
		assert.NotContains(t, text, key)
		assert.NotContains(t, text, "_token=abc")
	}
	assert.NotEmpty(t, said.String())
}
