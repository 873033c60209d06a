package shell

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fileApplet finds the utilities about files and folders.
func fileApplet(name string) applet {
	switch name {
	case "basename", "dirname":
		return baseMain
	case "chmod":
		return chmodMain
	case "chown":
		return chownMain
	case "cp":
		return cpMain
	case "find":
		return findMain
	case "ln":
		return lnMain
	case "ls":
		return lsMain
	case "mkdir":
		return mkdirMain
	case "mktemp":
		return mktempMain
	case "mv":
		return mvMain
	case "readlink", "realpath":
		return realpathMain
	case "rm":
		return rmMain
	case "rmdir":
		return rmdirMain
	case "stat":
		return statMain
	case "touch":
		return touchMain
	case "truncate":
		return truncateMain
	}
	return nil
}

// cleanPath makes a path short without looking at the file system, so it is for names that a user sees.
func cleanPath(name string) string { return path.Clean(name) }

// inDir returns the name of an entry of a folder.
func inDir(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }

func (t *tool) stat(name string, follow bool) (info, error) {
	return t.m.fs.stat(t.who(), t.abs(name), follow)
}

func (t *tool) isDir(name string) bool {
	i, err := t.stat(name, true)
	return err == nil && i.mode.IsDir()
}

// list returns the entries of a folder, and counts as work.
func (t *tool) list(name string) ([]info, error) {
	t.step(1)
	return t.m.fs.readDir(t.who(), t.abs(name))
}

// walk calls do for name and all below it, a folder before what it holds, or after it if before is false. Of what cannot
// be read it reports the error, calls do with depth -1 and goes on.
func (t *tool) walk(name string, depth int, before bool, do func(name string, i info, depth int) (descend bool)) {
	i, err := t.stat(name, false)
	if err != nil {
		t.failed(name, err)
		do(name, info{}, -1)
		return
	}
	t.walkInfo(name, i, depth, before, do)
}

func (t *tool) walkInfo(name string, i info, depth int, before bool, do func(string, info, int) bool) {
	if before && !do(name, i, depth) {
		return
	}
	if i.mode.IsDir() {
		list, err := t.list(name)
		if err != nil {
			t.failed(name, err)
			do(name, info{}, -1)
		}
		for _, e := range list {
			t.walkInfo(inDir(name, e.name), e, depth+1, before, do)
		}
	}
	if !before {
		do(name, i, depth)
	}
}

func baseMain(t *tool) int {
	if len(t.args) == 0 || t.name == "basename" && len(t.args) > 2 {
		return t.complain("wrong number of operands")
	}
	if t.name == "dirname" {
		for _, a := range t.args {
			trimmed := strings.TrimRight(a, "/")
			if trimmed == "" && a != "" {
				t.say("/")
				continue
			}
			dir := "."
			if i := strings.LastIndexByte(trimmed, '/'); i >= 0 {
				if dir = strings.TrimRight(trimmed[:i], "/"); dir == "" {
					dir = "/"
				}
			}
			t.say(dir)
		}
		return 0
	}
	name := strings.TrimRight(t.args[0], "/")
	if name == "" && t.args[0] != "" {
		name = "/"
	} else {
		name = name[strings.LastIndexByte(name, '/')+1:]
	}
	if len(t.args) > 1 && name != t.args[1] {
		name = strings.TrimSuffix(name, t.args[1])
	}
	return t.say(name)
}

