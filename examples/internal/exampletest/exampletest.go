// Package exampletest helps the examples' own tests.
package exampletest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandglass-dev/sandglass/examples/internal/demo"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// asProgram, in the environment, has a test binary be the program that it tests.
const asProgram = "SANDGLASS_TEST_AS_PROGRAM"

// Main is for TestMain: it runs the tests, or main in a process that [Command] has started. So the program runs with
// the race detector where the tests do.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Command returns the program under test with the given arguments.
func Command(ctx context.Context, t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// Engine returns the Docker engine of the environment. Without one the test is skipped, or fails if the environment
// has SANDGLASS_NO_SKIP=1.
func Engine(t testing.TB) sandbox.Provider {
	t.Helper()
	p, _, err := demo.Provider(t.Context(), "docker")
	switch {
	case err == nil:
		return p
	case os.Getenv("SANDGLASS_NO_SKIP") == "1":
		t.Fatalf("no Docker engine: %v", err)
	default:
		t.Skipf("no Docker engine: %v", err)
	}
	return nil
}

// Left returns the sandboxes of a process that the provider still has, in any state. The process goes by the default
// of [sandbox.Config.Owner].
func Left(t testing.TB, p sandbox.Provider, fleet string, pid int) []sandbox.Info {
	t.Helper()
	var left []sandbox.Info
	for info, err := range p.List(t.Context(), sandbox.Filter{Fleet: fleet}) {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		if strings.HasSuffix(info.Mark.Owner, fmt.Sprintf(".%d", pid)) {
			left = append(left, info)
		}
	}
	return left
}
