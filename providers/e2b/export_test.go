package e2b

import (
	"io"

	"github.com/sandglass-dev/sandglass/internal/killer"
)

// What has no way to be seen from outside in all of its parts.
var (
	EncodeMetadata = encodeMetadata
	Runner         = runner
	Killer         = killer.Script()
)

// ReadStream reads a whole stream of a process, and returns what came out and how it ended.
func ReadStream(r io.Reader) (stdout, stderr []byte, code int, err error) {
	for {
		m, err := next(r)
		if err != nil {
			return stdout, stderr, 0, err
		}
		if d := m.Event.Data; d != nil {
			stdout, stderr = append(stdout, d.Stdout...), append(stderr, d.Stderr...)
		}
		if m.Event.End != nil {
			code, err := m.Event.End.exitCode()
			return stdout, stderr, code, err
		}
	}
}
