package modal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	beginTime = 15 * time.Second // how long a Create waits for the first word from the watchdog
	deathTime = 2 * time.Second  // and, where there was none, for the word that the sandbox has ended
)

// Create asks once for one sandbox, under the name that the mark gives, and returns when the service has found a place
// for it. An image that the service does not have yet is built first, and the App is made where there is none: a first
// create may need a longer sandbox.Config.CreateTimeout than later ones.
//
// The official SDK would send a create again that was not answered; here it may not. What an earlier request has made is
// taken for this one's if it runs and carries the same mark; a name that is taken by anything else is a conflict.
func (p *Provider) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
	o, err := p.order(req)
	if err != nil {
		return sandbox.Info{}, p.refuse(sandbox.OpCreate, "", nil, err)
	}
	if expired(ctx) {
		return sandbox.Info{}, p.refuse(sandbox.OpCreate, "", nil, context.Cause(ctx))
	}
	id, err := p.service.create(ctx, o)
	switch {
	case err == nil:
		p.learn(id, known{name: o.name, beat: o.beat, learned: true})
		return p.begin(ctx, id, o, req)
	case id != "": // of the older backend, which answers before there is a place
		return sandbox.Info{ID: id, Mark: req.Mark, AsOf: time.Now(), Detail: "made, and unfit"}, p.fail(ctx, sandbox.OpCreate, id, err)
	case codeIs(err, codeExists) && ctx.Err() == nil:
		return p.twin(ctx, o, req, err)
	}
	return sandbox.Info{}, p.notMade(ctx, o, err)
}

// notMade says of a create that failed whether something may have been made.
func (p *Provider) notMade(ctx context.Context, o *order, err error) error {
	var secrets []string
	for _, v := range o.env {
		secrets = append(secrets, v)
	}
	f, ok := errors.AsType[*failure](err)
	if expired(ctx) {
		if ok && !f.sent {
			return p.refuse(sandbox.OpCreate, "", nil, context.Cause(ctx))
		}
		return context.Cause(ctx)
	}
	e := p.told(sandbox.OpCreate, "", err, secrets...)
	if !ok {
		return e
	}
	switch f.code {
	case codeNotFound: // an image, a secret or the like: never a sandbox
		e.Kind, e.Refused = sandbox.ErrInvalid, true
	case codeExists, codePrecondition, codeExhausted, codeInvalid, codeOutOfRange, codeUnauthenticated, codePermission, codeUnimplemented:
		e.Refused = true
	}
	switch {
	case !f.sent:
		e.Refused = true
		if e.Err == nil {
			e.Err = errors.New("on the way to the create: App, environment, image, secrets and volumes come first")
		}
	case f.code == codeExhausted:
		e.Err = errors.New("too many creates, no room for this machine, or the workspace's limit of spending")
	}
	return e
}

// twin finds out what has our name.
func (p *Provider) twin(ctx context.Context, o *order, req sandbox.CreateRequest, taken error) (sandbox.Info, error) {
	tctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	refusal := p.told(sandbox.OpCreate, "", taken)
	id, err := p.service.named(tctx, o.name)
	if err != nil { // it has ended meanwhile, or cannot be seen yet: only another create can tell
		if expired(ctx) {
			return sandbox.Info{}, context.Cause(ctx)
		}
		refusal.Err = fmt.Errorf("its name is taken, and by what is not known: %w", p.told(sandbox.OpCreate, "", err))
		return sandbox.Info{}, refusal
	}
	tags, err := p.service.tags(tctx, id)
	if err != nil {
		if expired(ctx) {
			return sandbox.Info{}, context.Cause(ctx)
		}
		refusal.Err = fmt.Errorf("its name is taken, and by what is not known: %w", p.told(sandbox.OpCreate, "", err))
		return sandbox.Info{}, refusal
	}
	if tags[sandbox.MarkKey] != o.mark || tags[sandbox.NonceKey] != req.Mark.Nonce {
		refusal.Refused = true
		refusal.Err = fmt.Errorf("the name %s is taken by a sandbox that carries another mark", o.name)
		return sandbox.Info{}, refusal
	}
	p.learn(id, known{name: o.name, beat: o.beat, learned: true})
	return p.begin(ctx, id, o, req)
}

// begin waits for the first word from the watchdog, which tells what is left of the lease after a start that may have
// taken long. Without such a word the sandbox is what it is; but one that has ended already is unfit.
func (p *Provider) begin(ctx context.Context, id string, o *order, req sandbox.CreateRequest) (sandbox.Info, error) {
	info := sandbox.Info{ID: id, State: sandbox.StateStarting, Mark: req.Mark, Tags: userTags(o.tags), AsOf: time.Now(), Detail: "made"}
	bctx, cancel := context.WithTimeoutCause(ctx, beginTime, errors.New("no word from the watchdog"))
	defer cancel()
	left, asked, err := p.beat(bctx, id, o.beat, o.window)
	if err == nil {
		return granted(info, left, asked), nil
	}
	if expired(ctx) { // made, and the caller learns its id
		return info, nil
	}
	wctx, cancelWait := context.WithTimeout(ctx, readTime)
	defer cancelWait()
	if end, errWait := p.service.wait(wctx, id, deathTime); errWait == nil && end.over {
		p.forget(id)
		info.State, info.Detail = sandbox.StateGone, end.String()
		e := p.failed(sandbox.OpCreate, id, sandbox.ErrInvalid, fmt.Errorf("it has ended at once, %s: the image needs a sh with cat and"+
			" sleep, or Options.Beat", end))
		return info, e
	}
	return info, nil
}
