package shell

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// killBuiltin knows the shell's own jobs too.
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
	status := 0
	for _, a := range args {
		pid, err := strconv.Atoi(a)
		if j := job(a); j != nil {
			pid, err = j.pid, nil
		}
		if err != nil {
			status = complain(1, a+": not a process number")
			continue
		}
		switch found, allowed := p.kill(sig(n), pid); {
		case found == 0:
			status = complain(1, a+": "+errNoProcess.Error())
		case allowed == 0:
			status = complain(1, a+": "+errPerm.Error())
		}
	}
	p.checkAlive() // it may have been meant itself
	return status
}

// kill signals a process, with 0 its own group, with -1 all but itself and init, and with another number below that the
// group of this number.
func (p *proc) kill(s sig, pid int) (found, allowed int) {
	return p.m.fs.procs.signal(p, s, func(q *proc) bool {
		switch {
		case pid > 0:
			return q.pid == pid
		case pid == 0:
			return q.group == p.group
		case pid == -1:
			return q != p && q.pid != initPID
		}
		return q.group == -pid
	})
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
