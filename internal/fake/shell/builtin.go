package shell

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// builtin is a command that runs in the shell itself.
type builtin func(s *shell, args []string) int

// isSpecial tells the builtins whose failure ends a script and whose assignments stay.
func isSpecial(name string) bool {
	switch name {
	case ":", ".", "source", "break", "continue", "eval", "exec", "exit", "export", "readonly", "return", "set", "shift",
		"times", "trap", "unset", "local":
		return true
	}
	return false
}

// findBuiltin returns nil for what is a program. exec, export, readonly and local are run elsewhere.
func findBuiltin(name string) builtin {
	switch name {
	case ":", "true":
		return func(*shell, []string) int { return 0 }
	case "false":
		return func(*shell, []string) int { return 1 }
	case ".", "source":
		return (*shell).dot
	case "break", "continue":
		return (*shell).leaveLoop
	case "eval":
		return (*shell).evalBuiltin
	case "exit":
		return (*shell).exitBuiltin
	case "return":
		return (*shell).returnBuiltin
	case "set":
		return (*shell).setBuiltin
	case "shift":
		return (*shell).shift
	case "times":
		return func(s *shell, _ []string) int { return s.print("0m0.000s 0m0.000s\n0m0.000s 0m0.000s\n") }
	case "trap":
		return (*shell).trap
	case "unset":
		return (*shell).unsetBuiltin
	case "cd":
		return (*shell).cd
	case "pwd":
		return (*shell).pwd
	case "read":
		return (*shell).readBuiltin
	case "getopts":
		return (*shell).getopts
	case "umask":
		return (*shell).umaskBuiltin
	case "wait":
		return (*shell).waitBuiltin
	case "kill":
		return (*shell).killBuiltin
	case "command":
		return (*shell).commandBuiltin
	case "type":
		return (*shell).typeBuiltin
	case "hash":
		return func(*shell, []string) int { return 0 } // nothing is remembered, so nothing is to be forgotten
	case "echo":
		return func(s *shell, args []string) int { return s.print(echo(args[1:])) }
	case "printf":
		return func(s *shell, args []string) int { return s.printf(args) }
	case "test", "[":
		return func(s *shell, args []string) int { return s.test(args) }
	case "alias", "unalias", "bg", "fg", "jobs", "ulimit", "fc", "shopt", "mapfile", "readarray", "pushd", "popd",
		"disown", "suspend", "enable", "builtin", "complete", "bind", "history", "caller":
		return func(s *shell, args []string) int {
			s.stop(fail(2, args[0]+": not supported"))
			return s.status
		}
	}
	return nil
}

// usage ends the script when a special builtin is misused.
func (s *shell) usage(format string, args ...any) int {
	if s.lenient {
		return s.complain(2, format, args...)
	}
	s.stop(fail(2, fmt.Sprintf(format, args...)))
	return s.status
}

// complain is the failure of an ordinary builtin.
func (s *shell) complain(status int, format string, args ...any) int {
	s.say(format, args...)
	return status
}

func (s *shell) dot(args []string) int {
	if len(args) < 2 {
		return s.usage("%s: file name missing", args[0])
	}
	name := args[1]
	if !strings.Contains(name, "/") {
		path, _ := s.get("PATH")
		for dir := range strings.SplitSeq(path, ":") {
			full := strings.TrimSuffix(dir, "/") + "/" + name
			if dir != "" && s.m.fs.access(s.who(), s.abs(full), 4) == nil {
				name = full
				break
			}
		}
	}
	src, err := s.readScript(name)
	if err != nil {
		return s.usage("%s: cannot open %s: %v", args[0], args[1], err)
	}
	if len(args) > 2 {
		params, paid := s.params, s.paramsPaid
		s.params, s.paramsPaid = nil, 0
		if err := s.setParams(args[2:]); err != nil {
			return s.usage("%v", err)
		}
		defer func() {
			_ = s.setParams(nil)
			s.params, s.paramsPaid = params, paid
		}()
	}
	s.calls++
	s.nested(src)
	s.calls--
	if s.flow == flowReturn {
		s.flow = flowNone
	}
	return s.status
}

