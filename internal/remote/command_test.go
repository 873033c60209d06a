package remote_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/capture"
	"github.com/sandglass-dev/sandglass/internal/remote"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A service runs one command that says one word at once and another when it is killed.
type service struct {
	lasts    time.Duration // until it ends by itself, with exit code 3
	killing  time.Duration // what a kill takes
	followed error         // what Follow returns in the end
	failed   error         // what Kill returns
	out      bytes.Buffer

	killed, abandoned int
	dead              chan struct{}
}

var errFault = errors.New("of the service")

func (s *service) command() remote.Command {
	s.dead = make(chan struct{})
	out := capture.NewOutput(&s.out, nil)
	kill := func(ctx context.Context) error {
		select {
		case <-time.After(s.killing):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if s.failed == nil {
			close(s.dead)
		}
		return s.failed
	}
	return remote.Command{
		Output: out, KillTime: time.Minute,
		Follow: func(ctx context.Context) (int, error) {
			_, _ = out.Stdout.Write([]byte("first "))
			select {
			case <-time.After(s.lasts):
			case <-s.dead:
				time.Sleep(100 * time.Millisecond) // the last word is on its way
				_, _ = out.Stdout.Write([]byte("last"))
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
			return 3, s.followed
		},
		Left: func(err error) bool { return err != nil },
		Kill: func(ctx context.Context) error {
			s.killed++
			return kill(ctx)
		},
		Abandon: func(ctx context.Context) {
			s.abandoned++
			_ = kill(context.WithoutCancel(ctx))
		},
		Fault: func(err error) error { return errors.Join(errFault, err) },
	}
}

// bubble runs f in one, and leaves what it began the time to end.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f(t)
			time.Sleep(3 * time.Hour)
		})
	})
}

func TestACommandIsFollowedToItsEnd(t *testing.T) {
	bubble(t, "its exit code is the result", func(t *testing.T) {
		s := &service{lasts: time.Hour}
		res, err := s.command().Run(t.Context(), time.Now(), 0)
		require.NoError(t, err)
		assert.Equal(t, sandbox.Result{ExitCode: 3, Stdout: []byte("first ")}, res)
		assert.Equal(t, [2]int{0, 0}, [2]int{s.killed, s.abandoned})
	})
	bubble(t, "what cannot be followed any more is killed, and an error", func(t *testing.T) {
		s := &service{lasts: time.Hour, followed: errors.New("broke off")}
		res, err := s.command().Run(t.Context(), time.Now(), 2*time.Hour)
		require.ErrorIs(t, err, s.followed)
		assert.Equal(t, sandbox.Result{ExitCode: -1, Stdout: []byte("first ")}, res)
		synctest.Wait()
		assert.Equal(t, [2]int{0, 1}, [2]int{s.killed, s.abandoned})
	})
}

func TestACommandWhoseTimeIsOverIsKilled(t *testing.T) {
	bubble(t, "the time counts from when it began", func(t *testing.T) {
		s := &service{lasts: time.Hour}
		began := time.Now()
		time.Sleep(40 * time.Second)
		res, err := s.command().Run(t.Context(), began, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(began))
		assert.Equal(t, sandbox.Result{ExitCode: -1, Stdout: []byte("first "), TimedOut: true}, res)
		assert.Equal(t, [2]int{1, 0}, [2]int{s.killed, s.abandoned})
	})
	bubble(t, "its last words are waited for, for as long as was said", func(t *testing.T) {
		for rest, want := range map[time.Duration]string{time.Millisecond: "first ", time.Second: "first last"} {
			s := &service{lasts: time.Hour}
			c := s.command()
			c.Rest = rest
			res, err := c.Run(t.Context(), time.Now(), time.Minute)
			require.NoError(t, err)
			assert.Equal(t, want, string(res.Stdout))
			time.Sleep(time.Second)
			assert.Equal(t, want, s.out.String(), "written to after Run has returned")
		}
	})
	bubble(t, "a kill that fails is an error of the service", func(t *testing.T) {
		s := &service{lasts: time.Hour, failed: errors.New("no such process group")}
		res, err := s.command().Run(t.Context(), time.Now(), time.Minute)
		require.ErrorIs(t, err, errFault)
		require.ErrorIs(t, err, s.failed)
		require.ErrorContains(t, err, "may still run")
		assert.True(t, res.TimedOut)
	})
	bubble(t, "a kill that hangs is given up", func(t *testing.T) {
		s := &service{lasts: 2 * time.Hour, killing: time.Hour}
		began := time.Now()
		_, err := s.command().Run(t.Context(), began, time.Minute)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 2*time.Minute, time.Since(began))
	})
}

func TestACallerWhoLeavesIsNotKeptWaiting(t *testing.T) {
	left := errors.New("left")
	bubble(t, "while the command runs", func(t *testing.T) {
		s := &service{lasts: time.Hour, killing: 30 * time.Second}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(left) })
		began := time.Now()
		res, err := s.command().Run(ctx, began, time.Minute)
		require.ErrorIs(t, err, left)
		assert.Equal(t, time.Second, time.Since(began))
		assert.Equal(t, sandbox.Result{ExitCode: -1, Stdout: []byte("first ")}, res)
		<-s.dead
		assert.Equal(t, 1, s.abandoned)
	})
	bubble(t, "while it is killed, and the kill goes on", func(t *testing.T) {
		s := &service{lasts: time.Hour, killing: 30 * time.Second}
		ctx, cancel := context.WithCancelCause(t.Context())
		began := time.Now()
		time.AfterFunc(70*time.Second, func() { cancel(left) })
		res, err := s.command().Run(ctx, began, time.Minute)
		require.ErrorIs(t, err, left)
		assert.True(t, res.TimedOut)
		assert.Equal(t, 70*time.Second, time.Since(began))
		<-s.dead
		assert.Equal(t, 90*time.Second, time.Since(began))
	})
}
