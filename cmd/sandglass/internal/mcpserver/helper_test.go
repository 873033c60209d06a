package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/mcpserver"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// Protocol versions: before and after servers lost the right to ask something of a client.
const (
	older = "2025-11-25"
	newer = "2026-07-28"
)

// A setup is what a test wants otherwise than by default.
type setup struct {
	version  string
	provider *sandboxtest.Provider
	scope    sandbox.Scope
	config   sandbox.Config
	hint     func(error) string
	client   mcp.ClientOptions
}

// A pair is a client and its server, in a bubble, with streams in memory between them.
type pair struct {
	t      *testing.T
	p      *sandboxtest.Provider
	client *mcp.ClientSession
	link   *link
	cancel context.CancelCauseFunc
	served chan error
	notes  *notes
}

func connect(t *testing.T, o setup) *pair {
	t.Helper()
	c := &pair{t: t, p: o.provider, link: newLink(), served: make(chan error, 1), notes: &notes{}}
	if c.p == nil {
		c.p = sandboxtest.New(sandbox.Capabilities{})
	}
	cfg := o.config
	cfg.Fleet, cfg.Owner, cfg.Scope = "test", "me", o.scope
	cfg.Observers = append(cfg.Observers, func(context.Context, sandbox.Event) {})
	m, err := sandbox.NewManager(c.p, cfg)
	require.NoError(t, err)
	var ctx context.Context
	ctx, c.cancel = context.WithCancelCause(context.Background())
	go func() {
		c.served <- mcpserver.Serve(ctx, mcpserver.Config{
			Manager: m, Provider: c.p, Scope: o.scope, In: c.link.up.r, Out: c.link.down.w, Version: "1.2.3", Note: c.notes.add, Hint: o.hint,
		})
	}()
	if o.version == "" {
		o.version = newer
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &o.client)
	c.client, err = client.Connect(context.Background(), &mcp.IOTransport{Reader: end{&c.link.down, c.link.down.r}, Writer: end{&c.link.up, c.link.up.w}}, &mcp.ClientSessionOptions{ProtocolVersion: o.version})
	require.NoError(t, err)
	require.Equal(t, o.version, c.client.InitializeResult().ProtocolVersion)
	return c
}

// leave has the client go away, and returns what Serve returned. Then nothing may be left.
func (c *pair) leave() error {
	c.t.Helper()
	_ = c.client.Close()
	return c.over()
}

// over waits for the end of Serve, after which no client is needed any more.
func (c *pair) over() error {
	c.t.Helper()
	err := <-c.served
	c.link.cut()
	_ = c.client.Close()
	c.cancel(nil)
	return err
}

// call calls a tool. The result is decoded into out, unless that is nil; the error is the tool's.
func (c *pair) call(ctx context.Context, name string, args map[string]any, out any) error {
	return c.ask(ctx, &mcp.CallToolParams{Name: name, Arguments: args}, out)
}

func (c *pair) ask(ctx context.Context, params *mcp.CallToolParams, out any) error {
	res, err := c.client.CallTool(ctx, params)
	if err != nil {
		return fmt.Errorf("protocol: %w", err)
	}
	text := ""
	for _, part := range res.Content {
		text += part.(*mcp.TextContent).Text
	}
	if res.IsError {
		return errors.New(text)
	}
	if out == nil {
		return nil
	}
	structured, err := json.Marshal(res.StructuredContent)
	require.NoError(c.t, err)
	assert.JSONEq(c.t, text, string(structured), "clients that know no structure read the same")
	return json.Unmarshal(structured, out)
}

// sh runs a script, which is to work.
func (c *pair) sh(script string) ran {
	c.t.Helper()
	var out ran
	require.NoError(c.t, c.call(c.t.Context(), "run_command", map[string]any{"script": script}, &out))
	return out
}

type ran struct {
	SandboxID   string `json:"sandbox_id"`
	ExitCode    int    `json:"exit_code"`
	Stdout      string
	Stderr      string
	StdoutBytes int `json:"stdout_bytes"`
	Truncated   bool
	Merged      bool
	TimedOut    bool `json:"timed_out"`
}

type looked struct {
	State            string
	SandboxID        string `json:"sandbox_id"`
	Provider         string
	AgeSeconds       float64 `json:"age_seconds"`
	LeaseSecondsLeft float64 `json:"lease_seconds_left"`
	SecondsLeft      float64 `json:"seconds_left"`
	IdleLimitSeconds float64 `json:"idle_limit_seconds"`
	Message          string
}

func (c *pair) look() looked {
	c.t.Helper()
	var out looked
	require.NoError(c.t, c.call(c.t.Context(), "sandbox_info", nil, &out))
	return out
}

// notes are the lines for people.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "\n")
}

// A link is two pipes. The client's ends can be made to do nothing, as those of a process that hangs.
type link struct{ up, down way }

type way struct {
	r      *io.PipeReader
	w      *io.PipeWriter
	frozen atomic.Bool
	thaw   chan struct{}
}

func newLink() *link {
	l := &link{}
	l.up.r, l.up.w = io.Pipe()
	l.down.r, l.down.w = io.Pipe()
	l.up.thaw, l.down.thaw = make(chan struct{}), make(chan struct{})
	return l
}

// Write is the client's end of the way up. What it writes while frozen never left it.
func (w *way) Write(p []byte) (int, error) {
	if w.frozen.Load() {
		return len(p), nil
	}
	return w.w.Write(p)
}

// Read is the client's end of the way down.
func (w *way) Read(p []byte) (int, error) {
	if w.frozen.Load() {
		<-w.thaw
	}
	return w.r.Read(p)
}

// An end is the client's end of a way.
type end struct {
	*way
	io.Closer
}

// freeze stops both of the client's ends; unfreeze lets them go on, and is to be called once.
func (l *link) freeze() { l.up.frozen.Store(true); l.down.frozen.Store(true) }

func (l *link) unfreeze() {
	l.up.frozen.Store(false)
	if l.down.frozen.Swap(false) {
		close(l.down.thaw)
	}
}

// cut ends both pipes, as the end of the client's process does.
func (l *link) cut() {
	_ = l.up.w.Close()
	_ = l.down.r.Close()
	if l.down.frozen.Swap(false) {
		close(l.down.thaw)
	}
}

// bubble runs f in fake time for both kinds of clients.
func bubble(t *testing.T, f func(t *testing.T, version string)) {
	t.Helper()
	for _, version := range []string{older, newer} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, version) })
		})
	}
}

const within = time.Millisecond // in fake time: at once
