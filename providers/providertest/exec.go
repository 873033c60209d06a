package providertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

const kept = 1 << 20 // bytes of each stream in a Result

func execRules() []rule {
	return []rule{
		{"the exit code is the command's, and not an error", execCodes},
		{"a command that is killed ends with 128+n", execSignal},
		{"a program that does not exist ends with 127", execMissing},
		{"arguments arrive as they are, with no shell in between", execArgs},
		{"Cmd.Env reaches the command exactly, and that command only", execEnv},
		{"Cmd.Dir is where the command runs", execDir},
		{"Cmd.User is who runs it, or is refused", execUser},
		{"Cmd.Stdin is read to its end, as Capabilities.Stdin says", execStdin},
		{"without Cmd.Stdin standard input is empty", execNoStdin},
		{"stdout and stderr are apart, as Capabilities.SplitOutput says", execSplit},
		{"both streams may go to one writer", execOneWriter},
		{"output arrives byte for byte, as Capabilities.BinaryOut says", execBinary},
		{"of a large output all is streamed and the last 1 MiB is kept", execLarge},
		{"output arrives before the command ends", execStreams},
		{"commands run at the same time", execConcurrent},
		{"after its Timeout a command is killed with all its children", execTimeout},
		{"when its context ends Exec returns the cause at once, and the command dies as Capabilities.Kill says", execCancel},
		{"a command with faults is refused before any request", execFaults},
	}
}

// commandTime is the limit of a command that is not meant to reach it.
func (t *trial) commandTime() time.Duration { return 30*time.Second + t.slack }

// exec runs a command whose outcome must be known.
func (t *trial) exec(sb sandbox.Sandbox, cmd sandbox.Cmd) sandbox.Result {
	t.Helper()
	if cmd.Timeout == 0 {
		cmd.Timeout = t.commandTime()
	}
	res, err := sb.Exec(t.ctx, cmd)
	if err != nil {
		t.Fatalf("exec %q: %v", cmd.Args, err)
	}
	return res
}

// output runs a command that must succeed and returns its standard output.
func (t *trial) output(sb sandbox.Sandbox, cmd sandbox.Cmd) string {
	t.Helper()
	res := t.exec(sb, cmd)
	if err := res.Err(); err != nil {
		t.Fatalf("exec %q: %v", cmd.Args, err)
	}
	return string(res.Stdout)
}

func execCodes(t *trial) {
	sb := t.box()
	for _, code := range []int{0, 1, 3, 126, 255} {
		if res := t.exec(sb, sandbox.Shell(fmt.Sprintf("exit %d", code))); res.ExitCode != code || res.TimedOut {
			t.Errorf("exit %d: %+v", code, res)
		}
	}
}

func execSignal(t *trial) {
	sb := t.box()
	for signal, code := range map[string]int{"KILL": 137, "TERM": 143} {
		if res := t.exec(sb, sandbox.Shell("kill -"+signal+" $$; sleep 5")); res.ExitCode != code {
			t.Errorf("killed by %s: exit code %d, want %d", signal, res.ExitCode, code)
		}
	}
}

func execMissing(t *trial) {
	sb := t.box()
	for _, name := range []string{"no-such-program-here", "/no/such/program"} {
		if res := t.exec(sb, sandbox.Cmd{Args: []string{name, "x"}}); res.ExitCode != 127 {
			t.Errorf("%s: exit code %d, want 127", name, res.ExitCode)
		}
	}
}

// odd are strings that quoting, templating and encoding get wrong.
func odd() []string {
	return []string{
		"a b", "", "$HOME", "`id`", "$(id)", `"double"`, "it's", `back\slash`, `\n`, "line\nbreak", "tab\t", "*", "-n", "a=b",
		"ünïcödé 文件", "{{x}}", "%s%d", "<a&b>", "trailing ", "#hash", ";true", "~", "!x",
	}
}

func execArgs(t *trial) {
	args := odd()
	out := t.output(t.box(), sandbox.Cmd{Args: append([]string{"sh", "-c", `printf '[%s]' "$@"`, "sh"}, args...)})
	if want := "[" + strings.Join(args, "][") + "]"; out != want {
		t.Errorf("got  %q\nwant %q", out, want)
	}
}

