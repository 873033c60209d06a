package vercel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	pageSize  = "50"    // the largest
	maxListed = 100_000 // what is remembered of a list that does not end
)

// paging is what every list has. An end is said, by null: a list that says nothing has not shown all.
type paging struct {
	Next json.RawMessage `json:"next"`
}

func (g *paging) cursor() (next string, err error) {
	switch {
	case g == nil || g.Next == nil:
		return "", errors.New("a page that does not say whether it is the last")
	case string(g.Next) == "null":
		return "", nil
	case json.Unmarshal(g.Next, &next) != nil || next == "":
		return "", errors.New("a cursor that is no text")
	}
	return next, nil
}

// listing is one page of sandboxes.
type listing struct {
	Sandboxes  *[]*record `json:"sandboxes"`
	Pagination *paging    `json:"pagination"`
}

// Validate reports what is missing: a page without sandboxes is not an empty page.
func (l *listing) Validate() error {
	if l.Sandboxes == nil {
		return errors.New("a page without sandboxes")
	}
	for _, r := range *l.Sandboxes {
		if err := r.Validate(); err != nil {
			return err
		}
	}
	_, err := l.Pagination.cursor()
	return err
}

// List yields the project's sandboxes in every state. The service filters by one tag: the fleet's. One nonce is asked
// for by its name, which is a look.
func (p *Provider) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		if f.Nonce != "" {
			p.listNonce(ctx, f.Nonce, yield)
			return
		}
		var tag string
		if f.Fleet != "" {
			tag = sandbox.FleetKey + ":" + f.Fleet
		}
		seen := map[string]bool{} // a row may slip from one page to the next
		for v, err := range p.rows(ctx, sandbox.OpList, "", "tags", tag, "sortBy", "createdAt", "sortOrder", "asc") {
			if err != nil {
				yield(sandbox.Info{}, err)
				return
			}
			if seen[v.record.Name] {
				continue
			}
			if len(seen) >= maxListed {
				err := fmt.Errorf("%w: more than %d sandboxes", httpapi.ErrEndless, maxListed)
				yield(sandbox.Info{}, p.failed(sandbox.OpList, "", nil, err))
				return
			}
			seen[v.record.Name] = true
			if !yield(p.info(idOf(v.record.Name, v.record.Session), v), nil) {
				return
			}
		}
	}
}

// listNonce yields the one sandbox that a create with this nonce can have made.
func (p *Provider) listNonce(ctx context.Context, nonce string, yield func(sandbox.Info, error) bool) {
	name := sandbox.Mark{Nonce: nonce}.Name()
	if !isName(name) {
		return // no create can have had it
	}
	v, err := p.look(ctx, sandbox.OpList, ref{name: name})
	switch {
	case err == nil:
		yield(p.info(idOf(name, v.record.Session), v), nil)
	case !errors.Is(err, sandbox.ErrNotFound):
		yield(sandbox.Info{}, err)
	}
}

// row looks for the record that r names in the list, which shows it where a look does not.
func (p *Provider) row(ctx context.Context, op sandbox.Op, r ref) (v view, found bool, err error) {
	for v, err := range p.rows(ctx, op, r.id, "sortBy", "name", "namePrefix", r.name) {
		if err != nil {
			return view{}, false, err
		}
		if v.record.Name == r.name {
			return v, true, nil
		}
	}
	return view{}, false, nil
}

// rows yields what all pages of a list of sandboxes hold.
func (p *Provider) rows(ctx context.Context, op sandbox.Op, id string, pairs ...string) iter.Seq2[view, error] {
	return pages(ctx, p, op, id, func(cursor string) ([]view, string, error) {
		var page listing
		ans, err := p.page(ctx, op, id, "/v2/sandboxes", cursor, &page, pairs...)
		if err != nil {
			return nil, "", err
		}
		rows := make([]view, 0, len(*page.Sandboxes))
		for _, r := range *page.Sandboxes {
			rows = append(rows, view{record: r, ans: ans})
		}
		next, err := page.Pagination.cursor()
		return rows, next, err
	})
}

// page asks for one page of any list.
func (p *Provider) page(
	ctx context.Context, op sandbox.Op, id, path, cursor string, out any, pairs ...string,
) (httpapi.Answer, error) {
	query := p.query(append([]string{"project", p.project, "limit", pageSize, "cursor", cursor}, pairs...)...)
	return p.do(ctx, httpapi.Request{Op: op, ID: id, Method: http.MethodGet, Path: path, Query: query, Out: out, Rules: noSandbox})
}

// pages is [httpapi.Pages], with errors of the list itself as errors of the call.
func pages[T any](
	ctx context.Context, p *Provider, op sandbox.Op, id string, fetch func(cursor string) ([]T, string, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range httpapi.Pages(fetch) {
			if _, ok := errors.AsType[*sandbox.APIError](err); err != nil && !ok && ctx.Err() == nil {
				err = p.failed(op, id, nil, err)
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// history is one page of sessions.
type history struct {
	Sessions   *[]*session `json:"sessions"`
	Pagination *paging     `json:"pagination"`
}

// Validate reports what is missing.
func (h *history) Validate() error {
	if h.Sessions == nil {
		return errors.New("a page without sessions")
	}
	for _, s := range *h.Sessions {
		if err := s.Validate(); err != nil {
			return err
		}
	}
	_, err := h.Pagination.cursor()
	return err
}

// sessions yields the sessions of the record that r names. Those count of which the service itself says so: it might
// ignore the filter.
func (p *Provider) sessions(ctx context.Context, op sandbox.Op, r ref) iter.Seq2[*session, error] {
	all := pages(ctx, p, op, r.id, func(cursor string) ([]*session, string, error) {
		var page history
		if _, err := p.page(ctx, op, r.id, "/v2/sandboxes/sessions", cursor, &page, "name", r.name); err != nil {
			return nil, "", err
		}
		next, err := page.Pagination.cursor()
		return *page.Sessions, next, err
	})
	return func(yield func(*session, error) bool) {
		for s, err := range all {
			if err == nil && s.Sandbox != r.name {
				continue
			}
			if !yield(s, err) {
				return
			}
		}
	}
}
