// Package capture keeps the end of a command's output, for every adapter in the same way.
package capture

import (
	"io"
	"sync"
)

// Limit is how much of each stream a sandbox.Result keeps.
const Limit = 1 << 20

// A Tail keeps the last [Limit] bytes written to it and passes all of them on to a writer, if there is one. It is
// safe for concurrent use. An error of the writer is kept and ends the passing on, not the keeping: the command goes on.
type Tail struct {
	w    io.Writer
	turn chan struct{} // held while w is written; a channel, so that a bubble of testing/synctest sees the waiting

	mu        sync.Mutex // over what follows, never held while w is written: Bytes answers even if w hangs
	buf       []byte
	truncated bool
	err       error
}

// NewTail returns a Tail that passes on to w, which may be nil.
func NewTail(w io.Writer) *Tail { return &Tail{w: w, turn: make(chan struct{}, 1)} }

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*Limit { // cut rarely, so that small writes stay cheap
		t.cut()
	}
	t.mu.Unlock()
	if t.w == nil {
		return len(p), nil
	}
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	if t.Err() == nil {
		if _, err := t.w.Write(p); err != nil {
			t.mu.Lock()
			t.err = err
			t.mu.Unlock()
		}
	}
	return len(p), nil
}

func (t *Tail) cut() {
	if over := len(t.buf) - Limit; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
		t.truncated = true
	}
}

// Bytes returns a copy of what was kept and whether there was more.
func (t *Tail) Bytes() (kept []byte, truncated bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut()
	return append([]byte(nil), t.buf...), t.truncated
}

// Err returns the first error of the writer.
func (t *Tail) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
