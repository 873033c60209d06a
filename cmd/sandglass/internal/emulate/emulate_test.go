package emulate_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/emulate"
	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/providers/modal"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// asProgram, in the environment, has the test binary be a program that makes a sandbox: "tidy" deletes it, "leave" does not,
// "fail" does not and fails.
const asProgram = "SANDGLASS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if how := os.Getenv(asProgram); how != "" {
		os.Exit(program(how))
	}
	goleak.VerifyTestMain(m)
}

func program(how string) int {
	p, err := e2b.FromEnv()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	info, err := p.Create(context.Background(), order("aaaaaaaaaaaaaaaa", time.Minute, nil))
	if err == nil && how == "tidy" {
		err = p.Delete(context.Background(), info.ID)
	}
	fmt.Println("made", info.ID, err)
	if how == "fail" {
		return 7
	}
	return 0
}

func order(nonce string, window time.Duration, tags map[string]string) sandbox.CreateRequest {
	return sandbox.CreateRequest{Tags: tags, Window: window, Mark: sandbox.Mark{
		Fleet: "ci", Owner: "runner.1", Nonce: nonce, Created: time.Unix(1_900_000_000, 0).UTC(), Lifetime: time.Hour,
	}}
}

func start(t *testing.T, service string) *emulate.Server {
	t.Helper()
	s, err := emulate.Start(service, "")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// setEnv has the process find a service as the command's users do.
func setEnv(t *testing.T, s *emulate.Server) {
	t.Helper()
	for _, v := range s.Env() {
		k, v, _ := strings.Cut(v, "=")
		t.Setenv(k, v)
	}
}

func provider(t *testing.T, s *emulate.Server, service string) sandbox.Provider {
	t.Helper()
	setEnv(t, s)
	return fromEnv(t, service)
}

func fromEnv(t *testing.T, service string) sandbox.Provider {
	t.Helper()
	var p sandbox.Provider
	var err error
	switch service {
	case "e2b":
		p, err = e2b.FromEnv()
	case "daytona":
		p, err = daytona.FromEnv()
	case "boat":
		p, err = boat.FromEnv()
	case "modal":
		var m *modal.Provider
		m, err = modal.FromEnv()
		t.Cleanup(m.Close)
		p = m
	case "vercel":
		p, err = vercel.New(vercel.Config{
			Token: os.Getenv("VERCEL_TOKEN"), Team: os.Getenv("VERCEL_TEAM_ID"), Project: os.Getenv("VERCEL_PROJECT_ID"),
			BaseURL: os.Getenv("SANDGLASS_VERCEL_URL"),
		})
	default:
		t.Fatalf("service %q has no provider in this test", service)
	}
	require.NoError(t, err)
	return p
}

func TestEveryServiceTakesAWholeScope(t *testing.T) {
	for _, service := range emulate.Services() {
		t.Run(service, func(t *testing.T) {
			s := start(t, service)
			m, err := sandbox.NewManager(provider(t, s, service), sandbox.Config{Fleet: "ci", Unmarked: true})
			require.NoError(t, err)
			err = m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
				left := s.Left()
				require.Len(t, left, 1)
				assert.Equal(t, "running", left[0].State)
				assert.Contains(t, sb.ID(), left[0].ID, "it is shown under the id that clients know")
				assert.False(t, left[0].Deadline.IsZero())
				res, err := sb.Exec(ctx, sandbox.Shell("echo out"))
				if err != nil {
					return err
				}
				assert.Equal(t, "out\n", string(res.Stdout))
				return res.Err()
			})
			require.NoError(t, err)
			assert.Empty(t, s.Left())
			all := s.Sandboxes()
			require.Len(t, all, 1)
			assert.Equal(t, "by request", all[0].How)
			// Who reads a stream or a socket knows of its end before its handler has returned.
			assert.Eventually(t, func() bool {
				return !slices.ContainsFunc(s.Requests(), func(r emulate.Request) bool { return !r.Done })
			}, time.Minute, 10*time.Millisecond)
			for _, r := range s.Requests() {
				assert.NotZero(t, r.Status, "%s %s", r.Method, r.Path)
				assert.NotContains(t, r.Path, "?")
			}
		})
	}
}

