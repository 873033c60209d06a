package shell

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// grepper is one call of grep.
type grepper struct {
	*tool
	f       flags
	rx      []*regexp.Regexp
	names   bool // print file names
	end     byte // of a line
	most    int
	context [2]int
	found   bool
}

func grepMain(t *tool) int {
	f, args, err := t.flags("EFGivnqcrRlLhHowxsze:f:m:A:B:C:", "extended-regexp=E", "fixed-strings=F", "ignore-case=i",
		"invert-match=v", "line-number=n", "quiet=q", "count=c", "recursive=r", "files-with-matches=l", "only-matching=o",
		"word-regexp=w", "line-regexp=x", "regexp=e", "file=f", "max-count=m", "no-messages=s",
		"null-data=z", "with-filename=H", "no-filename=h")
	if err != nil {
		return 2
	}
	g := grepper{tool: t, f: f, end: '\n', most: -1}
	if f.has('z') {
		g.end = 0
	}
	var patterns []string
	if f.has('e') {
		patterns = strings.Split(f['e'], "\x00")
	}
	if f.has('f') {
		data, err := t.readWhole(f.last('f'))
		if err != nil {
			return 1 + t.failed(f.last('f'), err)
		}
		patterns = append(patterns, strings.Split(strings.TrimSuffix(data, "\n"), "\n")...)
	}
	if !f.has('e') && !f.has('f') {
		if len(args) == 0 {
			return 1 + t.complain("pattern missing")
		}
		patterns, args = strings.Split(args[0], "\n"), args[1:]
	}
	for _, p := range patterns {
		rx, err := g.compile(p)
		if err != nil {
			return 1 + t.complain("%v", err)
		}
		g.rx = append(g.rx, rx)
	}
	for i, c := range []byte("mABC") {
		if !f.has(c) {
			continue
		}
		n, err := strconv.Atoi(f.last(c))
		if err != nil || n < 0 {
			return 1 + t.complain("invalid number '%s'", f.last(c))
		}
		switch i {
		case 0:
			g.most = n
		case 1:
			g.context[1] = n
		case 2:
			g.context[0] = n
		case 3:
			g.context = [2]int{n, n}
		}
	}
	recursive := f.has('r') || f.has('R')
	if recursive && len(args) == 0 {
		args = []string{"."}
	}
	g.names = (len(args) > 1 || recursive || f.has('H')) && !f.has('h')
	failed := false
	for _, name := range withDefault(args, "-") {
		if recursive && name != "-" {
			t.walk(name, 0, true, func(name string, i info, depth int) bool {
				if depth < 0 {
					failed = true
				} else if i.mode.IsRegular() {
					failed = !g.file(name) || failed
				}
				return true
			})
			continue
		}
		failed = !g.file(name) || failed
		if g.found && f.has('q') {
			return 0
		}
	}
	switch {
	case failed && !(g.found && f.has('q')):
		return 2
	case g.found:
		return 0
	}
	return 1
}

func withDefault(args []string, name string) []string {
	if len(args) == 0 {
		return []string{name}
	}
	return args
}

func (t *tool) readWhole(name string) (string, error) {
	r, done, err := t.openInput(name)
	if err != nil {
		return "", err
	}
	defer done()
	return t.slurp(r)
}

func (g *grepper) compile(p string) (*regexp.Regexp, error) {
	extended := g.f.has('E') || g.name == "egrep"
	var text string
	var err error
	if g.f.has('F') || g.name == "fgrep" {
		if len(p) > maxPattern {
			return nil, fmt.Errorf("pattern too long")
		}
		text = regexp.QuoteMeta(p)
	} else if text, err = translateRegex(p, extended); err != nil {
		return nil, err
	}
	if g.f.has('w') {
		text = `\b(?:` + text + `)\b`
	}
	if g.f.has('x') {
		text = "^(?:" + text + ")$"
	}
	if g.f.has('i') {
		text = "(?i)" + text
	}
	rx, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("invalid regular expression %q", p)
	}
	rx.Longest()
	return rx, nil
}

func (g *grepper) matches(line []byte) bool {
	for _, rx := range g.rx {
		if rx.Match(line) {
			return true
		}
	}
	return false
}

// file searches one file and reports whether it could be read.
func (g *grepper) file(name string) bool {
	r, done, err := g.openInput(name)
	if err == nil {
		err = g.search(name, r)
		done()
	}
	if err != nil && !g.f.has('s') {
		g.failed(name, err)
	}
	return err == nil
}

func (g *grepper) search(name string, r io.Reader) error {
	if name == "-" {
		name = "(standard input)"
	}
	quiet := g.f.has('q') || g.f.has('l') || g.f.has('L') || g.f.has('c')
	var before []string
	count, number, after, last := 0, 0, 0, 0
	show := func(n int, mark, text string) {
		if g.context != [2]int{} && last > 0 && n > last+1 {
			g.say("--")
		}
		last = n
		if g.names {
			_, _ = g.out.WriteString(name + mark)
		}
		if g.f.has('n') {
			_, _ = g.out.WriteString(strconv.Itoa(n) + mark)
		}
		_, _ = g.out.WriteString(text)
		_ = g.out.WriteByte(g.end)
	}
	err := g.records(r, g.end, func(line []byte, _ bool) bool {
		if g.most >= 0 && count >= g.most {
			return false
		}
		number++
		if g.matches(line) == g.f.has('v') {
			switch {
			case quiet || g.f.has('o'):
			case after > 0:
				after--
				show(number, "-", string(line))
			case g.context[0] > 0:
				if before = append(before, string(line)); len(before) > g.context[0] {
					before = before[1:]
				}
			}
			return true
		}
		count++
		g.found = true
		switch {
		case g.f.has('q') || g.f.has('l') || g.f.has('L'):
			return false
		case quiet:
			return true
		case g.f.has('o'):
			for _, rx := range g.rx {
				for _, m := range rx.FindAll(line, -1) {
					if len(m) > 0 && !g.f.has('v') {
						show(number, ":", string(m))
					}
				}
			}
			return !g.broken()
		}
		for i, text := range before {
			show(number-len(before)+i, "-", text)
		}
		before, after = nil, g.context[1]
		show(number, ":", string(line))
		return !g.broken()
	})
	switch {
	case g.f.has('q'):
	case g.f.has('l') && count > 0, g.f.has('L') && count == 0:
		g.say(name)
	case g.f.has('c') && !g.f.has('l') && !g.f.has('L'):
		if g.names {
			_, _ = g.out.WriteString(name + ":")
		}
		g.say(strconv.Itoa(count))
	}
	return err
}
