package shell

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// textApplet finds the utilities about lines of text.
func textApplet(name string) applet {
	switch name {
	case "cat":
		return catMain
	case "cut":
		return cutMain
	case "grep", "egrep", "fgrep":
		return grepMain
	case "head":
		return headMain
	case "rev":
		return revMain
	case "sed":
		return sedMain
	case "seq":
		return seqMain
	case "sort":
		return sortMain
	case "tac":
		return tacMain
	case "tail":
		return tailMain
	case "tee":
		return teeMain
	case "tr":
		return trMain
	case "uniq":
		return uniqMain
	case "wc":
		return wcMain
	}
	return nil
}

// pass copies r to standard output. io.Copy would read into the buffer that reading flushes.
func (t *tool) pass(r io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if _, err := t.out.Write(buf[:n]); err != nil {
			return errPipe // reported at the end
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func catMain(t *tool) int {
	f, args, err := t.flags("nbu")
	if err != nil {
		return 1
	}
	n := 0
	return t.inputs(args, func(_ string, r io.Reader) error {
		if !f.has('n') && !f.has('b') {
			return t.pass(r)
		}
		return t.lines(r, func(line []byte, ended bool) bool {
			if f.has('n') || len(line) > 0 {
				n++
				fmt.Fprintf(t.out, "%6d\t", n)
			}
			_, _ = t.out.Write(line)
			t.lineEnd(ended)
			return !t.broken()
		})
	})
}

// countArgs rewrites "-5" as "-n 5", which head and tail understand as well.
func (t *tool) countArgs() {
	for i, a := range t.args {
		if len(a) > 1 && a[0] == '-' && strings.Trim(a[1:], "0123456789") == "" {
			t.args[i] = "-n" + a[1:]
		}
	}
}

func headMain(t *tool) int {
	t.countArgs()
	f, args, err := t.flags("n:c:qv", "lines=n", "bytes=c")
	if err != nil {
		return 1
	}
	n, ok := int64(10), true
	switch {
	case f.has('c'):
		n, ok = byteCount(f.last('c'))
	case f.has('n'):
		n, err = strconv.ParseInt(f.last('n'), 10, 64)
		ok = err == nil && n >= 0
	}
	if !ok {
		return t.complain("invalid number '%s'", f.last('n')+f.last('c'))
	}
	first := true
	return t.inputs(args, func(name string, r io.Reader) error {
		if (len(args) > 1 || f.has('v')) && !f.has('q') {
			if !first {
				t.say("")
			}
			t.say("==> " + name + " <==")
		}
		first = false
		if f.has('c') {
			return t.pass(io.LimitReader(r, n))
		}
		if n == 0 {
			return nil
		}
		left := n
		return t.lines(r, func(line []byte, ended bool) bool {
			_, _ = t.out.Write(line)
			t.lineEnd(ended)
			left--
			return left > 0
		})
	})
}

func tailMain(t *tool) int {
	t.countArgs()
	f, args, err := t.flags("n:c:qvfF", "lines=n", "bytes=c", "follow=f")
	if err != nil {
		return 1
	}
	spec := "10"
	if f.has('c') {
		spec = f.last('c')
	} else if f.has('n') {
		spec = f.last('n')
	}
	n, err := strconv.ParseInt(strings.TrimLeft(spec, "+-"), 10, 64)
	if err != nil {
		return t.complain("invalid number '%s'", spec)
	}
	first := true
	return t.inputs(args, func(name string, r io.Reader) error {
		if (len(args) > 1 || f.has('v')) && !f.has('q') {
			if !first {
				t.say("")
			}
			t.say("==> " + name + " <==")
		}
		first = false
		if err := t.tail(r, n, strings.HasPrefix(spec, "+"), f.has('c')); err != nil {
			return err
		}
		if f.has('f') || f.has('F') {
			return t.follow(r)
		}
		return nil
	})
}

// tail writes the last n lines or bytes of r, or all from the n-th on.
func (t *tool) tail(r io.Reader, n int64, from, byBytes bool) error {
	switch {
	case from && byBytes:
		if _, err := io.CopyN(io.Discard, r, max(n-1, 0)); err != nil {
			return nil // shorter than that
		}
		return t.pass(r)
	case from:
		return t.lines(r, func(line []byte, ended bool) bool {
			if n--; n <= 0 {
				_, _ = t.out.Write(line)
				t.lineEnd(ended)
			}
			return !t.broken()
		})
	case byBytes:
		data, err := t.slurp(r)
		if err != nil {
			return err
		}
		_, _ = t.out.WriteString(data[max(0, int64(len(data))-n):])
		return nil
	}
	var kept [][]byte
	var failure error
	err := t.lines(r, func(line []byte, ended bool) bool {
		if n == 0 {
			return true
		}
		if int64(len(kept)) == n {
			_ = t.charge(-len(kept[0]) - 16)
			kept = kept[1:]
		}
		if ended {
			line = append(line[:len(line):len(line)], '\n')
		}
		kept = append(kept, bytes.Clone(line))
		failure = t.keep(len(line))
		return failure == nil
	})
	if err == nil {
		err = failure
	}
	for _, line := range kept {
		_, _ = t.out.Write(line)
	}
	return err
}

// follow looks once a second whether a file has grown, for ever.
func (t *tool) follow(r io.Reader) error {
	for {
		if err := t.pass(r); err != nil {
			return err
		}
		_ = t.out.Flush()
		d, _ := duration("1")
		t.sleep(d)
	}
}

func tacMain(t *tool) int {
	return t.inputs(t.args, func(_ string, r io.Reader) error {
		data, err := t.slurp(r)
		lines := slices.Collect(strings.Lines(data))
		for _, line := range slices.Backward(lines) {
			_, _ = t.out.WriteString(line)
		}
		return err
	})
}

func revMain(t *tool) int {
	return t.inputs(t.args, func(_ string, r io.Reader) error {
		return t.lines(r, func(line []byte, ended bool) bool {
			runes := []rune(string(line))
			slices.Reverse(runes)
			_, _ = t.out.WriteString(string(runes))
			t.lineEnd(ended)
			return !t.broken()
		})
	})
}

func wcMain(t *tool) int {
	f, args, err := t.flags("lwcmL", "lines=l", "words=w", "bytes=c", "chars=m")
	if err != nil {
		return 1
	}
	if f.has('L') {
		return t.complain("-L is not supported")
	}
	if len(f) == 0 {
		f = flags{'l': "", 'w': "", 'c': ""}
	}
	var total [4]int64
	show := func(n [4]int64, name string) {
		var words []string
		for i, c := range []byte("lwcm") {
			if f.has(c) {
				words = append(words, strconv.FormatInt(n[i], 10))
			}
		}
		if len(words) > 1 {
			for i := range words {
				words[i] = fmt.Sprintf("%9s", words[i])
			}
			if name != "" {
				words = append(words, name)
			}
			t.say(strings.Join(words, " "))
			return
		}
		t.say(strings.TrimSpace(words[0] + " " + name))
	}
	status := t.inputs(args, func(name string, r io.Reader) error {
		var n [4]int64
		inWord := false
		buf := make([]byte, 32<<10)
		for {
			k, err := r.Read(buf)
			for _, c := range buf[:k] {
				if c == '\n' {
					n[0]++
				}
				space := c == ' ' || c >= '\t' && c <= '\r'
				if !space && !inWord {
					n[1]++
				}
				inWord = !space
				n[2]++
				if utf8.RuneStart(c) {
					n[3]++
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
		}
		for i := range n {
			total[i] += n[i]
		}
		if len(args) == 0 {
			name = ""
		}
		show(n, name)
		return nil
	})
	if len(args) > 1 {
		show(total, "total")
	}
	return status
}

func teeMain(t *tool) int {
	f, args, err := t.flags("ai", "append=a")
	if err != nil {
		return 1
	}
	mode := openTruncate
	if f.has('a') {
		mode = openAppend
	}
	status := 0
	var outs []*bufio.Writer
	for _, name := range args {
		w, done, err := t.openOutput(name, mode)
		if err != nil {
			status = t.failed(name, err)
			continue
		}
		defer func() {
			if err := done(); err != nil {
				t.failed(name, err)
			}
		}()
		outs = append(outs, w)
	}
	buf := make([]byte, 32<<10)
	in := t.stdin()
	for {
		n, err := in.Read(buf)
		_, _ = t.out.Write(buf[:n])
		for _, w := range outs {
			if _, err := w.Write(buf[:n]); err != nil {
				status = 1
			}
			_ = w.Flush()
		}
		if err == io.EOF {
			return status
		}
		if err != nil {
			return t.failed("-", err)
		}
	}
}

func seqMain(t *tool) int {
	f, args, err := t.seqFlags()
	if err != nil {
		return 1
	}
	first, step, last := "1", "1", ""
	switch len(args) {
	case 1:
		last = args[0]
	case 2:
		first, last = args[0], args[1]
	case 3:
		first, step, last = args[0], args[1], args[2]
	default:
		return t.complain("usage: seq [-w] [-s SEP] [FIRST [INC]] LAST")
	}
	decimals, width := 0, 0
	num := [3]float64{}
	for i, text := range []string{first, step, last} {
		if num[i], err = strconv.ParseFloat(text, 64); err != nil || math.IsNaN(num[i]) || math.IsInf(num[i], 0) {
			return t.complain("invalid number '%s'", text)
		}
		if _, fraction, ok := strings.Cut(text, "."); ok {
			decimals = max(decimals, len(fraction))
		}
	}
	if num[1] == 0 {
		return t.complain("the increment must not be 0")
	}
	if f.has('w') {
		width = max(len(strconv.FormatFloat(num[0], 'f', decimals, 64)), len(strconv.FormatFloat(num[2], 'f', decimals, 64)))
	}
	sep := "\n"
	if f.has('s') {
		sep = f.last('s')
	}
	for i := 0; ; i++ {
		v := num[0] + float64(i)*num[1]
		if num[1] > 0 && v > num[2]+1e-9 || num[1] < 0 && v < num[2]-1e-9 {
			if i > 0 {
				_ = t.out.WriteByte('\n')
			}
			return 0
		}
		if i > 0 {
			_, _ = t.out.WriteString(sep)
		}
		if _, err := fmt.Fprintf(t.out, "%0*.*f", width, decimals, v); err != nil {
			return 1
		}
		if i%8 == 0 {
			t.step(1)
		}
	}
}

// seqFlags takes numbers below zero for numbers.
func (t *tool) seqFlags() (flags, []string, error) {
	for i, a := range t.args {
		if _, err := strconv.ParseFloat(a, 64); err == nil {
			numbers := t.args[i:]
			t.args = t.args[:i]
			f, rest, err := t.flags("ws:", "equal-width=w", "separator=s")
			return f, append(rest, numbers...), err
		}
	}
	return t.flags("ws:", "equal-width=w", "separator=s")
}

func uniqMain(t *tool) int {
	f, args, err := t.flags("cduif:s:w:", "count=c", "repeated=d", "unique=u", "ignore-case=i")
	if err != nil {
		return 1
	}
	skip := [3]int{0, 0, math.MaxInt}
	for i, c := range []byte("fsw") {
		if f.has(c) {
			if skip[i], err = strconv.Atoi(f.last(c)); err != nil || skip[i] < 0 {
				return t.complain("invalid number '%s'", f.last(c))
			}
		}
	}
	key := func(line []byte) []byte {
		for range skip[0] {
			line = bytes.TrimLeft(line, " \t")
			if i := bytes.IndexAny(line, " \t"); i >= 0 {
				line = line[i:]
			} else {
				line = nil
			}
		}
		line = line[min(skip[1], len(line)):]
		line = line[:min(skip[2], len(line))]
		if f.has('i') {
			return bytes.ToLower(line)
		}
		return line
	}
	if len(args) > 2 {
		return t.complain("extra operand '%s'", args[2])
	}
	out := t.out
	if len(args) == 2 {
		w, done, err := t.openOutput(args[1], openTruncate)
		if err != nil {
			return t.failed(args[1], err)
		}
		defer func() { _ = done() }()
		out, args = w, args[:1]
	}
	var last []byte
	count := 0
	flush := func() {
		if count == 0 || f.has('d') && count < 2 || f.has('u') && count > 1 {
			return
		}
		if f.has('c') {
			fmt.Fprintf(out, "%7d ", count)
		}
		_, _ = out.Write(append(last, '\n'))
	}
	status := t.inputs(args, func(_ string, r io.Reader) error {
		return t.lines(r, func(line []byte, _ bool) bool {
			if count > 0 && bytes.Equal(key(line), key(last)) {
				count++
				return true
			}
			flush()
			last, count = bytes.Clone(line), 1
			return !t.broken()
		})
	})
	flush()
	return status
}

// ranges reads a list such as "1,3-5,7-".
func ranges(text string) ([][2]int, bool) {
	var list [][2]int
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		from, to, isRange := strings.Cut(part, "-")
		r := [2]int{1, math.MaxInt}
		var err error
		if from != "" {
			r[0], err = strconv.Atoi(from)
		}
		if err == nil && to != "" {
			r[1], err = strconv.Atoi(to)
		}
		if !isRange {
			r[1] = r[0]
		}
		if err != nil || r[0] < 1 || r[1] < r[0] || part == "-" {
			return nil, false
		}
		list = append(list, r)
	}
	return list, len(list) > 0
}

func inRanges(list [][2]int, n int) bool {
	return slices.ContainsFunc(list, func(r [2]int) bool { return n >= r[0] && n <= r[1] })
}

func cutMain(t *tool) int {
	f, args, err := t.flags("f:c:b:d:sn", "fields=f", "characters=c", "bytes=b", "delimiter=d", "only-delimited=s")
	if err != nil {
		return 1
	}
	kind := byte(0)
	for _, c := range []byte("fcb") {
		if f.has(c) {
			if kind != 0 {
				return t.complain("only one of -b, -c and -f may be given")
			}
			kind = c
		}
	}
	list, ok := ranges(f.last(kind))
	if kind == 0 || !ok {
		return t.complain("expected a list of bytes, characters, or fields")
	}
	delim := "\t"
	if f.has('d') {
		if delim = f.last('d'); utf8.RuneCountInString(delim) != 1 {
			return t.complain("the delimiter must be a single character")
		}
	}
	return t.inputs(args, func(_ string, r io.Reader) error {
		return t.lines(r, func(line []byte, _ bool) bool {
			text := string(line)
			switch {
			case kind == 'f' && !strings.Contains(text, delim):
				if f.has('s') {
					return true
				}
			case kind == 'f':
				var keep []string
				for i, part := range strings.Split(text, delim) {
					if inRanges(list, i+1) {
						keep = append(keep, part)
					}
				}
				text = strings.Join(keep, delim)
			default:
				var b strings.Builder
				n := 0
				for i := 0; i < len(text); n++ {
					size := 1
					if kind == 'c' {
						_, size = utf8.DecodeRuneInString(text[i:])
					}
					if inRanges(list, n+1) {
						b.WriteString(text[i : i+size])
					}
					i += size
				}
				text = b.String()
			}
			t.say(text)
			return !t.broken()
		})
	})
}

// trSet expands ranges, classes and backslash sequences of tr. Text is taken byte by byte.
func trSet(text string) ([]byte, bool) {
	var set []byte
	next := func(i int) (byte, int) {
		if text[i] != '\\' || i+1 == len(text) {
			return text[i], 1
		}
		for n := min(4, len(text)-i); n > 1; n-- {
			if c := unescape(text[i:i+n], printfFormat); len(c) == 1 {
				return c[0], n
			}
		}
		return text[i+1], 2
	}
	for i := 0; i < len(text); {
		if strings.HasPrefix(text[i:], "[:") {
			if end := strings.Index(text[i:], ":]"); end > 0 {
				in, ok := classes(text[i+2 : i+end])
				if !ok {
					return nil, false
				}
				for c := range 128 {
					if in(rune(c)) {
						set = append(set, byte(c))
					}
				}
				i += end + 2
				continue
			}
		}
		c, n := next(i)
		i += n
		if i+1 < len(text) && text[i] == '-' {
			to, n := next(i + 1)
			if to < c {
				return nil, false
			}
			for k := int(c); k <= int(to); k++ {
				set = append(set, byte(k))
			}
			i += 1 + n
			continue
		}
		set = append(set, c)
	}
	return set, true
}

// classes finds a character class by name.
func classes(name string) (func(rune) bool, bool) {
	switch name {
	case "alpha":
		return unicode.IsLetter, true
	case "digit":
		return unicode.IsDigit, true
	case "alnum":
		return func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }, true
	case "upper":
		return unicode.IsUpper, true
	case "lower":
		return unicode.IsLower, true
	case "space":
		return unicode.IsSpace, true
	case "blank":
		return func(r rune) bool { return r == ' ' || r == '\t' }, true
	case "punct":
		return func(r rune) bool { return r > ' ' && r < 0x7f && !unicode.IsLetter(r) && !unicode.IsDigit(r) }, true
	case "cntrl":
		return unicode.IsControl, true
	case "print":
		return func(r rune) bool { return r >= ' ' && r < 0x7f }, true
	case "graph":
		return func(r rune) bool { return r > ' ' && r < 0x7f }, true
	case "xdigit":
		return func(r rune) bool { return strings.ContainsRune("0123456789abcdefABCDEF", r) }, true
	}
	return nil, false
}

func trMain(t *tool) int {
	f, args, err := t.flags("+dscC", "delete=d", "squeeze-repeats=s", "complement=c")
	if err != nil {
		return 1
	}
	want := 2
	if f.has('d') != f.has('s') {
		want = 1
	}
	if len(args) < want || len(args) > 2 {
		return t.complain("wrong number of operands")
	}
	var sets [2][]byte
	for i, a := range args {
		var ok bool
		if sets[i], ok = trSet(a); !ok {
			return t.complain("invalid set '%s'", a)
		}
	}
	if f.has('c') || f.has('C') {
		var rest []byte
		for c := range 256 {
			if bytes.IndexByte(sets[0], byte(c)) < 0 {
				rest = append(rest, byte(c))
			}
		}
		sets[0] = rest
	}
	var drop, squeeze [256]bool
	var to [256]byte
	for c := range 256 {
		to[c] = byte(c)
	}
	if f.has('d') {
		for _, c := range sets[0] {
			drop[c] = true
		}
	} else if len(args) == 2 {
		if len(sets[1]) == 0 {
			return t.complain("the second set must not be empty")
		}
		for i, c := range sets[0] {
			to[c] = sets[1][min(i, len(sets[1])-1)]
		}
	}
	if f.has('s') {
		for _, c := range sets[len(args)-1] {
			squeeze[c] = true
		}
	}
	last := -1
	buf := make([]byte, 32<<10)
	in := t.stdin()
	for {
		n, err := in.Read(buf)
		for _, c := range buf[:n] {
			if drop[c] {
				continue
			}
			if c = to[c]; squeeze[c] && last == int(c) {
				continue
			}
			last = int(c)
			if t.out.WriteByte(c) != nil {
				return 1
			}
		}
		if err == io.EOF {
			return 0
		}
		if err != nil {
			return t.failed("-", err)
		}
	}
}
