package kubernetes

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// DefaultImage is the image of a Spec that names none, where Config.Image is empty too.
const DefaultImage = "busybox:latest"

// The limits of what the provider takes.
const (
	minWindow   = time.Second
	maxWindow   = 24 * time.Hour
	maxSeconds  = 1<<31 - 1 // of a deadline: from 2^63 ns on, a Job's kills at once
	maxTags     = 32
	maxTagKey   = 63
	maxTagValue = 256
)

const (
	readTime   = 20 * time.Second
	deleteTime = 30 * time.Second // a delete of the Job, a look at its pods and their deletes
	grace      = 2                // seconds between TERM and KILL; never 0, with which records go before processes
)

// Config says which namespace of which cluster to use, and how. Required are BaseURL, Namespace and credentials: [FromEnv],
// [InCluster] and [FromKubeconfig] find them.
type Config struct {
	// BaseURL is the API server's.
	BaseURL string

	// Namespace is where the sandboxes are made, and the only one that is looked at.
	Namespace string

	// Tokens is asked for a bearer token before each request. Service accounts' tokens change every hour or so:
	// [InCluster] reads their file anew. It must be safe for concurrent use, and quick, so it should cache. Nil: Cert and
	// Key are the credentials, or whatever HTTP has.
	Tokens func(ctx context.Context) (string, error)

	// CA holds the certificates, in PEM, that the API server's is checked against. Empty: the system's.
	CA []byte

	// Cert and Key are a client's certificate and key, in PEM. Both or none.
	Cert, Key []byte

	// ServerName is the name that the API server's certificate is checked for. Default: BaseURL's host.
	ServerName string

	// Image is the image of a Spec without one. Default: [DefaultImage]. An image needs sh, env, cat, mkdir and sleep.
	Image string

	// Offline is the label, or labels, by which a NetworkPolicy of the namespace takes all ways out of a pod. Only who has
	// made such a policy, in a cluster whose network enforces it, knows them. Nil: Spec.Offline is refused.
	Offline map[string]string

	// Owner says who owns what is made here, for sweepers that ask; see [Owners]. The zero Owner says nothing.
	Owner Owner

	// Name is [Provider.Name]. Default: "kubernetes/" with the namespace and a fingerprint of BaseURL, CA and Namespace.
	// Set it where sweeper and runner reach one cluster by different addresses, or where its CA is about to change.
	Name string

	// HTTP lends its transport; its redirect policy, cookies and timeout are not used. It has to know the cluster's
	// certificates: not together with CA, Cert, Key and ServerName. Commands need HTTP/1.1: a [*http.Transport] is copied
	// for them without HTTP/2, another one must offer that itself. Default: transports of the provider's own, with the
	// proxies that the environment names.
	HTTP *http.Client

	// Logger is told every request at Debug, and at Warn what no caller can be told any more, such as a command that
	// could not be killed after its context had ended. Default: nothing is logged.
	Logger *slog.Logger
}

// A Provider is one namespace. It is safe for concurrent use. It starts no goroutine of its own but for the streams and
// the ends of commands.
type Provider struct {
	api       *httpapi.Client
	streams   *httpapi.Client // over HTTP/1.1, which upgrades need
	name      string
	namespace string
	image     string
	offline   map[string]string
	owner     Owner
	process   string // this process's own nonce
	tokens    func(ctx context.Context) (string, error)
	doubts    doubts
	lease     ownerLease
	log       *slog.Logger
}

var (
	_ sandbox.Provider  = (*Provider)(nil)
	_ sandbox.Checker   = (*Provider)(nil)
	_ sandbox.Shortener = (*Provider)(nil)
)

// New returns a provider for cfg's namespace, or every fault of cfg, each matching [sandbox.ErrInvalid]. It makes no
// request: see [Provider.Check].
func New(cfg Config) (*Provider, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, sandbox.ErrInvalid)...))
	}
	base, err := httpapi.ParseBase(cfg.BaseURL)
	if err != nil {
		faults = append(faults, err)
	}
	if !isLabel(cfg.Namespace) {
		fault("namespace %.80q is none", cfg.Namespace)
	}
	if cfg.HTTP != nil && (len(cfg.CA) > 0 || len(cfg.Cert) > 0 || len(cfg.Key) > 0 || cfg.ServerName != "") {
		fault("both a transport and certificates, which the transport would have to know")
	}
	if err == nil && base.Scheme == "http" && cfg.Tokens != nil {
		fault("a token would go over http to %q, where everybody can read it", base.Host)
	}
	cfg.Owner.check(cfg.Namespace, fault)
	for k, v := range cfg.Offline {
		if k == "" || isOwn(k) || !isValue(v) {
			fault("offline label %.80q cannot be set", k)
		}
	}
	transport, streams, err := cfg.transports()
	if err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("kubernetes: configuration: %w", errors.Join(faults...))
	}
	p := &Provider{
		name: cfg.Name, namespace: cfg.Namespace, image: cfg.Image, offline: cfg.Offline, owner: cfg.Owner, process: newNonce(),
		tokens: cfg.Tokens, log: cfg.Logger,
	}
	if p.name == "" {
		p.name = "kubernetes/" + cfg.Namespace + "-" + fingerprint(base, cfg)
	}
	if p.image == "" {
		p.image = DefaultImage
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	for client, transport := range map[**httpapi.Client]http.RoundTripper{&p.api: transport, &p.streams: streams} {
		*client, err = httpapi.New(httpapi.Config{
			Provider: p.name, BaseURL: cfg.BaseURL, HTTP: &http.Client{Transport: transport}, Logger: cfg.Logger, Timeout: readTime,
			Rules: common, Failure: parseFailure,
		})
		if err != nil {
			return nil, fmt.Errorf("kubernetes: configuration: %w", err)
		}
	}
	return p, nil
}

