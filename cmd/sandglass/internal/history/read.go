package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// A Record is what was read of a history.
type Record struct {
	Lines   []Line // in the order in which they were written
	Broken  int    // lines that could not be read
	Missed  int    // lines that could not be written, as far as a later one tells
	Dropped bool   // the limit of the file has been reached: there may have been older lines
}

// Whole reports whether nothing is known to be missing.
func (r Record) Whole() bool { return r.Broken == 0 && r.Missed == 0 && !r.Dropped }

// mostLine is the longest line that is read.
const mostLine = 1 << 20

// Read reads the history at path, with the older files beside it. What is no line of it is counted and passed over: a
// history on a disk that was full has halves of lines.
func Read(path string) (Record, error) {
	names, err := older(path)
	if err != nil {
		return Record{}, fmt.Errorf("history: %w", err)
	}
	var r Record
	read := 0
	for _, name := range append(names, path) {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) { // it has just got another name, or there was none
			continue
		} else if err != nil {
			return Record{}, fmt.Errorf("history: %w", err)
		}
		err = r.read(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return Record{}, fmt.Errorf("history: %s: %w", name, err)
		}
		read++
	}
	if read == 0 {
		return Record{}, fmt.Errorf("history: %s: %w", path, os.ErrNotExist)
	}
	return r, nil
}

func (r *Record) read(from io.Reader) error {
	b := bufio.NewReaderSize(from, 64<<10)
	for {
		text, err := readLine(b)
		if text = bytes.TrimSpace(text); len(text) > 0 {
			var l Line
			if json.Unmarshal(text, &l) != nil || l.Version != version || l.At.IsZero() || l.What == "" {
				r.Broken++
			} else if l.What == Dropped {
				r.Dropped = true
			} else {
				r.Lines = append(r.Lines, l)
				r.Missed += l.Missed
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// readLine returns a line, or the beginning of one that is too long.
func readLine(b *bufio.Reader) (line []byte, err error) {
	for {
		part, err := b.ReadSlice('\n')
		if len(line) < mostLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
