package shell

import (
	"context"
	"sync"
	"time"
)

const (
	initPID  = 1
	firstPID = 300 // those below are the machine's own, of which only init is seen
)

// table is the process table of a file system: its processes are those of all calls of Run on it.
type table struct {
	mu    sync.Mutex // held for memory operations only; a process's own may be taken under it
	procs map[int]*proc
	last  int // number given last
	boot  time.Time
}

// newTable returns a table with nothing but init, the parent of all whose parents are gone, which no signal reaches.
func newTable() *table {
	init := &proc{
		user: user{name: "root", home: "/"}, pid: initPID, kinship: kinship{group: initPID, session: initPID},
		dir: "/", began: time.Now(), ctx: context.Background(),
		image: image{exe: "/sbin/init", comm: "init", args: []string{"/sbin/init"}},
	}
	return &table{procs: map[int]*proc{initPID: init}, last: firstPID - 1, boot: time.Now()}
}

// NewPID takes a process number that nothing else of this machine will ever have, for [Command.PID].
func (f *FS) NewPID() int {
	f.procs.mu.Lock()
	defer f.procs.mu.Unlock()
	return f.procs.next()
}

// next gives out a number. The lock is held.
func (t *table) next() int {
	t.last++
	return t.last
}

// find returns a process, or nil.
func (t *table) find(pid int) *proc {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.procs[pid]
}

// all returns the processes that match, init among them.
func (t *table) all(match func(*proc) bool) []*proc {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.matching(match)
}

// matching is all while the lock is held.
func (t *table) matching(match func(*proc) bool) []*proc {
	var list []*proc
	for _, p := range t.procs {
		if match(p) {
			list = append(list, p)
		}
	}
	return list
}

// remove takes out a process that has ended. Its children are init's from now on.
func (t *table) remove(p *proc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.procs[p.pid] != p {
		return
	}
	delete(t.procs, p.pid)
	p.m.count--
	for _, c := range t.procs {
		if c.parent == p.pid {
			c.parent = initPID
		}
	}
}

// signal sends s to the processes that match, of which nothing can be born meanwhile, and reports how many there are and
// how many of them p may signal. Nothing but asking happens with s 0. p itself comes last.
func (t *table) signal(p *proc, s sig, match func(*proc) bool) (found, allowed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	self := false
	for _, target := range t.matching(match) {
		found++
		if p.uid != 0 && p.uid != target.uid {
			continue
		}
		allowed++
		switch {
		case s == 0 || target.pid == initPID:
		case target == p:
			self = true
		default:
			target.signal(s)
		}
	}
	if self {
		p.signal(s)
	}
	return found, allowed
}

// lead makes p the leader of a session and a group of its own. It reports false if it leads a group already.
func (t *table) lead(p *proc) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.group == p.pid {
		return false
	}
	p.group, p.session = p.pid, p.pid
	return true
}

// kinship is where a process stands among the others.
type kinship struct{ parent, group, session int }

func (t *table) kinship(p *proc) kinship {
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.kinship
}
