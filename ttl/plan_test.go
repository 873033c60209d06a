package ttl_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/ttl"
)

// plain is a provider that takes whole seconds and any lifetime.
var plain = ttl.Limits{Max: 24 * time.Hour, Step: time.Second}

func TestZeroPolicyIsTheDefaults(t *testing.T) {
	plan, err := ttl.Policy{}.Resolve(plain)
	require.NoError(t, err)
	assert.Equal(t, 3*time.Minute, plan.Window)
	assert.Equal(t, time.Minute, plan.Beat)
	assert.Equal(t, 30*time.Second, plan.Attempt)
	assert.Equal(t, 5*time.Second, plan.Margin)
	assert.Equal(t, time.Hour, plan.MaxLifetime)
	assert.Equal(t, time.Hour, plan.HardEnd)
	assert.Equal(t, 5*time.Second, plan.Spacing())
	assert.False(t, plan.Fixed)
}

func TestDefaultsFollowTheWindowAndTheProvider(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy ttl.Policy
		limits ttl.Limits
		check  func(*testing.T, ttl.Plan)
	}{
		{
			"beat and attempt are parts of a short window",
			ttl.Policy{Window: 6 * time.Second},
			plain,
			func(t *testing.T, p ttl.Plan) {
				assert.Equal(t, 2*time.Second, p.Beat)
				assert.Equal(t, time.Second, p.Attempt)
				assert.Equal(t, 300*time.Millisecond, p.Margin)
				assert.Equal(t, 2*time.Second, p.Spacing(), "beats of a short plan may lie as close as it says")
			},
		},
		{
			"attempt and margin do not grow with a long window",
			ttl.Policy{Window: 30 * time.Minute},
			plain,
			func(t *testing.T, p ttl.Plan) {
				assert.Equal(t, 10*time.Minute, p.Beat)
				assert.Equal(t, 30*time.Second, p.Attempt)
				assert.Equal(t, 5*time.Second, p.Margin)
			},
		},
		{
			"a window is rounded down to the step",
			ttl.Policy{Window: 3*time.Minute - 1},
			ttl.Limits{Max: time.Hour, Step: time.Minute},
			func(t *testing.T, p ttl.Plan) {
				assert.Equal(t, 2*time.Minute, p.Window)
				assert.Equal(t, 40*time.Second, p.Beat, "a third of what is left after rounding")
			},
		},
		{
			"an unknown step is a second",
			ttl.Policy{Window: 90*time.Second + 900*time.Millisecond},
			ttl.Limits{Max: time.Hour},
			func(t *testing.T, p ttl.Plan) {
				assert.Equal(t, 90*time.Second, p.Window)
			},
		},
		{
			"the default window is the provider's longest if that is less",
			ttl.Policy{},
			ttl.Limits{Max: 100 * time.Second, Step: 30 * time.Second},
			func(t *testing.T, p ttl.Plan) {
				assert.Equal(t, 90*time.Second, p.Window)
			},
		},
		{
			"the default lifetime leaves time after it",
			ttl.Policy{After: 130 * time.Second},
			ttl.Limits{Max: time.Hour, MaxLifetime: 45 * time.Minute},
			func(t *testing.T, p ttl.Plan) {
				assert.Equal(t, 45*time.Minute-130*time.Second, p.MaxLifetime)
				assert.Equal(t, 45*time.Minute, p.HardEnd)
			},
		},
		{
			"a lifetime may reach exactly to the provider's",
			ttl.Policy{MaxLifetime: 40 * time.Minute, After: 5 * time.Minute},
			ttl.Limits{Max: time.Hour, MaxLifetime: 45 * time.Minute},
			func(t *testing.T, p ttl.Plan) {
				assert.Equal(t, 45*time.Minute, p.HardEnd)
			},
		},
		{
			"a fixed end spans the whole life",
			ttl.Policy{After: time.Minute},
			ttl.Limits{Max: 2 * time.Hour, Fixed: true},
			func(t *testing.T, p ttl.Plan) {
				assert.True(t, p.Fixed)
				assert.Equal(t, 61*time.Minute, p.Window)
				assert.Equal(t, time.Minute, p.Beat, "looks are as frequent as beats would be")
			},
		},
		{
			"a fixed end's default lifetime fits into the longest window",
			ttl.Policy{After: time.Minute},
			ttl.Limits{Max: 30 * time.Minute, Fixed: true},
			func(t *testing.T, p ttl.Plan) {
				assert.Equal(t, 29*time.Minute, p.MaxLifetime)
				assert.Equal(t, 30*time.Minute, p.Window)
			},
		},
		{
			"a short fixed life is looked at more often",
			ttl.Policy{MaxLifetime: 12 * time.Second},
			ttl.Limits{Max: time.Hour, Fixed: true},
			func(t *testing.T, p ttl.Plan) {
				assert.Equal(t, 4*time.Second, p.Beat)
				assert.Equal(t, 2*time.Second, p.Attempt)
			},
		},
		{
			"two beats and one attempt may fill the window exactly",
			ttl.Policy{Window: 3 * time.Minute, Beat: 80 * time.Second, Attempt: 20 * time.Second},
			plain,
			func(t *testing.T, p ttl.Plan) {
				assert.Equal(t, 80*time.Second, p.Beat)
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := c.policy.Resolve(c.limits)
			require.NoError(t, err)
			c.check(t, plan)
		})
	}
}

