//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// A unit is a component's process, which can be started again with the same arguments. Its parent's death ends it.
type unit struct {
	name string
	args []string // with the program's path first
	log  string   // the file that output is appended to

	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd was waited for; err is set before
	err   error
}

// environ is what components see of our environment: nothing of a user's cluster or proxy.
func environ() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/nonexistent", "TMPDIR=" + os.TempDir()}
}

// start starts the unit's process, unless it runs.
func (u *unit) start() error {
	if u.runs() {
		return fmt.Errorf("%s runs already", u.name)
	}
	if err := os.MkdirAll(filepath.Dir(u.log), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(u.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(u.args[0], u.args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environ(), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", u.name, err)
	}
	u.cmd, u.ended = cmd, make(chan struct{})
	go func() {
		u.err = cmd.Wait()
		close(u.ended)
	}()
	return nil
}

func (u *unit) runs() bool {
	if u.cmd == nil {
		return false
	}
	select {
	case <-u.ended:
		return false
	default:
		return true
	}
}

// failure says why the unit's process has ended by itself, with the end of its log. It is nil while the process runs.
func (u *unit) failure() error {
	if u.runs() {
		return nil
	}
	return fmt.Errorf("%s has ended: %v; its log ends with\n%s", u.name, u.err, tail(u.log, 2000))
}

// The signals that a test may send. TERM and KILL wait for the end.
var signals = map[string]syscall.Signal{
	"STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL,
}

func (u *unit) signal(name string) error {
	sig, known := signals[name]
	if !known {
		return fmt.Errorf("unknown signal %q", name)
	}
	if !u.runs() {
		return fmt.Errorf("%s does not run", u.name)
	}
	if err := u.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", u.name, err)
	}
	if sig != syscall.SIGTERM && sig != syscall.SIGKILL {
		return nil
	}
	select {
	case <-u.ended:
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s goes on 30 s after SIG%s", u.name, name)
	}
}

// A group holds the units of one place, in the order of their start.
type group []*unit

func (g group) named(name string) *unit {
	if i := slices.IndexFunc(g, func(u *unit) bool { return u.name == name }); i >= 0 {
		return g[i]
	}
	return nil
}

// kill ends all units, the last one first.
func (g group) kill() error {
	var errs []error
	for _, u := range slices.Backward(g) {
		if u.runs() {
			errs = append(errs, u.signal("KILL"))
		}
	}
	return errors.Join(errs...)
}

// tail returns the last part of a file, or why there is none.
func tail(path string, size int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-size):])
}