// parseMode reads "755", "u+x,go-w" or "a=r" relative to the present mode.
func parseMode(text string, now fs.FileMode, umask uint32) (fs.FileMode, error) {
	if n, err := strconv.ParseUint(text, 8, 12); err == nil {
		m := fs.FileMode(n & 0o777)
		for i, bit := range []fs.FileMode{fs.ModeSticky, fs.ModeSetgid, fs.ModeSetuid} {
			if n>>(9+i)&1 != 0 {
				m |= bit
			}
		}
		return m, nil
	}
	for clause := range strings.SplitSeq(text, ",") {
		who := fs.FileMode(0)
		i := 0
		for ; i < len(clause) && strings.IndexByte("ugoa", clause[i]) >= 0; i++ {
			who |= map[byte]fs.FileMode{'u': 0o700, 'g': 0o070, 'o': 0o007, 'a': 0o777}[clause[i]]
		}
		if who == 0 {
			who = fs.FileMode(0o777 &^ umask)
		}
		if i == len(clause) {
			return 0, errInvalid
		}
		for i < len(clause) {
			op := clause[i]
			if op != '+' && op != '-' && op != '=' {
				return 0, errInvalid
			}
			bits := fs.FileMode(0)
			for i++; i < len(clause) && strings.IndexByte("+-=", clause[i]) < 0; i++ {
				switch clause[i] {
				case 'r':
					bits |= 0o444
				case 'w':
					bits |= 0o222
				case 'x':
					bits |= 0o111
				case 'X':
					if now.IsDir() || now&0o111 != 0 {
						bits |= 0o111
					}
				case 't':
					bits |= fs.ModeSticky
				default:
					return 0, errInvalid
				}
			}
			set := bits & (who | fs.ModeSticky)
			switch op {
			case '+':
				now |= set
			case '-':
				now &^= set
			default:
				now = now&^who | set
			}
		}
	}
	return now, nil
}

func chmodMain(t *tool) int {
	args := t.args
	recursive := false
	if len(args) > 0 && args[0] == "-R" {
		recursive, args = true, args[1:]
	}
	if len(args) < 2 {
		return t.complain("missing operand")
	}
	status := 0
	set := func(name string, i info, depth int) bool {
		if depth < 0 {
			status = 1
			return false
		}
		mode, err := parseMode(args[0], i.mode, t.umask)
		if err == nil {
			err = t.m.fs.chmod(t.who(), t.abs(name), mode)
		}
		if err != nil {
			status = t.failed(name, err)
		}
		return true
	}
	if _, err := parseMode(args[0], 0, 0); err != nil {
		return t.complain("invalid mode '%s'", args[0])
	}
	for _, name := range args[1:] {
		if recursive {
			t.walk(name, 0, true, set)
			continue
		}
		i, err := t.stat(name, true)
		if err != nil {
			status = t.failed(name, err)
			continue
		}
		set(name, i, 0)
	}
	return status
}

func chownMain(t *tool) int {
	f, args, err := t.flags("R", "recursive=R")
	if err != nil {
		return 1
	}
	if len(args) < 2 {
		return t.complain("missing operand")
	}
	who, _, _ := strings.Cut(args[0], ":")
	u, ok := t.m.fs.user(who)
	if !ok {
		return t.complain("unknown user %s", who)
	}
	status := 0
	set := func(name string, _ info, depth int) bool {
		if depth < 0 {
			status = 1
		} else if err := t.m.fs.chown(t.who(), t.abs(name), u.uid); err != nil {
			status = t.failed(name, err)
		}
		return true
	}
	for _, name := range args[1:] {
		if f.has('R') {
			t.walk(name, 0, true, set)
		} else {
			set(name, info{}, 0)
		}
	}
	return status
}

// copyFile copies the contents and the mode of a regular file or device.
func (t *tool) copyFile(from, to string, i info, keepTime bool) error {
	r, done, err := t.openInput(t.abs(from))
	if err != nil {
		return err
	}
	defer done()
	_, existErr := t.stat(to, true)
	w, finish, err := t.openOutput(to, openTruncate)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if err2 := finish(); err == nil {
		err = err2
	}
	if err == nil && (existErr != nil || keepTime) {
		mode := i.mode & fs.ModePerm
		if !keepTime {
			mode &^= fs.FileMode(t.umask)
		}
		err = t.m.fs.chmod(t.who(), t.abs(to), mode)
	}
	if err == nil && keepTime {
		err = t.m.fs.chtimes(t.who(), t.abs(to), i.mtime)
	}
	return err
}

// copyTree copies whatever from is.
func (t *tool) copyTree(from, to string, follow, keepTime bool) error {
	i, err := t.stat(from, follow)
	if err != nil {
		return err
	}
	switch {
	case i.mode&fs.ModeSymlink != 0:
		return t.m.fs.symlink(t.who(), i.target, t.abs(to))
	case !i.mode.IsDir():
		if j, err := t.stat(to, true); err == nil && i.inode == j.inode {
			return errno("'" + from + "' and '" + to + "' are the same file")
		}
		return t.copyFile(from, to, i, keepTime)
	}
	src, _ := t.m.fs.realpath(t.who(), t.abs(from))
	if dst, err := t.m.fs.realpath(t.who(), t.abs(path.Dir(to))); err == nil && strings.HasPrefix(dst+"/", src+"/") {
		return errno("cannot copy a folder into itself")
	}
	if err := t.m.fs.mkdir(t.who(), t.abs(to), i.mode&fs.ModePerm); err != nil && !t.isDir(to) {
		return err
	}
	list, err := t.list(from)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := t.copyTree(inDir(from, e.name), inDir(to, e.name), false, keepTime); err != nil {
			return err
		}
	}
	if keepTime {
		return t.m.fs.chtimes(t.who(), t.abs(to), i.mtime)
	}
	return nil
}

