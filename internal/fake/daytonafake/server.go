package daytonafake

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/internal/fake/wire"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Options say who may ask and what there is. The zero Options are a service that takes any API key.
type Options struct {
	Key           string // the organization's API key; empty: any
	Token         string // a JWT, which needs the header X-Daytona-Organization-ID; empty: none is accepted
	ForeignKey    string // a good key of another organization, which sees nothing of this one and may create nothing
	Organization  string // its id; default "org-1"
	Region        string // default "us"
	ProxyURL      string // base of toolbox URLs; default: the address that was asked, with /toolbox
	PreviewDomain string // of preview hosts, with a port if there is one; default "preview.test"

	// Prompt leaves out what only costs time where time is real: starts and deletes take 50 ms, deadlines are kept to the
	// second, lists do not lag.
	Prompt bool

	// Preview answers for what listens on any port of any sandbox; nil: nothing does.
	Preview http.Handler

	// Exec runs programs that the sandboxes do not have; see [shell.Command].
	Exec func(ctx context.Context, c shell.Command) (exit int, known bool)
}

// Quirks are habits of this service that the state machine behind it does not know. Everything that takes a
// [fake.Behaviour] is there.
type Quirks struct {
	PageSize     int           // most rows of a page, whatever the limit asked for; 0: 200
	NoTTL        bool          // a server from before the TTL: ttlMinutes is ignored in silence, setTtl is no route
	Created      bool          // the routes that set a TTL or an interval answer 201, as the public server does
	VM           bool          // sandboxes are of a class that can be paused
	CreateWait   time.Duration // how long a create waits for the start. At first 30 s, or 0 with Options.Prompt
	BuildQueue   time.Duration // sandboxes built from an image are pending_build for so long
	Tick         time.Duration // how often the idle and stopped clocks are looked at; 0: 10 s
	DestroyFails bool          // deletes end in error, hidden, with the machine's fate unknown
	DaemonDead   bool          // the toolbox answers 502, while sandboxes are shown as started
	StreamLinger time.Duration // how long a followed log stays open and silent after its sandbox has gone
	FrameSize    int           // followed logs come in messages of so many bytes; 0: as they are written
	PlainRetry   bool          // 429 answers have a plain Retry-After too
	Denied       bool          // no credentials are accepted
	Down         bool          // the control plane answers 503
}

// A Server is the service. All methods are safe for concurrent use. Make it with [New], inside the bubble where it is
// to live, and Close it there.
type Server struct {
	wire.Log
	wire.Faults // by the operationIds of the official API description, such as "createSandbox"

	opts   Options
	svc    *fake.Service
	epoch  time.Time // when the ticks began, by the service's clock
	mux    *http.ServeMux
	base   context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup // commands and followed logs
	mu     sync.Mutex     // guards the rest; never held across a wait, I/O, or a call of svc
	quirks Quirks
	boxes  map[string]*box
	signed map[string]signature
	names  map[string]string // of snapshots
	timer  *time.Timer
	armed  time.Time // when the timer fires; zero: it has fired
	closed bool
	tokens int
}

// New returns a service without sandboxes.
func New(o Options) *Server {
	if o.Organization == "" {
		o.Organization = "org-1"
	}
	if o.Region == "" {
		o.Region = "us"
	}
	if o.PreviewDomain == "" {
		o.PreviewDomain = "preview.test"
	}
	s := &Server{
		opts: o, svc: fake.New(sandbox.ExtendSet, habits(o.Prompt)), mux: http.NewServeMux(),
		boxes: map[string]*box{}, signed: map[string]signature{},
		names: map[string]string{},
	}
	s.base, s.stop = context.WithCancel(context.Background())
	s.epoch = s.svc.Now()
	s.quirks.CreateWait = 30 * time.Second
	if o.Prompt {
		s.quirks.CreateWait, s.quirks.Tick = 0, time.Second
	}
	s.svc.Watch(s.changed)
	s.routes()
	return s
}

