package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Exit codes of our own programs, which cat has none of.
const (
	codeMissing = 144
	codeFolder  = 145
)

// Upload has cat write r to the file, as the container's user. A file that is replaced keeps its mode.
func (h *handle) Upload(ctx context.Context, name string, r io.Reader) error {
	if err := h.place(sandbox.OpUpload, name); err != nil {
		return err
	}
	in := &source{r: r}
	res, err := h.exec(ctx, sandbox.OpUpload, sandbox.Cmd{
		Args: []string{
			"sh", "-c", `if [ -d "$1" ]; then exit 145; fi; mkdir -p "$2" && exec cat >"$1"`, "sandglass", name, path.Dir(name),
		},
		Stdin: in,
	})
	switch {
	case err != nil && in.failed() != nil && ctx.Err() == nil:
		return fmt.Errorf("kubernetes: upload %s: %w", name, in.failed())
	case err != nil:
		return err
	}
	return h.outcome(sandbox.OpUpload, name, res)
}

// Download has cat read the file, as the container's user.
func (h *handle) Download(ctx context.Context, name string, w io.Writer) error {
	if err := h.place(sandbox.OpDownload, name); err != nil {
		return err
	}
	dctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &target{w: w, cancel: cancel}
	res, err := h.exec(dctx, sandbox.OpDownload, sandbox.Cmd{
		Args: []string{
			"sh", "-c", `if [ -d "$1" ]; then exit 145; fi; if ! [ -e "$1" ]; then exit 144; fi; exec cat "$1"`, "sandglass", name,
		},
		Stdout: out, Stderr: io.Discard,
	})
	switch {
	case out.failed() != nil && ctx.Err() == nil:
		return fmt.Errorf("kubernetes: download %s: %w", name, out.failed())
	case err != nil:
		return err
	}
	return h.outcome(sandbox.OpDownload, name, res)
}

// outcome says what the exit code of one of our programs means.
func (h *handle) outcome(op sandbox.Op, name string, res sandbox.Result) error {
	e := &sandbox.APIError{Provider: h.p.name, Op: op, ID: h.id}
	switch res.ExitCode {
	case 0:
		return nil
	case codeMissing:
		e.Refused, e.Err = true, &fs.PathError{Op: string(op), Path: name, Err: fs.ErrNotExist}
	case codeFolder:
		e.Refused, e.Kind, e.Err = true, sandbox.ErrInvalid, fmt.Errorf("%s is a folder", name)
	default:
		said := strings.ToValidUTF8(string(bytes.TrimSpace(res.Stderr)), "")
		e.Err = fmt.Errorf("%s: exit code %d: %.200s", name, res.ExitCode, said)
	}
	return e
}

// place refuses what is no absolute path of a file.
func (h *handle) place(op sandbox.Op, name string) error {
	last := name[strings.LastIndexByte(name, '/')+1:]
	if !path.IsAbs(name) || last == "" || last == "." || last == ".." || strings.ContainsRune(name, 0) {
		return h.p.refuse(op, h.id, sandbox.ErrInvalid, fmt.Errorf("%q is not the absolute path of a file", name))
	}
	return nil
}

// A source tells the errors of the caller's reader from those of the cluster.
type source struct {
	r  io.Reader
	mu sync.Mutex // held for memory operations only
	at error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.mu.Lock()
		s.at = err
		s.mu.Unlock()
	}
	return n, err
}

func (s *source) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// A target does so for the caller's writer, and ends the call when that fails: the command would otherwise write on, to
// nobody.
type target struct {
	w      io.Writer
	cancel context.CancelCauseFunc
	mu     sync.Mutex // held for memory operations only
	at     error
}

func (t *target) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	if err != nil {
		t.mu.Lock()
		t.at = err
		t.mu.Unlock()
		t.cancel(err)
	}
	return n, err
}

func (t *target) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}
