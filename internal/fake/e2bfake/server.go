// Package e2bfake is an E2B in memory: one team's control plane and the envd of its sandboxes, as the official SDK sees
// them, over the shared state machine of package fake and the shell of package shell.
//
// A [Server] is an [http.Handler], to be served on any listener: with net/http on the loopback interface for the
// official SDKs, or on a network in memory within a bubble of testing/synctest. One port serves both planes. What goes to
// the host "<port>-<sandbox>.<domain>", or has the header E2b-Sandbox-Id, is for a sandbox; the rest is for the control
// plane.
//
// # What decides
//
// The state machine behind it, [Server.Service], has the truth, the knobs of the life cycle and the faults of operations:
// a create is one of sandbox.OpCreate, a look of OpGet, a page of a list of OpList, a timeout or refresh of OpExtend, a
// kill of OpDelete, a command of OpExec, a file of OpUpload or OpDownload, a call about snapshots of OpSnapshot. An error
// there that is a [*sandbox.APIError] with a status is answered with it; any other is an answer that is lost, and the
// connection breaks. The service carries out what it was asked for though the client has gone, for at most 70 s. What
// is E2B's own is in [Quirks].
//
// # What it does not do
//
// It has no templates to build, no volumes, no metrics worth reading, no watching of folders and no terminals: these
// are refused as unknown or unimplemented. CPU, memory and network are numbers and names only. A paused sandbox keeps its
// files and loses its processes, as one that was paused without its memory; a fork begins without files.
//
// A signal or a timeout ends a command as others see it, without its traps, and what it ran goes on until that ends by
// itself, is killed ([Server.KillProcesses]) or its sandbox ends. That is so for all that it ran, later lines of a script too,
// where a real machine would go on with the children that there are. A process that exits with 128+n, n being a
// usual signal, is said to have been killed by it: the shell does not tell the two apart.
package e2bfake

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// serverLimit is how long the service itself works on one request, whether or not its client still waits.
const serverLimit = 70 * time.Second

// Options is what a Server is made of. The zero Options are a team on the Pro plan whose templates are "base" and
// "code-interpreter-v1".
type Options struct {
	Key       string         // accepted as X-API-Key; default [DefaultKey]
	Templates []Template     // default: [DefaultTemplates]
	Domain    string         // what answers name as the sandboxes' domain; default: none, as on the hosted service
	Behaviour fake.Behaviour // habits; PlanLifetime defaults to 24 h, ResumeWindow to 5 min. PageSize is not used: see Quirks
	Quirks    Quirks
}

// DefaultKey is the API key that is accepted unless Options say otherwise.
const DefaultKey = "e2b_0123456789abcdef0123456789abcdef01234567"

// A Template is what sandboxes are made of.
type Template struct {
	ID, Alias string
	CPU       int // cores
	MemoryMB  int
	DiskMB    int
}

// DefaultTemplates returns the templates of zero Options.
func DefaultTemplates() []Template {
	return []Template{
		{ID: "rki5dems9wqfm4r03t7g", Alias: "base", CPU: 2, MemoryMB: 512, DiskMB: 1024},
		{ID: "nlhz8vlwyupq845jsdg9", Alias: "code-interpreter-v1", CPU: 2, MemoryMB: 1024, DiskMB: 2048},
	}
}

// Quirks are habits of this service beyond those that package fake knows. The zero Quirks are the service as
// it is known to be, with everything that takes time taking none.
type Quirks struct {
	NoV2, NoV1         bool          // POST /v2/sandboxes or POST /sandboxes, and the connect beside it, is not served
	AbortsWithClient   bool          // a request whose client has gone is given up; else it is carried out
	PauseTime          time.Duration // how long a pause takes
	KillTime           time.Duration // how long a delete takes, during which the sandbox is not seen and conflicts with all else
	SnapshotTime       time.Duration // how long a snapshot takes
	ResumeTime         time.Duration // how long a connect to a paused sandbox takes
	Tombstones         bool          // a delete of a paused sandbox stops a resume under way; else that goes through, and it runs
	PageSize           int           // most rows on a page of a list, whatever limit was asked for; 0: as asked
	EventLag           time.Duration // how long after it happened the events API shows an event
	CamelEvents        bool          // events have the field names of 2025
	Blocked            bool          // the team may look, list and delete, and nothing else
	DeadStreamsHang    bool          // the stream of a command whose sandbox has died goes silent; else it breaks off
	NoKeepalive        bool          // streams are silent while a command is
	KillsChildren      bool          // a signal or timeout ends a command and all that it ran; else only itself, and the rest goes on
	NakedErrors        bool          // failures have no body
	HTML               bool          // every answer is a web page with status 200, as behind a wrong base URL
	RefuseUncompressed bool          // a download without Accept-Encoding: gzip is 406
}

