package e2b

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
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// What a zero Config stands for.
const (
	DefaultDomain   = "e2b.app"
	DefaultTemplate = "base"
)

// The limits of what the provider takes. The service's own limits of tags are not published.
const (
	step        = time.Second
	minWindow   = time.Second
	maxWindow   = 24 * time.Hour // of the largest plan; the smallest has 1 h
	maxTags     = 32
	maxTagKey   = 64
	maxTagValue = 512
)

// Limits of single requests. The service's own for one is 70 s.
const (
	readTime   = 20 * time.Second
	createTime = 90 * time.Second
	deleteTime = 80 * time.Second // it waits for a pause or a snapshot that is under way
)

// A Dialect is how a deployment wants its creates: two have been in use.
type Dialect int

const (
	// DialectAuto is V2 for the domains of E2B itself and V1 for all others: the server that E2B has published knows V1
	// only. No request is made to find out, since the two differ by a route for creating alone, and a server that lacks
	// it says so in the same words as one that lacks the template.
	DialectAuto Dialect = iota
	DialectV1           // POST /sandboxes, as official SDKs up to 2.50 do
	DialectV2           // POST /v2/sandboxes, as official SDKs from 2.51 on do
)

// Config says which account to use. Only APIKey is required.
type Config struct {
	APIKey string // "e2b_..."; a secret

	// Domain is the deployment's. Default: [DefaultDomain].
	Domain string

	// APIURL is where sandboxes are made. Default: "https://api." and Domain.
	APIURL string

	// SandboxURL is where the inside of every sandbox is reached, by routing headers. Default: what the official SDKs
	// take for Domain, "https://sandbox.<domain>" for E2B's own, and a host for each sandbox elsewhere.
	SandboxURL string

	// Dialect is for deployments for which the default's guess is wrong: their creates fail with 404.
	Dialect Dialect

	// Template is the template of a Spec without an Image. Default: [DefaultTemplate].
	Template string

	// Name is [Provider.Name]. Default: "e2b/" and a fingerprint of APIURL and APIKey. Give a name where keys are
	// rotated: a journal's entries are of one name.
	Name string

	// HTTP lends its transport; its redirect policy, cookies and timeout are not used. Default: a transport of the
	// provider's own, with the proxies that the environment names.
	HTTP *http.Client

	// Logger is told every request at Debug, and at Warn what no caller can be told any more, such as a command that
	// could not be killed after its context had ended. Default: nothing is logged.
	Logger *slog.Logger
}

// A Provider is one E2B account. It is safe for concurrent use.
type Provider struct {
	name     string
	api      *httpapi.Client // carries the key
	inside   *httpapi.Client // of the sandboxes; carries none
	domain   string
	sandbox  *url.URL // nil: each sandbox has a host of its own
	dialect  Dialect
	template string
	log      *slog.Logger
}

var (
	_ sandbox.Provider    = (*Provider)(nil)
	_ sandbox.Checker     = (*Provider)(nil)
	_ sandbox.Shortener   = (*Provider)(nil)
	_ sandbox.Snapshotter = (*Provider)(nil)
)

// ownDomains are those of E2B itself, where one host routes to all sandboxes.
var ownDomains = [...]string{"e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"}

