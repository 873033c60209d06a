package daytonafake

import (
	"bytes"
	"strings"
	"sync"
)

// What stands before each line of a command's log, and says of which stream it is.
var (
	stdoutMarker = []byte{1, 1, 1}
	stderrMarker = []byte{2, 2, 2}
)

// transcript is the log of a session's command: lines, each behind the marker of its stream. It is made as the daemon's
// is, line by line: what is written shows when its line is whole, a last line without an end gets one, and NUL bytes
// are lost.
type transcript struct {
	mu      sync.Mutex // held for memory operations only
	log     []byte
	changed chan struct{} // made by who waits, closed by what he waits for
	ended   bool          // nothing comes any more
}

// line adds one.
func (t *transcript) line(marker, text []byte) {
	text = bytes.ReplaceAll(text, []byte{0}, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.log) > maxResult {
		return
	}
	t.log = append(append(append(t.log, marker...), text...), '\n')
	t.wake()
}

func (t *transcript) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.wake()
}

func (t *transcript) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// from returns what follows the first n bytes, whether that is all there will ever be, and what is closed when there is
// more.
func (t *transcript) from(n int) (more []byte, ended bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return bytes.Clone(t.log[n:]), t.ended, t.changed
}

// stream is one of a command's output streams.
type stream struct {
	t      *transcript
	marker []byte
	rest   []byte // the beginning of a line
}

func (s *stream) Write(b []byte) (int, error) {
	s.rest = append(s.rest, b...)
	for {
		i := bytes.IndexByte(s.rest, '\n')
		if i < 0 {
			break
		}
		s.t.line(s.marker, s.rest[:i])
		s.rest = s.rest[i+1:]
	}
	return len(b), nil
}

// flush ends the last line.
func (s *stream) flush() {
	if len(s.rest) > 0 {
		s.t.line(s.marker, s.rest)
		s.rest = nil
	}
}

// split takes a log apart by its markers, wherever they stand: output that holds their bytes is taken for them.
func split(log []byte) (stdout, stderr string) {
	var out, err strings.Builder
	var to *strings.Builder
	for len(log) > 0 {
		switch {
		case bytes.HasPrefix(log, stdoutMarker):
			to, log = &out, log[len(stdoutMarker):]
		case bytes.HasPrefix(log, stderrMarker):
			to, log = &err, log[len(stderrMarker):]
		default:
			if to != nil {
				to.WriteByte(log[0])
			}
			log = log[1:]
		}
	}
	return out.String(), err.String()
}

// merge removes the markers.
func merge(log []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(log, stdoutMarker, nil), stderrMarker, nil)
}
