// Package memnet is a network in memory: listeners, dialers and connections that a bubble of testing/synctest can wait
// for, with the faults of a real wire.
//
// Everything that blocks here blocks durably in the sense of that package, no lock is held across a wait, and there
// is no goroutine of its own but those of [Network.Serve]. Close the network before the bubble ends: that ends every
// connection, and with it the goroutines of net/http on both sides.
package memnet

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Network connects who dials with who listens. All methods are safe for concurrent use.
type Network struct {
	mu        sync.Mutex // guards everything here, in listeners and in links; held for memory operations only
	listeners []*listener
	links     map[*link]struct{}
	faults    []*fault
	closed    bool
	dials     int
	changed   chan struct{} // closed when a dial that waits should look again
}

// New returns a network without listeners.
func New() *Network { return &Network{links: map[*link]struct{}{}} }

// Listen listens at address, "host:port". A host "*.example.test" stands for everything below example.test, and "*" for
// every host; of several that match a dial, the one that says most has it.
func (n *Network) Listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("memnet: listen: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, opError("listen", addr(address), net.ErrClosed)
	}
	l := &listener{n: n, host: strings.ToLower(host), port: port}
	if slices.ContainsFunc(n.listeners, func(o *listener) bool { return o.host == l.host && o.port == l.port }) {
		return nil, opError("listen", addr(address), os.NewSyscallError("bind", syscall.EADDRINUSE))
	}
	n.listeners = append(n.listeners, l)
	return l, nil
}

// Serve has h answer HTTP requests at address until stop is called, which closes all of its connections and returns
// when every goroutine of theirs has ended. A call of h must therefore return when its request's context ends.
func (n *Network) Serve(address string, h http.Handler) (stop func(), err error) {
	l, err := n.Listen(address)
	if err != nil {
		return nil, err
	}
	var conns sync.WaitGroup
	server := &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			conns.Add(1)
		case http.StateClosed, http.StateHijacked:
			conns.Done()
		}
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // returns when it is closed
	}()
	return func() {
		_ = server.Close()
		<-done
		conns.Wait()
	}, nil
}

// Transport returns a transport for HTTP whose connections are all of this network. Each call returns a new one.
func (n *Network) Transport() *http.Transport { return &http.Transport{DialContext: n.DialContext} }

// Client returns a client with a [Network.Transport] of its own and no time limit.
func (n *Network) Client() *http.Client { return &http.Client{Transport: n.Transport()} }

// DialContext connects to who listens at address. It has the form that [http.Transport] wants. A host that nobody
// listens for is a [*net.DNSError], a port that nobody listens on matches [syscall.ECONNREFUSED].
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, opError("dial", addr(address), err)
	}
	host = strings.ToLower(host)
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case n.closed:
			return nil, opError("dial", addr(address), net.ErrClosed)
		case ctx.Err() != nil:
			return nil, opError("dial", addr(address), ctx.Err())
		case !n.parted(host, port):
			return n.dial(host, port)
		}
		n.wait(&n.changed, ctx.Done(), time.Time{})
	}
}

func (n *Network) dial(host, port string) (net.Conn, error) {
	remote := addr(net.JoinHostPort(host, port))
	if n.refused(host, port) {
		return nil, opError("dial", remote, os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	var best *listener
	known := false
	for _, l := range n.listeners {
		if !hostMatches(l.host, host) {
			continue
		}
		known = true
		if l.port == port && (best == nil || len(l.host) > len(best.host) || l.host == host) {
			best = l
		}
	}
	if best == nil {
		if known {
			return nil, opError("dial", remote, os.NewSyscallError("connect", syscall.ECONNREFUSED))
		}
		return nil, opError("dial", remote, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true})
	}
	n.dials++
	k := &link{n: n, host: host, port: port, fresh: true}
	local := addr(fmt.Sprintf("192.0.2.1:%d", n.dials))
	client := &conn{k: k, local: local, remote: remote, in: &k.answer, out: &k.request, client: true}
	server := &conn{k: k, local: remote, remote: local, in: &k.request, out: &k.answer}
	k.ends = [2]*conn{client, server}
	n.links[k] = struct{}{}
	best.backlog = append(best.backlog, server)
	wake(&best.changed)
	return client, nil
}

// Close closes every listener, resets every connection and refuses what comes later.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, l := range n.listeners {
		l.shut()
	}
	n.listeners = nil
	for k := range n.links {
		k.die()
	}
	clear(n.links)
	wake(&n.changed)
}

// Open returns how many connections there are of which an end is not closed.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.links)
}

// wait gives the lock back until *changed is closed, done ends or a time has come; zero: no time.
func (n *Network) wait(changed *chan struct{}, done <-chan struct{}, until time.Time) {
	if *changed == nil { // made by who waits, so that it belongs to his bubble
		*changed = make(chan struct{})
	}
	woken := *changed
	n.mu.Unlock()
	defer n.mu.Lock()
	var due <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-woken:
	case <-done:
	case <-due:
	}
}

// wake has everybody look again who waits for *changed.
func wake(changed *chan struct{}) {
	if *changed != nil {
		close(*changed)
		*changed = nil
	}
}

// hostMatches reports whether a host is meant by a pattern, which is a host, "*.domain" or "*".
func hostMatches(pattern, host string) bool {
	if pattern == "*" || pattern == host {
		return true
	}
	domain, ok := strings.CutPrefix(pattern, "*")
	return ok && strings.HasPrefix(domain, ".") && strings.HasSuffix(host, domain)
}

type listener struct {
	n          *Network
	host, port string
	backlog    []*conn
	closed     bool
	changed    chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	for {
		switch {
		case l.closed:
			return nil, opError("accept", l.Addr(), net.ErrClosed)
		case len(l.backlog) > 0:
			c := l.backlog[0]
			l.backlog = l.backlog[1:]
			return c, nil
		}
		l.n.wait(&l.changed, nil, time.Time{})
	}
}

func (l *listener) Close() error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	if l.closed {
		return opError("close", l.Addr(), net.ErrClosed)
	}
	l.shut()
	l.n.listeners = slices.DeleteFunc(l.n.listeners, func(o *listener) bool { return o == l })
	return nil
}

// shut resets what nobody has accepted.
func (l *listener) shut() {
	l.closed = true
	for _, c := range l.backlog {
		c.k.die()
		delete(l.n.links, c.k)
	}
	l.backlog = nil
	wake(&l.changed)
}

func (l *listener) Addr() net.Addr { return addr(net.JoinHostPort(l.host, l.port)) }

// addr is an address, "host:port".
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

func opError(op string, a net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: a, Err: err}
}
