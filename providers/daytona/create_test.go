package daytona_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

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

// madeAs is the answer to a create.
func madeAs(left time.Duration, change ...func(map[string]any)) string {
	dto := map[string]any{
		"id": uuid, "name": fixed().Mark.Name(), "labels": map[string]string{sandbox.MarkKey: fixed().Mark.String()},
		"state": "creating", "desiredState": "started",
		"createdAt": now.Format(time.RFC3339Nano), "autoDestroyAt": now.Add(left).Format("2006-01-02T15:04:05.000Z"),
		"toolboxProxyUrl": "https://proxy.daytona.test/toolbox",
	}
	for _, f := range change {
		f(dto)
	}
	b, _ := json.Marshal(dto)
	return string(b)
}

func without(name string) func(map[string]any) {
	return func(dto map[string]any) { delete(dto, name) }
}

func with(name string, v any) func(map[string]any) {
	return func(dto map[string]any) { dto[name] = v }
}

func TestCreateBodiesHaveAFiniteEndAndNoPause(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sandbox.CreateRequest)
		config func(*daytona.Config)
	}{
		"smallest": {func(*sandbox.CreateRequest) {}, nil},
		"full": {func(r *sandbox.CreateRequest) {
			r.Tags = map[string]string{"commit_sha": "4b825dc", "job": "a \"b\" <c>"}
			r.Spec = sandbox.Spec{Image: "my-snapshot", Env: map[string]string{"A": "1 & 2"}, Ports: []int{8080, 3000}, Offline: true}
			r.Spec.Native = &daytona.Options{
				User: "root", Target: "eu", Public: true, Volumes: []daytona.Volume{{ID: "v1", Path: "/data", Subpath: "x"}},
			}
		}, func(cfg *daytona.Config) { cfg.Target = "us" }},
		"built": {func(r *sandbox.CreateRequest) {
			r.Spec = sandbox.Spec{CPU: 2, Memory: 4 << 30, Disk: 8 << 30}
			r.Spec.Native = &daytona.Options{
				Dockerfile: "FROM debian:12\n", GPU: 1, GPUTypes: []string{"H100"},
				AllowNets: []string{"10.0.0.0/8", "192.0.2.0/24"}, AllowDomains: []string{"example.com"},
			}
		}, func(cfg *daytona.Config) { cfg.Target = "us" }},
		"idle":     {func(*sandbox.CreateRequest) {}, allowIdle},
		"shortest": {func(r *sandbox.CreateRequest) { r.Window, r.Mark.Lifetime = time.Minute, time.Second }, nil},
		"longest":  {func(r *sandbox.CreateRequest) { r.Window, r.Mark.Lifetime = 24*time.Hour, 365*24*time.Hour }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			req := fixed()
			c.change(&req)
			var sent string
			var change []func(*daytona.Config)
			if c.config != nil {
				change = append(change, c.config)
			}
			p, _ := stub(t, func(r *http.Request, body string) *http.Response {
				sent = body
				assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
				assert.Equal(t, "POST /api/sandbox", r.Method+" "+r.URL.RequestURI())
				return says(200, madeAs(req.Window))
			}, change...)
			_, err := p.Create(t.Context(), req)
			require.NoError(t, err)

			var body map[string]any
			require.NoError(t, json.Unmarshal([]byte(sent), &body))
			ttl, _ := body["ttlMinutes"].(float64)
			stop, _ := body["autoStopInterval"].(float64)
			assert.Positive(t, ttl, "0 is for ever")
			assert.Positive(t, stop, "0 is never")
			if name == "idle" {
				assert.EqualValues(t, 5, stop)
				assert.EqualValues(t, 63, ttl)
			} else {
				assert.LessOrEqual(t, ttl, req.Window.Minutes())
				assert.GreaterOrEqual(t, stop, req.Mark.Lifetime.Minutes(), "a quiet owner is not idle")
			}
			remove, ok := body["autoDeleteInterval"].(float64)
			assert.True(t, ok && remove == 0, "a stop is to delete")
			assert.NotContains(t, body, "autoPauseInterval")
			assert.NotContains(t, body, "autoArchiveInterval")

			pretty, err := json.MarshalIndent(body, "", "  ")
			require.NoError(t, err)
			file := filepath.Join("testdata", "create-"+name+".json")
			if *update {
				require.NoError(t, os.WriteFile(file, append(pretty, '\n'), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(pretty)+"\n")
		})
	}
}

