package daytona

import (
	"context"
	"encoding/json"
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

// portsLabel holds the ports of Spec.Ports, which the service itself has no field for.
const portsLabel = sandbox.MarkKey + "-ports"

// maxListed is how many sandboxes a list may hold: it bounds what is remembered of one that does not end.
const maxListed = 100_000

// record is what the service says of a sandbox, as far as it is used here; items of lists have the same fields.
type record struct {
	ID                 string            `json:"id"`
	Name               string            `json:"name"`
	Labels             map[string]string `json:"labels"`
	State              string            `json:"state"`
	DesiredState       string            `json:"desiredState"`
	ErrorReason        string            `json:"errorReason"`
	AutoStopInterval   *float64          `json:"autoStopInterval"`
	AutoDeleteInterval *float64          `json:"autoDeleteInterval"`
	AutoDestroyAt      *string           `json:"autoDestroyAt"`
	CreatedAt          string            `json:"createdAt"`
	ToolboxProxyURL    string            `json:"toolboxProxyUrl"`
	Public             bool              `json:"public"`

	deadline time.Time // of AutoDestroyAt
}

// Validate reports what is missing, and reads the deadline.
func (r *record) Validate() error {
	if !isID(r.ID) {
		return errors.New("a sandbox without an id that can be one")
	}
	if r.AutoDestroyAt != nil && *r.AutoDestroyAt != "" {
		at, err := time.Parse(time.RFC3339Nano, *r.AutoDestroyAt)
		if err != nil {
			return errors.New("an autoDestroyAt that is no time")
		}
		r.deadline = at
	}
	return nil
}

// listing is one page of a list.
type listing struct {
	Items      *[]*record      `json:"items"`
	NextCursor json.RawMessage `json:"nextCursor"`

	next string
}

// Validate reports what is missing: a page without items is not an empty page.
func (l *listing) Validate() error {
	if l.Items == nil {
		return errors.New("a page without items")
	}
	if l.NextCursor != nil && string(l.NextCursor) != "null" && json.Unmarshal(l.NextCursor, &l.next) != nil {
		return errors.New("a cursor that is no text")
	}
	for _, r := range *l.Items {
		if r == nil {
			return errors.New("an item that is none")
		}
		if err := r.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// info translates a record that came with ans.
func (p *Provider) info(r *record, ans httpapi.Answer) sandbox.Info {
	i := sandbox.Info{
		ID: r.ID, State: stateOf(r.State), Mark: markOf(r), AsOf: ans.AsOf(), Detail: r.State,
		Native: &known{id: r.ID, toolbox: r.ToolboxProxyURL, ports: r.Labels[portsLabel], public: r.Public},
	}
	if r.State == "" {
		i.Detail = "no state"
	}
	if !p.idle {
		i.Deadline = r.deadline
	}
	if r.DesiredState != "" && r.DesiredState != r.State {
		i.Detail += ", to be " + r.DesiredState
	}
	if r.ErrorReason != "" {
		i.Detail += ": " + cut(p.api.Clean(r.ErrorReason))
	}
	if at, err := time.Parse(time.RFC3339Nano, r.CreatedAt); err == nil {
		i.Created = at
	}
	for k, v := range r.Labels {
		if !strings.HasPrefix(k, sandbox.MarkKey) {
			if i.Tags == nil {
				i.Tags = map[string]string{}
			}
			i.Tags[k] = v
		}
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

// stateOf translates the service's words. Of a sandbox that is resized, copied or made a snapshot of while it runs, the
// platform's word for that takes the place of "started"; it goes on running, or does so again at once.
func stateOf(word string) sandbox.State {
	switch word {
	case "creating", "restoring", "starting", "resuming", "pending_build", "building_snapshot", "pulling_snapshot":
		return sandbox.StateStarting
	case "started", "resizing", "snapshotting", "forking":
		return sandbox.StateRunning
	case "stopping", "pausing", "destroying":
		return sandbox.StateEnding
	case "stopped", "paused", "archiving", "archived":
		return sandbox.StateDormant
	case "error", "build_failed":
		return sandbox.StateFailed
	case "destroyed":
		return sandbox.StateGone
	}
	return sandbox.StateUnknown
}

// markOf reads the mark. Forks inherit labels, and labels can be given to any sandbox: the mark counts only under the
// name made from it. A sandbox that is being deleted has lost its name to whoever wants it next.
func markOf(r *record) sandbox.Mark {
	mark, err := sandbox.ParseMark(r.Labels[sandbox.MarkKey])
	if err != nil {
		return sandbox.Mark{}
	}
	name := r.Name
	if was, ok := strings.CutPrefix(name, "DESTROYED_"); ok {
		if i := strings.LastIndexByte(was, '_'); i >= 0 && strings.Trim(was[i+1:], "0123456789") == "" {
			name = was[:i]
		}
	}
	if name != mark.Name() {
		return sandbox.Mark{}
	}
	return mark
}

// Get looks at one sandbox. Where the service finds none, a list is asked too: one that failed to be destroyed, or that
// had failed before, is hidden from looks for days, and there is nothing that says that it does not run.
func (p *Provider) Get(ctx context.Context, id string) (sandbox.Info, error) {
	if !isID(id) {
		return sandbox.Info{}, p.noSuch(sandbox.OpGet, id)
	}
	r, ans, err := p.look(ctx, sandbox.OpGet, id)
	if err == nil {
		return p.info(r, ans), nil
	}
	if !errors.Is(err, sandbox.ErrNotFound) {
		return sandbox.Info{}, err
	}
	info, hidden, lerr := p.hidden(ctx, id)
	switch {
	case lerr != nil:
		return sandbox.Info{}, lerr
	case hidden:
		return info, nil
	}
	return sandbox.Info{}, err
}

// look asks for one sandbox by its id.
func (p *Provider) look(ctx context.Context, op sandbox.Op, id string) (*record, httpapi.Answer, error) {
	r := &record{}
	ans, err := p.do(ctx, httpapi.Request{Op: op, ID: id, Method: http.MethodGet, Path: "/sandbox/" + url.PathEscape(id), Out: r})
	if err == nil && r.ID != id { // one whose name this is
		return nil, ans, p.noSuch(op, id)
	}
	return r, ans, err
}

// hidden looks for a sandbox among those that have failed and are marked as deleted. A list may still show, for some
// seconds, what a look by id does not find any more: of states other than these, the look is right.
func (p *Provider) hidden(ctx context.Context, id string) (info sandbox.Info, found bool, err error) {
	for item, err := range p.pages(ctx, sandbox.OpGet, id, url.Values{"id": {id}}) {
		if err != nil {
			return sandbox.Info{}, false, err
		}
		if i := p.info(item.record, item.ans); i.ID == id && i.State == sandbox.StateFailed {
			i.Detail += "; it was deleted, and is hidden: the platform has given it up and does not say what became of it"
			info, found = i, true
		}
	}
	return info, found, nil
}

// List yields the sandboxes of the account's organization, in every state, those too that failed to be destroyed. It
// leaves out the spare ones of warm pools, which nobody's create has made.
func (p *Provider) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	labels := map[string]string{}
	if f.Fleet != "" {
		labels[sandbox.FleetKey] = f.Fleet
	}
	if f.Nonce != "" {
		labels[sandbox.NonceKey] = f.Nonce
	}
	query := url.Values{}
	if len(labels) > 0 {
		b, _ := json.Marshal(labels) // of strings: cannot fail
		query.Set("labels", string(b))
	}
	return func(yield func(sandbox.Info, error) bool) {
		seen := map[string]bool{} // an item may slip from one page to the next
		for item, err := range p.pages(ctx, sandbox.OpList, "", query) {
			if err != nil {
				yield(sandbox.Info{}, err)
				return
			}
			if seen[item.record.ID] || item.record.State == "destroyed" {
				continue
			}
			if len(seen) >= maxListed {
				err := fmt.Errorf("%w: more than %d sandboxes", httpapi.ErrEndless, maxListed)
				yield(sandbox.Info{}, &sandbox.APIError{Provider: p.name, Op: sandbox.OpList, Err: err})
				return
			}
			seen[item.record.ID] = true
			if !yield(p.info(item.record, item.ans), nil) {
				return
			}
		}
	}
}

// An item is a record of a list, and the answer that it came with.
type item struct {
	record *record
	ans    httpapi.Answer
}

// pages yields what all pages of a list hold. The order is that of the creates, which nothing changes: by default it is
// that of the latest activity, and a sandbox that is busy between two pages would be missed.
func (p *Provider) pages(ctx context.Context, op sandbox.Op, id string, query url.Values) iter.Seq2[item, error] {
	const size = "200" // the largest
	return func(yield func(item, error) bool) {
		for it, err := range httpapi.Pages(func(cursor string) ([]item, string, error) {
			q := url.Values{"limit": {size}, "sort": {"createdAt"}, "order": {"asc"}, "includeErroredDeleted": {"true"}}
			for k, v := range query {
				q[k] = v
			}
			if cursor != "" {
				q.Set("cursor", cursor)
			}
			var page listing
			ans, err := p.do(ctx, httpapi.Request{
				Op: op, ID: id, Method: http.MethodGet, Path: "/sandbox", Query: q.Encode(), Out: &page, Rules: noSandbox, MaxBody: 32 << 20,
			})
			if err != nil {
				return nil, "", err
			}
			items := make([]item, 0, len(*page.Items))
			for _, r := range *page.Items {
				items = append(items, item{r, ans})
			}
			return items, page.next, nil
		}) {
			if err != nil {
				if _, ok := errors.AsType[*sandbox.APIError](err); !ok && ctx.Err() == nil { // the list's own fault
					err = &sandbox.APIError{Provider: p.name, Op: op, ID: id, Err: err}
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
