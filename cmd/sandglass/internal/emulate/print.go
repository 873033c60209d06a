package emulate

import (
	"fmt"
	"io"
	"sync"
)

// A printer prints lines in their order without having those wait who have something to say: a terminal that is stopped
// must not stop the service. What it cannot keep up with it leaves out, and says so.
type printer struct {
	w    io.Writer
	wg   sync.WaitGroup
	more chan struct{} // something waits
	over chan struct{} // nothing more comes

	mu      sync.Mutex // never held while writing
	waiting []string
	missed  int
}

// mostWaiting is how many lines may wait.
const mostWaiting = 10_000

func newPrinter(w io.Writer) *printer {
	p := &printer{w: w, more: make(chan struct{}, 1), over: make(chan struct{})}
	p.wg.Go(p.run)
	return p
}

// line has one line printed, soon.
func (p *printer) line(text string) {
	p.mu.Lock()
	if len(p.waiting) < mostWaiting {
		p.waiting = append(p.waiting, text)
	} else {
		p.missed++
	}
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// close prints what waits, and returns.
func (p *printer) close() {
	close(p.over)
	p.wg.Wait()
}

func (p *printer) run() {
	for over := false; !over; {
		select {
		case <-p.more:
		case <-p.over:
			over = true
		}
		p.mu.Lock()
		lines, missed := p.waiting, p.missed
		p.waiting, p.missed = nil, 0
		p.mu.Unlock()
		for _, l := range lines {
			_, _ = fmt.Fprintln(p.w, l)
		}
		if missed > 0 {
			_, _ = fmt.Fprintf(p.w, "(%d lines are left out: they came faster than they could be printed)\n", missed)
		}
	}
}
