package modalfake

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// tunnel is where a host name of the service's leads to.
type tunnel struct {
	box     *box
	port    int
	connect bool // only with a token
}

// HandlePort has h answer what comes for a port of a running sandbox, in all sandboxes.
func (s *Server) HandlePort(port int, h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports[port] = h
}

// openTunnels gives a sandbox its tunnels. The lock is held.
func (s *Server) openTunnels(b *box) {
	for i, p := range b.def.GetOpenPorts().GetPorts() {
		t := pb.TunnelData_builder{
			Host: strings.ToLower(random(ulidLetters, 12)) + "." + s.opts.Domain, Port: 443, ContainerPort: p.GetPort(),
		}
		s.hosts[t.Host] = tunnel{box: b, port: int(p.GetPort())}
		if p.GetUnencrypted() {
			host, port := "r"+strings.ToLower(random(ulidLetters, 6))+"."+s.opts.Domain, uint32(40000+len(s.hosts)%20000+i)
			t.UnencryptedHost, t.UnencryptedPort = &host, &port
			s.hosts[host] = tunnel{box: b, port: int(p.GetPort())}
		}
		b.tunnels = append(b.tunnels, t.Build())
	}
}

func (s *Server) getTunnels(ctx context.Context, in *pb.SandboxGetTunnelsRequest, v1 bool) (*pb.SandboxGetTunnelsResponse, error) {
	b, err := s.find(in.GetSandboxId(), v1)
	if err != nil {
		return nil, err
	}
	if err := s.svc.Ping(ctx, sandbox.OpEndpoint); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, time.Duration(float64(in.GetTimeout())*float64(time.Second)))
	defer cancel()
	var started time.Time
	var result *pb.GenericResult
	err = s.await(waiting, b, func() bool {
		started, result = b.started, b.result
		return !started.IsZero() || result != nil
	})
	if err == nil && result == nil {
		err = pass(waiting, started.Add(s.Quirks().TunnelTime).Sub(s.svc.Now()))
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case result != nil:
		return pb.SandboxGetTunnelsResponse_builder{Result: result}.Build(), nil
	case err != nil:
		return pb.SandboxGetTunnelsResponse_builder{Result: outcome(timedOut, 0, "")}.Build(), nil
	}
	return pb.SandboxGetTunnelsResponse_builder{Result: outcome(success, 0, ""), Tunnels: b.tunnels}.Build(), nil
}

func (c *control) SandboxGetTunnelsV2(ctx context.Context, in *pb.SandboxGetTunnelsRequest) (*pb.SandboxGetTunnelsResponse, error) {
	return c.s.getTunnels(ctx, in, false)
}

func (c *control) SandboxGetTunnels(ctx context.Context, in *pb.SandboxGetTunnelsRequest) (*pb.SandboxGetTunnelsResponse, error) {
	return c.s.getTunnels(ctx, in, true)
}

func (s *Server) connectToken(in *pb.SandboxCreateConnectTokenRequest, v1 bool) (*pb.SandboxCreateConnectTokenResponse, error) {
	b, err := s.find(in.GetSandboxId(), v1)
	if err != nil {
		return nil, err
	}
	port := 8080
	if in.HasPort() {
		port = int(in.GetPort())
	}
	if port < 1 || port > 65535 {
		return nil, invalid("port %d", port)
	}
	host := strings.ToLower(random(ulidLetters, 12)) + ".connect." + s.opts.Domain
	s.mu.Lock()
	s.hosts[host] = tunnel{box: b, port: port, connect: true}
	s.mu.Unlock()
	return pb.SandboxCreateConnectTokenResponse_builder{
		Url: "https://" + host, Token: s.tokens.token(claims{Use: useConnect, Task: b.task}),
	}.Build(), nil
}

func (c *control) SandboxCreateConnectTokenV2(
	_ context.Context, in *pb.SandboxCreateConnectTokenRequest,
) (*pb.SandboxCreateConnectTokenResponse, error) {
	return c.s.connectToken(in, false)
}

func (c *control) SandboxCreateConnectToken(
	_ context.Context, in *pb.SandboxCreateConnectTokenRequest,
) (*pb.SandboxCreateConnectTokenResponse, error) {
	return c.s.connectToken(in, true)
}

// ServeHTTP answers for the tunnels of sandboxes, by host. A request is activity as long as it lasts. How a connect token is
// to be shown no source tells: here it is a bearer token.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	now := s.svc.Now()
	s.mu.Lock()
	t, known := s.hosts[strings.ToLower(host)]
	h := s.ports[t.port]
	idle := s.quirks.TokenTrafficIdle && t.connect
	s.mu.Unlock()
	if !known {
		http.Error(w, "modal-http: unknown host", http.StatusNotFound)
		return
	}
	if t.connect {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if c, good := s.tokens.check(token, useConnect, now); !good || c.Task != t.box.task {
			http.Error(w, "modal-http: invalid token", http.StatusUnauthorized)
			return
		}
	}
	if idle {
		if s.svc.Reach(r.Context(), sandbox.OpEndpoint, t.box.svc) != nil {
			http.Error(w, "modal-http: sandbox is not running", http.StatusNotFound)
			return
		}
	} else {
		use, err := s.svc.Use(r.Context(), sandbox.OpEndpoint, t.box.svc)
		if err != nil {
			http.Error(w, "modal-http: sandbox is not running", http.StatusNotFound)
			return
		}
		defer use.Release()
	}
	if h == nil {
		http.Error(w, fmt.Sprintf("modal-http: nothing listens on port %d", t.port), http.StatusBadGateway)
		return
	}
	h.ServeHTTP(w, r)
}