// The services that the design knows, with their limits as its protocol notes tell them.
func TestDefaultsAreAcceptedByEveryKnownKindOfProvider(t *testing.T) {
	const after = 10*time.Second + 2*time.Minute // grace and clean-up budget of the scope's defaults
	for name, l := range map[string]ttl.Limits{
		"whole seconds, one hour":       {Min: time.Second, Max: time.Hour, Step: time.Second, MaxLifetime: time.Hour},
		"whole minutes":                 {Min: time.Minute, Max: 365 * 24 * time.Hour, Step: time.Minute},
		"milliseconds, 45 minutes":      {Min: 1, Max: 45 * time.Minute, Step: time.Millisecond, MaxLifetime: 45 * time.Minute},
		"at least a minute, in seconds": {Min: time.Minute, Max: 30 * 24 * time.Hour, Step: time.Second},
		"fixed":                         {Min: time.Second, Max: 24 * time.Hour, Step: time.Second, Fixed: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ttl.Policy{After: after}.Resolve(l)
			assert.NoError(t, err)
		})
	}
}

func TestEveryFaultIsReported(t *testing.T) {
	const max = math.MaxInt64
	for _, c := range []struct {
		name   string
		policy ttl.Policy
		limits ttl.Limits
		faults []string // all of them, in any order
	}{
		{
			"negative times, each by its name",
			ttl.Policy{Window: -1, Beat: -2, Attempt: -3, MaxLifetime: -4, After: -5},
			plain,
			[]string{
				"window -1ns is negative", "beat -2ns is negative", "attempt limit -3ns is negative", "max lifetime -4ns is negative",
				"time after the max lifetime -5ns is negative",
			},
		},
		{"no longest window", ttl.Policy{}, ttl.Limits{}, []string{"no usable window"}},
		{"negative longest window", ttl.Policy{}, ttl.Limits{Max: -1}, []string{"no usable window"}},
		{"shortest above longest window", ttl.Policy{}, ttl.Limits{Min: 2, Max: 1}, []string{"no usable window"}},
		{"negative shortest window", ttl.Policy{}, ttl.Limits{Min: -1, Max: 1}, []string{"no usable window"}},
		{"negative step", ttl.Policy{}, ttl.Limits{Max: 1, Step: -1}, []string{"no usable window"}},
		{"negative longest life", ttl.Policy{}, ttl.Limits{Max: 1, MaxLifetime: -1}, []string{"no usable window"}},
		{
			"both sides at once",
			ttl.Policy{Beat: -1},
			ttl.Limits{},
			[]string{"no usable window", "beat -1ns is negative"},
		},
		{
			"a negative time hides no fault of the other part",
			ttl.Policy{Window: 30 * time.Second, MaxLifetime: -1},
			ttl.Limits{Min: time.Minute, Max: time.Hour},
			[]string{"max lifetime -1ns is negative", "window 30s, in steps of 1s, is less than the provider's minimum of 1m0s"},
		},
		{
			"window below the step",
			ttl.Policy{Window: 59 * time.Second},
			ttl.Limits{Max: time.Hour, Step: time.Minute},
			[]string{"window 59s is less than the provider's step of 1m0s"},
		},
		{
			"window below the minimum once it is rounded down",
			ttl.Policy{Window: 110 * time.Second},
			ttl.Limits{Min: 90 * time.Second, Max: time.Hour, Step: time.Minute},
			[]string{"window 1m50s, in steps of 1m0s, is less than the provider's minimum of 1m30s"},
		},
		{
			"window above the maximum",
			ttl.Policy{Window: 2 * time.Hour},
			ttl.Limits{Max: time.Hour},
			[]string{"window 2h0m0s is more than the provider's maximum of 1h0m0s"},
		},
		{
			"two beats and an attempt beyond the window by a nanosecond",
			ttl.Policy{Window: 3 * time.Minute, Beat: 75*time.Second + 1, Attempt: 30 * time.Second},
			plain,
			[]string{"two beats of 1m15.000000001s and one attempt of 30s do not fit into the window of 3m0s"},
		},
		{"an attempt as long as the window", ttl.Policy{Attempt: 3 * time.Minute}, plain, []string{"do not fit into the window"}},
		{"beats whose double overflows", ttl.Policy{Beat: max}, plain, []string{"do not fit into the window"}},
		{"beat and attempt whose sum overflows", ttl.Policy{Beat: max, Attempt: max}, plain, []string{"do not fit into the window"}},
		{"a beat without a unit", ttl.Policy{Beat: 60}, plain, []string{"beat 60ns", "is the unit missing?"}},
		{"an attempt without a unit", ttl.Policy{Attempt: 5}, plain, []string{"attempt limit 5ns", "is the unit missing?"}},
		{"a lifetime without a unit", ttl.Policy{MaxLifetime: 3600}, plain, []string{"max lifetime 3.6µs", "is the unit missing?"}},
		{
			"lifetime beyond the provider's",
			ttl.Policy{MaxLifetime: 40 * time.Minute, After: 5*time.Minute + 1},
			ttl.Limits{Max: time.Hour, MaxLifetime: 45 * time.Minute},
			[]string{"max lifetime 40m0s and the 5m0.000000001s after it do not fit into the provider's 45m0s"},
		},
		{
			"nothing of the provider's life left for the default",
			ttl.Policy{After: time.Hour},
			ttl.Limits{Max: time.Hour, MaxLifetime: 45 * time.Minute},
			[]string{"the 1h0m0s after the max lifetime leave nothing of the provider's 45m0s"},
		},
		{"a sum that overflows", ttl.Policy{MaxLifetime: max, After: max}, plain, []string{"more than can be counted"}},
		{
			"life shorter than the shortest window",
			ttl.Policy{MaxLifetime: 30 * time.Second, After: 20 * time.Second},
			ttl.Limits{Min: time.Minute, Max: time.Hour},
			[]string{"max lifetime 30s and the 20s after it are less than the provider's shortest window of 1m0s"},
		},
		{
			"a window for an end that never moves",
			ttl.Policy{Window: time.Minute},
			ttl.Limits{Max: time.Hour, Fixed: true},
			[]string{"the provider cannot move an end"},
		},
		{
			"fixed life beyond the longest window",
			ttl.Policy{MaxLifetime: 2 * time.Hour},
			ttl.Limits{Max: time.Hour, Fixed: true},
			[]string{"max lifetime 2h0m0s and the 0s after it do not fit into the provider's 1h0m0s"},
		},
		{
			"fixed life below the shortest window",
			ttl.Policy{MaxLifetime: 30 * time.Second},
			ttl.Limits{Min: time.Minute, Max: time.Hour, Fixed: true},
			[]string{"window 30s, in steps of 1s, is less than the provider's minimum of 1m0s"},
		},
		{
			"window, beat and lifetime all at once",
			ttl.Policy{Window: 30 * time.Second, Beat: 20 * time.Second, MaxLifetime: 3 * time.Hour},
			ttl.Limits{Min: time.Minute, Max: time.Hour, MaxLifetime: 2 * time.Hour},
			[]string{"max lifetime 3h0m0s", "window 30s", "two beats of 20s and one attempt of 5s"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := c.policy.Resolve(c.limits)
			require.Error(t, err)
			assert.Zero(t, plan, "a plan that cannot be carried out is none")
			for _, fault := range c.faults {
				assert.ErrorContains(t, err, fault)
			}
			joined, ok := err.(interface{ Unwrap() []error })
			require.True(t, ok, "faults are joined")
			if c.faults[len(c.faults)-1] != "is the unit missing?" { // two parts of one message
				assert.Len(t, joined.Unwrap(), len(c.faults), "no noise beside what is wrong: %v", err)
			}
			fixed := c.limits.Fixed && c.policy.Window != 0
			assert.Equal(t, fixed, errors.Is(err, errors.ErrUnsupported), "only what the provider cannot do at all is unsupported")
		})
	}
}