func TestAnOrderWithFaultsIsRefusedBeforeAnyRequest(t *testing.T) {
	native := func(o daytona.Options) func(*sandbox.CreateRequest) {
		return func(r *sandbox.CreateRequest) { r.Spec.Native = &o }
	}
	for name, change := range map[string]func(*sandbox.CreateRequest){
		"CPU of a snapshot": func(r *sandbox.CreateRequest) { r.Spec.CPU = 1 },
		"half a CPU": func(r *sandbox.CreateRequest) {
			r.Spec.CPU, r.Spec.Native = 0.5, &daytona.Options{Dockerfile: "FROM x"}
		},
		"memory, not whole": func(r *sandbox.CreateRequest) {
			r.Spec.Memory, r.Spec.Native = 1<<29, &daytona.Options{Dockerfile: "FROM x"}
		},
		"snapshot and build": func(r *sandbox.CreateRequest) {
			r.Spec.Image, r.Spec.Native = "x", &daytona.Options{Dockerfile: "FROM x"}
		},
		"two GPUs":              native(daytona.Options{GPU: 2}),
		"a snapshot's GPU":      native(daytona.Options{GPU: 1}),
		"a GPU's type alone":    native(daytona.Options{GPUTypes: []string{"H100"}}),
		"a volume without path": native(daytona.Options{Volumes: []daytona.Volume{{ID: "v"}}}),
		"offline with networks": func(r *sandbox.CreateRequest) {
			r.Spec.Offline, r.Spec.Native = true, &daytona.Options{AllowNets: []string{"10.0.0.0/8"}}
		},
		"half a minute":          func(r *sandbox.CreateRequest) { r.Window = 90 * time.Second },
		"no window":              func(r *sandbox.CreateRequest) { r.Window = 0 },
		"no lifetime":            func(r *sandbox.CreateRequest) { r.Mark.Lifetime = 0 },
		"a tag of the library's": func(r *sandbox.CreateRequest) { r.Tags = map[string]string{sandbox.MarkKey + "-x": "y"} },
		"a tag that is no UTF-8": func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"k": "\xff"} },
		"a variable likewise":    func(r *sandbox.CreateRequest) { r.Spec.Env = map[string]string{"k": "\xff"} },
		"a mark that is none":    func(r *sandbox.CreateRequest) { r.Mark.Nonce = "short" },
	} {
		t.Run(name, func(t *testing.T) {
			p, s := stub(t, func(*http.Request, string) *http.Response { return says(200, madeAs(time.Minute)) })
			req := fixed()
			change(&req)
			info, err := p.Create(t.Context(), req)
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.True(t, e.Refused)
			assert.True(t, errors.Is(err, sandbox.ErrInvalid) || errors.Is(err, errors.ErrUnsupported), "%v", err)
			assert.Empty(t, info.ID)
			assert.Empty(t, s.requests())
		})
	}
}

