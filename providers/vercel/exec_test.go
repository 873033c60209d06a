package vercel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// speaker writes on both streams for a while, and ends with a code of its own.
const speaker = `for i in 1 2 3 4 5 6 7 8; do echo "out ä$i"; echo "err $i" >&2; sleep 1; done; exit 7`

func said() (stdout, stderr string) {
	for i := range 8 {
		stdout += fmt.Sprintf("out ä%d\n", i+1)
		stderr += fmt.Sprintf("err %d\n", i+1)
	}
	return stdout, stderr
}

func TestAStreamThatBreaksOffAnywhereLosesNothingAndStartsNothingTwice(t *testing.T) {
	wantOut, wantErr := said()
	bubble(t, func(w *world) {
		info := w.make(24 * time.Hour)
		_, session := parts(info.ID)
		sb := w.p.Open(info)
		broken := 0
		for cut := 1; cut < 1400; cut += 7 {
			w.fake.Fault("runCommand", vercelfake.Fault{Cut: cut})
			started := len(w.fake.Processes(session))
			var out, errs bytes.Buffer
			res, err := sb.Exec(context.Background(), sandbox.Cmd{
				Args: []string{"sh", "-c", speaker}, Stdout: &out, Stderr: &errs, Timeout: time.Hour,
			})
			w.fake.Heal()
			if err != nil {
				broken++
				assert.Less(t, cut, 1000, "the first line tells the command, and then it is followed")
				time.Sleep(time.Minute)
				assert.Empty(t, w.ours(session), "what cannot be followed is killed")
				continue
			}
			assert.Equal(t, 7, res.ExitCode)
			assert.Equal(t, wantOut, out.String(), "cut at %d", cut)
			assert.Equal(t, wantErr, errs.String(), "cut at %d", cut)
			assert.Equal(t, wantOut, string(res.Stdout))
			assert.Len(t, w.fake.Processes(session), started+1)
		}
		assert.NotZero(t, broken)
	})
}

func TestALogThatBreaksOffIsReadAgain(t *testing.T) {
	wantOut, wantErr := said()
	bubble(t, func(w *world) {
		info := w.make(time.Hour)
		sb := w.p.Open(info)
		w.fake.Fault("runCommand", vercelfake.Fault{Cut: 1000})
		w.fake.Fault("getLogs", vercelfake.Fault{Cut: 30}, vercelfake.Fault{Cut: 100}, vercelfake.Fault{Status: 500}, vercelfake.Fault{Drop: true})
		w.fake.Fault("getCommand", vercelfake.Fault{Status: 503})
		res, err := sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"sh", "-c", speaker}, Timeout: time.Hour})
		require.NoError(t, err)
		assert.Equal(t, 7, res.ExitCode)
		assert.Equal(t, wantOut, string(res.Stdout))
		assert.Equal(t, wantErr, string(res.Stderr))

		w.fake.Fault("runCommand", vercelfake.Fault{Cut: 1000})
		w.fake.Fault("getLogs", vercelfake.Fault{Cut: 1, Times: -1})
		_, err = sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"sh", "-c", speaker}, Timeout: time.Hour})
		assert.ErrorIs(t, err, sandbox.ErrUnavailable)
		assert.Equal(t, 5+6, w.fake.Count("getLogs"), "after so many tries it is given up")
		w.fake.Heal()
		time.Sleep(time.Minute) // its killer has ended

		w.fake.Fault("runCommand", vercelfake.Fault{Cut: 1000})
		w.fake.Fault("getCommand", vercelfake.Fault{Status: 500, Times: -1})
		began := time.Now()
		res, err = sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"sh", "-c", speaker}, Timeout: time.Hour})
		assert.ErrorContains(t, err, "500")
		assert.NotEmpty(t, res.Stdout, "as much as there was")
		assert.Less(t, time.Since(began), time.Minute)
	})
}

func TestASilentStreamIsAskedAfterAndACommandMayBeQuiet(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(24 * time.Hour)
		sb := w.p.Open(info)
		began := time.Now()
		res, err := sb.Exec(context.Background(), sandbox.Shell("echo first; sleep 14400; echo last"))
		require.NoError(t, err)
		assert.Equal(t, "first\nlast\n", string(res.Stdout))
		assert.InDelta(t, 4*time.Hour, time.Since(began), float64(time.Minute))
		assert.Less(t, w.fake.Count("getLogs"), 12, "it is asked less and less often")

		// A wire that falls silent for good, while the command ends.
		w.net.Break(memnet.Fault{Kind: memnet.Swallow, Times: 1})
		began = time.Now()
		res, err = sb.Exec(context.Background(), sandbox.Shell("true"))
		assert.Error(t, err, "nothing of it came: not even that it was started")
		assert.LessOrEqual(t, time.Since(began), 3*time.Minute)
		assert.Equal(t, -1, res.ExitCode)
	})
}

