// Package deps_test holds the layout to its rules: who may import whom, and where third-party code may enter.
package deps_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/sandglass-dev/sandglass"

// A pkg is one of our packages, as go list tells of it.
type pkg struct {
	Name                               string
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	Module                             struct{ Path string }
}

// A graph holds our packages by their path below the module's: "ttl", "providers/docker".
type graph map[string]*pkg

// layers are the places of the layout. A package reaches lower layers only; packages of one unit are one. What lies
// in internal has no layer of its own: it is looked through.
func layer(path string) (level int, unit string, known bool) {
	parts := strings.Split(path, "/")
	switch parts[0] {
	case "ttl", "heartbeat", "sandbox":
		if len(parts) == 1 {
			return slices.Index([]string{"ttl", "heartbeat", "sandbox"}, path), path, true
		}
		if unit = strings.Join(parts[:2], "/"); unit == "sandbox/sandboxotel" { // watches sweeps and checks too
			return 4, unit, true
		}
		return 3, unit, parts[0] == "sandbox"
	case "providers": // may know sweep: whether an owner lives is told in its words
		return 4, strings.Join(parts[:min(2, len(parts))], "/"), len(parts) > 1
	case "cmd", "deploy", "examples", "sdkcheck", "speccheck":
		return 5, parts[0], true
	}
	return 0, "", false
}

func within(path, tree string) bool { return path == tree || strings.HasPrefix(path, tree+"/") }

// own returns the path below our module's, if imported is ours.
func own(imported string) (path string, ok bool) { return strings.CutPrefix(imported, module+"/") }

func thirdParty(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return strings.Contains(first, ".") && !within(imported, module)
}

// mayParse says where the shell of the in-memory provider may be known.
func mayParse(path string) bool {
	return within(path, "internal/fake") || path == "sandbox/sandboxtest"
}

// mayFake says who may serve the fakes of services: beside those who parse for them, what serves them to others' SDKs.
func mayFake(path string) bool {
	return mayParse(path) || path == "cmd/sandglass/internal/emulate"
}

// check returns every rule that g breaks, with the way there.
func check(g graph) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, path := range slices.Sorted(maps.Keys(g)) {
		p := g[path]
		level, unit, known := layer(path)
		if !known && !within(path, "internal") {
			fault("%s has no place in the layout: give it one in layer, or move it", path)
			continue
		}
		for _, word := range append(strings.Split(path, "/"), p.Name) {
			if slices.Contains([]string{"util", "utils", "common", "types", "helpers", "misc"}, word) {
				fault("%s: a package named %s says nothing of what is in it", path, word)
				break
			}
		}
		for _, imported := range p.Imports {
			switch to, ours := own(imported); {
			case ours && within(to, "internal/fake") && !mayFake(path):
				fault("%s imports %s: only tests, sandboxtest and the emulator may", path, to)
			case ours && path == "providers/providertest" && to != "sandbox":
				fault("%s imports %s: it knows nothing of ours but sandbox", path, to)
			}
		}
		for to, way := range reach(g, path) {
			toLevel, toUnit, layered := layer(to)
			if known && layered && toUnit != unit && toLevel >= level {
				fault("%s reaches %s, which lies beside or above it: %s", path, to, way)
			}
			for _, imported := range g[to].Imports {
				switch {
				case !thirdParty(imported) || p.Module.Path != module:
				case mayParse(path) && within(to, "internal/fake/shell") && within(imported, "mvdan.cc/sh/v3"):
				default:
					fault("%s reaches third-party %s, and this module's own code is on the standard library: %s", path, imported, way)
				}
			}
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			allowed := within(imported, "github.com/stretchr/testify") || within(imported, "go.uber.org/goleak") ||
				within(imported, "mvdan.cc/sh/v3") && within(path, "internal/fake/shell")
			if p.Module.Path == module && thirdParty(imported) && !allowed {
				fault("tests of %s import %s: beside the standard library they may use testify and goleak", path, imported)
			}
		}
	}
	return faults
}

