package modalfake_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestTheControlPlaneWantsCredentialsATokenAndToKnowItsClient(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{AuthToken: time.Minute}}, func(w *world) {
		call := func(token string, pairs ...string) error {
			ctx := metadata.AppendToOutgoingContext(w.ctx(), append(pairs, "x-modal-auth-token", token)...)
			_, err := pb.NewModalClientClient(w.plain()).SandboxListV2(ctx, &pb.SandboxListRequest{})
			return err
		}
		ours := []string{"x-modal-token-id", modalfake.DefaultTokenID, "x-modal-token-secret", modalfake.DefaultTokenSecret}
		known := append([]string{"x-modal-client-type", "9", "x-modal-client-version", "1.0.0"}, ours...)
		require.NoError(t, call(w.token, known...))
		require.NoError(t, call(w.token, append(known, known...)...), "everything twice, as the Go SDK sends it")
		refused(t, codes.Unauthenticated, call(w.token))
		refused(t, codes.InvalidArgument, call(w.token, ours...))
		refused(t, codes.Unauthenticated, call("", known...))
		refused(t, codes.Unauthenticated, call("a.b.c", known...))
		refused(t, codes.Unauthenticated, call(w.token, append([]string{"x-modal-token-id", "ak-other"}, known[4:]...)[:2]...))
		w.fake.Deny(true)
		refused(t, codes.Unauthenticated, call(w.token, known...))
		_, err := w.modal.AuthTokenGet(w.ctx(), &pb.AuthTokenGetRequest{})
		refused(t, codes.Unauthenticated, err)
		w.fake.Deny(false)
		w.sleep(time.Minute)
		refused(t, codes.Unauthenticated, call(w.token, known...))
	})
}

func TestTheLogHasEveryCallAndNoSecret(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		w.start(got, nil, "echo", "x").output()
		var last modalfake.Request
		for _, r := range w.fake.Requests() {
			for key := range r.Metadata {
				assert.NotContains(t, []string{"authorization", "x-modal-token-id", "x-modal-token-secret", "x-modal-auth-token"}, key)
			}
			assert.Equal(t, codes.OK, r.Code)
			assert.True(t, r.Done)
			last = r
		}
		assert.Equal(t, "TaskExecStdioRead", last.Method)
		assert.True(t, last.Router)
		assert.Equal(t, 1, last.Messages)
		assert.Equal(t, got.GetTaskId(), last.Message.(*pb.TaskExecStdioReadRequest).GetTaskId())
		assert.Equal(t, 1, w.fake.Count("SandboxCreateV2"))
		assert.Equal(t, len(w.fake.Requests()), w.fake.Count(""))
	})
}

func TestACreateMayBeCommittedAndItsAnswerLost(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		create := func(key string) error {
			ctx := metadata.AppendToOutgoingContext(w.ctx(), "x-idempotency-key", key)
			_, err := w.modal.SandboxCreateV2(ctx, w.order(nil))
			return err
		}
		w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.Unavailable, After: true}, modalfake.Fault{Code: codes.Internal})
		refused(t, codes.Unavailable, create("1"))
		refused(t, codes.Internal, create("1"))
		assert.Len(t, w.fake.All(), 1, "the second had no effect")
		require.NoError(t, create("1"))
		assert.Len(t, w.fake.All(), 2, "a twin that nobody knows")
		w.fake.Service().Behave(func(b *fake.Behaviour) { b.Keys = true })
		w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.Unavailable, After: true})
		refused(t, codes.Unavailable, create("2"))
		require.NoError(t, create("2"))
		assert.Len(t, w.fake.All(), 3, "unless the service knows the key again")
	})
}

