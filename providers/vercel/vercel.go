package vercel

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
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// DefaultBaseURL is where the official SDKs for sandboxes go.
const DefaultBaseURL = "https://vercel.com/api"

// The limits of what the provider takes.
const (
	minWindow   = time.Second
	maxWindow   = 24 * time.Hour // of the largest plans; the smallest has 45 min
	ownTags     = 2              // of the five: mark and fleet; the name holds the nonce
	maxTags     = 5 - ownTags
	maxTagKey   = 64 // unknown: chosen with care
	maxTagValue = 256
)

// Limits of single requests. A stop answers when the machine has stopped, which can take minutes; after this limit it is
// looked at.
const (
	readTime   = 20 * time.Second
	stopTime   = 90 * time.Second
	deleteTime = 3 * time.Minute // two looks, a stop and the wait for its end, and the delete of the record
)

// Config says which project to use, and how. Required are Team, Project and one of Token and Tokens; the claims of an
// OIDC token in Token stand in for Team and Project.
type Config struct {
	// Token is an access token of a person or a team, or an OIDC token, which expires: see Tokens.
	Token string

	// Tokens is asked for the token before each request, for tokens that expire: OIDC tokens for development live for
	// 12 hours, and a sweeper longer. It must be safe for concurrent use, and quick, so it should cache. A token that
	// says that it is another team's is refused. Not together with Token.
	Tokens func(ctx context.Context) (string, error)

	// Team is the team's id, "team_...". A personal account has one too.
	Team string

	// Project is the project's id, "prj_...", or its name. Names are unique per project, and lists show one project.
	Project string

	// BaseURL is the API's, up to the version. Default: [DefaultBaseURL]. "https://api.vercel.com" is the same service.
	BaseURL string

	// KeepSnapshots leaves snapshots that were made of a sandbox when it is deleted. They bill until they expire, 30 days
	// after their last use by default. A sweeper deletes those of sandboxes whose owner is gone, unless told otherwise.
	// Default: they are deleted with their sandbox, unless another sandbox uses them.
	KeepSnapshots bool

	// Name is [Provider.Name]. Default: "vercel/" and a fingerprint of BaseURL, Team and Project.
	Name string

	// HTTP lends its transport; its redirect policy, cookies and timeout are not used. Default: a transport of the
	// provider's own, with the proxies that the environment names.
	HTTP *http.Client

	// Logger is told every request at Debug, and at Warn what no caller can be told any more, such as a command that
	// could not be killed after its context had ended. Default: nothing is logged.
	Logger *slog.Logger
}

// A Provider is one project. It is safe for concurrent use. It starts no goroutine of its own but for the streams and
// the ends of commands.
type Provider struct {
	api     *httpapi.Client
	name    string
	team    string
	project string
	tokens  func(ctx context.Context) (string, error)
	keep    bool // snapshots
	doubts  doubts
	log     *slog.Logger
}

var (
	_ sandbox.Provider    = (*Provider)(nil)
	_ sandbox.Checker     = (*Provider)(nil)
	_ sandbox.Snapshotter = (*Provider)(nil)
)

// word is what ids of teams and projects look like, and names of projects.
var word = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// New returns a provider for cfg's project, or every fault of cfg, each matching [sandbox.ErrInvalid]. It makes no
// request: see [Provider.Check].
func New(cfg Config) (*Provider, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, sandbox.ErrInvalid)...))
	}
	switch {
	case cfg.Token == "" && cfg.Tokens == nil:
		fault("no token: set Config.Token, or Config.Tokens for one that expires")
	case cfg.Token != "" && cfg.Tokens != nil:
		fault("both a token and a source of tokens")
	case cfg.Token != "" && !sendable(cfg.Token):
		fault("the token holds a blank, a line's end or another character that no token has")
	}
	told := readClaims(cfg.Token)
	if cfg.Team == "" {
		cfg.Team = told.Owner
	}
	if cfg.Project == "" {
		cfg.Project = told.Project
	}
	switch {
	case !word.MatchString(cfg.Team):
		fault("team %.40q is no team's id", cfg.Team)
	case told.Owner != "" && told.Owner != cfg.Team:
		fault("the token is of team %.40q, not of %q", told.Owner, cfg.Team)
	}
	if !word.MatchString(cfg.Project) {
		fault("project %.40q is no project's id or name", cfg.Project)
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	base, err := httpapi.ParseBase(cfg.BaseURL)
	if err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("vercel: configuration: %w", errors.Join(faults...))
	}
	p := &Provider{
		name: cfg.Name, team: cfg.Team, project: cfg.Project, tokens: cfg.Tokens, keep: cfg.KeepSnapshots, log: cfg.Logger,
	}
	if p.name == "" {
		p.name = "vercel/" + fingerprint(base, cfg)
	}
	if p.tokens == nil {
		p.tokens = func(context.Context) (string, error) { return cfg.Token, nil }
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.api, err = httpapi.New(httpapi.Config{
		Provider: p.name, BaseURL: cfg.BaseURL, HTTP: cfg.HTTP, Logger: cfg.Logger, Timeout: readTime,
		Rules: common, Failure: parseFailure,
	})
	if err != nil {
		return nil, fmt.Errorf("vercel: configuration: %w", err)
	}
	return p, nil
}

