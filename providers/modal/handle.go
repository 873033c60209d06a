package modal

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// tunnelTime is how long the service is given to open the way to a port.
const tunnelTime = 30 * time.Second

// A handle is one sandbox.
type handle struct {
	p  *Provider
	id string
}

var _ sandbox.Sandbox = (*handle)(nil)

// Open returns a handle on a sandbox. It makes no request.
func (p *Provider) Open(info sandbox.Info) sandbox.Sandbox { return &handle{p: p, id: info.ID} }

// ID returns the sandbox's id.
func (h *handle) ID() string { return h.id }

// Native returns the official SDK's handle, of the type *modal.Sandbox. For [sandbox.As]. It is this Provider's own: do
// not detach it.
func (h *handle) Native() any { return h.p.service.native(h.id) }

// valid refuses what cannot be a sandbox's id.
func (h *handle) valid(op sandbox.Op) error {
	if !idForm.MatchString(h.id) {
		return h.p.noSuch(op, h.id, errors.New("not a sandbox's id"))
	}
	return nil
}

// Endpoint returns the address of a port, by TLS. It is public: whoever knows it gets in. Nothing need listen yet. Who is
// connected to it keeps the service's own idle time from running; the watchdog counts on.
func (h *handle) Endpoint(ctx context.Context, port int) (sandbox.Endpoint, error) {
	refuse := func(format string, args ...any) (sandbox.Endpoint, error) {
		return sandbox.Endpoint{}, h.p.refuse(sandbox.OpEndpoint, h.id, sandbox.ErrInvalid, fmt.Errorf(format, args...))
	}
	if port < 1 || port > 65535 {
		return refuse("port %d is none", port)
	}
	if err := h.valid(sandbox.OpEndpoint); err != nil {
		return sandbox.Endpoint{}, err
	}
	if expired(ctx) {
		return sandbox.Endpoint{}, context.Cause(ctx)
	}
	tctx, cancel := context.WithTimeout(ctx, tunnelTime+readTime)
	defer cancel()
	all, err := h.p.service.tunnels(tctx, h.id, tunnelTime)
	if err != nil {
		return sandbox.Endpoint{}, h.p.fail(ctx, sandbox.OpEndpoint, h.id, err)
	}
	for _, t := range all {
		if t.port != port {
			continue
		}
		if u, err := url.Parse(t.url); err != nil || u.Scheme != "https" || u.Hostname() == "" {
			return sandbox.Endpoint{}, h.p.failed(sandbox.OpEndpoint, h.id, nil, errors.New("the service tells an address that is none"))
		}
		return sandbox.Endpoint{URL: t.url}, nil
	}
	return refuse("port %d was not declared in Spec.Ports", port)
}
