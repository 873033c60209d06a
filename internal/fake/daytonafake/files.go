package daytonafake

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// boundary is what stands between the parts of a bulk download.
const boundary = "DAYTONA-FILE-BOUNDARY"

func noFile(name string) *problem {
	return &problem{status: http.StatusNotFound, code: "FILE_NOT_FOUND", message: "file not found: " + name}
}

// copying has a copy done as one use of the sandbox, for its faults.
func (s *Server) copying(c *call, op sandbox.Op, work func(b *box) error) error {
	use, err := s.svc.Use(c.Context(), op, c.machine())
	if err != nil {
		return err
	}
	defer use.Release()
	if use.Effect() != fake.EffectNone {
		if err := work(use.Data().(*box)); err != nil {
			return err
		}
	}
	if use.Ended() != nil {
		return &problem{status: http.StatusBadGateway, message: "the sandbox ended meanwhile"}
	}
	return use.After(c.Context())
}

// absolute puts a path that is relative below the home.
func (b *box) absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(b.home(), name)
}

// write makes a file and the folders above it, as the user whom commands run as.
func (b *box) write(name string, r io.Reader) error {
	if name == "" {
		return invalid("path is required")
	}
	name = b.absolute(name)
	_, said, exit := b.tool(r, "sh", "-c", `mkdir -p "$1" && cat >"$2"`, "sh", path.Dir(name), name)
	if exit != 0 {
		return fileProblem(name, said)
	}
	return nil
}

// read returns a file, or the problem with it.
func (b *box) read(name string) (string, *problem) {
	name = b.absolute(name)
	data, said, exit := b.tool(nil, "cat", name)
	if exit != 0 {
		return "", fileProblem(name, said)
	}
	return data, nil
}

// fileProblem puts what a utility said as the daemon puts it.
func fileProblem(name, said string) *problem {
	switch {
	case strings.Contains(said, "No such file"):
		return noFile(name)
	case strings.Contains(strings.ToLower(said), "permission denied"):
		return &problem{status: http.StatusForbidden, code: "FILE_ACCESS_DENIED", message: "access denied: " + name}
	}
	return &problem{status: http.StatusBadRequest, message: strings.TrimSpace(said)}
}

// parts calls f for each part of a multipart body.
func (c *call) parts(f func(p *multipart.Part) error) error {
	_, params, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return invalid("expected a multipart form")
	}
	r := multipart.NewReader(bytes.NewReader(c.body), params["boundary"])
	for {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return invalid("the multipart form is broken")
		}
		if err := f(p); err != nil {
			return err
		}
	}
}

// uploadMany takes files as parts files[i].path and files[i].file, the path first.
func (s *Server) uploadMany(c *call) (int, any, error) {
	err := s.copying(c, sandbox.OpUpload, func(b *box) error {
		paths := map[string]string{}
		return c.parts(func(p *multipart.Part) error {
			name := p.FormName()
			if index, ok := strings.CutSuffix(name, ".path"); ok {
				text, err := io.ReadAll(p)
				if err != nil {
					return invalid("the multipart form is broken")
				}
				paths[index] = string(text)
			} else if index, ok := strings.CutSuffix(name, ".file"); ok {
				return b.write(paths[index], p)
			}
			return nil
		})
	})
	return http.StatusOK, nil, err
}

// uploadOne takes one file as part "file", or as the body.
func (s *Server) uploadOne(c *call) (int, any, error) {
	name := c.URL.Query().Get("path")
	err := s.copying(c, sandbox.OpUpload, func(b *box) error {
		if !strings.HasPrefix(c.Header.Get("Content-Type"), "multipart/") {
			return b.write(name, bytes.NewReader(c.body))
		}
		found := false
		err := c.parts(func(p *multipart.Part) error {
			if p.FormName() != "file" {
				return nil
			}
			found = true
			return b.write(name, p)
		})
		if err == nil && !found {
			err = invalid("no file in the form")
		}
		return err
	})
	return http.StatusOK, map[string]any{"name": path.Base(name), "path": name, "type": "file"}, err
}

// downloadMany answers 200 whatever is missing: what went wrong with a file is a part of its own.
func (s *Server) downloadMany(c *call) (int, any, error) {
	var body struct {
		Paths []string `json:"paths"`
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	if len(body.Paths) == 0 {
		return 0, nil, &problem{status: http.StatusBadRequest, code: "INVALID_REQUEST_BODY", message: "paths are required"}
	}
	err := s.copying(c, sandbox.OpDownload, func(b *box) error {
		w := multipart.NewWriter(&c.out.body)
		_ = w.SetBoundary(boundary) // a valid one
		c.out.header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
		for _, name := range body.Paths {
			part, kind := "file", "application/octet-stream"
			data, p := b.read(name)
			if p != nil {
				part, kind = "error", "application/json"
				code := p.code
				if code == "" {
					code = "BAD_REQUEST"
				}
				data = fmt.Sprintf(`{"statusCode":%d,"message":%q,"code":%q,"source":"DAYTONA_DAEMON"}`, p.status, p.message, code)
			}
			h := textproto.MIMEHeader{"Content-Type": {kind}}
			h.Set("Content-Disposition", mime.FormatMediaType("form-data", map[string]string{"name": part, "filename": name}))
			out, err := w.CreatePart(h)
			if err != nil {
				return err
			}
			_, _ = io.WriteString(out, data) // into memory
		}
		return w.Close()
	})
	return http.StatusOK, nil, err
}

func (s *Server) downloadOne(c *call) (int, any, error) {
	name := c.URL.Query().Get("path")
	if name == "" {
		return 0, nil, invalid("path is required")
	}
	err := s.copying(c, sandbox.OpDownload, func(b *box) error {
		data, p := b.read(name)
		if p != nil {
			return p
		}
		c.out.header.Set("Content-Type", "application/octet-stream")
		c.out.header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))
		c.out.body.WriteString(data)
		return nil
	})
	return http.StatusOK, nil, err
}