// targets pairs each source with its destination, for cp, mv and ln.
func (t *tool) targets(args []string, do func(from, to string) error) int {
	if len(args) < 2 {
		return t.complain("missing operand")
	}
	last := args[len(args)-1]
	sources := args[:len(args)-1]
	into := t.isDir(last)
	if len(sources) > 1 && !into {
		return t.failed(last, errNotDir)
	}
	status := 0
	for _, from := range sources {
		to := last
		if into {
			to = inDir(last, path.Base(from))
		}
		if err := do(from, to); err != nil {
			status = t.failed(from, err)
		}
	}
	return status
}

func cpMain(t *tool) int {
	f, args, err := t.flags("rRafpnvTdLP", "recursive=r", "force=f", "archive=a", "no-clobber=n")
	if err != nil {
		return 1
	}
	recursive := f.has('r') || f.has('R') || f.has('a')
	follow := !(f.has('a') || f.has('d') || f.has('P') || recursive && !f.has('L'))
	return t.targets(args, func(from, to string) error {
		i, err := t.stat(from, true)
		if err == nil && i.mode.IsDir() && !recursive {
			return errno("omitting directory")
		}
		if f.has('n') {
			if _, err := t.stat(to, false); err == nil {
				return nil
			}
		}
		if f.has('f') && err == nil && !i.mode.IsDir() && t.m.fs.access(t.who(), t.abs(to), 2) == errAccess {
			_ = t.m.fs.remove(t.who(), t.abs(to), false)
		}
		err = t.copyTree(from, to, follow, f.has('p') || f.has('a'))
		if err == nil && f.has('v') {
			t.say("'" + from + "' -> '" + to + "'")
		}
		return err
	})
}

func mvMain(t *tool) int {
	f, args, err := t.flags("fnvT", "force=f", "no-clobber=n")
	if err != nil {
		return 1
	}
	return t.targets(args, func(from, to string) error {
		if f.has('n') {
			if _, err := t.stat(to, false); err == nil {
				return nil
			}
		}
		err := t.m.fs.rename(t.who(), t.abs(from), t.abs(to))
		if err == nil && f.has('v') {
			t.say("'" + from + "' -> '" + to + "'")
		}
		return err
	})
}

func lnMain(t *tool) int {
	f, args, err := t.flags("sfnv", "symbolic=s", "force=f")
	if err != nil {
		return 1
	}
	if len(args) == 1 {
		args = append(args, ".")
	}
	if last := len(args) - 1; f.has('n') && last == 1 {
		if i, err := t.stat(args[last], false); err == nil && i.target != "" && f.has('f') {
			_ = t.m.fs.remove(t.who(), t.abs(args[last]), false)
		}
	}
	return t.targets(args, func(from, to string) error {
		if i, err := t.stat(to, false); err == nil && f.has('f') && !i.mode.IsDir() {
			_ = t.m.fs.remove(t.who(), t.abs(to), false)
		}
		if f.has('s') {
			return t.m.fs.symlink(t.who(), from, t.abs(to))
		}
		return t.m.fs.hardlink(t.who(), t.abs(from), t.abs(to))
	})
}

func mkdirMain(t *tool) int {
	f, args, err := t.flags("pm:v", "parents=p", "mode=m")
	if err != nil {
		return 1
	}
	if len(args) == 0 {
		return t.complain("missing operand")
	}
	perm := fs.FileMode(0o777 &^ t.umask)
	mode := perm
	if f.has('m') {
		if mode, err = parseMode(f.last('m'), 0o777, 0); err != nil {
			return t.complain("invalid mode '%s'", f.last('m'))
		}
	}
	status := 0
	for _, name := range args {
		_, existed := t.stat(name, true)
		if f.has('p') {
			err = t.m.fs.mkdirAll(t.who(), t.abs(name), perm)
		} else {
			err = t.m.fs.mkdir(t.who(), t.abs(name), perm)
		}
		if err == nil && f.has('m') && existed != nil {
			err = t.m.fs.chmod(t.who(), t.abs(name), mode)
		}
		if err != nil {
			status = t.complain("can't create directory '%s': %v", name, err)
		}
	}
	return status
}