func TestWindowAtIsClampedToTheHardEndAndRoundedDown(t *testing.T) {
	plan, err := ttl.Policy{MaxLifetime: 9 * time.Minute, After: time.Minute}.Resolve(
		ttl.Limits{Min: time.Minute, Max: time.Hour, Step: 30 * time.Second})
	require.NoError(t, err)
	for age, want := range map[time.Duration]time.Duration{
		math.MinInt64:                     3 * time.Minute,
		-time.Hour:                        3 * time.Minute,
		0:                                 3 * time.Minute,
		7 * time.Minute:                   3 * time.Minute,
		7*time.Minute + 1:                 150 * time.Second,
		8*time.Minute + 29*time.Second:    90 * time.Second,
		9 * time.Minute:                   time.Minute,
		9*time.Minute + 1:                 0, // 30 s would fit, but the provider takes no less than a minute
		10 * time.Minute:                  0,
		math.MaxInt64:                     0,
		10*time.Minute - time.Millisecond: 0,
	} {
		assert.Equal(t, want, plan.WindowAt(age), "at the age of %v", age)
	}
}

func TestDownNeverRoundsUp(t *testing.T) {
	plan, err := ttl.Policy{}.Resolve(ttl.Limits{Max: time.Hour, Step: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, time.Minute, plan.Down(2*time.Minute-1))
	assert.Equal(t, 2*time.Minute, plan.Down(2*time.Minute))
	assert.Zero(t, plan.Down(time.Minute-1))
	assert.LessOrEqual(t, plan.Down(math.MaxInt64), time.Duration(math.MaxInt64))
}

// hold checks what every plan promises, whatever it was made of, and returns whether there is one.
func hold(t *testing.T, p ttl.Policy, l ttl.Limits, ages ...time.Duration) bool {
	t.Helper()
	plan, err := p.Resolve(l)
	if err != nil {
		if plan != (ttl.Plan{}) {
			t.Fatalf("a plan in spite of %v", err)
		}
		return false
	}
	step := l.Step
	if step == 0 {
		step = time.Second
	}
	is := func(ok bool, rule string) {
		t.Helper()
		if !ok { // require would format every message
			t.Fatalf("%s\npolicy %+v\nlimits %+v\nplan   %+v", rule, p, l, plan)
		}
	}
	is(p.Window >= 0 && p.Beat >= 0 && p.Attempt >= 0 && p.MaxLifetime >= 0 && p.After >= 0, "no negative time is accepted")
	is(l.Min <= plan.Window && plan.Window <= l.Max, "Min <= Window <= Max")
	is(plan.Window > 0 && plan.Window%step == 0, "Window is a multiple of Step")
	is(p.Window == 0 || plan.Window <= p.Window, "Window is at most what was asked")
	is(p.Beat == 0 || plan.Beat == p.Beat, "an asked beat is kept")
	is(p.Attempt == 0 || plan.Attempt == p.Attempt, "an asked attempt limit is kept")
	is(p.MaxLifetime == 0 || plan.MaxLifetime == p.MaxLifetime, "an asked lifetime is kept")
	is(min(plan.Beat, plan.Attempt, plan.MaxLifetime) >= time.Millisecond, "no time is below a millisecond")
	is(plan.Fixed == l.Fixed, "Fixed is the provider's word")
	if !plan.Fixed { // in an order that cannot overflow
		is(plan.Beat <= plan.Window-plan.Attempt && plan.Beat <= plan.Window-plan.Attempt-plan.Beat, "2B + one attempt <= Window")
	} else {
		is(plan.Window <= plan.HardEnd && plan.HardEnd-plan.Window < step, "a fixed window is the whole life, rounded down")
	}
	is(plan.HardEnd == plan.MaxLifetime+p.After && plan.HardEnd >= plan.MaxLifetime, "HardEnd = H + After, without overflow")
	is(l.MaxLifetime == 0 || plan.HardEnd <= l.MaxLifetime, "HardEnd is within the provider's longest life")
	is(0 <= plan.Margin && plan.Margin < plan.Window && plan.Margin <= 5*time.Second, "the margin is a small part of the window")
	is(0 < plan.Spacing() && plan.Spacing() <= min(plan.Beat, 5*time.Second), "beats are spaced, but not further than planned")
	is(plan.WindowAt(0) > 0, "a life begins with a window")
	hard := plan.HardEnd
	for _, age := range append(ages, 0, hard/2, hard-plan.Window, hard-l.Min, hard-1, hard, math.MinInt64, math.MaxInt64) {
		w := plan.WindowAt(age)
		is(w >= 0 && w <= plan.Window, "WindowAt is never above Window")
		is(w == 0 || w >= l.Min && w%step == 0, "WindowAt is 0 or what the provider takes")
		is(w == 0 || w <= plan.HardEnd-max(age, 0), "WindowAt never passes the hard end")
		left := plan.HardEnd - max(age, 0)
		is(w > 0 || left <= 0 || left-step < max(l.Min, step), "WindowAt gives up only when too little is left")
	}
	return true
}

// anyTime draws durations of all magnitudes, and the borders between them.
func anyTime(r *rand.Rand) time.Duration {
	switch r.IntN(8) {
	case 0, 1:
		return 0
	case 2:
		return -time.Duration(r.Int64N(math.MaxInt64))
	case 3:
		return time.Duration(math.MaxInt64 - r.Int64N(3))
	case 4:
		return time.Duration(r.Int64N(5)) * time.Minute
	default:
		return time.Duration(r.Int64N(1 << r.IntN(63)))
	}
}

// likely draws policies and limits near those that fit.
func likely(r *rand.Rand) (ttl.Policy, ttl.Limits) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	sometimes := func(d time.Duration) time.Duration {
		if r.IntN(2) == 0 {
			return 0
		}
		return d
	}
	l := ttl.Limits{
		Max: upTo(3*time.Hour) + 1, Step: sometimes(upTo(2 * time.Minute)),
		MaxLifetime: sometimes(upTo(24 * time.Hour)), Fixed: r.IntN(4) == 0,
	}
	l.Min = sometimes(upTo(l.Max))
	p := ttl.Policy{
		Beat: sometimes(upTo(2 * time.Minute)), Attempt: sometimes(upTo(time.Minute)),
		MaxLifetime: sometimes(upTo(3 * time.Hour)), After: sometimes(upTo(10 * time.Minute)),
	}
	if !l.Fixed {
		p.Window = sometimes(upTo(10 * time.Minute))
	}
	return p, l
}

