package daytona

import (
	"io"

	"github.com/sandglass-dev/sandglass/internal/wsock"
)

// CommandLine is what a session is given to run.
var CommandLine = commandLine

// Unframe returns what a WebSocket brings that sends b, and the error at its end.
func Unframe(b io.Reader) ([]byte, error) {
	return io.ReadAll(wsock.New(struct {
		io.Reader
		io.Writer
	}{b, io.Discard}).Stream())
}

// A Log is a command's log, decoded.
type Log struct {
	Stdout, Stderr string
	Code           int
	Done           bool
	Fault          error
	Heard          string
}

// Decode decodes a log that comes in the given pieces.
func Decode(pieces ...[]byte) Log {
	var out, err sink
	d := &decoder{stdout: &out, stderr: &err}
	for _, p := range pieces {
		_, _ = d.Write(p)
	}
	return Log{string(out), string(err), d.code, d.done(), d.fault, d.heard()}
}

type sink []byte

func (s *sink) Write(p []byte) (int, error) {
	*s = append(*s, p...)
	return len(p), nil
}

// StateOf translates the service's word for a state.
var StateOf = stateOf
