package heartbeat_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/heartbeat"
	"github.com/sandglass-dev/sandglass/ttl"
)

// A story is one random life of a lease: what the service does to it, what the owner's clock does, and how it ends.
type story struct {
	*world
	r       *rand.Rand
	jumps   bool
	killed  time.Time // zero: never
	stopped time.Time // when the test ended it; zero: it ended by itself
	expired time.Time // when the lease ended by itself; zero: not while Run ran
}

func newStory(t *testing.T, r *rand.Rand) *story {
	p := ttl.Policy{
		Window:      6*time.Second + time.Duration(r.Int64N(int64(6*time.Minute))),
		MaxLifetime: time.Minute + time.Duration(r.Int64N(int64(time.Hour))),
		After:       time.Duration(r.Int64N(int64(3 * time.Minute))),
	}
	if r.IntN(2) == 0 {
		p.Beat = p.Window/8 + time.Duration(r.Int64N(int64(p.Window/4)))
		p.Attempt = p.Window/20 + time.Duration(r.Int64N(int64(p.Window/8)))
	}
	l := ttl.Limits{Max: 24 * time.Hour, Step: []time.Duration{time.Millisecond, time.Second}[r.IntN(2)], Fixed: r.IntN(8) == 0}
	if l.Fixed {
		p.Window = 0
	}
	w := newWorld(t, p, l)
	s := &story{world: w, r: r, jumps: r.IntN(3) == 0}
	w.kind = kind(r.IntN(3))
	w.Blind = w.kind != adds && r.IntN(2) == 0
	if r.IntN(4) == 0 && w.kind != activity { // what is neither granted nor told, nobody can know
		w.service.cap = w.start.Add(2*w.Plan.Margin + time.Duration(r.Int64N(int64(w.Plan.HardEnd))))
		if w.service.end.After(w.service.cap) { // the create has told the owner so
			w.service.end = w.service.cap
			w.Trust = w.Config.Start.Add(w.service.cap.Sub(w.start) - w.Plan.Margin)
		}
	}
	s.troubles()
	return s
}

// troubles makes a service that is well for some time and in trouble for some, in one of several ways.
func (s *story) troubles() {
	r, attempt := s.r, s.Plan.Attempt
	spell := time.Duration(r.Int64N(int64(3*s.Plan.Beat))) + time.Second
	often := r.Float64()
	well := func(now time.Time) bool { return now.Sub(s.start)/spell%2 == 0 }
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	s.service.fault = func(_ int, c call) fault { // calls come one at a time, so that r needs no lock
		f := fault{out: upTo(attempt / 4), back: upTo(attempt / 4)}
		if well(c.start) || r.Float64() > often {
			return f
		}
		switch r.IntN(7) {
		case 0:
			f.err = errBusy
		case 1:
			f.out = 2 * attempt // no answer
		case 2:
			f.back = 2 * attempt // an answer lost
		case 3:
			f.out, f.deaf = upTo(4*attempt), true
		case 4:
			f.back, f.deaf = upTo(4*attempt), true
		case 5:
			if s.kind != adds { // a late sum is more than one beat: services that add are told to answer or forget
				f.out, f.late = 2*attempt, upTo(2*attempt)
			}
		case 6:
			f.err = fmt.Errorf("429, please: %w", errBusy)
		}
		return f
	}
	s.RetryAfter = func(err error) time.Duration {
		if err.Error() != errBusy.Error() {
			return upTo(2 * s.Plan.Beat)
		}
		return 0
	}
}

// live runs the story to its end.
func (s *story) live() {
	horizon := s.start.Add(time.Duration(s.r.Int64N(int64(s.Plan.HardEnd + s.Plan.Window))))
	kill := time.Time{}
	if s.r.IntN(3) == 0 {
		kill = s.start.Add(time.Duration(s.r.Int64N(int64(s.Plan.HardEnd))))
	}
	plot := rand.New(rand.NewPCG(s.r.Uint64(), 1)) // the service's own draws from r come at the same time
	s.run()
	tick := time.NewTicker(700 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.over:
			s.cancel()
			return
		case now := <-tick.C:
			synctest.Wait()
			if !kill.IsZero() && s.killed.IsZero() && !now.Before(kill) && s.alive() {
				s.kill()
				s.killed = now
			}
			if s.expired.IsZero() && s.killed.IsZero() && !s.alive() {
				s.mu.Lock()
				s.expired = s.service.end
				s.mu.Unlock()
			}
			if s.jumps && plot.IntN(600) == 0 {
				s.jump(time.Duration(plot.Int64N(int64(8*time.Minute))) - 4*time.Minute)
			}
			if now.After(horizon) {
				s.stopped = now
				s.cancel()
				<-s.over
				return
			}
		}
	}
}

