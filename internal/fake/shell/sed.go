package shell

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// sedAddress selects lines: by number, the last one, by expression, or each step-th from the first.
type sedAddress struct {
	line, step int
	plus       int // as a second address: so many more lines
	last       bool
	rx         *regexp.Regexp
}

type sedCommand struct {
	from, to *sedAddress
	negate   bool
	name     byte
	text     string // of a, i and c; a label
	rx       *regexp.Regexp
	with     []sedPart // of s
	nth      int       // of s: the first replacement that counts
	global   bool
	print    bool
	table    map[rune]rune // of y
	jump     int           // index behind a block or of a label
	inside   bool          // within the range
	end      int           // last line of a range that is counted
}

// sedPart is a piece of a replacement: text, or the group that is not negative.
type sedPart struct {
	text  string
	group int
}

// sedParser reads a script.
type sedParser struct {
	text     string
	pos      int
	extended bool
	commands []*sedCommand
	blocks   []int
	lastRx   *regexp.Regexp
}

func (p *sedParser) fail(format string, args ...any) error {
	return fmt.Errorf("script, character %d: "+format, append([]any{p.pos}, args...)...)
}

func (p *sedParser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *sedParser) skip(set string) {
	for p.pos < len(p.text) && strings.IndexByte(set, p.text[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *sedParser) number() int {
	start := p.pos
	p.skip("0123456789")
	n, _ := strconv.Atoi(p.text[start:p.pos])
	return n
}

// until reads up to an unescaped delimiter. An escaped delimiter loses its backslash.
func (p *sedParser) until(delim byte, inRegex bool) (string, error) {
	var b strings.Builder
	brackets := false
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		p.pos++
		switch {
		case c == '\\' && p.pos < len(p.text):
			if p.text[p.pos] != delim {
				b.WriteByte('\\')
			}
			b.WriteByte(p.text[p.pos])
			p.pos++
			continue
		case inRegex && c == '[' && !brackets:
			brackets = true
			b.WriteByte(c)
			if p.peek() == '^' {
				b.WriteByte('^')
				p.pos++
			}
			if p.peek() == ']' {
				b.WriteByte(']')
				p.pos++
			}
			continue
		case c == ']':
			brackets = false
		case c == delim && !brackets:
			return b.String(), nil
		}
		b.WriteByte(c)
	}
	return "", p.fail("unterminated expression")
}

func (p *sedParser) regex(text string, ignoreCase bool) (*regexp.Regexp, error) {
	if text == "" {
		if p.lastRx == nil {
			return nil, p.fail("no previous regular expression")
		}
		return p.lastRx, nil
	}
	rx, err := compileRegex(text, p.extended, ignoreCase)
	p.lastRx = rx
	return rx, err
}

func (p *sedParser) address() (*sedAddress, error) {
	switch c := p.peek(); {
	case c >= '0' && c <= '9':
		a := &sedAddress{line: p.number()}
		if p.peek() == '~' {
			p.pos++
			a.step = p.number()
		}
		return a, nil
	case c == '+':
		p.pos++
		return &sedAddress{plus: p.number()}, nil
	case c == '$':
		p.pos++
		return &sedAddress{last: true}, nil
	case c == '/' || c == '\\':
		p.pos++
		if c == '\\' {
			c = p.peek()
			p.pos++
		}
		text, err := p.until(c, true)
		if err != nil {
			return nil, err
		}
		fold := p.peek() == 'I'
		if fold {
			p.pos++
		}
		rx, err := p.regex(text, fold)
		return &sedAddress{rx: rx}, err
	}
	return nil, nil
}

func (p *sedParser) parse() error {
	for {
		p.skip(" \t\n;")
		if p.pos == len(p.text) {
			break
		}
		if p.peek() == '#' {
			for p.pos < len(p.text) && p.peek() != '\n' {
				p.pos++
			}
			continue
		}
		if err := p.command(); err != nil {
			return err
		}
	}
	if len(p.blocks) > 0 {
		return p.fail("unmatched {")
	}
	labels := map[string]int{}
	for i, c := range p.commands {
		if c.name == ':' {
			labels[c.text] = i
		}
	}
	for _, c := range p.commands {
		if strings.IndexByte("btT", c.name) < 0 {
			continue
		}
		to, ok := labels[c.text]
		if !ok && c.text != "" {
			return p.fail("no label %s", c.text)
		}
		if c.jump = to; c.text == "" {
			c.jump = len(p.commands)
		}
	}
	return nil
}

func (p *sedParser) command() error {
	c := &sedCommand{}
	var err error
	if c.from, err = p.address(); err != nil {
		return err
	}
	p.skip(" \t")
	if p.peek() == ',' {
		p.pos++
		p.skip(" \t")
		if c.to, err = p.address(); err != nil {
			return err
		}
		if c.from == nil || c.to == nil {
			return p.fail("address expected")
		}
	}
	p.skip(" \t")
	for p.peek() == '!' {
		c.negate = true
		p.pos++
		p.skip(" \t")
	}
	c.name = p.peek()
	p.pos++
	switch c.name {
	case '{':
		p.blocks = append(p.blocks, len(p.commands))
		p.commands = append(p.commands, c)
		return nil
	case '}':
		if len(p.blocks) == 0 {
			return p.fail("unmatched }")
		}
		p.commands[p.blocks[len(p.blocks)-1]].jump = len(p.commands)
		p.blocks = p.blocks[:len(p.blocks)-1]
		return p.ended()
	case 's':
		err = p.substitution(c)
	case 'y':
		err = p.transliteration(c)
	case 'a', 'i', 'c':
		c.text = p.textArg()
	case ':', 'b', 't', 'T':
		p.skip(" \t")
		start := p.pos
		for p.pos < len(p.text) && strings.IndexByte("\n;}", p.peek()) < 0 {
			p.pos++
		}
		c.text = strings.TrimSpace(p.text[start:p.pos])
	case 'q', 'Q':
		p.skip(" \t")
		c.nth = p.number()
	case 'p', 'P', 'd', 'D', '=', 'n', 'N', 'h', 'H', 'g', 'G', 'x':
	default:
		return p.fail("command %q is not supported", string(c.name))
	}
	p.commands = append(p.commands, c)
	if err != nil {
		return err
	}
	return p.ended()
}

// ended checks that nothing follows a command on its line but a separator.
func (p *sedParser) ended() error {
	p.skip(" \t")
	if p.pos < len(p.text) && strings.IndexByte("\n;}#", p.peek()) < 0 {
		return p.fail("unexpected %q", string(p.peek()))
	}
	return nil
}

// textArg reads the text of a, i and c: "a text", or "a\" and lines that each but the last end in a backslash.
func (p *sedParser) textArg() string {
	p.skip(" \t")
	if p.peek() == '\\' {
		p.pos++
		p.skip(" \t")
		if p.peek() == '\n' {
			p.pos++
		}
	}
	var b strings.Builder
	for p.pos < len(p.text) && p.peek() != '\n' {
		if p.peek() == '\\' && p.pos+1 < len(p.text) {
			p.pos++
		}
		b.WriteByte(p.peek())
		p.pos++
	}
	return b.String() + "\n"
}

func (p *sedParser) substitution(c *sedCommand) error {
	delim := p.peek()
	p.pos++
	if delim == 0 || delim == '\n' || delim == '\\' {
		return p.fail("bad delimiter")
	}
	expr, err := p.until(delim, true)
	if err != nil {
		return err
	}
	with, err := p.until(delim, false)
	if err != nil {
		return err
	}
	c.nth = 1
	fold := false
	for done := false; !done; {
		switch f := p.peek(); {
		case f == 'g':
			c.global = true
		case f == 'p':
			c.print = true
		case f == 'i' || f == 'I':
			fold = true
		case f >= '1' && f <= '9':
			c.nth = p.number()
			continue
		case f == 'w' || f == 'e' || f == 'm' || f == 'M':
			return p.fail("flag %q is not supported", string(f))
		default:
			done = true
			continue
		}
		p.pos++
	}
	if c.rx, err = p.regex(expr, fold); err != nil {
		return err
	}
	return p.replacement(c, with)
}

func (p *sedParser) replacement(c *sedCommand, with string) error {
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			c.with = append(c.with, sedPart{b.String(), -1})
			b.Reset()
		}
	}
	for i := 0; i < len(with); i++ {
		switch ch := with[i]; {
		case ch == '&':
			flush()
			c.with = append(c.with, sedPart{group: 0})
		case ch == '\\' && i+1 < len(with):
			i++
			switch ch = with[i]; {
			case ch >= '0' && ch <= '9':
				if int(ch-'0') > c.rx.NumSubexp() {
					return p.fail("no group \\%c", ch)
				}
				flush()
				c.with = append(c.with, sedPart{group: int(ch - '0')})
			case ch == 'n':
				b.WriteByte('\n')
			case ch == 't':
				b.WriteByte('\t')
			case strings.IndexByte("ULEul", ch) >= 0:
				return p.fail("\\%c is not supported", ch)
			default:
				b.WriteByte(ch)
			}
		default:
			b.WriteByte(ch)
		}
	}
	flush()
	return nil
}

