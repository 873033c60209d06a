package modal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// idForm is what ids of sandboxes look like.
var idForm = regexp.MustCompile(`^sb-[0-9A-Za-z]{1,64}$`)

// known is what does not change of a sandbox, and would cost a request to be told again.
type known struct {
	name    string
	created time.Time
	beat    []string // what to run at a beat, without a watchdog
	learned bool     // beat is known
}

// maxKnown is of how many sandboxes that is kept.
const maxKnown = 4096

func (p *Provider) learn(id string, k known) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.known[id]
	if k.name == "" {
		k.name = old.name
	}
	if k.created.IsZero() {
		k.created = old.created
	}
	if !k.learned {
		k.beat, k.learned = old.beat, old.learned
	}
	if len(p.known) >= maxKnown {
		for other := range p.known {
			delete(p.known, other)
			break
		}
	}
	p.known[id] = k
}

func (p *Provider) recall(id string) known {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[id]
}

// forget lets go of a sandbox that has ended.
func (p *Provider) forget(id string) {
	p.mu.Lock()
	delete(p.known, id)
	p.mu.Unlock()
	p.service.forget(id)
}

// String tells how a sandbox has ended: the exit code alone would make a dead man's end look like success.
func (e ending) String() string {
	text := strings.ToLower(strings.ReplaceAll(e.word, "_", " "))
	switch {
	case (e.word == "SUCCESS" || e.word == "FAILURE") && e.exit == leaseOver:
		text = "its lease has passed"
	case e.word == "SUCCESS" || e.word == "FAILURE":
		text = fmt.Sprintf("%s with exit code %d", text, e.exit)
	}
	return text
}

// noSuch returns the error of what is there no more, or never was.
func (p *Provider) noSuch(op sandbox.Op, id string, why error) error {
	return &sandbox.APIError{Provider: p.name, Op: op, ID: id, Refused: true, Kind: sandbox.ErrNotFound, Err: why}
}

// Get looks at one sandbox: whether it has ended, by the service's own status, and what its tags are. Of what has ended
// the service keeps nothing but history, so that it is [sandbox.StateGone]. Nothing tells the deadline.
func (p *Provider) Get(ctx context.Context, id string) (sandbox.Info, error) {
	return p.look(ctx, sandbox.OpGet, id)
}

func (p *Provider) look(ctx context.Context, op sandbox.Op, id string) (sandbox.Info, error) {
	if !idForm.MatchString(id) {
		return sandbox.Info{}, p.noSuch(op, id, errors.New("not a sandbox's id"))
	}
	if expired(ctx) {
		return sandbox.Info{}, context.Cause(ctx)
	}
	lctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	info := sandbox.Info{ID: id, AsOf: time.Now(), State: sandbox.StateRunning, Detail: "running"}
	end, err := p.service.wait(lctx, id, 0)
	if err == nil && end.over {
		p.forget(id)
		info.State, info.Detail = sandbox.StateGone, end.String()
		if end.why != "" {
			info.Detail += ": " + p.clean(end.why)
		}
		return info, nil
	}
	var tags map[string]string
	if err == nil {
		tags, err = p.service.tags(lctx, id)
	}
	if err != nil {
		if codeIs(err, codeNotFound) {
			p.forget(id)
		}
		return sandbox.Info{}, p.fail(ctx, op, id, err)
	}
	mark, err := sandbox.ParseMark(tags[sandbox.MarkKey])
	if err != nil {
		info.Tags = userTags(tags)
		return info, nil
	}
	k := p.recall(id)
	started := true
	if k.name == "" || k.created.IsZero() {
		rows, err := p.service.page(lctx, map[string]string{sandbox.NonceKey: mark.Nonce}, 0, true)
		if err != nil {
			return sandbox.Info{}, p.fail(ctx, op, id, err)
		}
		for _, r := range rows {
			if r.id == id {
				k.name, k.created, started = r.name, at(r.created), r.started
				p.learn(id, known{name: r.name, created: k.created, beat: beatOf(tags), learned: true})
			}
		}
	}
	if k.name == "" { // no list shows it yet
		if other, err := p.service.named(lctx, mark.Name()); err == nil && other == id {
			k.name = mark.Name()
			p.learn(id, known{name: k.name, beat: beatOf(tags), learned: true})
		} else if err != nil && !codeIs(err, codeNotFound) {
			return sandbox.Info{}, p.fail(ctx, op, id, err)
		}
	}
	if !started {
		info.State, info.Detail = sandbox.StateStarting, "not started"
	}
	info.Created = k.created
	info.Mark, info.Tags = marked(mark, k.name, tags)
	return info, nil
}

