package shell

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

const maxLine = 1 << 20 // of a line that a utility takes into memory

// appletNames are the programs in /bin.
const appletNames = "[ base64 basename bash cat chmod chown cmp cp cut date dd dirname echo egrep env expr false fgrep find " +
	"grep gunzip gzip head hostname id kill ln ls md5sum mkdir mktemp mv nohup nproc od pgrep pkill " +
	"printenv printf ps pwd readlink realpath rev rm rmdir sed seq setsid sh sha1sum sha256sum sha512sum sleep sort stat " +
	"sync tac tail tar tee test timeout touch tr true truncate uname uniq wc which whoami xargs yes zcat"

// applet is the main function of a utility.
type applet func(t *tool) int

// findApplet returns nil for a name that is not in appletNames.
func findApplet(name string) applet {
	for _, find := range []func(string) applet{systemApplet, fileApplet, textApplet, dataApplet} {
		if a := find(name); a != nil {
			return a
		}
	}
	return nil
}

// tool is a utility at work in its own process.
type tool struct {
	*proc
	name string
	args []string // without the name
	env  []string
	out  *bufio.Writer // standard output; flushed before the tool waits for anything
}

func runTool(p *proc, run applet, args, env []string) int {
	name := args[0][strings.LastIndexByte(args[0], '/')+1:]
	t := &tool{proc: p, name: name, args: args[1:], env: env}
	t.out = bufio.NewWriter(fdWriter{p, 1})
	status := run(t)
	if err := t.out.Flush(); err != nil && !errors.Is(err, errPipe) {
		t.errorf("%s: write error: %v", t.name, err)
		status = max(status, 1)
	}
	return status
}

// complain writes a message and returns the status of a failure.
func (t *tool) complain(format string, args ...any) int {
	_ = t.out.Flush()
	t.errorf("%s: %s", t.name, fmt.Sprintf(format, args...))
	return 1
}

// failed is complain for an error about a file.
func (t *tool) failed(name string, err error) int { return t.complain("%s: %v", name, err) }

// flags are the options of a tool; an option that was not given has no entry.
type flags map[byte]string

func (f flags) has(c byte) bool { _, ok := f[c]; return ok }

// errUsage has been reported already.
var errUsage = errors.New("usage")

// flags splits the arguments. spec lists the letters, as for getopts: one with a colon has an argument. A "+" in front
// ends the options at the first other argument. Long options are given as "name=c".
func (t *tool) flags(spec string, long ...string) (f flags, rest []string, err error) {
	f = flags{}
	inOrder := strings.HasPrefix(spec, "+")
	args := t.args
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return f, append(rest, args...), nil
		case strings.HasPrefix(arg, "--"):
			if err := t.longFlag(f, arg[2:], spec, long); err != nil {
				return nil, nil, err
			}
		case len(arg) > 1 && arg[0] == '-':
			for i := 1; i < len(arg); i++ {
				at := strings.IndexByte(spec, arg[i])
				if at < 0 || arg[i] == ':' || arg[i] == '+' {
					t.complain("invalid option -- '%c'", arg[i])
					return nil, nil, errUsage
				}
				if at+1 == len(spec) || spec[at+1] != ':' {
					f[arg[i]] += "x"
					continue
				}
				value := arg[i+1:]
				if value == "" {
					if len(args) == 0 {
						t.complain("option requires an argument -- '%c'", arg[i])
						return nil, nil, errUsage
					}
					value, args = args[0], args[1:]
				}
				f.addValue(arg[i], value)
				break
			}
		case inOrder:
			return f, append([]string{arg}, args...), nil
		default:
			rest = append(rest, arg)
		}
	}
	return f, rest, nil
}

// addValue sets an argument; those of an option given more than once are joined by NUL, which no argument holds.
func (f flags) addValue(c byte, value string) {
	if old, ok := f[c]; ok {
		value = old + "\x00" + value
	}
	f[c] = value
}

// last returns the argument of the last use of an option.
func (f flags) last(c byte) string {
	v := f[c]
	return v[strings.LastIndexByte(v, 0)+1:]
}

