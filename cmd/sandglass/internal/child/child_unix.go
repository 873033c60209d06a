//go:build unix

package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Process is a running program and its group. Its methods may be called concurrently.
type Process struct {
	pid      int
	guard    *exec.Cmd
	lifeline *os.File // its end is the guard's order to kill
	tty      bool     // the group has the terminal
	own      int      // our own group

	done chan struct{}
	code int // valid after done

	mu     sync.Mutex
	closed bool
}

// Start starts a program on this process's own standard streams. If standard input is the terminal and this process is
// in its foreground, the program takes its place there, so that it can read and gets Ctrl-C and Ctrl-Z itself. Errors
// match [ErrNotFound] or [ErrNotRun] where it is the program's fault.
//
// Close must be called, also after the program's end.
func Start(c Cmd) (*Process, error) {
	path, err := Find(c.Args[0])
	if err != nil {
		return nil, err
	}
	p := &Process{done: make(chan struct{}), own: unix.Getpgrp()}
	if err := p.startGuard(c.Guard); err != nil {
		return nil, fmt.Errorf("the guard of the process group: %w", err)
	}
	if fg, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil && fg == p.own {
		p.tty = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, p.group()) == nil
	}
	started := make(chan error)
	go func() {
		// The kernel's signal at the parent's death goes out when the thread that forked ends. This one ends with the
		// goroutine, since it is never unlocked.
		runtime.LockOSThread()
		attr := &syscall.SysProcAttr{Setpgid: true, Pgid: p.group()}
		dieWithParent(attr)
		pid, err := syscall.ForkExec(path, c.Args, &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}, Sys: attr})
		p.pid = pid
		started <- err
		if err == nil {
			p.wait()
		}
	}()
	if err := <-started; err != nil {
		close(p.done)
		p.Close()
		return nil, fmt.Errorf("%s: %w: %w", path, ErrNotRun, err)
	}
	return p, nil
}

// startGuard starts the guard and waits until it ignores signals.
func (p *Process) startGuard(args []string) error {
	end, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	defer end.Close()
	p.guard = exec.Command(args[0], args[1:]...)
	p.guard.Stdin = end
	p.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ready, err := p.guard.StdoutPipe()
	if err == nil {
		err = p.guard.Start()
	}
	if err != nil {
		lifeline.Close()
		return err
	}
	p.lifeline = lifeline
	if _, err := io.ReadFull(ready, make([]byte, len(readyWord))); err != nil {
		p.Close()
		return fmt.Errorf("it does not start: %w", err)
	}
	return nil
}

const readyWord = "ready"

// Guard is the guard's own work. It does not return if all goes well.
func Guard() error {
	signal.Ignore()
	if _, err := io.WriteString(os.Stdout, readyWord); err != nil {
		return err
	}
	os.Stdout.Close()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return syscall.Kill(0, syscall.SIGKILL) // itself too
}

// group is the id of the program's process group. The guard is its leader, and is not waited for before all is over.
func (p *Process) group() int { return p.guard.Process.Pid }

func (p *Process) wait() {
	defer close(p.done)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			p.code = 125
			return
		case status.Stopped():
			p.pause()
		case status.Signaled():
			p.code = 128 + int(status.Signal())
			return
		default:
			p.code = status.ExitStatus()
			return
		}
	}
}

// pause stops this process with the program, if that was stopped from the terminal: the shell, which has to get the
// terminal back, knows only us. While we are stopped nothing beats, and the lease runs out as it should.
func (p *Process) pause() {
	if !p.tty {
		return
	}
	p.takeTerminal(p.own)
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	<-woken // the stop may take effect only after the call has returned
	if fg, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil && fg == p.own {
		p.takeTerminal(p.group())
	}
	_ = syscall.Kill(-p.group(), syscall.SIGCONT)
}

// takeTerminal puts a group into the terminal's foreground. From the background that takes ignoring a signal, which
// must not be ignored when the program starts, for it would inherit that.
func (p *Process) takeTerminal(group int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group)
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the program's, or 128+n if signal n ended it. Valid after Done.
func (p *Process) ExitCode() int { return p.code }

// Signal sends s to the whole group.
func (p *Process) Signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := s.(syscall.Signal); ok && !p.closed {
		_ = syscall.Kill(-p.group(), n)
	}
}

// Terminate asks the group to end.
func (p *Process) Terminate() { p.Signal(syscall.SIGTERM) }

// Kill ends the group.
func (p *Process) Kill() { p.Signal(syscall.SIGKILL) }

// Close kills what is left of the group, and gives the terminal back.
func (p *Process) Close() {
	p.Kill()
	if p.pid != 0 {
		<-p.done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	_ = p.guard.Wait()
	_ = p.lifeline.Close()
	if p.tty {
		p.takeTerminal(p.own)
	}
}
