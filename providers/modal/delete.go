package modal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// Delete asks for the end, which the service only promises, and waits for it for up to half a minute: who looks right
// after it then finds it ended, as a rule. Nothing is left that bills but what was made on purpose: images of snapshots,
// volumes, and the secret that the older backend keeps Spec.Env in.
func (p *Provider) Delete(ctx context.Context, id string) error {
	if !idForm.MatchString(id) {
		return p.noSuch(sandbox.OpDelete, id, errors.New("not a sandbox's id"))
	}
	if expired(ctx) {
		return context.Cause(ctx)
	}
	tctx, cancel := context.WithTimeout(ctx, readTime)
	end, err := p.service.terminate(tctx, id)
	cancel()
	switch {
	case err != nil:
		return p.fail(ctx, sandbox.OpDelete, id, err)
	case end.over:
		p.forget(id)
		return p.noSuch(sandbox.OpDelete, id, fmt.Errorf("it has ended before: %s", end))
	}
	for began := time.Now(); time.Since(began) < endTime; {
		wctx, cancel := context.WithTimeout(ctx, poll+readTime)
		end, err := p.service.wait(wctx, id, poll)
		cancel()
		switch {
		case err == nil && end.over:
			p.forget(id)
			return nil
		case expired(ctx):
			return context.Cause(ctx)
		case err != nil:
			return nil // the end was accepted; whether it came, a look will tell
		}
	}
	return nil
}
