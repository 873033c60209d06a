package docker

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// links is how many symbolic links in a row are followed.
const links = 16

// Upload writes r to name by the engine's archive call, which needs no process inside. The file and the folders made
// for it belong to the image's user; a file that is replaced keeps its mode, a new one gets 0644.
//
// The archive call must know the size in advance: what has no length of its own is kept in a temporary file of this
// machine first. It sees the container's disk and its volumes, but nothing that is mounted from inside, nor /dev, /proc
// and /sys, which are refused.
func (h *handle) Upload(ctx context.Context, name string, r io.Reader) error {
	name, err := h.place(sandbox.OpUpload, name)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	for range links {
		stat, err := h.stat(ctx, sandbox.OpUpload, name)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		if stat.Mode.IsDir() {
			return h.refuse(sandbox.OpUpload, sandbox.ErrInvalid, fmt.Errorf("%s is a folder", name))
		}
		if stat.Mode&fs.ModeSymlink == 0 || stat.LinkTarget == "" {
			mode = stat.Mode.Perm()
			break
		}
		name = path.Clean(stat.LinkTarget)
	}
	base, missing, err := h.base(ctx, path.Dir(name))
	if err != nil {
		return err
	}
	uid, gid, err := h.owner(ctx)
	if err != nil {
		return err
	}
	size, content, release, err := sized(r)
	if err != nil {
		return fmt.Errorf("docker: upload %s: %w", name, err)
	}
	defer release()

	out, in := io.Pipe()
	defer out.Close() // ends the writing, if the engine did not take it all
	wrote := make(chan error, 1)
	go func() {
		err := pack(in, missing, path.Base(name), mode, uid, gid, size, content)
		wrote <- err
		in.CloseWithError(err)
	}()
	uctx, c := watch(ctx)
	_, err = h.p.engine.CopyToContainer(uctx, h.id, client.CopyToContainerOptions{DestinationPath: base, Content: out})
	if err == nil {
		return nil
	}
	_ = out.Close()
	if bad := <-wrote; bad != nil && !errors.Is(bad, io.ErrClosedPipe) {
		return fmt.Errorf("docker: upload %s: %w", name, bad)
	}
	return h.p.fail(uctx, c, sandbox.OpUpload, h.id, err)
}

// pack writes a tar archive of the folders, each inside the one before, and of the file in the last one.
func pack(w io.Writer, folders []string, base string, mode fs.FileMode, uid, gid int, size int64, content io.Reader) error {
	t := tar.NewWriter(w)
	now, at := time.Now(), ""
	for _, f := range folders {
		at += f + "/"
		err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: at, Mode: 0o755, Uid: uid, Gid: gid, ModTime: now})
		if err != nil {
			return err
		}
	}
	err := t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: at + base, Mode: int64(mode), Size: size, Uid: uid, Gid: gid, ModTime: now,
	})
	if err != nil {
		return err
	}
	if _, err := io.Copy(t, content); err != nil {
		return err
	}
	return t.Close()
}

// sized returns how much r will give. Where r cannot tell, it is read to its end into a temporary file.
func sized(r io.Reader) (size int64, content io.Reader, release func(), err error) {
	none := func() {}
	switch r := r.(type) {
	case *bytes.Buffer:
		return int64(r.Len()), r, none, nil
	case *bytes.Reader:
		return int64(r.Len()), r, none, nil
	case *strings.Reader:
		return int64(r.Len()), r, none, nil
	}
	f, err := os.CreateTemp("", "sandglass-*")
	if err != nil {
		return 0, nil, none, err
	}
	release = func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	size, err = io.Copy(f, r)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		release()
		return 0, nil, none, err
	}
	return size, f, release, nil
}

// Download copies a file by the engine's archive call, following symbolic links. What it sees is said at Upload.
func (h *handle) Download(ctx context.Context, name string, w io.Writer) error {
	name, err := h.place(sandbox.OpDownload, name)
	if err != nil {
		return err
	}
	for range links {
		stat, err := h.stat(ctx, sandbox.OpDownload, name)
		if err != nil {
			return err
		}
		if stat.Mode&fs.ModeSymlink != 0 && stat.LinkTarget != "" {
			name = path.Clean(stat.LinkTarget)
			continue
		}
		if !stat.Mode.IsRegular() {
			return h.refuse(sandbox.OpDownload, sandbox.ErrInvalid, fmt.Errorf("%s is no file", name))
		}
		return h.fetch(ctx, name, w)
	}
	return h.refuse(sandbox.OpDownload, sandbox.ErrInvalid, fmt.Errorf("%s: more than %d symbolic links", name, links))
}

func (h *handle) fetch(ctx context.Context, name string, w io.Writer) error {
	dctx, c := watch(ctx)
	r, err := h.p.engine.CopyFromContainer(dctx, h.id, client.CopyFromContainerOptions{SourcePath: name})
	if err != nil {
		return h.missing(dctx, c, sandbox.OpDownload, name, err)
	}
	defer r.Content.Close()
	t := tar.NewReader(r.Content)
	head, err := t.Next()
	if err == nil && head.Typeflag != tar.TypeReg {
		return h.refuse(sandbox.OpDownload, sandbox.ErrInvalid, fmt.Errorf("%s is no file", name))
	}
	if err == nil {
		out := &keeper{w: w}
		if _, err = io.Copy(out, t); out.err != nil {
			return fmt.Errorf("docker: download %s: %w", name, out.err)
		}
	}
	if err != nil {
		return h.p.fail(dctx, c, sandbox.OpDownload, h.id, fmt.Errorf("reading %s: %w", name, err))
	}
	return nil
}

