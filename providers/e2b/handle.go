package e2b

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// envdPort is where the daemon inside listens.
const envdPort = "49983"

// A handle is one sandbox, as a function sees it.
type handle struct {
	p  *Provider
	id string

	mu  sync.Mutex
	rec *Record // nil until it is needed, where Open was not given it
}

var _ sandbox.Sandbox = (*handle)(nil)

// Open returns a handle on a sandbox. It makes no request; the first call that needs the sandbox's token makes one more
// where info does not come from Create or Get.
func (p *Provider) Open(info sandbox.Info) sandbox.Sandbox {
	h := &handle{p: p, id: info.ID}
	if rec, ok := info.Native.(*Record); ok && rec != nil && rec.whole {
		h.rec = rec
	}
	return h
}

// ID returns the service's id.
func (h *handle) ID() string { return h.id }

// record returns what the service knows of the sandbox, and does not change.
func (h *handle) record(ctx context.Context, op sandbox.Op) (*Record, error) {
	h.mu.Lock()
	rec := h.rec
	h.mu.Unlock()
	if rec != nil {
		return rec, nil
	}
	info, err := h.p.get(ctx, op, h.id)
	if err != nil {
		return nil, err
	}
	rec = info.Native.(*Record)
	h.mu.Lock()
	h.rec = rec
	h.mu.Unlock()
	return rec, nil
}

// fault is the error of something that was asked for, and of which it is not known what came of it.
func (h *handle) fault(op sandbox.Op, err error) error {
	return &sandbox.APIError{Provider: h.p.name, Op: op, ID: h.id, Err: err}
}

func (h *handle) refuse(op sandbox.Op, kind, err error) error {
	return h.p.api.Refuse(op, h.id, kind, err)
}

// domain returns where the sandbox's own hosts are. The service's word goes before ours, if it is a domain at all: the
// sandbox's token is sent there.
func (h *handle) domain(rec *Record) string {
	if rec.Domain != "" && domainName.MatchString(rec.Domain) {
		return rec.Domain
	}
	return h.p.domain
}

// to completes a request to the daemon inside: where it goes, its token, and whose rights it asks for.
func (h *handle) to(rec *Record, req httpapi.Request, user string) httpapi.Request {
	req.ID, req.Base = h.id, h.p.sandbox
	if req.Base == nil {
		req.Base = &url.URL{Scheme: "https", Host: envdPort + "-" + firstPart(h.id) + "." + h.domain(rec)}
	}
	header := http.Header{"E2b-Sandbox-Id": {h.id}, "E2b-Sandbox-Port": {envdPort}}
	if rec.token != "" {
		header.Set("X-Access-Token", rec.token)
		req.Secrets = append(req.Secrets, rec.token)
	}
	if user != "" {
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
	for name, values := range req.Header {
		header[name] = values
	}
	req.Header = header
	req.Rules = append(req.Rules, insideRules()...)
	return req
}

// insideRules: the proxy before the sandboxes answers 502 for one that is gone, and for one that sleeps; it proves
// nothing. What the daemon does not find is a file or a process.
func insideRules() httpapi.Rules {
	return httpapi.Rules{
		{Status: http.StatusBadRequest, Kind: sandbox.ErrInvalid, Refused: true},
		{Status: http.StatusUnauthorized, Kind: sandbox.ErrUnauthenticated, Refused: true},
		{Status: http.StatusForbidden, Kind: sandbox.ErrPermission, Refused: true},
		{Status: http.StatusNotFound, Refused: true},
	}
}

// Endpoint returns where the port can be reached. Nothing need listen yet. It asks the service only if the handle was
// opened without the sandbox's record.
func (h *handle) Endpoint(ctx context.Context, port int) (sandbox.Endpoint, error) {
	if port < 1 || port > 65535 {
		return sandbox.Endpoint{}, h.refuse(sandbox.OpEndpoint, sandbox.ErrInvalid, fmt.Errorf("port %d is none", port))
	}
	rec, err := h.record(ctx, sandbox.OpEndpoint)
	if err != nil {
		return sandbox.Endpoint{}, err
	}
	if !slices.Contains(rec.ports, port) {
		return sandbox.Endpoint{}, h.refuse(sandbox.OpEndpoint, sandbox.ErrInvalid, fmt.Errorf("port %d was not declared in Spec.Ports", port))
	}
	return sandbox.Endpoint{URL: "https://" + strconv.Itoa(port) + "-" + firstPart(h.id) + "." + h.domain(rec)}, nil
}

// older reports whether a version is known and lies before major.minor.patch.
func older(version string, than ...int) bool {
	parts := strings.Split(version, ".")
	if len(parts) < len(than) {
		return false
	}
	for i, want := range than {
		digits := strings.TrimLeft(parts[i], "v")
		if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			digits = digits[:end]
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return false
		}
		if n != want {
			return n < want
		}
	}
	return false
}

var errNotUTF8 = errors.New("not in UTF-8, which is all that the service can carry")
