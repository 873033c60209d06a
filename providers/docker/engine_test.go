package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// image is imported into the engine by whoever sets it up; nothing is pulled.
const image = "busybox:latest"

const fleet = "docker-test"

func TestMain(m *testing.M) {
	if order := os.Getenv(errandVar); order != "" {
		errandMain(order)
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // nearly all of these tests wait for an engine or for an end
		_ = flag.Set("test.parallel", "8")
	}
	os.Exit(m.Run())
}

// engine returns a provider for the engine of the environment, or skips the test, or fails it where SANDGLASS_NO_SKIP is 1.
func engine(t testing.TB) *docker.Provider {
	t.Helper()
	p, err := docker.FromEnv()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only for an engine that hangs
	defer cancel()
	if _, err := p.Check(ctx); err != nil {
		if os.Getenv("SANDGLASS_NO_SKIP") == "1" {
			t.Fatalf("no Docker engine: %v", err)
		}
		t.Skipf("no Docker engine: %v", err)
	}
	return p
}

// judge returns a client of the test's own: the engine's word, asked without the code under test.
func judge(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New(client.FromEnv)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// order returns a request for a sandbox with the window and an hour of life.
func order(window time.Duration) sandbox.CreateRequest {
	return sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: fleet, Owner: "tester", Nonce: strings.ToLower(rand.Text())[:16],
			Created: time.Now().UTC().Truncate(time.Second), Lifetime: time.Hour,
		},
		Spec:   sandbox.Spec{Image: image},
		Window: window,
	}
}

// create makes a sandbox that is removed with the test, if it has not ended by then.
func create(t testing.TB, p *docker.Provider, req sandbox.CreateRequest) sandbox.Info {
	t.Helper()
	c := judge(t)
	t.Cleanup(func() {
		_, err := c.ContainerRemove(context.Background(), req.Mark.Name(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			t.Errorf("remove: %v", err)
		}
	})
	info, err := p.Create(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, sandbox.StateRunning, info.State)
	return info
}

// exists reports whether the engine knows a container of this name or id, in any state.
func exists(t testing.TB, name string) bool {
	t.Helper()
	_, err := judge(t).ContainerInspect(context.Background(), name, client.ContainerInspectOptions{})
	if err != nil && !errdefs.IsNotFound(err) {
		require.NoError(t, err)
	}
	return err == nil
}

// until polls the condition and returns how long it took to become true.
func until(t testing.TB, limit time.Duration, what string, condition func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	require.Eventually(t, condition, limit, 50*time.Millisecond, what)
	return time.Since(began)
}

// removal is how long the engine may take to notice that a process has ended, and to remove its container, on a busy
// machine with two cores.
const removal = 20 * time.Second

// run executes a command of which success is expected, and returns its standard output.
func run(t testing.TB, sb sandbox.Sandbox, cmd sandbox.Cmd) string {
	t.Helper()
	r, err := sb.Exec(t.Context(), cmd)
	require.NoError(t, err)
	require.NoError(t, r.Err())
	return string(r.Stdout)
}

// imported gives the engine an image made of programs of this machine, by the paths that they get inside, with the
// libraries that these need, or skips the test where a program is not here.
func imported(t testing.TB, name string, programs map[string]string) string {
	t.Helper()
	files := map[string]string{}
	for inside, here := range programs {
		real, err := filepath.EvalSymlinks(here)
		if err != nil {
			t.Skipf("this machine has no %s to make an image of", here)
		}
		files[inside] = real
		out, _ := exec.Command("ldd", real).Output() // a static program has none
		for _, word := range strings.Fields(string(out)) {
			if strings.HasPrefix(word, "/") {
				files[word] = word
			}
		}
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for inside, here := range files {
		data, err := os.ReadFile(here)
		require.NoError(t, err)
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(inside, "/"), Mode: 0o755, Size: int64(len(data))}))
		_, err = w.Write(data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return imports(t, name, &archive)
}

// derived returns the archive of an image that has busybox and the files, by exporting the base image's container.
func derived(t testing.TB, files map[string]string) io.Reader {
	t.Helper()
	c := judge(t)
	made, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: image, Cmd: []string{"true"}}})
	require.NoError(t, err)
	defer func() {
		_, _ = c.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{Force: true})
	}()
	export, err := c.ContainerExport(t.Context(), made.ID, client.ContainerExportOptions{})
	require.NoError(t, err)
	defer export.Close()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for r := tar.NewReader(export); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if _, ours := files[h.Name]; ours {
			continue
		}
		require.NoError(t, w.WriteHeader(h))
		_, err = io.Copy(w, r)
		require.NoError(t, err)
	}
	for name, text := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &out
}

// imports gives the engine an image of the archive, and takes it away with the test.
func imports(t testing.TB, name string, archive io.Reader, changes ...string) string {
	t.Helper()
	ref := fmt.Sprintf("sandglass-test/%s:%s", name, strings.ToLower(rand.Text()))
	c := judge(t)
	r, err := c.ImageImport(t.Context(), client.ImageImportSource{Source: archive, SourceName: "-"}, ref, client.ImageImportOptions{Changes: changes})
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	t.Cleanup(func() {
		_, err := c.ImageRemove(context.Background(), ref, client.ImageRemoveOptions{Force: true})
		if err != nil {
			t.Errorf("remove image: %v", err)
		}
	})
	return ref
}
