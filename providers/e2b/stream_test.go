package e2b_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/e2b"
)

func frame(flags byte, body string) []byte {
	head := make([]byte, 5, 5+len(body))
	head[0] = flags
	binary.BigEndian.PutUint32(head[1:], uint32(len(body)))
	return append(head, body...)
}

func stdout(s string) string {
	return `{"event":{"data":{"stdout":"` + base64.StdEncoding.EncodeToString([]byte(s)) + `"}}}`
}

// recorded is a stream as the daemon sends it.
func recorded() []byte {
	return bytes.Join([][]byte{
		frame(0, `{"event":{"start":{"pid":4711}}}`),
		frame(0, stdout("hello ")),
		frame(0, `{"event":{"keepalive":{}}}`),
		frame(0, `{"event":{"data":{"stderr":"b29wcwo="}}}`),
		frame(0, stdout("wörld\n"[:2])),
		frame(0, stdout("wörld\n"[2:])),
		frame(0, `{"event":{"end":{"exitCode":7,"exited":true,"status":"exit status 7","error":"exit status 7"}}}`),
		frame(2, `{}`),
	}, nil)
}

func TestAStreamIsReadAsItIsWritten(t *testing.T) {
	for name, r := range map[string]io.Reader{
		"at once":       bytes.NewReader(recorded()),
		"byte for byte": iotest.OneByteReader(bytes.NewReader(recorded())),
	} {
		out, errs, code, err := e2b.ReadStream(r)
		require.NoError(t, err, name)
		assert.Equal(t, "hello wörld\n", string(out))
		assert.Equal(t, "oops\n", string(errs))
		assert.Equal(t, 7, code)
	}
}

func TestHowACommandEndedIsReadFromWhatIsNotLeftOut(t *testing.T) {
	for end, want := range map[string]int{
		`{"exited":true,"status":"exit status 0"}`:                           0, // zero is left out on the way
		`{"exitCode":0,"exited":true,"status":"exit status 0","error":null}`: 0,
		`{"exited":true}`: 0,
		`{"exitCode":255,"exited":true,"status":"exit status 255"}`:               255,
		`{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}`:      137,
		`{"exitCode":-1,"status":"signal: terminated"}`:                           143,
		`{"exitCode":-1,"status":"signal: segmentation fault (core dumped)"}`:     139,
		`{"exitCode":-1,"status":"signal: signal 34"}`:                            162,
		`{"exitCode":-1,"exited":false,"status":"signal: user defined signal 1"}`: 138,
	} {
		_, _, code, err := e2b.ReadStream(bytes.NewReader(frame(0, `{"event":{"end":`+end+`}}`)))
		require.NoError(t, err, end)
		assert.Equal(t, want, code, end)
	}
	for _, end := range []string{`{}`, `{"exitCode":-1}`, `{"status":"signal: unheard of"}`, `{"exitCode":-1,"status":"signal: signal 99"}`, `{"status":"stopped"}`} {
		_, _, _, err := e2b.ReadStream(bytes.NewReader(frame(0, `{"event":{"end":`+end+`}}`)))
		assert.Error(t, err, end)
	}
}

func TestAStreamThatIsCutAnywhereIsAnError(t *testing.T) {
	all := recorded()
	end := len(all) - len(frame(2, `{}`)) // with the command's end everything is known
	for n := range end {
		_, _, _, err := e2b.ReadStream(bytes.NewReader(all[:n]))
		require.Error(t, err, "after %d bytes", n)
		require.NotErrorIs(t, err, io.EOF, "after %d bytes it is no regular end", n)
	}
}

func TestAStreamWithAnyBitFlippedNeitherHangsNorPanics(t *testing.T) {
	all := recorded()
	for i := range len(all) * 8 {
		flipped := bytes.Clone(all)
		flipped[i/8] ^= 1 << (i % 8)
		out, errs, _, err := e2b.ReadStream(bytes.NewReader(flipped))
		if err == nil && len(out)+len(errs) > len(all) {
			t.Fatalf("bit %d: more came out than went in", i)
		}
	}
}

