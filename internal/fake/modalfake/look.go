package modalfake

import (
	"context"
	"slices"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func codeOf(err error) codes.Code { return status.Code(err) }

// find returns the sandbox of an id in one family of calls.
func (s *Server) find(id string, v1 bool) (*box, error) {
	now := s.svc.Now()
	s.mu.Lock()
	b := s.ids[id]
	forgotten := b != nil && b.result != nil && s.quirks.Forgets > 0 && now.Sub(b.ended) >= s.quirks.Forgets
	s.mu.Unlock()
	if b == nil || b.v1 != v1 || forgotten || s.svc.Behaviour().WrongScope {
		return nil, s.missing(id)
	}
	return b, nil
}

// look returns the result of a sandbox as an answer may tell it, nil while it has not ended.
func (s *Server) look(ctx context.Context, b *box) (*pb.GenericResult, error) {
	rec, err := s.svc.Get(ctx, b.svc)
	truth := s.catchUp(b)
	s.mu.Lock()
	result := b.result
	s.mu.Unlock()
	switch {
	case err == nil && rec.State == sandbox.StateFailed:
		return result, nil
	case err == nil:
		return nil, nil
	case codeOf(problemOf(err)) != codes.NotFound:
		return nil, err
	case truth.Lost || result == nil:
		return nil, s.missing(b.id)
	}
	return result, nil
}

func (s *Server) wait(ctx context.Context, in *pb.SandboxWaitRequest, v1 bool) (*pb.SandboxWaitResponse, error) {
	b, err := s.find(in.GetSandboxId(), v1)
	if err != nil {
		return nil, err
	}
	result, err := s.look(ctx, b)
	if err != nil {
		return nil, err
	}
	if result == nil && in.GetTimeout() > 0 {
		limit := time.Duration(float64(in.GetTimeout()) * float64(time.Second))
		waiting, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if err := s.await(waiting, b, func() bool { result = b.result; return result != nil }); err != nil && waiting.Err() == nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if result == nil && s.Quirks().StatusUnset {
		result = outcome(unset, 0, "")
	}
	return pb.SandboxWaitResponse_builder{
		Result: result, Metadata: pb.SandboxHandleMetadata_builder{AppId: b.app.id, Result: result}.Build(),
	}.Build(), nil
}

func (c *control) SandboxWaitV2(ctx context.Context, in *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	return c.s.wait(ctx, in, false)
}

func (c *control) SandboxWait(ctx context.Context, in *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	return c.s.wait(ctx, in, true)
}

// SandboxListV2 lists sandboxes of both backends.
func (c *control) SandboxListV2(ctx context.Context, in *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	return c.s.list(ctx, in, false)
}

// SandboxList lists those of the older one.
func (c *control) SandboxList(ctx context.Context, in *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	return c.s.list(ctx, in, true)
}

func (s *Server) list(ctx context.Context, in *pb.SandboxListRequest, v1 bool) (*pb.SandboxListResponse, error) {
	q := fake.Query{}
	for _, t := range in.GetTags() {
		q.Tags = append(q.Tags, fake.Tag{Key: t.GetTagName(), Value: t.GetTagValue()})
	}
	page, err := s.svc.List(ctx, q)
	if err != nil {
		return nil, err
	}
	h := s.svc.Behaviour()
	now := s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := in.GetAppId(); id != "" && s.appByID(id) == nil {
		return nil, refuse(codes.NotFound, "App %s not found", id)
	}
	type row struct {
		b   *box
		rec fake.Record
	}
	var rows []row
	for _, rec := range page.Records {
		b := s.of(rec)
		finished := rec.State == sandbox.StateGone || rec.State == sandbox.StateFailed
		switch {
		case b == nil || v1 && !b.v1:
		case !v1 && b.v1 && now.Sub(b.created) < s.quirks.MirrorLag:
		case finished && (!in.GetIncludeFinished() || s.quirks.Forgets > 0 && now.Sub(b.ended) >= s.quirks.Forgets):
		case rec.State == sandbox.StateEnding && s.quirks.HidesTerminating && !in.GetIncludeFinished():
		case in.GetAppId() != "" && b.app.id != in.GetAppId():
		case in.GetAppId() == "" && b.app.env != s.env(in.GetEnvironmentName()):
		default:
			rows = append(rows, row{b, rec})
		}
	}
	slices.SortStableFunc(rows, func(x, y row) int { return y.b.created.Compare(x.b.created) })
	size := s.quirks.PageSize
	if size <= 0 {
		size = 100
	}
	out := pb.SandboxListResponse_builder{}
	for _, r := range rows {
		at, before := seconds(r.b.created), in.GetBeforeTimestamp()
		if before > 0 && !h.RepeatCursor && (at > before || at == before && !s.quirks.EdgeIncluded) {
			continue
		}
		if len(out.Sandboxes) == size {
			break
		}
		out.Sandboxes = append(out.Sandboxes, s.info(r.b, r.rec))
	}
	return out.Build(), nil
}

// info is a row of a list. The lock is held.
func (s *Server) info(b *box, rec fake.Record) *pb.SandboxInfo {
	var result *pb.GenericResult
	ended := 0.0
	if rec.State == sandbox.StateGone || rec.State == sandbox.StateFailed {
		result, ended = b.result, seconds(b.ended)
	}
	i := pb.SandboxInfo_builder{
		Id: b.id, CreatedAt: seconds(b.created), AppId: b.app.id, Tags: tagList(rec.Tags), Name: b.name, ImageId: b.def.GetImageId(),
		Regions: b.def.GetSchedulerPlacement().GetRegions(), TimeoutSecs: uint32(b.life / time.Second),
		ReadinessProbe: b.def.GetReadinessProbe(), Tunnels: b.tunnels,
		TaskInfo: pb.TaskInfo_builder{
			Id: b.task, EnqueuedAt: seconds(b.created), StartedAt: seconds(b.started), FinishedAt: ended, Result: result, SandboxId: b.id,
		}.Build(),
		Metadata: pb.SandboxHandleMetadata_builder{AppId: b.app.id, Result: result}.Build(),
	}
	if b.idle > 0 {
		secs := uint32(b.idle / time.Second)
		i.IdleTimeoutSecs = &secs
	}
	if !b.ready.IsZero() {
		at := seconds(b.ready)
		i.ReadyAt = &at
	}
	return i.Build()
}

func (s *Server) getTags(ctx context.Context, id string, v1 bool) (*pb.SandboxTagsGetResponse, error) {
	b, err := s.find(id, v1)
	if err != nil {
		return nil, err
	}
	if err := s.svc.Ping(ctx, sandbox.OpGet); err != nil {
		return nil, err
	}
	rec, _ := s.svc.Lookup(b.svc)
	return pb.SandboxTagsGetResponse_builder{Tags: tagList(rec.Tags)}.Build(), nil
}

func (c *control) SandboxTagsGetV2(ctx context.Context, in *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	return c.s.getTags(ctx, in.GetSandboxId(), false)
}

func (c *control) SandboxTagsGet(ctx context.Context, in *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	return c.s.getTags(ctx, in.GetSandboxId(), true)
}

// setTags replaces all tags.
func (s *Server) setTags(ctx context.Context, in *pb.SandboxTagsSetRequest, v1 bool) (*emptypb.Empty, error) {
	b, err := s.find(in.GetSandboxId(), v1)
	if err != nil {
		return nil, err
	}
	if err := checkTags(in.GetTags(), s.Quirks()); err != nil {
		return nil, err
	}
	if !ignored(ctx) {
		if _, err := s.svc.Retag(ctx, b.svc, tagsOf(in.GetTags())); err != nil {
			return nil, err
		}
	}
	return &emptypb.Empty{}, nil
}

func (c *control) SandboxTagsSetV2(ctx context.Context, in *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	return c.s.setTags(ctx, in, false)
}

func (c *control) SandboxTagsSet(ctx context.Context, in *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	return c.s.setTags(ctx, in, true)
}

// taskID tells the task of a sandbox, once there is one.
func (s *Server) taskID(ctx context.Context, in *pb.SandboxGetTaskIdRequest, v1 bool) (*pb.SandboxGetTaskIdResponse, error) {
	b, err := s.find(in.GetSandboxId(), v1)
	if err != nil {
		return nil, err
	}
	limit := time.Duration(float64(in.GetTimeout()) * float64(time.Second))
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out pb.SandboxGetTaskIdResponse_builder
	err = s.await(waiting, b, func() bool {
		out.TaskResult = b.result
		if !b.started.IsZero() && (b.result == nil || !s.quirks.EndedTask) {
			out.TaskId = &b.task
		}
		return out.TaskId != nil || out.TaskResult != nil
	})
	if err != nil && (ctx.Err() != nil || s.base.Err() != nil) {
		return nil, err
	}
	return out.Build(), nil
}

func (c *control) SandboxGetTaskIdV2(ctx context.Context, in *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) {
	return c.s.taskID(ctx, in, false)
}

func (c *control) SandboxGetTaskId(ctx context.Context, in *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) {
	return c.s.taskID(ctx, in, true)
}

// routerAccess tells the way to the command router of a sandbox that has started and not ended.
func (s *Server) routerAccess(ctx context.Context, b *box) (jwt, url string, err error) {
	s.mu.Lock()
	started, ended := !b.started.IsZero(), b.result != nil
	s.mu.Unlock()
	switch {
	case ended:
		return "", "", refuse(codes.FailedPrecondition, "Sandbox %s has already finished", b.id)
	case !started:
		return "", "", refuse(codes.FailedPrecondition, "Sandbox %s has not started", b.id)
	}
	jwt, url = s.access(ctx, b.task)
	return jwt, url, nil
}

func (c *control) SandboxGetCommandRouterAccess(
	ctx context.Context, in *pb.SandboxGetCommandRouterAccessRequest,
) (*pb.SandboxGetCommandRouterAccessResponse, error) {
	c.s.mu.Lock()
	b := c.s.tasks[in.GetTaskId()]
	c.s.mu.Unlock()
	var err error
	if b == nil {
		if b, err = c.s.find(in.GetSandboxId(), false); err != nil {
			return nil, err
		}
	}
	jwt, url, err := c.s.routerAccess(ctx, b)
	if err != nil {
		return nil, err
	}
	return pb.SandboxGetCommandRouterAccessResponse_builder{Jwt: jwt, Url: url}.Build(), nil
}

func (c *control) TaskGetCommandRouterAccess(
	ctx context.Context, in *pb.TaskGetCommandRouterAccessRequest,
) (*pb.TaskGetCommandRouterAccessResponse, error) {
	c.s.mu.Lock()
	b := c.s.tasks[in.GetTaskId()]
	c.s.mu.Unlock()
	if b == nil {
		return nil, refuse(codes.NotFound, "Task %s not found", in.GetTaskId())
	}
	jwt, url, err := c.s.routerAccess(ctx, b)
	if err != nil {
		return nil, err
	}
	return pb.TaskGetCommandRouterAccessResponse_builder{Jwt: jwt, Url: url}.Build(), nil
}

// byName finds a sandbox by its name in an app: one that has not ended, or the latest that has.
func (s *Server) byName(ctx context.Context, in *pb.SandboxGetFromNameRequest, v1 bool) (*pb.SandboxGetFromNameResponse, error) {
	if err := s.svc.Ping(ctx, sandbox.OpGet); err != nil {
		return nil, err
	}
	now := s.svc.Now()
	h := s.svc.Behaviour()
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.appNamed(in.GetEnvironmentName(), in.GetAppName())
	if a == nil || h.WrongScope {
		return nil, refuse(codes.NotFound, "App %q not found", in.GetAppName())
	}
	var found *box
	for _, b := range s.boxes {
		switch {
		case b.app != a || b.name != in.GetSandboxName() || b.v1 != v1:
		case b.result != nil && !in.GetIncludeTerminated():
		case now.Sub(b.created) < h.GetMissesNew:
		case found == nil || found.result != nil || b.result == nil:
			found = b
		}
	}
	if found == nil {
		return nil, refuse(codes.NotFound, "Sandbox with name %q not found", in.GetSandboxName())
	}
	return pb.SandboxGetFromNameResponse_builder{
		SandboxId: found.id, Metadata: pb.SandboxHandleMetadata_builder{AppId: a.id, Result: found.result}.Build(),
	}.Build(), nil
}

func (c *control) SandboxGetFromNameV2(
	ctx context.Context, in *pb.SandboxGetFromNameRequest,
) (*pb.SandboxGetFromNameResponse, error) {
	return c.s.byName(ctx, in, false)
}

func (c *control) SandboxGetFromName(
	ctx context.Context, in *pb.SandboxGetFromNameRequest,
) (*pb.SandboxGetFromNameResponse, error) {
	return c.s.byName(ctx, in, true)
}

// SandboxSetName names a sandbox of the newer backend that has no name.
func (c *control) SandboxSetName(ctx context.Context, in *pb.SandboxSetNameRequest) (*pb.SandboxSetNameResponse, error) {
	s := c.s
	b, err := s.find(in.GetSandboxId(), false)
	if err != nil {
		return nil, err
	}
	if len(in.GetName()) > maxName || !nameForm.MatchString(in.GetName()) {
		return nil, invalid("Invalid sandbox name: %q", in.GetName())
	}
	s.mu.Lock()
	taken := slices.ContainsFunc(s.boxes, func(o *box) bool { return o.app == b.app && o.name == in.GetName() && o.result == nil })
	over := b.result != nil
	named := b.name != ""
	if !taken && !over && !named && !ignored(ctx) {
		b.name = in.GetName()
	}
	s.mu.Unlock()
	switch {
	case over:
		return nil, refuse(codes.FailedPrecondition, "Sandbox %s has already finished", b.id)
	case named:
		return nil, refuse(codes.FailedPrecondition, "Sandbox %s already has a name", b.id)
	case taken:
		return nil, refuse(codes.AlreadyExists, "Sandbox with name %q already exists", in.GetName())
	}
	if !ignored(ctx) {
		s.svc.Rename(b.svc, b.app.id+"/"+in.GetName())
	}
	return &pb.SandboxSetNameResponse{}, nil
}

// SandboxGetResourceUsage tells seconds of one core.
func (c *control) SandboxGetResourceUsage(
	_ context.Context, in *pb.SandboxGetResourceUsageRequest,
) (*pb.SandboxGetResourceUsageResponse, error) {
	s := c.s
	now := s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.ids[in.GetSandboxId()]
	if b == nil {
		return nil, refuse(codes.NotFound, "Sandbox %s not found", in.GetSandboxId())
	}
	if !b.ended.IsZero() {
		now = b.ended
	}
	used := uint64(0)
	if !b.started.IsZero() {
		used = uint64(max(0, now.Sub(b.started)))
	}
	return pb.SandboxGetResourceUsageResponse_builder{CpuCoreNanosecs: used}.Build(), nil
}
