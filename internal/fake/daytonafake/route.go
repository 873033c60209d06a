package daytonafake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake/wire"
)

// maxBody is how much of a request's body is read.
const maxBody = 256 << 20

// call is one request on its way through a handler.
type call struct {
	*http.Request
	body  []byte
	out   *answer
	raw   http.ResponseWriter // for what takes the connection over
	log   *wire.Entry
	fault Fault
	from  caller
}

// answer is one that is not sent before it is whole, so that a fault can still be put in its place.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// handler answers with a value that becomes JSON; nil: the body, if any, has been written to c.out.
type handler func(c *call) (status int, body any, err error)

// operation is one route.
type operation struct {
	s      *Server
	name   string
	plane  plane
	handle handler
}

type plane int

const (
	control plane = iota
	toolbox
	public // of the control plane, for anybody
)

func (s *Server) routes() {
	for _, o := range []struct {
		plane         plane
		name, pattern string
		handle        handler
	}{
		{control, "createSandbox", "POST /api/sandbox", s.create},
		{control, "listSandboxes", "GET /api/sandbox", s.list},
		{control, "listSandboxesPaginated_deprecated", "GET /api/sandbox/paginated", s.listPaginated},
		{control, "getSandbox", "GET /api/sandbox/{id}", s.get},
		{control, "deleteSandbox", "DELETE /api/sandbox/{id}", s.delete},
		{control, "setTtl", "POST /api/sandbox/{id}/ttl/{n}", s.setTTL},
		{control, "setAutostopInterval", "POST /api/sandbox/{id}/autostop/{n}", s.setInterval("autoStopInterval")},
		{control, "setAutoPauseInterval", "POST /api/sandbox/{id}/autopause/{n}", s.setInterval("autoPauseInterval")},
		{control, "setAutoArchiveInterval", "POST /api/sandbox/{id}/autoarchive/{n}", s.setInterval("autoArchiveInterval")},
		{control, "setAutoDeleteInterval", "POST /api/sandbox/{id}/autodelete/{n}", s.setInterval("autoDeleteInterval")},
		{control, "updateLastActivity", "POST /api/sandbox/{id}/last-activity", s.refresh},
		{control, "stopSandbox", "POST /api/sandbox/{id}/stop", s.stopBox},
		{control, "startSandbox", "POST /api/sandbox/{id}/start", s.startBox},
		{control, "pauseSandbox", "POST /api/sandbox/{id}/pause", s.pauseBox},
		{control, "archiveSandbox", "POST /api/sandbox/{id}/archive", s.archiveBox},
		{control, "recoverSandbox", "POST /api/sandbox/{id}/recover", s.recoverBox},
		{control, "forkSandbox", "POST /api/sandbox/{id}/fork", s.fork},
		{control, "getSandboxForks", "GET /api/sandbox/{id}/forks", s.forks},
		{control, "replaceLabels", "PUT /api/sandbox/{id}/labels", s.setLabels},
		{control, "updatePublicStatus", "POST /api/sandbox/{id}/public/{flag}", s.setPublic},
		{control, "getToolboxProxyUrl", "GET /api/sandbox/{id}/toolbox-proxy-url", s.toolboxURL},
		{control, "getPortPreviewUrl", "GET /api/sandbox/{id}/ports/{port}/preview-url", s.previewURL},
		{control, "getSignedPortPreviewUrl", "GET /api/sandbox/{id}/ports/{port}/signed-preview-url", s.signedPreviewURL},
		{control, "createSandboxSnapshot", "POST /api/sandbox/{id}/snapshot", s.makeSnapshot},
		{control, "getAllSnapshots", "GET /api/snapshots", s.listSnapshots},
		{control, "getSnapshot", "GET /api/snapshots/{snapshot}", s.getSnapshot},
		{control, "removeSnapshot", "DELETE /api/snapshots/{snapshot}", s.removeSnapshot},
		{control, "getCurrentApiKey", "GET /api/api-keys/current", s.currentKey},
		{public, "HealthController_live", "GET /api/health", health},

		{toolbox, "ExecuteCommand", "POST /toolbox/{id}/process/execute", s.execute},
		{toolbox, "CodeRun", "POST /toolbox/{id}/process/code-run", s.codeRun},
		{toolbox, "CreateSession", "POST /toolbox/{id}/process/session", s.createSession},
		{toolbox, "ListSessions", "GET /toolbox/{id}/process/session", s.listSessions},
		{toolbox, "GetSession", "GET /toolbox/{id}/process/session/{session}", s.getSession},
		{toolbox, "DeleteSession", "DELETE /toolbox/{id}/process/session/{session}", s.deleteSession},
		{toolbox, "SessionExecuteCommand", "POST /toolbox/{id}/process/session/{session}/exec", s.sessionExec},
		{toolbox, "GetSessionCommand", "GET /toolbox/{id}/process/session/{session}/command/{command}", s.getCommand},
		{toolbox, "GetSessionCommandLogs", "GET /toolbox/{id}/process/session/{session}/command/{command}/logs", s.logs},
		{toolbox, "SendInput", "POST /toolbox/{id}/process/session/{session}/command/{command}/input", s.sendInput},
		{toolbox, "UploadFiles", "POST /toolbox/{id}/files/bulk-upload", s.uploadMany},
		{toolbox, "UploadFile", "POST /toolbox/{id}/files/upload-v2", s.uploadOne},
		{toolbox, "DownloadFiles", "POST /toolbox/{id}/files/bulk-download", s.downloadMany},
		{toolbox, "DownloadFile", "GET /toolbox/{id}/files/download", s.downloadOne},
		{toolbox, "ListFiles", "GET /toolbox/{id}/files", s.listFiles},
		{toolbox, "GetFileInfo", "GET /toolbox/{id}/files/info", s.fileInfo},
		{toolbox, "CreateFolder", "POST /toolbox/{id}/files/folder", s.createFolder},
		{toolbox, "MoveFile", "POST /toolbox/{id}/files/move", s.moveFile},
		{toolbox, "DeleteFile", "DELETE /toolbox/{id}/files", s.deleteFile},
		{toolbox, "GetWorkDir", "GET /toolbox/{id}/work-dir", s.workDir},
		{toolbox, "GetUserHomeDir", "GET /toolbox/{id}/user-home-dir", s.workDir},
		{toolbox, "UpdateEnv", "POST /toolbox/{id}/env", s.updateEnv},
		{toolbox, "GetVersion", "GET /toolbox/{id}/version", s.version},
	} {
		s.mux.Handle(o.pattern, &operation{s, o.name, o.plane, o.handle})
	}
	noRoute := func(c *call) (int, any, error) { return 0, nil, cannot(c.Request) }
	s.mux.Handle("/api/", &operation{s, "", public, noRoute})
	s.mux.Handle("/toolbox/{id}/", &operation{s, "", toolbox, noRoute})
	s.mux.Handle("/", &operation{s, "", public, dashboard})
}

