package wsock_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/wsock"
)

// frame is one as a server sends it.
func frame(first byte, payload string) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, payload...)
}

const (
	final = 0x80
	more  = 0
	text  = 1
	bin   = 2
	shut  = 8
	ping  = 9
	pong  = 10
)

// wire is a connection on which everything has been said already.
type wire struct {
	io.Reader
	io.Writer
}

func over(r io.Reader) *wsock.Conn { return wsock.New(wire{r, io.Discard}) }

func said(frames ...[]byte) *wsock.Conn { return over(bytes.NewReader(bytes.Join(frames, nil))) }

type got struct {
	kind wsock.Kind
	text string
}

// all reads everything, and returns what ended it.
func all(c *wsock.Conn) (messages []got, err error) {
	for {
		kind, err := c.Next()
		if err != nil {
			return messages, err
		}
		b, err := io.ReadAll(readOnly{c})
		messages = append(messages, got{kind, string(b)})
		if err != nil {
			return messages, err
		}
	}
}

type readOnly struct{ io.Reader }

func TestMessagesAreReadHoweverTheyWereCut(t *testing.T) {
	long := strings.Repeat("0123456789", 7000)
	frames := bytes.Join([][]byte{
		frame(final|bin, "one"), frame(final|text, ""), frame(bin, "t"), frame(more, ""), frame(final|ping, "hey"), frame(more, "w"),
		frame(final|more, "o"), frame(final|pong, ""), frame(final|bin, long[:200]), frame(final|bin, long), frame(bin, "end"), frame(final|more, ""),
		frame(final|shut, "\x03\xe8bye"),
	}, nil)
	want := []got{{bin, "one"}, {text, ""}, {bin, "two"}, {bin, long[:200]}, {bin, long}, {bin, "end"}}
	for name, r := range map[string]io.Reader{
		"at once": bytes.NewReader(frames), "byte by byte": iotest.OneByteReader(bytes.NewReader(frames)),
		"with its end": iotest.DataErrReader(bytes.NewReader(frames)),
	} {
		messages, err := all(over(r))
		assert.Equal(t, want, messages, name)
		assert.ErrorIs(t, err, io.EOF, name)
	}
}

func TestWhatIsLeftOfAMessageIsLeftOut(t *testing.T) {
	c := said(frame(bin, "long"), frame(final|more, "er"), frame(final|bin, "next"))
	_, err := c.Next()
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	messages, err := all(c)
	assert.Equal(t, []got{{bin, "next"}}, messages)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "nobody has said goodbye")
}

func TestWhatIsNoWebSocketsIsAnError(t *testing.T) {
	for name, c := range map[string]*wsock.Conn{
		"a reserved bit":           said(frame(final|bin|0x40, "x")),
		"a mask":                   said([]byte{final | bin, 0x81, 0, 0, 0, 0, 'x'}),
		"an unknown kind":          said(frame(final|3, "x")),
		"an unknown control":       said(frame(final|11, "x")),
		"a rest without beginning": said(frame(final|more, "x")),
		"a beginning within":       said(frame(bin, "x"), frame(final|bin, "x")),
		"a ping in parts":          said(frame(ping, "x")),
		"a long ping":              said(frame(final|ping, strings.Repeat("x", 126))),
		"a close with half a code": said(frame(final|shut, "\x03")),
		"a length beyond reason":   said([]byte{final | bin, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"a length beyond limits":   said([]byte{final | bin, 127, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff}),
		"frames of nothing":        over(io.MultiReader(bytes.NewReader(frame(bin, "")), endless{})),
	} {
		_, err := all(c)
		assert.ErrorIs(t, err, wsock.ErrProtocol, name)
		_, again := c.Next()
		assert.Equal(t, err, again, "%s: an error stays", name)
	}
}

// endless is a stream of empty frames.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p) &^ 1, nil
}

func TestAConnectionThatEndsEarlyIsNoEnd(t *testing.T) {
	whole := bytes.Join([][]byte{frame(final|bin, strings.Repeat("x", 300)), frame(final|ping, "p"), frame(final|shut, "\x03\xe8")}, nil)
	for n := range whole {
		_, err := all(said(whole[:n]))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut at %d", n)
	}
	messages, err := all(said(frame(bin, "half"), frame(final|shut, "\x03\xe8")))
	assert.Equal(t, []got{{bin, "half"}}, messages)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "closed within a message")
	broken := errors.New("broken")
	_, err = all(over(io.MultiReader(bytes.NewReader(frame(bin, "half")), iotest.ErrReader(broken))))
	assert.ErrorIs(t, err, broken)
}

