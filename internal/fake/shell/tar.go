package shell

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// tarMain packs, unpacks and lists archives; its first argument may be flags without a dash.
func tarMain(t *tool) int {
	if len(t.args) > 0 && !strings.HasPrefix(t.args[0], "-") {
		t.args[0] = "-" + t.args[0]
	}
	f, args, err := t.flags("cxtvzf:C:pO", "create=c", "extract=x", "list=t", "verbose=v", "gzip=z", "file=f", "directory=C")
	if err != nil {
		return 1
	}
	if b2i(f.has('c'))+b2i(f.has('x'))+b2i(f.has('t')) != 1 {
		return t.complain("exactly one of -c, -x and -t is needed")
	}
	if f.has('O') {
		return t.complain("-O is not supported")
	}
	name := "-"
	if f.has('f') {
		name = f.last('f')
	}
	if f.has('c') {
		err = t.pack(name, args, f)
	} else {
		err = t.unpack(name, args, f)
	}
	if err != nil && !errors.Is(err, errPipe) {
		return t.complain("%v", err)
	}
	return b2i(err != nil)
}

// enter is -C: names that follow are relative to the folder.
func (t *tool) enter(f flags) error {
	if !f.has('C') {
		return nil
	}
	dir := t.abs(f.last('C'))
	if !t.isDir(dir) {
		return errno(f.last('C') + ": " + errNotDir.Error())
	}
	t.chdir(dir)
	return nil
}

func (t *tool) pack(name string, args []string, f flags) (err error) {
	out := t.out
	if name != "-" {
		w, done, err2 := t.openOutput(name, openTruncate)
		if err2 != nil {
			return errno(name + ": " + err2.Error())
		}
		defer func() {
			if err2 := done(); err == nil {
				err = err2
			}
		}()
		out = w
	}
	if err := t.enter(f); err != nil {
		return err
	}
	if len(args) == 0 {
		return errno("refusing to make an empty archive")
	}
	var w io.Writer = writerOnly{out}
	if f.has('z') {
		z := gzip.NewWriter(w)
		defer func() {
			if err2 := z.Close(); err == nil {
				err = err2
			}
		}()
		w = z
	}
	tw := tar.NewWriter(w)
	for _, a := range args {
		t.walk(a, 0, true, func(name string, i info, depth int) bool {
			if depth < 0 && err == nil {
				err = errno("some files could not be read")
			}
			if depth >= 0 && err == nil {
				err = t.packOne(tw, name, i)
				if f.has('v') && err == nil {
					t.errorf("%s", name)
				}
			}
			return err == nil && !i.shown
		})
	}
	if err2 := tw.Close(); err == nil {
		err = err2
	}
	return err
}

func (t *tool) packOne(tw *tar.Writer, name string, i info) error {
	h := &tar.Header{
		Name: strings.TrimLeft(name, "/"), Mode: int64(octal(i.mode)), Uid: i.uid, Gid: i.uid, ModTime: i.mtime,
		Uname: t.userName(i.uid), Gname: t.userName(i.uid), Typeflag: tar.TypeReg,
	}
	switch {
	case h.Name == "" || i.shown: // what /proc shows is not on the disk
		return nil
	case i.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, strings.TrimRight(h.Name, "/")+"/"
	case i.target != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, i.target
	case !i.mode.IsRegular():
		return nil
	default:
		h.Size = i.size
	}
	if h.Typeflag != tar.TypeReg {
		return tw.WriteHeader(h)
	}
	r, done, err := t.openInput(t.abs(name))
	if err != nil {
		return errno(name + ": " + err.Error())
	}
	defer done()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(tw, r, i.size); err != nil {
		return errno(name + ": file changed while it was read")
	}
	return nil
}

func (t *tool) unpack(name string, only []string, f flags) error {
	in, done, err := t.openInput(name)
	if err != nil {
		return errno(name + ": " + err.Error())
	}
	defer done()
	if err := t.enter(f); err != nil {
		return err
	}
	br := bufio.NewReader(in)
	var r io.Reader = br
	if magic, _ := br.Peek(2); f.has('z') || string(magic) == "\x1f\x8b" {
		z, err := gzip.NewReader(br)
		if err != nil {
			return errno("not in gzip format")
		}
		r = z
	}
	wanted := func(name string) bool {
		for _, o := range only {
			o = strings.TrimRight(o, "/")
			if strings.TrimRight(name, "/") == o || strings.HasPrefix(name, o+"/") {
				return true
			}
		}
		return len(only) == 0
	}
	tr := tar.NewReader(r)
	for {
		t.step(1)
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return errno("invalid archive")
		}
		if !wanted(h.Name) {
			continue
		}
		if f.has('t') || f.has('v') {
			t.say(h.Name)
		}
		if f.has('x') {
			if err := t.unpackOne(tr, h); err != nil {
				return errno(h.Name + ": " + err.Error())
			}
		}
	}
}

func (t *tool) unpackOne(tr *tar.Reader, h *tar.Header) error {
	name := path.Clean("/" + h.Name)[1:] // nothing leaves the folder
	if name == "" {
		return nil
	}
	if dir := path.Dir(name); dir != "." {
		if err := t.m.fs.mkdirAll(t.who(), t.abs(dir), fs.FileMode(0o777&^t.umask)); err != nil {
			return err
		}
	}
	full := t.abs(name)
	switch h.Typeflag {
	case tar.TypeDir:
		if err := t.m.fs.mkdirAll(t.who(), full, 0o777); err != nil {
			return err
		}
	case tar.TypeSymlink:
		_ = t.m.fs.remove(t.who(), full, false)
		return t.m.fs.symlink(t.who(), h.Linkname, full)
	case tar.TypeLink:
		_ = t.m.fs.remove(t.who(), full, false)
		return t.m.fs.hardlink(t.who(), t.abs(path.Clean("/" + h.Linkname)[1:]), full)
	case tar.TypeReg:
		_ = t.m.fs.remove(t.who(), full, false)
		w, done, err := t.openOutput(full, openTruncate)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, tr)
		if err2 := done(); err == nil {
			err = err2
		}
		if err != nil {
			return err
		}
	default:
		return errno("kind of entry is not supported")
	}
	mode, err := parseMode(octalText(h.Mode), 0, 0)
	if err == nil {
		err = t.m.fs.chmod(t.who(), full, mode&^fs.FileMode(t.umask))
	}
	if err == nil && h.Typeflag == tar.TypeReg {
		err = t.m.fs.chtimes(t.who(), full, h.ModTime)
	}
	return err
}

func octalText(mode int64) string { return strconv.FormatInt(mode&0o7777, 8) }
