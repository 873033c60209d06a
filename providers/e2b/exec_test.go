package e2b_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const minute = time.Minute

var anyFilter = sandbox.Filter{}

func httpOf(rt http.RoundTripper) *http.Client { return &http.Client{Transport: rt} }

func TestTheKeyNeverGoesInsideAndTheTokenNeverToTheControlPlane(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		sb := w.p.Open(w.make(minute))
		_, err := sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"cat"}, Stdin: strings.NewReader("x"), User: "root"})
		require.NoError(t, err)
		require.NoError(t, sb.Upload(t.Context(), "/tmp/x", strings.NewReader("x")))
		require.NoError(t, sb.Download(t.Context(), "/tmp/x", io.Discard))
		planes := map[string]int{}
		for _, r := range w.fake.Requests() {
			planes[r.Plane]++
			assert.Equal(t, r.Plane == "control", r.Header.Get("X-Api-Key") != "", r.Path)
			assert.Equal(t, r.Plane == "data", r.Header.Get("X-Access-Token") != "", r.Path)
			assert.Regexp(t, `^sandglass/`, r.Header.Get("User-Agent"))
		}
		assert.Equal(t, 2, planes["control"])
		assert.GreaterOrEqual(t, planes["data"], 5)
	})
}

func TestAHandleThatKnowsOnlyTheIDAsksOnceForTheRest(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		req := order(minute)
		req.Spec.Ports = []int{8080}
		info, err := w.p.Create(t.Context(), req)
		require.NoError(t, err)
		looks := func() (n int) {
			for _, r := range w.fake.Requests() {
				if r.Method == http.MethodGet && r.Plane == "control" {
					n++
				}
			}
			return n
		}
		sb := w.p.Open(sandbox.Info{ID: info.ID})
		for range 3 {
			_, err = sb.Exec(t.Context(), sandbox.Shell("true"))
			require.NoError(t, err)
			e, err := sb.Endpoint(t.Context(), 8080)
			require.NoError(t, err)
			assert.Equal(t, "https://8080-"+info.ID+".e2b.app", e.URL)
			assert.Empty(t, e.Header)
		}
		assert.Equal(t, 1, looks())

		_, err = w.p.Open(info).Exec(t.Context(), sandbox.Shell("true"))
		require.NoError(t, err)
		assert.Equal(t, 1, looks(), "what Create returned suffices")

		listed, err := w.list(sandbox.Filter{Nonce: req.Mark.Nonce})
		require.NoError(t, err)
		require.Len(t, listed, 1)
		_, err = w.p.Open(listed[0]).Exec(t.Context(), sandbox.Shell("true"))
		require.NoError(t, err, "a list tells no token, which is then asked for")
		assert.Equal(t, 3, looks(), "the list, and once more")
	})
}

func TestASandboxHasAHostOfItsOwnWhereNoOtherIsKnown(t *testing.T) {
	for _, tt := range []struct{ domain, told, want string }{
		{"", "", "https://sandbox.e2b.app/"},
		{"acme.test", "", "https://49983-i1.acme.test/"},
		{"acme.test", "eu.acme.test", "https://49983-i1.eu.acme.test/"},
		{"acme.test", "evil.test/x?", "https://49983-i1.acme.test/"},
	} {
		var asked string
		p, err := e2b.New(e2b.Config{APIKey: "e2b_x", Domain: tt.domain, HTTP: httpOf(transport(func(r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.URL.Host, "api.") {
				return answers(200, with(`"envdAccessToken":"tok","domain":"`+tt.told+`"`)).RoundTrip(r)
			}
			asked = r.URL.String()
			assert.Equal(t, "i1", r.Header.Get("E2b-Sandbox-Id"))
			assert.Equal(t, "49983", r.Header.Get("E2b-Sandbox-Port"))
			return nil, errors.New("far enough")
		}))})
		require.NoError(t, err)
		assert.Error(t, p.Open(sandbox.Info{ID: "i1"}).Download(t.Context(), "/x", io.Discard))
		assert.True(t, strings.HasPrefix(asked, tt.want), asked)
	}
}

