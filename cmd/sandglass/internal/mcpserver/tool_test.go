package mcpserver_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// tools are the tools that a client is shown, by name.
func (c *pair) tools() map[string]*mcp.Tool {
	c.t.Helper()
	list, err := c.client.ListTools(c.t.Context(), nil)
	require.NoError(c.t, err)
	tools := map[string]*mcp.Tool{}
	for _, tool := range list.Tools {
		tools[tool.Name] = tool
	}
	return tools
}

func TestEveryToolIsDescribedForModelsDownToItsArgumentsAndResults(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version, scope: sandbox.Scope{Spec: sandbox.Spec{Ports: []int{8080, 9000}}}})
		tools := c.tools()
		names := []string{"run_command", "write_file", "read_file", "get_endpoint", "sandbox_info", "new_sandbox", "end_sandbox"}
		assert.Len(t, tools, len(names))
		for _, name := range names {
			tool := tools[name]
			require.NotNil(t, tool, name)
			assert.Greater(t, len(tool.Description), 40, name)
			assert.NotEmpty(t, tool.Annotations.Title, name)
			schema := func(v any) (s struct {
				Type       string
				Properties map[string]struct{ Description string }
			},
			) {
				text, err := json.Marshal(v)
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(text, &s))
				assert.Equal(t, "object", s.Type, name)
				return s
			}
			for arg, p := range schema(tool.InputSchema).Properties {
				assert.NotEmpty(t, p.Description, "%s: %s", name, arg)
			}
			assert.NotEmpty(t, schema(tool.OutputSchema).Properties, name)
		}
		assert.Contains(t, tools["get_endpoint"].Description, "8080, 9000")
		assert.True(t, tools["read_file"].Annotations.ReadOnlyHint)
		assert.False(t, tools["run_command"].Annotations.ReadOnlyHint)
		assert.Equal(t, "1.2.3", c.client.InitializeResult().ServerInfo.Version)
		assert.Contains(t, c.client.InitializeResult().Instructions, "deleted")
		assert.NoError(t, c.leave())
	})
}

func TestWhatAProviderCannotDoIsNotOffered(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		caps := sandboxtest.Everything()
		caps.Stdin, caps.SplitOutput, caps.Endpoints = false, false, false
		c := connect(t, setup{version: version, provider: sandboxtest.New(caps)})
		tools := c.tools()
		assert.NotContains(t, tools, "get_endpoint")
		text, err := json.Marshal(tools["run_command"].InputSchema)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "stdin")
		assert.Error(t, c.call(t.Context(), "run_command", map[string]any{"script": "cat", "stdin": "x"}, nil))
		out := c.sh("echo out; echo err >&2")
		assert.True(t, out.Merged)
		assert.Equal(t, "out\nerr\n", out.Stdout)
		assert.NoError(t, c.leave())

		c = connect(t, setup{version: version})
		assert.NotContains(t, c.tools(), "get_endpoint", "no port is declared")
		assert.NoError(t, c.leave())
	})
}

func TestACommandsEndIsAResultWhateverItIs(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version, scope: sandbox.Scope{Spec: sandbox.Spec{Env: map[string]string{"A": "spec"}}}})
		run := func(args map[string]any) (out ran) {
			require.NoError(t, c.call(t.Context(), "run_command", args, &out))
			return out
		}
		assert.Equal(t, 3, run(map[string]any{"script": "exit 3"}).ExitCode)
		assert.Equal(t, 127, run(map[string]any{"args": []string{"no-such-program"}}).ExitCode)
		out := run(map[string]any{"script": "sleep 100", "timeout_seconds": 2})
		assert.True(t, out.TimedOut)
		assert.Equal(t, -1, out.ExitCode)
		out = run(map[string]any{"script": "echo out $A $B; pwd; cat; echo err >&2", "env": map[string]string{"B": "call"}, "dir": "/tmp", "stdin": "in\n"})
		assert.Equal(t, "out spec call\n/tmp\nin\n", out.Stdout)
		assert.Equal(t, "err\n", out.Stderr)
		assert.Equal(t, "a  b\n", run(map[string]any{"args": []string{"echo", "a  b"}}).Stdout)
		out = run(map[string]any{"script": "seq 1 20000"})
		assert.True(t, out.Truncated)
		assert.Less(t, len(out.Stdout), 40_000)
		assert.Equal(t, 108_894, out.StdoutBytes)
		assert.True(t, strings.HasPrefix(out.Stdout, "1\n2\n"))
		assert.True(t, strings.HasSuffix(out.Stdout, "\n20000\n"))
		assert.Contains(t, out.Stdout, "bytes left out]")
		out = run(map[string]any{"script": "seq 1 20000", "max_output_bytes": 1 << 20})
		assert.False(t, out.Truncated)
		assert.NoError(t, c.leave())
	})
}

