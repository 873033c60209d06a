// Package console writes for people: tables, progress that is redrawn on a terminal and plain lines elsewhere, and notes
// that never make their writer wait.
package console

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"
)

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Colours reports whether what is written to f may be coloured: on a terminal that can, unless NO_COLOR is set to
// anything.
func Colours(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(f)
}

// Printable keeps what services and users wrote in one line: no tabs, line ends or control sequences.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
}

// Duration writes d for people, in whole seconds at least: "3 min 10 s", "2 h 5 min", "4 d 1 h".
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(-d)
	}
	d = d.Round(time.Second)
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		n := d / u.size
		if n == 0 && u.size > time.Second {
			continue
		}
		text := fmt.Sprintf("%d %s", n, u.name)
		if i+1 < len(units) {
			if rest := d % u.size / units[i+1].size; rest > 0 {
				text += fmt.Sprintf(" %d %s", rest, units[i+1].name)
			}
		}
		return text
	}
	return ""
}

// A Table is rows of cells under a header. Cells are made printable when it is written.
type Table struct {
	Header []string
	Rows   [][]string
	Style  func(column int, cell string) string // escape sequence for a cell; nil: no colours. Never the only sign of anything
}

// Write writes t with its columns aligned by the number of characters. The last column is not padded.
func (t Table) Write(w io.Writer) error {
	rows := append([][]string{t.Header}, t.Rows...)
	widths := make([]int, len(t.Header))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(Printable(cell))))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			cell = Printable(cell)
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell))+2)
			if i == len(row)-1 {
				pad = ""
			}
			if t.Style != nil && n > 0 {
				if style := t.Style(i, cell); style != "" {
					cell = style + cell + reset
				}
			}
			line.WriteString(cell + pad)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Escape sequences for [Table.Style].
const (
	Red    = "\x1b[31m"
	Yellow = "\x1b[33m"
	Dim    = "\x1b[2m"
	reset  = "\x1b[0m"
)