func TestACommandIsStartedOnceWhateverTheWireDoes(t *testing.T) {
	for name, f := range map[string]memnet.Fault{
		"the request breaks":     {Kind: memnet.Reset, Host: "sandbox.e2b.test", Times: 1},
		"the answer never comes": {Kind: memnet.Swallow, Host: "sandbox.e2b.test", Times: 1},
		"the answer is cut":      {Kind: memnet.Cut, Host: "sandbox.e2b.test", Times: 1, After: 400},
		"the request comes late": {Kind: memnet.LateRequest, Host: "sandbox.e2b.test", Times: 1, Delay: 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				w := newWorld(t)
				info := w.make(10 * minute)
				sb := w.p.Open(info)
				_, err := sb.Exec(t.Context(), sandbox.Shell("true")) // a connection is there
				require.NoError(t, err)
				w.net.Break(f)
				_, err = sb.Exec(t.Context(), sandbox.Cmd{Args: []string{"sh", "-c", "echo x >>/tmp/runs; sleep 600"}, Timeout: 5 * minute})
				require.Error(t, err)
				assert.ErrorIs(t, err, sandbox.ErrUnavailable)
				time.Sleep(minute)
				var runs bytes.Buffer
				if err := sb.Download(t.Context(), "/tmp/runs", &runs); !errors.Is(err, fs.ErrNotExist) {
					require.NoError(t, err)
				}
				assert.LessOrEqual(t, runs.Len(), 2)
				if name != "the request comes late" { // nobody can kill what has not yet come: its own timeout ends it
					assert.Empty(t, w.ours(info.ID), "it would run on, and nobody would know")
				}
			})
		})
	}
}

func TestATimeoutKillsWhatRunsAsRootToo(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		info := w.make(10 * minute)
		res, err := w.p.Open(info).Exec(t.Context(), sandbox.Cmd{Args: []string{"sleep", "600"}, User: "root", Timeout: 5 * time.Second})
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
		assert.Empty(t, w.ours(info.ID))
	})
}

func TestATimeoutThatCannotKillIsAnError(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		info := w.make(10 * minute)
		began := time.Now()
		res, err := w.p.Open(info).Exec(t.Context(), sandbox.Cmd{
			Args: []string{"sh", "-c", "rm /bin/sh; exec sleep 600"}, User: "root", Timeout: 5 * time.Second,
		})
		e := apiError(t, err)
		assert.False(t, e.Refused)
		assert.ErrorContains(t, err, "may still run")
		assert.True(t, res.TimedOut)
		assert.Less(t, time.Since(began), minute)
	})
}

func TestWhatTheDaemonRefusesIsNotStarted(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		sb := w.p.Open(w.make(minute))
		for name, cmd := range map[string]sandbox.Cmd{
			"a folder that is not there": {Args: []string{"pwd"}, Dir: "/no/such/folder"},
			"a user who is not there":    {Args: []string{"id"}, User: "no-such-user"},
		} {
			_, err := sb.Exec(t.Context(), cmd)
			e := apiError(t, err)
			assert.True(t, e.Refused, "%s: %v", name, err)
			assert.ErrorIs(t, err, sandbox.ErrInvalid, name)
		}
		before := w.sent.Load()
		for _, cmd := range []sandbox.Cmd{
			{Args: []string{"echo", "\xff"}},
			{Args: []string{"x"}, Dir: "/\xff"},
			{Args: []string{"x"}, User: "\xff"},
			{Args: []string{"x"}, Env: map[string]string{"a": "\xff"}},
		} {
			_, err := sb.Exec(t.Context(), cmd)
			assert.ErrorIs(t, err, sandbox.ErrInvalid)
		}
		assert.Equal(t, before, w.sent.Load())
	})
}

