package vercelfake

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
	"path"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// writeFiles unpacks an archive.
func (s *Server) writeFiles(ctx context.Context, c *call) (any, error) {
	if kind := c.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/gzip") {
		return nil, invalid("the content type must be application/gzip, not %q", kind)
	}
	ses, use, err := s.use(ctx, c, sandbox.OpUpload)
	if err != nil {
		return nil, err
	}
	defer use.Release()
	if use.Effect() != fake.EffectNone {
		if err := unpack(ctx, s.disk(ctx, ses), within(c.Header.Get("X-Cwd"), "."), c.body); err != nil {
			return nil, err
		}
	}
	if err := use.After(ctx); err != nil {
		return nil, err
	}
	return map[string]any{}, nil
}

func unpack(ctx context.Context, disk *shell.FS, dir string, body []byte) error {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return invalid("the body is not in gzip format")
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return invalid("the archive cannot be read: %v", err)
		}
		name := within(dir, strings.TrimLeft(h.Name, "/"))
		switch h.Typeflag {
		case tar.TypeDir:
			if err := makeDir(ctx, disk, name); err != nil {
				return err
			}
			continue
		case tar.TypeReg:
		default:
			return invalid("%s: the kind of entry is not supported", h.Name)
		}
		if err := makeDir(ctx, disk, path.Dir(name)); err != nil {
			return err
		}
		if err := disk.WriteFile(name, r); err != nil {
			return invalid("%v", err)
		}
		mode := fmt.Sprintf("%o", h.Mode&0o7777)
		for _, args := range [][]string{{"chmod", mode, name}, {"chown", defaultUser, name}} {
			if _, why, exit := tool(ctx, disk, nil, args...); exit != 0 {
				return invalid("%s", why)
			}
		}
	}
}

// makeDir makes a folder and its parents, which belong to the default user.
func makeDir(ctx context.Context, disk *shell.FS, name string) error {
	const script = `d=$1; while [ ! -d "$d" ]; do new=$d; d=$(dirname "$d"); done
[ -z "$new" ] || { mkdir -p "$1" && chown -R "$2" "$new"; }`
	if _, why, exit := tool(ctx, disk, nil, "sh", "-c", script, "mkdir", name, defaultUser); exit != 0 {
		return invalid("%s", why)
	}
	return nil
}

// readFile answers with a file's content.
func (s *Server) readFile(ctx context.Context, c *call) (any, error) {
	var body struct {
		Path string `json:"path"`
		CWD  string `json:"cwd"`
	}
	if err := c.decode(&body); err != nil {
		return nil, err
	}
	if body.Path == "" {
		return nil, invalid("path is required")
	}
	ses, use, err := s.use(ctx, c, sandbox.OpDownload)
	if err != nil {
		return nil, err
	}
	defer use.Release()
	var content bytes.Buffer
	if use.Effect() != fake.EffectNone {
		err = s.disk(ctx, ses).ReadFile(within(body.CWD, body.Path), &content)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.Quirks().NoFileCode:
		return nil, noSandbox(body.Path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, notFound("File %s was not found", body.Path)
	case err != nil:
		return nil, invalid("%v", err)
	}
	if err := use.After(ctx); err != nil {
		return nil, err
	}
	c.header.Set("Content-Type", "application/octet-stream")
	c.status, c.out = http.StatusOK, content.Bytes()
	return nil, nil
}

func (s *Server) mkdir(ctx context.Context, c *call) (any, error) {
	var body struct {
		Path      string `json:"path"`
		CWD       string `json:"cwd"`
		Recursive *bool  `json:"recursive"`
	}
	if err := c.decode(&body); err != nil {
		return nil, err
	}
	if body.Path == "" {
		return nil, invalid("path is required")
	}
	ses, use, err := s.use(ctx, c, sandbox.OpUpload)
	if err != nil {
		return nil, err
	}
	defer use.Release()
	disk, name := s.disk(ctx, ses), within(body.CWD, body.Path)
	recursive := !s.Quirks().StrictMkdir
	if body.Recursive != nil {
		recursive = *body.Recursive
	}
	if !recursive {
		_, why, exit := tool(ctx, disk, nil, "mkdir", name)
		if exit != 0 {
			return nil, invalid("%s", why)
		}
		tool(ctx, disk, nil, "chown", defaultUser, name)
	} else if err := makeDir(ctx, disk, name); err != nil {
		return nil, err
	}
	return map[string]any{}, nil
}
