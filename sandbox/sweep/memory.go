package sweep

import (
	"maps"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A look is one answer of the service about one sandbox.
type look struct {
	info  sandbox.Info
	at    time.Time // when it arrived
	began time.Time // when the pass began, by the clock that the answer shows; zero: it shows none
}

// An account is one provider, and what earlier passes saw there.
type account struct {
	p      *paced
	name   string
	caps   sandbox.Capabilities
	memory map[string]*memory // by id; touched by one pass at a time
}

// A memory is what is kept of a sandbox from pass to pass.
type memory struct {
	fork   bool // it was seen beside another one with its mark, and not as the first
	sole   bool // a complete list has shown that it is not a copy
	kept   bool // it was there at the end of the last pass
	run    string
	since  time.Time // of being residue, without a pass that saw it otherwise; zero: it is none
	passes int
}

// residue returns how many passes, this one with its look at info included, have seen residue, and since when.
func (m *memory) residue(info sandbox.Info, at time.Time) (passes int, since time.Time) {
	switch {
	case !(Facts{Info: info}).residue():
		return 0, time.Time{}
	case m == nil || m.since.IsZero() || m.run != info.Run:
		return 1, at
	default:
		return m.passes + 1, m.since
	}
}

// remember replaces the memory by what the pass saw. After an incomplete list what was not seen is still expected.
func (a *account) remember(p *pass, items []*item, complete bool) {
	old := a.memory
	a.memory = make(map[string]*memory, len(items))
	if !complete {
		maps.Copy(a.memory, old)
	}
	for _, it := range items {
		info := it.look.info
		m := old[info.ID]
		if it.outcome == Deleted || it.outcome == Gone {
			delete(a.memory, info.ID)
			continue
		}
		now := &memory{
			fork: complete && it.fork || m != nil && m.fork,
			sole: complete && !it.fork || m != nil && m.sole,
			kept: it.outcome == Kept,
			run:  info.Run,
		}
		if (Facts{Info: info}).residue() {
			now.since, now.passes = it.residue, it.passes
		}
		a.memory[info.ID] = now
	}
}
