// Package drive has tests order a provider's official SDK about, which runs in a process of node's.
package drive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// oldestNode is the oldest major version of node on which all of the SDKs run.
const oldestNode = 20

// An SDK is a program that drives one SDK.
type SDK struct {
	T       *testing.T
	orders  io.Writer
	answers *json.Decoder
}

// A Fault is an error as the SDK's user sees it.
type Fault struct {
	Class, Message string
	Code           string // the service's word, where the SDK hands it on
	StatusCode     int
	ExitCode       int
	Stdout, Stderr string
}

// Options are named arguments.
type Options map[string]any

// With returns a copy that has another argument too.
func (o Options) With(name string, value any) Options {
	o = maps.Clone(o)
	o[name] = value
	return o
}

// Start runs a program of sdkcheck's folder with the SDK that its package.json knows by name, and with next to no
// environment. It ends with the test, which fails if the SDK tried to reach anything but 127.0.0.1. Without node or the
// SDKs the test is skipped.
func Start(t *testing.T, folder, program, name string) *SDK {
	t.Helper()
	here := Installed(t, folder)
	cmd := exec.Command("node", "--require", filepath.Join(here, "loopback.cjs"), filepath.Join(here, program), name)
	cmd.Dir = t.TempDir() // the SDKs read .env files where they run
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir}
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	limit := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Kill() }) // it outlives the test's own context
	s := &SDK{t, stdin, json.NewDecoder(stdout)}
	t.Cleanup(func() {
		defer limit.Stop()
		defer func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("the program's end: %v", err)
			}
		}()
		defer stdin.Close()
		if strays := Ask[[]string](s, "strays"); len(strays) > 0 {
			t.Errorf("the SDK tried to reach beyond 127.0.0.1: %q", strays)
		}
	})
	return s
}

// In returns the same program for a subtest, which has it look for its service where env says.
func (s *SDK) In(t *testing.T, env Options) *SDK {
	t.Helper()
	in := &SDK{t, s.orders, s.answers}
	in.Must("open", env)
	return in
}

// Installed returns sdkcheck's folder in full if all is there that the SDKs need. Else the test is skipped, or fails with
// SANDGLASS_NO_SKIP=1.
func Installed(t *testing.T, folder string) string {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("SANDGLASS_NO_SKIP") == "1" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	node, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		missing("no node, which runs the official SDKs: %v", err)
	}
	var major int
	if _, err := fmt.Sscanf(string(node), "v%d.", &major); err != nil || major < oldestNode {
		missing("node %s is too old for the official SDKs, which want %d", bytes.TrimSpace(node), oldestNode)
	}
	if _, err := os.Stat(filepath.Join(folder, "node_modules")); err != nil {
		missing("no official SDKs in sdkcheck/node_modules: make sdkcheck installs them")
	}
	for name, want := range Pinned(t, folder) {
		var is struct{ Version string }
		read(t, &is, folder, "node_modules", name, "package.json")
		if is.Version != Version(want) {
			t.Fatalf("%s is there as %s and not as %s: make sdkcheck installs what package.json asks for", name, is.Version, Version(want))
		}
	}
	here, err := filepath.Abs(folder)
	must(t, err)
	return here
}

// Pinned returns the SDKs that package.json in sdkcheck's folder asks for and their versions.
func Pinned(t *testing.T, folder string) map[string]string {
	t.Helper()
	var asked struct{ Dependencies map[string]string }
	read(t, &asked, folder, "package.json")
	return asked.Dependencies
}

// Version returns the version of a dependency, which may go by another name than its own.
func Version(dependency string) string { return dependency[strings.LastIndex(dependency, "@")+1:] }

// Do has the SDK do something, and returns what it reports or its error.
func (s *SDK) Do(action string, args ...any) (json.RawMessage, *Fault) {
	s.T.Helper()
	order, err := json.Marshal(append([]any{action}, args...))
	must(s.T, err)
	if _, err := s.orders.Write(append(order, '\n')); err != nil {
		s.T.Fatalf("%s: the program has ended: %v", action, err)
	}
	var answer struct {
		Value json.RawMessage
		Error *Fault
	}
	if err := s.answers.Decode(&answer); err != nil {
		s.T.Fatalf("%s: the program has ended: %v", action, err)
	}
	return answer.Value, answer.Error
}

// Ask has the SDK do something that succeeds, and returns what it reports.
func Ask[T any](s *SDK, action string, args ...any) T {
	s.T.Helper()
	raw, failed := s.Do(action, args...)
	if failed != nil {
		s.T.Fatalf("%s%v: %+v", action, args, *failed)
	}
	var got T
	if err := json.Unmarshal(raw, &got); err != nil {
		s.T.Fatalf("%s%v reports %s: %v", action, args, raw, err)
	}
	return got
}

// Must has the SDK do something that succeeds and reports nothing of interest.
func (s *SDK) Must(action string, args ...any) {
	s.T.Helper()
	Ask[any](s, action, args...)
}

// Fails has the SDK do something that fails with an error of class.
func (s *SDK) Fails(class, action string, args ...any) Fault {
	s.T.Helper()
	raw, failed := s.Do(action, args...)
	switch {
	case failed == nil:
		s.T.Fatalf("%s%v succeeds and reports %s", action, args, raw)
	case failed.Class != class:
		s.T.Fatalf("%s%v fails with %s and not with %s: %s", action, args, failed.Class, class, failed.Message)
	}
	return *failed
}

// read decodes a JSON file.
func read(t *testing.T, into any, path ...string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(path...))
	must(t, err)
	must(t, json.Unmarshal(raw, into))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
