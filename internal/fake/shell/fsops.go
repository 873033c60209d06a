package shell

import (
	"io/fs"
	"slices"
	"strings"
	"time"
)

// info is what stat tells of a file.
type info struct {
	name   string
	mode   fs.FileMode
	size   int64
	mtime  time.Time
	uid    int
	links  int
	inode  int64
	target string
	device string
	shown  bool
}

func (n *node) info(name string) info {
	i := info{
		name: name, mode: n.mode, size: int64(len(n.data)), mtime: n.mtime,
		uid: n.uid, links: n.links, inode: n.inode, target: n.target, device: n.device,
		shown: n.shown,
	}
	switch {
	case n.mode.IsDir():
		i.size = 4096
		i.links = 2
		for _, c := range n.entries {
			if c.mode.IsDir() {
				i.links++
			}
		}
	case n.target != "":
		i.size = int64(len(n.target))
	}
	return i
}

func (f *FS) stat(w who, name string, follow bool) (info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(w, name, follow)
	if err != nil {
		return info{}, err
	}
	return pl.n.info(pl.base), nil
}

// access reports whether w may use the file as the bits say: 4 read, 2 write, 1 execute or enter.
func (f *FS) access(w who, name string, bits fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(w, name, true)
	if err == nil && !pl.n.allows(w, bits) {
		err = errAccess
	}
	return err
}

// realpath returns the path without links and dots.
func (f *FS) realpath(w who, name string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(w, name, true)
	return pl.path, err
}

// readDir lists a folder by name.
func (f *FS) readDir(w who, name string) ([]info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(w, name, true)
	if err != nil {
		return nil, err
	}
	if !pl.n.mode.IsDir() {
		return nil, errNotDir
	}
	if !pl.n.allows(w, 4) {
		return nil, errAccess
	}
	var list []info
	for _, name := range pl.n.names(w) {
		if n := pl.n.entry(w, name); n != nil { // else it has ended since
			list = append(list, n.info(name))
		}
	}
	return list, nil
}

// head returns the first bytes of a file that w may execute.
func (f *FS) head(w who, name string, size int) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(w, name, true)
	switch {
	case err != nil:
		return nil, err
	case !pl.n.mode.IsRegular() || !pl.n.allows(w, 1):
		return nil, errAccess
	}
	return slices.Clone(pl.n.data[:min(size, len(pl.n.data))]), nil
}

func (f *FS) mkdir(w who, name string, perm fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(w, name, false)
	switch {
	case err == nil:
		return errExist
	case err != errNotExist || pl.dir == nil:
		return err
	}
	return f.link(w, pl, f.newNode(fs.ModeDir|perm, w.uid))
}

// mkdirAll makes a folder and its parents, and is content with what is there.
func (f *FS) mkdirAll(w who, name string, perm fs.FileMode) error {
	for i := 1; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		if err := f.mkdir(w, name[:i], perm); err != nil && err != errExist {
			return err
		}
	}
	i, err := f.stat(w, name, true)
	if err == nil && !i.mode.IsDir() {
		err = errNotDir
	}
	return err
}

func (f *FS) symlink(w who, target, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(w, name, false)
	switch {
	case err == nil:
		return errExist
	case err != errNotExist || pl.dir == nil:
		return err
	case target == "":
		return errNotExist
	case len(target) > maxPath:
		return errNameLong
	}
	n := f.newNode(fs.ModeSymlink|0o777, w.uid)
	n.target = target
	return f.link(w, pl, n)
}

func (f *FS) hardlink(w who, from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	src, err := f.walk(w, from, false)
	if err != nil {
		return err
	}
	if src.n.mode.IsDir() || src.n.target != "" || src.n.shown {
		return errPerm
	}
	dst, err := f.walk(w, to, false)
	switch {
	case err == nil:
		return errExist
	case err != errNotExist || dst.dir == nil:
		return err
	}
	return f.link(w, dst, src.n)
}

// remove takes away a file or, with dir set, an empty folder.
func (f *FS) remove(w who, name string, dir bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(w, strings.TrimRight(name, "/"), false)
	switch {
	case err != nil:
		return err
	case pl.dir == nil:
		return errBusy
	case dir && !pl.n.mode.IsDir():
		return errNotDir
	case !dir && pl.n.mode.IsDir():
		return errIsDir
	case len(pl.n.entries) > 0:
		return errNotEmpty
	}
	if err := pl.dir.mayChange(w, pl.n); err != nil {
		return err
	}
	f.unlink(pl)
	return nil
}

func (f *FS) rename(w who, from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	src, err := f.walk(w, strings.TrimRight(from, "/"), false)
	if err != nil {
		return err
	}
	dst, err := f.walk(w, strings.TrimRight(to, "/"), false)
	switch {
	case err != nil && (err != errNotExist || dst.dir == nil):
		return err
	case src.dir == nil || dst.dir == nil:
		return errBusy
	case strings.HasSuffix(to, "/") && !src.n.mode.IsDir():
		return errNotDir
	case src.n == dst.n:
		return nil
	case src.n.mode.IsDir() && src.n.holds(dst.dir):
		return errInvalid
	}
	if err := src.dir.mayChange(w, src.n); err != nil {
		return err
	}
	if err := dst.dir.mayChange(w, dst.n); err != nil {
		return err
	}
	if dst.n != nil {
		switch {
		case dst.n.mode.IsDir() && !src.n.mode.IsDir():
			return errIsDir
		case !dst.n.mode.IsDir() && src.n.mode.IsDir():
			return errNotDir
		case len(dst.n.entries) > 0:
			return errNotEmpty
		}
		f.unlink(dst)
	}
	dst.n = src.n
	dst.n.opens++ // so that its data survives the moment without a name
	f.unlink(src)
	dst.n.opens--
	dst.dir.entries[dst.base] = dst.n
	dst.dir.mtime = time.Now()
	dst.n.links++
	f.used += int64(nodeCost + len(dst.base) + len(dst.n.target)) // may pass the quota by the length of a name
	return nil
}

// holds reports whether other is n or lies below it.
func (n *node) holds(other *node) bool {
	if n == other {
		return true
	}
	for _, c := range n.entries {
		if c.mode.IsDir() && c.holds(other) {
			return true
		}
	}
	return false
}

// change applies set to a file that w owns.
func (f *FS) change(w who, name string, set func(*node)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl, err := f.walk(w, name, true)
	if err != nil {
		return err
	}
	if pl.n.shown {
		return errReadOnly
	}
	if w.uid != 0 && w.uid != pl.n.uid {
		return errPerm
	}
	set(pl.n)
	return nil
}

const permBits = fs.ModePerm | fs.ModeSticky | fs.ModeSetuid | fs.ModeSetgid

func (f *FS) chmod(w who, name string, perm fs.FileMode) error {
	return f.change(w, name, func(n *node) { n.mode = n.mode&^permBits | perm&permBits })
}

func (f *FS) chown(w who, name string, owner int) error {
	if w.uid != 0 {
		return errPerm
	}
	return f.change(w, name, func(n *node) { n.uid = owner })
}

func (f *FS) chtimes(w who, name string, t time.Time) error {
	return f.change(w, name, func(n *node) { n.mtime = t })
}
