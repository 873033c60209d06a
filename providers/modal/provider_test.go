package modal_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/providers/modal"
	"github.com/sandglass-dev/sandglass/sandbox"
)

var update = flag.Bool("update", false, "write golden files anew")

var errUnsupported = errors.ErrUnsupported

// word is the service's word for how a sandbox has ended.
func word(t modalfake.Truth) string {
	return strings.TrimPrefix(t.Result.GetStatus().String(), "GENERIC_STATUS_")
}

// stable returns a message as JSON that is the same each time, with lists of tags sorted.
func stable(t testing.TB, r *pb.SandboxCreateV2Request) string {
	t.Helper()
	slices.SortFunc(r.GetTags(), func(a, b *pb.SandboxTag) int { return strings.Compare(a.GetTagName(), b.GetTagName()) })
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(r)
	require.NoError(t, err)
	var v any
	require.NoError(t, json.Unmarshal(text, &v)) // which also takes out the blanks that protojson varies
	text, err = json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	return string(text) + "\n"
}

func fixed() sandbox.CreateRequest {
	return sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: "ci-agents", Owner: "host.1", Nonce: "abcdefghijklmnop", Created: time.Unix(1_700_000_000, 0), Lifetime: time.Hour,
		},
		Window: 3 * time.Minute,
	}
}

func TestCreateRequestsAreAsRecordedAndAlwaysHaveTwoEnds(t *testing.T) {
	for name, change := range map[string]func(*sandbox.CreateRequest){
		"default": func(*sandbox.CreateRequest) {},
		"full": func(r *sandbox.CreateRequest) {
			r.Window, r.Mark.Lifetime = 90*time.Second+700*time.Millisecond, 2*time.Hour+999*time.Millisecond // rounded down
			r.Tags = map[string]string{"agent_job_id": "j1", "commit_sha": "4b825dc"}
			r.Spec = sandbox.Spec{
				Image: "python:3.13-slim", Env: map[string]string{"A": "1"}, CPU: 1.5, Memory: 512 << 20, Ports: []int{3000, 8080},
				Native: &modal.Options{
					Command: []string{"python3", "-m", "http.server"}, Workdir: "/srv", CPULimit: 2, MemoryLimit: 1 << 30, Cloud: "aws",
					Regions: []string{"us-east"}, AllowNets: []string{"192.0.2.0/24"}, AllowDomains: []string{"example.com"}, Runtime: "gvisor",
				},
			}
		},
		"offline": func(r *sandbox.CreateRequest) { r.Spec.Offline = true },
		"no_shell": func(r *sandbox.CreateRequest) {
			r.Spec.Native = &modal.Options{Beat: []string{"/app", "version"}, Command: []string{"/app"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.InvalidArgument})
				req := fixed()
				change(&req)
				_, err := w.p.Create(context.Background(), req)
				require.Error(t, err)
				var sent *pb.SandboxCreateV2Request
				for _, r := range w.fake.Requests() {
					if c, ok := r.Message.(*pb.SandboxCreateV2Request); ok {
						sent = c
					}
				}
				require.NotNil(t, sent, "%v", err)
				d := sent.GetDefinition()
				assert.True(t, d.GetTimeoutSecs() >= 1 && d.GetTimeoutSecs() <= 86_400, "a hard end")
				assert.True(t, d.GetIdleTimeoutSecs() >= 1 && d.GetIdleTimeoutSecs() <= 86_400, "an idle time")
				assert.Equal(t, "sandglass-abcdefghijklmnop", d.GetName())
				assert.False(t, d.GetEnableSnapshot())
				assert.Empty(t, d.GetExperimentalOptionsV2(), "no snapshot at exit")
				sent.SetAppId("ap-1")
				d.SetImageId("im-1")
				if args := d.GetEntrypointArgs(); len(args) > 2 && args[2] == modal.Watchdog {
					args[2] = "(watchdog.sh)"
				}
				golden, got := filepath.Join("testdata", "create_"+name+".json"), stable(t, sent)
				if *update {
					require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
				}
				want, err := os.ReadFile(golden)
				require.NoError(t, err)
				assert.Equal(t, string(want), got)
			})
		})
	}
}

