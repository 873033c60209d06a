package modalfake

import (
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// diskOf returns a sandbox's file system, which begins with the files of its image and its volumes. No caller that leaves
// can have it half made.
func (s *Server) diskOf(b *box) *shell.FS {
	ctx := s.base
	s.mu.Lock()
	f, base, docker := b.disk, b.image.files, b.def.GetExperimentalOptionsV2()["enable_docker"]
	noShell := s.quirks.NoShell
	s.mu.Unlock()
	if f != nil {
		return f
	}
	f = shell.NewFS()
	if base != nil {
		copyDisk(ctx, base, f)
	}
	if strings.EqualFold(docker, "true") || docker == "1" {
		tool(ctx, f, nil, "mkdir", "-p", "/var/lib/docker")
	}
	if dir := b.workdir(); dir != "/" {
		tool(ctx, f, nil, "mkdir", "-p", dir)
	}
	s.fetch(ctx, b.def.GetVolumeMounts(), f)
	if noShell {
		tool(ctx, f, nil, "rm", "-f", "/bin/sh", "/bin/bash", "/bin/ash", "/bin/dash")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.disk == nil { // else another command was quicker, and nobody has seen this disk
		b.disk = f
	}
	return b.disk
}

// workdir is where commands of b run unless they say otherwise.
func (b *box) workdir() string {
	switch {
	case b.def.GetWorkdir() != "":
		return b.def.GetWorkdir()
	case b.image.workdir != "":
		return b.image.workdir
	}
	return "/"
}

// copyDisk copies all but programs and devices.
func copyDisk(ctx context.Context, from, to *shell.FS) { copyRoot(ctx, from, to, "/") }

// copyRoot copies the same into a folder.
func copyRoot(ctx context.Context, from, to *shell.FS, into string) {
	list, _ := tool(ctx, from, nil, "ls", "-A", "/")
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
	archive, _ := tool(ctx, from, nil, append([]string{"tar", "-cf", "-", "-C", "/"}, names...)...)
	tool(ctx, to, strings.NewReader(archive), "tar", "-xf", "-", "-C", into)
}

// copyTree puts what is in one folder into another, which is made.
func copyTree(ctx context.Context, from *shell.FS, folder string, to *shell.FS, into string) {
	tool(ctx, to, nil, "mkdir", "-p", into)
	archive, exit := tool(ctx, from, nil, "tar", "-cf", "-", "-C", folder, ".")
	if exit == 0 {
		tool(ctx, to, strings.NewReader(archive), "tar", "-xf", "-", "-C", into)
	}
}

// tool runs one utility as root and returns what it wrote.
func tool(ctx context.Context, f *shell.FS, in io.Reader, args ...string) (stdout string, exit int) {
	var out bytes.Buffer
	exit = shell.Run(ctx, f, shell.Command{Args: args, Stdin: in, Stdout: &out})
	return out.String(), exit
}
