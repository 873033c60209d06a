package modalfake_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
)

func TestTheOfficialSDKLivesItsLife(t *testing.T) {
	s := modalfake.New(modalfake.Options{Quirks: modalfake.Quirks{PageSize: 2}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		assert.NoError(t, <-served)
	})
	t.Setenv("MODAL_SERVER_URL", "http://"+l.Addr().String())
	t.Setenv("MODAL_CONFIG_PATH", "/nonexistent")
	t.Setenv("MODAL_TOKEN_ID", modalfake.DefaultTokenID)
	t.Setenv("MODAL_TOKEN_SECRET", modalfake.DefaultTokenSecret)
	mc, err := modal.NewClient()
	require.NoError(t, err)
	t.Cleanup(mc.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	app, err := mc.Apps.FromName(ctx, "a", &modal.AppFromNameParams{CreateIfMissing: true})
	require.NoError(t, err)
	sb, err := mc.Sandboxes.Create(ctx, app, mc.Images.FromRegistry("alpine:3.21", nil), &modal.SandboxCreateParams{
		Name: "box-1", Timeout: 10 * time.Minute, IdleTimeout: time.Minute, Env: map[string]string{"HELLO": "world"},
		Tags: map[string]string{"run": "r1"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { sb.Detach() })
	p, err := sb.Exec(ctx, []string{"sh", "-c", "echo $HELLO; cat; exit 7"}, nil)
	require.NoError(t, err)
	_, err = p.Stdin.Write([]byte("hi"))
	require.NoError(t, err)
	require.NoError(t, p.Stdin.Close())
	out, err := io.ReadAll(p.Stdout)
	require.NoError(t, err)
	assert.Equal(t, "world\nhi", string(out))
	exit, err := p.Wait(ctx, nil)
	require.NoError(t, err)
	assert.Equal(t, 7, exit)
	list, err := mc.Sandboxes.List(ctx, &modal.SandboxListParams{AppID: app.AppID, Tags: map[string]string{"run": "r1"}})
	require.NoError(t, err)
	n := 0
	for s, err := range list {
		require.NoError(t, err)
		assert.Equal(t, sb.SandboxID, s.SandboxID)
		n++
	}
	assert.Equal(t, 1, n)
	code, err := sb.Terminate(ctx, &modal.SandboxTerminateParams{Wait: true})
	require.NoError(t, err)
	assert.Equal(t, 137, code)
}
