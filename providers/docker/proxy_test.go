package docker_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/providers/providertest"
)

// A proxy stands between a provider and the real engine, counts, and makes things go wrong on the way.
type proxy struct {
	provider *docker.Provider
	dial     func(context.Context) (net.Conn, error)
	forward  *httputil.ReverseProxy

	mu       sync.Mutex
	requests int
	faults   []*fault
}

// A fault is what becomes of requests.
type fault struct {
	about func(*http.Request) bool
	do    func(p *proxy, w http.ResponseWriter, r *http.Request)
	once  bool
}

// throughProxy returns a proxy and a provider that reaches the engine by it.
func throughProxy(t *testing.T) *proxy {
	t.Helper()
	c := judge(t)
	p := &proxy{dial: c.Dialer()}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx) }}
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "engine"}) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	var err error
	p.provider, err = docker.New(docker.Config{Host: "tcp://" + server.Listener.Addr().String(), Name: "docker/conformance"})
	require.NoError(t, err)
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests++
	var hit *fault
	for i, f := range p.faults {
		if f.about(r) {
			hit = f
			if f.once {
				p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
			}
			break
		}
	}
	p.mu.Unlock()
	if hit != nil {
		hit.do(p, w, r)
		return
	}
	p.forward.ServeHTTP(w, r)
}

func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

func (p *proxy) add(f *fault) (heal func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = nil
	}
}

// faultOf returns what the suite's fault is here, nil where it cannot be made on the way to an engine.
func faultOf(f providertest.Fault) *fault {
	isCreate := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/containers/create") }
	isBeat := func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/attach")
	}
	isDelete := func(r *http.Request) bool { return r.Method == http.MethodDelete }
	isGet := func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/containers/json") && strings.Contains(r.URL.Query().Get("filters"), `"id"`)
	}
	isList := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/containers/json") && !isGet(r) }
	switch f {
	case providertest.CreateLost:
		return &fault{isCreate, lose, true}
	case providertest.CreateHangs:
		return &fault{isCreate, hangAfter, true}
	case providertest.CreateLimited:
		return &fault{isCreate, answer(http.StatusTooManyRequests), true}
	case providertest.GetFails:
		return &fault{isGet, answer(http.StatusInternalServerError), true}
	case providertest.ListFails:
		return &fault{isList, answer(http.StatusInternalServerError), true}
	case providertest.ExtendFails:
		return &fault{isBeat, answer(http.StatusInternalServerError), true}
	case providertest.ExtendLost:
		return &fault{isBeat, loseBeat, true}
	case providertest.ExtendDown:
		return &fault{isBeat, answer(http.StatusInternalServerError), false}
	case providertest.DeleteFails:
		return &fault{isDelete, answer(http.StatusInternalServerError), true}
	case providertest.DeleteLost:
		return &fault{isDelete, lose, true}
	case providertest.DeleteIgnored:
		return &fault{isDelete, answer(http.StatusNoContent), true}
	case providertest.DeleteDown:
		return &fault{isDelete, answer(http.StatusInternalServerError), false}
	case providertest.DeleteHangs:
		return &fault{isDelete, hang, false}
	case providertest.Denied:
		return &fault{func(*http.Request) bool { return true }, answer(http.StatusUnauthorized), false}
	}
	return nil
}

func answer(status int) func(*proxy, http.ResponseWriter, *http.Request) {
	return func(_ *proxy, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "2")
		}
		w.WriteHeader(status)
		if status != http.StatusNoContent {
			_, _ = w.Write([]byte(`{"message":"made to fail"}`))
		}
	}
}

// lose has the engine do what was asked, and cuts the connection instead of answering.
func lose(p *proxy, _ http.ResponseWriter, r *http.Request) {
	p.forward.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

func hangAfter(p *proxy, w http.ResponseWriter, r *http.Request) {
	p.forward.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
	hang(p, w, r)
}

func hang(_ *proxy, _ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// A late is a fault of the next command's start, which reaches the engine only when it is let go of: whoever asked for it
// has left by then.
type late struct {
	asked chan string   // gets the id of the engine's exec
	let   chan struct{} // closed to let go of it
	begun chan error    // gets the engine's answer to it
}

func newLate() *late {
	return &late{asked: make(chan string, 1), let: make(chan struct{}), begun: make(chan error, 1)}
}

func (l *late) fault() *fault {
	return &fault{about: isExecStart, once: true, do: func(p *proxy, _ http.ResponseWriter, r *http.Request) {
		defer panic(http.ErrAbortHandler)
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		words := strings.Split(r.URL.Path, "/")
		l.asked <- words[len(words)-2]
		<-l.let
		var engine net.Conn
		if err == nil {
			engine, err = p.dial(context.Background())
		}
		if err == nil {
			defer engine.Close()
			err = r.Write(engine)
		}
		if err == nil {
			_, err = http.ReadResponse(bufio.NewReader(engine), r)
		}
		l.begun <- err
	}}
}

func isExecStart(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "/exec/") && strings.HasSuffix(r.URL.Path, "/start")
}

// loseInput passes on what a started command writes, and nothing of what its caller does.
func loseInput(p *proxy, w http.ResponseWriter, r *http.Request) {
	engine, err := p.dial(r.Context())
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer engine.Close()
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if err := r.Write(engine); err != nil {
		return
	}
	go func() { _, _ = io.Copy(io.Discard, client) }() // what is unread when it closes would be a reset
	if half, ok := engine.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(client, engine)
	}
}

// loseBeat passes what the client writes on to the watchdog, and cuts the connection when that has answered.
func loseBeat(p *proxy, w http.ResponseWriter, r *http.Request) {
	engine, err := p.dial(r.Context())
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer engine.Close()
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if err := r.Write(engine); err != nil {
		return
	}
	from := bufio.NewReader(engine)
	head, err := http.ReadResponse(from, r)
	if err != nil || head.Write(client) != nil {
		return
	}
	line, err := bufio.NewReader(client).ReadString('\n')
	if err != nil {
		return
	}
	if _, err := engine.Write([]byte(line)); err == nil {
		_, _ = from.ReadByte()
	}
}
