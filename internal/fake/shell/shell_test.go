package shell_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type result struct {
	code        int
	out, errOut string
}

// run runs a script as sh -c does, in /tmp of a new file system.
func run(t testing.TB, script string) result {
	t.Helper()
	return runCommand(t, shell.NewFS(), shell.Command{Args: []string{"sh", "-c", script}, Dir: "/tmp"})
}

func runCommand(t testing.TB, f *shell.FS, c shell.Command) result {
	t.Helper()
	var out, errOut bytes.Buffer
	if c.Stdout == nil {
		c.Stdout = &out
	}
	if c.Stderr == nil {
		c.Stderr = &errOut
	}
	code := shell.Run(t.Context(), f, c)
	return result{code, out.String(), errOut.String()}
}

func TestExitCodesAreThoseOfAShell(t *testing.T) {
	for _, c := range []struct {
		rule   string
		script string
		want   int
	}{
		{"nothing to do is success", "", 0},
		{"the last command decides", "true; false", 1},
		{"exit decides", "exit 42", 42},
		{"an exit code has eight bits", "exit 258", 2},
		{"what is not there is 127", "nosuch", 127},
		{"what cannot be run is 126", "touch f; ./f", 126},
		{"a folder cannot be run", "/tmp", 126},
		{"a binary for another machine cannot be run", `printf '\177ELF\0' > f; chmod +x f; ./f`, 126},
		{"an interpreter that is its own interpreter cannot be run", `printf '#!/tmp/f\n' > f; chmod +x f; ./f`, 126},
		{"death by signal n is 128+n", "kill -TERM $$", 143},
		{"a program killed by a signal is 128+n", "sh -c 'kill -INT $$'; exit $?", 130},
		{"a writer without readers dies of signal 13", "set -o pipefail; yes | head -n 1 >/dev/null", 141},
		{"a syntax error is 2", "if", 2},
		{"an unset parameter under set -u is 2", "set -u; echo $none", 2},
		{"division by zero is 2", "echo $((1/0))", 2},
	} {
		t.Run(c.rule, func(t *testing.T) {
			assert.Equal(t, c.want, run(t, c.script).code)
		})
	}
}