func TestACommandOfWhichItIsNotKnownWhetherItStartedIsKilled(t *testing.T) {
	for name, f := range map[string]vercelfake.Fault{
		"an error of the service": {Status: 500, After: true}, "a gateway's": {Status: 502, After: true}, "no answer": {Drop: true, After: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				info := w.make(time.Hour)
				_, session := parts(info.ID)
				w.fake.Fault("runCommand", f)
				_, err := w.p.Open(info).Exec(context.Background(), sandbox.Cmd{Args: []string{"sleep", "3000"}, Timeout: time.Hour})
				require.Error(t, err)
				time.Sleep(time.Minute)
				assert.Empty(t, w.ours(session))
				assert.Len(t, w.fake.Processes(session), 2, "the command, once, and its killer")
			})
		})
	}
}

func TestASessionThatEndsUnderACommandIsAnError(t *testing.T) {
	for name, dead := range map[string]vercelfake.DeadStream{
		"told": vercelfake.StreamTells, "cut": vercelfake.StreamCut, "ended": vercelfake.StreamEnds, "hangs": vercelfake.StreamHangs,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.fake.Change(func(q *vercelfake.Quirks) { q.DeadStreams = dead })
				info := w.make(time.Minute)
				res, err := w.p.Open(info).Exec(context.Background(), sandbox.Shell("echo begun; sleep 3600"))
				assert.ErrorIs(t, err, sandbox.ErrConflict)
				assert.Equal(t, "begun\n", string(res.Stdout))
			})
		})
	}
}

func TestOnlyOneProcessTreeIsKilled(t *testing.T) {
	for name, quirk := range map[string]bool{"the service kills the tree": false, "the service kills the command alone": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.fake.Change(func(q *vercelfake.Quirks) { q.KillsLeader = quirk })
				info := w.make(time.Hour)
				_, session := parts(info.ID)
				sb := w.p.Open(info)
				other := make(chan sandbox.Result, 1)
				go func() {
					res, err := sb.Exec(context.Background(), sandbox.Shell("sleep 60; echo done"))
					assert.NoError(t, err)
					other <- res
				}()
				res, err := sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"sh", "-c", "sleep 3600 & sleep 3600"}, Timeout: 5 * time.Second})
				require.NoError(t, err)
				assert.True(t, res.TimedOut)
				assert.Equal(t, -1, res.ExitCode)
				assert.Len(t, w.ours(session), 1, "the other one")
				assert.Equal(t, "done\n", string((<-other).Stdout))

				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				_, err = sb.Exec(ctx, sandbox.Shell("sleep 3600 & sleep 3600"))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				time.Sleep(time.Second)
				assert.Empty(t, w.ours(session))
			})
		})
	}
}

func TestATimeoutKillsWhatRunsAsRootToo(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Hour)
		_, session := parts(info.ID)
		res, err := w.p.Open(info).Exec(context.Background(), sandbox.Cmd{Args: []string{"sleep", "3600"}, User: "root", Timeout: 5 * time.Second})
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
		assert.Empty(t, w.ours(session))
		assert.Zero(t, w.fake.Count("killCommand"))
	})
}

func TestWhereTheKillerCannotRunTheServiceKills(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Hour)
		_, session := parts(info.ID)
		res, err := w.p.Open(info).Exec(context.Background(), sandbox.Cmd{
			Args: []string{"sh", "-c", "rm /bin/sh; exec sleep 3600"}, User: "root", Timeout: 5 * time.Second,
		})
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
		time.Sleep(time.Second)
		assert.Empty(t, w.ours(session))
		assert.Equal(t, 1, w.fake.Count("killCommand"))
	})
}

func TestWhatStartsACommandHasItsLimitAndItsUser(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Hour)
		sb := w.p.Open(info)
		for _, cmd := range []sandbox.Cmd{
			{Args: []string{"id", "-un"}, Timeout: time.Minute},
			{Args: []string{"id", "-un"}, User: "root"},
			{Args: []string{"id", "-un"}, User: "vercel-sandbox", Timeout: 10 * time.Hour},
		} {
			res, err := sb.Exec(context.Background(), cmd)
			require.NoError(t, err)
			want := "vercel-sandbox\n"
			if cmd.User == "root" {
				want = "root\n"
			}
			assert.Equal(t, want, string(res.Stdout))
		}
		bodies := w.bodies("runCommand")
		assert.Equal(t, 90_000.0, bodies[0]["timeout"], "a net under our own, which kills the children too")
		assert.NotContains(t, bodies[1], "timeout")
		assert.NotContains(t, bodies[2], "timeout", "the service's longest is 5 h")
		_, err := sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"true"}, User: "nobody"})
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