func TestACloseTellsItsCode(t *testing.T) {
	for name, payload := range map[string]string{"regular": "\x03\xe8", "going away": "\x03\xe9", "without a code": ""} {
		_, err := all(said(frame(final|shut, payload)))
		assert.ErrorIs(t, err, io.EOF, name)
	}
	_, err := all(said(frame(final|shut, "\x03\xf3too \xffmuch")))
	closed, ok := errors.AsType[*wsock.CloseError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, &wsock.CloseError{Code: 1011, Reason: "too much"}, closed)
}

// unmask reads one frame of a client, whose payload must be masked and whole.
func unmask(t *testing.T, b []byte) (first byte, payload string, rest []byte) {
	t.Helper()
	require.GreaterOrEqual(t, len(b), 6)
	require.NotZero(t, b[1]&0x80, "a client's frames are masked")
	n, at := uint64(b[1]&0x7f), 2
	switch n {
	case 126:
		n, at = uint64(binary.BigEndian.Uint16(b[2:])), 4
	case 127:
		n, at = binary.BigEndian.Uint64(b[2:]), 10
	}
	mask, out := b[at:at+4], make([]byte, n)
	for i := range out {
		out[i] = b[at+4+i] ^ mask[i%4]
	}
	return b[0], string(out), b[at+4+int(n):]
}

func TestMessagesAreSentMaskedAndWhole(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 200_000} {
		var sent bytes.Buffer
		c := wsock.New(wire{nil, &sent})
		payload := []byte(strings.Repeat("abcdefg", n/7+1)[:n])
		kept := bytes.Clone(payload)
		require.NoError(t, c.Write(wsock.Binary, []byte{7}, payload))
		assert.Equal(t, kept, payload, "the caller's bytes stay as they are")
		first, text, rest := unmask(t, sent.Bytes())
		assert.Equal(t, byte(final|bin), first)
		assert.Equal(t, "\x07"+string(kept), text)
		assert.Empty(t, rest)
	}
	var one, two bytes.Buffer
	require.NoError(t, wsock.New(wire{nil, &one}).Write(wsock.Text, []byte("same")))
	require.NoError(t, wsock.New(wire{nil, &two}).Write(wsock.Text, []byte("same")))
	assert.NotEqual(t, one.Bytes(), two.Bytes(), "no mask is used twice")
	broken := errors.New("broken")
	assert.ErrorIs(t, wsock.New(wire{nil, failing{broken}}).Write(wsock.Text), broken)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestSendersTakeTurns(t *testing.T) {
	var sent bytes.Buffer // is written to by one at a time, or the race detector says so
	c := wsock.New(wire{nil, &sent})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				assert.NoError(t, c.Write(wsock.Binary, []byte("one"), []byte("message")))
			}
		})
	}
	wg.Wait()
	rest, n := sent.Bytes(), 0
	for ; len(rest) > 0; n++ {
		var text string
		_, text, rest = unmask(t, rest)
		require.Equal(t, "onemessage", text)
	}
	assert.Equal(t, 400, n)
}

func TestTendAnswersPingsAndSendsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fromServer, toClient := io.Pipe()
		fromClient, toServer := io.Pipe()
		c := wsock.New(wire{fromServer, toServer})
		done := make(chan struct{})
		var tended sync.WaitGroup
		tended.Go(func() { c.Tend(time.Minute, done) })
		tended.Go(func() {
			_, err := all(c)
			assert.ErrorIs(t, err, io.EOF)
		})
		next := func() (byte, string) {
			buf := make([]byte, 1024)
			n, err := fromClient.Read(buf)
			require.NoError(t, err)
			first, text, _ := unmask(t, buf[:n])
			return first, text
		}
		start := time.Now()
		_, err := toClient.Write(frame(final|ping, "are you there?"))
		require.NoError(t, err)
		first, text := next()
		assert.Equal(t, byte(final|pong), first)
		assert.Equal(t, "are you there?", text)
		assert.Zero(t, time.Since(start))
		first, _ = next()
		assert.Equal(t, byte(final|ping), first)
		assert.Equal(t, time.Minute, time.Since(start))
		for range 20 { // a server that pings without end, and reads nothing, is not waited for
			_, err := toClient.Write(frame(final|ping, "!"))
			require.NoError(t, err)
		}
		_, err = toClient.Write(frame(final|shut, ""))
		require.NoError(t, err)
		close(done)
		require.NoError(t, fromClient.Close()) // ends the pong that is being written
		tended.Wait()
	})
}

