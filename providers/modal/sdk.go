package modal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An official is the service by way of the official SDK, as of version 0.11.
//
// The SDK lacks some of what is needed here: it tells no more of a sandbox's end than a number, and nothing of the rows of
// a list but their ids. So these calls are made with the generated stubs, over the SDK's own connection, with its tokens,
// headers and retries.
type official struct {
	client      *sdk.Client
	environ     string
	appName     string
	interceptor *interceptor

	mu    sync.Mutex // guards what follows, and is never held over a request
	app   *sdk.App
	boxes map[string]*sdk.Sandbox
}

// maxBoxes is how many handles are kept. What is let go of is only made anew when it is used again.
const maxBoxes = 1024

// dial returns the SDK's client for cfg. It makes no request. With credentials in cfg, the SDK's file is not read.
func dial(cfg Config, logger *slog.Logger) (*official, error) {
	in := &interceptor{}
	none := time.Duration(0) // who waits, and for how long, is the caller's affair
	params := &sdk.ClientParams{
		TokenID: cfg.TokenID, TokenSecret: cfg.TokenSecret, Environment: cfg.Environment, Logger: logger, MaxThrottleWait: &none,
		GRPCUnaryInterceptors: []grpc.UnaryClientInterceptor{in.unary},
	}
	if cfg.TokenID != "" {
		// The type of this field has no name outside of the SDK, but its form is known: it is what the SDK reads from its
		// file, by the name of a profile.
		profile := os.Getenv("MODAL_PROFILE")
		if profile == "" {
			profile = "sandglass"
		}
		text, err := json.Marshal(map[string]any{profile: map[string]any{"ServerURL": cfg.ServerURL, "Active": true}})
		if err == nil {
			err = json.Unmarshal(text, &params.Config)
		}
		if err != nil {
			return nil, fmt.Errorf("the SDK's configuration: %w", err)
		}
	}
	client, err := sdk.NewClientWithOptions(params)
	if err != nil {
		return nil, err
	}
	return &official{
		client: client, environ: cfg.Environment, appName: cfg.App, interceptor: in, boxes: map[string]*sdk.Sandbox{},
	}, nil
}

// An interceptor sees every attempt of every call to the control plane.
type interceptor struct {
	conn atomic.Pointer[grpc.ClientConn]
}

// unary remembers the connection, and lets a create be sent only once: the SDK would repeat it blindly.
func (in *interceptor) unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	in.conn.Store(cc)
	switch req.(type) {
	case *pb.SandboxCreateRequest, *pb.SandboxCreateV2Request:
	default:
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if ok {
		a.sent.Store(true)
	}
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return &final{err}
	}
	if made, is := reply.(interface{ GetSandboxId() string }); ok && is {
		id := made.GetSandboxId()
		a.id.Store(&id)
	}
	return nil
}

type attemptKey struct{}

// An attempt is what becomes of one create.
type attempt struct {
	sent atomic.Bool
	id   atomic.Pointer[string] // of what was made; the SDK keeps it for itself if something fails after that
}

// final is an error of which the SDK must not see that it could be tried again, so that it has no Unwrap.
type final struct{ err error }

func (f *final) Error() string { return f.err.Error() }

// stub returns the generated client over the SDK's connection, which is first seen in a call: here the look for our App,
// which may not be there yet.
func (s *official) stub(ctx context.Context) (pb.ModalClientClient, error) {
	cc := s.interceptor.conn.Load()
	if cc == nil {
		app, err := s.client.Apps.FromName(ctx, s.appName, &sdk.AppFromNameParams{Environment: s.environ})
		if f := failed(err); f != nil && f.code != codeNotFound {
			return nil, f
		}
		s.mu.Lock()
		if err == nil {
			s.app = app
		}
		s.mu.Unlock()
		if cc = s.interceptor.conn.Load(); cc == nil {
			return nil, &failure{message: "the SDK has made no call"}
		}
	}
	return pb.NewModalClientClient(cc), nil
}

func (s *official) environment(ctx context.Context) (string, error) {
	stub, err := s.stub(ctx)
	if err != nil {
		return "", err
	}
	// The SDK's own call takes no empty name, which is the workspace's default environment.
	resp, err := stub.EnvironmentGetOrCreate(ctx, pb.EnvironmentGetOrCreateRequest_builder{DeploymentName: s.environ}.Build())
	if err != nil {
		return "", failed(err)
	}
	return resp.GetEnvironmentId(), nil
}

