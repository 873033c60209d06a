package shell

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"
)

const (
	maxDepth     = 2_500  // commands nested in one another, calls of functions included
	maxNested    = 20_000 // the same, over all processes
	functionCost = 128    // memory for a byte of a function, whose syntax tree stays
)

// flow is how a list of commands is being left.
type flow int

const (
	flowNone flow = iota
	flowBreak
	flowContinue
	flowReturn
	flowExit
)

// shell is a process that interprets scripts. Its fields belong to the process's goroutine.
type shell struct {
	*proc
	vars       map[string]variable
	funcs      map[string]*syntax.Stmt
	name       string // $0
	params     []string
	paramsPaid int // memory that this process has been charged for them
	opts       options
	bash       bool
	status     int // $?
	line       int
	flow       flow
	levels     int // loops still to be left by break or continue
	loops      int
	calls      int // functions and dot scripts that return may leave
	frames     []frame
	depth      int
	tail       *syntax.CallExpr // the only command of a subshell, which may run in the subshell's own process
	lenient    bool             // the command builtin is at work, and a misused special builtin does not end the script
	unchecked  int              // above 0, set -e looks away
	substed    bool             // a command substitution has run since this was reset
	jobs       []*proc
	lastJob    int
	shellPID   int
	exitTrap   string
	inTrap     bool
	optPos     int // place of getopts within a cluster of letters
	began      time.Time
}

func newShell(p *proc, name string, env []string) *shell {
	s := &shell{
		proc: p, vars: map[string]variable{}, funcs: map[string]*syntax.Stmt{}, name: name, opts: options{},
		shellPID: p.pid, began: time.Now(),
	}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		if validName(k) {
			s.vars[k] = variable{value: v, set: true, exported: true}
		}
	}
	parent := p.m.fs.procs.kinship(p).parent
	for k, v := range map[string]string{"OPTIND": "1", "PPID": fmt.Sprint(parent), "PS4": "+ ", "IFS": " \t\n"} {
		if _, ok := s.vars[k]; !ok || k == "IFS" {
			s.vars[k] = variable{value: v, set: true}
		}
	}
	if pwd := s.vars["PWD"].value; pwd != "" && s.samePlace(pwd) {
		s.chdir(pwd)
	}
	s.vars["PWD"] = variable{value: s.dir, set: true, exported: true}
	return s
}

func (s *shell) samePlace(pwd string) bool {
	a, errA := s.m.fs.realpath(s.who(), pwd)
	b, errB := s.m.fs.realpath(s.who(), s.dir)
	return errA == nil && errB == nil && a == b
}

// subshell returns a copy of the shell for the child process c.
func (s *shell) subshell(c *proc) *shell {
	t := *s
	t.proc = c
	t.vars = maps.Clone(s.vars)
	for k, v := range t.vars {
		if v.charged {
			v.charged = false // the parent pays
			t.vars[k] = v
		}
	}
	t.funcs = maps.Clone(s.funcs)
	t.opts = maps.Clone(s.opts)
	t.frames = nil
	if len(s.frames) > 0 {
		t.frames = []frame{{}}
	}
	t.jobs = nil
	t.tail = nil
	t.lenient = false
	t.paramsPaid = 0
	t.exitTrap = ""
	t.loops = 0
	return &t
}

// forkShell makes a child shell; the caller has to have it run.
func (s *shell) forkShell(background bool) (*shell, error) {
	c, err := s.fork(background)
	if err != nil {
		return nil, err
	}
	return s.subshell(c), nil
}

// finish ends a shell process: pending traps and the EXIT trap run, and its status is returned.
func (s *shell) finish() int {
	if s.flow == flowNone {
		s.runTraps()
	}
	if action := s.exitTrap; action != "" {
		s.exitTrap = ""
		status := s.status
		s.flow = flowNone
		s.eval(action)
		if s.flow != flowExit {
			s.status = status
		}
	}
	return s.status
}

// say writes a message of the shell's.
func (s *shell) say(format string, args ...any) {
	s.errorf("%s: %s", s.name, fmt.Sprintf("line %d: ", s.line)+fmt.Sprintf(format, args...))
}

// stop ends the script because of err.
func (s *shell) stop(err error) {
	status := 2
	if e, ok := err.(*shellError); ok {
		status = e.status
	}
	s.say("%v", err)
	s.status, s.flow = status, flowExit
}

