package vercel

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
)

// maxLine is the longest line of a stream: a piece of output, which the service cuts much smaller.
const maxLine = 8 << 20

// A line is one of a command's stream: about the command, a piece of its output, or a failure on the way.
type line struct {
	Command *command        `json:"command"`
	Stream  string          `json:"stream"`
	Data    json.RawMessage `json:"data"`
}

// command is what the service says of one.
type command struct {
	ID       string `json:"id"`
	ExitCode *int   `json:"exitCode"` // nil: it runs
}

// Validate reports what is missing.
func (c *command) Validate() error {
	if c == nil || !names.MatchString(c.ID) {
		return errors.New("a command without an id that can be one")
	}
	return nil
}

// aboutCommand is an answer about a command.
type aboutCommand struct {
	Command *command `json:"command"`
}

// Validate reports what is missing.
func (a *aboutCommand) Validate() error { return a.Command.Validate() }

// A decoder takes the output and the end of one command out of its streams. There may be several, one after another: each
// but the first begins with the output's beginning again, of which what was taken before is left out.
type decoder struct {
	outputs [2]io.Writer // stdout and stderr; their errors do not count
	started func(id string)

	id      string
	code    int
	exited  bool
	taken   [2]int64 // bytes of each output that were passed on
	replay  [2]int64 // bytes of each that the present stream still repeats
	moved   bool     // the present stream has brought something new
	logOnly bool     // the present stream tells no end
}

// again prepares for a stream that repeats all output, and does not tell the command's end.
func (d *decoder) again() { d.replay, d.moved, d.logOnly = d.taken, false, true }

// read takes one stream. It returns nil if that came to its regular end.
func (d *decoder) read(r io.Reader) error {
	in := bufio.NewReaderSize(r, 32<<10)
	for {
		text, err := readLine(in)
		if len(text) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			if bad := d.take(text); bad != nil {
				if err != nil { // half a line
					bad = io.ErrUnexpectedEOF
				}
				return bad
			}
		}
		switch {
		case d.exited:
			return nil
		case errors.Is(err, io.EOF) && d.logOnly:
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

// readLine returns the next line without its end. The last one need not have one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var all []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(all)+len(part) > maxLine {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", httpapi.ErrTooLarge, maxLine)
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

func (d *decoder) take(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return errors.New("the stream holds a line that is no JSON")
	}
	switch {
	case l.Command != nil:
		return d.takeCommand(l.Command)
	case l.Stream == "stdout", l.Stream == "stderr":
		var data string
		if json.Unmarshal(l.Data, &data) != nil {
			return errors.New("the stream holds output that is no text")
		}
		which := 0
		if l.Stream == "stderr" {
			which = 1
		}
		d.pass(which, data)
	case l.Stream == "error":
		var e struct{ Code, Message string }
		_ = json.Unmarshal(l.Data, &e)
		return fmt.Errorf("the service has broken off the stream: %.80q: %.200q", e.Code, e.Message)
	}
	return nil // what is not known yet may be there one day
}

func (d *decoder) takeCommand(c *command) error {
	if err := c.Validate(); err != nil {
		return err
	}
	switch d.id {
	case "":
		d.id = c.ID
		if d.started != nil {
			d.started(c.ID)
		}
	case c.ID:
	default:
		return errors.New("the stream is about another command")
	}
	if c.ExitCode != nil {
		d.code, d.exited = *c.ExitCode, true
	}
	return nil
}

// pass passes a piece of output on, without what was passed on before.
func (d *decoder) pass(which int, data string) {
	if skip := min(d.replay[which], int64(len(data))); skip > 0 {
		d.replay[which] -= skip
		data = data[skip:]
	}
	if data == "" {
		return
	}
	d.taken[which] += int64(len(data))
	d.moved = true
	_, _ = io.WriteString(d.outputs[which], data)
}
