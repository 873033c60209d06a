package modal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// What zero fields of a [Config] stand for.
const (
	DefaultServerURL = "https://api.modal.com:443"
	DefaultImage     = "debian:bookworm-slim"
	DefaultApp       = "sandglass"
)

// serverVariable is the variable by which the official SDK is told another server.
const serverVariable = "MODAL_SERVER_URL"

// The limits of what the provider takes. The service tells none but the longest life.
const (
	minWindow   = 20 * time.Second // a beat takes up to two seconds and more, and the core gives it a sixth of the window
	maxLife     = 24 * time.Hour
	maxTags     = 32 // unknown: chosen with care
	maxTagKey   = 64
	maxTagValue = 256
)

// Limits of single calls, beside those of the caller's context.
const (
	readTime   = 20 * time.Second // a look, a page of a list
	poll       = 10 * time.Second // how long the service is asked to wait for an end, as the official SDK does
	endTime    = 30 * time.Second // how long a Delete waits for the end
	deleteTime = time.Minute
)

// Config says which workspace to use, and how. Required are TokenID and TokenSecret.
type Config struct {
	TokenID, TokenSecret string // "ak-..." and "as-..."

	// Environment is the Modal environment's name. Default: MODAL_ENVIRONMENT's, else the workspace's default one.
	Environment string

	// ServerURL is the control plane's, with its scheme; with "http" only for a server of your own. Default:
	// MODAL_SERVER_URL, else [DefaultServerURL]. The official SDK lets that variable rule over all else, so that a URL
	// which differs from it is refused.
	ServerURL string

	// App is the name of the Modal App that sandboxes are made in; it is made where there is none. Lists and sweeps cover
	// the whole environment, so that what was made in another App is found too. Default: [DefaultApp].
	App string

	// DefaultImage is the image of a Spec without one. Default: [DefaultImage].
	DefaultImage string

	// Name is [Provider.Name]. Default: "modal/" and a fingerprint of server, environment and token id.
	Name string

	// Logger is told by the SDK of every call at Debug, without commands and the service's words, and at Warn what no caller can
	// be told any more, such as a command that could not be killed after its context had ended. Default: nothing is logged.
	Logger *slog.Logger
}

// A Provider is one environment of one workspace. It is safe for concurrent use. It holds connections: see
// [Provider.Close].
type Provider struct {
	service service
	name    string
	image   string
	secrets []string // not to be shown
	log     *slog.Logger

	owner string // of beats: tells those of this provider from those of another
	beats atomic.Uint64

	mu    sync.Mutex // guards what follows, and is never held over a call
	known map[string]known
}

var (
	_ sandbox.Provider = (*Provider)(nil)
	_ sandbox.Checker  = (*Provider)(nil)
)

var word = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// New returns a provider for cfg's workspace, or every fault of cfg, each matching [sandbox.ErrInvalid]. It makes no
// request, see [Provider.Check], and reads no file. The official SDK reads some of its variables all the same:
// MODAL_SERVER_URL, MODAL_PROFILE, MODAL_IMAGE_BUILDER_VERSION, MODAL_SANDBOX_V2 and MODAL_SANDBOX_CHANNEL_IDLE_TIMEOUT.
func New(cfg Config) (*Provider, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, sandbox.ErrInvalid)...))
	}
	if cfg.TokenID == "" || cfg.TokenSecret == "" {
		fault("no token: set both Config.TokenID and Config.TokenSecret")
	}
	if !sendable(cfg.TokenID + cfg.TokenSecret) {
		fault("the token holds a blank, a line's end or another character that no token has")
	}
	p, err := open(cfg, faults)
	if err != nil {
		return nil, fmt.Errorf("modal: configuration: %w", err)
	}
	return p, nil
}

// FromEnv returns a provider for the workspace that the official SDK's own configuration names: MODAL_TOKEN_ID and
// MODAL_TOKEN_SECRET, or the variables of an OAuth application, or the profile in ~/.modal.toml, or where
// MODAL_CONFIG_PATH says; MODAL_ENVIRONMENT and MODAL_SERVER_URL likewise. It makes no request: whether there are
// credentials at all shows at the first one.
func FromEnv() (*Provider, error) {
	p, err := open(Config{}, nil)
	if err != nil {
		return nil, fmt.Errorf("modal: environment: %w", err)
	}
	return p, nil
}

