package modalfake_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
)

// world is a fake in a bubble with a client of its own.
type world struct {
	t      *testing.T
	fake   *modalfake.Server
	net    *memnet.Network
	conn   *grpc.ClientConn
	modal  pb.ModalClientClient
	router pb.TaskCommandRouterClient
	token  string
	app    string
	image  string
}

const address = "modal.test:443"

// bubble has f try a fake.
func bubble(t *testing.T, o modalfake.Options, f func(w *world)) {
	t.Helper()
	if o.Quirks.AuthToken == 0 {
		o.Quirks.AuthToken = 1000 * time.Hour // this client asks for one only once
	}
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, fake: modalfake.New(o), net: memnet.New()}
		l, err := w.net.Listen(address)
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- w.fake.Serve(l) }()
		w.conn, err = grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return w.net.DialContext(ctx, "tcp", addr)
			}),
			grpc.WithUnaryInterceptor(w.unary), grpc.WithStreamInterceptor(w.stream))
		require.NoError(t, err)
		w.modal, w.router = pb.NewModalClientClient(w.conn), pb.NewTaskCommandRouterClient(w.conn)
		defer func() {
			w.conn.Close()
			w.fake.Close()
			w.net.Close()
			require.NoError(t, <-served)
		}()
		w.login()
		f(w)
	})
}

func (w *world) headers(ctx context.Context) context.Context {
	pairs := []string{
		"x-modal-token-id", modalfake.DefaultTokenID, "x-modal-token-secret", modalfake.DefaultTokenSecret,
		"x-modal-client-type", "9", "x-modal-client-version", "1.0.0",
	}
	if w.token != "" {
		pairs = append(pairs, "x-modal-auth-token", w.token)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

func (w *world) unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	return next(w.headers(ctx), method, req, reply, cc, opts...)
}

func (w *world) stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return next(w.headers(ctx), desc, cc, method, opts...)
}

// login gets a token, an app and an image.
func (w *world) login() {
	w.t.Helper()
	ctx := w.ctx()
	token, err := w.modal.AuthTokenGet(ctx, &pb.AuthTokenGetRequest{})
	require.NoError(w.t, err)
	w.token = token.GetToken()
	app, err := w.modal.AppGetOrCreate(ctx, pb.AppGetOrCreateRequest_builder{
		AppName: "app", ObjectCreationType: pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING,
	}.Build())
	require.NoError(w.t, err)
	w.app = app.GetAppId()
	w.image = w.build("FROM alpine:3.21").GetImageId()
}

func (w *world) build(commands ...string) *pb.ImageGetOrCreateResponse {
	w.t.Helper()
	image, err := w.modal.ImageGetOrCreate(w.ctx(), pb.ImageGetOrCreateRequest_builder{
		AppId: w.app, Image: pb.Image_builder{DockerfileCommands: commands}.Build(),
	}.Build())
	require.NoError(w.t, err)
	return image
}

// order is a create with a timeout of 10 minutes, and more.
func (w *world) order(change func(*pb.Sandbox_builder), tags ...string) *pb.SandboxCreateV2Request {
	def := pb.Sandbox_builder{ImageId: w.image, TimeoutSecs: 600}
	if change != nil {
		change(&def)
	}
	return pb.SandboxCreateV2Request_builder{AppId: w.app, Definition: def.Build(), Tags: pairs(tags...)}.Build()
}

func pairs(kv ...string) []*pb.SandboxTag {
	var tags []*pb.SandboxTag
	for i := 0; i < len(kv); i += 2 {
		tags = append(tags, pb.SandboxTag_builder{TagName: kv[i], TagValue: kv[i+1]}.Build())
	}
	return tags
}

func (w *world) create(change func(*pb.Sandbox_builder), tags ...string) *pb.SandboxCreateV2Response {
	w.t.Helper()
	got, err := w.modal.SandboxCreateV2(w.ctx(), w.order(change, tags...))
	require.NoError(w.t, err)
	return got
}

func (w *world) wait(id string, timeout float32) *pb.GenericResult {
	w.t.Helper()
	got, err := w.modal.SandboxWaitV2(w.ctx(), pb.SandboxWaitRequest_builder{SandboxId: id, Timeout: timeout}.Build())
	require.NoError(w.t, err)
	return got.GetResult()
}

func since(start time.Time) time.Duration { return time.Since(start).Round(time.Millisecond) }

// sleep has time pass, and everything happen that is due by then.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func ptr[T any](v T) *T { return &v }

