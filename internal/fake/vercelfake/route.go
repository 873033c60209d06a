package vercelfake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake/wire"
)

// maxBody is how much of a request's body is read.
const maxBody = 256 << 20

// call is one request on its way through a handler.
type call struct {
	*http.Request
	s       *Server
	name    string
	body    []byte
	log     *wire.Entry
	fault   Fault
	claims  *claims // of a token that is for one project
	project Scope   // where the operation is about one

	raw    http.ResponseWriter
	header http.Header
	status int
	out    []byte
	follow func(*stream) // writes an answer that is a stream; nil: out is the answer
}

// handler carries a request out and answers with a value that becomes JSON; nil: c.out or c.follow is the answer. ctx is
// the service's, and does not end when the client leaves.
type handler func(ctx context.Context, c *call) (body any, err error)

// scoping says where a request names its project.
type scoping int

const (
	byTeam    scoping = iota // nowhere: ids are the team's
	inBody                   // in the field projectId
	byID                     // in the query, as projectId
	byProject                // in the query, as project
)

// operation is one route.
type operation struct {
	name, pattern string
	scope         scoping
	handle        handler
}

func (s *Server) operations() []operation {
	const (
		all, one = "/v2/sandboxes", "/v2/sandboxes/{name}"
		ses      = "/v2/sandboxes/sessions/{id}"
		snap     = "/v2/sandboxes/snapshots/{id}"
	)
	return []operation{
		{"createSandbox", "POST /v3/sandboxes", inBody, s.create},
		{"createSandbox", "POST " + all, inBody, s.create},
		{"listSandboxes", "GET " + all, byProject, s.list},
		{"getSandbox", "GET " + one, byID, s.get},
		{"updateSandbox", "PATCH " + one, byID, s.update},
		{"deleteSandbox", "DELETE " + one, byID, s.delete},
		{"forkSandbox", "POST " + one + "/fork", byID, s.fork},

		{"listSessions", "GET /v2/sandboxes/sessions", byProject, s.listSessions},
		{"getSession", "GET " + ses, byTeam, s.getSession},
		{"extendTimeout", "POST " + ses + "/extend-timeout", byTeam, s.extend},
		{"stopSession", "POST " + ses + "/stop", byTeam, s.stopSession},
		{"snapshotSession", "POST " + ses + "/snapshot", byTeam, s.snapshotSession},
		{"updateNetworkPolicy", "POST " + ses + "/network-policy", byTeam, s.setPolicy},

		{"runCommand", "POST " + ses + "/cmd", byTeam, s.runCommand},
		{"listCommands", "GET " + ses + "/cmd", byTeam, s.listCommands},
		{"getCommand", "GET " + ses + "/cmd/{cmd}", byTeam, s.getCommand},
		{"getLogs", "GET " + ses + "/cmd/{cmd}/logs", byTeam, s.getLogs},
		{"killCommand", "POST " + ses + "/cmd/{cmd}/kill", byTeam, s.killCommand},
		{"writeFiles", "POST " + ses + "/fs/write", byTeam, s.writeFiles},
		{"readFile", "POST " + ses + "/fs/read", byTeam, s.readFile},
		{"mkdir", "POST " + ses + "/fs/mkdir", byTeam, s.mkdir},

		{"listSnapshots", "GET /v2/sandboxes/snapshots", byProject, s.listSnapshots},
		{"getSnapshot", "GET " + snap, byTeam, s.getSnapshot},
		{"deleteSnapshot", "DELETE " + snap, byTeam, s.deleteSnapshot},
		{"listDrives", "GET /v2/sandboxes/drives", byID, s.listDrives},
	}
}

// Operations names what can be asked of a server.
func (s *Server) Operations() []string {
	var names []string
	for _, o := range s.operations()[1:] {
		names = append(names, o.name)
	}
	return names
}

func (s *Server) routes() {
	for _, o := range s.operations() {
		s.mux.HandleFunc(o.pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, o) })
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, operation{handle: func(context.Context, *call) (any, error) {
			return nil, &problem{status: http.StatusNotFound, code: "not_found", message: "The requested API endpoint was not found"}
		}})
	})
}

// serve answers a request. What it asks for is carried out whether or not its client waits for the answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, o operation) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	c := &call{Request: r, s: s, name: o.name, body: body, raw: w, header: w.Header().Clone(), log: s.Note(s.svc.Now(), o.name, r, body)}
	if err != nil {
		panic(http.ErrAbortHandler) // the client broke off
	}
	if s.Quirks().HTML {
		c.header.Set("Content-Type", "text/html; charset=utf-8")
		c.status, c.out = http.StatusOK, []byte("<!doctype html><title>Welcome</title><p>Welcome to another service.")
		c.send()
		return
	}
	c.fault = s.Take(o.name)
	if c.fault.Instead() {
		s.Meet(c.Context(), c.fault, s.base.Done())
		c.spoil()
		c.send()
		return
	}
	type result struct {
		body any
		err  error
	}
	done := make(chan result, 1)
	began := s.begin(func() {
		ctx, cancel := context.WithTimeout(s.base, serverLimit)
		defer cancel()
		var res result
		if res.err = c.admit(o.scope); res.err == nil {
			res.body, res.err = o.handle(ctx, c)
		}
		done <- res
	})
	if !began {
		panic(http.ErrAbortHandler)
	}
	var res result
	select {
	case res = <-done:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
	switch {
	case res.err != nil:
		c.follow = nil
		c.answer(c.problem(res.err))
	case res.body != nil:
		c.answer(http.StatusOK, res.body)
	case c.status == 0:
		c.status = http.StatusOK
	}
	if c.fault.After || c.fault.Delay > 0 {
		s.Meet(c.Context(), c.fault, s.base.Done())
		if c.fault.After {
			c.spoil()
		}
	}
	c.send()
}

// answer makes a value the answer.
func (c *call) answer(status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("vercelfake: %s: %v", c.name, err)) // a mistake of this package's
	}
	c.header.Set("Content-Type", "application/json; charset=utf-8")
	c.status, c.out = status, text
}

// send sends the answer, or as much of it as its fault lets through.
func (c *call) send() {
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
	st := &stream{c: c}
	if c.follow == nil {
		st.write(c.out)
		return
	}
	c.follow(st)
}

// stream is an answer that is being written.
type stream struct {
	c    *call
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
		panic(fmt.Sprintf("vercelfake: %s: %v", st.c.name, err)) // a mistake of this package's
	}
	st.write(append(text, '\n'))
}

// decode reads a JSON body into v. An empty one is an empty object. Names that v does not have are refused, but for those
// that begin with two underscores, which are the service's own.
func (c *call) decode(v any) error {
	body := bytes.TrimSpace(c.body)
	if len(body) == 0 {
		body = []byte("{}")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return invalid("Invalid JSON: %v", err)
	}
	for k := range fields {
		if strings.HasPrefix(k, "__") {
			delete(fields, k)
		}
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return invalid("Invalid JSON: %v", err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return invalid("Invalid request: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