func TestOrdersThatCannotBeHonouredAreRefusedBeforeAnyRequest(t *testing.T) {
	spec := func(s sandbox.Spec) func(*sandbox.CreateRequest) {
		return func(r *sandbox.CreateRequest) { r.Spec = s }
	}
	native := func(o modal.Options) func(*sandbox.CreateRequest) {
		return func(r *sandbox.CreateRequest) { r.Spec.Native = &o }
	}
	bubble(t, func(w *world) {
		for name, change := range map[string]func(*sandbox.CreateRequest){
			"no window":                   func(r *sandbox.CreateRequest) { r.Window = 0 },
			"too short a window":          func(r *sandbox.CreateRequest) { r.Window = 19 * time.Second },
			"too long a window":           func(r *sandbox.CreateRequest) { r.Window = 25 * time.Hour },
			"too long a life":             func(r *sandbox.CreateRequest) { r.Mark.Lifetime = 25 * time.Hour },
			"no life":                     func(r *sandbox.CreateRequest) { r.Mark.Lifetime = 0 },
			"no mark":                     func(r *sandbox.CreateRequest) { r.Mark = sandbox.Mark{} },
			"our tag":                     func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"sandglass-x": "y"} },
			"a disk":                      spec(sandbox.Spec{Disk: 1 << 30}),
			"odd memory":                  spec(sandbox.Spec{Memory: 1<<30 + 1}),
			"too few CPUs":                spec(sandbox.Spec{CPU: 0.0001}),
			"an odd variable":             spec(sandbox.Spec{Env: map[string]string{"a-b": "c"}}),
			"a variable that is no UTF-8": spec(sandbox.Spec{Env: map[string]string{"a": "\xff"}}),
			"a line in the image's name":  spec(sandbox.Spec{Image: "alpine\nRUN rm -rf /"}),
			"two images":                  spec(sandbox.Spec{Image: "alpine", Native: &modal.Options{ImageID: "im-1"}}),
			"offline with nets":           spec(sandbox.Spec{Offline: true, Native: &modal.Options{AllowNets: []string{"10.0.0.0/8"}}}),
			"a relative work folder":      native(modal.Options{Workdir: "x"}),
			"an unknown runtime":          native(modal.Options{Runtime: "docker"}),
			"a limit without CPUs":        native(modal.Options{CPULimit: 2}),
			"a limit without memory":      native(modal.Options{MemoryLimit: 1 << 30}),
			"an empty command":            native(modal.Options{Command: []string{""}}),
			"a beat with NUL":             native(modal.Options{Beat: []string{"a\x00"}}),
			"a long beat":                 native(modal.Options{Beat: []string{strings.Repeat("a", 300)}}),
			"a long command":              native(modal.Options{Command: []string{strings.Repeat("a", 70_000)}}),
			"a volume nowhere":            native(modal.Options{Volumes: map[string]string{"x": "v"}}),
		} {
			req := order(time.Minute)
			change(&req)
			info, err := w.p.Create(context.Background(), req)
			assert.Empty(t, info.ID, name)
			if e, ok := errors.AsType[*sandbox.APIError](err); assert.True(t, ok, "%s: %v", name, err) {
				assert.True(t, e.Refused, name)
				assert.True(t, errors.Is(err, sandbox.ErrInvalid) || errors.Is(err, errors.ErrUnsupported), "%s: %v", name, err)
			}
		}
		assert.Zero(t, w.fake.Count(""))
	})
}

