package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A handle is one Job's pod.
type handle struct {
	p  *Provider
	id string

	mu    sync.Mutex // never held over a request
	known *known     // nil: not asked yet
}

var _ sandbox.Sandbox = (*handle)(nil)

// Open returns a handle on the pod of the Job in info.ID. It makes no request.
func (p *Provider) Open(info sandbox.Info) sandbox.Sandbox {
	k, _ := info.Native.(*known)
	return &handle{p: p, id: info.ID, known: k}
}

// ID returns the sandbox's id.
func (h *handle) ID() string { return h.id }

// look asks for the pod, which must run. What is known of it is kept: a Job has one pod in its life.
func (h *handle) look(ctx context.Context, op sandbox.Op) (*known, error) {
	info, err := h.p.get(ctx, op, h.id)
	if err != nil {
		return nil, err
	}
	k, _ := info.Native.(*known)
	if info.State != sandbox.StateRunning && info.State != sandbox.StateUnknown || k.pod == "" {
		return nil, h.p.failed(op, h.id, sandbox.ErrConflict, fmt.Errorf("it is %s: %s", info.State, info.Detail))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = k
	return k, nil
}

// pod returns the name of the pod.
func (h *handle) pod(ctx context.Context, op sandbox.Op) (string, error) {
	h.mu.Lock()
	k := h.known
	h.mu.Unlock()
	if k == nil || k.pod == "" {
		var err error
		if k, err = h.look(ctx, op); err != nil {
			return "", err
		}
	}
	return k.pod, nil
}

// Endpoint returns the pod's own address, which is reached from within the cluster, and from elsewhere only where its
// network is routed there. Whoever reaches it gets in, unless a NetworkPolicy forbids that. Nothing need listen yet.
func (h *handle) Endpoint(ctx context.Context, number int) (sandbox.Endpoint, error) {
	refuse := func(format string, args ...any) (sandbox.Endpoint, error) {
		return sandbox.Endpoint{}, h.p.refuse(sandbox.OpEndpoint, h.id, sandbox.ErrInvalid, fmt.Errorf(format, args...))
	}
	if number < 1 || number > 65535 {
		return refuse("port %d is none", number)
	}
	h.mu.Lock()
	k := h.known
	h.mu.Unlock()
	if k == nil || k.ip == "" || !slices.Contains(k.ports, port{number}) {
		var err error
		if k, err = h.look(ctx, sandbox.OpEndpoint); err != nil {
			return sandbox.Endpoint{}, err
		}
	}
	switch {
	case !slices.Contains(k.ports, port{number}):
		return refuse("port %d was not declared in Spec.Ports", number)
	case net.ParseIP(k.ip) == nil:
		return sandbox.Endpoint{}, h.p.failed(sandbox.OpEndpoint, h.id, sandbox.ErrUnavailable, errors.New("its pod has no address"))
	}
	return sandbox.Endpoint{URL: "http://" + net.JoinHostPort(k.ip, strconv.Itoa(number))}, nil
}
