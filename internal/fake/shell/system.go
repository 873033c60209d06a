package shell

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// systemApplet finds the utilities about processes, users and time.
func systemApplet(name string) applet {
	switch name {
	case "sh", "bash":
		return shMain
	case "[", "test":
		return func(t *tool) int { return t.test(append([]string{t.name}, t.args...)) }
	case "true", "sync":
		return func(*tool) int { return 0 }
	case "false":
		return func(*tool) int { return 1 }
	case "echo":
		return func(t *tool) int { _, _ = t.out.WriteString(echo(t.args)); return 0 }
	case "printf":
		return func(t *tool) int { return t.printf(append([]string{t.name}, t.args...)) }
	case "kill":
		return func(t *tool) int {
			return killCommand(t.proc, append([]string{t.name}, t.args...), func(string) *proc { return nil })
		}
	case "sleep":
		return sleepMain
	case "timeout":
		return timeoutMain
	case "nohup":
		return nohupMain
	case "date":
		return dateMain
	case "env", "printenv":
		return envMain
	case "id", "whoami":
		return idMain
	case "uname":
		return unameMain
	case "hostname":
		return func(t *tool) int {
			if len(t.args) > 0 {
				return t.complain("only asking for the name is supported")
			}
			return t.say(hostname)
		}
	case "nproc":
		return func(t *tool) int { return t.say("1") }
	case "pwd":
		return func(t *tool) int {
			real, err := t.m.fs.realpath(t.who(), t.dir)
			if err != nil {
				return t.failed(t.dir, err)
			}
			return t.say(real)
		}
	case "which":
		return whichMain
	case "ps":
		return psMain
	case "pgrep", "pkill":
		return pgrepMain
	case "setsid":
		return setsidMain
	case "xargs":
		return xargsMain
	case "yes":
		return yesMain
	case "expr":
		return exprMain
	}
	return nil
}

// say writes one line.
func (t *tool) say(text string) int {
	_, _ = t.out.WriteString(text + "\n")
	return 0
}

// shMain runs a script from -c, a file or standard input.
func shMain(t *tool) int {
	s := newShell(t.proc, t.name, t.env)
	s.bash = t.name == "bash"
	args := t.args
	command, fromStdin := false, false
	for len(args) > 0 && len(args[0]) > 1 && (args[0][0] == '-' || args[0][0] == '+') {
		arg := args[0]
		if arg == "--" || arg == "-" {
			args = args[1:]
			break
		}
		if strings.HasPrefix(arg, "--") {
			if arg != "--login" && arg != "--norc" && arg != "--noprofile" && arg != "--posix" {
				return max(2, t.complain("unrecognized option '%s'", arg))
			}
			args = args[1:]
			continue
		}
		var known strings.Builder
		for _, c := range arg[1:] {
			switch c {
			case 'c':
				command = true
			case 's':
				fromStdin = true
			case 'l':
			case 'i':
				return max(2, t.complain("an interactive shell is not supported"))
			default:
				known.WriteRune(c)
			}
		}
		args = args[1:]
		if known.Len() > 0 {
			given := []string{arg[:1] + known.String()}
			if strings.Contains(given[0], "o") && len(args) > 0 {
				given = append(given, args[0])
				args = args[1:]
			}
			if _, _, err := s.setOptions(given); err != nil {
				return max(2, t.complain("%v", err))
			}
		}
	}
	var src string
	switch {
	case command:
		if len(args) == 0 {
			return max(2, t.complain("-c requires an argument"))
		}
		src = args[0]
		if args = args[1:]; len(args) > 0 {
			s.name, args = args[0], args[1:]
		}
	case len(args) > 0 && !fromStdin:
		var err error
		if src, err = s.readScript(args[0]); err != nil {
			t.complain("can't open '%s': %v", args[0], err)
			return 2
		}
		s.name, args = args[0], args[1:]
	default:
		if t.fds[0] != nil {
			var err error
			if src, err = s.readAll(t.fds[0], maxScript+1); err != nil {
				return t.complain("cannot read the script: %v", err)
			}
		}
	}
	if err := s.setParams(args); err != nil {
		return max(2, t.complain("%v", err))
	}
	s.eval(src)
	return s.finish()
}

