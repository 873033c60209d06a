package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	defaultTimeout = 5 * time.Minute
	defaultOutput  = 32 << 10 // of each stream, in a result
	maxOutput      = 1 << 20
	maxPiece       = 4 << 10 // of output, in one progress notification
	pieceEvery     = time.Second
	quietEvery     = 10 * time.Second // between notifications without output, which keep a client's own timeout from passing
)

type runIn struct {
	Script         string            `json:"script,omitempty" jsonschema:"A shell script, run as: sh -c SCRIPT. Give either this or args."`
	Args           []string          `json:"args,omitempty" jsonschema:"A program and its arguments, run without a shell. Give either this or script."`
	Dir            string            `json:"dir,omitempty" jsonschema:"Working folder, an absolute path. Default: the image's."`
	Env            map[string]string `json:"env,omitempty" jsonschema:"Environment variables for this command alone."`
	Stdin          string            `json:"stdin,omitempty" jsonschema:"Standard input, as text. Default: empty."`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty" jsonschema:"The command is killed after so many seconds. Default: 300."`
	MaxOutputBytes int               `json:"max_output_bytes,omitempty" jsonschema:"How much of stdout and of stderr to return, each. The middle is left out of what is longer. Default: 32768; at most 1048576."`
}

type runOut struct {
	SandboxID   string  `json:"sandbox_id"`
	ExitCode    int     `json:"exit_code" jsonschema:"0 is success, 127 no such program, 128+n ended by signal n, -1 timed out."`
	Stdout      string  `json:"stdout" jsonschema:"As text; bytes that are no UTF-8 are shown as U+FFFD."`
	Stderr      string  `json:"stderr"`
	StdoutBytes int64   `json:"stdout_bytes" jsonschema:"Length of the whole."`
	StderrBytes int64   `json:"stderr_bytes"`
	Truncated   bool    `json:"truncated" jsonschema:"The middle of stdout or stderr was left out; a line in square brackets stands there."`
	Merged      bool    `json:"merged" jsonschema:"This provider cannot tell the streams apart: stdout holds both."`
	TimedOut    bool    `json:"timed_out" jsonschema:"The command was killed because timeout_seconds had passed."`
	Seconds     float64 `json:"seconds" jsonschema:"How long the command ran."`
}

// command reads what is to be run, without its output.
func command(in runIn) (sandbox.Cmd, error) {
	cmd := sandbox.Cmd{Args: in.Args, Dir: in.Dir, Env: in.Env, Timeout: defaultTimeout}
	switch {
	case in.Script != "" && len(in.Args) > 0:
		return sandbox.Cmd{}, tell("Give either script or args, not both. Nothing was run.")
	case in.Script == "" && len(in.Args) == 0:
		return sandbox.Cmd{}, tell("Give script or args: there is nothing to run.")
	case in.Script != "":
		cmd.Args = sandbox.Shell(in.Script).Args
	}
	if in.Stdin != "" {
		cmd.Stdin = strings.NewReader(in.Stdin)
	}
	const longest = 1e6 // seconds; the scope ends far earlier
	switch t := in.TimeoutSeconds; {
	case t < 0 || t > longest:
		return sandbox.Cmd{}, tell("timeout_seconds is %v: give more than 0 and at most %v. Nothing was run.", t, longest)
	case t > 0:
		cmd.Timeout = max(time.Duration(t*float64(time.Second)), time.Millisecond)
	}
	if in.MaxOutputBytes < 0 || in.MaxOutputBytes > maxOutput {
		return sandbox.Cmd{}, tell("max_output_bytes is %d: give 1 to %d. Nothing was run. Longer output can be written to a file and read in parts by read_file.", in.MaxOutputBytes, maxOutput)
	}
	return cmd, nil
}

