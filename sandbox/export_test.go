package sandbox

import (
	"context"
	"time"
)

// SetWall replaces m's wall clock: the one thing that a bubble of testing/synctest cannot move alone.
func SetWall(m *Manager, wall func() time.Time) { m.wall = wall }

// SlowEnd stretches the instant at which the library ends ctx's scope early, so that a test can do something within it:
// the calls on the sandbox end, then after d once more the context.
func SlowEnd(ctx context.Context, d time.Duration) {
	l := ctx.Value(scopeKey{}).(*life)
	end, cancel := l.endCalls, l.cancel
	l.endCalls = func(cause error) { end(cause); time.Sleep(d) }
	l.cancel = func(cause error) { time.Sleep(d); cancel(cause) }
}
