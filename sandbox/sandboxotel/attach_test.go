package sandboxotel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestAGuestIsAScopeOfItsOwn(t *testing.T) {
	bubble(t, "and its sandbox is counted once, with its owner", func(t *testing.T) {
		w := newWorld(t, settings{})
		first, owner := w.tracer.Start(context.Background(), "owner")
		second, guest := w.tracer.Start(context.Background(), "guest")
		require.NoError(t, w.m.WithSandbox(first, func(ctx context.Context, sb sandbox.Sandbox) error {
			return w.m.AttachSandbox(second, sb.ID(), false, func(ctx context.Context, sb sandbox.Sandbox) error {
				assert.Equal(t, "1", w.value("sandglass.sandbox.live{}"))
				_, own := w.tracer.Start(w.o.Context(ctx, sb), "own")
				own.End()
				return run(ctx, sb)
			})
		}))
		owner.End()
		guest.End()
		scopes := w.named("sandbox scope")
		require.Len(t, scopes, 2, "the guest's ends first")
		assert.Equal(t, guest.SpanContext().SpanID(), scopes[0].Parent.SpanID())
		assert.Equal(t, owner.SpanContext().SpanID(), scopes[1].Parent.SpanID())
		assert.Equal(t, attr(scopes[0], "sandglass.sandbox.id"), attr(scopes[1], "sandglass.sandbox.id"))
		assert.Equal(t, scopes[0].SpanContext.SpanID(), w.one("sandbox exec").Parent.SpanID())
		assert.Equal(t, scopes[0].SpanContext.SpanID(), w.one("own").Parent.SpanID())
		assert.Equal(t, scopes[1].SpanContext.SpanID(), w.one("sandbox create").Parent.SpanID())
		assert.Equal(t, scopes[1].SpanContext.SpanID(), w.one("sandbox delete").Parent.SpanID())
		assert.Equal(t, "1", w.value("sandglass.sandbox.deletes{outcome=gone,source=scope}"))
		assert.Zero(t, w.o.Held())
	})
	bubble(t, "also of what nobody has marked", func(t *testing.T) {
		w := newWorld(t, settings{})
		id := foreign(t, w.p)
		require.NoError(t, w.m.AttachSandbox(context.Background(), id, false, run))
		scope := w.one("sandbox scope")
		assert.Equal(t, codes.Unset, scope.Status.Code)
		assert.Equal(t, scope.SpanContext.SpanID(), w.one("sandbox exec").Parent.SpanID())
		assert.Equal(t, "0", w.value("sandglass.sandbox.live{}"), "it is somebody else's")
		assert.Zero(t, w.o.Held())
	})
	bubble(t, "and is over if there is nothing to attach to", func(t *testing.T) {
		w := newWorld(t, settings{})
		require.ErrorIs(t, w.m.AttachSandbox(context.Background(), "nowhere", false, run), sandbox.ErrNotFound)
		assert.Equal(t, "not_found", attr(w.one("sandbox scope"), "error.type"))
		assert.Zero(t, w.o.Held())
	})
}

// foreign makes a sandbox that another fleet owns.
func foreign(t *testing.T, p *sandboxtest.Provider) string {
	t.Helper()
	m := sandbox.Mark{Fleet: "other", Owner: "o", Nonce: "aaaaaaaaaaaaaaaa", Created: time.Now().Truncate(time.Second), Lifetime: time.Hour}
	info, err := p.Create(context.Background(), sandbox.CreateRequest{Mark: m, Window: time.Hour})
	require.NoError(t, err)
	return info.ID
}

func TestATakenOverSandboxIsCountedOnce(t *testing.T) {
	bubble(t, "for the scope that has it now", func(t *testing.T) {
		w := newWorld(t, settings{scope: sandbox.Scope{KeepOnError: 20 * time.Minute}})
		var id string
		require.ErrorIs(t, w.m.WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error {
			id = sb.ID()
			return errTask
		}), errTask)
		w.journal.Abandon() // let go of, as the journal on disk does
		require.NoError(t, w.m.AttachSandbox(context.Background(), id, true, func(ctx context.Context, sb sandbox.Sandbox) error {
			assert.Equal(t, "1", w.value("sandglass.sandbox.live{}"))
			time.Sleep(30 * time.Minute) // past the end of the first lease
			assert.Equal(t, "1", w.value("sandglass.sandbox.live{}"))
			assert.Len(t, w.m.Live(), 1)
			return run(ctx, sb)
		}))
		scopes := w.named("sandbox scope")
		require.Len(t, scopes, 2)
		assert.Equal(t, scopes[1].SpanContext.SpanID(), w.one("sandbox exec").Parent.SpanID())
		assert.Equal(t, scopes[1].SpanContext.SpanID(), w.one("sandbox delete").Parent.SpanID())
		assert.Equal(t, "0", w.value("sandglass.sandbox.live{}"))
		assert.Zero(t, w.o.Held())
	})
}

func TestWhatAnotherProcessHasTakenOverIsNotCounted(t *testing.T) {
	bubble(t, "once a retry has met its lock", func(t *testing.T) {
		w := newWorld(t, settings{})
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(403), Times: -1})
		require.Error(t, w.m.WithSandbox(context.Background(), run))
		assert.Equal(t, "1", w.value("sandglass.sandbox.unverified{}"))
		w.journal.FailPut(fmt.Errorf("locked: %w", sandbox.ErrConflict))
		require.NoError(t, w.m.Replay(context.Background()))
		assert.Equal(t, "0", w.value("sandglass.sandbox.unverified{}"))
		assert.Equal(t, "0", w.value("sandglass.sandbox.live{}"))
		assert.Zero(t, w.o.Held())
	})
}

func TestWhatAReplayCannotEndIsUnverified(t *testing.T) {
	bubble(t, "until one can", func(t *testing.T) {
		w := newWorld(t, settings{})
		w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(403), Times: -1})
		require.Error(t, w.m.WithSandbox(context.Background(), run))
		w.journal.Abandon() // as after a crash; a second process starts
		w2 := newWorld(t, settings{})
		w2.p, w2.journal = w.p, w.journal
		w2.m = w2.manager(sandbox.Scope{})

		time.Sleep(time.Hour) // its lease has ended it, but nobody knows yet, and a service that answers nothing does not help
		w.p.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(401), Skip: 1, Times: -1})
		ctx, caller := w2.tracer.Start(context.Background(), "start")
		require.Error(t, w2.m.Replay(ctx))
		assert.Equal(t, "1", w2.value("sandglass.sandbox.unverified{}"), w2.tree())
		assert.Equal(t, "1", w2.value("sandglass.sandbox.leaks{source=replay}"))

		w.p.Heal()
		require.NoError(t, w2.m.Replay(ctx))
		caller.End()
		assert.Equal(t, "0", w2.value("sandglass.sandbox.unverified{}"))
		assert.Equal(t, "1", w2.value("sandglass.sandbox.deletes{outcome=gone,source=replay}"))
		time.Sleep(2 * time.Minute)
		w2.metrics()
		for _, s := range w2.named("sandbox confirm") {
			assert.Equal(t, caller.SpanContext().SpanID(), s.Parent.SpanID())
		}
		assert.Zero(t, w2.o.Held())
	})
}
