package shell

import (
	"bytes"
	"context"
	"io"
	"strings"
)

// maxInterpreters is how often a script's interpreter may be a script itself.
const maxInterpreters = 4

// exec runs a program in p itself, to its end, and returns its exit status. who speaks in messages.
func (p *proc) exec(who string, args, env []string) int {
	var why error
	exe := ""
	for range maxInterpreters {
		name, head, err := p.lookPath(args[0], envGet(env, "PATH"))
		why = err
		if err != nil {
			break
		}
		if exe == "" {
			exe = name
		}
		if applet, ok := bytes.CutPrefix(head, []byte(appletMagic)); ok {
			run := findApplet(strings.TrimSpace(string(applet)))
			if run == nil {
				why = errExecFormat
				break
			}
			p.become(exe, args, env)
			return runTool(p, run, args, env)
		}
		line, _, _ := bytes.Cut(head, []byte("\n"))
		interpreter, ok := bytes.CutPrefix(line, []byte("#!"))
		switch {
		case ok:
			by, arg, _ := strings.Cut(strings.TrimSpace(string(interpreter)), " ")
			args = append(interpreterArgs(by, strings.TrimSpace(arg)), append([]string{name}, args[1:]...)...)
			if by == "" {
				args[0] = "/bin/sh"
			}
			continue
		case bytes.IndexByte(head, 0) >= 0:
			why = errExecFormat
		default: // text without a first line of that kind is a script for sh
			args = append([]string{"/bin/sh", name}, args[1:]...)
			continue
		}
		break
	}
	if why == errNotExist || why == errExecFormat {
		if exit, known := p.askHook(args, env); known {
			return exit
		}
	}
	switch why {
	case errNotExist:
		p.errorf("%s: %s: not found", who, args[0])
		return 127
	case nil:
		why = errLoop
	}
	p.errorf("%s: %s: %v", who, args[0], why)
	return 126
}

func interpreterArgs(by, arg string) []string {
	if arg == "" {
		return []string{by}
	}
	return []string{by, arg}
}

// lookPath finds a program and returns its path and its first bytes.
func (p *proc) lookPath(name, path string) (string, []byte, error) {
	const headSize = 256
	if strings.Contains(name, "/") {
		head, err := p.m.fs.head(p.who(), p.abs(name), headSize)
		return name, head, err
	}
	if path == "" {
		path = defaultPath
	}
	var found error = errNotExist
	for dir := range strings.SplitSeq(path, ":") {
		if name == "" || name == "." || name == ".." {
			break
		}
		full := strings.TrimSuffix(dir, "/") + "/" + name
		if dir == "" {
			full = "./" + name
		}
		head, err := p.m.fs.head(p.who(), p.abs(full), headSize)
		if err == nil {
			return full, head, nil
		}
		if err == errAccess {
			if i, err := p.m.fs.stat(p.who(), p.abs(full), true); err == nil && i.mode.IsRegular() {
				found = errAccess
			}
		}
	}
	return "", nil, found
}

// askHook offers a program to the test's own function.
func (p *proc) askHook(args, env []string) (int, bool) {
	if p.m.hook == nil {
		return 0, false
	}
	p.become(args[0], args, env)
	vars := map[string]string{}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	exit, known := p.m.hook(p.ctx, Command{
		Args: args, Env: vars, Dir: p.dir, User: p.name,
		Stdin: hookStream{p, p.fds[0]}, Stdout: hookStream{p, p.fds[1]}, Stderr: hookStream{p, p.fds[2]},
		Exec: p.m.hook, parent: p,
	})
	p.checkAlive()
	return exit, known
}

// hookStream is a descriptor for a function of the test's, which must not be unwound: it gets errors.
type hookStream struct {
	p *proc
	d *desc
}

func (s hookStream) Read(b []byte) (int, error) {
	if s.d == nil {
		return 0, errBadFD
	}
	n, err := s.d.f.read(s.p, b)
	return n, s.err(err)
}

func (s hookStream) Write(b []byte) (int, error) {
	if s.d == nil {
		return 0, errBadFD
	}
	n, err := s.d.f.write(s.p, b)
	return n, s.err(err)
}

func (s hookStream) err(err error) error {
	switch err {
	case errKilled:
		return context.Cause(s.p.ctx)
	case errPipe:
		return io.ErrClosedPipe
	}
	return err
}

func envGet(env []string, name string) string {
	for _, kv := range env {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v
		}
	}
	return ""
}
