package main

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/sandglass-dev/sandglass/examples/internal/demo"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// tasks returns what a runner meets on an ordinary day. What they print goes to print, line by line.
func tasks(print func(job, line string)) []Task {
	const commit = "4f1c9a7"
	task := func(job string, run func(context.Context, sandbox.Sandbox, io.Writer) error) Task {
		return Task{JobID: job, Commit: commit, Run: func(ctx context.Context, sb sandbox.Sandbox) error {
			out := demo.NewLines(func(line string) { print(job, line) })
			defer out.Flush()
			return run(ctx, sb, out)
		}}
	}
	return []Task{
		task("greet", greet), task("build", build), task("test", test), task("crash", crash), task("hang", hang),
	}
}

// greet is a task that works.
func greet(ctx context.Context, sb sandbox.Sandbox, out io.Writer) error {
	return command(ctx, sb, out, "echo hello from $(uname -s)")
}

// build uploads a source tree as a tarball, and streams the output of its build.
func build(ctx context.Context, sb sandbox.Sandbox, out io.Writer) error {
	source, err := tarball(map[string]string{
		"src/build.sh": "for part in parser compiler linker; do echo \"building $part\"; sleep 1; done; cat version > app\n",
		"src/version":  "1.0.0\n",
	})
	if err != nil {
		return err
	}
	if err := sb.Upload(ctx, "/tmp/source.tar", source); err != nil {
		return err
	}
	if err := command(ctx, sb, out, "cd /tmp && tar -xf source.tar && cd src && sh build.sh"); err != nil {
		return err
	}
	return sb.Download(ctx, "/tmp/src/app", out)
}

// test is a task whose command fails.
func test(ctx context.Context, sb sandbox.Sandbox, out io.Writer) error {
	return command(ctx, sb, out, "echo 1 test failed; exit 1")
}

// crash is a task with a bug: it takes for granted that a model's answer names a command.
func crash(ctx context.Context, sb sandbox.Sandbox, out io.Writer) error {
	steps := strings.Fields("")
	return command(ctx, sb, out, steps[0])
}

// hang is an agent that waits for a model which never answers. One that thinks for long calls sandbox.Touch.
func hang(ctx context.Context, _ sandbox.Sandbox, _ io.Writer) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// command runs script and passes its output on as it arrives.
func command(ctx context.Context, sb sandbox.Sandbox, out io.Writer, script string) error {
	cmd := sandbox.Shell(script)
	cmd.Stdout = out
	res, err := sb.Exec(ctx, cmd)
	if err != nil {
		return err
	}
	return res.Err()
}

func tarball(files map[string]string) (io.Reader, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, content); err != nil {
			return nil, err
		}
	}
	return &buf, w.Close()
}
