package modal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/providers/modal"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestOutputThatBreaksOffAnywhereLosesNothingAndStartsNothingTwice(t *testing.T) {
	var want strings.Builder
	for i := range 500 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	for _, cut := range []int{1, 2, 7} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			bubble(t, func(w *world) {
				sb := w.p.Open(w.make(time.Hour))
				w.fake.Fault("TaskExecStdioRead", modalfake.Fault{Cut: cut, Times: 6})
				starts := w.fake.Count("TaskExecStart")
				var out bytes.Buffer
				res, err := sb.Exec(context.Background(), sandbox.Cmd{
					Args:   []string{"sh", "-c", `i=0; while [ $i -lt 500 ]; do echo "line $i"; i=$((i+1)); done`},
					Stdout: &out, Timeout: time.Minute,
				})
				require.NoError(t, err)
				assert.Equal(t, want.String(), out.String())
				assert.Equal(t, want.String(), string(res.Stdout))
				assert.Equal(t, starts+1, w.fake.Count("TaskExecStart"))
			}, func(o *modalfake.Options, _ *modal.Config) { o.Quirks.ChunkSize = 100 })
		})
	}
}

func TestACommandWhoseStartIsNotAnsweredIsKilled(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Hour)
		w.fake.Fault("TaskExecStart", modalfake.Fault{After: true, Hang: true})
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := w.p.Open(info).Exec(ctx, sandbox.Cmd{Args: []string{"sleep", "1000"}, Timeout: time.Hour})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(10 * time.Second)
		for _, p := range w.fake.Processes(info.ID) {
			assert.False(t, p.Running && p.Env["SANDGLASS_EXEC"] != "", "%q goes on", p.Args)
		}
	})
}

func TestEveryCommandHasALimitOfTheServices(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Hour)
		sb := w.p.Open(info)
		_, err := sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"true"}})
		require.NoError(t, err)
		_, err = sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"true"}, Timeout: 1500 * time.Millisecond})
		require.NoError(t, err)
		require.NoError(t, sb.Upload(context.Background(), "/tmp/x", strings.NewReader("x")))
		for _, p := range w.fake.Processes(info.ID) {
			if p.ID != "" { // not the watchdog
				assert.Positive(t, p.Timeout, "%q", p.Args)
			}
		}
	})
}

func TestOnlyTheCommandThatIsCancelledIsKilled(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Hour)
		sb := w.p.Open(info)
		other := make(chan sandbox.Result, 1)
		go func() {
			res, _ := sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"sh", "-c", "sleep 60; echo whole"}, Timeout: 2 * time.Minute})
			other <- res
		}()
		res, err := sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"sleep", "1000"}, Timeout: 5 * time.Second})
		require.NoError(t, err)
		assert.True(t, res.TimedOut)
		assert.Equal(t, "whole\n", string((<-other).Stdout))
	})
}

func TestAnInputThatBlocksDoesNotHoldACommandThatEnds(t *testing.T) {
	bubble(t, func(w *world) {
		in, out := io.Pipe()
		defer out.Close()
		began := time.Now()
		res, err := w.p.Open(w.make(time.Hour)).Exec(context.Background(), sandbox.Cmd{Args: []string{"true"}, Stdin: in, Timeout: time.Minute})
		require.NoError(t, err)
		assert.Zero(t, res.ExitCode)
		assert.Less(t, time.Since(began), 5*time.Second)
	})
}

