package modalfake

import (
	"context"
	"path"
	"slices"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// volumeRoot is where a volume's own disk has its files.
const volumeRoot = "/volume"

// volume is a folder that outlives sandboxes.
type volume struct {
	id, name, env string // name empty: ephemeral
	files         *shell.FS
}

func (c *control) VolumeGetOrCreate(_ context.Context, in *pb.VolumeGetOrCreateRequest) (*pb.VolumeGetOrCreateResponse, error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *volume
	for _, v := range s.volumes {
		if v.name != "" && v.name == in.GetDeploymentName() && v.env == s.env(in.GetEnvironmentName()) {
			found = v
		}
	}
	kind := in.GetObjectCreationType()
	switch {
	case kind == pb.ObjectCreationType_OBJECT_CREATION_TYPE_EPHEMERAL || creates(kind) && found == nil:
		found = &volume{id: newV1ID("vo-"), name: in.GetDeploymentName(), env: s.env(in.GetEnvironmentName()), files: shell.NewFS()}
		s.volumes[found.id] = found
	case found == nil:
		return nil, refuse(codes.NotFound, "Volume %q not found", in.GetDeploymentName())
	case kind == pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS:
		return nil, refuse(codes.AlreadyExists, "Volume %q already exists", in.GetDeploymentName())
	}
	return pb.VolumeGetOrCreateResponse_builder{
		VolumeId: found.id, Version: in.GetVersion(),
		Metadata: pb.VolumeMetadata_builder{Name: found.name, Version: in.GetVersion()}.Build(),
	}.Build(), nil
}

func (c *control) VolumeHeartbeat(context.Context, *pb.VolumeHeartbeatRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (c *control) VolumeDelete(_ context.Context, in *pb.VolumeDeleteRequest) (*emptypb.Empty, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.volumes[in.GetVolumeId()] == nil {
		return nil, refuse(codes.NotFound, "Volume %s not found", in.GetVolumeId())
	}
	delete(c.s.volumes, in.GetVolumeId())
	return &emptypb.Empty{}, nil
}

// copyVolumes copies between volumes and a disk where they are mounted.
func (s *Server) copyVolumes(mounts []*pb.VolumeMount, each func(m *pb.VolumeMount, v *volume, root string)) {
	for _, m := range mounts {
		s.mu.Lock()
		v := s.volumes[m.GetVolumeId()]
		s.mu.Unlock()
		if v != nil {
			each(m, v, path.Join(volumeRoot, m.GetSubPath()))
		}
	}
}

// fetch brings volumes onto a disk.
func (s *Server) fetch(ctx context.Context, mounts []*pb.VolumeMount, disk *shell.FS) {
	s.copyVolumes(mounts, func(m *pb.VolumeMount, v *volume, root string) {
		tool(ctx, v.files, nil, "mkdir", "-p", root)
		copyTree(ctx, v.files, root, disk, m.GetMountPath())
	})
}

// commit brings what a disk has of its volumes back.
func (s *Server) commit(ctx context.Context, mounts []*pb.VolumeMount, disk *shell.FS) {
	s.copyVolumes(mounts, func(m *pb.VolumeMount, v *volume, root string) {
		if !m.GetReadOnly() {
			copyTree(ctx, disk, m.GetMountPath(), v.files, root)
		}
	})
}

// TaskReloadVolumes commits a container's volumes and fetches what others have committed.
func (r *router) TaskReloadVolumes(ctx context.Context, in *pb.TaskReloadVolumesRequest) (*pb.TaskReloadVolumesResponse, error) {
	b, err := r.taskOf(ctx, in.GetTaskId())
	if err != nil {
		return nil, err
	}
	mounts, disk := slices.Clone(b.def.GetVolumeMounts()), r.s.diskOf(b)
	if in.GetContainerId() != "" {
		c, err := r.s.containerOf(b, in.GetContainerId())
		if err != nil {
			return nil, err
		}
		mounts, disk = c.mounts, c.disk
	}
	r.s.commit(ctx, mounts, disk)
	r.s.fetch(ctx, mounts, disk)
	return &pb.TaskReloadVolumesResponse{}, nil
}

// ProxyGet finds one of the workspace's proxies.
func (c *control) ProxyGet(_ context.Context, in *pb.ProxyGetRequest) (*pb.ProxyGetResponse, error) {
	if !slices.Contains(c.s.opts.Proxies, in.GetName()) {
		return nil, refuse(codes.NotFound, "Proxy %q not found", in.GetName())
	}
	return pb.ProxyGetResponse_builder{Proxy: pb.Proxy_builder{Name: in.GetName(), ProxyId: "pr-" + in.GetName()}.Build()}.Build(), nil
}
