package modalfake

import (
	"context"
	"maps"
	"slices"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// container is one beside the main one, with files of its own. It is guarded by Server.mu.
type container struct {
	id, name string
	env      map[string]string
	dir      string
	disk     *shell.FS
	mounts   []*pb.VolumeMount
	entry    *process
	stopped  bool              // by a call
	result   *pb.GenericResult // nil: it runs
}

// containerOf returns a container.
func (s *Server) containerOf(b *box, id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range b.containers {
		if c.id == id {
			return c, nil
		}
	}
	return nil, refuse(codes.NotFound, "Container %s not found", id)
}

// sidecar is what either way of making a container asks for.
type sidecar struct {
	name, image, dir string
	args             []string
	env              map[string]string
	mounts           []*pb.VolumeMount
}

// addContainer makes and starts one in a sandbox that runs.
func (s *Server) addContainer(ctx context.Context, b *box, in sidecar) (*container, error) {
	if in.name == "" || in.name == "main" {
		return nil, invalid("container name %q", in.name)
	}
	c := &container{id: newID("ctr-"), name: in.name, env: map[string]string{}, dir: in.dir, mounts: in.mounts, disk: shell.NewFS()}
	s.mu.Lock()
	img := s.images[in.image]
	taken := slices.ContainsFunc(b.containers, func(o *container) bool { return o.name == in.name && o.result == nil })
	over := b.result != nil
	s.mu.Unlock()
	switch {
	case over:
		return nil, refuse(codes.FailedPrecondition, "Sandbox %s has already finished", b.id)
	case img == nil || img.deleted:
		return nil, refuse(codes.NotFound, "Image %s not found", in.image)
	case taken:
		return nil, refuse(codes.AlreadyExists, "Container with name %q already exists", in.name)
	}
	if img.files != nil {
		copyDisk(ctx, img.files, c.disk)
	}
	if c.dir == "" {
		c.dir = img.workdir
	}
	if c.dir == "" {
		c.dir = "/"
	}
	tool(ctx, c.disk, nil, "mkdir", "-p", c.dir)
	s.fetch(ctx, c.mounts, c.disk)
	maps.Copy(c.env, img.env)
	maps.Copy(c.env, in.env)
	if len(in.args) == 0 {
		in.args = []string{"sleep", "172800"}
	}
	p := newProcess(b, shell.Command{Args: in.args, Env: maps.Clone(c.env), Dir: c.dir})
	p.disk, p.container, c.entry = c.disk, c.id, p
	if !s.launch(p, func(exit int) {
		s.commit(s.base, c.mounts, c.disk)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case c.stopped:
			c.result = outcome(terminated, 0, "")
		case exit == 0:
			c.result = outcome(success, 0, "")
		default:
			c.result = outcome(failure, int32(exit), "")
		}
		b.wake()
	}) {
		return nil, context.Canceled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.containers = append(b.containers, c)
	b.kills = append(b.kills, func() { p.end(errKilled) })
	b.wake()
	return c, nil
}

func (c *control) SandboxContainerCreateV2(
	ctx context.Context, in *pb.SandboxContainerCreateV2Request,
) (*pb.SandboxContainerCreateV2Response, error) {
	b, err := c.s.find(in.GetSandboxId(), false)
	if err != nil {
		return nil, err
	}
	def := in.GetDefinition()
	c.s.mu.Lock()
	env, err := c.s.environ(def.GetSecretIds(), in.GetEphemeralSecrets().GetContents(), in.GetSecretSources())
	c.s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	made, err := c.s.addContainer(ctx, b, sidecar{
		name: in.GetContainerName(), image: def.GetImageId(), dir: def.GetWorkdir(), args: def.GetEntrypointArgs(), env: env,
		mounts: def.GetVolumeMounts(),
	})
	if err != nil {
		return nil, err
	}
	return pb.SandboxContainerCreateV2Response_builder{ContainerId: made.id, ContainerName: made.name}.Build(), nil
}

func (r *router) TaskContainerCreate(
	ctx context.Context, in *pb.TaskContainerCreateRequest,
) (*pb.TaskContainerCreateResponse, error) {
	b, err := r.taskOf(ctx, in.GetTaskId())
	if err != nil {
		return nil, err
	}
	r.s.mu.Lock()
	env, err := r.s.environ(in.GetSecretIds(), in.GetEnv(), in.GetSecretSources())
	r.s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	made, err := r.s.addContainer(ctx, b, sidecar{
		name: in.GetContainerName(), image: in.GetImageId(), dir: in.GetWorkdir(), args: in.GetArgs(), env: env,
		mounts: in.GetVolumeMounts(),
	})
	if err != nil {
		return nil, err
	}
	return pb.TaskContainerCreateResponse_builder{ContainerId: made.id, ContainerName: made.name}.Build(), nil
}

func (c *container) info() *pb.TaskContainerInfo {
	state := "running"
	if c.result != nil {
		state = "terminated"
	}
	return pb.TaskContainerInfo_builder{ContainerId: c.id, ContainerName: c.name, Status: state, Result: c.result}.Build()
}

// containers returns those of a name, or all, the latest first.
func (r *router) containers(ctx context.Context, task, name string, ended bool) ([]*pb.TaskContainerInfo, error) {
	b, err := r.taskOf(ctx, task)
	if err != nil {
		return nil, err
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	var all []*pb.TaskContainerInfo
	for _, c := range slices.Backward(b.containers) {
		if (name == "" || c.name == name) && (ended || c.result == nil) {
			all = append(all, c.info())
		}
	}
	return all, nil
}

func (r *router) TaskContainerGet(ctx context.Context, in *pb.TaskContainerGetRequest) (*pb.TaskContainerGetResponse, error) {
	all, err := r.containers(ctx, in.GetTaskId(), in.GetContainerName(), in.GetIncludeTerminated())
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, refuse(codes.NotFound, "Container with name %q not found", in.GetContainerName())
	}
	return pb.TaskContainerGetResponse_builder{Container: all[0]}.Build(), nil
}

func (r *router) TaskContainerList(ctx context.Context, in *pb.TaskContainerListRequest) (*pb.TaskContainerListResponse, error) {
	all, err := r.containers(ctx, in.GetTaskId(), "", in.GetIncludeTerminated())
	if err != nil {
		return nil, err
	}
	slices.Reverse(all)
	return pb.TaskContainerListResponse_builder{Containers: all}.Build(), nil
}

func (r *router) TaskContainerTerminate(
	ctx context.Context, in *pb.TaskContainerTerminateRequest,
) (*pb.TaskContainerTerminateResponse, error) {
	b, err := r.taskOf(ctx, in.GetTaskId())
	if err != nil {
		return nil, err
	}
	c, err := r.s.containerOf(b, in.GetContainerId())
	if err != nil {
		return nil, err
	}
	r.s.mu.Lock()
	if c.result == nil {
		c.stopped = true
	}
	r.s.mu.Unlock()
	c.entry.end(errKilled)
	return &pb.TaskContainerTerminateResponse{}, nil
}

func (r *router) TaskContainerWait(ctx context.Context, in *pb.TaskContainerWaitRequest) (*pb.TaskContainerWaitResponse, error) {
	b, err := r.taskOf(ctx, in.GetTaskId())
	if err != nil {
		return nil, err
	}
	c, err := r.s.containerOf(b, in.GetContainerId())
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, time.Duration(float64(in.GetTimeout())*float64(time.Second)))
	defer cancel()
	var result *pb.GenericResult
	err = r.s.await(waiting, b, func() bool { result = c.result; return result != nil })
	if err != nil && (ctx.Err() != nil || r.s.base.Err() != nil) {
		return nil, err
	}
	return pb.TaskContainerWaitResponse_builder{Result: result}.Build(), nil
}
