package modalfake

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// A Request is a call that arrived, and its answer.
type Request struct {
	At       time.Time // by the service's clock
	Method   string    // such as "SandboxCreateV2"
	Router   bool      // of the command router; else of the control plane
	Metadata metadata.MD
	Message  proto.Message // of a stream: the first

	Done     bool
	Code     codes.Code    // once Done
	Answer   proto.Message // of a unary call that went well
	Messages int           // of a stream, in either direction
}

// Requests returns what was asked so far, in the order of arrival. Secrets are left out of metadata.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, 0, len(s.log))
	for _, r := range s.log {
		all = append(all, *r)
	}
	return all
}

// Count returns how often a method was called so far; without a name, how often any was.
func (s *Server) Count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.log {
		if method == "" || r.Method == method {
			n++
		}
	}
	return n
}

// ForgetRequests empties the log.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
}

func (s *Server) note(ctx context.Context, method string, router bool) *Request {
	md, _ := metadata.FromIncomingContext(ctx)
	md = md.Copy()
	for key := range md {
		if strings.HasPrefix(key, "x-modal-token-") || key == "x-modal-auth-token" || key == "authorization" {
			delete(md, key)
		}
	}
	entry := &Request{At: s.svc.Now(), Method: method, Router: router, Metadata: md}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, entry)
	return entry
}

func (s *Server) noted(entry *Request, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}