func (p *sedParser) transliteration(c *sedCommand) error {
	delim := p.peek()
	p.pos++
	from, err := p.until(delim, false)
	if err != nil {
		return err
	}
	to, err := p.until(delim, false)
	if err != nil {
		return err
	}
	a, b := []rune(unescape(from, printfFormat)), []rune(unescape(to, printfFormat))
	if len(a) != len(b) {
		return p.fail("strings for y differ in length")
	}
	c.table = map[rune]rune{}
	for i, r := range a {
		if _, ok := c.table[r]; !ok {
			c.table[r] = b[i]
		}
	}
	return nil
}

// sedRun is one pass over the input.
type sedRun struct {
	*tool
	commands   []*sedCommand
	quiet      bool
	out        *bufio.Writer
	next       func() (line string, ok bool) // the next line
	last       func() bool                   // whether there is no line after the present one; it has to read on to know
	number     int
	space      string
	hold       string
	appended   string
	done       bool
	status     int
	substitute bool
}

func sedMain(t *tool) int {
	t.inPlaceArg()
	f, args, err := t.flags("nEre:f:i:s", "quiet=n", "silent=n", "regexp-extended=E", "expression=e", "file=f")
	if err != nil {
		return 1
	}
	var scripts []string
	if f.has('e') {
		scripts = strings.Split(f['e'], "\x00")
	}
	if f.has('f') {
		text, err := t.readWhole(f.last('f'))
		if err != nil {
			return t.failed(f.last('f'), err)
		}
		scripts = append(scripts, text)
	}
	if scripts == nil {
		if len(args) == 0 {
			return t.complain("script missing")
		}
		scripts, args = args[:1], args[1:]
	}
	p := sedParser{text: strings.Join(scripts, "\n"), extended: f.has('E') || f.has('r')}
	if err := p.parse(); err != nil {
		return t.complain("%v", err)
	}
	if !f.has('i') && !f.has('s') {
		r := sedRun{tool: t, commands: p.commands, quiet: f.has('n'), out: t.out}
		return max(r.files(withDefault(args, "-")), r.status)
	}
	status := 0
	for _, name := range args {
		r := sedRun{tool: t, commands: p.commands, quiet: f.has('n'), out: t.out}
		if !f.has('i') {
			status = max(status, r.files([]string{name}), r.status)
			continue
		}
		status = max(status, r.inPlace(name, f.last('i')), r.status)
	}
	return status
}