func TestAnAnswerHasToProveThatItUnderstood(t *testing.T) {
	header, key := wsock.Upgrade("v5.example")
	_, other := wsock.Upgrade("v5.example")
	assert.NotEqual(t, key, other)
	for name, want := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key, "Sec-WebSocket-Protocol": "v5.example",
	} {
		assert.Equal(t, want, header.Get(name))
	}
	raw, err := base64.StdEncoding.DecodeString(key)
	require.NoError(t, err)
	assert.Len(t, raw, 16)
	good := func() http.Header {
		sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		h := http.Header{}
		h.Set("Upgrade", "WebSocket")
		h.Set("Sec-WebSocket-Accept", base64.StdEncoding.EncodeToString(sum[:]))
		h.Set("Sec-WebSocket-Protocol", "v5.example")
		return h
	}
	require.NoError(t, wsock.Upgraded(good(), key, "v5.example"))
	for name, value := range map[string]string{
		"Upgrade": "h2c", "Sec-WebSocket-Accept": "x", "Sec-WebSocket-Protocol": "v4.example", "Sec-WebSocket-Extensions": "permessage-deflate",
	} {
		h := good()
		h.Set(name, value)
		assert.ErrorIs(t, wsock.Upgraded(h, key, "v5.example"), wsock.ErrProtocol, name)
	}
	assert.ErrorIs(t, wsock.Upgraded(good(), other, "v5.example"), wsock.ErrProtocol)
	// The example of RFC 6455, 1.3.
	h := http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Accept": {"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, "Sec-Websocket-Protocol": {"chat"}}
	assert.NoError(t, wsock.Upgraded(h, "dGhlIHNhbXBsZSBub25jZQ==", "chat"))
	// None is spoken unless one is asked for.
	assert.ErrorIs(t, wsock.Upgraded(h, "dGhlIHNhbXBsZSBub25jZQ==", ""), wsock.ErrProtocol)
	h.Del("Sec-WebSocket-Protocol")
	assert.NoError(t, wsock.Upgraded(h, "dGhlIHNhbXBsZSBub25jZQ==", ""))
	asked, _ := wsock.Upgrade("")
	assert.NotContains(t, asked, "Sec-Websocket-Protocol")
}

func TestAStreamIsAllThatComes(t *testing.T) {
	b := bytes.Join([][]byte{
		frame(bin, "one "), frame(final|ping, "p"), frame(final|more, "two "), frame(final|bin, ""), frame(final|bin, "three"), frame(final|shut, "\x03\xe8"),
	}, nil)
	for _, n := range []int{len(b), len(b) - 1, len(b) - 4} {
		got, err := io.ReadAll(said(b[:n]).Stream())
		assert.Equal(t, "one two three", string(got))
		assert.Equal(t, n < len(b), errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
	}
}

// Whatever comes, reading ends, takes no more than it was sent, and says the same however it was cut.
func FuzzRead(f *testing.F) {
	f.Add(bytes.Join([][]byte{frame(bin, "a"), frame(final|ping, "p"), frame(final|more, "b"), frame(final|shut, "\x03\xe8")}, nil))
	f.Add([]byte{final | bin, 127, 0, 0, 0, 0, 0, 1, 0, 0, 'x'})
	f.Add(frame(final|shut, "\x03\xf3no"))
	f.Fuzz(func(t *testing.T, b []byte) {
		messages, err := all(said(b))
		require.Error(t, err)
		n := 0
		for _, m := range messages {
			n += len(m.text)
		}
		assert.LessOrEqual(t, n, len(b))
		again, err2 := all(over(iotest.OneByteReader(bytes.NewReader(b))))
		assert.Equal(t, messages, again)
		assert.Equal(t, err.Error(), err2.Error())
	})
}
