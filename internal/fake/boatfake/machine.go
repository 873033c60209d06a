package boatfake

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

const (
	user    = "user"
	homeDir = "/home/user"
	logDir  = homeDir + "/.ascii/processes"
)

// disk returns the sandbox's file system.
func (s *Server) disk(ctx context.Context, b *box) *shell.FS {
	s.mu.Lock()
	f := b.files
	s.mu.Unlock()
	if f != nil {
		return f
	}
	f = shell.NewFS()
	f.SetQuota(int64(sizes[b.order.size].disk) << 30)
	tool(ctx, f, user, nil, "mkdir", "-p", logDir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.files == nil { // else another call was quicker, and nobody has seen this disk
		b.files = f
	}
	return b.files
}

// tool runs one utility and returns what it wrote.
func tool(ctx context.Context, f *shell.FS, as string, in io.Reader, args ...string) (stdout, stderr string, exit int) {
	var out, errs bytes.Buffer
	exit = shell.Run(ctx, f, shell.Command{Args: args, User: as, Stdin: in, Stdout: &out, Stderr: &errs})
	return out.String(), strings.TrimSpace(errs.String()), exit
}

// within returns a path as the service understands it: relative ones lie in the user's home.
func within(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(homeDir, name)
}

// run is how the shell runs a command's text.
func (s *Server) run(b *box, text, cwd string) shell.Command {
	env := map[string]string{"HOME": homeDir, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "BOAT_ID": WireID(b.id)}
	maps.Copy(env, b.order.env)
	return shell.Command{
		Args: []string{"bash", "-lc", text}, Env: env, Dir: within(cwd), User: user,
		Exec: func(ctx context.Context, c shell.Command) (int, bool) { return s.external(ctx, b, c) },
	}
}

// external runs what the shell does not have: sudo.
func (s *Server) external(ctx context.Context, b *box, c shell.Command) (int, bool) {
	if path.Base(c.Args[0]) != "sudo" {
		return 0, false
	}
	f := s.disk(ctx, b)
	inner, err := sudo(c)
	if err == nil {
		if _, _, exit := tool(ctx, f, "", nil, "id", "-u", inner.User); exit != 0 {
			err = fmt.Errorf("unknown user %s", inner.User)
		}
	}
	if err != nil {
		fmt.Fprintf(c.Stderr, "sudo: %v\n", err)
		return 1, true
	}
	return shell.Run(ctx, f, inner), true
}

// sudo is the command that a call of sudo runs. Nobody is asked for a password.
func sudo(c shell.Command) (shell.Command, error) {
	as, keep, home, args := "root", false, false, c.Args[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		flag := args[0]
		args = args[1:]
		switch flag {
		case "-n", "--non-interactive":
			continue
		case "-H", "--set-home":
			home = true
			continue
		case "-E", "--preserve-env":
			keep = true
			continue
		case "-u", "--user":
			if len(args) == 0 {
				return c, fmt.Errorf("option requires an argument -- 'u'")
			}
			as, args = args[0], args[1:]
			continue
		case "--":
		default:
			return c, fmt.Errorf("option %s is not supported here", flag)
		}
		break
	}
	env := map[string]string{"PATH": c.Env["PATH"], "SUDO_USER": c.User}
	if keep {
		maps.Copy(env, c.Env)
	}
	if home {
		delete(env, "HOME") // the shell sets the user's own
	}
	env["USER"], env["LOGNAME"] = as, as
	for len(args) > 0 {
		k, v, ok := strings.Cut(args[0], "=")
		if !ok || !envName.MatchString(k) {
			break
		}
		env[k], args = v, args[1:]
	}
	if len(args) == 0 {
		return c, fmt.Errorf("a command is required")
	}
	c.Args, c.Env, c.User = args, env, as
	return c, nil
}
