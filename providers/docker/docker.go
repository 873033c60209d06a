package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// DefaultImage is the image of a Spec that names none, where Config.DefaultImage is empty too.
const DefaultImage = "busybox:latest"

// The limits of what the provider takes.
const (
	minWindow   = 2 * time.Second
	maxWindow   = 24 * time.Hour
	maxLifetime = 30 * 24 * time.Hour
	maxTags     = 64
	maxTagKey   = 128
	maxTagValue = 4096
)

// Limits of single steps, beside those of the caller's context.
const (
	startTime  = 15 * time.Second // until a started watchdog answers
	answerTime = 2 * time.Second  // until a running one does, in a look
	undoTime   = 10 * time.Second // removal of what must not stay, detached from the caller
	killTime   = 15 * time.Second // the end of a command and its children, detached from the caller
)

// Config says which engine to use. The zero value is the engine on the client's default socket.
type Config struct {
	// Client is the caller's own client, used as it is and never closed. The engine's clock cannot be read through it,
	// so that Info.AsOf is then this process's time: with an engine whose clock differs, set Host instead.
	// Default: a client of the provider's own, which negotiates the API version.
	Client *client.Client

	// Host is the engine's address, such as "unix:///var/run/docker.sock" or "tcp://127.0.0.1:2375". Default: the
	// official client's default. Not together with Client.
	Host string

	// Name is [Provider.Name]. Default: "docker/" and a fingerprint of the engine's address.
	Name string

	// DefaultImage is the image of a Spec without one. Default: [DefaultImage].
	DefaultImage string

	// Logger is told at Warn what no caller can be told any more, such as a command that could not be killed after its
	// context had ended. Default: nothing is logged.
	Logger *slog.Logger
}

// A Provider is one Docker engine. It is safe for concurrent use.
type Provider struct {
	engine *client.Client
	name   string
	image  string
	local  bool // the engine's 127.0.0.1 is ours
	log    *slog.Logger
}

var (
	_ sandbox.Provider  = (*Provider)(nil)
	_ sandbox.Checker   = (*Provider)(nil)
	_ sandbox.Shortener = (*Provider)(nil)
)

// New returns a provider for the engine of cfg. It makes no request: see [Provider.Check].
func New(cfg Config) (*Provider, error) {
	if cfg.Client != nil && cfg.Host != "" {
		return nil, fmt.Errorf("docker: both a client and a host are given: %w", sandbox.ErrInvalid)
	}
	if cfg.Client != nil {
		return provider(cfg, cfg.Client), nil
	}
	var opts []client.Opt
	if cfg.Host != "" {
		opts = append(opts, client.WithHost(cfg.Host))
	}
	return dial(cfg, opts...)
}

// FromEnv returns a provider for the engine that the official client's environment names: DOCKER_HOST,
// DOCKER_API_VERSION, DOCKER_CERT_PATH and DOCKER_TLS_VERIFY. It makes no request.
func FromEnv() (*Provider, error) { return dial(Config{}, client.FromEnv) }

func dial(cfg Config, opts ...client.Opt) (*Provider, error) {
	c, err := client.New(append(opts, client.WithHTTPResponseHook(observe))...)
	if err != nil {
		return nil, fmt.Errorf("docker: %w: %w", sandbox.ErrInvalid, err)
	}
	return provider(cfg, c), nil
}

func provider(cfg Config, c *client.Client) *Provider {
	p := &Provider{engine: c, name: cfg.Name, image: cfg.DefaultImage, local: isLocal(c.DaemonHost()), log: cfg.Logger}
	if p.name == "" {
		sum := sha256.Sum256([]byte(c.DaemonHost()))
		p.name = "docker/" + hex.EncodeToString(sum[:4])
	}
	if p.image == "" {
		p.image = DefaultImage
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	return p
}

// isLocal reports whether a port published on the engine's loopback address can be reached from here.
func isLocal(host string) bool {
	u, err := url.Parse(host)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "unix", "npipe":
		return true
	case "tcp", "http", "https":
		ip := net.ParseIP(u.Hostname())
		return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	}
	return false
}

// Name returns Config.Name, or "docker/" and a fingerprint of the engine's address.
func (p *Provider) Name() string { return p.name }

// Native returns the [*client.Client] in use. For [sandbox.As].
func (p *Provider) Native() any { return p.engine }

// Capabilities returns the facts of every Docker engine. Endpoints is true where the engine's loopback address is
// this machine's: that of a socket or of a loopback address.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Extend:        sandbox.ExtendSet,
		MinWindow:     minWindow,
		MaxWindow:     maxWindow,
		Step:          time.Second,
		MaxLifetime:   maxLifetime,
		ReadsDeadline: true,
		AtExpiry:      sandbox.StateGone,
		CreateOnce:    true,
		MarkAtCreate:  true,
		CommitDelay:   30 * time.Second,
		Lateness:      5 * time.Second, // the watchdog's second, and the removal on a busy machine
		DeleteTime:    15 * time.Second,
		MaxTags:       maxTags,
		MaxTagKey:     maxTagKey,
		MaxTagValue:   maxTagValue,
		Stdin:         true,
		SplitOutput:   true,
		BinaryOut:     true,
		Kill:          true,
		Endpoints:     p.local,
	}
}

// Check asks the engine who it is. An engine that does not answer is [sandbox.ErrUnavailable], one that runs no Linux
// containers [errors.ErrUnsupported].
func (p *Provider) Check(ctx context.Context) (sandbox.Account, error) {
	ctx, c := watch(ctx)
	r, err := p.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return sandbox.Account{}, p.fail(ctx, c, sandbox.OpGet, "", err)
	}
	if r.Info.OSType != "linux" {
		err := fmt.Errorf("the engine runs %q containers, not Linux ones: %w", r.Info.OSType, errors.ErrUnsupported)
		return sandbox.Account{}, &sandbox.APIError{Provider: p.name, Op: sandbox.OpGet, Err: err}
	}
	account := sandbox.Account{ID: r.Info.ID}
	if at, err := time.Parse(time.RFC3339Nano, r.Info.SystemTime); err == nil {
		account.Skew, account.SkewKnown = at.Sub(c.middle()), true
	}
	return account, nil
}

// observe notes what an answer of the engine says beside its body.
func observe(resp *http.Response) {
	if resp.Request == nil {
		return
	}
	if c, ok := resp.Request.Context().Value(callKey{}).(*call); ok {
		c.answered(resp)
	}
}
