package shell_test

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/internal/killer"
)

// started is a command that runs beside the test.
type started struct {
	out, errOut bytes.Buffer
	code        int
	done        chan struct{}
	took        time.Duration
}

// start runs a command in a goroutine and waits until nothing more happens by itself.
func start(ctx context.Context, f *shell.FS, c shell.Command) *started {
	s := &started{done: make(chan struct{})}
	begin := time.Now()
	if c.Stdout == nil {
		c.Stdout = &s.out
	}
	c.Stderr = &s.errOut
	go func() {
		defer close(s.done)
		s.code = shell.Run(ctx, f, c)
		s.took = time.Since(begin)
	}()
	time.Sleep(30 * time.Millisecond)
	return s
}

func (s *started) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// asRoot runs a script as root, in at most a minute.
func asRoot(t *testing.T, f *shell.FS, text string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	code := shell.Run(ctx, f, shell.Command{
		Args: append([]string{"sh", "-c", text, "script"}, args...), Stdout: &out, Stderr: &errOut,
	})
	return result{code: code, out: out.String(), errOut: errOut.String()}
}

// commands lists what runs, without init and ps itself.
func commands(t *testing.T, f *shell.FS) []string {
	t.Helper()
	var list []string
	for line := range strings.Lines(asRoot(t, f, "exec ps -o args=").out) {
		if line = strings.TrimSpace(line); line != "/sbin/init" && !strings.HasPrefix(line, "ps ") {
			list = append(list, line)
		}
	}
	return list
}

// killers are the ways in which adapters run their script inside of sandboxes, as its arguments are for a command's first
// process and what its environment holds.
func killers() map[string]func(pid, mark string) []string {
	known := func(pid, mark string) []string {
		return []string{"sh", "-c", killer.Script(), "sandglass-kill", mark, pid}
	}
	unknown := func(_, mark string) []string { return []string{"sh", "-c", killer.Script(), "sandglass-kill", mark} }
	without := func(args []string) []string { return append([]string{"env", "PATH=/nowhere", "/bin/sh"}, args[1:]...) }
	return map[string]func(pid, mark string) []string{
		"its process is known":                          known,
		"its process is not known":                      unknown,
		"its process is known, and grep is missing":     func(pid, mark string) []string { return without(known(pid, mark)) },
		"its process is not known, and grep is missing": func(pid, mark string) []string { return without(unknown(pid, mark)) },
	}
}

func TestTheAdaptersKillerKillsACommandAndNothingElse(t *testing.T) {
	for name, kill := range killers() {
		for what, args := range map[string][]string{
			"a program":                {"sleep", "600"},
			"a shell with children":    {"sh", "-c", "sleep 600 & sleep 600 & wait"},
			"a pipeline":               {"sh", "-c", "yes | cat | while read x; do sleep 1; done"},
			"a child in a new session": {"sh", "-c", "setsid sleep 600 & sleep 600"},
			"a child of a child that has ended": {
				"sh", "-c", `sh -c 'setsid sh -c "sleep 600 & exec sleep 600" & exit' & sleep 600`,
			},
			"one that ignores signals": {"sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"},
			"a fork bomb":              {"sh", "-c", "bomb() { bomb | bomb & }; { sleep 0.001; bomb; } & sleep 600"},
			"one that forks on and on": {"sh", "-c", "while :; do (sleep 600; :) & sleep 0.002; done"},
			"one that never waits":     {"sh", "-c", "while :; do :; done"},
			"one that was stopped":     {"sh", "-c", "sleep 600 & kill -STOP $!; wait"},
			"a descendant without its environment": {
				"sh", "-c", "env -i setsid sleep 600 & sleep 600",
			},
		} {
			if what == "a fork bomb" && name != "its process is known" {
				continue // it takes a lot of work
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := shell.NewFS()
					ctx, cancel := context.WithCancel(t.Context())
					other := start(ctx, f, shell.Command{
						Args: []string{"sh", "-c", "sleep 700 & setsid sleep 701 & sleep 702"}, Env: map[string]string{"MARK": "other"},
					})
					before := commands(t, f)
					require.Len(t, before, 4)
					pid := f.NewPID()
					c := start(ctx, f, shell.Command{
						Args: args, Env: map[string]string{"MARK": "this one"}, User: "user", PID: pid,
					})
					time.Sleep(2 * time.Millisecond) // the bomb begins when its shell has what it needs
					require.False(t, c.ended())
					assert.Greater(t, len(commands(t, f)), len(before))

					said := asRoot(t, f, `"$@"`, kill(itoa(pid), "MARK=this one")...)
					assert.Equal(t, "done\n", said.out, said.errOut)
					assert.Zero(t, said.code, said.errOut)
					synctest.Wait()
					assert.True(t, c.ended())
					assert.Equal(t, 137, c.code)
					assert.Equal(t, before, commands(t, f), "all others live")
					assert.False(t, other.ended())
					cancel()
					<-other.done
				})
			})
		}
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func TestWhatACommandLeavesInTheBackgroundStaysIfItMay(t *testing.T) {
	for name, kill := range killers() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := shell.NewFS()
				ctx, cancel := context.WithCancel(t.Context())
				exit := make(chan int, 1)
				pid := f.NewPID()
				c := start(ctx, f, shell.Command{
					Args: []string{"sh", "-c", "sleep 600 & (setsid sleep 601; echo not reached) & exit 3"}, Env: map[string]string{"MARK": "it"},
					PID: pid, Ended: func(code int) { exit <- code },
				})
				assert.Equal(t, 3, <-exit)
				assert.False(t, c.ended())
				assert.Len(t, commands(t, f), 3)
				assert.Equal(t, "2\n", asRoot(t, f, "pgrep -P 1 -f '^sleep 600|^sh -c sleep 600' | wc -l").out, "they are init's")
				assert.Contains(t, asRoot(t, f, `"$@"`, kill(itoa(pid), "MARK=it")...).out, "done\n")
				<-c.done
				assert.Equal(t, 3, c.code)
				assert.Less(t, c.took, time.Minute)

				c = start(ctx, f, shell.Command{Args: []string{"sh", "-c", "sleep 600 & exit 3"}, Ended: func(int) {}})
				assert.False(t, c.ended())
				cancel()
				<-c.done
				assert.Equal(t, 3, c.code)
			})
		})
	}
}

func TestProcShowsTheProcessesOfAllCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := shell.NewFS()
		ctx, cancel := context.WithCancel(t.Context())
		pid := itoa(f.NewPID())
		n, err := strconv.Atoi(pid)
		require.NoError(t, err)
		time.Sleep(90 * time.Second)
		c := start(ctx, f, shell.Command{
			Args: []string{"sh", "-c", `B=; sleep 600; echo "a b"`, "x y"}, Env: map[string]string{"B": "2\n3", "A": "1", "PATH": "/bin"},
			Dir: "/var/tmp", User: "user", PID: n,
		})
		for text, want := range map[string]string{
			`cat /proc/$1/environ | tr '\0' '|'`:   "A=1|B=2\n3|HOME=/home/user|HOSTNAME=sandbox|PATH=/bin|",
			`cat /proc/$1/cmdline | tr '\0' '|'`:   "sh|-c|B=; sleep 600; echo \"a b\"|x y|",
			`cat /proc/$1/comm`:                    "sh\n",
			`cut -d' ' -f1-8,18-22 /proc/$1/stat`:  pid + " (sh) S 1 " + pid + " " + pid + " 0 -1 20 0 1 0 9000\n",
			`set -- $(cat /proc/$1/stat); echo $#`: "52\n",
			`grep -E '^(Name|State|Pid|PPid|Uid|Threads)' /proc/$1/status | tr '\t\n' ' ,'`: "" +
				"Name: sh,State: S (sleeping),Pid: " + pid + ",PPid: 1,Uid: 1000 1000 1000 1000,Threads: 1,",
			`readlink /proc/$1/cwd /proc/$1/exe; cd /proc/$1/cwd && pwd -P`: "/var/tmp\n/bin/sh\n/var/tmp\n",
			`stat -c '%a %U %s' /proc/$1 /proc/$1/environ /proc/$1/stat`:    "555 user 4096\n400 user 0\n444 user 0\n",
			`ls /proc/$1`: "cmdline\ncomm\ncwd\nenviron\nexe\nstat\nstatus\n",
			`cat /proc/1/comm; cut -d' ' -f1-6 /proc/1/stat`:     "init\n1 (init) S 0 1 1\n",
			`grep -lsF -e B=2 /proc/[0-9]*/environ`:              "/proc/" + pid + "/environ\n",
			`set -- $(cat /proc/self/stat); echo $3`:             "R\n",
			`[ /proc/self/stat -ef /proc/$$/stat ] && echo same`: "same\n",
			`echo /proc/[a-z]*`:                                  "/proc/loadavg /proc/self /proc/uptime\n",
			`cat /proc/uptime; cut -d' ' -f1-3 /proc/loadavg`:    "90.03 90.03\n0.00 0.00 0.00\n",
			`set -- /proc/[0-9]*; echo $#`:                       "4\n", // init, the command's two, and this shell
			`set -- $(cat /proc/$1/stat); [ ${23} -gt 0 ] && [ ${26} -gt 0 ] && [ ${26} -lt ${27} ] && [ ${28} -gt ${27} ] && echo it has memory`: "it has memory\n",
		} {
			assert.Equal(t, want, asRoot(t, f, text, pid).out, text)
		}

		got := asRoot(t, f, `cd /proc/$1 && kill -9 $1; sleep 0.01; cat stat /proc/$1/stat; echo /proc/$1*`, pid)
		assert.Equal(t, "/proc/"+pid+"*\n", got.out)
		assert.Equal(t, 2, strings.Count(got.errOut, "No such file or directory"), got.errOut)
		got = asRoot(t, f, `sleep 5 & exec 3</proc/$!/stat; kill -9 $!; wait; read x <&3`)
		assert.Contains(t, got.errOut, "No such process")
		assert.Equal(t, 1, got.code)
		cancel()
		<-c.done
	})
}

