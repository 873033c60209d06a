package daytonafake

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// previewToken is the header that has the secret of one sandbox.
const previewToken = "X-Daytona-Preview-Token"

// skipActivity keeps a proxied request from counting as activity if it is "true".
const skipActivity = "X-Daytona-Skip-Last-Activity-Update"

// admit lets a request to a daemon through the proxy. It counts as activity until done is called. A sandbox that
// nobody knows is refused like a bad key, for the proxy asks no more than whether the caller has access to it.
func (s *Server) admit(c *call) (done func(), err error) {
	rec, ok := s.svc.Lookup(c.machine())
	refused := &problem{status: http.StatusUnauthorized, message: "authentication failed: Bearer token is invalid"}
	if !ok || rec.Lost || s.svc.Behaviour().WrongScope || !s.mayProxy(c.Request, rec) {
		return nil, refused
	}
	return s.proxied(c.Request, rec)
}

// mayProxy reports whether a request has the credentials for a sandbox's daemon.
func (s *Server) mayProxy(r *http.Request, rec fake.Record) bool {
	if s.quirk().Denied {
		return false
	}
	token := s.previewToken(rec)
	return s.who(r) == member || r.Header.Get(previewToken) == token ||
		r.URL.Query().Get("DAYTONA_SANDBOX_AUTH_KEY") == token
}