func execEnv(t *trial) {
	sb := t.box()
	env, script, want := map[string]string{}, "", ""
	for i, v := range odd() {
		name := fmt.Sprintf("SG_%d", i)
		env[name] = v
		script += fmt.Sprintf(`printf '[%%s]' "$%s"; `, name)
		want += "[" + v + "]"
	}
	cmd := sandbox.Shell(script)
	cmd.Env = env
	if out := t.output(sb, cmd); out != want {
		t.Errorf("got  %q\nwant %q", out, want)
	}
	if out := t.output(sb, sandbox.Shell(`echo "${SG_0-unset}"`)); out != "unset\n" {
		t.Errorf("the next command sees the variable as %q", out)
	}
}

func execDir(t *trial) {
	sb := t.box()
	dir := t.dir() + "/a folder"
	t.output(sb, sandbox.Cmd{Args: []string{"mkdir", "-p", dir}})
	cmd := sandbox.Shell("pwd")
	cmd.Dir = dir
	if out := t.output(sb, cmd); out != dir+"\n" {
		t.Errorf("pwd says %q, want %q", out, dir+"\n")
	}
	cmd.Dir = t.dir() + "/missing"
	cmd.Timeout = t.commandTime()
	if res, err := sb.Exec(t.ctx, cmd); err == nil && res.ExitCode == 0 {
		t.Errorf("in a folder that does not exist the command ran, in %q", res.Stdout)
	}
}

func execUser(t *trial) {
	sb := t.box()
	cmd := sandbox.Shell("id -u; id -un")
	cmd.User = "no-such-user-here"
	cmd.Timeout = t.commandTime()
	if res, err := sb.Exec(t.ctx, cmd); err == nil && res.ExitCode == 0 {
		t.Errorf("for a user who does not exist the command ran as %q", res.Stdout)
	}
	if t.h.User == "" {
		return
	}
	cmd.User = t.h.User
	res, err := sb.Exec(t.ctx, cmd)
	switch {
	case err != nil && !matches(err, errors.ErrUnsupported, sandbox.ErrInvalid):
		t.Errorf("user %s: %v", cmd.User, err)
	case err == nil && !strings.Contains("\n"+string(res.Stdout), "\n"+t.h.User+"\n"):
		t.Errorf("for user %s the command ran as %q", cmd.User, res.Stdout)
	}
}

func execStdin(t *trial) {
	sb := t.box()
	in := strings.Repeat("0123456789abcde\n", 20_000) // more than a pipe holds
	cmd := sandbox.Shell("cat; echo end")
	cmd.Stdin = onlyReader{strings.NewReader(in)}
	if !t.caps.Stdin {
		t.unsupported("Stdin", sb, cmd)
		return
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	t.exec(sb, cmd)
	if out.String() != in+"end\n" {
		t.Errorf("%d bytes went in and %d came out, or others", len(in), out.Len()-len("end\n"))
	}
}

// onlyReader hides everything else that a reader can do, such as telling its size.
type onlyReader struct {
	r interface{ Read([]byte) (int, error) }
}

func (o onlyReader) Read(p []byte) (int, error) { return o.r.Read(p) }

// unsupported requires that sb refuses cmd before any request, because Capabilities say no.
func (t *trial) unsupported(what string, sb sandbox.Sandbox, cmd sandbox.Cmd) {
	t.Helper()
	t.quietly(what, func() {
		res, err := sb.Exec(t.ctx, cmd)
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Capabilities.%s is false, but Exec returned %+v, error %v, want errors.ErrUnsupported", what, res, err)
		}
	})
}

func execNoStdin(t *trial) {
	if out := t.output(t.box(), sandbox.Shell("cat; echo end")); out != "end\n" {
		t.Errorf("got %q", out)
	}
}

func execSplit(t *trial) {
	sb := t.box()
	var out, errs bytes.Buffer
	cmd := sandbox.Shell("echo one; echo two >&2; echo three")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if !t.caps.SplitOutput {
		t.unsupported("SplitOutput", sb, cmd)
		cmd.Stderr = nil
		res := t.exec(sb, cmd)
		if !res.Merged || !strings.Contains(string(res.Stdout), "two") || len(res.Stderr) > 0 {
			t.Errorf("Capabilities.SplitOutput is false, but Result is not merged: %q, %q", res.Stdout, res.Stderr)
		}
		return
	}
	res := t.exec(sb, cmd)
	if res.Merged || string(res.Stdout) != "one\nthree\n" || string(res.Stderr) != "two\n" {
		t.Errorf("Result: stdout %q, stderr %q, merged %v", res.Stdout, res.Stderr, res.Merged)
	}
	if out.String() != "one\nthree\n" || errs.String() != "two\n" {
		t.Errorf("writers: stdout %q, stderr %q", out.String(), errs.String())
	}
	if res.Truncated {
		t.Error("a short output is called truncated")
	}
}

