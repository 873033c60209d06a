// Package wsock is the client's side of a WebSocket (RFC 6455) over a connection that an HTTP client has upgraded: whole
// messages out, masked and each in one frame; messages in, read as they come, however they were cut into frames, so that
// their length costs nothing. It offers no extension and accepts none.
//
// [Upgrade] makes the header of the request, [Upgraded] checks the answer's, [New] takes the connection.
package wsock

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Limits of what is read and written.
const (
	maxFrame   = 64 << 20 // bytes of one frame of data: more is rubbish
	maxFrames  = 1 << 20  // empty frames in a row, which bring nothing
	maxControl = 125      // bytes of a control frame, by the RFC
	maxPongs   = 4        // waiting to be written; a peer that pings faster gets fewer answers
)

// A Kind is what a message is.
type Kind byte

// Kinds of messages.
const (
	Text   Kind = 1
	Binary Kind = 2
)

const (
	more      = 0
	closing   = 8
	ping      = 9
	pong      = 10
	final     = 0x80
	masked    = 0x80
	regular   = 1000 // codes of a close
	goingAway = 1001
	noCode    = 1005 // stands for a close that tells none
)

// ErrProtocol is matched by the errors of what is no WebSocket's.
var ErrProtocol = errors.New("what came is no WebSocket's")

// A CloseError is the peer's close with another code than those of a regular end.
type CloseError struct {
	Code   int
	Reason string
}

func (e *CloseError) Error() string {
	return fmt.Sprintf("the WebSocket was closed with code %d %.120q", e.Code, e.Reason)
}

// Upgrade returns the header of a request for a WebSocket that speaks protocol, which may be none (""), and the key that
// proves the answer.
func Upgrade(protocol string) (header http.Header, key string) {
	var b [16]byte
	rand.Read(b[:])
	key = base64.StdEncoding.EncodeToString(b[:])
	header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {key},
	}
	if protocol != "" {
		header.Set("Sec-Websocket-Protocol", protocol)
	}
	return header, key
}

// Upgraded returns nil if the header of a 101 says that the connection is a WebSocket now and speaks protocol.
func Upgraded(header http.Header, key, protocol string) error {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, 4.2.2
	switch {
	case !strings.EqualFold(header.Get("Upgrade"), "websocket"),
		header.Get("Sec-Websocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]):
		return fmt.Errorf("%w: the answer does not prove that it understood", ErrProtocol)
	case header.Get("Sec-Websocket-Extensions") != "":
		return fmt.Errorf("%w: an extension that was not offered", ErrProtocol)
	case header.Get("Sec-Websocket-Protocol") != protocol:
		return fmt.Errorf("%w: it speaks %.40q, not %s", ErrProtocol, header.Get("Sec-Websocket-Protocol"), protocol)
	}
	return nil
}

// A Conn is one WebSocket. One goroutine may read, others may write.
type Conn struct {
	r    *bufio.Reader
	left uint64 // of the present frame of data
	last bool   // the present frame is its message's last
	in   bool   // a message is not read to its end
	over error  // nothing more can be read

	w     io.Writer
	turn  chan struct{} // held by whoever writes; a channel, since a write may take long
	pongs chan []byte
}

// New returns a WebSocket over a connection that was upgraded. What ends the connection ends it.
func New(rw io.ReadWriter) *Conn {
	return &Conn{r: bufio.NewReaderSize(rw, 16<<10), w: rw, turn: make(chan struct{}, 1), pongs: make(chan []byte, maxPongs)}
}

// Next goes on to the next message, which Read then yields, and leaves out what is left of the present one. Its error is
// [io.EOF] once the peer has closed the WebSocket in an orderly way, [io.ErrUnexpectedEOF] where the connection ends
// without that, a [*CloseError], one that matches [ErrProtocol], or the connection's own.
func (c *Conn) Next() (Kind, error) {
	for c.in {
		if _, err := io.Copy(io.Discard, message{c}); err != nil {
			return 0, err
		}
	}
	if c.over != nil {
		return 0, c.over
	}
	kind, err := c.frame()
	if err != nil {
		c.over = err
		return 0, err
	}
	c.in = true
	return Kind(kind), nil
}

// Read reads on in the present message. At its end the error is [io.EOF], before that [Conn.Next]'s.
func (c *Conn) Read(p []byte) (int, error) {
	for empty := 0; c.in && c.over == nil && c.left == 0; empty++ {
		if c.last {
			c.in = false
			break
		}
		if _, c.over = c.frame(); empty > maxFrames {
			c.over = fmt.Errorf("%w: frames without end and without content", ErrProtocol)
		}
	}
	switch {
	case c.over != nil && c.in && errors.Is(c.over, io.EOF): // closed within a message
		return 0, io.ErrUnexpectedEOF
	case c.over != nil && c.in:
		return 0, c.over
	case !c.in:
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(uint64(len(p)), c.left)])
	c.left -= uint64(n)
	if err != nil {
		c.over = unexpected(err)
		if n > 0 {
			return n, nil
		}
	}
	return n, c.over
}

