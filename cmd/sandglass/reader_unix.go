//go:build unix

package main

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// watchReader calls gone when f is a pipe or socket that nobody reads any more, and returns then, or soon after ctx has
// ended or f was closed. A write would tell too, but there may be nothing to write for long.
func watchReader(ctx context.Context, f *os.File, gone func()) {
	const look = 1000 // milliseconds
	raw, err := f.SyscallConn()
	for err == nil && ctx.Err() == nil {
		var n int
		var polled error
		fds := make([]unix.PollFd, 1)
		err = raw.Control(func(fd uintptr) { // meanwhile no other file can get this number
			fds[0].Fd = int32(fd)
			n, polled = unix.Poll(fds, look)
		})
		switch {
		case errors.Is(polled, unix.EINTR):
		case polled != nil:
			return
		case n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
			gone()
			return
		case n > 0:
			return // it cannot be watched
		}
	}
}