// inPlaceArg gives "-i" without a suffix an argument that stands for none.
func (t *tool) inPlaceArg() {
	for i, a := range t.args {
		if a == "-i" || a == "--in-place" {
			t.args[i] = "-i/"
		}
	}
}

func (r *sedRun) inPlace(name, suffix string) int {
	info, err := r.stat(name, true)
	if err == nil && !info.mode.IsRegular() {
		err = errInvalid
	}
	if err != nil {
		return r.failed(name, err)
	}
	temp := name + ".sed" + strconv.Itoa(r.pid)
	w, done, err := r.openOutput(temp, openTruncate)
	if err != nil {
		return r.failed(name, err)
	}
	r.out = w
	status := r.files([]string{name})
	if err := done(); err != nil {
		_ = r.m.fs.remove(r.who(), r.abs(temp), false)
		return r.failed(name, err)
	}
	_ = r.m.fs.chmod(r.who(), r.abs(temp), info.mode)
	if suffix != "/" {
		if err := r.m.fs.rename(r.who(), r.abs(name), r.abs(name+suffix)); err != nil {
			return r.failed(name, err)
		}
	}
	if err := r.m.fs.rename(r.who(), r.abs(temp), r.abs(name)); err != nil {
		return r.failed(name, err)
	}
	return status
}

