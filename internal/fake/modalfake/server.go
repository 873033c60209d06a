package modalfake

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/wire"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// maxMessage is the largest message in either direction, as the SDKs have it.
const maxMessage = 100 << 20

// Options is what a Server is made of. The zero Options are a workspace with one environment.
type Options struct {
	TokenID, TokenSecret string                       // accepted; default [DefaultTokenID] and [DefaultTokenSecret]
	Environment          string                       // the default one; default "main". Others come to be as they are named
	Secrets              map[string]map[string]string // by name, in every environment
	Router               string                       // URL of the command router; default: https and the address that was called
	Proxies              []string                     // by name, in every environment
	Domain               string                       // of tunnels; default "w.modal.host"
	Quirks               Quirks                       // see [Server.Change]
	Behaviour            fake.Behaviour               // habits; for PageSize and limits of timeouts see Quirks
}

// Credentials of zero Options.
const (
	DefaultTokenID     = "ak-0123456789abcdefghij"
	DefaultTokenSecret = "as-0123456789abcdefghij"
)

// A Server is one workspace on the service. All methods are safe for concurrent use. Make it with [New], inside the
// bubble where it is to live, and Close it there.
type Server struct {
	svc    *fake.Service
	opts   Options
	base   context.Context // ends with Close
	stop   context.CancelFunc
	work   sync.WaitGroup // goroutines of sandboxes and commands
	tokens *mint

	faults wire.Queue[Fault]

	mu       sync.Mutex // guards the rest and all boxes; held for memory operations only, never while calling svc
	closed   bool
	denied   bool
	quirks   Quirks
	apps     []*app
	images   map[string]*image
	named    map[string]*image // by environment and name
	secrets  map[string]*secret
	volumes  map[string]*volume
	ids      map[string]*box // by sandbox id
	tasks    map[string]*box // by task id
	boxes    []*box          // in the order of their making
	hosts    map[string]tunnel
	ports    map[int]http.Handler
	programs []Program
	log      []*Request
	servers  []*grpc.Server
}

// New returns a service without sandboxes.
func New(o Options) *Server {
	o.TokenID, o.TokenSecret = cmp.Or(o.TokenID, DefaultTokenID), cmp.Or(o.TokenSecret, DefaultTokenSecret)
	o.Environment, o.Domain = cmp.Or(o.Environment, "main"), cmp.Or(o.Domain, "w.modal.host")
	b := o.Behaviour
	b.UniqueNames, b.LeaseFromRun, b.AtExpiry, b.ListShowsGone = true, true, sandbox.StateGone, true
	b.MinWindow, b.MaxWindow, b.PageSize = 0, 0, 1<<30 // limits and pages are this server's
	s := &Server{
		svc: fake.New(sandbox.ExtendActivity, b), opts: o, quirks: o.Quirks, tokens: newMint(),
		images: map[string]*image{}, named: map[string]*image{}, secrets: map[string]*secret{}, volumes: map[string]*volume{},
		ids: map[string]*box{}, tasks: map[string]*box{}, hosts: map[string]tunnel{}, ports: map[int]http.Handler{},
	}
	for name, env := range o.Secrets {
		sec := &secret{id: newID("st-"), name: name, env: env}
		s.secrets[sec.id] = sec
	}
	s.base, s.stop = context.WithCancel(context.Background())
	s.svc.Watch(func(c fake.Change) { s.learn(c.Record, c.At) })
	return s
}

// Register has r answer for both services. Make a server for that with [Server.ServerOptions].
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(s.wrap(pb.ModalClient_ServiceDesc, false), &control{s: s})
	r.RegisterService(s.wrap(pb.TaskCommandRouter_ServiceDesc, true), &router{s: s})
}

// ServerOptions are what a server needs for clients that ping a quiet connection every 30 s and send large messages.
func (s *Server) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}

// Serve answers on l, which it closes, until the server is closed; then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	g := grpc.NewServer(s.ServerOptions()...)
	s.Register(g)
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.servers = append(s.servers, g)
	}
	s.mu.Unlock()
	if closed {
		l.Close()
		return nil
	}
	if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Close ends all commands, breaks all connections and returns when the goroutines of both have ended.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	servers := s.servers
	s.servers = nil
	s.mu.Unlock()
	s.stop()
	for _, g := range servers {
		g.Stop()
	}
	s.work.Wait()
}

// begin has f run in a goroutine that Close waits for, unless the server is closed.
func (s *Server) begin(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

// Service returns the state machine behind the wire: truth, habits, faults, what others do. Its ids are not those of
// the wire, see [Truth].
func (s *Server) Service() *fake.Service { return s.svc }

// Quirks returns the present quirks.
func (s *Server) Quirks() Quirks {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quirks
}

// Change changes quirks.
func (s *Server) Change(f func(*Quirks)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.quirks)
}

// Deny has the control plane accept no credentials, or those of Options again. Tokens of the command router go on.
func (s *Server) Deny(denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = denied
}

// pass waits, unless ctx ends before.
func pass(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// seconds is a time on the wire.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}