func TestStandardInputNeedsADaemonThatCanCloseIt(t *testing.T) {
	for version, fine := range map[string]bool{"0.5.1": false, "0.4.99": false, "0.5.2": true, "0.10.0": true, "1.0.0": true, "0.5.2-dev": true, "": true, "dev": true} {
		asked := false
		p, err := e2b.New(e2b.Config{APIKey: "e2b_x", HTTP: httpOf(transport(func(r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.URL.Host, "api.") {
				return answers(200, with(`"envdVersion":"`+version+`"`)).RoundTrip(r)
			}
			asked = true
			return answers(400, `{"code":400,"message":"far enough"}`).RoundTrip(r)
		}))})
		require.NoError(t, err)
		_, err = p.Open(sandbox.Info{ID: "i1"}).Exec(t.Context(), sandbox.Cmd{Args: []string{"cat"}, Stdin: strings.NewReader("x")})
		assert.Equal(t, !fine, errors.Is(err, errors.ErrUnsupported), version)
		assert.Equal(t, fine, asked, version)
	}
}

func TestVariablesThatNoShellKnowsReachTheCommand(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		res, err := w.p.Open(w.make(minute)).Exec(t.Context(), sandbox.Cmd{
			Args: []string{"env"}, Env: map[string]string{"a.b": "1", "plain": "2"},
		})
		require.NoError(t, err)
		assert.Contains(t, string(res.Stdout), "a.b=1\n")
		assert.Contains(t, string(res.Stdout), "plain=2\n")
	})
}

func TestAnUploadIsASuccessOnlyByTheDaemonsWord(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		sb := w.p.Open(w.make(minute))
		w.fake.Change(func(q *e2bfake.Quirks) { q.HTML = true })
		assert.Error(t, sb.Upload(t.Context(), "/tmp/x", strings.NewReader("x")))
		w.fake.Change(func(q *e2bfake.Quirks) { q.HTML = false })

		broken := errors.New("broken")
		err := sb.Upload(t.Context(), "/tmp/x", io.MultiReader(strings.NewReader("part"), readerFunc(func([]byte) (int, error) { return 0, broken })))
		assert.ErrorIs(t, err, broken)
		assert.ErrorContains(t, err, "reading what to upload")
		assert.NotErrorIs(t, err, sandbox.ErrUnavailable, "it is not the service's fault")

		w.net.Break(memnet.Fault{Kind: memnet.Swallow, Host: "sandbox.e2b.test", Times: 1})
		began := time.Now()
		require.Error(t, sb.Upload(t.Context(), "/tmp/y", strings.NewReader("x")))
		assert.Equal(t, 100*time.Second, time.Since(began), "nothing moves any more")
	})
}

func TestAnUploadWhoseReaderHangsEndsWithItsContext(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		sb := w.p.Open(w.make(10 * minute))
		hang := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), 2*minute)
		defer cancel()
		err := sb.Upload(ctx, "/tmp/x", io.MultiReader(strings.NewReader("part"), readerFunc(func([]byte) (int, error) {
			<-hang
			return 0, io.EOF
		})))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		close(hang)
	})
}

func TestADownloadThatBreaksOffIsAnError(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		sb := w.p.Open(w.make(10 * minute))
		whole := strings.Repeat("0123456789abcdef", 4096)
		require.NoError(t, sb.Upload(t.Context(), "/tmp/x", strings.NewReader(whole)))
		for _, after := range []int64{1, 300, 10_000, 40_000} {
			heal := w.net.Break(memnet.Fault{Kind: memnet.Cut, Host: "sandbox.e2b.test", After: after})
			var got strings.Builder
			err := sb.Download(t.Context(), "/tmp/x", &got)
			apiError(t, err)
			assert.Less(t, got.Len(), len(whole))
			heal()
		}
		var got strings.Builder
		require.NoError(t, sb.Download(t.Context(), "/tmp/x", &got))
		assert.Equal(t, whole, got.String())
	})
}

