package kubernetes

import (
	"fmt"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Program is what the shell in a sandbox is given to run cmd.
func Program(cmd sandbox.Cmd) string { return program(cmd) }

// Command is what a request for a command asks for.
func Command(mark string) []string { return command(mark) }

// InClusterAt is InCluster with another address and folder.
func InClusterAt(base, dir string) (Config, error) { return inCluster(base, dir) }

// Kubeconfig reads one.
func Kubeconfig(b []byte, dir string) (Config, error) {
	return readKubeconfig(b, dir, func(format string, args ...any) (Config, error) {
		return Config{}, fmt.Errorf(format, args...)
	})
}

// SecondsFor is the deadline of a Job.
func SecondsFor(started, now time.Time, window time.Duration) (int64, error) {
	return secondsFor(started, now, window)
}

// Doubts are the extensions in doubt.
type Doubts struct{ d doubts }

func (d *Doubts) Extended(uid string, before, after, now time.Time, window time.Duration) {
	d.d.extended(uid, before, after, now, window)
}
func (d *Doubts) Doubt(uid string, now time.Time) bool { return d.d.doubt(uid, now) }
func (d *Doubts) Len() int                             { return len(d.d.old) }

// LeaseName is the name of the process's own Lease.
func (p *Provider) LeaseName() string { return p.leaseName() }
