package daytona

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// DefaultBaseURL is the hosted service's control plane.
const DefaultBaseURL = "https://app.daytona.io/api"

// The limits of what the provider takes. Daytona publishes none of its own for labels: these are chosen with care.
const (
	minWindow   = time.Minute // the smallest number of whole minutes
	maxWindow   = 24 * time.Hour
	maxLifetime = 365 * 24 * time.Hour
	maxTags     = 32
	maxTagKey   = 64
	maxTagValue = 512
)

// startAllowance is what a create's window has beyond the beats': a TTL runs from the create on, through pulling,
// building and starting.
const startAllowance = 2 * time.Minute

// Headers by which the service tells clients apart. The version decides in which form the machine answers: it is that
// of the API description which this package speaks.
const (
	source     = "sandglass"
	sdkVersion = "0.205.1"
)

// Config says which account to use, and how. APIKey is required, or Token and Organization.
type Config struct {
	// APIKey is a key with the permissions write:sandboxes and delete:sandboxes. It belongs to one organization.
	APIKey string

	// Token is a JSON web token, for a service without keys. Organization is then required. Not together with APIKey.
	Token        string
	Organization string

	// BaseURL is the control plane's, with the path /api. Default: [DefaultBaseURL].
	BaseURL string

	// Target is the region, by name or id, of a Spec that does not say. Default: the organization's.
	Target string

	// AllowIdle is for a service that knows no TTL, such as one of your own up to version 0.190. A sandbox is then ended
	// by its idle clock: a window after the last activity of anybody. Every open preview page and every SSH session
	// keeps it alive, so nothing bounds its life. Where the service knows TTLs after all, one at the sandbox's hard end
	// bounds it. Default: such a service is refused.
	AllowIdle bool

	// Name is [Provider.Name]. Default: "daytona/" and a fingerprint of BaseURL and APIKey (or Organization).
	Name string

	// HTTP lends its transport; its redirect policy, cookies and timeout are not used. Default: a transport of our own.
	HTTP *http.Client

	// Logger is told every request at Debug, without secrets, and at Warn what no caller can be told any more. Default:
	// nothing is logged.
	Logger *slog.Logger
}

// A Provider is one organization's account on one Daytona service. It is safe for concurrent use. It starts no
// goroutine of its own but for the end of commands.
type Provider struct {
	api    *httpapi.Client
	name   string
	target string
	secure bool // the control plane is reached by https, so that a toolbox must be too
	auth   http.Header
	secret string
	idle   bool
	log    *slog.Logger
	keyed  bool
}

var (
	_ sandbox.Provider    = (*Provider)(nil)
	_ sandbox.Checker     = (*Provider)(nil)
	_ sandbox.Shortener   = (*Provider)(nil)
	_ sandbox.Snapshotter = (*Provider)(nil)
)

// New returns a provider, or every fault of cfg, each matching [sandbox.ErrInvalid]. It makes no request: see
// [Provider.Check].
func New(cfg Config) (*Provider, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, sandbox.ErrInvalid)...))
	}
	switch {
	case cfg.APIKey == "" && cfg.Token == "":
		fault("neither a key nor a token")
	case cfg.APIKey != "" && cfg.Token != "":
		fault("both a key and a token")
	case cfg.Token != "" && cfg.Organization == "":
		fault("a token needs an organization")
	}
	if strings.ContainsFunc(cfg.APIKey+cfg.Token+cfg.Organization, func(r rune) bool { return r <= ' ' || r > '~' }) {
		fault("key, token or organization with a character that no header can hold") // a line's end, often
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	base, err := httpapi.ParseBase(cfg.BaseURL)
	if err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("daytona: configuration: %w", errors.Join(faults...))
	}
	p := &Provider{
		name: cfg.Name, target: cfg.Target, secure: base.Scheme == "https", keyed: cfg.APIKey != "", idle: cfg.AllowIdle, log: cfg.Logger,
	}
	if p.name == "" {
		p.name = "daytona/" + fingerprint(base, cfg)
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.secret = cfg.APIKey + cfg.Token // there is one of them
	p.auth = http.Header{
		"Authorization":         {"Bearer " + p.secret},
		"X-Daytona-Source":      {source},
		"X-Daytona-Sdk-Version": {sdkVersion},
	}
	if !p.keyed { // a key is bound to its organization
		p.auth.Set("X-Daytona-Organization-ID", cfg.Organization)
	}
	p.api, err = httpapi.New(httpapi.Config{
		Provider: p.name, BaseURL: cfg.BaseURL, Header: p.auth, Public: []string{"X-Daytona-Source", "X-Daytona-Sdk-Version"},
		HTTP: cfg.HTTP, Logger: cfg.Logger, Failure: parseFailure, RetryAfter: retryAfter,
	})
	if err != nil {
		return nil, fmt.Errorf("daytona: configuration: %w", err)
	}
	return p, nil
}