func (t *tool) longFlag(f flags, arg, spec string, long []string) error {
	name, value, hasValue := strings.Cut(arg, "=")
	for _, l := range long {
		known, letter, _ := strings.Cut(l, "=")
		if known != name {
			continue
		}
		takes := strings.Contains(spec, letter+":")
		if takes != hasValue {
			break
		}
		if takes {
			f.addValue(letter[0], value)
		} else {
			f[letter[0]] += "x"
		}
		return nil
	}
	t.complain("unrecognized option '--%s'", arg)
	return errUsage
}

// stdin reads descriptor 0 after flushing what has been written so far.
func (t *tool) stdin() io.Reader { return toolInput{t, t.fds[0]} }

type toolInput struct {
	t *tool
	d *desc
}

func (i toolInput) Read(b []byte) (int, error) {
	_ = i.t.out.Flush()
	if i.d == nil {
		return 0, errBadFD
	}
	return i.t.readFrom(i.d, b)
}

// openInput opens a file for reading; "-" is standard input. done closes it.
func (t *tool) openInput(name string) (r io.Reader, done func(), err error) {
	if name == "-" {
		return t.stdin(), func() {}, nil
	}
	d, err := t.openFile(name, openRead)
	if err != nil {
		return nil, nil, err
	}
	return toolInput{t, d}, d.release, nil
}

// openOutput opens a file for writing through a buffer; done flushes and closes it.
func (t *tool) openOutput(name string, flags openFlag) (w *bufio.Writer, done func() error, err error) {
	d, err := t.openFile(name, openWrite|openCreate|flags)
	if err != nil {
		return nil, nil, err
	}
	w = bufio.NewWriterSize(toolOutput{t, d}, 32<<10)
	return w, func() error {
		defer d.release()
		return w.Flush()
	}, nil
}

type toolOutput struct {
	t *tool
	d *desc
}

func (o toolOutput) Write(b []byte) (int, error) {
	o.t.step(transferCost(len(b)))
	n, err := o.d.f.write(o.t.proc, b)
	if err == errKilled {
		o.t.die()
	}
	return n, err
}

// inputs calls do for each named file, or for standard input, and returns the highest status.
func (t *tool) inputs(names []string, do func(name string, r io.Reader) error) int {
	if len(names) == 0 {
		names = []string{"-"}
	}
	status := 0
	for _, name := range names {
		r, done, err := t.openInput(name)
		if err == nil {
			err = do(name, r)
			done()
		}
		if err != nil {
			if errors.Is(err, errPipe) {
				return 1
			}
			status = t.failed(name, err)
		}
	}
	return status
}

var errLineTooLong = errors.New("line too long")

// lines calls do for each line, without its newline; ended tells whether it had one. do returns false to stop.
func (t *tool) lines(r io.Reader, do func(line []byte, ended bool) bool) error {
	return t.records(r, '\n', do)
}

// records is lines for what ends with another byte than a newline.
func (t *tool) records(r io.Reader, end byte, do func(record []byte, ended bool) bool) error {
	br := bufio.NewReader(r)
	var long []byte
	for n := int64(0); ; n++ {
		if n%8 == 0 {
			t.step(1)
		}
		part, err := br.ReadSlice(end)
		if err == bufio.ErrBufferFull {
			if long = append(long, part...); len(long) > maxLine {
				return errLineTooLong
			}
			continue
		}
		line := part
		if long != nil {
			line = append(long, part...)
			long = nil
		}
		if err != nil && err != io.EOF {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		text, ended := bytes.CutSuffix(line, []byte{end})
		if !do(text, ended) || err == io.EOF {
			return nil
		}
	}
}

// lineEnd writes the newline of a line that had one.
func (t *tool) lineEnd(ended bool) {
	if ended {
		_ = t.out.WriteByte('\n')
	}
}

// broken reports whether writing to standard output has failed, which a tool without end has to look at.
func (t *tool) broken() bool {
	_, err := t.out.Write(nil)
	return err != nil
}

// keep accounts for a line or file that the tool holds in memory.
func (t *tool) keep(n int) error { return t.charge(n + 16) }