// nested runs a text within a command, which counts as nesting.
func (s *shell) nested(src string) {
	if s.depth += 10; s.depth >= maxDepth {
		s.stop(fail(2, "commands nested too deeply"))
	} else {
		line, lenient := s.line, s.lenient
		s.lenient = false
		s.eval(src)
		s.line, s.lenient = line, lenient
	}
	s.depth -= 10
}

// readScript reads a whole script.
func (s *shell) readScript(name string) (string, error) {
	d, err := s.openFile(name, openRead)
	if err != nil {
		return "", err
	}
	defer d.release()
	return s.readAll(d, maxScript+1)
}

// readAll reads at most limit bytes, or a little more.
func (p *proc) readAll(d *desc, limit int) (string, error) {
	var out []byte
	buf := make([]byte, 4096)
	for len(out) < limit {
		n, err := p.readFrom(d, buf)
		out = append(out, buf[:n]...)
		switch err {
		case nil:
		case io.EOF:
			return string(out), nil
		default:
			return "", err
		}
	}
	return string(out), nil
}

func (s *shell) leaveLoop(args []string) int {
	n := 1
	if len(args) > 1 {
		var err error
		if n, err = strconv.Atoi(args[1]); err != nil || n < 1 {
			return s.usage("%s: bad number: %s", args[0], args[1])
		}
	}
	if s.loops == 0 {
		return 0
	}
	s.levels, s.flow = min(n, s.loops), flowBreak
	if args[0] == "continue" {
		s.flow = flowContinue
	}
	return 0
}

func (s *shell) evalBuiltin(args []string) int {
	if len(args) > 1 && args[1] == "--" {
		args = args[1:]
	}
	s.nested(strings.Join(args[1:], " "))
	return s.status
}

// statusArg parses the optional status of exit and return.
func (s *shell) statusArg(args []string) (int, bool) {
	if len(args) < 2 {
		return s.status, true
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		s.usage("%s: bad number: %s", args[0], args[1])
		return s.status, false
	}
	return n & 0xff, true
}

func (s *shell) exitBuiltin(args []string) int {
	n, ok := s.statusArg(args)
	if ok {
		s.flow = flowExit
	}
	return n
}

func (s *shell) returnBuiltin(args []string) int {
	if s.calls == 0 {
		return s.exitBuiltin(args)
	}
	n, ok := s.statusArg(args)
	if ok {
		s.flow = flowReturn
	}
	return n
}

func (s *shell) setBuiltin(args []string) int {
	if len(args) == 1 {
		var b strings.Builder
		for _, name := range s.sortedVars() {
			if v := s.vars[name]; v.set {
				b.WriteString(name + "=" + quoteAlways(v.value) + "\n")
			}
		}
		return s.print(b.String())
	}
	rest, replace, err := s.setOptions(args[1:])
	if err == nil && replace {
		err = s.setParams(slices.Clone(rest))
	}
	if err != nil {
		return s.usage("set: %v", err)
	}
	return 0
}

// setOptions applies flags; replace is set when what is left are new positional parameters.
func (s *shell) setOptions(args []string) (rest []string, replace bool, err error) {
	for len(args) > 0 {
		arg := args[0]
		switch {
		case arg == "--":
			return args[1:], true, nil
		case arg == "-":
			return args[1:], len(args) > 1, nil
		case len(arg) < 2 || arg[0] != '-' && arg[0] != '+':
			return args, true, nil
		}
		args = args[1:]
		on := arg[0] == '-'
		for _, c := range []byte(arg[1:]) {
			if c == 'o' {
				if len(args) == 0 {
					s.printOptions(on)
					return nil, false, nil
				}
				letter, ok := optionLetter(args[0])
				if !ok {
					return nil, false, fail(2, "illegal option -o "+args[0])
				}
				s.opts[letter] = on
				args = args[1:]
				continue
			}
			if strings.IndexByte(optionLetters, c) < 0 || c == 'P' {
				return nil, false, fail(2, "illegal option "+arg[:1]+string(c))
			}
			s.opts[c] = on
		}
	}
	return nil, false, nil
}

func (s *shell) printOptions(readable bool) {
	var b strings.Builder
	for _, w := range slices.Sorted(maps.Keys(optionWords())) {
		on := s.opts[optionWords()[w]]
		switch {
		case readable:
			fmt.Fprintf(&b, "%-15s\t%s\n", w, map[bool]string{true: "on", false: "off"}[on])
		case on:
			b.WriteString("set -o " + w + "\n")
		default:
			b.WriteString("set +o " + w + "\n")
		}
	}
	s.print(b.String())
}