func rmdirMain(t *tool) int {
	f, args, err := t.flags("p", "parents=p")
	if err != nil {
		return 1
	}
	status := 0
	for _, name := range args {
		for {
			if err := t.m.fs.remove(t.who(), t.abs(name), true); err != nil {
				status = t.complain("'%s': %v", name, err)
				break
			}
			if name = path.Dir(strings.TrimRight(name, "/")); !f.has('p') || name == "." || name == "/" {
				break
			}
		}
	}
	return status
}

func rmMain(t *tool) int {
	f, args, err := t.flags("rRfiv", "recursive=r", "force=f")
	if err != nil {
		return 1
	}
	if f.has('i') {
		return t.complain("-i is not supported")
	}
	if len(args) == 0 && !f.has('f') {
		return t.complain("missing operand")
	}
	status := 0
	for _, name := range args {
		base := path.Base(name)
		if base == "." || base == ".." || base == "/" {
			status = t.complain("refusing to remove '%s'", name)
			continue
		}
		i, err := t.stat(name, false)
		switch {
		case err != nil:
			if !f.has('f') || err != errNotExist && err != errNotDir {
				status = t.complain("can't remove '%s': %v", name, err)
			}
		case i.mode.IsDir() && !f.has('r') && !f.has('R'):
			status = t.complain("'%s': %v", name, errIsDir)
		default:
			t.walkInfo(name, i, 0, false, func(name string, i info, depth int) bool {
				if depth < 0 {
					status = 1
					return false
				}
				if err := t.m.fs.remove(t.who(), t.abs(name), i.mode.IsDir()); err != nil {
					status = t.complain("can't remove '%s': %v", name, err)
				} else if f.has('v') {
					t.say("removed '" + name + "'")
				}
				return true
			})
		}
	}
	return status
}

func touchMain(t *tool) int {
	f, args, err := t.flags("cd:r:am", "no-create=c", "date=d", "reference=r")
	if err != nil {
		return 1
	}
	when := time.Now()
	switch {
	case f.has('d'):
		var ok bool
		if when, ok = parseDate(f.last('d'), when); !ok {
			return t.complain("invalid date '%s'", f.last('d'))
		}
	case f.has('r'):
		i, err := t.stat(f.last('r'), true)
		if err != nil {
			return t.failed(f.last('r'), err)
		}
		when = i.mtime
	}
	if len(args) == 0 {
		return t.complain("missing operand")
	}
	status := 0
	for _, name := range args {
		if _, err := t.stat(name, true); err != nil {
			if f.has('c') {
				continue
			}
			d, err := t.openFile(name, openWrite|openCreate)
			if err != nil {
				status = t.failed(name, err)
				continue
			}
			d.release()
		}
		if err := t.m.fs.chtimes(t.who(), t.abs(name), when); err != nil {
			status = t.failed(name, err)
		}
	}
	return status
}

func truncateMain(t *tool) int {
	f, args, err := t.flags("s:c", "size=s", "no-create=c")
	if err != nil {
		return 1
	}
	size, ok := byteCount(f.last('s'))
	if !ok || len(args) == 0 {
		return t.complain("usage: truncate -s SIZE FILE...")
	}
	status := 0
	for _, name := range args {
		d, err := t.openFile(name, openRead|openWrite|openCreate)
		if err == nil {
			if r, ok := d.f.(regular); ok {
				err = r.h.resize(size)
			} else {
				err = errInvalid
			}
			d.release()
		}
		if err != nil {
			status = t.failed(name, err)
		}
	}
	return status
}

// byteCount reads a size with a suffix: b (512), k, M or G.
func byteCount(text string) (int64, bool) {
	unit := int64(1)
	if text != "" {
		if i := strings.IndexByte("bkKMG", text[len(text)-1]); i >= 0 {
			unit = []int64{512, 1 << 10, 1 << 10, 1 << 20, 1 << 30}[i]
			text = text[:len(text)-1]
		}
	}
	const most = 1 << 50
	n, err := strconv.ParseInt(text, 10, 64)
	return n * unit, err == nil && n >= 0 && n <= most/unit
}