// Server is one team on the service. All methods are safe for concurrent use.
type Server struct {
	svc  *fake.Service
	opts Options
	salt uint64 // of sandbox ids
	mux  *http.ServeMux
	envd *http.ServeMux
	ctx  context.Context // ends with Close
	stop context.CancelFunc

	tasks sync.WaitGroup // goroutines of commands

	mu     sync.Mutex // held for memory operations only, never while calling svc
	closed bool
	key    string // "": none is accepted
	quirks Quirks
	ports  map[int]http.Handler
	lives  map[string]*life
	busy   map[string]*transition
	kills  map[string]*kills
	names  map[string]string // given to snapshots
	events []event
	log    []*Request
	reqs   int
}

// New returns a server without sandboxes. Within a bubble of testing/synctest it must be made inside.
func New(o Options) *Server {
	if o.Key == "" {
		o.Key = DefaultKey
	}
	if o.Templates == nil {
		o.Templates = DefaultTemplates()
	}
	b := o.Behaviour
	b.LeaseFromRun, b.NoHardEnd = true, true
	if b.PlanLifetime == 0 {
		b.PlanLifetime = 24 * time.Hour
	}
	if b.ResumeWindow == 0 {
		b.ResumeWindow = 5 * time.Minute
	}
	b.PageSize = 1 << 30 // this server makes its own pages
	s := &Server{
		svc: fake.New(sandbox.ExtendSet, b), opts: o, key: o.Key, quirks: o.Quirks,
		ports: map[int]http.Handler{}, lives: map[string]*life{}, busy: map[string]*transition{},
		kills: map[string]*kills{}, names: map[string]string{},
	}
	var salt [8]byte
	rand.Read(salt[:])
	s.salt = binary.LittleEndian.Uint64(salt[:])
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.mux, s.envd = s.controlPlane(), s.dataPlane()
	s.svc.Watch(s.watch)
	return s
}

// Close ends all commands, gives up all requests and returns when the goroutines of the commands have ended. The
// server answers no more.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.lives {
		l.disarm()
	}
	s.mu.Unlock()
	s.stop()
	s.tasks.Wait()
}

// goes runs f in a goroutine that Close waits for. After Close it does not, and says so.
func (s *Server) goes(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.tasks.Go(f)
	return true
}

// Service returns the state behind the wire: habits, faults, what others do. Its ids are not those of the wire, see
// [Server.ServiceID].
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

// SetKey changes the key that is accepted. "" accepts none.
func (s *Server) SetKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
}

// HandlePort has h answer what comes for a port of a running sandbox, in all sandboxes.
func (s *Server) HandlePort(port int, h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports[port] = h
}

// Sandboxes returns the truth about every sandbox that may run, or of which a record is kept, oldest first, with the
// ids of the wire.
func (s *Server) Sandboxes() []fake.Record {
	all := s.svc.All()
	for i := range all {
		all[i].ID = s.WireID(all[i].ID)
	}
	return all
}

// Sandbox returns the truth about one sandbox by its id on the wire, be it gone.
func (s *Server) Sandbox(id string) (_ fake.Record, ok bool) {
	r, ok := s.svc.Lookup(s.ServiceID(id))
	if ok {
		r.ID = id
	}
	return r, ok
}

// ServiceID returns the id that [Server.Service] has for a sandbox of the wire.
func (s *Server) ServiceID(wire string) string {
	digits, ok := strings.CutPrefix(wire, idPrefix)
	if !ok || len(digits) != idDigits {
		return ""
	}
	var x uint64
	for _, d := range digits {
		v := strings.IndexRune(idAlphabet, d)
		if v < 0 {
			return ""
		}
		x = x*uint64(len(idAlphabet)) + uint64(v)
	}
	return fmt.Sprintf("sb-%d", (x-s.salt)*idInverse)
}

const (
	idPrefix   = "i0sandbx" // with 13 digits: "i" and 20 characters, as the service's ids are
	idDigits   = 13
	idAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz"
	idFactor   = 0x9e3779b97f4a7c15
	idInverse  = 0xf1de83e19937733d // of idFactor, modulo 2^64
)

// WireID reverses [Server.ServiceID].
func (s *Server) WireID(id string) string {
	var n uint64
	if _, err := fmt.Sscanf(id, "sb-%d", &n); err != nil {
		return ""
	}
	x := n*idFactor + s.salt
	var digits [idDigits]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = idAlphabet[x%uint64(len(idAlphabet))]
		x /= uint64(len(idAlphabet))
	}
	return idPrefix + string(digits[:])
}

// ServeHTTP answers a request of either plane and keeps it in the log.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := s.record(w, r)
	defer rec.done()
	rec.Header().Set("Date", s.svc.Now().Format(http.TimeFormat))
	q := s.Quirks()
	switch id, port, ok := sandboxOf(r); {
	case s.ctx.Err() != nil:
		panic(http.ErrAbortHandler)
	case q.HTML:
		rec.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = rec.Write([]byte("<!doctype html><title>Welcome</title><p>Welcome to another service."))
	case ok:
		rec.plane("data", id)
		s.serveSandbox(rec, r, id, port)
	default:
		rec.plane("control", "")
		s.serveControl(rec, r)
	}
}

