package kubernetes

import (
	"cmp"
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

const (
	pageSize  = 100
	maxPage   = 64 << 20 // bytes
	maxListed = 100_000  // what is remembered of a list that does not end
)

// List yields the namespace's sandboxes in every state: all Jobs of ours, and all pods of ours whose Job is gone, under the
// Job's ID. The API server filters by fleet and nonce. Each of both lists is one snapshot, however many pages it has.
func (p *Provider) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		fail := func(err error) { yield(sandbox.Info{}, p.listFault(err)) }
		selector := managedBy + "=" + manager
		if f.Fleet != "" {
			selector += "," + sandbox.FleetKey + "=" + valueOf(f.Fleet)
		}
		if f.Nonce != "" {
			selector += "," + sandbox.NonceKey + "=" + f.Nonce
		}
		if !isValue(valueOf(f.Fleet)) || !isValue(f.Nonce) { // no mark can say so
			return
		}
		var jobs []view
		for v, err := range items[job](ctx, p, p.path(batch, "jobs"), selector) {
			if err != nil {
				fail(err)
				return
			}
			jobs = append(jobs, view{job: &v.item, ans: v.ans})
		}
		pods := map[string][]pod{} // by their Job's uid
		for v, err := range items[pod](ctx, p, p.path(core, "pods"), selector) {
			if err != nil {
				fail(err)
				return
			}
			uid := v.item.Meta.Labels[jobUID]
			pods[uid] = append(pods[uid], v.item)
		}
		for _, v := range jobs {
			uid := v.job.Meta.UID
			v.pods, v.looked = pods[uid], true
			delete(pods, uid)
			if !yield(p.info(idOf(v.job), v), nil) {
				return
			}
		}
		for uid, left := range pods {
			// Its Job may have been made since, or it may have gone with its Job meanwhile: a look tells.
			if uid == "" {
				continue // no Job has made it
			}
			name := jobOf(left[0].Meta)
			if !names.MatchString(name) || !uids.MatchString(uid) {
				fail(p.failed(sandbox.OpList, "", nil, fmt.Errorf("pod %s is ours, and does not tell which Job has made it", left[0].Meta.Name)))
				return
			}
			info, err := p.get(ctx, sandbox.OpList, name+"/"+uid)
			switch {
			case errors.Is(err, sandbox.ErrNotFound):
			case err != nil:
				fail(err)
				return
			case !yield(info, nil):
				return
			}
		}
	}
}

// jobOf returns the name of the Job that has made a pod.
func jobOf(pod meta) string {
	return cmp.Or(pod.Labels[jobName], pod.Labels["job-name"], markOf(pod, true).Name())
}

// A row is one item of a list, and the answer that it came with.
type row[T any] struct {
	item T
	ans  httpapi.Answer
}

// items yields all items of a list, over all pages.
func items[T any](ctx context.Context, p *Provider, path, selector string) iter.Seq2[row[T], error] {
	return func(yield func(row[T], error) bool) {
		n := 0
		fetch := func(cursor string) ([]row[T], string, error) {
			query := "limit=" + strconv.Itoa(pageSize) + "&labelSelector=" + url.QueryEscape(selector)
			if cursor != "" {
				query += "&continue=" + url.QueryEscape(cursor)
			}
			var l page[T]
			ans, err := p.do(ctx, httpapi.Request{
				Op: sandbox.OpList, Method: http.MethodGet, Path: path, Query: query, Out: &l, Rules: noSandbox, MaxBody: maxPage,
			})
			rows := make([]row[T], len(l.Items))
			for i, item := range l.Items {
				rows[i] = row[T]{item, ans}
			}
			return rows, l.Meta.Continue, err
		}
		for r, err := range httpapi.Pages(fetch) {
			if n++; err == nil && n > maxListed {
				err = fmt.Errorf("%w: more than %d", httpapi.ErrEndless, maxListed)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// listFault gives the findings of ours the form that all errors have.
func (p *Provider) listFault(err error) error {
	if errors.Is(err, httpapi.ErrEndless) {
		return p.failed(sandbox.OpList, "", nil, err)
	}
	return err
}
