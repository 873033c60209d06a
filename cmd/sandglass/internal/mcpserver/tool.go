package mcpserver

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// server returns the protocol's side of s.
func (s *session) server() *mcp.Server {
	server := mcp.NewServer(
		&mcp.Implementation{Name: "sandglass", Title: "Sandglass: a sandbox whose life ends with the session", Version: s.cfg.Version},
		&mcp.ServerOptions{
			Instructions: "A sandbox, a machine apart from the user's, to run commands and keep files in. It is made by the first call that needs it, stays the same for all " +
				"calls of this session, and is deleted with everything in it when the session ends: copy out what is to be kept by read_file.",
			Logger:       slog.New(slog.DiscardHandler),
			Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}, // the tools never change
			InitializedHandler: func(_ context.Context, req *mcp.InitializedRequest) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.peer = req.Session // a client of the newer protocols never says so, and takes no pings
			},
		})
	acts := func(title string, destroys bool) *mcp.ToolAnnotations {
		return &mcp.ToolAnnotations{Title: title, DestructiveHint: &destroys, OpenWorldHint: new(!s.cfg.Scope.Spec.Offline)}
	}
	looks := func(title string) *mcp.ToolAnnotations {
		return &mcp.ToolAnnotations{Title: title, ReadOnlyHint: true, OpenWorldHint: new(false)}
	}

	streams := "stdout and stderr apart"
	if !s.caps.SplitOutput {
		streams = "stdout and stderr as one"
	}
	mcp.AddTool(server, &mcp.Tool{
		Name: "run_command",
		Description: "Runs a command in this session's sandbox, never on the user's machine, and waits for its end. Returns its exit code and " + streams +
			". A failing command is a result, not an error of the tool. Each call is a process of its own: folder and variables do not last from one to the next, files do. " +
			"Calls may run side by side. Use it to list files too (ls). To leave something running, start it with nohup and & and its output in a file.",
		InputSchema: s.runSchema(),
		Annotations: acts("Run a command", true),
	}, s.run)
	mcp.AddTool(server, &mcp.Tool{
		Name:        "write_file",
		Description: fmt.Sprintf("Writes a whole file in this session's sandbox, up to %d MiB.", maxWrite>>20),
		Annotations: acts("Write a file", true),
	}, s.write)
	mcp.AddTool(server, &mcp.Tool{
		Name:        "read_file",
		Description: "Reads a file of this session's sandbox, or a part of it, as text or base64.",
		Annotations: looks("Read a file"),
	}, s.read)
	if ports := s.cfg.Scope.Spec.Ports; s.caps.Endpoints && len(ports) > 0 {
		mcp.AddTool(server, &mcp.Tool{
			Name: "get_endpoint",
			Description: "Returns the URL at which a port of this session's sandbox can be reached from outside, and the headers to send along. " +
				"URL and headers may hold secrets. Ports: " + joined(ports) + ".",
			Annotations: looks("Get the address of a port"),
		}, s.endpoint)
	}
	mcp.AddTool(server, &mcp.Tool{
		Name: "sandbox_info",
		Description: "Says whether this session has a sandbox, which, and how long it can still live. Makes none. " +
			"Counts as a sign of life: call it now and then when you need the sandbox and call no other tool for long.",
		Annotations: looks("Look at the sandbox"),
	}, s.look)
	mcp.AddTool(server, &mcp.Tool{
		Name: "new_sandbox",
		Description: "Makes a new, empty sandbox after the one before has ended; an error of another tool says when that is needed. " +
			"The first sandbox of a session is made without it.",
		Annotations: acts("Make a new sandbox", false),
	}, s.anew)
	mcp.AddTool(server, &mcp.Tool{
		Name: "end_sandbox",
		Description: "Deletes this session's sandbox with all its files, kills what runs in it, and waits until it is seen to be gone. " +
			"Call it when the sandbox is no longer needed: it costs money while it lives. Later calls need new_sandbox first.",
		Annotations: acts("Delete the sandbox", true),
	}, s.finished)
	return server
}

// runSchema is the schema of run_command's arguments, without what the provider cannot do.
func (s *session) runSchema() *jsonschema.Schema {
	schema, err := jsonschema.For[runIn](nil)
	if err != nil {
		panic(err) // the type's own tags are wrong
	}
	if !s.caps.Stdin {
		delete(schema.Properties, "stdin")
		schema.PropertyOrder = slices.DeleteFunc(schema.PropertyOrder, func(name string) bool { return name == "stdin" })
	}
	return schema
}

func joined(ports []int) string {
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = fmt.Sprint(p)
	}
	return strings.Join(words, ", ")
}

type endpointIn struct {
	Port int `json:"port" jsonschema:"Port in the sandbox on which a server listens or will listen."`
}

type endpointOut struct {
	SandboxID string            `json:"sandbox_id"`
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers" jsonschema:"To be sent with every request; often none."`
}