// resize cuts a file or fills it up with zeros.
func (h *handle) resize(size int64) error {
	f, n := h.f, h.n
	f.mu.Lock()
	defer f.mu.Unlock()
	grow := size - int64(len(n.data))
	if grow > f.quota-f.used {
		return errNoSpace
	}
	if grow > 0 {
		n.data = append(n.data, make([]byte, grow)...)
	} else {
		n.data = slices.Clone(n.data[:size])
	}
	f.used += grow
	n.mtime = time.Now()
	return nil
}

func mktempMain(t *tool) int {
	f, args, err := t.flags("dp:tqu", "directory=d")
	if err != nil {
		return 1
	}
	dir, template := "/tmp", "tmp.XXXXXX"
	if tmp := envGet(t.env, "TMPDIR"); tmp != "" {
		dir = tmp
	}
	if f.has('p') {
		dir = f.last('p')
	}
	if len(args) > 0 {
		template = args[0]
		if !f.has('t') && !f.has('p') {
			dir = ""
		}
	}
	stem := strings.TrimRight(template, "X")
	if len(template)-len(stem) < 6 {
		return t.complain("too few X's in template '%s'", template)
	}
	for {
		t.step(1)
		var b strings.Builder
		for range len(template) - len(stem) {
			b.WriteByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[rand.IntN(52)])
		}
		name := stem + b.String()
		if dir != "" {
			name = inDir(dir, name)
		}
		if f.has('u') {
			return t.say(name)
		}
		if f.has('d') {
			err = t.m.fs.mkdir(t.who(), t.abs(name), 0o700)
		} else {
			var h *handle
			if h, err = t.m.fs.open(t.who(), t.abs(name), openWrite|openCreate|openExclusive, 0o600); err == nil {
				h.close()
			}
		}
		switch err {
		case errExist:
		case nil:
			return t.say(name)
		default:
			return t.failed(name, err)
		}
	}
}

func realpathMain(t *tool) int {
	f, args, err := t.flags("fnmeq")
	if err != nil {
		return 1
	}
	if len(args) == 0 {
		return t.complain("missing operand")
	}
	status := 0
	for _, name := range args {
		text := ""
		if t.name == "readlink" && !f.has('f') {
			i, err := t.stat(name, false)
			if err != nil || i.target == "" {
				status = 1
				continue
			}
			text = i.target
		} else if text, err = t.m.fs.realpath(t.who(), t.abs(name)); err != nil {
			// The last element need not exist.
			dir, err2 := t.m.fs.realpath(t.who(), t.abs(path.Dir(name)))
			if err != errNotExist || err2 != nil || f.has('e') {
				status = 1
				if t.name == "realpath" {
					t.failed(name, err)
				}
				continue
			}
			text = inDir(dir, path.Base(name))
		}
		_, _ = t.out.WriteString(text)
		t.lineEnd(!f.has('n'))
	}
	return status
}

// modeText writes a mode as ls does.
func modeText(m fs.FileMode) string {
	kind := byte('-')
	switch {
	case m.IsDir():
		kind = 'd'
	case m&fs.ModeSymlink != 0:
		kind = 'l'
	case m&fs.ModeCharDevice != 0:
		kind = 'c'
	}
	text := []byte(string(kind) + m.Perm().String()[1:])
	if m&fs.ModeSticky != 0 {
		if text[9] == 'x' {
			text[9] = 't'
		} else {
			text[9] = 'T'
		}
	}
	return string(text)
}

// octal is the mode as chmod takes it.
func octal(m fs.FileMode) uint32 {
	n := uint32(m.Perm())
	if m&fs.ModeSticky != 0 {
		n |= 0o1000
	}
	if m&fs.ModeSetgid != 0 {
		n |= 0o2000
	}
	if m&fs.ModeSetuid != 0 {
		n |= 0o4000
	}
	return n
}

func (t *tool) userName(uid int) string {
	u, _ := t.m.fs.user(strconv.Itoa(uid))
	return u.name
}