func TestInsideADeadSandboxNothingIsTakenForAFileThatIsNotThere(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		info := w.make(minute)
		sb := w.p.Open(info)
		require.NoError(t, w.p.Delete(t.Context(), info.ID))
		err := sb.Download(t.Context(), "/etc/hostname", io.Discard)
		assert.NotErrorIs(t, err, fs.ErrNotExist)
		assert.NotErrorIs(t, err, sandbox.ErrNotFound)
		assert.ErrorIs(t, err, sandbox.ErrUnavailable)
	})
}

func TestWhatTheDaemonDoesNotFindIsNotTheSandbox(t *testing.T) {
	p, err := e2b.New(e2b.Config{APIKey: "e2b_x", HTTP: httpOf(transport(func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.Host, "api.") {
			return answers(200, oneRunning).RoundTrip(r)
		}
		return answers(404, `{"code":"not_found","message":"m"}`).RoundTrip(r)
	}))})
	require.NoError(t, err)
	sb := p.Open(sandbox.Info{ID: "i1"})
	_, ran := sb.Exec(t.Context(), sandbox.Shell("true"))
	for _, err := range []error{ran, sb.Upload(t.Context(), "/x", strings.NewReader("x")), sb.Download(t.Context(), "/x", io.Discard)} {
		apiError(t, err)
		assert.NotErrorIs(t, err, sandbox.ErrNotFound)
	}
}

func TestAListThatFailsOnALaterPageIsAnErrorAndNotShort(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t, func(o *e2bfake.Options, _ *e2b.Config) { o.Quirks.PageSize = 2 })
		for range 5 {
			w.make(minute)
		}
		w.fault(sandbox.OpList, fake.Fault{Err: status(500), Skip: 2})
		some, err := w.list(sandbox.Filter{Fleet: "fleet"})
		apiError(t, err)
		assert.Len(t, some, 4)
		all, err := w.list(sandbox.Filter{Fleet: "fleet"})
		require.NoError(t, err)
		assert.Len(t, all, 5)
		for _, r := range w.fake.Requests() {
			if r.Path == "/v2/sandboxes" && r.Method == http.MethodGet {
				assert.Contains(t, r.Query, "order=asc&limit=100")
				assert.Contains(t, r.Query, "metadata=sandglass-fleet%3Dfleet&state=running,paused")
			}
		}
	})
	for _, body := range []string{`[{}]`, `[null]`, `[{"sandboxID":"i1","state":"running"}]`, `{}`, `[{"sandboxID":"i1","startedAt":"2026-01-01T00:00:00Z","endAt":"2026-01-01T00:03:00Z"}]`} {
		p, err := e2b.New(e2b.Config{APIKey: "e2b_x", HTTP: httpOf(answers(200, body))})
		require.NoError(t, err)
		var last error
		for _, err := range p.List(t.Context(), anyFilter) {
			last = err
		}
		apiError(t, last)
	}
}

func TestAnAnswerAboutAnotherSandboxIsAnError(t *testing.T) {
	body := `{"sandboxID":"i2","state":"running","startedAt":"2026-01-01T00:00:00Z","endAt":"2026-01-01T00:03:00Z"}`
	p, err := e2b.New(e2b.Config{APIKey: "e2b_x", HTTP: httpOf(answers(200, body))})
	require.NoError(t, err)
	_, err = p.Get(t.Context(), "i1")
	assert.False(t, apiError(t, err).Refused)
	info, err := p.Get(t.Context(), "i2-6532622b") // as servers of older days have them
	require.NoError(t, err)
	assert.Equal(t, "i2-6532622b", info.ID)
}

func TestAStateThatIsNotKnownProvesNoLife(t *testing.T) {
	body := `{"sandboxID":"i1","state":"hibernated","startedAt":"2026-01-01T00:00:00Z","endAt":"2026-01-01T00:03:00Z"}`
	p, err := e2b.New(e2b.Config{APIKey: "e2b_x", HTTP: httpOf(answers(200, body))})
	require.NoError(t, err)
	info, err := p.Get(t.Context(), "i1")
	require.NoError(t, err)
	assert.Equal(t, sandbox.StateUnknown, info.State)
	assert.Zero(t, info.Deadline)
	assert.Equal(t, "hibernated", info.Detail)
}
