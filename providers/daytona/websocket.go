package daytona

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

// Times of a WebSocket. The machine's proxy counts an open one as activity.
const (
	pingEvery = 20 * time.Second
	silence   = 60 * time.Second // so long without a byte, and the connection is given up
)

// Kinds of frames.
const (
	frameMore   = 0
	frameText   = 1
	frameBinary = 2
	frameClose  = 8
	framePing   = 9
	framePong   = 10
)

// Limits of frames. What the payload of data is read into is the reader's; the limit tells rubbish from it.
const (
	maxData    = 64 << 20
	maxControl = 125
)

var errFrame = errors.New("what came is no WebSocket's frame")

// upgrade returns the header of a request for a WebSocket, and the answer's field that proves that it was understood.
func upgrade() (header http.Header, accept string) {
	var b [16]byte
	rand.Read(b[:])
	key := base64.StdEncoding.EncodeToString(b[:])
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, 4.2.2
	return http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {key},
	}, base64.StdEncoding.EncodeToString(sum[:])
}

// upgraded reports whether the answer's header says that the connection is a WebSocket now.
func upgraded(header http.Header, accept string) bool {
	return strings.EqualFold(header.Get("Upgrade"), "websocket") && header.Get("Sec-Websocket-Accept") == accept &&
		header.Get("Sec-Websocket-Extensions") == "" // none was offered
}

// A socket is the client's side of a WebSocket on which the server alone has something to say. What it sends is read as
// one stream of bytes, however it was cut into messages. A frame is handed on as it comes, so that its length costs
// nothing.
type socket struct {
	r    *bufio.Reader
	left uint64      // of the present frame of data
	open bool        // a message is not over
	out  chan []byte // control frames for whoever writes; nil: nobody does
	over error
}

func newSocket(r io.Reader) *socket {
	return &socket{r: bufio.NewReader(r), out: make(chan []byte, 4)}
}

// Read returns [io.EOF] when the server has closed the WebSocket in an orderly way. Where the connection ends without
// that, it is [io.ErrUnexpectedEOF].
func (s *socket) Read(p []byte) (int, error) {
	for s.over == nil && s.left == 0 {
		s.over = s.head()
	}
	if s.over != nil {
		return 0, s.over
	}
	n, err := s.r.Read(p[:min(uint64(len(p)), s.left)])
	s.left -= uint64(n)
	if err != nil {
		s.over = unexpected(err)
		if n > 0 {
			return n, nil
		}
	}
	return n, s.over
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// head reads the head of one frame, and all of one that is no data.
func (s *socket) head() error {
	var b [8]byte
	if _, err := io.ReadFull(s.r, b[:2]); err != nil {
		return unexpected(err)
	}
	final, kind, size := b[0]&0x80 != 0, b[0]&0x0f, uint64(b[1]&0x7f)
	if b[0]&0x70 != 0 || b[1]&0x80 != 0 { // an extension, or a mask: neither is the server's to use
		return errFrame
	}
	if control := kind >= frameClose; control && (!final || size > maxControl) {
		return errFrame
	}
	switch size {
	case 126:
		if _, err := io.ReadFull(s.r, b[:2]); err != nil {
			return unexpected(err)
		}
		size = uint64(binary.BigEndian.Uint16(b[:2]))
	case 127:
		if _, err := io.ReadFull(s.r, b[:8]); err != nil {
			return unexpected(err)
		}
		size = binary.BigEndian.Uint64(b[:8])
	}
	switch kind {
	case frameText, frameBinary, frameMore:
		if (kind == frameMore) != s.open || size > maxData {
			return errFrame
		}
		s.open, s.left = !final, size
		return nil
	case frameClose, framePing, framePong:
		return s.control(kind, size)
	}
	return errFrame
}

func (s *socket) control(kind byte, size uint64) error {
	said := make([]byte, size)
	if _, err := io.ReadFull(s.r, said); err != nil {
		return unexpected(err)
	}
	switch kind {
	case framePing:
		select { // a server that pings without end is answered as often as that can be sent
		case s.out <- frame(framePong, said):
		default:
		}
	case frameClose:
		if len(said) >= 2 {
			if code := binary.BigEndian.Uint16(said); code != 1000 && code != 1001 {
				return fmt.Errorf("the server has closed the WebSocket with code %d", code)
			}
		}
		return io.EOF
	}
	return nil
}

// frame returns one control frame, masked, as a client's must be.
func frame(kind byte, said []byte) []byte {
	var mask [4]byte
	rand.Read(mask[:])
	b := append([]byte{0x80 | kind, 0x80 | byte(len(said))}, mask[:]...)
	for i, c := range said {
		b = append(b, c^mask[i%4])
	}
	return b
}

// tend writes what there is to answer, and a ping now and then, until over is closed or the connection fails.
func (s *socket) tend(w io.Writer, over <-chan struct{}) {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		var b []byte
		select {
		case <-over:
			return
		case b = <-s.out:
		case <-ping.C:
			b = frame(framePing, nil)
		}
		if _, err := w.Write(b); err != nil {
			return // the reader sees it too
		}
	}
}