func health(*call) (int, any, error) { return http.StatusOK, map[string]any{"status": "ok"}, nil }

// dashboard is what a path outside of the API leads to.
func dashboard(c *call) (int, any, error) {
	c.out.header.Set("Content-Type", "text/html; charset=utf-8")
	c.out.body.WriteString("<!doctype html><title>Daytona</title><div id=root></div>\n")
	return http.StatusOK, nil, nil
}

func (o *operation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := o.s
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	c := &call{Request: r, body: body, raw: w, out: &answer{header: w.Header().Clone()}, log: s.Note(s.svc.Now(), o.name, r, body, previewToken)}
	if err != nil {
		panic(http.ErrAbortHandler) // the client broke off
	}
	c.fault = s.Take(o.name)
	if c.fault.Instead() {
		s.Meet(c.Context(), c.fault, s.base.Done())
		c.spoil(s)
		c.send()
		return
	}
	status, value, err := o.serve(c)
	if c.out == nil {
		return // the connection was taken over
	}
	if err != nil {
		c.out.body.Reset()
		status, value = s.problem(c, o.plane, err)
	}
	if value != nil {
		c.fill(status, value)
	}
	c.out.status = status
	if c.fault.After || c.fault.Delay > 0 {
		s.Meet(c.Context(), c.fault, s.base.Done())
	}
	if c.fault.After {
		c.spoil(s)
	}
	c.send()
}

// fill makes a value the answer.
func (c *call) fill(status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("daytonafake: %s: %v", c.log.Operation(), err)) // a mistake of this package's
	}
	c.out.header.Set("Content-Type", "application/json; charset=utf-8")
	c.out.status = status
	c.out.body.Reset()
	c.out.body.Write(text)
}

func (o *operation) serve(c *call) (int, any, error) {
	s := o.s
	switch o.plane {
	case control:
		if s.quirk().Down {
			return 0, nil, &problem{status: http.StatusServiceUnavailable, message: "The service is not available"}
		}
		if c.from = s.who(c.Request); c.from == nobody {
			return 0, nil, &problem{status: http.StatusUnauthorized, message: "Invalid credentials"}
		}
		if id := c.PathValue("id"); c.from == foreigner && id != "" {
			return 0, nil, unknown(id)
		}
	case toolbox:
		done, err := s.admit(c)
		if err != nil {
			return 0, nil, err
		}
		defer done()
	}
	return o.handle(c)
}

// send sends the answer, or as much of it as its fault lets through.
func (c *call) send() {
	for k, v := range c.fault.Header {
		c.out.header[http.CanonicalHeaderKey(k)] = v
	}
	body := c.out.body.Bytes()
	c.log.Head(c.out.status, c.out.header)
	c.log.Body(body)
	h := c.raw.Header()
	for k, v := range c.out.header {
		h[k] = v
	}
	if c.out.status != http.StatusNoContent {
		h.Set("Content-Length", fmt.Sprint(len(body)))
	}
	c.raw.WriteHeader(c.out.status)
	if cut := c.fault.Cut; cut > 0 && cut < len(body) {
		_, _ = c.raw.Write(body[:cut])
		_ = http.NewResponseController(c.raw).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = c.raw.Write(body)
}

// decode reads a JSON body into v. An empty one is an empty object.
func (c *call) decode(v any) error {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return nil
	}
	err := json.Unmarshal(c.body, v)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid("%s must be of type %s", e.Field, jsonType(e.Type.Kind().String()))
	}
	if err != nil {
		return invalid("the body is no valid JSON")
	}
	return nil
}

func jsonType(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"):
		return "integer"
	case kind == "map" || kind == "struct":
		return "object"
	case kind == "slice":
		return "array"
	}
	return kind
}
