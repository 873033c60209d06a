package main

import (
	"os"
	"syscall"
)

// endings are the signals that ask for the program's end. The console tells the program itself.
func endings() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

func others() []os.Signal { return nil }
