package ttl_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/ttl"
)

// later returns m after so much time on each of the two clocks.
func later(m ttl.Moment, mono, wall time.Duration) ttl.Moment {
	return ttl.Moment{Mono: m.Mono.Add(mono), Wall: m.Wall.Add(wall)}
}

func TestNowReadsBothClocks(t *testing.T) {
	now := ttl.Now()
	assert.Equal(t, now.Wall, now.Wall.Round(0), "the wall clock carries no monotonic reading")
	assert.NotEqual(t, now.Mono, now.Mono.Round(0), "the monotonic one does")
	assert.True(t, now.Mono.Equal(now.Wall))
	synctest.Test(t, func(t *testing.T) {
		start := ttl.Now()
		time.Sleep(time.Minute)
		now := ttl.Now()
		assert.Equal(t, time.Minute, now.Since(start))
		assert.Equal(t, -time.Minute, now.Until(start))
		assert.Zero(t, now.Drift(start))
	})
}

func TestADeadlineHasPassedWhenEitherClockSaysSo(t *testing.T) {
	start := ttl.Now()
	end := start.Add(3 * time.Minute)
	for _, c := range []struct {
		name        string
		mono, wall  time.Duration // since start
		left, drift time.Duration
	}{
		{"the clocks agree", time.Minute, time.Minute, 2 * time.Minute, 0},
		{"the machine slept", time.Minute, 4 * time.Minute, -time.Minute, 3 * time.Minute},
		{"the wall clock was put forward", time.Second, time.Hour, -57 * time.Minute, time.Hour - time.Second},
		{"the wall clock was put back", 2 * time.Minute, -time.Hour, time.Minute, time.Hour + 2*time.Minute},
		{"both at the end", 3 * time.Minute, 3 * time.Minute, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := later(start, c.mono, c.wall)
			assert.Equal(t, c.left, now.Until(end))
			assert.Equal(t, max(c.mono, c.wall), now.Since(start), "an age is the greater of the two")
			assert.Equal(t, c.drift, now.Drift(start))
		})
	}
}

func TestTheEarlierOfTwoDeadlinesPassesWhenEitherDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	draw := func() time.Duration { return time.Duration(r.IntN(2001)-1000) * time.Millisecond }
	start := ttl.Now()
	for range 1000 {
		now, a, b := later(start, draw(), draw()), later(start, draw(), draw()), later(start, draw(), draw())
		assert.Equal(t, min(now.Until(a), now.Until(b)), now.Until(a.Earlier(b)))
		assert.Equal(t, a.Earlier(b), b.Earlier(a))
	}
}

func TestMomentsSaturateRatherThanWrap(t *testing.T) {
	now := ttl.Now()
	assert.Equal(t, time.Duration(math.MaxInt64), now.Since(ttl.Moment{}), "a zero start is very long ago, not ahead")
	assert.Equal(t, time.Duration(math.MinInt64), now.Until(ttl.Moment{}))
	assert.Positive(t, now.Drift(ttl.Moment{Mono: now.Mono}), "a wall clock out of all bounds has drifted")
}