func TestTheEndOfAStreamMayBeAnError(t *testing.T) {
	stream := append(frame(0, `{"event":{"start":{"pid":1}}}`), frame(2, `{"error":{"code":"deadline_exceeded","message":"m"},"metadata":{}}`)...)
	_, _, _, err := e2b.ReadStream(bytes.NewReader(stream))
	assert.ErrorContains(t, err, "deadline_exceeded")
	_, _, _, err = e2b.ReadStream(bytes.NewReader(frame(2, `{}`)))
	assert.ErrorIs(t, err, io.EOF)
}

func TestALengthAloneCostsNothing(t *testing.T) {
	for _, size := range []uint32{5 << 20, 1 << 31, 1<<32 - 1} {
		head := []byte{0, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(head[1:], size)
		read := 0
		endless := io.MultiReader(bytes.NewReader(head), readerFunc(func(p []byte) (int, error) { read += len(p); return len(p), nil }))
		_, _, _, err := e2b.ReadStream(endless)
		require.Error(t, err)
		assert.Zero(t, read)
	}
	const most = 4 << 20 // an envelope that is promised and does not come
	head := []byte{0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[1:], most)
	assert.Less(t, testing.AllocsPerRun(10, func() { _, _, _, _ = e2b.ReadStream(bytes.NewReader(append(head, 'x'))) }), 50.0)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestCompressionThatWasNotAskedForIsAnError(t *testing.T) {
	for _, flags := range []byte{1, 3, 4, 0xff} {
		_, _, _, err := e2b.ReadStream(bytes.NewReader(frame(flags, `{"event":{"end":{"exited":true}}}`)))
		assert.ErrorContains(t, err, "flags", flags)
	}
}

func FuzzStream(f *testing.F) {
	f.Add(recorded())
	f.Add(frame(2, `{"error":{"code":"x"}}`))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff})
	f.Add(frame(0, `{"event":null}`))
	f.Add(frame(0, strings.Repeat("[", 20_000)))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, errs, _, err := e2b.ReadStream(iotest.OneByteReader(bytes.NewReader(b)))
		if len(out)+len(errs) > len(b) {
			t.Error("more came out than went in")
		}
		if err == nil && !bytes.Contains(b, []byte("end")) && !bytes.Contains(bytes.ToLower(b), []byte("end")) && !bytes.Contains(b, []byte(`\u`)) {
			t.Error("an end that nobody told")
		}
	})
}

// The decoders of the control plane meet answers of any form.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		`{"sandboxID":"i1","state":"running","startedAt":"2026-01-01T00:00:00Z","endAt":"2026-01-01T00:03:00Z","metadata":{"sandglass":"1"}}`,
		`[{"sandboxID":"i1","state":"paused","startedAt":"2026-01-01T00:00:00Z","endAt":"2026-01-01T00:03:00Z"}]`,
		`{"sandboxID":"i1","state":"?","startedAt":"x"}`, `[{}]`, `[null]`, `null`, `{"metadata":{"sandglass-ports":"1.2.x"}}`, ``,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		p, err := e2b.New(e2b.Config{APIKey: "e2b_x", HTTP: httpOf(answers(200, body))})
		require.NoError(t, err)
		if info, err := p.Get(t.Context(), "i1"); err == nil {
			assert.Equal(t, "i1", info.ID)
		}
		n := 0
		for info, err := range p.List(t.Context(), anyFilter) {
			if err == nil {
				assert.NotEmpty(t, info.ID)
			}
			n++
		}
		assert.LessOrEqual(t, n, len(body)+1)
		if info, err := p.Create(t.Context(), order(minute)); err == nil {
			assert.NotEmpty(t, info.ID)
		}
	})
}