// duration parses what sleep and timeout are given: a number of seconds, or of another unit.
func duration(text string) (time.Duration, bool) {
	unit := time.Second
	switch {
	case strings.HasSuffix(text, "s"):
		text = text[:len(text)-1]
	case strings.HasSuffix(text, "m"):
		text, unit = text[:len(text)-1], time.Minute
	case strings.HasSuffix(text, "h"):
		text, unit = text[:len(text)-1], time.Hour
	case strings.HasSuffix(text, "d"):
		text, unit = text[:len(text)-1], 24*time.Hour
	}
	if text == "inf" || text == "infinity" {
		return math.MaxInt64, true
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) {
		return 0, false
	}
	if f := n * float64(unit); f < float64(math.MaxInt64) {
		return time.Duration(f), true
	}
	return math.MaxInt64, true
}

func sleepMain(t *tool) int {
	if len(t.args) == 0 {
		return t.complain("missing operand")
	}
	var sum time.Duration
	for _, a := range t.args {
		d, ok := duration(a)
		if !ok {
			return t.complain("invalid number '%s'", a)
		}
		if sum += d; sum < 0 {
			sum = math.MaxInt64
		}
	}
	t.sleep(sum)
	return 0
}

func timeoutMain(t *tool) int {
	f, args, err := t.flags("+s:k:", "signal=s", "kill-after=k")
	if err != nil {
		return 125
	}
	if len(args) < 2 {
		t.complain("usage: timeout [-s SIG] [-k SECS] SECS PROG ARGS")
		return 125
	}
	limit, ok := duration(args[0])
	grace, ok2 := duration("0" + f.last('k'))
	n := int(signalTerm)
	if f.has('s') {
		n, ok2 = parseSignal(f.last('s'))
	}
	if !ok || !ok2 {
		t.complain("invalid number or signal")
		return 125
	}
	c, err := t.fork(false)
	if err != nil {
		t.complain("%v", err)
		return 125
	}
	c.spawn(func() int { return c.exec(t.name, args[1:], t.env) })
	if limit == 0 {
		limit = math.MaxInt64
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	status := 0
	for {
		select {
		case <-t.ctx.Done():
			t.wait(c)
		case <-c.done:
			t.checkAlive()
			if status != 0 {
				return status
			}
			return c.status
		case <-timer.C:
			t.checkAlive()
			if status = 124; n == int(signalKill) {
				status = 137
			}
			c.signal(sig(n))
			if f.has('k') {
				n = int(signalKill)
				timer.Reset(grace)
			}
		}
	}
}

func nohupMain(t *tool) int {
	_, args, err := t.flags("+")
	if err != nil {
		return 125
	}
	if len(args) == 0 {
		t.complain("missing operand")
		return 125
	}
	t.mu.Lock()
	t.traps[int(signalHangup)] = ""
	t.mu.Unlock()
	return t.exec(t.name, args, t.env)
}

func envMain(t *tool) int {
	if t.name == "printenv" {
		return printenvMain(t)
	}
	f, args, err := t.flags("+iu:", "ignore-environment=i", "unset=u")
	if err != nil {
		return 125
	}
	env := slices.Clone(t.env)
	if f.has('i') || len(args) > 0 && args[0] == "-" {
		env = nil
	}
	drop := func(name string) {
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	}
	if f.has('u') {
		for name := range strings.SplitSeq(f['u'], "\x00") {
			drop(name)
		}
	}
	for len(args) > 0 && (args[0] == "-" || strings.Contains(args[0], "=")) {
		if name, _, ok := strings.Cut(args[0], "="); ok {
			drop(name)
			env = append(env, args[0])
		}
		args = args[1:]
	}
	if len(args) > 0 {
		return t.exec(t.name, args, env)
	}
	for _, kv := range env {
		t.say(kv)
	}
	return 0
}

func printenvMain(t *tool) int {
	_, args, err := t.flags("")
	if err != nil {
		return 2
	}
	if len(args) == 0 {
		for _, kv := range t.env {
			t.say(kv)
		}
		return 0
	}
	status := 0
	for _, name := range args {
		i := slices.IndexFunc(t.env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		if i < 0 {
			status = 1
			continue
		}
		t.say(t.env[i][len(name)+1:])
	}
	return status
}

func idMain(t *tool) int {
	if t.name == "whoami" {
		if _, args, err := t.flags(""); err != nil || len(args) > 0 {
			return 1
		}
		return t.say(t.user.name)
	}
	f, args, err := t.flags("ugnrG")
	if err != nil {
		return 1
	}
	u := t.user
	if len(args) > 0 {
		var ok bool
		if u, ok = t.m.fs.user(args[0]); !ok {
			return t.complain("unknown user %s", args[0])
		}
	}
	switch {
	case (f.has('u') || f.has('g') || f.has('G')) && f.has('n'):
		return t.say(u.name)
	case f.has('u') || f.has('g') || f.has('G'):
		return t.say(strconv.Itoa(u.uid))
	}
	return t.say(fmt.Sprintf("uid=%d(%s) gid=%d(%s) groups=%d(%s)", u.uid, u.name, u.uid, u.name, u.uid, u.name))
}

func unameMain(t *tool) int {
	f, _, err := t.flags("asnrvmpo")
	if err != nil {
		return 1
	}
	words := []string{}
	for _, w := range []struct {
		flag byte
		text string
	}{{'s', "Linux"}, {'n', hostname}, {'r', "6.0.0-memory"}, {'v', "#1"}, {'m', "x86_64"}, {'o', "GNU/Linux"}} {
		if f.has(w.flag) || f.has('a') || w.flag == 's' && len(f) == 0 || w.flag == 'm' && f.has('p') {
			words = append(words, w.text)
		}
	}
	return t.say(strings.Join(words, " "))
}

func whichMain(t *tool) int {
	_, args, err := t.flags("a")
	if err != nil {
		return 1
	}
	status := 0
	for _, a := range args {
		full, _, err := t.lookPath(a, envGet(t.env, "PATH"))
		if err != nil {
			status = 1
			continue
		}
		t.say(full)
	}
	return status
}

func yesMain(t *tool) int {
	line := "y\n"
	if len(t.args) > 0 {
		line = strings.Join(t.args, " ") + "\n"
	}
	const block = 4096
	line = strings.Repeat(line, max(1, block/len(line)))
	for {
		if _, err := t.out.WriteString(line); err != nil {
			return 1
		}
	}
}

// xargsMain builds commands from standard input.
func xargsMain(t *tool) int {
	f, args, err := t.flags("+0rtn:I:L:s:P:d:", "null=0", "no-run-if-empty=r", "max-args=n", "max-procs=P", "delimiter=d")
	if err != nil {
		return 1
	}
	if len(args) == 0 {
		args = []string{"echo"}
	}
	atATime := math.MaxInt
	if f.has('n') {
		if atATime, err = strconv.Atoi(f.last('n')); err != nil || atATime < 1 {
			return t.complain("invalid number '%s'", f.last('n'))
		}
	}
	if f.has('L') || f.has('s') || f.has('P') && f.last('P') != "1" {
		return t.complain("-L, -s and -P other than 1 are not supported")
	}
	var words []string
	switch {
	case f.has('0'), f.has('d'):
		delim := byte(0)
		if f.has('d') {
			if d := unescape(f.last('d'), ansiC); len(d) == 1 {
				delim = d[0]
			} else {
				return t.complain("-d takes one character")
			}
		}
		words, err = t.items(delim)
	case f.has('I'):
		words, err = t.items('\n')
		for i, w := range words {
			words[i] = strings.TrimLeft(w, " \t")
		}
	default:
		words, err = t.quotedWords()
	}
	if err != nil {
		return t.complain("%v", err)
	}
	status := 0
	run := func(argv []string) bool {
		if f.has('t') {
			t.errorf("%s", strings.Join(argv, " "))
		}
		_ = t.out.Flush()
		c, err := t.fork(false)
		if err != nil {
			status = t.complain("%v", err)
			return false
		}
		c.set(0, newDesc(device("null")))
		switch code := t.foreground(c, func() int { return c.exec(t.name, argv, t.env) }); {
		case code == 126 || code == 127:
			status = code
			return false
		case code == 255:
			status = t.complain("%s: exited with status 255; aborting", argv[0])
			status = 124
			return false
		case code > 128:
			status = 125
			return false
		case code != 0:
			status = 123
		}
		return true
	}
	if f.has('I') {
		for _, w := range words {
			argv := slices.Clone(args)
			for i := range argv {
				argv[i] = strings.ReplaceAll(argv[i], f.last('I'), w)
			}
			if !run(argv) {
				break
			}
		}
		return status
	}
	const maxArgs = 128 << 10
	if len(words) == 0 && !f.has('r') {
		run(args)
	}
	for len(words) > 0 {
		n, size := 0, 0
		for n < len(words) && n < atATime && (n == 0 || size+len(words[n]) < maxArgs) {
			size += len(words[n]) + 1
			n++
		}
		if !run(append(slices.Clone(args), words[:n]...)) {
			break
		}
		words = words[n:]
	}
	return status
}

// items reads all of standard input, divided at a byte.
func (t *tool) items(delim byte) ([]string, error) {
	data, err := t.slurp(t.stdin())
	if err != nil || data == "" {
		return nil, err
	}
	items := strings.Split(strings.TrimSuffix(data, string(delim)), string(delim))
	if delim == '\n' {
		items = slices.DeleteFunc(items, func(s string) bool { return strings.TrimSpace(s) == "" })
	}
	return items, nil
}

// quotedWords reads words in which quotes and backslashes protect white space.
func (t *tool) quotedWords() ([]string, error) {
	data, err := t.slurp(t.stdin())
	if err != nil {
		return nil, err
	}
	var words []string
	var cur []byte
	open, quote := false, byte(0)
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0 && c == '\n':
			return nil, errors.New("unmatched quote")
		case quote != 0:
			cur = append(cur, c)
		case c == '\'' || c == '"':
			quote, open = c, true
		case c == '\\' && i+1 < len(data):
			i++
			cur, open = append(cur, data[i]), true
		case c == ' ' || c == '\t' || c == '\n':
			if open {
				words = append(words, string(cur))
			}
			cur, open = nil, false
		default:
			cur, open = append(cur, c), true
		}
	}
	if quote != 0 {
		return nil, errors.New("unmatched quote")
	}
	if open {
		words = append(words, string(cur))
	}
	return words, nil
}

