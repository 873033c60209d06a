package e2b

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
	"sync"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const filesPath = "/files"

// Upload writes a file as the template's default user. An upload in which nothing moves for 100 s is given up; the time
// that r takes does not count.
func (h *handle) Upload(ctx context.Context, name string, r io.Reader) error {
	rec, query, err := h.file(ctx, sandbox.OpUpload, name)
	if err != nil {
		return err
	}
	src := &source{r: r}
	defer src.shut()
	body, contentType := form(name, src)
	b, err := h.p.inside.Open(ctx, h.to(rec, httpapi.Request{
		Op: sandbox.OpUpload, Method: http.MethodPost, Path: filesPath, Query: query, Stream: body,
		Header: http.Header{"Content-Type": {contentType}}, OK: []int{http.StatusOK}, Timeout: -1, Idle: silence,
	}, ""))
	if failed := src.failed(); failed != nil && ctx.Err() == nil { // whatever came of it, that is why
		if b != nil {
			_ = b.Close()
		}
		return h.fault(sandbox.OpUpload, fmt.Errorf("reading what to upload: %w", failed))
	}
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	// Its answer names what was written: without that, something else has answered.
	const most = 64 << 10
	said, err := io.ReadAll(io.LimitReader(b, most))
	if err != nil {
		return b.Fault(err)
	}
	if !strings.HasPrefix(strings.TrimSpace(string(said)), `[{`) {
		return h.fault(sandbox.OpUpload, errors.New("the answer does not name the file: does a proxy answer?"))
	}
	return nil
}

// Download copies a file, read as the template's default user. A folder is [sandbox.ErrInvalid].
func (h *handle) Download(ctx context.Context, name string, w io.Writer) error {
	rec, query, err := h.file(ctx, sandbox.OpDownload, name)
	if err != nil {
		return err
	}
	b, err := h.p.inside.Open(ctx, h.to(rec, httpapi.Request{
		Op: sandbox.OpDownload, Method: http.MethodGet, Path: filesPath, Query: query,
		Header: http.Header{"Accept": {"*/*"}}, OK: []int{http.StatusOK}, Idle: silence,
		Rules: httpapi.Rules{{Status: http.StatusNotFound, Kind: fs.ErrNotExist}},
	}, ""))
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	_, err = io.Copy(w, b)
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	if e, ok := errors.AsType[*sandbox.APIError](err); ok {
		return e
	}
	return h.fault(sandbox.OpDownload, fmt.Errorf("writing what was downloaded: %w", err))
}

// file checks a name and returns the query for it.
func (h *handle) file(ctx context.Context, op sandbox.Op, name string) (*Record, string, error) {
	if !path.IsAbs(name) || strings.ContainsRune(name, 0) {
		return nil, "", h.refuse(op, sandbox.ErrInvalid, fmt.Errorf("path %q is not absolute", name))
	}
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	rec, err := h.record(ctx, op)
	return rec, "path=" + url.QueryEscape(name), err
}

// form wraps r as the only file of a form, without reading it.
func form(name string, r io.Reader) (body io.Reader, contentType string) {
	var b strings.Builder
	w := multipart.NewWriter(&b)
	_, _ = w.CreateFormFile("file", name) // a Builder takes everything
	head := b.String()
	b.Reset()
	_ = w.Close()
	return io.MultiReader(strings.NewReader(head), r, strings.NewReader(b.String())), w.FormDataContentType()
}

// A source remembers how its reader failed, and after shut reads no more.
type source struct {
	r    io.Reader
	mu   sync.Mutex // not held while r is read
	err  error
	over bool
}

func (s *source) Read(p []byte) (int, error) {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over {
		return 0, errors.New("the upload is over")
	}
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return n, err
}

func (s *source) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *source) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}