// What busybox does otherwise, or does not do at all, and bash and dash agree on, or bash alone defines.
func TestScriptsBeyondBusybox(t *testing.T) {
	for _, c := range []struct{ rule, script, want string }{
		{"short circuits do not evaluate", `x=1; echo $((0 && (x=5))) $x $((1 || (x=6))) $x`, "0 1 1 1\n"},
		{"double brackets do not split words", `x="a b"; [[ $x = "a b" && -n $x ]] && echo yes`, "yes\n"},
		{"double brackets match patterns", `[[ abc == a* && abc != "a*" ]] && echo yes`, "yes\n"},
		{"double brackets match expressions", `[[ a12 =~ ^[a-z][0-9]+$ ]] && echo yes`, "yes\n"},
		{"double brackets compare numbers", `x=3; [[ x+1 -eq 4 || 1 -gt 2 ]] && echo yes`, "yes\n"},
		{"double parentheses are arithmetic", `x=2; ((x > 1)) && echo $((x ** 10)); ((x == 1)); echo $?`, "1024\n1\n"},
		{"for loops may count", `for ((i = 0; i < 3; i++)); do printf '%d ' $i; done`, "0 1 2 "},
		{"here-strings are input", `read a b <<< "1 2 3"; echo "$b"`, "2 3\n"},
		{"both outputs at once", `{ echo o; echo e >&2; } &> f; cat f`, "o\ne\n"},
		{"letters change case", `x=hello; echo ${x^} ${x^^} ${x^^[el]}; y=ABC; echo ${y,} ${y,,}`, "Hello HELLO hELLo\naBC abc\n"},
		{"indirection", `a=b; b=c; echo ${!a}`, "c\n"},
		{"parameters have slices", `set -- a b c d; echo ${@:2:2} "${*:3}"`, "b c c d\n"},
		{"case falls through", `case a in a) echo 1 ;& b) echo 2 ;; c) echo 3 ;; esac`, "1\n2\n"},
		{"append", `x=a; x+=b; echo $x`, "ab\n"},
		{"let", `let x=3+4 y=x*2; echo $x $y`, "7 14\n"},
		{"function keyword", `function f { echo $1; }; f a`, "a\n"},
		{"read has a time limit", `{ printf ab; sleep 2; } | { read -t 0.2 x; echo "$? $x"; }`, "142 ab\n"},
		{"read takes characters", `printf abcdef | { read -n 3 x; echo "$x"; }`, "abc\n"},
		{"find deletes", `mkdir -p a/b; touch a/b/1 a/2; find a -type f -delete; find a; find a -empty`, "a\na/b\na/b\n"},
		{"cat -n does not end an unfinished line", `printf 'a\nb' | cat -n`, "     1\ta\n     2\tb"},
		{"timeout tells", `timeout 0.1 sleep 9; echo $?; timeout -s KILL 0.1 sleep 9; echo $?`, "124\n137\n"},
		{"timeout insists", `timeout -k 0.1 0.1 sh -c "trap '' TERM; sleep 9"; echo $?`, "137\n"},
		{"nohup ignores a hang-up", `nohup sh -c 'kill -HUP $$; echo alive'`, "alive\n"},
		{"/usr/bin is /bin", `printf '#!/usr/bin/env sh\necho hi\n' > s; chmod +x s; ./s`, "hi\n"},
		{"sed steps", `seq 6 | sed '2~2d'; seq 4 | sed -n '0~2p'`, "1\n3\n5\n2\n4\n"},
		{"seq counts below zero", `seq -2 0; seq -s ' ' 3 -2 -1`, "-2\n-1\n0\n3 1 -1\n"},
		{"a job is killed by its number in the shell", `sleep 99 & kill %1; wait %1; echo $?`, "143\n"},
		{"several programs read one input in turn", `printf '1\n2\n3\n' | { read a; read b; cat; echo $a$b; }`, "3\n12\n"},
		{"the name of a script is $0", `echo 'echo $0' > s; sh s; sh -c 'echo $0' me`, "s\nme\n"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got, _ := inBubble(t, time.Minute, c.script)
			assert.Equal(t, c.want, got.out, got.errOut)
		})
	}
}

func TestBashExpandsBracesAndShDoesNot(t *testing.T) {
	const script = `echo {a,b}{1,2} {1..3} {c..a} {08..10} {5..1..2} x{,y} "{1..3}" {a}`
	for shellName, want := range map[string]string{
		"bash": "a1 a2 b1 b2 1 2 3 c b a 08 09 10 5 3 1 x xy {1..3} {a}\n",
		"sh":   "{a,b}{1,2} {1..3} {c..a} {08..10} {5..1..2} x{,y} {1..3} {a}\n",
	} {
		got := runCommand(t, shell.NewFS(), shell.Command{Args: []string{shellName, "-c", script}})
		assert.Equal(t, want, got.out, shellName)
	}
}

func TestTraceShowsCommandsAsTheyRun(t *testing.T) {
	got := run(t, `set -x; x="a b"; echo "$x" c; f() { true; }; f 1`)
	assert.Equal(t, "+ x='a b'\n+ echo 'a b' c\n+ f 1\n+ true\n", got.errOut)
	assert.Equal(t, "a b c\n", got.out)
}

func TestWhatIsNotSupportedIsRefusedAloud(t *testing.T) {
	for _, script := range []string{
		"a=(1 2)", "a[1]=2", "echo ${a[0]}", "declare -A x", "typeset x=1", "cat <(true)", "coproc cat", "select x in a; do :; done",
		"echo !(a)", "shopt -s extglob", "alias x=y", "unalias x", "jobs", "fg", "bg", "ulimit -n 5", "fc", "mapfile x",
		"exec {fd}>f", "echo ${x@Q}", "case a in a) ;;& esac", "set -Z", "set -o vi", "echo ${!x*}",
	} {
		t.Run(script, func(t *testing.T) {
			got := run(t, script+"\necho went on")
			assert.Equal(t, 2, got.code)
			assert.Empty(t, got.out)
			assert.NotEmpty(t, got.errOut)
		})
	}
}

