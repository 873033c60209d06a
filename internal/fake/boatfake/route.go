package boatfake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"

	"github.com/sandglass-dev/sandglass/internal/fake/wire"
)

const (
	prefix  = "/api/v1"
	maxBody = 256 << 20 // how much of a request's body is read
)

// call is one request on its way through a handler.
type call struct {
	*http.Request
	from  account
	body  []byte
	log   *wire.Entry
	fault Fault

	raw    http.ResponseWriter
	header http.Header
	status int
	out    []byte
	follow func(*stream) // writes an answer that is a stream; nil: out is the answer
}

// handler answers with a value that becomes JSON; nil: c.out or c.follow is the answer.
type handler func(c *call) (status int, body any, err error)

// route is one operation.
type route struct {
	name, pattern string
	action        string // that the key must be allowed; empty: none
	handle        handler
}

func (s *Server) table() []route {
	const one = "/sandboxes/{id}"
	return []route{
		{"me", "GET /me", "account.read", s.me},
		{"limits", "GET /limits", "account.read", s.limits},
		{"orgs", "GET /orgs", "account.read", s.orgs},
		{"apiKeys", "GET /api-keys", "account.read", s.apiKeys},
		{"apiKeyUsage", "GET /api-keys/{key}/usage", "account.read", s.apiKeyUsage},

		{"create", "POST /sandboxes", "sandbox.create", s.create},
		{"sandboxes", "GET /sandboxes", "sandbox.read", s.list},
		{"get", "GET " + one, "sandbox.read", s.get},
		{"update", "PATCH " + one, "sandbox.update", s.update},
		{"deleteSandbox", "DELETE " + one, "sandbox.delete-own", s.delete},
		{"getDeletionOperation", "GET /deletion-operations/{operation}", "sandbox.read", s.deletionOperation},
		{"stop", "POST " + one + "/stop", "sandbox.stop", s.stopBox},
		{"resume", "POST " + one + "/resume", "sandbox.resume", s.resume},
		{"fork", "POST " + one + "/fork", "sandbox.fork", s.fork},
		{"usage", "GET " + one + "/usage", "sandbox.read", s.usage},

		{"command", "POST " + one + "/commands", "exec", s.command},
		{"commandStatus", "GET " + one + "/commands/{process}", "exec", s.commandStatus},
		{"readFile", "GET " + one + "/files", "file.read", s.readFile},
		{"writeFile", "PUT " + one + "/files", "file.write", s.writeFile},
		{"artifact", "GET " + one + "/artifacts", "file.read", s.artifact},
		{"hostPort", "POST " + one + "/host", "host", s.hostPort},

		{"listSnapshots", "GET /snapshots", "snapshot.read", s.listSnapshots},
		{"listNamedSnapshots", "GET /named-snapshots", "snapshot.read", s.listNamed},
	}
}

// Operations names what can be asked of a server.
func (s *Server) Operations() []string {
	var names []string
	for _, o := range s.table() {
		names = append(names, o.name)
	}
	return names
}

func (s *Server) routes() {
	for _, o := range s.table() {
		var method, path string
		_, _ = fmt.Sscan(o.pattern, &method, &path)
		s.mux.HandleFunc(method+" "+prefix+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, o) })
	}
	none := route{handle: func(*call) (int, any, error) { return 0, nil, notFound() }}
	s.mux.HandleFunc(prefix+"/", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, none) })
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.Note(s.svc.Now(), "", r, nil)
		site(w)
	})
}

// site is what a path outside of the API leads to.
func site(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, "<!doctype html><title>Boat</title><p>Computers for agents.\n")
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, o route) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	c := &call{Request: r, body: body, raw: w, header: w.Header().Clone(), log: s.Note(s.svc.Now(), o.name, r, body)}
	if err != nil {
		panic(http.ErrAbortHandler) // the client broke off
	}
	if s.Quirks().HTML {
		site(w)
		return
	}
	c.fault = s.Take(o.name)
	if c.fault.Instead() {
		s.Meet(c.Context(), c.fault, s.base.Done())
		c.spoil(s)
		c.send(s)
		return
	}
	var value any
	if err = s.admit(c, o.action); err == nil {
		c.status, value, err = o.handle(c)
	}
	switch {
	case err != nil:
		c.follow = nil
		c.answer(c.problem(s, err))
	case value != nil:
		c.answer(c.status, value)
	}
	if c.fault.After || c.fault.Delay > 0 {
		s.Meet(c.Context(), c.fault, s.base.Done())
	}
	if c.fault.After {
		c.spoil(s)
	}
	c.send(s)
}