func TestWhatAUserCanHaveWrongIsATypedError(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*world)
		spec sandbox.Spec
		want error
		says string
	}{
		"bad tokens":      {func(w *world) { w.fake.Deny(true) }, sandbox.Spec{}, sandbox.ErrUnauthenticated, "MODAL_TOKEN_ID"},
		"unknown image":   {nil, sandbox.Spec{Image: "no-such-image"}, sandbox.ErrInvalid, "no-such-image"},
		"unknown id":      {nil, sandbox.Spec{Native: &modal.Options{ImageID: "im-nosuch"}}, sandbox.ErrInvalid, "im-nosuch"},
		"unknown secret":  {nil, sandbox.Spec{Native: &modal.Options{Secrets: []string{"nosuch"}}}, sandbox.ErrInvalid, "nosuch"},
		"unknown volume":  {nil, sandbox.Spec{Native: &modal.Options{Volumes: map[string]string{"/v": "nosuch"}}}, sandbox.ErrInvalid, "nosuch"},
		"an odd region":   {nil, sandbox.Spec{Native: &modal.Options{Regions: []string{"invalid"}}}, sandbox.ErrInvalid, "region"},
		"spending cap":    {func(w *world) { w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.ResourceExhausted}) }, sandbox.Spec{}, sandbox.ErrQuota, "spending"},
		"may not":         {func(w *world) { w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.PermissionDenied}) }, sandbox.Spec{}, sandbox.ErrPermission, ""},
		"no room for it":  {func(w *world) { w.fake.Service().Behave(func(b *fake.Behaviour) { b.NeverReady = true }) }, sandbox.Spec{}, sandbox.ErrQuota, "no room"},
		"build goes down": {func(w *world) { w.fake.Fault("ImageGetOrCreate", modalfake.Fault{Code: codes.Internal, Times: -1}) }, sandbox.Spec{}, sandbox.ErrUnavailable, "on the way"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				if c.set != nil {
					c.set(w)
				}
				req := order(time.Minute)
				req.Spec = c.spec
				info, err := w.p.Create(context.Background(), req)
				assert.Empty(t, info.ID)
				e := apiError(t, err)
				assert.True(t, e.Refused, "%v", err)
				assert.ErrorIs(t, err, c.want)
				assert.NotErrorIs(t, err, sandbox.ErrNotFound)
				assert.ErrorContains(t, err, c.says)
				w.nothing()
			}, func(o *modalfake.Options, _ *modal.Config) { o.Behaviour.UnknownImages = []string{"no-such-image"} })
		})
	}
}

func TestCheckFindsBadTokensAndUnknownEnvironments(t *testing.T) {
	bubble(t, func(w *world) {
		account, err := w.p.Check(context.Background())
		require.NoError(t, err)
		assert.NotEmpty(t, account.ID)
		w.fake.Fault("EnvironmentGetOrCreate", modalfake.Fault{Code: codes.NotFound})
		_, err = w.p.Check(context.Background())
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
		w.fake.Deny(true)
		_, err = w.another().Check(context.Background())
		assert.ErrorIs(t, err, sandbox.ErrUnauthenticated)
		for _, secret := range []string{modalfake.DefaultTokenID, modalfake.DefaultTokenSecret} {
			assert.NotContains(t, err.Error(), secret)
		}
		for _, r := range w.fake.Requests() {
			if a, ok := r.Message.(*pb.AppGetOrCreateRequest); ok {
				assert.Zero(t, a.GetObjectCreationType(), "a check makes nothing")
			}
		}
	})
}

func TestAListSkipsNothingAtTheEdgesOfItsPages(t *testing.T) {
	for _, size := range []int{1, 2, 3, 100} {
		for _, included := range []bool{false, true} {
			t.Run(fmt.Sprint(size, included), func(t *testing.T) {
				bubble(t, func(w *world) {
					const n = 7
					for range n {
						w.make(time.Hour)
						time.Sleep(2 * time.Second)
					}
					for _, f := range []sandbox.Filter{{}, {Fleet: "fleet"}} {
						all, err := w.list(f)
						require.NoError(t, err)
						ids := map[string]bool{}
						for _, info := range all {
							ids[info.ID] = true
						}
						assert.Len(t, ids, n)
						assert.Len(t, all, n, "none twice")
					}
				}, func(o *modalfake.Options, _ *modal.Config) { o.Quirks.PageSize, o.Quirks.EdgeIncluded = size, included })
			})
		}
	}
}

