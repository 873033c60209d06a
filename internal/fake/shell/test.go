package shell

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// test evaluates the arguments of test and [.
func (p *proc) test(args []string) int {
	if args[0] == "[" {
		if args[len(args)-1] != "]" {
			p.errorf("[: missing ]")
			return 2
		}
		args = args[:len(args)-1]
	}
	t := tester{p: p, args: args[1:]}
	ok := t.run()
	if t.err == nil && len(t.args) > 0 {
		t.err = fmt.Errorf("%s: unknown operand", t.args[0])
	}
	if t.err != nil {
		p.errorf("%s: %v", args[0], t.err)
		return 2
	}
	return b2i(!ok)
}

// tester consumes args. The number of arguments decides first, as POSIX asks; only then operators have precedence.
type tester struct {
	p    *proc
	args []string
	err  error
}

func (t *tester) run() bool {
	switch a := t.args; len(a) {
	case 0:
		return false
	case 1:
		t.args = nil
		return a[0] != ""
	case 3:
		if isBinary(a[1]) {
			t.args = nil
			return t.binary(a[0], a[1], a[2])
		}
	case 4:
		if a[0] == "!" && isBinary(a[2]) {
			t.args = nil
			return !t.binary(a[1], a[2], a[3])
		}
	}
	return t.or()
}

func (t *tester) or() bool {
	ok := t.and()
	for t.err == nil && len(t.args) > 0 && t.args[0] == "-o" {
		t.args = t.args[1:]
		right := t.and()
		ok = ok || right
	}
	return ok
}

func (t *tester) and() bool {
	ok := t.not()
	for t.err == nil && len(t.args) > 0 && t.args[0] == "-a" {
		t.args = t.args[1:]
		right := t.not()
		ok = ok && right
	}
	return ok
}

func (t *tester) not() bool {
	negate := false
	for len(t.args) > 1 && t.args[0] == "!" {
		negate = !negate
		t.args = t.args[1:]
	}
	return t.primary() != negate
}

func (t *tester) primary() bool {
	a := t.args
	switch {
	case len(a) == 0:
		t.err = fmt.Errorf("argument expected")
		return false
	case len(a) >= 3 && isBinary(a[1]):
		t.args = a[3:]
		return t.binary(a[0], a[1], a[2])
	case a[0] == "(" && len(a) > 1:
		t.args = a[1:]
		ok := t.or()
		if len(t.args) == 0 || t.args[0] != ")" {
			if t.err == nil {
				t.err = fmt.Errorf("closing paren expected")
			}
			return false
		}
		t.args = t.args[1:]
		return ok
	case len(a) >= 2 && len(a[0]) == 2 && a[0][0] == '-' && strings.IndexByte("bcdefghkLnprsStuwxzOGN", a[0][1]) >= 0:
		t.args = a[2:]
		return t.unary(a[0], a[1])
	}
	t.args = a[1:]
	return a[0] != ""
}

func isBinary(op string) bool {
	switch op {
	case "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef":
		return true
	}
	return false
}

func (t *tester) unary(op, arg string) bool {
	switch op {
	case "-n":
		return arg != ""
	case "-z":
		return arg == ""
	case "-t":
		return false // there is no terminal
	}
	return t.p.testFile(op, arg)
}

// testFile answers the questions about one file.
func (p *proc) testFile(op, name string) bool {
	i, err := p.m.fs.stat(p.who(), p.abs(name), op != "-L" && op != "-h")
	if err != nil {
		return false
	}
	access := func(bits fs.FileMode) bool { return p.m.fs.access(p.who(), p.abs(name), bits) == nil }
	switch op {
	case "-e":
		return true
	case "-f":
		return i.mode.IsRegular()
	case "-d":
		return i.mode.IsDir()
	case "-h", "-L":
		return i.mode&fs.ModeSymlink != 0
	case "-c":
		return i.mode&fs.ModeCharDevice != 0
	case "-s":
		return i.size > 0
	case "-r":
		return access(4)
	case "-w":
		return access(2)
	case "-x":
		return access(1)
	case "-u":
		return i.mode&fs.ModeSetuid != 0
	case "-g":
		return i.mode&fs.ModeSetgid != 0
	case "-k":
		return i.mode&fs.ModeSticky != 0
	case "-O", "-G":
		return i.uid == p.uid
	}
	return false // -b, -p, -S: there are no such files
}

