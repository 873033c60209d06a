package vercel

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"regexp"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

var snapshotID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// snapshot is what the service says of one.
type snapshot struct {
	ID        string `json:"id"`
	Session   string `json:"sourceSessionId"`
	Status    string `json:"status"`
	CreatedAt ms     `json:"createdAt"`
}

// album is one page of snapshots.
type album struct {
	Snapshots  *[]*snapshot `json:"snapshots"`
	Pagination *paging      `json:"pagination"`
}

// Validate reports what is missing.
func (a *album) Validate() error {
	if a.Snapshots == nil {
		return errors.New("a page without snapshots")
	}
	for _, s := range *a.Snapshots {
		if s == nil || !snapshotID.MatchString(s.ID) || s.CreatedAt.odd() {
			return errors.New("a snapshot without an id or a time that can be one")
		}
	}
	_, err := a.Pagination.cursor()
	return err
}

// Snapshots yields the snapshots of the sandbox's sessions. They name the session that they were made of, and only the
// sandbox's record says which sessions were its own: once it is deleted, nothing attributes them any more but the
// session in id.
//
// With an empty id it yields those of the whole project, whose Source is then the session's id alone: for those who look
// for what is left over.
func (p *Provider) Snapshots(ctx context.Context, id string) iter.Seq2[sandbox.Snapshot, error] {
	return func(yield func(sandbox.Snapshot, error) bool) {
		var r ref
		own := map[string]bool{}
		if id != "" {
			var err error
			if r, err = p.parse(sandbox.OpSnapshot, id); err == nil {
				own, err = p.ownSessions(ctx, r)
			}
			if err != nil {
				yield(sandbox.Snapshot{}, err)
				return
			}
		}
		for s, err := range p.album(ctx, r) {
			if err != nil {
				yield(sandbox.Snapshot{}, err)
				return
			}
			found := sandbox.Snapshot{ID: s.ID, Source: s.Session, Kind: "snapshot", Created: s.CreatedAt.time()}
			if id != "" {
				if !own[s.Session] {
					continue
				}
				found.Source = id
			}
			if s.Status != "deleted" && !yield(found, nil) {
				return
			}
		}
	}
}

// ownSessions returns the ids of the sessions that ran under the name in r, by the service's own word.
func (p *Provider) ownSessions(ctx context.Context, r ref) (map[string]bool, error) {
	own := map[string]bool{}
	if r.session != "" {
		own[r.session] = true
	}
	for s, err := range p.sessions(ctx, sandbox.OpSnapshot, r) {
		if err != nil {
			return nil, err
		}
		own[s.ID] = true
	}
	return own, nil
}

// album yields the snapshots that the service shows for the name in r, or for the whole project.
func (p *Provider) album(ctx context.Context, r ref) iter.Seq2[*snapshot, error] {
	return pages(ctx, p, sandbox.OpSnapshot, r.id, func(cursor string) ([]*snapshot, string, error) {
		var page album
		if _, err := p.page(ctx, sandbox.OpSnapshot, r.id, "/v2/sandboxes/snapshots", cursor, &page, "name", r.name); err != nil {
			return nil, "", err
		}
		next, err := page.Pagination.cursor()
		return *page.Snapshots, next, err
	})
}

// DeleteSnapshot removes one.
func (p *Provider) DeleteSnapshot(ctx context.Context, s sandbox.Snapshot) error {
	if !snapshotID.MatchString(s.ID) {
		return p.refuse(sandbox.OpSnapshot, s.ID, sandbox.ErrNotFound, errors.New("not a snapshot's id"))
	}
	_, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpSnapshot, ID: s.ID, Method: http.MethodDelete, Path: "/v2/sandboxes/snapshots/" + s.ID,
	})
	return err
}