func TestSandboxesOfOneMomentAreAllListed(t *testing.T) {
	bubble(t, func(w *world) {
		ctx, mc := context.Background(), w.sdk()
		app, err := mc.Apps.FromName(ctx, "app", &sdk.AppFromNameParams{CreateIfMissing: true})
		require.NoError(t, err)
		image, err := mc.Images.FromRegistry("debian:bookworm-slim", nil).Build(ctx, app, nil)
		require.NoError(t, err)
		for range 5 { // in two pages, of which the edge is between two of the same time
			for range 2 {
				_, err := mc.Sandboxes.Create(ctx, app, image, &sdk.SandboxCreateParams{Timeout: time.Hour})
				require.NoError(t, err)
			}
			time.Sleep(time.Second)
		}
		all, err := w.list(sandbox.Filter{})
		require.NoError(t, err)
		assert.Len(t, all, 10)
	}, func(o *modalfake.Options, _ *modal.Config) { o.Quirks.PageSize, o.Quirks.EqualTimes = 3, true })
}

func TestWhatIsAboutToEndIsFoundByItsNonceEvenIfListsHideIt(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(time.Minute)
		info := w.makeOf(req)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = w.p.Delete(ctx, info.ID)
		require.True(t, w.runs(info.ID))
		found, err := w.list(sandbox.Filter{Nonce: req.Mark.Nonce})
		require.NoError(t, err)
		assert.Len(t, found, 1)
		time.Sleep(time.Minute)
		found, err = w.list(sandbox.Filter{Nonce: req.Mark.Nonce})
		require.NoError(t, err)
		assert.Empty(t, found, "what has ended is no more")
	}, func(o *modalfake.Options, _ *modal.Config) {
		o.Behaviour.DeleteTime, o.Quirks.HidesTerminating = 20*time.Second, true
	})
}

// A record is a log that the SDK may still write to while it is read.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func TestNothingSecretIsInErrorsAndLogs(t *testing.T) {
	var log record
	bubble(t, func(w *world) {
		const secret = "sesame-4711"
		w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.InvalidArgument, Message: "bad env FOO=" + secret + " for " + modalfake.DefaultTokenSecret})
		req := order(time.Minute)
		req.Spec.Env = map[string]string{"FOO": secret}
		_, err := w.p.Create(context.Background(), req)
		assert.NotContains(t, err.Error(), secret)
		assert.NotContains(t, err.Error(), modalfake.DefaultTokenSecret)
		info := w.make(time.Minute)
		w.fake.Fault("TaskExecStart", modalfake.Fault{Code: codes.InvalidArgument, Message: "bad FOO " + secret})
		_, err = w.p.Open(info).Exec(context.Background(), sandbox.Cmd{Args: []string{"true"}, Env: map[string]string{"FOO": secret}, Timeout: time.Second})
		assert.NotContains(t, err.Error(), secret)
		_, err = w.p.Open(info).Exec(context.Background(), sandbox.Cmd{
			Args: []string{"echo", secret}, Env: map[string]string{"an-odd-name": secret}, Timeout: time.Minute,
		})
		require.NoError(t, err)
		assert.Contains(t, log.String(), "Created ContainerProcess")
		assert.NotContains(t, log.String(), secret)
		assert.NotContains(t, log.String(), modalfake.DefaultTokenSecret)
		assert.NotContains(t, w.p.Clean("see https://user:pass@x.test/?token=abc and eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjF9.sig"), "abc")
	}, func(_ *modalfake.Options, c *modal.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
}

func TestNewReportsEveryFaultOfAConfig(t *testing.T) {
	clearEnv(t)
	_, err := modal.New(modal.Config{App: "a b", Environment: "x y", ServerURL: "ftp://x", TokenID: "a\nb"})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	for _, part := range []string{"no token", "line's end", "App's name", "environment's name", "https://"} {
		assert.ErrorContains(t, err, part)
	}
	assert.NotContains(t, err.Error(), "a\nb")
}

