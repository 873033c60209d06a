package boat

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
)

const (
	maxFrame = 8 << 20 // bytes of one line of a stream: a piece of output, which the service cuts much smaller
	maxLine  = 8 << 10 // bytes of one line of follow.sh, with room to spare
	maxNoise = 500     // bytes of what is no line of ours
)

// A frame is one line of a command's stream.
type frame struct {
	Type     string `json:"type"`
	Data     string `json:"data"`
	ExitCode *int   `json:"exitCode"`
	TimedOut bool   `json:"timedOut"`
	Error    string `json:"error"`
	Message  string `json:"message"`
}

// frames reads a stream of a command up to its last frame, which it returns. Without one the outcome is not known: the
// error is [io.ErrUnexpectedEOF], or what the service says in place of an end.
func frames(r io.Reader, stdout, stderr io.Writer) (frame, error) {
	in := bufio.NewReaderSize(r, 32<<10)
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) && len(bytes.TrimSpace(line)) == 0 {
			return frame{}, io.ErrUnexpectedEOF
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return frame{}, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var f frame
		if json.Unmarshal(line, &f) != nil {
			if err != nil { // half a line
				return frame{}, io.ErrUnexpectedEOF
			}
			return frame{}, errors.New("the stream holds a line that is no JSON")
		}
		switch f.Type {
		case "stdout":
			_, _ = io.WriteString(stdout, f.Data)
		case "stderr":
			_, _ = io.WriteString(stderr, f.Data)
		case "exit":
			return f, nil
		case "error":
			return frame{}, fmt.Errorf("the service has broken off the stream: %.80q: %.200q", f.Error, f.Message)
		}
		// What is not known yet may be there one day.
	}
}

// readLine returns the next line without its end. The last one need not have one, and comes with [io.EOF].
func readLine(in *bufio.Reader) ([]byte, error) {
	var all []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(all)+len(part) > maxFrame {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", httpapi.ErrTooLarge, maxFrame)
		}
		all = append(all, part...)
		switch {
		case err == nil:
			return all[:len(all)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return all, err
		}
	}
}

// lines calls take for every whole line that is written to it, however it was cut. What is longer than a line can be is
// cut off.
type lines struct {
	take func(line string)
	line []byte
}

func (l *lines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		l.line = append(l.line, line[:min(len(line), max(0, maxLine-len(l.line)))]...)
		if !whole {
			break
		}
		l.take(string(bytes.TrimRight(l.line, "\r")))
		l.line, rest = l.line[:0], after
	}
	return len(p), nil
}

// A decoder takes a command's output and end out of what follow.sh tells. There may be several tellings, one after
// another: each begins where the one before was broken off, by what was taken.
type decoder struct {
	outputs [2]io.Writer // stdout and stderr; their errors do not count

	taken  [2]int64 // bytes of each that were passed on
	moved  bool     // the present telling has brought something
	code   int
	exited bool
	absent bool // there is no such command
	more   bool // it is to be asked again
	fault  error

	lines lines
	which int   // output of the present piece
	left  int64 // bytes that are still to come of it
	noise []byte
}

// again prepares for the next telling, and returns what takes it.
func (d *decoder) again() io.Writer {
	d.moved, d.more, d.absent, d.fault, d.left = false, false, false, nil, 0
	d.lines = lines{take: d.take}
	return &d.lines
}

func (d *decoder) take(line string) {
	if d.fault != nil || d.exited || d.more || line == "" {
		return
	}
	if d.left > 0 {
		b, err := base64.StdEncoding.DecodeString(line)
		if err != nil || int64(len(b)) > d.left {
			d.fault = errors.New("output that cannot be read")
			return
		}
		_, _ = d.outputs[d.which].Write(b)
		d.left -= int64(len(b))
		d.taken[d.which] += int64(len(b))
		d.moved = true
		return
	}
	rest := line[1:]
	switch line[0] {
	case 'O', 'E':
		n, err := strconv.ParseInt(rest, 10, 32)
		if err != nil || n <= 0 {
			d.hear(line)
			return
		}
		d.left, d.which = n, 0
		if line[0] == 'E' {
			d.which = 1
		}
	case 'X':
		code, err := strconv.ParseUint(rest, 10, 8)
		if err != nil {
			d.fault = errors.New("an exit code that is none")
			return
		}
		d.code, d.exited = int(code), true
	case 'C', 'G', '-':
		if rest != "" {
			d.hear(line)
			return
		}
		d.more, d.absent = line[0] != '-', line[0] == 'G'
	default:
		d.hear(line)
	}
}

// hear keeps the end of what is no line of ours: a shell that has something to say.
func (d *decoder) hear(line string) {
	d.noise = append(append(d.noise, line...), '\n')
	if over := len(d.noise) - maxNoise; over > 0 {
		d.noise = append(d.noise[:0], d.noise[over:]...)
	}
}
