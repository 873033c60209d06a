package shell

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"
)

// view is a folder of /proc. Its entries are made when somebody looks at them. FS.mu is held then, under which the locks
// of the table and of processes may be taken.
type view interface {
	names(w who) []string
	entry(w who, name string) *node // nil: none
}

// textFunc makes what a file of /proc tells, at its first read after it was opened.
type textFunc func() (string, error)

// folder is /proc.
func (t *table) folder() *node {
	return &node{mode: fs.ModeDir | 0o555, mtime: t.boot, inode: 1, shown: true, view: procRoot{t}}
}

// procRoot holds a folder for each process, and some files about all.
type procRoot struct{ t *table }

func (r procRoot) names(w who) []string {
	names := []string{"loadavg", "uptime"}
	for _, p := range r.t.all(func(*proc) bool { return true }) {
		names = append(names, strconv.Itoa(p.pid))
		if p.pid == w.pid {
			names = append(names, "self")
		}
	}
	return names
}

func (r procRoot) entry(w who, name string) *node {
	n := &node{mode: 0o444, mtime: r.t.boot, shown: true}
	switch name {
	case "loadavg":
		n.inode, n.text = 2, r.load
	case "uptime":
		n.inode, n.text = 3, r.uptime
	case "self":
		if r.t.find(w.pid) == nil {
			return nil
		}
		n.inode, n.mode, n.target = 4, fs.ModeSymlink|0o777, strconv.Itoa(w.pid)
	default:
		pid, err := strconv.Atoi(name)
		if err != nil || strconv.Itoa(pid) != name {
			return nil
		}
		p := r.t.find(pid)
		if p == nil {
			return nil
		}
		n.mode, n.uid, n.inode, n.mtime, n.view = fs.ModeDir|0o555, p.uid, procInode(p, 0), p.began, procFolder{r.t, p}
	}
	return n
}

// procInode gives each entry of a process's folder a number of its own.
func procInode(p *proc, entry int64) int64 { return int64(p.pid)<<8 | entry }

func (r procRoot) load() (string, error) {
	n := len(r.t.all(func(*proc) bool { return true }))
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	return fmt.Sprintf("0.00 0.00 0.00 1/%d %d\n", n, r.t.last), nil
}

// uptime tells how long the file system has existed. The second number is the time without work, all of it.
func (r procRoot) uptime() (string, error) {
	s := seconds(time.Since(r.t.boot))
	return s + " " + s + "\n", nil
}

// seconds rounds down to hundredths.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%d.%02d", d/time.Second, d%time.Second/(10*time.Millisecond))
}

// procFolder is the folder of a process. It holds links only for those who may follow them.
type procFolder struct {
	t *table
	p *proc
}

func (f procFolder) names(w who) []string {
	names := []string{"cmdline", "comm", "environ", "stat", "status"}
	if f.trusts(w) {
		names = append(names, "cwd", "exe")
	}
	return names
}

// trusts reports whether w may look at what the process does.
func (f procFolder) trusts(w who) bool { return w.uid == 0 || w.uid == f.p.uid }

func (f procFolder) entry(w who, name string) *node {
	n := &node{mode: 0o444, uid: f.p.uid, mtime: f.p.began, shown: true}
	tell := func(inode int64, text func(image, kinship, byte) string) *node {
		n.inode = procInode(f.p, inode)
		n.text = func() (string, error) {
			if f.t.find(f.p.pid) != f.p {
				return "", errNoProcess
			}
			im, _ := f.p.looks()
			return text(im, f.t.kinship(f.p), f.p.state(w)), nil
		}
		return n
	}
	link := func(inode int64, target string) *node {
		if !f.trusts(w) {
			return nil
		}
		n.inode, n.mode, n.target = procInode(f.p, inode), fs.ModeSymlink|0o777, target
		return n
	}
	im, dir := f.p.looks()
	switch name {
	case "cmdline":
		return tell(1, func(im image, _ kinship, _ byte) string { return zeroEnded(im.args) })
	case "comm":
		return tell(2, func(im image, _ kinship, _ byte) string { return im.comm + "\n" })
	case "environ":
		n.mode = 0o400
		return tell(3, func(im image, _ kinship, _ byte) string { return zeroEnded(im.env) })
	case "stat":
		return tell(4, f.stat)
	case "status":
		return tell(5, f.status)
	case "cwd":
		return link(6, dir)
	case "exe":
		return link(7, im.exe)
	}
	return nil
}

// looks returns what the process runs, nothing if it has been killed, and where.
func (p *proc) looks() (image, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	im := p.image
	if p.ctx.Err() != nil {
		im.args, im.env = nil, nil
	}
	return im, p.dir
}

// The states of a process, as stat and ps have them.
const (
	stateRunning  = 'R'
	stateSleeping = 'S'
	stateStopped  = 'T'
	stateZombie   = 'Z'
)

// state is that of the process in the eyes of w. It has been killed from the moment of the signal, although its goroutine
// may need a while to unwind. Only who looks is known to run: all others are taken to wait.
func (p *proc) state(w who) byte {
	switch {
	case p.ctx.Err() != nil:
		return stateZombie
	case p.stopped.Load() != nil:
		return stateStopped
	case p.pid == w.pid:
		return stateRunning
	}
	return stateSleeping
}

// zeroEnded writes words as the kernel keeps them.
func zeroEnded(words []string) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteString(w)
		b.WriteByte(0)
	}
	return b.String()
}

// stat has the fields of Linux. Of those after the session, only the number of threads and the time of start are told.
func (f procFolder) stat(im image, k kinship, state byte) string {
	const ticks = 100 // in a second
	start := f.p.began.Sub(f.t.boot) / (time.Second / ticks)
	head := fmt.Sprintf("%d (%s) %c %d %d %d 0 -1", f.p.pid, im.comm, state, k.parent, k.group, k.session)
	memory := " 0 0 " + fmt.Sprint(uint64(math.MaxUint64)) + " 0 0 0"
	if state != stateZombie {
		sum := sha256.Sum256([]byte(fmt.Sprint(f.p.pid, im.exe, im.args, im.env))) // each program is elsewhere
		at := int64(sum[0])<<16 | int64(sum[1])<<8 | int64(sum[2])
		code, stack := 0x550000000000+at<<12, 0x7ffc00000000+at<<4
		memory = fmt.Sprint(" 2789376 300 ", uint64(math.MaxUint64), " ", code, " ", code+0x16000, " ", stack)
	}
	return head + strings.Repeat(" 0", 9) + " 20 0 1 0 " + fmt.Sprint(int64(start)) + memory +
		strings.Repeat(" 0", 9) + " 17" + strings.Repeat(" 0", 14) + "\n"
}

func (f procFolder) status(im image, k kinship, state byte) string {
	words := map[byte]string{
		stateRunning: "running", stateSleeping: "sleeping", stateStopped: "stopped", stateZombie: "zombie",
	}
	ids := strings.Repeat("\t"+strconv.Itoa(f.p.uid), 4)
	return fmt.Sprintf("Name:\t%s\nState:\t%c (%s)\nTgid:\t%d\nPid:\t%d\nPPid:\t%d\nTracerPid:\t0\nUid:%s\nGid:%s\n"+
		"NStgid:\t%d\nNSpid:\t%d\nNSpgid:\t%d\nNSsid:\t%d\nThreads:\t1\n",
		im.comm, state, words[state], f.p.pid, f.p.pid, k.parent, ids, ids, f.p.pid, f.p.pid, k.group, k.session)
}