// reach returns all of our packages that from's code leads to, itself included, each with a way to it.
func reach(g graph, from string) map[string]string {
	ways := map[string]string{from: from}
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		for _, imported := range g[todo[0]].Imports {
			to, ours := own(imported)
			if _, seen := ways[to]; ours && !seen && g[to] != nil {
				ways[to] = ways[todo[0]] + " -> " + to
				todo = append(todo, to)
			}
		}
	}
	return ways
}

// load lists every package of the workspace as it is built for one system.
func load(t *testing.T, goos string) graph {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=Name,ImportPath,Imports,TestImports,XTestImports,Module", "work")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	g := graph{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &pkg{}
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return g
		} else {
			require.NoError(t, err)
		}
		path, ours := own(p.ImportPath)
		require.True(t, ours, "%s is not below %s", p.ImportPath, module)
		g[path] = p
	}
}

func TestOurPackagesKeepTheRules(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			g := load(t, goos)
			for _, path := range []string{"ttl", "heartbeat", "sandbox", "sandbox/sandboxtest", "providers/providertest", "providers/docker", "internal/fake/shell", "examples/quickstart"} {
				assert.Contains(t, g, path, "the list has not all of the workspace")
			}
			assert.Empty(t, check(g))
		})
	}
}

// TestTheRulesCanBeBroken shows each rule at work: one import too many, and it is named.
func TestTheRulesCanBeBroken(t *testing.T) {
	// sound is a small workspace as it should be. The maps are packages to what they import.
	sound := func() graph {
		g := graph{}
		for path, imports := range map[string][]string{
			"ttl":                      {"time"},
			"heartbeat":                {"context", module + "/ttl"},
			"sandbox":                  {module + "/heartbeat", module + "/ttl"},
			"sandbox/sandboxtest":      {module + "/sandbox", module + "/internal/fake"},
			"sandbox/sweep":            {module + "/sandbox"},
			"providers/providertest":   {"testing", module + "/sandbox"},
			"providers/e2b":            {"net/http", module + "/sandbox", module + "/internal/httpapi"},
			"providers/docker":         {module + "/sandbox", "github.com/moby/moby/client"},
			"sandbox/sandboxotel":      {module + "/sandbox/sweep", "go.opentelemetry.io/otel"},
			"cmd/sandglass":            {module + "/sandbox/sweep", module + "/providers/docker"},
			"examples/quickstart":      {module + "/sandbox/sandboxtest", module + "/examples/internal/choose"},
			"examples/internal/choose": {module + "/providers/docker"},
			"internal/httpapi":         {"net/http"},
			"internal/fake":            {module + "/sandbox", module + "/internal/fake/shell"},
			"internal/fake/shell":      {"mvdan.cc/sh/v3/syntax"},
		} {
			p := &pkg{Name: path[strings.LastIndex(path, "/")+1:], ImportPath: module + "/" + path, Imports: imports}
			p.Module.Path = module
			if level, _, _ := layer(path); level == 5 || path == "providers/docker" || path == "sandbox/sandboxotel" {
				p.Module.Path += "/other"
			}
			p.XTestImports = []string{"github.com/stretchr/testify/require", "go.uber.org/goleak", module + "/sandbox/sandboxtest", module + "/internal/fake"}
			g[path] = p
		}
		return g
	}
	require.Empty(t, check(sound()))

	for name, tt := range map[string]struct {
		path, imports string
		want          string
	}{
		"ttl gains a third-party import":             {"ttl", "golang.org/x/exp/maps", "ttl reaches third-party golang.org/x/exp/maps"},
		"heartbeat gains a third-party import":       {"heartbeat", "github.com/cenkalti/backoff/v5", "heartbeat reaches third-party"},
		"sandbox gains a third-party import":         {"sandbox", "go.opentelemetry.io/otel", "sandbox reaches third-party"},
		"an HTTP adapter gains a third-party import": {"providers/e2b", "github.com/hashicorp/go-retryablehttp", "providers/e2b reaches third-party"},
		"an HTTP adapter gains one on a detour":      {"internal/httpapi", "golang.org/x/time/rate", "providers/e2b -> internal/httpapi"},
		"the suite gains a third-party import":       {"providers/providertest", "github.com/stretchr/testify/require", "providers/providertest reaches third-party"},
		"the fake gains another third-party import":  {"internal/fake", "github.com/google/uuid", "sandbox/sandboxtest reaches third-party"},
		"the shell's parser is used elsewhere":       {"sandbox/sandboxtest", "mvdan.cc/sh/v3/syntax", "sandbox/sandboxtest reaches third-party"},
		"sweep takes in the shell":                   {"sandbox/sweep", module + "/sandbox/sandboxtest", "sandbox/sweep reaches third-party mvdan.cc/sh/v3/syntax"},
		"ttl imports heartbeat":                      {"ttl", module + "/heartbeat", "ttl reaches heartbeat, which lies beside or above it"},
		"heartbeat imports sandbox":                  {"heartbeat", module + "/sandbox", "heartbeat reaches sandbox"},
		"sandbox imports a provider":                 {"sandbox", module + "/providers/e2b", "sandbox reaches providers/e2b"},
		"sandbox imports its test provider":          {"sandbox", module + "/sandbox/sandboxtest", "sandbox reaches sandbox/sandboxtest"},
		"sweep imports what watches it":              {"sandbox/sweep", module + "/sandbox/sandboxotel", "sandbox/sweep reaches sandbox/sandboxotel"},
		"a provider imports another":                 {"providers/docker", module + "/providers/e2b", "providers/docker reaches providers/e2b"},
		"a provider reaches another on a detour":     {"internal/httpapi", module + "/providers/docker", "providers/e2b -> internal/httpapi -> providers/docker"},
		"sweep imports a provider":                   {"sandbox/sweep", module + "/providers/e2b", "sandbox/sweep reaches providers/e2b"},
		"a provider imports an example":              {"providers/docker", module + "/examples/internal/choose", "providers/docker reaches examples/internal/choose"},
		"a provider imports the fake":                {"providers/e2b", module + "/internal/fake", "providers/e2b imports internal/fake: only tests, sandboxtest and the emulator may"},
		"the command imports the fake":               {"cmd/sandglass", module + "/internal/fake", "cmd/sandglass imports internal/fake: only"},
		"an example imports the fake":                {"examples/quickstart", module + "/internal/fake/shell", "examples/quickstart imports internal/fake/shell: only"},
		"the suite imports more than sandbox":        {"providers/providertest", module + "/ttl", "it knows nothing of ours but sandbox"},
	} {
		t.Run(name, func(t *testing.T) {
			g := sound()
			g[tt.path].Imports = append(g[tt.path].Imports, tt.imports)
			assert.Contains(t, strings.Join(check(g), "\n"), tt.want)
		})
	}
	t.Run("a test gains another third-party import", func(t *testing.T) {
		g := sound()
		g["ttl"].TestImports = []string{"pgregory.net/rapid"}
		assert.Contains(t, strings.Join(check(g), "\n"), "tests of ttl import pgregory.net/rapid")
	})
	for _, path := range []string{"sandbox/util", "internal/common", "internal/fake/types", "ttl/x", "pkg"} {
		t.Run("a package "+path+" appears", func(t *testing.T) {
			g := sound()
			g[path] = &pkg{Name: "x"}
			faults := check(g)
			require.Len(t, faults, 1)
			assert.Contains(t, faults[0], path)
		})
	}
	t.Run("a package is named common in a folder of another name", func(t *testing.T) {
		g := sound()
		g["internal/httpapi"].Name = "common"
		assert.Contains(t, strings.Join(check(g), "\n"), "internal/httpapi: a package named common")
	})
}
