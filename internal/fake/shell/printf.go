package shell

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// dialect is which backslash sequences a text knows.
type dialect int

const (
	printfFormat dialect = iota // \n, \101
	echoText                    // \n, \0101, \c
	ansiC                       // \n, \101, \x41, \u00e9, \'
)

// unescape replaces backslash sequences.
func unescape(text string, d dialect) string {
	out, _ := unescapeStop(text, d)
	return out
}

// unescapeStop also tells whether \c has ended the text.
func unescapeStop(text string, d dialect) (out string, stop bool) {
	if strings.IndexByte(text, '\\') < 0 {
		return text, false
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		digits := func(from, most int, set string) string {
			n := 0
			for n < most && from+n < len(text) && strings.IndexByte(set, text[from+n]) >= 0 {
				n++
			}
			return text[from : from+n]
		}
		const hex = "0123456789abcdefABCDEF"
		switch c := text[i]; c {
		case 'a':
			b.WriteByte('\a')
		case 'b':
			b.WriteByte('\b')
		case 'e':
			b.WriteByte(0x1b)
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'v':
			b.WriteByte('\v')
		case '\\':
			b.WriteByte('\\')
		case '\'', '"', '?':
			if d != ansiC && c != '"' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		case 'c':
			if d == echoText {
				return b.String(), true
			}
			b.WriteString(`\c`)
		case 'x':
			h := digits(i+1, 2, hex)
			if h == "" {
				b.WriteString(`\x`)
				continue
			}
			n, _ := strconv.ParseUint(h, 16, 8)
			b.WriteByte(byte(n))
			i += len(h)
		case 'u', 'U':
			h := digits(i+1, map[byte]int{'u': 4, 'U': 8}[c], hex)
			if h == "" || d == echoText {
				b.WriteString(`\` + string(c))
				continue
			}
			n, _ := strconv.ParseUint(h, 16, 32)
			b.WriteRune(rune(min(n, utf8.MaxRune)))
			i += len(h)
		case '0', '1', '2', '3', '4', '5', '6', '7':
			most := 3
			if d == echoText && c == '0' {
				most = 4
			}
			o := digits(i, most, "01234567")
			n, _ := strconv.ParseUint(o, 8, 16)
			b.WriteByte(byte(n))
			i += len(o) - 1
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), false
}

// echo joins its arguments; -n leaves out the newline, -e knows backslash sequences.
func echo(args []string) string {
	newline, escapes := true, false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && strings.Trim(args[0][1:], "neE") == "" {
		for _, c := range args[0][1:] {
			switch c {
			case 'n':
				newline = false
			case 'e':
				escapes = true
			case 'E':
				escapes = false
			}
		}
		args = args[1:]
	}
	text := strings.Join(args, " ")
	if escapes {
		var stop bool
		if text, stop = unescapeStop(text, echoText); stop {
			return text
		}
	}
	if newline {
		text += "\n"
	}
	return text
}

const maxWidth = 64 << 10 // of one field that printf pads

// printer is one call of printf.
type printer struct {
	p      *proc
	out    strings.Builder
	args   []string
	used   bool // an argument has been used
	status int
	stop   bool
}

// printf formats its arguments; the format is used again until they are used up.
func (p *proc) printf(args []string) int {
	if len(args) > 1 && args[1] == "--" {
		args = args[1:]
	}
	if len(args) < 2 {
		p.errorf("printf: usage: printf format [argument ...]")
		return 2
	}
	f := printer{p: p, args: args[2:]}
	for {
		f.used = false
		f.run(args[1])
		if f.out.Len() > maxValue {
			p.errorf("printf: output too long")
			return 1
		}
		if _, err := p.write(1, []byte(f.out.String())); err != nil {
			p.errorf("printf: write error: %v", err)
			return 1
		}
		f.out.Reset()
		if f.stop || !f.used || len(f.args) == 0 {
			return f.status
		}
	}
}

func (f *printer) next() string {
	f.used = true
	if len(f.args) == 0 {
		return ""
	}
	a := f.args[0]
	f.args = f.args[1:]
	return a
}

func (f *printer) complain(format string, args ...any) {
	f.p.errorf("printf: "+format, args...)
	f.status = 1
}

func (f *printer) run(format string) {
	for format != "" && !f.stop {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			f.out.WriteString(unescape(format, printfFormat))
			return
		}
		f.out.WriteString(unescape(format[:i], printfFormat))
		format = f.directive(format[i+1:])
	}
}

// directive formats one argument and returns what follows the directive.
func (f *printer) directive(format string) (rest string) {
	n := 0
	for n < len(format) && strings.IndexByte("-+ #0", format[n]) >= 0 {
		n++
	}
	spec := "%" + format[:n]
	number := func() bool {
		if n < len(format) && format[n] == '*' {
			n++
			w, _ := strconv.Atoi(f.next())
			if w < -maxWidth || w > maxWidth {
				return false
			}
			spec += strconv.Itoa(w)
			return true
		}
		start := n
		for n < len(format) && format[n] >= '0' && format[n] <= '9' {
			n++
		}
		w, _ := strconv.Atoi(format[start:n])
		spec += format[start:n]
		return w <= maxWidth
	}
	ok := number()
	if n < len(format) && format[n] == '.' {
		spec += "."
		n++
		ok = number() && ok
	}
	if n == len(format) || !ok {
		f.complain("%%%s: invalid format", format)
		f.stop = true
		return ""
	}
	c := format[n]
	rest = format[n+1:]
	switch c {
	case '%':
		f.out.WriteByte('%')
	case 's':
		fmt.Fprintf(&f.out, dropFlags(spec, "+ #0")+"s", f.next())
	case 'b':
		var text string
		text, f.stop = unescapeStop(f.next(), echoText)
		fmt.Fprintf(&f.out, dropFlags(spec, "+ #0")+"s", text)
	case 'q':
		f.out.WriteString(quoteArg(f.next()))
	case 'c':
		a := f.next()
		fmt.Fprintf(&f.out, dropFlags(spec, "+ #0")+"s", a[:min(1, len(a))])
	case 'd', 'i':
		fmt.Fprintf(&f.out, spec+"d", f.integer())
	case 'u':
		fmt.Fprintf(&f.out, dropFlags(spec, "+ ")+"d", uint64(f.integer()))
	case 'o', 'x', 'X':
		fmt.Fprintf(&f.out, dropFlags(spec, "+ ")+string(c), uint64(f.integer()))
	case 'e', 'E', 'f', 'F', 'g', 'G':
		a := f.next()
		v, err := strconv.ParseFloat(strings.TrimSpace(a), 64)
		if err != nil && a != "" {
			f.complain("invalid number '%s'", a)
		}
		if (c == 'g' || c == 'G') && !strings.Contains(spec, ".") {
			spec += ".6"
		}
		fmt.Fprintf(&f.out, spec+string(c), v)
	default:
		f.complain("%%%s: invalid format", format[:n+1])
		f.stop = true
	}
	return rest
}

// dropFlags removes flags that mean something else to package fmt.
func dropFlags(spec, flags string) string {
	i := 1
	for i < len(spec) && strings.IndexByte("-+ #0", spec[i]) >= 0 {
		i++
	}
	kept := strings.Map(func(r rune) rune {
		if strings.ContainsRune(flags, r) {
			return -1
		}
		return r
	}, spec[1:i])
	return "%" + kept + spec[i:]
}

// integer takes the next argument for a number, or for a character behind a quote.
func (f *printer) integer() int64 {
	a := strings.TrimSpace(f.next())
	if a == "" {
		return 0
	}
	if a[0] == '\'' || a[0] == '"' {
		r, _ := utf8.DecodeRuneInString(a[1:])
		if len(a) == 1 {
			r = 0
		}
		return int64(r)
	}
	n, err := strconv.ParseInt(a, 0, 64)
	if err != nil || strings.Contains(a, "_") {
		f.complain("invalid number '%s'", a)
	}
	return n
}
