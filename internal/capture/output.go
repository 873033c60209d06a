package capture

import (
	"io"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// An Output is where both streams of one command go.
type Output struct {
	Stdout, Stderr *Tail

	gates [2]*Gate
}

// NewOutput returns an Output that passes on to a command's two writers, of which either may be nil.
func NewOutput(stdout, stderr io.Writer) *Output {
	out, err := Gates(stdout, stderr)
	return &Output{Stdout: NewTail(out), Stderr: NewTail(err), gates: [2]*Gate{out, err}}
}

// Shut lets nothing more through to the caller's writers. When it returns, neither is being written to.
func (o *Output) Shut() {
	for _, g := range o.gates {
		g.Shut()
	}
}

// Result shuts the output and adds to r what there was.
func (o *Output) Result(r sandbox.Result) sandbox.Result {
	o.Shut()
	var cut1, cut2 bool
	r.Stdout, cut1 = o.Stdout.Bytes()
	r.Stderr, cut2 = o.Stderr.Bytes()
	r.Truncated = cut1 || cut2
	return r
}
