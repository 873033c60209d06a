package shell

import (
	"io"
	"sync"
)

const pipeSize = 64 << 10

// pipe is a buffered pipe. Waiting is done on a channel, which blocks durably in a bubble.
type pipe struct {
	mu      sync.Mutex // held for memory operations only
	buf     []byte
	readers bool
	writers bool
	changed chan struct{} // closed and replaced at each change
}

// newPipe returns both ends.
func newPipe() (r, w *desc) {
	p := &pipe{readers: true, writers: true, changed: make(chan struct{})}
	return newDesc(pipeReader{p}), newDesc(pipeWriter{p})
}

// wait lets go of the lock until something has changed and q goes on.
func (p *pipe) wait(q *proc) error {
	ch := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-ch:
		return q.hold()
	case <-q.ctx.Done():
		return errKilled
	}
}

func (p *pipe) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

type pipeReader struct{ p *pipe }

func (r pipeReader) read(q *proc, b []byte) (int, error) {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 {
		if !p.writers {
			return 0, io.EOF
		}
		if err := p.wait(q); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	if len(p.buf) == 0 {
		p.buf = nil
	}
	p.notify()
	return n, nil
}

func (r pipeReader) write(*proc, []byte) (int, error) { return 0, errBadFD }

func (r pipeReader) close() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.readers = false
	r.p.notify()
}

type pipeWriter struct{ p *pipe }

func (w pipeWriter) read(*proc, []byte) (int, error) { return 0, errBadFD }

func (w pipeWriter) write(q *proc, b []byte) (int, error) {
	p := w.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for written := 0; ; {
		if !p.readers {
			return written, errPipe
		}
		if n := min(len(b)-written, pipeSize-len(p.buf)); n > 0 {
			p.buf = append(p.buf, b[written:written+n]...)
			written += n
			p.notify()
		}
		if written == len(b) {
			return written, nil
		}
		if err := p.wait(q); err != nil {
			return written, err
		}
	}
}

func (w pipeWriter) close() {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.writers = false
	w.p.notify()
}
