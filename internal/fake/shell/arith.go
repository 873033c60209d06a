package shell

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	maxArithDepth = 1000     // operators within operators, and variables that hold expressions
	maxExpression = 16 << 10 // of a variable that holds one
)

// arith evaluates an expression in 64 bits.
func (s *shell) arith(x syntax.ArithmExpr) (int64, error) { return s.arithAt(x, 0) }

func (s *shell) arithAt(x syntax.ArithmExpr, depth int) (int64, error) {
	if depth > maxArithDepth {
		return 0, fail(2, "arithmetic: expression too deep")
	}
	depth++
	switch x := x.(type) {
	case nil:
		return 0, nil
	case *syntax.Word:
		text, err := s.literal(x)
		if err != nil {
			return 0, err
		}
		return s.number(text, depth)
	case *syntax.ParenArithm:
		return s.arithAt(x.X, depth)
	case *syntax.UnaryArithm:
		return s.unary(x, depth)
	case *syntax.BinaryArithm:
		return s.binary(x, depth)
	}
	return 0, fail(2, "arithmetic: not supported")
}

// number takes text for a number, a variable, or an expression such as a variable may hold.
func (s *shell) number(text string, depth int) (int64, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, nil
	}
	if n, ok := parseInt(text); ok {
		return n, nil
	}
	if depth > maxArithDepth || len(text) > maxExpression || openers(text) > maxArithDepth {
		return 0, fail(2, "arithmetic: expression too deep")
	}
	if validName(text) {
		value, set := s.get(text)
		if !set && s.opts['u'] {
			return 0, fail(2, text+": parameter not set")
		}
		// Each level costs a hundred, since a variable that names itself would recurse through the parser, too.
		return s.number(value, depth+100)
	}
	x, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Arithmetic(strings.NewReader(text))
	if w, ok := x.(*syntax.Word); err != nil || ok && w.Lit() == text || x == nil {
		return 0, fail(2, "arithmetic: syntax error: "+strconv.Quote(text))
	}
	if unsupportedArith(x) {
		return 0, fail(2, "arithmetic: not supported: "+strconv.Quote(text))
	}
	return s.arithAt(x, depth+100)
}

func unsupportedArith(x syntax.ArithmExpr) (bad bool) {
	syntax.Walk(x, func(n syntax.Node) bool {
		bad = bad || n != nil && unsupportedNode(n) != ""
		return !bad
	})
	return bad
}

// parseInt knows decimal, 0x, octal with a leading 0, and base#digits.
func parseInt(text string) (int64, bool) {
	sign, digits := "", text
	if digits != "" && (digits[0] == '-' || digits[0] == '+') {
		sign, digits = digits[:1], digits[1:]
	}
	if digits == "" || digits[0] < '0' || digits[0] > '9' || strings.Contains(digits, "_") {
		return 0, false
	}
	base := 10
	switch {
	case strings.HasPrefix(digits, "0x"), strings.HasPrefix(digits, "0X"):
		base, digits = 16, digits[2:]
	case digits[0] == '0' && len(digits) > 1:
		base, digits = 8, digits[1:]
	default:
		if b, d, ok := strings.Cut(digits, "#"); ok {
			n, err := strconv.Atoi(b)
			if err != nil || n < 2 || n > 36 {
				return 0, false
			}
			base, digits = n, d
		}
	}
	n, err := strconv.ParseInt(sign+digits, base, 64)
	if err != nil && base != 10 {
		var u uint64
		u, err = strconv.ParseUint(digits, base, 64)
		n = int64(u)
	}
	if err, ok := err.(*strconv.NumError); ok && err.Err == strconv.ErrRange {
		return n, true
	}
	return n, err == nil
}

// lvalue returns the variable that an assignment changes.
func (s *shell) lvalue(x syntax.ArithmExpr) (string, error) {
	if w, ok := x.(*syntax.Word); ok && validName(w.Lit()) {
		return w.Lit(), nil
	}
	return "", fail(2, "arithmetic: assignment to what is not a variable")
}

