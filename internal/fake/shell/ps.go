package shell

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sorted returns the processes that match, by number.
func (t *table) sorted(match func(*proc) bool) []*proc {
	list := t.all(match)
	slices.SortFunc(list, func(a, b *proc) int { return a.pid - b.pid })
	return list
}

// column is what ps can tell of a process.
type column struct {
	head string
	tell func(t *tool, p *proc, im image, k kinship) string
}

// psColumns returns the columns by the names that -o knows.
func psColumns() map[string]column {
	number := func(n int) string { return strconv.Itoa(n) }
	columns := map[string]column{
		"pid":  {"PID", func(_ *tool, p *proc, _ image, _ kinship) string { return number(p.pid) }},
		"ppid": {"PPID", func(_ *tool, _ *proc, _ image, k kinship) string { return number(k.parent) }},
		"pgid": {"PGID", func(_ *tool, _ *proc, _ image, k kinship) string { return number(k.group) }},
		"sid":  {"SID", func(_ *tool, _ *proc, _ image, k kinship) string { return number(k.session) }},
		"uid":  {"UID", func(_ *tool, p *proc, _ image, _ kinship) string { return number(p.uid) }},
		"user": {"USER", func(_ *tool, p *proc, _ image, _ kinship) string { return p.name }},
		"stat": {"STAT", func(t *tool, p *proc, _ image, _ kinship) string { return string(p.state(t.who())) }},
		"comm": {"COMMAND", func(_ *tool, _ *proc, im image, _ kinship) string { return im.comm }},
		"args": {"COMMAND", func(_ *tool, _ *proc, im image, _ kinship) string { return im.line() }},
		"etime": {"ELAPSED", func(_ *tool, p *proc, _ image, _ kinship) string {
			s := int(time.Since(p.began).Seconds())
			if s < 3600 {
				return fmt.Sprintf("%02d:%02d", s/60, s%60)
			}
			return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
		}},
	}
	for other, name := range map[string]string{
		"pgrp": "pgid", "sess": "sid", "state": "stat", "s": "stat", "cmd": "args", "command": "args",
	} {
		columns[other] = columns[name]
	}
	return columns
}

// line is the command line, or the name in brackets of what has none.
func (im image) line() string {
	if len(im.args) == 0 {
		return "[" + im.comm + "]"
	}
	return strings.Join(im.args, " ")
}

// psMain lists all processes, whichever of the usual flags for that it is given.
func psMain(t *tool) int {
	if len(t.args) > 0 && (t.args[0] == "aux" || t.args[0] == "ax") {
		t.args = t.args[1:]
	}
	f, args, err := t.flags("eAfwo:p:", "format=o", "pid=p")
	if err != nil || len(args) > 0 {
		return max(1, t.complain("usage: ps [-ef] [-o column,...] [-p number,...]"))
	}
	names := []string{"pid", "ppid", "user", "stat", "etime", "args"}
	if f.has('o') {
		names = fields(f['o'])
	}
	heads := true
	var columns []column
	for _, name := range names {
		name, none := strings.CutSuffix(name, "=")
		c, ok := psColumns()[name]
		if !ok {
			return t.complain("unknown column %s", name)
		}
		heads = heads && !none
		columns = append(columns, c)
	}
	var only []int
	for _, text := range fields(f['p']) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return t.complain("invalid number '%s'", text)
		}
		only = append(only, pid)
	}
	var rows [][]string
	if heads {
		var row []string
		for _, c := range columns {
			row = append(row, c.head)
		}
		rows = append(rows, row)
	}
	found := false
	for _, p := range t.m.fs.procs.sorted(func(p *proc) bool { return only == nil || slices.Contains(only, p.pid) }) {
		found = true
		t.step(1)
		im, _ := p.looks()
		k := t.m.fs.procs.kinship(p)
		var row []string
		for _, c := range columns {
			row = append(row, c.tell(t, p, im, k))
		}
		rows = append(rows, row)
	}
	width := make([]int, len(columns))
	for _, row := range rows {
		for i, text := range row {
			width[i] = max(width[i], len(text))
		}
	}
	for _, row := range rows {
		for i := range row[:len(row)-1] {
			row[i] = fmt.Sprintf("%-*s", width[i], row[i])
		}
		t.say(strings.Join(row, " "))
	}
	return b2i(!found)
}

