package modalfake

import (
	"context"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	defaultTimeout = 300 * time.Second
	maxTimeout     = 24 * time.Hour
	maxName        = 64
)

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	envForm    = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	domainForm = regexp.MustCompile(`^(\*\.)?([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z0-9-]+$`)
	regionForm = regexp.MustCompile(`^[a-z]+(-[a-z]+)*(-[0-9]+)?$`)
)

// creation is what either family of calls asks for.
type creation struct {
	app     string
	def     *pb.Sandbox
	tags    []*pb.SandboxTag
	sources []*pb.SecretSource
	v1      bool
	message proto.Message
}

func (c *control) SandboxCreateV2(ctx context.Context, in *pb.SandboxCreateV2Request) (*pb.SandboxCreateV2Response, error) {
	s := c.s
	sources := slices.Clone(in.GetSecretSources())
	if in.HasEphemeralSecrets() {
		sources = append(sources, pb.SecretSource_builder{Env: in.GetEphemeralSecrets()}.Build())
	}
	b, err := s.create(ctx, creation{
		app: in.GetAppId(), def: in.GetDefinition(), tags: in.GetTags(), sources: sources, message: in,
	})
	if err != nil {
		return nil, err
	}
	if err := s.placed(ctx, b); err != nil {
		return nil, err
	}
	q := s.Quirks()
	out := pb.SandboxCreateV2Response_builder{
		SandboxId: b.id, TaskId: b.task, Metadata: pb.SandboxHandleMetadata_builder{AppId: b.app.id}.Build(),
	}
	if !q.NoRouterAccess {
		jwt, url := s.access(ctx, b.task)
		out.CommandRouterAccess = pb.CommandRouterAccess_builder{Jwt: jwt, Url: url}.Build()
	}
	if !q.NoTunnels && q.TunnelTime <= 0 {
		for _, t := range b.tunnels {
			if !t.HasUnencryptedHost() {
				out.Tunnels = append(out.Tunnels, t)
			}
		}
	}
	return out.Build(), nil
}

// SandboxCreate answers before the start.
func (c *control) SandboxCreate(ctx context.Context, in *pb.SandboxCreateRequest) (*pb.SandboxCreateResponse, error) {
	b, err := c.s.create(ctx, creation{app: in.GetAppId(), def: in.GetDefinition(), tags: in.GetTags(), v1: true, message: in})
	if err != nil {
		return nil, err
	}
	return pb.SandboxCreateResponse_builder{
		SandboxId: b.id, Metadata: pb.SandboxHandleMetadata_builder{AppId: b.app.id}.Build(),
	}.Build(), nil
}