// transports returns one for requests, and one for streams.
func (c Config) transports() (requests, streams http.RoundTripper, err error) {
	first := http.DefaultTransport
	if c.HTTP != nil && c.HTTP.Transport != nil {
		first = c.HTTP.Transport
	}
	std, ok := first.(*http.Transport)
	if !ok { // the program has put another in its place, and will know why
		if len(c.CA) > 0 || len(c.Cert) > 0 || len(c.Key) > 0 || c.ServerName != "" {
			err = fmt.Errorf("certificates, which the program's own default transport cannot be told: %w", sandbox.ErrInvalid)
		}
		return first, first, err
	}
	requests = std
	if c.HTTP == nil {
		// All requests may go over one connection, which is asked for a sign of life when it is silent: otherwise a
		// connection that has died unseen would swallow one beat after the other.
		t := std.Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 128
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}
		if t.TLSClientConfig, err = c.tls(t.TLSClientConfig); err != nil {
			return nil, nil, err
		}
		requests, std = t, t
	}
	s := std.Clone()
	s.ForceAttemptHTTP2 = false
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	if s.TLSClientConfig != nil {
		s.TLSClientConfig.NextProtos = nil
	}
	return requests, s, nil
}

// tls adds the cluster's certificates to a copy of base, which may be nil.
func (c Config) tls(base *tls.Config) (*tls.Config, error) {
	if base == nil {
		base = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	base = base.Clone()
	var faults []error
	if len(c.CA) > 0 {
		base.RootCAs = x509.NewCertPool()
		if !base.RootCAs.AppendCertsFromPEM(c.CA) {
			faults = append(faults, fmt.Errorf("CA holds no certificate in PEM: %w", sandbox.ErrInvalid))
		}
	}
	if len(c.Cert) > 0 || len(c.Key) > 0 {
		pair, err := tls.X509KeyPair(c.Cert, c.Key)
		if err != nil { // the parser's error is about the form, and does not show the key
			faults = append(faults, fmt.Errorf("client certificate: %w: %w", err, sandbox.ErrInvalid))
		}
		base.Certificates = []tls.Certificate{pair}
	}
	if c.ServerName != "" {
		base.ServerName = c.ServerName
	}
	return base, errors.Join(faults...)
}

// fingerprint tells clusters and namespaces apart: in all clusters the API server may have the same address, but not the
// same CA. Tokens change, and are of no account.
func fingerprint(base *url.URL, cfg Config) string {
	sum := sha256.Sum256([]byte(base.String() + "\x00" + string(cfg.CA) + "\x00" + cfg.Namespace))
	return hex.EncodeToString(sum[:4])
}

// Name returns Config.Name, or "kubernetes/" with the namespace and a fingerprint.
func (p *Provider) Name() string { return p.name }

// Native returns the [*http.Client] in use. For [sandbox.As].
func (p *Provider) Native() any { return p.api.HTTP() }

// CloseIdle closes the connections that wait for a next request. The provider can still be used.
func (p *Provider) CloseIdle() {
	p.api.CloseIdle()
	p.streams.CloseIdle()
}

// Capabilities returns the facts of a cluster.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Extend:        sandbox.ExtendSet,
		MinWindow:     minWindow,
		MaxWindow:     maxWindow,
		Step:          time.Second,
		ReadsDeadline: true,
		AtExpiry:      sandbox.StateGone,
		CreateOnce:    true, // names are unique
		MarkAtCreate:  true,
		CommitDelay:   time.Minute,     // the API server's own limit of a request
		Lateness:      5 * time.Second, // 1 for rounding, the rest for a controller that has much to do
		DeleteTime:    deleteTime,
		MaxTags:       maxTags,
		MaxTagKey:     maxTagKey,
		MaxTagValue:   maxTagValue,
		Stdin:         true,
		SplitOutput:   true,
		BinaryOut:     true,
		Kill:          true,
		Endpoints:     true,
	}
}

// path returns the path of what is in the namespace; parts are escaped where they could be anything.
func (p *Provider) path(group string, parts ...string) string {
	s := group + "/namespaces/" + p.namespace
	for _, part := range parts {
		s += "/" + url.PathEscape(part)
	}
	return s
}

// Groups of the API.
const (
	batch = "/apis/batch/v1"
	core  = "/api/v1"
	coord = "/apis/coordination.k8s.io/v1"
	auth  = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	whoAm = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)
