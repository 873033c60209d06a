package e2b

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Delete asks to kill a sandbox, running or paused, and returns when the service has let go of it; the machine is then
// stopped in the background. A delete waits for a pause or a snapshot under way, up to 70 s.
//
// After a failure of the service (5xx) the record may be gone while the machine runs on: see Capabilities.DeleteDoubt.
// Snapshots that somebody made of the sandbox by the service's API stay: see [Provider.Snapshots].
func (p *Provider) Delete(ctx context.Context, id string) error {
	if !ids.MatchString(id) {
		return p.noSuch(sandbox.OpDelete, id)
	}
	_, err := p.api.Do(ctx, httpapi.Request{
		Op: sandbox.OpDelete, ID: id, Method: http.MethodDelete, Path: "/sandboxes/" + id,
		OK: []int{http.StatusNoContent}, Timeout: deleteTime,
	})
	return err
}

// Snapshots yields the snapshots that were made of the sandbox id by the service's API. They outlive it, may bill, and
// carry neither mark nor tags, so that only the id of their source attributes them. The service tells no times of them.
func (p *Provider) Snapshots(ctx context.Context, id string) iter.Seq2[sandbox.Snapshot, error] {
	return func(yield func(sandbox.Snapshot, error) bool) {
		if !ids.MatchString(id) {
			yield(sandbox.Snapshot{}, p.noSuch(sandbox.OpSnapshot, id))
			return
		}
		type snapshot struct {
			SnapshotID string `json:"snapshotID"`
		}
		for s, err := range httpapi.Pages(func(cursor string) ([]snapshot, string, error) {
			q := url.Values{"sandboxID": {id}, "limit": {strconv.Itoa(pageSize)}}
			if cursor != "" {
				q.Set("nextToken", cursor)
			}
			var page []snapshot
			ans, err := p.api.Do(ctx, httpapi.Request{
				Op: sandbox.OpSnapshot, ID: id, Method: http.MethodGet, Path: "/snapshots", Query: q.Encode(),
				OK: []int{http.StatusOK}, Out: &page, Rules: listRules(),
			})
			return page, ans.Header.Get("X-Next-Token"), err
		}) {
			if err == nil && s.SnapshotID == "" {
				err = errors.New("an item of the list has no snapshotID")
			}
			if err != nil {
				yield(sandbox.Snapshot{}, p.listFault(ctx, sandbox.OpSnapshot, err))
				return
			}
			if !yield(sandbox.Snapshot{ID: s.SnapshotID, Source: id, Kind: "snapshot"}, nil) {
				return
			}
		}
	}
}

// DeleteSnapshot removes one that Snapshots yields for its source, which it looks up first: to the service, a snapshot
// is a template like the account's own, and no other may be removed here. One that a sandbox still uses is refused by
// the service, with [sandbox.ErrInvalid].
func (p *Provider) DeleteSnapshot(ctx context.Context, s sandbox.Snapshot) error {
	for found, err := range p.Snapshots(ctx, s.Source) {
		if err != nil {
			return err
		}
		if found.ID != s.ID {
			continue
		}
		_, err := p.api.Do(ctx, httpapi.Request{
			Op: sandbox.OpSnapshot, ID: s.ID, Method: http.MethodDelete, Path: "/templates/" + url.PathEscape(s.ID),
			OK: []int{http.StatusNoContent},
		})
		return err
	}
	return p.api.Refuse(sandbox.OpSnapshot, s.ID, sandbox.ErrNotFound, fmt.Errorf("no snapshot of sandbox %s", s.Source))
}