// marked returns mark and tags of what is ours: a mark counts only under the name that was made from it.
func marked(mark sandbox.Mark, name string, tags map[string]string) (sandbox.Mark, map[string]string) {
	if name != mark.Name() {
		return sandbox.Mark{}, userTags(tags)
	}
	return mark, userTags(tags)
}

// userTags returns all tags but ours, or nil.
func userTags(tags map[string]string) map[string]string {
	var users map[string]string
	for k, v := range tags {
		if strings.HasPrefix(k, sandbox.MarkKey) {
			continue
		}
		if users == nil {
			users = map[string]string{}
		}
		users[k] = v
	}
	return users
}

// beatOf reads what to run at a beat: nil where a watchdog is told.
func beatOf(tags map[string]string) []string {
	text, ok := tags[beatKey]
	if !ok {
		return nil
	}
	var args []string
	if json.Unmarshal([]byte(text), &args) != nil || len(args) == 0 || args[0] == "" {
		return nil
	}
	return args
}

// at reads the service's times, to the microsecond.
func at(seconds float64) time.Time {
	const last = 1 << 33 // the year 2242
	if !(seconds > 0 && seconds < last) {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds*1e6 + 0.5)).UTC()
}

// List yields what has not ended, in all Apps of the environment: what was made under another App's name is found too.
// The service filters by tag. Asked for a nonce, it is also asked for what has ended, since it is not known whether it
// counts what is about to end among that.
func (p *Provider) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		if expired(ctx) {
			yield(sandbox.Info{}, context.Cause(ctx))
			return
		}
		tags := map[string]string{}
		if f.Fleet != "" {
			tags[sandbox.FleetKey] = f.Fleet
		}
		if f.Nonce != "" {
			tags[sandbox.NonceKey] = f.Nonce
		}
		asOf := time.Now()
		for r, err := range p.rows(ctx, tags, f.Nonce != "") {
			if err != nil {
				yield(sandbox.Info{}, p.fail(ctx, sandbox.OpList, "", err))
				return
			}
			if r.finished {
				continue
			}
			info, err := p.listed(ctx, r, asOf, len(tags) > 0)
			if err != nil {
				yield(sandbox.Info{}, p.fail(ctx, sandbox.OpList, "", err))
				return
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// listed translates a row. The service's own notes leave open whether rows always carry tags.
func (p *Provider) listed(ctx context.Context, r row, asOf time.Time, filtered bool) (sandbox.Info, error) {
	if filtered && len(r.tags) == 0 {
		tctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		tags, err := p.service.tags(tctx, r.id)
		if err != nil && !codeIs(err, codeNotFound) {
			return sandbox.Info{}, err
		}
		r.tags = tags
	}
	info := sandbox.Info{ID: r.id, State: sandbox.StateRunning, Created: at(r.created), AsOf: asOf, Detail: "listed"}
	if !r.started {
		info.State, info.Detail = sandbox.StateStarting, "listed, not started"
	}
	if mark, err := sandbox.ParseMark(r.tags[sandbox.MarkKey]); err == nil {
		info.Mark, info.Tags = marked(mark, r.name, r.tags)
	} else {
		info.Tags = userTags(r.tags)
	}
	return info, nil
}

// Steps in time around the edge of a page, in seconds. The service's times have microseconds.
const (
	edge     = 2e-6
	pastEdge = 1e-6
)

// rows yields each row once, over all pages. A page is asked for by the time of the oldest row on the last one, and it
// is not known whether the service counts what was made at that very time, nor can it be told where it would cut a run
// of equal times. So the next page is asked for from just behind the edge; when that brings nothing new, from the edge;
// when that does not either, from before it. A list that never gets on is a fault.
func (p *Provider) rows(ctx context.Context, tags map[string]string, finished bool) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		seen := map[string]bool{}
		before, stuck := 0.0, 0
		for {
			pctx, cancel := context.WithTimeout(ctx, readTime)
			page, err := p.service.page(pctx, maps.Clone(tags), before, finished)
			cancel()
			if err != nil {
				yield(row{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			oldest, fresh := page[len(page)-1].created, 0
			for _, r := range page {
				oldest = min(oldest, r.created)
				if seen[r.id] {
					continue
				}
				seen[r.id] = true
				fresh++
				if !yield(r, nil) {
					return
				}
			}
			if fresh > 0 {
				stuck = 0
			} else if stuck++; stuck > 2 {
				yield(row{}, errors.New("the list repeats itself"))
				return
			}
			if at(oldest).IsZero() {
				yield(row{}, errors.New("a row without a time, so that the next page cannot be asked for"))
				return
			}
			before = oldest + []float64{edge, 0, -pastEdge}[stuck]
		}
	}
}
