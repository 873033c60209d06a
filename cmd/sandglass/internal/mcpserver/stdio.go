package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// maxBacklog is how much may wait for a client that does not read.
const maxBacklog = 64 << 20

var errNotRead = errors.New("it reads none of its answers")

// An inlet is what the client writes. It knows when something came last, and says when nothing will come any more.
type inlet struct {
	r    io.ReadCloser
	gone context.CancelCauseFunc

	mu   sync.Mutex
	last time.Time
}

func (i *inlet) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	if n > 0 {
		i.mu.Lock()
		i.last = time.Now()
		i.mu.Unlock()
	}
	if err != nil {
		i.gone(fmt.Errorf("%w: input: %w", ErrClientGone, err))
	}
	return n, err
}

func (i *inlet) Close() error { return i.r.Close() }

// heard returns when the client last wrote something.
func (i *inlet) heard() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last
}

// An outlet is what goes to the client. A write to it never waits: a client that stops reading must hold up neither the
// heartbeat's neighbours nor the end of the session.
type outlet struct {
	w    io.WriteCloser
	gone context.CancelCauseFunc
	wake chan struct{}
	done chan struct{} // closed when run is over

	mu     sync.Mutex
	queue  [][]byte
	size   int       // of what waits, including what is being written
	since  time.Time // when the present write began; zero: none is under way
	err    error
	closed bool
}

func newOutlet(w io.WriteCloser, gone context.CancelCauseFunc) *outlet {
	return &outlet{w: w, gone: gone, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// Write takes one frame.
func (o *outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return 0, o.err
	case o.closed:
		return 0, io.ErrClosedPipe
	case o.size+len(p) > maxBacklog:
		o.err = fmt.Errorf("%w: %w", ErrClientGone, errNotRead)
		o.gone(o.err)
		return 0, o.err
	}
	o.queue = append(o.queue, append([]byte(nil), p...))
	o.size += len(p)
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

// run writes what is taken, until all of it is written after Close, or a write fails.
func (o *outlet) run() {
	defer close(o.done)
	for {
		frame, over := o.next()
		switch {
		case frame != nil:
			if _, err := o.w.Write(frame); err != nil {
				o.fail(err)
				return
			}
			o.written(len(frame))
		case over:
			return
		default:
			<-o.wake
		}
	}
}

func (o *outlet) next() (frame []byte, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return nil, o.closed
	}
	frame, o.queue = o.queue[0], o.queue[1:]
	o.since = time.Now()
	return frame, false
}

func (o *outlet) written(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size -= n
	o.since = time.Time{}
}

func (o *outlet) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = fmt.Errorf("%w: output: %w", ErrClientGone, err)
	}
	o.queue = nil
	o.gone(o.err)
}

// stuck returns for how long the present write has not got through.
func (o *outlet) stuck() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return 0
	}
	return time.Since(o.since)
}

// idle reports whether everything has got through.
func (o *outlet) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size == 0
}

// Close does nothing: the protocol's library calls it with its locks held, and the last answers come after that.
func (o *outlet) Close() error { return nil }

// shut waits for what is still to be written, for as long as patience lasts. A write that hangs in the kernel then goes
// on hanging until the process ends.
func (o *outlet) shut() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
	_ = o.w.Close()
}
