package ttl

import "time"

// A Moment is one reading of two clocks: the monotonic one, which stands still on most systems while the machine is
// suspended, and the wall clock, which people and time servers move. A deadline held on both has passed when either
// says so.
type Moment struct{ Mono, Wall time.Time }

// Now reads both clocks.
func Now() Moment {
	t := time.Now()
	return Moment{Mono: t, Wall: t.Round(0)} // Round(0) takes the monotonic reading away
}

// Add returns the moment d later on both clocks.
func (m Moment) Add(d time.Duration) Moment { return Moment{m.Mono.Add(d), m.Wall.Add(d)} }

// Until returns how long it is from m to end by the clock that gets there first; negative once it has.
func (m Moment) Until(end Moment) time.Duration {
	return min(end.Mono.Sub(m.Mono), end.Wall.Sub(m.Wall))
}

// Since returns how long it was from start to m by the clock that went further.
func (m Moment) Since(start Moment) time.Duration {
	return max(m.Mono.Sub(start.Mono), m.Wall.Sub(start.Wall))
}

// Drift returns by how much the two clocks have moved apart from start to m: the length of a suspend, or of a
// correction of the wall clock, in either direction.
func (m Moment) Drift(start Moment) time.Duration {
	return (m.Wall.Sub(start.Wall) - m.Mono.Sub(start.Mono)).Abs()
}

// Earlier returns the deadline that has passed once m or o has.
func (m Moment) Earlier(o Moment) Moment {
	if o.Mono.Before(m.Mono) {
		m.Mono = o.Mono
	}
	if o.Wall.Before(m.Wall) {
		m.Wall = o.Wall
	}
	return m
}