func (s *session) endpoint(ctx context.Context, _ *mcp.CallToolRequest, in endpointIn) (*mcp.CallToolResult, endpointOut, error) {
	if ports := s.cfg.Scope.Spec.Ports; !slices.Contains(ports, in.Port) {
		return nil, endpointOut{}, tell("Port %d cannot be reached; these can: %s.", in.Port, joined(ports))
	}
	b, err := s.use(ctx)
	if err != nil {
		return nil, endpointOut{}, err
	}
	e, err := b.sb.Endpoint(ctx, in.Port)
	if err != nil {
		return nil, endpointOut{}, s.failed(ctx, b, "asking for the endpoint", err)
	}
	headers := map[string]string{}
	maps.Copy(headers, e.Header)
	return nil, endpointOut{b.sb.ID(), e.URL, headers}, nil
}

// States of a session's sandbox.
const (
	stateNone     = "none"
	stateStarting = "starting"
	stateRunning  = "running"
	stateEnding   = "ending"
	stateEnded    = "ended"
)

type none struct{}

type lookOut struct {
	State            string  `json:"state" jsonschema:"none (it is made by the first call that needs it), starting, running, ending, or ended (new_sandbox makes another)."`
	SandboxID        string  `json:"sandbox_id"`
	Provider         string  `json:"provider"`
	AgeSeconds       float64 `json:"age_seconds"`
	LeaseSecondsLeft float64 `json:"lease_seconds_left" jsonschema:"How long it would live if this session broke off now. The lease is extended all the time, there is nothing to do for it. 0: not told."`
	SecondsLeft      float64 `json:"seconds_left" jsonschema:"How long it can live at most, whatever is done."`
	IdleLimitSeconds float64 `json:"idle_limit_seconds" jsonschema:"It is ended when no tool was called for so long. 0: no limit."`
	Message          string  `json:"message" jsonschema:"What ended it; empty: nothing has."`
}

func (s *session) look(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, lookOut, error) {
	s.mu.Lock()
	b, last := s.box, s.last
	s.mu.Unlock()
	out := lookOut{State: stateNone, Provider: s.cfg.Provider.Name(), IdleLimitSeconds: s.cfg.Scope.StallTimeout.Seconds()}
	switch {
	case b == nil && last == nil:
		return nil, out, nil
	case b == nil:
		b = last
	}
	select {
	case <-b.ready:
	default:
		out.State = stateStarting
		return nil, out, nil
	}
	if b.sb == nil { // it failed just now
		return nil, out, nil
	}
	out.SandboxID = b.sb.ID()
	if why := b.why(); why != nil {
		out.State, out.Message = stateEnding, s.ended(b).Error()
		if b.isOver() {
			out.State = stateEnded
		}
		return nil, out, nil
	}
	sandbox.Touch(b.ctx)
	out.State, out.AgeSeconds = stateRunning, time.Since(b.began).Round(time.Second).Seconds()
	if info, ok := s.info(b); ok {
		out.LeaseSecondsLeft = max(0, info.Left().Round(time.Second).Seconds())
	}
	out.SecondsLeft = max(0, (s.lifetime() - time.Since(b.began)).Round(time.Second).Seconds())
	return nil, out, nil
}

// lifetime is the scope's max lifetime, which a plan of the provider's may cut shorter.
func (s *session) lifetime() time.Duration {
	most := s.cfg.Scope.MaxLifetime
	if most == 0 {
		most = time.Hour
	}
	if c := s.caps.MaxLifetime; c > 0 {
		most = min(most, c)
	}
	return most
}

type anewOut struct {
	SandboxID string `json:"sandbox_id"`
	Message   string `json:"message" jsonschema:"What is to be known of the one before; empty: nothing."`
}

func (s *session) anew(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, anewOut, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	b, err := s.renew(ctx)
	if err != nil {
		return nil, anewOut{}, err
	}
	out := anewOut{SandboxID: b.sb.ID()}
	if last != nil {
		if left := s.remains(last); left != "" {
			out.Message = s.name(last) + ": " + left
		}
	}
	return nil, out, nil
}

type finishedOut struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Empty: there was none."`
	Gone      bool   `json:"gone" jsonschema:"It was seen to be gone."`
}

func (s *session) finished(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, finishedOut, error) {
	b, err := s.finish(ctx)
	switch {
	case err != nil:
		return nil, finishedOut{}, err
	case b == nil:
		return nil, finishedOut{Gone: true}, nil
	case b.sb == nil:
		if left, ok := leak(b.err); ok {
			return nil, finishedOut{}, tell("The making of the sandbox was broken off, and something may be left of it: %v. Tell the user.", left)
		}
		return nil, finishedOut{Gone: true}, nil
	}
	if left := s.remains(b); left != "" {
		return nil, finishedOut{}, tell("%s: %s", s.name(b), left)
	}
	return nil, finishedOut{b.sb.ID(), true}, nil
}
