package daytona

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// known is what does not change in the life of a sandbox, or hardly: what a handle need not ask for again.
type known struct {
	id      string
	toolbox string // base address of the machines' own API; empty: not told
	ports   string // those of Spec.Ports
	public  bool   // ports are reached without a token
}

// A handle is one sandbox.
type handle struct {
	p  *Provider
	id string

	mu    sync.Mutex // never held over a request
	known *known     // nil: not asked yet
}

var _ sandbox.Sandbox = (*handle)(nil)

// Open returns a handle on a sandbox. It makes no request; an ID alone suffices.
func (p *Provider) Open(info sandbox.Info) sandbox.Sandbox {
	k, _ := info.Native.(*known)
	return &handle{p: p, id: info.ID, known: k}
}

// ID returns the sandbox's id.
func (h *handle) ID() string { return h.id }

// facts returns what is known of the sandbox, after a look if need be.
func (h *handle) facts(ctx context.Context, op sandbox.Op) (*known, error) {
	h.mu.Lock()
	k := h.known
	h.mu.Unlock()
	if k != nil {
		return k, nil
	}
	if !isID(h.id) {
		return nil, h.p.noSuch(op, h.id)
	}
	r, ans, err := h.p.look(ctx, op, h.id)
	if err != nil {
		return nil, err
	}
	k, _ = h.p.info(r, ans).Native.(*known)
	h.remember(k)
	return k, nil
}

func (h *handle) remember(k *known) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = k
}

// base returns the address of the machine's own API, without the sandbox's id.
func (h *handle) base(ctx context.Context, op sandbox.Op) (*url.URL, error) {
	k, err := h.facts(ctx, op)
	if err != nil {
		return nil, err
	}
	if k.toolbox == "" {
		var told struct {
			URL string `json:"url"`
		}
		_, err := h.p.do(ctx, httpapi.Request{
			Op: op, ID: h.id, Method: http.MethodGet, Path: "/sandbox/" + url.PathEscape(h.id) + "/toolbox-proxy-url", Out: &told,
		})
		if err != nil {
			return nil, err
		}
		with := *k
		with.toolbox = told.URL
		k = &with
		h.remember(k)
	}
	base, err := httpapi.ParseBase(k.toolbox)
	if err == nil && h.p.secure && base.Scheme != "https" {
		err = errors.New("it would send the key without TLS")
	}
	if err != nil {
		err = fmt.Errorf("the machine's address that the service tells cannot be used: %w", err)
		return nil, &sandbox.APIError{Provider: h.p.name, Op: op, ID: h.id, Err: err}
	}
	return base, nil
}

// inside is a request to the machine.
func (h *handle) inside(base *url.URL, op sandbox.Op, method, path string) httpapi.Request {
	return httpapi.Request{
		Op: op, ID: h.id, Method: method, Base: base, Path: "/" + url.PathEscape(h.id) + path, Header: h.p.auth.Clone(), Rules: inside,
	}
}

// why returns what stands behind a refusal of the machine's proxy, which says the same of a sandbox that is not there, of
// one that does not run, and of credentials that it does not like: the control plane knows.
func (h *handle) why(ctx context.Context, op sandbox.Op, err error) error {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		return err
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
	default:
		return err
	}
	r, _, lerr := h.p.look(ctx, op, h.id)
	switch {
	case lerr != nil:
		return lerr
	case stateOf(r.State) != sandbox.StateRunning:
		not := *e
		not.Kind, not.Err = sandbox.ErrConflict, fmt.Errorf("the sandbox is %s", r.State)
		return &not
	}
	return err
}

// Endpoint returns the address of a port through the service's proxy, with a token unless the sandbox is public. The
// token ends with the machine's run. Nothing need listen yet. What comes that way is activity, for a sandbox that lives
// by it.
func (h *handle) Endpoint(ctx context.Context, port int) (sandbox.Endpoint, error) {
	refuse := func(format string, args ...any) (sandbox.Endpoint, error) {
		return sandbox.Endpoint{}, h.p.refuse(sandbox.OpEndpoint, h.id, sandbox.ErrInvalid, fmt.Errorf(format, args...))
	}
	if port < 1 || port > 65535 {
		return refuse("port %d is none", port)
	}
	k, err := h.facts(ctx, sandbox.OpEndpoint)
	if err != nil {
		return sandbox.Endpoint{}, err
	}
	if !hasPort(k.ports, port) {
		return refuse("port %d was not declared in Spec.Ports", port)
	}
	var told preview
	_, err = h.p.do(ctx, httpapi.Request{
		Op: sandbox.OpEndpoint, ID: h.id, Method: http.MethodGet, Out: &told,
		Path: "/sandbox/" + url.PathEscape(h.id) + "/ports/" + strconv.Itoa(port) + "/preview-url",
	})
	if err != nil {
		return sandbox.Endpoint{}, err
	}
	e := sandbox.Endpoint{URL: told.URL}
	if told.Token != "" && !k.public {
		e.Header = map[string]string{"X-Daytona-Preview-Token": told.Token}
	}
	return e, nil
}

type preview struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// Validate reports an address that is none.
func (v *preview) Validate() error {
	u, err := url.Parse(v.URL)
	if err != nil || !slices.Contains([]string{"http", "https"}, u.Scheme) || u.Host == "" {
		return errors.New("an address that is none") // it may hold a token
	}
	return nil
}
