package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A Process is a running program. Its methods may be called concurrently.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	code int // valid after done
	once sync.Once
}

// Start starts a program on this process's own standard streams. Errors match [ErrNotFound] or [ErrNotRun] where it is
// the program's fault. Ctrl-C reaches the program by itself, for it shares the console.
//
// The job object is this process's own, so that what the program starts is in it from its first instant on; the price is
// that it ends with this process and not before.
func Start(c Cmd) (*Process, error) {
	path, err := Find(c.Args[0])
	if err != nil {
		return nil, err
	}
	if err := joinJob(); err != nil {
		return nil, fmt.Errorf("job object: %w", err)
	}
	p := &Process{done: make(chan struct{}), cmd: exec.Command(path, c.Args[1:]...)}
	p.cmd.Env = c.Env
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrNotRun, err)
	}
	go func() {
		defer close(p.done)
		err := p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			p.code = 125
		}
	}()
	return p, nil
}

// joinJob puts this process into a job whose only handle is its own, and never closed: its end is the job's.
func joinJob() error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return err
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		_ = windows.CloseHandle(job)
		return err
	}
	if err := windows.AssignProcessToJobObject(job, windows.CurrentProcess()); err != nil {
		_ = windows.CloseHandle(job)
		return err
	}
	return nil
}

// Guard is not needed here.
func Guard() error { return errors.ErrUnsupported }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the program's. Valid after Done.
func (p *Process) ExitCode() int { return p.code }

// Signal does nothing: the console tells the program itself.
func (p *Process) Signal(os.Signal) {}

// Terminate kills the program: there is no way to ask.
func (p *Process) Terminate() { p.Kill() }

// Kill ends the program. What it has started ends with this process.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Close kills the program if it still runs.
func (p *Process) Close() {
	p.once.Do(func() {
		p.Kill()
		<-p.done
	})
}