func execOneWriter(t *trial) {
	var both lockedBuffer
	cmd := sandbox.Shell("echo one; echo two >&2")
	cmd.Stdout, cmd.Stderr = &both, &both
	t.exec(t.box(), cmd)
	if s := both.String(); !strings.Contains(s, "one\n") || !strings.Contains(s, "two\n") || len(s) != 8 {
		t.Errorf("got %q", s)
	}
}

func execBinary(t *trial) {
	sb := t.box()
	all := make([]byte, 0, 512)
	for i := range 256 {
		all = append(all, byte(i), byte(255-i))
	}
	t.upload(sb, t.dir()+"/all", all)
	var out bytes.Buffer
	res := t.exec(sb, sandbox.Cmd{Args: []string{"cat", t.dir() + "/all"}, Stdout: &out})
	exact := bytes.Equal(res.Stdout, all) && bytes.Equal(out.Bytes(), all)
	if exact != t.caps.BinaryOut {
		t.Errorf("Capabilities.BinaryOut is %v, but whether all bytes arrive as they are is %v", t.caps.BinaryOut, exact)
	}
}

func execLarge(t *trial) {
	sb := t.box()
	var in bytes.Buffer
	for i := range 2 * kept / 16 {
		fmt.Fprintf(&in, "%015d\n", i)
	}
	in.WriteString("the end\n")
	t.upload(sb, t.dir()+"/large", in.Bytes())
	var out bytes.Buffer
	res := t.exec(sb, sandbox.Cmd{Args: []string{"cat", t.dir() + "/large"}, Stdout: &out})
	if !bytes.Equal(out.Bytes(), in.Bytes()) {
		t.Errorf("%d bytes were streamed of %d, or others", out.Len(), in.Len())
	}
	if want := in.Bytes()[in.Len()-kept:]; !bytes.Equal(res.Stdout, want) {
		t.Errorf("%d bytes were kept, want the last %d", len(res.Stdout), kept)
	}
	if !res.Truncated {
		t.Error("Result.Truncated is false")
	}
}

func execStreams(t *trial) {
	sb := t.box()
	seen := make(chan struct{})
	// The command ends only after its first output was seen here.
	cmd := sandbox.Cmd{
		Args:    []string{"sh", "-c", `echo first; until [ -e "$0" ]; do sleep 1; done; echo last`, t.dir() + "/go"},
		Stdout:  writerFunc(onceSeen("first", seen)),
		Timeout: t.commandTime(),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-seen:
			if err := sb.Upload(t.ctx, t.dir()+"/go", strings.NewReader("")); err != nil {
				t.Errorf("upload: %v", err)
			}
		case <-time.After(t.commandTime()):
		case <-t.ctx.Done():
		}
	}()
	res, err := sb.Exec(t.ctx, cmd)
	<-done
	if err != nil || res.TimedOut || string(res.Stdout) != "first\nlast\n" {
		t.Errorf("%q, timed out %v, error %v", res.Stdout, res.TimedOut, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// onceSeen closes seen as soon as word was written.
func onceSeen(word string, seen chan struct{}) func(p []byte) (int, error) {
	var once sync.Once
	var all bytes.Buffer
	var turn sync.Mutex
	return func(p []byte) (int, error) {
		turn.Lock()
		defer turn.Unlock()
		all.Write(p)
		if strings.Contains(all.String(), word) {
			once.Do(func() { close(seen) })
		}
		return len(p), nil
	}
}

// A lockedBuffer may be written by two streams at once.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func execConcurrent(t *trial) {
	sb := t.box()
	const n = 4
	t.output(sb, sandbox.Cmd{Args: []string{"mkdir", "-p", t.dir()}})
	// Each command ends only once all of them have begun.
	const script = `cd "$0"; echo $1 >in-$1; for i in 0 1 2 3; do until [ -e in-$i ]; do sleep 1; done; done; echo $1`
	results, errs := make([]sandbox.Result, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			cmd := sandbox.Cmd{Args: []string{"sh", "-c", script, t.dir(), fmt.Sprint(i)}, Timeout: t.commandTime()}
			results[i], errs[i] = sb.Exec(t.ctx, cmd)
		})
	}
	wg.Wait()
	for i := range n {
		if want := fmt.Sprintln(i); errs[i] != nil || string(results[i].Stdout) != want {
			t.Errorf("command %d: %q, timed out %v, error %v", i, results[i].Stdout, results[i].TimedOut, errs[i])
		}
	}
}