func statMain(t *tool) int {
	f, args, err := t.flags("c:L", "format=c", "dereference=L")
	if err != nil {
		return 1
	}
	format := "  File: %n\n  Size: %s\tLinks: %h\tInode: %i\nAccess: (%a/%A)\tUid: (%u/%U)\nModify: %y"
	if f.has('c') {
		format = f.last('c')
	}
	status := 0
	for _, name := range args {
		i, err := t.stat(name, f.has('L'))
		if err != nil {
			status = t.failed(name, err)
			continue
		}
		text, ok := t.statText(format, name, i)
		if !ok {
			return t.complain("format '%s' is not supported", format)
		}
		t.say(text)
	}
	return status
}

func (t *tool) statText(format, name string, i info) (string, bool) {
	kind := "regular file"
	switch {
	case i.mode.IsDir():
		kind = "directory"
	case i.target != "":
		kind = "symbolic link"
	case i.device != "":
		kind = "character special file"
	case i.size == 0:
		kind = "regular empty file"
	}
	var b strings.Builder
	for k := 0; k < len(format); k++ {
		if format[k] != '%' || k+1 == len(format) {
			b.WriteByte(format[k])
			continue
		}
		k++
		switch format[k] {
		case '%':
			b.WriteByte('%')
		case 'n':
			b.WriteString(name)
		case 's':
			fmt.Fprint(&b, i.size)
		case 'a':
			fmt.Fprintf(&b, "%o", octal(i.mode))
		case 'A':
			b.WriteString(modeText(i.mode))
		case 'F':
			b.WriteString(kind)
		case 'h':
			fmt.Fprint(&b, i.links)
		case 'i':
			fmt.Fprint(&b, i.inode)
		case 'u', 'g':
			fmt.Fprint(&b, i.uid)
		case 'U', 'G':
			b.WriteString(t.userName(i.uid))
		case 'Y', 'Z', 'X':
			fmt.Fprint(&b, i.mtime.Unix())
		case 'y', 'z', 'x':
			b.WriteString(i.mtime.UTC().Format("2006-01-02 15:04:05.000000000 +0000"))
		default:
			return "", false
		}
	}
	return b.String(), true
}

// lister is one call of ls.
type lister struct {
	*tool
	f      flags
	status int
	blocks int // how many folders have been shown
}

func lsMain(t *tool) int {
	f, args, err := t.flags("laA1dRFrtShinp", "all=a", "almost-all=A", "human-readable=h", "recursive=R", "directory=d")
	if err != nil {
		return 1
	}
	if f.has('h') && f.has('l') || f.has('i') || f.has('n') {
		return t.complain("-h with -l, -i and -n are not supported")
	}
	l := lister{tool: t, f: f}
	if len(args) == 0 {
		args = []string{"."}
	}
	var files, dirs []info
	for _, name := range args {
		i, err := t.stat(name, !f.has('l') && !f.has('d') && !f.has('F'))
		if err != nil {
			if i, err = t.stat(name, false); err != nil {
				l.status = t.failed(name, err)
				continue
			}
		}
		if i.name = name; i.mode.IsDir() && !f.has('d') {
			dirs = append(dirs, i)
		} else {
			files = append(files, i)
		}
	}
	l.show(files, "")
	for _, d := range dirs {
		l.dir(d.name, len(args) > 1 || f.has('R'), len(files) > 0)
	}
	return l.status
}

func (l *lister) dir(name string, titled, after bool) {
	list, err := l.list(name)
	if err != nil {
		l.status = l.failed(name, err)
		return
	}
	if titled {
		if l.blocks > 0 || after {
			l.say("")
		}
		l.say(name + ":")
	}
	l.blocks++
	if l.f.has('a') {
		for _, dots := range []string{"..", "."} {
			if i, err := l.stat(inDir(name, dots), true); err == nil {
				i.name = dots
				list = append([]info{i}, list...)
			}
		}
	}
	list = slices.DeleteFunc(list, func(i info) bool {
		return i.name[0] == '.' && !l.f.has('a') && !l.f.has('A')
	})
	if l.f.has('l') {
		l.say("total " + strconv.Itoa(len(list)*4))
	}
	l.show(list, name)
	if !l.f.has('R') {
		return
	}
	for _, i := range list {
		if i.mode.IsDir() && i.name != "." && i.name != ".." {
			l.dir(inDir(name, i.name), true, after)
		}
	}
}

