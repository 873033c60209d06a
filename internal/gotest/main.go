// Command gotest runs go test with its own arguments and prints what go test prints without -v; then, at the very end
// where it is seen, which tests were skipped and why, and how many passed. It ends with go test's exit code.
//
// The packages that match "-alone pattern,pattern", which comes first if at all, are tested after all others and one
// at a time: those of which the clock is a real one, and which others would slow down. Where it comes several times, what
// one of them names is tested beside what the others name: they have to share no engine, and mostly wait.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
)

func main() {
	code, err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	os.Exit(code)
}

func run(args []string, stdout, stderr io.Writer) (code int, err error) {
	var alone []string
	for len(args) > 1 && args[0] == "-alone" {
		alone, args = append(alone, args[1]), args[2:]
	}
	rounds, err := split(args, alone, stderr)
	if err != nil {
		return 1, err
	}
	r := report{w: stdout, logs: map[string][]line{}, ended: map[test]string{}}
	defer r.close()
	for _, lanes := range rounds {
		codes, errs := make([]int, len(lanes)), make([]error, len(lanes))
		var all sync.WaitGroup
		for i, args := range lanes {
			all.Go(func() { codes[i], errs[i] = r.test(args, stderr) })
		}
		all.Wait()
		code = cmp.Or(code, cmp.Or(codes...))
		if err := errors.Join(errs...); err != nil {
			return code, err
		}
	}
	return code, nil
}

// split turns the arguments of one go test into those of several: a first round with the packages that no pattern of
// alone matches, and a second with a go test for each of alone's elements, to run side by side.
func split(args, alone []string, stderr io.Writer) (rounds [][][]string, err error) {
	if len(alone) == 0 {
		return [][][]string{{args}}, nil
	}
	first := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	if first < 0 {
		first = len(args)
	}
	flags := args[:first:first]
	all, err := list(args[first:], stderr)
	if err != nil {
		return nil, err
	}
	var lanes [][]string
	var taken []string
	for _, patterns := range alone {
		pkgs, err := list(strings.Split(patterns, ","), stderr)
		if err != nil {
			return nil, err
		}
		pkgs = slices.DeleteFunc(pkgs, func(pkg string) bool { return slices.Contains(taken, pkg) }) // to be tested once
		if taken = append(taken, pkgs...); len(pkgs) > 0 {
			lanes = append(lanes, slices.Concat(flags, []string{"-p=1"}, pkgs))
		}
	}
	all = slices.DeleteFunc(all, func(pkg string) bool { return slices.Contains(taken, pkg) })
	if len(all) > 0 {
		rounds = append(rounds, [][]string{slices.Concat(flags, all)})
	}
	return append(rounds, lanes), nil
}

// list names the packages that the patterns stand for, broken ones too. A pattern for none is an error.
func list(patterns []string, stderr io.Writer) ([]string, error) {
	cmd := exec.Command(goCommand(), append([]string{"list", "-e"}, patterns...)...)
	cmd.Stderr = stderr
	out, err := cmd.Output()
	pkgs := strings.Fields(string(out))
	if err == nil && len(pkgs) == 0 {
		err = errors.New("no packages")
	}
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(patterns, " "), err)
	}
	return pkgs, nil
}

func goCommand() string { return cmp.Or(os.Getenv("GO"), "go") }

// test runs go test once, and returns its exit code.
func (r *report) test(args []string, stderr io.Writer) (int, error) {
	cmd := exec.Command(goCommand(), append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	readErr := r.read(events)
	if readErr != nil {
		_, _ = io.Copy(io.Discard, events) // go test must be able to end
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode(), readErr
	}
	if err = errors.Join(err, readErr); err != nil {
		return 1, err
	}
	return 0, nil
}

// An event is one line of go test -json; see go doc test2json.
type event struct {
	Action, Package, Test, Output, FailedBuild string
}

// A test is named as go test names it; name is empty for what belongs to the package.
type test struct{ pkg, name string }

type line struct{ test, text string }

// A report turns events into what a person wants to read.
type report struct {
	w io.Writer

	mu      sync.Mutex
	logs    map[string][]line // by package, until it ends
	ended   map[test]string   // pass, fail or skip
	skips   []skip            // in the order of their first test
	passed  int
	failed  int
	skipped int
}

// A skip is why tests of one package were skipped.
type skip struct {
	pkg, first, reason string
	tests              int
}

func (r *report) read(events io.Reader) error {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		r.line(lines.Bytes())
	}
	return lines.Err()
}

func (r *report) line(text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if json.Unmarshal(text, &e) != nil { // not of the stream: what go itself has to say
		fmt.Fprintf(r.w, "%s\n", text)
		return
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.w, e.Output)
	case "output":
		r.logs[e.Package] = append(r.logs[e.Package], line{e.Test, e.Output})
	case "pass", "fail", "skip":
		r.end(e)
	}
}

// end takes note of a test's end, and at a package's end prints it.
func (r *report) end(e event) {
	t := test{e.Package, e.Test}
	r.ended[t] = e.Action
	switch {
	case e.Test == "":
		r.print(e)
		delete(r.logs, e.Package)
	case e.Action == "pass":
		r.passed++
	case e.Action == "fail":
		r.failed++
	default:
		r.skipped++
		r.skip(t)
	}
}

func (r *report) skip(t test) {
	reason := r.reason(t)
	for i, s := range r.skips {
		if s.pkg == t.pkg && s.reason == reason {
			r.skips[i].tests++
			return
		}
	}
	r.skips = append(r.skips, skip{t.pkg, t.name, reason, 1})
}

// position is what testing puts ahead of a message.
var position = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// reason is what a skipped test said last: a later message begins anew, with its position.
func (r *report) reason(t test) string {
	var words []string
	for _, l := range r.logs[t.pkg] {
		if l.test != t.name || isFrame(l.text) {
			continue
		}
		if at := position.FindString(l.text); at != "" {
			words, l.text = nil, l.text[len(at):]
		}
		words = append(words, strings.Fields(l.text)...)
	}
	return cmp.Or(strings.Join(words, " "), "no reason given")
}

// isFrame reports whether testing wrote text around a test, rather than the test itself.
func isFrame(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- ")
}

// print prints the closing line of a package, and if it failed all of its own output, that of its failed tests and
// that of those which never ended.
func (r *report) print(e event) {
	logs := r.logs[e.Package]
	if e.Action != "fail" {
		if len(logs) > 0 {
			fmt.Fprint(r.w, logs[len(logs)-1].text)
		}
		return
	}
	blamed := false
	for _, l := range logs {
		end := r.ended[test{e.Package, l.test}]
		blamed = blamed || l.test != "" && end == "fail"
		if end != "pass" && end != "skip" && !strings.HasPrefix(l.text, "=== ") {
			fmt.Fprint(r.w, l.text)
		}
	}
	if !blamed { // it did not build, or died outside of its tests
		r.failed++
	}
}

func (r *report) close() {
	for _, s := range r.skips {
		more := ""
		if s.tests > 1 {
			more = fmt.Sprintf(" and %d more", s.tests-1)
		}
		fmt.Fprintf(r.w, "skipped: %s.%s%s: %s\n", s.pkg, s.first, more, s.reason)
	}
	fmt.Fprintf(r.w, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}
