//go:build linux

package main

import (
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPortIsHeldWhileItsComponentIsDown(t *testing.T) {
	port, err := holdPort()
	require.NoError(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	sharing := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var fault error
		err := raw.Control(func(fd uintptr) { fault = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, soReusePort, 1) })
		if err != nil {
			return err
		}
		return fault
	}}
	for range 2 { // the second time as one that is started again
		_, err = net.Listen("tcp", address)
		require.ErrorIs(t, err, syscall.EADDRINUSE, "another program's")
		_, err = net.Dial("tcp", address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED, "nobody answers")

		l, err := sharing.Listen(t.Context(), "tcp", address)
		require.NoError(t, err)
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		accepted, err := l.Accept()
		require.NoError(t, err)
		assert.Equal(t, conn.LocalAddr().String(), accepted.RemoteAddr().String())
		for _, c := range []interface{ Close() error }{accepted, conn, l} {
			require.NoError(t, c.Close())
		}
	}
}
