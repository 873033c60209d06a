package emulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// LeftBehind is the exit code of [Run] where a sandbox is left.
const LeftBehind = 3

// Options say what [Run] is to do.
type Options struct {
	Service string   // one of [Services]
	Addr    string   // see [Start]
	Program []string // to be run with the service's environment; empty: serve until the context ends
	JSON    bool     // print the environment as one line of JSON, in place of export lines

	Stdin          io.Reader // of the program
	Stdout, Stderr io.Writer // the environment, or the program's output, alone; and what happens, live, beside what the program writes there
}

// Told is what [Run] prints with Options.JSON.
type Told struct {
	Service string            `json:"service"`
	URL     string            `json:"url"`
	Page    string            `json:"page"`
	Env     map[string]string `json:"env"`
}

// Run serves a service until ctx ends, or with a program until that ends, and then says what is left there. code is the exit
// code for the command: the program's, 128+n if signal n ended it, and else [LeftBehind] if a sandbox is left. With an error
// it is 1, or 2 if the options are wrong. When ctx ends the program is asked to, and has 10 seconds.
func Run(ctx context.Context, o Options) (code int, err error) {
	p := newPrinter(o.Stderr)
	defer p.close()
	s, err := start(o.Service, o.Addr, p.line)
	if err != nil {
		if isUsage(err) {
			return 2, err
		}
		return 1, err
	}
	defer s.Close()
	p.line("page     " + s.Page())
	if s.Hint() != "" {
		p.line("note     " + s.Hint())
	}
	if len(o.Program) == 0 {
		if err := s.printEnv(o); err != nil {
			return 1, fmt.Errorf("emulate: %w", err)
		}
		select {
		case err := <-s.failed:
			return 1, fmt.Errorf("emulate: %w", err)
		case <-ctx.Done():
		}
	} else if code, err = runProgram(ctx, o, s.Env()); err != nil {
		return 1, fmt.Errorf("emulate: %w", err)
	}
	if s.report(p.line) && code == 0 {
		code = LeftBehind
	}
	return code, nil
}

func (s *Server) printEnv(o Options) error {
	if !o.JSON {
		for _, v := range s.Env() {
			if _, err := fmt.Fprintln(o.Stdout, "export "+v); err != nil {
				return err
			}
		}
		return nil
	}
	told := Told{Service: s.svc.name, URL: s.URL(), Page: s.Page(), Env: map[string]string{}}
	for _, v := range s.Env() {
		k, v, _ := strings.Cut(v, "=")
		told.Env[k] = v
	}
	return json.NewEncoder(o.Stdout).Encode(told)
}

// runProgram returns the exit code of a program.
func runProgram(ctx context.Context, o Options, env []string) (int, error) {
	cmd := exec.CommandContext(ctx, o.Program[0], o.Program[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, o.Stdout, o.Stderr
	cmd.Cancel = func() error {
		if runtime.GOOS == "windows" { // which has no such signal
			return cmd.Process.Kill()
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// report says what is left, and whether anything is. What is being deleted may take a moment.
func (s *Server) report(tell func(string)) bool {
	var left []Sandbox
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left = s.Left()
		ending := false
		for _, b := range left {
			ending = ending || b.ending()
		}
		if !ending || time.Now().After(end) {
			break
		}
	}
	if len(left) == 0 {
		tell("end      no sandbox is left")
		return false
	}
	for _, b := range left {
		tell("end      left behind: " + b.describe(time.Now()))
	}
	return true
}