// judge checks what holds in every story.
func (s *story) judge(t *testing.T) {
	log, plan := s.log(), s.Plan
	defer func() {
		if t.Failed() {
			s.dump(t)
		}
	}()
	var ended, lost *verdict
	for _, v := range s.verdicts {
		switch {
		case errors.Is(v.cause, heartbeat.ErrEnded):
			require.Nil(t, ended, "its end is told once")
			require.Nil(t, lost, "and before all is lost")
			ended = &v
		default:
			require.ErrorIs(t, v.cause, heartbeat.ErrLost)
			require.Nil(t, lost)
			lost = &v
		}
	}

	// The service's side.
	require.False(t, s.crowded, "two calls at once")
	require.LessOrEqual(t, s.beyond, plan.Window, "the end is too far ahead")
	for i, c := range log {
		require.True(t, c.look || !plan.Fixed, "a fixed end is extended")
		require.LessOrEqual(t, c.window, plan.Window)
		if i == 0 {
			continue
		}
		before := log[i-1]
		if !c.look && before.err != nil {
			require.True(t, before.look && s.Blind, "call %d: an extension follows a failure", i)
			require.NotErrorIs(t, before.err, heartbeat.ErrGone)
		}
		if !c.look && !before.look && before.err == nil {
			require.GreaterOrEqual(t, c.start.Sub(before.answered), plan.Spacing(), "beats too close")
		}
	}

	// The owner's side.
	if lost == nil {
		require.NoError(t, s.err)
		require.False(t, s.stopped.IsZero(), "without a verdict Run ends only with its context")
		require.LessOrEqual(t, s.ended, s.stopped.Sub(s.start)+plan.Attempt)
	} else {
		require.Equal(t, lost.cause, s.err)
		require.GreaterOrEqual(t, s.ended, lost.at)
		require.LessOrEqual(t, s.ended, lost.at+plan.Attempt)
	}
	if ended != nil {
		require.LessOrEqual(t, ended.at, plan.MaxLifetime+plan.Spacing()/10)
	}
	if !s.expired.IsZero() {
		require.NotNil(t, lost, "the lease has ended, and the owner does not know")
		require.LessOrEqual(t, lost.at, s.expired.Sub(s.start)-plan.Margin, "the owner is told after the lease has ended")
	}
	if !s.killed.IsZero() && s.stopped.IsZero() {
		require.NotNil(t, lost)
		require.LessOrEqual(t, lost.at, s.killed.Sub(s.start)+plan.Window, "a death is known a window later at most")
	}
	if lost != nil && !errors.Is(lost.cause, heartbeat.ErrGone) && !s.jumps {
		// Not too soon either: the last good answer gave as much.
		presumed := s.Trust.Mono.Sub(s.start)
		for _, c := range log {
			if c.err == nil && !c.answered.After(s.start.Add(lost.at)) && (!c.look || s.kind != activity) {
				presumed = c.end.Sub(s.start) - c.handled.Sub(c.start) - plan.Margin
			}
		}
		require.GreaterOrEqual(t, lost.at, presumed-time.Millisecond, "lost while the lease could still be presumed")
	}
	if lost != nil && errors.Is(lost.cause, heartbeat.ErrGone) {
		require.True(t, !s.killed.IsZero() || !s.alive(), "a living lease is called dead")
	}
}

// dump prints the story. The heartbeat draws its own numbers, so that a seed alone does not repeat it.
func (s *story) dump(t *testing.T) {
	since := func(at time.Time) time.Duration {
		if at.IsZero() {
			return -1
		}
		return at.Sub(s.start)
	}
	t.Logf("plan %+v, kind %d, blind %v, jumps %v, cap %v", s.Plan, s.kind, s.Blind, s.jumps, since(s.service.cap))
	for _, c := range s.log() {
		t.Logf("look %-5v window %v: %v, handled %v, answered %v, end %v, %v",
			c.look, c.window, since(c.start), since(c.handled), since(c.answered), since(c.end), c.err)
	}
	t.Logf("killed %v, stopped %v, expired %v, Run ended %v, told %v",
		since(s.killed), since(s.stopped), since(s.expired), s.ended, s.verdicts)
}

func TestWhateverAServiceDoes(t *testing.T) {
	stories := 300
	if testing.Short() {
		stories = 50
	}
	base := rand.Uint64()
	count := map[string]int{}
	for i := range stories {
		seed := base + uint64(i)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStory(t, rand.New(rand.NewPCG(seed, 0)))
				s.live()
				time.Sleep(time.Hour) // deaf and late calls end
				s.judge(t)
				count["calls"] += len(s.log())
				count["failed calls"] += len(slices.DeleteFunc(s.log(), func(c call) bool { return c.err == nil }))
				for _, v := range s.verdicts {
					count[map[bool]string{true: "ended", false: "lost"}[errors.Is(v.cause, heartbeat.ErrEnded)]]++
				}
				if !s.killed.IsZero() {
					count["killed"]++
				}
				if s.err == nil {
					count["stopped"]++
				}
			})
		})
		if !ok {
			t.Fatalf("story %d", seed)
		}
	}
	t.Logf("%d stories: %v", stories, count)
	for _, what := range []string{"ended", "lost", "killed", "stopped"} {
		require.Positive(t, count[what], "the stories must differ: %v", count)
	}
}
