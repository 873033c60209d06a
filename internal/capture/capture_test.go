package capture_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/internal/capture"
)

func TestTailKeepsTheEndAndPassesAllOn(t *testing.T) {
	var all bytes.Buffer
	tail := capture.NewTail(&all)
	line := bytes.Repeat([]byte("0123456789abcdef"), 64)
	for range 3 * 1024 {
		_, err := tail.Write(line)
		assert.NoError(t, err)
	}
	_, _ = tail.Write([]byte("end"))
	kept, truncated := tail.Bytes()
	assert.True(t, truncated)
	assert.Len(t, kept, capture.Limit)
	assert.True(t, bytes.HasSuffix(kept, []byte("end")))
	assert.Equal(t, 3*1024*1024+3, all.Len())

	small := capture.NewTail(nil)
	_, _ = small.Write([]byte("hi"))
	kept, truncated = small.Bytes()
	assert.Equal(t, "hi", string(kept))
	assert.False(t, truncated)
}

func TestTailOutlivesItsWriter(t *testing.T) {
	broken := errors.New("broken")
	r, w := io.Pipe()
	r.CloseWithError(broken)
	tail := capture.NewTail(w)
	for range 2 {
		_, err := tail.Write([]byte("x"))
		assert.NoError(t, err)
	}
	kept, _ := tail.Bytes()
	assert.Equal(t, "xx", string(kept))
	assert.ErrorIs(t, tail.Err(), broken)
}

func TestTailAnswersWhileItsWriterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		tail := capture.NewTail(w)
		go func() { _, _ = tail.Write([]byte("one")) }()
		go func() { _, _ = tail.Write([]byte("two")) }()
		synctest.Wait()
		kept, _ := tail.Bytes()
		assert.Len(t, kept, 6)
		_ = r.Close()
	})
}
