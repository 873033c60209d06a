package boat

import (
	"io"

	"github.com/sandglass-dev/sandglass/internal/killer"
)

// The scripts that run in a sandbox.
var Runner, Follower, Killer, Placer, Fetcher = runner, follower, killer.Script(), placer, fetcher

// Script is a command line for the service.
var Script = script

// ReadNotes reads what is kept of a Spec in a sandbox.
var ReadNotes = readNotes

// Notes is the file that keeps it.
func Notes(env map[string]string, ports []int, public bool) string {
	return string((&known{env: env, ports: ports, public: public}).notes())
}

// A Telling is what a command's streams came to.
type Telling struct {
	Code           int
	Exited         bool
	Stdout, Stderr string
	Taken          [2]int64
}

// Tell decodes streams, one after another, each of which is to begin where the one before broke off.
func Tell(streams ...io.Reader) (t Telling, errs []error) {
	var out, err sink
	d := &decoder{outputs: [2]io.Writer{&out, &err}}
	for _, r := range streams {
		_, bad := frames(r, d.again(), io.Discard)
		if d.fault != nil {
			bad = d.fault
		}
		errs = append(errs, bad)
	}
	return Telling{d.code, d.exited, string(out), string(err), d.taken}, errs
}

type sink []byte

func (s *sink) Write(p []byte) (int, error) {
	*s = append(*s, p...)
	return len(p), nil
}
