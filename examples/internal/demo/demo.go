// Package demo is what the examples share: choosing a provider, and printing a command's output line by line.
package demo

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// Provider returns the provider called name, and why it is that one. "docker" is the Docker engine that the
// environment names, "memory" the in-memory provider, and "auto" the engine if it answers, else memory.
func Provider(ctx context.Context, name string) (p sandbox.Provider, why string, err error) {
	switch name {
	case "memory":
		return sandboxtest.New(sandbox.Capabilities{}), "as asked", nil
	case "auto", "docker":
	default:
		return nil, "", fmt.Errorf("provider %q is none of auto, docker and memory", name)
	}
	engine, err := engine(ctx)
	switch {
	case err == nil:
		return engine, "a Docker engine answers", nil
	case name == "docker":
		return nil, "", err
	default:
		return sandboxtest.New(sandbox.Capabilities{}), fmt.Sprintf("no Docker engine: %v", err), nil
	}
}

// engine returns the Docker engine of the environment if it answers soon.
func engine(ctx context.Context) (*docker.Provider, error) {
	p, err := docker.FromEnv()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = p.Check(ctx)
	return p, err
}

// Lines is a writer that passes each line on to print, without its end. Flush passes on a last line that has none.
type Lines struct {
	print func(line string)
	rest  []byte
}

// NewLines returns a Lines that prints with print.
func NewLines(print func(line string)) *Lines { return &Lines{print: print} }

// Write never fails.
func (l *Lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ended := bytes.Cut(l.rest, []byte("\n"))
		if !ended {
			return len(p), nil
		}
		l.print(string(line))
		l.rest = rest
	}
}

// Flush passes on what has no end of line yet.
func (l *Lines) Flush() {
	if len(l.rest) > 0 {
		l.print(string(l.rest))
		l.rest = nil
	}
}
