package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestAPIErrorSaysWhatHappenedToWhichSandbox(t *testing.T) {
	err := &sandbox.APIError{
		Provider: "e2b", Op: sandbox.OpDelete, ID: "i3f9", Status: 503, Code: "busy", Message: "try later",
		RequestID: "r1", Kind: sandbox.ErrUnavailable, Err: io.ErrUnexpectedEOF,
	}
	assert.Equal(t, "e2b: delete i3f9: 503 busy: service unavailable: unexpected EOF: try later (request r1)", err.Error())
	assert.ErrorIs(t, err, sandbox.ErrUnavailable)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, "e2b: list", (&sandbox.APIError{Provider: "e2b", Op: sandbox.OpList}).Error())
}

func TestLeakErrorSaysWhatMayRunUntilWhenAndWhatToDo(t *testing.T) {
	at := time.Date(2026, 11, 30, 8, 3, 0, 0, time.UTC)
	err := &sandbox.LeakError{Provider: "e2b", Err: io.EOF, Sandboxes: []sandbox.Info{
		{ID: "a", State: sandbox.StateRunning, Deadline: at},
		{ID: "b", State: sandbox.StateDormant},
		{ID: "c", State: sandbox.StateFailed},
		{Mark: mark(), Deadline: at},
	}}
	text := err.Error()
	for _, part := range []string{
		"e2b: possible leak", "sandbox a, last seen running, may live until 2026-11-30T08:03:00Z",
		"sandbox b is left as dormant residue", "sandbox c, last seen failed, may live on: nothing is known to end it",
		"unanswered create (nonce abcdefghijklmn27)", "EOF",
	} {
		assert.Contains(t, text, part)
	}
	assert.ErrorIs(t, err, io.EOF)
}

func TestResultErrTellsHowTheCommandEnded(t *testing.T) {
	assert.NoError(t, sandbox.Result{}.Err())
	assert.ErrorContains(t, sandbox.Result{ExitCode: 2, Stderr: []byte("no such file\n")}.Err(), "exit code 2: no such file")
	assert.ErrorContains(t, sandbox.Result{ExitCode: 1, Merged: true, Stdout: []byte("both")}.Err(), "both")
	assert.ErrorContains(t, sandbox.Result{ExitCode: -1, TimedOut: true}.Err(), "timed out")
	long := sandbox.Result{ExitCode: 1, Stderr: []byte(strings.Repeat("é", 2000))}.Err().Error()
	assert.Less(t, len(long), 600)
	assert.True(t, strings.HasSuffix(long, "é"))
}

func TestCmdAndSpecFaultsAreFoundWithoutARequest(t *testing.T) {
	none, all := sandbox.Capabilities{}, sandbox.Capabilities{Stdin: true, SplitOutput: true}
	var a, b bytes.Buffer
	for name, tc := range map[string]struct {
		cmd  sandbox.Cmd
		caps sandbox.Capabilities
		want error
	}{
		"no program":             {sandbox.Cmd{}, all, sandbox.ErrInvalid},
		"empty program":          {sandbox.Cmd{Args: []string{""}}, all, sandbox.ErrInvalid},
		"NUL":                    {sandbox.Cmd{Args: []string{"a\x00"}}, all, sandbox.ErrInvalid},
		"relative folder":        {sandbox.Cmd{Args: []string{"a"}, Dir: "tmp"}, all, sandbox.ErrInvalid},
		"negative timeout":       {sandbox.Cmd{Args: []string{"a"}, Timeout: -1}, all, sandbox.ErrInvalid},
		"bad variable":           {sandbox.Cmd{Args: []string{"a"}, Env: map[string]string{"A=B": ""}}, all, sandbox.ErrInvalid},
		"stdin":                  {sandbox.Cmd{Args: []string{"a"}, Stdin: &a}, none, errors.ErrUnsupported},
		"two writers":            {sandbox.Cmd{Args: []string{"a"}, Stdout: &a, Stderr: &b}, none, errors.ErrUnsupported},
		"stderr alone":           {sandbox.Cmd{Args: []string{"a"}, Stderr: &b}, none, errors.ErrUnsupported},
		"one writer":             {sandbox.Cmd{Args: []string{"a"}, Stdout: &a, Stderr: &a}, none, nil},
		"uncomparable writers":   {sandbox.Cmd{Args: []string{"a"}, Stdout: funcs{}, Stderr: funcs{}}, none, errors.ErrUnsupported},
		"everything where it is": {sandbox.Cmd{Args: []string{"a"}, Stdin: &a, Stdout: &a, Stderr: &b, Dir: "/tmp"}, all, nil},
	} {
		err := tc.cmd.Validate(tc.caps)
		if tc.want == nil {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorIs(t, err, tc.want, name)
		}
	}
	for name, s := range map[string]sandbox.Spec{
		"cpu": {CPU: -1}, "nan": {CPU: math.NaN()}, "memory": {Memory: -1}, "disk": {Disk: -1}, "port": {Ports: []int{0}},
		"high port": {Ports: []int{65536}}, "port twice": {Ports: []int{80, 80}}, "env": {Env: map[string]string{"": "x"}},
	} {
		assert.ErrorIs(t, s.Validate(), sandbox.ErrInvalid, name)
	}
	assert.NoError(t, sandbox.Spec{CPU: 1.5, Memory: 1, Ports: []int{80, 443}, Env: map[string]string{"A": "="}}.Validate())
}

