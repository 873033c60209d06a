// Package wire is what the wire-level fakes have in common, whatever they speak: the log of what was asked and
// answered, and the faults of answers.
package wire

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxLogged is how much of an answer the log keeps.
const maxLogged = 1 << 20

// A Request is one that arrived, and its answer.
type Request struct {
	At          time.Time // by the service's clock
	Operation   string    // by the name that the fake gives it, such as "createSandbox"; empty: no route
	Method      string
	Host        string
	Path, Query string // of the URL, as they were sent
	Header      http.Header
	Body        []byte

	Status       int // 0: none was sent, or not yet
	AnswerHeader http.Header
	Answer       []byte // at most 1 MiB
}

// A Log keeps requests. The zero value is an empty one. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	all []*Request
}

// Requests returns what was asked so far, in the order of arrival. Secrets are left out of headers.
func (l *Log) Requests() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Request, 0, len(l.all))
	for _, r := range l.all {
		one := *r
		one.Answer = slices.Clone(r.Answer)
		all = append(all, one)
	}
	return all
}

// Count returns how often an operation was asked for so far; without a name, how often anything was.
func (l *Log) Count(operation string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.all {
		if operation == "" || r.Operation == operation {
			n++
		}
	}
	return n
}

// ForgetRequests empties the log.
func (l *Log) ForgetRequests() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = nil
}

// Note takes down a request, without Authorization and other secret headers.
func (l *Log) Note(at time.Time, operation string, r *http.Request, body []byte, secrets ...string) *Entry {
	entry := &Request{
		At: at, Operation: operation, Method: r.Method, Host: r.Host, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Header: r.Header.Clone(), Body: body,
	}
	for _, name := range append(secrets, "Authorization") {
		entry.Header.Del(name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, entry)
	return &Entry{l, entry}
}

// An Entry is where the answer of one request is taken down.
type Entry struct {
	log *Log
	r   *Request
}

// Operation is what was asked for.
func (e *Entry) Operation() string { return e.r.Operation }

// Head takes down the head of the answer.
func (e *Entry) Head(status int, h http.Header) {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	e.r.Status, e.r.AnswerHeader = status, h.Clone()
}

// Body takes down a part of its body.
func (e *Entry) Body(b []byte) {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	e.r.Answer = append(e.r.Answer, b[:min(len(b), maxLogged-len(e.r.Answer))]...)
}
