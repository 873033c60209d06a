package shell

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// sortKey is a part of a line to compare, from one field and character to another.
type sortKey struct {
	from, fromChar, to, toChar int // counted from 1; 0: the end of the line, or of the field
	flags                      string
}

func sortMain(t *tool) int {
	f, args, err := t.flags("nrufbk:t:o:csVhMgidz", "numeric-sort=n", "reverse=r", "unique=u", "key=k", "ignore-case=f")
	if err != nil {
		return 2
	}
	for _, c := range []byte("VhMidz") {
		if f.has(c) {
			t.complain("-%c is not supported", c)
			return 2
		}
	}
	global := ""
	for _, c := range []byte("nrfbg") {
		if f.has(c) {
			global += string(c)
		}
	}
	var keys []sortKey
	if f.has('k') {
		for spec := range strings.SplitSeq(f['k'], "\x00") {
			k, ok := parseSortKey(spec)
			if !ok {
				t.complain("invalid key '%s'", spec)
				return 2
			}
			if k.flags == "" {
				k.flags = global
			}
			keys = append(keys, k)
		}
	} else {
		keys = []sortKey{{from: 1, flags: global}}
	}
	sep := f.last('t')
	var lines [][]byte
	var failure error
	status := t.inputs(args, func(_ string, r io.Reader) error {
		err := t.lines(r, func(line []byte, _ bool) bool {
			lines = append(lines, bytes.Clone(line))
			failure = t.keep(len(line) + 24)
			return failure == nil
		})
		if err == nil {
			err = failure
		}
		return err
	})
	if failure != nil {
		return 2
	}
	byKeys := func(a, b []byte) int {
		for _, k := range keys {
			if c := k.compare(k.cut(string(a), sep), k.cut(string(b), sep)); c != 0 {
				if strings.Contains(k.flags, "r") {
					return -c
				}
				return c
			}
		}
		return 0
	}
	compare := func(a, b []byte) int {
		c := byKeys(a, b)
		if c == 0 && !f.has('u') && !f.has('s') {
			if c = bytes.Compare(a, b); f.has('r') {
				c = -c
			}
		}
		return c
	}
	if f.has('c') {
		if !slices.IsSortedFunc(lines, compare) {
			return 1
		}
		return status
	}
	t.step(int64(len(lines)) / 8)
	slices.SortStableFunc(lines, compare)
	out := t.out
	if f.has('o') {
		w, done, err := t.openOutput(f.last('o'), openTruncate)
		if err != nil {
			return max(2, t.failed(f.last('o'), err))
		}
		defer func() { _ = done() }()
		out = w
	}
	for i, line := range lines {
		if f.has('u') && i > 0 && byKeys(lines[i-1], line) == 0 {
			continue
		}
		_, _ = out.Write(line)
		_ = out.WriteByte('\n')
	}
	return status * 2
}

// parseSortKey reads "F[.C][flags][,F[.C][flags]]".
func parseSortKey(spec string) (k sortKey, ok bool) {
	part := func(text string) (field, char int, ok bool) {
		end := len(text)
		for end > 0 && unicode.IsLetter(rune(text[end-1])) {
			end--
		}
		if strings.Trim(text[end:], "nrfbg") != "" {
			return 0, 0, false
		}
		k.flags += text[end:]
		f, c, dotted := strings.Cut(text[:end], ".")
		field, err := strconv.Atoi(f)
		if err == nil && dotted {
			char, err = strconv.Atoi(c)
		}
		return field, char, err == nil && field >= 1 && char >= 0
	}
	from, to, isRange := strings.Cut(spec, ",")
	if k.from, k.fromChar, ok = part(from); ok && isRange {
		k.to, k.toChar, ok = part(to)
	}
	return k, ok
}

// fieldAt returns where field n (from 1) of a line begins and ends. Without a separator, blanks begin a field.
func fieldAt(line, sep string, n int) (start, end int) {
	for pos := 0; ; n-- {
		end := pos
		if sep != "" {
			if i := strings.Index(line[pos:], sep); i >= 0 {
				end = pos + i
			} else {
				end = len(line)
			}
		} else {
			for end < len(line) && (line[end] == ' ' || line[end] == '\t') {
				end++
			}
			for end < len(line) && line[end] != ' ' && line[end] != '\t' {
				end++
			}
		}
		if n == 1 {
			return pos, end
		}
		if end == len(line) {
			return end, end
		}
		pos = end + len(sep)
	}
}

func (k sortKey) cut(line, sep string) string {
	if k.from == 1 && k.fromChar == 0 && k.to == 0 {
		return line
	}
	start, end := fieldAt(line, sep, k.from)
	if strings.Contains(k.flags, "b") {
		for start < end && (line[start] == ' ' || line[start] == '\t') {
			start++
		}
	}
	start = min(start+max(k.fromChar-1, 0), len(line))
	end = len(line)
	if k.to > 0 {
		toStart, toEnd := fieldAt(line, sep, k.to)
		if end = toEnd; k.toChar > 0 {
			end = min(toStart+k.toChar, len(line))
		}
	}
	return line[start:max(start, end)]
}

func (k sortKey) compare(a, b string) int {
	switch {
	case strings.ContainsAny(k.flags, "ng"):
		x, y := leadingNumber(a), leadingNumber(b)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	case strings.Contains(k.flags, "f"):
		a, b = strings.ToUpper(a), strings.ToUpper(b)
	}
	return strings.Compare(a, b)
}

// leadingNumber is the number that a text begins with, or 0.
func leadingNumber(text string) float64 {
	text = strings.TrimLeft(text, " \t")
	end := 0
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || text[end] == '.' || text[end] == '-' && end == 0) {
		end++
	}
	for end > 0 {
		if n, err := strconv.ParseFloat(text[:end], 64); err == nil {
			return n
		}
		end--
	}
	return 0
}