func TestOnlyWhatIsCertainIsARefusalOfACreate(t *testing.T) {
	body := func(code int) string {
		return fmt.Sprintf(`{"statusCode":%d,"message":"Total CPU limit exceeded","error":"x","path":"/","timestamp":"x"}`, code)
	}
	for _, c := range []struct {
		name    string
		answer  *http.Response
		refused bool
		kind    error
	}{
		{"401", says(401, body(401)), true, sandbox.ErrUnauthenticated},
		{"403", says(403, body(403)), true, sandbox.ErrPermission},
		{"404", says(404, body(404)), true, sandbox.ErrInvalid},
		{"429", says(429, body(429), "Retry-After-sandbox-create", "17"), true, sandbox.ErrRateLimited},
		{"500", says(500, body(500)), false, nil},
		{"502 of a proxy", says(502, "<html>bad gateway</html>", "Content-Type", "text/html"), false, sandbox.ErrUnavailable},
		{"403 of a proxy", says(403, "no", "Content-Type", "text/plain"), false, nil},
		{"504", says(504, body(504)), false, sandbox.ErrUnavailable},
		{"a page", says(200, "<!doctype html>", "Content-Type", "text/html; charset=utf-8"), true, sandbox.ErrInvalid},
		{"a redirect", says(302, "", "Location", "https://login.daytona.test/?token=abc"), false, nil},
		{"no JSON", says(200, "yes"), false, nil},
		{"JSON without an id", says(200, `{"name":"x"}`), false, nil},
		{"nothing", nil, false, sandbox.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := stub(t, func(*http.Request, string) *http.Response { return c.answer })
			info, err := p.Create(t.Context(), fixed())
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, c.refused, e.Refused, "%v", err)
			assert.Equal(t, c.kind, e.Kind)
			assert.Empty(t, info.ID)
			assert.Equal(t, p.Name(), e.Provider)
			assert.Equal(t, sandbox.OpCreate, e.Op)
			if c.name == "429" {
				assert.Equal(t, 17*time.Second, e.RetryAfter)
			}
			if c.name == "a page" || c.name == "404" {
				assert.ErrorContains(t, err, "/api")
			}
			assert.NotContains(t, err.Error(), "token")
		})
	}
}

func TestA400OfACreateIsLookedInto(t *testing.T) {
	refusal := `{"statusCode":400,"message":"Total disk limit exceeded","error":"Bad Request"}`
	gone := `{"statusCode":404,"message":"Sandbox not found","error":"Not Found"}`
	for _, c := range []struct {
		name, look string
		status     int
		refused    bool
		id         string
	}{
		{"nothing there", gone, 404, true, ""},
		{"ours, and failed", madeAs(time.Minute, with("state", "error")), 200, false, uuid},
		{"somebody else's", madeAs(time.Minute, with("labels", map[string]string{})), 200, true, ""},
		{"cannot be seen", `{"statusCode":500,"message":"x"}`, 500, false, ""},
		{"a proxy's 404", "not here", 404, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, s := stub(t, func(r *http.Request, _ string) *http.Response {
				if r.Method == http.MethodPost {
					return says(400, refusal)
				}
				return says(c.status, c.look)
			})
			info, err := p.Create(t.Context(), fixed())
			require.Error(t, err)
			e, _ := errors.AsType[*sandbox.APIError](err)
			require.NotNil(t, e)
			assert.Equal(t, c.refused, e.Refused, "%v", err)
			assert.Equal(t, c.id, info.ID)
			assert.ErrorContains(t, err, "disk limit")
			assert.Equal(t, "GET /api/sandbox/"+fixed().Mark.Name(), s.requests()[1])
			if c.refused {
				require.ErrorIs(t, err, sandbox.ErrInvalid)
				require.NotErrorIs(t, err, sandbox.ErrNotFound)
			}
		})
	}
}

func TestATakenNameIsOursOnlyWithOurMark(t *testing.T) {
	taken := `{"statusCode":409,"message":"Sandbox with name x already exists","error":"Conflict"}`
	for _, c := range []struct {
		name, look string
		status     int
		ok         bool
		refused    bool
	}{
		{"ours, starting", madeAs(5 * time.Minute), 200, true, false},
		{"ours, running", madeAs(5*time.Minute, with("state", "started")), 200, true, false},
		{"ours, failed", madeAs(5*time.Minute, with("state", "error")), 200, false, false},
		{"ours, without an end", madeAs(5*time.Minute, without("autoDestroyAt")), 200, false, false},
		{"another's", madeAs(5*time.Minute, with("labels", map[string]string{"a": "b"})), 200, false, true},
		{"gone", `{"statusCode":404,"message":"not found"}`, 404, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := stub(t, func(r *http.Request, _ string) *http.Response {
				if r.Method == http.MethodPost {
					return says(409, taken)
				}
				return says(c.status, c.look)
			})
			info, err := p.Create(t.Context(), fixed())
			if c.ok {
				require.NoError(t, err)
				assert.Equal(t, uuid, info.ID)
				return
			}
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, c.refused, e.Refused, "%v", err)
			require.NotErrorIs(t, err, sandbox.ErrNotFound)
			assert.Equal(t, c.name == "ours, failed" || c.name == "ours, without an end", info.ID == uuid)
		})
	}
}