var domainName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?$`)

// New returns a provider for cfg's account, or every fault of cfg, each matching [sandbox.ErrInvalid]. It makes no
// request: see [Provider.Check].
func New(cfg Config) (*Provider, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, sandbox.ErrInvalid)...))
	}
	switch {
	case cfg.APIKey == "":
		fault("no API key: set E2B_API_KEY or Config.APIKey")
	case strings.ContainsFunc(cfg.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		fault("the API key holds a blank, a line's end or another character that no key has")
	}
	if cfg.Domain == "" {
		cfg.Domain = DefaultDomain
	} else if !domainName.MatchString(cfg.Domain) {
		fault("%q is no domain", cfg.Domain)
	}
	own := slices.Contains(ownDomains[:], cfg.Domain)
	if cfg.APIURL == "" {
		cfg.APIURL = "https://api." + cfg.Domain
	}
	if cfg.SandboxURL == "" && own {
		cfg.SandboxURL = "https://sandbox." + cfg.Domain
	}
	if cfg.Dialect < DialectAuto || cfg.Dialect > DialectV2 {
		fault("unknown dialect %d", cfg.Dialect)
	}
	p := &Provider{name: cfg.Name, domain: cfg.Domain, dialect: cfg.Dialect, template: cfg.Template, log: cfg.Logger}
	if p.dialect == DialectAuto {
		p.dialect = DialectV1
		if own {
			p.dialect = DialectV2
		}
	}
	if p.name == "" {
		sum := sha256.Sum256([]byte(cfg.APIURL + "\n" + cfg.APIKey))
		p.name = "e2b/" + hex.EncodeToString(sum[:4])
	}
	if p.template == "" {
		p.template = DefaultTemplate
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if cfg.SandboxURL != "" {
		base, err := httpapi.ParseBase(cfg.SandboxURL)
		if err != nil {
			faults = append(faults, fmt.Errorf("sandbox URL: %w", err))
		}
		p.sandbox = base
	}
	common := httpapi.Config{Provider: p.name, BaseURL: cfg.APIURL, HTTP: cfg.HTTP, Logger: p.log, Timeout: readTime}
	var err error
	if p.inside, err = httpapi.New(common); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("e2b: %w", err)
	}
	common.Header = http.Header{"X-Api-Key": {cfg.APIKey}}
	common.HTTP = p.inside.HTTP() // one transport for both
	if p.api, err = httpapi.New(common); err != nil {
		return nil, fmt.Errorf("e2b: %w", err)
	}
	return p, nil
}

// FromEnv returns a provider for the account that the environment names, in the variables that the official SDKs read:
// E2B_API_KEY, E2B_DOMAIN, E2B_API_URL and E2B_SANDBOX_URL. With E2B_DEBUG set to true it fails: the official SDKs then
// pretend to make and to kill sandboxes, and no promise of this library could hold. It makes no request.
func FromEnv() (*Provider, error) {
	if strings.EqualFold(os.Getenv("E2B_DEBUG"), "true") {
		return nil, fmt.Errorf("e2b: E2B_DEBUG is true, and official SDKs then only pretend to make and kill sandboxes: unset it: %w",
			sandbox.ErrInvalid)
	}
	return New(Config{
		APIKey: os.Getenv("E2B_API_KEY"), Domain: os.Getenv("E2B_DOMAIN"),
		APIURL: os.Getenv("E2B_API_URL"), SandboxURL: os.Getenv("E2B_SANDBOX_URL"),
	})
}

// Name returns Config.Name, or "e2b/" and a fingerprint of the API's URL and the key.
func (p *Provider) Name() string { return p.name }

// CloseIdle closes the connections that wait for a next request. The provider can still be used.
func (p *Provider) CloseIdle() { p.api.CloseIdle() }

// Capabilities returns the facts of E2B, on its largest plan: windows and lifetimes that are too long for a smaller one
// are refused by the service at create (24 h, or 1 h), and no sandbox's run can be extended beyond them.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Extend:        sandbox.ExtendSet,
		MinWindow:     minWindow,
		MaxWindow:     maxWindow,
		Step:          step,
		MaxLifetime:   maxWindow,
		ReadsDeadline: true,
		AtExpiry:      sandbox.StateGone, // since autoPause is false
		MarkAtCreate:  true,              // there is neither key nor name, so that CreateOnce is false
		CommitDelay:   75 * time.Second,  // the service goes on for up to 70 s
		ReadLag:       2 * time.Second,   // none is known of; lists hide what is being snapshotted
		Revival:       70 * time.Second,  // a resume under way survives a delete, and lasts as long as a request may
		Lateness:      5 * time.Second,   // the service looks every 50 ms, then stops the machine in the background
		DeleteTime:    deleteTime,
		DeleteDoubt:   90 * time.Second, // a failed delete can drop the record; the service then finds the machine in 80 s
		GoneByList:    true,
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

// Check asks for one page of the list. It finds out whether the service is there, takes the key and speaks the API.
// What it cannot find out: the plan and its limits, which no call tells; whether the account is blocked, for then it may
// still read and delete; and whether Config.Dialect is right. That the key may delete need not be found out, since keys
// have no scopes.
func (p *Provider) Check(ctx context.Context) (sandbox.Account, error) {
	var rows []listed
	ans, err := p.api.Do(ctx, httpapi.Request{
		Op: sandbox.OpList, Method: http.MethodGet, Path: "/v2/sandboxes", Query: "state=running,paused&limit=1",
		Out: &rows, MaxBody: pageBytes, Rules: listRules(),
	})
	if err != nil {
		return sandbox.Account{}, err
	}
	skew, known := ans.Skew()
	return sandbox.Account{Skew: skew, SkewKnown: known}, nil
}

// ids are what the service's look like. Older servers add an id of their own after a dash.
var ids = regexp.MustCompile(`^[a-z0-9]{1,64}(-[a-z0-9]{1,64})?$`)

// noSuch is the error for an id that the service never gives out, of which it would say that it is malformed.
func (p *Provider) noSuch(op sandbox.Op, id string) error {
	return p.api.Refuse(op, id, sandbox.ErrNotFound, errors.New("not a sandbox's id"))
}