type funcs []func()

func (funcs) Write(p []byte) (int, error) { return len(p), nil }

func TestInfoCountsOnOneClock(t *testing.T) {
	at := time.Unix(1000, 0)
	i := sandbox.Info{Created: at, AsOf: at.Add(time.Minute), Deadline: at.Add(3 * time.Minute), Mark: sandbox.Mark{Created: at.Add(-2 * time.Hour), Lifetime: time.Hour}}
	assert.Equal(t, 2*time.Minute, i.Left())
	assert.Equal(t, at.Add(time.Hour), i.HardDeadline())
	i.Created, i.Deadline = time.Time{}, time.Time{}
	assert.Zero(t, i.Left())
	assert.Equal(t, at.Add(-time.Hour), i.HardDeadline())
	i.Mark = sandbox.Mark{}
	assert.Zero(t, i.HardDeadline())
}

func TestUnknownStatesMayRun(t *testing.T) {
	assert.Equal(t, "unknown", sandbox.State(99).String())
	assert.True(t, sandbox.State(99).MayRun())
	assert.False(t, sandbox.StateDormant.MayRun())
	assert.Equal(t, "dormant", sandbox.StateDormant.String())
	assert.Equal(t, "none", sandbox.ExtendMode(-1).String())
	assert.Equal(t, "add", sandbox.ExtendAdd.String())
}

func TestLogLevelsFollowWhatIsAtStake(t *testing.T) {
	var b strings.Builder
	log := sandbox.LogTo(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for _, tc := range []struct {
		e    sandbox.Event
		want string
	}{
		{sandbox.Event{Op: sandbox.OpExtend}, "DEBUG"},
		{sandbox.Event{Op: sandbox.OpExec, Err: io.EOF}, "INFO"},
		{sandbox.Event{Op: sandbox.OpExec}, "DEBUG"},
		{sandbox.Event{Op: sandbox.OpCreate}, "INFO"},
		{sandbox.Event{Op: sandbox.OpExtend, Err: io.EOF}, "WARN"},
		{sandbox.Event{Op: sandbox.OpRun, Err: io.EOF}, "WARN"},
		{sandbox.Event{Op: sandbox.OpRun, Err: io.EOF, Final: true}, "INFO"},
		{sandbox.Event{Op: sandbox.OpConfirm, Err: io.EOF}, "DEBUG"},
		{sandbox.Event{Op: sandbox.OpConfirm, Err: io.EOF, Final: true}, "ERROR"},
		{sandbox.Event{Op: sandbox.OpConfirm, Final: true}, "INFO"},
	} {
		b.Reset()
		log(context.Background(), tc.e)
		assert.Contains(t, b.String(), "level="+tc.want+" ", "%v", tc.e)
	}
	b.Reset()
	now := time.Unix(5, 0)
	log(context.Background(), sandbox.Event{Op: sandbox.OpCreate, Provider: "e2b", Info: sandbox.Info{
		ID: "i1", Mark: mark(), Tags: map[string]string{"job": "7"}, AsOf: now, Deadline: now.Add(time.Minute),
	}})
	for _, part := range []string{"provider=e2b", "sandbox_id=i1", "nonce=abcdefghijklmn27", "tag.job=7", "lease_left=1m0s"} {
		assert.Contains(t, b.String(), part)
	}
}