func TestProcCannotBeChanged(t *testing.T) {
	f := shell.NewFS()
	f.SetQuota(0)
	for _, text := range []string{
		"echo x >/proc/self/comm", "echo x >>/proc/uptime", "echo x >/proc/new", "mkdir /proc/new", "rm /proc/uptime", "rm -rf /proc",
		"rmdir /proc", "mv /proc /p", "mv /proc/uptime /tmp/x", "ln /proc/uptime /tmp/x", "ln -s x /proc/self/new", "chmod 777 /proc/1",
		"chown user /proc/1", "touch /proc/1/stat", "mv /etc /proc/1",
	} {
		got := asRoot(t, f, text)
		assert.NotZero(t, got.code, text)
		assert.Regexp(t, "Read-only file system|Device or resource busy|Operation not permitted", got.errOut, text)
	}
	assert.Equal(t, "init\n", asRoot(t, f, "cat /proc/1/comm").out)
	assert.Zero(t, asRoot(t, f, "tar -cf /dev/null -C / proc etc").code, "an archive leaves it out")
}

func TestOnlyRootAndTheOwnerSeeAndSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := shell.NewFS()
		ctx, cancel := context.WithCancel(t.Context())
		root := f.NewPID()
		ofRoot := start(ctx, f, shell.Command{Args: []string{"sleep", "600"}, PID: root})
		user := f.NewPID()
		ofUser := start(ctx, f, shell.Command{Args: []string{"sleep", "600"}, User: "user", PID: user})
		as := func(who, text string) result {
			var out, errOut bytes.Buffer
			code := shell.Run(ctx, f, shell.Command{
				Args: []string{"sh", "-c", text, "sh", itoa(root), itoa(user)}, User: who, Stdout: &out, Stderr: &errOut,
			})
			return result{code: code, out: out.String(), errOut: errOut.String()}
		}
		assert.Contains(t, as("user", "cat /proc/$1/environ").errOut, "Permission denied")
		assert.Zero(t, as("user", "cat /proc/$1/cmdline /proc/$1/stat /proc/$2/environ && readlink /proc/$2/exe").code)
		assert.NotZero(t, as("user", "readlink /proc/$1/exe").code)
		for _, text := range []string{"kill -9 $1", "kill -0 $1", "kill -STOP -$1", "kill 1", "pkill -9 -P 1 -u root"} {
			got := as("user", text)
			assert.NotZero(t, got.code, text)
			assert.Contains(t, got.errOut, "Operation not permitted", text)
		}
		assert.Contains(t, as("user", "kill 99999").errOut, "No such process")
		assert.Zero(t, as("root", "kill -9 1; kill -0 1; kill -9 -1; kill -0 $$").code, "init lives, and whoever kills all others")
		synctest.Wait()
		assert.True(t, ofRoot.ended())
		assert.True(t, ofUser.ended())
		assert.Equal(t, "init\n", as("root", "cat /proc/1/comm").out)
		cancel()
	})
}

