package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal returns the two ends of a new terminal: the one that a person sits at, and the program's.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	person = os.NewFile(uintptr(fd), "terminal") // not blocking, so that a close ends a read
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return person, program
}

// runAt starts the program as the leader of a terminal's session, as after a remote login.
func (b *bench) runAt(t *testing.T, args ...string) (person *os.File, screen *watcher, wait func() int, pid int) {
	t.Helper()
	person, program := terminal(t)
	cmd := b.command(t.Context(), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, program.Close())
	screen = &watcher{}
	go func() { _, _ = io.Copy(screen, person) }() // ends when the terminal is closed
	return person, screen, func() int {
		_ = cmd.Wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
			return 128 + int(status.Signal())
		}
		return cmd.ProcessState.ExitCode()
	}, cmd.Process.Pid
}

func TestAClosedTerminalLeavesNothing(t *testing.T) {
	for name, script := range map[string]string{
		"and a program that ends with it":  "while :; do sleep 0.1; done",
		"and a program that ignores it":    "trap '' HUP TERM; while :; do sleep 0.1; done",
		"and a program that goes on to it": "trap '' HUP; while :; do echo output; sleep 0.05; done",
	} {
		t.Run(name, func(t *testing.T) {
			p, host := engine(t)
			b := newBench(t, host)
			fleet := fleetOf(t)
			ready := filepath.Join(b.dir, "ready")
			person, _, wait, _ := b.runAt(t, "run", "-p", "docker", "-f", fleet, "--grace", "1s", "--window", window.String(), "--beat", "5s", "--",
				"sh", "-c", "echo $$ >"+ready+"; "+script)
			pid := until(t, ready)
			require.Len(t, left(t, p, fleet), 1)
			require.NoError(t, person.Close())
			code := wait()
			assert.NotZero(t, code)
			dies(t, pid)
			assert.Empty(t, left(t, p, fleet), "it was deleted, not left to the lease")
			assert.Empty(t, b.spool())
		})
	}
}

func TestAtATerminalTheProgramReadsAndGetsControlC(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	person, screen, wait, _ := b.runAt(t, "run", "-p", "e2b", "-f", "ci", "--", "sh", "-c", "read line; echo heard $line; sleep 300")
	defer person.Close()
	screen.await(t, "runs on")
	_, err := io.WriteString(person, "hello\r")
	require.NoError(t, err)
	screen.await(t, "heard hello")
	_, err = person.Write([]byte{3})
	require.NoError(t, err)
	assert.Equal(t, 128+2, wait(), "%s", screen)
	assert.Empty(t, e.fake.Sandboxes())
}

func TestColoursAndRedrawingAreForTerminalsAlone(t *testing.T) {
	e := newE2B(t)
	e.forget(t, e.make(t, "ci", "dead.1", "a", time.Hour, nil))
	show := func(env ...string) string {
		b := newBench(t, append(append([]string{"TERM=xterm"}, env...), e.env...)...)
		person, screen, wait, _ := b.runAt(t, "ls", "-p", "e2b")
		defer person.Close()
		screen.await(t, "dead.1")
		assert.Equal(t, 0, wait())
		return screen.String()
	}
	colour := "\x1b[33mdormant\x1b[0m"
	text := show()
	assert.Contains(t, text, colour)
	assert.Contains(t, text, "\r\x1b[Klooking through 1 accounts", "a line that is redrawn")
	assert.NotContains(t, show("NO_COLOR=1"), "\x1b[33m")
	assert.Contains(t, show("NO_COLOR=1"), "dormant", "a colour is never the only sign")

	b := newBench(t, append([]string{"TERM=xterm"}, e.env...)...)
	r := b.run("ls", "-p", "e2b")
	assert.NotContains(t, r.stdout+r.stderr, "\x1b")
}

func TestLsWatchRedrawsOnATerminal(t *testing.T) {
	e := newE2B(t)
	id := e.make(t, "ci", "build-7.1", "a", time.Hour, nil)
	b := newBench(t, e.env...)
	person, screen, wait, pid := b.runAt(t, "ls", "--watch", "--every", "100ms")
	defer person.Close()
	require.Eventually(t, func() bool { return strings.Count(screen.String(), "\x1b[H") >= 3 }, time.Minute, 20*time.Millisecond)
	assert.Contains(t, screen.String(), id)
	require.NoError(t, syscall.Kill(pid, syscall.SIGINT))
	assert.Equal(t, 0, wait())
}

