package console

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Notes are lines for people that nobody waits for. A terminal that is stopped, a pipe that nobody reads and a full disk
// must not keep a heartbeat from its work: what is written to them waits here, and is dropped when there is too much.
type Notes struct {
	mu    sync.Mutex
	lines chan string
	lost  int
	over  bool
	done  chan struct{}
}

// NewNotes returns Notes, which are written once [Notes.Run] runs.
func NewNotes() *Notes {
	return &Notes{lines: make(chan string, 256), done: make(chan struct{})}
}

// Run writes lines to w until [Notes.Close], and goes on when a write fails: what could not be written to a closed
// terminal is lost, and that is all.
func (n *Notes) Run(w io.Writer) {
	defer close(n.done)
	for line := range n.lines {
		_, _ = io.WriteString(w, line)
	}
}

// Add adds a line, without its end. It never waits.
func (n *Notes) Add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return
	}
	text := fmt.Sprintf(format, args...) + "\n"
	if n.lost > 0 {
		text = fmt.Sprintf("sandglass: %d lines could not be written\n", n.lost) + text
	}
	select {
	case n.lines <- text:
		n.lost = 0
	default:
		n.lost++
	}
}

// Close ends Run once all lines are written, and waits for that, at most for the patience given.
func (n *Notes) Close(patience time.Duration) {
	n.mu.Lock()
	if !n.over {
		n.over = true
		close(n.lines)
	}
	n.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-n.done:
	case <-timer.C:
	}
}
