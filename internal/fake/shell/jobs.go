package shell

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// trap sets what is done at the end or when a signal comes.
func (s *shell) trap(args []string) int {
	args = args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 || args[0] == "-p" {
		return s.printTraps()
	}
	action := args[0]
	if _, err := strconv.Atoi(action); err == nil || len(args) == 1 {
		action = "-" // "trap INT" and "trap 2 15" mean "trap - INT"
	} else {
		args = args[1:]
	}
	for _, a := range args {
		n, ok := parseSignal(a)
		switch {
		case !ok:
			s.say("trap: %s: bad trap", a)
			return 1
		case n == 0 && action == "-":
			s.exitTrap = ""
		case n == 0:
			s.exitTrap = action
		default:
			s.mu.Lock()
			if action == "-" {
				delete(s.traps, n)
			} else {
				s.traps[n] = action
			}
			s.mu.Unlock()
		}
	}
	return 0
}

func (s *shell) printTraps() int {
	var b strings.Builder
	line := func(action, name string) { b.WriteString("trap -- " + quoteAlways(action) + " " + name + "\n") }
	if s.exitTrap != "" {
		line(s.exitTrap, "EXIT")
	}
	s.mu.Lock()
	traps := maps.Clone(s.traps)
	s.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(traps)) {
		line(traps[n], signalName(n))
	}
	return s.print(b.String())
}

// job finds a background job of this shell by process number or "%n".
func (s *shell) job(text string) *proc {
	if n, ok := strings.CutPrefix(text, "%"); ok {
		i, err := strconv.Atoi(n)
		if err != nil || i < 1 || i > len(s.jobs) {
			return nil
		}
		return s.jobs[i-1]
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		return nil
	}
	for _, j := range s.jobs {
		if j.pid == pid {
			return j
		}
	}
	return nil
}

// waitBuiltin waits for jobs. A signal with a trap ends it early.
func (s *shell) waitBuiltin(args []string) int {
	if len(args) == 1 {
		for _, j := range s.jobs {
			if status, ok := s.waitFor(j); !ok {
				return status
			}
		}
		s.jobs = nil
		return 0
	}
	status := 0
	for _, a := range args[1:] {
		if strings.HasPrefix(a, "-") {
			return s.complain(2, "wait: illegal option %s", a)
		}
		j := s.job(a)
		if j == nil {
			if _, err := strconv.Atoi(strings.TrimPrefix(a, "%")); err != nil {
				return s.complain(2, "wait: no such job: %s", a)
			}
			status = 127
			continue
		}
		var ok bool
		if status, ok = s.waitFor(j); !ok {
			return status
		}
	}
	return status
}

// waitFor returns a job's exit status, or false and 128+n when signal n came first.
func (s *shell) waitFor(j *proc) (int, bool) {
	s.step(1)
	for {
		select {
		case <-j.done:
			s.checkAlive()
			return j.status, true
		case <-s.ctx.Done():
			s.die()
		case <-s.wake:
			s.checkAlive()
			s.mu.Lock()
			n := 0
			if len(s.pending) > 0 {
				n = s.pending[0]
			}
			s.mu.Unlock()
			if n != 0 { // else the trap has run already
				return 128 + n, false
			}
		}
	}
}