// isFirst tells the ids of the first of the service's two backends, which has calls of its own.
var isFirst = regexp.MustCompile(`^sb-[0-9A-Za-z]{22}$`).MatchString

func (s *official) create(ctx context.Context, o *order) (string, error) {
	var a attempt
	id, err := s.make(context.WithValue(ctx, attemptKey{}, &a), o)
	if err == nil {
		return id, nil
	}
	f := failed(err)
	f.sent = a.sent.Load()
	if f.sent && f.code == codeNotFound { // the App was deleted, perhaps
		s.mu.Lock()
		s.app = nil
		s.mu.Unlock()
	}
	if made := a.id.Load(); made != nil {
		id = *made
	}
	return id, f
}

func (s *official) make(ctx context.Context, o *order) (string, error) {
	app, err := s.getApp(ctx)
	if err != nil {
		return "", err
	}
	image, err := s.image(ctx, o)
	if err != nil {
		return "", err
	}
	if image, err = image.Build(ctx, app, nil); err != nil {
		return "", err
	}
	params := &sdk.SandboxCreateParams{
		CPU: o.cpu, CPULimit: o.cpuLimit, MemoryMiB: o.memory, MemoryLimitMiB: o.memoryLimit, GPU: o.gpu,
		Runtime: sdk.SandboxRuntime(o.runtime), Timeout: o.life, IdleTimeout: o.idle, Workdir: o.workdir, Command: o.command, Env: o.env,
		EncryptedPorts: o.ports, BlockNetwork: o.offline, Cloud: o.cloud, Regions: o.regions, Name: o.name, Tags: o.tags,
	}
	if o.nets != nil {
		params.OutboundCIDRAllowlist = &sdk.Allowlist{Entries: o.nets}
	}
	if o.domains != nil {
		params.OutboundDomainAllowlist = &sdk.Allowlist{Entries: o.domains}
	}
	for _, name := range o.secrets {
		secret, err := s.client.Secrets.FromName(ctx, name, &sdk.SecretFromNameParams{Environment: s.environ})
		if err != nil {
			return "", err
		}
		params.Secrets = append(params.Secrets, secret)
	}
	if len(o.volumes) > 0 {
		params.Volumes = map[string]*sdk.Volume{}
	}
	for path, name := range o.volumes {
		volume, err := s.client.Volumes.FromName(ctx, name, &sdk.VolumeFromNameParams{Environment: s.environ})
		if err != nil {
			return "", err
		}
		params.Volumes[path] = volume
	}
	sb, err := s.client.Sandboxes.Create(ctx, app, image, params)
	if err != nil {
		return "", err
	}
	s.keep(sb)
	return sb.SandboxID, nil
}

func (s *official) image(ctx context.Context, o *order) (*sdk.Image, error) {
	if o.imageID != "" {
		return s.client.Images.FromID(ctx, o.imageID, nil)
	}
	return s.client.Images.FromRegistry(o.image, nil), nil
}

// getApp returns the App that all sandboxes are made in, and makes it if there is none.
func (s *official) getApp(ctx context.Context) (*sdk.App, error) {
	s.mu.Lock()
	app := s.app
	s.mu.Unlock()
	if app != nil {
		return app, nil
	}
	app, err := s.client.Apps.FromName(ctx, s.appName, &sdk.AppFromNameParams{CreateIfMissing: true, Environment: s.environ})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.app = app
	return app, nil
}

func (s *official) named(ctx context.Context, name string) (string, error) {
	sb, err := s.client.Sandboxes.FromName(ctx, s.appName, name, &sdk.SandboxFromNameParams{Environment: s.environ})
	if err != nil {
		return "", failed(err)
	}
	return sb.SandboxID, nil
}

func (s *official) wait(ctx context.Context, id string, limit time.Duration) (ending, error) {
	stub, err := s.stub(ctx)
	if err != nil {
		return ending{}, err
	}
	call := stub.SandboxWaitV2
	if isFirst(id) {
		call = stub.SandboxWait
	}
	resp, err := call(ctx, pb.SandboxWaitRequest_builder{SandboxId: id, Timeout: float32(limit.Seconds())}.Build())
	if err != nil {
		return ending{}, failed(err)
	}
	return endingOf(resp.GetResult()), nil
}