func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	key, blocked := s.key, s.quirks.Blocked
	s.mu.Unlock()
	given := r.Header.Get("X-API-Key")
	switch {
	case r.URL.Path == "/health":
	case given == "":
		s.fail(w, http.StatusUnauthorized, "", "no credentials were found in the request")
		return
	case !strings.HasPrefix(given, "e2b_"):
		s.fail(w, http.StatusUnauthorized, "", "invalid API key format")
		return
	case given != key:
		s.fail(w, http.StatusUnauthorized, "", "invalid API key")
		return
	case blocked && r.Method != http.MethodGet && r.Method != http.MethodDelete:
		s.fail(w, http.StatusForbidden, "", "the team is blocked")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// controlPlane returns the routes of the control plane.
func (s *Server) controlPlane() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("Health check successful")) })
	m.HandleFunc("POST /sandboxes", func(w http.ResponseWriter, r *http.Request) { s.create(w, r, 1) })
	m.HandleFunc("POST /v2/sandboxes", func(w http.ResponseWriter, r *http.Request) { s.create(w, r, 2) })
	m.HandleFunc("GET /sandboxes", func(w http.ResponseWriter, r *http.Request) { s.list(w, r, 1) })
	m.HandleFunc("GET /v2/sandboxes", func(w http.ResponseWriter, r *http.Request) { s.list(w, r, 2) })
	m.HandleFunc("GET /sandboxes/{id}", s.one(s.get))
	m.HandleFunc("DELETE /sandboxes/{id}", s.one(s.kill))
	m.HandleFunc("POST /sandboxes/{id}/timeout", s.one(s.timeout))
	m.HandleFunc("POST /sandboxes/{id}/refreshes", s.one(s.refresh))
	m.HandleFunc("POST /sandboxes/{id}/connect", s.one(s.connect1))
	m.HandleFunc("POST /v2/sandboxes/{id}/connect", s.one(s.connect2))
	m.HandleFunc("POST /sandboxes/{id}/resume", s.one(s.resume))
	m.HandleFunc("POST /sandboxes/{id}/pause", s.one(s.pause))
	m.HandleFunc("POST /sandboxes/{id}/fork", s.one(s.fork))
	m.HandleFunc("POST /sandboxes/{id}/snapshots", s.one(s.snapshot))
	m.HandleFunc("GET /snapshots", s.listSnapshots)
	m.HandleFunc("DELETE /templates/{id}", s.deleteTemplate)
	m.HandleFunc("GET /volumes", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, http.StatusOK, []any{}) })
	m.HandleFunc("GET /events/sandboxes", func(w http.ResponseWriter, r *http.Request) { s.listEvents(w, r, "") })
	m.HandleFunc("GET /events/sandboxes/{id}", s.one(s.listEvents))
	m.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.fail(w, http.StatusNotFound, "", "no matching operation was found")
	})
	return m
}

// one is a call about one sandbox, whose id is checked and turned into the service's.
func (s *Server) one(f func(w http.ResponseWriter, r *http.Request, id string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		wire, ok := parseID(r.PathValue("id"))
		if !ok {
			s.fail(w, http.StatusBadRequest, "", "invalid sandbox ID")
			return
		}
		f(w, r, s.ServiceID(wire))
	}
}

// parseID reads an id from a path, where a client id may follow after a dash, as it did in older days.
func parseID(text string) (id string, ok bool) {
	id, client, dashed := strings.Cut(text, "-")
	plain := func(s string) bool {
		return s != "" && strings.Trim(s, idAlphabet) == ""
	}
	return id, plain(id) && (!dashed || plain(client))
}

// work returns the context in which the service carries a request out: not the client's, who may leave.
func (s *Server) work(r *http.Request) (context.Context, context.CancelFunc) {
	ctx := r.Context()
	if !s.Quirks().AbortsWithClient {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// answer sends v as JSON.
func (s *Server) answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values that are made here
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// errorBody is what every failure of the control plane says.
type errorBody struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

func (s *Server) fail(w http.ResponseWriter, status int, code, format string, args ...any) {
	if s.Quirks().NakedErrors {
		w.WriteHeader(status)
		return
	}
	s.answer(w, status, errorBody{status, fmt.Sprintf(format, args...), code})
}

// refuse answers with an error of the state machine, or with a fault: what has no status is an answer that is lost.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	status, code, message := wireError(err)
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	if e := apiError(err); e != nil && e.RetryAfter > 0 {
		seconds := max(1, (e.RetryAfter+time.Second-1)/time.Second)
		w.Header().Set("Retry-After", fmt.Sprint(int64(seconds)))
	}
	s.fail(w, status, code, "%s", message)
}

// decode reads a JSON body into v. An empty body leaves v as it is where that is allowed.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, v any, mayBeEmpty bool) bool {
	const most = 16 << 20
	b, err := readAll(r.Body, most)
	switch {
	case err == errTooLarge:
		s.fail(w, http.StatusRequestEntityTooLarge, "", "the request body is too large")
		return false
	case err != nil:
		panic(http.ErrAbortHandler)
	case len(b) == 0 && mayBeEmpty:
		return true
	}
	if err := json.Unmarshal(b, v); err != nil {
		s.fail(w, http.StatusBadRequest, "", "validation error: request body has an error: %v", err)
		return false
	}
	return true
}
