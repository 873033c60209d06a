package shell

import (
	"context"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	hostname    = "sandbox"
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// A Command is a program to be run in a file system.
type Command struct {
	Args   []string          // program and arguments; "sh", "-c" and a script for more than one program
	Env    map[string]string // beside PATH, HOME and HOSTNAME, which it may replace
	Dir    string            // absolute; default "/"
	User   string            // name or number of a user in /etc/passwd; default root
	Stdin  io.Reader         // nil: empty. Read only as far as the programs read, in pieces of 32 KiB
	Stdout io.Writer         // nil: discarded. Never written by two goroutines at once, also where Stderr is the same
	Stderr io.Writer

	// Exec, if it is not nil, is asked for each program that the file system does not have, or has in a form that only a
	// real machine can run. known is false where it does not know the program either, and must then have written
	// nothing. It has to return soon after ctx ended; its streams are good until then and safe for concurrent use.
	// A copy of c with other arguments, run in the same file system, is a child of the process that asked.
	Exec func(ctx context.Context, c Command) (exit int, known bool)

	// Ended, if it is not nil, is called when the command's own process has ended. What that leaves in the background is then
	// not killed, as it is otherwise, and Run returns when all of it has ended too.
	Ended func(exit int)

	PID int // its process's number, from [FS.NewPID]; 0: the next one

	parent *proc // of what an Exec runs in turn; nil: init
}

// Run runs c in f and returns its exit code: 126 for what cannot be run, 127 for what is not there, 128+n after signal n.
//
// When ctx ends, Run kills all that it started and returns 137 once it has stopped. It waits for a Write of the caller's
// that is under way, so that the caller may then look at what was written, but not for a Read: that one stays behind,
// in a goroutine that ends with it, and what it reads is lost. What c left in the background is killed when c ends, unless
// c.Ended says otherwise.
//
// The first process leads a session and a group, as those do that the agent of a sandbox starts.
func Run(ctx context.Context, f *FS, c Command) (exit int) {
	m := &machine{fs: f, hook: c.Exec, tickBegan: time.Now()}
	m.ctx, m.cancel = context.WithCancelCause(ctx)
	defer func() {
		if c.Ended != nil {
			c.Ended(exit)
			m.wg.Wait()
		}
		m.cancel(signalKill)
		m.wg.Wait()
	}()

	p := m.newProc(m.ctx)
	return p.run(func() int {
		p.checkAlive()
		stdout := newOutput(c.Stdout)
		stderr := stdout
		if !sameWriter(c.Stdout, c.Stderr) {
			stderr = newOutput(c.Stderr)
		}
		p.fds[0], p.fds[1], p.fds[2] = newDesc(newInput(c.Stdin)), newDesc(stdout), newDesc(stderr)
		if err := p.login(c); err != nil {
			p.errorf("exec: %v", err)
			return 126
		}
		if len(c.Args) == 0 || c.Args[0] == "" {
			p.errorf("exec: no program")
			return 127
		}
		env := environment(p, c.Env)
		p.become(c.Args[0], c.Args, env)
		if c.parent != nil && c.parent.m.fs != f {
			c.parent = nil
		}
		if m.enter(p, c.parent, c.PID) != nil {
			p.die()
		}
		return p.exec("exec", c.Args, env)
	})
}

// sameWriter reports whether both are one writer; values that cannot be compared are two.
func sameWriter(a, b io.Writer) bool {
	return a != nil && b != nil && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// login gives the first process its user and folder.
func (p *proc) login(c Command) error {
	name, _, _ := strings.Cut(c.User, ":")
	p.user = user{name: "root", home: "/root"}
	if name != "" {
		u, ok := p.m.fs.user(name)
		if !ok {
			return errno("no user " + strconv.Quote(name))
		}
		p.user = u
	}
	p.chdir("/")
	if c.Dir != "" {
		i, err := p.m.fs.stat(p.who(), c.Dir, true)
		if err == nil && !i.mode.IsDir() {
			err = errNotDir
		}
		if err != nil || !strings.HasPrefix(c.Dir, "/") {
			return errno("folder " + strconv.Quote(c.Dir) + ": " + errText(err, errInvalid))
		}
		p.chdir(c.Dir)
	}
	return nil
}

func errText(err error, other errno) string {
	if err == nil {
		return other.Error()
	}
	return err.Error()
}

// environment returns the first process's environment as a sorted list.
func environment(p *proc, extra map[string]string) []string {
	env := map[string]string{"PATH": defaultPath, "HOME": p.home, "HOSTNAME": hostname}
	maps.Copy(env, extra)
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

// user is who a process belongs to.
type user struct {
	name string
	uid  int
	home string
}

// user finds a user by name or number in /etc/passwd. A number that is not listed is a user without a name.
func (f *FS) user(who string) (user, bool) {
	var b strings.Builder
	if err := f.ReadFile("/etc/passwd", &b); err == nil {
		for line := range strings.Lines(b.String()) {
			field := strings.Split(strings.TrimSpace(line), ":")
			if len(field) < 6 || field[0] != who && field[2] != who {
				continue
			}
			if uid, err := strconv.Atoi(field[2]); err == nil {
				return user{field[0], uid, field[5]}, true
			}
		}
	}
	if uid, err := strconv.Atoi(who); err == nil && uid >= 0 {
		return user{who, uid, "/"}, true
	}
	return user{}, false
}