// proxied counts a request as activity and finds out whether the sandbox takes it.
func (s *Server) proxied(r *http.Request, rec fake.Record) (done func(), err error) {
	b := boxOf(rec)
	key := 0
	if r.Header.Get(skipActivity) != "true" {
		key = b.begin(s.svc.Now())
	}
	done = func() {
		if key != 0 {
			b.end(key, s.svc.Now())
			s.Settle()
		}
	}
	switch {
	case rec.State != sandbox.StateRunning:
		err = invalid("bad request: the sandbox has no address. Is the Sandbox started?")
	case s.quirk().DaemonDead:
		err = &problem{status: http.StatusBadGateway, message: "failed to connect to the sandbox daemon"}
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// disk returns the sandbox's files.
func (b *box) disk() *shell.FS {
	b.mu.Lock()
	f, user := b.fs, b.order.User
	b.mu.Unlock()
	if f != nil {
		return f
	}
	f = shell.NewFS()
	f.SetQuota(int64(b.order.Disk) << 30)
	passwd := "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n" +
		"daytona:x:1001:1001:daytona:/home/daytona:/bin/bash\n"
	if user != "root" && user != "user" && user != defaultUser {
		passwd += user + ":x:1002:1002:" + user + ":/home/" + user + ":/bin/bash\n"
	}
	_ = f.WriteFile("/etc/passwd", strings.NewReader(passwd)) // there is room on a new disk
	home := b.home()
	shell.Run(context.Background(), f, shell.Command{Args: []string{"mkdir", "-p", home}})
	shell.Run(context.Background(), f, shell.Command{Args: []string{"chown", user, home}})
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fs == nil {
		b.fs = f
	}
	return b.fs
}

func (b *box) home() string {
	if b.order.User == "root" {
		return "/root"
	}
	return "/home/" + b.order.User
}

// environment returns what a new process of the daemon's has, and more over it.
func (b *box) environment(more map[string]string) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	env := map[string]string{"HOME": b.home(), "USER": b.order.User, "DAYTONA_SANDBOX_ID": WireID(b.id)}
	maps.Copy(env, b.order.Env)
	for k, v := range b.env {
		if v == "" {
			delete(env, k) // unset
			continue
		}
		env[k] = v
	}
	maps.Copy(env, more)
	return env
}

// Why a command ended that did not end itself.
var (
	errTimedOut = errors.New("timed out")
	errClosed   = errors.New("session closed")
)

// process is a command at work. It goes on when its caller has gone.
type process struct {
	done chan struct{} // closed when it has ended; then the rest may be read
	exit int
	err  error // why it was ended
	kill context.CancelCauseFunc
}

// launch runs a command until it ends, ctx does, the limit has passed (0: none), or the sandbox's run is over.
func (s *Server) launch(ctx context.Context, use *fake.Use, c shell.Command, limit time.Duration) *process {
	run, end := context.WithCancelCause(ctx)
	p := &process{done: make(chan struct{}), kill: end}
	b := use.Data().(*box)
	c.User = b.order.User
	disk := b.disk()
	s.spawn(func() {
		if err := use.Watch(run); err != nil {
			end(err)
		}
	})
	work := func() {
		var timer *time.Timer
		if limit > 0 {
			timer = time.AfterFunc(limit, func() { end(errTimedOut) })
			defer timer.Stop()
		}
		p.exit = shell.Run(run, disk, c)
		use.Hold(run) // a frozen machine tells nothing
		p.err = context.Cause(run)
		if err := use.Ended(); err != nil {
			p.err = err
		}
		use.Release()
		close(p.done)
		end(nil)
	}
	if !s.spawn(work) {
		work() // ctx has ended with the server, and so it is over at once
	}
	return p
}

// combined is one writer for both streams, which the shell never writes to twice at once.
type combined struct{ bytes.Buffer }

// maxResult is how much of a command's output is kept.
const maxResult = 64 << 20

func (w *combined) Write(b []byte) (int, error) {
	if w.Len() < maxResult {
		w.Buffer.Write(b)
	}
	return len(b), nil
}

// execute runs one command to its end. The shell has its text on standard input, as the daemon does it.
func (s *Server) execute(c *call) (int, any, error) {
	var body struct {
		Command string            `json:"command"`
		Cwd     string            `json:"cwd"`
		Envs    map[string]string `json:"envs"`
		Timeout int               `json:"timeout"`
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	if strings.TrimSpace(body.Command) == "" {
		return 0, nil, &problem{status: http.StatusBadRequest, code: "INVALID_REQUEST_BODY", message: "command is required"}
	}
	return s.oneShot(c, body.Cwd, shell.Command{
		Args: []string{"bash"}, Stdin: strings.NewReader(body.Command), Env: body.Envs,
	}, body.Timeout)
}

func (s *Server) codeRun(c *call) (int, any, error) {
	var body struct {
		Code, Language string
		Argv           []string
		Envs           map[string]string
		Timeout        int
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	args := []string{"python3", "-c", body.Code}
	if body.Language == "javascript" || body.Language == "typescript" {
		args = []string{"node", "-e", body.Code}
	}
	status, answer, err := s.oneShot(c, "", shell.Command{Args: append(args, body.Argv...), Env: body.Envs}, body.Timeout)
	if m, ok := answer.(map[string]any); ok {
		m["artifacts"] = map[string]any{"charts": []any{}}
	}
	return status, answer, err
}

// oneShot runs a command for as long as its caller may wait, and longer if he does not.
func (s *Server) oneShot(c *call, dir string, cmd shell.Command, seconds int) (int, any, error) {
	if s.base.Err() != nil {
		return 0, nil, errDropped
	}
	use, err := s.svc.Use(c.Context(), sandbox.OpExec, c.machine())
	if err != nil {
		return 0, nil, err
	}
	if use.Effect() == fake.EffectNone {
		use.Release()
		return http.StatusOK, map[string]any{"exitCode": 0, "result": ""}, use.After(c.Context())
	}
	b := use.Data().(*box)
	if !path.IsAbs(dir) {
		dir = path.Join(b.home(), dir)
	}
	if !b.isDir(dir) {
		use.Release()
		return http.StatusOK, map[string]any{"exitCode": -1, "result": ""}, use.After(c.Context())
	}
	var out combined
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Exec = dir, b.environment(cmd.Env), &out, &out, s.opts.Exec
	p := s.launch(s.base, use, cmd, time.Duration(seconds)*time.Second)
	select {
	case <-p.done:
	case <-c.Context().Done():
		return 0, nil, errDropped // it goes on all the same
	case <-s.base.Done():
		return 0, nil, errDropped
	}
	switch {
	case errors.Is(p.err, errTimedOut):
		return 0, nil, &problem{
			status: http.StatusRequestTimeout, code: "PROCESS_EXECUTION_TIMEOUT", message: "command execution timeout",
		}
	case p.err != nil:
		return 0, nil, &problem{status: http.StatusBadGateway, message: "the sandbox ended while the command ran"}
	}
	if err := use.After(c.Context()); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"exitCode": p.exit, "result": out.String()}, nil
}

func (b *box) isDir(dir string) bool {
	return shell.Run(context.Background(), b.disk(), shell.Command{Args: []string{"test", "-d", dir}}) == 0
}

// box returns the box of the sandbox in the path, which [Server.admit] has found.
func (s *Server) box(c *call) *box { return s.boxFor(c.machine()) }

func (s *Server) workDir(c *call) (int, any, error) {
	return http.StatusOK, map[string]any{"dir": s.box(c).home()}, nil
}

func (s *Server) version(*call) (int, any, error) {
	return http.StatusOK, map[string]any{"version": daemonVersion}, nil
}

// updateEnv changes what later processes have in their environment.
func (s *Server) updateEnv(c *call) (int, any, error) {
	var body struct {
		Set              map[string]string `json:"set"`
		Unset            []string          `json:"unset"`
		UnsetValuePrefix string            `json:"unsetValuePrefix"`
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	b := s.box(c)
	now := b.environment(nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.env == nil {
		b.env = map[string]string{}
	}
	for k, v := range now {
		if body.UnsetValuePrefix != "" && strings.HasPrefix(v, body.UnsetValuePrefix) {
			b.env[k] = ""
		}
	}
	for _, k := range body.Unset {
		b.env[k] = ""
	}
	maps.Copy(b.env, body.Set)
	return http.StatusOK, map[string]string{}, nil
}