// ticking is a command with a grandchild that leaves a sign of life every second, for ever.
func (t *trial) ticking() sandbox.Cmd {
	const script = `mkdir -p "$0"
sh -c 'echo x >>"$0/ticks"; echo begun; while sleep 1; do echo x >>"$0/ticks"; done' "$0" &
wait
sleep 3600`
	return sandbox.Cmd{Args: []string{"sh", "-c", script, t.dir()}}
}

// ticks is how many signs of life there are.
func (t *trial) ticks(sb sandbox.Sandbox) int {
	t.Helper()
	var out bytes.Buffer
	if err := sb.Download(t.ctx, t.dir()+"/ticks", &out); err != nil {
		t.Fatalf("download: %v", err)
	}
	return out.Len()
}

// dead requires that nothing of the ticking command runs any more. Killing takes a while on a slow machine.
func (t *trial) dead(sb sandbox.Sandbox) {
	t.Helper()
	for end := time.Now().Add(t.slack); ; {
		before := t.ticks(sb)
		time.Sleep(2500 * time.Millisecond)
		if t.ticks(sb) == before {
			return
		}
		if time.Now().After(end) {
			t.Error("the command is over, but its children go on")
			return
		}
	}
}

func execTimeout(t *trial) {
	sb := t.box()
	cmd := t.ticking()
	cmd.Timeout = 2*time.Second + t.slack // it counts from the call on, and the command has to begin within it
	start := time.Now()
	res, err := sb.Exec(t.ctx, cmd)
	took := time.Since(start)
	if err != nil {
		t.Fatalf("a passed Timeout is a Result, not the error %v", err)
	}
	if !res.TimedOut || res.ExitCode != -1 {
		t.Errorf("TimedOut %v, exit code %d, want true and -1", res.TimedOut, res.ExitCode)
	}
	if string(res.Stdout) != "begun\n" {
		t.Errorf("output so far: %q", res.Stdout)
	}
	if took < cmd.Timeout || took > cmd.Timeout+t.slack {
		t.Errorf("Exec returned after %v, want %v", took, cmd.Timeout)
	}
	t.dead(sb)
}

func execCancel(t *trial) {
	sb := t.box()
	stop := errors.New("the reason")
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	begun := make(chan struct{})
	cmd := t.ticking()
	cmd.Stdout = writerFunc(onceSeen("begun", begun))
	cmd.Timeout = 15*time.Second + 2*t.slack
	var ended time.Time
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-begun:
		case <-time.After(cmd.Timeout / 2): // output does not stream: another rule's fault
		case <-t.ctx.Done():
		}
		ended = time.Now()
		cancel(stop)
	}()
	res, err := sb.Exec(ctx, cmd)
	<-done
	if took := time.Since(ended); took > t.slack {
		t.Errorf("Exec returned %v after its context ended", took)
	}
	if !errors.Is(err, stop) {
		t.Errorf("error %v, want the context's cause", err)
	}
	if string(res.Stdout) != "begun\n" {
		t.Errorf("output so far: %q", res.Stdout)
	}
	if t.caps.Kill {
		t.dead(sb)
		return
	}
	before := t.ticks(sb)
	if !t.eventually(5*time.Second+t.slack, func() bool { return t.ticks(sb) > before }) {
		t.Error("Capabilities.Kill is false, but the command was killed")
	}
	t.sleepUntil(ended.Add(cmd.Timeout + t.slack))
	t.dead(sb)
}

func execFaults(t *trial) {
	sb := t.box()
	for what, cmd := range map[string]sandbox.Cmd{
		"no program":                {},
		"an empty program":          {Args: []string{""}},
		"NUL in an argument":        {Args: []string{"echo", "a\x00b"}},
		"a relative folder":         {Args: []string{"pwd"}, Dir: "tmp"},
		"a negative timeout":        {Args: []string{"pwd"}, Timeout: -time.Second},
		"a variable without a name": {Args: []string{"pwd"}, Env: map[string]string{"": "x"}},
		"a variable named a=b":      {Args: []string{"pwd"}, Env: map[string]string{"a=b": "x"}},
		"NUL in a variable":         {Args: []string{"pwd"}, Env: map[string]string{"a": "x\x00"}},
	} {
		t.quietly(what, func() {
			if res, err := sb.Exec(t.ctx, cmd); !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("%s: %+v, error %v, want ErrInvalid", what, res, err)
			}
		})
	}
}
