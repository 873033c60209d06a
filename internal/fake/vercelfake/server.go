package vercelfake

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/wire"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// serverLimit is how long the service itself works on one request, whether or not its client still waits.
const serverLimit = 5 * time.Minute

// Options is what a Server is made of. The zero Options are a team on the Pro plan with one project.
type Options struct {
	Token     string         // accepted as bearer; default [DefaultToken]. What [Server.MintToken] makes is accepted too
	Team      Scope          // default [DefaultTeam]
	Projects  []Scope        // default [DefaultProject]
	Domain    string         // of ports; default "vercel.run"
	Quirks    Quirks         // see [Server.Change]
	Behaviour fake.Behaviour // habits; PlanLifetime defaults to 24 h, negative: no limit. For PageSize see Quirks
}

// A Scope is a team or a project, by id or by slug.
type Scope struct{ ID, Slug string }

func (s Scope) is(ref string) bool { return ref != "" && (ref == s.ID || ref == s.Slug) }

// DefaultToken is the token of zero Options.
const DefaultToken = "vercel_0123456789abcdefghij"

// DefaultTeam returns the team of zero Options.
func DefaultTeam() Scope { return Scope{"team_test", "test-team"} }

// DefaultProject returns the project of zero Options.
func DefaultProject() Scope { return Scope{"prj_test", "test"} }

// A Server is one team on the service. All methods are safe for concurrent use. Make it with [New], inside the bubble
// where it is to live, and Close it there.
type Server struct {
	wire.Log
	wire.Faults // [Server.Operations] names what they can be of

	svc  *fake.Service
	opts Options
	mux  *http.ServeMux
	base context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup // requests being carried out, and commands

	mu        sync.Mutex // guards the rest and all boxes; held for memory operations only, never while calling svc
	closed    bool
	token     string // "": none is accepted
	quirks    Quirks
	names     map[string]*box // the latest with a name, by project and name
	sessions  map[string]*session
	boxes     []*box
	snapshots []*snapshot // in the order of their making, deleted ones included
	ports     map[int]http.Handler
}

// New returns a service without sandboxes.
func New(o Options) *Server {
	if o.Token == "" {
		o.Token = DefaultToken
	}
	if o.Team == (Scope{}) {
		o.Team = DefaultTeam()
	}
	if len(o.Projects) == 0 {
		o.Projects = []Scope{DefaultProject()}
	}
	if o.Domain == "" {
		o.Domain = "vercel.run"
	}
	b := o.Behaviour
	b.UniqueNames, b.NoHardEnd, b.LeaseFromRun, b.AtExpiry = true, true, true, sandbox.StateDormant
	b.MinWindow, b.MaxWindow, b.PageSize = 0, 0, 1<<30 // limits and pages are this server's
	if b.PlanLifetime == 0 {
		b.PlanLifetime = 24 * time.Hour
	}
	s := &Server{
		svc: fake.New(sandbox.ExtendAdd, b), opts: o, mux: http.NewServeMux(), token: o.Token, quirks: o.Quirks,
		names: map[string]*box{}, sessions: map[string]*session{}, ports: map[int]http.Handler{},
	}
	s.base, s.stop = context.WithCancel(context.Background())
	s.svc.Watch(func(c fake.Change) { s.learn(c.Record, c.At) })
	s.routes()
	return s
}

// Close ends all commands, gives up all requests and returns when their goroutines have ended. Requests after it are
// not answered.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
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

// SetToken changes the token that is accepted. "" accepts none, not even what [Server.MintToken] made.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// HandlePort has h answer what comes for a port of a running sandbox, in all sandboxes.
func (s *Server) HandlePort(port int, h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports[port] = h
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Settle()
	w.Header().Set("Date", s.svc.Now().Format(http.TimeFormat))
	if sub, ok := s.subdomain(r.Host); ok {
		s.preview(w, r, sub)
		return
	}
	if p, ok := strings.CutPrefix(r.URL.Path, "/api/"); ok {
		u := *r.URL
		u.Path, u.RawPath = "/"+p, strings.TrimPrefix(u.RawPath, "/api")
		r2 := *r
		r2.URL = &u
		r = &r2
	}
	s.mux.ServeHTTP(w, r)
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

// newID returns a random id as the service's are: prefix and 28 letters and digits.
func newID(prefix string) string { return prefix + (rand.Text() + rand.Text())[:28] }

func ms(t time.Time) int64 { return t.UnixMilli() }