func TestAnEndThatIsNotWhatWasAskedForMakesASandboxUnfit(t *testing.T) {
	answer := func(body, look string) func(*http.Request, string) *http.Response {
		return func(r *http.Request, _ string) *http.Response {
			if r.Method == http.MethodPost {
				return says(200, body)
			}
			if look == "" {
				return says(500, `{"statusCode":500,"message":"x"}`)
			}
			return says(200, look)
		}
	}
	none := madeAs(0, without("autoDestroyAt"))
	t.Run("a service that ignores the TTL", func(t *testing.T) {
		p, _ := stub(t, answer(none, none))
		info, err := p.Create(t.Context(), fixed())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		assert.Equal(t, uuid, info.ID)
	})
	t.Run("a gap in one answer", func(t *testing.T) {
		p, _ := stub(t, answer(none, madeAs(5*time.Minute)))
		info, err := p.Create(t.Context(), fixed())
		require.NoError(t, err)
		assert.Equal(t, 5*time.Minute, info.Left())
	})
	t.Run("an end that cannot be read now", func(t *testing.T) {
		p, _ := stub(t, answer(none, ""))
		info, err := p.Create(t.Context(), fixed())
		require.NoError(t, err, "never deleted for that")
		assert.True(t, info.Deadline.IsZero())
	})
	t.Run("a longest life below the window", func(t *testing.T) {
		p, _ := stub(t, answer(madeAs(time.Minute), ""))
		info, err := p.Create(t.Context(), fixed())
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		require.ErrorContains(t, err, "maxSandboxLifespan")
		assert.Equal(t, uuid, info.ID)
	})
	t.Run("a create that took its time", func(t *testing.T) {
		p, _ := stub(t, answer(madeAs(4*time.Minute), ""))
		_, err := p.Create(t.Context(), fixed())
		require.NoError(t, err)
	})
	t.Run("a stop that does not delete", func(t *testing.T) {
		for _, change := range [][]func(*daytona.Config){nil, {allowIdle}} {
			p, _ := stub(t, answer(madeAs(5*time.Minute, with("autoDeleteInterval", -1), with("autoStopInterval", 5)), ""), change...)
			info, err := p.Create(t.Context(), fixed())
			require.ErrorIs(t, err, sandbox.ErrInvalid)
			assert.Equal(t, uuid, info.ID)
		}
	})
	t.Run("an idle clock of another length", func(t *testing.T) {
		p, _ := stub(t, answer(madeAs(time.Hour, with("autoStopInterval", 15)), ""), allowIdle)
		info, err := p.Create(t.Context(), fixed())
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.Equal(t, uuid, info.ID)
	})
}

func TestACreateWhoseContextEndsIsNoRefusal(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	p, _ := stub(t, func(*http.Request, string) *http.Response { cancel(why); return nil })
	_, err := p.Create(ctx, fixed())
	require.ErrorIs(t, err, why)
	e, ok := errors.AsType[*sandbox.APIError](err)
	assert.False(t, ok && e.Refused)
}

func TestNoErrorShowsKeyOrVariables(t *testing.T) {
	secret := "hunter2-hunter2"
	req := fixed()
	req.Spec.Env = map[string]string{"PASSWORD": secret}
	echo := `{"statusCode":500,"message":"bad: ` + secret + ` Bearer ` + key + ` ` + key + `"}`
	p, _ := stub(t, func(*http.Request, string) *http.Response { return says(500, echo) })
	_, err := p.Create(t.Context(), req)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), secret)
	assert.NotContains(t, err.Error(), key)
	echo = strings.ReplaceAll(echo, "dtn_", "xxx_")
	p, _ = stub(t, func(*http.Request, string) *http.Response { return says(500, echo) }, func(c *daytona.Config) {
		c.APIKey = strings.ReplaceAll(key, "dtn_", "xxx_")
	})
	_, err = p.Get(t.Context(), uuid)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), key[4:])
}
