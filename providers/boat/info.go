package boat

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// maxListed is how many sandboxes a list may hold: it bounds what is remembered of one that does not end.
const maxListed = 100_000

// record is what the service says of a sandbox, as far as it is used here. Of one that was cancelled it says no more than
// id, state and error, and that once.
type record struct {
	ID           string  `json:"id"`
	Name         string  `json:"name"`
	State        string  `json:"state"`
	Error        *string `json:"error"`
	CreatedAt    *string `json:"createdAt"`
	ArchiveAfter *string `json:"archiveAfter"`
	Access       *string `json:"access"`
	CreatedBy    *string `json:"createdBy"`
	CreatedByID  *string `json:"createdById"`
	HoldsLogins  bool    `json:"holdsCreatorLogins"`

	deadline time.Time // of ArchiveAfter
}

// Validate reports what is missing, and reads the deadline.
func (r *record) Validate() error {
	if r == nil || !isID(r.ID) {
		return errors.New("a sandbox without an id that can be one")
	}
	if at := text(r.ArchiveAfter); at != "" {
		t, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			return errors.New("an archiveAfter that is no time")
		}
		r.deadline = t
	}
	return nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// about is an answer about one sandbox.
type about struct {
	Sandbox *record `json:"sandbox"`
	Notice  string  `json:"giftLimitNotice"`
}

// Validate reports what is missing.
func (a *about) Validate() error { return a.Sandbox.Validate() }

// listing is one page of a list.
type listing struct {
	Sandboxes *[]*record `json:"sandboxes"`
	Page      *struct {
		Next *string `json:"nextCursor"`
		More bool    `json:"hasMore"`
	} `json:"pageInfo"`
}

// Validate reports what is missing: a page without items is not an empty page, and one that is not the last tells where
// the next begins.
func (l *listing) Validate() error {
	if l.Sandboxes == nil {
		return errors.New("a page without sandboxes")
	}
	if l.Page != nil && l.Page.More && text(l.Page.Next) == "" {
		return errors.New("there is more, but no cursor to it")
	}
	for _, r := range *l.Sandboxes {
		if err := r.Validate(); err != nil {
			return err
		}
	}
	return nil
}

func (l *listing) next() string {
	if l.Page == nil || !l.Page.More {
		return ""
	}
	return text(l.Page.Next)
}

// info translates a record that came with ans.
func (p *Provider) info(r *record, ans httpapi.Answer) sandbox.Info {
	i := sandbox.Info{ID: r.ID, State: stateOf(r.State), AsOf: ans.AsOf(), Detail: r.State}
	if p.ours(r) {
		i.Mark, _ = sandbox.ParseMark(r.Name)
	}
	if i.State.MayRun() {
		i.Deadline = r.deadline
	}
	if why := text(r.Error); why != "" {
		i.Detail += ": " + cut(p.api.Clean(why))
	}
	if r.State == "" {
		i.Detail = "no state"
	}
	if at, err := time.Parse(time.RFC3339Nano, text(r.CreatedAt)); err == nil {
		i.Created = at
	}
	return i
}

func cut(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most] + " ..."
	}
	return strings.ToValidUTF8(s, "")
}

// stateOf translates the service's words. "idle" and "running" tell of its own agents, not of our commands.
func stateOf(word string) sandbox.State {
	switch word {
	case "init", "provisioning", "provisioned", "cloning":
		return sandbox.StateStarting
	case "ready", "idle", "running":
		return sandbox.StateRunning
	case "archiving":
		return sandbox.StateEnding
	case "archived":
		return sandbox.StateDormant
	case "error", "cancelled":
		return sandbox.StateFailed
	}
	return sandbox.StateUnknown
}

// ours reports whether a record is the account's own, by all that the service tells of that. A mark on any other is
// somebody's copy of a name.
func (p *Provider) ours(r *record) bool {
	if access := text(r.Access); access != "" && access != "owner" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	by := text(r.CreatedByID)
	return by == "" || p.me == "" || by == p.me
}