func (l *lister) show(list []info, dir string) {
	slices.SortStableFunc(list, func(a, b info) int {
		c := 0
		switch {
		case l.f.has('t'):
			c = b.mtime.Compare(a.mtime)
		case l.f.has('S'):
			c = int(max(-1, min(1, b.size-a.size)))
		}
		if c == 0 {
			c = strings.Compare(a.name, b.name)
		}
		if l.f.has('r') {
			c = -c
		}
		return c
	})
	for _, i := range list {
		text := i.name
		switch {
		case !l.f.has('F') && !l.f.has('p'):
		case i.mode.IsDir():
			text += "/"
		case l.f.has('F') && i.target != "" && !l.f.has('l'):
			text += "@"
		case l.f.has('F') && i.mode.IsRegular() && i.mode&0o111 != 0:
			text += "*"
		}
		if l.f.has('l') {
			owner := l.userName(i.uid)
			if i.target != "" {
				text += " -> " + i.target
			}
			text = fmt.Sprintf("%s %4d %-8s %-8s %9d %s %s",
				modeText(i.mode), i.links, owner, owner, i.size, i.mtime.UTC().Format("Jan _2 15:04"), text)
		}
		l.say(text)
	}
}

// finder is a condition or action of find.
type finder func(name string, i info, depth int) bool

func findMain(t *tool) int {
	args := t.args
	var roots []string
	for len(args) > 0 && args[0] != "!" && args[0] != "(" && !strings.HasPrefix(args[0], "-") {
		roots, args = append(roots, args[0]), args[1:]
	}
	if len(roots) == 0 {
		roots = []string{"."}
	}
	p := findParser{t: t, args: args, maxDepth: 1 << 20}
	expr := p.or()
	if p.err == nil && len(p.args) > 0 {
		p.err = errno("unexpected " + p.args[0])
	}
	if p.err != nil {
		return t.complain("%v", p.err)
	}
	for _, root := range roots {
		t.walk(root, 0, !p.delete && !p.depth, func(name string, i info, depth int) bool {
			if depth < 0 {
				p.status = 1
				return false
			}
			p.pruned = false
			if depth >= p.minDepth && depth <= p.maxDepth && expr(name, i, depth) && !p.acts {
				t.say(name)
			}
			return depth < p.maxDepth && !p.pruned
		})
	}
	for _, f := range p.atEnd {
		f()
	}
	return p.status
}

type findParser struct {
	t                  *tool
	args               []string
	err                error
	status             int
	minDepth, maxDepth int
	acts               bool // an action takes the place of -print
	delete, depth      bool
	pruned             bool
	atEnd              []func()
	nesting            int
}

func (p *findParser) or() finder {
	left := p.and()
	for p.err == nil && len(p.args) > 0 && (p.args[0] == "-o" || p.args[0] == "-or") {
		p.args = p.args[1:]
		a, b := left, p.and()
		left = func(n string, i info, d int) bool { return a(n, i, d) || b(n, i, d) }
	}
	return left
}

func (p *findParser) and() finder {
	var all []finder
	for p.err == nil && len(p.args) > 0 && p.args[0] != "-o" && p.args[0] != "-or" && p.args[0] != ")" {
		if p.args[0] == "-a" || p.args[0] == "-and" {
			p.args = p.args[1:]
		}
		all = append(all, p.primary())
	}
	return func(n string, i info, d int) bool {
		for _, f := range all {
			if !f(n, i, d) {
				return false
			}
		}
		return true
	}
}