func TestHowALifeEndedIsTold(t *testing.T) {
	s := start(t, "e2b")
	p := provider(t, s, "e2b")
	leased, err := p.Create(t.Context(), order("aaaaaaaaaaaaaaaa", time.Minute, nil))
	require.NoError(t, err)
	deleted, err := p.Create(t.Context(), order("bbbbbbbbbbbbbbbb", 10*time.Minute, map[string]string{"task": "t1"}))
	require.NoError(t, err)
	kept, err := p.Create(t.Context(), order("cccccccccccccccc", 10*time.Minute, nil))
	require.NoError(t, err)
	s.State().Advance(30 * time.Second)
	_, err = p.Extend(t.Context(), kept, 10*time.Minute)
	require.NoError(t, err)
	s.State().Advance(60 * time.Second)
	require.NoError(t, p.Delete(t.Context(), deleted.ID))

	all := map[string]emulate.Sandbox{}
	for _, b := range s.Sandboxes() {
		all[b.ID] = b
	}
	require.Len(t, all, 3)
	assert.Equal(t, "by its lease", all[leased.ID].How)
	assert.Equal(t, time.Minute, all[leased.ID].Ended.Sub(all[leased.ID].Created).Round(time.Second))
	assert.Equal(t, "by request", all[deleted.ID].How)
	assert.True(t, all[deleted.ID].Deadline.After(all[deleted.ID].Ended), "the lease that it had is still told")
	assert.Empty(t, all[kept.ID].How)
	assert.Equal(t, 1, all[kept.ID].Beats)
	assert.Equal(t, "ci, runner.1", all[deleted.ID].Owner)
	assert.Equal(t, []emulate.Tag{{Key: "task", Value: "t1"}}, all[deleted.ID].Tags)
	left := s.Left()
	require.Len(t, left, 1)
	assert.Equal(t, kept.ID, left[0].ID)
}

func TestDaytonasIdleClockIsALeaseToo(t *testing.T) {
	s := start(t, "daytona")
	setEnv(t, s)
	status, body, _ := get(t, os.Getenv("DAYTONA_API_URL")+"/sandbox", func(r *http.Request) {
		r.Method, r.Body = http.MethodPost, io.NopCloser(strings.NewReader(`{"autoStopInterval":7}`))
		r.Header.Set("Authorization", "Bearer "+os.Getenv("DAYTONA_API_KEY"))
		r.Header.Set("Content-Type", "application/json")
	})
	require.Equal(t, http.StatusOK, status, body)
	s.State().Advance(time.Second) // it starts
	left := s.Left()
	require.Len(t, left, 1)
	assert.Equal(t, "running", left[0].State)
	assert.WithinDuration(t, left[0].Created.Add(7*time.Minute), left[0].Deadline, time.Minute)
	_, body, _ = get(t, s.Page(), nil)
	assert.NotContains(t, body, "no lease ends it")
}

func get(t *testing.T, url string, change func(*http.Request)) (status int, body string, h http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if change != nil {
		change(r)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b), resp.Header
}

func TestTheStateIsJSONToo(t *testing.T) {
	s := start(t, "e2b")
	_, err := provider(t, s, "e2b").Create(t.Context(), order("aaaaaaaaaaaaaaaa", time.Minute, nil))
	require.NoError(t, err)
	status, body, _ := get(t, s.Page()+"/state", nil)
	assert.Equal(t, http.StatusOK, status)
	var state emulate.State
	require.NoError(t, json.Unmarshal([]byte(body), &state))
	assert.Equal(t, "e2b", state.Service)
	assert.Len(t, state.Sandboxes, 1)
	require.NotEmpty(t, state.Requests)
	assert.Equal(t, "/v2/sandboxes", state.Requests[len(state.Requests)-1].Path)
}

func TestThePageStandsInNobodysWay(t *testing.T) {
	s := start(t, "e2b")
	for name, change := range map[string]func(*http.Request){
		"a request for a sandbox":                                   func(r *http.Request) { r.Header.Set("E2b-Sandbox-Id", "i0") },
		"one for a sandbox's port":                                  func(r *http.Request) { r.Host = "8000-i0.e2b.app" },
		"one from a page of the web whose name points to 127.0.0.1": func(r *http.Request) { r.Host = "evil.example" },
	} {
		t.Run(name, func(t *testing.T) {
			_, body, _ := get(t, s.Page(), change)
			assert.NotContains(t, body, "emulated")
		})
	}
	t.Run("and only looks", func(t *testing.T) {
		status, _, _ := get(t, s.Page(), func(r *http.Request) { r.Method = http.MethodPost })
		assert.Equal(t, http.StatusMethodNotAllowed, status)
	})
	t.Run("it is no request to the service", func(t *testing.T) {
		before := len(s.Requests())
		status, body, h := get(t, s.Page(), nil)
		assert.Equal(t, http.StatusOK, status)
		assert.Contains(t, body, "E2B, emulated")
		assert.Len(t, s.Requests(), before)
		assert.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'")
		assert.Equal(t, "no-store", h.Get("Cache-Control"))
	})
}

