package boat

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// DefaultBaseURL is the service's API.
const DefaultBaseURL = "https://boat.dev/api/v1"

// DefaultOrg names the account's own wallet, beside those of its organizations.
const DefaultOrg = "personal"

const (
	minWindow = time.Second
	maxWindow = 30 * 24 * time.Hour // the longest TTL
)

// startAllowance is what a create's window has beyond the beats': a TTL runs from the create on. Machines were ready
// within 2 s where somebody looked; SDKs wait for up to five minutes.
const startAllowance = time.Minute

// Config says which account to use, and how. APIKey is required.
type Config struct {
	// APIKey is a key that may read, create, update, stop and delete sandboxes, run commands, and write files. Space
	// around it is cut off.
	APIKey string

	// Org is the organization whose wallet pays: an id ("team_..."), a name, or "personal". An id is best, for names
	// need not be unique. Default: [DefaultOrg]. It is sent always: the one that the account has active can be switched
	// by a person elsewhere, and lists would then show nothing of ours.
	Org string

	// KeyID is the id of APIKey, if that may read its own usage: see [Provider.Ledger]. Default: none.
	KeyID string

	// BaseURL is the API's, with the path /api/v1. Default: [DefaultBaseURL].
	BaseURL string

	// Name is [Provider.Name]. Default: "boat/" and a fingerprint of BaseURL, Org and APIKey.
	Name string

	// HTTP lends its transport; its redirect policy, cookies and timeout are not used. Default: a transport of our own.
	HTTP *http.Client

	// Logger is told every request at Debug, without secrets, deletion operations at Info, and at Warn what no caller can
	// be told any more. Default: nothing is logged.
	Logger *slog.Logger
}

// A Provider is one wallet of one account. It is safe for concurrent use. It starts no goroutine of its own but for the
// end of commands.
type Provider struct {
	api    *httpapi.Client
	name   string
	org    string
	keyID  string
	secret string
	log    *slog.Logger

	mu    sync.Mutex        // never held over a request
	known map[string]*known // by id, of what was made here and is not known to be gone
	me    string            // the account's own id; empty: not asked, or not told
	asked bool              // the service has answered who we are
}

var (
	_ sandbox.Provider    = (*Provider)(nil)
	_ sandbox.Checker     = (*Provider)(nil)
	_ sandbox.Shortener   = (*Provider)(nil)
	_ sandbox.Snapshotter = (*Provider)(nil)
	_ sandbox.Repeater    = (*Provider)(nil)
)

// New returns a provider, or every fault of cfg, each matching [sandbox.ErrInvalid]. It makes no request: see
// [Provider.Check].
func New(cfg Config) (*Provider, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, sandbox.ErrInvalid)...))
	}
	cfg.APIKey = strings.TrimSpace(cfg.APIKey)
	if cfg.APIKey == "" {
		fault("no key")
	}
	if strings.ContainsFunc(cfg.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		fault("a key with a character that no header can hold")
	}
	cfg.Org = cmp.Or(cfg.Org, DefaultOrg)
	if cfg.KeyID != "" && !isID(cfg.KeyID) {
		fault("key id %.40q is none", cfg.KeyID)
	}
	cfg.BaseURL = cmp.Or(cfg.BaseURL, DefaultBaseURL)
	base, err := httpapi.ParseBase(cfg.BaseURL)
	if err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("boat: configuration: %w", errors.Join(faults...))
	}
	p := &Provider{
		name: cfg.Name, org: cfg.Org, keyID: cfg.KeyID, secret: cfg.APIKey, log: cfg.Logger, known: map[string]*known{},
	}
	if p.name == "" {
		p.name = "boat/" + fingerprint(base, cfg)
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.api, err = httpapi.New(httpapi.Config{
		Provider: p.name, BaseURL: cfg.BaseURL, Header: http.Header{"Authorization": {"Bearer " + p.secret}},
		HTTP: cfg.HTTP, Logger: cfg.Logger, Failure: parseFailure, Rules: common,
	})
	if err != nil {
		return nil, fmt.Errorf("boat: configuration: %w", err)
	}
	return p, nil
}

func fingerprint(base *url.URL, cfg Config) string {
	sum := sha256.Sum256([]byte(base.String() + "\x00" + cfg.Org + "\x00" + cfg.APIKey))
	return hex.EncodeToString(sum[:4])
}

