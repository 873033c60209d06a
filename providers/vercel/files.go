package vercel

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	quiet      = time.Minute // how long a transfer of a file may stand still
	inMemory   = 16 << 20    // bytes of a file that are kept in memory until all of it is there
	fileMode   = 0o644
	uploadTime = 10 * time.Minute // for an archive that is sent in one piece
)

// Upload writes r to name. The service takes archives, whose entries begin with their size: so all of r is read before
// anything is sent, into memory or, beyond 16 MiB, into a temporary file on this machine. The file belongs to the
// sandbox's user.
func (h *handle) Upload(ctx context.Context, name string, r io.Reader) error {
	if err := h.place(sandbox.OpUpload, name); err != nil {
		return err
	}
	ref, err := h.ref(ctx, sandbox.OpUpload)
	if err != nil {
		return err
	}
	content, size, done, err := collect(r)
	if err != nil {
		return fmt.Errorf("vercel: upload %s: %w", name, err)
	}
	defer done()
	req := h.inside(ref, sandbox.OpUpload, http.MethodPost, "/fs/write")
	req.Header = http.Header{"Content-Type": {"application/gzip"}, "X-Cwd": {"/"}}
	req.Rules = inside
	if size <= inMemory { // in one piece, as the official SDK does
		var b bytes.Buffer
		if err := pack(&b, name, content, size); err != nil {
			return fmt.Errorf("vercel: upload %s: %w", name, err)
		}
		req.Stream, req.Timeout = bytes.NewReader(b.Bytes()), uploadTime
		_, err = h.p.do(ctx, req)
		return h.absent(ctx, ref, sandbox.OpUpload, name, err)
	}
	out, in := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := pack(in, name, content, size)
		sent <- err
		in.CloseWithError(err)
	}()
	req.Stream, req.Timeout, req.Idle = out, -1, quiet
	body, err := h.p.open(ctx, req)
	_ = out.Close()
	bad := <-sent // content is not closed while it is read
	switch {
	case err == nil && bad != nil:
		_ = body.Close()
		return h.p.failed(sandbox.OpUpload, h.id, nil, errors.New("the service has answered before it had all of the file"))
	case err == nil:
		return body.Close()
	case bad != nil && !errors.Is(bad, io.ErrClosedPipe) && ctx.Err() == nil:
		return fmt.Errorf("vercel: upload %s: %w", name, bad)
	}
	return h.absent(ctx, ref, sandbox.OpUpload, name, err)
}

// collect reads all of r. done gives back what it took.
func collect(r io.Reader) (content io.Reader, size int64, done func(), err error) {
	var b bytes.Buffer
	if size, err = io.Copy(&b, io.LimitReader(r, inMemory+1)); err != nil || size <= inMemory {
		return &b, size, func() {}, err
	}
	f, err := os.CreateTemp("", "sandglass-upload-*")
	if err != nil {
		return nil, 0, nil, err
	}
	done = func() { _, _ = f.Close(), os.Remove(f.Name()) }
	if size, err = io.Copy(f, io.MultiReader(&b, r)); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, 0, nil, err
	}
	return f, size, done, nil
}

// pack writes an archive of one file.
func pack(w io.Writer, name string, content io.Reader, size int64) error {
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zip)
	err = archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(path.Clean(name), "/"), Size: size, Mode: fileMode,
		ModTime: time.Now().Truncate(time.Second),
	})
	if err == nil {
		_, err = io.Copy(archive, content)
	}
	if err == nil {
		err = archive.Close()
	}
	return errors.Join(err, zip.Close())
}

// Download copies the file to w as it comes.
func (h *handle) Download(ctx context.Context, name string, w io.Writer) error {
	if err := h.place(sandbox.OpDownload, name); err != nil {
		return err
	}
	ref, err := h.ref(ctx, sandbox.OpDownload)
	if err != nil {
		return err
	}
	req := h.post(ref, sandbox.OpDownload, "/fs/read", map[string]string{"path": name})
	req.OK, req.Idle, req.Rules = []int{http.StatusOK}, quiet, inside
	req.Header = http.Header{"Accept": {"*/*"}}
	body, err := h.p.open(ctx, req)
	if err != nil {
		return h.absent(ctx, ref, sandbox.OpDownload, name, err)
	}
	defer func() { _ = body.Close() }()
	if t := body.Header.Get("Content-Type"); !strings.HasPrefix(t, "application/octet-stream") {
		return h.p.failed(sandbox.OpDownload, h.id, nil, fmt.Errorf("the answer is %.80q, which is no file", t))
	}
	to := &keeper{w: w}
	if _, err = io.Copy(to, body); to.err != nil {
		return fmt.Errorf("vercel: download %s: %w", name, to.err)
	}
	return err
}

// A keeper tells the errors of the caller's writer from those of the service.
type keeper struct {
	w   io.Writer
	err error
}

func (k *keeper) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	k.err = err
	return n, err
}

// place refuses what is no absolute path of a file.
func (h *handle) place(op sandbox.Op, name string) error {
	last := name[strings.LastIndexByte(name, '/')+1:]
	if !path.IsAbs(name) || last == "" || last == "." || last == ".." || strings.ContainsRune(name, 0) || !utf8.ValidString(name) {
		return h.p.refuse(op, h.id, sandbox.ErrInvalid, fmt.Errorf("%q is not the absolute path of a file", name))
	}
	return nil
}

// absent tells the two meanings of a 404 apart: no such file, no such session. The service's code for both is not known,
// so the session is looked at.
func (h *handle) absent(ctx context.Context, r ref, op sandbox.Op, name string, err error) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || e.Status != http.StatusNotFound {
		return err
	}
	if gone := h.running(ctx, r, op); gone != nil {
		return gone
	}
	return &sandbox.APIError{
		Provider: h.p.name, Op: op, ID: h.id, Status: e.Status, Code: e.Code, Refused: true,
		Err: &fs.PathError{Op: string(op), Path: name, Err: fs.ErrNotExist},
	}
}
