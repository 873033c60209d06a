package console

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// A Progress tells how far long work has come: on a terminal by a line that is redrawn, elsewhere not at all; what has
// happened is a line of its own in both. It is safe for concurrent use. Errors of the writer are no matter to the work.
type Progress struct {
	mu      sync.Mutex
	w       io.Writer
	redraw  bool
	showing bool
}

// NewProgress returns a Progress that writes to f.
func NewProgress(f *os.File) *Progress { return &Progress{w: f, redraw: IsTerminal(f)} }

const clearLine = "\r\x1b[K"

// Status replaces the line that says what is going on; empty: it is taken away.
func (p *Progress) Status(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.redraw {
		return
	}
	text := Printable(fmt.Sprintf(format, args...))
	if cells := []rune(text); len(cells) > 78 { // a line that wraps cannot be redrawn
		text = string(cells[:77]) + "…"
	}
	p.showing = text != ""
	_, _ = io.WriteString(p.w, clearLine+text)
}

// Line writes a line that stays.
func (p *Progress) Line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	start := ""
	if p.showing {
		start, p.showing = clearLine, false
	}
	_, _ = fmt.Fprintf(p.w, start+format+"\n", args...)
}
