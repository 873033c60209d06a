package shell

import (
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	defaultQuota = 256 << 20
	nodeCost     = 512 // what an entry takes of the quota beside its data, so that empty files are not free
	maxName      = 255
	maxPath      = 4096
	maxSymlinks  = 40
	appletMagic  = "\x7fAPPLET " // first bytes of an executable that is built in; its name follows
)

// An FS is a file system in memory, with folders, files, symbolic and hard links, a few devices, owners, modes and
// modification times, and the processes of all calls of [Run] on it, which /proc shows. It is safe for concurrent use, by
// any number of calls of Run too. The zero FS is not usable.
type FS struct {
	mu    sync.Mutex // held for memory operations only
	root  *node
	used  int64
	quota int64
	inode int64
	procs *table
}

// node is a file. All fields are guarded by FS.mu.
type node struct {
	mode    fs.FileMode
	uid     int
	inode   int64
	mtime   time.Time
	links   int
	opens   int
	data    []byte
	entries map[string]*node // of a folder
	target  string           // of a symbolic link
	device  string           // of a device
	shown   bool             // it belongs to /proc and is made whenever somebody looks
	view    view             // of a folder of /proc: what it holds
	text    textFunc         // of a file of /proc: what it tells
}

// who is a process in the eyes of the file system.
type who struct{ uid, pid int }

// root is somebody who may do everything and is no process.
var root = who{}

// NewFS returns a file system with the utilities in /bin (and /usr/bin, which is the same), /dev/null and its like,
// /etc/passwd with root and a user "user" (uid 1000), their homes, /tmp, and /proc.
func NewFS() *FS {
	f := &FS{quota: defaultQuota, procs: newTable()}
	f.root = f.newNode(fs.ModeDir|0o755, 0)
	f.root.entries["proc"] = f.procs.folder()
	must := func(err error) {
		if err != nil {
			panic("shell: new file system: " + err.Error())
		}
	}
	const dirs = "/bin /dev /etc /home /home/user /root /tmp /usr /usr/local /usr/local/bin /var /var/tmp"
	for dir := range strings.FieldsSeq(dirs) {
		must(f.mkdir(root, dir, 0o755))
	}
	must(f.symlink(root, "../bin", "/usr/bin"))
	must(f.symlink(root, "bin", "/sbin"))
	must(f.chmod(root, "/root", 0o700))
	must(f.chmod(root, "/tmp", fs.ModeSticky|0o777))
	must(f.chmod(root, "/var/tmp", fs.ModeSticky|0o777))
	must(f.chown(root, "/home/user", 1000))
	for _, dev := range []string{"null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr"} {
		must(f.addNode("/dev/"+dev, &node{mode: fs.ModeDevice | fs.ModeCharDevice | 0o666, device: dev}))
	}
	for name := range strings.FieldsSeq(appletNames) {
		must(f.addNode("/bin/"+name, &node{mode: 0o755, data: []byte(appletMagic + name + "\n")}))
	}
	for name, text := range map[string]string{
		"/etc/passwd":   "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
		"/etc/group":    "root:x:0:\nuser:x:1000:\n",
		"/etc/hostname": hostname + "\n",
	} {
		must(f.WriteFile(name, strings.NewReader(text)))
	}
	return f
}

// SetQuota sets how many bytes the file system may hold, names and entries included. The default is 256 MiB. What is
// there already stays, even above the quota.
func (f *FS) SetQuota(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quota = bytes
}