func (p *findParser) primary() finder {
	always := func(string, info, int) bool { return true }
	if len(p.args) == 0 || p.nesting > maxDepth {
		p.err = errno("expression expected")
		return always
	}
	op := p.args[0]
	p.args = p.args[1:]
	switch op {
	case "!", "-not":
		p.nesting++
		f := p.primary()
		return func(n string, i info, d int) bool { return !f(n, i, d) }
	case "(":
		p.nesting++
		f := p.or()
		if len(p.args) == 0 && p.err == nil {
			p.err = errno("missing )")
		} else if p.err == nil {
			p.args = p.args[1:]
		}
		return f
	case "-print":
		p.acts = true
		return func(n string, _ info, _ int) bool { p.t.say(n); return true }
	case "-print0":
		p.acts = true
		return func(n string, _ info, _ int) bool { _, _ = p.t.out.WriteString(n + "\x00"); return true }
	case "-prune":
		return func(string, info, int) bool { p.pruned = true; return true }
	case "-depth":
		p.depth = true
		return always
	case "-empty":
		return func(n string, i info, _ int) bool {
			if i.mode.IsDir() {
				list, err := p.t.list(n)
				return err == nil && len(list) == 0
			}
			return i.size == 0
		}
	case "-delete":
		p.acts, p.delete = true, true
		return func(n string, i info, d int) bool {
			err := p.t.m.fs.remove(p.t.who(), p.t.abs(n), i.mode.IsDir())
			if err != nil && n != "." {
				p.status = p.t.failed(n, err)
			}
			return err == nil
		}
	case "-exec":
		return p.exec()
	}
	if len(p.args) == 0 {
		p.err = errno(op + ": argument expected")
		return always
	}
	arg := p.args[0]
	p.args = p.args[1:]
	switch op {
	case "-name":
		return func(n string, _ info, _ int) bool { return match(arg, path.Base(n)) }
	case "-iname":
		return func(n string, _ info, _ int) bool {
			return match(strings.ToLower(arg), strings.ToLower(path.Base(n)))
		}
	case "-path":
		return func(n string, _ info, _ int) bool { return match(arg, n) }
	case "-type":
		if arg != "f" && arg != "d" && arg != "l" && arg != "c" {
			p.err = errno("-type " + arg + " is not supported")
		}
		return func(_ string, i info, _ int) bool { return modeText(i.mode)[:1] == strings.Replace(arg, "f", "-", 1) }
	case "-maxdepth", "-mindepth":
		n, err := strconv.Atoi(arg)
		if err != nil {
			p.err = errno(op + ": invalid number " + arg)
		}
		if op == "-maxdepth" {
			p.maxDepth = n
		} else {
			p.minDepth = n
		}
		return always
	case "-newer":
		ref, err := p.t.stat(arg, true)
		if err != nil {
			p.err = errno(arg + ": " + err.Error())
		}
		return func(_ string, i info, _ int) bool { return i.mtime.After(ref.mtime) }
	case "-size":
		return p.size(arg)
	}
	p.err = errno("unrecognized: " + op)
	return always
}

// size compares sizes in blocks of 512 bytes, or in bytes (c), k, M or G, rounded up.
func (p *findParser) size(arg string) finder {
	text := strings.TrimLeft(arg, "+-")
	unit := int64(512)
	if text != "" {
		if i := strings.IndexByte("cbkMG", text[len(text)-1]); i >= 0 {
			unit = []int64{1, 512, 1 << 10, 1 << 20, 1 << 30}[i]
			text = text[:len(text)-1]
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.err = errno("-size: invalid number " + arg)
	}
	return func(_ string, i info, _ int) bool {
		have := (i.size + unit - 1) / unit
		switch arg[0] {
		case '+':
			return have > n
		case '-':
			return have < n
		}
		return have == n
	}
}

// exec runs a program for each file (";") or once, at the end, for all of them ("+").
func (p *findParser) exec() finder {
	p.acts = true
	var argv []string
	for len(p.args) > 0 && p.args[0] != ";" && (p.args[0] != "+" || len(argv) == 0 || argv[len(argv)-1] != "{}") {
		argv, p.args = append(argv, p.args[0]), p.args[1:]
	}
	if len(p.args) == 0 || len(argv) == 0 {
		p.err = errno("-exec: missing ; or command")
		return nil
	}
	all := p.args[0] == "+"
	p.args = p.args[1:]
	t := p.t
	run := func(argv []string) bool {
		_ = t.out.Flush()
		c, err := t.fork(false)
		if err != nil {
			p.status = t.complain("%v", err)
			return false
		}
		return t.foreground(c, func() int { return c.exec(t.name, argv, t.env) }) == 0
	}
	if all {
		full := argv[:len(argv)-1]
		given := len(full)
		p.atEnd = append(p.atEnd, func() {
			if len(full) > given && !run(full) {
				p.status = 1
			}
		})
		return func(n string, _ info, _ int) bool {
			if err := t.keep(len(n)); err != nil {
				p.status = t.complain("%v", err)
				return false
			}
			full = append(full, n)
			return true
		}
	}
	return func(n string, _ info, _ int) bool {
		full := slices.Clone(argv)
		for i := range full {
			full[i] = strings.ReplaceAll(full[i], "{}", n)
		}
		return run(full)
	}
}