// admit finds out who asks and whether the key may.
func (s *Server) admit(c *call, action string) error {
	q := s.Quirks()
	if q.Down {
		return &problem{status: http.StatusServiceUnavailable, code: "unavailable", message: "The service is not available"}
	}
	from, ok := s.who(c.Request)
	if !ok {
		return refusal(http.StatusUnauthorized, "unauthorized", "Missing or invalid API key")
	}
	c.from = from
	if from == self() && slices.Contains(q.Forbidden, action) {
		return actionForbidden(action)
	}
	return nil
}

// answer makes a value the answer.
func (c *call) answer(status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("boatfake: %s: %v", c.log.Operation(), err)) // a mistake of this package's
	}
	c.header.Set("Content-Type", "application/json;charset=utf-8")
	c.status, c.out = status, text
}

// send sends the answer, or as much of it as its fault lets through.
func (c *call) send(s *Server) {
	for k, v := range c.fault.Header {
		c.header[http.CanonicalHeaderKey(k)] = v
	}
	h := c.raw.Header()
	for k, v := range c.header {
		h[k] = v
	}
	if c.follow == nil {
		h.Set("Content-Length", fmt.Sprint(len(c.out)))
	}
	c.log.Head(c.status, h)
	c.raw.WriteHeader(c.status)
	st := &stream{c: c, s: s}
	if c.follow == nil {
		st.write(c.out)
		return
	}
	c.follow(st)
}

// stream is an answer that is being written.
type stream struct {
	c    *call
	s    *Server
	sent int
}

// write sends b at once, or breaks the connection where the fault wants it.
func (st *stream) write(b []byte) {
	c := st.c
	cut := c.fault.Cut > 0 && st.sent+len(b) >= c.fault.Cut
	if cut {
		b = b[:c.fault.Cut-st.sent]
	}
	st.sent += len(b)
	c.log.Body(b)
	_, err := c.raw.Write(b)
	if cut || c.follow != nil {
		_ = http.NewResponseController(c.raw).Flush()
	}
	if cut || err != nil {
		panic(http.ErrAbortHandler)
	}
}

// line sends v as one line.
func (st *stream) line(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("boatfake: %s: %v", st.c.log.Operation(), err)) // a mistake of this package's
	}
	st.write(append(text, '\n'))
}

// decode reads a JSON body into v. An empty one is an empty object, whatever its content type; names that v does not have
// are ignored.
func (c *call) decode(v any) error {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return nil
	}
	err := json.Unmarshal(c.body, v)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid("%s has the wrong type", e.Field)
	}
	if err != nil {
		return refusal(http.StatusBadRequest, "invalid_json", "The body is no valid JSON")
	}
	return nil
}

// sleep waits, and reports whether the whole time has passed.
func (s *Server) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.base.Done():
	}
	return false
}

// known returns the sandbox that a path names, if who asks can see it, and what that account may do with it.
func (s *Server) known(c *call) (fake.Record, *box, string, error) {
	if !s.svc.Behaviour().WrongScope {
		if rec, ok := s.svc.Lookup(MachineID(c.PathValue("id"))); ok && there(rec) {
			b := s.box(rec)
			if access := s.access(c.from, b); access != "" {
				return rec, b, access, nil
			}
		}
	}
	return fake.Record{}, nil, "", notFound()
}

// changeable is known, for what changes a sandbox.
func (s *Server) changeable(c *call) (fake.Record, *box, error) {
	rec, b, access, err := s.known(c)
	if err == nil && access != owner && s.Quirks().OwnOnly {
		err = forbidden("Only its creator may change this sandbox")
	}
	return rec, b, err
}
