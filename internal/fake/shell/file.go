package shell

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync/atomic"
)

// file is something open. read and write may be called from many goroutines, and return errKilled if the process is killed
// first. They do nothing while it is stopped.
type file interface {
	read(p *proc, b []byte) (int, error)
	write(p *proc, b []byte) (int, error)
	close()
}

// desc is an open file as descriptors refer to it; the last of them closes it.
type desc struct {
	f    file
	refs atomic.Int32
}

func newDesc(f file) *desc {
	d := &desc{f: f}
	d.refs.Store(1)
	return d
}

func (d *desc) release() {
	if d.refs.Add(-1) == 0 {
		d.f.close()
	}
}

// dup returns d with one reference more.
func (d *desc) dup() *desc {
	d.refs.Add(1)
	return d
}

// openFile opens a path for the process, devices included.
func (p *proc) openFile(name string, flags openFlag) (*desc, error) {
	h, err := p.m.fs.open(p.who(), p.abs(name), flags, fs.FileMode(0o666&^p.umask))
	if err != nil {
		return nil, err
	}
	dev := h.n.device
	if dev == "" {
		return newDesc(regular{h}), nil
	}
	h.close()
	switch dev {
	case "null", "zero", "full", "random", "urandom":
		return newDesc(device(dev)), nil
	}
	fd := map[string]int{"stdin": 0, "stdout": 1, "stderr": 2}
	if n, ok := fd[dev]; ok && p.fds[n] != nil {
		return p.fds[n].dup(), nil
	}
	return nil, errNoDevice
}

// regular is an open file or folder of the file system.
type regular struct{ h *handle }

func (r regular) read(_ *proc, b []byte) (int, error)  { return r.h.readAt(b) }
func (r regular) write(_ *proc, b []byte) (int, error) { return r.h.writeAt(b) }
func (r regular) close()                               { r.h.close() }

// device is /dev/null and its like.
type device string

func (d device) read(_ *proc, b []byte) (int, error) {
	switch d {
	case "null":
		return 0, io.EOF
	case "random", "urandom":
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
	default:
		clear(b)
	}
	return len(b), nil
}

func (d device) write(_ *proc, b []byte) (int, error) {
	if d == "full" {
		return 0, errNoSpace
	}
	return len(b), nil
}

func (d device) close() {}

// document is the text of a here-document.
type document struct{ r *strings.Reader }

func (d document) read(_ *proc, b []byte) (int, error) { return d.r.Read(b) }
func (d document) write(*proc, []byte) (int, error)    { return 0, errBadFD }
func (d document) close()                              {}

// take locks a file for p, which does not hold it up while it is stopped.
func (p *proc) take(lock chan struct{}) error {
	for {
		select {
		case lock <- struct{}{}:
		case <-p.ctx.Done():
			return errKilled
		}
		if p.stopped.Load() == nil {
			return nil
		}
		<-lock
		if err := p.hold(); err != nil {
			return err
		}
	}
}

// output is a writer of the caller's. The channel serves as a lock under which a goroutine may block.
type output struct {
	w    io.Writer
	lock chan struct{}
}

func newOutput(w io.Writer) file {
	if w == nil {
		return device("null")
	}
	return &output{w, make(chan struct{}, 1)}
}

func (o *output) read(*proc, []byte) (int, error) { return 0, errBadFD }

// write takes any failure of the caller's writer for a pipe that nobody reads any more.
func (o *output) write(p *proc, b []byte) (int, error) {
	if err := p.take(o.lock); err != nil {
		return 0, err
	}
	defer func() { <-o.lock }()
	n, err := o.w.Write(b)
	if err != nil {
		return max(0, min(n, len(b))), errPipe
	}
	return len(b), nil
}

func (o *output) close() {}

// input is a reader of the caller's. A Read may block for ever, so it gets a goroutine, which outlives a process that
// is killed meanwhile; the next process to read takes over what it brings.
type input struct {
	r       io.Reader
	lock    chan struct{} // has an element while somebody uses the fields below
	buf     []byte
	err     error
	pending chan readResult // a Read under way
}

type readResult struct {
	b   []byte
	err error
}

func newInput(r io.Reader) file {
	if r == nil {
		return device("null")
	}
	return &input{r: r, lock: make(chan struct{}, 1)}
}

func (i *input) read(p *proc, b []byte) (int, error) {
	for {
		if err := p.take(i.lock); err != nil {
			return 0, err
		}
		err := i.await(p)
		if err == nil && p.stopped.Load() != nil {
			<-i.lock // others may have what has come
			continue
		}
		n := 0
		if err == nil {
			n = copy(b, i.buf)
			i.buf = i.buf[n:]
		}
		<-i.lock
		return n, err
	}
}

// await waits for something to read. The lock is held.
func (i *input) await(p *proc) error {
	for len(i.buf) == 0 && i.err == nil {
		if i.pending == nil {
			done := make(chan readResult, 1)
			i.pending = done
			go func() {
				buf := make([]byte, 32<<10)
				n, err := i.r.Read(buf)
				done <- readResult{buf[:max(0, min(n, len(buf)))], err}
			}()
		}
		select {
		case res := <-i.pending:
			i.buf, i.err, i.pending = res.b, res.err, nil
		case <-p.ctx.Done():
			return errKilled
		}
	}
	if len(i.buf) == 0 {
		return io.EOF // the caller's reader has failed or ended
	}
	return nil
}

func (i *input) write(*proc, []byte) (int, error) { return 0, errBadFD }
func (i *input) close()                           {}
