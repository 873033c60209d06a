package shell_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// inBubble runs a script in a bubble of its own and returns how long it took there. That all goroutines are gone at the
// end, the bubble itself makes sure.
func inBubble(t *testing.T, limit time.Duration, script string) (got result, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		var out, errOut bytes.Buffer
		begin := time.Now()
		got.code = shell.Run(ctx, shell.NewFS(), shell.Command{
			Args: []string{"sh", "-c", script}, Dir: "/tmp", Stdout: &out, Stderr: &errOut,
		})
		took = time.Since(begin)
		got.out, got.errOut = out.String(), errOut.String()
	})
	return got, took
}

func TestSleepTakesExactlyItsTimeOfTheBubble(t *testing.T) {
	for script, want := range map[string]time.Duration{
		"sleep 3600 | cat":                               time.Hour,
		"sleep 1d; sleep 0.5":                            24*time.Hour + 500*time.Millisecond,
		"sleep 10 & sleep 5; wait":                       10 * time.Second,
		"sleep 3 | sleep 4 | sleep 2":                    4 * time.Second,
		"x=$(sleep 2; echo a); y=`sleep 3`":              5 * time.Second,
		"(sleep 1; sleep 1) & wait $!; sleep 1":          3 * time.Second,
		"timeout 10 sleep 100":                           10 * time.Second,
		"read -t 7 x < /dev/null; sleep 9 | read -t 2 x": 9 * time.Second,
		"sleep 1000 &":                                   0, // what is left in the background is killed
	} {
		_, took := inBubble(t, 48*time.Hour, script)
		assert.Equal(t, want, took, script)
	}
}

func TestDateIsTheTimeOfTheBubble(t *testing.T) {
	got, _ := inBubble(t, 2*time.Hour, `date -u +%FT%T; sleep 3600; date -u +%FT%T; touch f; stat -c %y f; echo $SECONDS`)
	assert.Equal(t, "2000-01-01T00:00:00\n2000-01-01T01:00:00\n2000-01-01 01:00:00.000000000 +0000\n3600\n", got.out)
}

func TestEverythingEndsWithItsContext(t *testing.T) {
	const limit = 50 * time.Millisecond
	for _, script := range []string{
		"sleep 1000",
		"sleep 1000 | cat",
		"sleep 1000 & wait",
		"sleep 1000 & sleep 2000 & (sleep 3000; sleep 4000) & sleep 5000",
		"while :; do :; done",
		"while :; do :; done & wait",
		"until false; do true; done | cat",
		"for ((;;)); do :; done",
		"f() { f & f; }; f",
		"yes > /dev/null",
		"yes | cat | cat > /dev/null",
		"cat /dev/zero > /dev/null",
		"cat /dev/zero | tr '\\0' x | grep -c y",
		"x=$(sleep 1000)",
		"x=$(while :; do :; done)",
		"cat <<E\n$(sleep 1000)\nE",
		"trap '' TERM INT HUP; while :; do sleep 1; done",
		"trap 'while :; do :; done' EXIT; exit",
		"sleep 1000 | while read x; do :; done",
		"read x < /dev/zero",
		"tail -f /etc/passwd",
		"seq 1 1000000000000 > /dev/null",
		"yes | sort",
		"while :; do mktemp -u > /dev/null; done",
		"sed ':a;ba' /etc/passwd",
		"timeout 5000 sleep 4000",
		"nohup sleep 1000",
		"echo 'sleep 1000' | sh",
		"find / -exec sleep 1000 \\;",
		"seq 1000 | xargs -n1 sleep",
		"dd if=/dev/zero of=/dev/null",
		"head -c 900000000000 /dev/zero > /dev/null",
		"eval 'while :; do eval :; done'",
		": | while :; do :; done",
	} {
		t.Run(script, func(t *testing.T) {
			got, took := inBubble(t, limit, script)
			if got.code != 137 { // a limit may have been reached before
				assert.Equal(t, 2, got.code, got.errOut)
				assert.Regexp(t, "memory|fork|deep|too long", got.errOut)
				return
			}
			assert.Equal(t, limit, took)
		})
	}
}

func TestNothingIsWrittenAfterRunHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := shell.NewFS()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		code := shell.Run(ctx, f, shell.Command{Args: []string{"sh", "-c", `while :; do echo x >> /tmp/f; sleep 0.3; done & sleep 99`}})
		assert.Equal(t, 137, code)
		before := read(t, f, "/tmp/f")
		assert.Equal(t, 4, strings.Count(before, "x"))
		time.Sleep(time.Hour)
		assert.Equal(t, before, read(t, f, "/tmp/f"))
	})
}

func TestAnEndedContextStartsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := shell.NewFS()
	assert.Equal(t, 137, shell.Run(ctx, f, shell.Command{Args: []string{"touch", "/x"}}))
	assert.Error(t, f.ReadFile("/x", io.Discard))
}

func TestOutputArrivesAsItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		begin := time.Now()
		go func() {
			shell.Run(t.Context(), shell.NewFS(), shell.Command{
				Args:   []string{"sh", "-c", `for i in 1 2 3; do echo $i; sleep 10; done | grep . | sed s/^/x/ | cat`},
				Stdout: w,
			})
			_ = w.Close()
		}()
		buf := make([]byte, 100)
		for i := range 3 {
			n, err := r.Read(buf)
			require.NoError(t, err)
			assert.Equal(t, "x"+string(rune('1'+i))+"\n", string(buf[:n]))
			assert.Equal(t, time.Duration(i)*10*time.Second, time.Since(begin), "line %d", i)
		}
		_, err := r.Read(buf)
		assert.Equal(t, io.EOF, err)
	})
}

func TestInputThatNeverComesHoldsUpOnlyWhoReadsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		var out bytes.Buffer
		code := shell.Run(ctx, shell.NewFS(), shell.Command{
			Args: []string{"sh", "-c", `timeout 5 cat; echo $?; sleep 1; (read x; echo "got $x") & exec cat`}, Stdin: r, Stdout: &out,
		})
		assert.Equal(t, 137, code)
		assert.Equal(t, "124\ngot \n", out.String(), "a background job reads nothing")
		assert.Equal(t, time.Minute, time.Since(begin))
		_ = w.Close() // ends the Read that was left behind
	})
}

func TestAReadLeftBehindIsTakenOverByTheNextReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		go func() {
			time.Sleep(10 * time.Second)
			_, _ = io.WriteString(w, "late\n")
			_ = w.Close()
		}()
		var out bytes.Buffer
		shell.Run(t.Context(), shell.NewFS(), shell.Command{
			Args: []string{"sh", "-c", `timeout 5 cat; cat`}, Stdin: r, Stdout: &out,
		})
		assert.Equal(t, "late\n", out.String())
	})
}

func TestASlowWriterIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := &slowWriter{}
		begin := time.Now()
		code := shell.Run(ctx, shell.NewFS(), shell.Command{Args: []string{"sh", "-c", "echo a; echo b"}, Stdout: w})
		assert.Equal(t, 137, code)
		assert.Equal(t, 1, w.ended)
		assert.Equal(t, time.Minute, time.Since(begin))
	})
}

type slowWriter struct{ ended int }

func (w *slowWriter) Write(b []byte) (int, error) {
	time.Sleep(time.Minute)
	w.ended++
	return len(b), nil
}

func TestTheTestsOwnCommandEndsWithItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := func(ctx context.Context, c shell.Command) (int, bool) {
			<-ctx.Done()
			return 5, true
		}
		var out bytes.Buffer
		begin := time.Now()
		code := shell.Run(t.Context(), shell.NewFS(), shell.Command{
			Args: []string{"sh", "-c", `serve & sleep 3; kill $!; wait $!; echo $?; timeout 4 serve; echo $?`}, Stdout: &out, Exec: hook,
		})
		assert.Zero(t, code)
		assert.Equal(t, "143\n124\n", out.String())
		assert.Equal(t, 7*time.Second, time.Since(begin))
	})
}

func TestTrapsRunWhenTheForegroundAllows(t *testing.T) {
	got, took := inBubble(t, time.Hour, `
		trap 'echo trapped; trap - TERM' TERM
		(sleep 1; kill -TERM $$) &
		sleep 10; echo slept
		(sleep 1; kill -TERM $$) &
		wait; echo unreachable`)
	assert.Equal(t, "trapped\nslept\n", got.out)
	assert.Equal(t, 143, got.code)
	assert.Equal(t, 11*time.Second, took)

	got, took = inBubble(t, time.Hour, `trap 'echo usr1' USR1; (sleep 1; kill -USR1 $$) & sleep 100 & wait; echo $?`)
	assert.Equal(t, "usr1\n138\n", got.out)
	assert.Equal(t, time.Second, took)
}