func TestAnUnknownFlagIsAnErrorOfEveryUtility(t *testing.T) {
	withoutFlags := "[ basename dirname echo expr false nproc printf pwd sync test true yes"
	list := run(t, "ls /bin").out
	assert.Greater(t, strings.Count(list, "\n"), 60)
	for name := range strings.FieldsSeq(list) {
		if strings.Contains(" "+withoutFlags+" ", " "+name+" ") {
			continue
		}
		got := run(t, "cd /; : | "+name+" --no-such-flag x y")
		assert.Contains(t, []int{1, 2, 125, 126}, got.code, name)
		assert.NotEmpty(t, got.errOut, name)
		if name != "sh" && name != "bash" {
			got = run(t, "cd /; : | "+name+" -@ x y")
			assert.Contains(t, []int{1, 2, 125, 126}, got.code, name)
			assert.NotEmpty(t, got.errOut, name)
		}
	}
}

func TestACommandHasEnvironmentFolderAndUser(t *testing.T) {
	f := shell.NewFS()
	got := runCommand(t, f, shell.Command{
		Args: []string{"sh", "-c", `echo $HOME $PWD $(id -un) $(id -u) $A $HOSTNAME; touch /root/x; echo $?`},
		Env:  map[string]string{"A": "b"}, Dir: "/etc", User: "user",
	})
	assert.Equal(t, "/home/user /etc user 1000 b sandbox\n1\n", got.out)

	got = runCommand(t, f, shell.Command{Args: []string{"pwd"}})
	assert.Equal(t, "/\n", got.out)
	got = runCommand(t, f, shell.Command{Args: []string{"id", "-u"}, User: "0:0"})
	assert.Equal(t, "0\n", got.out)

	for _, bad := range []shell.Command{
		{Args: []string{"true"}, User: "nobody"},
		{Args: []string{"true"}, Dir: "/none"},
		{Args: []string{"true"}, Dir: "/etc/passwd"},
		{Args: []string{"true"}, Dir: "etc"},
		{Args: []string{"true"}, Dir: "/root", User: "user/../root"},
	} {
		got := runCommand(t, f, bad)
		assert.Equal(t, 126, got.code, bad)
		assert.NotEmpty(t, got.errOut, bad)
	}
	assert.Equal(t, 127, runCommand(t, f, shell.Command{}).code)
	assert.Equal(t, 127, runCommand(t, f, shell.Command{Args: []string{""}}).code)
}

func TestModesHoldForUsersAndNotForRoot(t *testing.T) {
	f := shell.NewFS()
	as := func(user, script string) result {
		return runCommand(t, f, shell.Command{Args: []string{"sh", "-c", script}, Dir: "/tmp", User: user})
	}
	require.Zero(t, as("root", "echo secret > s; chmod 600 s; mkdir d; echo x > d/f; chmod 700 d; echo y > open").code)
	got := as("user", `for n in s d/f d; do cat $n 2>/dev/null; echo $?; done; cat open >/dev/null; echo $?`)
	assert.Equal(t, "1\n1\n1\n0\n", got.out)
	assert.NotZero(t, as("user", "echo z >> open").code, "not the owner")
	assert.NotZero(t, as("user", "rm open").code, "the folder is sticky")
	assert.NotZero(t, as("user", "chmod 777 s").code)
	assert.NotZero(t, as("user", "chown user s").code)
	require.Zero(t, as("user", "echo mine > m; chmod 000 m").code)
	assert.NotZero(t, as("user", "cat m").code, "not even the owner")
	assert.Equal(t, "mine\n", as("root", "cat m").out)
	assert.Equal(t, 126, as("root", "./m").code, "root cannot run what nobody may run")
}