func TestAStoppedProcessDoesNothingUntilItGoesOn(t *testing.T) {
	for what, c := range map[string]struct {
		script string
		out    string
		took   time.Duration
	}{
		"steps": {
			`while :; do echo x; sleep 1; done & p=$!; sleep 2.5; kill -STOP $p; sleep 100; kill -CONT $p
				sleep 1.8; kill -9 $p`,
			"x\nx\nx\nx\nx\n", 0,
		},
		"sleep": {
			`(sleep 5; echo slept) & sleep 1; kill -STOP $!; sleep 100; echo before; kill -CONT $!; wait`,
			"before\nslept\n", 101 * time.Second,
		},
		"what it writes": {
			`yes | (sleep 1; pkill -STOP yes; head -c 65536 >/dev/null; timeout 5 cat | wc -c; pkill -KILL yes)`,
			"0\n", 0,
		},
		"the end of a wait": {
			`sh -c 'sleep 5 & wait; echo waited' & sleep 1; kill -STOP $!; sleep 100; echo before; kill -CONT $!
				wait`,
			"before\nwaited\n", 101 * time.Second,
		},
		"its own end": {
			`sh -c 'kill -STOP $$' & sleep 10; kill -0 $! && echo there; kill -CONT $!; wait $!; echo $?`,
			"there\n0\n", 10 * time.Second,
		},
		"a signal": {
			`sleep 600 & kill -STOP $!; kill $!; sleep 5; kill -0 $! && echo there; kill -CONT $!; wait $!; echo $?`,
			"there\n143\n", 5 * time.Second,
		},
		"a trap": {
			`sh -c 'trap "echo trapped; exit" TERM; sleep 600 & wait' & sleep 1; kill -STOP $!; kill $!; sleep 5
				echo before; kill -CONT $!; wait`,
			"before\ntrapped\n", 6 * time.Second,
		},
		"but a kill": {
			`sleep 600 & kill -STOP $!; sleep 5; kill -9 $!; wait $!; echo $?`,
			"137\n", 5 * time.Second,
		},
		"a limit": {
			`timeout 5 sleep 600 & sleep 1; kill -STOP $!; sleep 100; echo before; kill -CONT $!; wait $!; echo $?`,
			"before\n124\n", 101 * time.Second,
		},
		"a new child": {
			`sh -c 'sleep 2; sleep 600 & sleep 600' & sleep 1; kill -STOP $!; sleep 10; pgrep -P $! | wc -l
				kill -CONT $!; sleep 1; pgrep -P $! | wc -l; kill -9 $!`,
			"0\n2\n", 0,
		},
	} {
		t.Run(what, func(t *testing.T) {
			got, took := inBubble(t, time.Hour, c.script)
			assert.Equal(t, c.out, got.out, got.errOut)
			if c.took > 0 {
				assert.Equal(t, c.took, took)
			}
		})
	}
}

func TestACommandWhoseFirstProcessIsStoppedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := shell.NewFS()
		pid := f.NewPID()
		c := start(t.Context(), f, shell.Command{Args: []string{"sh", "-c", "kill -STOP $$; echo went on"}, PID: pid})
		time.Sleep(time.Hour)
		assert.False(t, c.ended())
		assert.Equal(t, "T\n", asRoot(t, f, "cut -d' ' -f3 /proc/$1/stat", itoa(pid)).out)
		assert.Equal(t, "State:\tT (stopped)\n", asRoot(t, f, "grep State /proc/$1/status", itoa(pid)).out)
		asRoot(t, f, "kill -CONT $1", itoa(pid))
		<-c.done
		assert.Equal(t, "went on\n", c.out.String())

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c = start(ctx, f, shell.Command{Args: []string{"sh", "-c", "kill -STOP $$"}})
		<-c.done
		assert.Equal(t, 137, c.code, "its context ends it")
		assert.Equal(t, time.Minute, c.took)
	})
}

func TestInputForAStoppedReaderGoesToAnother(t *testing.T) {
	got, _ := inBubble(t, time.Hour, `
		mkdir d; { sleep 10; echo late; } | {
			exec 3<&0
			cat <&3 & p=$!
			sleep 1; kill -STOP $p
			cat <&3; echo end; kill -9 $p
		}`)
	assert.Equal(t, "late\nend\n", got.out)

	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		go func() {
			time.Sleep(10 * time.Second)
			_, _ = io.WriteString(w, "late\n")
			_ = w.Close()
		}()
		c := start(t.Context(), shell.NewFS(), shell.Command{
			Args: []string{"sh", "-c", "exec 3<&0; cat <&3 & sleep 1; kill -STOP $!; sleep 15; echo $(cat <&3)"}, Stdin: r,
		})
		<-c.done
		assert.Equal(t, "late\n", c.out.String())
	})
}

