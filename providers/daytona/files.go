package daytona

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// quiet is how long a transfer of a file may stand still.
const quiet = time.Minute

// Upload writes r to name, as it comes: nothing is kept in between on this side. The file belongs to the sandbox's user.
func (h *handle) Upload(ctx context.Context, name string, r io.Reader) error {
	if err := h.place(sandbox.OpUpload, name); err != nil {
		return err
	}
	base, err := h.base(ctx, sandbox.OpUpload)
	if err != nil {
		return err
	}
	out, in := io.Pipe()
	form := multipart.NewWriter(in)
	sent := make(chan error, 1)
	go func() {
		part, err := form.CreateFormFile("file", "file")
		if err == nil {
			_, err = io.Copy(part, r)
		}
		if err == nil {
			err = form.Close()
		}
		sent <- err
		in.CloseWithError(err)
	}()
	req := h.inside(base, sandbox.OpUpload, http.MethodPost, "/files/upload-v2")
	req.Query = url.Values{"path": {name}}.Encode()
	req.Stream, req.Idle, req.Timeout = out, quiet, -1
	req.Header.Set("Content-Type", form.FormDataContentType())
	body, err := h.p.open(ctx, req)
	_ = out.Close()
	if err == nil {
		defer func() { _ = body.Close() }()
		if strings.Contains(body.Header.Get("Content-Type"), "html") {
			return body.Fault(errors.New("a page for people is no answer of the machine"))
		}
		return nil
	}
	select {
	case bad := <-sent: // the reader's own error is what the caller needs
		if bad != nil && !errors.Is(bad, io.ErrClosedPipe) && ctx.Err() == nil {
			return fmt.Errorf("daytona: upload %s: %w", name, bad)
		}
	default:
	}
	return h.absent(ctx, sandbox.OpUpload, name, err)
}

// Download copies the file to w as it comes.
func (h *handle) Download(ctx context.Context, name string, w io.Writer) error {
	if err := h.place(sandbox.OpDownload, name); err != nil {
		return err
	}
	base, err := h.base(ctx, sandbox.OpDownload)
	if err != nil {
		return err
	}
	req := h.inside(base, sandbox.OpDownload, http.MethodGet, "/files/download")
	req.Query = url.Values{"path": {name}}.Encode()
	req.OK, req.Idle = []int{http.StatusOK}, quiet
	req.Header.Set("Accept", "*/*")
	body, err := h.p.open(ctx, req)
	if err != nil {
		return h.absent(ctx, sandbox.OpDownload, name, err)
	}
	defer func() { _ = body.Close() }()
	to := &keeper{w: w}
	if _, err = io.Copy(to, body); to.err != nil {
		return fmt.Errorf("daytona: download %s: %w", name, to.err)
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
	if !path.IsAbs(name) || strings.HasSuffix(name, "/") || strings.ContainsRune(name, 0) {
		return h.p.refuse(op, h.id, sandbox.ErrInvalid, fmt.Errorf("%q is not the absolute path of a file", name))
	}
	return nil
}

// absent tells the two meanings of a 404 apart: no such file, no such sandbox.
func (h *handle) absent(ctx context.Context, op sandbox.Op, name string, err error) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		return err
	}
	if e.Code != noFile {
		err = h.why(ctx, op, err)
	}
	if again, ok := errors.AsType[*sandbox.APIError](err); !ok || again != e || e.Status != http.StatusNotFound {
		return err
	}
	return &sandbox.APIError{
		Provider: h.p.name, Op: op, ID: h.id, Status: e.Status, Code: e.Code, Refused: true,
		Err: &fs.PathError{Op: string(op), Path: name, Err: fs.ErrNotExist},
	}
}