func TestOddVariablesReachACommand(t *testing.T) {
	bubble(t, func(w *world) {
		sb := w.p.Open(w.make(time.Hour))
		res, err := sb.Exec(context.Background(), sandbox.Cmd{
			Args: []string{"env"}, Env: map[string]string{"a.b": "1", "x-y": "2 3", "PLAIN": "4"},
		})
		require.NoError(t, err)
		for _, want := range []string{"a.b=1\n", "x-y=2 3\n", "PLAIN=4\n"} {
			assert.Contains(t, string(res.Stdout), want)
		}
		res, err = sb.Exec(context.Background(), sandbox.Shell("cd / && pwd"))
		require.NoError(t, err)
		assert.Equal(t, "/\n", string(res.Stdout))
		res, err = sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"pwd"}, Dir: "/no/such"})
		require.NoError(t, err)
		assert.Equal(t, 126, res.ExitCode)
	})
}

func TestLargeFilesGoThroughAFileOfTheirOwnAndLeaveNone(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sb := w.p.Open(w.make(time.Hour))
		content := make([]byte, 16<<20+4711)
		for i := range content {
			content[i] = byte(i * i >> 7)
		}
		require.NoError(t, sb.Upload(context.Background(), "/tmp/large", bytes.NewReader(content)))
		var back bytes.Buffer
		require.NoError(t, sb.Download(context.Background(), "/tmp/large", &back))
		assert.True(t, bytes.Equal(content, back.Bytes()))

		broken := errors.New("broken")
		err := sb.Upload(context.Background(), "/tmp/part", io.MultiReader(bytes.NewReader(content), &failing{broken}))
		assert.ErrorIs(t, err, broken)
		asked := w.asked()
		assert.Error(t, sb.Upload(context.Background(), "/tmp/large/below", bytes.NewReader(content)))
		assert.Equal(t, 1, asked("writeFiles"))
	})
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	assert.Empty(t, left)
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// recorded is a stream as the service sends it.
const recorded = `{"command":{"id":"cmd_1","name":"sh","args":["-c","x"],"cwd":"/vercel/sandbox","sessionId":"sbx_1","exitCode":null,"startedAt":1}}
{"stream":"stdout","data":"one\n"}
{"stream":"stderr","data":"two ä\n"}
{"stream":"stdout","data":"three\n"}
{"command":{"id":"cmd_1","name":"sh","args":["-c","x"],"cwd":"/vercel/sandbox","sessionId":"sbx_1","exitCode":3,"startedAt":1,"durationMs":5}}
`

// replayed is the same, from the log.
const replayed = `{"stream":"stdout","data":"one\nth"}
{"stream":"stderr","data":"two ä\n"}
{"stream":"stdout","data":"ree\n"}
`

func TestARecordedStreamSurvivesEveryCut(t *testing.T) {
	for cut := range len(recorded) + 1 {
		var out, errs bytes.Buffer
		s, all := vercel.ReadStreams(&out, &errs, strings.NewReader(recorded[:cut]), strings.NewReader(replayed))
		assert.Equal(t, "one\nthree\n", out.String(), "cut at %d", cut)
		assert.Equal(t, "two ä\n", errs.String(), "cut at %d", cut)
		assert.NoError(t, all[1])
		if cut < len(recorded)-1 { // the last line's end is not needed
			assert.Error(t, all[0], "cut at %d", cut)
			assert.False(t, s.Exited)
		} else {
			assert.NoError(t, all[0])
			assert.Equal(t, vercel.Stream{Command: "cmd_1", ExitCode: 3, Exited: true}, s)
		}
	}
}

func TestARecordedStreamSurvivesEveryBitFlip(t *testing.T) {
	for i := range len(recorded) * 8 {
		b := []byte(recorded)
		b[i/8] ^= 1 << (i % 8)
		var out, errs bytes.Buffer
		s, all := vercel.ReadStreams(&out, &errs, bytes.NewReader(b))
		if all[0] == nil {
			assert.True(t, s.Exited, "without an error there is an end: bit %d", i)
		}
		assert.LessOrEqual(t, out.Len()+errs.Len(), len(recorded))
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(recorded), []byte(replayed))
	f.Add([]byte(`{"stream":"error","data":{"code":"sandbox_stream_closed","message":"x"}}`), []byte("{}\n"))
	f.Add([]byte("\n\n"), []byte(`{"command":{"id":"../x"}}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var out, errs bytes.Buffer
		s, all := vercel.ReadStreams(&out, &errs, bytes.NewReader(first), bytes.NewReader(second))
		if all[0] == nil && !s.Exited {
			t.Error("a first stream without an end and without an error")
		}
		if most := 3 * (len(first) + len(second)); out.Len()+errs.Len() > most { // what is no character becomes one of three bytes
			t.Errorf("%d bytes of output from %d", out.Len()+errs.Len(), len(first)+len(second))
		}
	})
}