func TestAnInputThatFailsDoesNotLookLikeOneThatHasEnded(t *testing.T) {
	bubble(t, func(w *world) {
		broken := errors.New("broken")
		sb := w.p.Open(w.make(time.Hour))
		err := sb.Upload(context.Background(), "/tmp/part", io.MultiReader(strings.NewReader("half"), errReader{broken}))
		require.ErrorIs(t, err, broken)
		res, err := sb.Exec(context.Background(), sandbox.Cmd{
			Args: []string{"cat"}, Stdin: io.MultiReader(strings.NewReader("half"), errReader{broken}), Timeout: 5 * time.Second,
		})
		require.NoError(t, err)
		assert.True(t, res.TimedOut, "it waits for more")
	})
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func TestOddVariablesReachACommand(t *testing.T) {
	bubble(t, func(w *world) {
		res, err := w.p.Open(w.make(time.Hour)).Exec(context.Background(), sandbox.Cmd{
			Args: []string{"env"}, Env: map[string]string{"a-b": "c d", "1x": "$y", "PLAIN": "z"}, Timeout: time.Minute,
		})
		require.NoError(t, err)
		for _, line := range []string{"a-b=c d\n", "1x=$y\n", "PLAIN=z\n"} {
			assert.Contains(t, string(res.Stdout), line)
		}
	})
}

func TestACommandGoesOnOverALongQuietAndExpiredTokens(t *testing.T) {
	bubble(t, func(w *world) {
		err := w.manager(func(c *sandbox.Config) { c.Scope.MaxLifetime = 5 * time.Hour }).WithSandbox(context.Background(),
			func(ctx context.Context, sb sandbox.Sandbox) error {
				res, err := sb.Exec(ctx, sandbox.Shell("echo first; sleep 14400; echo last"))
				assert.Equal(t, "first\nlast\n", string(res.Stdout))
				return err
			})
		assert.NoError(t, err)
		w.nothing()
	}, func(o *modalfake.Options, _ *modal.Config) {
		o.Quirks.RouterToken, o.Quirks.AuthToken = 10*time.Minute, 10*time.Minute
	})
}

func TestARefusedStartIsSaidToBeOne(t *testing.T) {
	bubble(t, func(w *world) {
		sb := w.p.Open(w.make(time.Hour))
		w.fake.Fault("TaskExecStart", modalfake.Fault{Code: codes.InvalidArgument})
		_, err := sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"true"}, Timeout: time.Minute})
		assert.True(t, apiError(t, err).Refused)
		w.fake.Fault("TaskExecStart", modalfake.Fault{Code: codes.DataLoss, After: true})
		_, err = sb.Exec(context.Background(), sandbox.Cmd{Args: []string{"true"}, Timeout: time.Minute})
		assert.False(t, apiError(t, err).Refused)
	})
}

func TestEndpointsAreTheServicesTunnels(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(time.Hour)
		req.Spec.Ports = []int{8080, 9090}
		info := w.makeOf(req)
		for _, port := range req.Spec.Ports {
			ep, err := w.another().Open(sandbox.Info{ID: info.ID}).Endpoint(context.Background(), port)
			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(ep.URL, "https://"), ep.URL)
		}
	}, func(o *modalfake.Options, _ *modal.Config) { o.Quirks.TunnelTime = 5 * time.Second })
}

// All other tests have the SDK dial in memory. This one has it dial as it does for users, and takes a few real seconds.
func TestALifeOverRealSockets(t *testing.T) {
	clearEnv(t)
	fake := modalfake.New(modalfake.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- fake.Serve(l) }()
	defer func() {
		fake.Close()
		assert.NoError(t, <-served)
	}()
	t.Setenv("MODAL_SERVER_URL", "http://"+l.Addr().String())
	t.Setenv("MODAL_TOKEN_ID", modalfake.DefaultTokenID)
	t.Setenv("MODAL_TOKEN_SECRET", modalfake.DefaultTokenSecret)
	p, err := modal.FromEnv()
	require.NoError(t, err)
	defer p.Close()
	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "fleet"})
	require.NoError(t, err)
	err = m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
		var out bytes.Buffer
		if err := sb.Upload(ctx, "/srv/a file", strings.NewReader("over sockets")); err != nil {
			return err
		}
		if err := sb.Download(ctx, "/srv/a file", &out); err != nil {
			return err
		}
		assert.Equal(t, "over sockets", out.String())
		return nil
	})
	require.NoError(t, err)
	assert.Empty(t, fake.All())
}