// A keeper tells the errors of the caller's writer from those of the engine.
type keeper struct {
	w   io.Writer
	err error
}

func (k *keeper) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	k.err = err
	return n, err
}

func (h *handle) refuse(op sandbox.Op, kind, err error) error {
	return &sandbox.APIError{Provider: h.p.name, Op: op, ID: h.id, Refused: true, Kind: kind, Err: err}
}

// place returns the cleaned path of a file that the archive call can see.
func (h *handle) place(op sandbox.Op, name string) (string, error) {
	if !isID(h.id) {
		return "", h.p.noSuch(op, h.id)
	}
	if !path.IsAbs(name) || strings.HasSuffix(name, "/") || strings.ContainsRune(name, 0) {
		return "", h.refuse(op, sandbox.ErrInvalid, fmt.Errorf("%q is not the absolute path of a file", name))
	}
	name = path.Clean(name)
	switch first, _, _ := strings.Cut(name[1:], "/"); first {
	case "":
		return "", h.refuse(op, sandbox.ErrInvalid, fmt.Errorf("%q is a folder", name))
	case "dev", "proc", "sys":
		return "", h.refuse(op, errors.ErrUnsupported, fmt.Errorf("%s is not on the container's disk", name))
	}
	return name, nil
}

// stat looks at one path, not following a link in its last element. A missing one matches [fs.ErrNotExist].
func (h *handle) stat(ctx context.Context, op sandbox.Op, name string) (container.PathStat, error) {
	sctx, c := watch(ctx)
	r, err := h.p.engine.ContainerStatPath(sctx, h.id, client.ContainerStatPathOptions{Path: name})
	if err == nil {
		return r.Stat, nil
	}
	err = h.missing(sctx, c, op, name, err)
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Status >= http.StatusInternalServerError {
		// The answer has no words. Engines answer so for what would lie below a file, too.
		for up := path.Clean(name); up != "/"; up = path.Dir(up) {
			r, err := h.p.engine.ContainerStatPath(ctx, h.id, client.ContainerStatPathOptions{Path: up})
			if err == nil && r.Stat.Mode.IsRegular() {
				return container.PathStat{}, h.none(op, name)
			}
		}
		e.Err = fmt.Errorf("cannot look at %s", name)
	}
	return container.PathStat{}, err
}

func (h *handle) none(op sandbox.Op, name string) error {
	return &sandbox.APIError{
		Provider: h.p.name, Op: op, ID: h.id, Status: http.StatusNotFound, Refused: true,
		Err: &fs.PathError{Op: string(op), Path: name, Err: fs.ErrNotExist},
	}
}

// missing tells the two meanings of a 404 of the archive call apart: no such file, no such container.
func (h *handle) missing(ctx context.Context, c *call, op sandbox.Op, name string, err error) error {
	err = h.p.fail(ctx, c, op, h.id, err)
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Status != http.StatusNotFound {
		return err
	}
	if _, gone := h.p.look(ctx, op, h.id, false); gone != nil {
		return gone
	}
	return h.none(op, name)
}

// base returns the nearest folder above that exists, and the names of those that are missing from there on.
func (h *handle) base(ctx context.Context, dir string) (base string, missing []string, err error) {
	for base = dir; ; base = path.Dir(base) {
		_, err := h.stat(ctx, sandbox.OpUpload, strings.TrimSuffix(base, "/")+"/.") // the dot has a link followed
		if err == nil {
			return base, missing, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || base == "/" {
			return "", nil, err
		}
		if _, err := h.stat(ctx, sandbox.OpUpload, base); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				err = h.refuse(sandbox.OpUpload, sandbox.ErrInvalid, fmt.Errorf("%s is no folder", base))
			}
			return "", nil, err
		}
		missing = append([]string{path.Base(base)}, missing...)
	}
}

// owner returns the numbers of the image's user and group. A name that the image's own tables do not know is root:
// nothing can be run as it either.
func (h *handle) owner(ctx context.Context) (uid, gid int, err error) {
	made, err := h.made(ctx, sandbox.OpUpload)
	if err != nil {
		return 0, 0, err
	}
	name, group, grouped := strings.Cut(made.Config.Labels[userLabel], ":")
	uid, errUID := strconv.Atoi(name)
	gid, errGID := strconv.Atoi(group)
	if name == "" || name == "root" && !grouped || errUID == nil && grouped && errGID == nil {
		return uid, gid, nil
	}
	users, err := h.table(ctx, "/etc/passwd")
	if err != nil {
		return 0, 0, err
	}
	for _, f := range users { // name:password:uid:gid:...
		if len(f) < 4 || f[0] != name && f[2] != name {
			continue
		}
		if errUID != nil {
			uid, _ = strconv.Atoi(f[2])
		}
		if !grouped {
			gid, _ = strconv.Atoi(f[3])
		}
		break
	}
	if grouped && errGID != nil {
		groups, err := h.table(ctx, "/etc/group")
		if err != nil {
			return 0, 0, err
		}
		for _, f := range groups { // name:password:gid:...
			if len(f) >= 3 && f[0] == group {
				gid, _ = strconv.Atoi(f[2])
				break
			}
		}
	}
	return uid, gid, nil
}

// table reads a file of lines with fields between colons; a missing one is empty.
func (h *handle) table(ctx context.Context, name string) ([][]string, error) {
	var text bytes.Buffer
	err := h.fetch(ctx, name, &text)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for lines := bufio.NewScanner(&text); lines.Scan(); {
		rows = append(rows, strings.Split(lines.Text(), ":"))
	}
	return rows, nil
}
