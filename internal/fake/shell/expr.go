package shell

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// exprParser evaluates the arguments of expr by precedence.
type exprParser struct {
	args  []string
	err   error
	depth int
}

func exprMain(t *tool) int {
	p := exprParser{args: t.args}
	if len(t.args) > 0 && t.args[0] == "--" {
		p.args = t.args[1:]
	}
	v := p.or()
	if p.err == nil && len(p.args) > 0 {
		p.err = errno("syntax error")
	}
	if p.err != nil {
		t.complain("%v", p.err)
		return 2
	}
	t.say(v)
	return b2i(!exprTrue(v))
}

// exprTrue reports whether a value is neither empty nor zero.
func exprTrue(v string) bool {
	n, err := strconv.ParseInt(v, 10, 64)
	return v != "" && (err != nil || n != 0)
}

func (p *exprParser) peek(ops ...string) (string, bool) {
	if len(p.args) == 0 || p.err != nil {
		return "", false
	}
	for _, op := range ops {
		if p.args[0] == op {
			p.args = p.args[1:]
			return op, true
		}
	}
	return "", false
}

func (p *exprParser) or() string {
	v := p.and()
	for {
		if _, ok := p.peek("|"); !ok {
			return v
		}
		if right := p.and(); !exprTrue(v) {
			if v = right; !exprTrue(v) {
				v = "0"
			}
		}
	}
}

func (p *exprParser) and() string {
	v := p.comparison()
	for {
		if _, ok := p.peek("&"); !ok {
			return v
		}
		if right := p.comparison(); !exprTrue(v) || !exprTrue(right) {
			v = "0"
		}
	}
}

func (p *exprParser) comparison() string {
	v := p.sum()
	for {
		op, ok := p.peek("=", "==", "!=", "<", "<=", ">", ">=")
		if !ok {
			return v
		}
		right := p.sum()
		c := strings.Compare(v, right)
		x, err1 := strconv.ParseInt(v, 10, 64)
		y, err2 := strconv.ParseInt(right, 10, 64)
		if err1 == nil && err2 == nil {
			c = b2i(x > y) - b2i(x < y)
		}
		yes := false
		switch op {
		case "=", "==":
			yes = c == 0
		case "!=":
			yes = c != 0
		case "<":
			yes = c < 0
		case "<=":
			yes = c <= 0
		case ">":
			yes = c > 0
		case ">=":
			yes = c >= 0
		}
		v = strconv.Itoa(b2i(yes))
	}
}

func (p *exprParser) integers(a, b string) (x, y int64) {
	x, err1 := strconv.ParseInt(a, 10, 64)
	y, err2 := strconv.ParseInt(b, 10, 64)
	if (err1 != nil || err2 != nil) && p.err == nil {
		p.err = errno("non-numeric argument")
	}
	return x, y
}

func (p *exprParser) sum() string {
	v := p.product()
	for {
		op, ok := p.peek("+", "-")
		if !ok {
			return v
		}
		x, y := p.integers(v, p.product())
		if op == "-" {
			y = -y
		}
		v = strconv.FormatInt(x+y, 10)
	}
}

func (p *exprParser) product() string {
	v := p.match()
	for {
		op, ok := p.peek("*", "/", "%")
		if !ok {
			return v
		}
		x, y := p.integers(v, p.match())
		switch {
		case op == "*":
			x *= y
		case y == 0:
			if p.err == nil {
				p.err = errno("division by zero")
			}
		case op == "/":
			x /= y
		default:
			x %= y
		}
		v = strconv.FormatInt(x, 10)
	}
}

func (p *exprParser) match() string {
	v := p.primary()
	for {
		if _, ok := p.peek(":"); !ok {
			return v
		}
		v = p.matchOne(v, p.primary())
	}
}

// matchOne returns the first group of an anchored match, or its length without a group.
func (p *exprParser) matchOne(text, expr string) string {
	rx, err := compileRegex("^"+strings.TrimPrefix(expr, "^"), false, false)
	if err != nil {
		if p.err == nil {
			p.err = err
		}
		return ""
	}
	loc := rx.FindStringSubmatchIndex(text)
	switch {
	case rx.NumSubexp() > 0 && (loc == nil || loc[2] < 0):
		return ""
	case rx.NumSubexp() > 0:
		return text[loc[2]:loc[3]]
	case loc == nil:
		return "0"
	}
	return strconv.Itoa(utf8.RuneCountInString(text[:loc[1]]))
}

func (p *exprParser) primary() string {
	if p.depth++; p.depth > maxDepth {
		p.err = errno("expression too deep")
	}
	defer func() { p.depth-- }()
	if len(p.args) == 0 || p.err != nil {
		if p.err == nil {
			p.err = errno("syntax error")
		}
		return ""
	}
	a := p.args[0]
	p.args = p.args[1:]
	switch {
	case a == "(":
		v := p.or()
		if _, ok := p.peek(")"); !ok && p.err == nil {
			p.err = errno("syntax error")
		}
		return v
	case a == "length" && len(p.args) > 0:
		return strconv.Itoa(utf8.RuneCountInString(p.primary()))
	case a == "match" && len(p.args) > 1:
		text := p.primary()
		return p.matchOne(text, p.primary())
	case a == "index" && len(p.args) > 1:
		text := p.primary()
		return strconv.Itoa(strings.IndexAny(text, p.primary()) + 1)
	case a == "substr" && len(p.args) > 2:
		text := []rune(p.primary())
		from, n := p.integers(p.primary(), p.primary())
		if from < 1 || n < 1 || from > int64(len(text)) {
			return ""
		}
		return string(text[from-1 : min(from-1+n, int64(len(text)))])
	}
	return a
}