func (s *session) run(ctx context.Context, req *mcp.CallToolRequest, in runIn) (*mcp.CallToolResult, runOut, error) {
	cmd, err := command(in)
	if err == nil {
		if err = cmd.Validate(s.caps); err != nil { // before a sandbox is made for it
			err = tell("The command was refused, and nothing was run: %v.", err)
		}
	}
	if err != nil {
		return nil, runOut{}, err
	}
	b, err := s.use(ctx)
	if err != nil {
		return nil, runOut{}, err
	}
	limit := in.MaxOutputBytes
	if limit == 0 {
		limit = defaultOutput
	}
	stdout, stderr := newOutput(limit), newOutput(limit)
	cmd.Stdout = stdout
	if s.caps.SplitOutput {
		cmd.Stderr = stderr
	}
	began := time.Now()
	told := s.report(ctx, req, stdout, stderr)
	res, err := b.sb.Exec(ctx, cmd)
	told()
	out := runOut{
		SandboxID: b.sb.ID(), ExitCode: res.ExitCode, Merged: res.Merged, TimedOut: res.TimedOut,
		Seconds: time.Since(began).Round(time.Millisecond).Seconds(),
	}
	var cut [2]bool
	out.Stdout, out.StdoutBytes, cut[0] = stdout.text()
	out.Stderr, out.StderrBytes, cut[1] = stderr.text()
	out.Truncated = cut[0] || cut[1]
	if err != nil {
		err = s.failed(ctx, b, "running the command", err)
		if out.StdoutBytes+out.StderrBytes > 0 {
			err = tell("%v\n\nIts output so far:\n%s%s", err, out.Stdout, out.Stderr)
		}
		return nil, runOut{}, err
	}
	return nil, out, nil
}

// report tells the client of a command's output while it runs, if the client asked for that. The function that it
// returns ends it, and waits for its end.
func (s *session) report(ctx context.Context, req *mcp.CallToolRequest, outputs ...*output) func() {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	began, last := time.Now(), time.Now()
	send := func() {
		if !s.out.idle() { // a client that is slow to read gets fewer and larger pieces
			return
		}
		text := ""
		for _, o := range outputs {
			text += o.fresh()
		}
		now := time.Now()
		if text == "" && now.Sub(last) < quietEvery {
			return
		}
		last = now
		// An error means that the client is gone, and then the call ends too.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: now.Sub(began).Seconds(), Message: text,
		})
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(pieceEvery)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				send()
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// An output keeps the beginning and the end of what is written to it, and what is news.
type output struct {
	mu         sync.Mutex
	limit      int
	head, tail []byte
	total      int64
	news       []byte
	newsLost   int
}

func newOutput(limit int) *output { return &output{limit: limit} }

// Write never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	o.total += int64(n)
	o.news = append(o.news, p...)
	if more := len(o.news) - maxPiece; more > 0 {
		o.news = o.news[more:]
		o.newsLost += more
	}
	room := min((o.limit+1)/2-len(o.head), n)
	o.head = append(o.head, p[:room]...)
	o.tail = append(o.tail, p[room:]...)
	if keep := o.limit / 2; len(o.tail) > keep+max(keep, 4<<10) {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-keep:]...)
	}
	return n, nil
}

// text returns what is kept, the length of all, and whether something is left out.
func (o *output) text() (text string, total int64, cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.total <= int64(o.limit) {
		return valid(append(o.head, o.tail...)), o.total, false
	}
	head, tail := o.head[:len(o.head)-partial(o.head)], o.tail[max(0, len(o.tail)-o.limit/2):]
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	left := o.total - int64(len(head)+len(tail))
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", valid(head), left, valid(tail)), o.total, true
}

// fresh returns what was written since the last call, or the end of it if that is much.
func (o *output) fresh() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	whole := len(o.news) - partial(o.news)
	text := valid(o.news[:whole])
	if o.newsLost > 0 && text != "" {
		text = fmt.Sprintf("[%d bytes left out]\n%s", o.newsLost, text)
		o.newsLost = 0
	}
	o.news = append([]byte(nil), o.news[whole:]...)
	return text
}

// partial returns how many bytes at the end of b are the beginning of a character.
func partial(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if utf8.FullRune(b[len(b)-i:]) {
				return 0
			}
			return i
		}
	}
	return 0
}

func valid(b []byte) string { return strings.ToValidUTF8(string(b), string(utf8.RuneError)) }
