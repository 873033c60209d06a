package shell

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/pattern"
	"mvdan.cc/sh/v3/syntax"
)

// segment is a piece of a field. What is quoted is never split, and never part of a pattern.
type segment struct {
	text   string
	quoted bool
}

type field []segment

func (f field) text() string {
	if len(f) == 1 {
		return f[0].text
	}
	var b strings.Builder
	for _, s := range f {
		b.WriteString(s.text)
	}
	return b.String()
}

// pattern returns the field as a pattern in which quoted characters stand for themselves.
func (f field) pattern() string {
	var b strings.Builder
	for _, s := range f {
		if s.quoted {
			quoteMeta(&b, s.text)
		} else {
			b.WriteString(s.text)
		}
	}
	return b.String()
}

// expander collects the fields that words expand to.
type expander struct {
	s          *shell
	split      bool // split what is unquoted, and keep "$@" apart
	fields     []field
	cur        field
	open       bool // cur is a field, even if it is empty
	afterSpace bool // the last field was ended by white space, which goes with a separator that follows
	size       int
}

func (s *shell) fields(words []*syntax.Word) ([]string, error) {
	var out []string
	size := 0
	for _, w := range words {
		variants := []*syntax.Word{w}
		if s.bash {
			var err error
			if variants, err = braces(w); err != nil {
				return nil, err
			}
		}
		for _, w := range variants {
			x := expander{s: s, split: true, size: size}
			if err := x.word(w.Parts); err != nil {
				return nil, err
			}
			x.flush()
			size = x.size
			for _, f := range x.fields {
				out = append(out, s.glob(f)...)
			}
		}
	}
	return out, nil
}

// literal expands a word to one string: no splitting, no globbing.
func (s *shell) literal(w *syntax.Word) (string, error) {
	if w == nil {
		return "", nil
	}
	f, err := s.unsplit(w.Parts, 0)
	return f.text(), err
}

// pattern expands a word to a pattern for match.
func (s *shell) pattern(parts []syntax.WordPart) (string, error) {
	f, err := s.unsplit(parts, 0)
	pat := f.pattern()
	if err == nil && len(pat) > maxPattern && pattern.HasMeta(pat, 0) {
		err = fail(2, "pattern too long")
	}
	return pat, err
}

// wordParts returns the parts of a word that the parser may have left out because it is empty.
func wordParts(w *syntax.Word) []syntax.WordPart {
	if w == nil {
		return nil
	}
	return w.Parts
}

// value expands the right side of an assignment, where a tilde may also follow a colon.
func (s *shell) value(w *syntax.Word) (string, error) {
	if w == nil {
		return "", nil
	}
	f, err := s.unsplit(w.Parts, tildeAfterColon)
	return f.text(), err
}

func (s *shell) unsplit(parts []syntax.WordPart, m mode) (field, error) {
	x := expander{s: s}
	err := x.parts(parts, m|tildeAtStart)
	return x.cur, err
}

// mode says in what surroundings a word is expanded.
type mode int

const (
	inQuotes mode = 1 << iota
	inDocument
	inParam // within ${x-word}: literal text is split too
	tildeAtStart
	tildeAfterColon
)

func (x *expander) word(parts []syntax.WordPart) error { return x.parts(parts, tildeAtStart) }