// FromEnv returns a provider for the account that the environment names: BOAT_API_KEY (or BOX_API_KEY, its former name),
// and BOAT_BASE_URL or BOAT_API_URL. It makes no request. BOX_BASE_URL is not read: it names the former API.
func FromEnv() (*Provider, error) {
	key := cmp.Or(os.Getenv("BOAT_API_KEY"), os.Getenv("BOX_API_KEY"))
	if strings.TrimSpace(key) == "" {
		return nil, fmt.Errorf("boat: set BOAT_API_KEY: %w", sandbox.ErrInvalid)
	}
	return New(Config{APIKey: key, BaseURL: cmp.Or(os.Getenv("BOAT_BASE_URL"), os.Getenv("BOAT_API_URL"))})
}

// Name returns Config.Name, or "boat/" and a fingerprint of the account.
func (p *Provider) Name() string { return p.name }

// Native returns the [*http.Client] in use. For [sandbox.As].
func (p *Provider) Native() any { return p.api.HTTP() }

// Capabilities returns the facts of the service. A mark is not written by the create itself: see the package comment.
// There are no tags, for the name is all that there is to write on.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Extend:         sandbox.ExtendSet,
		MinWindow:      minWindow,
		MaxWindow:      maxWindow,
		Step:           time.Second,
		StartAllowance: startAllowance,
		ReadsDeadline:  true,
		AtExpiry:       sandbox.StateDormant,
		CreateOnce:     true,             // by the idempotency key
		CommitDelay:    time.Minute,      // not told; a key is in progress until its create has come to something
		ReadLag:        3 * time.Second,  // of lists, whose lag nobody has measured; a look by id has shown none
		Lateness:       30 * time.Second, // archiving, as observed: 2 to 29 s; how late it begins is not told
		DeleteTime:     time.Minute,
		SplitOutput:    true,
		BinaryOut:      true,
		Kill:           true,
		Endpoints:      true,
	}
}

// Check asks who the key belongs to, what its plan is, and for one sandbox. A key that may not read the first two is no
// error. Whether it may delete no request can tell: the first scope's own delete does.
func (p *Provider) Check(ctx context.Context) (sandbox.Account, error) {
	var account sandbox.Account
	var page listing
	ans, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpList, Method: http.MethodGet, Path: "/sandboxes", Query: p.query("limit", "1"), Out: &page, Rules: noSandbox,
	})
	if err != nil {
		return account, err
	}
	account.Skew, account.SkewKnown = ans.Skew()
	if account.ID, err = p.who(ctx, sandbox.OpGet, ""); err != nil {
		return account, err
	}
	var plan limits
	_, err = p.do(ctx, httpapi.Request{
		Op: sandbox.OpGet, Method: http.MethodGet, Path: "/limits", Query: p.query(), Out: &plan, Rules: noSandbox,
	})
	if err != nil && !errors.Is(err, sandbox.ErrPermission) {
		return account, err
	}
	account.MaxLive = plan.live()
	return account, nil
}

// limits is what the service says of a plan.
type limits struct {
	MaxActive int  `json:"maxActiveSandboxes"`
	Unlimited bool `json:"unlimited"`
	Gift      *struct {
		MaxActive *int `json:"maxActiveSandboxes"`
	} `json:"giftLimit"`
}

// live returns how many sandboxes the plan allows at once; 0: not known.
func (l *limits) live() int {
	n := max(l.MaxActive, 0)
	if l.Unlimited {
		n = 0
	}
	if l.Gift != nil && l.Gift.MaxActive != nil && *l.Gift.MaxActive > 0 && (n == 0 || *l.Gift.MaxActive < n) {
		n = *l.Gift.MaxActive
	}
	return n
}

// who returns the account's own id; empty where the key may not know it.
func (p *Provider) who(ctx context.Context, op sandbox.Op, id string) (string, error) {
	p.mu.Lock()
	me, asked := p.me, p.asked
	p.mu.Unlock()
	if asked {
		return me, nil
	}
	var told struct {
		User struct {
			ID string `json:"id"`
		} `json:"user"`
	}
	_, err := p.do(ctx, httpapi.Request{Op: op, ID: id, Method: http.MethodGet, Path: "/me", Out: &told, Rules: noSandbox})
	if err != nil && !errors.Is(err, sandbox.ErrPermission) {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.me, p.asked = told.User.ID, true
	return p.me, nil
}

// query returns a query of the organization and the given names and values.
func (p *Provider) query(pairs ...string) string {
	q := url.Values{"org": {p.org}}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}
