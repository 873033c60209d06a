package e2bfake

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// fileUser returns whose file is meant, or answers.
func (s *Server) fileUser(w http.ResponseWriter, r *http.Request) (account, bool) {
	name := r.URL.Query().Get("username")
	who, ok := boxOf(r).m.account(name)
	if !ok {
		s.envdFail(w, http.StatusUnauthorized, "error looking up user '%s': user: unknown user %s", name, name)
	}
	return who, ok
}

// download sends a file.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	if !s.signed(r, "read") {
		s.envdFail(w, http.StatusUnauthorized, "unauthorized access, a valid access token or signature is needed")
		return
	}
	who, ok := s.fileUser(w, r)
	if !ok {
		return
	}
	use, ok := s.use(w, r, sandbox.OpDownload)
	if !ok {
		return
	}
	defer use.Release()
	m, name := boxOf(r).m, who.abs(r.URL.Query().Get("path"))
	var content bytes.Buffer
	err := m.disk().ReadFile(name, &content)
	_, _, dir := m.tool(r.Context(), "test", "-d", name)
	switch {
	case dir == 0:
		s.envdFail(w, http.StatusBadRequest, "path '%s' is a directory", name)
		return
	case errors.Is(err, fs.ErrNotExist):
		s.envdFail(w, http.StatusNotFound, "path '%s' does not exist", name)
		return
	case err != nil:
		s.envdFail(w, http.StatusInternalServerError, "error opening file '%s': %v", name, errors.Unwrap(err))
		return
	case s.Quirks().RefuseUncompressed && !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"):
		s.envdFail(w, http.StatusNotAcceptable, "no acceptable encoding found, supported: [gzip]")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(name)}))
	w.Header().Set("Content-Length", strconv.Itoa(content.Len()))
	half := content.Len() / 2
	if _, err := w.Write(content.Next(half)); err != nil {
		return
	}
	if err := use.After(r.Context()); err != nil { // a part of it is on its way
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(content.Bytes())
}

// written is a file that an upload has made.
type written struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// upload writes one file or several, and makes the folders that they are in.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	if !s.signed(r, "write") {
		s.envdFail(w, http.StatusUnauthorized, "unauthorized access, a valid access token or signature is needed")
		return
	}
	who, ok := s.fileUser(w, r)
	if !ok {
		return
	}
	use, ok := s.use(w, r, sandbox.OpUpload)
	if !ok {
		return
	}
	defer use.Release()
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		s.envdFail(w, http.StatusBadRequest, "error parsing content type: %v", err)
		return
	}
	all, ok := []written{}, false
	given := r.URL.Query().Get("path")
	switch kind {
	case "application/octet-stream":
		all, ok = s.uploadRaw(w, r, who, given)
	case "multipart/form-data":
		all, ok = s.uploadForm(w, r, who, given, params["boundary"])
	default:
		s.envdFail(w, http.StatusBadRequest, "content type %s is not supported", kind)
	}
	if !ok {
		return
	}
	if err := use.After(r.Context()); err != nil {
		s.useFail(w, boxOf(r), err)
		return
	}
	s.answer(w, http.StatusOK, all)
}

func (s *Server) uploadRaw(w http.ResponseWriter, r *http.Request, who account, given string) ([]written, bool) {
	if given == "" {
		s.envdFail(w, http.StatusBadRequest, "path is required")
		return nil, false
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			s.envdFail(w, http.StatusBadRequest, "error reading gzip: %v", err)
			return nil, false
		}
		body = z
	}
	f, ok := s.write(w, r, who, given, body)
	return []written{f}, ok
}

// uploadForm writes every part named "file": to the given path, or to what is given as its file name, which may be a
// whole path.
func (s *Server) uploadForm(w http.ResponseWriter, r *http.Request, who account, given, boundary string) ([]written, bool) {
	parts := multipart.NewReader(r.Body, boundary)
	var all []written
	for {
		part, err := parts.NextPart()
		switch {
		case err == io.EOF:
			return all, true
		case err != nil:
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler)
			}
			s.envdFail(w, http.StatusInternalServerError, "error parsing multipart form: %v", err)
			return nil, false
		}
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil || params["name"] != "file" {
			continue
		}
		name := given
		if name == "" {
			name = params["filename"]
		}
		if name == "" || given != "" && len(all) > 0 {
			s.envdFail(w, http.StatusBadRequest, "a path is needed for each file")
			return nil, false
		}
		f, ok := s.write(w, r, who, name, part)
		if !ok {
			return nil, false
		}
		all = append(all, f)
	}
}

// write makes one file, which then is the user's, with the folders that it needed.
func (s *Server) write(w http.ResponseWriter, r *http.Request, who account, given string, content io.Reader) (written, bool) {
	m, name := boxOf(r).m, who.abs(given)
	if _, _, dir := m.tool(r.Context(), "test", "-d", name); dir == 0 {
		s.envdFail(w, http.StatusBadRequest, "path is a directory: %s", name)
		return written{}, false
	}
	top := m.topmostNew(r.Context(), name)
	counted := &failingReader{r: content}
	if err := m.disk().WriteFile(name, counted); err != nil {
		switch {
		case counted.err != nil && r.Context().Err() != nil:
			panic(http.ErrAbortHandler)
		case strings.Contains(err.Error(), "No space left"):
			s.envdFail(w, http.StatusInsufficientStorage, "not enough disk space available")
		default:
			s.envdFail(w, http.StatusInternalServerError, "error writing file: %v", errors.Unwrap(err))
		}
		return written{}, false
	}
	_, _, _ = m.tool(r.Context(), "chown", "-R", who.name, top)
	return written{Name: path.Base(name), Path: name, Type: "file"}, true
}