func TestOnlyThisMachineIsServed(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "example.com:80", "nonsense"} {
		_, err := emulate.Start("e2b", addr)
		require.ErrorIs(t, err, sandbox.ErrInvalid, addr)
	}
	_, err := emulate.Start("other", "")
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.ErrorContains(t, err, `service "other" is none of boat, daytona, e2b, modal and vercel`)
}

// A buffer may be written to and read at once.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestAProgramRunsWithTheEnvironmentOfItsSDK(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for how, want := range map[string]int{"tidy": 0, "leave": emulate.LeftBehind, "fail": 7} {
		t.Run(how, func(t *testing.T) {
			t.Setenv(asProgram, how)
			var stdout, stderr buffer
			code, err := emulate.Run(t.Context(), emulate.Options{Service: "e2b", Program: []string{self}, Stdout: &stdout, Stderr: &stderr})
			require.NoError(t, err)
			assert.Equal(t, want, code)
			assert.Regexp(t, `^made \S+ <nil>\n$`, stdout.String(), "standard output is the program's alone")
			said := stderr.String()
			assert.Regexp(t, `(?m)^\d\d:\d\d:\d\d\.\d{3}  request  POST /v2/sandboxes  201, `, said)
			assert.Regexp(t, `(?m)^\d\d:\d\d:\d\d\.\d{3}  sandbox  i0sandbx\w+ is running, its lease ends in .*\[ci, runner.1\]$`, said)
			if how == "tidy" {
				assert.Contains(t, said, "end      no sandbox is left")
			} else {
				assert.Regexp(t, `(?m)^end      left behind: i0sandbx\w+ is running`, said)
			}
			assert.NotContains(t, said, "e2b_", "no key is shown")
		})
	}
	t.Run("a signal's number is its exit code", func(t *testing.T) {
		code, err := emulate.Run(t.Context(), emulate.Options{Service: "e2b", Program: []string{"sh", "-c", "kill -9 $$"}, Stdout: io.Discard, Stderr: io.Discard})
		require.NoError(t, err)
		assert.Equal(t, 128+9, code)
	})
	t.Run("one that cannot be run is an error", func(t *testing.T) {
		code, err := emulate.Run(t.Context(), emulate.Options{Service: "e2b", Program: []string{"/no/such/program"}, Stdout: io.Discard, Stderr: io.Discard})
		require.ErrorIs(t, err, os.ErrNotExist)
		assert.Equal(t, 1, code)
	})
	t.Run("a service that is none is a wrong use", func(t *testing.T) {
		code, err := emulate.Run(t.Context(), emulate.Options{Service: "other", Stdout: io.Discard, Stderr: io.Discard})
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.Equal(t, 2, code)
	})
}

func TestTheEnvironmentIsPrintedUntilTheEnd(t *testing.T) {
	for _, service := range emulate.Services() {
		for _, asJSON := range []bool{false, true} {
			t.Run(fmt.Sprint(service, asJSON), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				out, in := io.Pipe()
				var stderr buffer
				var code int
				var wg sync.WaitGroup
				wg.Go(func() {
					var err error
					code, err = emulate.Run(ctx, emulate.Options{Service: service, JSON: asJSON, Stdout: in, Stderr: &stderr})
					assert.NoError(t, err)
					_ = in.Close()
				})
				line, err := bufio.NewReader(out).ReadString('\n')
				require.NoError(t, err)
				if asJSON {
					var told emulate.Told
					require.NoError(t, json.Unmarshal([]byte(line), &told))
					assert.Equal(t, service, told.Service)
					assert.NotEmpty(t, told.Env)
					assert.Equal(t, told.URL+"/_sandglass", told.Page)
					status, _, _ := get(t, told.Page, nil)
					assert.Equal(t, http.StatusOK, status)
				} else {
					assert.Regexp(t, `^export [A-Z_0-9]+=[-A-Za-z0-9_:/.]+\n$`, line)
					go func() { _, _ = io.Copy(io.Discard, out) }()
				}
				cancel()
				wg.Wait()
				assert.Zero(t, code)
				assert.Contains(t, stderr.String(), "no sandbox is left")
				assert.Regexp(t, `(?m)^page     http://127\.0\.0\.1:\d+/_sandglass$`, stderr.String())
			})
		}
	}
}