// fingerprint tells accounts apart. A token is renewed every few hours, so that the organization stands for it.
func fingerprint(base *url.URL, cfg Config) string {
	who := cfg.APIKey
	if who == "" {
		who = cfg.Organization
	}
	sum := sha256.Sum256([]byte(base.String() + "\x00" + who))
	return hex.EncodeToString(sum[:4])
}

// FromEnv returns a provider for the account that the official SDKs' environment names: DAYTONA_API_KEY, or
// DAYTONA_JWT_TOKEN and DAYTONA_ORGANIZATION_ID where there is no key; DAYTONA_API_URL (or DAYTONA_SERVER_URL, its
// former name) and DAYTONA_TARGET. It reads no .env file and makes no request.
func FromEnv() (*Provider, error) {
	cfg := Config{
		APIKey: os.Getenv("DAYTONA_API_KEY"), BaseURL: os.Getenv("DAYTONA_API_URL"), Target: os.Getenv("DAYTONA_TARGET"),
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = os.Getenv("DAYTONA_SERVER_URL")
	}
	if cfg.APIKey == "" {
		cfg.Token, cfg.Organization = os.Getenv("DAYTONA_JWT_TOKEN"), os.Getenv("DAYTONA_ORGANIZATION_ID")
	}
	if cfg.APIKey == "" && cfg.Token == "" {
		return nil, fmt.Errorf("daytona: set DAYTONA_API_KEY, or DAYTONA_JWT_TOKEN and DAYTONA_ORGANIZATION_ID: %w", sandbox.ErrInvalid)
	}
	return New(cfg)
}

// Name returns Config.Name, or "daytona/" and a fingerprint of the account.
func (p *Provider) Name() string { return p.name }

// Native returns the [*http.Client] in use. For [sandbox.As].
func (p *Provider) Native() any { return p.api.HTTP() }

// Capabilities returns the facts of the service: those of one with TTLs, or with Config.AllowIdle those of one that has
// nothing but an idle clock.
func (p *Provider) Capabilities() sandbox.Capabilities {
	c := sandbox.Capabilities{
		Extend:         sandbox.ExtendSet,
		MinWindow:      minWindow,
		MaxWindow:      maxWindow,
		Step:           time.Minute,
		StartAllowance: startAllowance,
		ReadsDeadline:  true,
		AtExpiry:       sandbox.StateGone,
		CreateOnce:     true, // names are unique
		MarkAtCreate:   true,
		CommitDelay:    time.Minute,
		ReadLag:        3 * time.Second,  // of lists, as observed; a look by id has shown none
		Lateness:       20 * time.Second, // unknown for TTLs; the platform's other clocks tick every 10 s
		DeleteTime:     time.Minute,
		GoneByList:     true, // what failed to be destroyed is hidden from a look
		MaxTags:        maxTags,
		MaxTagKey:      maxTagKey,
		MaxTagValue:    maxTagValue,
		SplitOutput:    true,
		BinaryOut:      true,
		Kill:           true,
		Endpoints:      true,
	}
	if p.idle {
		c.Extend, c.StartAllowance, c.ReadsDeadline = sandbox.ExtendActivity, 0, false
		c.Lateness = 40 * time.Second // an activity is written down up to 10 s late, and the clock looked at every 10 s
	}
	return c
}

// Check asks for the key's own record, and for one sandbox. A key that may not create or delete is
// [sandbox.ErrPermission]: Daytona has a permission for each, and a key that may create and not delete makes leaks. A
// token's permissions cannot be read.
func (p *Provider) Check(ctx context.Context) (sandbox.Account, error) {
	var account sandbox.Account
	var page listing
	ans, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpList, Method: http.MethodGet, Path: "/sandbox", Query: "limit=1", Out: &page, Rules: noSandbox,
	})
	if err != nil {
		return account, err
	}
	account.Skew, account.SkewKnown = ans.Skew()
	if !p.keyed {
		return account, nil
	}
	var key apiKey
	_, err = p.do(ctx, httpapi.Request{
		Op: sandbox.OpGet, Method: http.MethodGet, Path: "/api-keys/current", Out: &key, Rules: noSandbox,
	})
	if err != nil {
		return account, err
	}
	account.ID = key.UserID + "/" + key.Name
	var missing []string
	for _, need := range []string{"write:sandboxes", "delete:sandboxes"} {
		if !slices.Contains(key.Permissions, need) {
			missing = append(missing, need)
		}
	}
	if len(missing) > 0 {
		return account, &sandbox.APIError{
			Provider: p.name, Op: sandbox.OpGet, Kind: sandbox.ErrPermission,
			Err: fmt.Errorf("the key %q lacks %s: make one that has both", key.Name, strings.Join(missing, " and ")),
		}
	}
	return account, nil
}

type apiKey struct {
	Name        string   `json:"name"`
	UserID      string   `json:"userId"`
	Permissions []string `json:"permissions"`
}

// Validate reports what is missing.
func (k *apiKey) Validate() error {
	if k.Name == "" || k.Permissions == nil {
		return errors.New("a key without a name or permissions")
	}
	return nil
}
