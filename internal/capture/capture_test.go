package capture_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/internal/capture"
)

func TestTailKeepsTheEndAndPassesAllOn(t *testing.T) {
	var all bytes.Buffer
	tail := capture.NewTail(capture.NewGate(&all))
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

	small := capture.NewTail(capture.NewGate(nil))
	_, _ = small.Write([]byte("hi"))
	kept, truncated = small.Bytes()
	assert.Equal(t, "hi", string(kept))
	assert.False(t, truncated)
}

func TestTailOutlivesItsWriter(t *testing.T) {
	calls := 0
	tail := capture.NewTail(capture.NewGate(writer(func(p []byte) (int, error) {
		calls++
		return 0, errors.New("broken")
	})))
	for range 2 {
		_, err := tail.Write([]byte("x"))
		assert.NoError(t, err)
	}
	kept, _ := tail.Bytes()
	assert.Equal(t, "xx", string(kept))
	assert.Equal(t, 1, calls, "a broken writer is not tried again")
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestTailAnswersAndGateShutsWhileTheWriterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		gate := capture.NewGate(w)
		tail := capture.NewTail(gate)
		go func() { _, _ = tail.Write([]byte("one")) }()
		go func() { _, _ = tail.Write([]byte("two")) }()
		synctest.Wait()
		kept, _ := tail.Bytes()
		assert.Len(t, kept, 6)
		gate.Shut()
		_ = r.Close()
	})
}

func TestNothingIsPassedOnThroughAShutGate(t *testing.T) {
	var b bytes.Buffer
	gate := capture.NewGate(&b)
	_, _ = gate.Write([]byte("before"))
	gate.Shut()
	gate.Shut()
	_, err := gate.Write([]byte("after"))
	assert.NoError(t, err)
	assert.Equal(t, "before", b.String())
}

func TestOneWriterForBothStreamsIsNeverWrittenToAtOnce(t *testing.T) {
	var b bytes.Buffer // the race detector is the judge
	out, err := capture.Gates(&b, &b)
	assert.Same(t, out, err)
	var wg sync.WaitGroup
	for _, g := range []*capture.Gate{out, err} {
		wg.Go(func() {
			for range 1000 {
				_, _ = g.Write([]byte("x"))
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 2000, b.Len())

	out, err = capture.Gates(&b, &bytes.Buffer{})
	assert.NotSame(t, out, err)
	out, err = capture.Gates(uncomparable{}, uncomparable{})
	assert.NotSame(t, out, err)
	out, err = capture.Gates(nil, nil)
	assert.NotSame(t, out, err)
}

type uncomparable []int

func (uncomparable) Write(p []byte) (int, error) { return len(p), nil }