func TestWhatAClientLeavesIsNamed(t *testing.T) {
	for _, service := range emulate.Services() {
		t.Run(service, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, in := io.Pipe()
			var stderr buffer
			var code int
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				var err error
				code, err = emulate.Run(ctx, emulate.Options{Service: service, JSON: true, Stdout: in, Stderr: &stderr})
				assert.NoError(t, err)
			})
			var told emulate.Told
			require.NoError(t, json.NewDecoder(out).Decode(&told))
			for k, v := range told.Env {
				t.Setenv(k, v)
			}
			p := fromEnv(t, service)
			tags := map[string]string{"task": "t1"}
			if p.Capabilities().MaxTags == 0 {
				tags = nil
			}
			left, err := p.Create(t.Context(), order("aaaaaaaaaaaaaaaa", 10*time.Minute, tags))
			require.NoError(t, err)
			gone, err := p.Create(t.Context(), order("bbbbbbbbbbbbbbbb", 10*time.Minute, tags))
			require.NoError(t, err)
			require.Eventually(t, func() bool { // a delete may be refused while a sandbox starts
				err := p.Delete(t.Context(), gone.ID)
				return err == nil || errors.Is(err, sandbox.ErrNotFound)
			}, time.Minute, 20*time.Millisecond)
			cancel()
			wg.Wait()
			assert.Equal(t, emulate.LeftBehind, code)
			said := stderr.String()
			named := regexp.MustCompile(`(?m)^end      left behind: (\S+) is (?:starting|running).*$`).FindAllStringSubmatch(said, -1)
			require.Len(t, named, 1, said)
			assert.Contains(t, left.ID, named[0][1])
			assert.Equal(t, tags != nil, strings.Contains(named[0][0], "task=t1"), named[0][0])
			assert.Regexp(t, `(?m)  sandbox  \S+ is gone.*, ended by request`, said)
			assert.NotContains(t, said, "no sandbox is left")
		})
	}
}

// stuck is a terminal that is stopped until it is told to go on.
type stuck struct {
	buffer
	until chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.until
	return s.buffer.Write(p)
}

func TestAStoppedTerminalStopsNobody(t *testing.T) {
	t.Setenv(asProgram, "tidy")
	self, err := os.Executable()
	require.NoError(t, err)
	until := make(chan struct{})
	stderr := &stuck{until: until}
	done := make(chan int)
	ended := &signalling{in: make(chan struct{})}
	go func() {
		code, _ := emulate.Run(t.Context(), emulate.Options{Service: "e2b", Program: []string{self}, Stdout: ended, Stderr: stderr})
		done <- code
	}()
	<-ended.in // the program has had all its answers
	close(until)
	assert.Zero(t, <-done)
	assert.Contains(t, stderr.String(), "request  DELETE /sandboxes/")
}

// signalling tells of the first write.
type signalling struct {
	once sync.Once
	in   chan struct{}
}

func (s *signalling) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.in) })
	return len(p), nil
}

func TestALineIsPrintedOnceForEachChange(t *testing.T) {
	t.Setenv(asProgram, "tidy")
	self, err := os.Executable()
	require.NoError(t, err)
	var stderr buffer
	_, err = emulate.Run(t.Context(), emulate.Options{Service: "e2b", Program: []string{self}, Stdout: io.Discard, Stderr: &stderr})
	require.NoError(t, err)
	seen := map[string]bool{}
	for line := range strings.Lines(stderr.String()) {
		if _, text, ok := strings.Cut(line, "  sandbox  "); ok {
			assert.False(t, seen[text], "twice: %s", text)
			seen[text] = true
		}
	}
	assert.Len(t, seen, 2)
}

func TestWhatAClientWritesDoesNotMoveTheCursor(t *testing.T) {
	t.Setenv(asProgram, "")
	var stderr buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = emulate.Run(ctx, emulate.Options{Service: "e2b", JSON: true, Stdout: in, Stderr: &stderr})
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var told emulate.Told
	require.NoError(t, json.Unmarshal([]byte(line), &told))
	p, err := e2b.New(e2b.Config{APIKey: told.Env["E2B_API_KEY"], APIURL: told.URL, SandboxURL: told.URL})
	require.NoError(t, err)
	_, err = p.Create(ctx, order("aaaaaaaaaaaaaaaa", time.Minute, map[string]string{"task": "\x1b[2Jgone\nsandbox  x"}))
	require.NoError(t, err)
	cancel()
	wg.Wait()
	assert.NotContains(t, stderr.String(), "\x1b")
	assert.Contains(t, stderr.String(), `\x1b[2Jgone\nsandbox`)
}

func TestAnEndedServerServesNobody(t *testing.T) {
	s, err := emulate.Start("e2b", "")
	require.NoError(t, err)
	s.Close()
	s.Close()
	_, err = (&http.Transport{}).RoundTrip(must(http.NewRequest(http.MethodGet, s.URL(), nil)))
	require.Error(t, err)
	assert.False(t, errors.Is(err, context.Canceled))
}

func must[T any](v T, _ error) T { return v }
