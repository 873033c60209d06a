// Package capture takes a command's output, for every adapter in the same way: all of it goes on to the caller's
// writers while the call lasts, and the end of it is kept.
package capture

import "sync"

// Limit is how much of each stream a sandbox.Result keeps.
const Limit = 1 << 20

// A Tail keeps the last [Limit] bytes written to it, and passes all of them on through a gate. It is safe for
// concurrent use.
type Tail struct {
	gate *Gate

	mu        sync.Mutex // never held while the gate is written: Bytes answers even if the caller's writer hangs
	buf       []byte
	truncated bool
}

// NewTail returns a Tail that passes on through g.
func NewTail(g *Gate) *Tail { return &Tail{gate: g} }

// Write never fails: the command goes on even if nobody can be told of its output.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*Limit { // cut rarely, so that small writes stay cheap
		t.cut()
	}
	t.mu.Unlock()
	_, _ = t.gate.Write(p)
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
