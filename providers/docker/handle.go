package docker

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A handle is one container. What it must know beyond the id, it asks the engine for once.
type handle struct {
	p  *Provider
	id string

	mu  sync.Mutex // never held over a request
	rec *container.InspectResponse
}

var _ sandbox.Sandbox = (*handle)(nil)

// Open returns a handle on the container. It makes no request; an ID alone suffices.
func (p *Provider) Open(info sandbox.Info) sandbox.Sandbox {
	return &handle{p: p, id: info.ID}
}

// ID returns the container's id.
func (h *handle) ID() string { return h.id }

// made returns what was settled when the container was made.
func (h *handle) made(ctx context.Context, op sandbox.Op) (*container.InspectResponse, error) {
	h.mu.Lock()
	rec := h.rec
	h.mu.Unlock()
	if rec == nil || rec.Config == nil || rec.HostConfig == nil {
		fresh, err := h.inspect(ctx, op)
		if err != nil {
			return nil, err
		}
		h.mu.Lock()
		h.rec = fresh
		h.mu.Unlock()
		rec = fresh
	}
	return rec, nil
}

func (h *handle) inspect(ctx context.Context, op sandbox.Op) (*container.InspectResponse, error) {
	if !isID(h.id) {
		return nil, h.p.noSuch(op, h.id)
	}
	ctx, c := watch(ctx)
	r, err := h.p.engine.ContainerInspect(ctx, h.id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, h.p.fail(ctx, c, op, h.id, err)
	}
	if r.Container.Config == nil || r.Container.HostConfig == nil {
		return nil, &sandbox.APIError{Provider: h.p.name, Op: op, ID: h.id, Err: fmt.Errorf("the engine says nothing of its configuration")}
	}
	return &r.Container, nil
}

// Endpoint returns where the engine has published the port: on this machine's loopback address. Nothing need listen yet.
func (h *handle) Endpoint(ctx context.Context, port int) (sandbox.Endpoint, error) {
	refuse := func(kind, err error) (sandbox.Endpoint, error) {
		return sandbox.Endpoint{}, h.refuse(sandbox.OpEndpoint, kind, err)
	}
	inside, ok := network.PortFrom(uint16(port), network.TCP)
	if !ok || port < 1 || port > 65535 {
		return refuse(sandbox.ErrInvalid, fmt.Errorf("port %d is none", port))
	}
	made, err := h.made(ctx, sandbox.OpEndpoint)
	if err != nil {
		return sandbox.Endpoint{}, err
	}
	if _, ok := made.HostConfig.PortBindings[inside]; !ok {
		return refuse(sandbox.ErrInvalid, fmt.Errorf("port %d was not declared in Spec.Ports", port))
	}
	now, err := h.inspect(ctx, sandbox.OpEndpoint) // the engine chooses the port anew at each start
	if err != nil {
		return sandbox.Endpoint{}, err
	}
	if now.NetworkSettings != nil {
		for _, b := range now.NetworkSettings.Ports[inside] {
			if b.HostPort != "" && b.HostPort != "0" {
				return sandbox.Endpoint{URL: "http://" + net.JoinHostPort(b.HostIP.String(), b.HostPort)}, nil
			}
		}
	}
	return refuse(sandbox.ErrConflict, fmt.Errorf("port %d is not published at the moment", port))
}
