package daytonafake_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const key = "dtn_test"

// world is a service in a bubble and a client of it.
type world struct {
	*testing.T
	s   *daytonafake.Server
	net *memnet.Network
	api *http.Client
	key string
}

// in runs f in a bubble, on a service made of o.
func in(t *testing.T, o daytonafake.Options, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if o.Key == "" {
			o.Key = key
		}
		w := &world{T: t, s: daytonafake.New(o), net: memnet.New(), key: key}
		w.api = w.net.Client()
		w.api.Timeout = 24 * time.Hour
		stop, err := w.net.Serve("*:80", w.s)
		require.NoError(t, err)
		defer func() {
			w.net.Close()
			w.s.Close()
			stop()
			w.api.CloseIdleConnections()
		}()
		f(w)
	})
}

// reply is an answer that was read.
type reply struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// object is JSON.
type object = map[string]any

func (r reply) json() object {
	r.t.Helper()
	var o object
	require.NoErrorf(r.t, json.Unmarshal(r.body, &o), "body %q", r.body)
	return o
}

func (r reply) ok() object {
	r.t.Helper()
	require.Containsf(r.t, []int{200, 201, 202}, r.status, "%s", r.body)
	return r.json()
}

func (r reply) refused(status int) object {
	r.t.Helper()
	require.Equalf(r.t, status, r.status, "%s", r.body)
	return r.json()
}

// try sends a request; body is JSON, text, or nil.
func (w *world) try(method, url string, body any, headers ...string) (reply, error) {
	w.Helper()
	var in io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
		kind = "application/x-www-form-urlencoded"
	case string:
		in = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		require.NoError(w, err)
		in = bytes.NewReader(text)
	}
	if !strings.HasPrefix(url, "http") {
		url = "http://daytona.test" + url
	}
	req, err := http.NewRequestWithContext(w.Context(), method, url, in)
	require.NoError(w, err)
	req.Header.Set("Content-Type", kind)
	if w.key != "" {
		req.Header.Set("Authorization", "Bearer "+w.key)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.api.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{w.T, res.StatusCode, res.Header, text}, err
}

func (w *world) do(method, url string, body any, headers ...string) reply {
	w.Helper()
	r, err := w.try(method, url, body, headers...)
	require.NoError(w, err)
	return r
}

// create makes a sandbox and waits until it runs.
func (w *world) create(body object) (id string) {
	w.Helper()
	id = w.do("POST", "/api/sandbox", body).ok()["id"].(string)
	for range 100 {
		if w.state(id) == "started" {
			return id
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.Fatalf("%s does not start: %s", id, w.state(id))
	return ""
}

// stop stops a sandbox and waits until it has.
func (w *world) stop(id string) {
	w.Helper()
	w.do("POST", "/api/sandbox/"+id+"/stop", nil).ok()
	time.Sleep(w.s.Service().Behaviour().EndTime)
}

// state is what a look says: the state, or the status.
func (w *world) state(id string) string {
	w.Helper()
	r := w.do("GET", "/api/sandbox/"+id, nil)
	if r.status != http.StatusOK {
		return http.StatusText(r.status)
	}
	return r.json()["state"].(string)
}

// truth is the state by the state machine.
func (w *world) truth(id string) sandbox.State {
	rec, _ := w.s.Service().Lookup(daytonafake.MachineID(id))
	return rec.State
}

// ids are those of a page.
func ids(page object) []string {
	all := []string{}
	for _, item := range page["items"].([]any) {
		all = append(all, item.(object)["id"].(string))
	}
	return all
}

func (w *world) list(query string) []string {
	w.Helper()
	return ids(w.do("GET", "/api/sandbox?"+query, nil).ok())
}

func (w *world) exec(id, command string) object {
	w.Helper()
	return w.do("POST", "/toolbox/"+id+"/process/execute", object{"command": command}).ok()
}

func (w *world) behave(f func(b *fake.Behaviour)) { w.s.Service().Behave(f) }

func (w *world) quirk(f func(q *daytonafake.Quirks)) { w.s.Quirk(f) }

// moment parses a time of an answer.
func moment(t *testing.T, o object, field string) time.Time {
	t.Helper()
	text, _ := o[field].(string)
	at, err := time.Parse(time.RFC3339, text)
	require.NoErrorf(t, err, "%s in %v", field, o)
	return at
}

// stream is a WebSocket that is read.
type stream struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// dial opens a WebSocket. The caller closes it.
func (w *world) dial(path string, headers ...string) *stream {
	w.Helper()
	conn, err := w.net.DialContext(w.Context(), "tcp", "daytona.test:80")
	require.NoError(w, err)
	nonce := base64.StdEncoding.EncodeToString([]byte("0123456789abcdef"))
	req := "GET " + path + " HTTP/1.1\r\nHost: daytona.test\r\n" +
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Key: " + nonce + "\r\n" +
		"Authorization: Bearer " + w.key + "\r\n"
	for i := 0; i < len(headers); i += 2 {
		req += headers[i] + ": " + headers[i+1] + "\r\n"
	}
	_, err = io.WriteString(conn, req+"\r\n")
	require.NoError(w, err)
	s := &stream{w.T, conn, bufio.NewReader(conn)}
	res, err := http.ReadResponse(s.r, nil)
	require.NoError(w, err)
	require.Equal(w, http.StatusSwitchingProtocols, res.StatusCode)
	assert.Equal(w, "BACScCJPNqyz+UBoqMH89VmURoA=", res.Header.Get("Sec-WebSocket-Accept"))
	assert.Empty(w, res.Header.Get("Sec-WebSocket-Extensions"))
	return s
}

// frame returns the next frame, or the error of the connection.
func (s *stream) frame() (op byte, payload []byte, err error) {
	var head [10]byte
	if _, err := io.ReadFull(s.r, head[:2]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1])
	switch head[1] {
	case 126:
		_, err = io.ReadFull(s.r, head[2:4])
		size = uint64(binary.BigEndian.Uint16(head[2:4]))
	case 127:
		_, err = io.ReadFull(s.r, head[2:10])
		size = binary.BigEndian.Uint64(head[2:10])
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(s.r, payload)
	return head[0] & 0xf, payload, err
}

// send sends a masked frame.
func (s *stream) send(op byte, payload string) {
	s.t.Helper()
	frame := []byte{0x80 | op, 0x80 | byte(len(payload)), 1, 2, 3, 4}
	for i := range len(payload) {
		frame = append(frame, payload[i]^frame[2+i%4])
	}
	_, err := s.conn.Write(frame)
	require.NoError(s.t, err)
}

// all reads messages to the end, and returns them, their number and the status of the close, 0 if there was none.
func (s *stream) all() (data []byte, messages, status int) {
	s.t.Helper()
	for {
		op, payload, err := s.frame()
		switch {
		case err != nil:
			return data, messages, 0
		case op == 8:
			s.send(8, string(payload))
			return data, messages, int(binary.BigEndian.Uint16(payload))
		}
		data = append(data, payload...)
		messages++
	}
}

// immediate has creates and deletes take no time.
func immediate(b *fake.Behaviour) { b.StartTime, b.DeleteTime = 0, 0 }
