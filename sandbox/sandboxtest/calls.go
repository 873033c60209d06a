package sandboxtest

import (
	"context"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Call is one request, from the moment it arrived.
type Call struct {
	Op     sandbox.Op
	ID     string        // of the sandbox; of a create, as answered
	Nonce  string        // asked for in a create or list, else that of the sandbox's mark when the call arrived
	Window time.Duration // asked for in a create or extend
	Args   []string      // of a command
	Start  time.Time     // by the test's clock
	End    time.Time     // zero: still under way
	Err    error         // as returned
}

// Calls returns the requests that reached the service, in the order of their arrival; only those of ops, if there are
// any. Calls whose context was over before, and calls refused without a request, are not among them.
func (p *Provider) Calls(ops ...sandbox.Op) []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var calls []Call
	for _, c := range p.calls {
		if len(ops) == 0 || slices.Contains(ops, c.Op) {
			calls = append(calls, *c)
		}
	}
	return calls
}

// arrive logs a call, unless its context is over: then it is never made, and the cause is its error.
func (p *Provider) arrive(ctx context.Context, c Call) (*Call, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if r, ok := p.svc.Lookup(c.ID); ok && c.Nonce == "" {
		c.Nonce = p.info(r).Mark.Nonce
	}
	c.Start = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, &c)
	return &c, nil
}

// learn notes the id that a create was answered with.
func (p *Provider) learn(c *Call, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.ID = id
}

// leave notes the end of a call.
func (p *Provider) leave(c *Call, err *error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	c.End, c.Err = now, *err
}