type file struct {
	Encoding   string
	Content    string
	Bytes      int
	More       bool
	NextOffset int `json:"next_offset"`
}

func TestFilesComeAndGoAsTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version})
		write := func(args map[string]any) { require.NoError(t, c.call(t.Context(), "write_file", args, nil)) }
		read := func(args map[string]any) (f file) {
			require.NoError(t, c.call(t.Context(), "read_file", args, &f))
			return f
		}
		write(map[string]any{"path": "/a/b/text", "content": "grün\n"})
		assert.Equal(t, file{"text", "grün\n", 6, false, 6}, read(map[string]any{"path": "/a/b/text"}))
		assert.Equal(t, "base64", read(map[string]any{"path": "/a/b/text", "encoding": "base64"}).Encoding)
		write(map[string]any{"path": "/bytes", "content_base64": "AP8="})
		assert.Equal(t, file{"base64", "AP8=", 2, false, 2}, read(map[string]any{"path": "/bytes"}))
		assert.Equal(t, "\x00\uFFFD", read(map[string]any{"path": "/bytes", "encoding": "text"}).Content)
		write(map[string]any{"path": "/empty", "content": ""})
		assert.Equal(t, file{"text", "", 0, false, 0}, read(map[string]any{"path": "/empty"}))

		whole := strings.Repeat("ä€😀x", 1000)
		write(map[string]any{"path": "/long", "content": whole})
		got, offset := "", 0
		for more := true; more; {
			f := read(map[string]any{"path": "/long", "offset": offset, "max_bytes": 333})
			require.Equal(t, "text", f.Encoding, "no part ends within a character")
			require.Greater(t, f.NextOffset, offset)
			got, offset, more = got+f.Content, f.NextOffset, f.More
		}
		assert.Equal(t, whole, got)
		assert.Equal(t, file{"text", "", 0, false, 99999}, read(map[string]any{"path": "/long", "offset": 99999}), "past the end")

		err := c.call(t.Context(), "read_file", map[string]any{"path": "/nowhere"}, nil)
		require.Error(t, err)
		assert.Contains(t, err.Error(), "no such file")
		assert.Contains(t, err.Error(), "lives on")
		assert.NoError(t, c.leave())
	})
}

func TestAnEndpointIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version, scope: sandbox.Scope{Spec: sandbox.Spec{Ports: []int{8080}}}})
		var out struct{ URL string }
		require.NoError(t, c.call(t.Context(), "get_endpoint", map[string]any{"port": 8080}, &out))
		assert.Regexp(t, "^http://.*8080$", out.URL)
		err := c.call(t.Context(), "get_endpoint", map[string]any{"port": 22}, nil)
		require.Error(t, err)
		assert.Contains(t, err.Error(), "8080")
		assert.NoError(t, c.leave())
	})
}

func TestAnErrorOfTheServiceSaysThatTheOutcomeIsNotKnown(t *testing.T) {
	bubble(t, func(t *testing.T, version string) {
		c := connect(t, setup{version: version})
		id := c.sh("true").SandboxID
		c.p.Fault(sandbox.OpExec, sandboxtest.Fault{Err: sandboxtest.Status(503)})
		err := c.call(t.Context(), "run_command", map[string]any{"script": "echo once >>/f"}, nil)
		require.Error(t, err)
		for _, words := range []string{id, "not known", "service unavailable", "presumed to live", "lease left"} {
			assert.Contains(t, err.Error(), words)
		}
		c.sh("true")
		assert.NoError(t, c.leave())
	})
}