// fields splits a list at commas and at what joins the arguments of an option.
func fields(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \x00", r) })
}

// pgrepMain finds processes by name, or by command line with -f, and lists them or sends them a signal.
func pgrepMain(t *tool) int {
	s := signalTerm
	if t.name == "pkill" && len(t.args) > 0 && len(t.args[0]) > 1 && t.args[0][0] == '-' {
		if n, ok := parseSignal(t.args[0][1:]); ok {
			s = sig(n)
			t.args = t.args[1:]
		}
	}
	f, args, err := t.flags("aflxvnocu:P:g:s:", "list-full=a", "full=f", "exact=x", "count=c", "newest=n", "oldest=o",
		"parent=P", "session=s", "pgroup=g")
	if err != nil {
		return 2
	}
	selected := f.has('u') || f.has('P') || f.has('g') || f.has('s')
	if len(args) > 1 || len(args) == 0 && !selected {
		return 1 + t.complain("one pattern is needed")
	}
	pattern := ""
	if len(args) > 0 {
		if pattern, err = translateRegex(args[0], true); err != nil {
			return 1 + t.complain("%v", err)
		}
	}
	if f.has('x') {
		pattern = "^(?:" + pattern + ")$"
	}
	rx, err := regexp.Compile(pattern)
	if err != nil {
		return 1 + t.complain("invalid regular expression %q", args[0])
	}
	ids := func(c byte) (list []int, bad string) {
		for _, text := range fields(f[c]) {
			n, err := strconv.Atoi(text)
			if u, ok := t.m.fs.user(text); ok && c == 'u' {
				n, err = u.uid, nil
			}
			if err != nil {
				return nil, text
			}
			list = append(list, n)
		}
		return list, ""
	}
	wanted := map[byte][]int{}
	for _, c := range []byte("uPgs") {
		list, bad := ids(c)
		if bad != "" {
			return 1 + t.complain("invalid number '%s'", bad)
		}
		wanted[c] = list
	}
	match := func(p *proc) bool { // the table's lock is held
		im, _ := p.looks()
		text := im.comm
		if f.has('f') {
			text = im.line()
		}
		ok := rx.MatchString(text)
		for c, n := range map[byte]int{'u': p.uid, 'P': p.parent, 'g': p.group, 's': p.session} {
			ok = ok && (!f.has(c) || slices.Contains(wanted[c], n))
		}
		return ok != f.has('v') && p != t.proc && p.ctx.Err() == nil
	}
	list := t.m.fs.procs.sorted(match)
	t.step(int64(len(list)))
	switch {
	case len(list) == 0:
	case f.has('n'):
		list = list[len(list)-1:]
	case f.has('o'):
		list = list[:1]
	}
	if f.has('c') {
		t.say(strconv.Itoa(len(list)))
	}
	status := b2i(len(list) == 0)
	for _, p := range list {
		switch im, _ := p.looks(); {
		case t.name == "pkill":
			if _, allowed := t.kill(s, p.pid); allowed == 0 {
				status = t.complain("%d: %v", p.pid, errPerm)
			}
		case f.has('c'):
		case f.has('a'):
			t.say(strconv.Itoa(p.pid) + " " + im.line())
		case f.has('l'):
			t.say(strconv.Itoa(p.pid) + " " + im.comm)
		default:
			t.say(strconv.Itoa(p.pid))
		}
	}
	return status
}

// setsidMain runs a program in a session of its own. A leader of a group cannot have one, so its child gets it.
func setsidMain(t *tool) int {
	f, args, err := t.flags("+fwc", "fork=f", "wait=w", "ctty=c")
	if err != nil {
		return 1
	}
	if len(args) == 0 {
		return t.complain("no program")
	}
	table := t.m.fs.procs
	if !f.has('f') && table.lead(t.proc) {
		return t.exec(t.name, args, t.env)
	}
	c, err := t.fork(true)
	if err != nil {
		return t.complain("%v", err)
	}
	table.lead(c)
	c.spawn(func() int { return c.exec(t.name, args, t.env) })
	if !f.has('w') {
		return 0
	}
	select {
	case <-c.done:
	case <-t.ctx.Done():
	}
	t.checkAlive()
	return c.status
}
