package daytona

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
)

// maxLine is the longest line of wrapper.sh with room to spare.
const maxLine = 8 << 10

// A decoder takes the lines of wrapper.sh out of a command's log. The machine's daemon puts three bytes before each
// line, which tell its own two streams apart: 01 01 01 or 02 02 02, or nothing, by its version. All that matters here
// comes in lines that say so themselves; other ones are what a shell has to say, and are kept for an error.
type decoder struct {
	stdout, stderr io.Writer

	line    []byte
	dropped bool // the present line is too long
	taken   int64

	begun               atomic.Bool // may be asked while Write is called
	code                int
	exited              bool
	stdoutAll, errorAll bool
	noise               []byte
	fault               error
}

// Write takes the next piece of the log, however it was cut. It never fails: see fault.
func (d *decoder) Write(p []byte) (int, error) {
	d.taken += int64(len(p))
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		if room := maxLine - len(d.line); len(line) > room {
			d.dropped = true
			line = line[:room]
		}
		d.line = append(d.line, line...)
		if !whole {
			break
		}
		d.take(d.line)
		d.line, d.dropped, rest = d.line[:0], false, after
	}
	return len(p), nil
}

func (d *decoder) take(line []byte) {
	line = bytes.TrimRight(bytes.TrimLeft(line, "\x01\x02"), "\r")
	if string(line) == "@B" {
		d.begun.Store(true)
		return
	}
	if len(line) < 3 || line[0] != '@' || d.dropped {
		d.hear(line)
		return
	}
	switch what, rest := line[1], string(line[2:]); what {
	case 'X':
		code, err := strconv.ParseUint(rest, 10, 8)
		if err != nil || d.exited {
			d.fail("an exit code that is none, or two of them")
			return
		}
		d.code, d.exited = int(code), true
	case 'O':
		d.data(rest, d.stdout, &d.stdoutAll)
	case 'E':
		d.data(rest, d.stderr, &d.errorAll)
	default:
		d.hear(line)
	}
}

func (d *decoder) data(text string, w io.Writer, all *bool) {
	switch {
	case *all:
		d.fail("output after its end")
	case text == ".":
		*all = true
	default:
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			d.fail("output that cannot be read")
			return
		}
		_, _ = w.Write(b)
	}
}

func (d *decoder) fail(why string) {
	if d.fault == nil {
		d.fault = errors.New("the command's log holds " + why)
	}
}

// hear keeps the end of what is no line of ours.
func (d *decoder) hear(line []byte) {
	const most = 500
	d.noise = append(append(d.noise, line...), '\n')
	if over := len(d.noise) - most; over > 0 {
		d.noise = append(d.noise[:0], d.noise[over:]...)
	}
}

// done reports whether all is known.
func (d *decoder) done() bool { return d.exited && d.stdoutAll && d.errorAll }

// heard returns what a shell had to say, in one line.
func (d *decoder) heard() string {
	return strings.ToValidUTF8(strings.Join(strings.Fields(string(d.noise)), " "), "")
}
