package capture

import (
	"io"
	"reflect"
	"time"
)

// patience is how long a shut gate waits for a write under way; a writer that hangs must not hold up its command.
const patience = 100 * time.Millisecond

// A Gate passes on to a caller's writer until it is shut, one write at a time: after the call nothing writes to it any
// more, unless the writer hangs. It is safe for concurrent use. A writer that has failed is not tried again.
type Gate struct {
	w    io.Writer
	turn chan struct{} // a channel, so that a bubble of testing/synctest sees the waiting
	shut bool          // this and what follows is changed by whoever has the turn
	err  error
}

// NewGate returns an open gate to w, which may be nil.
func NewGate(w io.Writer) *Gate { return &Gate{w: w, turn: make(chan struct{}, 1), shut: w == nil} }

// Gates returns the gates to a command's two writers: one and the same if these are one, so that it is never written to
// from two goroutines at once.
func Gates(stdout, stderr io.Writer) (out, err *Gate) {
	out = NewGate(stdout)
	if same(stdout, stderr) {
		return out, out
	}
	return out, NewGate(stderr)
}

// same reports whether a and b are one writer; values that cannot be compared are two.
func same(a, b io.Writer) bool {
	return a != nil && b != nil && reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

// Write returns the writer's error; without a writer, and once shut, it takes everything.
func (g *Gate) Write(p []byte) (n int, err error) {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	switch {
	case g.shut:
		return len(p), nil
	case g.err != nil:
		return 0, g.err
	}
	n, g.err = g.w.Write(p)
	return n, g.err
}

// Shut ends the passing on. It may be called more than once.
func (g *Gate) Shut() {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case g.turn <- struct{}{}:
		g.shut = true
		<-g.turn
	case <-t.C: // the writer hangs
	}
}
