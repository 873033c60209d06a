package vercelfake

import (
	"net/http"
	"slices"
	"time"
)

// maxLogged is how much of an answer the log keeps.
const maxLogged = 1 << 20

// A Request is one that arrived, and its answer.
type Request struct {
	At          time.Time // by the service's clock
	Operation   string    // empty: no route
	Method      string
	Host        string
	Path, Query string // of the URL without a leading "/api", the query as it was sent
	Header      http.Header
	Body        []byte

	Status       int // 0: none was sent, or not yet
	AnswerHeader http.Header
	Answer       []byte // at most 1 MiB
}

// Requests returns what was asked so far, in the order of arrival. Authorization is left out of headers.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, 0, len(s.log))
	for _, r := range s.log {
		one := *r
		one.Answer = slices.Clone(r.Answer)
		all = append(all, one)
	}
	return all
}

// Count returns how often an operation was asked for so far; without a name, how often anything was.
func (s *Server) Count(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.log {
		if operation == "" || r.Operation == operation {
			n++
		}
	}
	return n
}

func (s *Server) note(r *http.Request, operation string, body []byte) *Request {
	entry := &Request{
		At: s.svc.Now(), Operation: operation, Method: r.Method, Host: r.Host, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Header: r.Header.Clone(), Body: body,
	}
	entry.Header.Del("Authorization")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, entry)
	return entry
}

// answering keeps the head of an answer in the log.
func (s *Server) answering(entry *Request, status int, h http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry.Status, entry.AnswerHeader = status, h.Clone()
}

// answered keeps a part of its body.
func (s *Server) answered(entry *Request, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry.Answer = append(entry.Answer, b[:min(len(b), maxLogged-len(entry.Answer))]...)
}