// endingOf goes by the status alone: an exit code of 0 is also what a sandbox without one has.
func endingOf(r *pb.GenericResult) ending {
	if r.GetStatus() == pb.GenericResult_GENERIC_STATUS_UNSPECIFIED {
		return ending{}
	}
	return ending{
		over: true, word: strings.TrimPrefix(r.GetStatus().String(), "GENERIC_STATUS_"), exit: int(r.GetExitcode()), why: r.GetException(),
	}
}

func (s *official) tags(ctx context.Context, id string) (map[string]string, error) {
	sb, err := s.client.Sandboxes.FromID(ctx, id, nil) // not the one in use, which may be let go of meanwhile
	if err != nil {
		return nil, failed(err)
	}
	tags, err := sb.GetTags(ctx, nil)
	if err != nil {
		return nil, failed(err)
	}
	return tags, nil
}

func (s *official) page(ctx context.Context, tags map[string]string, before float64, finished bool) ([]row, error) {
	stub, err := s.stub(ctx)
	if err != nil {
		return nil, err
	}
	req := pb.SandboxListRequest_builder{BeforeTimestamp: before, EnvironmentName: s.environ, IncludeFinished: finished}
	for k, v := range tags {
		req.Tags = append(req.Tags, pb.SandboxTag_builder{TagName: k, TagValue: v}.Build())
	}
	resp, err := stub.SandboxListV2(ctx, req.Build()) // which shows the sandboxes of both backends
	if err != nil {
		return nil, failed(err)
	}
	rows := make([]row, 0, len(resp.GetSandboxes()))
	for _, info := range resp.GetSandboxes() {
		r := row{id: info.GetId(), name: info.GetName(), created: info.GetCreatedAt(), tags: map[string]string{}}
		for _, t := range info.GetTags() {
			r.tags[t.GetTagName()] = t.GetTagValue()
		}
		task := info.GetTaskInfo()
		r.started = task.GetStartedAt() > 0
		r.unfinished = endingOf(task.GetResult())
		r.finished = r.unfinished.over
		rows = append(rows, r)
	}
	return rows, nil
}

func (s *official) terminate(ctx context.Context, id string) (ending, error) {
	stub, err := s.stub(ctx)
	if err != nil {
		return ending{}, err
	}
	call := stub.SandboxTerminateV2
	if isFirst(id) {
		call = stub.SandboxTerminate
	}
	resp, err := call(ctx, pb.SandboxTerminateRequest_builder{SandboxId: id}.Build())
	if err != nil {
		return ending{}, failed(err)
	}
	return endingOf(resp.GetExistingResult()), nil
}

func (s *official) tunnels(ctx context.Context, id string, limit time.Duration) ([]tunnel, error) {
	stub, err := s.stub(ctx)
	if err != nil {
		return nil, err
	}
	call := stub.SandboxGetTunnelsV2
	if isFirst(id) {
		call = stub.SandboxGetTunnels
	}
	resp, err := call(ctx, pb.SandboxGetTunnelsRequest_builder{SandboxId: id, Timeout: float32(limit.Seconds())}.Build())
	if err != nil {
		return nil, failed(err)
	}
	if resp.GetResult().GetStatus() == pb.GenericResult_GENERIC_STATUS_TIMEOUT {
		return nil, &failure{code: codeUnavailable, message: "the tunnels are not there yet"}
	}
	var all []tunnel
	for _, t := range resp.GetTunnels() {
		way := sdk.Tunnel{Host: t.GetHost(), Port: int(t.GetPort())}
		all = append(all, tunnel{port: int(t.GetContainerPort()), url: way.URL()})
	}
	return all, nil
}