// Stream returns all that comes, from here on, as one stream of bytes, however it was cut into messages. At its end the
// error is [Conn.Next]'s.
func (c *Conn) Stream() io.Reader { return stream{c} }

type stream struct{ c *Conn }

func (s stream) Read(p []byte) (int, error) {
	for {
		if n, err := s.c.Read(p); !errors.Is(err, io.EOF) {
			return n, err
		}
		if _, err := s.c.Next(); err != nil {
			return 0, err
		}
	}
}

// message reads one without its other methods, for [io.Copy].
type message struct{ c *Conn }

func (m message) Read(p []byte) (int, error) { return m.c.Read(p) }

// frame reads the head of the next frame of data, and all of those between that are none.
func (c *Conn) frame() (kind byte, err error) {
	for {
		var b [8]byte
		if _, err := io.ReadFull(c.r, b[:2]); err != nil {
			return 0, unexpected(err)
		}
		fin, kind, size := b[0]&final != 0, b[0]&0x0f, uint64(b[1]&^masked)
		if b[0]&0x70 != 0 || b[1]&masked != 0 { // an extension, or a mask: neither is the server's to use
			return 0, fmt.Errorf("%w: reserved bits or a mask", ErrProtocol)
		}
		if kind >= closing && (!fin || size > maxControl) {
			return 0, fmt.Errorf("%w: a control frame in parts, or too long", ErrProtocol)
		}
		switch size {
		case 126:
			if _, err := io.ReadFull(c.r, b[:2]); err != nil {
				return 0, unexpected(err)
			}
			size = uint64(binary.BigEndian.Uint16(b[:2]))
		case 127:
			if _, err := io.ReadFull(c.r, b[:8]); err != nil {
				return 0, unexpected(err)
			}
			size = binary.BigEndian.Uint64(b[:8])
		}
		switch kind {
		case more, byte(Text), byte(Binary):
			if (kind == more) != c.in || size > maxFrame {
				return 0, fmt.Errorf("%w: a frame out of its place, or of %d bytes", ErrProtocol, size)
			}
			c.left, c.last = size, fin
			return kind, nil
		case closing, ping, pong:
			if err := c.control(kind, size); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("%w: a frame of kind %d", ErrProtocol, kind)
		}
	}
}

func (c *Conn) control(kind byte, size uint64) error {
	said := make([]byte, size)
	if _, err := io.ReadFull(c.r, said); err != nil {
		return unexpected(err)
	}
	switch kind {
	case ping:
		select {
		case c.pongs <- said:
		default:
		}
	case closing:
		code, reason := noCode, ""
		switch {
		case len(said) == 1:
			return fmt.Errorf("%w: a close with half a code", ErrProtocol)
		case len(said) >= 2:
			code, reason = int(binary.BigEndian.Uint16(said)), strings.ToValidUTF8(string(said[2:]), "")
		}
		switch code {
		case regular, goingAway, noCode:
			return io.EOF
		}
		return &CloseError{code, reason}
	}
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Write sends one message, whose content is that of all parts. It may be called from several goroutines; each waits for
// those before it.
func (c *Conn) Write(kind Kind, parts ...[]byte) error { return c.send(byte(kind), parts...) }

func (c *Conn) send(kind byte, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	b := make([]byte, 0, 14+size)
	b = append(b, final|kind)
	switch {
	case size <= maxControl:
		b = append(b, masked|byte(size))
	case size <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, masked|126), uint16(size))
	default:
		b = binary.BigEndian.AppendUint64(append(b, masked|127), uint64(size))
	}
	var mask [4]byte
	rand.Read(mask[:])
	b = append(b, mask[:]...)
	head := len(b)
	for _, p := range parts {
		b = append(b, p...)
	}
	for i := range b[head:] {
		b[head+i] ^= mask[i%4]
	}
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	_, err := c.w.Write(b)
	return err
}

// Tend answers the peer's pings and sends one every interval, so that a connection which has died is noticed, until over
// is closed or a write fails. The reader notices a failure too.
func (c *Conn) Tend(interval time.Duration, over <-chan struct{}) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		var err error
		select {
		case <-over:
			return
		case said := <-c.pongs:
			err = c.send(pong, said)
		case <-t.C:
			err = c.send(ping)
		}
		if err != nil {
			return
		}
	}
}
