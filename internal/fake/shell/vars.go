package shell

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxValue is the length of a variable, of a command substitution and of a command's arguments.
const maxValue = 4 << 20

// variable is a shell variable, or the attributes of one that is not set.
type variable struct {
	value    string
	set      bool
	exported bool
	readonly bool
	charged  bool // counted as this process's memory
}

// shellError is a failure of the shell itself, with the exit status that it gives the script.
type shellError struct {
	text   string
	status int
}

func (e *shellError) Error() string { return e.text }

func fail(status int, text string) error { return &shellError{text, status} }

// get returns a variable or special parameter.
func (s *shell) get(name string) (string, bool) {
	if v, ok := s.vars[name]; ok {
		return v.value, v.set
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		if n == 0 {
			return s.name, true
		}
		if n <= len(s.params) {
			return s.params[n-1], true
		}
		return "", false
	}
	switch name {
	case "#":
		return strconv.Itoa(len(s.params)), true
	case "?":
		return strconv.Itoa(s.status), true
	case "$":
		return strconv.Itoa(s.shellPID), true
	case "!":
		return strconv.Itoa(s.lastJob), s.lastJob != 0
	case "-":
		return s.opts.letters(), true
	case "@", "*":
		return strings.Join(s.params, " "), len(s.params) > 0
	case "LINENO":
		return strconv.Itoa(s.line), true
	case "RANDOM":
		return strconv.Itoa(rand.IntN(1 << 15)), true
	case "SECONDS":
		return strconv.Itoa(int(time.Since(s.began).Seconds())), true
	}
	return "", false
}

// assign sets a variable.
func (s *shell) assign(name, value string) error {
	v := s.vars[name]
	if v.readonly {
		return fail(2, name+": is read only")
	}
	if len(value) > maxValue {
		return fail(2, name+": value too long")
	}
	s.forget(v)
	if err := s.charge(len(value) + len(name) + 64); err != nil {
		return fail(2, name+": "+err.Error())
	}
	v.value, v.set, v.charged = value, true, true
	v.exported = v.exported || s.opts['a']
	s.vars[name] = v
	s.varChanged(name)
	return nil
}

// forget gives back the memory of a variable that is about to be replaced.
func (s *shell) forget(v variable) {
	if v.charged {
		_ = s.charge(-len(v.value) - 64)
	}
}

func (s *shell) unset(name string) error {
	v := s.vars[name]
	if v.readonly {
		return fail(2, name+": is read only")
	}
	s.forget(v)
	delete(s.vars, name)
	s.varChanged(name)
	return nil
}

// varChanged keeps what depends on a variable up to date.
func (s *shell) varChanged(name string) {
	if name == "OPTIND" {
		s.optPos = 0
	}
}

// restore puts back a variable as it was before a function or a command with assignments of its own.
func (s *shell) restore(name string, v variable, existed bool) {
	s.forget(s.vars[name])
	if !existed {
		delete(s.vars, name)
		s.varChanged(name)
		return
	}
	if v.charged {
		v.charged = s.charge(len(v.value)+64) == nil
	}
	s.vars[name] = v
	s.varChanged(name)
}

// frame is what a function has to put back when it returns.
type frame map[string]savedVar

type savedVar struct {
	v       variable
	existed bool
}

// save remembers a variable once.
func (s *shell) save(f frame, name string) {
	if _, ok := f[name]; ok {
		return
	}
	v, existed := s.vars[name]
	f[name] = savedVar{v, existed}
}

func (s *shell) restoreAll(f frame) {
	for name, old := range f {
		s.restore(name, old.v, old.existed)
	}
}

// environ returns what a program inherits, sorted.
func (s *shell) environ() []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(s.vars)) {
		if v := s.vars[name]; v.exported && v.set {
			env = append(env, name+"="+v.value)
		}
	}
	return env
}

// setParams replaces the positional parameters.
func (s *shell) setParams(args []string) error {
	size := 0
	for _, a := range args {
		size += len(a) + 16
	}
	if err := s.charge(size - s.paramsPaid); err != nil {
		return fail(2, err.Error())
	}
	s.params, s.paramsPaid = args, size
	return nil
}

func validName(s string) bool {
	for i, c := range []byte(s) {
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// ifs returns the field separators.
func (s *shell) ifs() string {
	if v, ok := s.vars["IFS"]; ok && v.set {
		return v.value
	}
	return " \t\n"
}

func firstRune(s string) string {
	if s == "" {
		return ""
	}
	_, n := utf8.DecodeRuneInString(s)
	return s[:n]
}

// options are the flags of set, by letter; 'P' stands for pipefail.
type options map[byte]bool

const optionLetters = "aCefnuxP"

// optionWords are the names that "set -o" knows.
func optionWords() map[string]byte {
	return map[string]byte{
		"allexport": 'a', "noclobber": 'C', "errexit": 'e', "noglob": 'f', "noexec": 'n', "nounset": 'u',
		"xtrace": 'x', "pipefail": 'P',
	}
}

func optionLetter(word string) (byte, bool) {
	letter, ok := optionWords()[word]
	return letter, ok
}

func (o options) letters() string {
	var b strings.Builder
	for _, c := range []byte(optionLetters) {
		if o[c] && c != 'P' {
			b.WriteByte(c)
		}
	}
	return b.String()
}
