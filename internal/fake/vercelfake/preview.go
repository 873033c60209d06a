package vercelfake

import (
	"net"
	"net/http"
	"strings"
)

// subdomain tells from a host whose port is meant.
func (s *Server) subdomain(host string) (string, bool) {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.CutSuffix(strings.ToLower(host), "."+s.opts.Domain)
}

// preview answers for a port of a sandbox that runs.
func (s *Server) preview(w http.ResponseWriter, r *http.Request, sub string) {
	s.mu.Lock()
	var found *session
	var h http.Handler
	for _, b := range s.boxes {
		for _, p := range b.ports {
			if b.subs[p] == sub && b.recordEnd.IsZero() {
				found, h = b.current(), s.ports[p]
			}
		}
	}
	s.mu.Unlock()
	if found == nil {
		http.Error(w, "SANDBOX_NOT_FOUND", http.StatusNotFound)
		return
	}
	rec, ok := s.svc.Lookup(found.box.id)
	if !ok || s.status(found, rec) != stRunning {
		http.Error(w, "SANDBOX_STOPPED", http.StatusGone)
		return
	}
	if h == nil {
		http.Error(w, "SANDBOX_NOT_LISTENING", http.StatusBadGateway)
		return
	}
	h.ServeHTTP(w, r)
}