func (s *official) start(ctx context.Context, id string, c command) (*process, error) {
	sb, err := s.box(ctx, id)
	if err != nil {
		return nil, failed(err)
	}
	params := &sdk.SandboxExecParams{Env: c.env, Workdir: c.dir, Timeout: (c.limit + time.Second - 1).Truncate(time.Second)}
	if c.mute {
		params.Stdout, params.Stderr = sdk.Ignore, sdk.Ignore
	}
	p, err := sb.Exec(ctx, c.args, params)
	if is[sdk.ClientClosedError](err) { // somebody has detached it, or it was let go of meanwhile: nothing was sent
		s.forget(id)
		if sb, err = s.box(ctx, id); err == nil {
			p, err = sb.Exec(ctx, c.args, params)
		}
	}
	if err != nil {
		return nil, failed(err)
	}
	return &process{stdin: p.Stdin, stdout: p.Stdout, stderr: p.Stderr, wait: func(ctx context.Context) (int, error) {
		code, err := p.Wait(ctx, nil)
		if err != nil {
			return 0, failed(err)
		}
		return code, nil
	}}, nil
}

// box returns the handle that is kept for a sandbox, which holds the connection for its commands.
func (s *official) box(ctx context.Context, id string) (*sdk.Sandbox, error) {
	s.mu.Lock()
	sb := s.boxes[id]
	s.mu.Unlock()
	if sb != nil {
		return sb, nil
	}
	sb, err := s.client.Sandboxes.FromID(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	return s.keep(sb), nil
}

// keep keeps sb unless there is one for the same sandbox, and returns the one that is kept.
func (s *official) keep(sb *sdk.Sandbox) *sdk.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.boxes[sb.SandboxID]; known != nil {
		return known
	}
	if len(s.boxes) >= maxBoxes {
		for id, other := range s.boxes {
			_ = other.Detach() // lets what is under way end; it never fails
			delete(s.boxes, id)
			break
		}
	}
	s.boxes[sb.SandboxID] = sb
	return sb
}

func (s *official) forget(id string) {
	s.mu.Lock()
	sb := s.boxes[id]
	delete(s.boxes, id)
	s.mu.Unlock()
	if sb != nil {
		_ = sb.Detach()
	}
}

func (s *official) native(id string) any {
	if id == "" {
		return s.client
	}
	sb, err := s.box(context.Background(), id)
	if err != nil {
		return nil
	}
	return sb
}

func (s *official) close() {
	s.mu.Lock()
	boxes := s.boxes
	s.boxes = map[string]*sdk.Sandbox{}
	s.mu.Unlock()
	for _, sb := range boxes {
		_ = sb.Detach()
	}
	s.client.Close()
}

// failed reads an error of the SDK: a status of gRPC, or one of its own types.
func failed(err error) *failure {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if f, ok := errors.AsType[*final](err); ok {
		err = f.err
	}
	f := &failure{message: err.Error()}
	if st, ok := status.FromError(err); ok {
		f.code, f.message = codeOf(st.Code()), st.Message()
		for _, d := range st.Details() {
			if policy, ok := d.(*pb.RPCRetryPolicy); ok {
				f.throttled = true
				f.retryAfter = time.Duration(float64(policy.GetRetryAfterSecs()) * float64(time.Second))
			}
		}
		return f
	}
	for code, is := range map[string]func(error) bool{
		codeNotFound: is[sdk.NotFoundError], codeExists: is[sdk.AlreadyExistsError], codePrecondition: is[sdk.ConflictError],
		codeInvalid: is[sdk.InvalidError], codeExhausted: is[sdk.ResourceExhaustedError], codeBuild: is[sdk.RemoteError],
		codeDeadlineExceeded: func(err error) bool {
			return is[sdk.TimeoutError](err) || is[sdk.SandboxTimeoutError](err) || is[sdk.ExecTimeoutError](err)
		},
	} {
		if is(err) {
			f.code = code
		}
	}
	return f
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// codeOf spells a code as gRPC's own documents do.
func codeOf(c codes.Code) string {
	for code, name := range map[codes.Code]string{
		codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: codeInvalid,
		codes.DeadlineExceeded: codeDeadlineExceeded, codes.NotFound: codeNotFound, codes.AlreadyExists: codeExists,
		codes.PermissionDenied: codePermission, codes.ResourceExhausted: codeExhausted, codes.FailedPrecondition: codePrecondition,
		codes.Aborted: codeAborted, codes.OutOfRange: codeOutOfRange, codes.Unimplemented: codeUnimplemented,
		codes.Internal: codeInternal, codes.Unavailable: codeUnavailable, codes.DataLoss: "DATA_LOSS",
		codes.Unauthenticated: codeUnauthenticated,
	} {
		if code == c {
			return name
		}
	}
	return c.String()
}
