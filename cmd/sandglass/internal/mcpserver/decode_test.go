package mcpserver

import (
	"encoding/base64"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestACommandIsEitherAScriptOrArguments(t *testing.T) {
	cmd, err := command(runIn{Script: "echo $X", Env: map[string]string{"X": "1"}, Dir: "/tmp", Stdin: "in", TimeoutSeconds: 1.5})
	require.NoError(t, err)
	assert.Equal(t, []string{"sh", "-c", "echo $X"}, cmd.Args)
	assert.Equal(t, map[string]string{"X": "1"}, cmd.Env)
	assert.Equal(t, "/tmp", cmd.Dir)
	assert.Equal(t, 1500*time.Millisecond, cmd.Timeout)
	stdin, err := io.ReadAll(cmd.Stdin)
	require.NoError(t, err)
	assert.Equal(t, "in", string(stdin))

	cmd, err = command(runIn{Args: []string{"ls", "-l", "a b"}})
	require.NoError(t, err)
	assert.Equal(t, []string{"ls", "-l", "a b"}, cmd.Args)
	assert.Equal(t, 5*time.Minute, cmd.Timeout)
	assert.Nil(t, cmd.Stdin)

	for name, in := range map[string]runIn{
		"neither":        {},
		"both":           {Script: "true", Args: []string{"true"}},
		"time backwards": {Script: "true", TimeoutSeconds: -1},
		"for ever":       {Script: "true", TimeoutSeconds: 1e300},
		"output":         {Script: "true", MaxOutputBytes: -1},
		"much output":    {Script: "true", MaxOutputBytes: maxOutput + 1},
	} {
		_, err := command(in)
		assert.Error(t, err, name)
	}
	cmd, err = command(runIn{Script: "true", TimeoutSeconds: 1e-9})
	require.NoError(t, err)
	assert.Positive(t, cmd.Timeout, "0 would mean no limit")
}

func TestContentIsEitherTextOrBase64(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		in   writeIn
		want string
		bad  bool
	}{
		"text":      {in: writeIn{Path: "/f", Content: text("ä\n")}, want: "ä\n"},
		"empty":     {in: writeIn{Path: "/f", Content: text("")}},
		"base64":    {in: writeIn{Path: "/f", ContentBase64: text("AP8=")}, want: "\x00\xff"},
		"neither":   {in: writeIn{Path: "/f"}, bad: true},
		"both":      {in: writeIn{Path: "/f", Content: text("a"), ContentBase64: text("AP8=")}, bad: true},
		"no base64": {in: writeIn{Path: "/f", ContentBase64: text("?")}, bad: true},
		"relative":  {in: writeIn{Path: "f", Content: text("")}, bad: true},
		"too long":  {in: writeIn{Path: "/f", Content: text(strings.Repeat("x", maxWrite+1))}, bad: true},
		"too long in base64": {
			in: writeIn{Path: "/f", ContentBase64: text(base64.StdEncoding.EncodeToString(make([]byte, maxWrite+1)))}, bad: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := content(c.in)
			assert.Equal(t, c.bad, err != nil, "%v", err)
			assert.Equal(t, c.want, string(got))
		})
	}
}

func TestAReadHasDefaultsAndLimits(t *testing.T) {
	in, err := readIn{Path: "/f"}.check()
	require.NoError(t, err)
	assert.Equal(t, readIn{Path: "/f", MaxBytes: defaultRead, Encoding: encodeAuto}, in)
	for name, in := range map[string]readIn{
		"relative": {Path: "f"}, "before the beginning": {Path: "/f", Offset: -1}, "too much": {Path: "/f", MaxBytes: maxRead + 1},
		"less than nothing": {Path: "/f", MaxBytes: -1}, "encoding": {Path: "/f", Encoding: "utf-16"},
	} {
		_, err := in.check()
		assert.Error(t, err, name)
	}
}

func TestOutputKeepsBothEndsAndSaysWhatItLeavesOut(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []string
		want   string
		cut    bool
	}{
		"nothing":               {},
		"less than the limit":   {pieces: []string{"abc", "def"}, want: "abcdef"},
		"as much as the limit":  {pieces: []string{"abcdefghij"}, want: "abcdefghij"},
		"one more":              {pieces: []string{"abcdefghijk"}, want: "abcde\n[1 bytes left out]\nghijk", cut: true},
		"in many pieces":        {pieces: strings.Split(strings.Repeat("0123456789", 10000), ""), want: "01234\n[99990 bytes left out]\n56789", cut: true},
		"bytes":                 {pieces: []string{"a\xffb"}, want: "a\uFFFDb"},
		"a character in halves": {pieces: []string{"\xc3", "\xa4"}, want: "ä"},
		"cut in characters":     {pieces: []string{"abcdäfghijäbcde"}, want: "abcd\n[9 bytes left out]\nbcde", cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			o, total := newOutput(10), 0
			for _, p := range c.pieces {
				n, err := o.Write([]byte(p))
				require.NoError(t, err)
				require.Equal(t, len(p), n)
				total += n
			}
			text, n, cut := o.text()
			assert.Equal(t, c.want, text)
			assert.EqualValues(t, total, n)
			assert.Equal(t, c.cut, cut)
		})
	}
}

func TestNewsOfOutputComeOnceAndInWholeCharacters(t *testing.T) {
	o := newOutput(10)
	assert.Empty(t, o.fresh())
	_, _ = o.Write([]byte("a\xc3"))
	assert.Equal(t, "a", o.fresh())
	assert.Empty(t, o.fresh())
	_, _ = o.Write([]byte("\xa4b"))
	assert.Equal(t, "äb", o.fresh())
	_, _ = o.Write([]byte(strings.Repeat("x", maxPiece+7)))
	assert.Equal(t, "[7 bytes left out]\n"+strings.Repeat("x", maxPiece), o.fresh())
	assert.Empty(t, o.fresh())
}

func TestAPartOfAFileEndsTheTransferOnceItIsKnownThatThereIsMore(t *testing.T) {
	file := strings.NewReader("0123456789")
	p := &part{skip: 3, room: 4}
	_, err := io.CopyBuffer(struct{ io.Writer }{p}, struct{ io.Reader }{file}, make([]byte, 2))
	require.ErrorIs(t, err, errEnough)
	assert.Equal(t, "3456", string(p.data))
	assert.True(t, p.more)

	p = &part{skip: 3, room: 7}
	_, err = io.Copy(p, strings.NewReader("0123456789"))
	require.NoError(t, err)
	assert.Equal(t, "3456789", string(p.data))
	assert.False(t, p.more)
}
