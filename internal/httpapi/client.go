package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Limits that hold where neither Config nor Request says another.
const (
	DefaultTimeout = 30 * time.Second // one request, from its start to the end of its answer
	DefaultMaxBody = 8 << 20          // bytes of an answer
	maxErrorBody   = 64 << 10         // bytes of an answer that is a failure
)

// Config says whom to talk to and how. Provider and BaseURL are required.
type Config struct {
	Provider string // as errors name it: sandbox.Provider.Name
	BaseURL  string // http or https, with a path or without, but without query, fragment or user

	// Header goes with every request to BaseURL's host, and with none to another. Its values are secrets, unless
	// Public says that they are not.
	Header http.Header
	Public []string // names of headers, canonical, whose values may be shown

	// HTTP lends its transport. Its redirect policy, cookies and timeout are not used. Nil: a transport of our own,
	// with the proxies that the environment names.
	HTTP *http.Client

	Rules   Rules         // what failures mean; consulted after a request's own and before the general ones
	Failure FailureParser // nil: [ParseFailure]

	// RetryAfter reads how long a failure asks to wait, where the service has a way of its own to say so; now is the
	// service's clock. Nil: the function [RetryAfter].
	RetryAfter func(h http.Header, now time.Time) time.Duration

	Timeout time.Duration // default of Request.Timeout; 0: DefaultTimeout
	Logger  *slog.Logger  // is told every request at Debug, without headers, bodies and queries; nil: nobody is
	Count   func(sandbox.Op)
}

// A Client makes requests to one service. It is safe for concurrent use. It starts no goroutine of its own; its
// transport keeps idle connections, which [Client.CloseIdle] closes.
type Client struct {
	cfg   Config
	base  *url.URL
	http  *http.Client
	agent string
	clean scrubber
}

// New returns a client, or every fault of cfg, each matching [sandbox.ErrInvalid]. It makes no request.
func New(cfg Config) (*Client, error) {
	base, err := ParseBase(cfg.BaseURL)
	if cfg.Provider == "" {
		err = errors.Join(err, fmt.Errorf("no provider's name: %w", sandbox.ErrInvalid))
	}
	if err != nil {
		return nil, err
	}
	cfg.Header = cfg.Header.Clone()
	c := &Client{cfg: cfg, base: base, agent: "sandglass/" + version(), http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if cfg.HTTP != nil && cfg.HTTP.Transport != nil {
		c.http.Transport = cfg.HTTP.Transport
	} else {
		c.http.Transport = newTransport()
	}
	for name, values := range c.cfg.Header {
		if !contains(cfg.Public, name) {
			c.clean.add(values...)
		}
	}
	if c.cfg.Failure == nil {
		c.cfg.Failure = ParseFailure
	}
	if c.cfg.RetryAfter == nil {
		c.cfg.RetryAfter = RetryAfter
	}
	if c.cfg.Timeout <= 0 {
		c.cfg.Timeout = DefaultTimeout
	}
	if c.cfg.Logger == nil {
		c.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// ParseBase reads a base URL: absolute, http or https, without query, fragment or user. The error matches
// [sandbox.ErrInvalid] and does not show more of it than its host.
func ParseBase(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil: // the parser's error holds all of it, and there may be a password in it
		return nil, fmt.Errorf("base URL cannot be read: %w", sandbox.ErrInvalid)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("base URL with host %q is not of the form https://host: %w", u.Host, sandbox.ErrInvalid)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("base URL of %q with a user, query or fragment: %w", u.Host, sandbox.ErrInvalid)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

// newTransport is the standard transport with room for as many sandboxes as one process may run. All requests may go
// over one connection, which is asked for a sign of life when it is silent: otherwise a connection that has died unseen
// would swallow one beat after the other.
func newTransport() http.RoundTripper {
	std, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program has put another in its place, and will know why
		return http.DefaultTransport
	}
	t := std.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 128
	t.MaxResponseHeaderBytes = 256 << 10
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}
	return t
}

// CloseIdle closes the connections that wait for a next request.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// HTTP returns the client in use, whose transport is the one that New was given.
func (c *Client) HTTP() *http.Client { return c.http }

// Clean returns s without the secrets that the client knows, and without queries and users of URLs.
func (c *Client) Clean(s string) string { return c.clean.clean(s) }

// version is this library's, as the program was built with it.
func version() string {
	const module = "github.com/sandglass-dev/sandglass"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	found := ""
	if info.Main.Path == module {
		found = info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == module {
			found = m.Version
		}
	}
	if found == "" || found == "(devel)" {
		return "devel"
	}
	return found
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if http.CanonicalHeaderKey(n) == http.CanonicalHeaderKey(name) {
			return true
		}
	}
	return false
}
