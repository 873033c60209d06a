package daytona

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// snapshot is what the service says of one.
type snapshot struct {
	ID        string  `json:"id"`
	Source    *string `json:"sourceSandboxId"`
	General   bool    `json:"general"` // everybody's
	CreatedAt string  `json:"createdAt"`
}

// of reports whether s was made of the sandbox id.
func (s *snapshot) of(id string) bool { return s.Source != nil && *s.Source == id && !s.General }

// Validate reports what is missing.
func (s *snapshot) Validate() error {
	if !isID(s.ID) {
		return errors.New("a snapshot without an id that can be one")
	}
	return nil
}

// snapshotPage is one page of a list.
type snapshotPage struct {
	Items      *[]*snapshot `json:"items"`
	TotalPages int          `json:"totalPages"`
}

// Validate reports what is missing.
func (l *snapshotPage) Validate() error {
	if l.Items == nil {
		return errors.New("a page without items")
	}
	for _, s := range *l.Items {
		if s == nil {
			return errors.New("an item that is none")
		}
		if err := s.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Snapshots yields the snapshots that were made of a sandbox. They outlive it and carry no mark; the service itself says
// what they were made of.
func (p *Provider) Snapshots(ctx context.Context, id string) iter.Seq2[sandbox.Snapshot, error] {
	return func(yield func(sandbox.Snapshot, error) bool) {
		if !isID(id) {
			yield(sandbox.Snapshot{}, p.noSuch(sandbox.OpSnapshot, id))
			return
		}
		for s, err := range httpapi.Pages(func(number string) ([]*snapshot, string, error) {
			q := url.Values{"sourceSandboxId": {id}, "limit": {"200"}, "sort": {"createdAt"}, "order": {"asc"}}
			at := 1
			if number != "" {
				at, _ = strconv.Atoi(number) // ours
			}
			q.Set("page", strconv.Itoa(at))
			var page snapshotPage
			_, err := p.do(ctx, httpapi.Request{
				Op: sandbox.OpSnapshot, ID: id, Method: http.MethodGet, Path: "/snapshots", Query: q.Encode(), Out: &page, Rules: noSandbox,
			})
			if err != nil || at >= page.TotalPages {
				number = ""
			} else {
				number = strconv.Itoa(at + 1)
			}
			if err != nil {
				return nil, "", err
			}
			return *page.Items, number, nil
		}) {
			if err != nil {
				if _, ok := errors.AsType[*sandbox.APIError](err); !ok && ctx.Err() == nil {
					err = &sandbox.APIError{Provider: p.name, Op: sandbox.OpSnapshot, ID: id, Err: err}
				}
				yield(sandbox.Snapshot{}, err)
				return
			}
			if !s.of(id) { // an older service ignores the filter
				continue
			}
			made := sandbox.Snapshot{ID: s.ID, Source: id, Kind: "snapshot"}
			if at, err := time.Parse(time.RFC3339Nano, s.CreatedAt); err == nil {
				made.Created = at
			}
			if !yield(made, nil) {
				return
			}
		}
	}
}

// DeleteSnapshot asks for the removal of one that [Provider.Snapshots] yields for its source, which it looks up first: to
// the service it is one of the account's snapshots, and no other may be removed here.
func (p *Provider) DeleteSnapshot(ctx context.Context, s sandbox.Snapshot) error {
	for found, err := range p.Snapshots(ctx, s.Source) {
		if err != nil {
			return err
		}
		if found.ID != s.ID {
			continue
		}
		_, err := p.do(ctx, httpapi.Request{
			Op: sandbox.OpSnapshot, ID: s.ID, Method: http.MethodDelete, Path: "/snapshots/" + url.PathEscape(s.ID),
		})
		return err
	}
	return p.refuse(sandbox.OpSnapshot, s.ID, sandbox.ErrNotFound, fmt.Errorf("no snapshot of sandbox %s", s.Source))
}