// Get looks at one sandbox. What the service says here is right at once, and a sandbox that it does not find is gone, or
// was never one of this account. Of one that has failed it also asks whether its meter still runs.
func (p *Provider) Get(ctx context.Context, id string) (sandbox.Info, error) {
	r, ans, err := p.look(ctx, sandbox.OpGet, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	info := p.info(r, ans)
	if r.State == "error" {
		info.Detail += p.meter(ctx, id)
	}
	return info, nil
}

// look asks for one sandbox by its id.
func (p *Provider) look(ctx context.Context, op sandbox.Op, id string) (*record, httpapi.Answer, error) {
	if !isID(id) {
		return nil, httpapi.Answer{}, p.noSuch(op, id)
	}
	var told about
	ans, err := p.do(ctx, httpapi.Request{Op: op, ID: id, Method: http.MethodGet, Path: route(id), Out: &told})
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		p.forget(id)
		return nil, ans, err
	case err == nil && told.Sandbox.ID != id:
		err = p.odd(op, id, ans, errForeign)
	}
	return told.Sandbox, ans, err
}

func route(id string) string { return "/sandboxes/" + url.PathEscape(id) }

// meter returns what the usage says of a sandbox whose state does not tell whether a machine runs: the service bills by it.
func (p *Provider) meter(ctx context.Context, id string) string {
	var told struct {
		Running *bool `json:"running"`
	}
	_, err := p.do(ctx, httpapi.Request{Op: sandbox.OpGet, ID: id, Method: http.MethodGet, Path: route(id) + "/usage", Out: &told})
	switch {
	case err != nil || told.Running == nil:
		return ""
	case *told.Running:
		return " (its meter runs)"
	}
	return " (its meter has stopped)"
}

// List yields the account's own sandboxes in the organization, in every state. The service can narrow by state alone, and
// so the filter is applied here, to what the names say.
//
// No source tells whether a list without states shows those that are being archived or have failed: they are asked for
// once more.
func (p *Provider) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		if _, err := p.who(ctx, sandbox.OpList, ""); err != nil {
			yield(sandbox.Info{}, err)
			return
		}
		seen := map[string]bool{}
		for it, err := range p.everything(ctx) {
			if err != nil {
				yield(sandbox.Info{}, err)
				return
			}
			if seen[it.record.ID] {
				continue
			}
			if len(seen) >= maxListed {
				err := fmt.Errorf("%w: more than %d sandboxes", httpapi.ErrEndless, maxListed)
				yield(sandbox.Info{}, p.odd(sandbox.OpList, "", it.ans, err))
				return
			}
			seen[it.record.ID] = true
			info := p.info(it.record, it.ans)
			if !p.ours(it.record) || f.Fleet != "" && info.Mark.Fleet != f.Fleet || f.Nonce != "" && info.Mark.Nonce != f.Nonce {
				continue
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// An item is a record, and the answer that it came with.
type item struct {
	record *record
	ans    httpapi.Answer
}

// everything yields all that there is, some of it twice.
func (p *Provider) everything(ctx context.Context) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for _, states := range []string{"", "archiving,error"} {
			for it, err := range p.pages(ctx, states) {
				if !yield(it, err) || err != nil {
					return
				}
			}
		}
	}
}

// pages yields what all pages of a list hold, in the order of the creates.
func (p *Provider) pages(ctx context.Context, states string) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for it, err := range httpapi.Pages(func(cursor string) ([]item, string, error) {
			pairs := []string{"limit", "200", "sort", "asc"}
			if states != "" {
				pairs = append(pairs, "state", states)
			}
			if cursor != "" {
				pairs = append(pairs, "cursor", cursor)
			}
			var page listing
			ans, err := p.do(ctx, httpapi.Request{
				Op: sandbox.OpList, Method: http.MethodGet, Path: "/sandboxes", Query: p.query(pairs...), Out: &page, Rules: noSandbox,
				MaxBody: 32 << 20,
			})
			if err != nil {
				return nil, "", err
			}
			items := make([]item, 0, len(*page.Sandboxes))
			for _, r := range *page.Sandboxes {
				items = append(items, item{r, ans})
			}
			return items, page.next(), nil
		}) {
			if err != nil {
				if _, ok := errors.AsType[*sandbox.APIError](err); !ok && ctx.Err() == nil { // the list's own fault
					err = p.odd(sandbox.OpList, "", httpapi.Answer{}, err)
				}
				yield(item{}, err)
				return
			}
			if !yield(it, nil) {
				return
			}
		}
	}
}