// slurp reads all of r into memory that is accounted for.
func (t *tool) slurp(r io.Reader) (string, error) {
	var out []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := t.charge(n); err != nil {
				return "", err
			}
			out = append(out, buf[:n]...)
		}
		if err == io.EOF {
			return string(out), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// dateMain prints the present time, which in a bubble is the bubble's, in UTC.
func dateMain(t *tool) int {
	f, args, err := t.flags("ud:r:R", "date=d", "utc=u")
	if err != nil {
		return 1
	}
	now := time.Now().UTC()
	switch {
	case f.has('d'):
		var ok bool
		if now, ok = parseDate(f.last('d'), now); !ok {
			return t.complain("invalid date '%s'", f.last('d'))
		}
	case f.has('r'):
		i, err := t.m.fs.stat(t.who(), t.abs(f.last('r')), true)
		if err != nil {
			return t.failed(f.last('r'), err)
		}
		now = i.mtime.UTC()
	}
	format := "+%a %b %e %H:%M:%S UTC %Y"
	if f.has('R') {
		format = "+%a, %d %b %Y %H:%M:%S +0000"
	}
	if len(args) > 0 {
		if format = args[0]; format == "" || format[0] != '+' || len(args) > 1 {
			return t.complain("setting the date is not permitted")
		}
	}
	text, bad := strftime(format[1:], now)
	if bad != "" {
		return t.complain("format %%%s is not supported", bad)
	}
	return t.say(text)
}

func parseDate(text string, now time.Time) (time.Time, bool) {
	if s, ok := strings.CutPrefix(text, "@"); ok {
		n, err := strconv.ParseInt(s, 10, 64)
		return time.Unix(n, 0).UTC(), err == nil
	}
	if text == "now" {
		return now, true
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02",
	} {
		if d, err := time.Parse(layout, text); err == nil {
			return d.UTC(), true
		}
	}
	return now, false
}

// strftime formats a time; bad is a directive that it does not know.
func strftime(format string, d time.Time) (text, bad string) {
	layouts := map[byte]string{
		'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'y': "06", 'b': "Jan", 'h': "Jan", 'B': "January",
		'a': "Mon", 'A': "Monday", 'e': "_2", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04", 'I': "03",
		'p': "PM", 'Z': "UTC", 'z': "+0000", 'j': "002", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		c := format[i]
		if c != '%' || i+1 == len(format) {
			b.WriteByte(c)
			continue
		}
		i++
		switch c = format[i]; c {
		case '%':
			b.WriteByte('%')
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 's':
			b.WriteString(strconv.FormatInt(d.Unix(), 10))
		case 'N':
			fmt.Fprintf(&b, "%09d", d.Nanosecond())
		case 'u':
			b.WriteString(strconv.Itoa((int(d.Weekday())+6)%7 + 1))
		case 'w':
			b.WriteString(strconv.Itoa(int(d.Weekday())))
		case 'V':
			_, week := d.ISOWeek()
			fmt.Fprintf(&b, "%02d", week)
		default:
			layout, ok := layouts[c]
			if !ok {
				return "", string(c)
			}
			b.WriteString(d.Format(layout))
		}
	}
	return b.String(), ""
}