// files runs the script over the files as one stream.
func (r *sedRun) files(names []string) int {
	status := 0
	var in *bufio.Reader
	var done func()
	readLine := func() (string, bool) {
		for {
			if in == nil {
				if len(names) == 0 {
					return "", false
				}
				rd, d, err := r.openInput(names[0])
				if err != nil {
					status = r.failed(names[0], err)
					names = names[1:]
					continue
				}
				in, done = bufio.NewReader(rd), d
			}
			line, err := r.readSedLine(in)
			if err == nil {
				return line, true
			}
			if err != io.EOF {
				status = r.failed(names[0], err)
			}
			done()
			in, names = nil, names[1:]
		}
	}
	ahead, looked, have := "", false, false
	look := func() {
		if !looked {
			ahead, have = readLine()
			looked = true
		}
	}
	r.next = func() (string, bool) {
		look()
		looked = !have // the end stays the end
		return ahead, have
	}
	r.last = func() bool { look(); return !have }
	defer func() {
		if in != nil {
			done()
		}
	}()
	for !r.done {
		line, ok := r.next()
		if !ok {
			break
		}
		r.space = line
		r.number++
		r.cycle()
	}
	return status
}

func (r *sedRun) readSedLine(in *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxLine {
			return "", errLineTooLong
		}
		switch {
		case err == bufio.ErrBufferFull:
		case err == io.EOF && len(line) > 0, err == nil:
			return strings.TrimSuffix(string(line), "\n"), nil
		default:
			return "", err
		}
	}
}

func (r *sedRun) say(text string) {
	if _, err := r.out.WriteString(text + "\n"); err != nil {
		r.done = true
	}
}

// endCycle prints what is due after the commands.
func (r *sedRun) endCycle(print bool) {
	if print && !r.quiet {
		r.say(r.space)
	}
	_, _ = r.out.WriteString(r.appended)
	r.appended = ""
}

// selects reports whether a command is for the present line.
func (r *sedRun) selects(c *sedCommand) bool {
	if c.from == nil {
		return !c.negate
	}
	if c.to == nil {
		return r.at(c.from) != c.negate
	}
	in := c.inside
	switch {
	case in:
		switch {
		case c.to.rx != nil:
			c.inside = !c.to.rx.MatchString(r.space)
		case c.to.last:
			c.inside = !r.last()
		default:
			if c.inside = r.number < c.end; r.number > c.end {
				in = false
			}
		}
	case r.at(c.from) || c.from.line == 0 && c.from.rx == nil && !c.from.last && c.from.step == 0 && r.number == 1:
		in, c.inside = true, true
		c.end = c.to.line
		if c.to.plus > 0 {
			c.end = r.number + c.to.plus
		}
		zero := c.from.line == 0 && c.from.rx == nil && !c.from.last && c.from.step == 0
		if zero && c.to.rx != nil {
			c.inside = !c.to.rx.MatchString(r.space) // "0,/x/" may end on the first line
		}
		if c.to.rx == nil && !c.to.last && c.end <= r.number || c.to.last && r.last() {
			c.inside = false
		}
	}
	return in != c.negate
}