// statuses of results, in short.
const (
	statusSuccess    = pb.GenericResult_GENERIC_STATUS_SUCCESS
	statusFailure    = pb.GenericResult_GENERIC_STATUS_FAILURE
	statusTerminated = pb.GenericResult_GENERIC_STATUS_TERMINATED
	statusTimeout    = pb.GenericResult_GENERIC_STATUS_TIMEOUT
	statusInit       = pb.GenericResult_GENERIC_STATUS_INIT_FAILURE
	statusInternal   = pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE
	statusIdle       = pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT
	statusEviction   = pb.GenericResult_GENERIC_STATUS_MEMORY_MANAGER_EVICTION
)

// end waits for the end of a sandbox of the newer backend, for at most an hour.
func (w *world) end(id string) pb.GenericResult_GenericStatus {
	w.t.Helper()
	for range 60 {
		if got := w.wait(id, 60); got != nil {
			return got.GetStatus()
		}
	}
	return 0
}

func (w *world) terminate(id string) *pb.GenericResult {
	w.t.Helper()
	got, err := w.modal.SandboxTerminateV2(w.ctx(), pb.SandboxTerminateRequest_builder{SandboxId: id}.Build())
	require.NoError(w.t, err)
	return got.GetExistingResult()
}

// list returns the ids of one page.
func (w *world) list(in pb.SandboxListRequest_builder) []string {
	w.t.Helper()
	got, err := w.modal.SandboxListV2(w.ctx(), in.Build())
	require.NoError(w.t, err)
	var ids []string
	for _, i := range got.GetSandboxes() {
		ids = append(ids, i.GetId())
	}
	return ids
}

// refused requires that an error has a code.
func refused(t *testing.T, code codes.Code, err error) {
	t.Helper()
	require.Error(t, err)
	assert.Equal(t, code, status.Code(err), err)
}

// bearer is a context for the command router with the token that a create told.
func (w *world) bearer(got *pb.SandboxCreateV2Response) context.Context {
	return metadata.AppendToOutgoingContext(w.ctx(), "authorization", "Bearer "+got.GetCommandRouterAccess().GetJwt())
}

// exec is a command under way.
type exec struct {
	w    *world
	ctx  context.Context
	task string
	id   string
}

var execs atomic.Int64

func (w *world) start(got *pb.SandboxCreateV2Response, change func(*pb.TaskExecStartRequest_builder), args ...string) *exec {
	w.t.Helper()
	e := &exec{w: w, ctx: w.bearer(got), task: got.GetTaskId(), id: fmt.Sprint("exec-", execs.Add(1))}
	in := pb.TaskExecStartRequest_builder{
		TaskId: e.task, ExecId: e.id, CommandArgs: args,
		StdoutConfig: pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_PIPE,
		StderrConfig: pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_PIPE,
	}
	if change != nil {
		change(&in)
	}
	_, err := w.router.TaskExecStart(e.ctx, in.Build())
	require.NoError(w.t, err)
	return e
}

func (w *world) sh(got *pb.SandboxCreateV2Response, script string) *exec {
	w.t.Helper()
	return w.start(got, nil, "sh", "-c", script)
}

// wait returns the exit code, or 128 and the signal.
func (e *exec) wait() int {
	e.w.t.Helper()
	got, err := e.w.router.TaskExecWait(e.ctx, pb.TaskExecWaitRequest_builder{TaskId: e.task, ExecId: e.id}.Build())
	require.NoError(e.w.t, err)
	if got.HasSignal() {
		return 128 + int(got.GetSignal())
	}
	return int(got.GetCode())
}

// read returns what a stream has from an offset on, to its end.
func (e *exec) read(fd pb.TaskExecStdioFileDescriptor, offset uint64) (string, error) {
	e.w.t.Helper()
	st, err := e.w.router.TaskExecStdioRead(e.ctx, pb.TaskExecStdioReadRequest_builder{
		TaskId: e.task, ExecId: e.id, Offset: offset, FileDescriptor: fd,
	}.Build())
	require.NoError(e.w.t, err)
	var text strings.Builder
	for {
		m, err := st.Recv()
		if err == io.EOF {
			return text.String(), nil
		}
		if err != nil {
			return text.String(), err
		}
		text.Write(m.GetData())
	}
}

const (
	fdOut = pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT
	fdErr = pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR
)

func (e *exec) output() string {
	e.w.t.Helper()
	text, err := e.read(fdOut, 0)
	require.NoError(e.w.t, err)
	return text
}

func (e *exec) write(offset uint64, text string, eof bool) error {
	_, err := e.w.router.TaskExecStdinWrite(e.ctx, pb.TaskExecStdinWriteRequest_builder{
		TaskId: e.task, ExecId: e.id, Offset: offset, Data: []byte(text), Eof: eof,
	}.Build())
	return err
}

// ctx is a context of the bubble's.
func (w *world) ctx() context.Context { return w.t.Context() }

// plain is a connection that adds nothing to a call.
func (w *world) plain() grpc.ClientConnInterface {
	w.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return w.net.DialContext(ctx, "tcp", addr) }))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { conn.Close() })
	return conn
}