func (s *shell) sortedVars() []string { return slices.Sorted(maps.Keys(s.vars)) }

func (s *shell) shift(args []string) int {
	n := 1
	if len(args) > 1 {
		var err error
		if n, err = strconv.Atoi(args[1]); err != nil || n < 0 {
			return s.usage("shift: bad number: %s", args[1])
		}
	}
	if n > len(s.params) {
		return 1
	}
	s.params = s.params[n:]
	return 0
}

func (s *shell) unsetBuiltin(args []string) int {
	funcs := false
	for i, a := range args[1:] {
		switch {
		case i == 0 && a == "-f":
			funcs = true
		case i == 0 && a == "-v":
		case funcs:
			delete(s.funcs, a)
		case !validName(a):
			return s.usage("unset: %s: bad variable name", a)
		default:
			if err := s.unset(a); err != nil {
				return s.usage("unset: %v", err)
			}
		}
	}
	return 0
}

func (s *shell) cd(args []string) int {
	args = args[1:]
	physical := false
	for len(args) > 0 && (args[0] == "-P" || args[0] == "-L" || args[0] == "--") {
		physical = args[0] == "-P"
		args = args[1:]
	}
	show := false
	var dir string
	switch {
	case len(args) == 0:
		if dir, _ = s.get("HOME"); dir == "" {
			return s.complain(2, "cd: HOME not set")
		}
	case args[0] == "-":
		if dir, _ = s.get("OLDPWD"); dir == "" {
			return s.complain(2, "cd: OLDPWD not set")
		}
		show = true
	default:
		dir = args[0]
	}
	full := s.abs(dir)
	if physical {
		if real, err := s.m.fs.realpath(s.who(), full); err == nil {
			full = real
		}
	} else if full != "" {
		full = cleanPath(full)
	}
	i, err := s.m.fs.stat(s.who(), full, true)
	if err == nil && !i.mode.IsDir() {
		err = errNotDir
	}
	if err == nil {
		err = s.m.fs.access(s.who(), full, 1)
	}
	if err != nil {
		return s.complain(2, "cd: can't cd to %s: %v", dir, err)
	}
	old := s.dir
	s.chdir(full)
	if err := s.assign("OLDPWD", old); err != nil {
		return s.complain(1, "cd: %v", err)
	}
	if err := s.assign("PWD", s.dir); err != nil {
		return s.complain(1, "cd: %v", err)
	}
	if show {
		return s.print(s.dir + "\n")
	}
	return 0
}

func (s *shell) pwd(args []string) int {
	dir := s.dir
	for _, a := range args[1:] {
		switch a {
		case "-L":
		case "-P":
			real, err := s.m.fs.realpath(s.who(), dir)
			if err != nil {
				return s.complain(1, "pwd: %v", err)
			}
			dir = real
		default:
			return s.complain(2, "pwd: illegal option %s", a)
		}
	}
	return s.print(dir + "\n")
}

func (s *shell) umaskBuiltin(args []string) int {
	switch {
	case len(args) == 1:
		return s.print(fmt.Sprintf("%04o\n", s.umask))
	case args[1] == "-S":
		part := func(shift int) string {
			var b strings.Builder
			for i, c := range "rwx" {
				if s.umask>>shift&(4>>i) == 0 {
					b.WriteRune(c)
				}
			}
			return b.String()
		}
		return s.print("u=" + part(6) + ",g=" + part(3) + ",o=" + part(0) + "\n")
	}
	mode, err := parseMode(args[1], fs.FileMode(0o777&^s.umask), 0)
	if err != nil {
		return s.complain(1, "umask: %s: illegal mode", args[1])
	}
	if args[1][0] >= '0' && args[1][0] <= '7' {
		s.umask = uint32(mode & 0o777)
	} else {
		s.umask = uint32(0o777 &^ mode)
	}
	return 0
}

