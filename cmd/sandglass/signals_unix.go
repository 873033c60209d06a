//go:build unix

package main

import (
	"os"
	"syscall"
)

// endings are the signals that ask for the program's end.
func endings() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
}

// others are passed on and mean nothing here.
func others() []os.Signal { return []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2} }
