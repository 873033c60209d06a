//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/emulate"
	"github.com/sandglass-dev/sandglass/internal/fake"
)

// emulator returns an E2B in memory, and surroundings that know it.
func emulator(t *testing.T) (*emulate.Server, *bench) {
	t.Helper()
	s, err := emulate.Start("e2b", "")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, newBench(t, s.Env()...)
}

// A server is the program as a client starts it, with the client's ends of its pipes.
type server struct {
	cmd    *exec.Cmd
	in     *os.File // what the client writes to
	out    *os.File // what it reads from
	stderr *watcher
	done   chan struct{}
}

func (b *bench) serve(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{cmd: b.command(context.WithoutCancel(t.Context()), append([]string{"mcp"}, args...)...), stderr: &watcher{}, done: make(chan struct{})}
	in, up, err := os.Pipe()
	require.NoError(t, err)
	down, out, err := os.Pipe()
	require.NoError(t, err)
	s.in, s.out = up, down
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = in, out, s.stderr
	require.NoError(t, s.cmd.Start())
	require.NoError(t, errors.Join(in.Close(), out.Close()))
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		_, _ = s.in.Close(), s.out.Close()
		_ = s.cmd.Process.Kill()
		<-s.done
	})
	return s
}

// connect has the SDK's own client talk to the server.
func (s *server) connect(t *testing.T, version string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: s.out, Writer: s.in}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err, "%s", s.stderr)
	return session
}

// code waits for the server's end.
func (s *server) code(t *testing.T) int {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(time.Minute): // real processes need real time
		t.Fatalf("the server lives on:\n%s", s.stderr)
	}
	return s.cmd.ProcessState.ExitCode()
}

// tool calls a tool and returns its structured result.
func tool(ctx context.Context, session *mcp.ClientSession, name string, args map[string]any) (map[string]any, error) {
	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return nil, err
	}
	if res.IsError {
		return nil, errors.New(res.Content[0].(*mcp.TextContent).Text)
	}
	structured, _ := res.StructuredContent.(map[string]any)
	return structured, nil
}

func sh(script string) map[string]any { return map[string]any{"script": script} }

var protocols = []string{"2025-11-25", "2026-07-28"}

func TestMcpServesTheSDKsClientAndLeavesNothing(t *testing.T) {
	for _, version := range protocols {
		t.Run(version, func(t *testing.T) {
			service, b := emulator(t)
			// A console exporter writes to standard output, which is the protocol's alone.
			b.env = append(b.env, "OTEL_TRACES_EXPORTER=console", "OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none")
			s := b.serve(t, "-p", "e2b", "-f", "agents")
			session := s.connect(t, version)
			list, err := session.ListTools(t.Context(), nil)
			require.NoError(t, err)
			assert.Len(t, list.Tools, 6)
			assert.Empty(t, service.Left(), "none is made before it is needed")

			_, err = tool(t.Context(), session, "write_file", map[string]any{"path": "/tmp/hello", "content": "hello\n"})
			require.NoError(t, err)
			require.Len(t, service.Left(), 1)
			id := service.Left()[0].ID
			res, err := tool(t.Context(), session, "run_command", sh("cat /tmp/hello; echo err >&2; exit 3"))
			require.NoError(t, err)
			assert.Equal(t, "hello\n", res["stdout"])
			assert.Equal(t, "err\n", res["stderr"])
			assert.EqualValues(t, 3, res["exit_code"])
			assert.Equal(t, id, res["sandbox_id"])
			res, err = tool(t.Context(), session, "sandbox_info", nil)
			require.NoError(t, err)
			assert.Equal(t, "running", res["state"])
			assert.EqualValues(t, 900, res["idle_limit_seconds"])

			require.NoError(t, session.Close())
			assert.Equal(t, 0, s.code(t), "%s", s.stderr)
			assert.Empty(t, service.Left(), "%s", s.stderr)
			assert.Empty(t, b.spool())
			assert.Contains(t, s.stderr.String(), id)
			assert.Contains(t, s.stderr.String(), "is deleted and seen to be gone")
			for _, v := range service.Env() {
				if name, key, _ := strings.Cut(v, "="); strings.HasSuffix(name, "_KEY") {
					assert.NotContains(t, s.stderr.String(), key)
				}
			}
		})
	}
}

