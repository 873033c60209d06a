package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/examples/internal/exampletest"
)

// asAgent, in the environment, has the test binary be an agent that makes a sandbox; "tidy" deletes it.
const asAgent = "SANDGLASS_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	how := os.Getenv(asAgent)
	if how == "" || len(os.Args) < 2 || os.Args[1] != "agent" {
		exampletest.Main(m, main)
	}
	env := map[string]string{}
	for _, v := range os.Environ() {
		k, v, _ := strings.Cut(v, "=")
		env[k] = v
	}
	a := e2b(env)
	if len(env["DAYTONA_API_URL"]) > 0 {
		a = daytona(env)
	}
	id, err := a.create()
	if err == nil && how == "tidy" {
		err = a.remove(id)
	}
	fmt.Println("made", id, err)
	if how == "fail" {
		os.Exit(7)
	}
	os.Exit(0)
}

// api is a service as its official SDK finds it, by the environment.
type api struct {
	base, sandboxes, order string
	header                 http.Header
}

func e2b(env map[string]string) api {
	return api{
		base: env["E2B_API_URL"], sandboxes: "/sandboxes", order: `{"templateID":"base","timeout":60,"metadata":{"run":"r1"}}`,
		header: http.Header{"X-Api-Key": {env["E2B_API_KEY"]}},
	}
}

func daytona(env map[string]string) api {
	return api{
		base: env["DAYTONA_API_URL"], sandboxes: "/sandbox", order: `{"labels":{"run":"r1"},"target":"` + env["DAYTONA_TARGET"] + `"}`,
		header: http.Header{"Authorization": {"Bearer " + env["DAYTONA_API_KEY"]}},
	}
}

func (a api) call(method, path, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, a.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = a.header.Clone()
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	return b, err
}

// create makes a sandbox and waits until it runs.
func (a api) create() (id string, err error) {
	b, err := a.call("POST", a.sandboxes, a.order)
	if err != nil {
		return "", err
	}
	var made struct{ SandboxID, ID string }
	if err := json.Unmarshal(b, &made); err != nil {
		return "", err
	}
	id = made.SandboxID + made.ID
	for range 500 {
		b, err := a.call("GET", a.sandboxes+"/"+id, "")
		if err != nil {
			return id, err
		}
		var now struct{ State string }
		if err := json.Unmarshal(b, &now); err != nil {
			return id, err
		}
		if now.State == "running" || now.State == "started" {
			return id, nil
		}
		time.Sleep(10 * time.Millisecond) // a real service in real time, asked as its SDK does
	}
	return id, errors.New("it does not get to run")
}

func (a api) remove(id string) error {
	_, err := a.call("DELETE", a.sandboxes+"/"+id, "")
	return err
}

// emulator runs the program. Once it has printed the environment, with is called with it, and the program is told
// to end.
func emulator(t *testing.T, with func(env map[string]string), set []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exampletest.Command(ctx, t, args...)
	cmd.Env = append(cmd.Env, set...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var all strings.Builder
	env := map[string]string{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		if text, ok := strings.CutPrefix(lines.Text(), "export "); ok {
			k, v, _ := strings.Cut(text, "=")
			env[k] = v
		}
		if with != nil && (env["E2B_SANDBOX_URL"] != "" || env["DAYTONA_USE_DEPRECATED_POLLING"] != "") {
			with(env)
			with = nil
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	err = cmd.Wait()
	t.Logf("it printed:\n%s%s", all.String(), errs.String())
	require.NoError(t, ctx.Err(), "it did not end")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	return all.String(), errs.String(), code
}

func TestWhatAClientLeavesIsNamed(t *testing.T) {
	for name, of := range map[string]func(map[string]string) api{"e2b": e2b, "daytona": daytona} {
		t.Run(name, func(t *testing.T) {
			var left, gone string
			_, stderr, code := emulator(t, func(env map[string]string) {
				a := of(env)
				var err error
				left, err = a.create()
				require.NoError(t, err)
				gone, err = a.create()
				require.NoError(t, err)
				require.NoError(t, a.remove(gone))
			}, nil, "-service", name)
			assert.Equal(t, leftBehind, code)
			assert.Contains(t, stderr, "emulator: left behind: "+left+" is running")
			assert.Contains(t, stderr, "map[")
			assert.Contains(t, stderr, gone+" is gone")
			assert.NotContains(t, stderr, "left behind: "+gone)
		})
		t.Run(name+", and where nothing is left that is said", func(t *testing.T) {
			_, stderr, code := emulator(t, func(env map[string]string) {
				a := of(env)
				id, err := a.create()
				require.NoError(t, err)
				require.NoError(t, a.remove(id))
			}, nil, "-service", name)
			assert.Zero(t, code)
			assert.Contains(t, stderr, "emulator: no sandbox is left")
		})
	}
}

func TestAProgramRunsWithTheEnvironmentOfItsSDK(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, name := range []string{"e2b", "daytona"} {
		for how, want := range map[string]int{"tidy": 0, "leave": leftBehind, "fail": 7} {
			t.Run(name+" "+how, func(t *testing.T) {
				stdout, stderr, code := emulator(t, nil, []string{asAgent + "=" + how}, "-service", name, "--", self, "agent")
				assert.Equal(t, want, code)
				assert.Regexp(t, `^made \S+ <nil>\n$`, stdout, "standard output is the program's alone")
				assert.Equal(t, how != "tidy", strings.Contains(stderr, "left behind"))
			})
		}
	}
	t.Run("one that cannot be run is an error", func(t *testing.T) {
		_, stderr, code := emulator(t, nil, nil, "--", "/no/such/program")
		assert.Equal(t, 1, code)
		assert.Contains(t, stderr, "emulator: ")
	})
}

func TestAnUnknownServiceIsAnError(t *testing.T) {
	_, stderr, code := emulator(t, nil, nil, "-service", "other")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, `service "other" is none of e2b and daytona`)
}