func (x *expander) parts(parts []syntax.WordPart, m mode) error {
	for i, part := range parts {
		var err error
		switch part := part.(type) {
		case *syntax.Lit:
			err = x.lit(part.Value, m, i == 0, i == len(parts)-1)
		case *syntax.SglQuoted:
			text := part.Value
			switch {
			case part.Dollar:
				text = unescape(text, ansiC)
			case m&(inQuotes|inDocument) != 0:
				text = "'" + text + "'"
			}
			err = x.add(text, true)
		case *syntax.DblQuoted:
			if m&(inQuotes|inDocument) == 0 && len(part.Parts) == 0 {
				err = x.add("", true)
				break
			}
			err = x.parts(part.Parts, inQuotes)
		case *syntax.ParamExp:
			err = x.param(part, m)
		case *syntax.CmdSubst:
			var out string
			if out, err = x.s.capture(part.Stmts); err == nil {
				err = x.emit(out, m)
			}
		case *syntax.ArithmExp:
			var n int64
			if n, err = x.s.arith(part.X); err == nil {
				err = x.emit(strconv.FormatInt(n, 10), m)
			}
		default:
			err = fail(2, "not supported in a word")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add appends text to the present field.
func (x *expander) add(text string, quoted bool) error {
	if x.size += len(text) + 16; x.size > maxValue {
		return fail(2, "word too long")
	}
	x.cur = append(x.cur, segment{text, quoted})
	x.open, x.afterSpace = true, false
	return nil
}

// flush ends the present field.
func (x *expander) flush() {
	if x.open {
		x.fields = append(x.fields, x.cur)
	}
	x.cur, x.open = nil, false
}

// emit adds the result of an expansion.
func (x *expander) emit(text string, m mode) error {
	switch {
	case m&(inQuotes|inDocument) != 0:
		return x.add(text, true)
	case !x.split:
		return x.add(text, false)
	}
	return x.addSplit(text)
}

// addSplit adds text that is divided into fields at the separators.
func (x *expander) addSplit(text string) error {
	ifs := x.s.ifs()
	start := 0
	take := func(end int) error {
		if end > start {
			return x.add(text[start:end], false)
		}
		return nil
	}
	for i, r := range text {
		if !strings.ContainsRune(ifs, r) {
			continue
		}
		if err := take(i); err != nil {
			return err
		}
		start = i + utf8.RuneLen(r)
		if r == utf8.RuneError {
			start = i + 1
		}
		space := r == ' ' || r == '\t' || r == '\n'
		switch {
		case x.open:
			x.flush()
			x.afterSpace = space
		case space:
		case x.afterSpace:
			x.afterSpace = false
		default:
			x.open = true
			x.flush()
		}
		if x.size += 16; x.size > maxValue {
			return fail(2, "word too long")
		}
	}
	return take(len(text))
}

// lit adds literal text, whose backslashes still quote.
func (x *expander) lit(text string, m mode, first, last bool) error {
	if m&(inQuotes|inDocument) != 0 {
		special := "$`\\\n"
		if m&inQuotes != 0 {
			special += `"`
		}
		if m&inParam != 0 {
			special += "}"
		}
		if strings.IndexByte(text, '\\') >= 0 {
			var b strings.Builder
			for i := 0; i < len(text); i++ {
				if text[i] == '\\' && i+1 < len(text) && strings.IndexByte(special, text[i+1]) >= 0 {
					if i++; text[i] == '\n' {
						continue
					}
				}
				b.WriteByte(text[i])
			}
			text = b.String()
		}
		return x.add(text, true)
	}
	if first && m&tildeAtStart != 0 {
		var err error
		if text, err = x.tilde(text, last); err != nil {
			return err
		}
	}
	for text != "" {
		i := strings.IndexByte(text, '\\')
		plain := text
		if i >= 0 {
			plain = text[:i]
		}
		if err := x.plain(plain, m, last); err != nil {
			return err
		}
		if i < 0 {
			return nil
		}
		if i+1 == len(text) {
			return x.add(`\`, true)
		}
		_, n := utf8.DecodeRuneInString(text[i+1:])
		if text[i+1] != '\n' {
			if err := x.add(text[i+1:i+1+n], true); err != nil {
				return err
			}
		}
		text = text[i+1+n:]
	}
	return nil
}

// plain adds unquoted literal text without backslashes.
func (x *expander) plain(text string, m mode, last bool) error {
	for m&tildeAfterColon != 0 {
		i := strings.Index(text, ":~")
		if i < 0 {
			break
		}
		if err := x.add(text[:i+1], false); err != nil {
			return err
		}
		var err error
		if text, err = x.tilde(text[i+1:], last); err != nil {
			return err
		}
		if strings.HasPrefix(text, "~") {
			break
		}
	}
	switch {
	case text == "":
		return nil
	case m&inParam != 0 && x.split:
		return x.addSplit(text)
	}
	return x.add(text, false)
}

// tilde expands "~" or "~user" in front of text and returns what follows it.
func (x *expander) tilde(text string, last bool) (string, error) {
	if !strings.HasPrefix(text, "~") {
		return text, nil
	}
	end := strings.IndexAny(text, "/:")
	if end < 0 {
		if end = len(text); !last {
			return text, nil // the name may go on in the next part
		}
	}
	home := ""
	if name := text[1:end]; name == "" {
		home, _ = x.s.get("HOME")
	} else if u, ok := x.s.m.fs.user(name); ok && u.name == name && !strings.ContainsAny(name[:1], "0123456789") {
		home = u.home
	}
	if home == "" {
		return text, nil
	}
	return text[end:], x.add(home, true)
}

// list adds the positional parameters: apart where that is possible, else joined.
func (x *expander) list(elems []string, star bool, m mode) error {
	quoted := m&(inQuotes|inDocument) != 0
	if quoted && star || !x.split {
		sep := " "
		if star {
			sep = firstRune(x.s.ifs())
		}
		if len(elems) == 0 && !star {
			return nil
		}
		return x.emit(strings.Join(elems, sep), m)
	}
	for i, e := range elems {
		if i > 0 {
			x.flush()
		}
		if err := x.emit(e, m); err != nil {
			return err
		}
	}
	return nil
}

// param expands "$x", "${x...}" and the special parameters.
func (x *expander) param(pe *syntax.ParamExp, m mode) error {
	name := pe.Param.Value
	s := x.s
	value, set := s.get(name)
	if pe.Excl {
		if !validName(value) {
			return fail(2, name+": bad indirection")
		}
		name = value
		value, set = s.get(name)
	}
	isList := name == "@" || name == "*"
	if s.opts['u'] && !set && !isList && (pe.Exp == nil || !overridesUnset(pe.Exp.Op)) {
		return fail(2, name+": parameter not set")
	}
	elems := []string{value}
	if isList {
		elems = slices.Clone(s.params)
	}
	switch {
	case pe.Length:
		if isList {
			return x.emit(strconv.Itoa(len(s.params)), m)
		}
		return x.emit(strconv.Itoa(utf8.RuneCountInString(value)), m)
	case pe.Slice != nil:
		var err error
		if elems, err = s.slice(pe.Slice, elems, isList); err != nil {
			return err
		}
	case pe.Repl != nil:
		pat, err := s.pattern(wordParts(pe.Repl.Orig))
		if err != nil {
			return err
		}
		with, err := s.literal(pe.Repl.With)
		if err != nil {
			return err
		}
		for i, e := range elems {
			if elems[i], err = replace(pat, e, with, pe.Repl.All); err != nil {
				return err
			}
		}
	case pe.Exp != nil:
		done, err := x.operator(name, pe.Exp, value, set, isList, elems, m)
		if done || err != nil {
			return err
		}
	}
	if isList {
		return x.list(elems, name == "*", m)
	}
	return x.emit(elems[0], m)
}

func overridesUnset(op syntax.ParExpOperator) bool {
	switch op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull, syntax.DefaultUnset, syntax.DefaultUnsetOrNull,
		syntax.ErrorUnset, syntax.ErrorUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull:
		return true
	}
	return false
}

// operator applies "-", "=", "?", "+", and, in place, what changes each of elems. done means that the word after the
// operator has been added in place of the parameter.
func (x *expander) operator(
	name string, exp *syntax.Expansion, value string, set, isList bool, elems []string, m mode,
) (done bool, err error) {
	s := x.s
	word := wordParts(exp.Word)
	switch exp.Op {
	case syntax.DefaultUnsetOrNull, syntax.AssignUnsetOrNull, syntax.ErrorUnsetOrNull, syntax.AlternateUnsetOrNull:
		set = set && value != ""
	}
	switch exp.Op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		if !set {
			if m&(inQuotes|inDocument) != 0 || !x.split {
				err = x.emit("", m)
			}
			return true, err
		}
		return true, x.paramWord(word, m)
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull:
		if set {
			return false, nil
		}
		return true, x.paramWord(word, m)
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if set {
			return false, nil
		}
		if !validName(name) {
			return true, fail(2, name+": cannot assign")
		}
		f, err := s.unsplit(word, m&(inQuotes|inDocument))
		if err != nil {
			return true, err
		}
		if err := s.assign(name, f.text()); err != nil {
			return true, err
		}
		return true, x.emit(f.text(), m)
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		if set {
			return false, nil
		}
		text, err := s.literal(exp.Word)
		if err == nil {
			if text == "" {
				text = "parameter not set"
			}
			err = fail(2, name+": "+text)
		}
		return true, err
	case syntax.RemSmallPrefix, syntax.RemLargePrefix, syntax.RemSmallSuffix, syntax.RemLargeSuffix:
		pat, err := s.pattern(word)
		if err != nil {
			return true, err
		}
		suffix := exp.Op == syntax.RemSmallSuffix || exp.Op == syntax.RemLargeSuffix
		small := exp.Op == syntax.RemSmallPrefix || exp.Op == syntax.RemSmallSuffix
		for i, e := range elems {
			elems[i] = trim(pat, e, suffix, small)
		}
	case syntax.UpperFirst, syntax.UpperAll, syntax.LowerFirst, syntax.LowerAll:
		pat, err := s.pattern(word)
		if err != nil {
			return true, err
		}
		change := strings.ToUpper
		if exp.Op == syntax.LowerFirst || exp.Op == syntax.LowerAll {
			change = strings.ToLower
		}
		first := exp.Op == syntax.UpperFirst || exp.Op == syntax.LowerFirst
		for i, e := range elems {
			elems[i] = changeCase(pat, e, change, first)
		}
	default:
		return true, fail(2, "not supported: ${..."+exp.Op.String()+"}")
	}
	return false, nil
}

// paramWord adds the word of ${x-word}. Within quotes it is there even if it is empty.
func (x *expander) paramWord(word []syntax.WordPart, m mode) error {
	if len(word) == 0 && m&(inQuotes|inDocument) != 0 {
		return x.add("", true)
	}
	return x.parts(word, m&(inQuotes|inDocument)|inParam|tildeAtStart)
}

func changeCase(pat, text string, change func(string) string, first bool) string {
	var b strings.Builder
	for i, r := range text {
		c := string(r)
		if (i == 0 || !first) && (pat == "" || match(pat, c)) {
			c = change(c)
		}
		b.WriteString(c)
	}
	return b.String()
}

// slice takes ${x:offset:length} of the characters of a value or of the list of parameters.
func (s *shell) slice(sl *syntax.Slice, elems []string, isList bool) ([]string, error) {
	var runes []rune
	size := len(elems)
	if isList {
		elems = append([]string{s.name}, elems...)
		size++
	} else {
		runes = []rune(elems[0])
		size = len(runes)
	}
	offset := int64(0)
	var err error
	if sl.Offset != nil {
		if offset, err = s.arith(sl.Offset); err != nil {
			return nil, err
		}
	}
	if offset < 0 {
		if offset += int64(size); offset < 0 {
			offset = int64(size)
		}
	}
	offset = min(offset, int64(size))
	end := int64(size)
	if sl.Length != nil {
		length, err := s.arith(sl.Length)
		if err != nil {
			return nil, err
		}
		if end = offset + min(length, int64(size)); length < 0 {
			end = int64(size) + length
		}
		end = min(max(end, offset), int64(size))
	}
	if isList {
		if offset == 0 && sl.Offset == nil {
			offset = min(1, end)
		}
		return elems[offset:end], nil
	}
	return []string{string(runes[offset:end])}, nil
}

// capture runs a command substitution and returns its output without the newlines at its end.
func (s *shell) capture(list []*syntax.Stmt) (string, error) {
	c, err := s.forkShell(false)
	if err != nil {
		return "", fail(2, err.Error())
	}
	r, w := newPipe()
	defer r.release()
	c.set(1, w)
	c.spawn(func() int {
		c.only(list)
		return c.finish()
	})
	var out []byte
	buf := make([]byte, 4096)
	for {
		n, err := s.readFrom(r, buf)
		out = append(out, buf[:n]...)
		if len(out) > maxValue {
			return "", fail(2, "command substitution: output too long")
		}
		if err != nil {
			break // the end; a pipe has no other error
		}
	}
	s.status = s.wait(c.proc)
	s.substed = true
	return strings.ReplaceAll(strings.TrimRight(string(out), "\n"), "\x00", ""), nil
}
