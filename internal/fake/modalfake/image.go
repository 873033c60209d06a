package modalfake

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// image is what sandboxes begin with.
type image struct {
	id      string
	key     string // what it was built of
	from    string // the tag at the bottom of it
	env     map[string]string
	workdir string
	args    []string // what runs where the definition says nothing
	files   *shell.FS
	root    string    // of files, where they are a folder's
	secret  []byte    // a key that a mount of it needs
	snap    string    // the state machine's id, if it is a snapshot
	source  string    // id of the sandbox that it was made of
	expires time.Time // zero: never
	deleted bool
}

// An Image is one that exists.
type Image struct {
	ID      string
	From    string    // tag at the bottom of it; empty: a snapshot of one without
	Sandbox string    // id of the sandbox that it is a snapshot of; empty: built
	Expires time.Time // zero: never
}

// Images returns those that exist, in no order.
func (s *Server) Images() []Image {
	now := s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Image
	for _, i := range s.images {
		if !i.gone(now) {
			all = append(all, Image{ID: i.id, From: i.from, Sandbox: i.source, Expires: i.expires})
		}
	}
	return all
}

func (i *image) gone(now time.Time) bool {
	return i.deleted || !i.expires.IsZero() && !now.Before(i.expires)
}

// ImageGetOrCreate builds an image, or finds the one that was built of the same.
func (c *control) ImageGetOrCreate(ctx context.Context, in *pb.ImageGetOrCreateRequest) (*pb.ImageGetOrCreateResponse, error) {
	s := c.s
	key := bodyOf(in.GetImage())
	s.mu.Lock()
	if s.appByID(in.GetAppId()) == nil {
		s.mu.Unlock()
		return nil, refuse(codes.NotFound, "App %s not found", in.GetAppId())
	}
	env, err := s.environ(in.GetImage().GetSecretIds(), nil, nil)
	var found *image
	for _, i := range s.images {
		if i.key == key && !i.deleted {
			found = i
		}
	}
	bases := map[string]*image{}
	for _, b := range in.GetImage().GetBaseImages() {
		if i := s.images[b.GetImageId()]; i != nil {
			bases[b.GetDockerTag()] = i
		}
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if found == nil || in.GetForceBuild() {
		built, message := s.build(ctx, in.GetImage().GetDockerfileCommands(), env, bases)
		if message != "" {
			return pb.ImageGetOrCreateResponse_builder{ImageId: newV1ID("im-"), Result: outcome(failure, 1, message)}.Build(), nil
		}
		built.id, built.key = newV1ID("im-"), key
		s.mu.Lock()
		s.images[built.id] = built
		s.mu.Unlock()
		found = built
	}
	return pb.ImageGetOrCreateResponse_builder{
		ImageId: found.id, Result: outcome(success, 0, ""), Metadata: &pb.ImageMetadata{},
	}.Build(), nil
}

// ImageJoinStreaming tells that a build has ended, for builds end at once.
func (c *control) ImageJoinStreaming(
	in *pb.ImageJoinStreamingRequest, st grpc.ServerStreamingServer[pb.ImageJoinStreamingResponse],
) error {
	c.s.mu.Lock()
	known := c.s.images[in.GetImageId()] != nil
	c.s.mu.Unlock()
	if !known {
		return refuse(codes.NotFound, "Image %s not found", in.GetImageId())
	}
	return st.Send(pb.ImageJoinStreamingResponse_builder{Result: outcome(success, 0, ""), EntryId: "1-0"}.Build())
}

// build runs a Dockerfile. A message says why it fails.
func (s *Server) build(ctx context.Context, commands []string, env map[string]string, bases map[string]*image) (*image, string) {
	img := &image{env: map[string]string{}}
	unknown := s.svc.Behaviour().UnknownImages
	for _, line := range commands {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		switch strings.ToUpper(word) {
		case "", "#":
		case "FROM":
			if base := bases[rest]; base != nil {
				img.from, img.workdir, img.args = base.from, base.workdir, base.args
				maps.Copy(img.env, base.env)
				if base.files != nil {
					img.files = shell.NewFS()
					copyDisk(ctx, base.files, img.files)
				}
				continue
			}
			if rest == "" || slices.Contains(unknown, rest) {
				return nil, fmt.Sprintf("Image %q could not be pulled: manifest unknown", rest)
			}
			img.from = rest
		case "RUN":
			if img.files == nil {
				img.files = shell.NewFS()
			}
			vars := map[string]string{}
			maps.Copy(vars, img.env)
			maps.Copy(vars, env)
			var out bytes.Buffer
			run := shell.Command{Args: []string{"sh", "-c", rest}, Env: vars, Dir: img.workdir, Stdout: &out, Stderr: &out}
			if exit := shell.Run(ctx, img.files, run); exit != 0 {
				return nil, fmt.Sprintf("%s: exit code %d\n%s", line, exit, out.String())
			}
		case "ENV":
			for k, v := range assignments(rest) {
				img.env[k] = v
			}
		case "WORKDIR":
			img.workdir = rest
			if img.files == nil {
				img.files = shell.NewFS()
			}
			tool(ctx, img.files, nil, "mkdir", "-p", rest)
		case "CMD", "ENTRYPOINT", "LABEL", "EXPOSE", "USER", "ARG", "SHELL", "COPY", "STOPSIGNAL":
		default:
			return nil, fmt.Sprintf("unknown instruction: %s", word)
		}
	}
	return img, ""
}

// assignments reads what ENV says.
func assignments(text string) map[string]string {
	env := map[string]string{}
	if k, v, ok := strings.Cut(text, " "); ok && !strings.Contains(k, "=") {
		env[k] = strings.TrimSpace(v)
		return env
	}
	for _, pair := range strings.Fields(text) {
		if k, v, ok := strings.Cut(pair, "="); ok {
			env[k] = strings.Trim(v, `"'`)
		}
	}
	return env
}

func (c *control) ImageFromId(_ context.Context, in *pb.ImageFromIdRequest) (*pb.ImageFromIdResponse, error) {
	now := c.s.svc.Now()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if i := c.s.images[in.GetImageId()]; i == nil || i.gone(now) {
		return nil, refuse(codes.NotFound, "Image %s not found", in.GetImageId())
	}
	return pb.ImageFromIdResponse_builder{ImageId: in.GetImageId(), Metadata: &pb.ImageMetadata{}}.Build(), nil
}

func (c *control) ImageDelete(ctx context.Context, in *pb.ImageDeleteRequest) (*emptypb.Empty, error) {
	s := c.s
	now := s.svc.Now()
	s.mu.Lock()
	i := s.images[in.GetImageId()]
	gone := i == nil || i.gone(now)
	s.mu.Unlock()
	if gone {
		return nil, refuse(codes.NotFound, "Image %s not found", in.GetImageId())
	}
	if ignored(ctx) {
		return &emptypb.Empty{}, nil
	}
	if i.snap != "" {
		if err := s.svc.DeleteSnapshot(ctx, i.snap); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.deleted = true
	return &emptypb.Empty{}, nil
}

func (c *control) ImagePublish(_ context.Context, in *pb.ImagePublishRequest) (*pb.ImagePublishResponse, error) {
	s := c.s
	now := s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.images[in.GetImageId()]
	if i == nil || i.gone(now) {
		return nil, refuse(codes.NotFound, "Image %s not found", in.GetImageId())
	}
	s.named[s.env(in.GetEnvironmentName())+"/"+in.GetTag()] = i
	return &pb.ImagePublishResponse{}, nil
}

func (c *control) ImageGetByTag(_ context.Context, in *pb.ImageGetByTagRequest) (*pb.ImageGetByTagResponse, error) {
	s := c.s
	now := s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.named[s.env(in.GetEnvironmentName())+"/"+in.GetTag()]
	if i == nil || i.gone(now) {
		return nil, refuse(codes.NotFound, "Image %q not found", in.GetTag())
	}
	return pb.ImageGetByTagResponse_builder{ImageId: i.id}.Build(), nil
}