// usage is what a key has made and what of it still exists.
type usage struct {
	Resources *[]struct {
		Kind string `json:"kind"`
		ID   string `json:"id"`
	} `json:"createdResources"`
}

// Validate reports what is missing.
func (u *usage) Validate() error {
	if u.Resources == nil {
		return errors.New("a key's usage without its resources")
	}
	return nil
}

// Ledger returns the ids of the sandboxes that the key has made and that still exist, by the service's own books of the key:
// a second source beside the list, which lags. It is made for [leakcheck.Source], and needs Config.KeyID.
//
// [leakcheck.Source]: https://pkg.go.dev/github.com/sandglass-dev/sandglass/sandbox/leakcheck#Source
func (p *Provider) Ledger(ctx context.Context) ([]string, error) {
	if p.keyID == "" {
		return nil, p.refuse(sandbox.OpList, "", sandbox.ErrInvalid, errors.New("the ledger is a key's: set Config.KeyID"))
	}
	var told usage
	_, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpList, Method: http.MethodGet, Path: "/api-keys/" + url.PathEscape(p.keyID) + "/usage", Out: &told, Rules: noSandbox,
		MaxBody: 32 << 20,
	})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, r := range *told.Resources {
		if r.Kind == "sandbox" && isID(r.ID) {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Snapshots yields the named snapshots that were made of a sandbox: they outlive it. A key that may not see any is not
// told of any, and cannot have made one; what other keys of the account make of a sandbox is not seen then.
func (p *Provider) Snapshots(ctx context.Context, id string) iter.Seq2[sandbox.Snapshot, error] {
	return func(yield func(sandbox.Snapshot, error) bool) {
		if !isID(id) {
			yield(sandbox.Snapshot{}, p.noSuch(sandbox.OpSnapshot, id))
			return
		}
		var told snapshots
		_, err := p.do(ctx, httpapi.Request{
			Op: sandbox.OpSnapshot, ID: id, Method: http.MethodGet, Path: "/named-snapshots", Out: &told, Rules: noSandbox,
		})
		if errors.Is(err, sandbox.ErrPermission) {
			p.log.InfoContext(ctx, "the key may not see snapshots", slog.String("provider", p.name), slog.String("sandbox_id", id))
			return
		}
		if err != nil {
			yield(sandbox.Snapshot{}, err)
			return
		}
		for _, s := range *told.Snapshots {
			if s.Source != id || s.Name == "" {
				continue
			}
			made := sandbox.Snapshot{ID: s.Name, Source: id, Kind: "named snapshot"}
			if at, err := time.Parse(time.RFC3339Nano, word(s.CreatedAt)); err == nil {
				made.Created = at
			}
			if !yield(made, nil) {
				return
			}
		}
	}
}

// snapshots is the list of an account's named ones, of which there are ten at most.
type snapshots struct {
	Snapshots *[]struct {
		Name      string `json:"name"`
		Source    string `json:"sourceSandboxId"`
		CreatedAt any    `json:"createdAt"`
	} `json:"snapshots"`
}

// Validate reports what is missing.
func (s *snapshots) Validate() error {
	if s.Snapshots == nil {
		return errors.New("a list without snapshots")
	}
	return nil
}

// DeleteSnapshot is an error matching [errors.ErrUnsupported]: how the service deletes a named snapshot is in no source
// that this package was made from. It is to be deleted by hand.
func (p *Provider) DeleteSnapshot(_ context.Context, s sandbox.Snapshot) error {
	err := fmt.Errorf("named snapshot %q of sandbox %s: delete it by hand: %w", s.ID, s.Source, errors.ErrUnsupported)
	return p.refuse(sandbox.OpSnapshot, s.Source, nil, err)
}