func (t *tester) binary(a, op, b string) bool {
	switch op {
	case "=", "==":
		return a == b
	case "!=":
		return a != b
	case "<":
		return a < b
	case ">":
		return a > b
	case "-nt", "-ot", "-ef":
		return t.p.testFiles(a, op, b)
	}
	x, err1 := strconv.ParseInt(strings.TrimSpace(a), 10, 64)
	y, err2 := strconv.ParseInt(strings.TrimSpace(b), 10, 64)
	switch {
	case err1 != nil:
		t.err = fmt.Errorf("bad number %q", a)
	case err2 != nil:
		t.err = fmt.Errorf("bad number %q", b)
	}
	return compareInts(x, op, y)
}

func compareInts(x int64, op string, y int64) bool {
	switch op {
	case "-eq":
		return x == y
	case "-ne":
		return x != y
	case "-lt":
		return x < y
	case "-le":
		return x <= y
	case "-gt":
		return x > y
	default:
		return x >= y
	}
}

func (p *proc) testFiles(a, op, b string) bool {
	x, errX := p.m.fs.stat(p.who(), p.abs(a), true)
	y, errY := p.m.fs.stat(p.who(), p.abs(b), true)
	switch op {
	case "-nt":
		return errX == nil && (errY != nil || x.mtime.After(y.mtime))
	case "-ot":
		return errY == nil && (errX != nil || x.mtime.Before(y.mtime))
	}
	return errX == nil && errY == nil && x.inode == y.inode
}

// testExpr evaluates the inside of [[ ]].
func (s *shell) testExpr(x syntax.TestExpr) (bool, error) {
	switch x := x.(type) {
	case *syntax.Word:
		text, err := s.literal(x)
		return text != "", err
	case *syntax.ParenTest:
		return s.testExpr(x.X)
	case *syntax.UnaryTest:
		if x.Op == syntax.TsNot {
			ok, err := s.testExpr(x.X)
			return !ok, err
		}
		w, ok := x.X.(*syntax.Word)
		if !ok {
			return false, fail(2, "[[: operand expected")
		}
		arg, err := s.literal(w)
		if err != nil {
			return false, err
		}
		switch x.Op {
		case syntax.TsOptSet:
			letter, ok := optionLetter(arg)
			return ok && s.opts[letter], nil
		case syntax.TsVarSet:
			_, set := s.get(arg)
			return set, nil
		case syntax.TsRefVar, syntax.TsParen:
			return false, fail(2, "[[: "+x.Op.String()+" is not supported")
		}
		t := tester{p: s.proc}
		return t.unary(x.Op.String(), arg), t.err
	case *syntax.BinaryTest:
		return s.binaryTest(x)
	}
	return false, fail(2, "[[: not supported")
}

func (s *shell) binaryTest(x *syntax.BinaryTest) (bool, error) {
	if x.Op == syntax.AndTest || x.Op == syntax.OrTest {
		ok, err := s.testExpr(x.X)
		if err != nil || ok == (x.Op == syntax.OrTest) {
			return ok, err
		}
		return s.testExpr(x.Y)
	}
	left, ok1 := x.X.(*syntax.Word)
	right, ok2 := x.Y.(*syntax.Word)
	if !ok1 || !ok2 {
		return false, fail(2, "[[: operand expected")
	}
	a, err := s.literal(left)
	if err != nil {
		return false, err
	}
	switch x.Op {
	case syntax.TsMatch, syntax.TsMatchShort, syntax.TsNoMatch:
		pat, err := s.pattern(right.Parts)
		return match(pat, a) == (x.Op != syntax.TsNoMatch), err
	}
	b, err := s.literal(right)
	if err != nil {
		return false, err
	}
	switch x.Op {
	case syntax.TsReMatch:
		rx, err := regexp.Compile(b)
		if err != nil {
			return false, fail(2, "[[: "+err.Error())
		}
		return rx.MatchString(a), nil
	case syntax.TsEql, syntax.TsNeq, syntax.TsLss, syntax.TsLeq, syntax.TsGtr, syntax.TsGeq:
		m, err := s.number(a, 0)
		if err != nil {
			return false, err
		}
		n, err := s.number(b, 0)
		return compareInts(m, x.Op.String(), n), err
	}
	t := tester{p: s.proc}
	return t.binary(a, x.Op.String(), b), t.err
}
