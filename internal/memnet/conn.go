package memnet

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// window is how much of one direction may be under way before its writer waits, as on a socket.
const window = 64 << 10

// link is one connection: two directions and two ends.
type link struct {
	n               *Network
	host, port      string // as dialled
	request, answer half
	ends            [2]*conn // of the client and of the server
	fresh           bool     // the client's next byte begins an exchange
	now             exchange
	dead            bool // reset for both ends at once
}

// half is what is under way in one direction.
type half struct {
	parts   []part
	size    int
	deaf    bool // the reader has closed: what is sent to it is dropped
	changed chan struct{}
}

// part is some bytes, or how the direction ends.
type part struct {
	data []byte
	err  error // io.EOF or ECONNRESET; it stays
	at   time.Time
	lost bool // it never arrives, and neither does what comes after it
}

// push sends a part so that it arrives after a delay, and not before what was sent earlier. What comes after an end
// is dropped.
func (h *half) push(p part, delay time.Duration) {
	if h.deaf || len(h.parts) > 0 && h.parts[len(h.parts)-1].err != nil {
		return
	}
	p.at = time.Now().Add(delay)
	h.parts = append(h.parts, p)
	h.size += len(p.data)
	wake(&h.changed)
}

// reset drops what is under way and ends the direction.
func (h *half) reset() {
	h.parts, h.size = []part{{err: syscall.ECONNRESET, at: time.Now()}}, 0
	wake(&h.changed)
}

// head returns the first part if it has arrived, else when to look again; zero: not before a change.
func (h *half) head(parted bool) (p *part, at time.Time) {
	if len(h.parts) == 0 || parted || h.parts[0].lost {
		return nil, time.Time{}
	}
	if p := &h.parts[0]; p.at.After(time.Now()) {
		return nil, p.at
	}
	return &h.parts[0], time.Time{}
}

// die resets both directions whatever is wrong with them.
func (k *link) die() {
	k.dead = true
	k.request.reset()
	k.answer.reset()
}

func (k *link) wake() {
	wake(&k.request.changed)
	wake(&k.answer.changed)
}

// conn is one end of a link.
type conn struct {
	k               *link
	in, out         *half
	local, remote   net.Addr
	client          bool
	closed          bool
	readBy, writeBy time.Time // zero: no limit
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Read(b []byte) (int, error) {
	n := c.k.n
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.fail("read", net.ErrClosed)
		case c.k.dead:
			return 0, c.fail("read", syscall.ECONNRESET)
		case expired(c.readBy):
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		}
		p, at := c.in.head(n.parted(c.k.host, c.k.port))
		if p == nil {
			n.wait(&c.in.changed, nil, earlier(at, c.readBy))
			continue
		}
		switch p.err {
		case nil:
		case io.EOF:
			return 0, io.EOF
		default:
			return 0, c.fail("read", p.err)
		}
		k := copy(b, p.data)
		if p.data = p.data[k:]; len(p.data) == 0 {
			c.in.parts = c.in.parts[1:]
		}
		c.in.size -= k
		wake(&c.in.changed) // there is room for the writer
		return k, nil
	}
}

func (c *conn) Write(b []byte) (int, error) {
	n := c.k.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.client && c.k.fresh && len(b) > 0 && !c.closed && !c.k.dead {
		c.k.fresh = false
		if c.k.now = n.exchange(c.k.host, c.k.port); c.k.now.reset {
			c.k.die()
			return len(b), nil // as a kernel does, which learns of the reset when the bytes have left
		}
	}
	sent := 0
	for {
		switch {
		case c.closed:
			return sent, c.fail("write", net.ErrClosed)
		case c.k.dead:
			return sent, c.fail("write", syscall.ECONNRESET)
		case expired(c.writeBy):
			return sent, c.fail("write", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return sent, nil
		}
		if p, _ := c.in.head(n.parted(c.k.host, c.k.port)); p != nil && p.err != nil && c.out.deaf {
			return sent, c.fail("write", syscall.EPIPE)
		}
		room := window - c.out.size
		if room <= 0 && !c.out.deaf {
			n.wait(&c.out.changed, nil, c.writeBy)
			continue
		}
		k := len(b)
		if !c.out.deaf {
			k = min(k, room)
		}
		c.send(b[:k])
		b, sent = b[k:], sent+k
	}
}

// send puts bytes on the wire, with what is to happen to them there.
func (c *conn) send(b []byte) {
	x := &c.k.now
	data := append([]byte(nil), b...)
	if c.client {
		c.out.push(part{data: data, lost: x.deaf}, x.requestDelay)
		return
	}
	c.k.fresh = true
	if x.cuts && x.left <= int64(len(data)) {
		if x.left > 0 {
			c.out.push(part{data: data[:x.left]}, x.answerDelay)
		}
		c.out.push(part{err: syscall.ECONNRESET}, x.answerDelay)
		c.in.reset()
		c.out.deaf = true
		return
	}
	x.left -= int64(len(data))
	c.out.push(part{data: data, lost: x.mute}, x.answerDelay)
}

func (c *conn) Close() error {
	n := c.k.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return c.fail("close", net.ErrClosed)
	}
	c.closed = true
	delay := c.k.now.answerDelay
	if c.client {
		delay = c.k.now.requestDelay
	}
	c.out.push(part{err: io.EOF}, delay)
	c.in.parts, c.in.size, c.in.deaf = nil, 0, true
	c.k.wake()
	if c.k.ends[0].closed && c.k.ends[1].closed {
		delete(n.links, c.k)
	}
	return nil
}

func (c *conn) SetDeadline(t time.Time) error { return c.limit(&c.readBy, &c.writeBy, t) }

func (c *conn) SetReadDeadline(t time.Time) error { return c.limit(&c.readBy, &c.readBy, t) }

func (c *conn) SetWriteDeadline(t time.Time) error { return c.limit(&c.writeBy, &c.writeBy, t) }

func (c *conn) limit(a, b *time.Time, t time.Time) error {
	c.k.n.mu.Lock()
	defer c.k.n.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	*a, *b = t, t
	c.k.wake()
	return nil
}

func (c *conn) fail(op string, err error) error {
	if _, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, err)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

func expired(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
