package shell

import (
	"fmt"
	"regexp"
	"strings"
)

// compileRegex compiles a POSIX expression, basic or extended, with the additions of GNU. As POSIX asks, the leftmost
// longest match counts. Back-references are not regular and are refused.
func compileRegex(expr string, extended, ignoreCase bool) (*regexp.Regexp, error) {
	text, err := translateRegex(expr, extended)
	if err != nil {
		return nil, err
	}
	prefix := "(?s)"
	if ignoreCase {
		prefix = "(?si)"
	}
	rx, err := regexp.Compile(prefix + text)
	if err != nil {
		return nil, fmt.Errorf("invalid regular expression %q", expr)
	}
	rx.Longest()
	return rx, nil
}

// translateRegex writes a POSIX expression in the syntax of package regexp.
func translateRegex(expr string, extended bool) (string, error) {
	if len(expr) > maxPattern {
		return "", fmt.Errorf("regular expression too long")
	}
	var b strings.Builder
	atStart := true // where "*" stands for itself, and in a basic expression "^" is an anchor
	depth := 0
	for i := 0; i < len(expr); i++ {
		c := expr[i]
		was := atStart
		atStart = false
		switch c {
		case '[':
			end, err := bracket(&b, expr[i:])
			if err != nil {
				return "", err
			}
			i += end - 1
		case '\\':
			i++
			if i == len(expr) {
				return "", fmt.Errorf("trailing backslash")
			}
			c = expr[i]
			switch {
			case c >= '1' && c <= '9':
				return "", fmt.Errorf("back-reference \\%c is not supported", c)
			case strings.IndexByte("wWsSbB", c) >= 0:
				b.WriteString(`\` + string(c))
			case c == '<' || c == '>':
				b.WriteString(`\b`)
			case c == 'n':
				b.WriteByte('\n')
			case c == 't':
				b.WriteByte('\t')
			case !extended && strings.IndexByte("(){}|+?", c) >= 0:
				depth = writeOperator(&b, c, depth)
				atStart = c == '(' || c == '|'
			default:
				b.WriteString(regexp.QuoteMeta(string(c)))
			}
		case '(', ')', '{', '}', '|', '+', '?':
			literal := !extended
			switch c {
			case ')':
				literal = literal || depth == 0
			case '{':
				literal = literal || was || !repeats(expr[i:])
			case '}':
				literal = literal || !strings.Contains(expr[:i], "{")
			}
			if literal {
				b.WriteString(`\` + string(c))
				break
			}
			depth = writeOperator(&b, c, depth)
			atStart = c == '(' || c == '|'
		case '*':
			if was {
				b.WriteString(`\*`)
				break
			}
			b.WriteByte('*')
		case '^':
			if extended || was {
				b.WriteByte('^')
				atStart = true
				break
			}
			b.WriteString(`\^`)
		case '$':
			rest := expr[i+1:]
			if extended || rest == "" || strings.HasPrefix(rest, `\)`) || strings.HasPrefix(rest, `\|`) {
				b.WriteByte('$')
				break
			}
			b.WriteString(`\$`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

func writeOperator(b *strings.Builder, c byte, depth int) int {
	b.WriteByte(c)
	switch c {
	case '(':
		depth++
	case ')':
		depth--
	}
	return depth
}

// repeats reports whether text begins with a count in braces.
func repeats(text string) bool {
	end := strings.IndexByte(text, '}')
	return end > 1 && strings.Trim(text[1:end], "0123456789,") == ""
}

// bracket translates a bracket expression and returns its length.
func bracket(b *strings.Builder, expr string) (int, error) {
	i := 1
	b.WriteByte('[')
	if i < len(expr) && expr[i] == '^' {
		b.WriteByte('^')
		i++
	}
	for first := true; ; first = false {
		if i >= len(expr) {
			return 0, fmt.Errorf("unmatched [")
		}
		switch c := expr[i]; {
		case c == ']' && !first:
			b.WriteByte(']')
			return i + 1, nil
		case c == '[' && i+1 < len(expr) && strings.IndexByte(":.=", expr[i+1]) >= 0:
			end := strings.Index(expr[i+2:], expr[i+1:i+2]+"]")
			if end < 0 || expr[i+1] != ':' {
				return 0, fmt.Errorf("bracket expression %q is not supported", expr)
			}
			if _, ok := classes(expr[i+2 : i+2+end]); !ok {
				return 0, fmt.Errorf("unknown character class in %q", expr)
			}
			b.WriteString(expr[i : i+end+4])
			i += end + 4
		case c == '-' || c >= 0x80:
			b.WriteByte(c)
			i++
		case c == '\\' && i+1 < len(expr) && (expr[i+1] == 'n' || expr[i+1] == 't'):
			b.WriteString(expr[i : i+2])
			i += 2
		case strings.IndexByte(`\[]^&~`, c) >= 0:
			b.WriteString(`\` + string(c))
			i++
		default:
			b.WriteByte(c)
			i++
		}
	}
}
