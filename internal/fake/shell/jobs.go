package shell

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// signalNames are the signals that scripts use, with their Linux numbers.
func signalNames() map[string]int {
	return map[string]int{
		"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "USR1": 10, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15,
		"CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20,
	}
}

// parseSignal knows names with and without SIG, and numbers. 0 is EXIT for trap and a mere question for kill.
func parseSignal(text string) (int, bool) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, n >= 0 && n <= 64
	}
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if name == "EXIT" {
		return 0, true
	}
	n, ok := signalNames()[name]
	return n, ok
}

func signalName(n int) string {
	for name, i := range signalNames() {
		if i == n {
			return name
		}
	}
	return strconv.Itoa(n)
}

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
			return j.status, true
		case <-s.ctx.Done():
			s.die()
		case <-s.wake:
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

// killBuiltin signals processes of this Run, which are the only ones there are.
func (s *shell) killBuiltin(args []string) int { return killCommand(s.proc, args, s.job) }

func killCommand(p *proc, args []string, job func(string) *proc) int {
	complain := func(status int, text string) int {
		p.errorf("kill: %s", text)
		return status
	}
	args = args[1:]
	n := int(signalTerm)
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "--" {
		name := args[0][1:]
		switch {
		case name == "l":
			return listSignals(p, args[1:])
		case name == "s" && len(args) > 1:
			name = args[1]
			args = args[1:]
		}
		var ok bool
		if n, ok = parseSignal(name); !ok {
			return complain(1, name+": bad signal")
		}
		args = args[1:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return complain(2, "usage: kill [-s signal | -signal] pid ...")
	}
	if n == 19 || n == 20 {
		return complain(2, "stopping a process is not supported")
	}
	status := 0
	for _, a := range args {
		target := job(a)
		pid, err := strconv.Atoi(a)
		if target == nil && err == nil {
			target = p.m.find(pid)
		}
		switch {
		case err != nil && target == nil:
			status = complain(1, a+": not a process number")
		case pid < 0 || pid == 1:
			status = complain(1, a+": "+errPerm.Error())
		case pid == 0 && target == nil:
			status = complain(1, a+": process groups are not supported")
		case target == nil || target.ended():
			status = complain(1, a+": "+errNoProcess.Error())
		case n != 0 && n != 17 && n != 18:
			target.signal(sig(n))
		}
	}
	return status
}

func listSignals(p *proc, args []string) int {
	var names []string
	if len(args) > 0 {
		for _, a := range args {
			n, err := strconv.Atoi(a)
			if err != nil {
				n, _ = parseSignal(a)
				names = append(names, strconv.Itoa(n))
				continue
			}
			names = append(names, signalName(n&0x7f))
		}
	} else {
		numbers := slices.Sorted(maps.Values(signalNames()))
		for _, n := range numbers {
			names = append(names, signalName(n))
		}
	}
	_, err := p.write(1, []byte(strings.Join(names, "\n")+"\n"))
	return b2i(err != nil)
}