func (s *Server) create(ctx context.Context, in creation) (*box, error) {
	q := s.Quirks()
	if err := check(in.def, in.tags, q); err != nil {
		return nil, err
	}
	b, err := s.order(in, q)
	if err != nil {
		return nil, err
	}
	o := fake.Order{
		Image: b.image.from, Tags: tagsOf(in.tags), Window: b.idle, Hard: b.life, Data: b, Body: bodyOf(in.message),
	}
	if q.TimeoutFromStart {
		o.Hard += s.svc.Behaviour().StartTime
	}
	if b.name != "" {
		o.Name = b.app.id + "/" + b.name
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		if keys := md.Get("x-idempotency-key"); len(keys) > 0 {
			o.Key = keys[0]
		}
	}
	b.hard = o.Hard
	rec, err := s.svc.Create(ctx, o)
	if err != nil {
		err = problemOf(err)
		if b.name != "" && codeOf(err) == codes.AlreadyExists {
			return nil, refuse(codes.AlreadyExists, "Sandbox with name %q already exists", b.name)
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if made, ok := rec.Data.(*box); ok && rec.ID != "" {
		return s.of(fake.Record{ID: rec.ID, Data: made, Created: rec.Created}), nil // which has learnt of it
	}
	nobody := &box{app: b.app, task: b.task} // an answer without an id, or one to a create that had no effect
	if rec.ID != "" {
		nobody.id = b.id
	}
	return nobody, nil
}

// bodyOf is a message as text that is equal for equal messages.
func bodyOf(m proto.Message) string {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return ""
	}
	return string(text)
}

// order makes the box of what is asked for.
func (s *Server) order(in creation, q Quirks) (*box, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &box{
		app: s.appByID(in.app), v1: in.v1, name: in.def.GetName(), def: in.def, image: s.images[in.def.GetImageId()],
		life: time.Duration(in.def.GetTimeoutSecs()) * time.Second, idle: time.Duration(in.def.GetIdleTimeoutSecs()) * time.Second,
		execs: map[string]*process{}, id: newID("sb-"), task: newID("ta-"),
	}
	if b.v1 {
		b.id, b.task = newV1ID("sb-"), newV1ID("ta-")
	}
	if b.life == 0 {
		b.life = defaultTimeout
	}
	switch {
	case b.app == nil:
		return nil, refuse(codes.NotFound, "App %s not found", in.app)
	case b.app.stopped:
		return nil, refuse(codes.FailedPrecondition, "App %s is stopped", in.app)
	case b.image == nil || b.image.deleted:
		return nil, refuse(codes.NotFound, "Image %s not found", in.def.GetImageId())
	case b.life > maxTimeout && !q.ClampTimeout:
		return nil, invalid("timeout must be at most 24 hours")
	}
	b.life = min(b.life, maxTimeout)
	for _, v := range in.def.GetVolumeMounts() {
		if s.volumes[v.GetVolumeId()] == nil {
			return nil, refuse(codes.NotFound, "Volume %s not found", v.GetVolumeId())
		}
	}
	env, err := s.environ(in.def.GetSecretIds(), in.def.GetEnvironmentVariables().GetContents(), in.sources)
	if err != nil {
		return nil, err
	}
	for k := range env {
		if !envForm.MatchString(k) {
			return nil, invalid("Invalid environment variable name: %s", k)
		}
	}
	b.env = maps.Clone(b.image.env)
	if b.env == nil {
		b.env = map[string]string{}
	}
	maps.Copy(b.env, env)
	if in.def.GetIncludeOidcIdentityToken() {
		b.env["MODAL_IDENTITY_TOKEN"] = s.tokens.token(claims{Use: "identity", Task: b.task})
	}
	return b, nil
}

// clouds are those that a sandbox can be asked to run in.
var clouds = []string{"", "aws", "gcp", "oci", "auto"}

// check returns what is wrong with a definition.
func check(def *pb.Sandbox, tags []*pb.SandboxTag, q Quirks) error {
	name := def.GetName()
	idle := time.Duration(def.GetIdleTimeoutSecs()) * time.Second
	switch {
	case def == nil:
		return invalid("definition is required")
	case name != "" && (len(name) > maxName || !nameForm.MatchString(name)):
		return invalid("Invalid sandbox name: %q", name)
	case def.HasWorkdir() && !strings.HasPrefix(def.GetWorkdir(), "/"):
		return invalid("workdir must be an absolute path")
	case !slices.Contains(clouds, strings.ToLower(def.GetCloudProviderStr())):
		return invalid("Invalid cloud provider: %s", def.GetCloudProviderStr())
	case idle > 0 && idle < q.MinIdle, q.MaxIdle > 0 && idle > q.MaxIdle:
		return invalid("idle timeout %v is out of range", idle)
	}
	for _, r := range def.GetSchedulerPlacement().GetRegions() {
		if !regionForm.MatchString(r) || strings.HasPrefix(r, "invalid") {
			return invalid("Invalid region: %s", r)
		}
	}
	if n := def.GetNetworkAccess(); n != nil {
		for _, c := range n.GetAllowedCidrs() {
			if _, err := netip.ParsePrefix(c); err != nil {
				return invalid("Invalid CIDR (outbound IPv4): %s", c)
			}
		}
		for _, d := range n.GetAllowedDomains() {
			if !domainForm.MatchString(d) {
				return invalid("Invalid domain: %s", d)
			}
		}
	}
	return checkTags(tags, q)
}

func checkTags(tags []*pb.SandboxTag, q Quirks) error {
	if q.MaxTags > 0 && len(tags) > q.MaxTags {
		return invalid("at most %d tags are allowed", q.MaxTags)
	}
	for _, t := range tags {
		switch {
		case t.GetTagName() == "":
			return invalid("tag name must not be empty")
		case q.MaxTagKey > 0 && len(t.GetTagName()) > q.MaxTagKey:
			return invalid("tag name %q is too long", t.GetTagName())
		case q.MaxTagValue > 0 && len(t.GetTagValue()) > q.MaxTagValue:
			return invalid("value of tag %q is too long", t.GetTagName())
		}
	}
	return nil
}

func tagsOf(list []*pb.SandboxTag) map[string]string {
	tags := map[string]string{}
	for _, t := range list {
		tags[t.GetTagName()] = t.GetTagValue()
	}
	return tags
}

func tagList(tags map[string]string) []*pb.SandboxTag {
	var list []*pb.SandboxTag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, pb.SandboxTag_builder{TagName: k, TagValue: tags[k]}.Build())
	}
	return list
}

// placed returns when a sandbox of the newer backend has started or ended, or gives it up.
func (s *Server) placed(ctx context.Context, b *box) error {
	wait := s.Quirks().PlacementWait
	if wait <= 0 {
		wait = time.Minute
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	s.mu.Lock()
	unmade := b.svc == ""
	s.mu.Unlock()
	if unmade {
		return nil
	}
	err := s.await(waiting, b, func() bool { return !b.started.IsZero() || b.result != nil })
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx) // the sandbox stays: nobody cleans up
	case err != nil && s.base.Err() == nil:
		s.finish(b, outcome(badInit, 1, "not placed"))
		return refuse(codes.ResourceExhausted, "Insufficient capacity to create sandbox.")
	}
	return err
}

// finish ends b with a result, unless it has one or is about to.
func (s *Server) finish(b *box, result *pb.GenericResult) {
	s.mu.Lock()
	if b.cause == nil {
		b.cause = result
	}
	s.mu.Unlock()
	s.svc.Kill(b.svc)
}

// End has the platform end a sandbox, by its id or name, with a status such as MEMORY_MANAGER_EVICTION. It reports
// whether there was one that had not ended.
func (s *Server) End(ref string, status pb.GenericResult_GenericStatus, exit int32) bool {
	t, ok := s.Lookup(ref)
	if !ok || t.Result != nil || t.Record.State == sandbox.StateGone {
		return false
	}
	s.mu.Lock()
	b := s.ids[t.ID]
	s.mu.Unlock()
	s.finish(b, outcome(status, exit, ""))
	return true
}