func TestARefusalForTheRateSaysWhenToComeBackOrDoesNot(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		limited := &sandbox.APIError{Status: 429, RetryAfter: 2 * time.Second}
		policy := func() float32 {
			_, err := w.modal.SandboxCreateV2(w.ctx(), w.order(nil))
			refused(t, codes.ResourceExhausted, err)
			for _, d := range status.Convert(err).Details() {
				if p, ok := d.(*pb.RPCRetryPolicy); ok {
					return p.GetRetryAfterSecs()
				}
			}
			return 0
		}
		w.fake.Service().Fault(sandbox.OpCreate, fake.Fault{Err: limited, Times: 2})
		assert.InDelta(t, 2, policy(), 0)
		w.fake.Change(func(q *modalfake.Quirks) { q.NoPolicy = true })
		assert.Zero(t, policy())
		w.fake.Change(func(q *modalfake.Quirks) { q.NoPolicy = false })
		w.fake.Fault("SandboxCreateV2", modalfake.Fault{Code: codes.ResourceExhausted, RetryAfter: time.Second})
		assert.InDelta(t, 1, policy(), 0)
		assert.Empty(t, w.fake.All())
	})
}

func TestFaultsHangDelayRepeatAndPass(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		id := w.create(nil).GetSandboxId()
		in := pb.SandboxTerminateRequest_builder{SandboxId: id}.Build()
		w.fake.Fault("SandboxTerminateV2", modalfake.Fault{Ignore: true}, modalfake.Fault{Code: codes.Unavailable, Times: 2, Skip: 1},
			modalfake.Fault{Hang: true, Times: -1})
		_, err := w.modal.SandboxTerminateV2(w.ctx(), in)
		require.NoError(t, err)
		assert.Nil(t, w.wait(id, 0), "it was answered as if it were done")
		w.fake.Fault("SandboxWaitV2", modalfake.Fault{Delay: 3 * time.Second, After: true})
		start := time.Now()
		w.wait(id, 0)
		assert.Equal(t, 3*time.Second, since(start))

		other := w.create(nil).GetSandboxId()
		assert.Nil(t, w.terminate(other), "let through")
		for range 2 {
			_, err = w.modal.SandboxTerminateV2(w.ctx(), in)
			refused(t, codes.Unavailable, err)
		}
		ctx, cancel := context.WithTimeout(w.ctx(), time.Second)
		defer cancel()
		_, err = w.modal.SandboxTerminateV2(ctx, in)
		refused(t, codes.DeadlineExceeded, err)
		time.AfterFunc(time.Minute, w.fake.Heal)
		start = time.Now()
		_, err = w.modal.SandboxTerminateV2(w.ctx(), in)
		refused(t, codes.Unavailable, err)
		assert.Equal(t, time.Minute, since(start))
		assert.Nil(t, w.wait(id, 0))
		assert.Nil(t, w.terminate(id))
		assert.NotNil(t, w.wait(id, 0))
	})
}

func TestAStreamCanBeCut(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{ChunkSize: 2}}, func(w *world) {
		got := w.create(nil)
		w.fake.Fault("TaskExecStdioRead", modalfake.Fault{Cut: 2})
		e := w.start(got, nil, "echo", "abcdefg")
		text, err := e.read(fdOut, 0)
		refused(t, codes.Unavailable, err)
		assert.Equal(t, "abcd", text)
		text, err = e.read(fdOut, 4)
		require.NoError(t, err)
		assert.Equal(t, "efg\n", text)
	})
}

func TestACreateThatHadNoEffectOrTwo(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		w.fake.Service().Fault(sandbox.OpCreate,
			fake.Fault{Effect: fake.EffectNone}, fake.Fault{Effect: fake.EffectEmptyID}, fake.Fault{Effect: fake.EffectTwin})
		id := w.create(nil).GetSandboxId()
		assert.NotEmpty(t, id)
		_, err := w.modal.SandboxWaitV2(w.ctx(), pb.SandboxWaitRequest_builder{SandboxId: id}.Build())
		refused(t, codes.NotFound, err)
		assert.Empty(t, w.create(nil).GetSandboxId())
		assert.Len(t, w.fake.All(), 1)
		id = w.create(nil).GetSandboxId()
		all := w.fake.All()
		require.Len(t, all, 3)
		assert.Equal(t, id, all[1].ID)
		assert.NotEqual(t, id, all[2].ID)
		assert.Equal(t, all[2].ID, w.fake.WireID(all[2].ServiceID))
		assert.Empty(t, w.fake.WireID("none"))
	})
}