// fingerprint tells projects apart. Tokens change, and are of no account.
func fingerprint(base *url.URL, cfg Config) string {
	sum := sha256.Sum256([]byte(base.String() + "\x00" + cfg.Team + "\x00" + cfg.Project))
	return hex.EncodeToString(sum[:4])
}

// FromEnv returns a provider for the project that the environment names: by VERCEL_OIDC_TOKEN, whose claims say team and
// project, or else by VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID, which the service's documents have users set.
// VERCEL_OIDC_TOKEN is read anew for each request, since it expires: who renews it in the environment of the process is
// served on. FromEnv reads no file and makes no request.
func FromEnv() (*Provider, error) {
	const oidc = "VERCEL_OIDC_TOKEN"
	cfg := Config{Team: os.Getenv("VERCEL_TEAM_ID"), Project: os.Getenv("VERCEL_PROJECT_ID")}
	if token := os.Getenv(oidc); token != "" {
		told := readClaims(token)
		if told.Owner != "" { // as in official SDKs, the token's word goes before other variables
			cfg.Team = told.Owner
		}
		if told.Project != "" {
			cfg.Project = told.Project
		}
		cfg.Tokens = func(context.Context) (string, error) {
			if token := os.Getenv(oidc); token != "" {
				return token, nil
			}
			return "", errors.New(oidc + " is no longer set")
		}
		return New(cfg)
	}
	cfg.Token = os.Getenv("VERCEL_TOKEN")
	if cfg.Token == "" {
		return nil, fmt.Errorf("vercel: set %s, or VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID: %w", oidc, sandbox.ErrInvalid)
	}
	return New(cfg)
}

// Name returns Config.Name, or "vercel/" and a fingerprint of the project.
func (p *Provider) Name() string { return p.name }

// Native returns the [*http.Client] in use. For [sandbox.As].
func (p *Provider) Native() any { return p.api.HTTP() }

// CloseIdle closes the connections that wait for a next request. The provider can still be used.
func (p *Provider) CloseIdle() { p.api.CloseIdle() }

// Capabilities returns the facts of the service, on its largest plan: what is too long for a smaller one is refused by
// the service.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Extend:        sandbox.ExtendAdd,
		MinWindow:     minWindow,
		MaxWindow:     maxWindow,
		Step:          time.Millisecond,
		MaxLifetime:   maxWindow,
		ReadsDeadline: true,
		AtExpiry:      sandbox.StateDormant, // the record stays
		CreateOnce:    true,                 // names are unique
		MarkAtCreate:  true,
		CommitDelay:   time.Minute,      // unknown
		ReadLag:       2 * time.Second,  // none is known of, and the makers' own tests expect none
		Lateness:      10 * time.Second, // unknown
		DeleteTime:    deleteTime,
		MaxTags:       maxTags,
		MaxTagKey:     maxTagKey,
		MaxTagValue:   maxTagValue,
		SplitOutput:   true,
		Kill:          true,
		Endpoints:     true,
	}
}

// Check asks for one row of the project's list. It finds out whether the service is there, takes the token, and knows
// the project. What it cannot find out without deleting something: whether the token may delete. What no request tells:
// the plan and its limits.
func (p *Provider) Check(ctx context.Context) (sandbox.Account, error) {
	var page listing
	ans, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpList, Method: http.MethodGet, Path: "/v2/sandboxes", Query: p.query("project", p.project, "limit", "1"),
		Out: &page, Rules: noSandbox,
	})
	if err != nil {
		return sandbox.Account{}, err
	}
	skew, known := ans.Skew()
	return sandbox.Account{ID: p.team + "/" + p.project, Skew: skew, SkewKnown: known}, nil
}