// clearEnv has the test see none of the SDK's variables, and no file of its own.
func clearEnv(t *testing.T) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "MODAL_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("MODAL_CONFIG_PATH", filepath.Join(t.TempDir(), "none.toml"))
}

func TestTheServersURLIsTakenWithoutTheEnvironmentButNeverAgainstIt(t *testing.T) {
	clearEnv(t)
	cfg := modal.Config{TokenID: "ak-1", TokenSecret: "as-1", ServerURL: "http://127.0.0.1:1"}
	for _, profile := range []string{"", "work"} {
		t.Setenv("MODAL_PROFILE", profile)
		p, err := modal.New(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err = p.Check(ctx)
		cancel()
		assert.ErrorContains(t, err, "127.0.0.1:1") // where nobody listens
		p.Close()
	}
	t.Setenv("MODAL_SERVER_URL", "http://127.0.0.1:2")
	_, err := modal.New(cfg)
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	cfg.ServerURL = ""
	p, err := modal.New(cfg)
	require.NoError(t, err)
	p.Close()
}

func TestTheNameTellsAccountsApart(t *testing.T) {
	clearEnv(t)
	names := map[string]bool{}
	for _, cfg := range []modal.Config{
		{TokenID: "ak-1", TokenSecret: "as-1"},
		{TokenID: "ak-2", TokenSecret: "as-1"},
		{TokenID: "ak-1", TokenSecret: "as-1", Environment: "dev"},
		{TokenID: "ak-1", TokenSecret: "as-1", ServerURL: "http://127.0.0.1:1"},
		{TokenID: "ak-1", TokenSecret: "as-1", Name: "mine"},
	} {
		p, err := modal.New(cfg)
		require.NoError(t, err)
		names[p.Name()] = true
		p.Close()
	}
	assert.Len(t, names, 5)
	p, err := modal.New(modal.Config{TokenID: "ak-1", TokenSecret: "as-2"})
	require.NoError(t, err)
	defer p.Close()
	assert.True(t, names[p.Name()], "a new secret is the same account")
}

func TestFromEnvReadsWhatTheOfficialSDKReads(t *testing.T) {
	clearEnv(t)
	file := filepath.Join(t.TempDir(), "modal.toml")
	require.NoError(t, os.WriteFile(file, []byte("[work]\ntoken_id = \"ak-file\"\ntoken_secret = \"as-file\"\nserver_url = \"http://127.0.0.1:3\"\n"), 0o600))
	t.Setenv("MODAL_CONFIG_PATH", file)
	t.Setenv("MODAL_PROFILE", "work")
	p, err := modal.FromEnv()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = p.Check(ctx)
	assert.ErrorContains(t, err, "127.0.0.1:3")
	p.Close()
	t.Setenv("MODAL_SERVER_URL", "http://127.0.0.1:4")
	t.Setenv("MODAL_TOKEN_ID", "ak-1")
	t.Setenv("MODAL_TOKEN_SECRET", "as-1")
	p, err = modal.FromEnv()
	require.NoError(t, err)
	_, err = p.Check(ctx)
	assert.ErrorContains(t, err, "127.0.0.1:4", "variables rule over the file")
	same, err := modal.New(modal.Config{TokenID: "ak-1", TokenSecret: "as-1"})
	require.NoError(t, err)
	assert.Equal(t, same.Name(), p.Name())
	p.Close()
	same.Close()
}

func TestCloseLeavesNoGoroutine(t *testing.T) { // see TestMain; the bubble of each test sees to it as well
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		_, err := w.p.Open(info).Exec(context.Background(), sandbox.Cmd{Args: []string{"true"}, Timeout: time.Second})
		require.NoError(t, err)
		w.p.Close()
		_, err = w.p.Get(context.Background(), info.ID)
		assert.Error(t, err)
	})
}