// open makes a provider of cfg, unless there are faults.
func open(cfg Config, faults []error) (*Provider, error) {
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, sandbox.ErrInvalid)...))
	}
	named := os.Getenv(serverVariable)
	switch {
	case named != "" && cfg.ServerURL != "" && named != cfg.ServerURL:
		fault("Config.ServerURL is not what %s says, which rules in the official SDK", serverVariable)
	case named != "":
		cfg.ServerURL = named
	case cfg.ServerURL == "" && cfg.TokenID != "":
		cfg.ServerURL = DefaultServerURL
	}
	if u := cfg.ServerURL; u != "" && !strings.HasPrefix(u, "https://") && !strings.HasPrefix(u, "http://") {
		fault("the server's URL starts neither with https:// nor with http://")
	}
	if cfg.Environment == "" {
		cfg.Environment = os.Getenv("MODAL_ENVIRONMENT")
	}
	if cfg.App == "" {
		cfg.App = DefaultApp
	}
	if cfg.DefaultImage == "" {
		cfg.DefaultImage = DefaultImage
	}
	if !word.MatchString(cfg.App) {
		fault("%.80q is no App's name", cfg.App)
	}
	if cfg.Environment != "" && !word.MatchString(cfg.Environment) {
		fault("%.80q is no environment's name", cfg.Environment)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	p := &Provider{name: cfg.Name, image: cfg.DefaultImage, log: cfg.Logger, owner: random(), known: map[string]known{}}
	if p.name == "" {
		p.name = "modal/" + fingerprint(cfg)
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	for _, s := range []string{cfg.TokenID, cfg.TokenSecret, os.Getenv("MODAL_TOKEN_ID"), os.Getenv("MODAL_TOKEN_SECRET")} {
		if s != "" {
			p.secrets = append(p.secrets, s)
		}
	}
	service, err := dial(cfg, slog.New(sieve{p.log.Handler()}))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.clean(err.Error()), sandbox.ErrInvalid)
	}
	p.service = service
	return p, nil
}

// fingerprint tells workspaces and environments apart, by what is known of them without a request.
func fingerprint(cfg Config) string {
	id := cfg.TokenID
	for _, name := range []string{"MODAL_TOKEN_ID", "MODAL_OAUTH_CLIENT_ID", "MODAL_PROFILE", "MODAL_CONFIG_PATH"} {
		if id == "" {
			id = os.Getenv(name)
		}
	}
	server := cfg.ServerURL
	if server == "" {
		server = DefaultServerURL
	}
	sum := sha256.Sum256([]byte(server + "\x00" + cfg.Environment + "\x00" + id))
	return hex.EncodeToString(sum[:4])
}

// sendable reports whether s can be sent as it is in a header.
func sendable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// Name returns Config.Name, or "modal/" and a fingerprint.
func (p *Provider) Name() string { return p.name }

// Native returns the official SDK's client, of the type *modal.Client. For [sandbox.As].
func (p *Provider) Native() any { return p.service.native("") }

// Close closes all connections. Calls under way fail, as do later ones. Without it, connections to sandboxes close by
// themselves half a minute after their last use, and the one to the control plane stays.
func (p *Provider) Close() { p.service.close() }

// Capabilities returns the facts of the service, as far as it tells them.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Extend:       sandbox.ExtendActivity, // and what the beat writes down; anybody's use prolongs the service's own idle time
		MinWindow:    minWindow,
		MaxWindow:    maxLife,
		Step:         time.Second,
		MaxLifetime:  maxLife,
		AtExpiry:     sandbox.StateGone,
		CreateOnce:   true, // names are unique among what runs
		MarkAtCreate: true,
		CommitDelay:  time.Minute,     // unknown
		ReadLag:      2 * time.Second, // unknown
		Lateness:     20 * time.Second,
		DeleteTime:   deleteTime,
		MaxTags:      maxTags,
		MaxTagKey:    maxTagKey,
		MaxTagValue:  maxTagValue,
		Stdin:        true,
		SplitOutput:  true,
		BinaryOut:    true,
		Kill:         true,
		Endpoints:    true,
	}
}

// Check looks up the environment. It finds out whether the service is there and takes the credentials. What it cannot
// find out without deleting something: whether they may delete. What no request tells: the workspace's limits.
func (p *Provider) Check(ctx context.Context) (sandbox.Account, error) {
	if expired(ctx) {
		return sandbox.Account{}, context.Cause(ctx)
	}
	cctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	id, err := p.service.environment(cctx)
	if err != nil {
		err := p.fail(ctx, sandbox.OpGet, "", err)
		if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Code == codeNotFound {
			e.Kind = sandbox.ErrInvalid // of environments, never of sandboxes
		}
		return sandbox.Account{}, err
	}
	return sandbox.Account{ID: id}, nil
}