func (s *shell) unary(x *syntax.UnaryArithm, depth int) (int64, error) {
	if x.Op == syntax.Inc || x.Op == syntax.Dec {
		name, err := s.lvalue(x.X)
		if err != nil {
			return 0, err
		}
		old, err := s.number(name, depth)
		if err != nil {
			return 0, err
		}
		n := old + 1
		if x.Op == syntax.Dec {
			n = old - 1
		}
		if err := s.assign(name, strconv.FormatInt(n, 10)); err != nil {
			return 0, err
		}
		if x.Post {
			n = old
		}
		return n, nil
	}
	n, err := s.arithAt(x.X, depth)
	switch x.Op {
	case syntax.Not:
		n = int64(b2i(n == 0))
	case syntax.BitNegation:
		n = ^n
	case syntax.Minus:
		n = -n
	}
	return n, err
}

// assignOp returns the operator within an assigning one.
func assignOp(op syntax.BinAritOperator) (inner syntax.BinAritOperator, ok bool) {
	switch op {
	case syntax.Assgn:
		return op, true
	case syntax.AddAssgn:
		return syntax.Add, true
	case syntax.SubAssgn:
		return syntax.Sub, true
	case syntax.MulAssgn:
		return syntax.Mul, true
	case syntax.QuoAssgn:
		return syntax.Quo, true
	case syntax.RemAssgn:
		return syntax.Rem, true
	case syntax.AndAssgn:
		return syntax.And, true
	case syntax.OrAssgn:
		return syntax.Or, true
	case syntax.XorAssgn:
		return syntax.Xor, true
	case syntax.ShlAssgn:
		return syntax.Shl, true
	case syntax.ShrAssgn:
		return syntax.Shr, true
	}
	return op, false
}

func (s *shell) binary(x *syntax.BinaryArithm, depth int) (int64, error) {
	if op, ok := assignOp(x.Op); ok {
		name, err := s.lvalue(x.X)
		if err != nil {
			return 0, err
		}
		n, err := s.arithAt(x.Y, depth)
		if err != nil {
			return 0, err
		}
		if op != syntax.Assgn {
			old, err := s.number(name, depth)
			if err != nil {
				return 0, err
			}
			if n, err = calculate(op, old, n); err != nil {
				return 0, err
			}
		}
		return n, s.assign(name, strconv.FormatInt(n, 10))
	}
	a, err := s.arithAt(x.X, depth)
	if err != nil {
		return 0, err
	}
	switch x.Op {
	case syntax.TernQuest:
		choice, ok := x.Y.(*syntax.BinaryArithm)
		if !ok {
			return 0, fail(2, "arithmetic: syntax error")
		}
		if a != 0 {
			return s.arithAt(choice.X, depth)
		}
		return s.arithAt(choice.Y, depth)
	case syntax.AndArit:
		if a == 0 {
			return 0, nil
		}
	case syntax.OrArit:
		if a != 0 {
			return 1, nil
		}
	}
	b, err := s.arithAt(x.Y, depth)
	if err != nil {
		return 0, err
	}
	return calculate(x.Op, a, b)
}

func calculate(op syntax.BinAritOperator, a, b int64) (int64, error) {
	truth := func(ok bool) (int64, error) { return int64(b2i(ok)), nil }
	switch op {
	case syntax.Add:
		return a + b, nil
	case syntax.Sub:
		return a - b, nil
	case syntax.Mul:
		return a * b, nil
	case syntax.Quo, syntax.Rem:
		if b == 0 {
			return 0, fail(2, "arithmetic: division by zero")
		}
		if op == syntax.Quo {
			return a / b, nil
		}
		return a % b, nil
	case syntax.Pow:
		if b < 0 {
			return 0, fail(2, "arithmetic: exponent less than 0")
		}
		n := int64(1)
		for ; b > 0; b >>= 1 {
			if b&1 != 0 {
				n *= a
			}
			a *= a
		}
		return n, nil
	case syntax.Eql:
		return truth(a == b)
	case syntax.Neq:
		return truth(a != b)
	case syntax.Lss:
		return truth(a < b)
	case syntax.Gtr:
		return truth(a > b)
	case syntax.Leq:
		return truth(a <= b)
	case syntax.Geq:
		return truth(a >= b)
	case syntax.AndArit, syntax.OrArit:
		return truth(b != 0)
	case syntax.And:
		return a & b, nil
	case syntax.Or:
		return a | b, nil
	case syntax.Xor:
		return a ^ b, nil
	case syntax.Shl:
		return a << (uint64(b) & 63), nil
	case syntax.Shr:
		return a >> (uint64(b) & 63), nil
	case syntax.Comma:
		return b, nil
	}
	return 0, fail(2, "arithmetic: operator "+op.String()+" is not supported")
}
