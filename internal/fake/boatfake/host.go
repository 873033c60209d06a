package boatfake

import (
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// hostPort opens a port to the outside. Doing so again changes nothing but who may come.
func (s *Server) hostPort(c *call) (int, any, error) {
	var body struct {
		Port   int    `json:"port"`
		Public bool   `json:"public"`
		Title  string `json:"title"`
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	if body.Port < 1 || body.Port > 65535 {
		return 0, nil, invalid("port must be between 1 and 65535")
	}
	rec, b, err := s.changeable(c)
	if err != nil {
		return 0, nil, err
	}
	if err := s.svc.Ping(c.Context(), sandbox.OpEndpoint); err != nil {
		return 0, nil, err
	}
	switch rec.State {
	case sandbox.StateRunning:
	case sandbox.StateStarting:
		return 0, nil, starting()
	default:
		return 0, nil, s.notReady(s.view(rec, b, c.from).State)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.hosted[body.Port] = body.Public
	url, access := fmt.Sprintf("https://%s-%d.%s", b.subdomain, body.Port, s.opts.Domain), "public"
	if !body.Public {
		url, access = url+"/?_token="+b.token, "private"
	}
	return http.StatusOK, map[string]any{
		"ok": true, "type": "port.hosted", "success": true, "port": body.Port, "url": url, "isProtected": !body.Public, "access": access,
	}, nil
}

// subdomain tells from a host whose port is meant.
func (s *Server) subdomain(host string) (string, bool) {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.CutSuffix(strings.ToLower(host), "."+s.opts.Domain)
}

// portCookie spares a browser the token after the first visit.
const portCookie = "_port_auth"

// visit answers for a hosted port of a sandbox that runs.
func (s *Server) visit(w http.ResponseWriter, r *http.Request, sub string) {
	i := strings.LastIndexByte(sub, '-')
	if i < 0 {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	port, _ := strconv.Atoi(sub[i+1:])
	s.mu.Lock()
	var found *box
	var public, hosted bool
	for _, b := range s.boxes {
		if b.subdomain == sub[:i] && b.state != sandbox.StateGone {
			found = b
			public, hosted = b.hosted[port]
		}
	}
	h := s.ports[port]
	s.mu.Unlock()
	if !hosted {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	if given := r.URL.Query().Get("_token"); !public && !same(given, found.token) {
		if cookie, err := r.Cookie(portCookie); err != nil || !same(cookie.Value, found.token) {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
	}
	if !public {
		http.SetCookie(w, &http.Cookie{Name: portCookie, Value: found.token, Path: "/", HttpOnly: true, Secure: true})
	}
	if rec, ok := s.svc.Lookup(found.id); !ok || rec.State != sandbox.StateRunning || h == nil {
		http.Error(w, "bad gateway", http.StatusBadGateway)
		return
	}
	h.ServeHTTP(w, r)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
