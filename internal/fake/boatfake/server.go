package boatfake

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/wire"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Options say who may ask and what there is. The zero Options are one account that takes any key.
type Options struct {
	Key            string   // of the account under test; empty: any that is not one of the next two
	ColleagueKey   string   // of another account, which is a member of the same Teams
	ForeignKey     string   // of a third account, which is a member of none
	Teams          []Team   // wallets beside everybody's personal one
	NamedSnapshots []string // what a create can be made from
	Environments   []string // beside "base"
	Domain         string   // of hosted ports; default "on.boat.dev"
	Quirks         Quirks   // see [Server.Change]

	// Prompt leaves out what only costs time where time is real: starts and archiving take 50 ms, deadlines are kept to
	// the second, lists do not lag.
	Prompt bool
}

// A Team is a wallet that several accounts share. Two may have one name.
type Team struct {
	ID   string `json:"id"` // "team_..."
	Name string `json:"name"`
}

// account is who asks.
type account struct {
	id, login string
	key       string // id of the key
	member    bool   // of the teams
}

func self() account      { return account{"user_1", "ann", "key_1", true} }
func colleague() account { return account{"user_2", "bob", "key_2", true} }
func foreigner() account { return account{"user_3", "eve", "key_3", false} }

// A Server is the service. All methods are safe for concurrent use. Make it with [New], inside the bubble where it is
// to live, and Close it there.
type Server struct {
	wire.Log
	wire.Faults // [Server.Operations] names what they can be of

	opts  Options
	svc   *fake.Service
	began time.Time // by the service's clock
	mux   *http.ServeMux
	base  context.Context // ends with Close
	stop  context.CancelFunc
	work  sync.WaitGroup // commands

	mu         sync.Mutex // guards the rest and all boxes; held for memory operations only, never while calling svc
	closed     bool
	quirks     Quirks
	boxes      map[string]*box // by the state machine's id
	entries    map[string]*entry
	starts     map[string][]time.Time // creates, forks and resumes of an account, refused ones included
	wallets    map[string]string      // the active one of an account
	operations map[string]*operation  // by their id
	named      map[string]string      // names of the state machine's snapshots
	planted    []string               // named snapshots without a source
	timers     []*time.Timer
	ports      map[int]http.Handler
}

// New returns a service without sandboxes.
func New(o Options) *Server {
	if o.Domain == "" {
		o.Domain = "on.boat.dev"
	}
	s := &Server{
		opts: o, svc: fake.New(sandbox.ExtendSet, habits(o.Prompt)), mux: http.NewServeMux(), quirks: o.Quirks,
		boxes: map[string]*box{}, entries: map[string]*entry{}, starts: map[string][]time.Time{},
		wallets: map[string]string{}, operations: map[string]*operation{}, named: map[string]string{},
		planted: slices.Clone(o.NamedSnapshots), ports: map[int]http.Handler{},
	}
	s.base, s.stop = context.WithCancel(context.Background())
	s.began = s.svc.Now()
	s.svc.Watch(s.changed)
	s.routes()
	s.Change(func(*Quirks) {})
	return s
}

// habits are those of the hosted service as far as they are known. How late a TTL acts is not.
func habits(prompt bool) fake.Behaviour {
	b := fake.Behaviour{
		NoHardEnd: true, AtExpiry: sandbox.StateDormant,
		StartTime: 2 * time.Second, EndTime: 5 * time.Second, Lateness: time.Second, ListMissesNew: time.Second,
		PendingTime: 10 * time.Second, ReviveAfter: 3 * time.Second, OrphanTime: 80 * time.Second,
		PageSize: 1 << 30, // pages are cut here, in the order that was asked for
	}
	if prompt {
		b.StartTime, b.EndTime, b.ListMissesNew = 50*time.Millisecond, 50*time.Millisecond, 0
	}
	return b
}

// Service returns the state machine behind the server: truth, knobs and faults. Its ids are not those on the wire: see
// [WireID] and [MachineID]. Its PageSize is best left alone in favour of [Quirks.PageSize].
func (s *Server) Service() *fake.Service { return s.svc }

// Quirks returns the present quirks.
func (s *Server) Quirks() Quirks {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.quirks
	q.Forbidden = slices.Clone(q.Forbidden)
	return q
}

// Change changes quirks.
func (s *Server) Change(f func(*Quirks)) {
	s.mu.Lock()
	was := s.quirks.SaveFails
	s.quirks.Forbidden = slices.Clone(s.quirks.Forbidden)
	f(&s.quirks)
	now := s.quirks.SaveFails
	s.mu.Unlock()
	if was != now || now { // the machine's own expiry would end what goes on
		s.svc.Behave(func(b *fake.Behaviour) { b.Unenforced = now })
	}
}

// Switch makes a wallet the active one of the account under test: a team's id, or "" for its own.
func (s *Server) Switch(team string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wallets[self().id] = team
}

// Rename gives a sandbox another name, as a colleague may.
func (s *Server) Rename(id, name string) {
	_, _ = s.svc.Retag(s.base, MachineID(id), map[string]string{nameTag: name}) // it is there, or has no name
}

// HandlePort has h answer what comes for a port of a running sandbox, in all sandboxes that host it.
func (s *Server) HandlePort(port int, h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports[port] = h
}

// Lookup returns the truth about one sandbox in the form of the wire, as its owner sees it; ok is false if there never was
// one. The state of one of which nothing is left is "deleted", a word that the service does not have.
func (s *Server) Lookup(id string) (_ Sandbox, ok bool) {
	s.Settle()
	rec, ok := s.svc.Lookup(MachineID(id))
	if !ok {
		return Sandbox{}, false
	}
	return s.owned(rec), true
}

// All returns the truth about every sandbox of every account that may run, or of which a row is kept, oldest first.
func (s *Server) All() []Sandbox {
	s.Settle()
	var all []Sandbox
	for _, rec := range s.svc.All() {
		all = append(all, s.owned(rec))
	}
	return all
}

// owned is a record as its owner sees it.
func (s *Server) owned(rec fake.Record) Sandbox {
	b := s.box(rec)
	return s.view(rec, b, b.order.owner)
}

// Close ends every command and returns when its goroutines have ended. Requests after it find no sandbox that takes
// commands; connections are the listener's affair.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, t := range s.timers {
		t.Stop()
	}
	s.mu.Unlock()
	s.stop()
	s.work.Wait()
}

// spawn runs f in a goroutine that Close waits for. After Close it does not, and says so.
func (s *Server) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

// Settle has everything happen that is due. Every request does so first; call it after the clock of the state machine was
// moved.
func (s *Server) Settle() {
	now := s.svc.Now()
	var over []string
	s.mu.Lock()
	for id, b := range s.boxes {
		if !b.cancelAt.IsZero() && b.state == sandbox.StateFailed && !now.Before(b.cancelAt) {
			over = append(over, id)
		}
	}
	s.mu.Unlock()
	for _, id := range over {
		s.svc.Kill(id)
	}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Settle()
	w.Header().Set("Date", s.svc.Now().Format(http.TimeFormat))
	if sub, ok := s.subdomain(r.Host); ok {
		s.visit(w, r, sub)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// who tells by a request's credentials who asks.
func (s *Server) who(r *http.Request) (account, bool) {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !ok || key == "" || s.Quirks().Denied:
		return account{}, false
	case key == s.opts.ColleagueKey:
		return colleague(), true
	case key == s.opts.ForeignKey:
		return foreigner(), true
	case s.opts.Key == "" || key == s.opts.Key:
		return self(), true
	}
	return account{}, false
}