func TestStandardInputIsReadOnlyByWhoReadsIt(t *testing.T) {
	got := runCommand(t, shell.NewFS(), shell.Command{
		Args: []string{"sh", "-c", `read a; read b; echo "$b$a"; cat`}, Stdin: strings.NewReader("1\n2\n3\n4\n"),
	})
	assert.Equal(t, "21\n3\n4\n", got.out)

	reads := &countingReader{}
	got = runCommand(t, shell.NewFS(), shell.Command{Args: []string{"echo", "hi"}, Stdin: reads})
	assert.Equal(t, "hi\n", got.out)
	assert.Zero(t, reads.n)

	got = runCommand(t, shell.NewFS(), shell.Command{Args: []string{"sh"}, Stdin: strings.NewReader("echo from stdin")})
	assert.Equal(t, "from stdin\n", got.out)
	got = runCommand(t, shell.NewFS(), shell.Command{Args: []string{"cat"}})
	assert.Equal(t, result{}, got)
}

type countingReader struct{ n int }

func (r *countingReader) Read([]byte) (int, error) { r.n++; return 0, io.EOF }

func TestOneWriterForBothStreamsIsNeverUsedTwiceAtOnce(t *testing.T) {
	var b bytes.Buffer // the race detector would see two writers
	code := shell.Run(t.Context(), shell.NewFS(), shell.Command{
		Args:   []string{"sh", "-c", `for i in 1 2 3 4 5 6 7 8; do { echo out; echo err >&2; } & done; wait`},
		Stdout: &b, Stderr: &b,
	})
	assert.Zero(t, code)
	assert.Equal(t, 8, strings.Count(b.String(), "out\n"))
	assert.Equal(t, 8, strings.Count(b.String(), "err\n"))
}

func TestWritersThatCannotBeComparedAreTwo(t *testing.T) {
	var b bytes.Buffer
	w := writerFunc(b.Write)
	assert.Zero(t, shell.Run(t.Context(), shell.NewFS(), shell.Command{Args: []string{"echo", "x"}, Stdout: w, Stderr: w}))
	assert.Equal(t, "x\n", b.String())
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestAWriterThatFailsIsABrokenPipe(t *testing.T) {
	code := shell.Run(t.Context(), shell.NewFS(), shell.Command{Args: []string{"yes"}, Stdout: failingWriter{}})
	assert.Equal(t, 141, code)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestTheTestsOwnCommandsAreAskedBeforeNotFound(t *testing.T) {
	f := shell.NewFS()
	require.NoError(t, f.WriteFile("/tmp/prog", strings.NewReader("\x7fELF\x00")))
	var asked []string
	hook := func(_ context.Context, c shell.Command) (int, bool) {
		asked = append(asked, c.Args[0])
		switch c.Args[0] {
		case "git":
			in, err := io.ReadAll(c.Stdin)
			assert.NoError(t, err)
			_, err = io.WriteString(c.Stdout, c.Env["X"]+" "+c.Dir+" "+c.User+" "+c.Args[1]+" "+string(in))
			assert.NoError(t, err)
			return 7, true
		case "/tmp/prog":
			return 0, true
		}
		return 0, false
	}
	got := runCommand(t, f, shell.Command{
		Args: []string{"sh", "-c", `echo input | X=1 git status | tr a-z A-Z; printf x | git a >/dev/null; echo $?
			/tmp/prog; echo $?; nosuch; echo $?; ls /none 2>/dev/null`},
		Dir: "/home/user", User: "user", Exec: hook,
	})
	assert.Equal(t, "1 /HOME/USER USER STATUS INPUT\n7\n126\n127\n", got.out, got.errOut)
	assert.Equal(t, []string{"git", "git", "nosuch"}, asked, "not for what may not be run, nor for what is there")

	got = runCommand(t, f, shell.Command{Args: []string{"sh", "-c", "chmod +x /tmp/prog; /tmp/prog && echo ran"}, Exec: hook})
	assert.Equal(t, "ran\n", got.out)
	assert.Zero(t, runCommand(t, f, shell.Command{Args: []string{"/tmp/prog"}, Exec: hook}).code)
	assert.Equal(t, 126, runCommand(t, f, shell.Command{Args: []string{"/tmp/prog"}}).code)
}
