package shell

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxProcs     = 256
	maxMemory    = 64 << 20
	stepsPerTick = 1000 // how many steps take a tick
	tick         = time.Millisecond
	processCost  = 10 // steps of a new process
)

// machine is what the processes of one Run share.
type machine struct {
	fs     *FS
	hook   func(context.Context, Command) (int, bool)
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // goroutines of processes
	steps  atomic.Int64   // taken since tickBegan
	memory atomic.Int64
	nested atomic.Int64 // commands within commands, over all processes

	mu        sync.Mutex // held for memory operations only
	procs     map[int]*proc
	lastPID   int
	tickBegan time.Time
}

// proc is a process. It lives in the goroutine that calls run; others may only signal it, and wait for done.
type proc struct {
	user
	m      *machine
	pid    int
	ppid   int
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has ended; then status may be read
	status int
	dir    string
	umask  uint32
	fds    map[int]*desc
	memory int64

	mu      sync.Mutex     // guards the two below; held for memory operations only
	traps   map[int]string // signals that do not kill; "" is ignored
	pending []int          // caught signals whose trap has not run yet
	wake    chan struct{}  // has an element when pending has one
}

// sig is a signal, and as a cause of a process's context what killed it.
type sig int

const (
	signalInt  sig = 2
	signalKill sig = 9
	signalPipe sig = 13
	signalTerm sig = 15
)

func (s sig) Error() string { return "killed by signal " + strconv.Itoa(int(s)) }

// death unwinds the goroutine of a process that a signal ends, up to run.
type death struct{ sig sig }

// start makes a process without descriptors whose context comes from ctx.
func (m *machine) start(ctx context.Context) (*proc, error) {
	if ctx.Err() != nil {
		return nil, errKilled
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.procs) >= maxProcs {
		return nil, errCannotFork
	}
	m.lastPID++
	p := &proc{
		m: m, pid: m.lastPID, ppid: 1, umask: 0o22, fds: map[int]*desc{}, traps: map[int]string{},
		done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	m.procs[p.pid] = p
	return p, nil
}

// fork makes a child that shares the open files. A foreground child dies with its parent, a background one does not.
func (p *proc) fork(background bool) (*proc, error) {
	p.step(processCost)
	ctx := p.ctx
	if background {
		ctx = p.m.ctx
	}
	c, err := p.m.start(ctx)
	if err != nil {
		return nil, err
	}
	c.user, c.ppid, c.dir, c.umask = p.user, p.pid, p.dir, p.umask
	c.fds = maps.Clone(p.fds)
	for _, d := range c.fds {
		d.refs.Add(1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, action := range p.traps {
		if action == "" {
			c.traps[s] = ""
		}
	}
	return c, nil
}

// run is the life of the process: it calls body, ends the process and returns its exit status.
func (p *proc) run(body func() int) (status int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case death:
			status = 128 + int(r.sig)
		default:
			panic(r)
		}
		p.status = status
		p.end()
	}()
	status = body() & 0xff
	p.checkAlive()
	return status
}

// end gives back what the process holds.
func (p *proc) end() {
	for _, d := range p.fds {
		d.release()
	}
	p.fds = nil
	p.m.memory.Add(-p.memory)
	p.m.mu.Lock()
	delete(p.m.procs, p.pid)
	p.m.mu.Unlock()
	p.cancel(nil)
	close(p.done)
}

// spawn runs the process in a goroutine of its own.
func (p *proc) spawn(body func() int) {
	p.m.wg.Go(func() { p.run(body) })
}

// wait returns the exit status of a foreground child, which ends when p is killed.
func (p *proc) wait(child *proc) int {
	<-child.done
	p.checkAlive()
	return child.status
}

func (p *proc) checkAlive() {
	if p.ctx.Err() != nil {
		p.die()
	}
}

// die unwinds a process whose context has ended.
func (p *proc) die() {
	s, ok := context.Cause(p.ctx).(sig)
	if !ok {
		s = signalKill
	}
	panic(death{s})
}

// step accounts for n units of work; see the package comment. Once the steps of a tick are used up, all processes
// wait for the next one: in a bubble, time goes on only when all of them wait.
func (p *proc) step(n int64) {
	p.checkAlive()
	for p.m.steps.Add(n) > stepsPerTick && !p.m.nextTick(n) {
		p.sleep(tick)
	}
}

// nextTick begins a tick with n steps if it is time, and reports whether it is.
func (m *machine) nextTick(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if now.Sub(m.tickBegan) < tick {
		return false
	}
	m.tickBegan = now
	m.steps.Store(n)
	return true
}

func (p *proc) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.ctx.Done():
		p.die()
	}
}

// charge accounts for memory that the process keeps, until it ends or gives it back with a negative n.
func (p *proc) charge(n int) error {
	if n > 0 && p.m.memory.Load()+int64(n) > maxMemory {
		return errNoMemory
	}
	p.m.memory.Add(int64(n))
	p.memory += int64(n)
	return nil
}

// signal delivers s. It may be called from any goroutine.
func (p *proc) signal(s sig) {
	p.mu.Lock()
	action, caught := p.traps[int(s)]
	if caught && action != "" {
		if !slices.Contains(p.pending, int(s)) { // a signal that is pending is not counted
			p.pending = append(p.pending, int(s))
		}
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
	p.mu.Unlock()
	if !caught || s == signalKill {
		p.cancel(s)
	}
}

// find returns a living process of the same Run.
func (m *machine) find(pid int) *proc {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.procs[pid]
}

// abs returns name as an absolute path, which may still hold dots and links. The empty name stays empty: it names nothing.
func (p *proc) abs(name string) string {
	if name == "" || strings.HasPrefix(name, "/") {
		return name
	}
	return strings.TrimSuffix(p.dir, "/") + "/" + name
}

// read and write use a descriptor; a process that is killed meanwhile, or writes where nobody reads, unwinds.
func (p *proc) read(fd int, b []byte) (int, error) {
	d, ok := p.fds[fd]
	if !ok {
		return 0, errBadFD
	}
	return p.readFrom(d, b)
}

// readFrom reads from a file that need not have a descriptor.
func (p *proc) readFrom(d *desc, b []byte) (int, error) {
	n, err := d.f.read(p.ctx, b)
	if err == errKilled {
		p.die()
	}
	p.step(transferCost(n))
	return n, err
}

// transferCost is the work of moving n bytes, so that a machine moves a quarter of a gigabyte in a second.
func transferCost(n int) int64 { return 1 + int64(n)>>8 }

func (p *proc) write(fd int, b []byte) (int, error) {
	p.step(transferCost(len(b)))
	d, ok := p.fds[fd]
	if !ok {
		return 0, errBadFD
	}
	n, err := d.f.write(p.ctx, b)
	switch err {
	case errKilled:
		p.die()
	case errPipe:
		p.signal(signalPipe)
		p.checkAlive() // unless it ignores the signal
	}
	return n, err
}

// fdWriter is a descriptor as an io.Writer.
type fdWriter struct {
	p  *proc
	fd int
}

func (w fdWriter) Write(b []byte) (int, error) { return w.p.write(w.fd, b) }

// errorf writes one line to standard error, as far as there is one.
func (p *proc) errorf(format string, args ...any) {
	_, _ = p.write(2, fmt.Appendf(nil, format+"\n", args...))
}

// set puts d, of which the caller owns a reference, at fd.
func (p *proc) set(fd int, d *desc) {
	if old := p.fds[fd]; old != nil {
		old.release()
	}
	if d == nil {
		delete(p.fds, fd)
		return
	}
	p.fds[fd] = d
}
