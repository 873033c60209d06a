// Command emulator serves an E2B or a Daytona in memory on this machine, so that code with the provider's official SDK,
// in any language, runs offline and without an account. At its end it says what that code has left behind.
//
//	go run ./examples/emulator -service e2b
//	go run ./examples/emulator -service daytona -- node agent.mjs
//
// The first prints the environment that the SDK needs and serves until SIGINT (Ctrl-C) or SIGTERM. The second runs a
// program with that environment and ends with it; standard output is the program's alone. What happens to each sandbox
// goes to standard error. The exit code is 3 if a sandbox is left, else that of the program.
//
// Commands run in an in-memory shell with some ninety utilities, never on this machine: there is no Python in it, nor
// a network.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func main() {
	name := flag.String("service", "e2b", "what to serve: e2b or daytona")
	addr := flag.String("addr", "127.0.0.1:0", "where to listen; port 0: any that is free")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, *name, *addr, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "emulator:", err)
	}
	os.Exit(code)
}

// leftBehind is the exit code where a sandbox is left.
const leftBehind = 3

func run(ctx context.Context, name, addr string, program []string) (code int, err error) {
	s, err := newService(name)
	if err != nil {
		return 2, err
	}
	defer s.close()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return 1, err
	}
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		_ = server.Close()
		<-served
	}()

	env := s.env("http://" + l.Addr().String())
	if len(program) == 0 {
		for _, v := range env {
			fmt.Println("export " + v)
		}
		select {
		case err := <-served:
			served <- err
			return 1, err
		case <-ctx.Done():
		}
	} else if code, err = runProgram(ctx, program, env); err != nil {
		return 1, err
	}
	if s.report() && code == 0 {
		code = leftBehind
	}
	return code, nil
}

// runProgram returns the exit code of a program, which a signal reaches too: it then has ten seconds to end.
func runProgram(ctx context.Context, args, env []string) (int, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
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
func (s *service) report() bool {
	ending := func(b box) bool { return b.state == sandbox.StateEnding }
	left := s.left()
	for end := time.Now().Add(5 * time.Second); slices.ContainsFunc(left, ending) && time.Now().Before(end); left = s.left() {
		time.Sleep(20 * time.Millisecond)
	}
	if len(left) == 0 {
		fmt.Fprintln(os.Stderr, "emulator: no sandbox is left")
		return false
	}
	for _, b := range left {
		fmt.Fprintln(os.Stderr, "emulator: left behind:", b)
	}
	return true
}