func TestAMachineLostByTheServiceIsUnknownAndRunsOn(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		id := w.create(nil).GetSandboxId()
		w.fake.Service().Fault(sandbox.OpDelete, fake.Fault{Effect: fake.EffectOrphan})
		w.terminate(id)
		_, err := w.modal.SandboxWaitV2(w.ctx(), pb.SandboxWaitRequest_builder{SandboxId: id}.Build())
		refused(t, codes.NotFound, err)
		assert.True(t, w.fake.All()[0].Record.Lost)
	})
}

func TestADefinitionIsChecked(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{MinIdle: 5 * time.Second, MaxIdle: time.Minute}}, func(w *world) {
		for name, c := range map[string]struct {
			change func(*pb.Sandbox_builder)
			code   codes.Code
		}{
			"name":       {named("a/b"), codes.InvalidArgument},
			"long name":  {named(string(make([]byte, 65))), codes.InvalidArgument},
			"short idle": {idle(4), codes.InvalidArgument},
			"long idle":  {idle(61), codes.InvalidArgument},
			"workdir":    {func(d *pb.Sandbox_builder) { d.Workdir = ptr("a") }, codes.InvalidArgument},
			"cloud":      {func(d *pb.Sandbox_builder) { d.CloudProviderStr = "none" }, codes.InvalidArgument},
			"image":      {func(d *pb.Sandbox_builder) { d.ImageId = "im-none" }, codes.NotFound},
			"secret":     {func(d *pb.Sandbox_builder) { d.SecretIds = []string{"st-none"} }, codes.NotFound},
			"volume": {func(d *pb.Sandbox_builder) {
				d.VolumeMounts = []*pb.VolumeMount{pb.VolumeMount_builder{VolumeId: "vo-none"}.Build()}
			}, codes.NotFound},
			"network": {func(d *pb.Sandbox_builder) {
				d.NetworkAccess = pb.NetworkAccess_builder{AllowedCidrs: []string{"x"}}.Build()
			}, codes.InvalidArgument},
		} {
			_, err := w.modal.SandboxCreateV2(w.ctx(), w.order(c.change))
			assert.Equal(t, c.code, status.Code(err), "%s: %v", name, err)
		}
		assert.Empty(t, w.fake.All())
	})
}

func TestImagesAreBuiltOnceAndFailAndAreDeleted(t *testing.T) {
	bubble(t, modalfake.Options{Behaviour: fake.Behaviour{UnknownImages: []string{"none:1"}}}, func(w *world) {
		assert.Equal(t, statusFailure, w.build("FROM none:1").GetResult().GetStatus())
		assert.Equal(t, statusFailure, w.build("FROM a", "RUN false").GetResult().GetStatus())
		assert.Equal(t, w.image, w.build("FROM alpine:3.21").GetImageId())
		w.image = w.build("FROM a", "ENV WHO=me", "WORKDIR /srv", "RUN echo hello >greeting").GetImageId()
		got := w.create(nil)
		assert.Equal(t, "/srv me hello\n", w.sh(got, "echo $(pwd) $WHO $(cat greeting)").output())
		_, err := w.modal.ImageDelete(w.ctx(), pb.ImageDeleteRequest_builder{ImageId: w.image}.Build())
		require.NoError(t, err)
		_, err = w.modal.ImageDelete(w.ctx(), pb.ImageDeleteRequest_builder{ImageId: w.image}.Build())
		refused(t, codes.NotFound, err)
		_, err = w.modal.SandboxCreateV2(w.ctx(), w.order(nil))
		refused(t, codes.NotFound, err)
	})
}

