package shell

import (
	"slices"
	"strconv"
	"strings"
)

// sig is a signal, and as a cause of a process's context what killed it. The numbers are those of Linux.
type sig int

const (
	signalHangup sig = 1
	signalInt    sig = 2
	signalKill   sig = 9
	signalPipe   sig = 13
	signalTerm   sig = 15
	signalChild  sig = 17
	signalCont   sig = 18
	signalStop   sig = 19
	signalTStop  sig = 20
	signalTTIn   sig = 21
	signalTTOut  sig = 22
	signalUrgent sig = 23
	signalWindow sig = 28
)

func (s sig) Error() string { return "killed by signal " + strconv.Itoa(int(s)) }

// signalNames are the signals that scripts use.
func signalNames() map[string]int {
	return map[string]int{
		"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "USR1": 10, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15,
		"CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "WINCH": 28,
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

// signal delivers s. It may be called from any goroutine. What would kill a stopped process waits until that goes on.
func (p *proc) signal(s sig) {
	if s == signalKill {
		p.cancel(s)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s {
	case signalStop:
		p.stop()
		return
	case signalCont:
		p.proceed()
	}
	action, caught := p.traps[int(s)]
	switch {
	case caught && action == "":
	case caught:
		if !slices.Contains(p.pending, int(s)) { // a signal that is pending is not counted
			p.pending = append(p.pending, int(s))
		}
		select {
		case p.wake <- struct{}{}:
		default:
		}
	case s == signalCont || s == signalChild || s == signalUrgent || s == signalWindow:
	case s == signalTStop || s == signalTTIn || s == signalTTOut:
		p.stop()
	case p.stopped.Load() == nil:
		p.cancel(s)
	case p.held == 0:
		p.held = s
	}
}

// stop has the process take no further step. p.mu is held.
func (p *proc) stop() {
	on := make(chan struct{})
	p.stopped.CompareAndSwap(nil, &on)
}

// proceed has it go on. p.mu is held.
func (p *proc) proceed() {
	if p.held != 0 {
		p.cancel(p.held)
	}
	if on := p.stopped.Swap(nil); on != nil {
		close(*on)
	}
}

// hold waits while the process is stopped. It returns errKilled when it has been killed.
func (p *proc) hold() error {
	for {
		if p.ctx.Err() != nil {
			return errKilled
		}
		on := p.stopped.Load()
		if on == nil {
			return nil
		}
		select {
		case <-*on:
		case <-p.ctx.Done():
		}
	}
}
