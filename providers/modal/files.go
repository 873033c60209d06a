package modal

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/sandbox"
)

var (
	//go:embed fetch.sh
	fetcher string

	//go:embed place.sh
	placer string
)

// Exit codes of fetch.sh and place.sh.
const (
	isMissing = 44
	isFolder  = 45
)

// transferTime is the service's limit of a transfer, and so of what an owner that dies leaves behind.
const transferTime = time.Hour

// Upload writes r to name as it is read, by a command in the sandbox, whose user the file belongs to. It has an hour.
// The SDK's own way needs a reader that can be read twice.
func (h *handle) Upload(ctx context.Context, name string, r io.Reader) error {
	if err := h.place(sandbox.OpUpload, name); err != nil {
		return err
	}
	in := &source{r: r, failed: make(chan struct{})}
	out, err := h.transfer(ctx, sandbox.OpUpload, name, []string{"sh", "-c", placer, "sandglass-place", name, path.Dir(name)}, in, nil, in.failed)
	switch {
	case in.err() != nil && ctx.Err() == nil:
		return fmt.Errorf("modal: upload %s: %w", name, in.err())
	case err != nil:
		return err
	case strings.TrimSpace(string(out.Stdout)) != "done":
		return h.p.failed(sandbox.OpUpload, h.id, nil, errors.New("it has not arrived whole"))
	}
	return nil
}

// Download copies the file to w as it comes. It has an hour.
func (h *handle) Download(ctx context.Context, name string, w io.Writer) error {
	if err := h.place(sandbox.OpDownload, name); err != nil {
		return err
	}
	to := &sink{w: w, failed: make(chan struct{})}
	_, err := h.transfer(ctx, sandbox.OpDownload, name, []string{"sh", "-c", fetcher, "sandglass-fetch", name}, nil, to, to.failed)
	if to.err() != nil && ctx.Err() == nil {
		return fmt.Errorf("modal: download %s: %w", name, to.err())
	}
	return err
}

// place refuses what is no path to a file.
func (h *handle) place(op sandbox.Op, name string) error {
	if !path.IsAbs(name) || strings.ContainsRune(name, 0) || strings.HasSuffix(name, "/") {
		return h.p.refuse(op, h.id, sandbox.ErrInvalid, fmt.Errorf("%.200q is no absolute path to a file", name))
	}
	return h.valid(op)
}

// transfer runs a command that copies, and gives it up when failed is closed.
func (h *handle) transfer(
	ctx context.Context, op sandbox.Op, name string, args []string, in io.Reader, to io.Writer, failed <-chan struct{},
) (sandbox.Result, error) {
	if expired(ctx) {
		return sandbox.Result{}, context.Cause(ctx)
	}
	bare, err := h.bare(ctx, op)
	if err != nil {
		return sandbox.Result{}, err
	}
	if bare {
		return sandbox.Result{}, h.p.refuse(op, h.id, errors.ErrUnsupported, errors.New("the sandbox has no shell"))
	}
	tctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-failed:
			cancel(errors.New("given up"))
		case <-tctx.Done():
		}
	}()
	mark := random()
	r := &running{
		h: h, op: op, mark: mark, command: command{args: args, env: map[string]string{markVar: mark}, limit: transferTime}, stdin: in,
		out: capture.NewOutput(to, nil),
	}
	if err := within(args); err != nil {
		return sandbox.Result{}, h.p.refuse(op, h.id, sandbox.ErrInvalid, err)
	}
	res, err := r.run(tctx, 0, time.Now())
	switch {
	case err != nil:
		return res, err
	case res.ExitCode == isMissing:
		return res, h.p.failed(op, h.id, nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist})
	case res.ExitCode == isFolder:
		return res, h.p.failed(op, h.id, sandbox.ErrInvalid, fmt.Errorf("%s is a folder", name))
	case res.ExitCode != 0:
		return res, h.p.failed(op, h.id, nil, fmt.Errorf("%s: %w", name, res.Err()))
	}
	return res, nil
}

// A source is a reader that remembers why it failed.
type source struct {
	r      io.Reader
	failed chan struct{}

	mu    sync.Mutex
	fault error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fault == nil {
			s.fault = err
			close(s.failed)
		}
	}
	return n, err
}

func (s *source) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// A sink is a writer that remembers why it failed.
type sink struct {
	w      io.Writer
	failed chan struct{}

	mu    sync.Mutex
	fault error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fault == nil {
			s.fault = err
			close(s.failed)
		}
	}
	return n, err
}

func (s *sink) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}
