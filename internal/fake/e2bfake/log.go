package e2bfake

import (
	"io"
	"net/http"
	"slices"
	"time"
)

// maxLogged is how much of a body the log keeps.
const maxLogged = 256 << 10

// A Request is one that the server got, with its answer.
type Request struct {
	At         time.Time // by this process's clock
	Plane      string    // "control" or "data"
	Sandbox    string    // of the data plane: the id on the wire
	Method     string
	Host, Path string
	Query      string
	Header     http.Header
	Body       []byte // as far as it was read, at most 256 KiB

	Status       int // 0: not answered, yet or at all
	AnswerHeader http.Header
	Answer       []byte // at most 256 KiB
	Done         bool
}

// Requests returns all requests so far, in the order of their arrival. Those that are under way have no answer yet.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, len(s.log))
	for i, r := range s.log {
		all[i] = *r
		all[i].Body, all[i].Answer = slices.Clone(r.Body), slices.Clone(r.Answer)
	}
	return all
}

// Count returns how many requests there were so far.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reqs
}

// ForgetRequests empties the log. Count goes on.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
}

// recorder writes an answer and keeps it.
type recorder struct {
	http.ResponseWriter
	s *Server
	r *Request
}

func (s *Server) record(w http.ResponseWriter, r *http.Request) *recorder {
	entry := &Request{
		At: time.Now(), Method: r.Method, Host: r.Host, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: r.Header.Clone(),
	}
	s.mu.Lock()
	s.log = append(s.log, entry)
	s.reqs++
	s.mu.Unlock()
	rec := &recorder{w, s, entry}
	r.Body = &loggedBody{r.Body, rec}
	return rec
}

func (r *recorder) plane(plane, id string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.r.Plane, r.r.Sandbox = plane, id
}

func (r *recorder) done() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.r.Done = true
}

// Unwrap lets http.ResponseController find the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	r.s.mu.Lock()
	if r.r.Status == 0 {
		r.r.Status, r.r.AnswerHeader = status, r.Header().Clone()
	}
	r.s.mu.Unlock()
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.s.mu.Lock()
	if r.r.Status == 0 {
		r.r.Status, r.r.AnswerHeader = http.StatusOK, r.Header().Clone()
	}
	r.r.Answer = keep(r.r.Answer, b)
	r.s.mu.Unlock()
	return r.ResponseWriter.Write(b)
}

// loggedBody keeps what is read of a request.
type loggedBody struct {
	io.ReadCloser
	rec *recorder
}

func (b *loggedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.rec.s.mu.Lock()
	b.rec.r.Body = keep(b.rec.r.Body, p[:n])
	b.rec.s.mu.Unlock()
	return n, err
}

func keep(kept, more []byte) []byte {
	if kept == nil {
		kept = []byte{}
	}
	return append(kept, more[:min(len(more), maxLogged-len(kept))]...)
}
