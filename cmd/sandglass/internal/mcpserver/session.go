package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandglass-dev/sandglass/sandbox"
)

var (
	errOrdered = errors.New("ended by the tool end_sandbox")
	errSilent  = errors.New("the client did not answer")
)

// misses is how many pings in a row may stay unanswered.
const misses = 3

// A session is one client and the sandboxes that it has one after another.
type session struct {
	cfg  Config
	caps sandbox.Capabilities
	ctx  context.Context // ends with the client
	in   *inlet
	out  *outlet
	wg   sync.WaitGroup // of scopes

	mu     sync.Mutex
	peer   *mcp.ServerSession // for pings; nil: the client takes none
	box    *box               // the present one, from its making on; nil: none
	last   *box               // the one before, once it was ready; nil: there was none
	closed bool
}

// A box is one sandbox in its scope.
type box struct {
	end   context.CancelCauseFunc
	began time.Time
	ready chan struct{} // closed when the sandbox can be used, or will never be
	over  chan struct{} // closed when its scope is over

	sb    sandbox.Sandbox // nil: it never got ready; not changed after ready
	ctx   context.Context // the scope's; likewise
	nonce string          // likewise

	err error // of the scope; set before over is closed
}

// why returns what ended or is ending the sandbox; nil: nothing has.
func (b *box) why() error {
	if b.ctx.Err() == nil {
		return nil
	}
	return context.Cause(b.ctx)
}

// begin makes a sandbox. It is called with mu held.
func (s *session) begin() *box {
	ctx, end := context.WithCancelCause(s.ctx)
	b := &box{end: end, began: time.Now(), ready: make(chan struct{}), over: make(chan struct{})}
	s.box = b
	s.wg.Go(func() {
		defer end(nil)
		s.live(ctx, b)
	})
	return b
}

// live is the life of b's sandbox.
func (s *session) live(ctx context.Context, b *box) {
	err := s.cfg.Manager.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		for _, info := range s.cfg.Manager.Live() {
			if info.ID == sb.ID() {
				b.nonce = info.Mark.Nonce
			}
		}
		b.sb, b.ctx = sb, ctx
		close(b.ready)
		s.attend(b)
		s.mu.Lock()
		s.box, s.last = nil, b
		s.mu.Unlock()
		s.cfg.Note("sandbox %s: %v", sb.ID(), context.Cause(ctx))
		return nil
	})
	s.mu.Lock()
	b.err = err
	if b.sb == nil {
		s.box = nil
	}
	s.mu.Unlock()
	close(b.over)
	if b.sb == nil {
		close(b.ready)
	}
}

// use returns the session's sandbox, which it makes if the session has had none.
func (s *session) use(ctx context.Context) (*box, error) {
	s.mu.Lock()
	b := s.box
	switch {
	case s.closed:
		s.mu.Unlock()
		return nil, s.unmade(context.Cause(s.ctx))
	case b == nil && s.last != nil:
		last := s.last
		s.mu.Unlock()
		return nil, s.ended(last)
	case b == nil:
		b = s.begin()
	}
	s.mu.Unlock()
	return b, s.await(ctx, b)
}

// await waits until b can be used.
func (s *session) await(ctx context.Context, b *box) error {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return tell("Cancelled while the sandbox is being made, which goes on.")
	}
	if b.sb == nil {
		return s.unmade(b.err)
	}
	return nil
}

// renew makes a new sandbox once the one before is over.
func (s *session) renew(ctx context.Context) (*box, error) {
	for {
		s.mu.Lock()
		b, last := s.box, s.last
		if s.closed {
			s.mu.Unlock()
			return nil, s.unmade(context.Cause(s.ctx))
		}
		if b == nil && (last == nil || last.isOver()) {
			b = s.begin()
			s.mu.Unlock()
			return b, s.await(ctx, b)
		}
		s.mu.Unlock()
		if b != nil {
			return nil, s.taken(b)
		}
		select { // one at a time
		case <-last.over:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (b *box) isOver() bool {
	select {
	case <-b.over:
		return true
	default:
		return false
	}
}

// finish ends the present sandbox and returns it when its scope is over, or the one before; nil: there is none.
func (s *session) finish(ctx context.Context) (*box, error) {
	s.mu.Lock()
	b := s.box
	if b == nil {
		b = s.last
	}
	s.mu.Unlock()
	if b == nil {
		return nil, nil
	}
	b.end(errOrdered)
	select {
	case <-b.over:
		return b, nil
	case <-ctx.Done():
		return b, tell("Cancelled while the sandbox is being deleted, which goes on.")
	}
}

// close returns when no sandbox is left of the session, or all has been tried. The session's context is over.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wg.Wait()
}

// attend returns when b's scope ends, and ends it when the client has fallen silent.
func (s *session) attend(b *box) {
	ticker := time.NewTicker(s.cfg.Ping)
	defer ticker.Stop()
	missed, answered := 0, false
	for {
		began := time.Now()
		switch err := s.ping(b.ctx); {
		case b.ctx.Err() != nil:
			return
		case err == nil:
			missed, answered = 0, true
		case errors.Is(err, errNoPing):
		case s.in.heard().After(began):
			missed = 0
		default:
			missed++
		}
		if answered && missed >= misses || s.out.stuck() > (misses+1)*s.cfg.Ping {
			b.end(fmt.Errorf("%w for %v", errSilent, misses*s.cfg.Ping))
		}
		select {
		case <-b.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

var errNoPing = errors.New("no pings to this client")

// ping asks the client for a sign of life. Any answer is one, a refusal too.
func (s *session) ping(ctx context.Context) error {
	s.mu.Lock()
	peer := s.peer
	s.mu.Unlock()
	if peer == nil {
		return errNoPing
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Ping/2)
	defer cancel()
	err := peer.Ping(ctx, nil)
	if _, answered := errors.AsType[*jsonrpc.Error](err); answered {
		return nil
	}
	return err
}
