package e2bfake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// envdPort is where the daemon in each sandbox listens.
const envdPort = 49983

// sandboxOf says for which sandbox and port a request is, if it is for one. The headers count only where the host is
// the shared one, the loopback interface or an address.
func sandboxOf(r *http.Request) (id string, port int, ok bool) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	first, _, _ := strings.Cut(host, ".")
	shared := first == "sandbox" || host == "localhost" || net.ParseIP(host) != nil
	if id := r.Header.Get("E2b-Sandbox-Id"); shared && id != "" {
		port, err := strconv.Atoi(r.Header.Get("E2b-Sandbox-Port"))
		if err != nil {
			port = envdPort
		}
		return id, port, true
	}
	number, id, dashed := strings.Cut(first, "-")
	port, err = strconv.Atoi(number)
	if dashed && err == nil && net.ParseIP(host) == nil {
		return id, port, true
	}
	return "", 0, first == "sandbox"
}

// proxyError is what the proxy in front of the sandboxes says.
type proxyError struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Code      int    `json:"code"`
	Port      int    `json:"port,omitempty"`
}

func (s *Server) proxyFail(w http.ResponseWriter, e proxyError) { s.answer(w, e.Code, e) }

// serveSandbox answers what comes for a port of a sandbox. Traffic wakes one that was made so.
func (s *Server) serveSandbox(w http.ResponseWriter, r *http.Request, wire string, port int) {
	wire, _, _ = strings.Cut(wire, "-")
	id := s.ServiceID(wire)
	rec, ok := s.svc.Lookup(id)
	gone := proxyError{SandboxID: wire, Message: "The sandbox was not found", Code: http.StatusBadGateway}
	if t := s.transition(id); ok && t != nil && t.phase != snapshotting {
		gone.Message, gone.Code = "The sandbox is in transition", http.StatusConflict
		s.proxyFail(w, gone)
		return
	}
	if ok && seen(rec) && rec.State == sandbox.StateDormant {
		m := rec.Data.(*machine)
		if !m.order.wakes() {
			s.proxyFail(w, gone)
			return
		}
		d := s.wakeTime(m)
		if err := s.wake(r.Context(), id, d); err != nil {
			if gone.Code, _, gone.Message = wireError(err); gone.Code == 0 || gone.Code == http.StatusNotFound {
				gone.Code = http.StatusBadGateway
			}
			s.proxyFail(w, gone)
			return
		}
		rec, ok = s.svc.Lookup(id)
	}
	if !ok || rec.Lost || rec.State != sandbox.StateRunning {
		s.proxyFail(w, gone)
		return
	}
	m := rec.Data.(*machine)
	if port != envdPort {
		s.servePort(w, r, m, wire, port)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), boxKey{}, box{id: id, wire: wire, m: m}))
	s.envd.ServeHTTP(w, r)
}

// wakeTime is how long a sandbox runs that traffic has woken.
func (s *Server) wakeTime(m *machine) time.Duration {
	d := 5 * time.Minute
	if m.order.Timeout != nil {
		d = max(d, time.Duration(*m.order.Timeout)*time.Second)
	}
	return min(d, s.svc.Behaviour().PlanLifetime)
}

// servePort answers for a port other than envd's.
func (s *Server) servePort(w http.ResponseWriter, r *http.Request, m *machine, wire string, port int) {
	s.mu.Lock()
	h := s.ports[port]
	s.mu.Unlock()
	switch {
	case m.trafficToken != "" && r.Header.Get("E2b-Traffic-Access-Token") != m.trafficToken:
		denied := proxyError{SandboxID: wire, Message: "The traffic access token is missing or wrong", Code: http.StatusForbidden}
		s.proxyFail(w, denied)
	case h == nil:
		closed := proxyError{SandboxID: wire, Message: "The sandbox is running but port is not open", Code: http.StatusBadGateway, Port: port}
		s.proxyFail(w, closed)
	default:
		h.ServeHTTP(w, r)
	}
}

// box is the running sandbox that a request has reached.
type box struct {
	id, wire string
	m        *machine
}

type boxKey struct{}

func boxOf(r *http.Request) box { return r.Context().Value(boxKey{}).(box) }

// dataPlane returns the routes of envd.
func (s *Server) dataPlane() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	m.HandleFunc("GET /envs", s.secured(func(w http.ResponseWriter, r *http.Request) {
		env := boxOf(r).m.order.EnvVars
		if env == nil {
			env = map[string]string{}
		}
		s.answer(w, http.StatusOK, env)
	}))
	m.HandleFunc("GET /metrics", s.secured(s.metrics))
	m.HandleFunc("GET /files", s.download)
	m.HandleFunc("POST /files", s.upload)
	m.HandleFunc("POST /process.Process/Start", s.secured(s.startProcess))
	m.HandleFunc("POST /process.Process/Connect", s.secured(s.connectProcess))
	m.HandleFunc("POST /process.Process/List", s.secured(s.listProcesses))
	m.HandleFunc("POST /process.Process/SendInput", s.secured(s.sendInput))
	m.HandleFunc("POST /process.Process/CloseStdin", s.secured(s.closeStdin))
	m.HandleFunc("POST /process.Process/SendSignal", s.secured(s.sendSignal))
	m.HandleFunc("POST /filesystem.Filesystem/Stat", s.secured(s.statFile))
	m.HandleFunc("POST /filesystem.Filesystem/MakeDir", s.secured(s.makeDir))
	m.HandleFunc("POST /filesystem.Filesystem/Move", s.secured(s.moveFile))
	m.HandleFunc("POST /filesystem.Filesystem/ListDir", s.secured(s.listDir))
	m.HandleFunc("POST /filesystem.Filesystem/Remove", s.secured(s.removeFile))
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/process.Process/") || strings.HasPrefix(r.URL.Path, "/filesystem.Filesystem/") {
			s.rpcFail(w, r, connectError{"unimplemented", "not served here"})
			return
		}
		http.NotFound(w, r)
	})
	return m
}

