package modalfake

import (
	"cmp"
	"context"
	"maps"
	"slices"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"
)

// app is what sandboxes belong to.
type app struct {
	id, name, env string
	stopped       bool
}

// builderVersion is the image builder's, as environments tell.
const builderVersion = "2025.06"

func (s *Server) env(name string) string { return cmp.Or(name, s.opts.Environment) }

// appNamed returns the app of a name that is not stopped, or nil. The lock is held.
func (s *Server) appNamed(env, name string) *app {
	i := slices.IndexFunc(s.apps, func(a *app) bool { return a.env == s.env(env) && a.name == name && !a.stopped })
	if i < 0 {
		return nil
	}
	return s.apps[i]
}

// appByID returns an app, or nil. The lock is held.
func (s *Server) appByID(id string) *app {
	i := slices.IndexFunc(s.apps, func(a *app) bool { return a.id == id })
	if i < 0 {
		return nil
	}
	return s.apps[i]
}

// creates reports whether a call makes what is not there.
func creates(t pb.ObjectCreationType) bool {
	return t == pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING ||
		t == pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS ||
		t == pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_OVERWRITE_IF_EXISTS
}

func (c *control) AppGetOrCreate(_ context.Context, in *pb.AppGetOrCreateRequest) (*pb.AppGetOrCreateResponse, error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.appNamed(in.GetEnvironmentName(), in.GetAppName())
	switch {
	case in.GetAppName() == "":
		return nil, invalid("app name is required")
	case a != nil && in.GetObjectCreationType() == pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS:
		return nil, refuse(codes.AlreadyExists, "App %q already exists", in.GetAppName())
	case a == nil && !creates(in.GetObjectCreationType()):
		return nil, refuse(codes.NotFound, "App %q not found in environment %q", in.GetAppName(), s.env(in.GetEnvironmentName()))
	case a == nil:
		a = &app{id: newV1ID("ap-"), name: in.GetAppName(), env: s.env(in.GetEnvironmentName())}
		s.apps = append(s.apps, a)
	}
	return pb.AppGetOrCreateResponse_builder{
		AppId: a.id, HandleMetadata: pb.AppHandleMetadata_builder{AppId: a.id, Description: a.name, EnvironmentName: a.env}.Build(),
	}.Build(), nil
}

// AppStop stops an app with all of its sandboxes.
func (c *control) AppStop(ctx context.Context, in *pb.AppStopRequest) (*emptypb.Empty, error) {
	s := c.s
	s.mu.Lock()
	a := s.appByID(in.GetAppId())
	var inside []*box
	for _, b := range s.boxes {
		if b.app == a && a != nil && b.result == nil {
			inside = append(inside, b)
		}
	}
	if a != nil && !ignored(ctx) {
		a.stopped = true
	}
	s.mu.Unlock()
	if a == nil {
		return nil, refuse(codes.NotFound, "App %s not found", in.GetAppId())
	}
	for _, b := range inside {
		if _, err := s.terminate(ctx, b); err != nil {
			return nil, err
		}
	}
	return &emptypb.Empty{}, nil
}

func (c *control) EnvironmentGetOrCreate(
	_ context.Context, in *pb.EnvironmentGetOrCreateRequest,
) (*pb.EnvironmentGetOrCreateResponse, error) {
	name := c.s.env(in.GetDeploymentName())
	return pb.EnvironmentGetOrCreateResponse_builder{
		EnvironmentId: "en-" + name,
		Metadata: pb.EnvironmentMetadata_builder{
			Name: name, Settings: pb.EnvironmentSettings_builder{ImageBuilderVersion: builderVersion}.Build(),
		}.Build(),
	}.Build(), nil
}

// secret is a set of environment variables.
type secret struct {
	id, name string // name empty: ephemeral
	env      map[string]string
}

func (c *control) SecretGetOrCreate(_ context.Context, in *pb.SecretGetOrCreateRequest) (*pb.SecretGetOrCreateResponse, error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *secret
	for _, sec := range s.secrets {
		if sec.name != "" && sec.name == in.GetDeploymentName() {
			found = sec
		}
	}
	kind := in.GetObjectCreationType()
	switch {
	case kind == pb.ObjectCreationType_OBJECT_CREATION_TYPE_EPHEMERAL || creates(kind) && found == nil:
		found = &secret{id: newV1ID("st-"), name: in.GetDeploymentName(), env: maps.Clone(in.GetEnvDict())}
		s.secrets[found.id] = found
	case found == nil:
		return nil, refuse(codes.NotFound, "Secret %q not found", in.GetDeploymentName())
	case kind == pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS:
		return nil, refuse(codes.AlreadyExists, "Secret %q already exists", in.GetDeploymentName())
	case kind == pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_OVERWRITE_IF_EXISTS:
		found.env = maps.Clone(in.GetEnvDict())
	}
	for _, key := range in.GetRequiredKeys() {
		if _, ok := found.env[key]; !ok {
			return nil, refuse(codes.FailedPrecondition, "Secret is missing key(s): %s", key)
		}
	}
	return pb.SecretGetOrCreateResponse_builder{SecretId: found.id}.Build(), nil
}

func (c *control) SecretDelete(_ context.Context, in *pb.SecretDeleteRequest) (*emptypb.Empty, error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secrets[in.GetSecretId()] == nil {
		return nil, refuse(codes.NotFound, "Secret %s not found", in.GetSecretId())
	}
	delete(s.secrets, in.GetSecretId())
	return &emptypb.Empty{}, nil
}

// Secrets returns how many secrets without a name there are: those that calls of the older backend leave behind.
func (s *Server) Secrets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, sec := range s.secrets {
		if sec.name == "" {
			n++
		}
	}
	return n
}

// environ puts variables together; later ones win. The lock is held.
func (s *Server) environ(ids []string, plain map[string]string, sources []*pb.SecretSource) (map[string]string, error) {
	env := map[string]string{}
	add := func(id string) error {
		sec := s.secrets[id]
		if sec == nil {
			return refuse(codes.NotFound, "Secret %s not found", id)
		}
		maps.Copy(env, sec.env)
		return nil
	}
	for _, id := range ids {
		if err := add(id); err != nil {
			return nil, err
		}
	}
	maps.Copy(env, plain)
	for _, src := range sources {
		if src.HasSecretId() {
			if err := add(src.GetSecretId()); err != nil {
				return nil, err
			}
		}
		maps.Copy(env, src.GetEnv().GetContents())
	}
	return env, nil
}
