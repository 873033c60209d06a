package daytona_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// logged is the log of a command that wrote "out\x00 1\n" and, to stderr, "err", with the daemon's marks.
func logged() []byte {
	return []byte("\x01\x01\x01@O" + base64.StdEncoding.EncodeToString([]byte("out\x00 1\n")) + "\n" +
		"\x02\x02\x02sh: a word of its own\n" +
		"\x01\x01\x01@E" + base64.StdEncoding.EncodeToString([]byte("err")) + "\n" +
		"\x01\x01\x01@X3\n\x01\x01\x01@O.\n\x01\x01\x01@E.\n")
}

// framed is b in frames of n bytes, as a server sends them, with a ping in between, and a close.
func framed(b []byte, n int) []byte {
	var w bytes.Buffer
	for _, p := range pieces(b, n) {
		w.Write([]byte{0x82})
		switch {
		case len(p) < 126:
			w.WriteByte(byte(len(p)))
		case len(p) < 1<<16:
			w.WriteByte(126)
			_ = binary.Write(&w, binary.BigEndian, uint16(len(p)))
		default:
			w.WriteByte(127)
			_ = binary.Write(&w, binary.BigEndian, uint64(len(p)))
		}
		w.Write(p)
		w.Write([]byte{0x89, 2, 'h', 'i'})
	}
	w.Write([]byte{0x88, 2, 0x03, 0xe8})
	return w.Bytes()
}

func TestALogIsDecodedHoweverItIsCut(t *testing.T) {
	want := daytona.Log{Stdout: "out\x00 1\n", Stderr: "err", Code: 3, Done: true, Heard: "sh: a word of its own"}
	for n := range len(logged()) {
		assert.Equal(t, want, daytona.Decode(pieces(logged(), n+1)...), "pieces of %d", n+1)
	}
	unmarked := strings.NewReplacer("\x01", "", "\x02", "").Replace(string(logged()))
	assert.Equal(t, want, daytona.Decode([]byte(unmarked)), "a daemon that does not mark lines")
}

func TestALogThatBreaksOffIsNotDone(t *testing.T) {
	for n := range len(logged()) {
		log := daytona.Decode(logged()[:n])
		assert.False(t, log.Done, "%d bytes", n)
		assert.True(t, strings.HasPrefix("out\x00 1\n", log.Stdout) && strings.HasPrefix("err", log.Stderr))
	}
}

func TestALogWithAFlippedBitNeverClaimsAnotherEndThanItHas(t *testing.T) {
	whole := logged()
	for i := range len(whole) * 8 {
		bad := bytes.Clone(whole)
		bad[i/8] ^= 1 << (i % 8)
		log := daytona.Decode(bad)
		if log.Done && log.Fault == nil {
			assert.LessOrEqual(t, log.Code, 255)
		}
	}
}

func TestALogOfOneEndlessLineTakesBoundedMemory(t *testing.T) {
	piece := bytes.Repeat([]byte("@OAAAA"), 1<<10)
	many := make([][]byte, 0, 1000)
	for range 1000 {
		many = append(many, piece)
	}
	many = append(many, []byte("\n"), logged())
	log := daytona.Decode(many...)
	assert.True(t, log.Done)
	assert.Equal(t, "out\x00 1\n", log.Stdout)
	assert.LessOrEqual(t, len(log.Heard), 600)
}

func TestLinesThatCannotBeRightAreAFault(t *testing.T) {
	for _, bad := range []string{"@O***\n", "@X256\n", "@X-1\n", "@Xx\n", "@X1\n@X1\n", "@O.\n@OAAAA\n", "@E.\n@E.\n"} {
		assert.Error(t, daytona.Decode([]byte(bad)).Fault, bad)
	}
	for _, other := range []string{"\n", "@\n", "@X\n", "@Z1\n", "X1\n", "text\r\n"} {
		assert.NoError(t, daytona.Decode([]byte(other)).Fault, other)
	}
}

func TestAWebSocketIsOneStreamHoweverItIsCut(t *testing.T) {
	want := bytes.Repeat(logged(), 2000) // longer than a frame's short length can say
	for _, n := range []int{1, 125, 126, 1000, 65535, 65536, 1 << 20} {
		got, err := daytona.Unframe(bytes.NewReader(framed(want, n)))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, got), "frames of %d", n)
	}
	parts := []byte{0x02, 1, 'a', 0x00, 1, 'b', 0x89, 0, 0x80, 1, 'c', 0x81, 1, 'd', 0x88, 0}
	got, err := daytona.Unframe(bytes.NewReader(parts))
	require.NoError(t, err)
	assert.Equal(t, "abcd", string(got))
}

func TestAWebSocketThatIsCutIsNoEnd(t *testing.T) {
	all := framed(logged(), 10)
	for n := range len(all) {
		got, err := daytona.Unframe(bytes.NewReader(all[:n]))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes", n)
		assert.True(t, bytes.HasPrefix(logged(), got), "%d bytes", n)
	}
}

func TestAWebSocketWithAFlippedBitEnds(t *testing.T) {
	all := framed(logged(), 10)
	for i := range len(all) * 8 {
		bad := bytes.Clone(all)
		bad[i/8] ^= 1 << (i % 8)
		got, _ := daytona.Unframe(bytes.NewReader(bad))
		assert.LessOrEqual(t, len(got), len(all))
		daytona.Decode(got)
	}
}

func TestFramesThatNoServerMaySendAreRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"masked":                {0x82, 0x81, 0, 0, 0, 0, 'x'},
		"with an extension":     {0xc2, 1, 'x'},
		"of an unknown kind":    {0x83, 1, 'x'},
		"ping in parts":         {0x09, 0},
		"ping too long":         append([]byte{0x89, 126, 0, 126}, make([]byte, 126)...),
		"more of nothing":       {0x80, 1, 'x'},
		"new within a message":  {0x02, 1, 'x', 0x82, 1, 'y'},
		"longer than a machine": {0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"closed by a fault":     {0x88, 2, 0x03, 0xf3},
	} {
		_, err := daytona.Unframe(bytes.NewReader(b))
		assert.Error(t, err, name)
		assert.NotErrorIs(t, err, io.ErrUnexpectedEOF, name)
	}
}

func FuzzLog(f *testing.F) {
	f.Add(logged(), 7)
	f.Add([]byte("@OAA==\n@X0\n@O.\n@E.\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		whole := daytona.Decode(b)
		cut := daytona.Decode(pieces(b, max(n, 1))...)
		if whole.Fault != nil {
			require.Error(t, cut.Fault)
			whole.Fault, cut.Fault = nil, nil
		}
		require.Equal(t, whole, cut)
	})
}

func FuzzWebSocket(f *testing.F) {
	f.Add(framed(logged(), 10))
	f.Add([]byte{0x81, 127, 0, 0, 0, 0, 0, 0, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _ := daytona.Unframe(bytes.NewReader(b))
		require.LessOrEqual(t, len(got), len(b))
	})
}

// shells are those of this machine on which the wrapper can be tried.
func shells(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, name := range []string{"sh", "dash", "bash", "zsh"} {
		if p, err := exec.LookPath(name); err == nil {
			all[name] = []string{p}
		}
	}
	if p, err := exec.LookPath("busybox"); err == nil {
		all["busybox"] = []string{p, "sh"}
	}
	if len(all) == 0 {
		t.Skip("no shell on this machine")
	}
	return all
}

func TestTheWrapperIsRightOnEveryShellOfThisMachine(t *testing.T) {
	all := make([]byte, 0, 9000)
	for i := range 9000 {
		all = append(all, byte(i), byte(i>>8))
	}
	file := t.TempDir() + "/it's in"
	require.NoError(t, os.WriteFile(file, all, 0o600))
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			run := func(cmd sandbox.Cmd) daytona.Log {
				t.Helper()
				c := exec.Command(shell[0], shell[1:]...)
				c.Stdin = strings.NewReader(daytona.CommandLine(cmd) + "\n") // as the daemon's session does it
				out, err := c.Output()
				require.NoError(t, err)
				log := daytona.Decode(out)
				require.NoError(t, log.Fault)
				require.True(t, log.Done, "%q", out)
				return log
			}
			log := run(sandbox.Cmd{Args: []string{"cat", file}})
			assert.Equal(t, string(all), log.Stdout)
			odd := sandbox.Cmd{Args: []string{"sh", "-c", `cat; echo "$A|$1" >&2; exit 7`, "sh", "a 'b' $c"}}
			odd.Env = map[string]string{"A": "x\n'y'\n"}
			log = run(odd)
			assert.Equal(t, daytona.Log{Stderr: "x\n'y'\n|a 'b' $c\n", Code: 7, Done: true}, log)
			log = run(sandbox.Cmd{Args: []string{"printf", "%s|%s", "\xff\xfe", "it's"}, Env: map[string]string{"A": "\x80"}})
			assert.Equal(t, "\xff\xfe|it's", log.Stdout, "what is no UTF-8")
			assert.Equal(t, 127, run(sandbox.Cmd{Args: []string{"no-such-program-here"}}).Code)
			assert.Equal(t, 127, run(sandbox.Cmd{Args: []string{"no-such=program"}, Env: map[string]string{"A": "b"}}).Code)
			assert.Equal(t, 126, run(sandbox.Cmd{Args: []string{"pwd"}, Dir: "/no/such/folder"}).Code)
			assert.Equal(t, 137, run(sandbox.Shell("kill -KILL $$; sleep 9")).Code)
			assert.Equal(t, "/\n", run(sandbox.Cmd{Args: []string{"pwd"}, Dir: "/"}).Stdout)
			assert.Equal(t, strings.Repeat("x", 10), run(sandbox.Shell("printf xxxxxxxxxx")).Stdout)
		})
	}
}

func TestNoLineOfTheWrapperIsLongerThanAPipeTakesAtOnce(t *testing.T) {
	for name, shell := range shells(t) {
		c := exec.Command(shell[0], shell[1:]...)
		c.Stdin = strings.NewReader(daytona.CommandLine(sandbox.Shell("head -c 100000 /dev/urandom; head -c 100000 /dev/urandom >&2")))
		out, err := c.Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			require.LessOrEqual(t, len("\x01\x01\x01"+line), 4096, name)
		}
		log := daytona.Decode(out)
		assert.True(t, log.Done)
		assert.Len(t, log.Stdout, 100000)
		assert.Len(t, log.Stderr, 100000)
	}
}
