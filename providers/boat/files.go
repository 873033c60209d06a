package boat

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

//go:embed place.sh
var placer string

//go:embed fetch.sh
var fetcher string

const (
	transferTime = 2 * time.Minute // for one piece of a file
	piece        = 4 << 20         // bytes of a file that are sent at once
)

// Exit codes of fetch.sh and place.sh.
const (
	isMissing = 44
	isFolder  = 45
)

// Upload writes r to name, in pieces of 4 MiB: the service takes a file as one text in memory, and only under /home/user
// and /tmp. So each piece goes to /tmp and a command puts it where it belongs, as "user".
func (h *handle) Upload(ctx context.Context, name string, r io.Reader) error {
	if err := h.place(sandbox.OpUpload, name); err != nil {
		return err
	}
	if err := h.ready(ctx, sandbox.OpUpload); err != nil {
		return err
	}
	part := "/tmp/sandglass-" + strings.ToLower(rand.Text())
	for mode := "new"; ; mode = "more" {
		chunk, last, err := next(ctx, r)
		if err != nil {
			return fmt.Errorf("boat: upload %s: %w", name, err)
		}
		if len(chunk) > 0 || mode == "new" {
			if err := h.put(ctx, sandbox.OpUpload, part, chunk, nil); err != nil {
				return err
			}
			end, err := h.sync(ctx, sandbox.OpUpload, script(placer, "sandglass-place", part, name, mode), transferTime)
			if err != nil {
				return err
			}
			if end.Code == nil || *end.Code != 0 {
				return h.fileError(sandbox.OpUpload, end.Code, name, end.Stderr)
			}
		}
		if last {
			return nil
		}
	}
}

// next reads the next piece. A reader may hang: what then hangs is a goroutine, until the reader returns.
func next(ctx context.Context, r io.Reader) (chunk []byte, last bool, err error) {
	type read struct {
		b   []byte
		err error
	}
	ch := make(chan read, 1)
	go func() {
		var b bytes.Buffer
		_, err := io.CopyN(&b, r, piece)
		ch <- read{b.Bytes(), err}
	}()
	select {
	case got := <-ch:
		if errors.Is(got.err, io.EOF) {
			return got.b, true, nil
		}
		return got.b, false, got.err
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
}

// Download copies the file to w as it comes, by a command: the service itself would send it as one text. It has ten
// minutes.
func (h *handle) Download(ctx context.Context, name string, w io.Writer) error {
	if err := h.place(sandbox.OpDownload, name); err != nil {
		return err
	}
	if !isID(h.id) {
		return h.p.noSuch(sandbox.OpDownload, h.id)
	}
	d := &unpacker{w: w}
	in := lines{take: d.take}
	var said bytes.Buffer
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.failed = func(err error) { cancel(err) } // nothing more is wanted
	end, err := h.stream(ctx, sandbox.OpDownload, script(fetcher, "sandglass-fetch", name), transferTime, &in, &limited{&said, maxNoise})
	switch {
	case d.broken != nil:
		return fmt.Errorf("boat: download %s: %w", name, d.broken)
	case err != nil:
		return err
	case end.TimedOut:
		return h.failed(sandbox.OpDownload, errors.New("it takes longer than the service allows"))
	case end.ExitCode == nil || *end.ExitCode != 0:
		return h.fileError(sandbox.OpDownload, end.ExitCode, name, said.String())
	case !d.done || d.fault != nil:
		return h.failed(sandbox.OpDownload, errors.Join(errors.New("it has not arrived whole"), d.fault))
	}
	return nil
}

// An unpacker passes on what fetch.sh writes.
type unpacker struct {
	w      io.Writer
	failed func(error)

	broken error // of w
	fault  error // of what comes
	done   bool
}

func (u *unpacker) take(line string) {
	switch {
	case u.broken != nil || u.fault != nil:
		return
	case u.done:
		u.fault = errors.New("there is more after its end")
		return
	case line == ".":
		u.done = true
		return
	}
	b, err := base64.StdEncoding.DecodeString(line)
	if err != nil {
		u.fault = errors.New("a line that cannot be read")
		return
	}
	if _, err := u.w.Write(b); err != nil {
		u.broken = err
		u.failed(err)
	}
}

// limited keeps the beginning of what is written to it.
type limited struct {
	b    *bytes.Buffer
	most int
}

func (l *limited) Write(p []byte) (int, error) {
	l.b.Write(p[:min(len(p), max(0, l.most-l.b.Len()))])
	return len(p), nil
}

// place refuses what is no absolute path of a file.
func (h *handle) place(op sandbox.Op, name string) error {
	if !path.IsAbs(name) || strings.HasSuffix(name, "/") || strings.ContainsRune(name, 0) {
		return h.p.refuse(op, h.id, sandbox.ErrInvalid, fmt.Errorf("%q is not the absolute path of a file", name))
	}
	return nil
}

// fileError is the error of a script that has ended with code.
func (h *handle) fileError(op sandbox.Op, code *int, name, said string) error {
	e := &sandbox.APIError{Provider: h.p.name, Op: op, ID: h.id, Status: http.StatusOK}
	switch {
	case code != nil && *code == isMissing:
		e.Refused, e.Err = true, &fs.PathError{Op: string(op), Path: name, Err: fs.ErrNotExist}
	case code != nil && *code == isFolder:
		e.Refused, e.Kind, e.Err = true, sandbox.ErrInvalid, &fs.PathError{Op: string(op), Path: name, Err: errors.New("is a folder")}
	default:
		said = strings.Join(strings.Fields(said), " ")
		e.Err = &fs.PathError{Op: string(op), Path: name, Err: errors.New(cut(h.p.api.Clean(said)))}
	}
	return e
}

func (h *handle) failed(op sandbox.Op, err error) error {
	return &sandbox.APIError{Provider: h.p.name, Op: op, ID: h.id, Kind: sandbox.ErrUnavailable, Err: err}
}