func (s *shell) stmts(list []*syntax.Stmt) {
	for _, st := range list {
		s.stmt(st)
		if s.flow != flowNone {
			return
		}
	}
}

// stmt runs one command with its redirections and leaves its exit status in s.status.
func (s *shell) stmt(st *syntax.Stmt) {
	s.step(1)
	s.runTraps()
	if s.flow != flowNone {
		return
	}
	s.depth++
	defer func() {
		s.depth--
		s.m.nested.Add(-1)
	}()
	if s.m.nested.Add(1) > maxNested || s.depth > maxDepth {
		s.stop(fail(2, "commands nested too deeply"))
		return
	}
	s.line = int(st.Pos().Line())
	if s.opts['n'] {
		return
	}
	switch {
	case st.Background:
		s.background(st)
		return
	case st.Negated:
		s.unchecked++
		s.command(st)
		s.unchecked--
		if s.flow != flowExit {
			s.status = b2i(s.status == 0)
		}
		return
	}
	s.command(st)
}

// command runs a statement in the foreground, regardless of "!" and "&".
func (s *shell) command(st *syntax.Stmt) {
	if call, ok := st.Cmd.(*syntax.CallExpr); ok {
		s.call(call, st.Redirs)
		s.checkStatus()
		return
	}
	redirs, err := s.redirect(st.Redirs)
	if err != nil {
		redirs.undo()
		s.redirectFailed(err)
		s.checkStatus()
		return
	}
	s.compound(st.Cmd)
	redirs.undo()
}

// checkStatus obeys set -e after a command that is not itself made of commands.
func (s *shell) checkStatus() {
	if s.status != 0 && s.opts['e'] && s.unchecked == 0 && s.flow == flowNone {
		s.flow = flowExit
	}
}

func (s *shell) compound(cmd syntax.Command) {
	switch cmd := cmd.(type) {
	case nil: // redirections only
		s.status = 0
	case *syntax.Block:
		s.stmts(cmd.Stmts)
	case *syntax.Subshell:
		s.inSubshell(func(c *shell) { c.only(cmd.Stmts) })
		s.checkStatus()
	case *syntax.BinaryCmd:
		if cmd.Op == syntax.Pipe || cmd.Op == syntax.PipeAll {
			s.pipeline(cmd)
			s.checkStatus()
			return
		}
		s.andOr(cmd)
	case *syntax.IfClause:
		s.ifClause(cmd)
	case *syntax.WhileClause:
		s.whileClause(cmd)
	case *syntax.ForClause:
		s.forClause(cmd)
	case *syntax.CaseClause:
		s.caseClause(cmd)
	case *syntax.FuncDecl:
		s.funcDecl(cmd)
	case *syntax.DeclClause:
		s.declare(cmd)
		s.checkStatus()
	case *syntax.TestClause:
		ok, err := s.testExpr(cmd.X)
		s.setTruth(ok, err)
	case *syntax.ArithmCmd:
		n, err := s.arith(cmd.X)
		s.setTruth(n != 0, err)
	case *syntax.LetClause:
		for _, x := range cmd.Exprs {
			n, err := s.arith(x)
			s.setTruth(n != 0, err)
		}
	case *syntax.TimeClause:
		begin := time.Now()
		if cmd.Stmt != nil {
			s.stmt(cmd.Stmt)
		}
		d := time.Since(begin).Seconds()
		s.errorf("real\t%dm%.3fs\nuser\t0m0.000s\nsys\t0m0.000s", int(d)/60, d-float64(int(d)/60*60))
	default:
		s.stop(fail(2, fmt.Sprintf("not supported: %T", cmd)))
	}
}