// WriteFile writes all of r to the absolute path name as root, making parent folders, and replaces what the file held.
// If reading r or writing fails, a part of it may remain. Errors are [*fs.PathError].
func (f *FS) WriteFile(name string, r io.Reader) error {
	if err := f.writeFile(name, r); err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

func (f *FS) writeFile(name string, r io.Reader) error {
	switch {
	case !strings.HasPrefix(name, "/"):
		return errInvalid
	case len(name) > maxPath:
		return errNameLong
	}
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		if err := f.mkdirAll(root, name[:i], 0o755); err != nil {
			return err
		}
	}
	h, err := f.open(root, name, openWrite|openCreate|openTruncate, 0o644)
	if err != nil {
		return err
	}
	defer h.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := h.writeAt(buf[:n]); err != nil {
				return err
			}
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// ReadFile copies the file name, an absolute path, to w as root. A missing file is a [*fs.PathError] that matches
// [fs.ErrNotExist]. A file that changes meanwhile is copied as it is at each moment.
func (f *FS) ReadFile(name string, w io.Writer) error {
	if err := f.readFile(name, w); err != nil {
		return &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return nil
}

func (f *FS) readFile(name string, w io.Writer) error {
	if !strings.HasPrefix(name, "/") {
		return errInvalid
	}
	h, err := f.open(root, name, openRead, 0)
	if err != nil {
		return err
	}
	defer h.close()
	if h.n.device != "" {
		return errInvalid // a device may have no end
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := h.readAt(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// newNode returns a node outside of the tree.
func (f *FS) newNode(mode fs.FileMode, uid int) *node {
	f.inode++
	n := &node{mode: mode, uid: uid, inode: f.inode, mtime: time.Now()}
	if mode.IsDir() {
		n.entries = map[string]*node{}
	}
	return n
}

// addNode puts a prepared node into the tree.
func (f *FS) addNode(name string, n *node) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(root, name, false)
	if err != errNotExist || pl.dir == nil {
		return errExist
	}
	f.inode++
	n.inode, n.mtime = f.inode, time.Now()
	f.used += int64(len(n.data))
	return f.link(root, pl, n)
}

// place is where a path leads.
type place struct {
	dir  *node  // the folder that holds, or would hold, the entry; nil for the root and for paths that end in ".."
	base string // name in dir
	n    *node  // nil: not there
	path string // absolute, without links and dots
}

// walk resolves an absolute path. With errNotExist, a place with a dir tells where the file would be made.
// A symbolic link at the end is followed if follow is set or the path ends in a slash. FS.mu is held.
func (f *FS) walk(w who, name string, follow bool) (place, error) {
	type step struct {
		n    *node
		name string
	}
	if name == "" {
		return place{}, errNotExist
	}
	if len(name) > maxPath {
		return place{}, errNameLong
	}
	mustBeDir := strings.HasSuffix(name, "/")
	todo := strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
	stack := []step{{f.root, ""}}
	dots := false // whether the last element is ".."
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		cur := stack[len(stack)-1].n
		if !cur.mode.IsDir() {
			return place{}, errNotDir
		}
		if !cur.allows(w, 1) {
			return place{}, errAccess
		}
		dots = part == ".." || part == "."
		if part == "." {
			continue
		}
		if part == ".." {
			if len(stack) > 1 {
				stack = stack[:len(stack)-1]
			}
			continue
		}
		if len(part) > maxName {
			return place{}, errNameLong
		}
		n := cur.entry(w, part)
		last := len(todo) == 0
		switch {
		case n == nil && last:
			return place{dir: cur, base: part}, errNotExist
		case n == nil:
			return place{}, errNotExist
		case n.mode&fs.ModeSymlink != 0 && (!last || follow || mustBeDir):
			if links++; links > maxSymlinks {
				return place{}, errLoop
			}
			if strings.HasPrefix(n.target, "/") {
				stack = stack[:1]
			}
			todo = append(strings.FieldsFunc(n.target, func(r rune) bool { return r == '/' }), todo...)
			continue
		}
		stack = append(stack, step{n, part})
	}
	top := stack[len(stack)-1]
	if mustBeDir && !top.n.mode.IsDir() {
		return place{}, errNotDir
	}
	pl := place{n: top.n, path: "/"}
	if len(stack) > 1 {
		var b strings.Builder
		for _, s := range stack[1:] {
			b.WriteString("/" + s.name)
		}
		pl.path = b.String()
		if !dots {
			pl.dir, pl.base = stack[len(stack)-2].n, top.name
		}
	}
	return pl, nil
}

// entry returns what a folder holds under a name, or nil.
func (n *node) entry(w who, name string) *node {
	if n.view != nil {
		return n.view.entry(w, name)
	}
	return n.entries[name]
}

// names returns the names of all that a folder holds, sorted.
func (n *node) names(w who) []string {
	if n.view != nil {
		return slices.Sorted(slices.Values(n.view.names(w)))
	}
	return slices.Sorted(maps.Keys(n.entries))
}

// allows reports whether w may read (4), write (2) or enter or execute (1) the node. Groups are not told apart from
// others. Root may do everything but execute what nobody may.
func (n *node) allows(w who, bits fs.FileMode) bool {
	if w.uid == 0 {
		return bits&1 == 0 || n.mode.IsDir() || n.mode&0o111 != 0
	}
	if n.uid == w.uid {
		bits <<= 6
	}
	return n.mode&bits == bits
}

// mayChange reports whether w may make or remove entries of the folder, and remove child if it is not nil.
func (n *node) mayChange(w who, child *node) error {
	if n.shown {
		return errReadOnly
	}
	if child != nil && child.shown {
		return errBusy // /proc itself
	}
	if !n.allows(w, 2) || !n.allows(w, 1) {
		return errAccess
	}
	if child != nil && n.mode&fs.ModeSticky != 0 && w.uid != 0 && w.uid != n.uid && w.uid != child.uid {
		return errPerm
	}
	return nil
}

// link enters n into the tree and charges the quota for the entry. FS.mu is held.
func (f *FS) link(w who, pl place, n *node) error {
	if err := pl.dir.mayChange(w, nil); err != nil {
		return err
	}
	cost := int64(nodeCost + len(pl.base) + len(n.target))
	if f.used+cost > f.quota {
		return errNoSpace
	}
	f.used += cost
	pl.dir.entries[pl.base] = n
	pl.dir.mtime = time.Now()
	n.links++
	return nil
}

// unlink takes the entry out of the tree. FS.mu is held.
func (f *FS) unlink(pl place) {
	delete(pl.dir.entries, pl.base)
	pl.dir.mtime = time.Now()
	f.used -= int64(nodeCost + len(pl.base) + len(pl.n.target))
	pl.n.links--
	f.reclaim(pl.n)
}

// reclaim gives back the space of a file that has neither a name nor a user.
func (f *FS) reclaim(n *node) {
	if n.links == 0 && n.opens == 0 {
		f.used -= int64(len(n.data))
		n.data = nil
	}
}

// openFlag says how a file is opened.
type openFlag int

const (
	openRead openFlag = 1 << iota
	openWrite
	openCreate
	openTruncate
	openAppend
	openExclusive
)

// handle is an open file. Its offset is shared by all processes that inherited it.
type handle struct {
	f     *FS
	n     *node
	flags openFlag
	off   int64  // guarded by f.mu
	told  []byte // of a file of /proc: what it told at the first read; guarded by f.mu
}

func (f *FS) open(w who, name string, flags openFlag, perm fs.FileMode) (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(w, name, true)
	switch {
	case err == nil && flags&openExclusive != 0:
		return nil, errExist
	case err == nil:
		if pl.n.mode.IsDir() && flags&openWrite != 0 {
			return nil, errIsDir
		}
		if flags&openRead != 0 && !pl.n.allows(w, 4) || flags&openWrite != 0 && !pl.n.allows(w, 2) {
			return nil, errAccess
		}
		if flags&openWrite != 0 && pl.n.shown {
			return nil, errReadOnly
		}
		if flags&openTruncate != 0 && pl.n.mode.IsRegular() {
			f.used -= int64(len(pl.n.data))
			pl.n.data, pl.n.mtime = nil, time.Now()
		}
	case err == errNotExist && flags&openCreate != 0 && pl.dir != nil:
		if strings.HasSuffix(name, "/") {
			return nil, errIsDir
		}
		pl.n = f.newNode(perm, w.uid)
		if err := f.link(w, pl, pl.n); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	pl.n.opens++
	return &handle{f: f, n: pl.n, flags: flags}, nil
}

func (h *handle) readAt(b []byte) (int, error) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	switch {
	case h.flags&openRead == 0:
		return 0, errBadFD
	case h.n.mode.IsDir():
		return 0, errIsDir
	case len(b) == 0:
		return 0, nil
	}
	data := h.n.data
	if h.n.text != nil {
		if h.told == nil {
			text, err := h.n.text()
			if err != nil {
				return 0, err
			}
			h.told = append([]byte{}, text...)
		}
		data = h.told
	}
	if h.off >= int64(len(data)) {
		return 0, io.EOF
	}
	n := copy(b, data[h.off:])
	h.off += int64(n)
	return n, nil
}

// writeAt writes at the offset, or at the end of a file opened for appending. A short write has an error.
func (h *handle) writeAt(b []byte) (int, error) {
	f, n := h.f, h.n
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.flags&openWrite == 0 {
		return 0, errBadFD
	}
	size := int64(len(n.data))
	if h.flags&openAppend != 0 {
		h.off = size
	}
	var short error
	if h.off > math.MaxInt64-int64(len(b)) {
		return 0, errNoSpace
	}
	if room := f.quota - f.used; h.off+int64(len(b))-size > room {
		short = errNoSpace
		if fits := max(size+max(room, 0)-h.off, 0); fits < int64(len(b)) {
			b = b[:fits]
		}
	}
	if len(b) == 0 {
		return 0, short
	}
	if gap := h.off - size; gap > 0 {
		n.data = append(n.data, make([]byte, gap)...)
	}
	copied := copy(n.data[h.off:], b)
	n.data = append(n.data, b[copied:]...)
	f.used += int64(len(n.data)) - size
	h.off += int64(len(b))
	n.mtime = time.Now()
	return len(b), short
}

// seek sets the offset; a later write beyond the end fills the gap with zeros.
func (h *handle) seek(off int64) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.off = off
}

func (h *handle) close() {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.n.opens--
	h.f.reclaim(h.n)
}
