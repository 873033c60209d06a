package fake

import (
	"maps"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// change does to r what the platform or a third party does, if f finds it possible.
func (s *Service) change(id string, f func(r *record, now time.Time) bool) bool {
	s.lock()
	defer s.unlock()
	r := s.byID[id]
	now := s.now()
	if r == nil || r.state == sandbox.StateGone || !f(r, now) {
		return false
	}
	s.note(r, now)
	return true
}

// Kill ends a machine and keeps nothing.
func (s *Service) Kill(id string) bool {
	return s.change(id, func(r *record, _ time.Time) bool {
		s.end(r, sandbox.StateGone)
		r.detail = "killed"
		return true
	})
}

// Fail gives a sandbox up.
func (s *Service) Fail(id, detail string) bool {
	return s.change(id, func(r *record, _ time.Time) bool {
		r.state, r.detail = sandbox.StateFailed, detail
		return true
	})
}

// Pause has a running sandbox sleep: the record stays, and its lease only with Behaviour.PausedLease.
func (s *Service) Pause(id string) bool {
	return s.change(id, func(r *record, _ time.Time) bool {
		if r.state != sandbox.StateRunning || r.lost {
			return false
		}
		s.end(r, sandbox.StateDormant)
		r.detail = "paused"
		return true
	})
}

// Resume has a dormant sandbox run again, as another run.
func (s *Service) Resume(id string) bool {
	return s.change(id, func(r *record, now time.Time) bool {
		if r.state != sandbox.StateDormant {
			return false
		}
		window := s.habits.ResumeWindow
		if window <= 0 {
			window = r.Window
		}
		s.start(r, now, window)
		return true
	})
}

// Freeze stops a running machine as it is, its lease with it.
func (s *Service) Freeze(id string) bool {
	return s.change(id, func(r *record, _ time.Time) bool {
		if r.state != sandbox.StateRunning || r.frozen || r.lost {
			return false
		}
		r.frozen = true
		return true
	})
}

// Thaw undoes Freeze.
func (s *Service) Thaw(id string) bool {
	return s.change(id, func(r *record, _ time.Time) bool {
		was := r.frozen
		r.frozen = false
		return was
	})
}

// Fork copies a sandbox with its tags, under another id and name, and returns the id. data makes the copy's Order.Data
// out of the original's; it must not call s.
func (s *Service) Fork(id string, data func(any) any) string {
	s.lock()
	defer s.unlock()
	r := s.byID[id]
	if r == nil || !r.exists() {
		return ""
	}
	now := s.now()
	c := &record{Order: r.Order, id: s.newID(), created: now, started: now, run: 1, state: sandbox.StateRunning}
	c.Name, c.Key, c.Body, c.Tags, c.Data = c.id, "", "", maps.Clone(r.Tags), data(r.Data)
	if r.Window > 0 {
		c.deadline = s.grant(c, now.Add(r.Window))
	}
	s.records = append(s.records, c)
	s.byID[c.id], s.byName[c.Name] = c, c
	s.note(c, now)
	return c.id
}

// Rename gives a sandbox another name.
func (s *Service) Rename(id, name string) bool {
	return s.change(id, func(r *record, _ time.Time) bool {
		r.Name, s.byName[name] = name, r
		return true
	})
}

// DropTags removes tags by key, or all.
func (s *Service) DropTags(id string, keys ...string) bool {
	return s.change(id, func(r *record, _ time.Time) bool {
		if len(keys) == 0 {
			clear(r.Tags)
		}
		for _, k := range keys {
			delete(r.Tags, k)
		}
		return true
	})
}

// Touch is somebody's traffic: it restarts the idle clock where activity extends.
func (s *Service) Touch(id string) bool {
	return s.change(id, func(r *record, now time.Time) bool {
		if r.state != sandbox.StateRunning || r.frozen || r.lost {
			return false
		}
		s.active(r, now)
		return true
	})
}

// active restarts the idle clock.
func (s *Service) active(r *record, now time.Time) {
	if s.extend == sandbox.ExtendActivity && r.Window > 0 && !s.habits.NoLease {
		r.deadline = s.grant(r, now.Add(r.Window))
	}
}