func TestMcpEndsWithItsClientInWhateverManner(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(s *server) error
		code int
	}{
		"input ends":              {func(s *server) error { return s.in.Close() }, 0},
		"nobody reads the output": {func(s *server) error { return s.out.Close() }, 0},
		"SIGTERM":                 {func(s *server) error { return s.cmd.Process.Signal(syscall.SIGTERM) }, 128 + 15},
		"SIGHUP":                  {func(s *server) error { return s.cmd.Process.Signal(syscall.SIGHUP) }, 128 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			service, b := emulator(t)
			s := b.serve(t, "-p", "e2b", "-f", "agents")
			// By hand, for the SDK's client would close one stream at the end of the other. No ping makes the server write.
			say(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_command","arguments":{"script":"echo up"},`+meta+`}}`)
			assert.Contains(t, hear(t, s), `"stdout":"up\n"`)
			require.Len(t, service.Left(), 1)
			require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT)) // a Ctrl-C for the client reaches its servers too
			say(t, s, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_info","arguments":{},`+meta+`}}`)
			assert.Contains(t, hear(t, s), `"running"`)
			require.NoError(t, c.end(s))
			assert.Equal(t, c.code, s.code(t), "%s", s.stderr)
			assert.Empty(t, service.Left(), "%s", s.stderr)
			assert.Empty(t, b.spool())
		})
	}
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

func say(t *testing.T, s *server, frame string) {
	t.Helper()
	require.True(t, json.Valid([]byte(frame)))
	_, err := io.WriteString(s.in, frame+"\n")
	require.NoError(t, err)
}

// hear returns the next frame, which is one line of JSON.
func hear(t *testing.T, s *server) string {
	t.Helper()
	require.NoError(t, s.out.SetReadDeadline(time.Now().Add(time.Minute)))
	var frame []byte
	for one := make([]byte, 1); ; frame = append(frame, one[0]) {
		_, err := s.out.Read(one)
		require.NoError(t, err, "%s%s", frame, s.stderr)
		if one[0] == '\n' {
			break
		}
	}
	require.True(t, json.Valid(frame), "%s", frame)
	return string(frame)
}

func TestMcpFinishesWhatAKilledServerLeftAtTheNextStart(t *testing.T) {
	e := newE2B(t)
	e.fake.Service().Behave(func(b *fake.Behaviour) { b.Unenforced = true }) // what is not found would be in doubt for 90 s
	b := newBench(t, e.env...)
	args := []string{"-p", "e2b", "-f", "agents", "--window", "20s", "--beat", "5s"}
	s := b.serve(t, args...)
	session := s.connect(t, protocols[0])
	_, err := tool(t.Context(), session, "run_command", sh("true"))
	require.NoError(t, err)
	require.NoError(t, s.cmd.Process.Kill())
	<-s.done
	require.Len(t, e.fake.Sandboxes(), 1)
	require.Len(t, b.spool(), 1)
	s = b.serve(t, args...)
	assert.Eventually(t, func() bool { return len(e.fake.Sandboxes()) == 0 && len(b.spool()) == 0 }, 2*time.Minute, 100*time.Millisecond, "%s", s.stderr)
	require.NoError(t, s.in.Close())
	assert.Equal(t, 0, s.code(t))
}

func TestMcpSaysWhatIsWrongWithItsSettings(t *testing.T) {
	_, b := emulator(t)
	for name, args := range map[string][]string{
		"no fleet":       {"mcp", "-p", "e2b"},
		"no provider":    {"mcp", "-f", "agents"},
		"no such":        {"mcp", "-p", "nosuch", "-f", "agents"},
		"long window":    {"mcp", "-p", "e2b", "-f", "agents", "--window", "9999h"},
		"negative idle":  {"mcp", "-p", "e2b", "-f", "agents", "--idle", "-1m"},
		"value of --env": {"mcp", "-p", "e2b", "-f", "agents", "--env", "A=b"},
	} {
		r := b.run(args...)
		assert.Equal(t, exitUsage, r.code, name)
		assert.Empty(t, r.stdout, name)
		assert.NotEmpty(t, r.stderr, name)
	}
}