func (s *shell) setTruth(ok bool, err error) {
	s.status = b2i(!ok)
	if err != nil {
		s.say("%v", err)
		s.status = 2
	}
	s.checkStatus()
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// inSubshell runs body in a child process and waits for it.
func (s *shell) inSubshell(body func(*shell)) {
	c, err := s.forkShell(false)
	if err != nil {
		s.stop(fail(2, err.Error()))
		return
	}
	s.status = s.foreground(c.proc, func() int {
		body(c)
		return c.finish()
	})
}

// only runs all that a subshell has to do. What would be a process within this one, and nothing beside it, is this one.
func (s *shell) only(list []*syntax.Stmt) {
	if len(list) == 1 && !list[0].Negated && !list[0].Background {
		switch cmd := list[0].Cmd.(type) {
		case *syntax.CallExpr:
			s.tail = cmd
		case *syntax.Subshell:
			s.step(1)
			redirected, err := s.redirect(list[0].Redirs)
			redirected.keep()
			if err != nil {
				s.redirectFailed(err)
				return
			}
			s.only(cmd.Stmts)
			return
		}
	}
	s.stmts(list)
}

// andOr runs a chain of && and ||, which the parser nests to the left.
func (s *shell) andOr(cmd *syntax.BinaryCmd) {
	chain := []*syntax.BinaryCmd{cmd}
	for {
		x, ok := cmd.X.Cmd.(*syntax.BinaryCmd)
		if !ok || x.Op == syntax.Pipe || x.Op == syntax.PipeAll || len(cmd.X.Redirs) > 0 || cmd.X.Negated {
			break
		}
		cmd = x
		chain = append(chain, x)
	}
	s.unchecked++
	s.stmt(cmd.X)
	s.unchecked--
	for i := len(chain) - 1; i >= 0 && s.flow == flowNone; i-- {
		if (chain[i].Op == syntax.AndStmt) != (s.status == 0) {
			continue
		}
		if i == 0 {
			s.stmt(chain[i].Y)
			return
		}
		s.unchecked++
		s.stmt(chain[i].Y)
		s.unchecked--
	}
}

// pipeline runs its stages at the same time, each in a child process.
func (s *shell) pipeline(cmd *syntax.BinaryCmd) {
	stages := []*syntax.Stmt{cmd.Y}
	ops := []syntax.BinCmdOperator{cmd.Op} // ops[i] joins stages[i+1], counted from the end, to the one after it
	for {
		x, ok := cmd.X.Cmd.(*syntax.BinaryCmd)
		if !ok || x.Op != syntax.Pipe && x.Op != syntax.PipeAll || len(cmd.X.Redirs) > 0 || cmd.X.Negated {
			break
		}
		cmd = x
		stages = append(stages, x.Y)
		ops = append(ops, x.Op)
	}
	stages = append(stages, cmd.X)

	var children []*shell
	var in *desc
	var failure error
	for i := len(stages) - 1; i >= 0; i-- {
		c, err := s.forkShell(false)
		if err != nil {
			failure = err
			break
		}
		if in != nil {
			c.set(0, in)
			in = nil
		}
		if i > 0 {
			r, w := newPipe()
			c.set(1, w)
			if ops[i-1] == syntax.PipeAll {
				c.set(2, w.dup())
			}
			in = r
		}
		children = append(children, c)
		c.spawn(func() int {
			c.only(stages[i : i+1])
			return c.finish()
		})
	}
	if in != nil {
		in.release()
	}
	status := 0
	for _, c := range children {
		last := s.wait(c.proc)
		if last != 0 || !s.opts['P'] {
			status = last
		}
	}
	s.status = status
	if failure != nil {
		s.stop(fail(2, failure.Error()))
	}
}

// background starts a job.
func (s *shell) background(st *syntax.Stmt) {
	c, err := s.forkShell(true)
	if err != nil {
		s.stop(fail(2, err.Error()))
		return
	}
	c.set(0, newDesc(device("null")))
	const keep = 1000
	if len(s.jobs) >= keep { // forget the oldest job that has ended
		for i, j := range s.jobs {
			if j.ended() {
				s.jobs = append(s.jobs[:i], s.jobs[i+1:]...)
				break
			}
		}
	}
	s.jobs = append(s.jobs, c.proc)
	s.lastJob = c.pid
	s.status = 0
	c.spawn(func() int {
		fg := *st
		fg.Background = false
		c.unchecked = 0
		c.only([]*syntax.Stmt{&fg})
		return c.finish()
	})
}

func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// condition runs the list before "then" or "do".
func (s *shell) condition(list []*syntax.Stmt) bool {
	s.unchecked++
	s.stmts(list)
	s.unchecked--
	return s.status == 0 && s.flow == flowNone
}

func (s *shell) ifClause(cmd *syntax.IfClause) {
	for ; cmd != nil; cmd = cmd.Else {
		if len(cmd.Cond) == 0 || s.condition(cmd.Cond) { // "else" has no condition
			s.stmts(cmd.Then)
			return
		}
		if s.flow != flowNone {
			return
		}
	}
	s.status = 0
}

// iterate runs a loop's body once and reports whether the loop goes on.
func (s *shell) iterate(body []*syntax.Stmt) bool {
	s.step(1)
	s.stmts(body)
	return s.goesOn()
}

// goesOn takes the loop's part of a break or continue.
func (s *shell) goesOn() bool {
	switch s.flow {
	case flowNone:
		return true
	case flowBreak, flowContinue:
		if s.levels--; s.levels > 0 {
			return false
		}
		again := s.flow == flowContinue
		s.flow = flowNone
		return again
	}
	return false
}

func (s *shell) whileClause(cmd *syntax.WhileClause) {
	s.loops++
	defer func() { s.loops-- }()
	status := 0
	for {
		s.unchecked++
		s.stmts(cmd.Cond)
		s.unchecked--
		if !s.goesOn() {
			return
		}
		if (s.status == 0) == cmd.Until {
			s.status = status
			return
		}
		if !s.iterate(cmd.Do) {
			return
		}
		status = s.status
	}
}

func (s *shell) forClause(cmd *syntax.ForClause) {
	s.loops++
	defer func() { s.loops-- }()
	switch loop := cmd.Loop.(type) {
	case *syntax.WordIter:
		items := s.params
		if loop.InPos.IsValid() {
			var err error
			if items, err = s.fields(loop.Items); err != nil {
				s.stop(err)
				return
			}
		}
		s.status = 0
		for _, item := range items {
			if err := s.assign(loop.Name.Value, item); err != nil {
				s.stop(err)
				return
			}
			if !s.iterate(cmd.Do) {
				return
			}
		}
	case *syntax.CStyleLoop:
		ask := func(x syntax.ArithmExpr, otherwise int64) (int64, bool) {
			if x == nil {
				return otherwise, true
			}
			n, err := s.arith(x)
			if err != nil {
				s.setTruth(false, err)
			}
			return n, err == nil
		}
		if _, ok := ask(loop.Init, 0); !ok {
			return
		}
		s.status = 0
		for {
			if n, ok := ask(loop.Cond, 1); !ok || n == 0 || !s.iterate(cmd.Do) {
				return
			}
			if _, ok := ask(loop.Post, 0); !ok {
				return
			}
		}
	}
}

func (s *shell) caseClause(cmd *syntax.CaseClause) {
	value, err := s.literal(cmd.Word)
	if err != nil {
		s.stop(err)
		return
	}
	s.status = 0
	through := false // ";&" goes on with the next item
	for _, item := range cmd.Items {
		for _, w := range item.Patterns {
			if through {
				break
			}
			pat, err := s.pattern(w.Parts)
			if err != nil {
				s.stop(err)
				return
			}
			through = match(pat, value)
		}
		if !through {
			continue
		}
		s.stmts(item.Stmts)
		if item.Op != syntax.Fallthrough || s.flow != flowNone {
			return
		}
	}
}

func (s *shell) funcDecl(cmd *syntax.FuncDecl) {
	s.status = 0
	if isSpecial(cmd.Name.Value) {
		s.stop(fail(2, cmd.Name.Value+": a special builtin cannot be a function"))
		return
	}
	if err := s.charge(int(cmd.End().Offset()-cmd.Pos().Offset()) * functionCost); err != nil {
		s.stop(fail(2, err.Error()))
		return
	}
	s.funcs[cmd.Name.Value] = cmd.Body
}

// callFunc runs a function with its own parameters and local variables.
func (s *shell) callFunc(body *syntax.Stmt, args []string) {
	params, paid, loops := s.params, s.paramsPaid, s.loops
	s.params, s.paramsPaid, s.loops = nil, 0, 0
	if err := s.setParams(args); err != nil {
		s.params, s.paramsPaid, s.loops = params, paid, loops
		s.stop(err)
		return
	}
	s.calls++
	s.frames = append(s.frames, frame{})
	s.stmt(body)
	top := len(s.frames) - 1
	s.restoreAll(s.frames[top])
	s.frames = s.frames[:top]
	s.calls--
	_ = s.setParams(nil)
	s.params, s.paramsPaid, s.loops = params, paid, loops
	if s.flow == flowReturn {
		s.flow = flowNone
	}
}

// runTraps runs the traps of the signals that have come.
func (s *shell) runTraps() {
	for {
		s.mu.Lock()
		if len(s.pending) == 0 || s.inTrap {
			s.mu.Unlock()
			return
		}
		action := s.traps[s.pending[0]]
		s.pending = s.pending[1:]
		s.mu.Unlock()
		status := s.status
		s.inTrap = true
		s.eval(action)
		s.inTrap = false
		if s.flow != flowNone {
			return
		}
		s.status = status
	}
}
