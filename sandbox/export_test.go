package sandbox

import "time"

// SetWall replaces m's wall clock: the one thing that a bubble of testing/synctest cannot move alone.
func SetWall(m *Manager, wall func() time.Time) { m.wall = wall }