func TestAnyPolicyAndLimitsGiveASoundPlanOrNone(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const rounds = 20_000
	wild, near := 0, 0
	for range rounds {
		p := ttl.Policy{Window: anyTime(r), Beat: anyTime(r), Attempt: anyTime(r), MaxLifetime: anyTime(r), After: anyTime(r)}
		l := ttl.Limits{Min: anyTime(r), Max: anyTime(r), Step: anyTime(r), MaxLifetime: anyTime(r), Fixed: r.IntN(4) == 0}
		if hold(t, p, l, anyTime(r), anyTime(r)) {
			wild++
		}
		p, l = likely(r)
		if hold(t, p, l, time.Duration(r.Int64N(int64(4*time.Hour)))) {
			near++
		}
	}
	t.Logf("plans: %d of %d wild ones, %d of %d likely ones", wild, rounds, near, rounds)
	assert.Greater(t, near, rounds/20, "the test must see plans, not only faults")
	assert.Greater(t, wild, rounds/1000)
}

func FuzzResolve(f *testing.F) {
	minute, hour := int64(time.Minute), int64(time.Hour)
	f.Add(int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), hour, int64(0), int64(0), false, int64(0))
	f.Add(3*minute, minute, minute/2, hour, 2*minute, minute, 24*hour, minute, 24*hour, false, hour)
	f.Add(int64(0), int64(0), int64(0), hour, minute, int64(1), 24*hour, int64(1), int64(0), true, minute)
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64),
		int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), false, int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, window, beat, attempt, life, after, least, most, step, longest int64, fixed bool, age int64) {
		d := func(n int64) time.Duration { return time.Duration(n) }
		hold(t, ttl.Policy{Window: d(window), Beat: d(beat), Attempt: d(attempt), MaxLifetime: d(life), After: d(after)},
			ttl.Limits{Min: d(least), Max: d(most), Step: d(step), MaxLifetime: d(longest), Fixed: fixed}, d(age))
	})
}
