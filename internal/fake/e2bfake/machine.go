package e2bfake

import (
	"bytes"
	"context"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// machine is what a sandbox has beside its life: an order, files and processes.
type machine struct {
	order        order
	template     Template
	token        string // "": not secured
	trafficToken string

	mu    sync.Mutex // held for memory operations only
	fs    *shell.FS  // made on first use, for most sandboxes of a test run no command
	procs map[int]*process
}

// disk returns the file system.
func (m *machine) disk() *shell.FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fs == nil {
		m.fs = shell.NewFS()
		m.fs.SetQuota(int64(m.template.DiskMB) << 20)
	}
	return m.fs
}

// defaultUser is who commands run as unless they say otherwise.
const defaultUser = "user"

// account is a user of the machine.
type account struct{ name, home string }

// account finds a user; "" is the default one.
func (m *machine) account(name string) (account, bool) {
	if name == "" {
		name = defaultUser
	}
	var b bytes.Buffer
	if err := m.disk().ReadFile("/etc/passwd", &b); err != nil {
		return account{}, false
	}
	for line := range strings.Lines(b.String()) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 5 && f[0] == name {
			return account{f[0], f[5]}, true
		}
	}
	return account{}, false
}

// abs returns a path as envd understands it: relative ones, and "~", lie in the user's home.
func (a account) abs(name string) string {
	switch {
	case name == "" || name == "~":
		return a.home
	case strings.HasPrefix(name, "~/"):
		name = name[2:]
	case path.IsAbs(name):
		return path.Clean(name)
	}
	return path.Join(a.home, name)
}

// environment is what a command of this user sees.
func (m *machine) environment(a account, more map[string]string) map[string]string {
	env := map[string]string{"HOME": a.home, "USER": a.name, "LOGNAME": a.name}
	maps.Copy(env, m.order.EnvVars)
	maps.Copy(env, more)
	return env
}

// tool runs one utility as root and returns what it wrote.
func (m *machine) tool(ctx context.Context, args ...string) (stdout, stderr string, exit int) {
	var out, errs bytes.Buffer
	exit = shell.Run(ctx, m.disk(), shell.Command{Args: args, Stdout: &out, Stderr: &errs})
	return out.String(), strings.TrimSpace(errs.String()), exit
}

// A Process is one that envd started, with all that came of it.
type Process struct {
	PID     int
	Args    []string // program and arguments
	Env     map[string]string
	User    string
	Ended   bool // the process itself has ended, as its caller was told or could have been
	Running bool // something of it runs
}

// Processes returns those of a sandbox, by its id on the wire, that have not ended for long.
func (s *Server) Processes(id string) []Process {
	var all []Process
	if r, ok := s.svc.Lookup(s.ServiceID(id)); ok {
		for _, p := range r.Data.(*machine).processes() {
			all = append(all, p.describe())
		}
	}
	return all
}

// KillProcesses kills those that match, with all that came of them, as a killer inside of the sandbox would: it returns
// when nothing of them runs, and says how many there were. match must not call s.
func (s *Server) KillProcesses(id string, match func(Process) bool) int {
	r, ok := s.svc.Lookup(s.ServiceID(id))
	if !ok {
		return 0
	}
	n := 0
	for _, p := range r.Data.(*machine).processes() {
		if d := p.describe(); d.Running && match(d) {
			p.signal(killSignal)
			p.end(errKilled)
			<-p.over
			n++
		}
	}
	return n
}

// processes returns the table, by number, without what has ended for longer than envd remembers it.
func (m *machine) processes() []*process {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.procs, func(_ int, p *process) bool { return p.forgotten() })
	var all []*process
	for _, pid := range slices.Sorted(maps.Keys(m.procs)) {
		all = append(all, m.procs[pid])
	}
	return all
}

// add gives a process its number.
func (m *machine) add(p *process) {
	p.pid = m.disk().NewPID()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.procs[p.pid] = p
}

// forkOne makes one copy.
func (s *Server) forkOne(ctx context.Context, id string, seconds int32, res *forkResult) error {
	fork := s.svc.Fork(id, func(data any) any {
		m := data.(*machine)
		return s.newMachine(m.order, m.template)
	})
	if fork == "" {
		return missing()
	}
	if _, err := s.svc.Extend(ctx, fork, time.Duration(seconds)*time.Second); err != nil {
		return err
	}
	r, _ := s.svc.Lookup(fork)
	c := s.created(r)
	res.Sandbox = &c
	return nil
}

// entry is a file as the file-system service tells of it.
type entry struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Path        string `json:"path"`
	Size        string `json:"size,omitempty"` // an int64, which the JSON of protocol buffers writes as a string
	Mode        int64  `json:"mode"`
	Permissions string `json:"permissions"`
	Owner       string `json:"owner"`
	Group       string `json:"group"`
	Modified    string `json:"modifiedTime"`
	Target      string `json:"symlinkTarget,omitempty"`
}

// statFormat asks for everything that an entry tells, the name last.
const statFormat = "%F|%s|%a|%A|%U|%Y|%n"

// entries looks at paths. What is missing is left out.
func (m *machine) entries(ctx context.Context, names ...string) []entry {
	var all []entry
	out, _, _ := m.tool(ctx, append([]string{"stat", "-c", statFormat}, names...)...)
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", 7)
		if len(f) < 7 {
			continue // the rest of a name with a line break in it
		}
		kinds := map[string]string{"directory": "FILE_TYPE_DIRECTORY", "symbolic link": "FILE_TYPE_SYMLINK"}
		kind := kinds[f[0]]
		if kind == "" {
			kind = "FILE_TYPE_FILE"
		}
		mode, _ := strconv.ParseInt(f[2], 8, 64)
		seconds, _ := strconv.ParseInt(f[5], 10, 64)
		e := entry{
			Name: path.Base(f[6]), Type: kind, Path: f[6], Mode: mode, Permissions: f[3], Owner: f[4], Group: f[4],
			Modified: time.Unix(seconds, 0).UTC().Format(time.RFC3339),
		}
		if f[1] != "0" {
			e.Size = f[1]
		}
		if kind == "FILE_TYPE_SYMLINK" {
			target, _, _ := m.tool(ctx, "readlink", f[6])
			e.Target = strings.TrimSuffix(target, "\n")
		}
		all = append(all, e)
	}
	return all
}