func TestTheConfigurationOfMcpsHelpIsJSON(t *testing.T) {
	_, text, _ := strings.Cut(mcpCmd{}.Help(), "client's own):\n")
	text, _, _ = strings.Cut(text, "\n\nA client")
	var config struct {
		Servers map[string]struct {
			Command string
			Args    []string
			Env     map[string]string
		} `json:"mcpServers"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &config))
	one := config.Servers["sandbox"]
	assert.Equal(t, "sandglass", one.Command)
	service, b := emulator(t)
	s := b.serve(t, one.Args[1:]...)
	session := s.connect(t, protocols[1])
	_, err := tool(t.Context(), session, "run_command", sh("true"))
	require.NoError(t, err)
	require.NoError(t, session.Close())
	assert.Equal(t, 0, s.code(t))
	assert.Empty(t, service.Left())
}

// asClient, in the environment, has the next test be a client that calls tools until it is killed.
const asClient = "SANDGLASS_TEST_AS_MCP_CLIENT"

func TestAsAClientThatIsKilled(t *testing.T) {
	args := os.Getenv(asClient)
	if args == "" {
		t.Skip("this is a part of other tests")
	}
	cmd := exec.CommandContext(t.Context(), selfPath(t), strings.Fields(args)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), asProgram+"=1"), os.Stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: protocols[os.Getpid()%2]})
	require.NoError(t, err)
	fmt.Printf("server %d\n", cmd.Process.Pid)
	busy(t.Context(), session, rand.New(rand.NewPCG(uint64(os.Getpid()), 0)))
}

// busy calls tools until ctx ends or the server is gone.
func busy(ctx context.Context, session *mcp.ClientSession, r *rand.Rand) {
	for ctx.Err() == nil {
		var err error
		switch r.IntN(10) {
		case 0:
			_, err = tool(ctx, session, "end_sandbox", nil)
		case 1:
			_, err = tool(ctx, session, "new_sandbox", nil)
		case 2:
			_, err = tool(ctx, session, "write_file", map[string]any{"path": "/tmp/f", "content": strings.Repeat("x", r.IntN(100_000))})
		case 3:
			short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(500))*time.Millisecond)
			_, err = tool(short, session, "run_command", sh("sleep 60"))
			cancel()
		default:
			_, err = tool(ctx, session, "run_command", sh(fmt.Sprintf("echo %d; sleep 0.%d", r.IntN(100), r.IntN(4))))
		}
		if errors.Is(err, mcp.ErrConnectionClosed) {
			return
		}
	}
}

// seeded returns a seed, which is printed, and may be given again in SANDGLASS_TEST_SEED.
func seeded(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("SANDGLASS_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SANDGLASS_TEST_SEED=%d", seed)
	return seed
}

// TestMcpKilledAtRandomPointsLeavesNothing has clients and servers die while calls are under way. The service's own list is
// the judge: empty as soon as the server has ended, and within the window where the server itself was killed.
func TestMcpKilledAtRandomPointsLeavesNothing(t *testing.T) {
	service, b := emulator(t)
	const rounds, atOnce = 48, 4
	seed := seeded(t)
	turn := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for round := range rounds {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			random(t, b, round, rand.New(rand.NewPCG(seed, uint64(round))), "-p", "e2b", "--window", "20s", "--beat", "5s")
		})
	}
	wg.Wait()
	assert.Eventually(t, func() bool { return len(service.Left()) == 0 }, time.Minute, 100*time.Millisecond)
	for _, left := range service.Left() {
		t.Errorf("left: %+v", left)
	}
	t.Logf("%d sandboxes in all", len(service.Sandboxes()))
}

func TestMcpKilledAtRandomPointsLeavesNothingOnDocker(t *testing.T) {
	p, host := engine(t)
	b := newBench(t, host)
	seed := seeded(t)
	var fleets []string
	for round := range 7 {
		fleet := random(t, b, round, rand.New(rand.NewPCG(seed, uint64(round))), "-p", "docker", "--window", window.String(), "--beat", "5s")
		fleets = append(fleets, fleet)
	}
	for _, fleet := range fleets {
		requireGone(t, p, fleet, window+removal)
	}
}

// random is one life of a client and its server, and one way of dying. It returns the fleet, which is this round's own.
func random(t *testing.T, b *bench, round int, r *rand.Rand, args ...string) (fleet string) {
	ways := []string{"SIGKILL of the client", "input", "output", "both", "SIGTERM", "SIGHUP", "SIGKILL of the server"}
	way := ways[round%len(ways)]
	fleet = fmt.Sprintf("%s-%d", fleetOf(t), round)
	args = append(args, "-f", fleet)
	own := *b
	own.dir = filepath.Join(b.dir, fmt.Sprint(round)) // with a journal of its own, so that no later start helps
	if !assert.NoError(t, os.Mkdir(own.dir, 0o700)) {
		return fleet
	}
	own.env = append(append([]string{}, b.env...), "XDG_STATE_HOME="+filepath.Join(own.dir, "state"))
	after := time.Duration(r.IntN(2500)) * time.Millisecond
	note := fmt.Sprintf("round %d: %s after %v", round, way, after)

	if way == ways[0] {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), selfPath(t), "-test.run=^TestAsAClientThatIsKilled$")
		cmd.Env = append(append([]string{}, own.env...), asClient+"=mcp "+strings.Join(args, " "))
		var out, errs watcher
		cmd.Stdout, cmd.Stderr = &out, &errs
		cmd.WaitDelay = time.Minute // the server has our stderr
		if !assert.NoError(t, cmd.Start()) {
			return fleet
		}
		up := func() bool { return strings.Contains(out.String(), "server ") }
		assert.Eventually(t, up, time.Minute, 10*time.Millisecond, "%s: %s%s", note, &out, &errs)
		time.Sleep(after)
		assert.NoError(t, cmd.Process.Kill(), note)
		_ = cmd.Wait()
		var pid int
		_, _ = fmt.Sscanf(out.String(), "server %d", &pid)
		assert.NotZero(t, pid, "%s: %s", note, &out)
		dies(t, fmt.Sprint(pid))
		assert.Empty(t, own.state(t), note)
		return fleet
	}

	s := own.serve(t, args...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	mine := rand.New(rand.NewPCG(r.Uint64(), 0))
	wg.Go(func() {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(ctx, &mcp.IOTransport{Reader: s.out, Writer: s.in}, &mcp.ClientSessionOptions{ProtocolVersion: protocols[mine.IntN(2)]})
		if err != nil {
			return // it died before that
		}
		for range 1 + mine.IntN(3) {
			other := rand.New(rand.NewPCG(mine.Uint64(), 0))
			wg.Go(func() { busy(ctx, session, other) })
		}
	})
	time.Sleep(after) // the point is any
	switch way {
	case "input":
		_ = s.in.Close()
	case "output":
		_ = s.out.Close()
	case "both":
		_, _ = s.in.Close(), s.out.Close()
	case "SIGTERM":
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
	case "SIGHUP":
		_ = s.cmd.Process.Signal(syscall.SIGHUP)
	default:
		_ = s.cmd.Process.Kill()
	}
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		t.Errorf("%s: the server lives on:\n%s", note, s.stderr)
	}
	if way != "SIGKILL of the server" {
		assert.NotContains(t, s.stderr.String(), "leak", note)
		assert.Empty(t, own.state(t), "%s:\n%s", note, s.stderr)
	}
	return fleet
}

// state returns the entries of a round's own journal.
func (b *bench) state(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(b.dir, "state", "sandglass", "journal", "*"))
	assert.NoError(t, err)
	return names
}
