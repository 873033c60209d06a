package shell

import (
	"context"
	"fmt"
	"maps"
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

	count int // of processes; guarded by fs.procs.mu

	mu        sync.Mutex // held for memory operations only
	tickBegan time.Time
}

// proc is a process. It lives in the goroutine that calls run; others may only signal it, look at what is guarded, and
// wait for done.
type proc struct {
	user
	m       *machine
	pid     int
	began   time.Time
	kinship // guarded by the table's lock
	ctx     context.Context
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when it has ended; then status may be read
	status  int
	umask   uint32
	fds     map[int]*desc
	memory  int64
	stopped atomic.Pointer[chan struct{}] // nil: it goes on; else closed when it may
	wake    chan struct{}                 // has an element when pending has one

	mu      sync.Mutex // guards what follows; held for memory operations only
	image   image
	dir     string         // written by the process alone, which needs no lock to read it
	traps   map[int]string // signals that do not kill; "" is ignored
	pending []int          // caught signals whose trap has not run yet
	held    sig            // what kills it once it goes on; 0: nothing
}

// image is the program that a process runs.
type image struct {
	exe       string // path
	comm      string // name
	args, env []string
}

// death unwinds the goroutine of a process that a signal ends, up to run.
type death struct{ sig sig }

// newProc makes a process that is not in the table yet, without descriptors. Its context comes from ctx.
func (m *machine) newProc(ctx context.Context) *proc {
	p := &proc{
		m: m, began: time.Now(), umask: 0o22, fds: map[int]*desc{}, traps: map[int]string{},
		done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	return p
}

// enter puts p into the table as a child of parent, in its group and session, or of init, as the leader of its own. While
// the parent is stopped, nothing is born, and nothing ever when it has been killed. pid is 0 or a number that was taken.
func (m *machine) enter(p, parent *proc, pid int) error {
	t := m.fs.procs
	for {
		if parent != nil {
			if err := parent.hold(); err != nil {
				return err
			}
		}
		t.mu.Lock()
		if parent == nil || parent.stopped.Load() == nil && parent.ctx.Err() == nil {
			break
		}
		t.mu.Unlock()
	}
	defer t.mu.Unlock()
	if m.count >= maxProcs {
		return errCannotFork
	}
	if p.pid = pid; pid == 0 || t.procs[pid] != nil {
		p.pid = t.next()
	}
	p.kinship = kinship{initPID, p.pid, p.pid}
	if parent != nil {
		p.kinship = kinship{parent.pid, parent.group, parent.session}
	}
	m.count++
	t.procs[p.pid] = p
	return nil
}

// fork makes a child that shares the open files. A foreground child dies with its parent, a background one does not.
func (p *proc) fork(background bool) (*proc, error) {
	p.step(processCost)
	ctx := p.ctx
	if background {
		ctx = p.m.ctx
	}
	c := p.m.newProc(ctx)
	c.user, c.umask = p.user, p.umask
	p.mu.Lock()
	c.image, c.dir = p.image, p.dir
	for s, action := range p.traps {
		if action == "" {
			c.traps[s] = ""
		}
	}
	p.mu.Unlock()
	switch err := p.m.enter(c, p, 0); err {
	case nil:
	case errKilled:
		c.cancel(nil)
		p.die()
	default:
		c.cancel(nil)
		return nil, err
	}
	c.fds = maps.Clone(p.fds)
	for _, d := range c.fds {
		d.refs.Add(1)
	}
	return c, nil
}

// become is what exec does to a process before the program begins. Caught signals are as at first again.
func (p *proc) become(exe string, args, env []string) {
	const maxComm = 15
	comm := exe[strings.LastIndexByte(exe, '/')+1:]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.image = image{exe: exe, comm: comm[:min(len(comm), maxComm)], args: args, env: env}
	maps.DeleteFunc(p.traps, func(_ int, action string) bool { return action != "" })
}

// chdir sets the folder that relative paths begin in.
func (p *proc) chdir(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dir = dir
}

// who is how the file system knows the process.
func (p *proc) who() who { return who{p.uid, p.pid} }

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
	p.m.fs.procs.remove(p)
	p.cancel(nil)
	close(p.done)
}

// spawn runs the process in a goroutine of its own.
func (p *proc) spawn(body func() int) {
	p.m.wg.Go(func() { p.run(body) })
}

// foreground runs a child within p's own goroutine and returns its exit status.
func (p *proc) foreground(child *proc, body func() int) int {
	status := child.run(body)
	p.checkAlive()
	return status
}

// wait returns the exit status of a foreground child, which ends when p is killed.
func (p *proc) wait(child *proc) int {
	<-child.done
	p.checkAlive()
	return child.status
}

// checkAlive unwinds a process that is killed and holds one that is stopped.
func (p *proc) checkAlive() {
	if p.hold() != nil {
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
	}
	p.checkAlive()
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
	p.checkAlive()
	n, err := d.f.read(p, b)
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
	n, err := d.f.write(p, b)
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
