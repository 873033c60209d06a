package docker

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Labels beside the mark's own, and those of the user's tags.
const (
	userLabel = sandbox.MarkKey + "-user" // whom the image's commands run as; the container's own user is the watchdog's
	tagPrefix = sandbox.MarkKey + "-tag."
	noTag     = sandbox.MarkKey + ":inherited" // stands in for a tag that the image was committed with
)

// lists is how many sandboxes of one list are looked at at the same time.
const lists = 8

// Get looks at one container, and asks its watchdog what is left of the lease.
func (p *Provider) Get(ctx context.Context, id string) (sandbox.Info, error) {
	return p.look(ctx, sandbox.OpGet, id, true)
}

// look returns what the engine says of one container, and asks the watchdog too if lease is set and there is one.
//
// The engine's list is asked, for this one id: it answers from a table, while an inspection waits for the container's
// lock, which the start of a command can hold for seconds when there is no room inside for another process, and keeps
// others waiting meanwhile, a beat among them. That nothing is there, though, only the inspection proves.
func (p *Provider) look(ctx context.Context, op sandbox.Op, id string, lease bool) (sandbox.Info, error) {
	if !isID(id) {
		return sandbox.Info{}, p.noSuch(op, id)
	}
	lctx, c := watch(ctx)
	r, err := p.engine.ContainerList(lctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("id", id)})
	if err != nil {
		return sandbox.Info{}, p.fail(lctx, c, op, id, err)
	}
	for _, item := range r.Items {
		if item.ID == id {
			return p.complete(ctx, op, item, c.asOf(), lease)
		}
	}
	return p.inspect(ctx, op, id)
}

func (p *Provider) inspect(ctx context.Context, op sandbox.Op, id string) (sandbox.Info, error) {
	ctx, c := watch(ctx)
	r, err := p.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return sandbox.Info{}, p.fail(ctx, c, op, id, err)
	}
	return inspected(r.Container, c.asOf()), nil
}

// complete adds to an item of a list what a list does not say: how long ago an exited container ended, and what is
// left of a running one's lease.
func (p *Provider) complete(
	ctx context.Context, op sandbox.Op, item container.Summary, asOf time.Time, lease bool,
) (sandbox.Info, error) {
	info := listed(item, asOf)
	switch {
	case item.State == container.StateExited:
		return p.inspect(ctx, op, item.ID)
	case info.State != sandbox.StateRunning || !lease:
		return info, nil
	}
	said, err := p.tellWithin(ctx, answerTime, item.ID, opAsk, time.Second)
	switch {
	case err == nil:
		said.fill(&info)
	case ctx.Err() != nil:
		return sandbox.Info{}, context.Cause(ctx)
	default: // ended or frozen meanwhile; no end can be named
		info.Detail += ", and its watchdog does not answer"
	}
	return info, nil
}

// isID reports whether id can be a container's id. Engines take names and abbreviations too, and another container's
// name must not answer for a sandbox.
func isID(id string) bool {
	return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == ""
}

func (p *Provider) noSuch(op sandbox.Op, id string) error {
	err := errors.New("not a container's id")
	return &sandbox.APIError{Provider: p.name, Op: op, ID: id, Refused: true, Kind: sandbox.ErrNotFound, Err: err}
}

// inspected translates an inspection.
func inspected(r container.InspectResponse, asOf time.Time) sandbox.Info {
	info := sandbox.Info{ID: r.ID, AsOf: asOf}
	if r.Config != nil {
		info.Mark, info.Tags = labelled(r.Config.Labels, r.Name)
	}
	if at, err := time.Parse(time.RFC3339Nano, r.Created); err == nil {
		info.Created = at.Truncate(time.Second) // as a list tells it
	}
	if r.State == nil {
		return info
	}
	info.State, info.Detail = state(r.State.Status), string(r.State.Status)
	if info.State == sandbox.StateEnding && r.State.Status == container.StateExited {
		// The engine removes what has exited at once. Where it has not for this long, it will not.
		const most = time.Minute
		if at, err := time.Parse(time.RFC3339Nano, r.State.FinishedAt); err == nil && at.Year() > 1 && asOf.Sub(at) > most {
			info.State = sandbox.StateDormant
		}
	}
	if r.State.Error != "" {
		info.Detail += ": " + words{errors.New(r.State.Error)}.Error()
	}
	return info
}

