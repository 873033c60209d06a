package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call runs a simple command: assignments, a function, a builtin or a program.
func (s *shell) call(c *syntax.CallExpr, redirs []*syntax.Redirect) {
	s.substed = false
	args, err := s.fields(c.Args)
	if err != nil {
		s.stop(err)
		return
	}
	if len(args) == 0 {
		s.assignments(c, redirs)
		return
	}
	body, isFunc := s.funcs[args[0]]
	special := isSpecial(args[0])
	builtin := findBuiltin(args[0])
	if special {
		isFunc = false
	}
	if args[0] == "exec" {
		s.execBuiltin(c, args[1:], redirs)
		return
	}
	if builtin == nil && !isFunc {
		s.program(c, args, redirs)
		return
	}
	redirected, err := s.redirect(redirs)
	defer redirected.undo()
	if err != nil {
		s.redirectFailed(err)
		if special && s.status != 0 {
			s.flow = flowExit
		}
		return
	}
	local := frame{}
	if err := s.assignAll(c.Assigns, func(name string) {
		if !special {
			s.save(local, name)
		}
	}, !special); err != nil {
		s.restoreAll(local)
		s.stop(err)
		return
	}
	s.trace(c.Assigns, args)
	if isFunc {
		s.callFunc(body, args[1:])
	} else {
		s.status = builtin(s, args)
	}
	s.restoreAll(local)
}

// assignments runs a command without a name. Its status is that of its last command substitution.
func (s *shell) assignments(c *syntax.CallExpr, redirs []*syntax.Redirect) {
	redirected, err := s.redirect(redirs)
	redirected.undo()
	if err != nil {
		s.redirectFailed(err)
		return
	}
	if err := s.assignAll(c.Assigns, nil, false); err != nil {
		s.stop(err)
		return
	}
	if !s.substed {
		s.status = 0
	}
	s.trace(c.Assigns, nil)
}

func (s *shell) assignAll(list []*syntax.Assign, before func(name string), export bool) error {
	for _, a := range list {
		name := a.Name.Value
		value, err := s.value(a.Value)
		if err != nil {
			return err
		}
		if a.Append {
			old, _ := s.get(name)
			value = old + value
		}
		if before != nil {
			before(name)
		}
		if err := s.assign(name, value); err != nil {
			return err
		}
		if export {
			v := s.vars[name]
			v.exported = true
			s.vars[name] = v
		}
	}
	return nil
}

// trace obeys set -x.
func (s *shell) trace(assigns []*syntax.Assign, args []string) {
	if !s.opts['x'] {
		return
	}
	prompt, _ := s.get("PS4")
	var words []string
	for _, a := range assigns {
		value, _ := s.get(a.Name.Value)
		words = append(words, a.Name.Value+"="+quoteArg(value))
	}
	for _, a := range args {
		words = append(words, quoteArg(a))
	}
	s.errorf("%s%s", prompt, strings.Join(words, " "))
}

// quoteArg writes a word so that a shell would read it back.
func quoteArg(text string) string {
	if text != "" && strings.IndexFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%", r)
	}) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// program runs a program of the file system in a child process.
func (s *shell) program(c *syntax.CallExpr, args []string, redirs []*syntax.Redirect) {
	run := func(t *shell) int {
		redirected, err := t.redirect(redirs)
		redirected.keep()
		if err != nil {
			t.redirectFailed(err)
			return t.status
		}
		if err := t.assignAll(c.Assigns, nil, true); err != nil {
			t.stop(err)
			return t.status
		}
		t.trace(c.Assigns, args)
		return t.exec(t.name, args, t.environ())
	}
	if s.tail == c && s.calls == 0 {
		s.status = run(s)
		return
	}
	t, err := s.forkShell(false)
	if err != nil {
		s.stop(fail(2, err.Error()))
		return
	}
	s.status = s.foreground(t.proc, func() int { return run(t) })
}

// execBuiltin replaces the shell by a program, or only its descriptors.
func (s *shell) execBuiltin(c *syntax.CallExpr, args []string, redirs []*syntax.Redirect) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	redirected, err := s.redirect(redirs)
	redirected.keep()
	if err == nil {
		err = s.assignAll(c.Assigns, nil, len(args) > 0)
	}
	if err != nil {
		s.stop(err)
		return
	}
	s.trace(c.Assigns, append([]string{"exec"}, args...))
	s.status = 0
	if len(args) > 0 {
		s.exitTrap = ""
		s.status, s.flow = s.exec(s.name, args, s.environ()), flowExit
	}
}

// declare runs export, readonly and local, which the parser knows as keywords.
func (s *shell) declare(d *syntax.DeclClause) {
	s.status = 0
	kind := d.Variant.Value
	if kind == "local" && s.calls == 0 || kind == "local" && len(s.frames) == 0 {
		s.stop(fail(2, "local: not in a function"))
		return
	}
	print := len(d.Args) == 0
	for _, a := range d.Args {
		if !a.Naked {
			value, err := s.value(a.Value)
			if err != nil {
				s.stop(err)
				return
			}
			if a.Append {
				old, _ := s.get(a.Name.Value)
				value = old + value
			}
			s.declareOne(kind, a.Name.Value, value, true)
			continue
		}
		words := []string{}
		if a.Name != nil {
			words = append(words, a.Name.Value)
		} else {
			var err error
			if words, err = s.fields([]*syntax.Word{a.Value}); err != nil {
				s.stop(err)
				return
			}
		}
		for _, w := range words {
			name, value, ok := strings.Cut(w, "=")
			switch {
			case w == "-p" && kind != "local":
				print = true
			case w == "-n" && kind == "export":
				kind = "-n"
			case !validName(name):
				s.stop(fail(2, kind+": "+w+": bad variable name"))
			default:
				s.declareOne(kind, name, value, ok)
			}
			if s.flow != flowNone {
				return
			}
		}
	}
	s.status = 0
	if print {
		s.printDeclared(kind)
	}
}

func (s *shell) declareOne(kind, name, value string, hasValue bool) {
	if kind == "local" {
		top := s.frames[len(s.frames)-1]
		_, again := top[name]
		s.save(top, name)
		if v := s.vars[name]; !again && !hasValue && !v.readonly {
			s.forget(v)
			s.vars[name] = variable{exported: v.exported}
		}
	}
	if hasValue {
		if err := s.assign(name, value); err != nil {
			s.stop(err)
			return
		}
	}
	v := s.vars[name]
	switch kind {
	case "export":
		v.exported = true
	case "-n":
		v.exported = false
	case "readonly":
		v.readonly = true
	}
	s.vars[name] = v
}

func (s *shell) printDeclared(kind string) {
	var b strings.Builder
	for _, name := range s.sortedVars() {
		v := s.vars[name]
		if kind == "export" && !v.exported || kind == "readonly" && !v.readonly || kind == "local" {
			continue
		}
		b.WriteString(kind + " " + name)
		if v.set {
			b.WriteString("=" + quoteAlways(v.value))
		}
		b.WriteByte('\n')
	}
	s.print(b.String())
}

func quoteAlways(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// print writes to standard output and reports success; a failure is a message.
func (s *shell) print(text string) int {
	if text == "" {
		return 0
	}
	if _, err := s.write(1, []byte(text)); err != nil {
		s.errorf("%s: write error: %v", s.name, err)
		return 1
	}
	return 0
}
