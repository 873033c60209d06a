package daytonafake

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Frames of a WebSocket, by RFC 6455.
const (
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xa

	handshakeGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	maxFrame      = 1 << 20
	writeLimit    = 10 * time.Second
)

// socket is the server's end of a WebSocket. It answers pings and takes no messages.
type socket struct {
	conn    net.Conn
	gone    chan struct{} // closed when the client has left
	read    chan struct{} // closed when nothing is read any more
	writing chan struct{} // holds the right to write: a lock would be held across I/O
}

func isUpgrade(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
}

// upgrade takes the connection of a request over. Offers of extensions and subprotocols are not taken up.
func (s *Server) upgrade(c *call) (*socket, error) {
	key := c.Header.Get("Sec-WebSocket-Key")
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) != 16 || c.Header.Get("Sec-WebSocket-Version") != "13" {
		return nil, invalid("bad WebSocket handshake")
	}
	conn, buf, err := http.NewResponseController(c.raw).Hijack()
	if err != nil {
		return nil, invalid("the connection cannot be upgraded")
	}
	sum := sha1.Sum([]byte(key + handshakeGUID))
	date := c.out.header.Get("Date")
	c.out = nil
	c.log.Head(http.StatusSwitchingProtocols, nil)
	_ = conn.SetDeadline(time.Time{})
	w := &socket{conn: conn, gone: make(chan struct{}), read: make(chan struct{}), writing: make(chan struct{}, 1)}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nDate: "+date+
		"\r\nSec-WebSocket-Accept: "+base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n")
	if !s.spawn(func() { w.listen(buf.Reader) }) {
		close(w.gone)
		close(w.read)
	}
	return w, nil
}

// listen reads what the client sends until it leaves.
func (w *socket) listen(r *bufio.Reader) {
	defer close(w.read)
	defer close(w.gone)
	for {
		op, payload, err := readFrame(r)
		switch {
		case err != nil || op == opClose:
			return
		case op == opPing:
			w.send(opPong, payload)
		}
	}
}

// readFrame reads a frame of a client's, which must be masked.
func readFrame(r io.Reader) (op byte, payload []byte, err error) {
	var head [8]byte
	if _, err = io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, err
	}
	op = head[0] & 0xf
	masked, size := head[1]&0x80 != 0, uint64(head[1]&0x7f)
	switch size {
	case 126:
		if _, err = io.ReadFull(r, head[:2]); err != nil {
			return 0, nil, err
		}
		size = uint64(binary.BigEndian.Uint16(head[:2]))
	case 127:
		if _, err = io.ReadFull(r, head[:8]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(head[:8])
	}
	if size > maxFrame || !masked {
		return 0, nil, io.ErrUnexpectedEOF
	}
	var mask [4]byte
	if _, err = io.ReadFull(r, mask[:]); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, size)
	if _, err = io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return op, payload, nil
}

// send writes one frame and reports whether it could.
func (w *socket) send(op byte, payload []byte) bool {
	frame := []byte{0x80 | op}
	switch n := len(payload); {
	case n < 126:
		frame = append(frame, byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 127), uint64(n))
	}
	w.writing <- struct{}{}
	defer func() { <-w.writing }()
	_ = w.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	_, err := w.conn.Write(append(frame, payload...))
	return err == nil
}

// bye ends the connection in the proper way: with status 1000, and after the client's own farewell or a second.
func (w *socket) bye() {
	if !w.send(opClose, []byte{0x03, 0xe8}) {
		return
	}
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-w.gone:
	case <-t.C:
	}
}

// close ends the connection at once.
func (w *socket) close() {
	_ = w.conn.Close()
	<-w.read
}