// state translates the engine's words. What is created and not started has no process, and nothing will start it
// if its owner died in between: it is residue, and no lease ends it.
func state(s container.ContainerState) sandbox.State {
	switch s {
	case container.StateCreated, container.StatePaused:
		return sandbox.StateDormant
	case container.StateRunning:
		return sandbox.StateRunning
	case container.StateRestarting:
		return sandbox.StateStarting
	case container.StateRemoving, container.StateExited:
		return sandbox.StateEnding
	case container.StateDead:
		return sandbox.StateFailed
	}
	return sandbox.StateUnknown
}

// labelled reads mark and tags. Images committed from a sandbox pass its labels on to other containers: the mark
// counts only under the name made from it.
func labelled(labels map[string]string, name string) (sandbox.Mark, map[string]string) {
	mark, err := sandbox.ParseMark(labels[sandbox.MarkKey])
	if err != nil || strings.TrimPrefix(name, "/") != mark.Name() {
		return sandbox.Mark{}, nil
	}
	var tags map[string]string
	for k, v := range labels {
		if k, ok := strings.CutPrefix(k, tagPrefix); ok && v != noTag {
			if tags == nil {
				tags = map[string]string{}
			}
			tags[k] = v
		}
	}
	return mark, tags
}

// List yields the containers that carry our label, in every state, with what is left of their leases.
func (p *Provider) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		filters := client.Filters{}.Add("label", sandbox.MarkKey)
		if f.Fleet != "" {
			filters.Add("label", sandbox.FleetKey+"="+f.Fleet)
		}
		if f.Nonce != "" {
			filters.Add("label", sandbox.NonceKey+"="+f.Nonce)
		}
		lctx, c := watch(ctx)
		r, err := p.engine.ContainerList(lctx, client.ContainerListOptions{All: true, Filters: filters})
		if err != nil {
			yield(sandbox.Info{}, p.fail(lctx, c, sandbox.OpList, "", err))
			return
		}
		for batch := range slices.Chunk(r.Items, lists) {
			for _, l := range p.completeAll(ctx, batch, c.asOf()) {
				if errors.Is(l.err, sandbox.ErrNotFound) {
					continue // gone since the list was made
				}
				if !yield(l.info, l.err) || l.err != nil {
					return
				}
			}
		}
	}
}

type looked struct {
	info sandbox.Info
	err  error
}

// completeAll completes the items of a batch at the same time.
func (p *Provider) completeAll(ctx context.Context, batch []container.Summary, asOf time.Time) []looked {
	all := make([]looked, len(batch))
	var wg sync.WaitGroup
	for i, item := range batch {
		wg.Go(func() {
			lctx, cancel := context.WithTimeout(ctx, 2*answerTime)
			defer cancel()
			all[i].info, all[i].err = p.complete(lctx, sandbox.OpList, item, asOf, true)
			if all[i].err != nil && lctx.Err() != nil && ctx.Err() == nil { // the engine hangs over this one
				all[i] = looked{info: listed(item, asOf)}
			}
		})
	}
	wg.Wait()
	return all
}

// listed translates an item of a list.
func listed(s container.Summary, asOf time.Time) sandbox.Info {
	info := sandbox.Info{ID: s.ID, State: state(s.State), Created: time.Unix(s.Created, 0).UTC(), AsOf: asOf, Detail: string(s.State)}
	for _, name := range s.Names { // links add further ones
		if mark, tags := labelled(s.Labels, name); mark != (sandbox.Mark{}) {
			info.Mark, info.Tags = mark, tags
		}
	}
	return info
}

// Delete removes the container by force, with its anonymous volumes. A removal already on its way is accepted.
func (p *Provider) Delete(ctx context.Context, id string) error {
	if !isID(id) {
		return p.noSuch(sandbox.OpDelete, id)
	}
	return p.remove(ctx, id)
}

func (p *Provider) remove(ctx context.Context, id string) error {
	ctx, c := watch(ctx)
	_, err := p.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil {
		return nil
	}
	err = p.fail(ctx, c, sandbox.OpDelete, id, err)
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Status == http.StatusConflict {
		return nil // of a forced removal the engine says so of one thing only: it is removing it already
	}
	return err
}

// labelsOf returns the labels of a new container. Tags that its image was committed with are covered.
func labelsOf(req sandbox.CreateRequest, user string, inherited map[string]string) map[string]string {
	labels := map[string]string{}
	for k := range inherited {
		if strings.HasPrefix(k, tagPrefix) {
			labels[k] = noTag
		}
	}
	for k, v := range req.Tags {
		labels[tagPrefix+k] = v
	}
	maps.Copy(labels, map[string]string{
		sandbox.MarkKey: req.Mark.String(), sandbox.FleetKey: req.Mark.Fleet, sandbox.NonceKey: req.Mark.Nonce, userLabel: user,
	})
	return labels
}
