package vercel

import (
	"io"

	"github.com/sandglass-dev/sandglass/internal/killer"
)

// A Stream is what a command's streams came to.
type Stream struct {
	Command  string
	ExitCode int
	Exited   bool
}

// ReadStreams decodes streams, of which each but the first repeats the output from its beginning, and tells no end.
func ReadStreams(stdout, stderr io.Writer, streams ...io.Reader) (s Stream, errs []error) {
	d := &decoder{outputs: [2]io.Writer{stdout, stderr}}
	for i, r := range streams {
		if i > 0 {
			d.again()
		}
		errs = append(errs, d.read(r))
	}
	return Stream{d.id, d.code, d.exited}, errs
}

// Runner and Killer are the scripts that run in a sandbox.
var Runner, Killer = runner, killer.Script()
