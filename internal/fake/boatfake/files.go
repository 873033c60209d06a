package boatfake

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// reachable returns the full path of a file that may be copied: below the home or /tmp. Links are not looked through.
func reachable(name string) (string, error) {
	full := within(name)
	if name == "" || !strings.HasPrefix(full, homeDir+"/") && !strings.HasPrefix(full, "/tmp/") {
		return "", refusal(http.StatusBadRequest, "invalid_path", "path must lie below %s or /tmp", homeDir)
	}
	return full, nil
}

// copying has a copy done as one use of the sandbox, for its faults.
func (s *Server) copying(c *call, op sandbox.Op, work func(f *shell.FS) error) error {
	b, use, err := s.use(c, op)
	if err != nil {
		return err
	}
	defer use.Release()
	if use.Effect() != fake.EffectNone {
		if err := work(s.disk(c.Context(), b)); err != nil {
			return err
		}
	}
	if use.Ended() != nil {
		return unreachable()
	}
	return use.After(c.Context())
}

// writeFile writes one as the user whom commands run as. Folders are not made.
func (s *Server) writeFile(c *call) (int, any, error) {
	var body struct {
		Path     string  `json:"path"`
		Content  *string `json:"content"`
		Encoding string  `json:"encoding"`
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	full, err := reachable(body.Path)
	if err != nil {
		return 0, nil, err
	}
	if body.Content == nil {
		return 0, nil, invalid("content is required")
	}
	data, encoding := *body.Content, body.Encoding
	switch encoding {
	case "", "utf8":
		encoding = "utf8"
	case "base64":
		b, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return 0, nil, invalid("content is no valid base64")
		}
		data = string(b)
	default:
		return 0, nil, invalid("encoding must be utf8 or base64")
	}
	err = s.copying(c, sandbox.OpUpload, func(f *shell.FS) error {
		_, said, exit := tool(c.Context(), f, user, strings.NewReader(data), "sh", "-c", `cat >"$1"`, "sh", full)
		if exit != 0 {
			return noFile(said)
		}
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{
		"ok": true, "type": "file.written", "success": true, "path": full, "encoding": encoding, "size": len(data),
	}, nil
}

// fetch reads a file as the user whom commands run as. That it is missing is the same answer as that its sandbox is.
func (s *Server) fetch(c *call) (full, data string, err error) {
	if full, err = reachable(c.URL.Query().Get("path")); err != nil {
		return "", "", err
	}
	err = s.copying(c, sandbox.OpDownload, func(f *shell.FS) error {
		out, said, exit := tool(c.Context(), f, user, nil, "cat", full)
		if exit != 0 {
			return noFile(said)
		}
		data = out
		return nil
	})
	return full, data, err
}

func (s *Server) readFile(c *call) (int, any, error) {
	encoding := c.URL.Query().Get("encoding")
	switch encoding {
	case "":
		encoding = "utf8"
	case "utf8", "base64":
	default:
		return 0, nil, invalid("encoding must be utf8 or base64")
	}
	full, data, err := s.fetch(c)
	if err != nil {
		return 0, nil, err
	}
	content := text8([]byte(data))
	if encoding == "base64" {
		content = base64.StdEncoding.EncodeToString([]byte(data))
	}
	return http.StatusOK, map[string]any{
		"ok": true, "type": "file.read", "success": true, "path": full, "encoding": encoding, "size": len(data), "content": content,
	}, nil
}

// artifact is a file as it is.
func (s *Server) artifact(c *call) (int, any, error) {
	_, data, err := s.fetch(c)
	if err != nil {
		return 0, nil, err
	}
	c.header.Set("Content-Type", "application/octet-stream")
	c.status, c.out = http.StatusOK, []byte(data)
	return http.StatusOK, nil, nil
}
