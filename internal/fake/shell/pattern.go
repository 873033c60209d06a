package shell

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/pattern"
)

const (
	maxPattern = 64 << 10 // of a pattern with wildcards, and of a regular expression
	maxMatches = 1 << 18  // of one text
)

const metaCharacters = `*?[]\!-^`

// quoteMeta writes text so that it stands for itself in a pattern.
func quoteMeta(b *strings.Builder, text string) {
	for i := range len(text) {
		if strings.IndexByte(metaCharacters, text[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
}

// unquoteMeta returns what a pattern without wildcards stands for.
func unquoteMeta(pat string) string {
	if strings.IndexByte(pat, '\\') < 0 {
		return pat
	}
	var b strings.Builder
	for i := 0; i < len(pat); i++ {
		if pat[i] == '\\' && i+1 < len(pat) {
			i++
		}
		b.WriteByte(pat[i])
	}
	return b.String()
}

// compile translates a pattern; ok is false for one without wildcards, or a malformed one, which stands for itself.
func compile(pat string, m pattern.Mode, before, after string) (rx *regexp.Regexp, ok bool) {
	if !pattern.HasMeta(pat, 0) {
		return nil, false
	}
	expr, err := pattern.Regexp(pat, m)
	if err != nil {
		return nil, false
	}
	rx, err = regexp.Compile(before + expr + after)
	return rx, err == nil
}

// match reports whether the whole of text matches pat.
func match(pat, text string) bool {
	rx, ok := compile(pat, pattern.EntireString, "", "")
	if !ok {
		return unquoteMeta(pat) == text
	}
	return rx.MatchString(text)
}

// trim takes the part that matches pat off the start or end of text: the shortest such part, or the longest.
func trim(pat, text string, suffix, shortest bool) string {
	var m pattern.Mode
	if shortest {
		m = pattern.Shortest
	}
	before, after := "^(", ")"
	if suffix {
		before, after = "(", ")$"
		if shortest {
			before = "(?s)^.*(" // takes as much as it can, so that little is left
		}
	}
	rx, ok := compile(pat, m, before, after)
	if !ok {
		if suffix {
			return strings.TrimSuffix(text, unquoteMeta(pat))
		}
		return strings.TrimPrefix(text, unquoteMeta(pat))
	}
	loc := rx.FindStringSubmatchIndex(text)
	switch {
	case loc == nil:
		return text
	case suffix:
		return text[:loc[2]]
	}
	return text[loc[3]:]
}

// replace replaces the first, or each, longest part of text that matches pat. A pattern that begins with # or % is
// bound to the start or end.
func replace(pat, text, with string, all bool) (string, error) {
	if pat == "" {
		return text, nil
	}
	before, after := "(?:", ")"
	if !all && pat[0] == '#' {
		pat, before = pat[1:], "^(?:"
	} else if !all && pat[0] == '%' {
		pat, after = pat[1:], ")$"
	}
	rx, ok := compile(pat, 0, before, after)
	if !ok {
		rx = regexp.MustCompile(before + regexp.QuoteMeta(unquoteMeta(pat)) + after)
	}
	n := 1
	if all {
		n = maxMatches
	}
	locs := rx.FindAllStringIndex(text, n)
	if len(text)+len(locs)*len(with) > maxValue || len(locs) == maxMatches {
		return "", fail(2, "word too long")
	}
	var b strings.Builder
	last := 0
	for _, loc := range locs {
		b.WriteString(text[last:loc[0]])
		b.WriteString(with)
		last = loc[1]
	}
	b.WriteString(text[last:])
	return b.String(), nil
}

// glob returns the files that a field stands for, or its text.
func (s *shell) glob(f field) []string {
	meta := false
	for _, seg := range f {
		meta = meta || !seg.quoted && strings.ContainsAny(seg.text, "*?[")
	}
	if meta && !s.opts['f'] {
		if pat := f.pattern(); len(pat) <= maxPattern && pattern.HasMeta(pat, 0) { // no path is longer
			if found := s.globPath(pat); len(found) > 0 {
				return found
			}
		}
	}
	return []string{f.text()}
}

func (s *shell) globPath(pat string) []string {
	parts := strings.Split(pat, "/")
	found := []string{""}
	if pat[0] == '/' {
		found[0] = "/"
		parts = parts[1:]
	}
	for i, part := range parts {
		last := i == len(parts)-1
		var next []string
		for _, dir := range found {
			s.step(1)
			next = s.globPart(next, dir, part, last)
		}
		found = next
	}
	slices.Sort(found)
	return found
}

// globPart appends the entries of dir that one element of a path stands for.
func (s *shell) globPart(found []string, dir, part string, last bool) []string {
	rx, ok := compile(part, pattern.EntireString, "", "")
	if !ok {
		name := dir + unquoteMeta(part)
		if _, err := s.m.fs.stat(s.who(), s.abs(name), false); err != nil && part != "" {
			return found
		}
		if !last && part != "" || !last && dir != "" {
			name += "/"
		}
		return append(found, name)
	}
	where := dir
	if where == "" {
		where = "."
	}
	list, err := s.m.fs.readDir(s.who(), s.abs(where))
	if err != nil {
		return found
	}
	for _, e := range list {
		if e.name[0] == '.' && part[0] != '.' && !strings.HasPrefix(part, `\.`) || !rx.MatchString(e.name) {
			continue
		}
		if last {
			found = append(found, dir+e.name)
			continue
		}
		if i, err := s.m.fs.stat(s.who(), s.abs(dir+e.name), true); err == nil && i.mode&fs.ModeDir != 0 {
			found = append(found, dir+e.name+"/")
		}
	}
	return found
}