func TestASnapshotOutlivesItsSandboxUntilItExpiresOrIsDeleted(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		assert.Equal(t, 0, w.sh(got, "echo kept >/tmp/f").wait())
		keep := func(ttl int64) (string, error) {
			out, err := w.router.TaskSnapshotFilesystem(w.bearer(got), pb.TaskSnapshotFilesystemRequest_builder{
				TaskId: got.GetTaskId(), TtlSeconds: &ttl,
			}.Build())
			return out.GetImageId(), err
		}
		_, err := keep(0)
		refused(t, codes.InvalidArgument, err)
		short, err := keep(60)
		require.NoError(t, err)
		long, err := keep(-1)
		require.NoError(t, err)
		ours := func() (ids []string) {
			for _, i := range w.fake.Images() {
				if i.Sandbox == got.GetSandboxId() {
					ids = append(ids, i.ID)
				}
			}
			return ids
		}
		assert.ElementsMatch(t, []string{short, long}, ours())
		w.terminate(got.GetSandboxId())
		w.sleep(time.Minute)
		assert.Equal(t, []string{long}, ours())
		w.image = long
		assert.Equal(t, "kept\n", w.sh(w.create(nil), "cat /tmp/f").output())
		_, err = w.modal.ImageDelete(w.ctx(), pb.ImageDeleteRequest_builder{ImageId: long}.Build())
		require.NoError(t, err)
		assert.Empty(t, ours())
		all, err := w.fake.Service().Snapshots(w.ctx(), "")
		require.NoError(t, err)
		assert.Len(t, all, 1, "the one that expired")
	})
}

func TestAVolumeIsCopiedInAtTheStartAndBackAtTheEndOrWhenReloaded(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		vol, err := w.modal.VolumeGetOrCreate(w.ctx(), pb.VolumeGetOrCreateRequest_builder{
			ObjectCreationType: pb.ObjectCreationType_OBJECT_CREATION_TYPE_EPHEMERAL,
		}.Build())
		require.NoError(t, err)
		mounted := func(args ...string) func(*pb.Sandbox_builder) {
			return func(d *pb.Sandbox_builder) {
				d.EntrypointArgs = args
				d.VolumeMounts = []*pb.VolumeMount{pb.VolumeMount_builder{VolumeId: vol.GetVolumeId(), MountPath: "/v"}.Build()}
			}
		}
		writer := w.create(mounted("sh", "-c", "echo one >/v/1"))
		assert.Equal(t, statusSuccess, w.end(writer.GetSandboxId()))
		a, b := w.create(mounted()), w.create(mounted())
		w.sleep(time.Second)
		assert.Equal(t, "one\n", w.sh(a, "cat /v/1; echo two >/v/2").output())
		reload := func(got *pb.SandboxCreateV2Response) {
			_, err := w.router.TaskReloadVolumes(w.bearer(got), pb.TaskReloadVolumesRequest_builder{TaskId: got.GetTaskId()}.Build())
			require.NoError(t, err)
		}
		reload(b)
		assert.Equal(t, "1\n", w.sh(b, "ls /v").output())
		reload(a)
		assert.Equal(t, "1\n", w.sh(b, "ls /v").output())
		reload(b)
		assert.Equal(t, "1\n2\n", w.sh(b, "ls /v").output())
	})
}

