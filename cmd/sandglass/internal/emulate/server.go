// Package emulate serves a provider in memory on this machine, for the provider's official SDK in any language, and shows
// what happens: live as lines, and as a page at [PagePath].
//
//	s, err := emulate.Start("e2b", "")
//	...
//	defer s.Close()
//	s.Env() // what the SDK is to find in its environment
//
// It shows methods, paths and states, and nothing of headers, queries and bodies: keys stay where they are. Commands run in
// an in-memory shell, never on this machine.
package emulate

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Server is an emulated service that listens. All methods are safe for concurrent use.
type Server struct {
	svc     *service
	url     string
	http    *http.Server
	started time.Time
	tell    func(line string)
	lives   lives
	asked   requests

	wg     sync.WaitGroup
	over   chan struct{} // closed by Close
	close  func()
	failed chan error // what ended the serving, if not Close
}

// Start serves a service, which [Services] names, at a loopback address; empty: "127.0.0.1:0", whose port is any that is
// free. Anything else than a loopback address is refused, for whoever reaches the service may use it. End it with Close.
func Start(service, addr string) (*Server, error) { return start(service, addr, func(string) {}) }

// start is Start with a function that is told, line by line, what happens. It must not wait.
func start(name, addr string, tell func(line string)) (*Server, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	if err := loopback(addr); err != nil {
		return nil, err
	}
	svc, err := newService(name)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		svc.close()
		return nil, fmt.Errorf("emulate: %w", err)
	}
	s := &Server{
		svc: svc, url: "http://" + l.Addr().String(), started: time.Now(), tell: tell,
		lives: lives{id: svc.id, byID: map[string]*Sandbox{}},
		over:  make(chan struct{}), failed: make(chan error, 1),
	}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetUnencryptedHTTP2(true) // which gRPC speaks
	svc.state.Watch(s.changed)
	s.close = sync.OnceFunc(func() {
		close(s.over)
		_ = s.http.Close()
		s.wg.Wait()
		svc.close()
	})
	s.wg.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	})
	s.wg.Go(s.tick)
	return s, nil
}

func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("emulate: %w: %w", err, sandbox.ErrInvalid)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("emulate: %q is no loopback address, and whoever reaches the service may use it: %w", host, sandbox.ErrInvalid)
	}
	return nil
}

// Close ends the service with all its commands. Further Closes do nothing.
func (s *Server) Close() { s.close() }

// URL is the address that is served, such as "http://127.0.0.1:41234".
func (s *Server) URL() string { return s.url }

// Page is the address of the page that shows the state.
func (s *Server) Page() string { return s.url + PagePath }

// Env returns what the service's official SDK is to find in its environment, as NAME=value. Values need no quotes in a
// shell. The keys in it are the emulator's own and open nothing else.
func (s *Server) Env() []string { return s.svc.env(s.url) }

// Hint says what an SDK needs beside the environment; empty: nothing.
func (s *Server) Hint() string { return s.svc.hint }

// Sandboxes returns every sandbox that may run or of which a record is kept, and the latest of those that are gone, oldest
// first.
func (s *Server) Sandboxes() []Sandbox {
	s.settle()
	all := s.lives.list()
	for i, b := range all {
		if b.State == sandbox.StateRunning.String() && b.Deadline.IsZero() && s.svc.ends != nil {
			all[i].Deadline = s.svc.ends(b.ID)
		}
	}
	return all
}

// Left returns every sandbox that may run or of which a record is kept, oldest first.
func (s *Server) Left() []Sandbox {
	return slices.DeleteFunc(s.Sandboxes(), func(b Sandbox) bool { return !b.left() })
}

// Requests returns the latest requests, latest first.
func (s *Server) Requests() []Request {
	all, _ := s.asked.list()
	return all
}

// settle has happen what time alone has brought about: the service keeps no timers.
func (s *Server) settle() {
	if s.svc.settle != nil {
		s.svc.settle()
	}
	s.svc.state.All()
}

// tick lets leases end in time though nobody asks.
func (s *Server) tick() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-s.over:
			return
		case <-t.C:
			s.settle()
			s.svc.forget()
		}
	}
}

func (s *Server) changed(c fake.Change) {
	if b, changed := s.lives.note(c); changed {
		s.tell(c.At.Local().Format(stamp) + "  sandbox  " + b.describe(c.At))
	}
}

const stamp = "15:04:05.000"

// describe says in one line how a sandbox stands at a time.
func (s Sandbox) describe(now time.Time) string {
	text := s.ID + " is " + s.State
	if s.Detail != "" && s.Detail != s.State {
		text += " (" + s.Detail + ")"
	}
	switch left := s.Deadline.Sub(now); {
	case s.How != "":
		text += ", ended " + s.How
	case !s.Deadline.IsZero() && left > 0:
		text += ", its lease ends in " + duration(left)
	}
	var words []string
	if s.Owner != "" {
		words = append(words, s.Owner)
	}
	for _, t := range s.Tags {
		words = append(words, t.Key+"="+t.Value)
	}
	if len(words) > 0 {
		text += "  [" + strings.Join(words, " ") + "]"
	}
	return printable(text)
}

// printable keeps what clients wrote from moving the cursor.
func printable(s string) string {
	q := strconv.Quote(s)
	if q = q[1 : len(q)-1]; len(q) == len(s) {
		return s
	}
	return q
}

// ServeHTTP is the service, and at [PagePath] its page: only where the request is for this address itself, since a sandbox
// may serve a path of that name too.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.isPage(r) {
		s.page(w, r)
		return
	}
	one := s.asked.begin(r)
	t := &tap{ResponseWriter: w, head: func(status int) { s.asked.head(one, status) }}
	defer func() { s.answered(one, r, t) }() // runs when the service breaks the connection by a panic, too
	s.svc.handler.ServeHTTP(t, r)
	if t.status == 0 { // nothing was written: net/http answers 200
		t.status = http.StatusOK
	}
}

func (s *Server) answered(one *Request, r *http.Request, t *tap) {
	done := s.asked.end(one, t.status, t.code(), about(r, s.lives.known))
	text := done.At.Local().Format(stamp) + "  request  " + done.Method + " " + done.Path + "  " + done.Answer() + ", " + duration(done.Took)
	if done.Sandbox != "" && !strings.Contains(done.Path, done.Sandbox) {
		text += ", of " + done.Sandbox
	}
	s.tell(printable(text))
}
