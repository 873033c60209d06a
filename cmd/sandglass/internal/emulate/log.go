package emulate

import (
	"bufio"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// A Request is one that the service got. There is nothing of its headers, query and body in it: keys are there.
type Request struct {
	At      time.Time     `json:"at"` // by this process's clock
	Method  string        `json:"method"`
	Path    string        `json:"path"`
	Status  int           `json:"status"`         // 0: under way, or cut off without an answer
	Code    string        `json:"code,omitempty"` // of a call by gRPC
	Took    time.Duration `json:"took"`           // so far, in nanoseconds
	Done    bool          `json:"done"`
	Sandbox string        `json:"sandbox,omitempty"` // the id of the one it is about, where that can be told
}

// Answer is how it was answered.
func (r Request) Answer() string {
	switch {
	case r.Code != "":
		return r.Code
	case r.Status != 0:
		return number(r.Status)
	case r.Done:
		return "cut off"
	}
	return "under way"
}

// Failed reports whether the answer was a refusal or a failure.
func (r Request) Failed() bool { return r.Status >= 400 || r.Code != "" && r.Code != codes.OK.String() }

// mostRequests is how many of the latest are remembered.
const mostRequests = 500

// requests remembers what was asked.
type requests struct {
	mu    sync.Mutex
	all   []*Request
	count int
}

func (q *requests) begin(r *http.Request) *Request {
	one := &Request{At: time.Now(), Method: r.Method, Path: r.URL.EscapedPath()}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count++
	if q.all = append(q.all, one); len(q.all) > mostRequests {
		q.all = slices.Delete(q.all, 0, len(q.all)-mostRequests)
	}
	return one
}

// end returns the request as it came out.
func (q *requests) end(one *Request, status int, code, id string) Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	one.Status, one.Code, one.Sandbox, one.Took, one.Done = status, code, id, time.Since(one.At), true
	return *one
}

// head takes note of the beginning of an answer, which may go on for long.
func (q *requests) head(one *Request, status int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one.Status = status
}

// list returns the latest requests, latest first, and how many there were.
func (q *requests) list() (all []Request, count int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range slices.Backward(q.all) {
		one := *r
		if !one.Done {
			one.Took = time.Since(one.At)
		}
		all = append(all, one)
	}
	return all, q.count
}

// about returns which of the ids a request is about: one in its path, or in the host that its port has, or in the header
// that E2B's SDK sends.
func about(r *http.Request, known func(id string) bool) string {
	host, _, _ := strings.Cut(r.Host, ".")
	_, after, _ := strings.Cut(host, "-")
	for _, id := range append(strings.Split(r.URL.Path, "/"), r.Header.Get("E2b-Sandbox-Id"), host, after) {
		if id != "" && known(id) {
			return id
		}
	}
	return ""
}

// A tap lets an answer through and tells its status.
type tap struct {
	http.ResponseWriter
	status int
	head   func(status int)
}

func (t *tap) WriteHeader(status int) {
	if t.status == 0 && status >= 200 {
		t.status = status
		t.head(status)
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *tap) Write(b []byte) (int, error) {
	if t.status == 0 {
		t.status = http.StatusOK
		t.head(t.status)
	}
	return t.ResponseWriter.Write(b)
}

// code is the word for the status in a trailer of gRPC; empty: there is none.
func (t *tap) code() string {
	for _, key := range []string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
		if n, err := strconv.ParseUint(t.Header().Get(key), 10, 32); err == nil {
			return codes.Code(n).String()
		}
	}
	return ""
}

// Flush and Hijack are for those who ask for the interfaces, Unwrap for those who do it as they should.
func (t *tap) Flush() { _ = http.NewResponseController(t.ResponseWriter).Flush() }

// Hijack gives the connection away, for a socket.
func (t *tap) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if t.status == 0 {
		t.status = http.StatusSwitchingProtocols
		t.head(t.status)
	}
	return http.NewResponseController(t.ResponseWriter).Hijack()
}

// Unwrap is for [http.ResponseController].
func (t *tap) Unwrap() http.ResponseWriter { return t.ResponseWriter }