// TestControlZStopsTheRunAndItGoesOn has an interactive shell do what a person's does: stop a job, and bring it back.
func TestControlZStopsTheRunAndItGoesOn(t *testing.T) {
	bash := needs(t, "bash")
	e := newE2B(t)
	b := newBench(t, e.env...)
	person, program := terminal(t)
	cmd := exec.CommandContext(t.Context(), bash, "--norc", "--noprofile", "-i")
	cmd.Dir, cmd.Env = b.dir, append(append([]string{}, b.env...), "PS1=prompt$ ", asProgram+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, program.Close())
	screen := &watcher{}
	go func() { _, _ = io.Copy(screen, person) }()
	write := func(text string) {
		_, err := io.WriteString(person, text)
		require.NoError(t, err)
	}
	write(selfPath(t) + " run -p e2b -f ci -- sh -c 'echo up and $((40+2)); read line; echo heard $line'\r")
	screen.await(t, "up and 42")
	write("\x1a")
	screen.await(t, "Stopped")
	write("echo shell $((1+1))\r")
	screen.await(t, "shell 2")
	said := strings.Count(screen.String(), " run -p e2b")
	write("fg\r") // the shell says which job it is, and then reads no more of what is typed
	require.Eventually(t, func() bool { return strings.Count(screen.String(), " run -p e2b") > said }, time.Minute, 20*time.Millisecond)
	write("hello\r")
	screen.await(t, "heard hello")
	screen.await(t, "seen to be gone")
	write("echo code $?.\rexit\r")
	screen.await(t, "code 0.")
	_ = cmd.Wait()
	require.NoError(t, person.Close())
	assert.Empty(t, e.fake.Sandboxes())
}

func TestAFullDiskStopsTheRunBeforeTheCreate(t *testing.T) {
	p, host := engine(t)
	b := newBench(t, host)
	fleet := fleetOf(t)
	disk := smallDisk(t)
	spool := filepath.Join(disk, "spool")
	require.NoError(t, os.Mkdir(spool, 0o700))
	fill(t, disk)
	r := b.run("run", "-p", "docker", "-f", fleet, "--journal", spool, "--", "true")
	assert.Equal(t, exitOurs, r.code)
	assert.Contains(t, r.stderr, "no space left")
	assert.Empty(t, left(t, p, fleet))

	t.Run("and doctor says why", func(t *testing.T) {
		r := b.run("doctor", "-p", "docker", "--journal", spool)
		assert.Equal(t, 1, r.code)
		assert.Contains(t, r.stdout, "no space left")
	})
}

func TestADiskThatFillsUpMeanwhileLeavesNothing(t *testing.T) {
	p, host := engine(t)
	b := newBench(t, host)
	fleet := fleetOf(t)
	disk := smallDisk(t)
	// Our own words go to the full disk too: no line of them can be written, and nothing waits for that.
	stderr, err := os.Create(filepath.Join(disk, "stderr"))
	require.NoError(t, err)
	defer stderr.Close()
	full := filepath.Join(b.dir, "full")
	cmd := b.command(t.Context(), "run", "-p", "docker", "-f", fleet, "--journal", filepath.Join(disk, "spool"), "--history", filepath.Join(disk, "history"),
		"--window", window.String(), "--beat", "5s", "--", "sh", "-c", "while [ ! -e "+full+" ]; do sleep 0.05; done; sleep 7; exit 6")
	cmd.Stderr = stderr
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return len(left(t, p, fleet)) == 1 }, time.Minute, 50*time.Millisecond)
	fill(t, disk)
	require.NoError(t, os.WriteFile(full, nil, 0o600))
	_ = cmd.Wait()
	assert.Equal(t, 6, cmd.ProcessState.ExitCode(), "beats and the end need no disk")
	assert.Empty(t, left(t, p, fleet))
	names, err := filepath.Glob(filepath.Join(disk, "spool", "*"))
	require.NoError(t, err)
	assert.Empty(t, names)
}

// smallDisk mounts a small file system and returns where.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=0700")
	switch {
	case err == nil:
	case os.Getenv("SANDGLASS_NO_SKIP") == "1":
		t.Fatal("no file system may be mounted here: ", err)
	default:
		t.Skip("no file system may be mounted here: ", err)
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fill"))
	require.NoError(t, err)
	for size := 4096; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(bytes.Repeat([]byte{1}, size))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	require.NoError(t, f.Close())
}