func TestAContainerBesideTheMainOneEndsAloneOrWithTheSandbox(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		got := w.create(nil)
		add := func(name string, args ...string) (string, error) {
			out, err := w.modal.SandboxContainerCreateV2(w.ctx(), pb.SandboxContainerCreateV2Request_builder{
				SandboxId: got.GetSandboxId(), ContainerName: name,
				Definition: pb.Sandbox_builder{ImageId: w.image, EntrypointArgs: args}.Build(),
			}.Build())
			return out.GetContainerId(), err
		}
		wait := func(id string) pb.GenericResult_GenericStatus {
			out, err := w.router.TaskContainerWait(w.bearer(got), pb.TaskContainerWaitRequest_builder{
				TaskId: got.GetTaskId(), ContainerId: id, Timeout: 5,
			}.Build())
			require.NoError(t, err)
			return out.GetResult().GetStatus()
		}
		short, err := add("short", "sh", "-c", "exit 1")
		require.NoError(t, err)
		assert.Equal(t, statusFailure, wait(short))
		long, err := add("long", "sleep", "1000")
		require.NoError(t, err)
		_, err = add("long", "true")
		refused(t, codes.AlreadyExists, err)
		_, err = add("main", "true")
		refused(t, codes.InvalidArgument, err)
		assert.Zero(t, wait(long))
		e := w.start(got, func(in *pb.TaskExecStartRequest_builder) { in.ContainerId = long }, "touch", "/tmp/there")
		assert.Equal(t, 0, e.wait())
		assert.Equal(t, 1, w.start(got, nil, "test", "-e", "/tmp/there").wait(), "its files are its own")
		w.terminate(got.GetSandboxId())
		assert.NotZero(t, wait(long))
	})
}

func TestAConnectTokenOpensItsSandboxOnly(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		w.fake.HandlePort(8080, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
		token := func(id string) *pb.SandboxCreateConnectTokenResponse {
			got, err := w.modal.SandboxCreateConnectTokenV2(w.ctx(), pb.SandboxCreateConnectTokenRequest_builder{SandboxId: id}.Build())
			require.NoError(t, err)
			return got
		}
		a, b := w.create(nil).GetSandboxId(), w.create(nil).GetSandboxId()
		get := func(url, token string) int {
			r, rec := httptest.NewRequest(http.MethodGet, url, nil), httptest.NewRecorder()
			r.Header.Set("Authorization", "Bearer "+token)
			w.fake.ServeHTTP(rec, r)
			return rec.Code
		}
		ours, others := token(a), token(b)
		assert.Equal(t, http.StatusTeapot, get(ours.GetUrl(), ours.GetToken()))
		assert.Equal(t, http.StatusUnauthorized, get(ours.GetUrl(), others.GetToken()))
		assert.Equal(t, http.StatusNotFound, get("https://unheard.modal.host", ours.GetToken()))
		w.terminate(a)
		assert.Equal(t, http.StatusNotFound, get(ours.GetUrl(), ours.GetToken()))
	})
}

func TestAConnectionThatIsQuietAndPingedStays(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		dials := 0
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				dials++
				return w.net.DialContext(ctx, "tcp", addr)
			}),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{
				Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true,
			}))
		require.NoError(t, err)
		defer conn.Close()
		for range 2 {
			_, err := pb.NewModalClientClient(conn).AuthTokenGet(w.headers(w.ctx()), &pb.AuthTokenGetRequest{})
			require.NoError(t, err)
			w.sleep(10 * time.Minute)
		}
		assert.Equal(t, 1, dials)
	})
}

func TestAWarningComesWithEveryAnswer(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{Warning: "old client"}}, func(w *world) {
		var trailer metadata.MD
		_, err := w.modal.SandboxListV2(w.ctx(), &pb.SandboxListRequest{}, grpc.Trailer(&trailer))
		require.NoError(t, err)
		assert.Equal(t, []string{"old%20client"}, trailer.Get("x-modal-warning"))
	})
}

func FuzzTheFileProgramSurvivesAnyArgument(f *testing.F) {
	f.Add(`{"ReadFile":{"path":"/etc/passwd"}}`)
	f.Add(`{"Watch":{"path":"/tmp","timeout_secs":0,"filter":null}}`)
	f.Add(`{"MakeDirectory":{"path":"a","parents":true},"Stat":null}`)
	f.Fuzz(func(t *testing.T, arg string) {
		if len(arg) > 1000 {
			t.Skip("longer than any path")
		}
		bubble(t, modalfake.Options{}, func(w *world) {
			got := w.create(nil)
			e := w.start(got, timeout(10), "/__modal/.bin/modal-sandbox-fs-tools", arg)
			_ = e.write(0, "", true) // or it has ended already
			e.wait()
		})
	})
}
