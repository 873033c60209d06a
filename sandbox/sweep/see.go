package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	listTries = 3
	witnesses = 20 // sandboxes of the pass before that are looked for by id where the list misses them
)

// see lists the account, and looks by id for what is expected and not listed. After errors, what it returns is not
// everything that there is.
func (p *pass) see(ctx context.Context) (rows []look, errs []error) {
	var err error
	for try := 1; ; try++ {
		rows, err = p.list(ctx)
		again := errors.Is(err, sandbox.ErrRateLimited) || errors.Is(err, sandbox.ErrUnavailable)
		if !again || try == listTries || contain.Sleep(ctx, time.Second<<try) != nil {
			break
		}
	}
	if err != nil {
		return rows, []error{fmt.Errorf("list: %w", err)}
	}
	listed := map[string]bool{}
	for _, l := range rows {
		listed[l.info.ID] = true
	}
	hidden, err := p.missing(ctx, listed)
	if err != nil {
		errs = append(errs, err)
	}
	if len(hidden) > 0 {
		some := hidden[0].info.ID
		errs = append(errs, fmt.Errorf("the list shows %d sandboxes, and not %d that are there, such as %s", len(rows), len(hidden), some))
	}
	return append(rows, hidden...), errs
}

// list returns what the service lists, each sandbox once, as told last.
func (p *pass) list(ctx context.Context) ([]look, error) {
	var mu sync.Mutex
	rows, times := map[string]look{}, map[string]int{}
	closed := false
	_, err := contain.Call(ctx, p.cfg.ListTimeout, func(ctx context.Context) (struct{}, error) {
		for info, err := range p.a.p.List(ctx, sandbox.Filter{Fleet: p.cfg.Fleet}) {
			if err != nil {
				return struct{}{}, err
			}
			l := p.look(info)
			mu.Lock()
			times[info.ID]++
			again := times[info.ID] > 2 // rows move over a page's edge while it is turned, but not twice
			if !closed {
				rows[info.ID] = l
			}
			stop := closed
			mu.Unlock()
			switch {
			case stop:
				return struct{}{}, nil
			case info.ID == "":
				return struct{}{}, errors.New("a row without an id")
			case again:
				return struct{}{}, fmt.Errorf("sandbox %s is listed again and again", info.ID)
			}
		}
		return struct{}{}, nil
	})
	mu.Lock()
	defer mu.Unlock()
	closed = true
	all := make([]look, 0, len(rows))
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		all = append(all, rows[id])
	}
	return all, err
}

func (p *pass) look(info sandbox.Info) look {
	l := look{info: info, at: time.Now()}
	if !info.AsOf.IsZero() {
		l.began = info.AsOf.Add(-l.at.Sub(p.began))
	}
	return l
}

// missing looks by id for what is expected and not listed. Of what an earlier pass has kept a few are enough, for most
// have ended since as they should; if one of them is there, all are looked for.
func (p *pass) missing(ctx context.Context, listed map[string]bool) (hidden []look, err error) {
	var known []string
	var errs []error
	if p.cfg.Known != nil {
		known, err = contain.Call(ctx, p.cfg.ListTimeout, func(ctx context.Context) ([]string, error) { return p.cfg.Known(ctx, p.a.name) })
		if err != nil {
			errs = append(errs, fmt.Errorf("what is known to exist: %w", err))
		}
	}
	seen := maps.Clone(listed)
	find := func(ids []string, limit int) {
		var candidates []string
		for _, id := range ids {
			if id != "" && !seen[id] && (limit <= 0 || len(candidates) < limit) {
				seen[id] = true
				candidates = append(candidates, id)
			}
		}
		found, err := p.existing(ctx, candidates)
		hidden = append(hidden, found...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	find(known, 0)
	var kept []string
	for _, id := range slices.Sorted(maps.Keys(p.a.memory)) {
		if p.a.memory[id].kept {
			kept = append(kept, id)
		}
	}
	if find(kept, witnesses); len(hidden) > 0 {
		find(kept, 0)
	}
	return hidden, errors.Join(errs...)
}

// existing returns those of ids that are there, and still after the time for which answers may lag.
func (p *pass) existing(ctx context.Context, ids []string) (found []look, err error) {
	for round := 1; round <= 2 && len(ids) > 0; round++ {
		if round == 2 && contain.Sleep(ctx, p.a.caps.ReadLag) != nil {
			return nil, context.Cause(ctx)
		}
		found = nil
		var mu sync.Mutex
		var errs []error
		each(p.cfg.Parallel, ids, func(id string) {
			l, err := p.get(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, sandbox.ErrNotFound):
			case err != nil:
				errs = append(errs, fmt.Errorf("sandbox %s, which is known and not listed: %w", id, err))
			case l.info.State != sandbox.StateGone && l.info.State != sandbox.StateEnding: // on its way out it may be hidden
				found = append(found, l)
			}
		})
		ids = ids[:0:0]
		for _, l := range found {
			ids = append(ids, l.info.ID)
		}
		err = errors.Join(append(errs, err)...)
	}
	slices.SortFunc(found, func(a, b look) int { return cmp.Compare(a.info.ID, b.info.ID) })
	return found, err
}

// each calls f for all of v, up to n at once.
func each[T any](n int, v []T, f func(T)) {
	work := make(chan T)
	var wg sync.WaitGroup
	for range min(n, len(v)) {
		wg.Go(func() {
			for x := range work {
				f(x)
			}
		})
	}
	for _, x := range v {
		work <- x
	}
	close(work)
	wg.Wait()
}

// get looks at one sandbox. What may pass is tried again, as long as ctx lasts, but no longer than a minute.
func (p *pass) get(ctx context.Context, id string) (look, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*lookTime, fmt.Errorf("no look within %v: %w", 2*lookTime, context.DeadlineExceeded))
	defer cancel()
	for try := 1; ; try++ {
		info, err := contain.Call(ctx, lookTime, func(ctx context.Context) (sandbox.Info, error) { return p.a.p.Get(ctx, id) })
		if err == nil {
			if info.ID == "" {
				info.ID = id
			}
			return p.look(info), nil
		}
		again := errors.Is(err, sandbox.ErrRateLimited) || errors.Is(err, sandbox.ErrUnavailable)
		if !again || try == 5 || contain.Sleep(ctx, 500*time.Millisecond<<try) != nil {
			return look{}, err
		}
	}
}
