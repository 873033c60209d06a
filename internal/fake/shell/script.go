package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	maxScript  = 256 << 10
	maxOpeners = 8_000 // brackets and compound commands in a script: the parser and the evaluator recurse at each

	// What a script takes of the memory while it runs: its syntax tree is larger than its text, and each bracket
	// deepens the parser's stack.
	scriptCost = 64
	openerCost = 4 << 10
)

// script is a text on its way through the parser. Its statements wait until the parser is past their line: only then
// it has read their here-documents.
type script struct {
	s        *shell
	ready    []*syntax.Stmt
	lastLine uint
	ran      bool
	over     bool // a syntax error, or the shell leaves the script
}

// eval parses and runs src, line by line.
func (s *shell) eval(src string) {
	s.step(processCost)
	brackets := openers(src)
	switch {
	case len(src) > maxScript:
		s.stop(fail(2, "script too long"))
		return
	case brackets > maxOpeners:
		s.stop(fail(2, "script too complex"))
		return
	}
	cost := len(src)*scriptCost + brackets*openerCost
	if err := s.charge(cost); err != nil {
		s.stop(fail(2, err.Error()))
		return
	}
	defer func() { _ = s.charge(-cost) }()

	run := script{s: s}
	// The iterator may yield an error after it was told to stop, for which a range statement would panic.
	syntax.NewParser(syntax.Variant(syntax.LangBash)).StmtsSeq(strings.NewReader(src + "\n"))(run.take)
	if !run.over {
		run.run()
	}
	if !run.ran && !run.over {
		s.status = 0
	}
}

// take gets the next statement from the parser, or its error, and reports whether it wants more.
func (r *script) take(st *syntax.Stmt, err error) bool {
	switch {
	case r.over:
		return false
	case err != nil:
		if len(r.ready) == 0 || onLine(err, r.lastLine) || r.run() {
			r.over = true
			r.s.syntaxError(err)
		}
		return false
	case len(r.ready) > 0 && st.Pos().Line() > r.lastLine && !r.run():
		return false
	}
	r.ready = append(r.ready, st)
	r.lastLine = st.End().Line()
	return true
}

// run runs the statements that wait, and reports whether the script goes on.
func (r *script) run() bool {
	s := r.s
	for _, st := range r.ready {
		if why, line := unsupported(st); why != "" {
			s.line = line
			s.stop(fail(2, "not supported: "+why))
			r.over = true
			return false
		}
	}
	r.ran = r.ran || len(r.ready) > 0
	s.stmts(r.ready)
	r.ready = nil
	r.over = s.flow != flowNone
	return !r.over
}

func onLine(err error, line uint) bool {
	switch err := err.(type) {
	case syntax.ParseError:
		return err.Pos.Line() == line
	case syntax.LangError:
		return err.Pos.Line() == line
	}
	return false
}

func (s *shell) syntaxError(err error) {
	text := err.Error()
	switch err := err.(type) {
	case syntax.ParseError:
		s.line, text = int(err.Pos.Line()), err.Text
	case syntax.LangError:
		s.line = int(err.Pos.Line())
	}
	s.stop(fail(2, "syntax error: "+text))
}

// openers counts what the parser may recurse at, wherever it stands.
func openers(src string) int {
	n := strings.Count(src, "(") + strings.Count(src, "{") + strings.Count(src, "[")
	for word := range strings.FieldsFuncSeq(src, func(r rune) bool { return strings.ContainsRune(" \t\n;&|", r) }) {
		switch word {
		case "if", "elif", "else", "while", "until", "for", "case", "time", "!":
			n++
		}
	}
	return n
}
