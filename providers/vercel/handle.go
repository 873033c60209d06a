package vercel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A handle is one session. All that it does goes to that session: another one under the same name is another machine.
type handle struct {
	p  *Provider
	id string

	mu    sync.Mutex // never held over a request
	known *known     // nil: not asked yet
}

var _ sandbox.Sandbox = (*handle)(nil)

// Open returns a handle on the session in info.ID; with a name alone, on the one that runs at the first call. It makes no
// request.
func (p *Provider) Open(info sandbox.Info) sandbox.Sandbox {
	k, _ := info.Native.(*known)
	return &handle{p: p, id: info.ID, known: k}
}

// ID returns the sandbox's id.
func (h *handle) ID() string { return h.id }

// ref returns the handle's name and session.
func (h *handle) ref(ctx context.Context, op sandbox.Op) (ref, error) {
	r, err := h.p.parse(op, h.id)
	if err != nil || r.session != "" {
		return r, err
	}
	h.mu.Lock()
	k := h.known
	h.mu.Unlock()
	if k == nil {
		if k, err = h.look(ctx, op); err != nil {
			return r, err
		}
	}
	r.session = k.session
	return r, nil
}

// look asks what there is to know.
func (h *handle) look(ctx context.Context, op sandbox.Op) (*known, error) {
	info, err := h.p.get(ctx, op, h.id)
	if err != nil {
		return nil, err
	}
	k, _ := info.Native.(*known)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = k
	return k, nil
}

// inside is a request to the session.
func (h *handle) inside(r ref, op sandbox.Op, method, path string) httpapi.Request {
	return httpapi.Request{Op: op, ID: h.id, Method: method, Path: "/v2/sandboxes/sessions/" + r.session + path}
}

// Endpoint returns the address of a port. It is public: whoever knows it gets in. Nothing need listen yet.
func (h *handle) Endpoint(ctx context.Context, port int) (sandbox.Endpoint, error) {
	refuse := func(format string, args ...any) (sandbox.Endpoint, error) {
		return sandbox.Endpoint{}, h.p.refuse(sandbox.OpEndpoint, h.id, sandbox.ErrInvalid, fmt.Errorf(format, args...))
	}
	if port < 1 || port > 65535 {
		return refuse("port %d is none", port)
	}
	h.mu.Lock()
	k := h.known
	h.mu.Unlock()
	is := func(r route) bool { return r.Port == port && !r.System }
	if k == nil || !slices.ContainsFunc(k.routes, is) {
		var err error
		if k, err = h.look(ctx, sandbox.OpEndpoint); err != nil {
			return sandbox.Endpoint{}, err
		}
	}
	i := slices.IndexFunc(k.routes, is)
	if i < 0 {
		return refuse("port %d was not declared in Spec.Ports", port)
	}
	address := k.routes[i].URL
	if address == "" && names.MatchString(k.routes[i].Subdomain) { // as the official SDK makes it
		address = "https://" + k.routes[i].Subdomain + ".vercel.run"
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return sandbox.Endpoint{}, h.p.failed(sandbox.OpEndpoint, h.id, nil, errors.New("the service tells an address that is none"))
	}
	return sandbox.Endpoint{URL: address}, nil
}

// running returns nil if the session is there and not over, or why it is not.
func (h *handle) running(ctx context.Context, r ref, op sandbox.Op) error {
	s, _, err := h.p.session(ctx, op, r)
	if err == nil && s.terminal() {
		err = &sandbox.APIError{
			Provider: h.p.name, Op: op, ID: h.id, Status: http.StatusGone, Code: codeStopped, Kind: sandbox.ErrConflict,
			Err: fmt.Errorf("session %s is %s", r.session, s.Status),
		}
	}
	return err
}

// post is a request to the session with a body in JSON.
func (h *handle) post(r ref, op sandbox.Op, path string, body any) httpapi.Request {
	req := h.inside(r, op, http.MethodPost, path)
	req.Body = body
	return req
}