// topmostNew returns the first folder on the way to name that is not there, or name.
func (m *machine) topmostNew(ctx context.Context, name string) string {
	top := name
	for p := path.Dir(name); p != "/"; p = path.Dir(p) {
		if _, _, exists := m.tool(ctx, "test", "-e", p); exists == 0 {
			break
		}
		top = p
	}
	return top
}

// failingReader remembers whether reading failed.
type failingReader struct {
	r   io.Reader
	err error
}

func (f *failingReader) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

// pathRequest is the body of most calls about files.
type pathRequest struct {
	Path        string `json:"path"`
	Depth       *int   `json:"depth"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

// place reads a request about a path and says whose it is.
func (s *Server) place(w http.ResponseWriter, r *http.Request) (req pathRequest, who account, ok bool) {
	if !s.rpcRequest(w, r, &req) {
		return req, who, false
	}
	if who, ok = user(r, boxOf(r).m); !ok {
		s.rpcFail(w, r, connectError{"unauthenticated", "invalid username"})
		return req, who, false
	}
	req.Path, req.Source, req.Destination = who.abs(req.Path), who.abs(req.Source), who.abs(req.Destination)
	return req, who, true
}

type entryAnswer struct {
	Entry entry `json:"entry"`
}

// tellEntry answers with one file, or that there is none.
func (s *Server) tellEntry(w http.ResponseWriter, r *http.Request, name string) {
	all := boxOf(r).m.entries(r.Context(), name)
	if len(all) != 1 {
		s.rpcFail(w, r, connectError{"not_found", "path '" + name + "' does not exist"})
		return
	}
	s.rpcAnswer(w, entryAnswer{all[0]})
}

func (s *Server) statFile(w http.ResponseWriter, r *http.Request) {
	if req, _, ok := s.place(w, r); ok {
		s.tellEntry(w, r, req.Path)
	}
}

func (s *Server) makeDir(w http.ResponseWriter, r *http.Request) {
	req, who, ok := s.place(w, r)
	if !ok {
		return
	}
	m := boxOf(r).m
	if _, _, exit := m.tool(r.Context(), "test", "-d", req.Path); exit == 0 {
		s.rpcFail(w, r, connectError{"already_exists", "directory '" + req.Path + "' already exists"})
		return
	}
	top := m.topmostNew(r.Context(), req.Path)
	if _, why, exit := m.tool(r.Context(), "mkdir", "-p", req.Path); exit != 0 {
		s.rpcFail(w, r, connectError{"invalid_argument", why})
		return
	}
	_, _, _ = m.tool(r.Context(), "chown", "-R", who.name, top)
	s.tellEntry(w, r, req.Path)
}

func (s *Server) moveFile(w http.ResponseWriter, r *http.Request) {
	req, _, ok := s.place(w, r)
	if !ok {
		return
	}
	m := boxOf(r).m
	if len(m.entries(r.Context(), req.Source)) == 0 {
		s.rpcFail(w, r, connectError{"not_found", "source '" + req.Source + "' does not exist"})
		return
	}
	_, _, _ = m.tool(r.Context(), "mkdir", "-p", path.Dir(req.Destination))
	if _, why, exit := m.tool(r.Context(), "mv", req.Source, req.Destination); exit != 0 {
		s.rpcFail(w, r, connectError{"internal", why})
		return
	}
	s.tellEntry(w, r, req.Destination)
}

func (s *Server) listDir(w http.ResponseWriter, r *http.Request) {
	req, _, ok := s.place(w, r)
	if !ok {
		return
	}
	depth := 1
	if req.Depth != nil && *req.Depth > 0 {
		depth = *req.Depth
	}
	m := boxOf(r).m
	switch all := m.entries(r.Context(), req.Path); {
	case len(all) == 0:
		s.rpcFail(w, r, connectError{"not_found", "directory '" + req.Path + "' does not exist"})
		return
	case all[0].Type != "FILE_TYPE_DIRECTORY":
		s.rpcFail(w, r, connectError{"invalid_argument", "path '" + req.Path + "' is not a directory"})
		return
	}
	out, _, _ := m.tool(r.Context(), "find", req.Path, "-mindepth", "1", "-maxdepth", strconv.Itoa(depth))
	var answer struct {
		Entries []entry `json:"entries,omitempty"`
	}
	if names := strings.Split(strings.TrimSuffix(out, "\n"), "\n"); out != "" {
		answer.Entries = m.entries(r.Context(), names...)
	}
	s.rpcAnswer(w, answer)
}

// removeFile removes a path and all below it. What is not there is removed already.
func (s *Server) removeFile(w http.ResponseWriter, r *http.Request) {
	req, _, ok := s.place(w, r)
	if !ok {
		return
	}
	if _, why, exit := boxOf(r).m.tool(r.Context(), "rm", "-rf", req.Path); exit != 0 {
		s.rpcFail(w, r, connectError{"internal", why})
		return
	}
	s.rpcAnswer(w, struct{}{})
}
