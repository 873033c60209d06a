package vercelfake

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// defaultUser is who commands run as, and who files belong to, unless a command is for root.
const defaultUser = "vercel-sandbox"

// disk returns the session's file system, which begins with the files of its snapshot.
func (s *Server) disk(ctx context.Context, ses *session) *shell.FS {
	s.mu.Lock()
	f, base := ses.files, ses.base
	s.mu.Unlock()
	if f != nil {
		return f
	}
	f = newDisk(ctx)
	if base != nil {
		copyDisk(ctx, base, f)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses.files == nil { // else another command was quicker, and nobody has seen this disk
		ses.files = f
	}
	return ses.files
}

// newDisk returns what an image holds.
func newDisk(ctx context.Context) *shell.FS {
	f := shell.NewFS()
	const passwd = "root:x:0:0:root:/root:/bin/sh\nuser:x:1001:1001:user:/home/user:/bin/sh\n" +
		defaultUser + ":x:1000:1000:" + defaultUser + ":" + workDir + ":/bin/bash\n"
	_ = f.WriteFile("/etc/passwd", strings.NewReader(passwd)) // there is room on a new disk
	tool(ctx, f, nil, "mkdir", "-p", workDir)
	tool(ctx, f, nil, "chown", defaultUser, workDir)
	return f
}

// copyDisk copies all but programs and devices, with owners.
func copyDisk(ctx context.Context, from, to *shell.FS) {
	list, _, _ := tool(ctx, from, nil, "ls", "-A", "/")
	var names []string
	for name := range strings.Lines(list) {
		name = strings.TrimSpace(name)
		if name == "usr" {
			name = "usr/local"
		}
		if name != "bin" && name != "sbin" && name != "dev" {
			names = append(names, name)
		}
	}
	archive, _, _ := tool(ctx, from, nil, append([]string{"tar", "-cf", "-", "-C", "/"}, names...)...)
	tool(ctx, to, strings.NewReader(archive), "tar", "-xf", "-", "-C", "/")
	owners := map[string][]string{}
	for r := tar.NewReader(strings.NewReader(archive)); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		owners[h.Uname] = append(owners[h.Uname], "/"+h.Name)
	}
	for owner, files := range owners {
		for some := range slices.Chunk(files, 100) {
			tool(ctx, to, nil, append([]string{"chown", owner}, some...)...)
		}
	}
}

// tool runs one utility as root and returns what it wrote.
func tool(ctx context.Context, f *shell.FS, in io.Reader, args ...string) (stdout, stderr string, exit int) {
	var out, errs bytes.Buffer
	exit = shell.Run(ctx, f, shell.Command{Args: args, Stdin: in, Stdout: &out, Stderr: &errs})
	return out.String(), strings.TrimSpace(errs.String()), exit
}

// within returns a path as the service understands it: relative ones lie in cwd, which itself may lie in the session's.
func within(cwd, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	if !path.IsAbs(cwd) {
		cwd = path.Join(workDir, cwd)
	}
	return path.Join(cwd, name)
}

// command is how the shell runs what body asks for.
func (b *commandBody) command(conf config) shell.Command {
	c := shell.Command{Args: append([]string{b.Command}, b.Args...), Dir: within(b.CWD, "."), User: defaultUser}
	c.Env = map[string]string{"HOME": workDir, "USER": defaultUser}
	if b.Sudo {
		c.User, c.Env = "root", map[string]string{"HOME": "/root", "USER": "root"}
	}
	maps.Copy(c.Env, conf.env)
	maps.Copy(c.Env, b.Env)
	return c
}

// found reports whether a machine has a program.
func found(ctx context.Context, f *shell.FS, c shell.Command) bool {
	look := shell.Command{
		Args: []string{"sh", "-c", `command -v -- "$1" >/dev/null`, "sh", c.Args[0]}, Env: c.Env, Dir: c.Dir, User: c.User,
	}
	return strings.TrimSpace(c.Args[0]) != "" && shell.Run(ctx, f, look) == 0
}