// habits are those of the hosted service as far as they are known. How late a TTL acts is not: the other clocks are
// looked at every 10 s.
func habits(prompt bool) fake.Behaviour {
	b := fake.Behaviour{
		UniqueNames: true, NoHardEnd: true, PausedLease: true, AtExpiry: sandbox.StateGone, BusyWhileStarting: true,
		StartTime: 2 * time.Second, EndTime: 2 * time.Second, DeleteTime: 2 * time.Second, Lateness: 10 * time.Second,
		ListMissesNew: time.Second, ListFlaps: 3 * time.Second,
		PendingTime: 10 * time.Second, ReviveAfter: 3 * time.Second, OrphanTime: 80 * time.Second,
		PageSize: 1 << 30, // pages are cut here, in the order that was asked for
	}
	if prompt {
		const soon = 50 * time.Millisecond
		b.StartTime, b.EndTime, b.DeleteTime, b.Lateness, b.ListMissesNew, b.ListFlaps = soon, soon, soon, time.Second, 0, 0
	}
	return b
}

// Service returns the state machine behind the server: truth, knobs and faults. Its ids are not those on the wire: see
// [WireID] and [MachineID]. Its PageSize is best left alone in
// favour of [Quirks.PageSize]. After its Advance call [Server.Settle].
func (s *Server) Service() *fake.Service { return s.svc }

// Quirk changes the quirks.
func (s *Server) Quirk(change func(*Quirks)) {
	s.mu.Lock()
	change(&s.quirks)
	s.mu.Unlock()
	s.Settle()
}

func (s *Server) quirk() Quirks {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.quirks
	if q.Tick <= 0 {
		q.Tick = 10 * time.Second
	}
	if q.PageSize <= 0 {
		q.PageSize = maxPage
	}
	return q
}

// Lookup returns the truth about one sandbox as the wire would put it; ok is false if there never was one. A gone one
// is in state destroyed. EnvVars are those of the create.
func (s *Server) Lookup(id string) (_ Sandbox, ok bool) {
	s.Settle()
	rec, ok := s.svc.Lookup(MachineID(id))
	if !ok {
		return Sandbox{}, false
	}
	return s.dto(rec, boxOf(rec), nil), true
}

// Close ends every command and every followed log, and returns when their goroutines have ended. Requests after it find
// no sandbox that takes commands; connections are the listener's affair.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
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

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Settle()
	w.Header().Set("Date", s.svc.Now().UTC().Format(http.TimeFormat))
	if port, id, ok := s.previewHost(r.Host); ok {
		s.preview(w, r, port, id)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// caller is who asks.
type caller int

const (
	nobody caller = iota
	member
	foreigner
)

// who tells by a control-plane request's credentials.
func (s *Server) who(r *http.Request) caller {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !ok || token == "" || s.quirk().Denied:
		return nobody
	case s.opts.ForeignKey != "" && token == s.opts.ForeignKey:
		return foreigner
	case s.opts.Token != "" && token == s.opts.Token:
		if r.Header.Get("X-Daytona-Organization-ID") == s.opts.Organization {
			return member
		}
		return foreigner
	case s.opts.Key == "" || token == s.opts.Key:
		return member
	}
	return nobody
}

// known returns the sandbox with an id, or with a name, that requests can see.
func (s *Server) known(idOrName string) (fake.Record, *box, error) {
	if !s.svc.Behaviour().WrongScope {
		if rec, ok := s.svc.Lookup(MachineID(idOrName)); ok && visible(rec) {
			return rec, boxOf(rec), nil
		}
		for _, rec := range s.svc.All() {
			if visible(rec) && boxOf(rec).shown(rec) == idOrName {
				return rec, boxOf(rec), nil
			}
		}
	}
	return fake.Record{}, nil, unknown(idOrName)
}

func visible(rec fake.Record) bool {
	return rec.State != sandbox.StateGone && !rec.Lost && !boxOf(rec).isHidden()
}

func boxOf(rec fake.Record) *box {
	b, _ := rec.Data.(*box)
	return b
}

// errDropped stands for an answer that is not to be sent.
var errDropped = errors.New("connection dropped")
