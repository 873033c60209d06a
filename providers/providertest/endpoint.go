package providertest

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func endpointRules() []rule {
	return []rule{
		{"Spec.Ports and Endpoint work, or are refused before any request, as Capabilities.Endpoints says", endpointWorks},
		{"a port that was not declared is ErrInvalid", endpointUndeclared},
		{"a declared port is reached from outside", endpointReached},
	}
}

func (t *trial) port() int {
	if t.h.Port != 0 {
		return t.h.Port
	}
	return 8080
}

// withPort orders a sandbox whose port is declared.
func (t *trial) withPort() sandbox.CreateRequest {
	req := t.request(t.long())
	if !slices.Contains(req.Spec.Ports, t.port()) {
		req.Spec.Ports = append(slices.Clone(req.Spec.Ports), t.port())
	}
	return req
}

func endpointWorks(t *trial) {
	if !t.caps.Endpoints {
		t.refused("Spec.Ports", t.withPort(), errors.ErrUnsupported)
		sb := t.box()
		t.quietly("Endpoint", func() {
			if _, err := sb.Endpoint(t.ctx, t.port()); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Capabilities.Endpoints is false, but Endpoint returned error %v, want errors.ErrUnsupported", err)
			}
		})
		return
	}
	ep, err := t.own(t.withPort()).Endpoint(t.ctx, t.port())
	if err != nil {
		t.Fatalf("endpoint: %v", err)
	}
	if u, err := url.Parse(ep.URL); err != nil || u.Scheme == "" || u.Host == "" {
		t.Error("the endpoint's URL has no scheme or host") // it may hold a token, so it is not printed
	}
}

func endpointUndeclared(t *trial) {
	if !t.caps.Endpoints {
		t.Skipf("Capabilities.Endpoints is false")
	}
	sb := t.own(t.withPort())
	for _, port := range []int{t.port() + 1, 0, -1, 70_000} {
		if _, err := sb.Endpoint(t.ctx, port); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("port %d: error %v, want ErrInvalid", port, err)
		}
	}
}

func endpointReached(t *trial) {
	switch {
	case !t.caps.Endpoints:
		t.Skipf("Capabilities.Endpoints is false")
	case t.h.Serve == nil || t.h.Bubble:
		t.Skipf("Harness.Serve is not set, or time is fake")
	}
	sb := t.own(t.withPort())
	body := "hello from " + t.fleet
	cmd := t.h.Serve(t.port(), body)
	cmd.Timeout = time.Minute
	served := make(chan struct{})
	go func() {
		defer close(served)
		sb.Exec(t.ctx, cmd) // ends with the sandbox
	}()
	defer func() {
		t.remove(sandbox.Info{ID: sb.ID()})
		<-served
	}()
	ep, err := sb.Endpoint(t.ctx, t.port())
	if err != nil {
		t.Fatalf("endpoint: %v", err)
	}
	var got string
	if !t.eventually(20*time.Second+t.slack, func() bool {
		got, err = t.fetch(ep)
		return err == nil && strings.TrimSpace(got) == body
	}) {
		t.Errorf("got %q, error %v, want %q", got, err, body)
	}
}

func (t *trial) fetch(ep sandbox.Endpoint) (string, error) {
	req, err := http.NewRequestWithContext(t.ctx, http.MethodGet, ep.URL, nil)
	if err != nil {
		return "", err
	}
	for k, v := range ep.Header {
		req.Header.Set(k, v)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	return string(got), err
}
