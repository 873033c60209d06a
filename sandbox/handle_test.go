package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestSandboxRefusesCallsOnceItsFunctionHasReturned(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		var kept sandbox.Sandbox
		require.NoError(t, w.m.WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error { kept = sb; return nil }))
		calls := len(w.p.Calls())
		ctx := context.Background()
		_, err := kept.Exec(ctx, sandbox.Shell("true"))
		assert.ErrorIs(t, err, sandbox.ErrScopeEnded)
		assert.ErrorIs(t, kept.Upload(ctx, "/a", strings.NewReader("")), sandbox.ErrScopeEnded)
		assert.ErrorIs(t, kept.Download(ctx, "/a", &bytes.Buffer{}), sandbox.ErrScopeEnded)
		_, err = kept.Endpoint(ctx, 80)
		assert.ErrorIs(t, err, sandbox.ErrScopeEnded)
		assert.Len(t, w.p.Calls(), calls, "without a request")
	})
}

func TestCallsInFlightEndBeforeTheDelete(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		done := make(chan error, 1)
		require.NoError(t, w.m.WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error {
			go func() {
				_, err := sb.Exec(context.Background(), sandbox.Shell("sleep 3000"))
				done <- err
			}()
			synctest.Wait()
			return nil
		}))
		assert.ErrorIs(t, <-done, sandbox.ErrScopeEnded)
		w.settle(nil)
	})
}

func TestCommandTimeoutIsAtMostWhatIsLeftOfTheLifetime(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{Scope: sandbox.Scope{MaxLifetime: 20 * mins}}, func(w *world) {
		_ = w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			for _, timeout := range []time.Duration{0, 10 * time.Hour} {
				cmd := sandbox.Shell("sleep 10")
				cmd.Timeout = timeout
				w.p.HandleExec(func(_ context.Context, _ sandbox.Sandbox, c sandbox.Cmd) (sandbox.Result, bool, error) {
					assert.Positive(t, c.Timeout)
					assert.LessOrEqual(t, c.Timeout, 20*mins)
					return sandbox.Result{}, true, nil
				})
				_, err := sb.Exec(ctx, cmd)
				require.NoError(t, err)
			}
			cmd := sandbox.Shell("true")
			cmd.Timeout = 5 * sec
			w.p.HandleExec(func(_ context.Context, _ sandbox.Sandbox, c sandbox.Cmd) (sandbox.Result, bool, error) {
				assert.Equal(t, 5*sec, c.Timeout, "a shorter one is the caller's")
				return sandbox.Result{}, true, nil
			})
			_, err := sb.Exec(ctx, cmd)
			return err
		})
	})
}

func TestNonZeroExitIsAResultAndAMissingFileIsNoMissingSandbox(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			res, err := sb.Exec(ctx, sandbox.Shell("echo out; echo err >&2; exit 3"))
			require.NoError(t, err)
			assert.Equal(t, 3, res.ExitCode)
			assert.Equal(t, "out\n", string(res.Stdout))
			assert.Equal(t, "err\n", string(res.Stderr))
			require.NoError(t, sb.Upload(ctx, "/data/in", strings.NewReader("hello")))
			var b bytes.Buffer
			require.NoError(t, sb.Download(ctx, "/data/in", &b))
			assert.Equal(t, "hello", b.String())
			err = sb.Download(ctx, "/data/none", &b)
			assert.ErrorIs(t, err, fs.ErrNotExist)
			assert.NotErrorIs(t, err, sandbox.ErrNotFound)
			return nil
		}))
	})
}

func TestCancelledCommandReturnsTheCauseAtOnceWithTheOutputSoFar(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		why := errors.New("no longer wanted")
		require.NoError(t, w.m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(sec, func() { cancel(why) })
			began := time.Now()
			res, err := sb.Exec(ctx, sandbox.Shell("echo so far; sleep 1000"))
			assert.ErrorIs(t, err, why)
			assert.Equal(t, "so far\n", string(res.Stdout))
			assert.LessOrEqual(t, time.Since(began), 2*sec)
			return nil
		}))
	})
}

func TestAsReachesTheProvidersOwnHandle(t *testing.T) {
	inWorld(t, everything(), sandbox.Config{}, func(w *world) {
		require.NoError(t, w.m.WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error {
			u, found := sandbox.As[interface{ Unwrap() sandbox.Sandbox }](sb)
			require.True(t, found)
			assert.Equal(t, sb.ID(), u.Unwrap().ID())
			_, found = sandbox.As[*bytes.Buffer](sb)
			assert.False(t, found)
			return nil
		}))
		p, found := sandbox.As[*sandboxtest.Provider](wrapped{w.p})
		require.True(t, found)
		assert.Same(t, w.p, p)
		_, found = sandbox.As[sandbox.Checker](wrapped{w.p})
		assert.True(t, found)
		_, found = sandbox.As[sandbox.Checker](nil)
		assert.False(t, found)
	})
}

type wrapped struct{ sandbox.Provider }

func (w wrapped) Unwrap() sandbox.Provider { return w.Provider }

func TestTouchOutsideOfAScopeDoesNothing(t *testing.T) {
	assert.NotPanics(t, func() { sandbox.Touch(context.Background()) })
}