// commandBuiltin runs a builtin or program even where a function has its name, or tells where a command comes from.
func (s *shell) commandBuiltin(args []string) int {
	args = args[1:]
	how := ""
	for len(args) > 0 && len(args[0]) == 2 && args[0][0] == '-' && args[0] != "--" {
		switch args[0] {
		case "-v", "-V":
			how = args[0]
		case "-p":
		default:
			return s.complain(2, "command: illegal option %s", args[0])
		}
		args = args[1:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return 0
	}
	if how != "" {
		return s.describe(args, how == "-v")
	}
	if args[0] == "exec" || args[0] == "export" || args[0] == "readonly" || args[0] == "local" {
		quoted := make([]string, len(args))
		for i, a := range args {
			quoted[i] = quoteAlways(a)
		}
		quoted[0] = args[0]
		s.nested(strings.Join(quoted, " "))
		return s.status
	}
	if b := findBuiltin(args[0]); b != nil {
		s.lenient = true
		defer func() { s.lenient = false }()
		return b(s, args)
	}
	t, err := s.forkShell(false)
	if err != nil {
		return s.usage("%v", err)
	}
	return s.foreground(t.proc, func() int { return t.exec(t.name, args, t.environ()) })
}

func (s *shell) typeBuiltin(args []string) int { return s.describe(args[1:], false) }

// describe tells what names mean, briefly as "command -v" or in words as "type".
func (s *shell) describe(names []string, brief bool) int {
	status := 0
	for _, name := range names {
		var what, short string
		path, _ := s.get("PATH")
		switch full, _, err := s.lookPath(name, path); {
		case isKeyword(name):
			what, short = name+" is a shell keyword", name
		case s.funcs[name] != nil && !isSpecial(name):
			what, short = name+" is a function", name
		case isSpecial(name):
			what, short = name+" is a special shell builtin", name
		case findBuiltin(name) != nil:
			what, short = name+" is a shell builtin", name
		case err == nil:
			what, short = name+" is "+full, full
		default:
			if !brief {
				s.errorf("%s: not found", name)
			}
			status = 127
			continue
		}
		if brief {
			what = short
		}
		s.print(what + "\n")
	}
	return status
}

func isKeyword(name string) bool {
	switch name {
	case "if", "then", "else", "elif", "fi", "while", "until", "for", "do", "done", "case", "esac", "{", "}", "!", "in",
		"function", "[[", "time":
		return true
	}
	return false
}

func (s *shell) getopts(args []string) int {
	if len(args) < 3 {
		return s.complain(2, "usage: getopts optstring name [arg ...]")
	}
	spec, name := args[1], args[2]
	params := s.params
	if len(args) > 3 {
		params = args[3:]
	}
	ind, _ := s.get("OPTIND")
	i, err := strconv.Atoi(ind)
	if err != nil || i < 1 {
		i = 1
	}
	pos := max(s.optPos, 1)
	end := func(optName, optArg string, hasArg bool, status int) int {
		err := s.assign(name, optName)
		if hasArg && err == nil {
			err = s.assign("OPTARG", optArg)
		} else if err == nil {
			err = s.unset("OPTARG")
		}
		if err == nil {
			err = s.assign("OPTIND", strconv.Itoa(i))
		}
		s.optPos = pos
		if err != nil {
			return s.complain(2, "getopts: %v", err)
		}
		return status
	}
	if i > len(params) || len(params[i-1]) < 2 || params[i-1][0] != '-' || params[i-1] == "--" {
		if i <= len(params) && params[i-1] == "--" {
			i++
		}
		pos = 1
		return end("?", "", false, 1)
	}
	word := params[i-1]
	pos = min(pos, len(word)-1)
	c := word[pos : pos+1]
	if pos++; pos >= len(word) {
		i, pos = i+1, 1
	}
	silent := strings.HasPrefix(spec, ":")
	at := strings.Index(spec, c)
	if at < 0 || c == ":" {
		if silent {
			return end("?", c, true, 0)
		}
		s.errorf("%s: illegal option -- %s", s.name, c)
		return end("?", "", false, 0)
	}
	if at+1 >= len(spec) || spec[at+1] != ':' {
		return end(c, "", false, 0)
	}
	if pos > 1 { // the rest of the word is the argument
		arg := word[pos:]
		i, pos = i+1, 1
		return end(c, arg, true, 0)
	}
	if i > len(params) {
		if silent {
			return end(":", c, true, 0)
		}
		s.errorf("%s: option requires an argument -- %s", s.name, c)
		return end("?", "", false, 0)
	}
	arg := params[i-1]
	i++
	return end(c, arg, true, 0)
}