func (r *sedRun) at(a *sedAddress) bool {
	switch {
	case a.rx != nil:
		return a.rx.MatchString(r.space)
	case a.last:
		return r.last()
	case a.step > 0:
		return r.number >= a.line && (r.number-a.line)%a.step == 0
	}
	return r.number == a.line
}

// cycle runs the commands on the pattern space.
func (r *sedRun) cycle() {
	r.substitute = false
	for i := 0; i < len(r.commands); i++ {
		r.step(1)
		c := r.commands[i]
		if !r.selects(c) {
			if c.name == '{' {
				i = c.jump - 1
			}
			continue
		}
		if len(r.space)+len(r.hold) > maxValue {
			r.tooLong()
		}
		if r.done {
			return
		}
		switch c.name {
		case 's':
			r.replace(c)
		case 'y':
			r.space = strings.Map(func(ch rune) rune {
				if to, ok := c.table[ch]; ok {
					return to
				}
				return ch
			}, r.space)
		case 'p':
			r.say(r.space)
		case 'P':
			line, _, _ := strings.Cut(r.space, "\n")
			r.say(line)
		case '=':
			r.say(strconv.Itoa(r.number))
		case 'a':
			r.appended += c.text
		case 'i':
			_, _ = r.out.WriteString(c.text)
		case 'c':
			if c.to == nil || !c.inside || c.negate {
				_, _ = r.out.WriteString(c.text)
			}
			r.endCycle(false)
			return
		case 'd':
			r.endCycle(false)
			return
		case 'D':
			_, rest, more := strings.Cut(r.space, "\n")
			r.endCycle(false)
			if !more {
				return
			}
			r.space = rest
			i = -1
		case 'q', 'Q':
			r.endCycle(c.name == 'q')
			r.done, r.status = true, c.nth
			return
		case 'n':
			r.endCycle(true)
			line, ok := r.next()
			if !ok {
				r.done = true
				return
			}
			r.space = line
			r.number++
		case 'N':
			line, ok := r.next()
			if !ok {
				r.endCycle(true)
				r.done = true
				return
			}
			r.space += "\n" + line
			r.number++
		case 'h':
			r.hold = r.space
		case 'H':
			r.hold += "\n" + r.space
		case 'g':
			r.space = r.hold
		case 'G':
			r.space += "\n" + r.hold
		case 'x':
			r.space, r.hold = r.hold, r.space
		case 'b':
			i = c.jump - 1
		case 't', 'T':
			if r.substitute == (c.name == 't') {
				i = c.jump - 1
			}
			r.substitute = false
		}
	}
	r.endCycle(true)
}

func (r *sedRun) tooLong() {
	r.complain("pattern space too long")
	r.done, r.status = true, 1
}

func (r *sedRun) replace(c *sedCommand) {
	locs := c.rx.FindAllStringSubmatchIndex(r.space, maxMatches)
	if len(locs) < c.nth {
		return
	}
	if len(locs) == maxMatches {
		r.tooLong()
		return
	}
	locs = locs[c.nth-1:]
	if !c.global {
		locs = locs[:1]
	}
	var b strings.Builder
	last := 0
	for _, loc := range locs {
		if b.Len() > maxValue {
			r.tooLong()
			return
		}
		b.WriteString(r.space[last:loc[0]])
		for _, part := range c.with {
			switch {
			case part.group < 0:
				b.WriteString(part.text)
			case loc[2*part.group] >= 0:
				b.WriteString(r.space[loc[2*part.group]:loc[2*part.group+1]])
			}
		}
		last = loc[1]
	}
	b.WriteString(r.space[last:])
	r.space = b.String()
	r.substitute = true
	if c.print {
		r.say(r.space)
	}
}