// tool runs a utility as the sandbox's user, for what the file routes do.
func (b *box) tool(stdin io.Reader, args ...string) (stdout, stderr string, exit int) {
	var out, errs bytes.Buffer
	exit = shell.Run(context.Background(), b.disk(), shell.Command{
		Args: args, User: b.order.User, Stdin: stdin, Stdout: &out, Stderr: &errs,
	})
	return out.String(), errs.String(), exit
}

// stat describes files; what is not there is left out.
func (b *box) stat(names ...string) []map[string]any {
	list := []map[string]any{}
	for _, name := range names {
		text, _, exit := b.tool(nil, "stat", "-c", "%s|%Y|%a|%A|%U|%G|%F", name)
		f := strings.SplitN(strings.TrimSuffix(text, "\n"), "|", 7)
		if exit != 0 || len(f) < 7 {
			continue
		}
		size, _ := strconv.ParseInt(f[0], 10, 64)
		seconds, _ := strconv.ParseInt(f[1], 10, 64)
		at := time.Unix(seconds, 0).UTC()
		list = append(list, map[string]any{
			"name": path.Base(name), "path": name, "isDir": f[6] == "directory", "size": size,
			"modTime": at.String(), "modifiedAt": at.Format(time.RFC3339), "mode": f[3], "permissions": "0" + f[2],
			"owner": f[4], "group": f[5],
		})
	}
	return list
}

func (s *Server) listFiles(c *call) (int, any, error) {
	b := s.box(c)
	dir := b.absolute(c.URL.Query().Get("path"))
	depth := 1
	if text := c.URL.Query().Get("depth"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, nil, invalid("depth must be at least 1")
		}
		depth = n
	}
	out, said, exit := b.tool(nil, "find", dir, "-mindepth", "1", "-maxdepth", strconv.Itoa(depth), "-print0")
	if exit != 0 {
		return 0, nil, fileProblem(dir, said)
	}
	var names []string
	for name := range strings.SplitSeq(out, "\x00") {
		if name != "" {
			names = append(names, name)
		}
	}
	return http.StatusOK, b.stat(names...), nil
}

func (s *Server) fileInfo(c *call) (int, any, error) {
	b := s.box(c)
	name := b.absolute(c.URL.Query().Get("path"))
	list := b.stat(name)
	if len(list) == 0 {
		return 0, nil, noFile(name)
	}
	return http.StatusOK, list[0], nil
}

func (s *Server) createFolder(c *call) (int, any, error) {
	b, q := s.box(c), c.URL.Query()
	args := []string{"mkdir", "-p"}
	if mode := q.Get("mode"); mode != "" {
		args = append(args, "-m", mode)
	}
	name := b.absolute(q.Get("path"))
	if _, said, exit := b.tool(nil, append(args, name)...); exit != 0 {
		return 0, nil, fileProblem(name, said)
	}
	return http.StatusCreated, nil, nil
}

func (s *Server) moveFile(c *call) (int, any, error) {
	b, q := s.box(c), c.URL.Query()
	from, to := b.absolute(q.Get("source")), b.absolute(q.Get("destination"))
	if len(b.stat(from)) == 0 {
		return 0, nil, noFile(from)
	}
	if _, said, exit := b.tool(nil, "mv", from, to); exit != 0 {
		return 0, nil, fileProblem(to, said)
	}
	return http.StatusOK, nil, nil
}

func (s *Server) deleteFile(c *call) (int, any, error) {
	b, q := s.box(c), c.URL.Query()
	name := b.absolute(q.Get("path"))
	info := b.stat(name)
	if len(info) == 0 {
		return 0, nil, noFile(name)
	}
	args := []string{"rm", name}
	if info[0]["isDir"] == true {
		if q.Get("recursive") != "true" {
			return 0, nil, invalid("cannot delete directory without recursive flag")
		}
		args = []string{"rm", "-r", name}
	}
	if _, said, exit := b.tool(nil, args...); exit != 0 {
		return 0, nil, fileProblem(name, said)
	}
	return http.StatusNoContent, nil, nil
}
