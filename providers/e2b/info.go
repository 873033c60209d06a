package e2b

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	pageSize  = 100      // the most that the service allows
	pageBytes = 64 << 20 // others' metadata, of any size, is in it
)

// A Record is [sandbox.Info.Native]: what the service says beside the common facts.
type Record struct {
	TemplateID  string // resolved, where Spec.Image may have named an alias
	EnvdVersion string // of the daemon inside
	Domain      string // where the sandbox's ports are; empty: the provider's

	token string // for the daemon inside
	ports []int
	whole bool // a list tells less
}

// row is what get and list tell of one sandbox.
type row struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	State       string            `json:"state"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`
}

// Validate reports what is missing: without it, no decision could be made.
func (r *row) Validate() error {
	switch {
	case !ids.MatchString(r.SandboxID):
		return errors.New("no sandboxID")
	case r.State == "":
		return errors.New("no state")
	case r.EndAt.IsZero() || r.StartedAt.IsZero():
		return errors.New("no startedAt or endAt")
	}
	return nil
}

type listed struct{ row }

// detail is what get tells of one sandbox.
type detail struct {
	row
	EnvdAccessToken string `json:"envdAccessToken"`
	Domain          string `json:"domain"`
	Lifecycle       *struct {
		OnTimeout string `json:"onTimeout"`
	} `json:"lifecycle"`
}

// Get looks at one sandbox. The service finds running and paused ones; what it is killing it no longer finds.
func (p *Provider) Get(ctx context.Context, id string) (sandbox.Info, error) {
	return p.get(ctx, sandbox.OpGet, id)
}

func (p *Provider) get(ctx context.Context, op sandbox.Op, id string) (sandbox.Info, error) {
	if !ids.MatchString(id) {
		return sandbox.Info{}, p.noSuch(op, id)
	}
	var d detail
	ans, err := p.api.Do(ctx, httpapi.Request{
		Op: op, ID: id, Method: http.MethodGet, Path: "/sandboxes/" + id, OK: []int{http.StatusOK}, Out: &d,
	})
	if err != nil {
		return sandbox.Info{}, err
	}
	info := d.info(ans.AsOf())
	if named, _, _ := strings.Cut(info.ID, "-"); named != firstPart(id) {
		err := fmt.Errorf("the service answers for another sandbox, %s", info.ID)
		return sandbox.Info{}, &sandbox.APIError{Provider: p.name, Op: op, ID: id, Status: ans.Status, Err: err}
	}
	info.ID = id // the very string that we were asked for
	rec := info.Native.(*Record)
	rec.Domain, rec.token, rec.whole = d.Domain, d.EnvdAccessToken, true
	if d.Lifecycle != nil && d.Lifecycle.OnTimeout == "pause" && info.State == sandbox.StateRunning {
		info.Deadline = time.Time{} // that is no end
		info.Detail += ", to be paused at its timeout"
	}
	return info, nil
}

func firstPart(id string) string {
	first, _, _ := strings.Cut(id, "-")
	return first
}

// info translates. A paused sandbox's endAt is when it was paused: it has no end. The service tells no time of creation
// but the start of the present run, which is the same until somebody pauses and resumes the sandbox.
func (r *row) info(asOf time.Time) sandbox.Info {
	mark, tags, ports := unmetadata(r.Metadata)
	info := sandbox.Info{
		ID: r.SandboxID, Mark: mark, Tags: tags, Created: r.StartedAt, AsOf: asOf,
		Run: r.StartedAt.UTC().Format(time.RFC3339Nano), Detail: r.State,
		Native: &Record{TemplateID: r.TemplateID, EnvdVersion: r.EnvdVersion, ports: ports},
	}
	switch r.State {
	case "running":
		info.State, info.Deadline = sandbox.StateRunning, r.EndAt
	case "paused":
		info.State = sandbox.StateDormant
	}
	return info
}

// List yields running and paused sandboxes, the oldest run first: one that is paused and resumed meanwhile moves on to
// pages still to come, and none is skipped. What is being snapshotted or killed at the moment is not in the service's
// list: only a second list, later, shows that something is gone.
func (p *Provider) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		query := "state=running,paused&order=asc&limit=" + fmt.Sprint(pageSize)
		if filter := metadataFilter(f); filter != "" {
			query = filter + "&" + query
		}
		var asOf time.Time
		rows := httpapi.Pages(func(cursor string) ([]listed, string, error) {
			q := query
			if cursor != "" {
				q += "&nextToken=" + url.QueryEscape(cursor)
			}
			var page []listed
			ans, err := p.api.Do(ctx, httpapi.Request{
				Op: sandbox.OpList, Method: http.MethodGet, Path: "/v2/sandboxes", Query: q,
				OK: []int{http.StatusOK}, Out: &page, MaxBody: pageBytes, Rules: listRules(),
			})
			if err != nil {
				return nil, "", err
			}
			asOf = ans.AsOf()
			return page, ans.Header.Get("X-Next-Token"), nil
		})
		for r, err := range rows {
			if err == nil {
				if err = r.Validate(); err == nil {
					if !yield(r.info(asOf), nil) {
						return
					}
					continue
				}
				err = fmt.Errorf("an item of the list cannot be right: %w", err)
			}
			yield(sandbox.Info{}, p.listFault(ctx, sandbox.OpList, err))
			return
		}
	}
}

// listFault is the error of a list that could not be read to its end.
func (p *Provider) listFault(ctx context.Context, op sandbox.Op, err error) error {
	if _, ok := errors.AsType[*sandbox.APIError](err); ok || ctx.Err() != nil {
		return err
	}
	return &sandbox.APIError{Provider: p.name, Op: op, Err: err}
}

// listRules: a list that is not there is a wrong base URL, and no sandbox's absence.
func listRules() httpapi.Rules {
	return httpapi.Rules{{Status: http.StatusNotFound, Kind: sandbox.ErrInvalid}}
}

// metadataFilter is the query for f; nothing for a filter that is empty, which the service would refuse.
func metadataFilter(f sandbox.Filter) string {
	var pairs [][2]string
	for _, kv := range [...][2]string{{sandbox.FleetKey, f.Fleet}, {sandbox.NonceKey, f.Nonce}} {
		if kv[1] != "" {
			pairs = append(pairs, kv)
		}
	}
	if len(pairs) == 0 {
		return ""
	}
	return "metadata=" + encodeMetadata(pairs)
}

// encodeMetadata encodes three times, since the service decodes three times: as part of a query, as a query of its own,
// and each name and value once more.
func encodeMetadata(pairs [][2]string) string {
	var all []string
	for _, kv := range pairs {
		all = append(all, url.QueryEscape(percent(kv[0]))+"="+url.QueryEscape(percent(kv[1])))
	}
	return url.QueryEscape(strings.Join(all, "&"))
}

// percent escapes all but letters, digits and -_.~.
func percent(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
