package modalfake

import (
	"bytes"
	"context"
	"maps"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// defaultKeep is how long a snapshot of a folder is kept that says nothing.
const defaultKeep = 30 * 24 * time.Hour

// snapshotOrder is what either kind of snapshot asks for.
type snapshotOrder struct {
	task, container, id string
	ttl                 *int64
	key                 []byte
}

// keep makes an image of a sandbox's files: all of them, or a folder's.
func (r *router) keep(ctx context.Context, in snapshotOrder, folder string) (*image, error) {
	s := r.s
	b, err := r.taskOf(ctx, in.task)
	if err != nil {
		return nil, err
	}
	if in.ttl != nil && (*in.ttl == 0 || *in.ttl < -1) {
		return nil, invalid("ttl_seconds must be positive or -1")
	}
	s.mu.Lock()
	for _, i := range s.images {
		if in.id != "" && i.key == "snapshot "+b.task+" "+in.id {
			s.mu.Unlock()
			return i, nil
		}
	}
	s.mu.Unlock()
	run, disk, err := s.place(b, in.container)
	if err != nil {
		return nil, err
	}
	i := &image{
		id: newV1ID("im-"), key: "snapshot " + b.task + " " + in.id, from: b.image.from, env: maps.Clone(b.image.env), workdir: run.Dir,
		source: b.id, secret: bytes.Clone(in.key), root: "/", files: shell.NewFS(),
	}
	if folder == "" {
		copyDisk(ctx, disk, i.files)
	} else {
		if _, exit := tool(ctx, disk, nil, "test", "-d", folder); exit != 0 {
			return nil, refuse(codes.NotFound, "no folder %s", folder)
		}
		i.root = volumeRoot
		copyTree(ctx, disk, folder, i.files, i.root)
	}
	if i.snap = s.svc.Snapshot(b.svc); i.snap == "" {
		return nil, refuse(codes.NotFound, "Task %s has ended", b.task)
	}
	ttl := defaultKeep
	if in.ttl != nil {
		ttl = time.Duration(*in.ttl) * time.Second
	}
	if ttl > 0 {
		i.expires = s.svc.Now().Add(ttl)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[i.id] = i
	return i, nil
}

func (r *router) TaskSnapshotFilesystem(
	ctx context.Context, in *pb.TaskSnapshotFilesystemRequest,
) (*pb.TaskSnapshotFilesystemResponse, error) {
	if !in.HasTtlSeconds() {
		return nil, invalid("ttl_seconds must be set")
	}
	ttl := in.GetTtlSeconds()
	i, err := r.keep(ctx, snapshotOrder{
		task: in.GetTaskId(), container: in.GetContainerId(), id: in.GetSnapshotId(), ttl: &ttl,
		key: in.GetCustomerSuppliedEncryptionKey(),
	}, "")
	if err != nil {
		return nil, err
	}
	return pb.TaskSnapshotFilesystemResponse_builder{ImageId: i.id}.Build(), nil
}

func (r *router) TaskSnapshotDirectory(
	ctx context.Context, in *pb.TaskSnapshotDirectoryRequest,
) (*pb.TaskSnapshotDirectoryResponse, error) {
	order := snapshotOrder{
		task: in.GetTaskId(), container: in.GetContainerId(), id: in.GetSnapshotId(), key: in.GetCustomerSuppliedEncryptionKey(),
	}
	if in.HasTtlSeconds() {
		ttl := in.GetTtlSeconds()
		order.ttl = &ttl
	}
	i, err := r.keep(ctx, order, string(in.GetPath()))
	if err != nil {
		return nil, err
	}
	return pb.TaskSnapshotDirectoryResponse_builder{ImageId: i.id}.Build(), nil
}

// hidden is what a mounted image lies over.
type hidden struct {
	disk  *shell.FS
	path  string
	files *shell.FS
}

// TaskMountDirectory puts an image's files, or none, in the place of what a folder holds.
func (r *router) TaskMountDirectory(ctx context.Context, in *pb.TaskMountDirectoryRequest) (*emptypb.Empty, error) {
	s := r.s
	b, err := r.taskOf(ctx, in.GetTaskId())
	if err != nil {
		return nil, err
	}
	_, disk, err := s.place(b, in.GetContainerId())
	if err != nil {
		return nil, err
	}
	now := s.svc.Now()
	s.mu.Lock()
	i := s.images[in.GetImageId()]
	s.mu.Unlock()
	folder := string(in.GetPath())
	_, exit := tool(ctx, disk, nil, "test", "-d", folder)
	switch {
	case in.GetImageId() != "" && (i == nil || i.gone(now)):
		return nil, refuse(codes.NotFound, "Image %s not found", in.GetImageId())
	case i != nil && !bytes.Equal(i.secret, in.GetCustomerSuppliedEncryptionKey()):
		return nil, invalid("the encryption key does not fit")
	case exit != 0:
		return nil, refuse(codes.FailedPrecondition, "no folder %s", folder)
	}
	h := hidden{disk: disk, path: folder, files: shell.NewFS()}
	copyTree(ctx, disk, folder, h.files, volumeRoot)
	empty(ctx, disk, folder)
	switch {
	case i == nil || i.files == nil:
	case i.root == volumeRoot:
		copyTree(ctx, i.files, i.root, disk, folder)
	default:
		copyRoot(ctx, i.files, disk, folder)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.mounted = append(b.mounted, h)
	return &emptypb.Empty{}, nil
}

func empty(ctx context.Context, disk *shell.FS, folder string) {
	tool(ctx, disk, nil, "find", folder, "-mindepth", "1", "-delete")
}

// TaskUnmountDirectory brings back what a mounted image lies over.
func (r *router) TaskUnmountDirectory(ctx context.Context, in *pb.TaskUnmountDirectoryRequest) (*emptypb.Empty, error) {
	s := r.s
	b, err := r.taskOf(ctx, in.GetTaskId())
	if err != nil {
		return nil, err
	}
	_, disk, err := s.place(b, in.GetContainerId())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	at := -1
	for n, h := range b.mounted {
		if h.disk == disk && h.path == string(in.GetPath()) {
			at = n
		}
	}
	var h hidden
	if at >= 0 {
		h = b.mounted[at]
		b.mounted = append(b.mounted[:at], b.mounted[at+1:]...)
	}
	s.mu.Unlock()
	if at < 0 {
		return nil, refuse(codes.FailedPrecondition, "nothing is mounted at %s", in.GetPath())
	}
	empty(ctx, disk, h.path)
	copyTree(ctx, h.files, volumeRoot, disk, h.path)
	return &emptypb.Empty{}, nil
}