// envdError is a failure of envd outside of its services.
type envdError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (s *Server) envdFail(w http.ResponseWriter, status int, format string, args ...any) {
	s.answer(w, status, envdError{status, fmt.Sprintf(format, args...)})
}

// secured asks for the sandbox's token, if it has one.
func (s *Server) secured(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if m := boxOf(r).m; m.token != "" && r.Header.Get("X-Access-Token") != m.token {
			s.envdFail(w, http.StatusUnauthorized, "unauthorized access, a valid access token is needed")
			return
		}
		f(w, r)
	}
}

// signed reports whether a request for a file has the token, or a signature made with it.
func (s *Server) signed(r *http.Request, operation string) bool {
	m := boxOf(r).m
	if m.token == "" || r.Header.Get("X-Access-Token") == m.token {
		return true
	}
	q := r.URL.Query()
	text := q.Get("path") + ":" + operation + ":" + q.Get("username") + ":" + m.token
	if until := q.Get("signature_expiration"); until != "" {
		seconds, err := strconv.ParseInt(until, 10, 64)
		if err != nil || s.svc.Now().Unix() > seconds {
			return false
		}
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	return q.Get("signature") == "v1_"+base64.RawStdEncoding.EncodeToString(sum[:])
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	t := boxOf(r).m.template
	s.answer(w, http.StatusOK, map[string]any{
		"ts": s.svc.Now().Unix(), "cpu_count": t.CPU, "cpu_used_pct": 0.0, "mem_total": int64(t.MemoryMB) << 20, "mem_used": 0,
		"disk_used": 0, "disk_total": int64(t.DiskMB) << 20,
	})
}

// user returns who a request is for: what Basic authentication names, or the default.
func user(r *http.Request, m *machine) (account, bool) {
	name, _, _ := r.BasicAuth()
	return m.account(name)
}

// connectError is a failure of a call in the Connect protocol.
type connectError struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
}

func (e connectError) status() int {
	switch e.Code {
	case "invalid_argument":
		return http.StatusBadRequest
	case "unauthenticated":
		return http.StatusUnauthorized
	case "permission_denied":
		return http.StatusForbidden
	case "not_found":
		return http.StatusNotFound
	case "already_exists", "aborted":
		return http.StatusConflict
	case "unimplemented":
		return http.StatusNotImplemented
	case "unavailable":
		return http.StatusServiceUnavailable
	case "deadline_exceeded":
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

func isStream(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+json")
}

// rpcFail answers a call that failed before its stream, if it has one, began.
func (s *Server) rpcFail(w http.ResponseWriter, r *http.Request, e connectError) {
	if isStream(r) {
		st := newStream(w)
		st.end(&e)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status())
	b, _ := json.Marshal(e)
	_, _ = w.Write(b)
}

// rpcAnswer answers a call that is no stream.
func (s *Server) rpcAnswer(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values that are made here
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// rpcRequest reads the request of a call, in an envelope where it asks for a stream.
func (s *Server) rpcRequest(w http.ResponseWriter, r *http.Request, v any) bool {
	const most = 4 << 20
	b, err := readAll(r.Body, most)
	if err == nil && isStream(r) {
		b, err = openEnvelope(b)
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		err = d.Decode(v)
	}
	if err != nil {
		s.rpcFail(w, r, connectError{"invalid_argument", "unmarshal message: " + err.Error()})
		return false
	}
	return true
}

// use begins a command or a copy in the box. It answers for itself where that cannot be.
func (s *Server) use(w http.ResponseWriter, r *http.Request, op sandbox.Op) (*fake.Use, bool) {
	b := boxOf(r)
	use, err := s.svc.Use(r.Context(), op, b.id)
	if err != nil {
		s.useFail(w, b, err)
		return nil, false
	}
	if use.Effect() == fake.EffectNone { // it goes in and nothing comes of it
		use.Release()
		err := use.After(r.Context())
		if err == nil {
			panic(http.ErrAbortHandler)
		}
		s.useFail(w, b, err)
		return nil, false
	}
	return use, true
}

// useFail is the proxy's answer to what did not reach envd.
func (s *Server) useFail(w http.ResponseWriter, b box, err error) {
	status, _, message := wireError(err)
	switch {
	case status == 0:
		panic(http.ErrAbortHandler)
	case status == http.StatusNotFound, status == http.StatusConflict:
		status = http.StatusBadGateway
	}
	if e := apiError(err); e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	s.proxyFail(w, proxyError{SandboxID: b.wire, Message: message, Code: status})
}