func TestSessionsAndGroups(t *testing.T) {
	got, _ := inBubble(t, time.Hour, `
		look() { cut -d' ' -f5,6 /proc/$1/stat; }
		[ "$(look $$)" = "$$ $$" ] && echo the first process leads
		sleep 600 & [ "$(look $!)" = "$$ $$" ] && echo a job is in its group
		setsid sleep 600 & sleep 0.1; [ "$(look $!)" = "$! $!" ] && echo setsid leads; p=$!
		setsid sh -c 'exec setsid sleep 601' & sleep 0.1; kill -0 $! 2>/dev/null || echo a leader makes a child
		q=$(pgrep -f '^sleep 601'); [ "$(look $q)" = "$q $q" ] && echo that leads; cut -d' ' -f4 /proc/$q/stat
		setsid -w sh -c 'exit 7'; echo $?
		setsid sh -c 'sleep 602 & sleep 602' & sleep 0.1; kill -TERM -- -$!; wait $!; echo $?; pgrep -f '^sleep 602'
		kill -0 -$p && kill -9 -$p; kill -0 -99999 || echo no such group
		(sleep 603 & kill 0); echo not reached`)
	assert.Equal(t, "the first process leads\n"+
		"a job is in its group\nsetsid leads\na leader makes a child\nthat leads\n1\n7\n143\nno such group\n", got.out, got.errOut)
	assert.Equal(t, 143, got.code)
}

func TestNumbersAreNeverGivenTwice(t *testing.T) {
	f := shell.NewFS()
	seen := map[string]bool{}
	for range 20 {
		taken := itoa(f.NewPID())
		for _, pid := range strings.Fields(asRoot(t, f, "echo $$; (sh -c 'echo $$'); sleep 0 & echo $!").out + " " + taken) {
			assert.False(t, seen[pid], pid)
			seen[pid] = true
		}
	}
	assert.Len(t, seen, 80)
	assert.Equal(t, 2, strings.Count(asRoot(t, f, "exec ps -o pid=").out, "\n"), "init and ps")
}

func TestProcessesAreFound(t *testing.T) {
	got, _ := inBubble(t, time.Hour, `
		sleep 600 & a=$!
		sh -c 'sleep 601; :' & b=$!
		sleep 0.1
		[ "$(pgrep -f '^sleep 600')" = $a ] && echo by line
		[ "$(pgrep -x sleep | head -n 1)" = $a ] && echo by name
		[ "$(pgrep -P $b)" ] && echo by parent
		pgrep -a -f '^sleep 60[01]$' | cut -d' ' -f2-
		pgrep nosuch; echo $?
		pkill -f '^sleep 60[01]' && wait $a; echo $?; sleep 0.1
		x=$(ps -o stat,comm); echo "$x" | sort -u; ps -p 1 -o pid=,args=; ps -p 2 -o pid=; echo $?`)
	assert.Equal(t, ""+
		"by line\nby name\nby parent\nsleep 600\nsleep 601\n1\n143\nR    ps\nS    init\nS    sh\nSTAT COMMAND\n"+
		"1 /sbin/init\n1\n", got.out, got.errOut)
}

func TestACommandThatAnExecRunsIsAChildOfItsAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := shell.NewFS()
		become := func(ctx context.Context, c shell.Command) (int, bool) {
			c.Args, c.User, c.Env = c.Args[1:], "root", nil
			return shell.Run(ctx, f, c), true
		}
		var out bytes.Buffer
		code := shell.Run(t.Context(), f, shell.Command{
			Args: []string{"sh", "-c", `
				doas sh -c 'id -un; [ $PPID != 1 ] && [ $PPID != "$1" ] && cut -d" " -f5,6 /proc/self/stat' sh $$
				echo $$ $$`},
			Stdout: &out, Exec: become, User: "user",
		})
		assert.Zero(t, code)
		lines := strings.Split(out.String(), "\n")
		require.Len(t, lines, 4, out.String())
		assert.Equal(t, "root", lines[0])
		assert.Equal(t, lines[2], lines[1], "in the same group and session")
	})
}
