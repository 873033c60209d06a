package boat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// patch is the body of a change. A field that is not set is not sent: a TTL of null would mean "never".
type patch struct {
	Name       string `json:"name,omitempty"`
	TTLSeconds int64  `json:"ttlSeconds,omitempty"`
}

// Extend sets the TTL anew, in one request that also writes the mark again, and returns the state and the deadline that
// its answer tells. The service says yes for a machine that it has archived, too; it is not woken.
func (p *Provider) Extend(ctx context.Context, cur sandbox.Info, window time.Duration) (sandbox.Info, error) {
	ttl := int64(window / time.Second) // down: never later than asked
	if window < minWindow || window > maxWindow {
		err := fmt.Errorf("window %v is not in %v to %v", window, minWindow, maxWindow)
		return sandbox.Info{}, p.refuse(sandbox.OpExtend, cur.ID, sandbox.ErrInvalid, err)
	}
	mark := cur.Mark
	if k := p.facts(cur.ID); k != nil {
		mark = k.mark
	}
	change := patch{TTLSeconds: ttl}
	if mark != (sandbox.Mark{}) {
		change.Name = mark.String()
	}
	info, err := p.patch(ctx, sandbox.OpExtend, cur.ID, change)
	if err != nil || info.State != sandbox.StateRunning {
		return info, err
	}
	const grain = 3 * time.Second // of the Date header and the way back
	switch left := info.Left(); {
	case info.Deadline.IsZero():
		return info, p.odd(sandbox.OpExtend, cur.ID, httpapi.Answer{}, errors.New("the answer tells no end"))
	case left > window+grain:
		p.log.WarnContext(ctx, "the service grants more than was asked for", slog.String("provider", p.name), slog.String("sandbox_id", cur.ID),
			slog.String("op", string(sandbox.OpExtend)), slog.Duration("asked", window), slog.Duration("granted", left))
	}
	return info, nil
}

// patch changes a sandbox and returns it as the answer shows it.
func (p *Provider) patch(ctx context.Context, op sandbox.Op, id string, change patch) (sandbox.Info, error) {
	if !isID(id) {
		return sandbox.Info{}, p.noSuch(op, id)
	}
	var told about
	ans, err := p.do(ctx, httpapi.Request{Op: op, ID: id, Method: http.MethodPatch, Path: route(id), Body: change, Out: &told})
	if err != nil {
		return sandbox.Info{}, err
	}
	if told.Sandbox.ID != id {
		return sandbox.Info{}, p.odd(op, id, ans, errForeign)
	}
	return p.info(told.Sandbox, ans), nil
}

// Shorten sets the TTL to left, in whole seconds, after a look that shows that the sandbox runs and ends later than that.
// It starts and resumes nothing.
func (p *Provider) Shorten(ctx context.Context, id string, left time.Duration) error {
	ttl := int64(left / time.Second)
	if ttl < 1 {
		err := fmt.Errorf("%v is less than %v", left, minWindow)
		return p.refuse(sandbox.OpExtend, id, sandbox.ErrInvalid, err)
	}
	r, ans, err := p.look(ctx, sandbox.OpExtend, id)
	if err != nil {
		return err
	}
	switch stateOf(r.State) {
	case sandbox.StateStarting, sandbox.StateRunning, sandbox.StateUnknown:
	default: // it ends, or has ended: there is no lease to make shorter
		return nil
	}
	// What is read is up to a second and the way back older than what the service will count from.
	const reserve = 3 * time.Second
	if !r.deadline.IsZero() {
		spare := r.deadline.Sub(ans.AsOf()) - time.Duration(ttl)*time.Second - reserve
		if spare <= 0 {
			return nil
		}
		var cancel context.CancelFunc // were it longer on its way, it could move the end away
		ctx, cancel = context.WithTimeout(ctx, spare+reserve)
		defer cancel()
	}
	_, err = p.patch(ctx, sandbox.OpExtend, id, patch{TTLSeconds: ttl})
	return err
}
