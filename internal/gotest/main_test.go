package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gotest runs the command over a module with the given files and returns what it printed and its exit code.
func gotest(t *testing.T, files map[string]string, args ...string) (output string, code int) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "gotest")
	out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)

	dir := t.TempDir()
	files["go.mod"] = "module scratch\n\ngo 1.26.0\n"
	for name, content := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	cmd := exec.Command(bin, append(args, "./...")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err = cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	require.NoError(t, err)
	return string(out), 0
}

func TestSkipsAreNamedWithTheirReasonAndPassingTestsAreQuiet(t *testing.T) {
	out, code := gotest(t, map[string]string{"a/a_test.go": `package a
import "testing"
func TestEngine(t *testing.T)   { t.Log("looking"); t.Skip("no Docker engine: nothing\nanswers") }
func TestEngineToo(t *testing.T) { t.Skip("no Docker engine: nothing answers") }
func TestOther(t *testing.T)    { t.Run("sub", func(t *testing.T) { t.Skip("another reason") }) }
func TestSilent(t *testing.T)   { t.SkipNow() }
func TestFine(t *testing.T)     { t.Log("chatter") }
`})
	assert.Zero(t, code, out)
	assert.Regexp(t, `(?m)^ok  \tscratch/a\t`, out)
	assert.Contains(t, out, "skipped: scratch/a.TestEngine and 1 more: no Docker engine: nothing answers\n")
	assert.Contains(t, out, "skipped: scratch/a.TestOther/sub: another reason\n")
	assert.Contains(t, out, "skipped: scratch/a.TestSilent: no reason given\n")
	assert.Contains(t, out, "\n2 passed, 0 failed, 4 skipped\n")
	assert.NotContains(t, out, "chatter")
}

func TestAFailureIsPrintedAndItsExitCodeKept(t *testing.T) {
	out, code := gotest(t, map[string]string{
		"a/a_test.go": `package a
import "testing"
func TestFine(t *testing.T) { t.Log("chatter") }
func TestBad(t *testing.T)  { t.Run("sub", func(t *testing.T) { t.Error("wrong colour") }) }
`,
		"b/b_test.go": "package b\nimport \"testing\"\nfunc TestPanic(t *testing.T) { panic(\"boo\") }\n",
		"c/c_test.go": "package c\nimport (\"os\"; \"testing\")\nfunc TestExit(t *testing.T) { os.Exit(3) }\n",
		"d/d_test.go": "package d\nfunc f() { undefined() }\n",
		"e/e_test.go": "package e\nimport \"testing\"\nfunc TestFine(t *testing.T) {}\n",
	})
	assert.Equal(t, 1, code, out)
	for _, want := range []string{"wrong colour", "--- FAIL: TestBad/sub", "panic: boo", "undefined: undefined", "FAIL\tscratch/a", "FAIL\tscratch/d [build failed]"} {
		assert.Contains(t, out, want)
	}
	assert.NotContains(t, out, "chatter")
	assert.Regexp(t, `(?m)^ok  \tscratch/e\t`, out)
	assert.Regexp(t, `(?m)^2 passed, 5 failed, 0 skipped$`, out, "TestBad and its subtest, TestPanic, and the packages c and d")
}

func TestAPatternWithoutPackagesFails(t *testing.T) {
	out, code := gotest(t, map[string]string{"broken/x.go": "not go"})
	assert.NotZero(t, code, out)
}

func TestWhatIsTestedAloneComesAfterAllElseAndOneAtATime(t *testing.T) {
	// Each of a and b leaves word of itself while it runs, and fails where it finds another's.
	lonely := func(pkg string) string {
		return "package " + pkg + `
import ("os"; "testing"; "time")
func TestAlone(t *testing.T) {
	if _, err := os.Stat("../c/done"); err != nil { t.Error("c has not ended", err) }
	if err := os.Mkdir("../here", 0o755); err != nil { t.Error("not alone:", err) }
	time.Sleep(200 * time.Millisecond)
	if err := os.Remove("../here"); err != nil { t.Error(err) }
}
`
	}
	files := map[string]string{
		"a/a_test.go":     lonely("a"),
		"b/b_test.go":     lonely("b"),
		"c/c_test.go":     "package c\nimport (\"os\"; \"testing\")\nfunc TestC(t *testing.T) { os.WriteFile(\"done\", nil, 0o644); t.Skip(\"had enough\") }\n",
		"d/sub/d_test.go": "package sub\nimport \"testing\"\nfunc TestBad(t *testing.T) { t.Error(\"wrong colour\") }\n",
	}
	out, code := gotest(t, files, "-alone", "./a,./b", "-count=1")
	assert.Equal(t, 1, code, "the first round's failure is the whole's: %s", out)
	assert.Regexp(t, `(?s)skipped: scratch/c.TestC: had enough\n2 passed, 1 failed, 1 skipped\n$`, out)

	out, code = gotest(t, files, "-alone", "./nowhere/...", "-count=1")
	assert.NotZero(t, code, "a pattern that matches nothing is a mistake")
	assert.Contains(t, out, "./nowhere/...")
}

func TestWhatIsTestedAloneTwiceIsTestedSideBySide(t *testing.T) {
	// a waits for what b leaves, and b for what a leaves; c, which is of a's company, finds a at its end.
	meets := func(pkg, other string) string {
		return "package " + pkg + `
import ("os"; "testing"; "time")
func TestMeet(t *testing.T) {
	if _, err := os.Stat("../first/done"); err != nil { t.Error("the others have not ended", err) }
	if err := os.WriteFile("here", nil, 0o644); err != nil { t.Fatal(err) }
	for range 3000 {
		if _, err := os.Stat("../` + other + `/here"); err == nil { return }
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("` + other + ` never came")
}
`
	}
	files := map[string]string{
		"a/a_test.go":         meets("a", "b"),
		"b/b_test.go":         meets("b", "a"),
		"c/c_test.go":         "package c\nimport (\"os\"; \"testing\")\nfunc TestC(t *testing.T) { if _, err := os.Stat(\"../a/here\"); err != nil { t.Error(err) } }\n",
		"first/first_test.go": "package first\nimport (\"os\"; \"testing\")\nfunc TestFirst(t *testing.T) { os.WriteFile(\"done\", nil, 0o644) }\n",
	}
	out, code := gotest(t, files, "-alone", "./a,./c", "-alone", "./b,./c", "-count=1")
	assert.Zero(t, code, out)
	assert.Regexp(t, `(?m)^4 passed, 0 failed, 0 skipped$`, out, "c, which both name, is tested once")
}
